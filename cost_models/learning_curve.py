"""Error against the number of measurements: from another device's profile, and from nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cost_models.adapted import Adapted
from cost_models.boosted import Boosted
from cost_models.folds import folds_of
from cost_models.roofline import Roofline

if TYPE_CHECKING:
    from cost_models.profile import Profile

COUNTS = (20, 50, 200, 1000)
REPEATS = 3


def learning_curve(
    table: pd.DataFrame,
    start: Profile,
    roofline: Roofline,
    *,
    counts: Sequence[int] = COUNTS,
    repeats: int = REPEATS,
    seed: int = 0,
    show: Callable[[str], None] = lambda line: None,
) -> pd.DataFrame:
    """Held-out errors of models that were given so many of the table's rows, drawn at random.

    Args:
        table: a valid measurement table, of one cache state.
        start: the other device's profile.
        roofline: of this device.
        counts: numbers of rows; those above what the other folds hold are left out.
        repeats: each with another fold held out and other rows drawn.
        seed: of the draws.
        show: called with a line of progress.

    Returns:
        The columns ``model`` (``adapted``, ``boosted``: from these rows alone), ``rows``, ``median``,
        ``mean``, ``p90`` of the relative error over the fold held out, averaged over repeats; with 0
        rows what the other device's profile says over this device's roofline.
    """
    fold = folds_of(table)
    numbers = [number for number in np.unique(fold) if (fold == number).any()][:repeats]
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for number in numbers:
        test = table[fold == number].reset_index(drop=True)
        rest = np.flatnonzero(fold != number)
        order = np.random.default_rng([seed, int(number)]).permutation(rest)
        beginning = _start(test, start, roofline)
        found.setdefault(("adapted", 0), []).append(_errors(beginning, test))
        for count in counts:
            if count > len(order):
                continue
            show(f"learning from {count} measurements, fold {number} held out")
            rows = table.iloc[order[:count]].reset_index(drop=True)
            for model in (
                Adapted.fitted(rows, roofline=roofline, seed=seed, base=start),
                Boosted.fitted(rows, roofline=roofline, seed=seed),
            ):
                errors = _errors(model.predict(test), test)
                found.setdefault((model.name, count), []).append(errors)
    lines = [
        {"model": model, "rows": count, **dict(zip(("median", "mean", "p90"), means, strict=True))}
        for (model, count), errors in found.items()
        for means in [np.mean(errors, axis=0).tolist()]
    ]
    return pd.DataFrame(lines, columns=["model", "rows", "median", "mean", "p90"])


def _start(test: pd.DataFrame, start: Profile, roofline: Roofline) -> np.ndarray:
    name = start.model_name()
    there = start.roofline if name == "roofline" else start.models[name]
    seconds: np.ndarray = (
        there.predict(test) / start.roofline.of_rows(test) * roofline.of_rows(test)
    )
    return seconds


def _errors(predicted: np.ndarray, test: pd.DataFrame) -> tuple[float, float, float]:
    error = np.abs(predicted / test["seconds"].to_numpy() - 1)
    return float(np.median(error)), float(error.mean()), float(np.quantile(error, 0.9))
