"""Which weights of a graph with split operators are sliced, and the slices as weights of their own.

A weight that the graph changes (a training step) is sliced only where all its readers, its update among them, need the
same slices of it as it is stored; each slice then has states of its own, and the update writes one for each
(``w[0, 0-4]:updated``). Otherwise every reader has all of it and cuts what it needs, and its update is not split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from cost_models.optimizer_steps import STATE, UPDATED
from scenarios.partition.operator_parts import Split, leaves_of
from scenarios.partition.part_rules import PartRule
from scenarios.partition.view_rules import Cut, View, cut_before
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Part, Tensor, TensorSpec


class WeightSlices:
    """See the module docstring.

    Args:
        graph: before its operators are split.
        splits: by operator.
        rules: of these.

    Attributes:
        splits: without those of updates of weights that stay whole.
        changed: for each weight that the graph changes the tensor that it becomes.
        became: the weight that each of these was.
        whole: weights that are not sliced although split operators may read them.
    """

    def __init__(
        self,
        graph: DataflowGraph,
        splits: Mapping[int, Split],
        rules: Mapping[tuple[int, Split], Sequence[PartRule]],
    ) -> None:
        self.graph = graph
        number = {row.name: t for t, row in enumerate(graph.tensors)}
        names = ((w, graph.tensors[w].name + UPDATED) for w in graph.weights)
        self.changed = {w: number[name] for w, name in names if name in number}
        made = {w for w in graph.weights if graph.tensors[w].value is not None}
        while True:
            agreed = {w for w in self.changed if self._is_agreed(w, splits, rules)}
            kept = self.changed.keys() - agreed
            updates = {graph.producer[self.changed[weight]] for weight in kept}
            if updates.isdisjoint(splits):
                break
            splits = {index: split for index, split in splits.items() if index not in updates}
        self.splits, self.whole = splits, made | kept
        self.became = {tensor: weight for weight, tensor in self.changed.items()}

    def slice_of(
        self, weight: int, views: Sequence[View], spec: TensorSpec, cut: Cut
    ) -> tuple[Tensor, tuple[View, ...]]:
        """A slice as a weight, and the views through which it shows a cut of what is seen of the weight as ``spec``."""
        row = self.graph.tensors[weight]
        behind: tuple[View, ...] = (*views, cut.view)
        rest: tuple[View, ...] = ()
        stored = stored_cut(row.spec, views, cut) if self.changed else None
        part = TensorSpec(cut.of(spec.shape), spec.dtype)
        if stored is not None and row.spec is not None:
            cut, rest = stored
            behind, part = (cut.view,), TensorSpec(cut.of(row.spec.shape), row.spec.dtype)
        of, before = (row.part.of, row.part.views) if row.part else (row.name, ())
        path, colon, state = row.name.partition(STATE)
        name = f"{path}[{cut.dim}, {cut.begin}-{cut.end}]{colon}{state}"
        made = Tensor(name, "weight", float(part.bytes), part, part=Part(of, (*before, *behind)))
        return made, rest

    def has_copies(self, weight: int) -> bool:
        """Whether a weight is an optimiser's scalar, of which each slice of the parameter has its own."""
        return weight in self.changed and weight not in self.whole

    def copy_of(self, weight: int, owner: Tensor) -> Tensor:
        """The scalar of a slice."""
        row = self.graph.tensors[weight]
        name = owner.name + STATE + row.name.partition(STATE)[2]
        return dataclasses.replace(row, name=name, part=Part(row.name, ()))

    def _is_agreed(
        self,
        weight: int,
        splits: Mapping[int, Split],
        rules: Mapping[tuple[int, Split], Sequence[PartRule]],
    ) -> bool:
        """Whether all readers of a weight are split and need the same slices, or, of a scalar, a copy each."""
        row, slices = self.graph.tensors[weight], set()
        for reader in self.graph.consumers[weight]:
            split = splits.get(reader)
            if split is None:
                return False
            for number, leaf in enumerate(leaves_of(self.graph.operators[reader].template)):
                if self.graph.reads[reader][leaf["read"]] != weight:
                    continue
                needs = [rule.needs[number] for rule in rules[reader, split]]
                if row.spec is not None and not row.spec.shape and STATE in row.name:
                    continue
                cuts = [n and stored_cut(row.spec, leaf["views"], n.cut) for n in needs]
                slices.add(tuple(cut and cut[0] for cut in cuts))
        return len(slices) <= 1 and all(None not in cuts for cuts in slices)


def stored_cut(
    spec: TensorSpec | None, views: Sequence[View], cut: Cut
) -> tuple[Cut, tuple[View, ...]] | None:
    """:func:`scenarios.partition.view_rules.cut_before` of what may have bytes alone."""
    return None if spec is None else cut_before(spec, views, cut)
