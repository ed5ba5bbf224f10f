"""What a sweep of serving runs says: delays, goodput and success against the offered load.

    python -m experiments.serving outputs/sweeps/NAME [x=workload.rate] [slo=200ms]

Every point is the mean over the seeds of the runs at one value of ``x``, with the 95% interval of that mean;
schedulers are compared seed by seed, since all of them meet the same arrivals. Writes ``serving.txt`` and
``fig_serving`` into the sweep's folder.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("serving"):
    raise SystemExit

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from experiments.comparison.statistics import bootstrap_mean
from experiments.runs import atomic
from experiments.runs.command import key_values, report_errors
from experiments.runs.own_schedulers import same_class
from experiments.runs.results import read_document, told_apart
from scenarios.networks import link_bandwidth
from simulator.errors import InvalidInput
from simulator.model.units import format_seconds, parse_rate, parse_seconds

if TYPE_CHECKING:
    import pandas as pd

FIGURES = (
    "served_per_s", "goodput_per_s", "success_rate", "mean_delay_s", "p50_delay_s", "p95_delay_s",
    "p99_delay_s", "max_delay_s", "accuracy_of_successes", "accuracy_of_all", "mean_batch", "fairness",
    "energy_j", "cost", "utilisation", "offered_per_s", "waiting", "rejected", "extrapolated_share",
)  # fmt: skip

MBIT = 1e6 / 8
"""Bytes per second of 1 Mbit/s."""

KEYS = ("x", "slo", "baseline", "schedulers", "style")


@dataclass(frozen=True)
class ServingRuns:
    """The runs of a sweep.

    Attributes:
        frame: a row a run: ``scheduler``, ``x``, ``seed`` and the figures.
        x: the key.
        schedulers: in the order of the sweep.
        called: by what the sweep's command called a scheduler, its label; those of one scheduler alone.
    """

    frame: pd.DataFrame
    x: str
    schedulers: Sequence[str]
    labels: Sequence[str] = field(default_factory=tuple)
    called: Mapping[str, str] = field(default_factory=dict)


def read_runs(folder: Path, x: str | None = None) -> ServingRuns:
    """The finished runs of a sweep.

    Raises:
        InvalidInput: there is no sweep, its runs served no requests, or nothing or several things vary.
    """
    import pandas as pd

    documents = [
        read_document(path)
        for path in sorted((folder / "cells").glob("*/result.json"))
        if folder.is_dir()
    ]
    done = told_apart(
        [d for d in documents if d.get("status") == "done" and "success_rate" in d["metrics"]]
    )
    if not done:
        raise InvalidInput(
            f"{folder} holds no finished runs of requests; sweep a workload with a mix, deadlines or "
            "batches first (experiment=serving/task_groups)"
        )
    flat = [dict(_flat(d["config"])) for d in done]
    varying = [
        key
        for key in sorted({key for row in flat for key in row})
        if len({repr(row.get(key)) for row in flat}) > 1
        and not key.startswith(("scheduler.", "seed."))
    ]
    if x is None:
        if len(varying) != 1:
            raise InvalidInput(
                f"The runs of {folder} differ in {', '.join(varying) or 'nothing'} beside scheduler and "
                "seed; name the one to plot against: x=KEY"
            )
        x = varying[0]
    others = [key for key in varying if key != x]
    rows = []
    called: dict[str, set[str]] = {}
    for document, values in zip(done, flat, strict=True):
        label = document["labels"]["scheduler"]
        for key in others:
            label += f" {key.rpartition('.')[2]}={values.get(key)}"
        choice = document.get("choices", {}).get("scheduler", "")
        called.setdefault(same_class(choice), set()).add(label)
        rows.append(
            {
                "scheduler": label,
                "x": _number(values.get(x)),
                "seed": f"{values.get('seed.workload')}/{values.get('seed.noise')}",
                **{name: document["metrics"].get(name) for name in FIGURES},
            }
        )
    frame = pd.DataFrame(rows).sort_values(["scheduler", "x", "seed"], ignore_index=True)
    profiles = sorted({d["labels"]["profiles"] for d in done})
    lines = sorted({d.get("validity", {}).get("line", "") for d in done} - {""})
    profiles += [f"validity: {line}" for line in lines]
    names = list(dict.fromkeys(frame["scheduler"]))
    alone = {name: labels.pop() for name, labels in called.items() if len(labels) == 1}
    return ServingRuns(frame, x, names, profiles, alone)


def _flat(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and key not in ("mix", "sources", "sizes"):
            found += _flat(value, f"{name}.")
        else:
            found.append((name, value))
    return found


def _number(value: Any) -> float:
    """A value of the axis as a number: rates per second, times in seconds, bandwidths in Mbit/s."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    for parse, unit in ((parse_rate, 1.0), (parse_seconds, 1.0), (link_bandwidth, MBIT)):
        try:
            return parse(str(value), "x") / unit
        except InvalidInput:
            continue
    try:
        return float(str(value).split()[0])
    except ValueError:
        raise InvalidInput(f"'{value}' is no number to plot against; choose another x") from None


def _label(runs: ServingRuns, name: str) -> str:
    """The label of a scheduler, named by it or as the sweep's command named it."""
    label = name if name in runs.schedulers else runs.called.get(same_class(name), name)
    if label not in runs.schedulers:
        raise InvalidInput(f"There is no scheduler '{name}'; known: {', '.join(runs.schedulers)}")
    return label


def _only(runs: ServingRuns, names: Sequence[str]) -> ServingRuns:
    schedulers = [_label(runs, name.strip()) for name in names]
    frame = runs.frame[runs.frame["scheduler"].isin(schedulers)]
    return replace(runs, frame=frame, schedulers=[n for n in runs.schedulers if n in schedulers])


def summary(runs: ServingRuns) -> pd.DataFrame:
    """Mean over the seeds with its 95% interval, by scheduler and x: ``NAME``, ``NAME_low``,
    ``NAME_high`` for each figure.
    """
    import pandas as pd

    rows = []
    for (scheduler, x), group in runs.frame.groupby(["scheduler", "x"], sort=False):
        row: dict[str, Any] = {"scheduler": scheduler, "x": x, "runs": len(group)}
        for name in FIGURES:
            values = group[name].dropna().to_numpy(dtype=np.float64)
            if len(values):
                row[name] = float(values.mean())
                if len(values) > 1:
                    spread = bootstrap_mean(values)
                    row[f"{name}_low"], row[f"{name}_high"] = spread.low, spread.high
        rows.append(row)
    return pd.DataFrame(rows).sort_values(["scheduler", "x"], ignore_index=True)


def conclusions(
    runs: ServingRuns, means: pd.DataFrame, slo: float | None, baseline: str
) -> list[str]:
    """Sentences: who answers most in time at the highest load, against the baseline, and up to which load
    the objective holds.
    """
    found = []
    for x in sorted(set(means["x"])):
        here = runs.frame[runs.frame["x"] == x]
        base = here[here["scheduler"] == baseline].set_index("seed")
        parts = []
        for name in runs.schedulers:
            own = here[here["scheduler"] == name].set_index("seed")
            common = own.index.intersection(base.index)
            if name == baseline or not len(common):
                continue
            gain = (own.loc[common, "goodput_per_s"] - base.loc[common, "goodput_per_s"]).to_numpy(
                dtype=np.float64
            )
            ratio = (
                own.loc[common, "mean_delay_s"] / base.loc[common, "mean_delay_s"] - 1
            ).to_numpy(dtype=np.float64)
            text = f"{name} goodput {gain.mean():+.3g}/s"
            if len(gain) > 1:
                spread = bootstrap_mean(gain)
                text += f" [{spread.low:+.3g}, {spread.high:+.3g}]"
            parts.append(f"{text}, mean delay {ratio.mean():+.0%}")
        found.append(f"{runs.x} {x:g}, against {baseline}: " + "; ".join(parts))
    if slo is not None:
        for name in runs.schedulers:
            own = means[(means["scheduler"] == name) & (means["p99_delay_s"] <= slo)]
            limit = f"{own['x'].max():g}" if len(own) else "no load"
            found.append(f"p99 within {format_seconds(slo)} up to {runs.x} {limit}: {name}")
    return found


def table(runs: ServingRuns, means: pd.DataFrame) -> list[str]:
    """A Markdown table, a row for each scheduler and x."""
    lines = [
        f"| {runs.x} | scheduler | served /s | goodput /s | success | mean delay | p50 | p99 | batch | "
        "fairness |",
        "|" + "---|" * 10,
    ]
    order = {name: i for i, name in enumerate(runs.schedulers)}
    rows: list[dict[str, Any]] = [
        {str(key): value for key, value in row.items()} for row in means.to_dict("records")
    ]
    rows.sort(key=lambda row: (row["x"], order[row["scheduler"]]))
    return [
        *lines,
        *(
            f"| {row['x']:g} | {row['scheduler']} | {row['served_per_s']:.1f} | "
            f"{_with_interval(row, 'goodput_per_s', '.1f')} | {row['success_rate']:.1%} | "
            f"{_delay(row, 'mean_delay_s')} | {_delay(row, 'p50_delay_s')} | {_delay(row, 'p99_delay_s')} | "
            f"{row['mean_batch']:.1f} | {_shown(row.get('fairness'), '.2f')} |"
            for row in rows
        ),
    ]


def _with_interval(row: Mapping[str, Any], name: str, form: str) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    text = format(row[name], form)
    if low is None or low != low:
        return text
    return f"{text} [{format(low, form)}, {format(high, form)}]"


def _delay(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return "-" if value is None or value != value else format_seconds(value)


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None or value != value else format(value, form)


def analyse_serving(
    folder: Path,
    x: str | None = None,
    slo: str | None = None,
    baseline: str | None = None,
    console: Console | None = None,
    schedulers: Sequence[str] | None = None,
    style: str | None = None,
) -> list[Path]:
    """Print and draw what the module docstring says; returns the paths of the figures.

    Raises:
        InvalidInput: see :func:`read_runs`; or there is no such baseline, scheduler or style.
    """
    from experiments.plots.looks import Look
    from experiments.plots.serving import draw_serving

    console = console or Console()
    runs = read_runs(folder, x)
    if schedulers is not None:
        runs = _only(runs, schedulers)
    baseline = _label(runs, baseline or runs.schedulers[0])
    limit = None if slo is None else parse_seconds(slo, "slo")
    look = Look.of(style, runs.schedulers)
    means = summary(runs)
    lines = [
        *table(runs, means),
        "",
        *conclusions(runs, means, limit, baseline),
        "",
        f"{len(runs.frame)} runs; {'; '.join(runs.labels)}; "
        f"{means['extrapolated_share'].mean():.0%} of the time is extrapolated",
    ]
    atomic.write_text(folder / "serving.txt", "\n".join(lines) + "\n")
    drawn = draw_serving(runs, means, folder / "fig_serving", limit, look)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    console.print(
        f"wrote {', '.join(str(path) for path in drawn)}", style="dim", soft_wrap=True, markup=False
    )
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    if answered("serving", arguments):
        return 0
    parser = argparse.ArgumentParser(prog="python -m experiments.serving", add_help=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE")
    parsed = parser.parse_args(arguments)

    def run() -> None:
        given = key_values("serving", parsed.options, KEYS)
        only = given.get("schedulers")
        analyse_serving(
            parsed.folder,
            given.get("x"),
            given.get("slo"),
            given.get("baseline"),
            schedulers=None if only is None else only.split(","),
            style=given.get("style"),
        )

    return report_errors(run)


if __name__ == "__main__":
    sys.exit(main())
