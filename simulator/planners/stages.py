"""Stages of a pipeline: which layers run on which devices, so that the slowest stage or crossing is fastest.

A stage has consecutive layers and a cluster of devices that share each micro-batch (data parallelism inside a stage).
With ``W_k`` for its work, ``S_k`` for the summed speed of its devices, ``w_k`` for its weights, ``a_k`` for what crosses to the
next one and ``B`` for bandwidths, the best stages minimise ::

    max over k of max(W_k / S_k, sync_k, 2 a_k / B_{k,k+1}),    sync_k = 2 (m - 1) / m * w_k / B_k

where ``m`` devices synchronise gradients in a ring over their slowest connection ``B_k``, once in so many micro-batches, and
each activation comes back as a gradient. Where layers are a graph, stages are differences of down-sets (Tarnawski et al.,
*Efficient algorithms for device placement of DNN graph operators*, NeurIPS 2020). Equal devices whose numbers per stage
are open: :func:`replicated_stages` (Narayanan et al., *PipeDream*, SOSP 2019).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.units import format_bytes
from simulator.planners.contiguous import Step, least_slowest
from simulator.planners.shares import whole_units

ORDERS = 6
"""Clusters up to this number are tried in every order; more run in the given one."""
ROUNDED = 1 + 1e-12
"""Of a memory; bytes are sums of floats."""
MOST_CUTS = 300
"""Down-sets of a graph of layers; where there are more, it is cut along its given order alone."""


class Stage(NamedTuple):
    """One stage.

    Attributes:
        layers: numbers, ascending.
        devices: numbers, ascending.
        shares: of every micro-batch, one for each device; their sum is 1.
    """

    layers: tuple[int, ...]
    devices: tuple[int, ...]
    shares: tuple[float, ...]


class Stages(NamedTuple):
    """A pipeline.

    Attributes:
        stages: in the order in which a micro-batch passes them.
        slowest: seconds between two micro-batches: of the slowest stage or crossing.
    """

    stages: tuple[Stage, ...]
    slowest: float


def from_the_end(stage: int, stages: int) -> int:
    """Micro-batches whose activations a stage holds at once under 1F1B and PipeDream: itself and those behind it."""
    return stages - stage


class Devices(NamedTuple):
    """What a planner of stages knows of devices.

    Attributes:
        names: of each.
        bandwidth: float[devices, devices], bytes per second between the memories of two; ``inf`` within one memory, 0
            where there is no route.
        memory: float[devices], bytes; devices of one memory have an equal part of it each.
    """

    names: tuple[str, ...]
    bandwidth: np.ndarray
    memory: np.ndarray

    @classmethod
    def of(cls, cluster: Cluster) -> Devices:
        """Those of a cluster."""
        spaces = cluster.space_of
        between = np.full((len(spaces), len(spaces)), np.inf)
        for a, b in itertools.permutations(range(len(spaces)), 2):
            if spaces[a] != spaces[b]:
                try:
                    between[a, b] = cluster.route(spaces[a], spaces[b]).bandwidth
                except InvalidInput:
                    between[a, b] = 0.0
        memory = [cluster.spaces[space].capacity / spaces.count(space) for space in spaces]
        return cls(tuple(device.name for device in cluster.devices), between, np.array(memory))


@dataclass(frozen=True, eq=False)
class StageProblem:
    """Layers of a training step, and devices.

    Attributes:
        seconds: float[layers, devices], forward and backward of one micro-batch, whole and alone on each device.
        weights: float[layers], bytes of parameters, which are as many of gradients.
        stashed: float[layers], bytes that a micro-batch keeps from its forward to its backward.
        edges: (layer, later layer, bytes of the earlier one's output); a chain is ``[(0, 1, a), (1, 2, b), ...]``.
        devices: what they are.
        batch: samples of a micro-batch, which devices of a stage share in whole numbers; None: in any proportion.
        micro_batches: between two synchronisations of gradients.
        states: tensors that the optimiser keeps for each weight: 0 for SGD, 2 for Adam.
        in_flight: micro-batches that a stage, of so many stages, holds activations of at once.
        stash_weights: each of them has a version of the weights of its own (PipeDream).
        names: of layers; their numbers unless given.
    """

    seconds: np.ndarray
    weights: np.ndarray
    stashed: np.ndarray
    edges: Sequence[tuple[int, int, float]]
    devices: Devices
    batch: int | None = None
    micro_batches: int = 1
    states: int = 0
    in_flight: Callable[[int, int], int] = from_the_end
    stash_weights: bool = False
    names: Sequence[str] = ()

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.seconds)

    @cached_property
    def speed(self) -> np.ndarray:
        """float[devices]: micro-batches per second of all layers."""
        return 1.0 / self.seconds.sum(axis=0)

    def shares(self, devices: Sequence[int]) -> np.ndarray:
        """Shares of a micro-batch in proportion to speed; whole samples by the largest remainder."""
        exact = self.speed[list(devices)] / self.speed[list(devices)].sum()
        return exact if self.batch is None else whole_units(exact, self.batch) / self.batch

    def slowest_connection(self, some: Iterable[int], others: Iterable[int]) -> float:
        """Bytes per second of the slowest connection between different devices of two groups; ``inf`` without any."""
        pairs = [(a, b) for a in some for b in others if a != b]
        return min((float(self.devices.bandwidth[pair]) for pair in pairs), default=math.inf)

    # The formulas: of one stage, or of all differences of cuts at once.

    def stage_seconds(
        self, work: np.ndarray, weights: np.ndarray, devices: Sequence[int]
    ) -> np.ndarray:
        """Seconds of stages on a cluster of devices, per micro-batch.

        Args:
            work: float[..., devices], seconds of the stages' layers on every device.
            weights: float[...], bytes.
            devices: the cluster.
        """
        shared = (work[..., list(devices)] * self.shares(devices)).max(axis=-1)
        count = len(devices)
        if count == 1:
            return np.asarray(shared)
        with np.errstate(divide="ignore", invalid="ignore"):
            passed = 2 * (count - 1) / count * weights / self.slowest_connection(devices, devices)
        return np.maximum(
            shared, np.nan_to_num(passed, nan=0.0, posinf=np.inf) / self.micro_batches
        )

    def stage_bytes(
        self,
        weights: np.ndarray,
        stashed: np.ndarray,
        devices: Sequence[int],
        stage: int,
        stages: int,
    ) -> np.ndarray:
        """float[..., cluster]: bytes on each device of a cluster: weights, gradients, optimiser, activations."""
        held = self.in_flight(stage, stages)
        copies = 2 + self.states + (held - 1 if self.stash_weights else 0)
        return copies * weights[..., None] + held * stashed[..., None] * self.shares(devices)

    def crossing_seconds(
        self, crossing: np.ndarray, before: Iterable[int], behind: Iterable[int]
    ) -> np.ndarray:
        """Seconds in which bytes cross from one cluster to the next and their gradients come back."""
        with np.errstate(divide="ignore", invalid="ignore"):
            passed = 2 * crossing / self.slowest_connection(before, behind)
        return np.nan_to_num(passed, nan=0.0, posinf=np.inf)

    def evaluate(self, stages: Sequence[Stage]) -> Stages:
        """The same stages with the seconds of the slowest of them, or crossing.

        Raises:
            InvalidInput: a stage is over the memory of a device; names both with their bytes.
        """
        times, before, done = [], None, np.zeros(self.layers, dtype=bool)
        for number, stage in enumerate(stages):
            layers = list(stage.layers)
            weights, stashed = self.weights[layers].sum(), self.stashed[layers].sum()
            needed = self.stage_bytes(weights, stashed, stage.devices, number, len(stages))
            for device, size in zip(stage.devices, needed.tolist(), strict=True):
                if size > self.devices.memory[device] * ROUNDED:
                    raise InvalidInput(
                        f"Stage {number} of {len(stages)} (layers {self._named(stage.layers)}) needs "
                        f"{format_bytes(size)} on device '{self.devices.names[device]}', which has "
                        f"{format_bytes(float(self.devices.memory[device]))}: give smaller micro-batches, more stages or "
                        "more memory"
                    )
            if before is not None:
                crossing = self._crossing_bytes(done[None])[0]
                times.append(float(self.crossing_seconds(crossing, before, stage.devices)))
            work = self.seconds[layers].sum(axis=0)
            times.append(float(self.stage_seconds(work, weights, stage.devices)))
            before = stage.devices
            done[layers] = True
        return Stages(tuple(stages), max(times))

    def _named(self, layers: Sequence[int]) -> str:
        ends = [str(self.names[at]) if self.names else str(at) for at in (layers[0], layers[-1])]
        return " to ".join(dict.fromkeys(ends))

    # -- cuts -----------------------------------------------------------------------------------

    @cached_property
    def cuts(self) -> np.ndarray:
        """bool[cuts, layers]: what may lie before a cut, from nothing to everything."""
        found = down_sets(self.layers, [edge[:2] for edge in self.edges], MOST_CUTS)
        return np.tri(self.layers + 1, self.layers, -1, dtype=bool) if found is None else found

    @cached_property
    def within(self) -> np.ndarray:
        """bool[cuts, cuts]: whether the first cut lies before the second."""
        inside = self.cuts.astype(np.float64)
        found = np.asarray(inside @ (1.0 - inside.T) == 0)
        np.fill_diagonal(found, val=False)
        return found

    def _crossing_bytes(self, cuts: np.ndarray) -> np.ndarray:
        """float[cuts]: bytes of what layers before each cut give to any behind it, each output once."""
        largest = np.zeros((len(cuts), self.layers))
        for source, target, size in self.edges:
            crosses = cuts[:, source] & ~cuts[:, target]
            largest[:, source] = np.maximum(largest[:, source], size * crosses)
        return largest.sum(axis=1)

    @cached_property
    def crossing(self) -> np.ndarray:
        """float[cuts]: bytes that cross each cut."""
        return self._crossing_bytes(self.cuts)

    @cached_property
    def _sums(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Work [cuts, cuts, devices], weights and stashed bytes [cuts, cuts] of what lies between two cuts."""
        before = self.cuts.astype(np.float64)
        found = [before @ column for column in (self.seconds, self.weights, self.stashed)]
        work, weights, stashed = (column[None] - column[:, None] for column in found)
        return work, weights, stashed

    def step_seconds(self, devices: Sequence[int], stage: int, stages: int) -> np.ndarray:
        """float[cuts, cuts]: seconds of a stage from one cut to another; ``inf`` where it does not fit."""
        work, weights, stashed = self._sums
        needed = self.stage_bytes(weights, stashed, devices, stage, stages)
        fits = (needed <= self.devices.memory[list(devices)] * ROUNDED).all(axis=-1)
        seconds = self.stage_seconds(work, weights, devices)
        return np.where(self.within & fits, seconds, np.inf)


def down_sets(
    count: int, edges: Iterable[tuple[int, int]], most: int | None = None
) -> np.ndarray | None:
    """All sets of layers that have with a layer all those before it, smaller ones first; bool[sets, layers].

    Returns:
        None where there are more than ``most``.
    """
    needs = [0] * count
    for source, target in edges:
        needs[target] |= 1 << source
    found = fresh = {0}
    while fresh:
        fresh = {
            known | 1 << layer
            for known in fresh
            for layer in range(count)
            if not known >> layer & 1 and needs[layer] & known == needs[layer]
        }
        found = found | fresh
        if most is not None and len(found) > most:
            return None
    order = sorted(found, key=lambda known: (known.bit_count(), known))
    return np.array([[known >> layer & 1 for layer in range(count)] for known in order], dtype=bool)


def in_order(problem: StageProblem, clusters: Sequence[Sequence[int]]) -> Stages:
    """The best layers for clusters of devices, one stage each, in the order in which they stand.

    Raises:
        InvalidInput: as :func:`best_stages`.
    """
    count = len(clusters)
    _check_count(problem, count)
    steps = []
    for k, cluster in enumerate(clusters):
        enters = problem.crossing_seconds(problem.crossing, clusters[k - 1], cluster) if k else None
        steps.append(Step(k, k + 1, problem.step_seconds(cluster, k, count), enters))
    pieces = least_slowest(steps, [count])
    if pieces is None:
        _refuse(problem, lambda free: in_order(free, clusters))
    return _stages(problem, [(piece.first, piece.end) for piece in pieces], clusters)


def best_stages(problem: StageProblem, clusters: Sequence[Sequence[int]]) -> Stages:
    """The best layers for clusters of devices, one stage each, in the best order of up to :data:`ORDERS` clusters.

    Args:
        problem: the layers and devices.
        clusters: numbers of devices; each is in one of them at most. More of them run in the order as they stand.

    Raises:
        InvalidInput: more clusters than layers, or no partition fits into memory: names a stage of the best that
            does not, with the bytes.
    """
    count = len(clusters)
    if not 1 < count <= ORDERS:
        return in_order(problem, clusters)
    _check_count(problem, count)
    seconds = [[problem.step_seconds(c, s, count) for s in range(count)] for c in clusters]
    crossing = [
        [problem.crossing_seconds(problem.crossing, a, b) for b in clusters] for a in clusters
    ]
    # A state says which clusters have layers, and which of them has the last ones.
    states = [(0, -1)]
    states += [(s, k) for s in range(1, 1 << count) for k in range(count) if s >> k & 1]
    number = {state: at for at, state in enumerate(states)}
    steps = [
        Step(
            source,
            number[done | 1 << k, k],
            seconds[k][done.bit_count()],
            crossing[before][k] if done else None,
        )
        for source, (done, before) in enumerate(states)
        for k in range(count)
        if not done >> k & 1
    ]
    # Of equal orders the one as they stand comes first.
    last = [number[(1 << count) - 1, k] for k in reversed(range(count))]
    pieces = least_slowest(steps, last)
    if pieces is None:
        _refuse(problem, lambda free: best_stages(free, clusters))
    order = [clusters[states[steps[piece.step].target][1]] for piece in pieces]
    return _stages(problem, [(piece.first, piece.end) for piece in pieces], order)


def replicated_stages(problem: StageProblem, stages: int | None = None) -> Stages:
    """PipeDream's partition: layers for runs of devices as they stand, whose lengths are open.

    It minimises ``A(j, m) = min over i, m' of max(A(i, m - m'), 2 a_i / B, T(i + 1..j, m'))`` with
    ``T(i..j, m) = 1/m max(sum t, 2 (m - 1) sum |w| / B)``, for devices of one kind that are all connected alike.

    Args:
        problem: the layers and devices.
        stages: how many; the best number unless given.

    Raises:
        InvalidInput: more stages than layers or devices, or none fits into memory.
    """
    devices = len(problem.devices.names)
    found: Stages | None = None
    for count in range(1, min(devices, problem.layers) + 1) if stages is None else (stages,):
        _check_count(problem, count)
        if count > devices:
            raise InvalidInput(f"{count} stages need as many devices; there are {devices}")
        # A state says how many devices have layers, and in how many stages.
        steps = []
        for done, used, end in itertools.product(
            range(count), range(devices), range(1, devices + 1)
        ):
            if done <= used < end <= devices - (count - 1 - done) and (used == 0) == (done == 0):
                enters = problem.crossing_seconds(problem.crossing, [used - 1], [used])
                seconds = problem.step_seconds(range(used, end), done, count)
                source, target = (s * (devices + 1) + u for s, u in ((done, used), (done + 1, end)))
                steps.append(Step(source, target, seconds, enters if done else None))
        pieces = least_slowest(steps, [count * (devices + 1) + devices])
        if pieces is None:
            continue
        ends = [steps[piece.step].target % (devices + 1) for piece in pieces]
        runs = [range(a, b) for a, b in itertools.pairwise([0, *ends])]
        best = _stages(problem, [(piece.first, piece.end) for piece in pieces], runs)
        if found is None or best.slowest < found.slowest:
            found = best
    if found is None:
        _refuse(problem, lambda free: replicated_stages(free, stages))
    return found


def equal_stages(problem: StageProblem, clusters: Sequence[Sequence[int]]) -> Stages:
    """As many layers for each cluster as they stand, the earlier ones one more where they do not divide evenly.

    Raises:
        InvalidInput: more clusters than layers, or a stage is over its memory.
    """
    _check_count(problem, len(clusters))
    ends = np.cumsum(whole_units(np.full(len(clusters), 1 / len(clusters)), problem.layers))
    cuts = itertools.pairwise([0, *ends.tolist()])
    return problem.evaluate(
        [_stage(problem, range(a, b), c) for (a, b), c in zip(cuts, clusters, strict=True)]
    )


def _check_count(problem: StageProblem, stages: int) -> None:
    if stages > problem.layers:
        raise InvalidInput(
            f"{stages} stages of {problem.layers} layers leave one of them empty; give at most {problem.layers}"
        )


def _refuse(problem: StageProblem, again: Callable[[StageProblem], Stages]) -> NoReturn:
    """Say which stage of the best partition, were there room for all, is over its memory."""
    free = problem.devices._replace(memory=np.full_like(problem.devices.memory, np.inf))
    if not np.isinf(problem.devices.memory).all():
        problem.evaluate(again(replace(problem, devices=free)).stages)
    raise InvalidInput("No stages are possible: there is no route between the devices of some")


def _stage(problem: StageProblem, layers: Iterable[int], devices: Iterable[int]) -> Stage:
    cluster = tuple(sorted(devices))
    return Stage(tuple(layers), cluster, tuple(problem.shares(cluster).tolist()))


def _stages(
    problem: StageProblem, cuts: Iterable[tuple[int, int]], clusters: Iterable[Sequence[int]]
) -> Stages:
    between = [np.flatnonzero(problem.cuts[b] & ~problem.cuts[a]).tolist() for a, b in cuts]
    return problem.evaluate(
        [
            _stage(problem, layers, devices)
            for layers, devices in zip(between, clusters, strict=True)
        ]
    )


__all__ = [
    "Devices",
    "Stage",
    "StageProblem",
    "Stages",
    "best_stages",
    "down_sets",
    "equal_stages",
    "from_the_end",
    "in_order",
    "replicated_stages",
]
