"""Partition ``eop``: key operators are split between a GPU and a CPU by a ratio (EOP, VEE 2022, reconstructed).

Key operators are those with the largest shares of the time on the GPU, until :data:`CUMULATIVE` of it are covered.
Each is split along its output channels (rows or batch where it has none) with the ratio ``r`` of the CPU, on a grid of
sixteenths, that is the smallest ``max(t_gpu(1 - r), t_cpu(r) + tx_in) + tx_out``, and not at all where that is no
sooner than the GPU alone. Everything else stays on the GPU.
"""

from __future__ import annotations

import numpy as np

from scenarios.partition.layouts import Choice
from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.partition.split_graph import Split, part_of
from scenarios.partition.split_rules import Axis, PartRule, axes_of
from scenarios.partition.tensor_split import Splitter, split_by
from simulator.errors import InvalidInput
from simulator.model.operator import Operator
from simulator.model.plan import Plan

CUMULATIVE = 0.9
"""Of the GPU's time, that key operators cover."""
STEPS = 16
"""Of the grid of ratios."""
DIMENSIONS = ("channels", "rows", "batch")
"""An operator is split along the first of these that it has."""


class EOP(Partitioner):
    """Splits key operators between two devices; see the module docstring.

    Args:
        ratio: ``tuned``, ``speed`` (as both devices' times of the whole graph) or the second device's share of every
            key operator, from 0 to 1; a given ratio is kept where it gains nothing, too.
        devices: names of the GPU and of the CPU; unless given, the fastest device, and the fastest of another memory,
            or of the same where there is no other.
    """

    name = "eop"
    makes_graphs = True

    def __init__(self, ratio: str | float = "tuned", devices: list[str] | None = None) -> None:
        given = isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 <= ratio <= 1
        if ratio not in ("tuned", "speed") and not given:
            raise InvalidInput(
                f"Partition 'eop' has ratio {ratio!r}; give 'tuned', 'speed' or a number from 0 to 1"
            )
        if devices is not None and len(devices) != 2:
            raise InvalidInput(
                f"Partition 'eop' splits between two devices, not {len(devices)}: name the GPU and the CPU"
            )
        self.ratio, self.given = ratio, devices

    def plan(self, problem: Problem) -> Plan:
        """See :class:`Partitioner`.

        Raises:
            InvalidInput: as :class:`Splitter`; there are no two devices; or parts cannot be priced.
        """
        splitter = Splitter(problem)
        fast, slow = self._pair(splitter)
        whole = splitter.layouts.whole
        choices: list[Choice] = [fast] * len(splitter.graph)
        for index in key_operators(whole[:, fast]):
            axes = {axis.name: axis for axis in axes_of(splitter.graph.operators[index]).values()}
            axis = next((axes[name] for name in DIMENSIONS if name in axes), None)
            if axis is None or not np.isfinite(whole[index, slow]):
                continue
            split = split_by(axis, self._shares(splitter, index, axis, fast, slow), [fast, slow])
            choices[index] = fast if split is None else split
        devices = [problem.cluster.devices[d].name for d in (fast, slow)]
        return splitter.plan(self.name, choices, {"ratio": self.ratio, "pair": devices})

    def _pair(self, splitter: Splitter) -> list[int]:
        ranked = splitter.devices(self.given)
        if len(ranked) < 2:
            raise InvalidInput("Partition 'eop' splits between two devices; the cluster has one")
        if self.given is not None:
            index = splitter.problem.cluster.device_index
            return [index[name] for name in self.given]
        space_of = splitter.problem.cluster.space_of
        apart = [d for d in ranked if space_of[d] != space_of[ranked[0]]]
        return [ranked[0], (apart or ranked[1:])[0]]

    def _shares(
        self, splitter: Splitter, index: int, axis: Axis, fast: int, slow: int
    ) -> tuple[float, float]:
        whole = splitter.layouts.whole
        if self.ratio == "speed":
            rate = 1.0 / whole[:, [fast, slow]].sum(axis=0)
            return float(rate[0] / rate.sum()), float(rate[1] / rate.sum())
        if self.ratio != "tuned":
            return 1.0 - float(self.ratio), float(self.ratio)
        best, least = 0, float(whole[index, fast])
        ends = self._ends(splitter, index, axis, fast, slow)
        for step, seconds in ends.items():
            if seconds < least:
                best, least = step, seconds
        return 1.0 - best / STEPS, best / STEPS

    def _ends(
        self, splitter: Splitter, index: int, axis: Axis, fast: int, slow: int
    ) -> dict[int, float]:
        """When an operator would end, by the step of the ratio."""
        operator = splitter.graph.operators[index]
        splits = {}
        for step in range(1, STEPS):
            split = split_by(axis, (1 - step / STEPS, step / STEPS), [fast, slow])
            try:
                if split is not None:
                    splits[step] = split, split.rules(operator)
            except InvalidInput:  # of padding alone
                continue
        parts = [
            part_of(operator, rule, split, number)
            for split, rules in splits.values()
            for number, rule in enumerate(rules)
        ]
        if not parts:
            return {}
        times = splitter.prices.seconds(parts).reshape(len(splits), 2, -1)
        found = {}
        for (step, (split, rules)), row in zip(splits.items(), times, strict=True):
            to, back = self._transfers(splitter, index, operator, split, rules[1])
            found[step] = max(row[0, fast], row[1, slow] + to) + back
        return found

    @staticmethod
    def _transfers(
        splitter: Splitter, index: int, operator: Operator, split: Split, rule: PartRule
    ) -> tuple[float, float]:
        """Seconds of sending what the second device reads of activations, and of its result's way back."""
        graph, cluster = splitter.graph, splitter.problem.cluster
        here, there = (cluster.space_of[d] for d in split.devices)
        if here == there:
            return 0.0, 0.0
        part = part_of(operator, rule, split, 1)
        names = splitter.read_by_leaf(index)
        weights = set(graph.weights)
        sent = sum(
            spec.bytes
            for spec, tensor in zip(part.inputs, names, strict=False)
            if tensor not in weights
        )
        written = sum(spec.bytes for spec in part.outputs)
        return cluster.route(here, there).seconds(sent), cluster.route(there, here).seconds(written)


def key_operators(seconds: np.ndarray) -> list[int]:
    """The fewest operators that cover :data:`CUMULATIVE` of all time, the longest first.

    Args:
        seconds: float64[operators], on the GPU.
    """
    order = np.argsort(-seconds, kind="stable")
    covered = np.cumsum(seconds[order])
    return order[
        : int(np.searchsorted(covered, CUMULATIVE * covered[-1] * (1 - 1e-12))) + 1
    ].tolist()
