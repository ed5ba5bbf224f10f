"""How wrong a cost model is on what it has not seen, beside how well a measurement repeats.

Two kinds of not seen: a fifth of the shapes (:mod:`cost_models.folds`), and whole architectures, where
every shape that occurs in the architecture is taken out of the training data, whatever else it also
occurs in. The A/A error, two independent measurements of the same operators against each other, is the
floor that no model can be told apart below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from cost_models.boosted import Boosted
from cost_models.folds import FOLDS, folds_of
from cost_models.roofline import Roofline
from cost_models.table import identities


class Predicts(Protocol):
    """A fitted cost model."""

    def predict(self, measurements: Any) -> np.ndarray:
        """Seconds of every row."""
        ...


Fit = Callable[[pd.DataFrame, Collection[str]], Predicts]
"""Fits to rows; the second argument names the kinds that will be asked for."""


Errors = Mapping[str, Mapping[str, pd.DataFrame]]
"""For each model and each way of holding out (``architecture``, ``fold``) the rows with their errors."""


def cross_validate(
    table: pd.DataFrame,
    roofline: Roofline,
    cache: str | None,
    options: Mapping[str, Any] | None = None,
    show: Callable[[str], None] = lambda line: None,
) -> Errors:
    """Held-out errors of the boosted model and of the roofline, architectures and folds held out.

    Args:
        table: a valid measurement table.
        roofline: measured peaks.
        cache: rows of other cache states are trained on and not counted; None counts all.
        options: of :class:`cost_models.boosted.Boosted`.
        show: called with a line of progress.
    """

    def boosted(rows: pd.DataFrame, kinds: Collection[str]) -> Predicts:
        return Boosted.fitted(rows, roofline=roofline, only=kinds, **(options or {}))

    def bare(rows: pd.DataFrame, kinds: Collection[str]) -> Predicts:
        return roofline

    counted = np.ones(len(table), dtype=bool)
    if cache is not None and "cache" in table:
        counted = (table["cache"] == cache).to_numpy()
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for model, fit, tell in (("boosted", boosted, show), ("roofline", bare, lambda line: None)):
        found[model] = {}
        for way, hold in (("architecture", by_architecture), ("fold", by_fold)):
            errors = relative_errors(table, hold(table, fit, tell))
            kept = counted[errors["row"].to_numpy(dtype=np.int64)]
            found[model][way] = errors[kept].reset_index(drop=True)
    return found


def by_fold(
    measurements: pd.DataFrame, fit: Fit, show: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Every row predicted by a model that has not seen its fold.

    Returns:
        The columns ``row`` (position in ``measurements``), ``group`` (the fold) and ``predicted``.
    """
    fold = folds_of(measurements)
    parts = []
    for number in range(FOLDS):
        held = fold == number
        if not held.any() or held.all():
            continue
        show(f"fold {number + 1} of {FOLDS}")
        parts.append(_predicted(measurements, held, ~held, fit, str(number)))
    return _joined(parts)


def by_architecture(
    measurements: pd.DataFrame, fit: Fit, show: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Every row of every architecture predicted by a model that has not seen that architecture.

    A row that occurs in two architectures is predicted twice. Returns as :func:`by_fold`, ``group``
    being the architecture.
    """
    if "architectures" not in measurements:
        return _joined([])
    members = measurements["architectures"]
    names = sorted({name for row in members if row is not None for name in row})
    same = identities(measurements)
    parts = []
    for name in names:
        held = np.array([row is not None and name in row for row in members])
        # The same shape in another cache state must not tell either.
        seen = ~np.isin(same, same[held])
        if not seen.any():
            continue
        show(f"without {name}: {int(held.sum())} rows")
        parts.append(_predicted(measurements, held, seen, fit, name))
    return _joined(parts)


def _predicted(
    measurements: pd.DataFrame, held: np.ndarray, seen: np.ndarray, fit: Fit, group: str
) -> pd.DataFrame:
    test = measurements[held].reset_index(drop=True)
    model = fit(measurements[seen].reset_index(drop=True), set(test["kind"]))
    return pd.DataFrame(
        {"row": np.flatnonzero(held), "group": group, "predicted": model.predict(test)}
    )


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    if not parts:
        return pd.DataFrame({"row": pd.Series(dtype=np.int64), "group": [], "predicted": []})
    return pd.concat(parts, ignore_index=True)


def relative_errors(measurements: pd.DataFrame, held_out: pd.DataFrame) -> pd.DataFrame:
    """``held_out`` with ``kind``, ``seconds``, ``log_residual`` and ``error``.

    ``log_residual`` is log(measured / predicted); ``error`` is the distance of predicted / measured from 1.
    """
    rows = measurements.iloc[held_out["row"].to_numpy()].reset_index(drop=True)
    found = held_out.reset_index(drop=True).copy()
    found["kind"] = rows["kind"]
    found["seconds"] = rows["seconds"]
    found["log_residual"] = np.log(found["seconds"] / found["predicted"])
    found["error"] = (found["predicted"] / found["seconds"] - 1).abs()
    return found


def repeat_errors(measurements: pd.DataFrame) -> np.ndarray:
    """float64[rows]: distance of a / b from 1, a and b two independent halves; NaN without two."""
    if "half_a_s" not in measurements or "half_b_s" not in measurements:
        return np.full(len(measurements), np.nan)
    a, b = (measurements[c].to_numpy(dtype=np.float64) for c in ("half_a_s", "half_b_s"))
    return np.abs(a / b - 1)


def summary(measurements: pd.DataFrame, errors: pd.DataFrame) -> pd.DataFrame:
    """One row per kind and one for all (``all``), sorted by number of operators.

    Columns: ``rows``, ``median``, ``mean``, ``p90`` of the relative error; ``aa_median``, ``aa_mean``
    of the same operators' A/A error; ``bias``, the median of predicted / measured - 1.
    """
    repeat = repeat_errors(measurements)

    def line(part: pd.DataFrame) -> dict[str, float]:
        rows = np.unique(part["row"].to_numpy())
        again = repeat[rows]
        again = again[np.isfinite(again)]
        return {
            "rows": len(part),
            "median": float(part["error"].median()),
            "mean": float(part["error"].mean()),
            "p90": float(part["error"].quantile(0.9)),
            "bias": float(np.exp(-part["log_residual"].median()) - 1),
            "aa_median": float(np.median(again)) if len(again) else float("nan"),
            "aa_mean": float(np.mean(again)) if len(again) else float("nan"),
        }

    if not len(errors):
        return pd.DataFrame()
    lines = {str(kind): line(part) for kind, part in errors.groupby("kind")}
    order = sorted(lines, key=lambda kind: (-lines[kind]["rows"], kind))
    table = {"all": line(errors), **{kind: lines[kind] for kind in order}}
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("kind")
