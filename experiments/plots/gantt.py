"""Gantt charts: a row for each slot of each device, then one for each channel that carried data.

Training steps over micro-batches are drawn pass by pass (:mod:`experiments.plots.pass_bars`), others operator by operator.

A black line under bars marks the critical path (:mod:`simulator.analysis.critical`); below the charts a bar for
each device shows where its slots' time went: executing, or idle and why (:mod:`simulator.analysis.idle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from experiments.plots.pass_bars import LOOKS, pass_bars
from experiments.plots.style import (
    OTHER,
    TWO_COLUMNS,
    figure_style,
    kind_colours,
    legend_below,
    legend_columns,
    new_figure,
    save_figure,
    shorten,
    text_colour,
    time_unit,
)
from experiments.plots.time_spent import CAUSES, draw_spent, said, spent_rows, time_spent
from simulator.analysis.critical import critical_path
from simulator.errors import InvalidInput
from simulator.model.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

TRANSFER = "#444444"
_RASTER = 4000
"""Bars from which a PDF holds them as pixels: as vectors they would make it tens of megabytes."""
_ACROSS = 300
"""Steps of a critical path up to which thin lines lead from each to the next: more would hide the bars."""
By = Literal["pass", "operator"]
_TALLEST = 9.0
_BOUND_STYLES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))


def draw_gantt(
    trace: Trace,
    stem: str | Path,
    bounds: Mapping[str, float] | None = None,
    title: str | None = None,
    caption: str | None = None,
    by: By = "pass",
) -> list[Path]:
    """Draw a trace, simulated or measured, to ``stem``.pdf, .png and .csv.

    Args:
        trace: what to draw.
        stem: path of the files without suffix.
        bounds: lower bounds in seconds by name, drawn as vertical lines.
        title: instead of model, cluster, scheduler and makespan.
        caption: written to ``stem``.txt.
        by: what a bar is: an operator, or a pass where operators are tagged with micro-batches.

    Returns:
        Paths of the files.

    Raises:
        InvalidInput: the trace has no executions.
    """
    return draw_stacked([trace], [title or describe(trace)], stem, bounds, caption=caption, by=by)


def draw_stacked(
    traces: Sequence[Trace],
    labels: Sequence[str],
    stem: str | Path,
    bounds: Mapping[str, float] | None = None,
    title: str | None = None,
    caption: str | None = None,
    by: By = "pass",
    width: float = TWO_COLUMNS,
) -> list[Path]:
    """Draw traces as panels above one another on one time axis, with the same colours.

    Args:
        traces: drawn from the top: simulated, then measured; best, then worst.
        labels: a title for each panel.
        stem: path of the files without suffix.
        bounds: lower bounds in seconds by name, drawn through all panels.
        title: over all panels.
        caption: written to ``stem``.txt.
        by: what a bar is: an operator, or a pass where operators are tagged with micro-batches.
        width: inches.

    Returns:
        Paths of the files.

    Raises:
        InvalidInput: no traces, not one label each, or a trace without executions.
    """
    if not traces or len(traces) != len(labels):
        raise InvalidInput(
            f"{len(traces)} traces and {len(labels)} labels: one label each is needed"
        )
    tables = [bars(trace) for trace in traces]
    for label, table in zip(labels, tables, strict=True):
        if not (table["what"] == "execution").any():
            raise InvalidInput(f"The trace of '{label}' has no executions to draw")
    import pandas as pd
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    spent = [time_spent(trace) for trace in traces]
    shown = tables
    if by == "pass":
        shown = [pass_bars(trace, table) for trace, table in zip(traces, tables, strict=True)]
    everything = pd.concat(
        [table.assign(panel=label) for label, table in zip(labels, shown, strict=True)]
    )
    runs = everything[everything["what"] == "execution"]
    busy = (runs["finish_s"] - runs["start_s"]).groupby(runs["kind"]).sum()
    phases = {kind: colour for kind, (colour, _) in LOOKS.items() if busy.get(kind, 0.0) > 0}
    others = {str(kind): float(value) for kind, value in busy.items() if kind not in LOOKS}
    colours = phases | kind_colours(others)
    bounds = {name: value for name, value in (bounds or {}).items() if np.isfinite(value)}
    end = max(*(trace.makespan for trace in traces), *bounds.values(), 0.0)
    end = max(end, float(everything["finish_s"].max()))
    factor, unit = time_unit([end])

    rows = [table.attrs["rows"] for table in tables]
    total = sum(map(len, rows))
    height = min(0.75 + 0.3 * len(traces) + 0.2 * total, _TALLEST)
    # Rows of the chart and of the bars below are about equally high; headings take two.
    below = [0.17 * len(table) + 0.36 for table in spent]
    with figure_style():
        handles: list[Any] = [
            Patch(facecolor=colour, label=kind, hatch=_hatch(kind), edgecolor="black", lw=0)
            for kind, colour in colours.items()
        ]
        if set(others) - set(colours):
            handles.append(Patch(facecolor=OTHER, label="other"))
        if (everything["what"] == "transfer").any():
            handles.append(Patch(facecolor=TRANSFER, alpha=0.6, label="transfer"))
        if (everything["status"] != "finished").any():
            handles.append(
                Patch(
                    facecolor="white",
                    hatch="xxxx",
                    edgecolor="black",
                    lw=0,
                    label="lost or cut off",
                )
            )
        handles.append(Line2D([], [], color="black", lw=1.8, label="critical path"))
        if any(len(trace.jobs["job"]) > 1 for trace in traces):
            handles.append(
                Line2D([], [], color="black", marker="v", ls="", ms=3.5, label="job arrives")
            )
        handles += [
            Line2D([], [], color="black", linestyle=style, linewidth=0.9, label=label)
            for style, label in zip(
                _cycle(len(bounds)),
                [f"{name} {value * factor:.3g} {unit}" for name, value in bounds.items()],
                strict=True,
            )
        ]
        seen = {cause for table in spent for cause in table.columns if table[cause].sum() > 0}
        handles += [
            Patch(facecolor=colour, hatch=hatch, edgecolor="black", lw=0.4, label=said(cause))
            for cause, (colour, hatch) in CAUSES.items()
            if cause in seen
        ]
        # Five lines of legend are in the height; a narrow figure has more.
        lines = -(-len(handles) // legend_columns(handles, 6, width))
        extra = 0.15 * max(lines - 5, 0) + (0.2 if title else 0.0)
        figure = new_figure(width, height + sum(below) + 0.45 + extra)
        share = height / (total + 0.8 * len(traces))
        panels = figure.subplots(
            2 * len(traces),
            1,
            squeeze=False,
            height_ratios=[*((len(names) + 0.8) * share for names in rows), *below],
        )[:, 0]
        axes, bottom = panels[: len(traces)], panels[len(traces) :]
        for panel in axes[:-1]:
            panel.sharex(axes[-1])
            panel.tick_params(labelbottom=False)
        axes[0].set_xlim(0, end * factor * 1.01 or 1.0)
        per_row = (height - 0.75 - 0.3 * len(traces)) / total * 72
        for panel, label, trace, boxes, table in zip(
            axes, labels, traces, shown, tables, strict=True
        ):
            _draw_panel(panel, trace, boxes, colours, factor, per_row)
            _draw_path(panel, table, factor, "label" in boxes)
            taken = 0 if width >= TWO_COLUMNS else max(map(len, boxes.attrs["rows"]))
            panel.set_title(shorten(label, int(15 * width) - taken), loc="left")
            for style, value in zip(_cycle(len(bounds)), bounds.values(), strict=True):
                panel.axvline(value * factor, color="black", linestyle=style, linewidth=0.9)
        axes[-1].set_xlabel(f"time [{unit.replace('us', 'µs')}]")
        for panel, label, table in zip(bottom, labels, spent, strict=True):
            draw_spent(panel, table)
            said_first = "slots' time" if width < TWO_COLUMNS else "where the slots' time went"
            room = int(15 * width) - len(said_first) - 3
            of = f" · {shorten(label.split('  ·  makespan')[0], room)}" if len(traces) > 1 else ""
            panel.set_title(f"{said_first}{of}", loc="left")
            panel.tick_params(labelbottom=panel is bottom[-1])
        bottom[-1].set_xlabel("share of the run, all slots of the device [%]")
        if title:
            figure.suptitle(shorten(title, int(15.7 * width)), fontsize=8, fontweight="bold")
        legend_below(figure, handles, columns=6)
        lost = [spent_rows(table, label) for table, label in zip(spent, labels, strict=True)]
        return save_figure(figure, stem, pd.concat([everything, *lost]), caption)


def describe(trace: Trace) -> str:
    """Model, scheduler, makespan and cluster of a trace, as its Gantt's title.

    Profiles that were not measured are named with their label.
    """
    factor, unit = time_unit([trace.makespan])
    models = list(dict.fromkeys(trace.jobs["model"].tolist()))
    jobs = len(trace.jobs["job"])
    model = models[0] if len(models) == 1 else f"{len(models)} models"
    what = model if jobs == 1 else f"{jobs} jobs of {model}"
    labels = trace.meta.get("labels", {})
    weak = [f"{name} {label}" for name, label in sorted(labels.items()) if label != "measured"]
    cluster = trace.meta["cluster"] + (f" ({', '.join(weak)})" if weak else "")
    makespan = f"makespan {trace.makespan * factor:.3g} {unit}"
    parts = [what, str(trace.meta.get("scheduler", "")), makespan, cluster]
    return "  ·  ".join(part for part in parts if part)


def bars(trace: Trace) -> pd.DataFrame:
    """Every bar of a trace's Gantt: row, start_s, finish_s, what, kind, operator, job, status, and
    ``critical``: its place on the critical path from 1, 0 if it is not there.

    ``attrs["rows"]`` names all rows from the top; a device's slot without work is there, a channel
    without transfers is not.
    """
    import pandas as pd

    slots = trace.meta["slots"]
    names = [
        [device] if count == 1 else [f"{device}.{slot}" for slot in range(count)]
        for device, count in zip(trace.devices, slots, strict=True)
    ]
    first = np.concatenate([[0], np.cumsum(slots)]).astype(int)
    rows = [name for device in names for name in device]
    runs = trace.executions
    described = [
        trace.operator(job, operator)
        for job, operator in zip(runs["job"].tolist(), runs["operator"].tolist(), strict=True)
    ]
    executions = pd.DataFrame(
        {
            "row": [rows[i] for i in (first[runs["device"]] + runs["slot"]).tolist()],
            "start_s": runs["start"],
            "finish_s": runs["finish"],
            "what": "execution",
            "kind": [kind for _, kind in described],
            "operator": [name for name, _ in described],
            "job": runs["job"],
            "status": runs["status"],
        }
    )
    moves = trace.transfers
    channels = [str(name) for name in trace.meta["channels"]]
    used = sorted(set(moves["link"].tolist()))
    transfers = pd.DataFrame(
        {
            "row": [channels[i] for i in moves["link"].tolist()],
            "start_s": moves["start"],
            "finish_s": moves["finish"],
            "what": "transfer",
            "kind": "transfer",
            "operator": [f"tensor {tensor}" for tensor in moves["tensor"].tolist()],
            "job": moves["job"],
            "status": "finished",
        }
    )
    table = pd.concat([executions, transfers]) if used else executions
    table = table.reset_index(drop=True)
    critical = np.zeros(len(table), dtype=np.int64)
    for place, step in enumerate(critical_path(trace)):
        critical[step.row + (len(executions) if step.what == "transfer" else 0)] = place + 1
    table["critical"] = critical
    table.attrs["rows"] = rows + [channels[i] for i in used]
    return table


def _draw_panel(
    axes: Axes,
    trace: Trace,
    table: pd.DataFrame,
    colours: Mapping[str, str],
    factor: float,
    points_per_row: float,
) -> None:
    from matplotlib.collections import PolyCollection

    rows = table.attrs["rows"]
    position = {name: number for number, name in enumerate(rows)}
    y = table["row"].map(position).to_numpy(float)
    start, finish = table["start_s"].to_numpy() * factor, table["finish_s"].to_numpy() * factor
    half = 0.42
    corners = np.stack(
        [
            np.stack([start, y - half], axis=1),
            np.stack([start, y + half], axis=1),
            np.stack([finish, y + half], axis=1),
            np.stack([finish, y - half], axis=1),
        ],
        axis=1,
    )
    runs = (table["what"] == "execution").to_numpy()
    faces = np.array([colours.get(kind, OTHER) for kind in table["kind"]], dtype=object)
    # White edges part neighbours of one colour; on a bar as narrow as they are they would hide it.
    points = (finish - start) * 0.85 * _inches(axes) * 72 / axes.get_xlim()[1]
    edges = np.where(points > 1.5, 0.25, 0.0)
    for mask, face, alpha in ((runs, faces[runs].tolist(), 1.0), (~runs, TRANSFER, 0.6)):
        if mask.any():
            axes.add_collection(
                PolyCollection(
                    list(corners[mask]),
                    facecolors=face,
                    edgecolors="white",
                    linewidths=edges[mask],
                    alpha=alpha,
                    rasterized=len(table) > _RASTER,
                )
            )
    lost = runs & (table["status"] != "finished").to_numpy()
    hatched = {"xxxx": lost}
    for kind in set(table["kind"][runs]):
        if hatch := _hatch(kind):
            hatched[hatch] = (table["kind"] == kind).to_numpy()
    for hatch, mask in hatched.items():
        mask = mask & (points > 2)  # on a narrower bar none is seen, and each takes 5 ms to draw
        if mask.any():
            axes.add_collection(
                PolyCollection(
                    list(corners[mask]), facecolors="none", edgecolors="black", hatch=hatch, lw=0
                )
            )
    if len(trace.jobs["job"]) > 1:
        arrivals = trace.jobs["arrival"] * factor
        axes.plot(arrivals, np.full(len(arrivals), -0.75), "kv", ms=3.5, clip_on=False, lw=0)
    axes.axvline(trace.makespan * factor, color="black", linewidth=0.6)
    axes.set_ylim(len(rows) - 0.4, -1.0 if len(trace.jobs["job"]) > 1 else -0.6)
    step = max(1, int(np.ceil(7.5 / max(points_per_row, 0.1))))
    axes.set_yticks(range(0, len(rows), step), [shorten(name, 22) for name in rows[::step]])
    axes.tick_params(axis="y", length=0)
    if (len(table) <= 400 or "label" in table) and points_per_row >= 8:
        _label_bars(axes, table, colours, y, start, finish, runs)


def _draw_path(axes: Axes, table: pd.DataFrame, factor: float, behind: bool) -> None:
    """A line under the bars of the critical path; of a short path thin ones from each bar to the next, perhaps behind all."""
    from matplotlib.collections import LineCollection

    position = {name: number for number, name in enumerate(table.attrs["rows"])}
    path = table[table["critical"] > 0].sort_values("critical")
    y = path["row"].map(position).to_numpy(float) + 0.42
    start, finish = path["start_s"].to_numpy() * factor, path["finish_s"].to_numpy() * factor
    along = np.stack([np.stack([start, y], axis=1), np.stack([finish, y], axis=1)], axis=1)
    across = np.stack([along[:-1, 1], along[1:, 0]], axis=1)
    raster = len(table) > _RASTER
    if len(path) > _ACROSS:
        across = across[:0]
    for lines, width, order in ((across, 0.5, 0.5 if behind else 5), (along, 1.8, 5)):
        axes.add_collection(
            LineCollection(
                list(lines),
                colors="black",
                linewidths=width,
                capstyle="butt",
                zorder=order,
                rasterized=raster,
            )
        )


def _label_bars(
    axes: Axes,
    table: pd.DataFrame,
    colours: Mapping[str, str],
    y: np.ndarray,
    start: np.ndarray,
    finish: np.ndarray,
    runs: np.ndarray,
) -> None:
    """Operators' names, or numbers of micro-batches, inside the bars that are wide enough to hold them."""
    # Before the layout is known: a panel's axes get about 85% of the figure's width.
    points = (finish - start) * 0.85 * _inches(axes) * 72 / axes.get_xlim()[1]
    names = table["label" if "label" in table else "operator"].tolist()
    numbers = "label" in table
    # Digits are .64 times as wide as they are high, letters a little less.
    sizes, width, margin = ((6.0, 5.0, 4.0), 0.64, 1.0) if numbers else ((6.0,), 0.6, 3.0)
    letters = np.array([len(str(name)) for name in names])
    fitting = [np.count_nonzero(points >= letters * width * size + margin) for size in sizes]
    # The largest in which few are left out that a smaller one would show.
    size = next(s for s, n in zip(sizes, fitting, strict=True) if n >= 0.95 * fitting[-1])
    needed = letters * width * size + margin
    for index in np.flatnonzero(runs).tolist():
        name, kind = str(names[index]), str(table["kind"].iloc[index])
        colour = colours.get(kind, OTHER)
        if name and points[index] >= needed[index]:
            axes.text(
                (start[index] + finish[index]) / 2,
                y[index],
                name,
                ha="center",
                va="center",
                fontsize=size,
                color=text_colour(colour),
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.3}
                if _hatch(kind)
                else None,
                clip_on=True,
                zorder=4,
            )


def _inches(axes: Axes) -> float:
    figure = axes.get_figure(root=True)
    return TWO_COLUMNS if figure is None else figure.get_figwidth()


def _hatch(kind: str) -> str:
    return LOOKS.get(kind, ("", ""))[1]


def _cycle(count: int) -> list[Any]:
    return [_BOUND_STYLES[i % len(_BOUND_STYLES)] for i in range(count)]
