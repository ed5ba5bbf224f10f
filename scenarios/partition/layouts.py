"""What layouts of a graph's operators cost, and the cheapest by dynamic programming (OptCNN; Alpa's intra-operator pass).

A *choice* for an operator is the device that runs it whole, or a :class:`Split`. What it costs is the time of its
slowest part; between two operators what has to move, and the copies and joins that this takes. Both are sums along a
chain, so that the cheapest choices of one are found by dynamic programming over (operator, choice). Of a graph with
branches each tensor is counted once for each reader, and choices are fixed from the last operator on; the engine's
evaluation of the transformed graph is what decides in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.partition.operator_parts import Split, leaves_of, part_of
from scenarios.partition.part_prices import PartPrices
from scenarios.partition.part_rules import INNER, PartRule
from scenarios.partition.view_rules import Cut, cut_before
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, TensorSpec

Choice = int | Split
"""The device that runs an operator whole, or how it is split."""

_Needs = tuple[tuple[int, Cut | None], ...]
"""For each device that reads a tensor the part of it that it needs; None: all."""

_SMALL, _LARGE = 1 << 10, 1 << 20
"""Elements of the two copies from which what copies take is inferred."""


class Layouts:
    """Costs of choices for one graph on a cluster.

    Args:
        graph: of operators with templates.
        cluster: what it runs on.
        prices: of operators and parts.
        home: memory in which inputs lie; None: everywhere.
    """

    def __init__(
        self, graph: DataflowGraph, cluster: Cluster, prices: PartPrices, home: int | None
    ) -> None:
        self.graph, self.cluster, self.home = graph, cluster, home
        self.space_of = cluster.space_of
        self._prices = prices
        self.whole = prices.seconds(graph.operators)
        """float64[operators, devices]: seconds of operators that are not split."""
        self.rules: dict[tuple[int, Split], list[PartRule]] = {}
        """Of splits that were considered."""
        self._parts: dict[tuple[int, Split], float] = {}
        self._needs: dict[tuple[int, Choice], dict[int, _Needs]] = {}
        self._moves: dict[tuple[object, ...], float] = {}
        self.copying = _copying(prices)
        """float64[2, devices]: seconds of a copy, and of each byte of it."""
        weights = set(graph.weights)
        self._moving = [[t for t in reads if t not in weights] for reads in graph.reads]

    def price(self, choices: Sequence[tuple[int, Split]]) -> None:
        """Price the parts of splits of operators, all at once.

        Raises:
            InvalidInput: nobody can price parts.
        """
        rows: list[Operator] = []
        asked = []
        for index, split in dict.fromkeys(choices):
            if (index, split) in self._parts:
                continue
            operator = self.graph.operators[index]
            try:
                rules = self.rules[index, split] = split.rules(operator)
                parts = [part_of(operator, rule, split, n) for n, rule in enumerate(rules)]
            except InvalidInput:  # of padding alone
                self._parts[index, split] = np.inf
                continue
            asked.append((index, split))
            rows += parts
        times = iter(self._prices.seconds(rows) if rows else ())
        for index, split in asked:
            self._parts[index, split] = max(float(next(times)[d]) for d in split.devices)

    def seconds(self, index: int, choice: Choice) -> float:
        """Of an operator's slowest part."""
        if isinstance(choice, Split):
            return self._parts[index, choice]
        return float(self.whole[index, choice])

    def best(self, choices: Sequence[Sequence[Choice]]) -> list[Choice]:
        """For each operator one of its choices, the cheapest together; see the module docstring."""
        graph = self.graph
        total: list[np.ndarray] = []
        readers = [max(1, len(readers)) for readers in graph.consumers]
        for index, mine in enumerate(choices):
            cost = np.array([self.seconds(index, choice) for choice in mine])
            for tensor in self._moving[index]:
                producer = graph.producer[tensor]
                if producer < 0:
                    cost += [self._between(tensor, None, index, choice) for choice in mine]
                    continue
                share = total[producer] / readers[tensor]
                cost += (share[:, None] + self._edges(tensor, choices[producer], index, mine)).min(
                    0
                )
            total.append(cost)
        chosen: list[Choice] = [0] * len(graph)
        for index in reversed(range(len(graph))):
            mine = choices[index]
            cost = total[index].copy()
            for tensor in graph.writes[index]:
                for reader in graph.consumers[tensor]:
                    cost += self._edges(tensor, mine, reader, [chosen[reader]])[:, 0]
                if tensor in graph.outputs:
                    cost += [self._to_result(tensor, choice) for choice in mine]
            chosen[index] = mine[int(np.argmin(cost))]
        return chosen

    # -- what lies between two operators --------------------------------------------------------

    def _edges(
        self, tensor: int, before: Sequence[Choice], reader: int, after: Sequence[Choice]
    ) -> np.ndarray:
        return np.array([[self._between(tensor, a, reader, b) for b in after] for a in before])

    def _between(self, tensor: int, held: Choice | None, reader: int, choice: Choice) -> float:
        needs = self._needed(reader, choice).get(tensor)
        if needs is None:
            return 0.0
        return self._moved(tensor, held, needs)

    def _to_result(self, tensor: int, held: Choice) -> float:
        """Until a result is whole where it is wanted."""
        there = [d for d, space in enumerate(self.space_of) if space == self.home]
        first = held.devices[0] if isinstance(held, Split) else held
        return self._moved(tensor, held, (((there or [first])[0], None),))

    def _needed(self, index: int, choice: Choice) -> dict[int, _Needs]:
        """For each tensor what a choice needs of it, and where."""
        key = index, choice
        if key not in self._needs:
            self._needs[key] = self._needs_of(index, choice)
        return self._needs[key]

    def _needs_of(self, index: int, choice: Choice) -> dict[int, _Needs]:
        graph, operator = self.graph, self.graph.operators[index]
        if not isinstance(choice, Split):
            return dict.fromkeys(self._moving[index], ((choice, None),))
        if (index, choice) not in self.rules:  # of padding alone: never chosen
            return {}
        found: dict[int, dict[tuple[int, Cut | None], None]] = {}
        leaves = leaves_of(operator.template)
        for rule, device in zip(self.rules[index, choice], choice.devices, strict=True):
            for number in range(len(leaves)) if rule.kept is None else rule.kept:
                tensor = graph.reads[index][leaves[number]["read"]]
                need, spec = rule.needs[number], graph.tensors[tensor].spec
                behind = None
                if need is not None and spec is not None:
                    behind = cut_before(spec, leaves[number]["views"], need.cut)
                found.setdefault(tensor, {})[device, behind[0] if behind else None] = None
        return {t: tuple(found[t]) for t in self._moving[index] if t in found}

    def _moved(self, tensor: int, held: Choice | None, needs: _Needs) -> float:
        """Seconds of moving, cutting and joining what readers need of a tensor."""
        spec = self.graph.tensors[tensor].spec
        assert spec is not None  # of graphs with templates
        dim = None
        if isinstance(held, Split):
            dim = self._along(tensor, held)
            held = held if dim is not None else held.devices[0]
        key = (spec, held, dim, needs)
        if key not in self._moves:
            self._moves[key] = self._move(spec, held, dim, needs)
        return self._moves[key]

    def _along(self, tensor: int, split: Split) -> int | None:
        """The dimension along which the parts of an operator write pieces of a tensor; None: each writes all of it."""
        producer = self.graph.producer[tensor]
        rules = self.rules.get((producer, split))  # none of padding alone, which is never chosen
        outs = rules[0].outs if rules else None
        return split.dim if outs is None else outs[self.graph.writes[producer].index(tensor)]

    def _move(self, spec: TensorSpec, held: Choice | None, dim: int | None, needs: _Needs) -> float:
        pieces = self._pieces(held)
        ways: dict[tuple[int, int], float] = {}
        busy = dict.fromkeys(range(len(self.space_of)), 0.0)
        done: set[tuple[object, ...]] = set()
        for device, cut in needs:
            space = self.space_of[device]
            joined = 0
            for number, (owner, begin, end) in enumerate(pieces):
                part, whole = _overlap(spec, dim, begin, end, cut)
                if not part:
                    continue
                joined += 1
                here = space if owner < 0 and self.home is None else self._space(owner)
                if here == space or (number, cut, space) in done:
                    continue
                done.add((number, cut, space))
                if not whole and owner >= 0:
                    busy[owner] += self._copying(owner, part)
                way = self.cluster.route(here, space).seconds(part)
                ways[here, space] = ways.get((here, space), 0.0) + way
            if joined > 1 and ("join", cut, space) not in done:
                done.add(("join", cut, space))
                size = spec.bytes if cut is None else spec.bytes * cut.length / spec.shape[cut.dim]
                times = joined - 1 if dim == INNER else 1
                busy[device] += times * self._copying(device, size)
        return max(ways.values(), default=0.0) + max(busy.values())

    def _space(self, owner: int) -> int:
        if owner >= 0:
            return self.space_of[owner]
        return 0 if self.home is None else self.home

    def _pieces(self, held: Choice | None) -> list[tuple[int, int, int]]:
        """Owner, begin and end of what lies where; an input is owned by the first device of its memory."""
        if isinstance(held, Split):
            return [(d, b, e) for d, (b, e) in zip(held.devices, held.bounds, strict=True)]
        if held is not None:
            return [(held, 0, 0)]
        there = [d for d, space in enumerate(self.space_of) if space == self.home]
        return [(there[0] if there else -1, 0, 0)]

    def _copying(self, device: int, size: float) -> float:
        return float(self.copying[0, device] + self.copying[1, device] * size)


@dataclass(frozen=True)
class Run:
    """Operators that follow each other in the graph's order and have one kind of choice."""

    begin: int
    end: int


def runs_of(choices: Sequence[Choice]) -> list[Run]:
    """Longest runs of operators that are split."""
    found, begin = [], None
    for index, choice in enumerate([*choices, 0]):
        if isinstance(choice, Split) and begin is None:
            begin = index
        elif not isinstance(choice, Split) and begin is not None:
            found.append(Run(begin, index))
            begin = None
    return found


def _overlap(
    spec: TensorSpec, dim: int | None, begin: int, end: int, cut: Cut | None
) -> tuple[float, bool]:
    """Bytes of a piece that a cut needs, and whether that is all of it."""
    size = float(spec.bytes)
    if dim is not None and dim != INNER:
        if cut is not None and cut.dim == dim:
            shared = max(0, min(end, cut.end) - max(begin, cut.begin))
            return size * shared / spec.shape[dim], shared == end - begin
        size *= (end - begin) / spec.shape[dim]
    return (size, True) if cut is None else (size * cut.length / spec.shape[cut.dim], False)


def _copying(prices: PartPrices) -> np.ndarray:
    """float64[2, devices]: seconds of a copy, and of each byte of it."""
    specs = [TensorSpec((size,)) for size in (_SMALL, _LARGE)]
    attributes = {"order": [0]}
    copies = [Operator("copy", "copy", (s,), (s,), attributes, "aten.clone.default") for s in specs]
    small, large = prices.seconds(copies)
    rate = np.maximum(large - small, 0.0) / (specs[1].bytes - specs[0].bytes)
    return np.stack([np.maximum(small - rate * specs[0].bytes, 0.0), rate])
