"""Measured and simulated serving against the offered load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.comparison.names import proper
from experiments.plots.looks import scheduler_styles
from experiments.plots.style import (
    TWO_COLUMNS,
    figure_style,
    new_figure,
    save_figure,
)
from experiments.serving_validation.outcome import BOUNDS, ServingCase, case_frame

PANELS = (
    ("mean_delay_s", "mean delay [s]"),
    ("p99_delay_s", "p99 delay [s]"),
    ("served_per_s", "answers [1/s]"),
)


def draw_serving_validation(cases: Sequence[ServingCase], stem: Path, caption: str) -> list[Path]:
    """Three figures against the load, measured (filled, solid) and simulated (hollow, dashed), and the
    error of the mean delay with its bound shaded; dotted that of who knew how fast the machine was from moment to moment.
    """
    from matplotlib.lines import Line2D

    table = case_frame(cases).sort_values(["scheduler", "load"])
    names = list(dict.fromkeys(case.scheduler for case in cases))
    styles = scheduler_styles(names)
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 4.2)
        axes = figure.subplots(2, 2, sharex=True).ravel()
        for axis, (name, label) in zip(axes, PANELS, strict=False):
            for scheduler in names:
                own = table[table["scheduler"] == scheduler]
                style = styles[scheduler]
                shared: dict[str, Any] = {
                    "color": style.colour,
                    "marker": style.marker,
                    "markersize": 4.5,
                }
                axis.plot(own["load"], own[f"{name}_measured"], linestyle="-", **shared)
                axis.plot(
                    own["load"],
                    own[f"{name}_simulated"],
                    linestyle=(0, (3, 2)),
                    markerfacecolor="white",
                    **shared,
                )
            axis.set_ylabel(label)
            if name == "served_per_s":
                axis.set_ylim(bottom=0)
            else:
                axis.set_yscale("log")
        bound = 100 * BOUNDS["mean_delay_s"]
        axes[3].axhspan(-bound, bound, color="#EEEEEE", linewidth=0)
        axes[3].axhline(0.0, color="black", linewidth=0.6)
        for scheduler in names:
            own = table[table["scheduler"] == scheduler]
            style = styles[scheduler]
            axes[3].plot(
                own["load"],
                100 * own["mean_delay_s_error"],
                color=style.colour,
                marker=style.marker,
                markersize=4.5,
                linestyle="-",
            )
            told = own["mean_delay_s_own_phases"].astype(float)
            axes[3].plot(
                own["load"],
                100 * (told / own["mean_delay_s_measured"] - 1),
                color=style.colour,
                linestyle=":",
            )
        axes[3].set_ylabel("error of mean delay [%]")
        for axis in axes[2:]:
            axis.set_xlabel("offered load / capacity one at a time")
        handles = [
            Line2D(
                [],
                [],
                color=styles[n].colour,
                marker=styles[n].marker,
                markersize=4.5,
                label=proper(n),
            )
            for n in names
        ]
        grey: dict[str, Any] = {"color": "#555555", "marker": "o", "markersize": 4.5}
        handles.append(Line2D([], [], linestyle="-", label="measured", **grey))
        handles.append(
            Line2D(
                [], [], linestyle=(0, (3, 2)), markerfacecolor="white", label="simulated", **grey
            )
        )
        if table["mean_delay_s_own_phases"].notna().any():
            handles.append(Line2D([], [], linestyle=":", color="#555555", label="told the phases"))
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))
        return save_figure(figure, stem, table, caption)
