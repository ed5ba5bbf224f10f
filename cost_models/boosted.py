"""Gradient-boosted trees on log(time / time at the rates that such kernels reach).

A roofline whose overhead and rates are fitted to the kind (:mod:`cost_models.reached_rates`) carries the
scale, so the trees only learn how far a kernel stays from it: a ratio that changes slowly and
extrapolates better than a time.

A kind that multiplies matrices (convolution, linear layer, attention, ...) has a model of its own, and
the element type with most rows another (:mod:`cost_models.kind_groups`). All kinds that stream through
memory share one in which the kind is a feature: they differ by little more than a constant, and on 38 of
them the shared model was as accurate as 38 models (median held-out error 10.9% against 11.3% on noisy
data whose A/A error was 11%) at a tenth of the size.

Several boosters that differ in what they draw may be averaged; how far they disagree is the spread.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cost_models.base85 import b85decode
from cost_models.device_spec import DeviceSpec, spec_of_measured
from cost_models.features import GROUPS, Values, feature_rows, in_group, matrix
from cost_models.kind_groups import OWN_MODEL, SHARED, groups_of, rows_by_group
from cost_models.measured_range import MeasuredRange
from cost_models.model import Prediction
from cost_models.reached_rates import ReachedRates, terms_of
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput

PARAMETERS: Mapping[str, Any] = {
    "max_depth": 5,
    "learning_rate": 0.1,
    "min_child_weight": 2,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "reg_lambda": 1.0,
    "rounds": 300,
}
LARGE = 3000
"""Rows from which a group is fitted with :data:`LARGE_PARAMETERS` where no others are given."""
LARGE_PARAMETERS: Mapping[str, Any] = {
    "max_depth": 8,
    "learning_rate": 0.08,
    "colsample_bytree": 0.5,
    "rounds": 400,
}
SHARED_ROUNDS = 2
"""A small shared model has this many times the rounds: it has many kinds to learn."""
_OPTIONS = ("seed", "own_model", "members", "device", "without")


@dataclass
class _Group:
    """Boosters and what they need: feature names and, where kinds share them, their codes."""

    names: list[str]
    measured: MeasuredRange
    boosters: list[Any]
    rates: ReachedRates | None

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
    """See the module docstring. Made by :meth:`fitted` or :meth:`from_json`.

    Attributes:
        roofline: what the trees' ratios are to.
        groups: boosters by kind, and those that kinds share.
        device: whose units and cache the features count; None where no data sheet is known.
        relative: features have times at the device's rates (:mod:`cost_models.across_devices`).
    """

    roofline: Roofline
    groups: dict[str, _Group]
    device: DeviceSpec | None = None
    relative: bool = False
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
        members: int = 1,
        device: DeviceSpec | None = None,
        without: Collection[str] = (),
        **parameters: Any,
    ) -> Boosted:
        """Fit to a valid measurement table.

        Args:
            measurements: at least one row.
            roofline: of the device; estimated from the rows unless given.
            seed: of row and column sampling.
            only: fit no more than what pricing these kinds needs; None fits all.
            own_model: rows that a kind needs for a model of its own.
            members: boosters that are averaged.
            device: its data sheet; by default that of the table's device, if it is known
                (:mod:`cost_models.device_spec`).
            without: groups of features (:data:`cost_models.features.GROUPS`) to leave out.
            parameters: of XGBoost, and ``rounds``; defaults :data:`PARAMETERS`.

        Raises:
            InvalidInput: no rows, or an unknown parameter.
        """
        if not len(measurements):
            raise InvalidInput("There are no measurements to fit a cost model to")
        _check(parameters, members, without)
        roofline = roofline or Roofline.fitted(measurements)
        if device is None and "device" in measurements:
            device = spec_of_measured(str(measurements["device"].iloc[0]))
        groups = fit_groups(
            measurements["kind"].to_numpy(),
            measurements["dtype"].to_numpy(),
            feature_rows(measurements, device),
            terms_of(measurements, roofline),
            measurements["seconds"].to_numpy(),
            overhead=roofline.overhead,
            seed=seed,
            only=only,
            own_model=own_model,
            members=members,
            without=without,
            parameters=parameters,
        )
        return cls(roofline, groups, device)

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds, how far the members disagree, and whether each row lies in the measured range.

        A kind never measured takes the shared trees' correction if it streams, as those do, or else
        the bare roofline, and is out of range (:class:`MeasuredRange`).
        """
        rows = load(measurements, timed=False)
        terms = terms_of(rows, self.roofline)
        by_group = self._by_group(rows, terms)
        seconds = self._bare(rows, terms, by_group)
        inside = np.zeros(len(rows), dtype=bool)
        spread = np.full(len(rows), np.nan)
        kinds = rows["kind"].to_numpy()
        values = feature_rows(rows, self.device, self.relative)
        for label, chosen in by_group.items():
            group = self.groups[label]
            data = group.matrix(kinds[chosen], [values[i] for i in chosen.tolist()])
            ratios = np.array([b.inplace_predict(data) for b in group.boosters], dtype=np.float64)
            seconds[chosen] *= np.exp(ratios.mean(axis=0))
            if len(ratios) > 1:
                spread[chosen] = ratios.std(axis=0, ddof=1)
            inside[chosen] = group.measured.contains(kinds[chosen], data[:, : len(group.names)])
        return Prediction(seconds, spread, inside)

    def bare(self, rows: pd.DataFrame) -> np.ndarray:
        """float64[rows]: the seconds of a valid table's rows that the trees' ratios are to."""
        terms = terms_of(rows, self.roofline)
        return self._bare(rows, terms, self._by_group(rows, terms))

    def _bare(
        self, rows: pd.DataFrame, terms: np.ndarray, by_group: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        seconds = self.roofline.of_rows(rows)
        for label, chosen in by_group.items():
            rates = self.groups[label].rates
            if rates is not None:
                seconds[chosen] = rates.bare(terms[chosen])
        return seconds

    def _by_group(self, rows: pd.DataFrame, terms: np.ndarray) -> dict[str, np.ndarray]:
        """Row positions by the group that prices them; not those that none does."""
        shared = self.groups[SHARED].kinds if SHARED in self.groups else ()
        kinds, dtypes = (rows[c].to_numpy(dtype=object) for c in ("kind", "dtype"))
        return rows_by_group(kinds, dtypes, terms[:, 0] > 0, self.groups, shared)

    def to_json(self) -> dict[str, Any]:
        """The model as a JSON object; boosters are XGBoost's UBJ, gzipped, in base 85."""
        groups = {}
        for label, group in self.groups.items():
            groups[label] = {
                "features": group.names,
                **group.measured.to_json(),
                "boosters": [_packed(booster) for booster in group.boosters],
            }
            if group.rates is not None:
                groups[label]["rates"] = group.rates.to_json()
        document: dict[str, Any] = {"roofline": self.roofline.to_json(), "groups": groups}
        if self.device is not None:
            document["device"] = self.device.to_json()
        if self.relative:
            document["relative"] = True
        return document

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
                # In profiles of version 0.1 one booster stood alone, its ratios to the roofline.
                packed = entry["boosters"] if "boosters" in entry else [entry["booster"]]
                boosters = []
                for text in packed:
                    booster = xgboost.Booster({"nthread": 1})
                    booster.load_model(bytearray(gzip.decompress(b85decode(text))))
                    boosters.append(booster)
                if not boosters:
                    raise ValueError(f"no booster for '{label}'")
                measured = MeasuredRange.from_json(entry)
                rates = ReachedRates.from_json(entry["rates"]) if "rates" in entry else None
                groups[label] = _Group(entry["features"], measured, boosters, rates)
            device = document.get("device")
            return cls(
                Roofline.from_json(document["roofline"]),
                groups,
                None if device is None else DeviceSpec.from_json(device),
                bool(document.get("relative", False)),
            )
        except (
            KeyError,
            TypeError,
            ValueError,
            OSError,
            EOFError,
            xgboost.core.XGBoostError,
        ) as error:
            raise InvalidInput(f"The boosted model is incomplete or damaged ({error})") from None


def _check(parameters: Mapping[str, Any], members: int, without: Collection[str]) -> None:
    for name in parameters:
        if name not in PARAMETERS:
            known = ", ".join([*_OPTIONS, *PARAMETERS])
            raise InvalidInput(f"The boosted model has no option '{name}'; known: {known}")
    for group in without:
        if group not in GROUPS:
            raise InvalidInput(f"No group of features '{group}'; known: {', '.join(GROUPS)}")
    if members < 1:
        raise InvalidInput(f"A boosted model has at least 1 member, got {members}")


def fit_groups(
    kinds: np.ndarray,
    dtypes: np.ndarray,
    values: Sequence[Values],
    terms: np.ndarray,
    seconds: np.ndarray,
    *,
    overhead: float,
    seed: int,
    only: Collection[str] | None,
    own_model: int,
    members: int,
    without: Collection[str],
    parameters: Mapping[str, Any],
) -> dict[str, _Group]:
    """Boosters of every kind that has its own, and those that the others share.

    Args:
        kinds: of each row.
        dtypes: of each row.
        values: features of each row.
        terms: float64[rows, 2] of :func:`cost_models.reached_rates.terms_of`.
        seconds: float64[rows], measured.
        overhead: of the roofline.
        seed: as in :meth:`Boosted.fitted`, and so are the others.
        only: kinds that will be asked for.
        own_model: rows that a kind needs.
        members: boosters a group.
        without: groups of features left out.
        parameters: that were given.
    """
    groups = {}
    for label, rows in groups_of(kinds, dtypes, values, only, own_model).items():
        large = len(rows) >= LARGE
        settings = {**PARAMETERS, **(LARGE_PARAMETERS if large else {}), **parameters}
        if label.startswith(SHARED) and not large:
            settings["rounds"] = int(settings["rounds"]) * SHARED_ROUNDS
        chosen = [values[i] for i in rows.tolist()]
        rates = ReachedRates.fitted(terms[rows], seconds[rows], overhead)
        target = np.log(seconds[rows] / rates.bare(terms[rows]))
        groups[label] = _fit(kinds[rows], chosen, target, settings, seed, members, without)
        groups[label].rates = rates
    return groups


def _fit(
    kinds: np.ndarray,
    values: list[Values],
    target: np.ndarray,
    settings: Mapping[str, Any],
    seed: int,
    members: int,
    without: Collection[str],
) -> _Group:
    import xgboost

    names = sorted({name for row in values for name in row})
    names = [name for name in names if not any(in_group(name, group) for group in without)]
    # An element type that all rows have tells nothing.
    alike = {n for n in names if n.startswith("dtype=") and all(n in row for row in values)}
    names = [name for name in names if name not in alike]
    data = matrix(values, names)
    group = _Group(names, MeasuredRange.of(kinds, data), [], None)
    options = {name: value for name, value in settings.items() if name != "rounds"}
    options |= {"objective": "reg:squarederror", "tree_method": "hist", "nthread": 1}
    options["base_score"] = float(np.mean(target))
    training = xgboost.QuantileDMatrix(group.matrix(kinds, values), label=target)
    for member in range(members):
        options["seed"] = seed + member
        rounds = int(settings["rounds"])
        group.boosters.append(xgboost.train(options, training, num_boost_round=rounds))
    return group


_STATISTICS = ("base_weights", "loss_changes", "sum_hessian")
"""Of every node, for looking at trees; a prediction needs none and they do not compress."""


def _packed(booster: Any) -> str:
    import xgboost

    document = json.loads(booster.save_raw("json"))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        for name in _STATISTICS:
            tree[name] = [0.0] * len(tree[name])
    small = xgboost.Booster({"nthread": 1})
    small.load_model(bytearray(json.dumps(document).encode()))
    return base64.b85encode(gzip.compress(bytes(small.save_raw("ubj")), mtime=0)).decode()
