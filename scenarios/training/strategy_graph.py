"""The graph of a training step whose layers are divided into data groups and model shards, each layer in its own way.

Every layer has a forward operator, a backward operator and an update on each device. These tensors cross links: gathered
outputs, sums of the gradients of inputs and of weights (rings of :mod:`scenarios.training.collectives`), and what a device
lacks where two neighbouring layers differ in layout. Device ``i`` of a layer with ``m`` shards is shard ``i mod m`` of group
``i div m``; group ``g`` of ``d`` has the ``g``-th of ``d`` equal parts of the batch.

The graph has the times and bytes of layers, not their kernels. It can be simulated, drawn and saved; hardware cannot run it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from scenarios.training.assembly import Assembly
from scenarios.training.collectives import Ranks
from scenarios.training.parallelism import Parallel
from scenarios.training.strategy_layers import StrategyLayers
from simulator.model.operator import UPDATED, Operator, Tensor, TensorSpec
from simulator.model.pass_tags import tagged

Interval = tuple[Fraction, Fraction]
"""A part of the batch."""


class Layout(NamedTuple):
    """Groups and shards of a layer."""

    groups: int
    shards: int

    def share(self, device: int) -> Interval:
        """The part of the batch that a device has."""
        group = device // self.shards
        return Fraction(group, self.groups), Fraction(group + 1, self.groups)

    def cut_as(self, other: Layout, device: int) -> list[Interval]:
        """A device's part, cut where another layout's parts begin if neither layout's divide the other's."""
        first, last = self.share(device)
        if self.groups % other.groups == 0 or other.groups % self.groups == 0:
            return [(first, last)]
        cuts = [Fraction(g, other.groups) for g in range(other.groups + 1)]
        ends = [first, *(c for c in cuts if first < c < last), last]
        return list(itertools.pairwise(ends))


class Pieces(NamedTuple):
    """What one device has to give."""

    intervals: Sequence[Interval]
    tensors: Sequence[int]


def divided_step(
    layers: StrategyLayers,
    shards: Sequence[int],
    devices: Sequence[int],
    beside: dict[int, int],
    overlap: bool,
    priced: bool,
) -> Parallel:
    """A step in which each layer has so many shards.

    Args:
        layers: of the step.
        shards: of each layer, divisors of the number of devices.
        devices: numbers in the cluster.
        beside: for a device another one of the same memory that sums and copies for it; a device without one does so
            itself, between its layers.
        overlap: gradients of weights are summed as soon as they are there, else behind the backward pass.
        priced: tensors have elements, so that sums and copies can be priced.

    Returns:
        The graph, where it runs, and in ``origin`` the rows of ``layers.costs``; -1 for sums and copies.
    """
    return _Division(layers, shards, devices, beside, overlap, priced).done()


class _Division:
    def __init__(
        self,
        layers: StrategyLayers,
        shards: Sequence[int],
        devices: Sequence[int],
        beside: dict[int, int],
        overlap: bool,
        priced: bool,
    ) -> None:
        self.layers, self.devices, self.overlap, self.priced = layers, devices, overlap, priced
        self.layouts = [Layout(len(devices) // m, m) for m in shards]
        self.sums_on = [beside.get(device, device) for device in devices]
        self.parts = Assembly()
        self.last = len(shards) - 1
        self.ranks = range(len(devices))
        self.kept: dict[tuple[int, int], list[int]] = {}  # what the backward pass reads

    def done(self) -> Parallel:
        read: list[list[int]] = [[] for _ in self.ranks]
        for layer in range(self.last + 1):
            read = self._forward(layer, read)
        gradients: dict[int, list[list[int]]] = {}
        for layer in range(self.last, -1, -1):
            read, gradients[layer] = self._backward(layer, read)
        for layer in range(self.last, -1, -1):
            self._update(layer, gradients[layer])
        for number, row_of in enumerate(self.parts.origin):
            if row_of < 0:
                row = self.parts.operators[number]
                renamed = dataclasses.replace(row, name=tagged(row.name, "C"))
                self.parts.operators[number] = renamed
        origin = np.array(self.parts.origin)
        source = self.layers.graph
        graph = self.parts.graph(f"{source.name}_by_layers", [], source.batch)
        device = np.array(self.parts.device)
        return Parallel(graph, device, self.parts.order, origin, origin < 0)

    # -- passes ---------------------------------------------------------------------------------

    def _forward(self, layer: int, read: list[list[int]]) -> list[list[int]]:
        """Compute a layer everywhere; returns what each device reads of it for the next one."""
        known, here = self.layers, self.layouts[layer]
        after = self.layouts[min(layer + 1, self.last)]
        inputs = self._inputs(layer)
        given, carried = [], []
        for rank in self.ranks:
            weight = self.parts.tensor(
                self._tensor(f"weight@{rank}", layer, known.weights[layer] / here.shards, "weight")
            )
            cuts = here.cut_as(after, rank)
            skipped = max(0.0, known.crossing[layer] - known.outputs[layer])
            outputs = [
                (f"{what}{number}@{rank}", float(end - begin) * size / here.shards)
                for what, size in (("out", known.outputs[layer]), ("past", skipped))
                for number, (begin, end) in enumerate(cuts)
                if what == "out" or size > 0
            ]
            outputs.append((f"kept@{rank}", known.kept[layer] / here.groups))
            made = self._operator(
                *("F", layer, rank, [*read[rank], *inputs[rank], weight], outputs),
                (0, layer, 0),
            )
            given.append(Pieces(cuts, made[: len(cuts)]))
            carried.append(Pieces(cuts, made[len(cuts) : -1]))
            self.kept[layer, rank] = [weight, made[-1]]
        turn = (0, layer, 1)
        held = self._gathered(f"{known.names[layer]}/gather", given, here, after, turn)
        return self._with_lacking(held, carried, here, after)

    def _backward(
        self, layer: int, read: list[list[int]]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Undo a layer; returns what each device reads of gradients for the layer before, and for its update."""
        known, here = self.layers, self.layouts[layer]
        before = self.layouts[max(layer - 1, 0)]
        partial, carried, own = [], [], []
        step = self.last - layer
        for rank in self.ranks:
            cuts = here.cut_as(before, rank) if layer else []
            crossing = known.crossing[layer - 1] if layer else 0.0
            skipped = max(0.0, crossing - known.inputs[layer])
            outputs = [(f"weight_grad@{rank}", known.weights[layer] / here.shards)]
            outputs += [
                (f"in_grad{number}@{rank}", float(end - begin) * known.inputs[layer])
                for number, (begin, end) in enumerate(cuts)
            ]
            if skipped > 0:
                outputs += [
                    (f"past_grad{number}@{rank}", float(end - begin) * skipped / here.shards)
                    for number, (begin, end) in enumerate(cuts)
                ]
            given = [*read[rank], *self.kept[layer, rank]]
            made = self._operator("B", layer, rank, given, outputs, (1, step, 0))
            own.append(made[0])
            partial.append(Pieces(cuts, made[1 : 1 + len(cuts)]))
            carried.append(Pieces(cuts, made[1 + len(cuts) :]))
        held: list[list[int]] = [[] for _ in self.ranks]
        if layer:
            name, turn = f"{known.names[layer]}/sum", (1, step, 1)
            scattered = self._scattered(name, partial, here, turn)
            held = self._gathered(name, scattered, here, before, turn)
            held = self._with_lacking(held, carried, here, before)
        gradient_turn = (1, step, 2) if self.overlap else (2, step, 0)
        return held, self._summed(layer, own, here, gradient_turn)

    def _update(self, layer: int, gradients: list[list[int]]) -> None:
        known, here = self.layers, self.layouts[layer]
        for rank in self.ranks:
            held = [self.kept[layer, rank][0]]
            if known.states[layer] > 0:
                size = known.states[layer] / here.shards
                held.append(self.parts.tensor(self._tensor(f"state@{rank}", layer, size, "weight")))
            name = tagged(known.names[layer], "U", replica=rank)
            written = [
                dataclasses.replace(row, name=f"{row.name}{UPDATED}", role="activation")
                for row in (self.parts.tensors[t] for t in held)
            ]
            row = 3 * layer + 2
            read = [*held, *gradients[rank]]
            device = self.devices[rank]
            self.parts.operator(Operator(name, "update"), read, written, device, (3, layer), row)

    def _operator(
        self,
        phase: str,
        layer: int,
        rank: int,
        read: Sequence[int],
        outputs: Sequence[tuple[str, float]],
        turn: Any,
    ) -> list[int]:
        name = tagged(f"{self.layers.names[layer]}@{rank}", phase, 0)
        written = [self._tensor(label, layer, size) for label, size in outputs]
        row = 3 * layer + (0 if phase == "F" else 1)
        operator = Operator(name, "forward" if phase == "F" else "backward")
        reads = list(dict.fromkeys(read))
        return self.parts.operator(operator, reads, written, self.devices[rank], turn, row)

    def _tensor(self, label: str, layer: int, size: float, role: Any = "activation") -> Tensor:
        name = f"{self.layers.names[layer]}/{label}"
        if not self.priced:
            return Tensor(name, role, size)
        spec = TensorSpec((max(1, round(size / 4)),))
        return Tensor(name, role, float(spec.bytes), spec)

    def _inputs(self, layer: int) -> list[list[int]]:
        """What each device reads of the job's inputs in a layer, its part of the batch of each."""
        graph, here = self.layers.graph, self.layouts[layer]
        found: list[list[int]] = [[] for _ in self.ranks]
        for tensor in graph.inputs:
            readers = {int(self.layers.layer[r]) for r in graph.consumers[tensor]}
            if layer not in readers:
                continue
            for group in range(here.groups):
                label = f"{graph.tensors[tensor].name}.{group}"
                size = graph.tensors[tensor].bytes / here.groups
                own = self.parts.tensor(self._tensor(label, layer, size, "input"))
                for rank in range(group * here.shards, (group + 1) * here.shards):
                    found[rank].append(own)
        return found

    # -- what crosses ---------------------------------------------------------------------------

    def _ring(self, name: str, members: Sequence[int], turn: Any) -> Ranks:
        devices = [self.sums_on[rank] for rank in members]
        return Ranks(self.parts, devices, f"{name}@{members[0]}", turn)

    def _gathered(
        self, name: str, given: Sequence[Pieces], here: Layout, there: Layout, turn: Any
    ) -> list[list[int]]:
        """What each device reads: all shards of its group's part, and of what it lacks in another layout."""
        # Groups that become one in the other layout gather in one ring.
        size = there.shards if there.shards % here.shards == 0 else here.shards
        held: list[list[int]] = [[] for _ in self.ranks]
        for first in range(0, len(self.ranks), size):
            members = range(first, first + size)
            for piece in range(len(given[first].tensors)):
                ring = self._ring(f"{name}{piece}", members, turn)
                rows = ring.all_gather([given[rank].tensors[piece] for rank in members])
                for rank, row in zip(members, rows, strict=True):
                    held[rank] += row
        if here.shards % there.shards and there.shards % here.shards:
            return self._with_lacking(held, given, here, there)
        return held

    def _with_lacking(
        self, held: list[list[int]], given: Sequence[Pieces], here: Layout, there: Layout
    ) -> list[list[int]]:
        """And straight from other groups what a device lacks in the other layout."""
        for rank in self.ranks:
            begin, end = there.share(rank)
            own = rank // here.shards
            for other in self.ranks:
                if other // here.shards == own:
                    continue
                held[rank] += [
                    tensor
                    for (first, last), tensor in zip(*given[other], strict=False)
                    if first < end and begin < last
                ]
        return held

    def _scattered(
        self, name: str, partial: Sequence[Pieces], here: Layout, turn: Any
    ) -> list[Pieces]:
        """Each shard's part of the sum over the shards of its group."""
        found: list[list[int]] = [[] for _ in self.ranks]
        for first in range(0, len(self.ranks), here.shards):
            members = range(first, first + here.shards)
            for piece in range(len(partial[first].tensors)):
                ring = self._ring(f"{name}{piece}", members, turn)
                chunks = ring.reduce_scatter([partial[rank].tensors[piece] for rank in members])
                for rank, chunk in zip(members, chunks, strict=True):
                    found[rank].append(chunk)
        return [Pieces(partial[rank].intervals, found[rank]) for rank in self.ranks]

    def _summed(self, layer: int, own: Sequence[int], here: Layout, turn: Any) -> list[list[int]]:
        """Each device's gradient, summed over the replicas of its shard."""
        found: list[list[int]] = [[] for _ in self.ranks]
        name = f"{self.layers.names[layer]}/weight_grad"
        for shard in range(here.shards):
            members = range(shard, len(self.ranks), here.shards)
            ring = self._ring(name, members, turn)
            rows = ring.all_gather(ring.reduce_scatter([own[rank] for rank in members]))
            for rank, row in zip(members, rows, strict=True):
                found[rank] = row
        return found


__all__ = ["Layout", "divided_step"]
