"""Figures of a calibration: what was measured, how well it repeats, how well it is predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cost_models.features import work
from cost_models.roofline import Roofline
from experiments.plots.style import (
    COLOURS,
    MARKERS,
    OTHER,
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 7
"""Kinds with a colour of their own; the others are grey."""
_PRODUCTS = ("conv2d", "linear", "addmm", "matmul", "bmm", "scaled_dot_product_attention")
PAUSE = 120.0
"""Seconds without a call of the reference operator that are a pause between two commands."""


def frequent_kinds(kinds: pd.Series) -> list[str]:
    """The most frequent kinds, which have colours of their own, the same in all figures of a report."""
    counts = kinds.value_counts()
    chosen = sorted(counts.index[:_SHOWN], key=lambda kind: (-counts[kind], kind))
    # Those that reach high rates lie upon one another: they get the first colours, which differ most.
    return sorted(chosen, key=lambda kind: kind not in _PRODUCTS)


def _handles(kinds: Sequence[str], other: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    entries = [(kind, COLOURS[i], MARKERS[i]) for i, kind in enumerate(kinds)]
    entries += [("other kinds", OTHER, ".")] if other else []
    return [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=4, label=kind)
        for kind, colour, marker in entries
    ]


def _scatter(axes: Axes, frame: pd.DataFrame, x: str, y: str, kinds: Sequence[str]) -> None:
    """Points by kind; the rare kinds lie underneath."""
    rest = frame[~frame["kind"].isin(kinds)]
    style: dict[str, Any] = {"s": 5, "linewidths": 0, "alpha": 0.7, "rasterized": True}
    axes.scatter(rest[x], rest[y], color=OTHER, marker=".", **style)
    for i, kind in enumerate(kinds):
        part = frame[frame["kind"] == kind]
        axes.scatter(part[x], part[y], color=COLOURS[i], marker=MARKERS[i], **style)


def draw_coverage(
    table: pd.DataFrame, roofline: Roofline, stem: Path, kinds: Sequence[str]
) -> list[Path]:
    """What was measured: time against bytes, and the rate reached against arithmetic intensity.

    Args:
        table: of measurements.
        roofline: measured peaks.
        stem: path of the files without suffix.
        kinds: those with colours of their own.
    """
    import json

    columns = ("kind", "dtype", "inputs", "outputs", "attributes")
    works = [
        work(kind, dtype, inputs, outputs, json.loads(attributes))
        for kind, dtype, inputs, outputs, attributes in zip(
            *(table[c] for c in columns), strict=True
        )
    ]
    data = pd.DataFrame(works, columns=["flops", "bytes"])
    data.insert(0, "kind", table["kind"].to_numpy())
    data["seconds"] = table["seconds"].to_numpy()
    data["us"] = data["seconds"] * 1e6
    data["kB"] = data["bytes"] / 1e3
    data["intensity"] = data["flops"] / data["bytes"]
    data["gflops_per_s"] = data["flops"] / data["seconds"] / 1e9
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 3.2)
        left, right = figure.subplots(1, 2)
        _scatter(left, data[data["bytes"] > 0], "kB", "us", kinds)
        low = data["us"].min() / 8 * roofline.bandwidth / 1e9
        span = np.array([max(data["kB"].min(), low), data["kB"].max()])
        left.plot(span, span * 1e9 / roofline.bandwidth, color="black", lw=0.8, ls=(0, (5, 2)))
        left.annotate(
            f"{roofline.bandwidth / 1e9:.1f} GB/s",
            (span[0], span[0] * 1e9 / roofline.bandwidth),
            ha="left",
            va="top",
            xytext=(14, 8),
            textcoords="offset points",
        )
        left.set(xscale="log", yscale="log", xlabel="read and written (kB)", ylabel="time (us)")
        left.set_ylim(bottom=data["us"].min() / 10)
        products = data[data["flops"] > 0]
        _scatter(right, products, "intensity", "gflops_per_s", kinds)
        if len(products):
            x = np.geomspace(products["intensity"].min(), products["intensity"].max(), 100)
            peak = roofline.flops_per_s["float32"]
            roof = np.minimum(peak, x * roofline.bandwidth) / 1e9
            right.plot(x, roof, color="black", lw=0.8, ls=(0, (5, 2)))
            right.annotate(
                f"{peak / 1e9:.0f} GFLOP/s",
                (np.clip(peak / roofline.bandwidth, x[0], x[-1]), roof[-1]),
                ha="left" if peak / roofline.bandwidth < x[-1] else "right",
                va="bottom",
                xytext=(0, 3),
                textcoords="offset points",
            )
            right.set(xscale="log", yscale="log")
        right.set(xlabel="FLOP per byte", ylabel="rate reached (GFLOP/s)")
        legend_below(figure, _handles(kinds, data["kind"].nunique() > len(kinds)), 4)
        caption = (
            f"{len(data)} operators; dashed: rates measured with a large matrix product and a large copy, "
            "which what lies in a cache and some convolutions exceed."
        )
        return save_figure(figure, stem, data.drop(columns=["us", "kB"]), caption)


def draw_errors(summaries: Mapping[str, pd.DataFrame], stem: Path, most: int = 24) -> list[Path]:
    """Held-out error of each kind beside its A/A error.

    Args:
        summaries: for each way of holding out (``architecture``, ``fold``) the summary by kind.
        stem: path of the files without suffix.
        most: kinds shown, those with most rows first.
    """
    ways = [way for way in ("architecture", "fold") if len(summaries.get(way, ()))]
    names = list(dict.fromkeys(kind for way in ways for kind in summaries[way].index))[:most]
    rows = pd.concat({way: summaries[way] for way in ways}, names=["held_out", "kind"])
    data = rows.reset_index()
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 0.9 + 0.17 * len(names))
        axes = figure.subplots()
        height = np.arange(len(names))[::-1]
        looks = {"architecture": (COLOURS[0], "o", 0.14), "fold": (COLOURS[1], "s", -0.14)}
        labels = {
            "architecture": "whole architectures held out",
            "fold": "a fifth of shapes held out",
        }
        for way in ways:
            colour, marker, shift = looks[way]
            part = summaries[way].reindex(names)
            median, p90 = part["median"].to_numpy() * 100, part["p90"].to_numpy() * 100
            axes.hlines(height + shift, median, p90, color=colour, lw=0.9)
            axes.plot(median, height + shift, marker, color=colour, ms=4, label=labels[way])
        floor = summaries[ways[-1]].reindex(names)["aa_median"].to_numpy() * 100
        axes.plot(
            floor, height, "|", color="black", ms=9, mew=1.4, label="A/A: measured twice, median"
        )
        counts = [int(summaries[ways[-1]]["rows"].get(kind, 0)) for kind in names]
        axes.set_yticks(height, [f"{k} ({n})" for k, n in zip(names, counts, strict=True)])
        axes.set(
            xscale="log",
            xlabel="error of a predicted time (%): median, line to the 90th percentile",
        )
        low, high = axes.get_xlim()
        ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if low <= t <= high]
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.grid(axis="x", which="major", color="#EEEEEE", lw=0.5)
        axes.set_axisbelow(True)
        axes.set_ylim(-0.7, len(names) - 0.3)
        handles, _ = axes.get_legend_handles_labels()
        legend_below(figure, handles, 3)
        return save_figure(figure, stem, data, "In brackets: operators of that kind.")


def draw_architectures(errors: pd.DataFrame, stem: Path, kinds: int = 10) -> list[Path]:
    """Median error of each architecture held out, by kind: a map with its numbers."""
    counts = errors.groupby("kind").size().sort_values(ascending=False)
    names = list(counts.index[:kinds])
    median = errors.groupby(["group", "kind"])["error"].median().unstack()
    number = errors.groupby(["group", "kind"])["error"].size()
    median = median.reindex(columns=names)
    median.insert(0, "all", errors.groupby("group")["error"].median())
    data = median.rename_axis("architecture").reset_index()
    data = data.melt("architecture", var_name="kind", value_name="median_error").dropna()
    data["rows"] = [
        int(number.get((a, k), (errors["group"] == a).sum()))
        for a, k in zip(data["architecture"], data["kind"], strict=True)
    ]
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 1.0 + 0.2 * len(median))
        axes = figure.subplots()
        values = median.to_numpy(dtype=float) * 100
        shade = np.log(np.clip(values, 1, 40))
        axes.imshow(shade, cmap="cividis_r", vmin=0, vmax=np.log(40), aspect="auto")
        for i, j in np.argwhere(np.isfinite(values)):
            dark = values[i, j] > 8
            axes.text(j, i, f"{values[i, j]:.1f}", ha="center", va="center",
                      color="white" if dark else "black")  # fmt: skip
        axes.set_yticks(range(len(median)), list(median.index))
        axes.set_xticks(range(median.shape[1]), [str(name) for name in median.columns],
                        rotation=35, ha="right", rotation_mode="anchor")  # fmt: skip
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_title(
            "median error (%) on an architecture that the model has not seen", loc="left"
        )
        return save_figure(
            figure,
            stem,
            data,
            f"The {len(names)} kinds with most operators; 'all' counts every kind. Blank: no operator of that "
            "kind.",
        )


def draw_parity(errors: pd.DataFrame, stem: Path, kinds: Sequence[str]) -> list[Path]:
    """Predicted against measured, held out; the band is 10%; ``kinds`` have colours of their own."""
    data = errors[["kind", "group", "seconds", "predicted", "error"]].copy()
    data["measured_us"], data["predicted_us"] = data["seconds"] * 1e6, data["predicted"] * 1e6
    data["ratio"] = data["predicted"] / data["seconds"]
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 3.4)
        left, right = figure.subplots(1, 2)
        span = np.array([data["measured_us"].min() / 1.5, data["measured_us"].max() * 1.5])
        left.fill_between(span, span * 0.9, span * 1.1, color="#DDDDDD", lw=0)
        left.plot(span, span, color="black", lw=0.6)
        _scatter(left, data, "measured_us", "predicted_us", kinds)
        left.set(xscale="log", yscale="log", xlabel="measured (us)", ylabel="predicted (us)")
        left.set(xlim=span, ylim=span)
        right.fill_between(span, 0.9, 1.1, color="#DDDDDD", lw=0)
        right.axhline(1, color="black", lw=0.6)
        _scatter(right, data, "measured_us", "ratio", kinds)
        right.set(xscale="log", yscale="log", xlabel="measured (us)", ylabel="predicted / measured")
        right.set_xlim(span)
        limit = float(max(2.2, np.quantile(np.abs(np.log(data["ratio"])), 0.998) * 1.2))
        limit = min(limit, 4.0)
        right.set_ylim(1 / limit, limit)
        ticks = [t for t in (0.25, 0.5, 0.8, 1, 1.25, 2, 4) if 1 / limit <= t <= limit]
        right.set_yticks(ticks, [f"{t:g}" for t in ticks])
        right.minorticks_off()
        legend_below(figure, _handles(kinds, data["kind"].nunique() > len(kinds)), 4)
        within = float((data["error"] <= 0.1).mean())
        beyond = int((np.abs(np.log(data["ratio"])) > np.log(limit)).sum())
        caption = (
            f"{len(data)} held-out predictions, {within:.0%} within the 10% band; {beyond} lie outside "
            "the right panel."
        )
        return save_figure(
            figure, stem, data.drop(columns=["measured_us", "predicted_us"]), caption
        )


def draw_distribution(
    errors: pd.DataFrame, repeat: pd.DataFrame, stem: Path, told: str
) -> list[Path]:
    """Cumulative distribution of the held-out error of each frequent kind, and of the A/A error.

    Args:
        errors: held-out rows.
        repeat: ``kind`` and ``error`` of the A/A comparison of the same operators.
        stem: path of the files without suffix.
        told: what was held out.
    """
    kinds = frequent_kinds(errors["kind"])[:6]
    parts = []
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 3.4)
        panels = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
        for axes, kind in zip(panels, kinds, strict=False):
            for name, frame, colour, dash in (
                ("held out", errors, COLOURS[0], "-"),
                ("A/A", repeat, "black", (0, (4, 1.5))),
            ):
                values = np.sort(frame.loc[frame["kind"] == kind, "error"].dropna().to_numpy())
                if not len(values):
                    continue
                share = np.arange(1, len(values) + 1) / len(values)
                axes.step(
                    values * 100, share, where="post", color=colour, ls=dash, lw=1.1, label=name
                )
                parts.append(
                    pd.DataFrame({"kind": kind, "what": name, "error": values, "share": share})
                )
            axes.set_title(f"{kind} ({int((errors['kind'] == kind).sum())})", loc="left")
            axes.set_xscale("log")
            axes.set_xlim(0.1, 100)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(color="#EEEEEE", lw=0.5)
        for axes in panels[len(kinds) :]:
            axes.set_visible(False)
        for axes in panels[max(len(kinds) - 3, 0) : len(kinds)]:
            axes.set_xlabel("error (%)")
            axes.tick_params(labelbottom=True)
        for axes in panels[::3]:
            axes.set_ylabel("share of operators")
        handles, _ = panels[0].get_legend_handles_labels()
        legend_below(figure, handles, 2)
        caption = f"{told.capitalize()} held out. In brackets: predictions; the A/A error is of the same operators."
        return save_figure(figure, stem, pd.concat(parts), caption)


def draw_drift(drift: pd.DataFrame, stem: Path) -> list[Path]:
    """The reference operator over the run, relative to its fastest call in the same cache state.

    Pauses between calls of the command are left out.
    """
    data = drift.sort_values("timestamp").reset_index(drop=True)
    gaps = data["timestamp"].diff().fillna(0.0).to_numpy()
    pauses = np.flatnonzero(gaps > PAUSE)
    data["minutes"] = np.cumsum(np.where(gaps > PAUSE, 0.0, gaps)) / 60
    fastest = data.groupby("cache")["seconds"].transform("min")
    data["slower_percent"] = (data["seconds"] / fastest - 1) * 100
    states = sorted(data["cache"].unique())
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 0.7 + 1.3 * len(states))
        panels = figure.subplots(len(states), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        top = float(np.quantile(data["slower_percent"], 0.9)) * 1.3 + 2
        for i, (axes, state) in enumerate(zip(panels, states, strict=True)):
            for start in data.groupby("process")["minutes"].min():
                axes.axvline(start, color="#DDDDDD", lw=0.6)
            for pause in data["minutes"].to_numpy()[pauses]:
                axes.axvline(pause, color="black", lw=0.8, ls=(0, (4, 2)))
            part = data[data["cache"] == state]
            axes.plot(part["minutes"], part["slower_percent"], MARKERS[i], color=COLOURS[i],
                      ms=2, mew=0, alpha=0.7, rasterized=True)  # fmt: skip
            axes.set_title(f"state {state}", loc="left")
            axes.set_ylim(0, top)
        panels[-1].set_xlabel("minutes of measuring")
        figure.supylabel(
            "slower than the fastest call (%)", fontsize=panels[0].xaxis.label.get_size()
        )
        beyond = int((data["slower_percent"] > top).sum())
        caption = f"Grey lines: a fresh process starts. {beyond} calls above the scale."
        if len(pauses):
            waits = ", ".join(f"{gaps[pause] / 60:.0f}" for pause in pauses)
            caption += f" Dashed: pauses of {waits} min, left out."
        return save_figure(figure, stem, data, caption)


def draw_learning(curve: pd.DataFrame, start: str, stem: Path) -> list[Path]:
    """Held-out error against the number of measurements, from another device's profile and from none.

    Args:
        curve: as :func:`cost_models.learning_curve.learning_curve` gives it.
        start: name of the other device's profile.
        stem: of the files.
    """
    labels = {"adapted": f"starting from {start}", "boosted": "from these measurements alone"}
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 2.6)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, column in ((left, "median"), (right, "mean")):
            for i, (model, label) in enumerate(labels.items()):
                part = curve[(curve["model"] == model) & (curve["rows"] > 0)].sort_values("rows")
                axes.plot(
                    part["rows"],
                    part[column] * 100,
                    color=COLOURS[i],
                    marker=MARKERS[i],
                    label=label,
                )
            none = curve[curve["rows"] == 0]
            if len(none):
                axes.axhline(
                    none[column].iloc[0] * 100,
                    color=OTHER,
                    ls="--",
                    label="without any measurement",
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            ticks = sorted({int(rows) for rows in curve["rows"] if rows > 0})
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
            low, high = curve[["median", "mean"]].min().min(), curve[["median", "mean"]].max().max()
            marks = [m for m in (1, 2, 5, 10, 20, 50, 100, 200, 500) if low * 50 <= m <= high * 200]
            axes.set_yticks(marks, [f"{mark}" for mark in marks])
            axes.set_xlabel("measurements")
            axes.set_title(f"{column} error (%)", loc="left")
        legend_below(figure, left.get_legend_handles_labels()[0], 3)
        return save_figure(
            figure,
            stem,
            curve,
            "A fifth of the shapes held out, rows drawn at random, three times.",
        )
