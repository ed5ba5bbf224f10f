"""Another device's cost model, adapted with a few measurements of this one.

A kernel that reaches a third of the roofline on one device reaches about a third on a similar one. So
the starting point is the other device's log(time / roofline) over this device's roofline, and a Gaussian
process learns what that gets wrong: an offset that all kinds share, one of each kind, and a smooth
function of the operator's size, kind by kind but not independently. With no measurement of a kind it
keeps the starting point, corrected as the others were; with many it follows them.

The five variances and the length scale are those under which the measurements are most likely
(Rasmussen, Williams 2006, chapter 5). The process's own standard deviation is the spread.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cost_models.base85 import b85decode
from cost_models.features import CACHE_CODES
from cost_models.model import OWN, CostModel, Prediction, model_class, rows_to_fit
from cost_models.polynomial import parameters_of
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput

MOST_ROWS = 1500
"""Of more rows so many are drawn: solving for them takes the cube of their number."""
_PRIOR = {
    "offset": (0.7, 1.0),
    "kind": (0.3, 1.0),
    "shape": (0.2, 1.0),
    "length": (2.0, 0.7),
    "shared": (0.3, 1.0),
    "noise": (0.05, 0.7),
}
"""Each hyperparameter's typical value and the standard deviation of its logarithm: with twenty rows
the rows alone would not decide."""


@dataclass(frozen=True)
class _Process:
    """A Gaussian process that was fitted: its rows, and the solution of their covariance."""

    hyper: Mapping[str, float]
    x: np.ndarray
    kinds: tuple[str, ...]
    weights: np.ndarray
    factor: np.ndarray

    def predict(self, x: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation, float64[rows] each."""
        from scipy.linalg import solve_triangular

        own = np.asarray(self.kinds, dtype=object)
        across = _covariance(x, kinds, self.x, own, self.hyper)
        mean: np.ndarray = across @ self.weights
        h = self.hyper
        prior = h["offset"] ** 2 + h["kind"] ** 2 + h["shape"] ** 2
        solved = solve_triangular(self.factor, across.T, lower=True)
        variance = np.maximum(prior - (solved * solved).sum(axis=0), 0.0)
        return mean, np.sqrt(variance)


@dataclass
class Adapted:
    """See the module docstring. Made by :meth:`fitted` or :meth:`from_json`."""

    roofline: Roofline
    base: CostModel
    base_roofline: Roofline
    base_name: str
    process: _Process
    name: str = field(default="adapted", init=False)

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        base: Any = None,
        model: str = OWN,
        **options: Any,
    ) -> Adapted:
        """See :meth:`cost_models.model.CostModel.fitted`.

        Args:
            measurements: at least one row.
            roofline: of the device; estimated from the rows unless given.
            seed: of the rows that are kept of very many.
            only: nothing is left out: kinds inform one another.
            base: the other device's :class:`cost_models.profile.Profile`, or its name.
            model: the cost model of it to start from.
            options: there are no others.

        Raises:
            InvalidInput: no rows, no ``base``, or an unknown option.
        """
        from cost_models.profile import Profile

        rows_to_fit(measurements)
        if options:
            raise InvalidInput(
                f"The adapted model has no option '{min(options)}'; known: seed, base, model"
            )
        if base is None:
            raise InvalidInput(
                "The adapted model starts from another device's profile: name it (base=tesla-t4)"
            )
        profile = base if isinstance(base, Profile) else Profile.load(base)
        chosen = profile.model_name(model)
        start: CostModel = profile.roofline if chosen == "roofline" else profile.models[chosen]
        roofline = roofline or Roofline.fitted(measurements)
        rows = measurements.reset_index(drop=True)
        if len(rows) > MOST_ROWS:
            drawn = np.random.default_rng(seed).choice(len(rows), MOST_ROWS, replace=False)
            rows = rows.iloc[np.sort(drawn)].reset_index(drop=True)
        prior = _starting_point(rows, start, profile.roofline, roofline)
        target = np.log(rows["seconds"].to_numpy(dtype=np.float64) / prior)
        process = _fitted_process(axes_of(rows), rows["kind"].to_numpy(dtype=object), target)
        return cls(roofline, start, profile.roofline, profile.name, process)

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds and the process's standard deviation.

        In range is what the other device's model has in range, of a kind that was measured here.
        """
        rows = load(measurements, timed=False)
        kinds = rows["kind"].to_numpy(dtype=object)
        prior = _starting_point(rows, self.base, self.base_roofline, self.roofline)
        mean, spread = self.process.predict(axes_of(rows), kinds)
        inside = self.base.predict_in_full(rows).in_range
        inside = inside & rows["kind"].isin(self.process.kinds).to_numpy()
        return Prediction(prior * np.exp(mean), spread, inside)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, the other device's model in it."""
        return {
            "roofline": self.roofline.to_json(),
            "base": {
                "profile": self.base_name,
                "model": self.base.name,
                "roofline": self.base_roofline.to_json(),
                "document": self.base.to_json(),
            },
            "hyper": dict(self.process.hyper),
            "kinds": list(self.process.kinds),
            "x": _packed(self.process.x),
            "weights": _packed(self.process.weights),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Adapted:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        try:
            base = document["base"]
            kinds = tuple(document["kinds"])
            x = _unpacked(document["x"]).reshape(len(kinds), -1)
            weights = _unpacked(document["weights"])
            if len(weights) != len(kinds):
                raise ValueError("it has another number of weights than of rows")
            hyper = {name: float(document["hyper"][name]) for name in _PRIOR}
            factor = _factor(x, np.asarray(kinds, dtype=object), hyper)
            return cls(
                Roofline.from_json(document["roofline"]),
                model_class(base["model"]).from_json(base["document"]),
                Roofline.from_json(base["roofline"]),
                str(base["profile"]),
                _Process(hyper, x, kinds, weights, factor),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"The adapted model is incomplete or damaged ({error})") from None


def _starting_point(
    rows: pd.DataFrame, base: CostModel, base_roofline: Roofline, roofline: Roofline
) -> np.ndarray:
    """float64[rows]: seconds if this device stayed as far from its roofline as the other one."""
    there = base.predict(rows)
    seconds: np.ndarray = there / base_roofline.of_rows(rows) * roofline.of_rows(rows)
    return seconds


def axes_of(rows: pd.DataFrame) -> np.ndarray:
    """float64[rows, axes]: logarithms of work and sizes, and the cache state."""
    parameters = parameters_of(rows)
    flops, first, other, out = (np.log2(parameters[:, i] + 1) for i in range(4))
    moved = np.log2(parameters[:, 1:4].sum(axis=1) + 1)
    # A factor of 16 in a size counts as much as anything else by one.
    axes = [moved / 4, first / 8, other / 8, out / 8, (flops - moved) / 4]
    if "cache" in rows:
        codes = rows["cache"].map(CACHE_CODES).fillna(1.0).to_numpy(dtype=np.float64)
        axes.append(codes)
    else:
        axes.append(np.ones(len(rows)))
    return np.stack(axes, axis=1)


def _covariance(
    left: np.ndarray,
    left_kinds: np.ndarray,
    right: np.ndarray,
    right_kinds: np.ndarray,
    hyper: Mapping[str, float],
) -> np.ndarray:
    """float64[left, right]: offsets, and a Matern function of the distance (smoothness 3/2)."""
    square = (
        (left * left).sum(axis=1)[:, None]
        + (right * right).sum(axis=1)[None, :]
        - 2 * left @ right.T
    )
    far = np.sqrt(3 * np.maximum(square, 0.0)) / hyper["length"]
    smooth = (1 + far) * np.exp(-far)
    same = (left_kinds[:, None] == right_kinds[None, :]).astype(np.float64)
    shared = hyper["shared"] / (1 + hyper["shared"])
    found: np.ndarray = (
        hyper["offset"] ** 2
        + hyper["kind"] ** 2 * same
        + hyper["shape"] ** 2 * smooth * (shared + (1 - shared) * same)
    )
    return found


def _factor(x: np.ndarray, kinds: np.ndarray, hyper: Mapping[str, float]) -> np.ndarray:
    """The lower Cholesky factor of the rows' covariance with their noise."""
    matrix = _covariance(x, kinds, x, kinds, hyper)
    matrix[np.diag_indices_from(matrix)] += hyper["noise"] ** 2 + 1e-8
    return np.linalg.cholesky(matrix)


def _fitted_process(x: np.ndarray, kinds: np.ndarray, target: np.ndarray) -> _Process:
    from scipy.linalg import cho_solve
    from scipy.optimize import minimize

    names = list(_PRIOR)
    middle = np.log([_PRIOR[name][0] for name in names])
    width = np.array([_PRIOR[name][1] for name in names])
    # The hyperparameters of many rows are found from some of them: they are few, and rows are many.
    some = np.linspace(0, len(target) - 1, min(len(target), 400)).astype(int)

    def negative_log_posterior(logs: np.ndarray) -> float:
        hyper = dict(zip(names, np.exp(logs).tolist(), strict=True))
        factor = _factor(x[some], kinds[some], hyper)
        solved = cho_solve((factor, True), target[some])
        likelihood = 0.5 * target[some] @ solved + np.log(np.diag(factor)).sum()
        return float(likelihood + 0.5 * (((logs - middle) / width) ** 2).sum())

    found = minimize(
        negative_log_posterior,
        middle,
        method="L-BFGS-B",
        bounds=[(m - 3 * w, m + 3 * w) for m, w in zip(middle, width, strict=True)],
        options={"maxiter": 40},
    )
    hyper = dict(zip(names, np.exp(found.x).tolist(), strict=True))
    factor = _factor(x, kinds, hyper)
    weights = cho_solve((factor, True), target)
    return _Process(hyper, x, tuple(map(str, kinds)), weights, factor)


def _packed(array: np.ndarray) -> str:
    return base64.b85encode(np.ascontiguousarray(array, dtype="<f8").tobytes()).decode()


def _unpacked(text: str) -> np.ndarray:
    return np.frombuffer(b85decode(text), dtype="<f8")
