"""How far from the best possible? Makespan over the lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.comparison.contests import BEST_DEVICE, Contest, Standings
from experiments.comparison.rounding import fit
from experiments.plots.style import (
    BELOW,
    TWO_COLUMNS,
    count_of,
    figure_style,
    grey_note,
    legend_below,
    log_ratio_axis,
    new_figure,
    save_figure,
    scheduler_handle,
    scheduler_styles,
    told_apart,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_CONTESTS = 24
"""With more models and settings, a row is a scheduler and not a model."""
_BOUND = (
    "the lower bound, the larger of critical path and load bound, which leaves transfers out; no "
    "schedule of the estimated times is below 1, and the best possible one may well be above."
)


def draw_gaps(standings: Standings, stem: Path, always: Sequence[str] = ()) -> list[Path] | None:
    """Makespan over the lower bound: by model, or of many models by scheduler; None without bound."""
    contests = [contest for contest in standings.contests if contest.bound_s > 0]
    if not contests:
        return None
    if len(contests) > MOST_CONTESTS:
        return _by_scheduler(standings, stem)
    return _by_contest(standings, contests, stem, always)


def _by_contest(
    standings: Standings, contests: Sequence[Contest], stem: Path, always: Sequence[str]
) -> list[Path]:
    instances = standings.instances
    ordered = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    shown, grey = told_apart(ordered, always)
    alone = any(contest.best_device_s > 0 for contest in contests)
    used = [*shown, *([BEST_DEVICE] if alone else [])]
    styles = scheduler_styles([*ordered, BEST_DEVICE])
    data = _contest_frame(standings, contests)
    labels = list(dict.fromkeys(data["contest"]))
    with figure_style():
        row = max(0.24, 0.075 * len(used))
        figure = new_figure(
            TWO_COLUMNS, min(1.0 + row * len(labels) + 0.16 * -(-len(used) // 5), 9)
        )
        axes = figure.subplots()
        for number, label in enumerate(labels):
            here = data[data["contest"] == label]
            if number % 2:
                axes.axhspan(number - 0.5, number + 0.5, color="#F3F3F3", zorder=0, linewidth=0)
            for name, ratio in zip(here["scheduler"], here["ratio_to_bound"], strict=True):
                if name in grey:
                    axes.plot(ratio, number, "|", markersize=5, color="#999999", zorder=1)
                    continue
                # Side by side within the row: equal schedulers would hide one another.
                offset = (used.index(name) + 0.5) / len(used) - 0.5
                style = styles[name]
                axes.plot(
                    ratio, number + 0.8 * offset, linestyle="", marker=style.marker, markersize=4,
                    color=style.colour, markeredgecolor="black", markeredgewidth=0.3,
                )  # fmt: skip
        ratios = data["ratio_to_bound"]
        _ratio_axis(axes, float(ratios.min()), float(ratios.max()))
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), [fit(label, 44) for label in labels])
        legend_below(figure, [scheduler_handle(n, styles[n], line=False) for n in used], 5)
        seeds = [contest.seeds for contest in contests]
        caption = (
            f"Ratio of the makespan (mean of n = {count_of(seeds, 'seed')}, simulated) "
            f"to {_BOUND}{BELOW if ratios.min() < 1 - 1e-9 else ''}{grey_note(grey)}"
        )
        return save_figure(figure, stem, data, caption)


def _contest_frame(standings: Standings, contests: Sequence[Contest]) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for contest in contests:
        everyone = {s.scheduler: s.makespan_s for s in contest.standings}
        if contest.best_device_s > 0:
            everyone[BEST_DEVICE] = contest.best_device_s
        rows += [
            {
                "contest": standings.label(contest, True),
                "scheduler": name,
                "makespan_s": makespan,
                "bound_s": contest.bound_s,
                "ratio_to_bound": makespan / contest.bound_s,
            }
            for name, makespan in everyone.items()
        ]
    return pd.DataFrame(rows)


def _by_scheduler(standings: Standings, stem: Path) -> list[Path]:
    """Quantiles over all instances, a row for each scheduler."""
    import pandas as pd

    instances = standings.instances.with_best_device(BEST_DEVICE)
    instances = instances.only(instances.bound_s > 0)
    names = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    ratios = instances.of(names).makespans / instances.bound_s[:, None]
    quantiles = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
    rows = [
        {
            "scheduler": name,
            "n": int(np.isfinite(column).sum()),
            "geometric_mean": float(np.exp(np.nanmean(np.log(column)))),
            **{f"q{100 * q:g}": float(np.nanquantile(column, q)) for q in quantiles},
        }
        for name, column in zip(names, ratios.T, strict=True)
    ]
    data = pd.DataFrame(rows)
    styles = scheduler_styles(names)
    with figure_style():
        figure = new_figure(TWO_COLUMNS, min(0.8 + 0.2 * len(names), 9.0))
        axes = figure.subplots()
        for number, row in enumerate(data.to_dict("records")):
            style = styles[str(row["scheduler"])]
            if number % 2:
                axes.axhspan(number - 0.5, number + 0.5, color="#F3F3F3", zorder=0, linewidth=0)
            axes.plot([row["q0"], row["q100"]], [number] * 2, color="#999999", linewidth=0.7)
            axes.plot([row["q25"], row["q75"]], [number] * 2, color=style.colour, linewidth=5,
                      solid_capstyle="butt")  # fmt: skip
            axes.plot(row["q95"], number, "|", color="black", markersize=6)
            axes.plot(
                row["geometric_mean"], number, marker=style.marker, markersize=4.5, color="white",
                markeredgecolor="black", markeredgewidth=0.6,
            )  # fmt: skip
        _ratio_axis(axes, float(data["q0"].min()), float(data["q100"].max()))
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), [fit(name, 30) for name in names])
        caption = (
            f"Ratio of the simulated makespan to {_BOUND} n = {len(instances)} "
            "instances (one seed of one model in one setting each). Bars: quartiles; markers: geometric "
            f"means; ticks: 95% quantiles; lines: all.{BELOW if data['q0'].min() < 1 - 1e-9 else ''}"
        )
        return save_figure(figure, stem, data, caption)


def _ratio_axis(axes: Axes, first: float, last: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(first, 1.0) * 0.99, max(last, 1.05) * 1.05)
    log_ratio_axis(axes.xaxis, last)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.axvline(1.0, color="black", linewidth=0.9, linestyle=(0, (1, 1.2)))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("makespan / lower bound, log scale (1: optimal)")
