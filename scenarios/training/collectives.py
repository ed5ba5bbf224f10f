"""Collective operations, as transfers and sums of chunks, and as closed forms.

Every rank has a flat buffer on a device of its own. Expanded, a collective is operators on the ranks' devices: what
one reads of another rank crosses the links between them, so that rings, trees and servers contend with everything
else. As one operator it runs on a *communicator*, a device that stands for the links, and takes the seconds of the
closed form; both are equal where nothing contends.

R. Thakur, R. Rabenseifner and W. Gropp, *Optimization of collective communication operations in MPICH*, IJHPCA 2005;
P. Patarasuk and X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, JPDC 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from scenarios.training.assembly import Assembly, Seen
from simulator.errors import InvalidInput
from simulator.model.operator import Operator, Tensor

ALGORITHMS = ("ring", "tree", "hierarchical")


class Ranks:
    """A group of devices that communicate.

    Args:
        parts: the graph under construction.
        devices: of the ranks.
        name: begins the names of what is added.
        turn: place of the added operators on their devices.
    """

    def __init__(self, parts: Assembly, devices: Sequence[int], name: str, turn: Any) -> None:
        self.parts, self.devices, self.name, self.turn = parts, list(devices), name, turn

    def __len__(self) -> int:
        return len(self.devices)

    def subset(self, ranks: Sequence[int], name: str) -> Ranks:
        """Some of the ranks."""
        return Ranks(self.parts, [self.devices[r] for r in ranks], f"{self.name}/{name}", self.turn)

    # -- expanded -------------------------------------------------------------------------------

    def all_reduce(
        self, buffers: Sequence[int], algorithm: str = "ring", node_size: int | None = None
    ) -> list[int]:
        """The sum of all buffers, on every rank.

        Args:
            buffers: a flat tensor of each rank.
            algorithm: ``ring``: reduce-scatter and all-gather; ``tree``: binomial, up and down; ``hierarchical``:
                reduce-scatter within nodes, rings across them, all-gather within.
            node_size: consecutive ranks that are a node.

        Raises:
            InvalidInput: an unknown algorithm, or ranks that are not of whole nodes.
        """
        if algorithm not in ALGORITHMS:
            raise InvalidInput(
                f"There is no all-reduce '{algorithm}'; known: {', '.join(ALGORITHMS)}"
            )
        if len(self) == 1:
            return list(buffers)
        if algorithm == "tree":
            return self._tree(buffers)
        if algorithm == "ring":
            return self._gathered(self.reduce_scatter(buffers))
        size = node_size or 0
        if size < 1 or len(self) % size:
            raise InvalidInput(
                f"A hierarchical all-reduce of {len(self)} ranks cannot have nodes of {node_size}; give a divisor"
            )
        chunks: list[int] = []
        for first in range(0, len(self), size):
            node = self.subset(range(first, first + size), f"node{first // size}")
            chunks += node.reduce_scatter(buffers[first : first + size])
        for place in range(size):
            across = list(range(place, len(self), size))
            ring = self.subset(across, f"across{place}")
            for rank, total in zip(
                across, ring.all_reduce([chunks[r] for r in across]), strict=True
            ):
                chunks[rank] = total
        found: list[int] = []
        for first in range(0, len(self), size):
            node = self.subset(range(first, first + size), f"node{first // size}")
            found += node._gathered(chunks[first : first + size])
        return found

    def reduce_scatter(self, buffers: Sequence[int]) -> list[int]:
        """Rank ``r``'s chunk of the sum on rank ``r``, by a ring."""
        n = len(self)
        if n == 1:
            return list(buffers)
        # Hop by hop: a device takes up its operators in the order in which they stand here.
        totals = [
            self._slice(buffers[(chunk + 1) % n], (chunk + 1) % n, chunk) for chunk in range(n)
        ]
        for hop in range(2, n + 1):
            for chunk in range(n):
                rank = (chunk + hop) % n
                own, name = self._view(buffers[rank], chunk), f"{self.name}/sum{chunk}.{rank}"
                totals[chunk] = self.parts.added(
                    name,
                    Seen(totals[chunk]),
                    own or Seen(buffers[rank]),
                    self.devices[rank],
                    self.turn,
                )
        return totals

    def all_gather(self, chunks: Sequence[int]) -> list[list[int]]:
        """Every rank's chunk on every rank, by a ring: for each rank the chunks, in order."""
        n = len(self)
        held = [[-1] * n for _ in range(n)]
        for chunk, tensor in enumerate(chunks):
            held[chunk][chunk] = tensor
        for hop in range(1, n):
            for chunk in range(n):
                rank = (chunk + hop) % n
                before = held[(rank - 1) % n][chunk]
                held[rank][chunk] = before  # read over the link between
                if hop < n - 1:
                    name = f"{self.name}/relay{chunk}.{rank}"
                    device = self.devices[rank]
                    held[rank][chunk] = self.parts.copied(name, Seen(before), device, self.turn)
        return held

    def all_to_all(self, buffers: Sequence[int]) -> list[int]:
        """Chunk ``r`` of every rank's buffer on rank ``r``, in the order of ranks."""
        n = len(self)
        sent = [[-1] * n for _ in range(n)]
        for shift in range(n):  # no two ranks send to one at a time
            for rank, buffer in enumerate(buffers):
                chunk = (rank + shift) % n
                sent[rank][chunk] = self._slice(buffer, rank, chunk)
        return [self._join([sent[source][rank] for source in range(n)], rank) for rank in range(n)]

    def push(self, buffers: Sequence[int], server: int) -> int:
        """The sum of all buffers on a server's device; whoever reads it there pulls it."""
        total = buffers[0]
        for rank, buffer in enumerate(buffers[1:], start=1):
            name = f"{self.name}/push{rank}"
            total = self.parts.added(name, Seen(total), Seen(buffer), server, self.turn)
        return total

    def _tree(self, buffers: Sequence[int]) -> list[int]:
        held, n = list(buffers), len(self)
        rounds = [1 << k for k in range((n - 1).bit_length())]
        for stride in reversed(rounds):
            for rank in range(min(stride, n - stride)):
                other, name = rank + stride, f"{self.name}/up{rank}.{rank + stride}"
                held[rank] = self.parts.added(
                    name, Seen(held[rank]), Seen(held[other]), self.devices[rank], self.turn
                )
        # Whoever feeds most others is fed first: a link sends to the first of several memories first.
        for stride in rounds:
            for rank in range(min(stride, n - stride)):
                other = rank + stride
                held[other] = held[rank]
                if other + stride * 2 < n:
                    device = self.devices[other]
                    name = f"{self.name}/down{other}"
                    held[other] = self.parts.copied(name, Seen(held[rank]), device, self.turn)
        return held

    def _gathered(self, chunks: Sequence[int]) -> list[int]:
        if len(self) == 1:
            return list(chunks)
        held = self.all_gather(chunks)
        return [self._join(row, rank) for rank, row in enumerate(held)]

    def _join(self, row: Sequence[int], rank: int) -> int:
        name = f"{self.name}/joined{rank}"
        return self.parts.joined(name, [Seen(t) for t in row], self.devices[rank], self.turn)

    def _view(self, buffer: int, chunk: int) -> Seen | None:
        spec = self.parts.tensors[buffer].spec
        if spec is None:
            return None
        ends = [spec.elements * c // len(self) for c in (chunk, chunk + 1)]
        return self.parts.cut(Seen(buffer), *ends)

    def _slice(self, buffer: int, rank: int, chunk: int) -> int:
        """A chunk of a buffer by itself, so that it alone crosses."""
        view, name = self._view(buffer, chunk), f"{self.name}/chunk{chunk}.{rank}"
        if view is not None:
            return self.parts.copied(name, view, self.devices[rank], self.turn)
        size = self.parts.tensors[buffer].bytes / len(self)
        return self.parts.made(
            name, "copy", "", [Seen(buffer)], size, None, self.devices[rank], self.turn
        )

    # -- as one operator ------------------------------------------------------------------------

    def at_once(self, buffers: Sequence[int], communicator: int) -> list[int]:
        """The sum of all buffers by one operator of a communicator; its seconds are the caller's to give."""
        written = [
            Tensor(f"{self.name}/reduced{rank}", "activation", tensor.bytes, tensor.spec)
            for rank, tensor in enumerate(self.parts.tensors[b] for b in buffers)
        ]
        operator = Operator(f"{self.name}/all_reduce", "all_reduce", target="collective.all_reduce")
        return self.parts.operator(operator, list(buffers), written, communicator, self.turn)


def all_reduce_seconds(
    size: float,
    ranks: int,
    bandwidth: float,
    latency: float = 0.0,
    algorithm: str = "ring",
    node_size: int = 1,
    node_bandwidth: float = math.inf,
) -> float:
    """Seconds of an all-reduce that nothing else disturbs.

    Args:
        size: bytes of a rank's buffer.
        ranks: how many.
        bandwidth: bytes/s that a rank sends and receives with, each way; across nodes if they are grouped.
        latency: seconds of a message.
        algorithm: one of :data:`ALGORITHMS`.
        node_size: ranks of a node.
        node_bandwidth: within a node.
    """
    if ranks == 1:
        return 0.0
    if algorithm == "tree":
        return 2 * math.ceil(math.log2(ranks)) * (latency + size / bandwidth)
    if algorithm == "hierarchical":
        inner = 2 * (node_size - 1) * (latency + size / node_size / node_bandwidth)
        return inner + all_reduce_seconds(size / node_size, ranks // node_size, bandwidth, latency)
    return 2 * (ranks - 1) * (latency + size / ranks / bandwidth)


def half_seconds(size: float, ranks: int, bandwidth: float, latency: float = 0.0) -> float:
    """Seconds of a reduce-scatter, an all-gather or an all-to-all of buffers of so many bytes (gathered ones)."""
    return (ranks - 1) * (latency + size / ranks / bandwidth)


__all__ = ["ALGORITHMS", "Ranks", "all_reduce_seconds", "half_seconds"]
