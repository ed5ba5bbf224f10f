"""Latency and accuracy of early exit against the bandwidth of the terminal's link."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.plots.style import (
    COLOURS,
    DASHES,
    MARKERS,
    TWO_COLUMNS,
    figure_style,
    new_figure,
    save_figure,
)

if TYPE_CHECKING:
    from experiments.studies.early_exit.command import AtBandwidth

LINES = {
    "terminal": "all on the terminal",
    "edge": "all on the edge",
    "cloud": "all in the cloud",
    "joint": "cuts and exits apart, best of all",
    "chosen": "chosen",
}


def draw_early_exit(
    rows: Sequence[AtBandwidth], search: str, labels: str, stem: Path
) -> list[Path]:
    """Two panels over the bandwidth, a line for each way; 95% of the draws shaded."""
    import pandas as pd

    x = [row.bytes_per_s * 8e-6 for row in rows]
    data = [
        {
            "bandwidth_mbit_per_s": mbit,
            "way": name,
            "latency_s": (one := row.found[name]).evaluation.latency_s,
            "latency_low_s": row.latency[name].low if name in row.latency else None,
            "latency_high_s": row.latency[name].high if name in row.latency else None,
            "simulated_s": row.alone[name].mean if name in row.alone else None,
            "accuracy": one.evaluation.accuracy,
        }
        for mbit, row in zip(x, rows, strict=True)
        for name in LINES
    ]
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 2.9)
        left, right = figure.subplots(1, 2)
        for number, (name, label) in enumerate(LINES.items()):
            colour, dash, marker = COLOURS[number], DASHES[number], MARKERS[number]
            if name in rows[0].latency:
                low = [row.latency[name].low for row in rows]
                high = [row.latency[name].high for row in rows]
                left.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
            latency = [row.found[name].evaluation.latency_s for row in rows]
            accuracy = [row.found[name].evaluation.accuracy for row in rows]
            size = 7 if name == "joint" else 4
            for axis, values in ((left, latency), (right, accuracy)):
                axis.plot(
                    x, values, color=colour, linestyle=dash, marker=marker, markersize=size,
                    markeredgecolor="black", markeredgewidth=0.3,
                    label=f"{label} ({search})" if name == "chosen" else label,
                )  # fmt: skip
        right.fill_between(
            x,
            [row.accuracy[0] for row in rows],
            [row.accuracy[1] for row in rows],
            color=COLOURS[list(LINES).index("chosen")],
            alpha=0.15,
            linewidth=0,
        )
        for axis in (left, right):
            axis.set_xscale("log")
            axis.set_xticks(x, [f"{value:g}" for value in x])
            axis.minorticks_off()
            axis.set_xlabel("bandwidth of the terminal's link (Mbit/s)")
        left.set_yscale("log")
        left.set_ylabel("latency, idle system (s)")
        right.set_ylabel("accuracy on held-out digits")
        right.yaxis.set_major_formatter(lambda value, _: f"{value:.2%}")
        handles, names = left.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=3)
        caption = (
            f"Expected latency of one request on an idle system and accuracy. {labels}. Shaded: 95% of the "
            "draws of the predictors' errors (left), least and most of the training seeds (right)."
        )
        return save_figure(figure, stem, pd.DataFrame(data), caption)
