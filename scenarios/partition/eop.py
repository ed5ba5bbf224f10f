"""Partition ``eop``: key operators are split between a GPU and a CPU by a ratio (EOP, VEE 2022, reconstructed).

Key operators are those with the largest shares of the time on the GPU, until :data:`CUMULATIVE` of it are covered.
Each is split along its output channels (rows or batch where it has none) with the ratio ``r`` of the CPU, on a grid of
sixteenths, that is the smallest ``max(t_gpu(1 - r), t_cpu(r) + tx_in) + tx_out``, and not at all where that is no
sooner than the GPU alone. Everything else stays on the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scenarios.partition.layouts import Choice
from scenarios.partition.operator_parts import Split, part_of
from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.partition.split_rules import Axis, axes_of
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
        axes: dict[int, Axis] = {}
        for index in key_operators(whole[:, fast]):
            mine = {axis.name: axis for axis in axes_of(splitter.graph.operators[index]).values()}
            named = [mine[name] for name in DIMENSIONS if name in mine]
            if named and np.isfinite(whole[index, slow]):
                axes[index] = named[0]
        if self.ratio == "tuned":
            tuned = self._tuned(splitter, axes, fast, slow)
        else:
            ratio = self._fixed(whole[:, fast].sum(), whole[:, slow].sum())
            given = {i: split_by(a, (1 - ratio, ratio), [fast, slow]) for i, a in axes.items()}
            tuned = {i: split for i, split in given.items() if split is not None}
        choices: list[Choice] = [tuned.get(i) or fast for i in range(len(splitter.graph))]
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

    def _fixed(self, fast: float, slow: float) -> float:
        return fast / (fast + slow) if self.ratio == "speed" else float(self.ratio)

    def _tuned(
        self, splitter: Splitter, axes: Mapping[int, Axis], fast: int, slow: int
    ) -> dict[int, Split]:
        """For each key operator the split that ends first, where that is sooner than the first device alone."""
        tried: list[tuple[int, Split, float, float]] = []
        parts: list[Operator] = []
        for index, axis in axes.items():
            operator = splitter.graph.operators[index]
            for step in range(1, STEPS):
                split = split_by(axis, (1 - step / STEPS, step / STEPS), [fast, slow])
                try:
                    rules = [] if split is None else split.rules(operator)
                except InvalidInput:  # of padding alone
                    continue
                if split is None:
                    continue
                both = [part_of(operator, rule, split, n) for n, rule in enumerate(rules)]
                tried.append((index, split, *self._transfers(splitter, index, split, both[1])))
                parts += both
        found: dict[int, Split] = {}
        least = dict(enumerate(splitter.layouts.whole[:, fast].tolist()))
        times = splitter.prices.seconds(parts) if parts else np.empty((0, 1))
        for (index, split, to, back), first, second in zip(
            tried, times[::2], times[1::2], strict=True
        ):
            end = max(float(first[fast]), float(second[slow]) + to) + back
            if end < least[index]:
                least[index], found[index] = end, split
        return found

    @staticmethod
    def _transfers(
        splitter: Splitter, index: int, split: Split, part: Operator
    ) -> tuple[float, float]:
        """Seconds of sending what the second device reads of activations, and of its result's way back."""
        graph, cluster = splitter.graph, splitter.problem.cluster
        here, there = (cluster.space_of[d] for d in split.devices)
        if here == there:
            return 0.0, 0.0
        weights, tensors = set(graph.weights), splitter.read_by_leaf(index)
        sent = sum(s.bytes for s, t in zip(part.inputs, tensors, strict=True) if t not in weights)
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
