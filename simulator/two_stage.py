"""Edge-node selection in two stages: load evaluation first, predicted load where that node is overloaded.

Stage 1 takes the node with the smallest ``load + rtt_weight * rtt``. The load of a node is a weighted sum
of moving averages of four utilisations, sampled every ``sample`` seconds: devices busy, memory taken by
waiting inputs, link to the node busy, queue length over ``queue_capacity``. Stage 2: if that node's load
is above ``overload`` when the upload begins, the node with the smallest predicted load takes its place,
if it gains more than ``margin`` and ``cooldown`` seconds have passed since the node was left last.

What a predictor is: :class:`LoadPredictor`. One that was trained comes from
:mod:`scenarios.serving.load_predictor` (``python -m experiments.train_predictor``).
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from simulator.batching import BatchingContext
from simulator.errors import InvalidInput
from simulator.selection import Selection

if TYPE_CHECKING:
    from simulator.dispatching import Dispatcher, Node

RESOURCES = ("devices", "memory", "bandwidth", "queue")


class LoadPredictor(Protocol):
    """Says what loads will be."""

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
            requests to come that arise at the nodes themselves: a ceiling, of this simulation only),
            ``none`` (stage 1 alone), or ``package.module:Class`` with ``predictor_options``.
        weights: of the four utilisations.
        rtt_weight: seconds of round trip, relative to the longest, weigh as much of a load.
        sample: seconds between samples.
        window, horizon: samples that a predictor sees, and of which it says the mean.
        average: weight of the latest sample in the moving averages.
        overload, margin, cooldown: see the module docstring.
        queue_capacity: requests that fill a node's queue.
        among, move, seed: see :class:`simulator.selection.Selection`.

    Raises:
        InvalidInput: an option is out of range, or there is no such predictor.
    """

    name: ClassVar[str] = "two_stage"

    def __init__(
        self,
        predictor: str = "persistence",
        predictor_options: Mapping[str, Any] | None = None,
        weights: Sequence[float] = (0.4, 0.2, 0.2, 0.2),
        rtt_weight: float = 0.1,
        sample: float = 0.05,
        window: int = 20,
        horizon: int = 5,
        average: float = 0.3,
        overload: float = 0.8,
        margin: float = 0.05,
        cooldown: float = 0.0,
        queue_capacity: int = 16,
        among: Sequence[str] | None = None,
        move: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(among, move, seed)
        if len(weights) != len(RESOURCES) or min(weights) < 0 or not sum(weights) > 0:
            raise InvalidInput(
                f"The weights of {', '.join(RESOURCES)} are {list(weights)}; give four, none below 0"
            )
        for what, value in (("sample", sample), ("window", window), ("horizon", horizon)):
            if not value > 0:
                raise InvalidInput(f"Selection 'two_stage' has {what} {value}; it must be above 0")
        if not 0 < average <= 1:
            raise InvalidInput(
                f"Selection 'two_stage' has average {average}; it is above 0, up to 1"
            )
        if queue_capacity < 1:
            raise InvalidInput(f"A queue of {queue_capacity} requests is none; give at least 1")
        self.weights = np.array(weights, dtype=np.float64) / sum(weights)
        self.rtt_weight, self.sample, self.average = rtt_weight, sample, average
        self.window, self.horizon = window, horizon
        self.overload, self.margin, self.cooldown = overload, margin, cooldown
        self.queue_capacity = queue_capacity
        self.oracle = predictor == "oracle"
        self.predictor = None if self.oracle else make_predictor(predictor, predictor_options or {})

    def begin(self, dispatcher: Dispatcher) -> None:
        """See :class:`Selection`."""
        super().begin(dispatcher)
        self._spaces = list(dispatcher.nodes)
        self._row = {space: row for row, space in enumerate(self._spaces)}
        count = len(self._spaces)
        self._now_used = np.zeros((count, len(RESOURCES)))
        self._averages = np.zeros((count, len(RESOURCES)))
        self._history: deque[np.ndarray] = deque([np.zeros(count)] * self.window, self.window)
        self._samples = 0
        self._left_at: dict[int, float] = {}
        self._background: tuple[np.ndarray, list[np.ndarray], list[np.ndarray]] | None = None
        self.recorded: list[np.ndarray] = []
        """Loads of the nodes at every sample; what a predictor is trained on."""
        self.moved = 0
        """Requests that stage 2 sent elsewhere."""

    def observe(self, context: BatchingContext, dispatcher: Dispatcher) -> None:
        """See :class:`Selection`; samples that were due since then saw what was before."""
        due = math.floor(context.now / self.sample)
        while self._samples < due:
            self._samples += 1
            self._averages += self.average * (self._now_used - self._averages)
            load = self._averages @ self.weights
            self._history.append(load)
            self.recorded.append(load)

    def settle(self, context: BatchingContext, dispatcher: Dispatcher) -> None:
        """See :class:`Selection`."""
        for space, node in dispatcher.nodes.items():
            row = self._now_used[self._row[space]]
            busy = sum(not context.is_idle(device) for device in node.devices)
            row[0] = busy / len(node.devices)
            row[1] = self._memory_used(context, node)
            row[3] = min(1.0, node.waiting / self.queue_capacity)
            row[2] = float(bool(dispatcher.coming_seconds(space) > 1e-12))

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Dispatcher,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        rows = [self._row[space] for space in possible]
        loads = self._history[-1][rows]
        trips = [_round_trip(context, origin, space) for space in possible]
        longest = max(trips)
        costs = [
            float(load) + (self.rtt_weight * trip / longest if longest else 0.0)
            for load, trip in zip(loads, trips, strict=True)
        ]
        first = self.randomly(costs, possible)
        if self.predictor is None and not self.oracle:
            return first
        at = possible.index(first)
        if loads[at] <= self.overload:
            return first
        if context.now < self._left_at.get(first, -math.inf) + self.cooldown:
            return first
        if self.oracle:
            expected = self._foreseen(context, dispatcher, possible)
        else:
            assert self.predictor is not None
            expected = self.predictor.predict(np.array(self._history).T)[rows]
        second = int(np.argmin(expected))
        if expected[at] - expected[second] <= self.margin:
            return first
        self._left_at[first] = context.now
        self.moved += 1
        return possible[second]

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
        self, context: BatchingContext, dispatcher: Dispatcher, possible: Sequence[int]
    ) -> np.ndarray:
        """Work ahead and to come of some nodes, over the time for which a predictor would speak."""
        span = self.sample * self.horizon
        if self._background is None:
            self._background = _background(context, dispatcher, self._spaces)
        _, times, sums = self._background
        found = np.zeros(len(possible))
        for i, space in enumerate(possible):
            row = self._row[space]
            begin, end = np.searchsorted(times[row], [context.now, context.now + span], "right")
            work = dispatcher.backlog_seconds(context, dispatcher.nodes[space])
            work += dispatcher.coming_seconds(space) + float(sums[row][end] - sums[row][begin])
            found[i] = work / span
        return found


def _background(
    context: BatchingContext, dispatcher: Dispatcher, spaces: Sequence[int]
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
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
            share = min(seconds[device] for device in node.devices) / len(node.devices)
            work[row].append(work[row][-1] + share)
    return np.array(spaces), [np.array(t) for t in times], [np.array(w) for w in work]


def _round_trip(context: BatchingContext, origin: int, space: int) -> float:
    """Seconds of latency there and back."""
    if origin < 0 or origin == space:
        return 0.0
    cluster = context.cluster
    return cluster.route(origin, space).latency + cluster.route(space, origin).latency


def make_predictor(name: str, options: Mapping[str, Any]) -> LoadPredictor | None:
    """A predictor by its name or class path; None for ``none``.

    Raises:
        InvalidInput: there is none such.
    """
    if name == "none":
        return None
    if name == "persistence":
        return Persistence()
    if name == "ewma":
        return MovingAverage(**options)
    module, separator, kind = name.partition(":")
    if not separator:
        raise InvalidInput(
            f"There is no load predictor '{name}'; known: none, persistence, ewma, oracle, and "
            "package.module:Class"
        )
    try:
        found = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"Cannot find load predictor '{name}': {error}") from None
    predictor: LoadPredictor = found(**options)
    return predictor
