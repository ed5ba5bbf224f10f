"""From simulated to measured makespan, step by step: one panel for all cases and one for each model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.plots.style import TWO_COLUMNS, figure_style, new_figure, save_figure
from experiments.validation.cases import Case
from experiments.validation.waterfall import STEPS, mean_steps

STEP_COLOURS = ("#5E3C99", "#B2ABD2", "#FDB863", "#E66101", "#CCCCCC", "#666666")
"""Unlike those of schedulers."""
_COLUMNS = 3


def draw_waterfall(cases: Sequence[Case], stem: str | Path, caption: str) -> list[Path]:
    """Floating bars that lead from the mean simulated to the measured makespan.

    Args:
        cases: of all models.
        stem: path of the files without suffix.
        caption: written beside them.
    """
    import pandas as pd

    groups = {"all models": list(cases)}
    for model in dict.fromkeys(case.model for case in cases):
        groups[model] = [case for case in cases if case.model == model]
    if len(groups) == 2:
        del groups["all models"]  # the one model says the same
    rows = []
    for name, mine in groups.items():
        steps = mean_steps([case.steps for case in mine], [case.measured_s for case in mine])
        rows.append(
            {
                "group": name,
                "cases": len(mine),
                "simulated": 1.0 - sum(steps.values()),
                **steps,
                "measured": 1.0,
            }
        )
    table = pd.DataFrame(rows)
    shown = [step for step in STEPS if (table[step] != 0).any()]
    levels = _levels(table[["simulated", *STEPS]].to_numpy())
    low, high = float(levels.min()) * 100, float(levels.max()) * 100
    margin = max(1.0, 0.12 * (high - low))
    columns = min(_COLUMNS, len(table))
    lines = -(-len(table) // columns)
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 0.6 + 1.35 * lines)
        panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for panel in panels.flat[len(table) :]:
            panel.set_visible(False)
        names = ["simulated", *shown, "measured"]
        for number, (panel, row) in enumerate(zip(panels.flat, rows, strict=False)):
            panel.axhline(100, color="black", linewidth=0.4, linestyle=(0, (4, 2)))
            level = float(row["simulated"]) * 100  # type: ignore[arg-type]
            panel.plot([-0.4, 0.4], [level, level], color="black", linewidth=1.6)
            for place, step in enumerate(shown, 1):
                height = float(row[step]) * 100  # type: ignore[arg-type]
                panel.plot([place - 1, place], [level, level], color="black", linewidth=0.4)
                panel.bar(
                    place, height, bottom=level, width=0.8, color=STEP_COLOURS[STEPS.index(step)]
                )
                top = max(level, level + height)
                panel.annotate(
                    f"{height:+.1f}", (place, top), (0, 1.5), textcoords="offset points",
                    ha="center", va="bottom", fontsize=5.5, bbox={"color": "white", "pad": 0.2},
                )  # fmt: skip
                level += height
            panel.plot([len(shown), len(shown) + 1], [level, level], color="black", linewidth=0.4)
            place = len(shown) + 1
            panel.plot([place - 0.4, place + 0.4], [level, level], color="black", linewidth=1.6)
            panel.set_title(f"{row['group']} (n = {row['cases']})", loc="left", fontsize=7)
            panel.set_ylim(low - margin, high + 1.8 * margin)
            panel.set_xticks(range(len(names)), names, rotation=50, ha="right", fontsize=6)
            panel.tick_params(axis="x", length=0, labelbottom=number + columns >= len(table))
        figure.supylabel("% of the measured makespan", fontsize=7.5)
        return save_figure(figure, stem, table, caption)


def _levels(parts: np.ndarray) -> np.ndarray:
    """Ends of the bars: running sums of each row."""
    levels: np.ndarray = np.cumsum(parts, axis=1)
    return levels
