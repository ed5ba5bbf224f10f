"""How far a verdict is from its opposite, as bars on both sides of today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.comparison.names import proper
from experiments.plots.looks import scheduler_styles
from experiments.plots.style import (
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    shorten,
)

MOST_ROWS = 16


def draw_flips(
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    winner: str,
    limit: float,
    stem: str | Path,
    title: str,
) -> list[Path]:
    """For each factor the range in which the winner stays, and who wins beyond it.

    Args:
        rows: ``what``, ``of``, ``down``, ``winner_down``, ``up``, ``winner_up``, the nearest first.
        labels: the schedulers.
        winner: who wins as believed.
        limit: the largest factor that was tried.
        stem: of the files.
        title: above the figure.
    """
    import pandas as pd
    from matplotlib.patches import Patch

    shown = list(rows[:MOST_ROWS])
    styles = scheduler_styles(labels)
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 1.3 + 0.2 * max(1, len(shown)))
        axes = figure.add_subplot()
        present = {winner}
        for place, row in enumerate(shown):
            low, high = row["down"] or 1 / limit, row["up"] or limit
            parts = [(winner, low, high)]
            if row["down"] is not None:
                parts.append((row["winner_down"], 1 / limit, low))
            if row["up"] is not None:
                parts.append((row["winner_up"], high, limit))
            for name, begin, end in parts:
                present.add(name)
                axes.barh(
                    place,
                    end - begin,
                    left=begin,
                    height=0.7,
                    color=styles[name].colour,
                    hatch=styles[name].hatch,
                    edgecolor="white",
                    linewidth=0.4,
                )
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xlim(1 / limit, limit)
        ticks = [t for t in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8) if 1 / limit <= t <= limit]
        names = [f"{t:g}" if t >= 1 else f"1/{1 / t:g}" for t in ticks]
        axes.set_xticks(ticks, [f"x{name}" for name in names])
        axes.set_xlabel("factor by which one thing differs from what is believed")
        axes.set_yticks(
            range(len(shown)), [shorten(f"{r['what']} of {r['of']}", 44) for r in shown]
        )
        axes.invert_yaxis()
        axes.set_title(title, loc="left")
        legend_below(
            figure,
            [
                Patch(
                    facecolor=styles[name].colour,
                    hatch=styles[name].hatch,
                    edgecolor="white",
                    label=f"{proper(name)} wins",
                )
                for name in labels
                if name in present
            ],
            4,
        )
        left = "" if len(rows) <= MOST_ROWS else f" The nearest {MOST_ROWS} of {len(rows)} factors."
        caption = (
            f"{title}: who wins if one link's bandwidth, one device's speed or the predicted time of "
            f"one kind of operator is multiplied by a factor; {winner} wins as believed. Beyond the "
            "first change of winner on each side nothing was tried; the colour is that of the winner "
            f"at the change.{left}"
        )
        return save_figure(figure, stem, pd.DataFrame(list(rows)), caption)
