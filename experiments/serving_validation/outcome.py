"""Serving simulated against serving measured: the figures of both, their errors, and what they amount to.

Everything here is arithmetic on figures; :mod:`experiments.validate_serving` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simulator.analysis.serving_metrics import serving_metrics
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.model.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

FIGURES: Mapping[str, str] = {
    "served_per_s": "served /s",
    "mean_execution_s": "executing",
    "mean_delay_s": "mean",
    "p50_delay_s": "p50",
    "p95_delay_s": "p95",
    "p99_delay_s": "p99",
}
"""What is compared, and its heading."""
BOUNDS: Mapping[str, float] = {"mean_delay_s": 0.12, "served_per_s": 0.04}
"""Errors up to which a case counts as predicted."""
NAMES: Mapping[str, str] = {"mean_delay_s": "mean delay", "served_per_s": "throughput"}
INTERVAL = 0.9
"""Share of the runs whose figures the predicted intervals are to cover."""


TOLD: Mapping[str, str] = {"own_speed": "speed", "own_phases": "phases"}
"""What a simulation is told of a run, one thing more each time, and what the difference is called."""


@dataclass(frozen=True)
class ServingCase:
    """One scheduler at one load; the same arrivals in both worlds, and in all its runs.

    Attributes:
        load: offered, as a share of the capacity one request at a time.
        measured, simulated: of :func:`figures_of`; simulated is the median of the draws, figure by figure.
        joining_s: measured seconds of concatenating inputs, of all batches.
        speed: how much longer operators were simulated to take than the profiles say, as
            :meth:`experiments.probes.machine_speed.MachineSpeed.to_json` has it; None for not at all.
        run: which one of this scheduler at this load, from 1.
        low, high: of every figure the ends of the middle :data:`INTERVAL` of the draws; empty without draws.
        steady: as ``simulated``, of one run at the mean speed throughout.
        own_speed: the same by one who knew how long each model's executions took on average in the measured run.
        own_phases: the same by one who knew that from moment to moment.
        phases: how the speed wandered before and after the run, as
            :meth:`experiments.probes.phases.Phases.to_json` has it; None where nobody asked.
    """

    load: float
    scheduler: str
    measured: Mapping[str, Any]
    simulated: Mapping[str, Any]
    joining_s: float = 0.0
    speed: Mapping[str, Any] | None = None
    run: int = 1
    low: Mapping[str, float] = field(default_factory=dict)
    high: Mapping[str, float] = field(default_factory=dict)
    steady: Mapping[str, Any] = field(default_factory=dict)
    own_speed: Mapping[str, Any] = field(default_factory=dict)
    own_phases: Mapping[str, Any] = field(default_factory=dict)
    phases: Mapping[str, Any] | None = None

    def error(self, figure: str) -> float:
        """Simulated over measured, minus one; NaN where there is no such figure."""
        measured, simulated = self.measured.get(figure), self.simulated.get(figure)
        if measured is None or simulated is None or not measured:
            return math.nan
        return float(simulated) / float(measured) - 1.0

    def covers(self, figure: str) -> bool | None:
        """Whether the predicted interval has the measured figure; None where there is no interval."""
        measured, low, high = (w.get(figure) for w in (self.measured, self.low, self.high))
        if measured is None or low is None or high is None:
            return None
        return bool(low <= measured <= high)


def stretched(workload: Workload, rate: float, seconds: float) -> Workload:
    """The same requests in the same order at another rate.

    Args:
        workload: of two jobs at least, at different times.
        rate: mean arrivals per second of the whole workload.
        seconds: what arrives later is left out. The first request arrives at 0.

    Raises:
        InvalidInput: there is nothing to stretch.
    """
    jobs = workload.jobs
    begin, span = jobs[0].arrival, jobs[-1].arrival - jobs[0].arrival
    if workload.reacts or span <= 0:
        raise InvalidInput(
            "Arrivals are stretched to several loads: take two requests at least, at different times, "
            "that do not wait for answers (poisson, gamma, trace)"
        )
    factor = (len(jobs) - 1) / span / rate
    found = []
    for job in jobs:
        arrival = (job.arrival - begin) * factor
        if arrival > seconds:
            break
        deadline = None if job.deadline is None else arrival + job.deadline - job.arrival
        found.append(replace(job, arrival=arrival, deadline=deadline))
    return Workload(found, workload.batches, workload.variants, workload.accuracies)


def all_at_once(workload: Workload, count: int) -> Workload:
    """Its first requests, all at time 0 and without deadlines."""
    jobs = [replace(job, arrival=0.0, deadline=None) for job in workload.jobs[:count]]
    return Workload(jobs, workload.batches, workload.variants, workload.accuracies)


def with_joining(costs: CostTable, seconds: Mapping[DataflowGraph, float]) -> CostTable:
    """Times that contain what concatenating a batch's inputs takes: on the first operator of each graph
    that reads them.
    """
    entries = {}
    for graph, entry in costs.items():
        extra = seconds.get(graph, 0.0)
        if extra:
            given = frozenset(graph.inputs)
            row = next(
                (i for i, read in enumerate(graph.reads) if not given.isdisjoint(read)), None
            )
            if row is not None:
                changed, cached = entry.seconds.copy(), entry.cached
                changed[row] += extra
                if cached is not None:  # which spares nothing of it
                    cached = cached.copy()
                    cached[row] += (1.0 - cached[row]) * extra / changed[row]
                entry = replace(entry, seconds=changed, cached=cached)
        entries[graph] = entry
    return CostTable(entries)


def figures_of(trace: Trace, warm_up: float) -> dict[str, Any]:
    """Those of :func:`simulator.analysis.serving_metrics.serving_metrics`, and ``mean_execution_s``: on average over the
    requests that finished, the seconds of all executions that served one, whoever else they served; what else a
    delay is was waiting. None if none finished.
    """
    rows, members, jobs = trace.executions, trace.members, trace.jobs
    order = np.argsort(rows["execution"])
    mine = order[np.searchsorted(rows["execution"], members["execution"], sorter=order)]
    seconds = (rows["finish"] - rows["start"])[mine]
    executing = np.bincount(members["job"], seconds, minlength=len(jobs["job"]))
    counted = executing[(jobs["arrival"] >= warm_up) & (jobs["status"] == "finished")]
    mean = float(counted.mean()) if len(counted) else None
    return {**serving_metrics(trace, warm_up), "mean_execution_s": mean}


def drawn_figures(
    draws: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, float], dict[str, float]]:
    """The medians of figures over draws of a run, and the ends of the middle :data:`INTERVAL` of those that are
    compared.
    """
    low, high = {}, {}
    for figure in FIGURES:
        known = [draw[figure] for draw in draws if draw.get(figure) is not None]
        if known:
            ends = np.quantile(known, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2])
            low[figure], high[figure] = ends.tolist()
    return _together(draws, np.median), low, high


def averaged(runs: Sequence[ServingCase]) -> list[ServingCase]:
    """One case for each scheduler and load, in order of their first runs: the means of the runs' figures."""
    means = ("measured", "simulated", "joining_s", "low", "high", "steady", *TOLD)
    return [
        replace(
            own[0],
            speed=None,
            **{name: _mean([getattr(run, name) for run in own]) for name in means},
        )
        for own in _by_case(runs)
    ]


def by_the_others(runs: Sequence[ServingCase]) -> list[ServingCase]:
    """Every run of cases that have several, "simulated" by the mean of the others: what the machine itself
    says of its next run.
    """
    found = []
    for own in _by_case(runs):
        for run in own if len(own) > 1 else ():
            others = _mean([other.measured for other in own if other is not run])
            found.append(replace(run, simulated=others))
    return found


def _by_case(runs: Sequence[ServingCase]) -> list[list[ServingCase]]:
    found: dict[tuple[float, str], list[ServingCase]] = {}
    for run in runs:
        found.setdefault((run.load, run.scheduler), []).append(run)
    return list(found.values())


def _mean(figures: Sequence[Any]) -> Any:
    return _together(figures, np.mean)


def _together(figures: Sequence[Any], statistic: Callable[[Sequence[float]], Any]) -> Any:
    """Number by number; what is None in one of them is None."""
    first = figures[0]
    if isinstance(first, Mapping):
        return {name: _together([one.get(name) for one in figures], statistic) for name in first}
    if all(value == first for value in figures):
        return first  # counts stay counts
    return None if any(value is None for value in figures) else float(statistic(figures))


def case_frame(cases: Sequence[ServingCase]) -> pd.DataFrame:
    """One row a case: every figure measured, simulated, and its error."""
    import pandas as pd

    rows = []
    for case in cases:
        row: dict[str, Any] = {
            "load": case.load,
            "scheduler": case.scheduler,
            "run": case.run,
            "requests": case.measured["requests"],
            "offered_per_s": case.measured["offered_per_s"],
            "joining_s": case.joining_s,
        }
        for figure in (*FIGURES, "mean_batch"):
            row[f"{figure}_measured"] = case.measured.get(figure)
            row[f"{figure}_simulated"] = case.simulated.get(figure)
            row[f"{figure}_error"] = case.error(figure)
        for figure in BOUNDS:
            row[f"{figure}_low"], row[f"{figure}_high"] = (
                case.low.get(figure),
                case.high.get(figure),
            )
            for name in ("steady", *TOLD):
                row[f"{figure}_{name}"] = getattr(case, name).get(figure)
        rows.append(row)
    return pd.DataFrame(rows)


def summary(cases: Sequence[ServingCase]) -> dict[str, Any]:
    """Of every figure the mean and the worst absolute error, and how many cases are within its bound.

    Relative errors flatter who predicts too little, being at most 1 one way; ``mean_factor``, the exponential of the
    mean absolute logarithm of simulated over measured, does not.
    """
    found: dict[str, Any] = {"cases": len(cases)}
    for figure in FIGURES:
        errors = np.array([case.error(figure) for case in cases])
        errors = errors[np.isfinite(errors)]
        if not len(errors):
            continue
        entry = {
            "mean_absolute_error": float(np.abs(errors).mean()),
            "worst_absolute_error": float(np.abs(errors).max()),
            "bias": float(errors.mean()),
            "mean_factor": float(np.exp(np.abs(np.log1p(errors[errors > -1.0])).mean())),
        }
        if figure in BOUNDS:
            entry["bound"] = BOUNDS[figure]
            entry["within"] = int((np.abs(errors) <= BOUNDS[figure]).sum())
        found[figure] = entry
    return found


def answers(runs: Sequence[ServingCase]) -> list[str]:
    """What it amounts to, in sentences."""
    cases = averaged(runs)
    figures = summary(cases)
    found = []
    for figure, bound in BOUNDS.items():
        entry = figures.get(figure)
        if entry is None:
            continue
        worst = max(cases, key=lambda case: _size(case.error(figure)))
        found.append(
            f"{NAMES[figure]}: simulated within {bound:.0%} of measured in {entry['within']} of "
            f"{len(cases)} cases{_of_runs(runs, cases)}; error {entry['mean_absolute_error']:.1%} on average, at worst "
            f"{worst.error(figure):+.1%} ({worst.scheduler} at {worst.load:g} of capacity)"
        )
    for load in sorted({case.load for case in cases}):
        here = summary([case for case in cases if case.load == load])
        parts = [
            f"{FIGURES[figure]} {here[figure]['mean_absolute_error']:.1%}"
            for figure in FIGURES
            if figure in here
        ]
        found.append(
            f"at {load:g} of capacity, mean absolute errors: {', '.join(parts)}"
            + _repeats_itself([run for run in runs if run.load == load])
        )
    found += [*_covered(runs), *_if_told(cases)]
    right, pairs = winners(cases)
    if pairs:
        found.append(
            f"of {pairs} pairs of schedulers at a load whose measured mean delays differ by more than "
            f"5%, simulation has {right} in that order"
        )
    return found + _the_machine_itself(runs)


def _covered(runs: Sequence[ServingCase]) -> list[str]:
    """In how many runs the predicted intervals have what was measured."""
    parts = []
    for figure in BOUNDS:
        known = [covers for run in runs if (covers := run.covers(figure)) is not None]
        if known:
            parts.append(f"the {NAMES[figure]} in {sum(known)} of {len(known)} runs")
    return [f"the predicted {INTERVAL:.0%} interval has {' and '.join(parts)}"] if parts else []


def _if_told(cases: Sequence[ServingCase]) -> list[str]:
    """How far off mean delays are by who knew the machine better."""
    texts = {
        "steady": "at the mean speed around a run throughout",
        "own_speed": "told how long each model's executions took on average in the run",
        "own_phases": "told that from moment to moment",
    }
    parts = []
    for name, text in texts.items():
        known = summary([replace(c, simulated=getattr(c, name)) for c in cases if getattr(c, name)])
        entry = known.get("mean_delay_s")
        if entry is not None:
            parts.append(
                f"{text} {entry['mean_absolute_error']:.1%} (at worst {entry['worst_absolute_error']:.1%}; "
                f"{entry['within']} of {known['cases']} within {entry['bound']:.0%})"
            )
    return [f"mean delays would be off, simulated {'; '.join(parts)}"] if parts else []


def taken_apart(case: ServingCase, figure: str = "mean_delay_s") -> dict[str, float] | None:
    """Measured minus simulated as parts of measured, a signed step for each thing that a simulation could have been
    told (:data:`TOLD`) and ``rest``; they add up. None where that is not known.
    """
    values = [case.simulated, *(getattr(case, name) for name in TOLD), case.measured]
    known = [value.get(figure) for value in values]
    if any(value is None for value in known) or not known[-1]:
        return None
    steps = (np.diff(known) / known[-1]).tolist()
    return dict(zip((*TOLD.values(), "rest"), steps, strict=True))


def _of_runs(runs: Sequence[ServingCase], cases: Sequence[ServingCase]) -> str:
    return f" (means of {len(runs) / len(cases):.3g} runs)" if len(runs) > len(cases) else ""


def _repeated(runs: Sequence[ServingCase]) -> tuple[list[ServingCase], list[ServingCase]]:
    """Runs of cases that have several, and the same of :func:`by_the_others`."""
    others = by_the_others(runs)
    known = {(run.load, run.scheduler, run.run) for run in others}
    return [run for run in runs if (run.load, run.scheduler, run.run) in known], others


def _repeats_itself(runs: Sequence[ServingCase]) -> str:
    """By which factors mean delays of single runs differ."""
    single, others = _repeated(runs)
    mine, theirs = (summary(cases).get("mean_delay_s") for cases in (single, others))
    if mine is None or theirs is None:  # nobody was served, or only once
        return ""
    return (
        f"; a single run's mean delay differs from its own simulation's by a factor of {mine['mean_factor']:.3g} and "
        f"from the mean of the case's other runs by one of {theirs['mean_factor']:.3g}"
    )


def _the_machine_itself(runs: Sequence[ServingCase]) -> list[str]:
    """How well a single run is told by its own simulation, and by the other runs of its case."""
    single, others = _repeated(runs)
    if not others:
        return []
    simulated, repeated = summary(single), summary(others)
    parts = [
        f"{NAMES[figure]} differs from its own simulation's by a factor of "
        f"{simulated[figure]['mean_factor']:.3g} and from the mean of the case's other runs by one of "
        f"{repeated[figure]['mean_factor']:.3g} ({simulated[figure]['within']} and "
        f"{repeated[figure]['within']} of {len(others)} within {bound:.0%})"
        for figure, bound in BOUNDS.items()
        if figure in simulated and figure in repeated
    ]
    found = [f"the machine itself: a single run's {', its '.join(parts)}"]
    (right, pairs), (likewise, _) = winners(single), winners(others)
    if pairs:
        found.append(
            f"of {pairs} pairs of schedulers in the same round of runs whose mean delays differ by more "
            f"than 5%, simulation has {right} in that order and the other rounds have {likewise}"
        )
    return found


def winners(cases: Sequence[ServingCase]) -> tuple[int, int]:
    """Pairs of schedulers at one load, in the same run, that simulation has in the measured order of mean
    delays, of those that differ by more than 5% there.
    """
    right = total = 0
    for i, a in enumerate(cases):
        for b in cases[i + 1 :]:
            if (a.load, a.run) != (b.load, b.run):
                continue
            measured = cast(float, a.measured["mean_delay_s"]) / b.measured["mean_delay_s"]
            if max(measured, 1 / measured) > 1.05:
                total += 1
                right += (a.simulated["mean_delay_s"] > b.simulated["mean_delay_s"]) == (
                    measured > 1
                )
    return right, total


def _size(error: float) -> float:
    return abs(error) if math.isfinite(error) else -1.0
