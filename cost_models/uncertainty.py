"""How far predictions may be off together: draws of actual times around predicted ones.

A predictor's errors are systematic. On an architecture it has not seen, all convolutions of a device
may come out 5% slower than predicted; and an operator that occurs twelve times is wrong by the same
factor twelve times. Independent draws for every operator would average such errors out and promise an
interval that is far too narrow. So a draw takes

* one factor for each (profile, kind), from the distribution of the mean log residuals of whole
  architectures that were held out, and
* one factor for each distinct operator, from the residuals within those architectures,

and applies both wherever that operator runs on that profile. Where the errors of two profiles were seen to
go together (:mod:`cost_models.correlation`) their factors are drawn together: each from its own residuals,
at places of their distributions that correlate.

Of a kind whose work is unknown (:func:`cost_models.arithmetic.is_known`) and that was not measured, the price is a
stand-in: it may take :data:`UNKNOWN_WORK` times more or less on top of that, all its operators alike.

An operator that is far from what was measured (:data:`cost_models.measured_range.DISTANCES`) is off by so many times
what others of its kind are (:func:`stretches`).

An operator whose time was looked up, not predicted, is off by no more than a measurement that is
repeated (:func:`repeat_residuals`). And what an architecture's measured operators are off by together is
known in part then (:func:`narrowing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cost_models.arithmetic import is_known
from cost_models.measured_range import DISTANCES, NEAR
from cost_models.table import identities, rows_of
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable

if TYPE_CHECKING:
    from cost_models.correlation import Correlations

POOLED = "*"
"""Residuals of all kinds together, for kinds with too few of their own."""
ENOUGH_GROUPS, ENOUGH_ROWS = 4, 20
UNKNOWN_WORK = 10.0
"""How many times more or less an operator may take of which nothing is known, whatever is known of others."""
FEWEST_HALVES = 5
"""Operators measured twice, of any kind, that say how well a measurement repeats."""
LEARNT = 2 / 3
"""Of what half an architecture's operators tell of the other half's common error, what a boosted model
makes of it: ``python -m tests.benchmarks.settling common``."""
# Denser at the ends: between the last two of evenly spaced quantiles, one odd kernel among a hundred
# thousand would otherwise become one draw in eighty.
_TAIL = (0.0, 0.001, 0.005, 0.01, 0.025)
_QUANTILES = np.array([*_TAIL, *np.arange(1, 20) / 20, *(1 - q for q in reversed(_TAIL))])


@dataclass(frozen=True)
class Residuals:
    """Held-out residuals of one kind, log(measured / predicted).

    Attributes:
        biases: the mean of each held-out group (an architecture).
        within: quantiles of the residuals less their group's mean, denser at both ends.
        rows: how many residuals these rest on.
    """

    biases: tuple[float, ...]
    within: tuple[float, ...]
    rows: int

    @classmethod
    def of(cls, residuals: pd.DataFrame) -> Residuals:
        """From rows with ``group`` and ``log_residual``."""
        means = residuals.groupby("group")["log_residual"].transform("mean")
        biases = residuals.groupby("group")["log_residual"].mean()
        centred = (residuals["log_residual"] - means).to_numpy()
        # A group of m rows lost 1/m of its variance to its own mean.
        sizes = residuals.groupby("group")["log_residual"].transform("size").to_numpy()
        centred = centred[sizes > 1] * np.sqrt(sizes[sizes > 1] / (sizes[sizes > 1] - 1))
        within = np.quantile(centred, _QUANTILES) if len(centred) else np.zeros(len(_QUANTILES))
        return cls(
            tuple(round(float(b), 5) for b in biases),
            tuple(round(float(w), 5) for w in within),
            len(residuals),
        )

    def draw(
        self,
        rng: np.random.Generator,
        operators: int,
        measured: np.ndarray | None = None,
        repeat: Residuals | None = None,
    ) -> np.ndarray:
        """float64[operators]: log factors that share one systematic part.

        Args:
            rng: drawn from equally often whatever was measured.
            operators: how many.
            measured: bool[operators], those whose time was measured, not predicted.
            repeat: the error of a measurement; without it all are taken for predicted.
        """
        # One of the biases seen, smoothed: the next architecture's is none of them exactly.
        bias = (
            rng.choice(self.biases) + self._smoothing * rng.standard_normal()
            if self.biases
            else 0.0
        )
        position = rng.random(operators)
        return self._factors(bias, position, position, measured, repeat)

    def draw_at(
        self,
        shared: np.ndarray,
        own: np.ndarray,
        again: np.ndarray,
        measured: np.ndarray | None = None,
        repeat: Residuals | None = None,
    ) -> np.ndarray:
        """As :meth:`draw`, from standard normal numbers that may correlate with another profile's.

        Args:
            shared: float64[2], what the systematic part comes from.
            own: float64[operators], what is each operator's own.
            again: float64[operators], the errors of measurements.
            measured: as in :meth:`draw`.
            repeat: as in :meth:`draw`.
        """
        from scipy.special import ndtr

        bias = 0.0
        if self.biases:
            place = min(int(ndtr(shared[0]) * len(self.biases)), len(self.biases) - 1)
            bias = sorted(self.biases)[place] + self._smoothing * float(shared[1])
        return self._factors(bias, ndtr(own), ndtr(again), measured, repeat)

    def _factors(
        self,
        bias: float,
        position: np.ndarray,
        again: np.ndarray,
        measured: np.ndarray | None,
        repeat: Residuals | None,
    ) -> np.ndarray:
        """Log factors from a bias and places, 0 to 1, in the distributions."""
        found = np.interp(position, _QUANTILES, self.within)
        if measured is None or repeat is None or not measured.any():
            return bias + found
        observation = self.within_variance + repeat.within_variance
        found += bias * math.sqrt(narrowing(self.bias_variance, observation, int(measured.sum())))
        found[measured] = np.interp(again[measured], _QUANTILES, repeat.within)
        return found

    @cached_property
    def _smoothing(self) -> float:
        """Standard deviation around a bias that was seen."""
        return float(np.std(self.biases)) / math.sqrt(max(len(self.biases), 1))

    @property
    def systematic(self) -> float:
        """Root mean square of the groups' biases."""
        return math.sqrt(sum(b * b for b in self.biases) / len(self.biases)) if self.biases else 0.0

    @cached_property
    def bias_variance(self) -> float:
        """Of the part that :meth:`draw` lets operators share."""
        return float(np.var(self.biases)) * (1 + 1 / len(self.biases)) if self.biases else 0.0

    @cached_property
    def within_variance(self) -> float:
        """Of the part that :meth:`draw` gives each operator alone."""
        widths, low, high = (
            np.diff(_QUANTILES),
            np.array(self.within[:-1]),
            np.array(self.within[1:]),
        )
        mean = float(widths @ (low + high)) / 2
        return float(widths @ (low * low + low * high + high * high)) / 3 - mean * mean

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"biases": list(self.biases), "within": list(self.within), "rows": self.rows}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Residuals:
        """Read :meth:`to_json`'s form."""
        within = tuple(map(float, document["within"]))
        if len(within) != len(_QUANTILES):
            raise InvalidInput(f"Residuals have {len(_QUANTILES)} quantiles, not {len(within)}")
        return cls(tuple(map(float, document["biases"])), within, int(document["rows"]))


def residuals_by_kind(errors: pd.DataFrame, fallback: pd.DataFrame) -> dict[str, Residuals]:
    """Residuals of each kind and of all together (:data:`POOLED`).

    Args:
        errors: held-out rows of whole architectures (:func:`cost_models.evaluation.relative_errors`).
        fallback: held-out rows of folds. A kind that too few architectures have takes its residuals
            within groups from here, and its systematic part from all kinds' architectures.
    """
    if not len(errors):
        errors = fallback
    if not len(errors):
        return {}
    # A (kind, architecture) is one observation of a bias, whatever the kind.
    pooled = Residuals.of(errors.assign(group=errors["kind"] + " " + errors["group"]))
    found = {POOLED: pooled}
    for kind in sorted({*errors["kind"], *fallback["kind"]}):
        own = errors[errors["kind"] == kind]
        if own["group"].nunique() >= ENOUGH_GROUPS and len(own) >= ENOUGH_ROWS:
            found[kind] = Residuals.of(own)
            continue
        rows = fallback[fallback["kind"] == kind]
        if len(rows) >= ENOUGH_ROWS:
            within = Residuals.of(rows.assign(group="all")).within
            found[kind] = Residuals(pooled.biases, within, len(rows))
    return found


def stretches(ways: Mapping[str, pd.DataFrame]) -> tuple[float, ...]:
    """How many times as far off as near to what was measured a prediction is, by distance; never fewer than nearer.

    Of held-out rows the absolute log residual that nine in ten do not exceed, over that of rows near to the others.

    Args:
        ways: for each way of holding out the rows (:func:`cost_models.evaluation.relative_errors`), with ``distance``.

    Returns:
        For each of :data:`cost_models.measured_range.DISTANCES`; all 1 where nothing is known of distances.
    """
    frames = [rows[["distance", "log_residual"]] for rows in ways.values() if "distance" in rows]
    found = [1.0] * len(DISTANCES)
    if not frames:
        return tuple(found)
    rows = pd.concat(frames, ignore_index=True)
    size = rows["log_residual"].abs()
    by_distance = [size[rows["distance"] == far] for far in range(len(DISTANCES))]
    near = float(by_distance[NEAR].quantile(0.9)) if len(by_distance[NEAR]) >= ENOUGH_ROWS else 0.0
    for far in range(1, len(DISTANCES)):
        known = len(by_distance[far]) >= ENOUGH_ROWS and near > 0
        here = float(by_distance[far].quantile(0.9)) / near if known else 1.0
        found[far] = round(max(found[far - 1], here), 3)
    return tuple(found)


def repeat_residuals(table: pd.DataFrame, cache: str | None) -> dict[str, Residuals]:
    """How far off a measured time is, by kind and of all together (:data:`POOLED`), from A/A halves.

    Half the log ratio of two halves' statistics, taken both ways round. Of a mean, the error over both
    halves is as wide as half their difference; so it is of a minimum whose excess over the kernel's own
    time is exponential, where half the difference has the very distribution of the excess over all
    samples.

    Args:
        table: a measurement table.
        cache: the state that is priced; None takes all rows.

    Returns:
        Residuals without biases; empty where the table has no halves.
    """
    if not {"half_a_s", "half_b_s"} <= set(table.columns):
        return {}
    if cache is not None and "cache" in table:
        table = table[table["cache"] == cache]
    a, b = (table[name].to_numpy(dtype=np.float64) for name in ("half_a_s", "half_b_s"))
    halves = np.log(a / b) / 2
    known = np.isfinite(halves)
    kinds, halves = table["kind"].to_numpy()[known], halves[known]
    groups = {POOLED: halves} | {str(kind): halves[kinds == kind] for kind in np.unique(kinds)}
    return {
        kind: Residuals(
            (), tuple(np.quantile([*values, *-values], _QUANTILES).tolist()), len(values)
        )
        for kind, values in groups.items()
        if len(values) >= (FEWEST_HALVES if kind == POOLED else ENOUGH_ROWS)
    }


def narrowing(bias_variance: float, observation_variance: float, measured: int) -> float:
    """The share of a common factor's variance that is left once some of a kind were measured.

    Were all Gaussian and the observations used to the full, 1 / (1 + m B / W) would be left. A model
    fitted to the measured operators takes :data:`LEARNT` of what could be learnt over to the others.

    Args:
        bias_variance: B, of the common factor.
        observation_variance: W, of an observation around it.
        measured: m, independent observations.
    """
    if not bias_variance or not measured:
        return 1.0
    left = 0.0
    if observation_variance:
        left = 1.0 / (1.0 + measured * bias_variance / observation_variance)
    return 1.0 - LEARNT * (1.0 - left)


@dataclass(frozen=True)
class LookedUp:
    """Operators of a cost table whose times were measured, not predicted, on one profile.

    Attributes:
        measured: bool[operators], in the order of the table's graphs.
        repeat: by kind the error of a measurement (:func:`repeat_residuals`).
    """

    measured: np.ndarray
    repeat: Mapping[str, Residuals]


def draw_factors(
    residuals: Mapping[str, Residuals],
    kinds: Sequence[str],
    identity: np.ndarray,
    rng: np.random.Generator,
    looked_up: LookedUp | None = None,
    stretch: np.ndarray | None = None,
) -> np.ndarray:
    """float64[operators]: factors on believed times, for one profile.

    Args:
        residuals: by kind, with :data:`POOLED` for the others; empty means factors of 1.
        kinds: of each operator.
        identity: int64[operators], equal for operators that a model cannot tell apart.
        rng: drawn from in an order that depends on the kinds and identities alone.
        looked_up: which times were measured; None: all were predicted.
        stretch: float64[operators], how many times as far off as others of its kind each is; None: 1.
    """
    factors = np.ones(len(kinds))
    if not residuals:
        return factors
    for kind, chosen, first, position in _distinct(kinds, identity):
        source = residuals.get(kind) or residuals.get(POOLED)
        if source is None:
            continue
        known = _measured(looked_up, kind, first)
        drawn = source.draw(rng, len(first), *known) * _stretch(stretch, first, known[0])
        factors[chosen] = np.exp(drawn)[position]
        if kind not in residuals:
            factors[chosen] *= _unknown_work(kind, rng)
    return factors


def draw_together(
    residuals: Mapping[str, Mapping[str, Residuals]],
    kinds: Sequence[str],
    identity: np.ndarray,
    rngs: Mapping[str, np.random.Generator],
    correlations: Correlations,
    looked_up: Mapping[str, LookedUp],
    stretch: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Factors of several profiles whose errors go together; as :func:`draw_factors` for each.

    Args:
        residuals: by profile.
        kinds: of each operator.
        identity: of each operator.
        rngs: by profile.
        correlations: of the profiles.
        looked_up: by profile.
        stretch: by profile.
    """
    names = sorted(residuals)
    factors = {name: np.ones(len(kinds)) for name in names}
    for kind, chosen, first, position in _distinct(kinds, identity):
        count = len(first)
        independent = np.array([rngs[name].standard_normal(2 + 2 * count) for name in names])
        shared, own = correlations.mixing(names, kind)
        together, alone = shared @ independent[:, :2], own @ independent[:, 2 : 2 + count]
        again = independent[:, 2 + count :]  # how far off a measurement is is no matter of profiles
        for number, name in enumerate(names):
            source = residuals[name].get(kind) or residuals[name].get(POOLED)
            if source is not None:
                known = _measured(looked_up.get(name), kind, first)
                drawn = source.draw_at(together[number], alone[number], again[number], *known)
                drawn *= _stretch((stretch or {}).get(name), first, known[0])
                factors[name][chosen] = np.exp(drawn)[position]
                if kind not in residuals[name]:
                    factors[name][chosen] *= _unknown_work(kind, rngs[name])
    return factors


def _stretch(
    stretch: np.ndarray | None, operators: np.ndarray, measured: np.ndarray | None
) -> np.ndarray | float:
    """Of operators; a time that was measured is off by no more for where it lies."""
    if stretch is None:
        return 1.0
    return stretch[operators] if measured is None else np.where(measured, 1.0, stretch[operators])


def _unknown_work(kind: str, rng: np.random.Generator) -> float:
    """A factor that all operators of a kind share of which neither the work nor the time is known."""
    if is_known(kind):
        return 1.0
    return float(np.exp(rng.uniform(-1.0, 1.0) * math.log(UNKNOWN_WORK)))


def _distinct(
    kinds: Sequence[str], identity: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """For each kind its operators, a first one of each distinct, and which of these every one is."""
    labels = np.array(kinds, dtype=object)
    for kind in sorted(set(kinds)):
        chosen = np.flatnonzero(labels == kind)
        _, first, position = np.unique(identity[chosen], return_index=True, return_inverse=True)
        yield kind, chosen, chosen[first], position


def _measured(
    looked_up: LookedUp | None, kind: str, operators: np.ndarray
) -> tuple[np.ndarray | None, Residuals | None]:
    """Which operators of a kind were measured, and the error of a measurement."""
    if looked_up is None:
        return None, None
    repeat = looked_up.repeat.get(kind) or looked_up.repeat.get(POOLED)
    return looked_up.measured[operators], repeat


HOUR = 1 << 20
"""Stream of random numbers of the machine's speed; those of profiles are numbered from 0."""


def draws(
    costs: CostTable,
    residuals: Sequence[tuple[str, Mapping[str, Residuals]] | None],
    count: int,
    seed: int = 0,
    looked_up: Mapping[str, LookedUp] | None = None,
    drift: Mapping[str, float] | None = None,
    correlations: Correlations | None = None,
    stretch: Mapping[str, np.ndarray] | None = None,
) -> Iterator[CostTable]:
    """Possible actual times of every operator, ``count`` tables of them.

    Args:
        costs: predicted times, and measured ones of operators that ``looked_up`` names.
        residuals: for each device the name of its profile and the profile's residuals; None for a
            device whose times are given, not predicted. Devices of one profile are wrong together.
        count: tables to draw.
        seed: the ``i``-th table does not depend on ``count``.
        looked_up: by profile the operators whose times were measured.
        drift: by profile the standard deviation of log seconds between one hour of the machine and
            another: one factor for all of its operators, and one normal number for all profiles.
        correlations: how the errors of profiles go together; those that go with no other one's are
            drawn as without.
        stretch: by profile, float64 of the operators of all graphs in order, how many times as far off as others of
            its kind each is.

    Raises:
        InvalidInput: another number of devices than the table has.
    """
    graphs = list(costs)
    for graph in graphs:
        if costs[graph].seconds.shape[1] != len(residuals):
            raise InvalidInput(
                f"{len(residuals)} profiles for the {costs[graph].seconds.shape[1]} devices of "
                f"graph '{graph.name}'"
            )
    operators = [operator for graph in graphs for operator in graph.operators]
    kinds = [operator.kind for operator in operators]
    identity = identities(rows_of(operators))
    profiles = {entry[0]: entry[1] for entry in residuals if entry is not None}
    together = [name for name in (correlations.names if correlations else ()) if name in profiles]
    # Of two profiles one may not be in this cluster.
    if len(together) < 2:
        together = []
    for number in range(count):
        hour = float(np.random.default_rng([seed, number, HOUR]).standard_normal())
        rngs = {
            name: np.random.default_rng([seed, number, i])
            for i, name in enumerate(sorted(profiles))
        }
        factors = {
            name: draw_factors(
                profiles[name],
                kinds,
                identity,
                rng,
                (looked_up or {}).get(name),
                (stretch or {}).get(name),
            )
            for name, rng in rngs.items()
            if name not in together
        }
        if correlations and together:
            factors |= draw_together(
                {name: profiles[name] for name in together},
                kinds,
                identity,
                rngs,
                correlations,
                looked_up or {},
                stretch,
            )
        entries, start = {}, 0
        for graph in graphs:
            part = slice(start, start + len(graph))
            start += len(graph)
            seconds = costs[graph].seconds.copy()
            for device, entry in enumerate(residuals):
                if entry is not None:
                    drifted = math.exp(hour * (drift or {}).get(entry[0], 0.0))
                    seconds[:, device] *= factors[entry[0]][part] * drifted
            entries[graph] = replace(costs[graph], seconds=seconds)
        yield CostTable(entries)
