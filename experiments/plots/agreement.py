"""How well simulation agrees with the machine, at a glance: parity of makespans, and the share of cases within an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.plots.style import (
    COLOURS,
    MARKERS,
    TWO_COLUMNS,
    caption,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
)

if TYPE_CHECKING:
    import pandas as pd

BAND = 0.10
"""Relative error that the band and the tick mark."""
_MOST = 0.40
"""Error at which the axis ends; what is beyond is said in the caption."""


def draw_agreement(cases: pd.DataFrame, stem: str | Path) -> list[Path]:
    """Left: simulated against measured makespan. Right: share of cases that are off by no more than an error.

    Args:
        cases: ``hardware``, ``simulated_s``, ``measured_s`` and ``repeatability`` (how far two halves of the real runs
            are apart), one row a case; grey in the figure where ``reached`` is False.
        stem: of the files.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter

    groups = list(cases.groupby("hardware", sort=False))
    error = (cases["simulated_s"] / cases["measured_s"] - 1).abs()
    # A grey and a yellow say less than the others: not for a headline.
    looks = {
        name: (COLOURS[number] if own["reached"].all() else "#999999", MARKERS[number])
        for number, (name, own) in enumerate(groups)
    }
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 3.7)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.1])
        both = cases[["measured_s", "simulated_s"]].to_numpy() * 1e3
        ends = np.array([both.min() * 0.8, both.max() * 1.25])
        left.fill_between(ends, ends / (1 + BAND), ends * (1 + BAND), color="#DDDDDD", linewidth=0)
        left.plot(ends, ends, color="black", linewidth=0.6)
        handles: list[Any] = []
        for order, (name, own) in enumerate(reversed(groups)):
            colour, marker = looks[name]
            left.plot(
                own["measured_s"] * 1e3, own["simulated_s"] * 1e3, marker, color=colour, markersize=2.6,
                markeredgewidth=0, alpha=0.7, zorder=3 + order,
            )  # fmt: skip
            off = np.sort(error[own.index])
            right.step(
                off, np.arange(1, len(off) + 1) / len(off), where="post", color=colour, linewidth=1.4,
                zorder=3 + order,
            )  # fmt: skip
            handles.insert(0, Line2D(
                [], [], color=colour, marker=marker, markersize=3.5, markeredgewidth=0, linewidth=1.4,
                label=f"{name}: {off.mean():.1%} off",
            ))  # fmt: skip
        again = np.sort(cases.loc[cases["reached"], "repeatability"])
        right.step(
            again, np.arange(1, len(again) + 1) / len(again), where="post", color="black", linewidth=0.8
        )  # fmt: skip
        left.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
        for axis in (left.xaxis, left.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0,)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        left.set_xlabel("measured makespan [ms]")
        left.set_ylabel("simulated makespan [ms]")
        right.axvline(BAND, color="#BBBBBB", linewidth=0.8)
        right.set(xlim=(0, _MOST), ylim=(0, 1.0))
        right.set_xticks(np.arange(0, _MOST + 0.05, 0.1))
        for axis in (right.xaxis, right.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        right.grid(color="#EEEEEE", linewidth=0.5)
        right.set_axisbelow(True)
        right.set_xlabel("error of the simulated makespan, at most")
        right.set_ylabel("share of cases")
        handles += [
            Line2D([], [], color="black", linewidth=0.8, label="the processors against themselves"),
            Patch(facecolor="#DDDDDD", label=f"within {BAND:.0%}"),
        ]
        legend_below(figure, handles, 2)
        text = caption(
            "Simulated against measured makespan (left), and share of cases within an error (right)",
            ", ".join(f"{len(own)} ({name})" for name, own in groups)
            + " cases of a model under a scheduler",
            "Legend: mean absolute error; black: difference of two halves of the real runs, without the grey ones",
            f"{(error > _MOST).mean():.1%} of the cases are off by more than {_MOST:.0%}.",
        )
        return save_figure(figure, stem, cases, text)
