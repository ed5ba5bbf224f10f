"""Which ingredient matters? Paired differences of every factor, as dots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.effects import Effect, Effects
from experiments.comparison.factors import value_text
from experiments.comparison.names import quantity, value_label
from experiments.comparison.paired_tests import CORRECTION, METHOD
from experiments.comparison.rounding import fit
from experiments.plots.looks import USUAL, Look
from experiments.plots.style import (
    COLOURS,
    caption,
    figure_style,
    legend_below,
    new_figure,
    range_of,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS = 400
"""Single differences drawn in a row; quantiles of them where there are more."""
_MOST = 30


def draw_effects(effects: Effects, stem: Path, look: Look = USUAL) -> list[Path] | None:
    """A row for each value of each factor; ingredients above, properties of the problem below."""
    import pandas as pd
    from matplotlib.lines import Line2D

    panels = [
        (title, [e for e in effects.effects if e.ingredient is ingredient])
        for title, ingredient in (
            ("of the scheduler and of the simulation", True),
            ("of the problem", False),
        )
    ]
    left_out = sum(max(len(rows) - _MOST, 0) for _, rows in panels)
    panels = [(title, rows[:_MOST]) for title, rows in panels if rows]
    if not panels:
        return None
    verdicts = {
        (str(row["factor"]), str(row["value"])): str(row["verdict"])
        for row in effects.frame.to_dict("records")
    }
    intervals = {
        (str(row["factor"]), str(row["value"])): (row["ratio_low"], row["ratio_high"])
        for row in effects.frame.to_dict("records")
    }
    with figure_style():
        heights = [len(rows) for _, rows in panels]
        figure = new_figure(
            look.width(),
            min(0.75 * len(panels) + 0.24 * sum(heights) + (0.6 if look.narrow else 0.3), 9.0),
        )
        subplots = figure.subplots(
            len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": [h + 1 for h in heights]}
        )[:, 0]
        for axes, (title, rows) in zip(subplots, panels, strict=True):
            _panel(axes, rows, intervals, verdicts, 24 if look.narrow else 48)
            if len(panels) > 1:
                axes.set_title(f"factors {title}", loc="left")
        subplots[-1].set_xlabel("makespan ratio, log scale")
        handles = [
            Line2D([], [], linestyle="", marker=".", color="#888888", markersize=3, label="a pair"),
            Line2D([], [], linestyle="-", marker="D", color=COLOURS[0], markersize=4,
                   label="mean and 95% interval"),
            Line2D([], [], linestyle="-", marker="D", color=COLOURS[0], markersize=4,
                   markerfacecolor="white", label="not separable, or too few"),
        ]  # fmt: skip
        legend_below(figure, handles, 3)
        data = pd.DataFrame(
            [
                {
                    "factor": effect.factor.name,
                    "value": value_text(effect.value),
                    "against": value_text(effect.against),
                    "ratio": ratio,
                }
                for _, rows in panels
                for effect in rows
                for ratio in np.exp(_thinned(effect.logs)).tolist()
            ]
        )
        text = caption(
            "Makespan with a factor's first value over that with its second, everything else equal",
            f"{range_of(len(e.logs) for _, rows in panels for e in rows)} pairs a row",
            f"Diamonds: geometric mean, 95% interval ({METHOD}; {CORRECTION} over {len(effects.frame)} rows)",
            f"Dots: pairs{', of more than ' + str(_DOTS) + ' their quantiles' if max(len(e.logs) for _, rows in panels for e in rows) > _DOTS else ''}.",
            "Left of 1: faster.",
            f"{left_out} more rows: table_factors.csv." if left_out else "",
        )
        return save_figure(figure, stem, data, text)


def _panel(
    axes: Axes,
    rows: Sequence[Effect],
    intervals: dict[tuple[str, str], tuple[float, float]],
    verdicts: dict[tuple[str, str], str],
    room: int,
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    labels = []
    rng = np.random.default_rng(0)
    for number, effect in enumerate(rows):
        dots = np.exp(_thinned(effect.logs))
        axes.plot(
            dots, number + rng.uniform(-0.28, 0.28, len(dots)), linestyle="", marker=".",
            markersize=2 if len(dots) > 50 else 4, color="#888888", markeredgewidth=0, zorder=2,
        )  # fmt: skip
        key = (effect.factor.name, value_text(effect.value))
        low, high = intervals[key]
        if np.isfinite(low):
            axes.plot([low, high], [number] * 2, color=COLOURS[0], linewidth=1.4, zorder=3)
        decided = verdicts[key] in ("shorter", "longer")
        axes.plot(
            np.exp(effect.logs.mean()), number, marker="D", markersize=4, color=COLOURS[0],
            markerfacecolor=COLOURS[0] if decided else "white", zorder=4,
        )  # fmt: skip
        key_, symbol = effect.factor.column, quantity(effect.factor.column).symbol
        value, against = (value_label(key_, v) for v in (effect.value, effect.against))
        text = f"{symbol}: {value} vs {against}"
        if len(text) > room:
            # Two lines fit into a row.
            text = f"{fit(symbol, room)}:\n{fit(f'{value} vs {against}', room + 2)}"
        labels.append(text)
        if number % 2:
            axes.axhspan(number - 0.5, number + 0.5, color="#F3F3F3", zorder=0, linewidth=0)
    axes.axvline(1.0, color="black", linewidth=0.9, linestyle=(0, (1, 1.2)))
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    low, high = min(low, 0.98), max(high, 1.02)
    axes.set_xlim(low, high)
    if high / low < 8:
        axes.xaxis.set_major_locator(MaxNLocator(7 if room > 30 else 4, steps=[1, 2, 2.5, 5, 10]))
    else:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), labels)
    axes.tick_params(axis="y", length=0)


def _thinned(logs: np.ndarray) -> np.ndarray:
    return logs if len(logs) <= _DOTS else np.quantile(logs, np.linspace(0, 1, _DOTS))
