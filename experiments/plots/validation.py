"""Figures of a validation: every case's prediction beside its measurement, and pairs in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.comparison.names import proper
from experiments.plots.looks import scheduler_styles
from experiments.plots.style import (
    COLOURS,
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
)
from experiments.plots.waterfall import STEP_COLOURS
from experiments.validation.cases import Case
from experiments.validation.pairs import Pair
from experiments.validation.waterfall import STEPS

MOST_MARKS = 200
"""Pairs up to which marks are large enough to tell neighbours apart."""
MOST_ROWS = 60
"""Cases up to which each has a bar; of more, the mean over the schedulers of a setting."""


def draw_cases(cases: Sequence[Case], stem: str | Path, caption: str) -> list[Path]:
    """Left: simulated against measured makespan, with a 10% band. Right: where the errors come from.

    Args:
        cases: of all models.
        stem: path of the files without suffix.
        caption: written beside them.
    """
    import pandas as pd
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    rows = [
        {
            "model": case.model,
            "setting": case.setting,
            "scheduler": case.scheduler,
            "simulated_s": case.simulated_s,
            "low_s": case.low_s,
            "high_s": case.high_s,
            "measured_s": case.measured_s,
            "error": case.error,
            **{f"{step}_s": case.steps[step] for step in STEPS},
        }
        for case in cases
    ]
    table = pd.DataFrame(rows)
    styles = scheduler_styles(dict.fromkeys(table["scheduler"]))
    bars = len(table) if len(table) <= MOST_ROWS else table["setting"].nunique()
    with figure_style():
        figure = new_figure(TWO_COLUMNS, max(3.0, 0.9 + 0.15 * bars))
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
        measured, simulated = table["measured_s"] * 1e3, table["simulated_s"] * 1e3
        ends = np.array(
            [min(measured.min(), simulated.min()), max(measured.max(), simulated.max())]
        )
        ends = ends * [0.8, 1.25]
        left.fill_between(ends, ends / 1.1, ends * 1.1, color="#EEEEEE", linewidth=0)
        left.plot(ends, ends, color="black", linewidth=0.6)
        for scheduler, group in table.groupby("scheduler", sort=False):
            style = styles[str(scheduler)]
            x, y = group["measured_s"] * 1e3, group["simulated_s"] * 1e3
            spread = np.abs(np.stack([y - group["low_s"] * 1e3, group["high_s"] * 1e3 - y]))
            if np.isfinite(spread).all():
                left.errorbar(
                    x, y, spread, fmt="none", ecolor=style.colour, elinewidth=0.6, alpha=0.7
                )
            left.plot(x, y, style.marker, color=style.colour, markersize=4)
        left.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        for axis in (left.xaxis, left.yaxis):
            # Plain numbers, 1-2-5: powers of ten run into each other within a decade or two.
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        left.set_xlabel("measured makespan [ms]")
        left.set_ylabel("simulated makespan [ms]")
        left.set_title("Band: 10%", loc="left")

        shares = pd.DataFrame(
            {
                "model": table["model"],
                "row": table["setting"] + "  " + table["scheduler"],
                "error": table["error"],
                # What simulation lacks is drawn to the left: simulated minus measured.
                **{step: -table[f"{step}_s"] / table["measured_s"] for step in STEPS},
            }
        )
        if len(table) > MOST_ROWS:
            shares["row"] = table["setting"]
            shares = shares.groupby(["model", "row"], sort=False).mean().reset_index()
        models = list(dict.fromkeys(shares["model"]))
        position = (
            np.arange(len(shares)) + np.array([models.index(m) for m in shares["model"]]) * 0.7
        )
        colours = dict(zip(STEPS, STEP_COLOURS, strict=True))
        above, below = np.zeros(len(shares)), np.zeros(len(shares))
        for step in STEPS:
            share = shares[step].to_numpy() * 100
            start = np.where(share > 0, above, below)
            right.barh(position, share, left=start, height=0.75, color=colours[step], linewidth=0)
            above += np.where(share > 0, share, 0)
            below += np.where(share < 0, share, 0)
        if len(shares) < len(table):
            right.set_title("Means over schedulers", loc="left")
        right.plot(shares["error"] * 100, position, "D", color="black", markersize=2.5)
        right.axvline(0, color="black", linewidth=0.6)
        right.set_yticks(position, [proper(text) for text in shares["row"]], fontsize=6)
        right.invert_yaxis()
        right.set_xlabel("simulated minus measured, % of measured")
        handles: list[Any] = [
            Line2D([], [], marker=style.marker, color=style.colour, ls="", ms=4, label=proper(name))
            for name, style in styles.items()
        ]
        handles += [Patch(facecolor=colour, label=step) for step, colour in colours.items()]
        handles.append(Line2D([], [], marker="D", color="black", ls="", ms=2.5, label="sum"))
        legend_below(figure, handles, columns=5)
        return save_figure(figure, stem, table, caption)


def draw_pairs(pairs: Sequence[Pair], stem: str | Path, caption: str) -> list[Path]:
    """Makespan ratio of each pair of schedulers in the order of the simulated ratio, the measured one
    beside it (as in Hunold, Casanova, Suter, "From simulation to experiment", 2011).
    """
    import pandas as pd
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    # Each pair is turned so that simulation sees its second as the slower one.
    rows = []
    for pair in pairs:
        turned = pair.simulated < 1
        rows.append(
            {
                "model": pair.model,
                "faster": pair.second if turned else pair.first,
                "slower": pair.first if turned else pair.second,
                "simulated_ratio": 1 / pair.simulated if turned else pair.simulated,
                "measured_ratio": 1 / pair.measured if turned else pair.measured,
                "separate": pair.separate,
                "agrees": pair.agrees,
            }
        )
    table = pd.DataFrame(rows).sort_values("simulated_ratio").reset_index(drop=True)
    wrong = table["separate"] & ~table["agrees"]
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 2.4)
        axes = figure.subplots()
        axes.axhspan(1 / 1.05, 1.05, color="#EEEEEE", linewidth=0)
        axes.axhline(1.0, color="black", linewidth=0.6)
        # Many pairs: small marks, and the line over them.
        size = 3.5 if len(table) <= MOST_MARKS else 1.4
        axes.plot(table.index, table["simulated_ratio"], color="black", linewidth=1.0, zorder=3)
        right = table[~wrong]
        axes.plot(right.index, right["measured_ratio"], "o", color=COLOURS[0], ms=size, mec="none")
        axes.plot(
            table.index[wrong],
            table["measured_ratio"][wrong],
            "X",
            color=COLOURS[5],
            ms=1.4 * size,
            mec="none",
        )
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("pairs of schedulers, in the order of the simulated ratio")
        axes.set_ylabel("makespan ratio")
        handles = [
            Line2D([], [], color="black", label="simulated"),
            Line2D([], [], color=COLOURS[0], marker="o", ls="", ms=3.5, label="measured"),
            Line2D(
                [],
                [],
                color=COLOURS[5],
                marker="X",
                ls="",
                ms=5,
                label="measured, other winner by more than 5%",
            ),
        ]
        legend_below(figure, handles, columns=3)
        return save_figure(figure, stem, table, caption)
