"""What every figure shares: size, fonts, files, captions, colours of kinds.

Colours are Okabe and Ito's, distinguishable with the common forms of colour blindness; how schedulers look is
:mod:`experiments.plots.looks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.runs.atomic import replacing, write_text
from simulator.support.csv_text import csv_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ONE_COLUMN = 3.33
"""Inches: one column of a two-column page."""
TWO_COLUMNS = 7.0

COLOURS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # green
    "#CC79A7",  # pink
    "#56B4E9",  # sky
    "#D55E00",  # vermilion
    "#F0E442",  # yellow
    "#999999",  # grey
)
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "++", "ooo")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (7, 2, 2, 2)))
MARKERS = "osD^vP*X"
OTHER = "#BBBBBB"
"""Operator kinds outside the most frequent; schedulers outside the best."""
BELOW = "Below 1: noise made operators faster than the bound's estimates."
OWN = "own"
"""Marks legend entries that are set in bold: the user's own schedulers."""


def log_ratio_axis(axis: Any, last: float) -> None:
    """Ticks of an axis of ratios, already logarithmic, in plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    axis.set_major_locator(FixedLocator(ratio_ticks(last)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def kind_colours(seconds: Mapping[str, float]) -> dict[str, str]:
    """Colours of the operator kinds that take longest; what is not in the result is "other".

    Args:
        seconds: time spent in each kind.
    """
    order = sorted(seconds, key=lambda kind: (-seconds[kind], kind))
    # The last colour is a grey: too close to what stands for "other" and for transfers.
    return dict(zip(order, COLOURS[:-1], strict=False))


@contextmanager
def figure_style() -> Iterator[None]:
    """Fonts, lines and embedded TrueType for whatever is drawn and saved inside."""
    import matplotlib

    settings: dict[Any, Any] = {
        "font.size": 7.5,
        "axes.titlesize": 8,
        "axes.labelsize": 7.5,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "legend.fontsize": 7,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "lines.linewidth": 1.2,
        "hatch.linewidth": 0.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.fonttype": "none",
        "figure.dpi": 200,
        "savefig.dpi": 200,
    }
    with matplotlib.rc_context(settings):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches on the Agg canvas; no display and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(
    figure: Figure, stem: str | Path, data: pd.DataFrame, caption: str | None = None
) -> list[Path]:
    """Write ``stem``.pdf, .png, .csv (what is drawn) and, given a caption, .txt.

    Each file whole or not at all; nothing in them depends on the date. The figure is laid out once
    and keeps that layout.

    Returns:
        Their paths.
    """
    stem = Path(stem)
    paths = []
    if (engine := figure.get_layout_engine()) is not None:
        # Else Matplotlib lays it out twice for each file, and draws it once more to do so.
        engine.execute(figure)
        figure.set_layout_engine(None)
    for suffix in (".pdf", ".png"):
        metadata = {"CreationDate": None} if suffix == ".pdf" else {"Software": None}
        with replacing(with_suffix(stem, suffix)) as temporary:
            figure.savefig(temporary, metadata=metadata)
        paths.append(with_suffix(stem, suffix))
    paths.append(
        write_text(with_suffix(stem, ".csv"), csv_text(data.columns, data.itertuples(index=False)))
    )
    if caption is not None:
        paths.append(write_text(with_suffix(stem, ".txt"), caption.rstrip() + "\n"))
    return paths


def with_suffix(stem: Path, suffix: str) -> Path:
    """``stem`` with ``suffix`` appended: ``fig_v1.5`` keeps its ``.5``."""
    return stem.with_name(stem.name + suffix)


def time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Factor and name of the unit in which the largest of these times reads best."""
    largest = max((value for value in seconds if value == value), default=0.0)
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if largest * factor >= 1.0:
            return factor, unit
    return (1e6, "us") if largest > 0 else (1.0, "s")


def count_of(counts: Sequence[int], noun: str) -> str:
    """``30 seeds``, ``1 seed``, ``6 to 8 seeds``: for captions."""
    return f"{range_of(counts)} {noun}" + ("" if max(counts) == 1 else "s")


def range_of(counts: Iterable[int]) -> str:
    """``30``, ``6 to 8``: for captions."""
    counts = list(counts)
    least, most = min(counts), max(counts)
    return f"{most}" if least == most else f"{least} to {most}"


def caption(title: str, n: str, statistic: str, *notes: str) -> str:
    """A caption as every figure has it: what is shown, n, the statistic, then what a reader must know.

    Args:
        title: without a stop.
        n: such as ``90 instances``.
        statistic: without a stop; empty where single values are drawn.
        notes: whole sentences, empty ones are left out.
    """
    parts = [f"{title}.", f"n = {n}.", f"{statistic}." if statistic else "", *notes]
    return " ".join(part for part in parts if part)


def text_colour(background: str) -> str:
    """Black or white, whichever is read better on a colour ``#rrggbb`` (WCAG luminance)."""
    channels = [int(background[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if luminance > 0.179 else "white"


def shorten(text: str, length: int) -> str:
    """``text``, its end replaced by an ellipsis where it is longer than ``length``."""
    return text if len(text) <= length else text[: max(length - 1, 1)] + "…"


def legend_columns(handles: Sequence[Any], most: int, width: float) -> int:
    """Columns in which a legend of 7 points fits into so many inches; filled one after the other."""
    lengths = [len(str(handle.get_label())) for handle in handles]
    for columns in range(min(most, len(handles)), 1, -1):
        # Matplotlib fills columns in this way.
        longest = [max(part) for part in np.array_split(lengths, columns)]
        # Inches of a character, and of a handle with its gaps.
        if sum(0.054 * length + 0.45 for length in longest) <= width:
            return columns
    return 1


def legend_below(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """A legend under all panels that takes space of its own, in at most ``columns`` columns."""
    if handles:
        columns = legend_columns(handles, columns, figure.get_figwidth())
        legend = figure.legend(
            handles=list(handles),
            loc="outside lower center",
            ncols=columns,
            handlelength=1.8,
            columnspacing=1.2,
        )
        for text, handle in zip(legend.get_texts(), handles, strict=True):
            if handle.get_gid() == OWN:
                text.set_fontweight("bold")


def ratio_ticks(last: float) -> list[float]:
    """Ticks of a logarithmic axis of ratios from 1 to ``last``."""
    for step in (
        [1.0, 1.01, 1.02, 1.03, 1.04, 1.05],
        [1.0, 1.05, 1.1, 1.15, 1.2],
        [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        [1.0, 1.2, 1.4, 1.6, 1.8, 2.0],
        [1.0, 1.5, 2.0, 2.5, 3.0, 4.0],
        [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0],
    ):
        if last <= step[-1]:
            return [tick for tick in step if tick <= last * 1.03]
    return [
        tick for tick in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0) if tick <= last * 1.03
    ]
