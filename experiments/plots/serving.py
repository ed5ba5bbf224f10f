"""Delays, goodput and success of serving runs against the load that is offered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.plots.style import (
    TWO_COLUMNS,
    figure_style,
    new_figure,
    save_figure,
    scheduler_handle,
    scheduler_styles,
    with_own_markers,
)

if TYPE_CHECKING:
    import pandas as pd

    from experiments.serving import ServingRuns

PANELS = (
    ("p50_delay_s", "p50 delay (s)", True),
    ("p99_delay_s", "p99 delay (s)", True),
    ("goodput_per_s", "answers in time (/s)", False),
    ("success_rate", "share in time", False),
)


def draw_serving(
    runs: ServingRuns, means: pd.DataFrame, stem: Path, slo: float | None = None
) -> list[Path]:
    """Four panels, a line for each scheduler, 95% intervals shaded; the objective dashed."""
    found = scheduler_styles(runs.schedulers)
    styles = with_own_markers({name: found[name] for name in runs.schedulers})
    panels = list(PANELS)
    if "accuracy_of_all" in means and means["accuracy_of_all"].notna().any():
        panels[0] = ("accuracy_of_all", "accuracy, late or refused = 0", False)
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 3.9 + 0.15 * -(-len(runs.schedulers) // 3))
        axes = figure.subplots(2, 2, sharex=True).ravel()
        for axis, (name, label, log) in zip(axes, panels, strict=True):
            _panel(axis, runs, means, styles, name)
            axis.set_ylabel(label)
            if log:
                axis.set_yscale("log")
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
        for axis in axes[2:]:
            axis.set_xlabel(_axis_label(runs.x))
        figure.legend(
            handles=[scheduler_handle(name, styles[name]) for name in runs.schedulers],
            loc="outside lower center",
            ncols=3,
        )
        caption = (
            f"Means over the seeds with 95% intervals; unfinished requests count with their age; "
            f"refused ones as not in time. {'; '.join(runs.labels)}."
        )
        return save_figure(figure, stem, means, caption)


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
            x, own[name], color=style.colour, linestyle=style.dash, marker=style.marker, markersize=4,
            markeredgecolor="black", markeredgewidth=0.3,
        )  # fmt: skip


def _axis_label(key: str) -> str:
    name = key.rpartition(".")[2]
    return {
        "rate": "offered load (requests/s)",
        "latency": "latency of the link (s)",
        "bandwidth": "bandwidth of the link (Mbit/s)",
    }.get(name, key)
