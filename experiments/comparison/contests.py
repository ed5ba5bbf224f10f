"""Contests: schedulers compared on one model in one setting, and why a ranking may be idle there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.comparison.bootstrap import FEWEST
from experiments.comparison.factors import Factor
from experiments.comparison.instances import Instances
from experiments.comparison.statistics import SAME, Comparison, Interval, bootstrap_mean, compare

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
BEST_DEVICE = "best device"
GIVEN = "given"
"""Cost model of bare instances, each of which brings a cluster of its own along."""
_CHAIN = 0.9
"""A graph whose critical path is this share of its time on the best device has no parallel work."""

_AT_BOUND = 0.02


def is_exact(cost_model: str, noise: str, seeds: int) -> bool:
    """Whether nothing about a contest's makespans is uncertain: given times, no noise, one instance."""
    return cost_model == GIVEN and noise == "none" and seeds == 1


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
        separable: from the contest's best; None for the best itself or where nothing says so.
        utilisation: mean over seeds; NaN where unknown.
        cells: ids of its cells, in order of seeds.
        stale: whether one of them was made with code or profiles that have changed since.
        compared: how its devices compare where they are of different labels, one line; else empty.
        validity: in which world its devices were validated, one line; empty where unknown.
        unvalidated: whether they were not, or came out wrong.
    """

    scheduler: str
    makespans: np.ndarray
    draws: np.ndarray
    interval: Interval | None
    best_share: float | None
    separable: bool | None
    utilisation: float
    cells: tuple[str, ...]
    stale: bool = False
    compared: str = ""
    validity: str = ""
    unvalidated: bool = False

    @property
    def makespan_s(self) -> float:
        """Mean over seeds, seconds."""
        return float(self.makespans.mean())

    @property
    def span(self) -> Interval | None:
        """The interval that tables and figures show: of the draws; without them of the mean over at least 5 seeds."""
        if self.interval is not None or len(self.makespans) < FEWEST:
            return self.interval
        return bootstrap_mean(self.makespans)

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
        graph_width: likewise, of the most operators at one distance from the sources.
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
    graph_width: float
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
    def spread(self) -> float:
        """By how much the slowest exceeds the best, as a share of the best."""
        return self.standings[-1].makespan_s / self.best.makespan_s - 1.0

    @property
    def verdict(self) -> str | None:
        """Why a ranking would be idle here, or None where schedulers do differ."""
        if len(self.standings) < 2 or self.spread > SAME:
            return None
        best = self.best.makespan_s
        if best >= self.best_device_s * (1.0 - SAME):
            if self.graph_width == 1 or self.critical_path_s >= _CHAIN * self.best_device_s:
                return f"a chain, scheduling cannot help{self._because(self._chain())}"
            path = self._path("critical path {share} of it")
            return f"none is faster than {self.best_device} alone{self._because(path)}"
        if self.graph_width == 1:
            return f"a chain, scheduling cannot help{self._because(self._chain())}"
        if self.gap(self.best) <= _AT_BOUND:
            share = self.critical_path_s / self.bound_s
            which = "the critical path" if share > 1 - _AT_BOUND else "the load"
            reason = f"{which} is {min(self.bound_s / best, 1.0):.0%} of the makespan"
            return f"at the lower bound, scheduling cannot help ({reason})"
        return "the choice among them does not matter"

    def _chain(self) -> list[str]:
        width = [] if np.isnan(self.graph_width) else [f"width {self.graph_width:.0f}"]
        return [*width, *self._path("critical path {share} of " + self.best_device)]

    def _path(self, text: str) -> list[str]:
        share = self.critical_path_s / self.best_device_s
        return [text.format(share=f"{share:.0%}")] if np.isfinite(share) else []

    @staticmethod
    def _because(reasons: list[str]) -> str:
        return f" ({', '.join(reasons)})" if reasons else ""

    @property
    def open_pair(self) -> tuple[str, str] | None:
        """The best and the next that cannot be told apart from it though more than a tie behind it.

        None where there is none, or where times are given and so leave nothing to be measured.
        """
        if self.verdict is not None or self.setting.cost_model == GIVEN or not self.draws:
            return None
        least = self.best.makespan_s * (1.0 + SAME)
        near = (s for s in self.standings[1:] if s.separable is False and s.makespan_s > least)
        other = next(near, None)
        return None if other is None else (self.best.scheduler, other.scheduler)

    def beaten(self, standing: Standing) -> float | None:
        """Share of the draws in which the best is shorter; None without draws."""
        return self.against(self.best, standing).probability

    def against(self, first: Standing, second: Standing) -> Comparison:
        """Compare two of this contest's schedulers."""
        exact = is_exact(self.setting.cost_model, self.setting.noise, self.seeds)
        return compare(first.makespans, second.makespans, first.draws, second.draws, exact)


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
        factors: what varies.
        instances: every seed of every contest, for statistics over all of them.
        scheduler_factors: what each scheduler has for those factors that are part of it.
        missing: cells that were asked for and have no result, by what was chosen for them.
        stale: cells that were made with code or profiles that have changed since, with what changed.
    """

    contests: tuple[Contest, ...]
    failures: tuple[Failure, ...]
    cells: int
    wall_s: float
    factors: tuple[Factor, ...]
    instances: Instances
    scheduler_factors: Mapping[str, Mapping[str, Any]]
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()

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
