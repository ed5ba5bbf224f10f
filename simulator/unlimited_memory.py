"""Memory without limits: nothing is counted, and nothing waits for room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulator.errors import SchedulingError
from simulator.graph import DataflowGraph

if TYPE_CHECKING:
    from simulator.flows import Flow
    from simulator.memory import Links


class UnlimitedMemory:
    """Room for everything, and every weight is everywhere.

    Args:
        links: what carries transfers; None where nobody sends any through here.
    """

    def __init__(self, links: Links | None = None) -> None:
        if links is not None:
            self.send = links.request  # type: ignore[method-assign]
            self.expected = links.expected  # type: ignore[method-assign]

    def send(self, flow: Flow) -> None:
        """See :class:`simulator.memory.Memory`."""
        raise NotImplementedError

    def expected(self, flow: Flow) -> float:
        """See :class:`simulator.memory.Memory`."""
        raise NotImplementedError

    def arrived(self, job: int) -> None:
        """See :class:`simulator.memory.Memory`."""

    batched = rejected = arrived

    def is_outside(self, job: int) -> bool:
        """See :class:`simulator.memory.Memory`."""
        return False

    def placed(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.Memory`."""

    fetch = withdrawn = finished = lost = placed

    def wants(self, tensor: int, space: int) -> bool:
        """See :class:`simulator.memory.Memory`."""
        return False

    def settle(self) -> None:
        """See :class:`simulator.memory.Memory`."""

    check = settle

    def admit(self, task: int, device: int) -> bool:
        """See :class:`simulator.memory.Memory`."""
        return True

    def relax(self) -> bool:
        """See :class:`simulator.memory.Memory`."""
        return False

    def delivered(self, tensor: int, space: int) -> None:
        """See :class:`simulator.memory.Memory`."""

    def free_bytes(self, space: int) -> float:
        """See :class:`simulator.memory.Memory`."""
        return math.inf

    def waiting_bytes(self, space: int) -> float:
        """See :class:`simulator.memory.Memory`."""
        return 0.0

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """See :class:`simulator.memory.Memory`."""
        return graph.weight_bytes

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :class:`simulator.memory.Memory`."""
        raise SchedulingError("This run keeps weights resident: there is nothing to evict")

    def report(self) -> dict[str, Any]:
        """See :class:`simulator.memory.Memory`."""
        return {}
