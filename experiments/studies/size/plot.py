"""What a fleet costs and how long its requests wait: the frontier, the objective, the cheapest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.plots.style import COLOURS, ONE_COLUMN, figure_style, new_figure, save_figure

if TYPE_CHECKING:
    from experiments.studies.size.command import Fleet


def draw_sizing(
    tried: Sequence[Fleet],
    frontier: Sequence[Fleet],
    objective: str,
    limit: float,
    unit: str,
    stem: Path,
) -> list[Path]:
    """A point for each fleet with its interval, the frontier joined, the objective dashed."""
    import pandas as pd

    is_share = objective == "success"
    shown = [f for f in tried if np.isfinite(f.upper(objective))]
    with figure_style():
        figure = new_figure(ONE_COLUMN, 2.6)
        axis = figure.subplots()
        for fleets, colour, marker, label in (
            ([f for f in shown if not f.meets({objective: limit})], COLOURS[5], "X", "not enough"),
            ([f for f in shown if f.meets({objective: limit})], COLOURS[0], "o", "meets it"),
        ):
            means = [float(np.mean(f.figures[objective])) for f in fleets]
            ends = [abs(f.upper(objective) - m) for f, m in zip(fleets, means, strict=True)]
            none = [0.0] * len(ends)
            axis.errorbar(
                [f.price for f in fleets], means,
                yerr=np.array([ends, none] if is_share else [none, ends]),
                fmt=marker, color=colour, markersize=4, linewidth=0.8, capsize=2, label=label,
            )  # fmt: skip
        line = [f for f in frontier if f in shown]
        axis.plot(
            [f.price for f in line],
            [float(np.mean(f.figures[objective])) for f in line],
            color="black",
            linewidth=0.7,
            zorder=1,
            label="frontier",
        )
        axis.axhline(limit, color="black", linewidth=0.8, linestyle=(0, (4, 2)), label="objective")
        axis.set_xlabel({"per hour": "price per hour", "W": "busy power (W)"}.get(unit, unit))
        axis.set_ylabel("share in time" if is_share else f"{objective} delay (s)")
        values = [float(np.mean(f.figures[objective])) for f in shown]
        if not is_share and values and max(values) > 10 * limit:
            axis.set_yscale("log")
        figure.legend(loc="outside lower center", ncols=2)
        data = pd.DataFrame(
            [
                {**f.counts, "price": f.price, objective: float(np.mean(f.figures[objective])),
                 "upper": f.upper(objective), "meets": f.meets({objective: limit})}
                for f in tried
            ]
        )  # fmt: skip
        unserved = len(tried) - len(shown)
        caption = "Means over the seeds; whiskers to the end of the 95% interval that counts." + (
            f" {unserved} fleets that do not serve everybody are left out." if unserved else ""
        )
        return save_figure(figure, stem, data, caption)
