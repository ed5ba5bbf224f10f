"""Sweeps of requests: every scheduler against a baseline, on delays and answers in time.

All schedulers of a sweep meet the same requests, so they are compared seed by seed: of delays the ratio, of
answers in time the difference. A *setting* is everything but scheduler and seeds held fixed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.comparison.bootstrap import intervals_of_means
from experiments.comparison.rounding import number
from experiments.comparison.statistics import verdict
from experiments.runs.results import read_document, told_apart
from simulator.errors import InvalidInput
from simulator.model.units import format_seconds

USUAL_BASELINE = "fcfs"
DELAYS = ("mean_delay_s", "p99_delay_s")
SHARE = "success_rate"
_MANY_TIMES = 3.0
"""From this ratio on, a multiple says more than percent."""


@dataclass(frozen=True)
class Change:
    """One figure of a scheduler in one setting, and what it changes.

    Attributes:
        value: mean over the seeds; seconds, or a share. NaN: unknown.
        change: geometric mean of the ratio to the baseline's, or mean difference of the shares; NaN:
            unknown.
        low, high: 95% interval of that mean over the seeds; NaN with fewer than five of them.
    """

    value: float
    change: float = math.nan
    low: float = math.nan
    high: float = math.nan

    def beyond(self, none: float) -> int:
        """-1 or 1 where the interval lies below or above what stands for no change, else 0."""
        return verdict(self.low, self.high, none) or 0


@dataclass(frozen=True)
class Compared:
    """A scheduler in a setting.

    Attributes:
        seeds: that it has in common with the baseline; of the baseline all.
        figures: by name, those of :data:`DELAYS` and :data:`SHARE`.
        is_baseline: whether the others are compared with it.
        stale: whether one of its cells was made with code or profiles that have changed since.
    """

    setting: str
    scheduler: str
    seeds: int
    figures: Mapping[str, Change]
    is_baseline: bool
    stale: bool = False

    @property
    def verdict(self) -> str:
        """``shorter``, ``longer``, ``same`` or ``~`` (not separable), by the mean delay."""
        delay = self.figures[DELAYS[0]]
        if self.is_baseline or math.isnan(delay.low):
            return ""
        if delay.low == delay.high == 1.0:
            return "same"
        return {-1: "shorter", 0: "~", 1: "longer"}[delay.beyond(1.0)]


@dataclass(frozen=True)
class RequestComparison:
    """What a sweep of requests says.

    Attributes:
        rows: by setting in the order of the sweep, and within it by mean delay.
        baseline: what the others are compared with.
        apart: (setting, scheduler) of what has no seed in common with the baseline.
    """

    rows: Sequence[Compared]
    baseline: str
    apart: Sequence[tuple[str, str]]

    @property
    def settings(self) -> list[str]:
        """Labels like ``workload.rate=40/s``; one that is empty where nothing varies."""
        return list(dict.fromkeys(row.setting for row in self.rows))

    def of(self, setting: str) -> list[Compared]:
        """The schedulers of a setting."""
        return [row for row in self.rows if row.setting == setting]


def compare_requests(
    folder: Path,
    cells: Sequence[str],
    choices: Mapping[str, Mapping[str, str]],
    baseline: str | None = None,
    usual: str | None = None,
    stale: Collection[str] = (),
) -> RequestComparison:
    """Compare the finished cells of a sweep of requests.

    Args:
        folder: with a folder for each cell.
        cells: hashes.
        choices: value of each axis for every cell; of cells that are not there what they say themselves.
        baseline: the scheduler that the others are compared with.
        usual: the same where there is one of that name; then ``fcfs``, then the slowest.
        stale: hashes of the cells that are.

    Raises:
        InvalidInput: no finished run of requests; or there is no such baseline.
    """
    found: dict[str, dict[str, dict[str, Mapping[str, Any]]]] = {}
    documents = {}
    for cell in cells:
        path = folder / cell / "result.json"
        document = read_document(path) if path.is_file() else {}
        if document.get("status") == "done" and SHARE in document["metrics"]:
            documents[cell] = document
    for cell, document in zip(documents, told_apart([*documents.values()]), strict=True):
        setting = _setting(choices.get(cell) or document.get("choices") or {})
        scheduler = str(document["labels"]["scheduler"])
        seed = repr(sorted(document["config"]["seed"].items()))
        metrics = document["metrics"] | {"stale": cell in stale}
        found.setdefault(setting, {}).setdefault(scheduler, {})[seed] = metrics
    schedulers = list(dict.fromkeys(name for setting in found.values() for name in setting))
    if not schedulers:
        raise InvalidInput(f"{folder} holds no finished runs of requests")
    if baseline is not None and baseline not in schedulers:
        raise InvalidInput(
            f"No scheduler '{baseline}' to compare with; this sweep has: {', '.join(schedulers)}"
        )
    known = [name for name in (baseline, usual, USUAL_BASELINE) if name in schedulers]
    return _compare(found, known[0] if known else _slowest(found, schedulers))


def _setting(choices: Mapping[str, str]) -> str:
    return ", ".join(
        f"{key}={value.strip(chr(34))}"
        for key, value in choices.items()
        if key != "scheduler" and not key.startswith(("scheduler.", "seed."))
    )


def _slowest(
    found: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]], schedulers: Sequence[str]
) -> str:
    def delay(scheduler: str) -> float:
        runs = [run for setting in found.values() for run in setting.get(scheduler, {}).values()]
        return float(np.mean([run[DELAYS[0]] or 0.0 for run in runs]))

    return max(schedulers, key=delay)


def _compare(
    found: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]], baseline: str
) -> RequestComparison:
    pairs: list[tuple[str, str, list[str]]] = []
    apart: list[tuple[str, str]] = []
    samples: list[np.ndarray] = []
    for setting, schedulers in found.items():
        base = schedulers.get(baseline, {})
        for scheduler, runs in schedulers.items():
            common = [seed for seed in runs if seed in base]
            if not common:
                apart.append((setting, scheduler))
                continue
            pairs.append((setting, scheduler, common))
            for name in (*DELAYS, SHARE):
                own, other = (_values(of, common, name) for of in (runs, base))
                samples.append(_changes(own, other, name))
    intervals = iter(intervals_of_means(samples))
    changes = iter(samples)
    rows = []
    for setting, scheduler, common in pairs:
        figures = {}
        for name in (*DELAYS, SHARE):
            values = _values(found[setting][scheduler], common, name)
            shift = next(changes)
            ends = [float(shift.mean()) if len(shift) else math.nan, *next(intervals)]
            if name != SHARE:
                ends = [math.exp(end) for end in ends]
            value = float(np.nanmean(values)) if np.isfinite(values).any() else math.nan
            figures[name] = Change(value, *ends)
        is_stale = any(found[setting][scheduler][seed].get("stale") for seed in common)
        is_baseline = scheduler == baseline
        rows.append(Compared(setting, scheduler, len(common), figures, is_baseline, is_stale))
    order = list(found)
    rows.sort(key=lambda row: (order.index(row.setting), _or_last(row.figures[DELAYS[0]].value)))
    return RequestComparison(rows, baseline, apart)


def _values(runs: Mapping[str, Mapping[str, Any]], seeds: Sequence[str], name: str) -> np.ndarray:
    # Of nobody who arrived, a share is nothing that is known.
    values = [runs[seed].get(name) if runs[seed].get("requests") != 0 else None for seed in seeds]
    return np.array(values, dtype=np.float64)


def _changes(own: np.ndarray, other: np.ndarray, name: str) -> np.ndarray:
    """Of each seed in which both are known the log ratio, or the difference of shares."""
    if name == SHARE:
        shift = own - other
        return shift[np.isfinite(shift)]
    known = (own > 0) & (other > 0)
    return np.log(own[known] / other[known])


def _or_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


# -- in words -----------------------------------------------------------------------------------


def sentences(comparison: RequestComparison) -> list[str]:
    """A sentence for each scheduler but the baseline: of one setting its figures, of several how many it is
    shorter and longer in.
    """
    by_scheduler: dict[str, list[Compared]] = {}
    for row in comparison.rows:
        if not row.is_baseline:
            by_scheduler.setdefault(row.scheduler, []).append(row)
    if not by_scheduler:
        return ["one scheduler: nothing to compare; add others with scheduler=a,b"]
    several = len(comparison.settings) > 1
    return [
        f"{name} against {comparison.baseline}: "
        + (_over_settings(rows) if several else _in_one(rows[0]))
        for name, rows in by_scheduler.items()
    ]


def _in_one(row: Compared) -> str:
    mean, p99 = (delay_change(row.figures[name]) for name in DELAYS)
    return f"mean delay {mean}, p99 {p99}, in time {share_change(row.figures[SHARE])} points"


def _over_settings(rows: Sequence[Compared]) -> str:
    words = [row.verdict for row in rows]
    counts = [
        (f"shorter in {words.count('shorter')}", True),
        (f"longer in {words.count('longer')}", True),
        (f"not separable in {words.count('~')}", "~" in words),
        (f"the same in {words.count('same')}", "same" in words),
        (f"undecided in {words.count('')}", "" in words),
    ]
    parts = ", ".join(text for text, shown in counts if shown)
    if words.count("") == len(words):
        parts = f"{len(words)} settings of too few seeds for an interval"
    means = []
    for name in DELAYS:
        ratios = np.array([row.figures[name].change for row in rows])
        known = ratios[np.isfinite(ratios)]
        middle = math.exp(float(np.log(known).mean())) if len(known) else math.nan
        means.append(delay_change(Change(math.nan, middle)))
    gains = np.array([row.figures[SHARE].change for row in rows])
    known = gains[np.isfinite(gains)]
    gained = Change(math.nan, float(known.mean()) if len(known) else math.nan)
    return (
        f"mean delay {parts}; over all settings mean delay {means[0]}, p99 {means[1]}, in time "
        f"{share_change(gained)} points"
    )


def delay_change(change: Change) -> str:
    """``-8% [-11, -5]``; ``12x [11, 14]`` of much longer ones; ``-`` where unknown."""
    if math.isnan(change.change):
        return "-"
    ends = [] if math.isnan(change.low) else [change.low, change.high]
    if max(change.change, *ends, 0.0) >= _MANY_TIMES:
        text = f"{change.change:.3g}x"
        return text + (f" [{ends[0]:.3g}, {ends[1]:.3g}]" if ends else "")
    text = f"{_signed(change.change - 1)}%"
    return text + (f" [{_signed(ends[0] - 1)}, {_signed(ends[1] - 1)}]" if ends else "")


def _signed(share: float) -> str:
    text = number(share)
    return text if text.startswith("-") or text == "0" else f"+{text}"


def share_change(change: Change) -> str:
    """Percentage points: ``+3 [+1.2, +4.5]``; ``-`` where unknown."""
    if math.isnan(change.change):
        return "-"
    text = _signed(change.change)
    if math.isnan(change.low):
        return text
    return f"{text} [{_signed(change.low)}, {_signed(change.high)}]"


def delay_text(change: Change) -> str:
    """``24.7 ms``; ``-`` where nobody waited for an answer."""
    return "-" if math.isnan(change.value) else format_seconds(change.value)


def share_text(change: Change) -> str:
    """``87.2%``."""
    return "-" if math.isnan(change.value) else f"{change.value:.1%}"
