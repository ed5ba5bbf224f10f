"""How wrong a cost model is on what it has not seen, beside how well a measurement repeats.

Two kinds of not seen: a fifth of the shapes (:mod:`cost_models.folds`), and whole architectures, where
every shape that occurs in the architecture is taken out of the training data, whatever else it also
occurs in. The A/A error, two independent measurements of the same operators against each other, is the
floor that no model can be told apart below.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import pandas as pd

from cost_models.features import known_work
from cost_models.fitting import fitted_models
from cost_models.folds import FOLDS, folds_of
from cost_models.measured_range import NEAR, Reach
from cost_models.model import DEFAULT, Prediction
from cost_models.roofline import Roofline
from cost_models.table import FEATURES, identities, telling
from simulator.support.exit_with_parent import end_with

BUNDLES, KIND_BUNDLES = 10, 5
"""Fits in which architectures are held out, several at once where there are more of them, and kinds."""
WAYS = ("architecture", "fold", "kind", "size")
ENDS, ENOUGH = 0.1, 20
"""Of a kind's operators, the smallest and the largest are held out together, if the kind has enough."""


class Predicts(Protocol):
    """A fitted cost model."""

    def predict(self, measurements: Any) -> np.ndarray:
        """Seconds of every row."""
        ...


Fit = Callable[[pd.DataFrame, Collection[str]], Predicts]
"""Fits to rows; the second argument names the kinds that will be asked for."""


Errors = Mapping[str, Mapping[str, pd.DataFrame]]
"""For each model and each way of holding out (:data:`WAYS`) the rows with their errors: the columns of
:func:`relative_errors`."""


def cross_validate(
    table: pd.DataFrame,
    roofline: Roofline,
    cache: str | None,
    models: Sequence[str] = (DEFAULT,),
    *,
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int = 1,
    show: Callable[[str], None] = lambda line: None,
) -> Errors:
    """Held-out errors of cost models and of the roofline: architectures, folds, kinds and ends of sizes held out.

    Args:
        table: a valid measurement table.
        roofline: measured peaks.
        cache: rows of other cache states are not counted, and trained on as :func:`cost_models.table.telling` says;
            None counts all.
        models: their names; the roofline is always there, and an ensemble brings its members.
        seed: of the models.
        options: of models, by their names.
        workers: processes that fit side by side.
        show: called with a line of progress.
    """
    counted = np.ones(len(table), dtype=bool)
    if cache is not None and "cache" in table:
        counted = (table["cache"] == cache).to_numpy()
    ways = {
        "architecture": bundled(architectures_of(table)),
        "fold": fold_splits(table),
        "kind": bundled(kind_splits(table), KIND_BUNDLES),
        "size": size_splits(table),
    }
    splits = [(way, split) for way in WAYS for split in ways[way]]
    work = _Work(table, telling(table, cache), roofline, tuple(models), seed, options)
    parts: dict[tuple[str, str], list[pd.DataFrame]] = {}
    show(f"without {splits[0][0]} {splits[0][1].group}, 1 of {len(splits)}" if splits else "")
    with contextlib.closing(_results(work, [split for _, split in splits], workers)) as results:
        for number, ((way, split), result) in enumerate(zip(splits, results, strict=True)):
            show(f"without {way} {split.group}: {number + 1} of {len(splits)} done")
            for name, part in result:
                parts.setdefault((name, way), []).append(part)
    names = dict.fromkeys(["roofline", *(name for name, _ in parts)])
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for name in [*(n for n in names if n != "roofline"), "roofline"]:
        for way in WAYS:
            errors = relative_errors(table, _joined(parts.get((name, way), [])))
            kept = counted[errors["row"].to_numpy(dtype=np.int64)]
            found.setdefault(name, {})[way] = errors[kept].reset_index(drop=True)
    return found


@dataclass(frozen=True)
class _Work:
    """What every split is worked with."""

    table: pd.DataFrame
    told: np.ndarray
    roofline: Roofline
    models: tuple[str, ...]
    seed: int
    options: Mapping[str, Mapping[str, Any]] | None

    def result(self, split: Split) -> list[tuple[str, pd.DataFrame]]:
        """What each model, not having seen the rows held out, says of them."""
        rows = self.table[split.seen & self.told].reset_index(drop=True)
        test = self.table[split.held].reset_index(drop=True)
        fitted = fitted_models(
            rows,
            self.roofline,
            self.models,
            seed=self.seed,
            only=set(test["kind"]),
            options=self.options,
        )
        found = []
        reach, keys = Reach.of(_keys(rows)), _keys(test)
        for name, model in {**fitted, "roofline": self.roofline}.items():
            predicted = model.predict_in_full(test)
            far = reach.distances(keys, predicted.in_range)
            for part in split.parts or (split,):
                mine = part.held[split.held]
                found.append((name, _part(part, predicted.at(mine), far[mine])))
        return found


_kept: list[_Work] = []
"""In a process of the pool: its work, which crosses once and not with every split."""


def _begin(work: _Work, lifeline: Connection) -> None:
    _kept.append(work)
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # Ctrl-C reaches the whole group: no traceback each
    end_with(lifeline)  # a fit may take minutes more, which nobody waits for then


def _result_of_kept(split: Split) -> list[tuple[str, pd.DataFrame]]:
    return _kept[0].result(split)


def _results(
    work: _Work, splits: Sequence[Split], workers: int
) -> Generator[list[tuple[str, pd.DataFrame]], None, None]:
    """The result of every split, in order; its processes end with this one, however that ends."""
    if workers == 1 or len(splits) < 2:
        yield from map(work.result, splits)
        return
    # Threads of XGBoost and PyTorch do not survive a fork.
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    with reader, writer:
        pool = ProcessPoolExecutor(
            min(workers, len(splits)), context, initializer=_begin, initargs=(work, reader)
        )
        try:
            yield from pool.map(_result_of_kept, splits)
        except BaseException:  # interrupted, or asked for no more
            writer.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Split:
    """Rows that are predicted and rows that the model may have seen.

    Attributes:
        group: what is held out.
        held: bool[rows].
        seen: bool[rows].
        parts: groups that are held out together, each with its own rows; empty: it is one.
    """

    group: str
    held: np.ndarray
    seen: np.ndarray
    parts: tuple[Split, ...] = ()


def bundled(splits: Sequence[Split], most: int = BUNDLES) -> list[Split]:
    """Groups held out together in at most so many fits: neighbours by name, about as many rows in each.

    What is left out of one fit is more than one group, so none is predicted by a model that saw more than by
    itself; residuals stay apart by group.
    """
    if len(splits) <= most:
        return list(splits)
    ends = np.cumsum([split.held.sum() for split in splits])
    bundle = np.minimum((ends - 1) * most // ends[-1], most - 1)
    found = []
    for number in np.unique(bundle):
        parts = [split for split, own in zip(splits, bundle, strict=True) if own == number]
        seen = np.logical_and.reduce([part.seen for part in parts])
        if not seen.any():
            return list(splits)
        held = np.logical_or.reduce([part.held for part in parts])
        found.append(Split(", ".join(part.group for part in parts), held, seen, tuple(parts)))
    return found


def fold_splits(measurements: pd.DataFrame) -> list[Split]:
    """One for each fold that has rows (:mod:`cost_models.folds`)."""
    fold = folds_of(measurements)
    splits = [Split(str(number), fold == number, fold != number) for number in range(FOLDS)]
    return [split for split in splits if split.held.any() and split.seen.any()]


def architectures_of(measurements: pd.DataFrame) -> list[Split]:
    """One for each architecture; all its shapes are unseen, whatever else they also occur in."""
    if "architectures" not in measurements:
        return []
    members = measurements["architectures"]
    same = identities(measurements)
    splits = []
    for name in sorted({name for row in members if row is not None for name in row}):
        held = np.array([row is not None and name in row for row in members])
        # The same shape in another cache state must not tell either.
        seen = ~np.isin(same, same[held])
        if seen.any():
            splits.append(Split(name, held, seen))
    return splits


def kind_splits(measurements: pd.DataFrame) -> list[Split]:
    """One for each kind: what is said of kinds that were never measured."""
    kinds = measurements["kind"].to_numpy()
    return [Split(str(k), kinds == k, kinds != k) for k in sorted(set(kinds)) if (kinds != k).any()]


def size_splits(measurements: pd.DataFrame) -> list[Split]:
    """The operators of every kind that move least and most, in one: what is said of sizes beyond those measured."""
    moved = np.array([known_work(*key)[1] for key in _keys(measurements)])
    kinds = measurements["kind"].to_numpy()
    held = np.zeros(len(kinds), dtype=bool)
    for kind in set(kinds):
        mine = np.flatnonzero(kinds == kind)
        if len(mine) >= ENOUGH:
            low, high = np.quantile(moved[mine], [ENDS, 1 - ENDS])
            held[mine] = (moved[mine] < low) | (moved[mine] > high)
    return [Split("ends", held, ~held)] if held.any() and not held.all() else []


def _keys(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[c] for c in FEATURES), strict=True))


def by_fold(
    measurements: pd.DataFrame, fit: Fit, show: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Every row predicted by a model that has not seen its fold.

    Returns:
        The columns ``row`` (position in ``measurements``), ``group`` (the fold), ``predicted`` and
        ``in_range`` (always true here: a fit may be of any kind).
    """
    return _joined([_predicted(measurements, s, fit, show) for s in fold_splits(measurements)])


def by_architecture(
    measurements: pd.DataFrame, fit: Fit, show: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Every row of every architecture predicted by a model that has not seen that architecture.

    A row that occurs in two architectures is predicted twice. Returns as :func:`by_fold`, ``group``
    being the architecture.
    """
    return _joined([_predicted(measurements, s, fit, show) for s in architectures_of(measurements)])


def _predicted(
    measurements: pd.DataFrame, split: Split, fit: Fit, show: Callable[[str], None]
) -> pd.DataFrame:
    show(f"without {split.group}: {int(split.held.sum())} rows")
    test = measurements[split.held].reset_index(drop=True)
    model = fit(measurements[split.seen].reset_index(drop=True), set(test["kind"]))
    seconds = model.predict(test)
    inside = np.ones(len(test), dtype=bool)
    near = np.full(len(test), NEAR)
    return _part(split, Prediction(seconds, np.full(len(test), np.nan), inside), near)


def _part(split: Split, predicted: Prediction, far: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "row": np.flatnonzero(split.held),
            "group": split.group,
            "predicted": predicted.seconds,
            "in_range": predicted.in_range,
            "distance": far,
        }
    )


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    if not parts:
        return pd.DataFrame(
            {
                "row": pd.Series(dtype=np.int64),
                "group": [],
                "predicted": [],
                "in_range": pd.Series(dtype=bool),
                "distance": pd.Series(dtype=np.int64),
            }
        )
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
