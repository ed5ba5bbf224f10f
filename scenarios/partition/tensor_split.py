"""Partition ``tensor_split``: operators are split over devices, along the dimension that pays.

For every operator a few splits are considered: along each allowed dimension, with shares that are tuned to the times of
its parts (:func:`simulator.planners.shares.tuned_units`), that follow the devices' speeds, or that are equal.
Dynamic programming over (operator, layout) takes the cheapest together (:mod:`scenarios.partition.layouts`); then runs
of split operators are put back, or split otherwise, one after the other, wherever the plan of the transformed graph
ends strictly sooner. Reconstructed after FlexFlow, OptCNN and Alpa's intra-operator pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cost_models.streaming import streams
from scenarios.partition.layouts import Choice, Layouts, runs_of
from scenarios.partition.operator_parts import Split, leaves_of, part_of
from scenarios.partition.part_prices import Key, PartPrices, key_of
from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.partition.split_graph import Placed, split_graph
from scenarios.partition.split_rules import NAMES, Axis, axes_of
from simulator.errors import InvalidInput
from simulator.model.operator import Operator
from simulator.model.plan import Plan
from simulator.model.workload import Workload
from simulator.planners.shares import tuned_units, whole_units

SHARES = ("tuned", "speed", "equal")


class Splitter:
    """What partitioners that split operators have in common: evaluates choices by the plan that they make.

    Args:
        problem: jobs of one graph.

    Raises:
        InvalidInput: there are several graphs, the graph's operators have no templates, or no device can run all.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.graph = problem, problem.graph
        if all(operator.template is None for operator in self.graph.operators):
            raise InvalidInput(
                f"Graph '{self.graph.name}' has no operators that could be split; take a model, which is traced"
            )
        cluster, job = problem.cluster, problem.jobs[0]
        self.home = None if job.origin is None else cluster.space_index[job.origin]
        self.prices = PartPrices(problem)
        self.layouts = Layouts(self.graph, cluster, self.prices, self.home)
        able = problem.able()
        if not able:
            raise InvalidInput(
                f"No device of cluster '{cluster.name}' can run all of '{self.graph.name}', which is what splitting "
                "starts from"
            )
        self.able = able
        self.base = min(able, key=lambda d: (float(self.layouts.whole[:, d].sum()), d))
        self.tables: dict[tuple[int, int], np.ndarray] = {}
        """By operator and dimension float64[units + 1, devices]: seconds of a part of so many units."""
        self.evaluations = 0
        self._known: dict[tuple[Choice, ...], tuple[float, Placed]] = {}

    def devices(self, names: Sequence[str] | None) -> list[int]:
        """The devices of these names, or all that can run everything; the fastest first.

        Raises:
            InvalidInput: there is no such device, or it cannot run everything.
        """
        index = self.problem.cluster.device_index
        for name in names or ():
            if name not in index or index[name] not in self.able:
                known = ", ".join(self.problem.cluster.devices[d].name for d in self.able)
                raise InvalidInput(
                    f"No device '{name}' can run all of '{self.graph.name}'; these can: {known}"
                )
        chosen = self.able if names is None else [index[name] for name in names]
        return sorted(chosen, key=lambda d: (float(self.layouts.whole[:, d].sum()), d))

    def read_by_leaf(self, index: int) -> list[int]:
        """For each leaf of an operator's template the tensor that it reads."""
        leaves = leaves_of(self.graph.operators[index].template)
        return [self.graph.reads[index][leaf["read"]] for leaf in leaves]

    def evaluate(self, choices: Sequence[Choice]) -> float:
        """Seconds of the plan that choices make, by the evaluator of plans."""
        key = tuple(choices)
        if key not in self._known:
            self.evaluations += 1
            splits = {i: c for i, c in enumerate(choices) if isinstance(c, Split)}
            place = [c if isinstance(c, int) else self.base for c in choices]
            space_of = self.problem.cluster.space_of
            placed = split_graph(self.graph, place, splits, space_of, self.home, self.layouts.rules)
            jobs = tuple(dataclasses.replace(j, graph=placed.graph) for j in self.problem.jobs)
            evaluator = self.problem.evaluator(Workload(jobs), self.prices.costs(placed.graph))
            device = np.tile(placed.device, len(jobs))
            seconds = evaluator.evaluate(device, np.arange(len(device)))
            self._known[key] = seconds, placed
        return self._known[key][0]

    def plan(self, origin: str, choices: Sequence[Choice], notes: Mapping[str, object]) -> Plan:
        """The plan of choices; jobs one behind the other."""
        seconds = self.evaluate(choices)
        placed = self._known[tuple(choices)][1]
        jobs = len(self.problem.jobs)
        names = tuple(d.name for d in self.problem.cluster.devices)
        device = np.tile(placed.device, jobs)
        splits = {
            self.graph.operators[i].name: {
                "dimension": axes_of(self.graph.operators[i])[c.dim].name,
                "sizes": list(c.sizes),
                "devices": [names[d] for d in c.devices],
            }
            for i, c in enumerate(choices)
            if isinstance(c, Split)
        }
        said = {"split": len(splits), "evaluations": self.evaluations, "splits": splits, **notes}
        graphs = (placed.graph,) * jobs
        return Plan(origin, graphs, names, device, np.arange(len(device)), seconds, notes=said)


class TensorSplit(Partitioner):
    """Splits operators over devices; see the module docstring.

    Args:
        shares: ``tuned``, ``speed`` (as the devices' times of the whole graph) or ``equal``.
        dimensions: that operators may be split along, of ``batch``, ``channels``, ``rows`` and ``inner``.
        devices: names of those that take part; all that can run everything unless given.
        units: at most so many shares of a dimension are told apart when they are tuned.
        budget: plans to evaluate after the first.
    """

    name = "tensor_split"
    makes_graphs = True

    def __init__(
        self,
        shares: str = "tuned",
        dimensions: Sequence[str] = NAMES,
        devices: Sequence[str] | None = None,
        units: int = 16,
        budget: int = 40,
    ) -> None:
        if shares not in SHARES:
            raise InvalidInput(f"There are no shares '{shares}'; known: {', '.join(SHARES)}")
        unknown = [name for name in dimensions if name not in NAMES]
        if unknown or not dimensions:
            raise InvalidInput(
                f"Operators are split along {', '.join(NAMES)}; got {', '.join(unknown) or 'none'}"
            )
        for what, value, least in (("units", units, 2), ("budget", budget, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(
                    f"Partition '{self.name}' has {what} {value!r}; give an integer of at least {least}"
                )
        self.shares, self.dimensions = shares, tuple(dimensions)
        self.given, self.units, self.budget = devices, units, budget

    def plan(self, problem: Problem) -> Plan:
        """See :class:`Partitioner`.

        Raises:
            InvalidInput: as :class:`Splitter`; a device is unknown; or parts cannot be priced.
        """
        splitter = Splitter(problem)
        devices = splitter.devices(self.given)
        whole: list[Choice] = [splitter.base] * len(splitter.graph)
        best, least = whole, splitter.evaluate(whole)
        found = whole
        for layout in self._layouts(splitter, devices):
            for start in (layout, _heavier(layout, splitter)):
                seconds = splitter.evaluate(start)
                if seconds < least:
                    best, least, found = start, seconds, layout
        best = self._searched(splitter, best, found)
        return splitter.plan(self.name, best, {"shares": self.shares})

    def _layouts(self, splitter: Splitter, devices: list[int]) -> Iterator[list[Choice]]:
        """The cheapest layouts on all devices and on the fastest half, quarter, ... of them: what is worth splitting in
        two need not be in eight. Equal shares are tried beside tuned ones, which are tuned to each operator alone.
        """
        used = len(devices)
        while used > 1:
            for shares in ("tuned", "equal") if self.shares == "tuned" else (self.shares,):
                choices = _Choices(self, splitter, devices[:used], shares).of_operators()
                rows = [(i, c) for i, row in enumerate(choices) for c in row]
                splitter.layouts.price([(i, c) for i, c in rows if isinstance(c, Split)])
                yield splitter.layouts.best(choices)
            used = -(-used // 2)

    def _searched(
        self, splitter: Splitter, best: list[Choice], found: list[Choice]
    ) -> list[Choice]:
        """Runs of split operators put back, or split where they were not, while the plan ends sooner."""
        least = splitter.evaluate(best)
        left = self.budget
        improved = True
        while improved and left > 0:
            improved = False
            for run in sorted(runs_of(found), key=lambda run: run.begin - run.end):
                split = any(isinstance(c, Split) for c in best[run.begin : run.end])
                other = (
                    [splitter.base] * (run.end - run.begin) if split else found[run.begin : run.end]
                )
                tried = [*best[: run.begin], *other, *best[run.end :]]
                seconds = splitter.evaluate(tried)
                left -= 1
                if seconds < least:
                    best, least, improved = tried, seconds, True
                if left <= 0:
                    break
        return best


def _heavier(found: list[Choice], splitter: Splitter) -> list[Choice]:
    """Only operators split that alone gain twice what a copy to another memory takes."""
    layouts, base = splitter.layouts, splitter.base
    least = 2 * float(layouts.copying[0].max())
    return [
        base
        if isinstance(c, Split) and layouts.whole[i, base] - layouts.seconds(i, c) < least
        else c
        for i, c in enumerate(found)
    ]


class _Choices:
    """The choices that are considered for each operator."""

    def __init__(
        self, options: TensorSplit, splitter: Splitter, devices: list[int], shares: str
    ) -> None:
        self.options, self.splitter, self.devices = options, splitter, devices
        self.shares = shares
        self.whole = splitter.layouts.whole
        total = self.whole[:, devices].sum(axis=0)
        self.speed = tuple((1 / total / (1 / total).sum()).tolist())
        self.equal = (1.0 / len(devices),) * len(devices)

    def of_operators(self) -> list[list[Choice]]:
        """For each operator the devices that may run it whole, and splits."""
        graph, devices = self.splitter.graph, self.devices
        tuned = self._tuned() if self.shares == "tuned" else {}
        fixed = {"tuned": [self.speed], "speed": [self.speed], "equal": [self.equal]}
        inherited: list[list[tuple[float, ...]]] = []
        found: list[list[Choice]] = []
        wholes = _different(devices, self.whole, self.splitter.problem.cluster.space_of)
        for index, operator in enumerate(graph.operators):
            own = tuned.get(index)
            if own is None:
                before = [graph.producer[t] for t in graph.activations_read[index]]
                rows = [inherited[p] for p in before if p >= 0]
                own = list(dict.fromkeys(f for row in rows for f in row))[:2]
            inherited.append(own)
            shares = dict.fromkeys([*own, *fixed[self.shares]])
            mine: list[Choice] = [d for d in wholes if np.isfinite(self.whole[index, d])]
            for axis in self._axes(operator):
                splits = (split_by(axis, share, devices) for share in shares)
                mine += dict.fromkeys(s for s in splits if s is not None)
            found.append(mine)
        return found

    def _axes(self, operator: Operator) -> list[Axis]:
        return [a for a in axes_of(operator).values() if a.name in self.options.dimensions]

    def _tuned(self) -> dict[int, list[tuple[float, ...]]]:
        """For each operator that multiplies, shares that are tuned to its times, with and without what has to move;
        others, whose time is that of their bytes, take those of the operators before them.
        """
        graph, splitter, units = self.splitter.graph, self.splitter, self.options.units
        alike: dict[Key, list[int]] = {}
        for index, operator in enumerate(graph.operators):
            if not streams(operator.kind):
                alike.setdefault(key_of(operator), []).append(index)
        heavy = [
            (row[0], axis, min(units, axis.length // axis.unit))
            for row in alike.values()
            for axis in self._axes(graph.operators[row[0]])
        ]
        self._tabulate([row for row in heavy if (row[0], row[1].dim) not in splitter.tables])
        found: dict[int, list[tuple[float, ...]]] = {}
        for index, axis, grid in heavy:
            table = splitter.tables[index, axis.dim][:, self.devices]
            for ways in (0.0, self._ways(index, axis, grid)):
                vector, _ = tuned_units(table + ways, fewest=2)
                share = tuple((vector / vector.sum()).tolist())
                row = found.setdefault(index, [])
                if share not in row and (vector > 0).sum() > 1:
                    row.append(share)
        return {i: found[row[0]][:4] for row in alike.values() if row[0] in found for i in row}

    def _tabulate(self, rows: Sequence[tuple[int, Axis, int]]) -> None:
        """Price parts of operators along axes, by the number of units of which they have some."""
        splitter, graph = self.splitter, self.splitter.graph
        parts, asked = [], []
        for index, axis, grid in rows:
            table = np.full((grid + 1, self.whole.shape[1]), np.inf)
            table[0], table[grid] = 0.0, self.whole[index]
            splitter.tables[index, axis.dim] = table
            for number in range(1, grid):
                size = max(1, round(axis.length // axis.unit * number / grid)) * axis.unit
                split = Split(axis.dim, (size, axis.length - size), (0, 0))
                try:
                    rule = axis.rule(0, size)
                except InvalidInput:  # of padding alone
                    continue
                parts.append(part_of(graph.operators[index], rule, split, 0))
                asked.append((index, axis.dim, number))
        times = splitter.prices.seconds(parts) if parts else ()
        for (index, dim, number), row in zip(asked, times, strict=True):
            splitter.tables[index, dim][number] = row

    def _ways(self, index: int, axis: Axis, grid: int) -> np.ndarray:
        """float64[units + 1, devices]: seconds of bringing slices to a device from the fastest one's memory, and back."""
        cluster, graph = self.splitter.problem.cluster, self.splitter.graph
        here = cluster.space_of[self.splitter.base]
        read = float(sum(graph.tensor_bytes[t] for t in graph.activations_read[index]))
        written = float(sum(spec.bytes for spec in graph.operators[index].outputs))
        cut = axis.name in ("batch", "rows", "inner")
        found = np.zeros((grid + 1, len(self.devices)))
        for column, device in enumerate(self.devices):
            there = cluster.space_of[device]
            if there == here:
                continue
            for number in range(1, grid + 1):
                share = number / grid
                found[number, column] = cluster.route(here, there).seconds(
                    read * (share if cut else 1.0)
                ) + cluster.route(there, here).seconds(
                    written * (1.0 if axis.name == "inner" else share)
                )
        return found


def split_by(axis: Axis, shares: Sequence[float], devices: Sequence[int]) -> Split | None:
    """The split of a dimension by shares; None where fewer than two devices get some."""
    sizes = whole_units(shares, axis.length // axis.unit) * axis.unit
    taken = [(int(s), d) for s, d in zip(sizes, devices, strict=True) if s]
    if len(taken) < 2:
        return None
    return Split(axis.dim, tuple(s for s, _ in taken), tuple(d for _, d in taken))


def _different(devices: Sequence[int], whole: np.ndarray, space_of: Sequence[int]) -> list[int]:
    """Devices of which no earlier one has the same times and memory."""
    kinds = {(space_of[d], whole[:, d].tobytes()): d for d in reversed(devices)}
    return sorted(kinds.values(), key=list(devices).index)
