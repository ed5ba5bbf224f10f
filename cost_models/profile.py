"""Profiles: what a cluster names to say how long operators take on a device.

A roofline, the cost models that were fitted to the device's measurements, how wrong they are on what
they have not seen, and what else was measured. :mod:`cost_models.profile_files` says how it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cost_models import evaluation
from cost_models.context import Context
from cost_models.correlation import read_rows, residual_rows
from cost_models.device_spec import SPECS
from cost_models.ensemble import members_among
from cost_models.fitting import fitted_models
from cost_models.measured_range import NEAR, Reach
from cost_models.model import DEFAULT, OWN, CostModel, names
from cost_models.preference import preferred_model
from cost_models.roofline import Roofline
from cost_models.table import FEATURES, identities, load, row_of, telling
from cost_models.uncertainty import Residuals, repeat_residuals, residuals_by_kind, stretches
from simulator.errors import InvalidInput
from simulator.model.operator import Operator
from simulator.model.weight_hit_curve import ReuseCurve
from simulator.support.environment_diff import differences

LABELS = ("measured", "public", "datasheet")
DEFAULT_CACHE = "graph"
STAND_IN = "across_devices"
"""The model that prices, where a profile has it, what its own models were not fitted to."""
SHORTEST_KERNEL = 2.5e-6
"""Seconds of the shortest kernels of most kinds on an H200, timed in captured graphs."""

RowKey = tuple[Any, ...]
"""A row's feature columns, in the order of :data:`cost_models.table.FEATURES`."""


def is_gpu(name: str, document: Mapping[str, Any]) -> bool:
    """Whether a profile, by its name and what its file says, is of a GPU: measured through a driver, or on data sheets."""
    return "driver" in document.get("versions", {}) or name in SPECS


@dataclass(frozen=True)
class Priced:
    """Times of a list of operators.

    Attributes:
        seconds: float64[operators].
        spread: float64[operators], run-to-run standard deviation of log seconds (NaN: not measured).
        in_range: bool[operators], False where the prediction extrapolates.
    """

    seconds: np.ndarray
    spread: np.ndarray
    in_range: np.ndarray


@dataclass(frozen=True)
class Profile:
    """See the module docstring.

    Attributes:
        name: what clusters call it.
        label: ``measured``, ``public`` or ``datasheet``.
        roofline: measured or published rates.
        models: fitted cost models by name; empty for a datasheet.
        default: the model that prices unless another is asked for; empty leaves it to the models.
        cache: the cache state that is priced.
        statistic: of the samples behind a measured time.
        held_out: for each model and way of holding out (``architecture``,
            ``fold``) the error by kind, as :func:`cost_models.evaluation.summary` gives it.
        residuals: for each model the residuals by kind, of operators near to what was measured.
        stretch: for each model how many times as far off others are (:func:`cost_models.uncertainty.stretches`).
        reach: where operators were measured; None where that was not kept.
        held_out_rows: the residuals of operators, as :func:`cost_models.correlation.residual_rows` gives
            them, their path, or None: what tells how its errors go with another profile's.
        spread: for each kind the median run-to-run spread of log seconds.
        deviations: for each kind equally likely values of log(one call / the statistic of its
            operator), ``*`` of all kinds together; empty where single calls were not kept.
        launch_overhead_s: host seconds of a kernel launch; 0 where none was measured.
        launch_in_times: by kind the seconds of a launch that are in the times its models were fitted to;
            prices are without them, and at least :data:`SHORTEST_KERNEL`.
        transfers: measured transfers, rows of ``way``, ``bytes``, ``seconds``.
        allocation: measured allocations of outputs, rows of ``state``, ``bytes``, ``seconds``.
        corun: what co-running tasks cost each other, as :func:`calibration.interference.summary` gives it.
        reuse: what its cache keeps of weights between two uses; None where it was not measured.
        context: what operators take longer in a network, which every price has in it; None where it was not measured.
        capacity_bytes: of the memory that the device computes in; None where it was not read.
        cache_bytes: of the last cache before that memory; None where it was not read.
        dtypes: element types it was measured with.
        versions: software it was measured with.
        provenance: sources, dates, minutes, samples: whatever explains the figures.
        table: the measurement table behind it, its path, or None.
    """

    name: str
    label: str
    roofline: Roofline
    models: Mapping[str, CostModel] = field(default_factory=dict)
    default: str = ""
    cache: str | None = None
    statistic: str | None = None
    held_out: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | None]]]] = field(
        default_factory=dict
    )
    residuals: Mapping[str, Mapping[str, Residuals]] = field(default_factory=dict)
    stretch: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    reach: Reach | None = None
    held_out_rows: pd.DataFrame | Path | None = None
    spread: Mapping[str, float] = field(default_factory=dict)
    deviations: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    launch_overhead_s: float = 0.0
    launch_in_times: Mapping[str, float] = field(default_factory=dict)
    transfers: Sequence[Mapping[str, Any]] = ()
    allocation: Sequence[Mapping[str, Any]] = ()
    corun: Mapping[str, Any] = field(default_factory=dict)
    reuse: ReuseCurve | None = None
    context: Context | None = None
    capacity_bytes: float | None = None
    cache_bytes: float | None = None
    dtypes: tuple[str, ...] = ("float32",)
    versions: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    table: pd.DataFrame | Path | None = None

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            raise InvalidInput(
                f"Profile '{self.name}' has label '{self.label}'; known: {', '.join(LABELS)}"
            )
        if self.default and self.default not in self.models:
            raise InvalidInput(
                f"Profile '{self.name}' prefers cost model '{self.default}', which it does not have"
            )

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU: it was measured through a driver, or data sheets list it."""
        return is_gpu(self.name, {"versions": self.versions})

    @property
    def drift(self) -> float:
        """Standard deviation of log seconds that all operators share: between hours, and between networks."""
        between = 0.0 if self.context is None else self.context.spread
        return math.hypot(float(self.provenance.get("reference_spread", 0.0)), between)

    # -- pricing ------------------------------------------------------------------------------------

    def model_name(self, model: str = OWN) -> str:
        """The model that prices when ``model`` is asked for: a datasheet has one, whatever is asked for, and its roofline.

        ``default`` stands for the profile's own choice.

        Raises:
            InvalidInput: there is no such model, or the profile has none of it.
        """
        if model != OWN and model not in names():
            raise InvalidInput(f"No cost model '{model}'; known: {', '.join([OWN, *names()])}")
        if not self.models or model == "roofline":
            return "roofline"
        if model == OWN or self.label == "datasheet":
            return self.default or (DEFAULT if DEFAULT in self.models else next(iter(self.models)))
        if model not in self.models:
            raise InvalidInput(
                f"Profile '{self.name}' was not fitted with cost model '{model}'; it has "
                f"{', '.join([*self.models, 'roofline'])}. Fit it: python -m experiments.calibrate "
                f"step=fit base={self.name} 'models=[{model}]'"
            )
        return model

    def price(
        self,
        operators: Sequence[Operator],
        *,
        model: str = OWN,
        cache: str | None = None,
        lookup: bool = False,
    ) -> Priced:
        """Times of operators on this device, from one batch prediction over the distinct ones.

        Args:
            operators: in any number; equal ones are predicted once.
            model: a name of :func:`cost_models.model.names`, or ``default``.
            cache: the cache state; None takes the profile's own.
            lookup: take the measured time of an operator that was itself measured. Off by default,
                so that what a model's held-out error says of unseen operators is not mixed with
                times that were looked up.
        """
        return self.price_rows(row_keys(operators), model=model, cache=cache, lookup=lookup)

    def price_rows(
        self,
        keys: Sequence[RowKey],
        *,
        model: str = OWN,
        cache: str | None = None,
        lookup: bool = False,
    ) -> Priced:
        """As :meth:`price`, for operators that are named by their rows (:func:`row_keys`).

        A row is predicted once in the life of the profile.
        """
        name = self.model_name(model)
        state = cache or self.cache
        known = self._prices.setdefault((name, state, lookup), {})
        unknown = [key for key in dict.fromkeys(keys) if key not in known]
        if unknown:
            known.update(zip(unknown, self._predicted(unknown, name, state, lookup), strict=True))
        found = np.array([known[key] for key in keys], dtype=np.float64).reshape(len(keys), 3)
        return Priced(found[:, 0].copy(), found[:, 1].copy(), found[:, 2] > 0)

    def _predicted(
        self, keys: Sequence[RowKey], model: str, state: str | None, lookup: bool
    ) -> Iterable[tuple[float, float, float]]:
        """(seconds, spread, 1 if in range) of every row."""
        rows = pd.DataFrame(list(keys), columns=list(FEATURES))
        if state is not None:
            rows["cache"] = state
        if model == "roofline":
            seconds = self.roofline.predict(rows)
            inside = np.full(len(rows), self.label != "datasheet")
            if self.spread:
                inside &= rows["kind"].isin(list(self.spread)).to_numpy()
        else:
            predicted = self.models[model].predict_in_full(rows)
            seconds, inside = predicted.seconds.copy(), predicted.in_range.copy()
            if model != STAND_IN:
                if self.launch_in_times:
                    launches = rows["kind"].map(self.launch_in_times).fillna(0.0).to_numpy()
                    least = np.minimum(seconds, SHORTEST_KERNEL)
                    seconds = np.maximum(seconds - launches, least)
                # Nothing is known of how far an element type that was never measured stays from its peak.
                foreign = ~rows["dtype"].isin(self.dtypes).to_numpy()
                stand_in: CostModel = self.roofline
                if STAND_IN in self.models:
                    stand_in = self.models[STAND_IN]
                    foreign |= ~rows["kind"].isin(list(self.spread)).to_numpy()
                if foreign.any():
                    seconds[foreign] = stand_in.predict(rows[foreign])
                    inside[foreign] = False
            inside &= self.label != "datasheet"
        spread = np.array([self.spread.get(kind, np.nan) for kind in rows["kind"]])
        if lookup:
            for position, key in enumerate(keys):
                found = self._measured.get((*key, state))
                if found is not None:
                    seconds[position], spread[position] = found
                    inside[position] = True
        if self.context is not None:
            seconds = self.context.of(keys, seconds)
        return zip(seconds.tolist(), spread.tolist(), inside.astype(float).tolist(), strict=True)

    @cached_property
    def _prices(
        self,
    ) -> dict[tuple[str, str | None, bool], dict[RowKey, tuple[float, float, float]]]:
        return {}

    def is_measured(self, keys: Sequence[RowKey], cache: str | None = None) -> np.ndarray:
        """bool[rows]: which rows (:func:`row_keys`) have a measured time in a cache state.

        Args:
            keys: rows.
            cache: the state; None takes the profile's own.
        """
        state = cache or self.cache
        return np.array([(*key, state) in self._measured for key in keys], dtype=bool)

    @cached_property
    def repeat_error(self) -> Mapping[str, Residuals]:
        """By kind, how far off a measured time is; empty where nobody measured twice."""
        table = self.measurements
        return {} if table is None else repeat_residuals(table, self.cache)

    @cached_property
    def _measured(self) -> dict[RowKey, tuple[float, float]]:
        table = self.measurements
        if table is None:
            return {}
        columns = [table[c] for c in (*FEATURES, "cache", "seconds", "spread")]
        rows = sorted(zip(*columns, strict=True), key=lambda row: -row[-2])  # the fastest stays
        return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows}

    @cached_property
    def measurements(self) -> pd.DataFrame | None:
        """The measurement table behind the profile, or None.

        Raises:
            InvalidInput: its file is damaged.
        """
        return load(self.table) if isinstance(self.table, Path) else self.table

    def residuals_for(self, model: str = OWN) -> Mapping[str, Residuals]:
        """Held-out residuals by kind of the model that prices; empty where none are known."""
        return self.residuals.get(self.model_name(model), {})

    def stretched(
        self, keys: Sequence[RowKey], inside: np.ndarray, model: str = OWN
    ) -> np.ndarray | None:
        """float64[rows]: how many times as far off as near to what was measured each may be; None: unknown.

        Args:
            keys: of operators (:func:`row_keys`).
            inside: bool[rows], whether each is in the measured range.
            model: that prices.
        """
        by_distance = self.stretch.get(self.model_name(model))
        if by_distance is None or self.reach is None:
            return None
        found: np.ndarray = np.array(by_distance)[self.reach.distances(keys, inside)]
        return found

    @cached_property
    def residual_rows(self) -> pd.DataFrame | None:
        """The held-out residuals of operators; None where they were not kept.

        Raises:
            InvalidInput: their file is damaged.
        """
        rows = self.held_out_rows
        return read_rows(rows) if isinstance(rows, Path) else rows

    def differences(self, here: Mapping[str, Any]) -> list[str]:
        """In what its measurements were made with something else than there is here, in words.

        Args:
            here: ``torch``, ``cuda``, ``driver``, ``processor``; what either side does not know is
                passed over.
        """
        there = {**self.provenance, **self.versions}
        return differences(there, here)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that were measured."""
        return tuple(sorted(self.spread))

    # -- fitting ------------------------------------------------------------------------------------

    @classmethod
    def fitted(
        cls,
        name: str,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        label: str = "measured",
        cache: str = DEFAULT_CACHE,
        errors: evaluation.Errors | None = None,
        models: Sequence[str] = (DEFAULT,),
        seed: int = 0,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        show: Callable[[str], None] | None = None,
        **described: Any,
    ) -> Profile:
        """Fit a profile to a measurement table.

        Args:
            name: its name.
            measurements: valid or not yet checked.
            roofline: measured peaks; estimated from the rows unless given.
            label: ``measured`` or ``public``.
            cache: the state to be priced, where the table has the column.
            errors: held-out errors of the same table (:func:`evaluation.cross_validate`); without
                them the profile states no error and its times have no interval.
            models: which cost models to fit; an ensemble is of those beside it, or alone brings its members along.
            seed: of the models.
            options: of models, by their names.
            show: called with a line of progress.
            described: ``transfers``, ``allocation``, ``corun``, ``reuse``, ``context``, ``capacity_bytes``, ``cache_bytes``, ``versions``,
                ``provenance``, ``launch_overhead_s``, ``deviations``.

        Raises:
            InvalidInput: no valid table, or no rows in that cache state.
        """
        table = load(measurements)
        roofline = roofline or Roofline.fitted(table)
        priced = np.ones(len(table), dtype=bool)
        if "cache" in table:
            priced = (table["cache"] == cache).to_numpy()
            if not priced.any():
                states = ", ".join(sorted(table["cache"].dropna().unique()))
                raise InvalidInput(
                    f"No measurements in cache state '{cache}'; the table has: {states}"
                )

        held_out = {
            model: {way: rounded(evaluation.summary(table, rows)) for way, rows in ways.items()}
            for model, ways in (errors or {}).items()
        }
        residuals = {
            model: residuals_by_kind(_near(ways["architecture"]), _near(ways["fold"]))
            for model, ways in (errors or {}).items()
        }
        spread: dict[str, float] = {}
        if "spread" in table:
            medians = table[priced].groupby("kind")["spread"].median()
            spread = {str(kind): round(float(value), 4) for kind, value in medians.items()}
        else:
            spread = dict.fromkeys(sorted(table["kind"].unique()), float("nan"))
        return cls(
            name=name,
            label=label,
            roofline=roofline,
            models=fitted_models(
                table[telling(table, cache)].reset_index(drop=True),
                roofline,
                models,
                seed=seed,
                options=options,
                show=show,
            ),
            default=preferred_model(held_out, models),
            cache=cache if "cache" in table else None,
            statistic=str(table["statistic"].iloc[0]) if "statistic" in table else None,
            held_out=held_out,
            residuals=residuals,
            stretch={model: stretches(ways) for model, ways in (errors or {}).items()},
            reach=Reach.of(zip(*(table[priced][c] for c in FEATURES), strict=True)),
            held_out_rows=residual_rows(table, errors) if errors else None,
            spread=spread,
            dtypes=tuple(sorted(table["dtype"].unique())),
            table=table,
            **described,
        )

    def without(
        self,
        architecture: str,
        models: Sequence[str] = (),
        *,
        only: Iterable[str] | None = None,
        seed: int = 0,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Profile:
        """This profile as it would be if the architecture had never been measured.

        For an honest comparison with real runs of a model whose operators were measured.

        Args:
            architecture: as the measurement table names it.
            models: the cost models that the new profile has, and of an ensemble the members; the preferred one unless
                given. The new one prefers the first.
            only: kinds that will be asked for; None for all.
            seed: of the models.
            options: of models, by their names.

        Raises:
            InvalidInput: the profile has no measurements, or none of that architecture.
        """
        table = self.measurements
        if table is None or "architectures" not in table:
            raise InvalidInput(
                f"Profile '{self.name}' does not say which architectures it measured"
            )
        held = np.array(
            [names is not None and architecture in names for names in table["architectures"]]
        )
        if not held.any():
            known = sorted(
                {n for names in table["architectures"] if names is not None for n in names}
            )
            raise InvalidInput(
                f"Profile '{self.name}' has no operators of '{architecture}'; it has those of "
                f"{', '.join(known)}"
            )
        same = identities(table)
        rows = table[~np.isin(same, same[held])].reset_index(drop=True)
        told = telling(rows, self.cache)
        wanted = tuple(models) or (self.model_name(),)
        # An ensemble is of the models beside it.
        members = members_among(tuple(self.models)) if "ensemble" in wanted else ()
        fitted = fitted_models(
            rows[told].reset_index(drop=True),
            self.roofline,
            (*wanted, *members),
            seed=seed,
            only=None if only is None else {*only},
            options=options,
        )
        return replace(
            self,
            name=f"{self.name}-without-{architecture}",
            models=fitted,
            default=wanted[0] if wanted[0] in fitted else "",
            reach=self.reach and Reach.of(zip(*(rows[c] for c in FEATURES), strict=True)),
            table=rows,
        )

    # -- files --------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the profile into a folder (:func:`cost_models.profile_files.save`)."""
        from cost_models.profile_files import save

        return save(self, folder)

    @classmethod
    def load(cls, name_or_path: str | Path) -> Profile:
        """Read a profile by name or from its folder.

        Raises:
            InvalidInput: there is none (the nearest names are given), or it is damaged.
        """
        from cost_models.profile_files import load_profile

        return load_profile(name_or_path)


def _near(errors: pd.DataFrame) -> pd.DataFrame:
    """The held-out rows near to those that were seen, if their distance is known."""
    return errors[errors["distance"] == NEAR] if "distance" in errors else errors


def row_keys(operators: Sequence[Operator]) -> list[RowKey]:
    """The rows that name operators, in order."""
    return [tuple(row_of(operator).values()) for operator in operators]


def rounded(table: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """What :func:`cost_models.evaluation.summary` gives as a JSON object, to four digits."""
    return {
        str(kind): {
            str(column): None if pd.isna(value) else round(float(value), 4)
            for column, value in row.items()
        }
        for kind, row in table.iterrows()
    }
