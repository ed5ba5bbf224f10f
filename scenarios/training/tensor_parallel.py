"""Tensor parallelism of training steps: products that follow each other, split so that nothing is gathered between them.

Megatron's rule, found by spreading layouts. A product with a weight is split along its output features (columns), so
that each shard has some of them. What reads these is split along the dimension of which just the pieces that are there
are needed: element-wise kernels and attention's heads likewise, the next product along its inner dimension (rows). Its
parts are summands of the output, which one device adds up: the first sum of a pair. The backward pass follows by the
same rule, and its second sum is that of the gradient of what the pair reads; gradients of weights, updates and states
of the optimiser lie as the weights do. A group of operators is split only if every reader of a piece, forward,
backward and in updates, can be split so; what else there is runs on the first shard. So queries, keys and values are
split together, which one attention reads; a product that gives all three has pieces of another kind and stays whole.

Source: M. Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scenarios.partition.operator_parts import Split, leaves_of
from scenarios.partition.part_rules import INNER, PartRule
from scenarios.partition.split_graph import split_graph
from scenarios.partition.split_rules import axes_of
from scenarios.partition.view_rules import Cut
from scenarios.partition.weight_slices import stored_cut
from scenarios.training.parallelism import Layout
from scenarios.training.step import Step
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph


@dataclass(frozen=True, eq=False)
class Sharded:
    """A step of which groups of operators are split over shards.

    Attributes:
        step: of the graph with the parts; a part is of the phase, and stands at the place, of its operator.
        shard: int64[operators], of each one.
        origin: int64[operators], the operator of the unsplit step that each one serves.
        splits: operators of the unsplit step that are split: how many.
    """

    step: Step
    shard: np.ndarray
    origin: np.ndarray
    splits: int

    def seconds(self, seconds: np.ndarray, workers: Sequence[Sequence[int]]) -> np.ndarray:
        """float64[operators of the unsplit step, workers]: of each one's slowest shard.

        Args:
            seconds: float64[operators, devices], of the split step.
            workers: the devices of each, one for each shard.
        """
        shards, count = len(workers[0]), int(self.origin[-1]) + 1
        found = np.zeros((shards, count, len(workers)))
        for shard in range(shards):
            mine = np.flatnonzero(self.shard == shard)
            devices = [worker[shard] for worker in workers]
            np.add.at(found[shard], self.origin[mine], seconds[mine][:, devices])
        return found.max(axis=0)

    def laid_out(self, layout: Layout) -> Layout:
        """A layout of the unsplit step for this one."""
        again = layout.recompute
        return dataclasses.replace(
            layout,
            part=layout.part[self.origin],
            shard=self.shard,
            recompute=None if again is None else again[self.origin],
        )


def sharded(step: Step, shards: int) -> Sharded:
    """A step over so many shards, equal parts each; see the module docstring.

    Raises:
        InvalidInput: the graph has no templates, or nothing in it can be split so.
    """
    graph = step.graph
    if any(operator.template is None for operator in graph.operators) or any(
        tensor.spec is None for tensor in graph.tensors
    ):
        raise InvalidInput(
            f"Graph '{graph.name}' does not say what its operators compute (it has no templates), so none can be split "
            f"over {shards} shards; take a traced model, or shards=1"
        )
    layouts = _Layouts(graph, shards, step.updates)
    for operator in step.forward:
        layouts.grow(operator)
    if not layouts.splits:
        raise InvalidInput(
            f"No product of '{graph.name}' can be shared by {shards} shards without its pieces being gathered: its "
            "features, or heads, are no multiple of that, or no second product reads them; take another number of shards"
        )
    placed = split_graph(graph, [0] * len(graph), layouts.splits, range(shards))
    origin = placed.origin
    first = np.searchsorted(origin, np.arange(len(graph)))
    made = Step(
        placed.graph,
        step.phase[origin],
        first[step.anchor[origin]],
        step.weight_only[origin],
        {weight: tensor for tensor, weight in placed.graph.updates.items()},
    )
    return Sharded(made, placed.device, origin, len(layouts.splits))


class _Unfit(Exception):
    """A piece would have to be gathered."""


class _Way(NamedTuple):
    """A way to split an operator.

    Attributes:
        split: into equal parts.
        outs: of each output (:class:`scenarios.partition.part_rules.Rule`).
        cuts: for each leaf its tensor, and the cuts of it as it is stored that the parts need: None if they need all of
            it, an empty list if a part needs what is no cut of a single dimension.
    """

    split: Split
    outs: tuple[int | None, ...]
    cuts: list[tuple[int, list[Cut] | None]]


class _Layouts:
    """Which operators are split, and along which dimension pieces of stored tensors lie.

    Attributes:
        splits: by operator.
        pieces: of tensors that lie in pieces, by shard.
    """

    def __init__(self, graph: DataflowGraph, shards: int, trained: Container[int]) -> None:
        self.graph, self.shards, self.trained = graph, shards, trained
        self.splits: dict[int, Split] = {}
        self.pieces: dict[int, list[Cut]] = {}
        self._known: dict[int, list[_Way]] = {}
        self._waiting: list[int] = []

    def grow(self, seed: int) -> None:
        """Split an operator along output features of a weight, and all that reads these, if that fits."""
        if seed in self.splits or not any(t in self.trained for t in self.graph.reads[seed]):
            return
        for way in self._ways(seed):
            cut = [tensor in self.trained for tensor, cuts in way.cuts if cuts is not None]
            if way.split.dim == INNER or not cut or not all(cut):
                continue
            splits, pieces = dict(self.splits), dict(self.pieces)
            try:
                self._split(seed, way)
                while self._waiting:
                    self._visit(heapq.heappop(self._waiting))
                return
            except _Unfit:
                self.splits, self.pieces, self._waiting = splits, pieces, []

    def _visit(self, reader: int) -> None:
        """Split an operator that reads pieces so that it needs these as they lie."""
        fitting = [way for way in self._ways(reader) if self._fits(way)]
        if reader not in self.splits:
            self._split(reader, next(iter(fitting), None))
        elif self.splits[reader] not in [way.split for way in fitting]:
            raise _Unfit

    def _split(self, operator: int, way: _Way | None) -> None:
        if way is None:
            raise _Unfit
        self.splits[operator] = way.split
        for tensor, dim in zip(self.graph.writes[operator], way.outs, strict=True):
            if dim is not None and dim != INNER:
                shape = self.graph.tensors[tensor].spec
                assert shape is not None  # of graphs with templates
                self._lay(tensor, self._equal(dim, shape.shape[dim]))
        for tensor, cuts in way.cuts:
            if cuts is not None and tensor in self.trained and tensor not in self.pieces:
                self._lay(tensor, cuts)

    def _lay(self, tensor: int, pieces: list[Cut]) -> None:
        if not pieces:
            raise _Unfit
        self.pieces[tensor] = pieces
        for reader in self.graph.consumers[tensor]:
            heapq.heappush(self._waiting, reader)

    def _fits(self, way: _Way) -> bool:
        """Whether a way needs just those pieces that are there."""
        return all(cuts == self.pieces.get(tensor, cuts) for tensor, cuts in way.cuts)

    def _equal(self, dim: int, length: int) -> list[Cut]:
        step = length // self.shards
        return [Cut(dim, n * step, (n + 1) * step) for n in range(self.shards)]

    def _ways(self, operator: int) -> list[_Way]:
        """All ways to split an operator into equal parts."""
        if operator not in self._known:
            found = []
            row = self.graph.operators[operator]
            for axis in axes_of(row).values():
                size = axis.length // self.shards
                split = Split(axis.dim, (size,) * self.shards, tuple(range(self.shards)))
                with contextlib.suppress(InvalidInput):  # indivisible, or of padding alone
                    rules = split.rules(row)
                    found.append(_Way(split, axis.outs, list(self._cuts(operator, rules))))
            self._known[operator] = found
        return self._known[operator]

    def _cuts(
        self, operator: int, rules: Sequence[PartRule]
    ) -> Iterator[tuple[int, list[Cut] | None]]:
        leaves = leaves_of(self.graph.operators[operator].template)
        for number, leaf in enumerate(leaves):
            tensor = self.graph.reads[operator][leaf["read"]]
            spec = self.graph.tensors[tensor].spec
            needs = [need for rule in rules if (need := rule.needs[number]) is not None]
            found = [stored_cut(spec, leaf["views"], need.cut) for need in needs]
            cuts = [cut[0] for cut in found if cut is not None]
            yield tensor, (cuts if len(cuts) == len(rules) else []) if needs else None


__all__ = ["Sharded", "sharded"]
