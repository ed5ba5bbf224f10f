"""Noise: how the times that happen differ from those that a scheduler believes.

A :class:`NoiseModel` is asked once a job, in order of arrival, for the job's actual times on *every*
device. So what happens depends on the seed and on the workload alone: schedulers that are compared
under one seed meet the same truth (common random numbers), whatever they decide. For the same reason
drift is taken at a job's arrival, not at the start of its tasks, which a scheduler decides.

What belongs to a run as a whole (a systematic error, the path of a drift) is a function of the run's
seed and of names: it does not depend on how many numbers were drawn before, nor on which graph comes
first.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph

MOST_SIGMA = 10.0
"""A larger standard deviation of log seconds is taken for an error: one task in six would take
22,000 times as long as believed."""
ANY_KIND = "*"
"""Stands for every kind without an entry of its own."""
_STEPS = 16  # of a random drift, in each time constant
_BLOCK = 25 * _STEPS  # steps after which a shock has faded to exp(-25), below 1e-10


class NoiseModel(Protocol):
    """Turns believed times into those that happen."""

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """Actual seconds [operators, devices] of one job; called once a job, in order of arrival.

        Args:
            graph: the job's graph.
            costs: its believed times.
            rng: the run's one stream, made of the run's seed.
            arrival: of the job, seconds.

        Raises:
            InvalidInput: the model lacks what it needs for this graph.
        """
        ...


@dataclass(frozen=True)
class LogNormalNoise:
    """Independent log-normal noise of median 1: ``seconds * exp(sigma * N(0, 1))``.

    ``sigma=None`` takes each operator's own measured spread.
    """

    sigma: float | None = None

    def __post_init__(self) -> None:
        if self.sigma is not None:
            _check_sigma("Noise", self.sigma)

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        sigma = costs.spread if self.sigma is None else np.float64(self.sigma)
        if sigma is None:
            raise InvalidInput(
                f"Noise from measured spread asked for, but the times of graph '{graph.name}' have "
                "none; give a sigma"
            )
        if not np.all((sigma >= 0) & (sigma <= MOST_SIGMA)):
            raise InvalidInput(
                f"The measured spread of graph '{graph.name}' holds values outside 0 to "
                f"{MOST_SIGMA:g}; give a sigma instead"
            )
        return costs.seconds * np.exp(sigma * rng.standard_normal(costs.seconds.shape))


@dataclass(frozen=True)
class EmpiricalNoise:
    """Independent noise drawn from measured calls: each sample is equally likely.

    Args:
        samples: for (group, kind) the log ratios of measured to believed seconds, 1-d;
            :data:`ANY_KIND` stands for kinds without an entry. Where neither is there nothing is
            known, and times stay as they are.
        groups: for each device of the cluster the group that it belongs to, e.g. its profile.

    Raises:
        InvalidInput: samples that are empty or not finite.
    """

    samples: Mapping[tuple[str, str], np.ndarray]
    groups: Sequence[str]

    def __post_init__(self) -> None:
        for (group, kind), values in self.samples.items():
            array = np.asarray(values, dtype=np.float64)
            if array.ndim != 1 or not len(array) or not np.all(np.abs(array) <= 100):
                raise InvalidInput(
                    f"Measured deviations of '{kind}' on '{group}' must be log ratios, at least one "
                    "and none beyond 100"
                )

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        _check_devices(self.groups, graph, costs)
        # One uniform number for each time, whatever has samples.
        uniform = rng.random(costs.seconds.shape)
        factors = np.ones(costs.seconds.shape)
        kinds, code = _kinds_of(graph)
        for number, kind in enumerate(kinds):
            rows = np.flatnonzero(code == number)
            for device, group in enumerate(self.groups):
                values = self.samples.get((group, kind), self.samples.get((group, ANY_KIND)))
                if values is not None:
                    chosen = (uniform[rows, device] * len(values)).astype(np.int64)
                    factors[rows, device] = np.exp(np.asarray(values)[chosen])
        return costs.seconds * factors


@dataclass(frozen=True)
class SystematicError:
    """One factor for each (group, kind), the same for every operator and every job of a run.

    Predictors err together: if they take convolutions on a device for 5% too fast, then all of them.
    Factors are log-normal of median 1 and depend on the run's seed, the group and the kind alone, and on the
    groups whose errors they go together with.

    Args:
        groups: for each device of the cluster the group that it belongs to: devices of one profile
            are wrong together.
        sigma: standard deviation of log factors; or one for each (group, kind), where
            :data:`ANY_KIND` stands for kinds without an entry and nothing means no error.
        factors: given factors for (group, kind), taken in place of drawn ones.
        correlation: of the log factors of two groups, for (group, group, kind) with the lesser group first,
            :data:`ANY_KIND` as for ``sigma``; without an entry there is none.

    Raises:
        InvalidInput: a sigma, a factor or a correlation out of range.
    """

    groups: Sequence[str]
    sigma: float | Mapping[tuple[str, str], float] = 0.0
    factors: Mapping[tuple[str, str], float] = field(default_factory=dict)
    correlation: Mapping[tuple[str, str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sigmas = self.sigma.values() if isinstance(self.sigma, Mapping) else [self.sigma]
        for sigma in sigmas:
            _check_sigma("A systematic error", sigma)
        for (group, kind), factor in self.factors.items():
            if not 0 < factor < math.inf:
                raise InvalidInput(
                    f"The factor of '{kind}' on '{group}' is {factor}; it must be above 0 and finite"
                )
        for (one, other, kind), value in self.correlation.items():
            if not (one < other and -1 <= value <= 1):
                raise InvalidInput(
                    f"The errors of '{kind}' on '{one}' and '{other}' correlate by {value}; it must be from "
                    "-1 to 1, and the lesser name first"
                )

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        _check_devices(self.groups, graph, costs)
        kinds, code = _kinds_of(graph)
        of_kind = np.array([self._factors(rng, kind) for kind in kinds])
        actual: np.ndarray = costs.seconds * of_kind[code]
        return actual

    def _factors(self, rng: np.random.Generator, kind: str) -> list[float]:
        """Of each device."""
        names = sorted(set(self.groups))
        drawn = np.array([_normals(*_root(rng), 1, "systematic", name, kind)[0] for name in names])
        if self.correlation:
            drawn = self._mixing(kind, names) @ drawn
        of = {n: self._factor(n, kind, z) for n, z in zip(names, drawn.tolist(), strict=True)}
        return [of[group] for group in self.groups]

    def _factor(self, group: str, kind: str, normal: float) -> float:
        given = self.factors.get((group, kind))
        if given is not None:
            return given
        sigma = self.sigma
        if isinstance(sigma, Mapping):
            sigma = sigma.get((group, kind), sigma.get((group, ANY_KIND), 0.0))
        return math.exp(sigma * normal)

    def _mixing(self, kind: str, names: Sequence[str]) -> np.ndarray:
        known = self._mixings.get(kind)
        if known is None:
            wanted = np.eye(len(names))
            for i, j in itertools.combinations(range(len(names)), 2):
                pair = names[i], names[j]
                value = self.correlation.get((*pair, kind))
                if value is None:
                    value = self.correlation.get((*pair, ANY_KIND), 0.0)
                wanted[i, j] = wanted[j, i] = value
            known = self._mixings[kind] = mixing(wanted)
        return known

    @cached_property
    def _mixings(self) -> dict[str, np.ndarray]:
        return {}


@dataclass(frozen=True)
class Stragglers:
    """With some probability a task takes several times as long: an interrupt, a neighbour, a retry.

    It is the task that straggles, on whatever device it is run.

    Args:
        probability: of a task to straggle.
        factor: by which its time grows; with ``shape`` the least factor.
        shape: None: always ``factor``. Otherwise the factor has a Pareto distribution of this tail
            index, ``P(factor > x) = (least / x) ** shape``, of mean ``least * shape / (shape - 1)``.

    Raises:
        InvalidInput: a probability outside 0 to 1, a factor below 1, or a shape of 1 or less, with
            which there would be no mean.
    """

    probability: float
    factor: float
    shape: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise InvalidInput(f"Stragglers need a probability from 0 to 1, got {self.probability}")
        if not 1 <= self.factor <= 1e9:
            raise InvalidInput(f"Stragglers need a factor from 1 to 1e9, got {self.factor}")
        if self.shape is not None and not self.shape > 1:
            raise InvalidInput(
                f"Stragglers need a shape above 1, got {self.shape}: with less their mean would be "
                "infinite"
            )

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        which, tail = rng.random((2, len(graph)))
        factors = np.full(len(graph), self.factor)
        if self.shape is not None:
            factors *= (1 - tail) ** (-1 / self.shape)  # from (0, 1]: never a division by zero
        factors[which >= self.probability] = 1.0
        actual: np.ndarray = costs.seconds * factors[:, None]
        return actual


@dataclass(frozen=True)
class SteadyDrift:
    """Devices become slower (or faster) at a steady rate, compounded: ``(1 + per_hour) ** hours``.

    Args:
        per_hour: relative change of times in an hour, of all devices or of each; 0.02 is 2% slower.

    Raises:
        InvalidInput: a rate of -1 or less, or a time at which a factor is 0 or infinite.
    """

    per_hour: float | Sequence[float]

    def __post_init__(self) -> None:
        rates = np.atleast_1d(np.asarray(self.per_hour, dtype=np.float64))
        if rates.ndim != 1 or not np.all((rates > -1) & (rates < np.inf)):
            raise InvalidInput(
                f"A drift needs a relative change per hour above -1, like 0.02, got {self.per_hour}"
            )

    def factor(self, time: float) -> np.ndarray:
        """float64[devices] or [1]: how many times longer tasks take at a time, in seconds."""
        rates = np.atleast_1d(np.asarray(self.per_hour, dtype=np.float64))
        with np.errstate(over="ignore"):
            return np.exp(np.log1p(rates) * (time / 3600))

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        factor = self.factor(arrival)
        if len(factor) > 1:
            _check_devices(factor, graph, costs)
        if not np.all((factor > 1e-9) & (factor < 1e9)):
            raise InvalidInput(
                f"A drift of {self.per_hour} per hour changes times by more than a factor of 1e9 "
                f"until {arrival:g} s; take a smaller one"
            )
        return costs.seconds * factor


@dataclass(frozen=True)
class RandomDrift:
    """The speed of each device wanders: ``exp(sigma * X(t))``, X an Ornstein-Uhlenbeck process.

    X is stationary, of mean 0, variance 1 and autocorrelation ``exp(-lag / time_constant)``. Its value
    changes in steps of a sixteenth of the time constant, where it has exactly these moments, and is
    held in between: any time costs the same, and none has to be asked for before another. (A shock is
    forgotten after 25 to 50 time constants, when exp(-25) of it is left.)

    Args:
        groups: for each device the name of its path; devices of one name drift together.
        sigma: standard deviation of log factors.
        time_constant: seconds.

    Raises:
        InvalidInput: a sigma or a time constant out of range.
    """

    groups: Sequence[str]
    sigma: float
    time_constant: float

    def __post_init__(self) -> None:
        _check_sigma("A drift", self.sigma)
        if not 0 < self.time_constant < math.inf:
            raise InvalidInput(
                f"A drift needs a time constant above 0 s, got {self.time_constant} s"
            )

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        _check_devices(self.groups, graph, costs)
        step = math.floor(arrival / self.time_constant * _STEPS)
        paths = {group: self._path(rng, group, step) for group in self.groups}
        return costs.seconds * np.exp(self.sigma * np.array([paths[g] for g in self.groups]))

    def _path(self, rng: np.random.Generator, group: str, step: int) -> float:
        """X at a step: the shocks until then, each faded by exp(-age)."""
        # Shock -_BLOCK stands first, so that the path is stationary from time 0.
        block, rest = divmod(step, _BLOCK)
        root = _root(rng)
        shocks = np.concatenate(
            [_normals(*root, _BLOCK, "drift", group, str(b)) for b in (block, block + 1)]
        )[: _BLOCK + rest + 1]
        fade = math.exp(-1 / _STEPS)
        weights = fade ** np.arange(len(shocks) - 1, -1, -1)
        return float(math.sqrt(1 - fade * fade) * (weights @ shocks))


@dataclass(frozen=True)
class Compose:
    """Several models one after the other; their factors multiply.

    All draw from the run's one stream in the order given.
    """

    models: Sequence[NoiseModel]

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        for model in self.models:
            costs = replace(costs, seconds=model.realise(graph, costs, rng, arrival))
        return costs.seconds


def _check_sigma(what: str, sigma: float) -> None:
    if not 0 <= sigma <= MOST_SIGMA:
        raise InvalidInput(f"{what} needs a sigma >= 0 and at most {MOST_SIGMA:g}, got {sigma}")


def _check_devices(
    groups: Sequence[str] | np.ndarray, graph: DataflowGraph, costs: GraphCosts
) -> None:
    if len(groups) != costs.seconds.shape[1]:
        raise InvalidInput(
            f"The noise is for {len(groups)} devices, the times of graph '{graph.name}' are for "
            f"{costs.seconds.shape[1]}"
        )


_KINDS: WeakKeyDictionary[DataflowGraph, tuple[list[str], np.ndarray]] = WeakKeyDictionary()


def _kinds_of(graph: DataflowGraph) -> tuple[list[str], np.ndarray]:
    """The kinds of a graph, and for each operator the number of its own."""
    found = _KINDS.get(graph)
    if found is None:
        number: dict[str, int] = {}
        codes = [number.setdefault(operator.kind, len(number)) for operator in graph.operators]
        found = _KINDS[graph] = list(number), np.array(codes, dtype=np.int64)
    return found


def _root(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the stream was made of: the same however much has been drawn from it."""
    sequence = rng.bit_generator.seed_seq
    assert isinstance(sequence, np.random.SeedSequence)
    entropy = sequence.entropy
    words = (entropy,) if isinstance(entropy, int) else tuple(entropy or ())
    return words, sequence.spawn_key


@lru_cache(maxsize=4096)
def _normals(
    entropy: tuple[int, ...], spawn_key: tuple[int, ...], count: int, *names: str
) -> np.ndarray:
    """Standard normal numbers that belong to a seed and to names."""
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    key = (*spawn_key, int.from_bytes(digest[:8], "big"))
    sequence = np.random.SeedSequence(entropy, spawn_key=key)
    return np.random.default_rng(sequence).standard_normal(count)


_OWN: dict[str, Callable[[Sequence[str]], NoiseModel]] = {}


def register(noise: str, make: Callable[[Sequence[str]], NoiseModel]) -> None:
    """Offer a noise model under a name of its own; every run with that ``noise`` draws from it.

    Args:
        noise: the name.
        make: makes the model from the names of the cluster's devices.

    Raises:
        InvalidInput: the name is taken.
    """
    if noise in _OWN:
        raise InvalidInput(f"There is a noise '{noise}' already; choose another name")
    _OWN[noise] = make


def unregister(noise: str) -> None:
    """Offer a noise model of one's own no more."""
    del _OWN[noise]


def registered() -> Mapping[str, Callable[[Sequence[str]], NoiseModel]]:
    """The registered noise models, by name."""
    return _OWN


_NOTHING = 1e-9
"""Of a variance of 1, what rounding leaves."""


def mixing(correlation: np.ndarray) -> np.ndarray:
    """What turns independent standard normal numbers into correlated ones: ``L @ independent``.

    Correlations that were estimated pair by pair may contradict one another; the nearest are taken that
    do not (negative eigenvalues to 0, the diagonal back to 1).

    Args:
        correlation: float64[n, n], symmetric with a diagonal of 1.

    Returns:
        float64[n, n], lower triangular with ``L @ L.T`` the correlation. Numbers that correlate by 1
        come out equal, and those that correlate with none of the earlier ones as they went in.
    """
    wanted = np.asarray(correlation, dtype=np.float64)
    values, vectors = np.linalg.eigh(wanted)
    if values.min(initial=0.0) < -_NOTHING:
        possible = (vectors * np.maximum(values, 0.0)) @ vectors.T
        scale = np.sqrt(np.diag(possible))
        wanted = possible / np.outer(scale, scale)
    # Cholesky's rows one by one: unlike LAPACK's they may end in a variance of 0.
    found = np.zeros_like(wanted)
    for row in range(len(wanted)):
        for column in range(row):
            pivot = found[column, column]
            if pivot > 0.0:
                rest = wanted[row, column] - found[row, :column] @ found[column, :column]
                found[row, column] = rest / pivot
        left = 1.0 - float(found[row, :row] @ found[row, :row])
        found[row, row] = np.sqrt(left) if left > _NOTHING else 0.0
    return found
