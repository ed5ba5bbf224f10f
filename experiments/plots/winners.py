"""Where does each win? A map over two factors, coloured by winner, hatched where not separable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.comparison.factors import Factor, value_text
from experiments.comparison.paired_tests import CORRECTION, METHOD
from experiments.comparison.winners import WinnerMap
from experiments.plots.style import (
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    scheduler_styles,
    shorten,
    text_colour,
)

_LEGIBLE = 12
"""Columns up to which figures are written into the cells."""


def draw_winners(winners: WinnerMap, stem: Path) -> list[Path]:
    """One cell for each pair of values: who has the smallest mean ratio to the best there."""
    from matplotlib.patches import Patch, Rectangle

    frame = winners.frame
    styles = scheduler_styles(frame["winner"])
    x, y = winners.across, winners.up
    columns, rows = len(x.values), len(y.values)
    with figure_style():
        side = min(0.8, 5.4 / columns)
        height = min(max(side, 0.32) * rows * 0.75, 6.5)
        figure = new_figure(TWO_COLUMNS, height + 0.9 + 0.16 * -(-len(styles) // 4))
        axes = figure.subplots()
        for row in frame.to_dict("records"):
            style = styles[str(row["winner"])]
            i, j = x.values.index(row[x.column]), y.values.index(row[y.column])
            ink = text_colour(style.colour)
            axes.add_patch(
                Rectangle(
                    (i - 0.5, j - 0.5), 1, 1, facecolor=style.colour, edgecolor=ink,
                    hatch=None if row["separable"] else "////", linewidth=0.0,
                )
            )  # fmt: skip
            axes.add_patch(
                Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor="white", linewidth=1.2)
            )
            marker: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.5}
            axes.plot(i - 0.32, j + 0.28, style.marker, color="white", markersize=4, **marker)
            if columns <= _LEGIBLE:
                axes.text(
                    i, j - 0.06, f"{row['lead']:.1%}", ha="center", va="center", fontsize=6.5,
                    color="black",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
                )  # fmt: skip
        axes.set_xlim(-0.5, columns - 0.5)
        axes.set_ylim(-0.5, rows - 0.5)
        _ticks(axes.xaxis, x)
        _ticks(axes.yaxis, y)
        axes.tick_params(length=0)
        axes.set_xlabel(x.name)
        axes.set_ylabel(y.name)
        for spine in axes.spines.values():
            spine.set_visible(False)
        handles: list[Any] = []
        for name in dict.fromkeys(winners.order):
            if name in styles:
                handle = _Handle(styles[name].colour, styles[name].marker, shorten(name, 26))
                handles.append(handle.artist())
        handles.append(
            Patch(facecolor="white", edgecolor="black", hatch="////", label="not separable")
        )
        legend_below(figure, handles, 4)
        counts = frame["n"]
        number = (
            f"{counts.min()}"
            if counts.min() == counts.max()
            else f"{counts.min()} to {counts.max()}"
        )
        caption = (
            f"Winner by {x.name} and {y.name}: the scheduler of the smallest geometric mean of the "
            f"makespan over the best of the instance, n = {number} instances a cell (one seed of one "
            "model in one setting each), among those that finished all of them. Numbers: by how much "
            "the second's mean is longer. Hatched: not separable, that is the 95% interval of winner "
            f"over second on the cell's instances ({METHOD}; {CORRECTION} corrected over the "
            f"{len(frame)} cells) holds 1, or there are fewer than the {winners.needed} instances "
            "that it needs. Colours repeat beyond 8 schedulers: the marker tells them apart."
        )
        return save_figure(figure, stem, frame.rename(columns={x.column: x.name, y.column: y.name}),
                           caption)  # fmt: skip


class _Handle:
    """A legend's patch in a scheduler's colour with its marker."""

    def __init__(self, colour: str, marker: str, label: str) -> None:
        self._style = (colour, marker, label)

    def artist(self) -> Any:
        from matplotlib.lines import Line2D

        colour, marker, label = self._style
        return Line2D(
            [], [], color=colour, linewidth=6, solid_capstyle="butt", marker=marker,
            markerfacecolor="white", markeredgecolor="black", markeredgewidth=0.5, markersize=4,
            label=label,
        )  # fmt: skip


def _ticks(axis: Any, factor: Factor) -> None:
    axis.set_ticks(
        range(len(factor.values)), [shorten(value_text(value), 16) for value in factor.values]
    )
