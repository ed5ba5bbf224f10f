"""Packed transfers: what may be one message, and what a scheduler may not ask for.

A message carries tensors that lie in one memory space to one other space. It is one transfer: the
latency once, the sum of the bytes, and all of it there at its end. So under ``fifo``, where transfers
over a link stand in line, ``n`` tensors of ``S`` bytes each need ``L + n S / B`` instead of
``n (L + S / B)``; under ``none`` and ``fair``, where latencies pass side by side, nothing is gained, and
the first tensor always waits for the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from simulator.context.scheduling import EVERYWHERE
from simulator.errors import SchedulingError
from simulator.model.cluster import Cluster
from simulator.model.workload import Job


class PackingRun(Protocol):
    """What of a run, simulated or real, decides which transfers may be packed."""

    cluster: Cluster
    jobs: list[Job]
    copies: list[dict[int, float]]
    first_tensor: list[int]

    @property
    def requested(self) -> Sequence[Sequence[Any]]:
        """Of this instant; their first two entries are tensor and destination."""

    @property
    def packed(self) -> Mapping[tuple[int, int], Message]:
        """Messages of this instant, by tensor and destination."""

    def is_under_way(self, tensor: int, space: int) -> bool:
        """Whether a transfer of a tensor to a space has begun and not ended."""
        ...

    @property
    def tensor_home(self) -> Sequence[int]:
        """By tensor: the memory space where it lies."""

    @property
    def tensor_written(self) -> Sequence[float]:
        """By tensor: when it was written, seconds; ``inf`` before."""

    def has_started(self, task: int) -> bool:
        """Whether a task has begun to execute."""
        ...

    def job_of_tensor(self, tensor: int) -> int:
        """The job that a tensor belongs to."""
        ...

    def tensor_bytes(self, tensor: int) -> float:
        """Its bytes."""
        ...

    def readers_of(self, tensor: int) -> list[int]:
        """The tasks that read it."""
        ...


class Message(NamedTuple):
    """Tensors (ascending) that cross together, and their bytes."""

    tensors: tuple[int, ...]
    destination: int
    bytes: float


def message(run: PackingRun, transfers: Iterable[tuple[int, int]]) -> Message:
    """The message of these (tensor, space) pairs.

    Raises:
        SchedulingError: they cannot be one message (:meth:`SchedulingContext.pack` says why).
    """
    pairs = list(transfers)
    if not pairs:
        raise SchedulingError("A message needs at least one tensor")
    spaces = [space.name for space in run.cluster.spaces]
    for tensor, space in pairs:
        if not 0 <= tensor < len(run.tensor_home):
            raise SchedulingError(f"There is no tensor {tensor} to pack")
        if not 0 <= space < len(spaces):
            raise SchedulingError(
                f"There is no memory space {space} to pack {_name(run, tensor)} for; the cluster has "
                f"{len(spaces)}"
            )
    first, destination = pairs[0]
    found: set[int] = set()
    asked = {(request[0], request[1]) for request in run.requested}
    for tensor, space in pairs:
        if space != destination:
            raise SchedulingError(
                f"A message goes to one memory space: {_name(run, first)} is to go to "
                f"'{spaces[destination]}' and {_name(run, tensor)} to '{spaces[space]}'"
            )
        if tensor in found:
            raise SchedulingError(f"{_name(run, tensor).capitalize()} is packed twice")
        found.add(tensor)
        why = obstacle(run, tensor, space, (tensor, space) in asked)
        if why:
            raise SchedulingError(f"Cannot pack {_name(run, tensor)} for '{spaces[space]}': {why}")
        if run.tensor_home[tensor] != run.tensor_home[first]:
            raise SchedulingError(
                f"A message comes from one memory space: {_name(run, first)} lies in "
                f"'{spaces[run.tensor_home[first]]}' and {_name(run, tensor)} in '{spaces[run.tensor_home[tensor]]}'"
            )
    tensors = tuple(sorted(found))
    # Rounded once, so that it does not depend on the order.
    return Message(tensors, destination, math.fsum(run.tensor_bytes(t) for t in tensors))


def _name(run: PackingRun, tensor: int) -> str:
    job = run.job_of_tensor(tensor)
    name = run.jobs[job].graph.tensors[tensor - run.first_tensor[job]].name
    return f"tensor '{name}'" if len(run.jobs) == 1 else f"tensor '{name}' of job {job}"


def is_weight(run: PackingRun, tensor: int) -> bool:
    """Whether a tensor is a weight: these cross alone."""
    job = run.job_of_tensor(tensor)
    return run.jobs[job].graph.tensors[tensor - run.first_tensor[job]].role == "weight"


def obstacle(run: PackingRun, tensor: int, space: int, asked: bool) -> str:
    """Why a tensor cannot be part of a message to a space; empty if it can.

    ``asked``: whether it was asked for there at this instant.
    """
    home, key = run.tensor_home[tensor], (tensor, space)
    if is_weight(run, tensor):
        return "weights cross alone"
    if run.tensor_written[tensor] == math.inf:
        return "it is not written yet"
    if home == EVERYWHERE:
        return "it lies in every memory space"
    if home == space:
        return "it lies there"
    if key in run.packed:
        return "it is in another message"
    if asked:
        return ""
    if run.is_under_way(tensor, space):
        return "it is under way"
    if tensor in run.copies[space]:
        return "it is there"
    if all(map(run.has_started, run.readers_of(tensor))):
        return "no task that has yet to start reads it"
    return ""
