"""Interactive figures of a report, as JSON that plotly.js draws in the page; colours are those of the static ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from experiments.comparison.contests import BEST_DEVICE, SETTING, Contest, Standing, Standings
from experiments.comparison.instances import Instances
from experiments.comparison.names import proper
from experiments.comparison.performance_profile import performance_profile
from experiments.comparison.rounding import figure as rounded
from experiments.comparison.rounding import time_unit
from experiments.plots.gantt import TRANSFER, bars, describe
from experiments.plots.looks import MOST_LINES, Style
from experiments.plots.style import OTHER, kind_colours
from experiments.plots.style import time_unit as axis_unit
from simulator.model.trace import Trace

Figure = dict[str, Any]
"""``data`` and ``layout`` as plotly.js takes them."""
MAKESPANS = "How long does each scheduler take?"
PROFILE = "Who is best overall?"
GAPS = "How far from the best possible?"
INSTALL = "Interactive figures and Gantt charts of cells: pip install 'hetsim[report]', and compare again."
MOST_CONTESTS = 60
"""Models and settings in one figure; with more a row each is not read."""
_MOST_GAPS = 24
_FAR = 5.0
"""Ratio of the longest time to the shortest from which an axis begins as a logarithmic one."""
_SYMBOLS = {
    "o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down", "P": "cross",
    "*": "star", "X": "x", "<": "triangle-left", ">": "triangle-right", "p": "pentagon", "h": "hexagon",
    "H": "hexagon2", "d": "diamond-tall", "8": "octagon",
}  # fmt: skip
_FONT = {"family": "system-ui, sans-serif", "size": 12}


def plotly_script() -> str | None:
    """plotly.js, to be put into a page once; None unless the extra ``report`` is installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return None
    return str(get_plotlyjs())


def interactive_figures(standings: Standings, styles: Mapping[str, Style]) -> dict[str, Figure]:
    """The figures that there is data for, by the question that each answers.

    Args:
        standings: of the sweep.
        styles: of every scheduler and of the best device.
    """
    found = {MAKESPANS: makespan_figure(standings, styles)}
    if any(len(c.standings) > 1 or c.best_device_s > 0 for c in standings.contests):
        found[PROFILE] = profile_figure(standings.instances, styles)
    if any(contest.bound_s > 0 for contest in standings.contests):
        found[GAPS] = gap_figure(standings, styles)
    return found


def makespan_figure(standings: Standings, styles: Mapping[str, Style]) -> Figure:
    """Makespans with the intervals of their draws: a row for each model and setting."""
    contests = standings.contests[:MOST_CONTESTS]
    factor, unit = time_unit([contest.best.makespan_s for contest in contests])
    figure = _rows(standings, contests, styles, lambda c, seconds: seconds * factor)
    bounds = [(n, c.bound_s * factor) for n, c in enumerate(contests) if c.bound_s > 0]
    if bounds:
        figure["data"].append(
            {
                "type": "scatter", "mode": "markers", "name": "lower bound",
                "x": _short(x for _, x in bounds), "y": [n for n, _ in bounds],
                "marker": {"symbol": "line-ns-open", "size": 14, "color": "black"},
                "hovertemplate": f"lower bound %{{x}} {unit}<extra></extra>",
            }
        )  # fmt: skip
    return _scaled(figure, f"makespan [{unit}]")


def gap_figure(standings: Standings, styles: Mapping[str, Style]) -> Figure:
    """Makespan over the lower bound: a row for each model and setting, or boxes of schedulers where there are many."""
    contests = [contest for contest in standings.contests if contest.bound_s > 0]
    if len(contests) > _MOST_GAPS:
        return _gap_boxes(standings.instances, styles)
    figure = _rows(standings, contests, styles, lambda c, seconds: seconds / c.bound_s)
    return _scaled(figure, "makespan / lower bound (1: optimal)")


def _rows(
    standings: Standings,
    contests: Sequence[Contest],
    styles: Mapping[str, Style],
    scaled: Callable[[Contest, float], float],
) -> Figure:
    """Points with intervals, a row for each contest; the schedulers stand beside one another in it."""
    instances = standings.instances
    ordered = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    present = {s.scheduler for contest in contests for s in contest.standings}
    names = [name for name in ordered if name in present]
    if any(contest.best_device_s > 0 for contest in contests) and BEST_DEVICE not in names:
        names.append(BEST_DEVICE)
    varying = [k for k in SETTING if len({getattr(s, k) for s in standings.settings}) > 1]
    data: list[Figure] = []
    for place, name in enumerate(names):
        offset = 0.8 * ((place + 0.5) / len(names) - 0.5)
        points: Figure = {"x": [], "y": [], "text": [], "customdata": []}
        whiskers: Figure = {"x": [], "y": []}
        for row, contest in enumerate(contests):
            standing = contest.find(name)
            if standing is not None:
                seconds = standing.makespan_s
            elif name == BEST_DEVICE and contest.best_device_s > 0:
                seconds = contest.best_device_s
            else:
                continue
            points["x"] += _short([scaled(contest, seconds)])
            points["y"] += _short([row + offset])
            points["text"].append(_hover(standings, contest, standing, name, seconds))
            where = {key: getattr(contest.setting, key) for key in varying}
            where |= {"model": contest.model, "batch": contest.batch}
            points["customdata"].append(where | ({"scheduler": name} if standing else {}))
            if standing is not None and standing.span is not None:
                low, high = standing.span.low, standing.span.high
                whiskers["x"] += [*_short([scaled(contest, low), scaled(contest, high)]), None]
                whiskers["y"] += [*_short([row + offset] * 2), None]
        look = _look(styles[name])
        if whiskers["x"]:
            line = {"color": styles[name].colour, "width": 3}
            data.append(
                {"type": "scatter", "mode": "lines", "line": line, "opacity": 0.5, "hoverinfo": "skip",
                 "legendgroup": name, "showlegend": False, **whiskers}
            )  # fmt: skip
        data.append(
            {"type": "scatter", "mode": "markers", "name": _name(name, styles), "legendgroup": name,
             "marker": look["marker"], "hovertemplate": "%{text}<extra></extra>", **points}
        )  # fmt: skip
    row_height = max(26, 11 * len(names))
    labels = [escape(proper(standings.label(contest, True))) for contest in contests]
    layout = _layout(150 + row_height * len(contests)) | {
        # A tall figure is scrolled from its top, where names and axis must be.
        "legend": {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top"},
        "margin": {"l": 60, "r": 20, "t": 90, "b": 40},
        "yaxis": {
            "tickvals": list(range(len(labels))), "ticktext": labels, "automargin": True, "zeroline": False,
            "range": [len(labels) - 0.5, -0.5], "showgrid": False,
        },
        "shapes": [
            {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row + 0.5,
             "fillcolor": "#F3F3F3", "line": {"width": 0}, "layer": "below"}
            for row in range(1, len(labels), 2)
        ],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _hover(
    standings: Standings, contest: Contest, standing: Standing | None, name: str, seconds: float
) -> str:
    """What a point says: scheduler, model and setting, makespan with interval, ratio to the best."""
    factor, unit = time_unit([seconds])
    lines = [f"<b>{escape(proper(name))}</b>", escape(proper(standings.label(contest, True)))]
    if standing is None:
        lines[0] += f" ({escape(contest.best_device)})"
    lines.append(f"makespan {rounded(seconds * factor)} {unit}")
    if standing is not None and standing.span is not None:
        low, high = standing.span.low * factor, standing.span.high * factor
        lines[-1] += f", 95% interval [{rounded(low)}, {rounded(high)}]"
    lines.append(f"{seconds / contest.best.makespan_s:.3f} of the best's")
    if contest.bound_s > 0:
        lines[-1] += f", {seconds / contest.bound_s:.3f} of the lower bound"
    lines.append(f"{contest.seeds} seed{'s' if contest.seeds > 1 else ''}")
    return "<br>".join(lines)


def profile_figure(instances: Instances, styles: Mapping[str, Style]) -> Figure:
    """Performance profiles: share of the instances within a ratio of the best, and of the lower bound."""
    instances = instances.with_best_device(BEST_DEVICE)
    names = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    makespans = instances.of(names).makespans
    bounded = np.isfinite(instances.bound_s) & (instances.bound_s > 0)
    references = [("best", np.nanmin(makespans, axis=1), np.ones(len(instances), dtype=bool))]
    if bounded.any():
        references.append(("lower bound", instances.bound_s, bounded))
    layout = _layout(420)
    layout["yaxis"] = {"title": {"text": "share of instances"}, "tickformat": ".0%"}
    layout["yaxis"]["range"] = [0, 1.02]
    data: list[Figure] = []
    for number, (reference, seconds, rows) in enumerate(references):
        points, shares = performance_profile(makespans[rows], seconds[rows])
        axis = "x" if number == 0 else "x2"
        width = 1 / len(references)
        layout["xaxis" if number == 0 else "xaxis2"] = {
            "title": {"text": f"makespan / {reference}"}, "type": "log", "anchor": "y", "tickformat": "~g",
            "domain": [number * width, (number + 1) * width - (0.04 if number == 0 < len(references) - 1 else 0)],
        }  # fmt: skip
        for column, name in enumerate(names):
            share = shares[:, column]
            jumps = np.flatnonzero(np.diff(share, prepend=0.0) > 0)
            # To the end of the axis, so that hovering finds every line there.
            x = np.append(points[jumps], points[-1])
            y = np.append(share[jumps], share[-1])
            data.append(
                {"type": "scatter", "mode": "lines", "name": _name(name, styles), "legendgroup": name,
                 "showlegend": number == 0, "xaxis": axis, "yaxis": "y", "x": _short(x), "y": _short(y),
                 "visible": True if column < MOST_LINES else "legendonly",
                 "line": _look(styles[name])["line"] | {"shape": "hv"},
                 "hovertemplate": f"<b>{escape(proper(name))}</b><br>within %{{x:.3f}} of the {reference} on %{{y:.1%}} "
                 f"of {int(rows.sum())} instances<extra></extra>"}
            )  # fmt: skip
    return {"data": data, "layout": layout}


def _gap_boxes(instances: Instances, styles: Mapping[str, Style]) -> Figure:
    instances = instances.with_best_device(BEST_DEVICE)
    instances = instances.only(instances.bound_s > 0)
    names = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    ratios = instances.of(names).makespans / instances.bound_s[:, None]
    data: list[Figure] = []
    for name, column in zip(names, ratios.T, strict=True):
        quartiles = np.nanquantile(column, [0.0, 0.25, 0.5, 0.75, 1.0])
        keys = ("lowerfence", "q1", "median", "q3", "upperfence")
        boxes = {key: _short([value]) for key, value in zip(keys, quartiles, strict=True)}
        data.append(
            {"type": "box", "orientation": "h", "name": _name(name, styles), "y": [_name(name, styles)],
             "line": {"color": styles[name].colour}, "showlegend": False, **boxes}
        )  # fmt: skip
    layout = _layout(150 + 32 * len(names)) | {"margin": {"l": 60, "r": 20, "t": 60, "b": 40}}
    layout["yaxis"] = {"autorange": "reversed", "automargin": True}
    return _scaled({"data": data, "layout": layout}, "makespan / lower bound (1: optimal)")


def gantt_figure(trace: Trace) -> Figure:
    """A trace's Gantt chart: a row for each device slot and each channel that carried data."""
    table = bars(trace)
    rows: list[str] = table.attrs["rows"]
    factor, unit = axis_unit([float(table["finish_s"].max())])
    table["seconds"] = table["finish_s"] - table["start_s"]
    runs = table[table["what"] == "execution"]
    busy = {str(k): float(s) for k, s in runs.groupby("kind")["seconds"].sum().items()}
    colours = kind_colours(busy) | {"transfer": TRANSFER}
    place = {name: number for number, name in enumerate(rows)}
    data: list[Figure] = []
    for kind in sorted(set(table["kind"]), key=lambda k: (k == "transfer", -busy.get(str(k), 0.0))):
        part = table[table["kind"] == kind]
        said = [
            f"{escape(str(operator))}{'' if status == 'finished' else f' ({status})'}"
            + (f"<br>on the critical path, step {critical}" if critical else "")
            for operator, status, critical in zip(
                part["operator"], part["status"], part["critical"], strict=True
            )
        ]
        outline = [1.5 if critical else 0.2 for critical in part["critical"]]
        edge = ["black" if critical else "white" for critical in part["critical"]]
        data.append(
            {"type": "bar", "orientation": "h", "name": escape(str(kind)), "text": said, "textposition": "none",
             "y": [place[row] for row in part["row"]], "base": _short(part["start_s"] * factor),
             "x": _short(part["seconds"] * factor), "width": 0.84,
             "marker": {"color": colours.get(str(kind), OTHER), "line": {"width": outline, "color": edge}},
             "hovertemplate": f"<b>%{{text}}</b><br>{escape(str(kind))}<br>from %{{base}} for %{{x}} {unit}"
             "<extra></extra>"}
        )  # fmt: skip
    layout = _layout(150 + 26 * len(rows)) | {
        "title": {"text": f"{escape(describe(trace))}. Black edges: critical path", "font": _FONT, "x": 0.01},
        "barmode": "overlay",
        "xaxis": {"title": {"text": f"time [{unit}]"}, "zeroline": False},
        "yaxis": {
            "tickvals": list(range(len(rows))), "ticktext": [escape(row) for row in rows],
            "range": [len(rows) - 0.5, -0.5], "automargin": True, "zeroline": False,
        },
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _layout(height: int) -> Figure:
    return {
        "height": height, "font": _FONT, "plot_bgcolor": "white", "hovermode": "closest",
        "margin": {"l": 60, "r": 20, "t": 40, "b": 90}, "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
    }  # fmt: skip


def _scaled(figure: Figure, title: str) -> Figure:
    """The figure with an axis of times or ratios that a button turns from linear to logarithmic."""
    values = [
        value
        for trace in figure["data"]
        for key in ("x", "lowerfence", "upperfence")
        for value in trace.get(key, ())
        if value is not None and value > 0
    ]
    wide = bool(values) and max(values) > _FAR * min(values)
    kinds = ("log", "linear") if wide else ("linear", "log")
    figure["layout"]["xaxis"] = {
        "title": {"text": title}, "side": "top", "type": kinds[0], "tickformat": "~g", "gridcolor": "#DDDDDD", "zeroline": False,
    }  # fmt: skip
    figure["layout"]["updatemenus"] = [
        {
            "type": "buttons", "direction": "right", "x": 1, "xanchor": "right", "y": 0, "yanchor": "top",
            "buttons": [
                {"label": kind, "method": "relayout", "args": [{"xaxis.type": kind, "xaxis.autorange": True}]}
                for kind in kinds
            ],
        }
    ]  # fmt: skip
    return figure


def _name(name: str, styles: Mapping[str, Style]) -> str:
    """A scheduler's name in legends, a user's own in bold."""
    text = escape(proper(name))
    return f"<b>{text}</b>" if styles[name].own else text


def _look(style: Style) -> Figure:
    """A scheduler's line and marker."""
    dash = "solid" if style.dash == "-" else ",".join(f"{2 * part:g}px" for part in style.dash[1])
    symbol = _SYMBOLS.get(style.marker, "circle")
    edge = {"color": "black", "width": 0.5}
    return {
        "line": {"color": style.colour, "dash": dash, "width": 2 * style.weight},
        "marker": {"color": style.colour, "symbol": symbol, "size": 9 * style.weight, "line": edge},
    }


def _short(values: Any) -> list[float | None]:
    """Numbers of six digits, which keep the page small; None for what is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
