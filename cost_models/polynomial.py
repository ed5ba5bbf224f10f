"""Polynomials in a few work parameters, one for each kind of operator.

Thesis 004's multi-parameter model: ``t = sum_k theta_k phi_k(x)``, ``phi`` the monomials up to a total
degree, with ridge regression and the degree by cross-validation, never below the shortest measured
time, nor at more times the roofline than any measured operator of the kind. The parameters are FLOPs,
bytes that come from each side, batch, and what an operator depends on and serves (how many tensors it
reads and writes). Errors count relative to the time, so that short operators weigh as much as long ones.

A kernel's time is piecewise linear in these parameters, not cubic, so the same monomials of their
logarithms are tried as well, for log(time / roofline); cross-validation takes whichever is better for
the kind.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd

from cost_models.features import work
from cost_models.measured_range import MeasuredRange
from cost_models.model import Prediction, rows_to_fit
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput
from simulator.model.operator import ITEM_BYTES

PARAMETERS = ("flops", "bytes_first", "bytes_other", "bytes_out", "batch", "reads", "writes")
SPACES = ("linear", "log")
RIDGES = (1e-12, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
"""Tried shares of the ridge in the mean square of the design's columns."""
FOLDS = 5
_LONGEST = 1e6
"""Of fits that do not say how many times the roofline's the longest measured time was."""


@dataclass(frozen=True)
class _Fit:
    """One kind in one cache state."""

    space: str
    degree: int
    shift: np.ndarray
    scale: np.ndarray
    used: tuple[int, ...]
    coefficients: np.ndarray
    floor: float
    longest: float

    def seconds(self, parameters: np.ndarray, roofline: np.ndarray) -> np.ndarray:
        """float64[rows] of float64[rows, parameters]."""
        x = _scaled(parameters, self.space, self.shift, self.scale, self.used)
        values = _monomials(x, self.degree) @ self.coefficients
        if self.space == "log":
            values = roofline * np.exp(np.clip(values, -np.log(_LONGEST), np.log(_LONGEST)))
        # Outside what was measured a polynomial goes astray by powers of ten.
        return np.clip(values, self.floor, np.maximum(self.floor, roofline * self.longest))


@dataclass
class Polynomial:
    """See the module docstring. Made by :meth:`fitted` or :meth:`from_json`."""

    roofline: Roofline
    fits: Mapping[str, _Fit]
    measured: MeasuredRange
    name: str = field(default="polynomial", init=False)

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        degree: int = 3,
        spaces: Sequence[str] = SPACES,
        **options: Any,
    ) -> Polynomial:
        """See :meth:`cost_models.model.CostModel.fitted`.

        Args:
            measurements: at least one row.
            roofline: of the device; estimated from the rows unless given.
            seed: of the folds within which degree, space and ridge are chosen.
            only: fit these kinds alone.
            degree: the highest total degree tried, at most 3.
            spaces: which of ``linear`` and ``log`` are tried.
            options: there are no others.

        Raises:
            InvalidInput: no rows, an unknown option, or a degree or space that there is not.
        """
        rows_to_fit(measurements)
        if options:
            raise InvalidInput(
                f"The polynomial model has no option '{min(options)}'; known: seed, degree, spaces"
            )
        if not 1 <= degree <= 3:
            raise InvalidInput(f"degree is 1 to 3, not {degree}")
        if not spaces or set(spaces) - set(SPACES):
            raise InvalidInput(f"spaces are of {', '.join(SPACES)}, not {list(spaces)}")
        roofline = roofline or Roofline.fitted(measurements)
        bound = roofline.of_rows(measurements)
        parameters = parameters_of(measurements)
        labels = _labels(measurements)
        seconds = measurements["seconds"].to_numpy(dtype=np.float64)
        fits = {}
        for label in sorted(set(labels)):
            if only is None or label.partition("|")[0] in only:
                rows = np.flatnonzero(labels == label)
                order = np.random.default_rng(seed).permutation(len(rows))
                fits[label] = _fit(
                    parameters[rows], seconds[rows], bound[rows], order, degree, spaces
                )
        return cls(roofline, fits, MeasuredRange.of(labels, _logs(parameters)))

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds, and whether each row lies in the measured range; a polynomial has no members."""
        rows = load(measurements, timed=False)
        seconds = self.roofline.of_rows(rows)
        parameters = parameters_of(rows)
        labels = _labels(rows)
        for label in dict.fromkeys(labels):
            found = self.fits.get(label)
            if found is not None:
                chosen = np.flatnonzero(labels == label)
                seconds[chosen] = found.seconds(parameters[chosen], seconds[chosen])
        inside = self.measured.contains(labels, _logs(parameters))
        return Prediction(seconds, np.full(len(rows), np.nan), inside)

    def to_json(self) -> dict[str, Any]:
        """The coefficients as a JSON object."""
        fits = {
            label: {
                "space": fit.space,
                "degree": fit.degree,
                "shift": fit.shift.tolist(),
                "scale": fit.scale.tolist(),
                "used": list(fit.used),
                "coefficients": fit.coefficients.tolist(),
                "floor": fit.floor,
                "longest": fit.longest,
            }
            for label, fit in self.fits.items()
        }
        return {
            "roofline": self.roofline.to_json(),
            "parameters": list(PARAMETERS),
            "fits": fits,
            "measured": self.measured.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Polynomial:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        try:
            if tuple(document["parameters"]) != PARAMETERS:
                raise ValueError(f"its parameters are {document['parameters']}")
            fits = {}
            for label, entry in document["fits"].items():
                arrays = {
                    key: np.array(entry[key], dtype=np.float64)
                    for key in ("shift", "scale", "coefficients")
                }
                used = tuple(int(u) for u in entry["used"])
                if len(arrays["coefficients"]) != len(_exponents(len(used), entry["degree"])):
                    raise ValueError(f"'{label}' has another number of coefficients")
                fits[label] = _Fit(
                    space=entry["space"],
                    degree=int(entry["degree"]),
                    used=used,
                    floor=float(entry["floor"]),
                    longest=float(entry.get("longest", _LONGEST)),
                    **arrays,
                )
            measured = MeasuredRange.from_json(document["measured"])
            return cls(Roofline.from_json(document["roofline"]), fits, measured)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(f"The polynomial model is incomplete or damaged ({error})") from None


def parameters_of(rows: pd.DataFrame) -> np.ndarray:
    """float64[rows, :data:`PARAMETERS`] of a valid table."""
    known: dict[tuple[Any, ...], tuple[float, ...]] = {}
    found = []
    columns = (rows[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes"))
    for key in zip(*columns, strict=True):
        values = known.get(key)
        if values is None:
            kind, dtype, inputs, outputs, attributes = key
            sizes = [_elements(shape) * ITEM_BYTES[dtype] for shape in (*inputs, *outputs)]
            first, other = sum(sizes[:1]), sum(sizes[1 : len(inputs)])
            batch = outputs[0][0] if outputs and outputs[0] else 1
            values = (
                work(kind, dtype, inputs, outputs, json.loads(attributes))[0],
                float(first),
                float(other),
                float(sum(sizes[len(inputs) :])),
                float(batch),
                float(len(inputs)),
                float(len(outputs)),
            )
            known[key] = values
        found.append(values)
    return np.array(found, dtype=np.float64).reshape(len(found), len(PARAMETERS))


def _elements(shape: Sequence[int]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total


def _labels(rows: pd.DataFrame) -> np.ndarray:
    """Kind and cache state: each pair has a polynomial of its own."""
    kinds = rows["kind"].astype(str)
    if "cache" in rows:
        kinds = kinds + "|" + rows["cache"].fillna("").astype(str)
    return kinds.to_numpy(dtype=object)


def _logs(parameters: np.ndarray) -> np.ndarray:
    return np.log2(parameters + 1)


@cache
def _exponents(variables: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """Index lists of all monomials up to a degree, the constant first."""
    return tuple(
        chosen
        for total in range(degree + 1)
        for chosen in combinations_with_replacement(range(variables), total)
    )


def _monomials(x: np.ndarray, degree: int) -> np.ndarray:
    columns = [np.prod(x[:, list(chosen)], axis=1) for chosen in _exponents(x.shape[1], degree)]
    return np.stack(columns, axis=1)


def _scaled(
    parameters: np.ndarray,
    space: str,
    shift: np.ndarray,
    scale: np.ndarray,
    used: Sequence[int],
) -> np.ndarray:
    values = _logs(parameters) if space == "log" else parameters
    return (values[:, list(used)] - shift) / scale


def _fit(
    parameters: np.ndarray,
    seconds: np.ndarray,
    roofline: np.ndarray,
    order: np.ndarray,
    degree: int,
    spaces: Sequence[str],
) -> _Fit:
    floor, longest = float(seconds.min()), float((seconds / roofline).max())
    best: tuple[float, _Fit] | None = None
    for space in spaces:
        values = _logs(parameters) if space == "log" else parameters
        used = tuple(int(i) for i in np.flatnonzero(np.ptp(values, axis=0) > 0))
        chosen = values[:, list(used)]
        shift, scale = chosen.mean(axis=0), chosen.std(axis=0)
        x = (chosen - shift) / scale
        # Relative errors: a row of the linear design is divided by its time.
        target = np.log(seconds / roofline) if space == "log" else np.ones(len(seconds))
        weight = np.ones(len(seconds)) if space == "log" else 1 / seconds
        for power in range(degree + 1):
            design = _monomials(x, power) * weight[:, None]
            errors = _cross_validated(design, target, order, space)
            ridge = int(np.argmin(errors))
            if best is None or errors[ridge] < best[0]:
                theta = _Ridge(design, target).solve(RIDGES[ridge])
                fit = _Fit(space, power, shift, scale, used, theta, floor, longest)
                best = float(errors[ridge]), fit
    assert best is not None
    return best[1]


class _Ridge:
    """Least squares with a ridge, decomposed once for all ridges.

    Columns are brought to one length first: monomials of different degrees differ by orders of
    magnitude, and one ridge must mean the same to each.
    """

    def __init__(self, design: np.ndarray, target: np.ndarray) -> None:
        length = np.sqrt((design * design).mean(axis=0))
        self._length = np.where(length > 0, length, 1.0)
        u, self._singular, self._v = np.linalg.svd(design / self._length, full_matrices=False)
        self._projected = u.T @ target
        self._rows = len(design)

    def solve(self, ridge: float) -> np.ndarray:
        """float64[columns]."""
        s = self._singular
        shrunk = s / (s * s + ridge * self._rows)
        theta: np.ndarray = (self._v.T @ (shrunk * self._projected)) / self._length
        return theta


def _cross_validated(
    design: np.ndarray, target: np.ndarray, order: np.ndarray, space: str
) -> np.ndarray:
    """float64[ridges]: mean relative error of rows left out, each at most 1."""
    count = len(target)
    folds = min(FOLDS, count)
    if count < 2 or design.shape[1] >= count:
        # With as many monomials as rows there is nothing left to judge by; only a constant passes.
        return np.full(len(RIDGES), 1.0 if design.shape[1] > 1 else 0.999)
    total = np.zeros(len(RIDGES))
    for fold in range(folds):
        test = order[fold::folds]
        train = np.setdiff1d(order, test)
        solver = _Ridge(design[train], target[train])
        for i, ridge in enumerate(RIDGES):
            off = design[test] @ solver.solve(ridge) - target[test]
            error = np.abs(np.expm1(np.clip(off, -20, 20))) if space == "log" else np.abs(off)
            total[i] += np.minimum(error, 1.0).sum()
    return total / count
