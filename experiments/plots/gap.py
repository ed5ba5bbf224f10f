"""How far from the best possible? Makespan over the lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.comparison.bootstrap import METHOD, intervals_of_means
from experiments.comparison.contests import BEST_DEVICE, Contest, Standings
from experiments.comparison.names import proper
from experiments.comparison.rounding import fit
from experiments.plots.looks import (
    USUAL,
    Look,
    grey_note,
    name_rows,
    scheduler_handle,
    told_apart,
)
from experiments.plots.style import (
    BELOW,
    caption,
    count_of,
    figure_style,
    legend_below,
    log_ratio_axis,
    new_figure,
    save_figure,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_CONTESTS = 24
"""With more models and settings, a row is a scheduler and not a model."""
_BOUND = "The bound (critical path or load, the larger) leaves transfers out."


def draw_gaps(
    standings: Standings, stem: Path, always: Sequence[str] = (), look: Look = USUAL
) -> list[Path] | None:
    """Makespan over the lower bound: by model, or of many models by scheduler; None without bound."""
    contests = [contest for contest in standings.contests if contest.bound_s > 0]
    if not contests:
        return None
    if len(contests) > MOST_CONTESTS:
        return _by_scheduler(standings, stem, look)
    return _by_contest(standings, contests, stem, always, look)


def _by_contest(
    standings: Standings,
    contests: Sequence[Contest],
    stem: Path,
    always: Sequence[str],
    look: Look,
) -> list[Path]:
    instances = standings.instances
    ordered = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    shown, grey = told_apart(ordered, always)
    alone = any(contest.best_device_s > 0 for contest in contests)
    used = [*shown, *([BEST_DEVICE] if alone else [])]
    styles = look.styles([*ordered, BEST_DEVICE])
    data = _contest_frame(standings, contests)
    labels = list(dict.fromkeys(data["contest"]))
    with figure_style():
        row = max(0.24, 0.075 * len(used))
        legend = 0.16 * -(-len(used) // (2 if look.narrow else 5))
        figure = new_figure(look.width(), min(1.0 + row * len(labels) + legend, 9))
        axes = figure.subplots()
        for number, label in enumerate(labels):
            here = data[data["contest"] == label]
            if number % 2:
                axes.axhspan(number - 0.5, number + 0.5, color="#F3F3F3", zorder=0, linewidth=0)
            for name, ratio, low, high in zip(
                here["scheduler"], here["ratio_to_bound"], here["ratio_low"], here["ratio_high"],
                strict=True,
            ):  # fmt: skip
                if name in grey:
                    axes.plot(ratio, number, "|", markersize=5, color="#999999", zorder=1)
                    continue
                # Side by side within the row: equal schedulers would hide one another.
                offset = (used.index(name) + 0.5) / len(used) - 0.5
                style = styles[name]
                at = number + 0.8 * offset
                if np.isfinite(low):
                    axes.plot([low, high], [at, at], color=style.colour, linewidth=style.weight)
                axes.plot(
                    ratio, at, linestyle="", marker=style.marker, markersize=4 * style.weight,
                    color=style.colour, markeredgecolor="black", markeredgewidth=0.3,
                )  # fmt: skip
        ratios = data["ratio_to_bound"]
        highest = float(np.nanmax(data[["ratio_to_bound", "ratio_high"]].to_numpy()))
        _ratio_axis(axes, float(ratios.min()), highest)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(
            range(len(labels)),
            [
                "\n".join(fit(line, 24) for line in proper(label).split(", ", 1))
                if look.narrow and len(label) > 24
                else fit(proper(label), 44)
                for label in labels
            ],
        )
        legend_below(figure, [scheduler_handle(n, styles[n], line=False) for n in used], 5)
        seeds = [contest.seeds for contest in contests]
        intervals = bool(data["ratio_low"].notna().any())
        text = caption(
            "Simulated makespan over the lower bound",
            count_of(seeds, "seed") + " a row",
            "Mean over the seeds"
            + (f"; lines: 95% interval over the seeds ({METHOD})" if intervals else ""),
            _BOUND,
            BELOW if ratios.min() < 1 - 1e-9 else "",
            grey_note(grey),
        )
        return save_figure(figure, stem, data, text)


def _contest_frame(standings: Standings, contests: Sequence[Contest]) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for contest in contests:
        everyone = _ratios(standings, contest)
        ends = intervals_of_means(list(everyone.values()))
        rows += [
            {
                "contest": standings.label(contest, True),
                "scheduler": name,
                "makespan_s": float(ratios.mean()) * contest.bound_s,
                "bound_s": contest.bound_s,
                "seeds": len(ratios),
                "ratio_to_bound": float(ratios.mean()),
                "ratio_low": low,
                "ratio_high": high,
            }
            for (name, ratios), (low, high) in zip(everyone.items(), ends, strict=True)
        ]
    return pd.DataFrame(rows)


def _ratios(standings: Standings, contest: Contest) -> dict[str, np.ndarray]:
    """float[seeds] for each scheduler: makespan over the bound of the same seed, whose graph may be its own."""
    instances = standings.instances
    own = instances.only(instances.contest == standings.contests.index(contest))
    names = [standing.scheduler for standing in contest.standings]
    own = own.of(names).only(np.isfinite(own.of(names).makespans).all(axis=1))
    bounds = own.bound_s
    if not len(own) or not (bounds > 0).all() or np.ptp(bounds) <= 1e-12 * bounds.max():
        # One bound for all seeds, or of graphs that partitions changed.
        found = {s.scheduler: s.makespans / contest.bound_s for s in contest.standings}
        if contest.best_device_s > 0:
            found[BEST_DEVICE] = np.array([contest.best_device_s / contest.bound_s])
        return found
    found = dict(zip(names, (own.makespans / bounds[:, None]).T, strict=True))
    if (own.best_device_s > 0).all():
        found[BEST_DEVICE] = own.best_device_s / bounds
    return found


def _by_scheduler(standings: Standings, stem: Path, look: Look) -> list[Path]:
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
    styles = look.styles(names)
    with figure_style():
        figure = new_figure(look.width(), min(0.8 + 0.2 * len(names), 9.0))
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
        name_rows(axes.yaxis, names, styles, 22 if look.narrow else 30)
        text = caption(
            "Simulated makespan over the lower bound",
            f"{len(instances)} instances",
            "Markers: geometric mean; bars: quartiles; ticks: 95% quantile; lines: range",
            _BOUND,
            BELOW if data["q0"].min() < 1 - 1e-9 else "",
        )
        return save_figure(figure, stem, data, text)


def _ratio_axis(axes: Axes, first: float, last: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(first, 1.0) * 0.99, max(last, 1.05) * 1.05)
    log_ratio_axis(axes.xaxis, last)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.axvline(1.0, color="black", linewidth=0.9, linestyle=(0, (1, 1.2)))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("makespan / lower bound, log scale")
