"""What differs between two runs: configuration, figures, operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from experiments.comparison.answers import verdict_text
from experiments.comparison.statistics import FEWEST_DRAWS, compare
from experiments.comparison.terminal import wrapped
from experiments.runs.console import WIDTH
from experiments.runs.results import read_document
from simulator.errors import InvalidInput
from simulator.model.trace import Trace
from simulator.model.units import format_bytes, format_energy, format_seconds

_OPERATORS = 10
_TEXTS = ("description", "source")
"""Config keys for people; they decide nothing."""


@dataclass(frozen=True)
class OperatorDifference:
    """One operator in two runs; seconds and devices over all jobs of the run.

    ``devices`` are names, joined where jobs differ, empty where the run lacks the operator.
    """

    operator: str
    kind: str
    devices: tuple[str, str]
    seconds: tuple[float, float]

    @property
    def moved(self) -> bool:
        """Whether it ran on other devices."""
        return self.devices[0] != self.devices[1]

    @property
    def difference(self) -> float:
        """Seconds by which the second run's is longer."""
        return self.seconds[1] - self.seconds[0]


def config_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Dotted keys whose values differ, with both values; ``-`` where one config lacks the key."""
    first, second = _flat(a), _flat(b)
    return {
        key: (_value(first, key), _value(second, key))
        for key in sorted({*first, *second})
        if key.rpartition(".")[2] not in _TEXTS and _value(first, key) != _value(second, key)
    }


def operator_differences(a: Trace, b: Trace) -> list[OperatorDifference]:
    """Operators on other devices or of other times, the largest difference in seconds first."""
    first, second = _by_operator(a), _by_operator(b)
    found = []
    for name in {**first, **second}:
        nothing = (first.get(name) or second[name])[0], "", 0.0
        kind, device_a, seconds_a = first.get(name, nothing)
        _, device_b, seconds_b = second.get(name, nothing)
        difference = OperatorDifference(name, kind, (device_a, device_b), (seconds_a, seconds_b))
        longest = max(seconds_a, seconds_b)
        if difference.moved or abs(difference.difference) > 1e-9 * longest:
            found.append(difference)
    return sorted(found, key=lambda d: (-abs(d.difference), d.operator))


def compare_runs(a: Path, b: Path) -> list[Text]:
    """Lines of at most 100 columns that say how run ``b`` differs from run ``a``.

    Raises:
        InvalidInput: a folder is not a run's or is damaged.
    """
    documents = [read_document(path / "result.json") for path in (a, b)]
    for path, document in zip((a, b), documents, strict=True):
        if not isinstance(document.get("metrics"), dict) or "makespan_s" not in document["metrics"]:
            raise InvalidInput(f"{path / 'result.json'} has no makespan: is it of a failed run?")
    metrics = [document["metrics"] for document in documents]
    changed = config_differences(*(document.get("config", {}) for document in documents))
    lines = wrapped(_answer(documents, changed), "bold")
    for line in dict.fromkeys(d.get("validity", {}).get("line") for d in documents):
        lines += wrapped(f"validity: {line}", "yellow") if line else []
    lines += [Text(f"{name}: {path}", "dim") for name, path in (("A", a), ("B", b))]
    lines += [Text(), *_config_lines(changed), Text(), *_metric_lines(metrics), Text()]
    have = [(path / "trace.json").is_file() for path in (a, b)]
    if all(have):
        traces = [Trace.load(path) for path in (a, b)]
        lines += _operator_lines(traces[0], traces[1])
    else:
        missing = " and ".join(name for name, there in zip("AB", have, strict=True) if not there)
        lines.append(Text(f"no trace in {missing}: operators cannot be compared", "dim"))
    return lines


def _answer(documents: Sequence[Mapping[str, Any]], changed: Mapping[str, Any]) -> str:
    names = [_name(document) for document in documents]
    delays = [document["metrics"].get("mean_delay_s") for document in documents]
    if None not in delays:
        return _answer_of_requests(documents, names)
    a, b = (float(document["metrics"]["makespan_s"]) for document in documents)
    texts = [format_seconds(seconds) for seconds in (a, b)]
    share = 1.0 - b / a
    if abs(share) < 5e-4:
        text = f"B ({names[1]}) and A ({names[0]}) take the same time: {texts[0]}"
    else:
        word = "shorter" if share > 0 else "longer"
        text = (
            f"B ({names[1]}) is {abs(share):.1%} {word} than A ({names[0]}): {texts[1]}, {texts[0]}"
        )
    draws = [np.array(document.get("draws") or [], dtype=np.float64) for document in documents]
    # Draws are the same truths only where nothing but the scheduler differs.
    paired = changed and all(key.startswith(("scheduler.", "partition.")) for key in changed)
    if paired and len(draws[0]) == len(draws[1]) >= FEWEST_DRAWS:
        result = compare([b], [a], draws[1], draws[0])
        text += f"; {verdict_text('B', 'A', result)} of {len(draws[0])} draws"
    return text


def _answer_of_requests(documents: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """A makespan says when the last request was answered, which mostly follows from when it came."""
    parts = []
    for key, what, show in (
        ("mean_delay_s", "mean delay", format_seconds),
        ("p99_delay_s", "p99", format_seconds),
        ("success_rate", "in time", lambda share: f"{share:.1%}"),
    ):
        a, b = (document["metrics"][key] for document in documents)
        parts.append(f"{what} {show(b)}, {show(a)}")
    return f"B ({names[1]}) and A ({names[0]}), requests: {'; '.join(parts)}"


def _name(document: Mapping[str, Any]) -> str:
    labels = document.get("labels", {})
    return str(labels.get("scheduler") or document.get("scheduler") or "run")


def _config_lines(changed: Mapping[str, tuple[str, str]]) -> list[Text]:
    if not changed:
        return [Text("the same configuration")]
    rows = [(key, a, b) for key, (a, b) in changed.items()]
    return _columns(("config", "A", "B"), rows, right=())


_METRICS = (
    ("makespan_s", format_seconds),
    ("makespan_low_s", format_seconds),
    ("makespan_high_s", format_seconds),
    ("bound_s", format_seconds),
    ("best_device_s", format_seconds),
    ("mean_delay_s", format_seconds),
    ("p50_delay_s", format_seconds),
    ("p99_delay_s", format_seconds),
    ("served_per_s", lambda rate: f"{rate:.4g}/s"),
    ("goodput_per_s", lambda rate: f"{rate:.4g}/s"),
    ("success_rate", lambda share: f"{share:.1%}"),
    ("mean_batch", lambda count: f"{count:.2f}"),
    ("fairness", lambda index: f"{index:.2f}"),
    ("mean_flow_s", format_seconds),
    ("p99_flow_s", format_seconds),
    ("energy_j", format_energy),
    ("utilisation", lambda share: f"{share:.1%}"),
    ("transfers", lambda count: f"{count:.0f}"),
    ("transferred_bytes", format_bytes),
    ("extrapolated_share", lambda share: f"{share:.1%}"),
)


def _metric_lines(metrics: Sequence[Mapping[str, Any]]) -> list[Text]:
    rows = []
    for name, show in _METRICS:
        values = [document.get(name) for document in metrics]
        if all(value is None for value in values):
            continue
        texts = ["-" if value is None else show(float(value)) for value in values]
        a, b = values
        rows.append((name, *texts, f"{b / a:.3f}" if a and b is not None else "-"))
    for device in dict.fromkeys(name for m in metrics for name in m.get("devices", {})):
        shares = [m.get("devices", {}).get(device, {}).get("utilisation") for m in metrics]
        texts = ["-" if share is None else f"{share:.1%}" for share in shares]
        rows.append((f"  {device} busy", *texts, ""))
    return _columns(("metric", "A", "B", "B / A"), rows, right=(1, 2, 3))


def _operator_lines(a: Trace, b: Trace) -> list[Text]:
    found = operator_differences(a, b)
    if not found:
        return [Text("every operator runs on the same device for the same time")]
    count = len({*_by_operator(a), *_by_operator(b)})
    moved = sum(difference.moved for difference in found)
    lines = [
        Text(f"operators: {moved} of {count} run on other devices; the largest differences in time")
    ]
    rows = [
        (
            d.operator,
            d.kind,
            f"{d.devices[0] or '-'} -> {d.devices[1] or '-'}" if d.moved else d.devices[0],
            format_seconds(d.seconds[0]),
            format_seconds(d.seconds[1]),
            ("+" if d.difference >= 0 else "-") + format_seconds(abs(d.difference)),
        )
        for d in found[:_OPERATORS]
    ]
    return lines + _columns(
        ("operator", "kind", "device", "A", "B", "B - A"), rows, right=(3, 4, 5)
    )


def _columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]
) -> list[Text]:
    table = [headings, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(headings))]
    # The widest gives way until the line fits.
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for number, row in enumerate(table):
        cells = [
            cell.rjust(width) if i in right else _fit(cell, width).ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(Text("  ".join(cells).rstrip(), "dim" if not number else ""))
    return lines


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _by_operator(trace: Trace) -> dict[str, tuple[str, str, float]]:
    """Kind, devices and seconds of every operator, summed over jobs of the same graph."""
    rows = trace.tasks
    seconds: dict[str, float] = {}
    devices: dict[str, set[str]] = {}
    kinds: dict[str, str] = {}
    several = len(trace.meta["graphs"]) > 1
    for job, operator, device, start, finish in zip(
        *(rows[key].tolist() for key in ("job", "operator", "device", "start", "finish")),
        strict=True,
    ):
        name, kind = trace.operator(job, operator)
        if several:
            name = f"{trace.jobs['model'][job]}: {name}"
        kinds[name] = kind
        seconds[name] = seconds.get(name, 0.0) + finish - start
        devices.setdefault(name, set()).add(trace.devices[device])
    return {name: (kinds[name], ", ".join(sorted(devices[name])), seconds[name]) for name in kinds}


def _flat(config: Any, path: str = "") -> dict[str, Any]:
    if isinstance(config, Mapping) and config:
        return {
            name: leaf
            for key, value in config.items()
            for name, leaf in _flat(value, f"{path}.{key}" if path else str(key)).items()
        }
    return {path: config}


def _value(flat: Mapping[str, Any], key: str) -> str:
    return str(flat[key]) if key in flat else "-"
