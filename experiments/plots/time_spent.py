"""Bars of what each device's slots' time went to: executing, or idle and why (:mod:`simulator.analysis.idle`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.plots.style import shorten, text_colour
from simulator.analysis.idle import CAUSES as IDLE
from simulator.analysis.idle import idle_seconds
from simulator.model.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MANY = 12
"""Devices up to which each has a bar of its idle time; more share one."""
BUSY = "executing"
CAUSES = {
    BUSY: ("#4D4D4D", ""),
    "no_work": ("#FFFFFF", ""),
    "data": ("#CFE3F1", "////"),
    "link": ("#F7DDAE", "\\\\\\\\"),
    "decision": ("#F4C9DD", "xxxx"),
    "memory": ("#C6E9DC", "...."),
    "overhead": ("#FFFFFF", "----"),
    "down": ("#FFFFFF", "++++"),
}
"""Colour and hatch of what a slot's time goes to, in the order of the bars."""


def time_spent(trace: Trace) -> pd.DataFrame:
    """Seconds of every device's slots by what they went to: :data:`CAUSES`, a row for each device.

    Of many devices one row for all.
    """
    import pandas as pd

    runs = trace.executions
    seconds = np.minimum(runs["finish"], trace.end) - np.minimum(runs["start"], trace.end)
    busy = np.bincount(runs["device"], weights=seconds, minlength=len(trace.devices))
    table = pd.DataFrame(idle_seconds(trace), index=trace.devices, columns=list(IDLE))
    table[BUSY] = busy
    if len(table) > _MANY:
        table = table.sum().to_frame(f"all {len(table)} devices").T
    return table[list(CAUSES)]


def draw_spent(axes: Axes, table: pd.DataFrame) -> None:
    """A stacked bar for each device, in percent, with the numbers where there is room."""
    whole = table.sum(axis=1).to_numpy()
    left = np.zeros(len(table))
    for cause, (colour, hatch) in CAUSES.items():
        share = np.divide(
            100 * table[cause].to_numpy(), whole, out=np.zeros(len(table)), where=whole > 0
        )
        axes.barh(
            np.arange(len(table)),
            share,
            left=left,
            height=0.78,
            color=colour,
            hatch=hatch,
            edgecolor="black",
            linewidth=0.4,
        )
        for row in np.flatnonzero(share >= 4.5).tolist():
            axes.text(
                left[row] + share[row] / 2,
                row,
                f"{share[row]:.0f}",
                ha="center",
                va="center",
                fontsize=6,
                color=text_colour(colour),
                # Letters on hatches need ground of their own.
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.8} if hatch else None,
            )
        left += share
    axes.set_xlim(0, 100)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_yticks(range(len(table)), [shorten(str(name), 22) for name in table.index])
    axes.tick_params(axis="y", length=0)


def said(cause: str) -> str:
    """A cause as the legend says it."""
    return cause if cause == BUSY else f"idle: {cause.replace('_', ' ')}"


def spent_rows(table: pd.DataFrame, label: str) -> pd.DataFrame:
    """Rows of the CSV: seconds of each device's slots by cause."""
    rows = table.rename_axis("row").reset_index()
    rows = rows.melt("row", var_name="kind", value_name="seconds")
    return rows.assign(what="time", panel=label)
