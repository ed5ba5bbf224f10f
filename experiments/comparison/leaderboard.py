"""Who is best where: a sweep's cells as contests of schedulers.

A *contest* is everything but the scheduler held fixed: model, batch, cluster, workload, movement and
contention. Its seeds are repetitions; only seeds that every scheduler finished are compared, so that
all have met the same arrivals and the same draws.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.comparison.contests import (
    GIVEN,
    SETTING,
    Contest,
    Failure,
    Setting,
    Standing,
    Standings,
    is_exact,
)
from experiments.comparison.factors import SEEDS, Factor, with_factors
from experiments.comparison.instances import Instances
from experiments.comparison.statistics import (
    FEWEST_DRAWS,
    Interval,
    compare,
    interval,
    probability_best,
)
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Hashable, Any]
REQUIRED = ("cell", "status", "model", "cluster", "scheduler", "makespan_s")
_DEFAULTS: dict[str, Any] = {
    "error": "",
    "stale": "",
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
    "graph_width": np.nan,
    "decision_s": np.nan,
    "draws": None,
}
ALONE = "single_device"


def standings(
    results: pd.DataFrame, choices: Mapping[str, Mapping[str, str]] | None = None
) -> Standings:
    """Group a sweep's rows into contests. Runs of which jobs failed count among the failures.

    Args:
        results: one row a cell, columns as in ``results.parquet``.
        choices: value of each axis for every cell, as in ``grid.yaml``.

    Raises:
        InvalidInput: a column is missing, a finished cell has no positive makespan, or two cells
            differ in nothing.
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
    results["stale"] = results["stale"].fillna("")
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
    asked = choices or {}
    there = set(results["cell"].astype(str))
    results, factors = with_factors(results, choices)
    done = results[results["status"] == "done"]
    failed = results[results["status"] != "done"]
    failures = tuple(
        Failure(str(row["cell"]), _describe(row), _first_line(row["error"]))
        for row in failed.to_dict("records")
    )
    # A failed cell may not know its profiles; all cells of a cluster have the same.
    keys = [key for key in SETTING if key != "profiles"] + ["model", "batch"]
    groups = done.groupby(keys, sort=False, dropna=False)
    contests = [_contest(dict(zip(keys, key, strict=True)), rows) for key, rows in groups]
    return Standings(
        tuple(contests),
        failures,
        len(results),
        float(done["wall_s"].sum(min_count=1)),
        factors,
        _instances(done, groups.ngroup().to_numpy(), contests, factors),
        _scheduler_factors(done, factors),
        tuple(_chosen(asked[cell]) for cell in asked if str(cell) not in there),
        tuple(f"{_describe(r)} ({r['stale']})" for r in done.to_dict("records") if r["stale"]),
    )


def _chosen(choices: Mapping[str, str]) -> str:
    return " ".join(f"{axis}={value}" for axis, value in choices.items()) or "the one cell"


def _instances(
    done: pd.DataFrame, contest: np.ndarray, contests: Sequence[Contest], factors: Sequence[Factor]
) -> Instances:
    """Makespans of every seed of every contest, those included that not all schedulers finished."""
    import pandas as pd

    # The best device alone is no scheduler of its contest.
    compared = [{s.scheduler for s in c.standings} | {*c.absent} for c in contests]
    pairs = zip(done["scheduler"], contest.tolist(), strict=True)
    rows = np.array([name in compared[number] for name, number in pairs], dtype=bool)
    done, contest = done[rows], contest[rows]
    keys = pd.DataFrame({"contest": contest, **{name: done[name].to_numpy() for name in SEEDS}})
    instance = keys.groupby([*keys.columns], sort=False).ngroup().to_numpy()
    scheduler, names = pd.factorize(done["scheduler"], sort=True)
    shape = (int(instance.max(initial=-1)) + 1, len(names))
    makespans, planning = np.full(shape, np.nan), np.full(shape, np.nan)
    makespans[instance, scheduler] = done["makespan_s"].to_numpy(dtype=np.float64)
    planning[instance, scheduler] = done["decision_s"].to_numpy(dtype=np.float64)
    first = np.unique(instance, return_index=True)[1]
    facts = done.iloc[first]
    columns = [factor.column for factor in factors if not factor.of_scheduler]
    return Instances(
        tuple(str(name) for name in names),
        makespans,
        planning,
        facts["best_device_s"].to_numpy(dtype=np.float64),
        facts["bound_s"].to_numpy(dtype=np.float64),
        contest[first],
        facts.groupby(list(SEEDS), sort=False).ngroup().to_numpy(),
        facts.groupby(["model", "batch"], sort=False).ngroup().to_numpy(),
        facts[columns].reset_index(drop=True),
        "family" in facts
        and bool(len(facts))
        and not facts["family"].isin(["", "none"]).any()
        and bool(facts["family"].notna().all()),
    )


def _scheduler_factors(done: pd.DataFrame, factors: Sequence[Factor]) -> dict[str, dict[str, Any]]:
    """What each scheduler has for those factors that are part of it, absent ones left out."""
    columns = [factor.column for factor in factors if factor.of_scheduler]
    first = done.drop_duplicates("scheduler")
    return {
        str(row["scheduler"]): {
            column: row[column]
            for column in columns
            if row[column] is not None and not _is_nan(row[column])
        }
        for row in first[list(dict.fromkeys(["scheduler", *columns]))].to_dict("records")
    }


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
    exact = is_exact(str(key.get("cost_model")), str(key.get("noise")), len(seeds))

    def standing(name: str) -> Standing:
        own = draws.get(name, np.zeros(0))
        first = draws.get(best, own)
        separable = None
        if name != best:
            separable = compare(makespans[best], makespans[name], first, own, exact).separable
        return Standing(
            scheduler=name,
            makespans=makespans[name],
            draws=own,
            interval=_interval(own, cells[name]),
            best_share=shares.get(name),
            separable=separable,
            utilisation=_mean(row["utilisation"] for row in cells[name]),
            cells=tuple(str(row["cell"]) for row in cells[name]),
            stale=any(row["stale"] for row in cells[name]),
            compared=_text(cells[name][0], "compared"),
            validity=_text(cells[name][0], "validity"),
            unvalidated=any(row.get("unvalidated") in (True,) for row in cells[name]),
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
        bound_s=_mean(row["bound_s"] for row in _bounded(cells)),
        critical_path_s=_mean(row["critical_path_s"] for row in facts),
        graph_width=_mean(row["graph_width"] for row in facts),
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


def _text(row: Mapping[Any, Any], column: str) -> str:
    """What a column of texts says; empty where it says nothing."""
    found = row.get(column)
    return found if isinstance(found, str) else ""


def _bounded(cells: Mapping[str, Sequence[Row]]) -> Sequence[Row]:
    """The rows whose bounds hold for all methods: of graphs that partitions made those of the least, for each seed."""
    rows = list(cells.values())
    changed = [own for own in rows if own[0].get("partition") not in (None, "", "none")]
    compared = [rows[0], *changed]
    return [
        min(seed, key=lambda row: float(row["bound_s"]) if row["bound_s"] else float("inf"))
        for seed in zip(*compared, strict=True)
    ]


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
