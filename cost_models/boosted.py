"""Gradient-boosted trees on log(time / roofline).

The roofline carries the scale, so the trees only learn how far a kernel stays from it: a ratio that
changes slowly and extrapolates better than a time.

A kind that multiplies matrices (convolution, linear layer, attention, ...) has a model of its own. All
kinds that stream through memory share one in which the kind is a feature: they differ by little more
than a constant, and on 38 of them the shared model was as accurate as 38 models (median held-out error
10.9% against 11.3% on noisy data whose A/A error was 11%) at a tenth of the size.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cost_models.features import Values, feature_rows, matrix
from cost_models.measured_range import MeasuredRange
from cost_models.model import Prediction
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput

OWN_MODEL = 40
"""Rows that a kind needs for a model of its own; with fewer it joins the shared one."""
PARAMETERS: Mapping[str, Any] = {
    "max_depth": 5,
    "learning_rate": 0.1,
    "min_child_weight": 2,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "reg_lambda": 1.0,
    "rounds": 300,
}
SHARED = "*"
SHARED_ROUNDS = 2
"""The shared model has this many times the rounds: it has many kinds to learn."""


@dataclass
class _Group:
    """One booster and what it needs: feature names and, where kinds share it, their codes."""

    names: list[str]
    measured: MeasuredRange
    booster: Any

    @property
    def kinds(self) -> tuple[str, ...]:
        """Measured kinds, in the order of their codes."""
        return self.measured.kinds

    def matrix(self, kinds: Iterable[str], values: Sequence[Values]) -> np.ndarray:
        """float32[rows, features]."""
        found = matrix(values, self.names)
        if len(self.kinds) > 1:
            codes = np.array([[kind == known for known in self.kinds] for kind in kinds])
            found = np.hstack([found, codes.astype(np.float32)])
        return found


@dataclass
class Boosted:
    """See the module docstring. Made by :meth:`fitted` or :meth:`from_json`."""

    roofline: Roofline
    groups: dict[str, _Group]
    name: str = field(default="boosted", init=False)

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        own_model: int = OWN_MODEL,
        **parameters: Any,
    ) -> Boosted:
        """Fit to a valid measurement table.

        Args:
            measurements: at least one row.
            roofline: of the device; estimated from the rows unless given.
            seed: of row and column sampling.
            own_model: rows that a kind needs for a model of its own.
            only: fit no more than what pricing these kinds needs; None fits all.
            parameters: of XGBoost, and ``rounds``; defaults :data:`PARAMETERS`.

        Raises:
            InvalidInput: no rows, or an unknown parameter.
        """
        if not len(measurements):
            raise InvalidInput("There are no measurements to fit a cost model to")
        for name in parameters:
            if name not in PARAMETERS:
                known = ", ".join(["seed", "own_model", *PARAMETERS])
                raise InvalidInput(f"The boosted model has no option '{name}'; known: {known}")
        settings = {**PARAMETERS, **parameters}
        roofline = roofline or Roofline.fitted(measurements)
        target = np.log(measurements["seconds"].to_numpy() / roofline.of_rows(measurements))
        kinds = measurements["kind"].to_numpy()
        values = feature_rows(measurements)
        own = []
        for kind in sorted(set(kinds)):
            rows = np.flatnonzero(kinds == kind)
            multiplies = any(values[i]["flops"] > 0 for i in rows)
            if multiplies and len(rows) >= own_model:
                own.append(str(kind))
        shared = sorted({str(kind) for kind in kinds} - {*own})
        groups = {}
        for label, members in [*((k, [k]) for k in own), (SHARED, shared)]:
            wanted = only is None or (label in only if label != SHARED else not {*only} <= {*own})
            if members and wanted:
                rows = np.flatnonzero(np.isin(kinds, members))
                rounds = settings["rounds"] * (SHARED_ROUNDS if label == SHARED else 1)
                groups[label] = _fit(
                    kinds[rows],
                    [values[i] for i in rows],
                    target[rows],
                    {**settings, "rounds": rounds},
                    seed,
                )
        return cls(roofline, groups)

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds, and whether each row lies in the measured range.

        A kind never measured takes the shared model's correction, or the bare roofline, and is out
        of range (:class:`MeasuredRange`).
        """
        rows = load(measurements, timed=False)
        seconds = self.roofline.of_rows(rows)
        inside = np.zeros(len(rows), dtype=bool)
        kinds = rows["kind"].to_numpy()
        values = feature_rows(rows)
        labels = np.array([k if k in self.groups else SHARED for k in kinds], dtype=object)
        for label in dict.fromkeys(labels):
            group = self.groups.get(label)
            if group is None:
                continue
            chosen = np.flatnonzero(labels == label)
            data = group.matrix(kinds[chosen], [values[i] for i in chosen])
            seconds[chosen] *= np.exp(group.booster.inplace_predict(data).astype(np.float64))
            inside[chosen] = group.measured.contains(kinds[chosen], data[:, : len(group.names)])
        return Prediction(seconds, np.full(len(rows), np.nan), inside)

    def to_json(self) -> dict[str, Any]:
        """The model as a JSON object; boosters are XGBoost's UBJ, gzipped, in base64."""
        groups = {}
        for label, group in self.groups.items():
            data = gzip.compress(bytes(group.booster.save_raw("ubj")), mtime=0)
            groups[label] = {
                "features": group.names,
                **group.measured.to_json(),
                "booster": base64.b85encode(data).decode(),
            }
        return {"roofline": self.roofline.to_json(), "groups": groups}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Boosted:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        import xgboost

        groups = {}
        try:
            for label, entry in document["groups"].items():
                booster = xgboost.Booster({"nthread": 1})
                booster.load_model(bytearray(gzip.decompress(base64.b85decode(entry["booster"]))))
                measured = MeasuredRange.from_json(entry)
                groups[label] = _Group(entry["features"], measured, booster)
            return cls(Roofline.from_json(document["roofline"]), groups)
        except (
            KeyError,
            TypeError,
            ValueError,
            OSError,
            EOFError,
            xgboost.core.XGBoostError,
        ) as error:
            raise InvalidInput(f"The boosted model is incomplete or damaged ({error})") from None


def _fit(
    kinds: np.ndarray,
    values: list[Values],
    target: np.ndarray,
    settings: Mapping[str, Any],
    seed: int,
) -> _Group:
    import xgboost

    names = sorted({name for row in values for name in row})
    data = matrix(values, names)
    group = _Group(names, MeasuredRange.of(kinds, data), None)
    options = {name: value for name, value in settings.items() if name != "rounds"}
    options |= {"objective": "reg:squarederror", "tree_method": "hist", "nthread": 1, "seed": seed}
    options["base_score"] = float(np.mean(target))
    training = xgboost.DMatrix(group.matrix(kinds, values), label=target)
    group.booster = xgboost.train(options, training, num_boost_round=int(settings["rounds"]))
    return group
