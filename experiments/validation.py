"""Simulated against measured runs: errors, where they come from, and whether the winner is named.

Everything here is arithmetic on traces; :mod:`experiments.validate` makes them.

The statistic is the same on both sides: what the profile's operator times are (usually the 10th percentile
over rounds) is what is taken of the measured makespans and operator times over the repeats.

An error is taken apart in steps that add up. Each replaces one ingredient of the simulation by what was
measured:

``decisions``
    operators on the devices and in the order of the measured run, predicted times;
``operators``
    their times measured alone (all operators of the model on one device, the others idle);
``co-run``
    their times in the measured run itself, the other workers being busy;
``runner``
    what is left: completion, decisions and hand-over beyond the modelled launch overhead.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulator.cluster import Cluster
from simulator.context import SchedulingContext
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph
from simulator.scheduler import Scheduler
from simulator.trace import Trace

STATISTICS: Mapping[str, float] = {"minimum": 0.0, "p10": 0.1, "median": 0.5}
STEPS = ("decisions", "operators", "co-run", "runner")
SEPARATE = 1.05
"""Ratio of measured makespans from which a pair of schedulers counts as different."""


def statistic_of(values: np.ndarray, statistic: str) -> np.ndarray:
    """A statistic over the first axis.

    Raises:
        InvalidInput: it is none of ``STATISTICS``.
    """
    if statistic not in STATISTICS:
        raise InvalidInput(f"No statistic '{statistic}'; known: {', '.join(STATISTICS)}")
    return np.asarray(np.quantile(values, STATISTICS[statistic], axis=0))


class AsMeasured(Scheduler):
    """Every operator on the device, and there in the order, of a recorded run of one job."""

    name: ClassVar[str] = "as measured"

    def __init__(self, trace: Trace) -> None:
        rows = trace.executions
        order = np.argsort(rows["start"], kind="stable")
        self._placements = [(int(rows["task"][i]), int(rows["device"][i])) for i in order]

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        if context.arrived:
            for rank, (task, device) in enumerate(self._placements):
                context.place(task, device, rank=rank)


def durations(traces: Sequence[Trace], operators: int, devices: int) -> np.ndarray:
    """float64[traces, operators, devices] seconds of each execution; NaN where none was there.

    For traces of one job each.
    """
    found = np.full((len(traces), operators, devices), np.nan)
    for number, trace in enumerate(traces):
        rows = trace.executions
        found[number, rows["operator"], rows["device"]] = rows["finish"] - rows["start"]
    return found


@dataclass(frozen=True)
class Case:
    """One scheduler on one model.

    Attributes:
        simulated, measured: traces; ``measured`` is the repeat whose makespan is nearest to the
            statistic.
        simulated_s: predicted makespan, seconds.
        low_s, high_s: its 95% interval from draws of the predictor's errors; NaN without draws.
        unseen_s: predicted makespan if no operator of the model had been measured; NaN if not asked
            for.
        repeats_s: float64[repeats] measured makespans.
        measured_s: their statistic.
        steps: signed seconds of each of ``STEPS``; they sum to ``measured.makespan - simulated_s``.
    """

    model: str
    scheduler: str
    simulated: Trace
    measured: Trace
    simulated_s: float
    low_s: float
    high_s: float
    unseen_s: float
    repeats_s: np.ndarray
    measured_s: float
    steps: Mapping[str, float]

    @property
    def error(self) -> float:
        """Simulated over measured makespan, minus one."""
        return self.simulated_s / self.measured_s - 1.0

    @property
    def unseen_error(self) -> float:
        """The same for the prediction without the model's own operators."""
        return self.unseen_s / self.measured_s - 1.0

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured makespan."""
        return self.low_s <= self.measured_s <= self.high_s


def nearest(traces: Sequence[Trace], value: float) -> Trace:
    """The trace whose makespan is nearest to a value."""
    return min(traces, key=lambda trace: abs(trace.makespan - value))


def error_steps(
    graph: DataflowGraph,
    cluster: Cluster,
    costs: CostTable,
    simulated_s: float,
    measured: Trace,
    alone: np.ndarray,
    movement: str = "push",
    contention: str = "none",
) -> dict[str, float]:
    """Take the difference of a measured run and its simulation apart.

    Args:
        graph: the model.
        cluster: with the launch overhead that the simulation had.
        costs: predicted seconds.
        simulated_s: predicted makespan.
        measured: one run of one job.
        alone: float64[operators, devices] measured seconds with the other workers idle; NaN where
            there is none, which then counts as predicted.
        movement: as in the simulation.
        contention: as in the simulation.

    Returns:
        Signed seconds for each of ``STEPS``; their sum is the measured makespan minus ``simulated_s``.
    """
    predicted = costs[graph].seconds
    own = durations([measured], *predicted.shape)[0]

    def replay(seconds: np.ndarray) -> float:
        filled = np.where(np.isnan(seconds), predicted, seconds)
        return simulate(
            graph,
            cluster,
            costs,
            AsMeasured(measured),
            actual=CostTable.of(graph, filled),
            movement=movement,
            contention=contention,
        ).makespan

    levels = [simulated_s, replay(predicted), replay(alone), replay(own), measured.makespan]
    return {
        step: after - before
        for step, (before, after) in zip(STEPS, itertools.pairwise(levels), strict=True)
    }


@dataclass(frozen=True)
class KindError:
    """Predicted over measured operator time, minus one, for the operators of one kind on one device.

    Attributes:
        operators: how many.
        measured_s: sum of their measured times.
        total: of the sums: what a makespan sees.
        median, mean: over operators, signed.
        median_absolute: over operators.
    """

    device: str
    kind: str
    operators: int
    measured_s: float
    total: float
    median: float
    mean: float
    median_absolute: float


def kind_errors(
    graph: DataflowGraph, predicted: np.ndarray, measured: np.ndarray, devices: Sequence[str]
) -> list[KindError]:
    """Operator errors by device and kind, the kinds by falling measured time; ``all`` comes first.

    Args:
        graph: the model.
        predicted: float64[operators, devices] seconds.
        measured: the same; NaN where nothing was measured.
        devices: names.
    """
    kinds = np.array([operator.kind for operator in graph.operators])
    found = []
    for column, device in enumerate(devices):
        known = ~np.isnan(measured[:, column])
        groups = [("all", known)] + [(str(k), known & (kinds == k)) for k in np.unique(kinds)]
        rows = []
        for kind, mask in groups:
            if not mask.any():
                continue
            a, b = predicted[mask, column], measured[mask, column]
            error = a / b - 1.0
            rows.append(
                KindError(
                    device,
                    kind,
                    int(mask.sum()),
                    float(b.sum()),
                    float(a.sum() / b.sum() - 1.0),
                    float(np.median(error)),
                    float(error.mean()),
                    float(np.median(np.abs(error))),
                )
            )
        found += sorted(rows, key=lambda row: -row.measured_s)
    return found


@dataclass(frozen=True)
class Pair:
    """Two schedulers on one model: ratios of makespans, ``second`` over ``first``."""

    model: str
    first: str
    second: str
    simulated: float
    measured: float

    @property
    def separate(self) -> bool:
        """Whether the measured makespans differ by more than 5%."""
        return max(self.measured, 1 / self.measured) > SEPARATE

    @property
    def told_apart(self) -> bool:
        """Whether the simulated makespans differ by more than 5%."""
        return max(self.simulated, 1 / self.simulated) > SEPARATE

    @property
    def agrees(self) -> bool:
        """Whether simulation names the same winner."""
        return (self.simulated > 1) == (self.measured > 1)


def pairs(cases: Sequence[Case]) -> list[Pair]:
    """All pairs of schedulers of each model."""
    found = []
    for model in dict.fromkeys(case.model for case in cases):
        group = [case for case in cases if case.model == model]
        for a, b in itertools.combinations(group, 2):
            found.append(
                Pair(
                    model,
                    a.scheduler,
                    b.scheduler,
                    b.simulated_s / a.simulated_s,
                    b.measured_s / a.measured_s,
                )
            )
    return found


def kendall_tau(pairs: Sequence[Pair]) -> float:
    """Kendall's tau-a over pairs: agreeing minus disagreeing, over all; NaN without pairs.

    A pair that simulation sees as equal neither agrees nor disagrees.
    """
    if not pairs:
        return float("nan")
    score = sum(
        float(np.sign(np.log(pair.simulated)) * np.sign(np.log(pair.measured))) for pair in pairs
    )
    return score / len(pairs)


def regret(cases: Sequence[Case]) -> dict[str, float]:
    """For each model the measured makespan of the scheduler that simulation would choose, over the
    best measured one, minus one.
    """
    found = {}
    for model in dict.fromkeys(case.model for case in cases):
        group = [case for case in cases if case.model == model]
        chosen = min(group, key=lambda case: case.simulated_s)
        best = min(case.measured_s for case in group)
        found[model] = chosen.measured_s / best - 1.0
    return found


def repeatability(case: Case, statistic: str) -> float:
    """Absolute relative difference of the statistic over even and over odd repeats."""
    even, odd = case.repeats_s[::2], case.repeats_s[1::2]
    if not len(odd):
        return float("nan")
    a, b = float(statistic_of(even, statistic)), float(statistic_of(odd, statistic))
    return abs(a / b - 1.0)
