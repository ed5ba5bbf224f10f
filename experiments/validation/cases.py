"""Simulated against measured runs: cases, and how far predictions are off.

Everything here is arithmetic on traces; :mod:`experiments.validate` makes them.

The statistic is the same on both sides: what the profile's operator times are (usually the 10th percentile
over rounds) is what is taken of the measured makespans and operator times over the repeats.

Where an error comes from: :mod:`experiments.validation.waterfall`. Whether the winner is named:
:mod:`experiments.validation.pairs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.probes.cache_now import Reuse
from experiments.probes.machine_speed import cooling_of, reading_of
from experiments.probes.overhead import Corun, Overhead
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.trace import Trace
from simulator.model.weight_hit_curve import ReuseCurve

if TYPE_CHECKING:
    from experiments.validation.contestants import Contestant

STATISTICS: Mapping[str, float] = {"minimum": 0.0, "p10": 0.1, "median": 0.5}


def statistic_of(values: np.ndarray, statistic: str) -> np.ndarray:
    """A statistic over the first axis.

    Raises:
        InvalidInput: it is none of ``STATISTICS``.
    """
    if statistic not in STATISTICS:
        raise InvalidInput(f"No statistic '{statistic}'; known: {', '.join(STATISTICS)}")
    return np.asarray(np.quantile(values, STATISTICS[statistic], axis=0))


def durations(traces: Sequence[Trace], operators: int, devices: int) -> np.ndarray:
    """float64[traces, operators, devices] seconds of each execution; NaN where none was there.

    For traces of one job each.
    """
    found = np.full((len(traces), operators, devices), np.nan)
    for number, trace in enumerate(traces):
        rows = trace.executions
        found[number, rows["operator"], rows["device"]] = rows["finish"] - rows["start"]
    return found


@dataclass(frozen=True, eq=False)
class Case:
    """One scheduler on so many jobs of one model at once.

    Attributes:
        simulated, measured: traces; ``measured`` is the repeat whose makespan is nearest to the
            statistic, which is taken apart.
        simulated_s: predicted makespan, seconds.
        low_s, high_s: its 90% interval from draws of the predictor's errors; NaN without draws.
        unseen_s: predicted makespan if no operator of the model had been measured; NaN if not asked
            for.
        repeats_s: float64[repeats] measured makespans.
        measured_s: the statistic over the repeats.
        steps: signed seconds of each of :data:`experiments.validation.waterfall.STEPS`; they sum to
            ``measured_s - simulated_s``.
        overhead: the runner's in the simulation.
        believed: the one that schedulers were told of; None where that was another one in every visit.
        draws_s: float64[draws] makespans under draws of the predictor's errors, those of one setting paired;
            empty where they were not kept.
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
    jobs: int = 1
    overhead: Overhead = field(default_factory=Overhead)
    draws_s: np.ndarray = field(default_factory=lambda: np.zeros(0))
    believed: Overhead | None = None

    @property
    def setting(self) -> str:
        """What schedulers are compared on: ``gpt2``, or ``gpt2 x4`` for four jobs at once."""
        return self.model if self.jobs == 1 else f"{self.model} x{self.jobs}"

    @property
    def error(self) -> float:
        """Simulated over measured makespan, minus one."""
        return self.simulated_s / self.measured_s - 1.0

    @property
    def expected_s(self) -> float:
        """The geometric mean of the draws, seconds; NaN without draws."""
        return float(np.exp(np.log(self.draws_s).mean())) if len(self.draws_s) else float("nan")

    @property
    def unseen_error(self) -> float:
        """The same for the prediction without the model's own operators."""
        return self.unseen_s / self.measured_s - 1.0

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured makespan."""
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, eq=False)
class ModelValidation:
    """What came of one model.

    Attributes:
        key: of the group of contestants.
        cluster: without the runner's overhead.
        cases: of ``contestants``, in their order.
        costs: predicted operator times, at the profiles' speed.
        alone: float64[operators, devices] measured seconds, all operators on that device.
        statistic: taken of the repeats.
        profiles: what the prediction rests on.
        profile_digests: of each profile by name.
        busy: cores that other processes kept busy before the runs; NaN where the system does not say.
        differences: in what the profiles were measured with something else than there is here.
        machine: what the runs were on.
        slowness: float64[operators, devices], how much longer operators took than in the profiles by the
            machine's speed; float64[devices] or one number where only that was measured, NaN where nothing.
        slowed: the same as the prediction had it; 1 for not at all.
        corun, noise, reuse: of :class:`experiments.validation.simulated_vs_measured.Prediction`.
    """

    model: str
    key: str
    graph: DataflowGraph
    cluster: Cluster
    contestants: tuple[Contestant, ...]
    cases: tuple[Case, ...]
    costs: GraphCosts
    alone: np.ndarray
    statistic: str
    profiles: str
    profile_digests: Mapping[str, str]
    busy: float
    differences: tuple[str, ...]
    machine: Mapping[str, Any]
    slowness: np.ndarray = field(default_factory=lambda: np.array(np.nan))
    slowed: np.ndarray = field(default_factory=lambda: np.array(1.0))
    corun: Corun = None
    noise: float = 0.0
    reuse: Reuse = field(default_factory=dict)

    @property
    def cooling(self) -> tuple[CoolingCurve | None, ...]:
        """The cold-start curves of launches that the prediction had, by device."""
        return cooling_of(self.machine.get("speed") or {})

    @property
    def reading(self) -> tuple[ReadingCurve, ...]:
        """The costs of far inputs that the prediction had, by device."""
        return reading_of(self.machine.get("speed") or {})

    @property
    def caches(self) -> dict[str, ReuseCurve]:
        """What was found that caches keep of weights, by memory space."""
        return {space: curves[0] for space, curves in self.reuse.items()}

    @property
    def predicted(self) -> np.ndarray:
        """float64[operators, devices] seconds, at the speed of the prediction."""
        return self.costs.seconds * self.slowed

    @property
    def one_factor(self) -> float:
        """How much longer all operators of the panel together took, the mean of the devices; NaN where
        there was none.
        """
        return float(np.mean(self.machine.get("speed", {}).get("whole", np.nan)))

    @property
    def without_cold(self) -> float:
        """How much longer operators would be taken to be if cold code were not told apart; NaN where nobody
        asked.
        """
        return float(self.machine.get("without_cold", np.nan))

    def on_average(self, factors: np.ndarray) -> float:
        """:func:`mean_factor` of the predicted times."""
        return mean_factor(self.costs.seconds, factors)

    @property
    def handover(self) -> float | None:
        """What the prediction had for :class:`experiments.validation.simulated_vs_measured.Prediction`, seconds."""
        found = self.machine.get("handover_s")
        return None if found is None else float(found)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices."""
        return tuple(device.name for device in self.cluster.devices)

    @property
    def repeats(self) -> int:
        """Measured runs of each case, the fewest."""
        return min(len(case.repeats_s) for case in self.cases)

    @property
    def overheads(self) -> dict[str, Overhead]:
        """The runner's overhead under each scheduler, of its fewest jobs."""
        most_first = sorted(self.cases, key=lambda case: -case.jobs)
        return {case.scheduler: case.overhead for case in most_first}


@dataclass
class Validation:
    """All of it, model by model."""

    models: list[ModelValidation] = field(default_factory=list)

    @property
    def cases(self) -> list[Case]:
        """Cases of all models."""
        return [case for model in self.models for case in model.cases]


def mean_factor(seconds: np.ndarray, factors: np.ndarray) -> float:
    """The mean of factors of operators' times, weighted by these, over the devices.

    Args:
        seconds: float64[operators, devices].
        factors: the same, or what broadcasts to it.
    """
    return float(((seconds * factors).sum(axis=0) / seconds.sum(axis=0)).mean())


def nearest(traces: Sequence[Trace], value: float) -> Trace:
    """The trace whose makespan is nearest to a value."""
    return min(traces, key=lambda trace: abs(trace.makespan - value))


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


def halves(case: Case, statistic: str) -> tuple[float, float]:
    """The statistic over even and over odd repeats, seconds; NaN for a half without any."""
    even, odd = (
        float(statistic_of(half, statistic)) if len(half) else float("nan")
        for half in (case.repeats_s[::2], case.repeats_s[1::2])
    )
    return even, odd


def repeatability(case: Case, statistic: str) -> float:
    """Absolute relative difference of the statistic over even and over odd repeats."""
    even, odd = halves(case, statistic)
    return abs(even / odd - 1.0)


def against_itself(validation: Validation) -> list[Case]:
    """What could be said of odd repeats by one who had the even ones: cases with these for a prediction.

    Empty where a case was run only once. Halves repeat themselves less well than all repeats would.
    """
    found = []
    for model in validation.models:
        for case in model.cases:
            even, odd = halves(case, model.statistic)
            nothing = float("nan")
            found.append(
                replace(
                    case,
                    simulated_s=even,
                    measured_s=odd,
                    low_s=nothing,
                    high_s=nothing,
                    draws_s=np.zeros(0),
                )
            )
    return found if all(np.isfinite(case.measured_s) for case in found) else []
