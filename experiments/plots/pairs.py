"""Pair by pair? Wins, ties and losses of every pair, the worst-case ratio beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.contests import BEST_DEVICE
from experiments.comparison.instances import Instances
from experiments.comparison.names import proper
from experiments.comparison.pairs import PairTests, pair_counts
from experiments.comparison.rounding import fit
from experiments.comparison.statistics import SAME
from experiments.plots.looks import USUAL, Look, Style, told_apart
from experiments.plots.style import caption, figure_style, new_figure, save_figure, text_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE_BY_SIDE = 10
"""With more schedulers the two matrices stand above one another."""
_MOST = 18
_LEGIBLE = 5.0
"""Points: smaller numbers are not written into the cells."""


def draw_pairs(
    instances: Instances,
    stem: Path,
    tests: PairTests | None = None,
    always: Sequence[str] = (),
    look: Look = USUAL,
) -> list[Path]:
    """Wins, ties and losses of every pair, and the worst ratio of the row to the column.

    Args:
        instances: what is counted.
        stem: of the files.
        tests: pairs that are not separable are marked with a dot.
        always: schedulers never left out.
        look: of the sweep.
    """
    import pandas as pd
    from matplotlib.colors import LinearSegmentedColormap

    instances = instances.with_best_device(BEST_DEVICE)
    ordered = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    names, hidden = told_apart(ordered, [*always, BEST_DEVICE], _MOST)
    everything = pair_counts(instances.of(ordered).makespans)
    counts = pair_counts(instances.of(names).makespans)
    count = len(names)
    total = np.maximum(counts.wins + counts.ties + counts.losses, 1)
    balance = (counts.wins - counts.losses) / total
    # Blue and orange of the palette: told apart with every common colour blindness.
    diverging = LinearSegmentedColormap.from_list("balance", ["#D55E00", "#F7F7F7", "#0072B2"])
    growing = LinearSegmentedColormap.from_list("worst", ["#FFFFFF", "#E69F00", "#8A2B00"])
    side = count <= _SIDE_BY_SIDE and not look.narrow
    width, styles = look.width(), look.styles(names)
    undecided = _undecided(tests)
    percent = len(instances) > 99
    with figure_style():
        each = (width - 1.6) / 2 if side else width - (1.1 if look.narrow else 1.6)
        span = min(each, (0.42 if side else 0.3) * count)
        cell = span / count * 72  # points
        # Where all three numbers cannot be read, the first alone can.
        digits = 3 if percent else len(str(len(instances)))
        brief = 0.85 * cell / (0.6 * (2 * digits + 3)) < _LEGIBLE
        figure = new_figure(width, span + 1.1 if side else 2 * (span + 1.0))
        left, right = figure.subplots(1, 2) if side else figure.subplots(2, 1)
        off = ~np.eye(count, dtype=bool)
        shown = np.where(off, balance, 0.0)
        left.imshow(shown, cmap=diverging, vmin=-1, vmax=1)
        what = "row wins against column" if brief else "row wins / ties / loses against column"
        left.set_title(what + (", %" if percent else ""))
        ratios = np.where(off, counts.worst, 1.0)
        top = float(np.nanmax(ratios)) if np.isfinite(ratios).any() else 2.0
        scale = np.log(np.clip(ratios, 1.0, None)) / max(np.log(max(top, 1.02)), 1e-12)
        right.imshow(scale, cmap=growing, vmin=0, vmax=1)
        right.set_title("worst case: row / column")
        for axes, values, colours in ((left, shown, diverging), (right, scale, growing)):
            _matrix_axes(axes, names, styles, 14 if look.narrow else 22)
            for i in range(count):
                for j in range(count):
                    if i == j or not total[i, j] or not np.isfinite(counts.worst[i, j]):
                        continue
                    worst = counts.worst[i, j]
                    if axes is left:
                        three = [counts.wins[i, j], counts.ties[i, j], counts.losses[i, j]]
                        text = "/".join(
                            f"{100 * n / total[i, j]:.0f}" if percent else f"{n}"
                            for n in three[: 1 if brief else 3]
                        )
                    else:
                        text = f"{worst:.2f}" if worst < 100 else f"{worst:.0f}"
                    size = min(6.5, 0.85 * cell / (0.6 * len(text)))
                    level = (values[i, j] + 1) / 2 if axes is left else values[i, j]
                    red, green, blue, _ = colours(float(level))
                    face = f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
                    ink = text_colour(face)
                    if size >= _LEGIBLE:
                        axes.text(j, i, text, ha="center", va="center", fontsize=size, color=ink)
                    if axes is left and frozenset((names[i], names[j])) in undecided:
                        axes.plot(j + 0.36, i - 0.34, marker="o", markersize=1.6, color=ink)
        rows = [
            {
                "scheduler": ordered[i],
                "against": ordered[j],
                "wins": everything.wins[i, j],
                "ties": everything.ties[i, j],
                "losses": everything.losses[i, j],
                "worst_ratio": everything.worst[i, j],
            }
            for i in range(len(ordered))
            for j in range(len(ordered))
            if i != j
        ]
        first, second = ("Left", "Right") if side else ("Above", "Below")
        text = caption(
            "Wins, ties and losses of the row against the column",
            f"{len(instances)} {instances.noun}",
            f"{first}: {'percent' if percent else 'number'} of instances, a tie within {SAME:.0%}; {second.lower()}: "
            "largest makespan ratio of row to column",
            "Only wins are written." if brief else "",
            "Dot: not separable, or too few pairs (table_pairs.csv)." if undecided else "",
            f"{len(hidden)} more schedulers are in the data." if hidden else "",
        )
        return save_figure(figure, stem, pd.DataFrame(rows), text)


def _undecided(tests: PairTests | None) -> set[frozenset[str]]:
    if tests is None or not len(tests.frame):
        return set()
    frame = tests.frame[~tests.frame["verdict"].isin(["shorter"])]
    return {frozenset(pair) for pair in zip(frame["scheduler"], frame["against"], strict=True)}


def _matrix_axes(axes: Axes, names: list[str], styles: dict[str, Style], room: int) -> None:
    short = [fit(proper(name), room) for name in names]
    axes.set_xticks(range(len(names)), short, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), short)
    for axis in (axes.xaxis, axes.yaxis):
        for label, name in zip(axis.get_ticklabels(), names, strict=True):
            label.set_fontweight("bold" if styles[name].own else "normal")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
