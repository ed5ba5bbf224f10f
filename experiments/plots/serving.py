"""Delays, goodput and success of serving runs against the load that is offered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.comparison.bootstrap import METHOD
from experiments.comparison.names import axis_label
from experiments.plots.looks import USUAL, Look, scheduler_handle
from experiments.plots.style import (
    caption,
    count_of,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
)

if TYPE_CHECKING:
    import pandas as pd

    from experiments.serving import ServingRuns

PANELS = (
    ("p50_delay_s", "p50 delay [s]", True),
    ("p99_delay_s", "p99 delay [s]", True),
    ("goodput_per_s", "answers in time [1/s]", False),
    ("success_rate", "share in time", False),
)


def draw_serving(
    runs: ServingRuns,
    means: pd.DataFrame,
    stem: Path,
    slo: float | None = None,
    look: Look = USUAL,
) -> list[Path]:
    """Four panels, a line for each scheduler, 95% intervals shaded; the objective dashed."""
    from matplotlib.ticker import StrMethodFormatter

    styles = look.styles(runs.schedulers)
    panels = list(PANELS)
    if "accuracy_of_all" in means and means["accuracy_of_all"].notna().any():
        panels[0] = ("accuracy_of_all", "accuracy, late or refused = 0", False)
    with figure_style():
        columns, beside = (2, 1) if look.narrow else (4, 2)
        tall = (6.2 if look.narrow else 3.9) + 0.15 * -(-len(runs.schedulers) // columns)
        figure = new_figure(look.width(), tall)
        axes = figure.subplots(4 // beside, beside, sharex=True).ravel()
        for axis, (name, label, log) in zip(axes, panels, strict=True):
            _panel(axis, runs, means, styles, name)
            axis.set_ylabel(label)
            if log:
                axis.set_yscale("log")
                axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
                if slo is not None:
                    axis.axhline(slo, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
                    axis.annotate(
                        "objective", (0.01, slo), xycoords=("axes fraction", "data"), fontsize=6.5,
                        va="bottom",
                    )  # fmt: skip
            else:
                axis.set_ylim(bottom=0)
        if panels[2][0] == "goodput_per_s" and runs.x.endswith("rate"):
            # Streams beside the one whose rate varies are offered, too.
            offered = means.groupby("x")["offered_per_s"].mean()
            axes[2].plot(
                offered.index, offered, color="black", linewidth=0.6, linestyle=":", zorder=1
            )
            axes[2].set_xlim(left=0)
        if runs.x.endswith("bandwidth"):
            axes[0].set_xscale("log")  # the others share it
        for axis in axes[-beside:]:
            axis.set_xlabel("offered load [1/s]" if runs.x.endswith("rate") else axis_label(runs.x))
        legend_below(
            figure, [scheduler_handle(name, styles[name]) for name in runs.schedulers], columns
        )
        text = caption(
            "Delays and answers in time"
            + (" against the offered load" if runs.x.endswith("rate") else ""),
            f"{count_of(means['runs'].tolist(), 'seed')} a point",
            f"Means; shaded: 95% interval ({METHOD})",
            "Unfinished requests count with their age, refused ones as not in time.",
            f"{'; '.join(runs.labels)}." if runs.labels else "",
        )
        return save_figure(figure, stem, means, text)


def _panel(
    axis: Any, runs: ServingRuns, means: pd.DataFrame, styles: dict[str, Any], name: str
) -> None:
    for scheduler in runs.schedulers:
        own = means[means["scheduler"] == scheduler]
        if name not in own or own[name].isna().all():
            continue
        style = styles[scheduler]
        x = own["x"].to_numpy(dtype=np.float64)
        if f"{name}_low" in own and own[f"{name}_low"].notna().all():
            axis.fill_between(
                x,
                own[f"{name}_low"],
                own[f"{name}_high"],
                color=style.colour,
                alpha=0.15,
                linewidth=0,
            )
        axis.plot(
            x, own[name], color=style.colour, linestyle=style.dash, marker=style.marker,
            linewidth=1.2 * style.weight, markersize=4 * style.weight, markeredgecolor="black",
            markeredgewidth=0.3, zorder=2.5 if style.own else 2,
        )  # fmt: skip
