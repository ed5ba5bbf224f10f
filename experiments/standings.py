"""Who is best where: a sweep's cells as contests of schedulers.

A *contest* is everything but the scheduler held fixed: model, batch, cluster, workload, movement and
contention. Its seeds are repetitions; only seeds that every scheduler finished are compared, so that
all have met the same arrivals and the same draws.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.statistics import (
    FEWEST_DRAWS,
    SAME,
    Comparison,
    Interval,
    compare,
    interval,
    probability_best,
)
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Hashable, Any]
SETTING = (
    "cluster",
    "workload",
    "movement",
    "contention",
    "noise",
    "memory",
    "decision_cost",
    "cost_model",
    "profiles",
)
SEEDS = ("seed_workload", "seed_noise", "seed_search")
REQUIRED = ("cell", "status", "model", "cluster", "scheduler", "makespan_s")
_DEFAULTS: dict[str, Any] = {
    "error": "",
    "batch": 1,
    "workload": "single",
    "movement": "",
    "contention": "",
    "noise": "none",
    "memory": "unlimited",
    "decision_cost": "none",
    "cost_model": "",
    "seed_workload": 0,
    "seed_noise": 0,
    "seed_search": 0,
    "makespan_low_s": np.nan,
    "makespan_high_s": np.nan,
    "bound_s": np.nan,
    "critical_path_s": np.nan,
    "best_device": "",
    "best_device_s": np.nan,
    "utilisation": np.nan,
    "extrapolated_share": np.nan,
    "profiles": "",
    "interval_without": "",
    "jobs_failed": 0,
    "wall_s": np.nan,
    "draws": None,
}
ALONE = "single_device"
BEST_DEVICE = "best device"
GIVEN = "given"
"""Cost model of bare instances, each of which brings a cluster of its own along."""
_CHAIN = 0.9
"""A graph whose critical path is this share of its time on the best device has no parallel work."""

_AT_BOUND = 0.02


@dataclass(frozen=True)
class Setting:
    """What the contests of one table share; bare instances name neither cluster nor profiles."""

    cluster: str
    workload: str
    movement: str
    contention: str
    noise: str
    memory: str
    decision_cost: str
    cost_model: str
    profiles: str


@dataclass(frozen=True)
class Standing:
    """One scheduler in one contest.

    Attributes:
        scheduler: its label.
        makespans: float[seeds] seconds at believed times.
        draws: float[pooled draws] seconds, paired with those of the contest's other schedulers; empty
            where there are none.
        interval: of the pooled draws; of the cell's own percentiles where only these are known.
        best_share: share of the draws in which it is the shortest; None without draws.
        separable: from the contest's best; None for the best itself or without draws.
        utilisation: mean over seeds; NaN where unknown.
        cells: ids of its cells, in order of seeds.
    """

    scheduler: str
    makespans: np.ndarray
    draws: np.ndarray
    interval: Interval | None
    best_share: float | None
    separable: bool | None
    utilisation: float
    cells: tuple[str, ...]

    @property
    def makespan_s(self) -> float:
        """Mean over seeds, seconds."""
        return float(self.makespans.mean())

    @property
    def biased(self) -> bool:
        """Whether the makespan at believed times lies outside the interval of the draws."""
        return self.interval is not None and self.makespan_s not in self.interval


@dataclass(frozen=True)
class Contest:
    """Schedulers on one model in one setting.

    Attributes:
        standings: schedulers by makespan; the best device alone is not among them.
        alone: everything on the best single device, where the sweep ran it; with the draws then.
        best_device: its name.
        best_device_s: mean over seeds of the time on the best device alone; NaN where unknown.
        bound_s: mean over seeds of the lower bound; NaN where unknown.
        critical_path_s: likewise, of the critical path.
        seeds: how many are compared.
        seeds_left_out: how many some scheduler did not finish.
        absent: schedulers without a finished cell among the seeds compared.
        extrapolated_share: mean over cells of the share of time outside the measured range.
        interval_without: profiles whose error is unknown and therefore not in the draws.
    """

    setting: Setting
    model: str
    batch: int
    standings: tuple[Standing, ...]
    alone: Standing | None
    best_device: str
    best_device_s: float
    bound_s: float
    critical_path_s: float
    seeds: int
    seeds_left_out: int
    absent: tuple[str, ...]
    extrapolated_share: float
    interval_without: tuple[str, ...]

    @property
    def best(self) -> Standing:
        """The scheduler of the smallest makespan."""
        return self.standings[0]

    @property
    def draws(self) -> int:
        """Pooled draws of each scheduler."""
        return min(len(standing.draws) for standing in self.standings)

    def find(self, scheduler: str) -> Standing | None:
        """The standing of a scheduler, or None."""
        return next((s for s in self.standings if s.scheduler == scheduler), None)

    def speedup(self, standing: Standing) -> float:
        """Time on the best device alone over the makespan: above 1 where scheduling helps."""
        return self.best_device_s / standing.makespan_s

    def gap(self, standing: Standing) -> float:
        """Makespan over the lower bound, minus 1."""
        return standing.makespan_s / self.bound_s - 1.0 if self.bound_s > 0 else np.nan

    @property
    def verdict(self) -> str | None:
        """Why a ranking would be idle here, or None where schedulers do differ."""
        if len(self.standings) < 2:
            return None
        best, worst = self.best.makespan_s, self.standings[-1].makespan_s
        if worst > best * (1.0 + SAME):
            return None
        if best >= self.best_device_s * (1.0 - SAME):
            if self.critical_path_s >= _CHAIN * self.best_device_s:
                return "a chain, scheduling cannot help"
            return f"none is faster than {self.best_device} alone"
        if self.gap(self.best) <= _AT_BOUND:
            return "at the lower bound, scheduling cannot help"
        return "the choice among them does not matter"

    def against(self, first: Standing, second: Standing) -> Comparison:
        """Compare two of this contest's schedulers."""
        return compare(first.makespans, second.makespans, first.draws, second.draws)


@dataclass(frozen=True)
class Failure:
    """A cell without a result."""

    cell: str
    what: str
    error: str


@dataclass(frozen=True)
class Standings:
    """All contests of a sweep, in the order of its cells.

    Attributes:
        cells: how many there are, failed ones included.
        wall_s: seconds that the cells took, summed; NaN where unknown.
    """

    contests: tuple[Contest, ...]
    failures: tuple[Failure, ...]
    cells: int
    wall_s: float

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The distinct settings, in order."""
        return tuple(dict.fromkeys(contest.setting for contest in self.contests))

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Every scheduler that some contest compares, in alphabetical order."""
        return tuple(sorted({s.scheduler for c in self.contests for s in c.standings}))

    def label(self, contest: Contest, with_setting: bool = False) -> str:
        """A contest's name: the model, and its batch where several batches are compared."""
        several = len({c.batch for c in self.contests}) > 1
        name = (
            f"{contest.model} x{contest.batch}" if several or contest.batch > 1 else contest.model
        )
        if with_setting and len(self.settings) > 1:
            name += f", {self.setting_label(contest.setting)}"
        return name

    def setting_label(self, setting: Setting) -> str:
        """The cluster, and whatever else differs between settings."""
        parts = [setting.cluster or "given times"] + [
            getattr(setting, key)
            for key in SETTING[1:-1]
            if key != "cost_model" or setting.cost_model != GIVEN
            if len({getattr(other, key) for other in self.settings}) > 1
        ]
        # A cluster's name says what its devices are, unless they changed under the name.
        if len({s.profiles for s in self.settings if s.cluster == setting.cluster}) > 1:
            parts.append(setting.profiles)
        return " ".join(part for part in parts if part)


def standings(results: pd.DataFrame) -> Standings:
    """Group a sweep's rows into contests. Runs of which jobs failed count among the failures.

    Args:
        results: one row a cell, columns as in ``results.parquet``.

    Raises:
        InvalidInput: a column is missing, or a finished cell has no positive makespan.
    """
    missing = [name for name in REQUIRED if name not in results.columns]
    if missing:
        raise InvalidInput(
            f"The results lack column {', '.join(missing)}; was this folder written by "
            "python -m experiments.sweep?"
        )
    results = results.copy()
    for name, value in _DEFAULTS.items():
        if name not in results.columns:
            results[name] = value
    # What failed to do its work is not the faster for it.
    lost = (results["status"] == "done") & (results["jobs_failed"] > 0)
    for row in results.index[lost]:
        count = int(results.loc[row, "jobs_failed"])
        reason = f"{count} of its jobs failed" if count > 1 else "one of its jobs failed"
        results.loc[row, ["status", "error"]] = ["failed", reason]
    done = results[results["status"] == "done"]
    bad = done[~(done["makespan_s"] > 0)]
    if len(bad):
        raise InvalidInput(
            f"Cell {bad['cell'].iloc[0]} is done but its makespan is "
            f"{bad['makespan_s'].iloc[0]}; the results are damaged, run the sweep with rerun=all"
        )
    failed = results[results["status"] != "done"]
    failures = tuple(
        Failure(str(row["cell"]), _describe(row), _first_line(row["error"]))
        for row in failed.to_dict("records")
    )
    # A failed cell may not know its profiles; all cells of a cluster have the same.
    keys = [key for key in SETTING if key != "profiles"] + ["model", "batch"]
    contests = [
        _contest(dict(zip(keys, key, strict=True)), rows)
        for key, rows in done.groupby(keys, sort=False, dropna=False)
    ]
    return Standings(
        tuple(contests), failures, len(results), float(done["wall_s"].sum(min_count=1))
    )


def _contest(key: dict[str, Hashable], rows: pd.DataFrame) -> Contest:
    by_scheduler: dict[str, dict[tuple[int, ...], Row]] = {}
    for row in rows.to_dict("records"):
        seed = tuple(int(row[name]) for name in SEEDS)
        by_scheduler.setdefault(str(row["scheduler"]), {})[seed] = row
    everything = set().union(*by_scheduler.values())
    order = sorted(by_scheduler, key=lambda name: (-len(by_scheduler[name]), name))
    kept: list[str] = []
    common = everything
    for name in order:
        # The schedulers with most seeds first: one with none in common is left out and named.
        shared = common & set(by_scheduler[name])
        if shared:
            kept, common = [*kept, name], shared
    seeds = sorted(common)
    cells = {name: [by_scheduler[name][seed] for seed in seeds] for name in kept}
    draws = _pooled_draws(cells)
    shares = probability_best(draws) if draws else {}
    makespans = {name: np.array([row["makespan_s"] for row in cells[name]]) for name in kept}
    facts = next(iter(cells.values()))

    alone = {
        name
        for name in kept
        if name.partition("(")[0] == ALONE
        and np.allclose(makespans[name], [row["best_device_s"] for row in cells[name]], rtol=1e-9)
    }
    # A sweep of nothing but single devices compares these.
    if all(name.partition("(")[0] == ALONE for name in kept):
        alone = set()
    ranked = sorted(kept, key=lambda name: (float(makespans[name].mean()), name))
    best = next(name for name in ranked if name not in alone)

    def standing(name: str) -> Standing:
        own = draws.get(name, np.zeros(0))
        separable = None
        if name != best and len(own):
            separable = compare(makespans[best], makespans[name], draws[best], own).separable
        return Standing(
            scheduler=name,
            makespans=makespans[name],
            draws=own,
            interval=_interval(own, cells[name]),
            best_share=shares.get(name),
            separable=separable,
            utilisation=_mean(row["utilisation"] for row in cells[name]),
            cells=tuple(str(row["cell"]) for row in cells[name]),
        )

    reference = min(alone, default=None)
    setting = {name: str(key.get(name) or "") for name in SETTING}
    setting["profiles"] = str(facts[0]["profiles"] or "")
    if setting["cost_model"] == GIVEN:
        setting["cluster"] = setting["profiles"] = ""
    return Contest(
        setting=Setting(**setting),
        model=str(key["model"]),
        batch=int(float(str(key["batch"]))),
        standings=tuple(standing(name) for name in ranked if name not in alone),
        alone=standing(reference) if reference else None,
        best_device=str(facts[0]["best_device"] or ""),
        best_device_s=_mean(row["best_device_s"] for row in facts),
        bound_s=_mean(row["bound_s"] for row in facts),
        critical_path_s=_mean(row["critical_path_s"] for row in facts),
        seeds=len(seeds),
        seeds_left_out=len(everything) - len(seeds),
        absent=tuple(sorted(set(by_scheduler) - set(kept))),
        extrapolated_share=_mean(r["extrapolated_share"] for rows in cells.values() for r in rows),
        interval_without=tuple(
            sorted(
                {
                    name
                    for rows in cells.values()
                    for row in rows
                    for name in str(row["interval_without"] or "").split(", ")
                    if name
                }
            )
        ),
    )


def _pooled_draws(cells: dict[str, list[Row]]) -> dict[str, np.ndarray]:
    """Draws of all seeds one after the other, for each scheduler; empty where they are not paired.

    Draws in which some scheduler has no finite makespan are left out for all.
    """
    columns = []
    for name, rows in cells.items():
        parts = [
            np.zeros(0) if row["draws"] is None or _is_nan(row["draws"]) else np.array(row["draws"])
            for row in rows
        ]
        columns.append((name, parts))
    lengths = {tuple(len(part) for part in parts) for _, parts in columns}
    if len(lengths) != 1:
        return {}
    table = np.stack([np.concatenate(parts).astype(np.float64) for _, parts in columns])
    table = table[:, np.isfinite(table).all(axis=0)]
    if table.shape[1] < FEWEST_DRAWS:
        return {}
    return {name: row for (name, _), row in zip(columns, table, strict=True)}


def _interval(draws: np.ndarray, rows: Sequence[Row]) -> Interval | None:
    if len(draws) >= FEWEST_DRAWS:
        return interval(draws)
    if len(rows) == 1:
        low, high = float(rows[0]["makespan_low_s"]), float(rows[0]["makespan_high_s"])
        if np.isfinite([low, high]).all():
            return Interval(low, high)
    return None


def _describe(row: Row) -> str:
    seeds = ",".join(str(row[name]) for name in SEEDS)
    return f"{row['model']} {row['cluster']} {row['scheduler']} seeds {seeds}"


def _first_line(text: Any) -> str:
    lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
    return lines[0] if lines else "no reason recorded"


def _mean(values: Any) -> float:
    array = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    array = array[np.isfinite(array)]
    return float(array.mean()) if len(array) else float("nan")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and np.isnan(value)
