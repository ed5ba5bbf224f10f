"""How robust? Regret against the error of the estimates, the flip point marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.bootstrap import METHOD
from experiments.comparison.names import axis_label, proper
from experiments.comparison.robustness import Robustness
from experiments.plots.looks import USUAL, Look, grey_note, scheduler_handle, told_apart
from experiments.plots.style import (
    ONE_COLUMN,
    OTHER,
    caption,
    figure_style,
    legend_below,
    new_figure,
    range_of,
    save_figure,
    shorten,
)

if TYPE_CHECKING:
    import pandas as pd
SPREAD = 8.0
"""Times the median scheduler's regret at which the axis is cut."""
LINEAR = 0.1
"""Regret above which a cut axis is logarithmic."""


def _median_of_ends(frame: pd.DataFrame) -> float:
    """The median over schedulers of each one's largest regret."""
    return float(frame.groupby("scheduler")["regret"].max().median())


def draw_robustness(
    found: Robustness, stem: Path, always: Sequence[str] = (), look: Look = USUAL
) -> list[Path]:
    """A line for each scheduler, its interval shaded."""
    from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

    flip = [found.flip[1]] if found.flip else []
    shown, grey = told_apart(found.order, [*always, *flip])
    styles = look.styles(found.order)
    # More bands than these hide one another.
    shaded = {*shown[:3], *flip, *always}
    levels = sorted(set(found.frame["error"]))
    with figure_style():
        figure = new_figure(look.width(ONE_COLUMN), 2.3 + 0.15 * -(-len(shown) // 2))
        axes = figure.subplots()
        for name in [*grey, *reversed(shown)]:
            own = found.frame[found.frame["scheduler"] == name]
            style = styles[name]
            x = own["error"].to_numpy(dtype=np.float64)
            if name in grey:
                axes.plot(x, own["regret"], color=OTHER, linewidth=0.6, zorder=1)
                continue
            if name in shaded and own["regret_low"].notna().all():
                axes.fill_between(
                    x, own["regret_low"], own["regret_high"], color=style.colour, alpha=0.15,
                    linewidth=0,
                )  # fmt: skip
            axes.plot(
                x, own["regret"], color=style.colour, linestyle=style.dash, marker=style.marker,
                linewidth=1.2 * style.weight, markersize=4 * style.weight, markeredgecolor="black", markeredgewidth=0.3, zorder=3,
            )  # fmt: skip
        if found.flip:
            where, name = found.flip
            axes.axvline(where, color="black", linewidth=0.9, linestyle=(0, (4, 2)), zorder=2)
            axes.set_title(f"dashed: {shorten(proper(name), 24)} from {where:.3g} on", fontsize=7)
        most = axes.get_ylim()[1]
        if most > SPREAD * _median_of_ends(found.frame):
            # One that is far off would press the others to the axis.
            axes.set_yscale("symlog", linthresh=LINEAR, linscale=2.0)
            axes.set_yticks(
                [t for t in (0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5, 1, 2, 5, 10) if t <= most]
            )
            axes.yaxis.set_minor_locator(NullLocator())
            axes.axhline(LINEAR, color="#999999", linewidth=0.5, linestyle=(0, (1, 2)))
            axes.set_ylim(top=1.3 * most)
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if most > 0.06 else 1))
        axes.set_xticks(levels if len(levels) < 8 else levels[:: -(-len(levels) // 7)])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel(axis_label(found.factor.column))
        axes.set_ylabel("mean regret")
        legend_below(figure, [scheduler_handle(name, styles[name]) for name in shown], 2)
        best = proper(found.order[0])
        says = (
            f"Dashed: from {found.flip[0]:.3g} on, {proper(found.flip[1])} has a smaller regret than {best} "
            "(linear between levels)."
            if found.flip
            else f"{best} has the smallest mean regret at every level."
        )
        text = caption(
            "Regret (makespan over the best of the instance, minus 1) against the error of the estimates",
            f"{range_of(found.frame['n'].tolist())} instances a level",
            f"Mean; shaded, for some: 95% interval ({METHOD})",
            says,
            "Above the dotted line the axis is logarithmic."
            if axes.get_yscale() != "linear"
            else "",
            grey_note(grey),
        )
        return save_figure(figure, stem, found.frame, text)
