"""Edge-node selection in two stages: load evaluation first, predicted load where that node is overloaded.

Stage 1 takes the node with the smallest ``load + rtt_weight * rtt``. The load of a node is a weighted sum
of moving averages of four utilisations, each the mean over a sample of ``sample`` seconds: slots of the
devices in use, memory taken by waiting inputs, inputs on their way to the node, queue length over
``queue_capacity``. A memory without a limit has no utilisation; the other three share its weight. Weights
are given, or found anew for each sample by how much a utilisation tells the nodes apart
(:mod:`simulator.serving.entropy_weights`). Stage 2:
if that node's load is above ``overload`` when the upload begins, the node with the smallest predicted load
takes its place, if it gains more than ``margin`` and ``cooldown`` seconds have passed since the node was
left last.

Samples are told at their end: what was sent since then is not in them, so that requests herd to the node
that was the least loaded. ``choices`` draws the nodes among which stage 1 decides anew for each request
(Mitzenmacher's way out), ``own`` adds the work that was sent to a node since its latest sample.

What a predictor is: :class:`LoadPredictor`. One that was trained comes from
:mod:`scenarios.serving.load_predictor` (``python -m experiments.train_predictor``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from simulator.context.serving import BatchingContext
from simulator.errors import InvalidInput
from simulator.serving.entropy_weights import entropy_weights
from simulator.serving.node import Node, Nodes
from simulator.serving.node_selection import Selection
from simulator.support import own_code
from simulator.support.options import construct

RESOURCES = ("devices", "memory", "bandwidth", "queue")
USUAL = (0.4, 0.2, 0.2, 0.2)
"""Weights of the resources, unless others are given."""
ENTROPY = "entropy"


class LoadPredictor(Protocol):
    """Says what loads will be.

    A predictor that only holds for certain options of the selection (``sample``, ``window``, ...) names
    them with their values in an attribute ``trained_for``; others are refused before the run.
    """

    def predict(self, history: np.ndarray) -> np.ndarray:
        """Mean load of every node over the next samples.

        Args:
            history: float64[nodes, samples] of loads, the last column the latest.

        Returns:
            float64[nodes].
        """


class Persistence:
    """What is will stay."""

    def predict(self, history: np.ndarray) -> np.ndarray:
        """See :class:`LoadPredictor`."""
        return history[:, -1]


class MovingAverage:
    """An exponentially weighted mean of what was.

    Args:
        weight: of the latest sample, 0 to 1.
    """

    def __init__(self, weight: float = 0.3) -> None:
        if not 0 < weight <= 1:
            raise InvalidInput(f"The weight of the latest load is {weight}; it is above 0, up to 1")
        self.weight = weight

    def predict(self, history: np.ndarray) -> np.ndarray:
        """See :class:`LoadPredictor`."""
        ages = np.arange(history.shape[1])[::-1]
        weights = self.weight * (1 - self.weight) ** ages
        weights[0] += (1 - self.weight) ** history.shape[1]  # so that they sum to 1
        found: np.ndarray = history @ weights
        return found


class TwoStage(Selection):
    """See the module docstring.

    Args:
        predictor: ``persistence``, ``ewma``, ``oracle`` (what waits, runs, is on its way, and the
            requests to come that arise at the nodes themselves: a ceiling, of this simulation only, and
            of runs without ``move``), ``none`` (stage 1 alone), or ``package.module:Class`` with
            ``predictor_options``.
        weights: of the four utilisations; or ``entropy``, where the usual ones hold while all nodes are alike.
        rtt_weight: seconds of round trip, relative to the longest, weigh as much of a load.
        sample: seconds of a sample.
        window, horizon: samples that a predictor sees, and of which it says the mean.
        average: weight of the latest sample in the moving averages.
        overload, margin, cooldown: see the module docstring.
        queue_capacity: requests that fill a node's queue.
        choices: of how many nodes, drawn anew for each request, stage 1 takes the best; None: of all.
        own: weight of the work that was sent to a node since its latest sample, as a share of what
            the node does in ``horizon`` samples.
        record: keep the loads of all samples in :attr:`recorded`.
        among, move, seed: see :class:`simulator.serving.node_selection.Selection`.

    Raises:
        InvalidInput: an option is out of range, there is no such predictor, or it was trained for
            other options.
    """

    name: ClassVar[str] = "two_stage"

    def __init__(
        self,
        predictor: str = "persistence",
        predictor_options: Mapping[str, Any] | None = None,
        weights: Sequence[float] | str = USUAL,
        rtt_weight: float = 0.1,
        sample: float = 0.05,
        window: int = 20,
        horizon: int = 5,
        average: float = 0.3,
        overload: float = 0.8,
        margin: float = 0.05,
        cooldown: float = 0.0,
        queue_capacity: int = 16,
        choices: int | None = None,
        own: float = 0.0,
        record: bool = False,
        among: Sequence[str] | None = None,
        move: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(among, move, seed)
        self.by_entropy = isinstance(weights, str)
        given = USUAL if isinstance(weights, str) else tuple(weights)
        if isinstance(weights, str) and weights != ENTROPY:
            raise InvalidInput(
                f"The weights of {', '.join(RESOURCES)} are '{weights}'; give four numbers, or '{ENTROPY}'"
            )
        if len(given) != len(RESOURCES) or min(given) < 0 or not sum(given) > 0:
            raise InvalidInput(
                f"The weights of {', '.join(RESOURCES)} are {list(given)}; give four, none below 0, or "
                f"'{ENTROPY}'"
            )
        for what, value in (("sample", sample), ("window", window), ("horizon", horizon)):
            if not 0 < value < math.inf:
                raise InvalidInput(f"Selection 'two_stage' has {what} {value}; it must be above 0")
        for what, value in (("rtt_weight", rtt_weight), ("cooldown", cooldown), ("own", own)):
            if not 0 <= value < math.inf:
                raise InvalidInput(f"Selection 'two_stage' has {what} {value}; give 0 or more")
        if not 0 < average <= 1:
            raise InvalidInput(
                f"Selection 'two_stage' has average {average}; it is above 0, up to 1"
            )
        if queue_capacity < 1:
            raise InvalidInput(f"A queue of {queue_capacity} requests is none; give at least 1")
        if choices is not None and choices < 1:
            raise InvalidInput(f"The best of {choices} nodes does not exist; give at least 1")
        self.weights = np.array(given, dtype=np.float64) / sum(given)
        self.rtt_weight, self.sample, self.average = rtt_weight, sample, average
        self.window, self.horizon = window, horizon
        self.overload, self.margin, self.cooldown = overload, margin, cooldown
        self.queue_capacity, self.choices, self.own = queue_capacity, choices, own
        self.record = record
        self.oracle = predictor == "oracle"
        if self.oracle and predictor_options:
            raise InvalidInput("Load predictor 'oracle' has no options")
        self.predictor = None if self.oracle else make_predictor(predictor, predictor_options or {})
        for what, value in dict(getattr(self.predictor, "trained_for", {})).items():
            if not math.isclose(getattr(self, what), value, rel_tol=1e-6):
                raise InvalidInput(
                    f"Load predictor '{predictor}' was trained for {what} {value}, but selection "
                    f"'two_stage' has {getattr(self, what)}; set {what} to {value}, or train another: "
                    "python -m experiments.train_predictor"
                )

    def begin(self, dispatcher: Nodes) -> None:
        """See :class:`Selection`."""
        super().begin(dispatcher)
        self._spaces = list(dispatcher.nodes)
        self._row = {space: row for row, space in enumerate(self._spaces)}
        count = len(self._spaces)
        self._resource_weights: np.ndarray | None = None  # by node
        self._used = np.zeros((count, len(RESOURCES)))  # utilisation from _since on
        self._area = np.zeros((count, len(RESOURCES)))  # seconds of use, in this sample
        self._since = 0.0
        self._averages = np.zeros((count, len(RESOURCES)))
        self._history: deque[np.ndarray] = deque([np.zeros(count)] * self.window, self.window)
        self._samples = 0
        self._sent = [0.0] * count  # seconds of work, since the latest sample
        self._expected: np.ndarray | None = None  # as predicted from the latest sample
        self._left_at: dict[int, float] = {}
        self._background: tuple[list[np.ndarray], list[np.ndarray]] | None = None
        self.recorded: list[np.ndarray] = []
        """float64[nodes] of every sample, in the order of the memory spaces, if they are kept: what a
        predictor is trained on."""
        self.moved = 0
        """Requests that stage 2 sent elsewhere."""

    @property
    def nodes(self) -> list[int]:
        """The memory spaces of the nodes, in the order of their loads."""
        return list(self._spaces)

    def observe(self, context: BatchingContext, dispatcher: Nodes) -> None:
        """See :class:`Selection`: what was in use since the last decision enters its samples."""
        weights = self._resource_weights
        if weights is None:
            weights = self._resource_weights = self._weigh(context, self.weights)
        now = context.now
        while (end := (self._samples + 1) * self.sample) <= now:
            self._area += self._used * (end - self._since)
            self._since = end
            self._samples += 1
            self._averages += self.average * (self._area / self.sample - self._averages)
            self._area[:] = 0.0
            if self.by_entropy:
                found = entropy_weights(self._averages)
                weights = self._weigh(context, self.weights if found is None else found)
            load: np.ndarray = (self._averages * weights).sum(axis=1)
            self._history.append(load)
            self._expected = None
            self._sent = [0.0] * len(self._sent)
            if self.record:
                self.recorded.append(load)
        self._area += self._used * (now - self._since)
        self._since = now

    def settle(self, context: BatchingContext, dispatcher: Nodes) -> None:
        """See :class:`Selection`."""
        for row, (space, node) in enumerate(dispatcher.nodes.items()):
            taken = sum(context.slots_in_use(device) for device in node.devices)
            self._used[row] = (
                taken / node.slots,
                self._memory_used(context, node),
                # Rounding may leave a remainder of what was there.
                dispatcher.coming_seconds(space) > 1e-12,
                min(1.0, node.waiting / self.queue_capacity),
            )

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        chosen = self._in_two_stages(context, dispatcher, origin, possible)
        if self.own:
            self._sent[self._row[chosen]] += _seconds_alone(context, dispatcher, job, chosen)
        return chosen

    def _in_two_stages(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        drawn = possible
        if self.choices is not None and self.choices < len(possible):
            picks = self.rng.choice(len(possible), self.choices, replace=False)
            drawn = [possible[int(i)] for i in picks]
        trips = [_round_trip(context, origin, space) for space in drawn]
        longest = max(trips)
        costs = [
            self._load_of(space, self._history[-1])
            + (self.rtt_weight * trip / longest if longest else 0.0)
            for space, trip in zip(drawn, trips, strict=True)
        ]
        first = self.randomly(costs, drawn)
        if self.predictor is None and not self.oracle:
            return first
        if self._load_of(first, self._history[-1]) <= self.overload:
            return first
        if context.now < self._left_at.get(first, -math.inf) + self.cooldown:
            return first
        if self.oracle:
            expected = self._foreseen(context, dispatcher, possible)
        else:
            assert self.predictor is not None
            if self._expected is None:
                self._expected = self.predictor.predict(np.array(self._history).T)
            expected = [self._load_of(space, self._expected) for space in possible]
        gain = expected[possible.index(first)] - min(expected)
        if gain <= self.margin:
            return first
        self._left_at[first] = context.now
        self.moved += 1
        return self.randomly(expected, possible)

    def _load_of(self, space: int, loads: np.ndarray) -> float:
        """Of loads of all nodes that of one, with the work that was sent there since."""
        row = self._row[space]
        return float(loads[row]) + self.own * self._sent[row] / (self.sample * self.horizon)

    def _weigh(self, context: BatchingContext, weights: np.ndarray) -> np.ndarray:
        """float64[nodes, resources]: the weights, shared by what each node has."""
        rows = np.tile(weights, (len(self._spaces), 1))
        for row, space in zip(rows, self._spaces, strict=True):
            if context.cluster.spaces[space].capacity == math.inf:
                row[RESOURCES.index("memory")] = 0.0
                row /= row.sum() or 1.0
        return rows

    def _memory_used(self, context: BatchingContext, node: Node) -> float:
        capacity = context.cluster.spaces[node.space].capacity
        if capacity == math.inf:
            return 0.0
        used = sum(
            len(group.queue) * sum(group.graph.tensor_bytes[t] for t in group.graph.inputs)
            for group in node.groups.values()
        )
        return min(1.0, float(used) / capacity)

    def _foreseen(
        self, context: BatchingContext, dispatcher: Nodes, possible: Sequence[int]
    ) -> list[float]:
        """Work ahead and to come of some nodes, over the time for which a predictor would speak."""
        span = self.sample * self.horizon
        if self._background is None:
            self._background = _background(context, dispatcher, self._spaces)
        times, sums = self._background
        found = []
        for space in possible:
            row = self._row[space]
            begin, end = np.searchsorted(times[row], [context.now, context.now + span], "right")
            work = dispatcher.backlog_seconds(context, dispatcher.nodes[space])
            work += dispatcher.coming_seconds(space) + float(sums[row][end] - sums[row][begin])
            found.append(work / span)
        return found


def _background(
    context: BatchingContext, dispatcher: Nodes, spaces: Sequence[int]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of every node the times at which requests arise there, and the work in all up to each, seconds."""
    index, rows = context.cluster.space_index, {space: row for row, space in enumerate(spaces)}
    times: list[list[float]] = [[] for _ in spaces]
    work: list[list[float]] = [[0.0] for _ in spaces]
    for job in context.workload.jobs:
        row = rows.get(index.get(job.origin or "", -1))
        if row is not None:
            node = dispatcher.nodes[spaces[row]]
            seconds = context.serving_seconds(job.graph)
            times[row].append(job.arrival)
            share = min(seconds[device] for device in node.devices) / node.slots
            work[row].append(work[row][-1] + share)
    return [np.array(t) for t in times], [np.array(w) for w in work]


def _seconds_alone(context: BatchingContext, dispatcher: Nodes, job: int, space: int) -> float:
    """Believed seconds of a request on a node, its devices sharing the work evenly."""
    node = dispatcher.nodes[space]
    seconds = context.serving_seconds(context.jobs[job].graph)
    return min(seconds[device] for device in node.devices) / node.slots


def _round_trip(context: BatchingContext, origin: int, space: int) -> float:
    """Seconds of latency there and back."""
    if origin < 0 or origin == space:
        return 0.0
    cluster = context.cluster
    return cluster.route(origin, space).latency + cluster.route(space, origin).latency


def make_predictor(name: str, options: Mapping[str, Any]) -> LoadPredictor | None:
    """A predictor by its name or class path; None for ``none``.

    Raises:
        InvalidInput: there is none such, or it does not take these options.
    """
    if name == "none":
        if options:
            raise InvalidInput("Load predictor 'none' has no options")
        return None
    known: dict[str, type[Any]] = {"persistence": Persistence, "ewma": MovingAverage}
    kind: Any = known.get(name)
    if kind is None:
        if own_code.parse(name) is None:
            raise InvalidInput(
                f"There is no load predictor '{name}'; known: none, persistence, ewma, oracle, and "
                "package.module:Class"
            )
        kind = own_code.load(name, f"load predictor '{name}'")
    predictor: LoadPredictor = construct(kind, f"Load predictor '{name}'", options)
    return predictor
