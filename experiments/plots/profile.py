"""Who is best overall? Performance profiles: ratio to the best, and to the lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.comparison.contests import BEST_DEVICE
from experiments.comparison.instances import Instances
from experiments.comparison.performance_profile import performance_profile
from experiments.plots.looks import (
    USUAL,
    Look,
    Style,
    grey_note,
    scheduler_handle,
    told_apart,
)
from experiments.plots.style import (
    BELOW,
    ONE_COLUMN,
    OTHER,
    TWO_COLUMNS,
    caption,
    figure_style,
    legend_below,
    log_ratio_axis,
    new_figure,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MANY = 20
"""Instances below which intervals of shares cover most of the figure and say nothing."""
_FAR = 20.0
"""Ratios beyond are cut off."""


def draw_profile(
    instances: Instances, stem: Path, always: Sequence[str] = (), look: Look = USUAL
) -> list[Path]:
    """In which share of the instances a scheduler is within a ratio of the best, and of the bound.

    Args:
        instances: what is counted.
        stem: of the files.
        always: schedulers never drawn in grey; shaded as the best two are: 95% intervals of their shares.
        look: of the sweep.
    """
    import pandas as pd

    instances = instances.with_best_device(BEST_DEVICE)
    names = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    instances = instances.of(names)
    shown, grey = told_apart(names, [*always, BEST_DEVICE])
    styles = look.styles(names)
    shaded = {*names[:2], *always, *look.own}
    bounded = np.isfinite(instances.bound_s) & (instances.bound_s > 0)
    references: list[tuple[str, np.ndarray, np.ndarray]] = [
        ("best", np.nanmin(instances.makespans, axis=1), np.ones(len(instances), dtype=bool))
    ]
    if bounded.any():
        references.append(("lower bound", instances.bound_s, bounded))
    frames = []
    with figure_style():
        two = len(references) > 1
        width = look.width(TWO_COLUMNS if two else ONE_COLUMN)
        columns, beside = (4, len(references)) if width > ONE_COLUMN else (2, 1)
        rows_of_panels = len(references) // beside
        figure = new_figure(width, 0.4 + 1.7 * rows_of_panels + 0.15 * -(-len(shown) // columns))
        panels = figure.subplots(rows_of_panels, beside, sharey=True, squeeze=False).ravel()
        for axes, (name, reference, rows) in zip(panels, references, strict=True):
            points, shares = performance_profile(instances.makespans[rows], reference[rows])
            _panel(axes, points, shares, names, grey, styles)
            _shade(
                axes,
                points,
                shares,
                int(rows.sum()),
                [n for n in names if n in shaded],
                names,
                styles,
            )
            axes.set_xlabel(f"makespan / {name}, log scale")
            if axes in panels[::beside]:
                axes.set_ylabel("share of instances")
            data = pd.DataFrame(shares, columns=names)
            data.insert(0, "ratio", points)
            data.insert(0, "reference", name)
            frames.append(data)
        legend_below(figure, [scheduler_handle(name, styles[name]) for name in shown], columns)
        with np.errstate(invalid="ignore"):
            below = bool((instances.makespans < instances.bound_s[:, None] * (1 - 1e-9)).any())
        text = caption(
            "Performance profile (Dolan and More 2002): share of instances within a ratio of the best makespan"
            + (" and of the lower bound" if two else ""),
            f"{len(instances)} {instances.noun}",
            "Shaded, for some: 95% interval of the share (Wilson)"
            if len(instances) >= _MANY
            else "",
            f"Cut off at {_FAR:g}." if max(float(f["ratio"].max()) for f in frames) > _FAR else "",
            BELOW if below else "",
            grey_note(grey),
        )
        return save_figure(figure, stem, pd.concat(frames, ignore_index=True), text)


def _shade(
    axes: Axes,
    points: np.ndarray,
    shares: np.ndarray,
    count: int,
    chosen: Sequence[str],
    names: Sequence[str],
    styles: dict[str, Style],
) -> None:
    """Wilson's 95% interval of each share, where there are enough instances for one to be worth seeing."""
    if count < _MANY:
        return
    for name in chosen:
        share = shares[:, names.index(name)]
        square = 1.96**2 / count
        centre = (share + square / 2) / (1 + square)
        half = np.sqrt(square * (share * (1 - share) + square / 4)) / (1 + square)
        axes.fill_between(
            points, centre - half, centre + half, step="post", color=styles[name].colour, alpha=0.12,
            linewidth=0,
        )  # fmt: skip


def _panel(
    axes: Axes,
    points: np.ndarray,
    shares: np.ndarray,
    names: Sequence[str],
    grey: Sequence[str],
    styles: dict[str, Style],
) -> None:
    from matplotlib.ticker import PercentFormatter

    last = float(min(max(points[-1], 1.02), _FAR))
    first = float(min(points[0], 1.0))
    # Grey below, the best on top.
    for column in sorted(range(len(names)), key=lambda c: (names[c] not in grey, -c)):
        style = styles[names[column]]
        x = np.append(points, max(last * 1.5, points[-1]))
        y = np.append(shares[:, column], shares[-1, column])
        if names[column] in grey:
            axes.step(x, y, where="post", color=OTHER, linewidth=0.6)
            continue
        axes.step(
            x, y, where="post", color=style.colour, linestyle=style.dash,
            linewidth=1.4 * style.weight, zorder=2.5 if style.own else 2,
        )  # fmt: skip
        # Markers at the jumps that are seen, evenly along the axis.
        jumps = np.flatnonzero(np.diff(shares[:, column], prepend=0.0) > 0)
        axes.plot(
            points[_spread(points, jumps, last)],
            shares[_spread(points, jumps, last), column],
            linestyle="",
            marker=style.marker,
            markersize=3.5 * style.weight,
            color=style.colour,
            markeredgecolor="black",
            markeredgewidth=0.3,
            clip_on=False,
            zorder=3,
        )
    axes.set_xscale("log")
    axes.set_xlim(first * (0.97 if first < 1 else 1), last * 1.03)
    axes.set_ylim(0.0, 1.02)
    log_ratio_axis(axes.xaxis, last)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)


def _spread(points: np.ndarray, jumps: np.ndarray, last: float) -> Any:
    """Up to six of the jumps, spread over the axis."""
    seen = jumps[points[jumps] <= last]
    if not len(seen):
        return seen
    where = np.log(points[seen])
    wanted = np.linspace(where[0], where[-1], 6)
    return np.unique(seen[np.abs(where[:, None] - wanted).argmin(axis=0)])
