"""Where does each win? A map over two factors, coloured by winner, pale and hatched where not separable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.comparison.factors import Factor
from experiments.comparison.names import axis_label, proper, quantity, value_label
from experiments.comparison.paired_tests import CORRECTION, METHOD
from experiments.comparison.winners import WinnerMap
from experiments.plots.looks import USUAL, Look, Style
from experiments.plots.style import (
    OWN,
    caption,
    figure_style,
    legend_below,
    new_figure,
    range_of,
    save_figure,
    shorten,
    text_colour,
)

_LEGIBLE = 0.34
"""Inches of a cell from which on figures are written into it."""
_PALE = 0.35
"""Share of a winner's colour where it is not separable from the second, the rest is white."""


def draw_winners(winners: WinnerMap, stem: Path, look: Look = USUAL) -> list[Path]:
    """One cell for each pair of values: who has the smallest mean ratio to the best there."""
    from matplotlib.patches import Patch, Rectangle

    frame = winners.frame
    styles = look.styles(dict.fromkeys(winners.order))
    x, y = winners.across, winners.up
    columns, rows = len(x.values), len(y.values)
    seen = [name for name in winners.order if name in set(frame["winner"])]
    with figure_style():
        width = look.width()
        across = (width - 0.8) / columns
        height = min(max(min(0.6 * across, 0.6), 0.3) * rows, 6.5)
        per_row = 2 if look.narrow else 4
        figure = new_figure(width, height + 0.75 + 0.16 * -(-(len(seen) + 1) // per_row))
        axes = figure.subplots()
        for row in frame.to_dict("records"):
            style = styles[str(row["winner"])]
            i, j = x.values.index(row[x.column]), y.values.index(row[y.column])
            face = style.colour if row["separable"] else _pale(style.colour)
            axes.add_patch(
                Rectangle(
                    (i - 0.5, j - 0.5), 1, 1, facecolor=face, edgecolor=style.colour,
                    hatch=None if row["separable"] else "//////", linewidth=0.0,
                )
            )  # fmt: skip
            axes.add_patch(
                Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor="white", linewidth=1.6)
            )
            written = across >= _LEGIBLE
            axes.plot(
                i - (0.5 - min(0.12 / across, 0.3) if written else 0.0), j, style.marker,
                color="white", markersize=4.5, markeredgecolor="black", markeredgewidth=0.5,
            )  # fmt: skip
            if written:
                axes.text(
                    i + min(0.06 / across, 0.1), j, f"{100 * row['lead']:.1f}", ha="center", va="center",
                    fontsize=6.5, color=text_colour(face),
                    bbox=None if row["separable"]
                    else {"facecolor": face, "edgecolor": "none", "pad": 0.8},
                )  # fmt: skip
        axes.set_xlim(-0.5, columns - 0.5)
        axes.set_ylim(-0.5, rows - 0.5)
        _ticks(axes.xaxis, x, max(4, int(across / 0.06)))
        _ticks(axes.yaxis, y, 12)
        axes.tick_params(length=0)
        axes.set_xlabel(axis_label(x.column))
        # A map of few rows is too low for a long name.
        label, symbol = axis_label(y.column), quantity(y.column).symbol
        axes.set_ylabel(label if 0.058 * len(label) <= height else symbol)
        for spine in axes.spines.values():
            spine.set_visible(False)
        handles: list[Any] = [_handle(name, styles[name]) for name in seen]
        if not frame["separable"].all():
            few = bool((frame["n"] < winners.needed).all())
            label = (
                f"too few instances to tell ({winners.needed} needed)" if few else "not separable"
            )
            handles.append(
                Patch(facecolor="#E8E8E8", edgecolor="#777777", hatch="//////", lw=0, label=label)
            )
        legend_below(figure, handles, per_row)
        text = caption(
            "Scheduler of the smallest mean ratio to the best by "
            f"{axis_label(x.column)} and {axis_label(y.column)}",
            f"{range_of(frame['n'].tolist())} instances a cell",
            f"Numbers: lead over the second in percent; pale and hatched: its 95% interval ({METHOD}; "
            f"{CORRECTION} over {len(frame)} cells) holds 0",
            winners.warning,
        )
        data = frame.rename(columns={x.column: x.name, y.column: y.name})
        return save_figure(figure, stem, data, text)


def _pale(colour: str) -> str:
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    mixed = [round(255 - _PALE * (255 - channel)) for channel in channels]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _handle(name: str, style: Style) -> Any:
    """A legend's patch in a scheduler's colour with its marker."""
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], gid=OWN if style.own else None, color=style.colour, linewidth=6,
        solid_capstyle="butt", marker=style.marker, markerfacecolor="white", markeredgecolor="black",
        markeredgewidth=0.5, markersize=4, label=shorten(proper(name), 30),
    )  # fmt: skip


def _ticks(axis: Any, factor: Factor, room: int) -> None:
    axis.set_ticks(
        range(len(factor.values)),
        [shorten(value_label(factor.column, value), room) for value in factor.values],
    )
