"""Time of a model alone on each device, with its interval: a panel for each model and batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.plots.style import (
    COLOURS,
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    shorten,
)

if TYPE_CHECKING:
    from experiments.studies.devices.table import DeviceTimes

STYLES = {
    "measured": (COLOURS[0], "o"),
    "public": (COLOURS[1], "s"),
    "datasheet": (COLOURS[3], "D"),
}
"""Colour and marker by label; what a user's own label may be besides is grey."""
_OTHER = (COLOURS[7], "X")
_PER_ROW = 2


def draw_devices(found: Sequence[DeviceTimes], stem: Path) -> list[Path]:
    """A row for each device, the fastest on top of each panel; log time axes.

    Returns:
        Paths of .pdf, .png, .csv and the caption's .txt.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    from experiments.studies.devices.table import frame_of

    columns = min(_PER_ROW, len(found))
    lines = [found[start : start + columns] for start in range(0, len(found), columns)]
    heights = [0.55 + 0.13 * max(len(one.frame) for one in line) for line in lines]
    with figure_style():
        figure = new_figure(TWO_COLUMNS, sum(heights) + 0.3)
        panels = figure.subplots(len(lines), columns, squeeze=False, height_ratios=heights)
        for panel in panels.ravel()[len(found) :]:
            panel.set_axis_off()
        for panel, one in zip(panels.ravel(), found, strict=False):
            for row, device in enumerate(one.frame.to_dict("records")):
                colour, marker = STYLES.get(str(device["label"]), _OTHER)
                if device["low_s"] == device["low_s"]:
                    ends = [1e3 * device["low_s"], 1e3 * device["high_s"]]
                    panel.plot(ends, [row, row], color=colour, linewidth=1.2)
                panel.plot(
                    1e3 * device["time_s"], row, marker, color=colour, markersize=3.6,
                    markeredgecolor="black", markeredgewidth=0.3,
                    markerfacecolor=colour if device["low_s"] == device["low_s"] else "white",
                )  # fmt: skip
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.xaxis.set_minor_formatter(NullFormatter())
            names = [shorten(str(name), 30) for name in one.frame["device"]]
            panel.set_yticks(range(len(names)), names)
            panel.set_ylim(len(names) - 0.4, -0.6)
            panel.tick_params(axis="y", length=0, labelsize=6)
            panel.grid(axis="x", linewidth=0.3, color="#DDDDDD")
            panel.set_axisbelow(True)
            panel.set_title(f"{one.model}, batch {one.batch}")
            panel.set_xlabel("time of one job [ms]")
        labels = dict.fromkeys(label for one in found for label in one.frame["label"])
        handles = [
            Line2D([], [], color=colour, marker=marker, markersize=3.6, linewidth=1.2, label=label)
            for label in labels
            for colour, marker in [STYLES.get(str(label), _OTHER)]
        ]
        legend_below(figure, handles, 3)
        draws = max(one.draws for one in found)
        caption = (
            "Time of one job of the model alone on each device, at predicted operator times. "
            + (
                f"Lines: 2.5 to 97.5 percentiles of {draws} draws of predictor error and noise, the same draws for "
                "all devices. Hollow: nobody knows the error of that profile."
                if draws
                else "No draws, no intervals."
            )
        )
        return save_figure(figure, stem, frame_of(found), caption)
