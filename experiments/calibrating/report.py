"""The report of a calibration: one HTML file, its figures beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from cost_models import evaluation
from cost_models.adapted import Adapted
from cost_models.model import DEFAULT
from cost_models.profile import Profile
from experiments.plots import calibration as plots
from experiments.runs.atomic import write_text

WAYS = {"architecture": "whole architectures", "fold": "a fifth of the shapes"}
"""What is held out, in words."""
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ profile.name }}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; } figure { margin: 1.5rem 0; } figcaption { color: #555; }
.wide { font-size: 13px; } td.text { text-align: left; font-family: ui-monospace, monospace; }
</style></head><body>
<h1>{{ profile.name }} ({{ profile.label }})</h1>
<p>{{ headline }}</p>
<table>{% for key, value in facts %}<tr><td>{{ key }}</td><td>{{ value }}</td></tr>{% endfor %}</table>
{% for figure in figures %}
<h2>{{ figure.title }}</h2><p>{{ figure.text }}</p>
<figure><img src="data:image/png;base64,{{ figure.image }}" alt="{{ figure.title }}">
<figcaption>{{ figure.caption }} Data: {{ figure.csv }}</figcaption></figure>
{% endfor %}
<h2>Cost models</h2>
<table><tr><th>model</th><th>held out</th><th>median</th><th>mean</th><th>p90</th><th>bias</th></tr>
{% for row in models %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table>
<h2>Held-out error by kind</h2>
<p>An operator of two architectures is predicted twice. Bias: the median of predicted / measured - 1.</p>
<table><tr><th>kind</th><th>predictions</th><th>median</th><th>mean</th><th>p90</th><th>bias</th>
<th>A/A median</th><th>A/A mean</th></tr>
{% for row in kinds %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table>
<h2>Out of range</h2>
<p>{{ outside_text }}</p>
<table><tr><th>held out</th><th>operators</th><th>out of range</th><th>of its time</th>
<th>median error inside</th><th>outside</th></tr>
{% for row in outside %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table>
<h2>Worst predictions</h2>
<table class="wide"><tr><th>kind</th><th>inputs and attributes</th><th>held out with</th>
<th>measured us</th><th>predicted us</th><th>A/A</th></tr>
{% for row in worst %}<tr><td>{{ row[0] }}</td><td class="text">{{ row[1] }}</td><td>{{ row[2] }}</td>
<td>{{ row[3] }}</td><td>{{ row[4] }}</td><td>{{ row[5] }}</td></tr>{% endfor %}</table>
</body></html>
"""


def write_report(
    folder: Path,
    profile: Profile,
    errors: evaluation.Errors,
    drift: pd.DataFrame,
    learning: pd.DataFrame | None = None,
) -> Path:
    """Write ``report.html`` and ``report/fig_*`` (PDF, PNG, CSV) into a calibration's folder.

    Args:
        folder: of the calibration.
        profile: fitted, with its measurements.
        errors: held-out errors of those measurements.
        drift: the reference operator over time (:func:`calibration.summary.drift`).
        learning: error against the number of measurements, where another device's profile was the
            start (:func:`cost_models.learning_curve.learning_curve`).
    """
    import jinja2

    table = profile.measurements
    assert table is not None
    model = profile.default or main_model(errors)
    way = "architecture" if len(errors[model]["architecture"]) else "fold"
    held = errors[model][way]
    summaries = {key: evaluation.summary(table, rows) for key, rows in errors[model].items()}
    figures = _figures(folder / "report", profile, table, held, way, summaries, drift)
    if learning is not None:
        figures.append(_learning(folder / "report", profile, learning))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(_PAGE).render(
        profile=profile,
        headline=_headline(summaries[way], way, model),
        facts=_facts(profile, table),
        figures=figures,
        models=_models(table, errors),
        kinds=_kinds(summaries[way]),
        outside_text=_OUTSIDE,
        outside=_outside(held),
        worst=_worst(table, held),
    )
    return write_text(folder / "report.html", page)


def main_model(errors: Mapping[str, Any]) -> str:
    """The model whose errors are shown in full unless the profile prefers one."""
    return DEFAULT if DEFAULT in errors else next(name for name in errors if name != "roofline")


def _models(table: pd.DataFrame, errors: evaluation.Errors) -> list[list[str]]:
    """Every model's errors over all kinds, one row for each way of holding out."""
    rows = []
    for way, told in WAYS.items():
        for name, ways in errors.items():
            summary = evaluation.summary(table, ways[way])
            if len(summary):
                line = summary.to_dict("index")["all"]
                cells = [_percent(line[key]) for key in ("median", "mean", "p90", "bias")]
                rows.append([name, told, *cells])
    return rows


def _headline(summary: pd.DataFrame, way: str, model: str) -> str:
    if not len(summary):
        return "Too few measurements to hold any out."
    row = summary.loc["all"]
    return (
        f"With {WAYS[way]} held out, a time predicted by {model} is off by {row['median']:.1%} in the median and "
        f"{row['mean']:.1%} in the mean; measured twice, the same operators differ by "
        f"{row['aa_median']:.1%} and {row['aa_mean']:.1%}."
    )


def _facts(profile: Profile, table: pd.DataFrame) -> list[tuple[str, str]]:
    rates = ", ".join(f"{k} {v / 1e9:.1f}" for k, v in profile.roofline.flops_per_s.items())
    facts = [
        ("operators measured", str(len(set(evaluation.identities(table))))),
        ("kinds", str(table["kind"].nunique())),
        ("cache state priced", str(profile.cache)),
        ("statistic", str(profile.statistic)),
        ("peak GFLOP/s", rates),
        ("bandwidth GB/s", f"{profile.roofline.bandwidth / 1e9:.1f}"),
        ("overhead of a call", f"{profile.roofline.overhead * 1e6:.2f} us"),
    ]
    facts += _device_facts(profile)
    facts += [_fact(key, value) for key, value in profile.provenance.items()]
    return facts + [(key, str(value)) for key, value in profile.versions.items()]


def _fact(key: str, value: Any) -> tuple[str, str]:
    """A line of a profile's provenance, seconds as milliseconds."""
    words = key.replace("_", " ")
    if key.endswith("_s") and isinstance(value, float):
        return words.removesuffix(" s") + " operator", f"{value * 1e3:.3f} ms"
    if isinstance(value, list):
        return words, ", ".join(map(str, value))
    if isinstance(value, bool):
        return words, "yes" if value else "no"
    return words, str(value)


def _device_facts(profile: Profile) -> list[tuple[str, str]]:
    """Memory, what co-running and allocating cost: where they were measured."""
    facts = []
    if profile.capacity_bytes is not None:
        facts.append(("memory GiB", f"{profile.capacity_bytes / 2**30:.1f}"))
    if profile.corun:
        rows = profile.corun["rows"]
        told = ", ".join(
            f"{row['victim']} beside {row['others']} x {row['aggressor']} {row['slowdown']:.2f}"
            for row in sorted(rows, key=lambda row: -row["slowdown"])
        )
        fraction = f"{profile.corun['fraction']:.1%} for each other that runs a model"
        facts.append((f"slowdown of {profile.corun['of']}", f"{fraction}; {told}"))
    largest: dict[str, tuple[float, float]] = {}
    for row in profile.allocation:
        largest[row["state"]] = max(
            largest.get(row["state"], (0.0, 0.0)), (row["bytes"], row["seconds"])
        )
    facts += [
        (f"allocating {size / 2**20:.0f} MiB, {state} memory", f"{seconds * 1e6:.1f} us")
        for state, (size, seconds) in sorted(largest.items())
    ]
    return facts


def _figures(
    folder: Path,
    profile: Profile,
    table: pd.DataFrame,
    held: pd.DataFrame,
    way: str,
    summaries: dict[str, pd.DataFrame],
    drift: pd.DataFrame,
) -> list[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    priced = table if profile.cache is None else table[table["cache"] == profile.cache]
    priced = priced.reset_index(drop=True)
    rows = held["row"].unique()
    errors = evaluation.repeat_errors(table)[rows]
    repeat = pd.DataFrame({"kind": table["kind"].to_numpy()[rows], "error": errors})
    kinds = plots.frequent_kinds((held if len(held) else priced)["kind"])
    drawn = [
        (
            "What was measured",
            "Each point is an operator.",
            plots.draw_coverage(priced, profile.roofline, folder / "fig_coverage", kinds),
        )
    ]
    if len(held):
        drawn += [
            (
                "How well kinds are predicted",
                "A model cannot be told from the truth below the A/A error.",
                plots.draw_errors(summaries, folder / "fig_errors"),
            ),
            (
                "Error and A/A error",
                "Where the curves meet, the rest is noise of the measurement.",
                plots.draw_distribution(held, repeat, folder / "fig_distribution", WAYS[way]),
            ),
            (
                "Predicted against measured",
                "Grey: within 10%.",
                plots.draw_parity(held, folder / "fig_parity", kinds),
            ),
        ]
    if len(summaries.get("architecture", ())):
        drawn.append(
            (
                "Architectures the model has not seen",
                "All shapes of an architecture are taken out of the training data.",
                plots.draw_architectures(held, folder / "fig_architectures"),
            )
        )
    if len(drift):
        drawn.append(
            (
                "The machine during the run",
                "One operator, measured again every few seconds.",
                plots.draw_drift(drift, folder / "fig_drift"),
            )
        )
    return [_embedded(title, text, paths) for title, text, paths in drawn]


def _learning(folder: Path, profile: Profile, curve: pd.DataFrame) -> dict[str, Any]:
    adapted = profile.models["adapted"]
    assert isinstance(adapted, Adapted)
    start = adapted.base_name
    return _embedded(
        "How many measurements it takes",
        f"The model '{start}' corrected, beside a model of these measurements alone.",
        plots.draw_learning(curve, start, folder / "fig_learning"),
    )


def _embedded(title: str, text: str, paths: Sequence[Path]) -> dict[str, Any]:
    by_suffix = {path.suffix: path for path in paths}
    csv = by_suffix[".csv"]
    return {
        "title": title,
        "text": text,
        "image": base64.b64encode(by_suffix[".png"].read_bytes()).decode(),
        "caption": by_suffix[".txt"].read_text().strip() if ".txt" in by_suffix else "",
        "csv": f"{csv.parent.name}/{csv.name}",
    }


def _kinds(summary: pd.DataFrame) -> list[list[str]]:
    keys = ("median", "mean", "p90", "bias", "aa_median", "aa_mean")
    return [
        [str(kind), f"{row['rows']:.0f}", *(_percent(row[key]) for key in keys)]
        for kind, row in summary.iterrows()
    ]


_OUTSIDE = (
    "An operator is out of range where its kind was not measured or a feature lies beyond what was. "
    "Tables that rest on such predictions say for how much of their time."
)


def _outside(held: pd.DataFrame) -> list[list[str]]:
    """By architecture (or fold), what the others' measurements do not reach, and what that costs."""

    def line(name: str, part: pd.DataFrame) -> list[str]:
        inside = part["in_range"].to_numpy(dtype=bool)
        seconds = part["seconds"].to_numpy()
        return [
            name,
            str(len(part)),
            _percent(1 - inside.mean()),
            _percent(seconds[~inside].sum() / seconds.sum()),
            _percent(part["error"][inside].median()),
            _percent(part["error"][~inside].median()),
        ]

    if not len(held):
        return []
    return [line("all", held), *(line(str(name), part) for name, part in held.groupby("group"))]


def _worst(table: pd.DataFrame, held: pd.DataFrame, most: int = 20) -> list[list[str]]:
    far = held.assign(far=held["log_residual"].abs()).sort_values("far", ascending=False)
    far = far.drop_duplicates("row").head(most)
    repeat = evaluation.repeat_errors(table)
    rows = []
    for entry in far.itertuples():
        row = table.iloc[int(entry.row)]  # type: ignore[arg-type]
        shapes = " ".join("x".join(map(str, shape)) or "()" for shape in row["inputs"])
        attributes = json.loads(row["attributes"])
        told = " ".join(f"{key}={value}" for key, value in attributes.items())
        rows.append(
            [
                str(entry.kind),
                f"{shapes} {told}".replace(" ", " ").strip(),
                str(entry.group),
                f"{float(entry.seconds) * 1e6:.1f}",  # type: ignore[arg-type]
                f"{float(entry.predicted) * 1e6:.1f}",  # type: ignore[arg-type]
                _percent(repeat[int(entry.row)]),  # type: ignore[arg-type]
            ]
        )
    return rows


def _percent(value: float) -> str:
    return "-" if value != value else f"{value:.1%}"
