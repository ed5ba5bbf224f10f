"""Who is best overall: performance profile, pair by pair, gap to the lower bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.plots.style import (
    ONE_COLUMN,
    TWO_COLUMNS,
    count_of,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    scheduler_styles,
    shorten,
    text_colour,
)
from experiments.standings import BEST_DEVICE, Standings
from experiments.statistics import SAME, pair_counts, performance_profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR = 20.0
"""Ratios beyond are cut off in the performance profile."""
_SIDE_BY_SIDE = 10
"""With more schedulers the two matrices stand above one another."""


def instance_table(standings: Standings) -> tuple[list[str], list[str], np.ndarray]:
    """Makespans by instance; an instance is one seed of one contest.

    Returns:
        names of the instances, names of the schedulers (the best device alone last, where its time is
        known everywhere), seconds float[instances, schedulers] with NaN where one has no result.
    """
    schedulers = list(standings.schedulers)
    labels, rows = [], []
    for contest in standings.contests:
        by_name = {s.scheduler: s.makespans for s in contest.standings}
        alone = (
            contest.alone.makespans
            if contest.alone is not None
            else np.full(contest.seeds, contest.best_device_s)
        )
        missing = np.full(contest.seeds, np.nan)
        table = [*(by_name.get(name, missing) for name in schedulers), alone]
        rows += np.stack(table, axis=1).tolist()
        label = standings.label(contest, True)
        labels += [f"{label} #{i}" if contest.seeds > 1 else label for i in range(contest.seeds)]
    makespans = np.array(rows, dtype=np.float64)
    if np.isfinite(makespans[:, -1]).all():
        return labels, [*schedulers, BEST_DEVICE], makespans
    return labels, schedulers, makespans[:, :-1]


def draw_profile(standings: Standings, stem: Path) -> list[Path]:
    """Performance profile: in which share of instances a scheduler is within a ratio of the best."""
    import pandas as pd
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

    _, names, makespans = instance_table(standings)
    points, shares = performance_profile(makespans)
    styles = scheduler_styles(names)
    last = float(min(max(points[-1], 1.02), _FAR))
    with figure_style():
        legend_rows = -(-len(names) // 2)
        figure = new_figure(ONE_COLUMN, 2.2 + 0.15 * legend_rows)
        axes = figure.subplots()
        order = np.argsort(-shares.mean(axis=0), kind="stable").tolist()
        for column in order:
            style = styles[names[column]]
            x = np.append(points, max(last * 1.5, points[-1]))
            y = np.append(shares[:, column], shares[-1, column])
            axes.step(x, y, where="post", color=style.colour, linestyle=style.dash, linewidth=1.4)
            # Markers at the jumps that are seen, offset a little between schedulers by their style.
            jumps = np.flatnonzero(np.diff(shares[:, column], prepend=0.0) > 0)
            chosen = jumps[:: max(1, len(jumps) // 6)]
            axes.plot(
                points[chosen],
                shares[chosen, column],
                linestyle="",
                marker=style.marker,
                markersize=3.5,
                color=style.colour,
                markeredgecolor="black",
                markeredgewidth=0.3,
                clip_on=False,
                zorder=3,
            )
        axes.set_xscale("log")
        axes.set_xlim(1.0, last * 1.03)
        axes.set_ylim(0.0, 1.02)
        ticks = _ratio_ticks(last)
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel("makespan / best makespan, log scale")
        axes.set_ylabel("share of instances")
        handles = [
            Line2D(
                [],
                [],
                color=styles[names[i]].colour,
                linestyle=styles[names[i]].dash,
                marker=styles[names[i]].marker,
                markersize=3.5,
                markeredgecolor="black",
                markeredgewidth=0.3,
                label=shorten(names[i], 26),
            )
            for i in order
        ]
        legend_below(figure, handles, 2)
        data = pd.DataFrame(shares, columns=names)
        data.insert(0, "ratio_to_best", points)
        caption = (
            f"Performance profile (Dolan and More 2002) over n = {len(makespans)} instances (one seed "
            f"of one model in one setting each; {len(standings.contests)} models and settings): share "
            "of instances on which a scheduler's makespan, at predicted operator times, is within the "
            "ratio of the best of all. Higher is better; at 1: how often it is the best. A scheduler "
            f"without a result on an instance never reaches it. Ratios above {_FAR:g} are cut off."
        )
        return save_figure(figure, stem, data, caption)


def draw_pairs(standings: Standings, stem: Path) -> list[Path]:
    """Wins, ties and losses of every pair, and the worst ratio of the row to the column."""
    import pandas as pd
    from matplotlib.colors import LinearSegmentedColormap

    _, names, makespans = instance_table(standings)
    counts = pair_counts(makespans)
    count = len(names)
    total = np.maximum(counts.wins + counts.ties + counts.losses, 1)
    balance = (counts.wins - counts.losses) / total
    # Blue and orange of the palette: told apart with every common colour blindness.
    diverging = LinearSegmentedColormap.from_list("balance", ["#D55E00", "#F7F7F7", "#0072B2"])
    growing = LinearSegmentedColormap.from_list("worst", ["#FFFFFF", "#E69F00", "#8A2B00"])
    side = count <= _SIDE_BY_SIDE
    width = TWO_COLUMNS if count > 4 else 5.2
    with figure_style():
        each = (width - 1.6) / 2 if side else width - 1.6
        size = min(each, 0.42 * count) + 1.1
        cell = min(each, 0.42 * count) / count * 72  # points
        figure = new_figure(width, size if side else 2 * size)
        left, right = figure.subplots(1, 2) if side else figure.subplots(2, 1)
        off = ~np.eye(count, dtype=bool)
        shown = np.where(off, balance, 0.0)
        left.imshow(shown, cmap=diverging, vmin=-1, vmax=1)
        left.set_title("row wins / ties / loses against column")
        ratios = np.where(off, counts.worst, 1.0)
        top = float(np.nanmax(ratios)) if np.isfinite(ratios).any() else 2.0
        scale = np.log(np.clip(ratios, 1.0, None)) / max(np.log(max(top, 1.02)), 1e-12)
        right.imshow(scale, cmap=growing, vmin=0, vmax=1)
        right.set_title("worst case: row / column")
        for axes, values, colours in ((left, shown, diverging), (right, scale, growing)):
            _matrix_axes(axes, names)
            for i in range(count):
                for j in range(count):
                    if i == j or not total[i, j] or not np.isfinite(counts.worst[i, j]):
                        continue
                    text = (
                        f"{counts.wins[i, j]}/{counts.ties[i, j]}/{counts.losses[i, j]}"
                        if axes is left
                        else f"{counts.worst[i, j]:.2f}"
                    )
                    level = (values[i, j] + 1) / 2 if axes is left else values[i, j]
                    red, green, blue, _ = colours(float(level))
                    face = f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
                    axes.text(
                        j,
                        i,
                        text,
                        ha="center",
                        va="center",
                        fontsize=min(6.5, 0.85 * cell / (0.6 * len(text))),
                        color=text_colour(face),
                    )
        rows = [
            {
                "scheduler": names[i],
                "against": names[j],
                "wins": counts.wins[i, j],
                "ties": counts.ties[i, j],
                "losses": counts.losses[i, j],
                "worst_ratio": counts.worst[i, j],
            }
            for i in range(count)
            for j in range(count)
            if i != j
        ]
        caption = (
            f"Pairs of schedulers over n = {len(makespans)} instances (one seed of one model in one "
            "setting each), makespans at predicted operator times. {'Left' if side else 'Above'}: on how many instances the row "
            f"has the shorter makespan, differs by less than {SAME:.0%} (tie), has the longer one; blue "
            "where the row wins more, orange where the column does. {'Right' if side else 'Below'}: the largest ratio of the "
            "row's makespan to the column's; below 1 the row is always the shorter."
        )
        return save_figure(figure, stem, pd.DataFrame(rows), caption)


def draw_gaps(standings: Standings, stem: Path) -> list[Path] | None:
    """Makespan over the lower bound, a row for each model; None where no bound is known."""
    import pandas as pd
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullFormatter

    contests = [c for c in standings.contests if c.bound_s > 0]
    if not contests:
        return None
    names = sorted({s.scheduler for contest in contests for s in contest.standings})
    styles = scheduler_styles([*names, BEST_DEVICE])
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
    data = pd.DataFrame(rows)
    used = [name for name in [*names, BEST_DEVICE] if name in set(data["scheduler"])]
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
                # Side by side within the row: equal schedulers would hide one another.
                offset = (used.index(name) + 0.5) / len(used) - 0.5
                style = styles[name]
                axes.plot(
                    ratio,
                    number + 0.8 * offset,
                    linestyle="",
                    marker=style.marker,
                    markersize=4,
                    color=style.colour,
                    markeredgecolor="black",
                    markeredgewidth=0.3,
                )
        axes.set_xscale("log")
        last = float(data["ratio_to_bound"].max())
        axes.set_xlim(0.99, max(last, 1.05) * 1.05)
        axes.set_xticks(_ratio_ticks(last))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.axvline(1.0, color="black", linewidth=0.9, linestyle=(0, (1, 1.2)))
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_yticks(range(len(labels)), [shorten(label, 40) for label in labels])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("makespan / lower bound, log scale (1: optimal)")
        handles = [
            Line2D(
                [],
                [],
                linestyle="",
                marker=styles[name].marker,
                markersize=4,
                color=styles[name].colour,
                markeredgecolor="black",
                markeredgewidth=0.3,
                label=shorten(name, 26),
            )
            for name in used
        ]
        legend_below(figure, handles, 5)
        seeds = [contest.seeds for contest in contests]
        caption = (
            f"Ratio of the makespan (mean of n = {count_of(seeds, 'seed')}, predicted operator times) to the lower "
            "bound, the larger of critical path and load bound, which leaves transfers out; no schedule "
            "is below 1, and the best possible one may well be above."
        )
        return save_figure(figure, stem, data, caption)


def _matrix_axes(axes: Axes, names: list[str]) -> None:
    short = [shorten(name, 18) for name in names]
    axes.set_xticks(range(len(names)), short, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), short)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _ratio_ticks(last: float) -> list[float]:
    for step in (
        [1.0, 1.01, 1.02, 1.03, 1.04, 1.05],
        [1.0, 1.05, 1.1, 1.15, 1.2],
        [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        [1.0, 1.2, 1.4, 1.6, 1.8, 2.0],
        [1.0, 1.5, 2.0, 2.5, 3.0, 4.0],
        [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0],
    ):
        if last <= step[-1]:
            return [tick for tick in step if tick <= last * 1.03]
    return [
        tick for tick in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0) if tick <= last * 1.03
    ]
