"""A graph with some operators split into parts.

Every part is an operator of its own on a device of its own. What it needs of a tensor is read where the tensor lies:
through a view where that is the part's own memory, else a ``copy`` there makes the slice, so that only the slice's
bytes move. Parts that need what parts wrote read exactly these where their cuts agree; where they do not, pieces are
put together by ``cat`` (of a split along the inner dimension: by ``add``). Slices of weights are weights of their own
(:mod:`scenarios.partition.weight_slices`). What nobody needs whole is never put together.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.optimizer_steps import UPDATED
from scenarios.partition.operator_parts import Split, finished, leaves_of, reading
from scenarios.partition.part_rules import INNER, Need, PartRule
from scenarios.partition.view_rules import Cut, View, cut_before, dense_like, seen_through, sliced
from scenarios.partition.weight_slices import WeightSlices
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor, TensorSpec


@dataclass(frozen=True)
class Placed:
    """A transformed graph and where its operators run.

    Attributes:
        graph: computes what the original does.
        device: int64[operators].
        origin: int64[operators], the original operator that each one serves.
    """

    graph: DataflowGraph
    device: np.ndarray
    origin: np.ndarray


def split_graph(
    graph: DataflowGraph,
    device: Sequence[int],
    splits: Mapping[int, Split],
    space_of: Sequence[int],
    home: int | None = None,
    known: dict[tuple[int, Split], list[PartRule]] | None = None,
) -> Placed:
    """The graph in which some operators are split.

    Args:
        graph: of operators with templates.
        device: of each operator that is not split.
        splits: by operator.
        space_of: for each device its memory.
        home: memory in which the job's inputs lie and its results are wanted; None: anywhere.
        known: rules of splits of this graph's operators; those that are missing are added.

    Raises:
        InvalidInput: an operator has no such split (it is named).
    """
    rules = {} if known is None else known
    for index, split in splits.items():
        if (index, split) not in rules:
            rules[index, split] = split.rules(graph.operators[index])
    return _Transformation(graph, device, splits, rules, space_of, home).done()


@dataclass(frozen=True)
class _Piece:
    tensor: int
    device: int
    begin: int
    end: int


@dataclass(frozen=True)
class _Held:
    """What an original tensor has become: one tensor (``device`` None: an input), or pieces along a dimension."""

    pieces: tuple[_Piece, ...]
    dim: int | None = None


@dataclass(frozen=True)
class _Seen:
    """A tensor as an operator reads it."""

    tensor: int
    views: tuple[View, ...]
    spec: TensorSpec


class _Transformation:
    def __init__(
        self,
        graph: DataflowGraph,
        device: Sequence[int],
        splits: Mapping[int, Split],
        rules: Mapping[tuple[int, Split], list[PartRule]],
        space_of: Sequence[int],
        home: int | None,
    ) -> None:
        self.graph, self.home, self.space_of = graph, home, space_of
        self.default, self.rules = device, rules
        self.slices = WeightSlices(graph, splits, rules)
        self.splits = self.slices.splits
        self.at_home = next((d for d, space in enumerate(space_of) if space == home), -1)
        self.tensors: list[Tensor] = []
        self.operators: list[tuple[Operator, list[int], list[int], int, int]] = []
        self.block: list[tuple[Operator, list[int], list[int], int, int]] = []
        self.known: dict[tuple[Any, ...], int] = {}
        self.held: dict[int, _Held] = {}
        self.names: set[str] = {tensor.name for tensor in graph.tensors}
        self.current = 0
        weights = set(graph.weights)
        for index, tensor in enumerate(graph.tensors):
            if tensor.role != "activation":
                place = -1 if index in weights else self.at_home
                self.held[index] = _Held((_Piece(self._tensor(tensor), place, 0, 0),))

    def done(self) -> Placed:
        for index, operator in enumerate(self.graph.operators):
            self.current = index
            split = self.splits.get(index)
            if split is None:
                self._whole(index, operator)
            else:
                self._split(index, operator, split)
            self._close()
        results = [dict(result) for result in self.graph.results]
        number = {tensor.name: i for i, tensor in enumerate(self.graph.tensors)}
        for result in results:
            if "tensor" in result:
                index = number[result["tensor"]]
                place = self._place_of_result(index)
                result["tensor"] = self.tensors[self._gathered(index, place)].name
        self._close()
        # Weights of which only slices are read are none of the new graph's.
        read = {t for _, reads, _, _, _ in self.operators for t in reads}
        read |= {t for t, tensor in enumerate(self.tensors) if tensor.role == "input"}
        written = {t for _, _, writes, _, _ in self.operators for t in writes}
        wanted = {result.get("tensor") for result in results}
        kept = [
            t
            for t, tensor in enumerate(self.tensors)
            if t in read or t in written or tensor.name in wanted
        ]
        new = {t: i for i, t in enumerate(kept)}
        graph = DataflowGraph(
            self.graph.name,
            [row[0] for row in self.operators],
            [self.tensors[t] for t in kept],
            [[new[t] for t in row[1]] for row in self.operators],
            [[new[t] for t in row[2]] for row in self.operators],
            results,
            self.graph.batch,
        )
        graph.unchecked = self.graph.unchecked
        columns = [np.array([row[n] for row in self.operators], dtype=np.int64) for n in (3, 4)]
        return Placed(graph, *columns)

    # -- operators ------------------------------------------------------------------------------

    def _whole(self, index: int, operator: Operator) -> None:
        """An operator that is not split: where its tensors were put together it reads that."""
        device = int(self.default[index])
        reads = [self._gathered(tensor, device) for tensor in self.graph.reads[index]]
        specs = tuple(s for t in reads if (s := self.tensors[t].spec))
        if specs != operator.reads and len(specs) == len(operator.reads):
            leaves = leaves_of(operator.template)
            inputs = [
                seen_through(specs[leaf["read"]], leaf["views"]) or given
                for leaf, given in zip(leaves, operator.inputs, strict=True)
            ]
            operator = reading(operator, operator.template, inputs, specs)
        writes = []
        for tensor in self.graph.writes[index]:
            writes.append(self._tensor(self.graph.tensors[tensor]))
            self.held[tensor] = _Held((_Piece(writes[-1], device, 0, 0),))
        self.block.append((operator, reads, writes, device, index))

    def _split(self, index: int, operator: Operator, split: Split) -> None:
        template, rules = operator.template or {}, self.rules[index, split]
        rows = []
        for part, (rule, device) in enumerate(zip(rules, split.devices, strict=True)):
            args = template["args"] if rule.args is None else rule.args
            leaves = leaves_of({"args": args, "kwargs": template.get("kwargs", {})})
            kept = range(len(leaves)) if rule.kept is None else rule.kept
            found: list[_Seen] = []
            read: dict[int, int] = {}
            for leaf, number in zip(leaves, kept, strict=True):
                tensor, need = self.graph.reads[index][leaf["read"]], rule.needs[number]
                if need is None and self.slices.has_copies(tensor):
                    row = self.slices.copy_of(tensor, self.tensors[found[0].tensor])
                    found.append(self._plain(self._tensor(row)))
                else:
                    seen = tensor, leaf["views"], operator.inputs[number]
                    found.append(self._read(*seen, need, device, rule.fill))
                read[tensor] = found[-1].tensor
            rows.append((part, rule, device, found, read))
        pieces: list[list[_Piece]] = [[] for _ in operator.outputs]
        for part, rule, device, found, read in rows:
            reads = list(dict.fromkeys(seen.tensor for seen in found))
            stored = tuple(s for t in reads if (s := self.tensors[t].spec))
            seen_as = [_leaf(reads.index(seen.tensor), seen.views) for seen in found]
            inputs = [seen.spec for seen in found]
            made = finished(operator, rule, split, part, inputs, seen_as, stored)
            writes = []
            for number, spec in enumerate(made.outputs):
                name = f"{made.name}:out" if len(pieces) == 1 else f"{made.name}:{number}"
                weight = self.slices.became.get(self.graph.writes[index][number])
                if weight is not None:
                    name = self.tensors[read[weight]].name + UPDATED
                name = self._name(name)
                writes.append(self._tensor(Tensor(name, "activation", float(spec.bytes), spec)))
                pieces[number].append(_Piece(writes[-1], device, *split.bounds[part]))
            self.block.append((made, reads, writes, device, index))
        outs = rules[0].outs or (split.dim,) * len(pieces)
        for tensor, those, dim in zip(self.graph.writes[index], pieces, outs, strict=True):
            self.held[tensor] = _Held(tuple(those if dim is not None else those[:1]), dim)

    # -- what parts read ------------------------------------------------------------------------

    def _read(
        self,
        tensor: int,
        views: Sequence[View],
        spec: TensorSpec,
        need: Need | None,
        device: int,
        fill: Any,
    ) -> _Seen:
        """What a part on a device reads of a tensor that its operator sees through views as ``spec``."""
        if need is None:
            whole = self._gathered(tensor, device)
            stored = self.tensors[whole].spec
            return _Seen(whole, tuple(views), (stored and seen_through(stored, views)) or spec)
        seen = self._cut(tensor, views, spec, need.cut, device)
        if not (need.before or need.after):
            return seen
        dim = need.cut.dim
        pads = [0] * (2 * (len(spec.shape) - dim - 1)) + [need.before, need.after]
        shape = list(seen.spec.shape)
        shape[dim] += need.before + need.after
        template = {"args": [_leaf(0, seen.views), pads, "constant", fill], "kwargs": {}}
        key = ("pad", seen.tensor, json.dumps([template]), self.space_of[device])
        made = self._auxiliary(
            key,
            "pad",
            "aten.pad.default",
            [seen],
            template,
            TensorSpec(tuple(shape), spec.dtype),
            device,
        )
        return self._plain(made)

    def _cut(
        self, tensor: int, views: Sequence[View], spec: TensorSpec, cut: Cut, device: int
    ) -> _Seen:
        held, original = self.held[tensor], self.graph.tensors[tensor]
        if original.role == "weight":
            return self._weight(tensor, views, spec, cut)
        behind = None
        if held.dim is not None and original.spec is not None:
            behind = cut_before(original.spec, views, cut)
        if behind is None:
            if held.dim is not None:
                whole = self._gathered(tensor, device)
                return self._sliced(_Piece(whole, device, 0, 0), views, cut, device, spec)
            return self._sliced(held.pieces[0], views, cut, device, spec)
        stored, views = behind
        seen = self._stored(tensor, held, stored, device)
        inner = seen_through(seen.spec, views)
        return _Seen(
            seen.tensor, (*seen.views, *views), inner or dense_like(spec, cut.of(spec.shape))
        )

    def _stored(self, tensor: int, held: _Held, cut: Cut, device: int) -> _Seen:
        """A cut of a tensor that lies in pieces."""
        along = held.dim if held.dim is not None else 0
        pieces: list[_Seen] = []
        for piece in held.pieces:
            want = cut
            if along == cut.dim:
                begin, end = max(cut.begin, piece.begin), min(cut.end, piece.end)
                if begin >= end:
                    continue
                if (begin, end) == (piece.begin, piece.end):
                    pieces.append(self._plain(piece.tensor))
                    continue
                want = Cut(cut.dim, begin - piece.begin, end - piece.begin)
            pieces.append(self._sliced(piece, (), want, device, None))
        if len(pieces) == 1:
            return pieces[0]
        key = (tensor, cut, self.space_of[device])
        name = self.graph.tensors[tensor].name
        return self._plain(self._joined(key, name, pieces, along, device))

    def _sliced(
        self, piece: _Piece, views: Sequence[View], cut: Cut, device: int, spec: TensorSpec | None
    ) -> _Seen:
        """A cut of what is seen of one tensor: a view where that lies, else a copy made there."""
        stored = self.tensors[piece.tensor].spec
        seen = (stored and seen_through(stored, views)) or spec
        if seen is None:
            raise InvalidInput(f"Tensor '{self.tensors[piece.tensor].name}' has no shape to cut")
        there = _Seen(piece.tensor, (*views, cut.view), sliced(seen, cut))
        if piece.device < 0 or self.space_of[piece.device] == self.space_of[device]:
            return there
        template = {"args": [_leaf(0, there.views)], "kwargs": {}}
        out = dense_like(there.spec, there.spec.shape)
        key = (piece.tensor, json.dumps(there.views))
        made = self._auxiliary(
            key, "copy", "aten.clone.default", [there], template, out, piece.device
        )
        return self._plain(made)

    def _weight(self, weight: int, views: Sequence[View], spec: TensorSpec, cut: Cut) -> _Seen:
        if weight in self.slices.whole:  # the memory has all of it anyway
            return _Seen(self.held[weight].pieces[0].tensor, (*views, cut.view), sliced(spec, cut))
        row, rest = self.slices.slice_of(weight, views, spec, cut)
        key = ("weight", json.dumps(row.part and row.part.to_json()))
        if key not in self.known:
            row = dataclasses.replace(row, name=self._name(row.name))
            self.known[key] = self._tensor(row)
        seen = self._plain(self.known[key])
        return _Seen(seen.tensor, rest, seen_through(seen.spec, rest) or sliced(spec, cut))

    def _gathered(self, tensor: int, device: int) -> int:
        """All of a tensor, put together in a device's memory where it lies in pieces."""
        held = self.held[tensor]
        if held.dim is None:
            return held.pieces[0].tensor
        key = ("whole", tensor, self.space_of[device])
        name = self.graph.tensors[tensor].name
        return self._joined(
            key, name, [self._plain(p.tensor) for p in held.pieces], held.dim, device
        )

    def _joined(
        self, key: tuple[Any, ...], name: str, pieces: list[_Seen], dim: int, device: int
    ) -> int:
        """Pieces in one tensor: along a dimension one behind the other, along the inner one added up."""
        if dim == INNER:
            total = pieces[0]
            for number, piece in enumerate(pieces[1:]):
                both, reads = [total, piece], _distinct([total, piece])
                template = {
                    "args": [_leaf(reads.index(s.tensor), s.views) for s in both],
                    "kwargs": {},
                }
                out = TensorSpec(total.spec.shape, total.spec.dtype)
                made = self._auxiliary(
                    (*key, number), f"{name}/sum", "aten.add.Tensor", both, template, out, device
                )
                total = self._plain(made)
            return total.tensor
        reads = _distinct(pieces)
        leaves = [_leaf(reads.index(s.tensor), s.views) for s in pieces]
        joined: dict[str, Any] = {"args": [leaves, dim], "kwargs": {}}
        shape = list(pieces[0].spec.shape)
        shape[dim] = sum(seen.spec.shape[dim] for seen in pieces)
        out = TensorSpec(tuple(shape), pieces[0].spec.dtype)
        return self._auxiliary(key, f"{name}/cat", "aten.cat.default", pieces, joined, out, device)

    # -- parts ----------------------------------------------------------------------------------

    def _auxiliary(
        self,
        key: tuple[Any, ...],
        name: str,
        target: str,
        seen: Sequence[_Seen],
        template: Mapping[str, Any],
        out: TensorSpec,
        device: int,
    ) -> int:
        """What an operator that serves parts writes; one for each key."""
        if key in self.known:
            return self.known[key]
        reads = _distinct(seen)
        if "/" not in name:
            name = f"{self.tensors[reads[0]].name}/{name}"
        name = self._name(name)
        kind = _KINDS[target]
        attributes: dict[str, Any] = {}
        if kind == "cat":
            attributes["dim"] = template["args"][1]
        if kind == "add":
            attributes["scalar"] = False
        operator = Operator(name, kind, outputs=(out,), attributes=attributes, target=target)
        specs = tuple(s for t in reads if (s := self.tensors[t].spec))
        operator = reading(operator, template, [s.spec for s in seen], specs)
        made = self._tensor(Tensor(self._name(f"{name}:out"), "activation", float(out.bytes), out))
        self.block.append((operator, reads, [made], device, self.current))
        self.known[key] = made
        return made

    def _plain(self, tensor: int) -> _Seen:
        spec = self.tensors[tensor].spec
        assert spec is not None  # of what this transformation made
        return _Seen(tensor, (), spec)

    def _tensor(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.names:
            number += 1
            name = f"{wanted}_{number}"
        self.names.add(name)
        return name

    def _place_of_result(self, tensor: int) -> int:
        """A device where a result is wanted, else the one that has most of it."""
        pieces = self.held[tensor].pieces
        at_home = [p for p in pieces if p.device >= 0 and self.space_of[p.device] == self.home]
        return max(at_home or pieces, key=lambda p: p.end - p.begin).device

    def _close(self) -> None:
        """Append what was made for an operator: first what others wait for, slices of what is there already."""
        made = {t for _, _, writes, _, _ in self.block for t in writes}
        waiting = [row for row in self.block if made & set(row[1]) or row[0].kind != "copy"]
        first = [row for row in self.block if not (made & set(row[1]) or row[0].kind != "copy")]
        self.operators += first + waiting
        self.block = []


_KINDS = {
    "aten.clone.default": "copy",
    "aten.pad.default": "pad",
    "aten.cat.default": "cat",
    "aten.add.Tensor": "add",
}


def _distinct(seen: Sequence[_Seen]) -> list[int]:
    return list(dict.fromkeys(s.tensor for s in seen))


def _leaf(read: int, views: Sequence[View]) -> dict[str, Any]:
    return {"read": read, "views": [list(view) for view in views]}
