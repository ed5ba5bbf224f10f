"""Interpolation along a dense axis: sequence length, rows of a product, batch.

Trees are constant between the lengths that they were shown, and so miss a length that was not. Rows of
a table that differ in nothing but that axis form a curve; between two measured points log(time /
roofline) is interpolated in log(length) by a monotone cubic (Fritsch and Carlson 1980,
https://doi.org/10.1137/0717021), which does not overshoot where a library changes its kernel. Trees
(:class:`cost_models.boosted.Boosted`) know what other curves do at that length. Their errors are nearly
independent, so the prediction is the geometric mean of both; where there is no curve, or only one end
of it, it is the trees'.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cost_models.boosted import Boosted
from cost_models.model import Prediction
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput

Shapes = tuple[tuple[int, ...], ...]
LEAST = 2
"""Points that a curve needs."""
MEMBERS = 3
"""Boosters that are averaged."""
_ROWS = ("linear",)


@dataclass(frozen=True)
class Curve:
    """Measured points of one curve.

    Attributes:
        lengths: float64[points], ascending.
        ratios: float64[points], log(time / roofline).
    """

    lengths: np.ndarray
    ratios: np.ndarray

    def at(self, lengths: np.ndarray) -> np.ndarray:
        """float64[lengths]: log(time / roofline); beyond the measured ends that of the end."""
        from scipy.interpolate import PchipInterpolator

        measured = np.log(self.lengths)
        asked = np.clip(np.log(lengths), measured[0], measured[-1])
        if len(measured) < 3:
            return np.interp(asked, measured, self.ratios)
        found: np.ndarray = PchipInterpolator(measured, self.ratios)(asked)
        return found


def axis_of(
    kind: str, inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]
) -> tuple[int, str] | None:
    """The length of the dense axis, and a text that is equal for rows of one curve; or None.

    Attention: the keys' length, which the queries' follows where they were equal (a model's first
    pass) and does not where the queries are one (generation). A linear layer: its rows.
    """
    rest = {k: v for k, v in attributes.items() if k != "layouts"}
    if attributes.get("layouts"):
        return None
    if kind == "scaled_dot_product_attention" and len(inputs) == 3 and len(inputs[1]) >= 2:
        query, key, value = inputs
        length = key[-2]
        same = query[-2] == length
        shapes = [
            [*query[:-2], "length" if same else query[-2], query[-1]],
            [*key[:-2], key[-1]],
            [*value[:-2], value[-1]],
        ]
        return max(length, 1), _text(kind, shapes, rest)
    if kind in _ROWS and len(inputs) >= 2 and inputs[0]:
        rows = math.prod(inputs[0][:-1])
        return max(rows, 1), _text(kind, [*inputs[1:]], rest)
    return None


def _text(kind: str, shapes: Any, attributes: Mapping[str, Any]) -> str:
    return json.dumps([kind, shapes, attributes], sort_keys=True, separators=(",", ":"))


@dataclass
class Interpolated:
    """See the module docstring. Made by :meth:`fitted` or :meth:`from_json`.

    Attributes:
        boosted: the trees; their roofline is what the curves' ratios are to.
        curves: by what their rows share, element type and cache state included.
    """

    boosted: Boosted
    curves: Mapping[str, Curve]
    name: str = field(default="interpolated", init=False)

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        **options: Any,
    ) -> Interpolated:
        """Fit to a valid measurement table; ``options`` are those of :class:`Boosted`.

        Raises:
            InvalidInput: no rows, or an unknown option.
        """
        settings = {"without": ("axis",), "members": MEMBERS, **options}
        boosted = Boosted.fitted(measurements, roofline=roofline, seed=seed, only=only, **settings)
        ratios = np.log(measurements["seconds"].to_numpy() / boosted.bare(measurements))
        points: dict[str, dict[int, list[float]]] = {}
        for ratio, axis in zip(ratios.tolist(), _axes(measurements), strict=True):
            if axis is not None:
                points.setdefault(axis[1], {}).setdefault(axis[0], []).append(ratio)
        curves = {
            key: Curve(
                np.array(sorted(by_length), dtype=np.float64),
                np.array([np.mean(by_length[length]) for length in sorted(by_length)]),
            )
            for key, by_length in points.items()
            if len(by_length) >= LEAST
        }
        return cls(boosted, curves)

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds; the spread is how far curve and trees disagree where both say something."""
        rows = load(measurements, timed=False)
        found = self.boosted.predict_in_full(rows)
        ratios = self._along_curves(rows)
        there = np.isfinite(ratios)
        if not there.any():
            return found
        seconds, spread = found.seconds.copy(), found.spread.copy()
        trees = np.log(seconds[there] / self.boosted.bare(rows[there]))
        seconds[there] *= np.exp((ratios[there] - trees) / 2)
        apart = np.abs(ratios[there] - trees) / math.sqrt(2)
        spread[there] = np.hypot(apart, np.nan_to_num(spread[there], nan=0.0))
        return Prediction(seconds, spread, found.in_range)

    def on_curve(self, measurements: Measurements) -> np.ndarray:
        """bool[rows]: the row lies between two points of a measured curve."""
        return np.isfinite(self._along_curves(load(measurements, timed=False)))

    def _along_curves(self, rows: pd.DataFrame) -> np.ndarray:
        """float64[rows]: log(time / roofline) from the curves; NaN where none says anything."""
        by_curve: dict[str, list[tuple[int, int]]] = {}
        for position, axis in enumerate(_axes(rows)):
            if axis is not None and axis[1] in self.curves:
                by_curve.setdefault(axis[1], []).append((position, axis[0]))
        ratios = np.full(len(rows), np.nan)
        for key, members in by_curve.items():
            positions, lengths = (np.array(column) for column in zip(*members, strict=True))
            ratios[positions] = self.curves[key].at(lengths.astype(np.float64))
        return ratios

    def to_json(self) -> dict[str, Any]:
        """The fitted model as a JSON object."""
        return {
            "boosted": self.boosted.to_json(),
            "curves": {
                key: [[int(n) for n in curve.lengths], [round(r, 5) for r in curve.ratios.tolist()]]
                for key, curve in self.curves.items()
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Interpolated:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        try:
            curves = {}
            for key, (lengths, ratios) in document["curves"].items():
                curve = Curve(np.array(lengths, dtype=float), np.array(ratios, dtype=float))
                if (
                    len(curve.lengths) < LEAST
                    or curve.lengths.shape != curve.ratios.shape
                    or not (np.diff(curve.lengths) > 0).all()
                    or not (curve.lengths[0] > 0 and np.isfinite(curve.ratios).all())
                ):
                    raise ValueError(f"curve {key}")
                curves[str(key)] = curve
            return cls(Boosted.from_json(document["boosted"]), curves)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"The interpolated model is incomplete or damaged ({error})"
            ) from None


def _axes(rows: pd.DataFrame) -> Iterator[tuple[int, str] | None]:
    """Length and curve of every row; the curve tells element type and cache state, too."""
    caches = rows["cache"] if "cache" in rows else [None] * len(rows)
    columns = (rows[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes"))
    for kind, dtype, inputs, outputs, attributes, cache in zip(*columns, caches, strict=True):
        found = axis_of(kind, inputs, outputs, json.loads(attributes))
        state = cache if isinstance(cache, str) else ""
        yield None if found is None else (found[0], f"{dtype} {state} {found[1]}")
