"""Worst cases of schedulers, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.plots.style import (
    ONE_COLUMN,
    TWO_COLUMNS,
    figure_style,
    new_figure,
    save_figure,
    shorten,
    text_colour,
)


def draw_adversary(
    results: Sequence[Mapping[str, Any]], labels: Sequence[str], stem: str | Path
) -> list[Path]:
    """A heatmap: by what factor each scheduler (row) loses to each other (column) at the worst.

    Args:
        results: documents of ``result.json``, one for each ordered pair.
        labels: the schedulers.
        stem: of the files.
    """
    import pandas as pd
    from matplotlib.colors import LogNorm, to_hex

    ratios = np.full((len(labels), len(labels)), np.nan)
    for result in results:
        ratios[labels.index(result["loser"]), labels.index(result["winner"])] = result["ratio"]
    side = min(TWO_COLUMNS, max(ONE_COLUMN, 1.6 + 0.5 * len(labels)))
    with figure_style():
        figure = new_figure(side, max(2.0, side * 0.75))
        axes = figure.add_subplot()
        image = axes.imshow(
            np.ma.masked_invalid(ratios),
            cmap="cividis_r",
            norm=LogNorm(1.0, max(1.1, np.nanmax(ratios))),
        )
        for (row, column), ratio in np.ndenumerate(ratios):
            if not np.isnan(ratio):
                colour = to_hex(tuple(image.cmap(image.norm(ratio))))
                axes.text(
                    column, row, f"{ratio:.2f}", ha="center", va="center", fontsize=7,
                    color=text_colour(colour),
                )  # fmt: skip
        names = [shorten(label, 24) for label in labels]
        axes.set_xticks(range(len(labels)), names, rotation=35, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(labels)), names)
        axes.set_xlabel("beside")
        axes.set_ylabel("loses")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.set_label("makespan ratio at the worst")
        bar.ax.minorticks_off()
        ticks = [t for t in (1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100) if t <= np.nanmax(ratios)]
        bar.set_ticks(ticks, labels=[f"{t:g}" for t in ticks])
        settings = results[0]["settings"]
        caption = (
            "Largest ratio of makespans found for each ordered pair: the row's scheduler over the "
            f"column's. {settings['restarts']} searches of {settings['iterations']} instances each "
            f"(simulated annealing), {results[0]['tasks']} tasks on {results[0]['devices']} devices; "
            f"{results[0]['simulation']['movement']}, contention {results[0]['simulation']['contention']}. "
            "Each is a lower bound on the worst case."
        )
        rows = [
            {key: result[key] for key in ("loser", "winner", "ratio", "tasks", "devices")}
            for result in results
        ]
        return save_figure(figure, stem, pd.DataFrame(rows), caption)
