"""Room in memory spaces: what the event loop tells a memory, asks of it, and which memories there are.

``unlimited`` memory counts nothing. ``limited`` memory counts whole bytes, each tensor rounded up:

- An output occupies its space from its execution's start (on a device with a completion latency: from
  its submission, and to when the host knows); a job's input its origin from the job's arrival; a copy its
  destination from the request of its transfer. How long they are wanted says :mod:`simulator.memory.liveness`.
- What an operator keeps for itself (``inner_bytes`` of a graph) occupies its space while it executes.
- Weights, ``resident`` or ``on_demand``: :mod:`simulator.memory.weights`.

What finds no room waits (:mod:`simulator.memory.room_queues`). A task that finds no room for its outputs holds up
its device, not the line.

Data that nobody wants any more gives its room back, yet it can be used again without another transfer
until its room is taken; what was unwanted first is dropped first.

Inputs that were sent ahead leave the space where they lay. In the memory spaces of nodes inputs take no more
than :mod:`simulator.memory.serving_limits` allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from simulator.errors import InvalidInput
from simulator.memory.limited import LimitedMemory
from simulator.memory.serving_limits import node_rooms
from simulator.memory.weights import weight_store
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Workload

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun
    from simulator.links.flows import Flow

MEMORIES = ("unlimited", "limited")
WEIGHTS = ("resident", "on_demand")


class Links(Protocol):
    """What carries transfers."""

    def request(self, flow: Flow) -> None:
        """Start a transfer, or queue it."""
        ...

    def expected(self, flow: Flow) -> float:
        """When it will be there, seconds."""
        ...


class Memory(Protocol):
    """What the event loop tells and asks. Tasks, devices, spaces and tensors are its numbers."""

    def send(self, flow: Flow) -> None:
        """Hand a transfer to its links once there is room for what it brings."""
        ...

    def expected(self, flow: Flow) -> float:
        """When a transfer is believed to be there, seconds."""
        ...

    def arrived(self, job: int) -> None:
        """A job has arrived, with its inputs."""

    def is_outside(self, job: int) -> bool:
        """Whether a job's inputs have found no room yet where they come from."""
        ...

    def batched(self, leader: int) -> None:
        """Jobs are to be served by the graph that their leader runs from now on."""

    def rejected(self, job: int) -> None:
        """A job will not be served."""

    def placed(self, task: int, device: int) -> None:
        """A task has entered a device's queue."""

    def fetch(self, task: int, device: int) -> None:
        """A placed task may have its data brought from now on."""

    def withdrawn(self, task: int, device: int) -> None:
        """A queued task is taken back."""

    def wants(self, tensor: int, space: int) -> bool:
        """Whether a weight is asked for in a space."""
        ...

    def settle(self) -> None:
        """After the decision of an instant: let those go on that waited for room."""

    def admit(self, task: int, device: int) -> bool:
        """Whether a task can start as far as memory is concerned; takes room for its outputs."""
        ...

    def finished(self, task: int, device: int) -> None:
        """A task has finished."""

    def lost(self, task: int, device: int) -> None:
        """A running task was taken from its device; it will be placed again."""

    def delivered(self, tensor: int, space: int) -> None:
        """A transfer has ended."""

    def relax(self) -> bool:
        """Nothing is left to happen: let something go on that waited for others' sake, if it can."""
        ...

    def check(self) -> None:
        """Nothing is left to happen: refuse that anything waits for room.

        Raises:
            SchedulingError: names it.
        """

    def free_bytes(self, space: int) -> float:
        """Bytes that nothing occupies."""
        ...

    def waiting_bytes(self, space: int) -> float:
        """Bytes of what waits for room."""
        ...

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """Bytes of a graph's weights that are there."""
        ...

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :meth:`simulator.context.scheduling.SchedulingContext.evict`."""
        ...

    def report(self) -> dict[str, Any]:
        """What the trace's ``meta`` says of it."""
        ...


def make_memory(
    run: SimulatedRun, links: Links, memory: str, weights: str, workload: Workload
) -> Memory | None:
    """What carries out the settings ``memory`` and ``weights`` (see :func:`simulator.simulate`); None where
    nothing is counted.
    """
    if not counts_memory(memory, weights):
        return None
    capacities = [
        space.capacity if memory == "limited" else math.inf for space in run.cluster.spaces
    ]
    store = weight_store(workload, run.cluster) if weights == "on_demand" else None
    inputs = [math.inf] * len(capacities)
    if memory == "limited" and run.serving:
        rooms = node_rooms(workload, run.cluster, run.believed_costs)
        inputs = [room.inputs for room in rooms]
    return LimitedMemory(run, links, capacities, store, inputs)


def abilities(weights: str) -> frozenset[str]:
    """What schedulers may do with weights that are ``resident`` or ``on_demand``."""
    return frozenset({"evict"}) if weights == "on_demand" else frozenset()


def counts_memory(memory: str, weights: str) -> bool:
    """Whether room matters, or weights move.

    Raises:
        InvalidInput: a setting is unknown.
    """
    for what, value, known in (("memory", memory, MEMORIES), ("weights", weights, WEIGHTS)):
        if value not in known:
            raise InvalidInput(f"Unknown {what} '{value}'; known: {', '.join(known)}")
    return memory != "unlimited" or weights != "resident"
