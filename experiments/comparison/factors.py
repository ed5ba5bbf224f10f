"""What varies in a sweep: columns by which results are grouped, paired and drawn.

A *factor* is any part of the configuration that takes several values: a label of the results (model,
cluster, contention, ...), an option written into a label (``donf(pricing=per_edge)``), an axis of the
sweep's grid, or any further column that the results have. Seeds repeat, they are no factor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.runs.results import COLUMNS
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

LABELS = (
    *("model", "batch", "cluster", "workload", "movement", "contention", "noise", "memory"),
    "decision_cost",
)
"""Columns of the results that say how an instance was made, beside ``cost_model``."""
SCHEDULER = "scheduler"
ERROR = "estimate error"
"""Standard deviation of the logarithm of the factors by which times differ from estimates."""
OMITTED = "default"
"""Stands for an option that a label leaves out because it is as shipped."""
_WITH_OPTIONS = ("model", "cluster", "workload", SCHEDULER)
SEEDS = ("seed_workload", "seed_noise", "seed_search")
_SYSTEMATIC = re.compile(r"systematic\(sigma=([0-9.e-]+)\)")
_LABELLED = re.compile(r"(?P<base>[^()]+)\((?P<options>.+)\)", re.DOTALL)
_SAME_AS = {
    "simulation.movement": "movement",
    "simulation.contention": "contention",
    "simulation.memory": "memory",
    "simulation.noise": "noise",
    "model.batch": "batch",
    "instance": "model",
}
"""Axes that a column of the results already shows; of ``auto`` contention, what became of it."""


@dataclass(frozen=True)
class Factor:
    """Something that varies.

    Attributes:
        column: its column in the results; ``scheduler...`` where it is part of the scheduler.
        name: what tables and plots call it.
        values: in order, numbers by size.
        numeric: whether all of them are numbers.
    """

    column: str
    name: str
    values: tuple[Any, ...]
    numeric: bool

    @property
    def of_scheduler(self) -> bool:
        """Whether it says how schedulers differ, and not what they are given to do."""
        return _of_scheduler(self.column)


def _of_scheduler(column: str) -> bool:
    return column in (SCHEDULER, f"{SCHEDULER} of", "partition") or column.startswith(
        (f"{SCHEDULER}.", "partition.")
    )


def with_factors(
    results: pd.DataFrame, choices: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[pd.DataFrame, tuple[Factor, ...]]:
    """Results with a column for each factor, and the factors.

    The labels of cells that differ in a factor which no label shows are told apart by it.

    Args:
        results: one row a cell, all labels filled in.
        choices: value of each axis for every cell, as in ``grid.yaml``.

    Raises:
        InvalidInput: two cells of one scheduler and one seed differ in nothing.
    """
    results = results.reset_index(drop=True)
    known = [*COLUMNS, "folder"]
    extra = [name for name in results.columns if name not in known]
    axes = _add_axes(results, choices or {})
    errors = _add_error(results)
    labels = [*LABELS, "cost_model", SCHEDULER]
    hidden = _tell_apart(results, labels, [*axes, *extra])
    options = _add_options(results)
    settled = [name for name in extra if name in hidden or _settled(results, name)]
    # The first of two columns that vary together stands for both: axes say it best.
    candidates = [*errors, *axes, *settled, *options, *LABELS, "cost_model", SCHEDULER]
    bases = {f"{name} of": name for name in _WITH_OPTIONS if f"{name} of" in results.columns}
    candidates = [f"{name} of" if f"{name} of" in bases else name for name in candidates]
    chosen: list[str] = []
    partitions: set[bytes] = set()
    for name in candidates:
        codes = _codes(results[name])
        if name in (*SEEDS, "cell") or codes.max(initial=0) < 1 or codes.tobytes() in partitions:
            continue
        partitions.add(codes.tobytes())
        chosen.append(name)
    chosen = [name for name in chosen if not _redundant(results, name, chosen, bases)]
    order = {label: i for i, label in enumerate([*LABELS, "cost_model"])}
    chosen.sort(
        key=lambda c: (order.get(bases.get(str(c), str(c)), len(order)), candidates.index(c))
    )
    return results, _named(results, chosen, bases)


def _add_axes(results: pd.DataFrame, choices: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Columns for the axes of the grid that no column of the results shows yet."""
    if not choices:
        return []
    rows = [choices.get(cell, {}) for cell in results["cell"]]
    axes = dict.fromkeys(axis for row in rows for axis in row)
    added = []
    for axis in axes:
        if axis in _SAME_AS or axis in results.columns or axis.startswith("seed."):
            continue
        results[axis] = [_plain(row.get(axis)) for row in rows]
        added.append(axis)
    return added


def _add_error(results: pd.DataFrame) -> list[str]:
    """A column with the width of the systematic error of what schedulers believe, if it varies."""
    found = results["noise"].astype(str).str.extract(_SYSTEMATIC, expand=False).astype(float)
    exact = ~results["noise"].astype(str).str.contains("systematic")
    results[ERROR] = found.where(~exact, 0.0)
    if results[ERROR].isna().any() or results[ERROR].nunique() < 2:
        del results[ERROR]
        return []
    return [ERROR]


def _redundant(
    results: pd.DataFrame, name: str, chosen: Sequence[str], bases: Mapping[str, str]
) -> bool:
    """Whether a label only sums up what other factors say each on its own."""
    others = [c for c in chosen if c != name and not _of_scheduler(c) and c not in bases]
    if name not in LABELS or not others:
        return False
    return _decides(_joint(results, others), results[name])


def _add_options(results: pd.DataFrame) -> list[str]:
    """Columns for options that labels have in parentheses, and for what the labels are without."""
    added = []
    for label in _WITH_OPTIONS:
        texts = results[label].astype(str)
        found = {text: _LABELLED.fullmatch(text) for text in texts.unique()}
        parsed = {text: _options(match["options"]) for text, match in found.items() if match}
        parsed = {text: options for text, options in parsed.items() if options}
        if not parsed:
            continue
        bases = {text: str(found[text]["base"]) for text in parsed}  # type: ignore[index]
        results[f"{label} of"] = [bases.get(text, text) for text in texts]
        takers: dict[str, set[str]] = {}
        for text, options in parsed.items():
            for key in options:
                takers.setdefault(key, set()).add(bases[text])
        for key, owners in takers.items():
            column = f"{label}.{key}"
            if column in results.columns:
                continue
            results[column] = [
                parsed.get(text, {}).get(key, OMITTED if bases.get(text, text) in owners else None)
                for text in texts
            ]
            added.append(column)
    return added


def _options(text: str) -> dict[str, Any]:
    """``ccr=0.5, fat=1`` as a mapping; empty where that is not how the text reads."""
    parts = re.split(r",\s*(?=[\w.]+=)", text)
    pairs = [part.partition("=") for part in parts]
    if not all(separator and re.fullmatch(r"[\w.]+", key) for key, separator, _ in pairs):
        return {}
    return {key: _plain(value) for key, _, value in pairs}


def _plain(value: Any) -> Any:
    """A value as written, a number where it is one."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    try:
        number = float(text)
    except ValueError:
        return text
    return number if np.isfinite(number) else text


def _tell_apart(
    results: pd.DataFrame, labels: Sequence[str], candidates: Sequence[str]
) -> list[str]:
    """Write what tells equal-looking cells apart into their labels; returns those columns."""
    used: list[str] = []
    keys = [*labels, *SEEDS]
    while True:
        codes = _joint(results, [*keys, *used])
        count = int(codes.max(initial=-1)) + 1
        if count == len(results):
            break
        gains = {
            name: len(np.unique(codes * (len(codes) + 1) + _codes(results[name])))
            for name in candidates
            if name not in used
        }
        best = max(gains, key=lambda name: gains[name], default=None)
        if best is None or gains[best] == count:
            once = np.unique(codes, return_index=True)[1]
            again = int(np.setdiff1d(np.arange(len(codes)), once)[0])
            before = int(np.flatnonzero(codes == codes[again])[0])
            first, second = (results["cell"].iloc[number] for number in (before, again))
            raise InvalidInput(
                f"Cells {first} and {second} differ in nothing that the results say; is grid.yaml "
                "missing beside them?"
            )
        used.append(best)
    for label, chosen in (
        (SCHEDULER, [name for name in used if _of_scheduler(name)]),
        ("model", [name for name in used if not _of_scheduler(name)]),
    ):
        if chosen:
            short = _short_names(chosen)
            results[label] = [
                _labelled(str(label_), dict(zip(short, values, strict=True)))
                for label_, *values in zip(
                    results[label], *(results[name] for name in chosen), strict=True
                )
            ]
    return used


def _labelled(label: str, options: Mapping[str, Any]) -> str:
    given = ", ".join(f"{key}={value_text(value)}" for key, value in options.items())
    match = _LABELLED.fullmatch(label)
    return f"{match['base']}({match['options']}, {given})" if match else f"{label}({given})"


def _settled(results: pd.DataFrame, name: str) -> bool:
    """Whether a column is decided by the labels, as a parameter is and a measured figure is not."""
    return _decides(_joint(results, [*LABELS, "cost_model"]), results[name])


def _decides(codes: np.ndarray, column: Any) -> bool:
    """Whether rows of one code have one value."""
    both = codes * (len(codes) + 1) + _codes(column)
    return len(np.unique(both)) == len(np.unique(codes))


def _joint(results: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """int[rows], equal where all of the columns are equal; numbered by first appearance."""
    import pandas as pd

    codes = np.zeros(len(results), dtype=np.int64)
    for name in names:
        codes = pd.factorize(codes * (len(codes) + 1) + _codes(results[name]))[0]
    return codes


def _codes(column: Any) -> np.ndarray:
    import pandas as pd

    # Of as many rows there are few values: these are made text of, not every row.
    codes, values = pd.factorize(column.to_numpy(), use_na_sentinel=False)
    return pd.factorize(np.array([str(value) for value in values], dtype=object))[0][codes]


def _named(
    results: pd.DataFrame, columns: Sequence[str], bases: Mapping[str, str]
) -> tuple[Factor, ...]:
    names = dict(zip(columns, _short_names([bases.get(c, c) for c in columns]), strict=True))
    factors = []
    for column in columns:
        values = [value for value in dict.fromkeys(results[column].tolist()) if not _absent(value)]
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        if len(values) < 2:
            continue
        values = sorted(values) if numeric else sorted(values, key=str)
        factors.append(Factor(column, names[column], tuple(values), numeric))
    return tuple(factors)


def _short_names(columns: Sequence[str]) -> list[str]:
    """The last part of each, the whole where that is taken or says nothing."""
    ends = [column.rpartition(".")[2] for column in columns]
    return [
        column if ends.count(end) > 1 or end in ("count", "name", "sigma", "options") else end
        for column, end in zip(columns, ends, strict=True)
    ]


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def value_text(value: Any) -> str:
    """A factor's value as tables show it: ``0.5``, not ``0.5000000001``."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def find_factor(factors: Sequence[Factor], name: str) -> Factor:
    """A factor by its name, its column or the end of it.

    Raises:
        InvalidInput: there is none, or several.
    """
    exact = [factor for factor in factors if name in (factor.name, factor.column)]
    found = exact or [factor for factor in factors if factor.column.endswith(f".{name}")]
    if len(found) != 1:
        known = ", ".join(factor.name for factor in factors) or "nothing"
        problem = "is not what varies" if not found else "is ambiguous"
        raise InvalidInput(f"'{name}' {problem} in this sweep; it varies {known}")
    return found[0]
