"""Room in memory spaces: what the event loop tells a memory and asks of it.

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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from simulator.model.graph import DataflowGraph

if TYPE_CHECKING:
    from simulator.links.flows import Flow


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

    keeps_jobs: bool
    """Whether it needs what the run knows of jobs that have left."""

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

    def store_of(self, graph: DataflowGraph) -> int | None:
        """The space that a graph's weights come from; None if they are resident."""
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

    def reopened(self, task: int) -> None:
        """A finished task must run again; it is placed nowhere."""

    def failed(self, job: int) -> None:
        """Tasks of a job that are not running will never run; none of them is queued."""

    def called_off(self, flow: Flow) -> bool:
        """A transfer is called off; returns whether it had been handed to its links."""
        ...

    def lose(self, space: int) -> None:
        """Copies and weights on demand in a space are gone; transfers to and from it were called off."""

    def moved(self, tensor: int, space: int) -> None:
        """The original of a tensor is gone; the copy in ``space`` takes its place."""

    def gone(self, tensor: int) -> None:
        """The original of a tensor is gone, and there is no copy."""

    def request_again(self, tensor: int) -> None:
        """Ask for a weight wherever it is needed and neither there nor on its way."""

    def jobs_waiting_for(self, tensor: int, space: int) -> list[int]:
        """The jobs of queued tasks that need a weight in a space."""
        ...

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

    @property
    def evicted(self) -> int:
        """How many weights were evicted so far."""
        ...

    def take_back_evictions(self, count: int) -> list[tuple[int, int]]:
        """Undo all evictions of this decision but the first ``count`` of the run; returns their weights and spaces."""
        ...

    def evict_weight(self, number: int, space: int) -> None:
        """Evict a weight if it is there and nobody needs it."""

    def report(self) -> dict[str, Any]:
        """What the trace's ``meta`` says of it."""
        ...
