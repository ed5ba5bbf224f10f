"""Where a network is split over terminal, edge and cloud, and where samples may leave it early.

Layers count from 1 to L; position 0 is the input, an exit at L the final one. With the network cut after
layers ``i <= j`` and exits there, a sample's expected latency is (thesis 001)::

    Lat(i,j) = sum_{l<=i} t_terminal + h_i
               + (1-q_i) * [ D_i/B_te + rtt_te + sum_{i<l<=j} t_edge + h_j
                             + (1-q_{j|i}) * ( D_j/B_ec + rtt_ec + sum_{l>j} t_cloud ) ]

``rtt`` is the way there and back, the answer's bytes included. Where the edge has no layers, what it passes
on is not stored there: its route's narrowest link counts once, as in the simulator. Cuts and exits may also
lie at different layers; the formula is then walked layer by layer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from scenarios.serving.exit_table import ExitTable, Shares
from simulator.errors import InvalidInput
from simulator.model.cluster import Route

TIERS = 3
TERMINAL, EDGE, CLOUD = range(TIERS)


@dataclass(frozen=True)
class Placement:
    """Cuts and exits.

    Attributes:
        cuts: the last layers of terminal and edge, 0 <= first <= second <= L.
        exits: layers after which samples may leave early, ascending, from 1 to L - 1.
    """

    cuts: tuple[int, int]
    exits: tuple[int, ...] = ()

    @classmethod
    def at(cls, first: int, second: int, layers: int) -> Placement:
        """Exits where the cuts are."""
        exits = sorted({first, second} - {0, layers})
        return cls((first, second), tuple(exits))

    def tier(self, layer: int) -> int:
        """Where a layer runs."""
        return sum(layer > cut for cut in self.cuts)


@dataclass(frozen=True)
class ExitNetwork:
    """What the search of positions knows of a network on three tiers.

    Attributes:
        layer_s: float64[3, L] seconds of each layer on terminal, edge and cloud.
        head_s: float64[3, L - 1] seconds of each head but the final one.
        sizes: bytes that cross where the network is cut before layers 1 to L: the input first.
        layer_flops, head_flops: operations.
        answer_bytes: what returns to the terminal.
        routes: by (tier, tier).
        report_bytes: what the terminal sends for every sample, whatever exit it takes, beside the rest.
        layer_outside_s, head_outside_s: the part of the seconds that is extrapolated.
    """

    layer_s: np.ndarray
    head_s: np.ndarray
    sizes: Sequence[float]
    layer_flops: np.ndarray
    head_flops: np.ndarray
    answer_bytes: float
    routes: Mapping[tuple[int, int], Route]
    report_bytes: float = 0.0
    layer_outside_s: np.ndarray | None = None
    head_outside_s: np.ndarray | None = None

    @property
    def layers(self) -> int:
        """L."""
        return int(self.layer_s.shape[1])

    @cached_property
    def _lists(self) -> tuple[list[list[float]], ...]:
        outside = [
            np.zeros_like(seconds) if part is None else part
            for seconds, part in (
                (self.layer_s, self.layer_outside_s),
                (self.head_s, self.head_outside_s),
            )
        ]
        return tuple(part.tolist() for part in (self.layer_s, self.head_s, *outside))

    def seconds(self, source: int, destination: int, size: float) -> float:
        """Time of a transfer between two tiers."""
        if source == destination:
            return 0.0
        return self.routes[source, destination].seconds(size)

    def evaluate(self, placement: Placement, shares: Shares) -> Evaluation:
        """What samples meet on average, on tiers that do nothing else.

        Args:
            placement: cuts and exits.
            shares: what happens at these exits.
        """
        layer_s, head_s, layer_outside, head_outside = self._lists
        exits = dict(zip(placement.exits, range(len(placement.exits)), strict=True))
        alive, tier = 1.0, TERMINAL
        latency = accuracy = flops = computing = outside = 0.0
        moved = self.report_bytes
        leaving = []
        for layer in range(1, self.layers + 1):
            at = placement.tier(layer)
            if at != tier:
                size = self.sizes[layer - 1]
                latency += _weighted(alive, self.seconds(tier, at, size))
                moved += alive * size
                tier = at
            seconds = layer_s[tier][layer - 1]
            outside += alive * layer_outside[tier][layer - 1]
            number = exits.get(layer)
            if number is not None:
                seconds += head_s[tier][layer - 1]
                outside += alive * head_outside[tier][layer - 1]
            computing += alive * seconds
            latency += alive * seconds
            if tier == TERMINAL:
                flops += alive * float(self.layer_flops[layer - 1])
                if number is not None:
                    flops += alive * float(self.head_flops[layer - 1])
            if number is not None:
                leave = alive * shares.leave[number]
                latency += _weighted(leave, self.seconds(tier, TERMINAL, self.answer_bytes))
                accuracy += leave * shares.accuracy[number]
                leaving.append(leave)
                alive -= leave
        latency += _weighted(alive, self.seconds(tier, TERMINAL, self.answer_bytes))
        accuracy += alive * shares.last
        leaving.append(alive)
        extrapolated = outside / computing if computing else 0.0
        return Evaluation(latency, accuracy, flops, moved, tuple(leaving), extrapolated)


def _weighted(share: float, seconds: float) -> float:
    """Nobody waits for a link that nobody takes, be it infinitely slow."""
    return share * seconds if share else 0.0


@dataclass(frozen=True)
class Evaluation:
    """Means over samples.

    Attributes:
        latency_s: from arrival to answer.
        accuracy: share of right answers.
        terminal_flops: operations on the terminal.
        bytes: sent upwards, by terminal and edge.
        leaving: share that leaves at each exit and, last, at the final one.
        extrapolated_share: of the computing time.
    """

    latency_s: float
    accuracy: float
    terminal_flops: float
    bytes: float
    leaving: tuple[float, ...]
    extrapolated_share: float = 0.0


@dataclass
class Weights:
    """Of the cost ``latency*Lat/Lat0 + flops*Flops/F0 + bytes*Bytes/D0 + errors*(1-Acc)/(1-Acc0)``.

    0 is everything on the terminal without early exits, which sends nothing: D0 is the input's size.
    """

    latency: float = 1.0
    flops: float = 0.0
    bytes: float = 0.0
    errors: float = 1.0

    def check(self) -> None:
        """Refuse weights that make no cost.

        Raises:
            InvalidInput: one is negative or none is above 0.
        """
        given = (self.latency, self.flops, self.bytes, self.errors)
        if min(given) < 0 or not 0 < sum(given) < math.inf:
            raise InvalidInput(
                "Weights of the cost are latency, flops, bytes and errors, each at least 0 and one above, "
                f"got {given}"
            )


@dataclass(frozen=True)
class Found:
    """A placement that was found, or is compared with.

    Attributes:
        cost: in the weighted sense, 1 for each weight where everything is on the terminal.
        evaluated: how many the search looked at.
    """

    placement: Placement
    threshold: float
    evaluation: Evaluation
    cost: float
    evaluated: int = 1


Point = tuple[int, ...]


def coordinate_search(
    cost: Callable[[Point], float],
    start: Point,
    choices: Callable[[Point, int], Iterable[int]],
) -> tuple[Point, int]:
    """Greedy: for each coordinate in turn try every value with the others fixed and keep the best strict
    improvement, until none improves. Ties: the earlier value.

    Args:
        cost: of a point.
        start: a point.
        choices: values of a coordinate of a point, ascending.

    Returns:
        The point, and how many costs were worked out.
    """
    point, least, evaluated = start, cost(start), 1
    improved = True
    while improved:
        improved = False
        for coordinate in range(len(start)):
            best = point
            for value in choices(point, coordinate):
                other = (*point[:coordinate], value, *point[coordinate + 1 :])
                if other == point:
                    continue
                evaluated += 1
                found = cost(other)
                if found < least:
                    best, least = other, found
            improved |= best != point
            point = best
    return point, evaluated


def _best_end(
    cost: Callable[[Point], float],
    starts: Sequence[Point],
    choices: Callable[[Point, int], Iterable[int]],
) -> tuple[Point, int]:
    """The best of the ends of :func:`coordinate_search`, and how many points were looked at."""
    known: dict[Point, float] = {}

    def at(point: Point) -> float:
        if point not in known:
            known[point] = cost(point)
        return known[point]

    ends = [coordinate_search(at, start, choices)[0] for start in starts]
    return min(ends, key=at), len(known)


@dataclass
class PositionSearch:
    """Searches over positions and the confidence threshold.

    Args:
        network: times, bytes and operations.
        table: what happens at exits.
        way: of training.
        weights: of the cost.
        thresholds: that may be taken; all of the table unless given.

    Raises:
        InvalidInput: the table is of another number of layers, or lacks the way or a threshold; the
            reference makes no mistakes although mistakes have a weight.
    """

    network: ExitNetwork
    table: ExitTable
    way: str
    weights: Weights = field(default_factory=Weights)
    thresholds: Sequence[float] = ()

    def __post_init__(self) -> None:
        self.weights.check()
        if self.table.layers != self.network.layers:
            raise InvalidInput(
                f"The table of exits is of a network of {self.table.layers} layers, the model has "
                f"{self.network.layers}; make a table of its own: python -m experiments.train_exits"
            )
        self.thresholds = tuple(sorted(self.thresholds)) or self.table.thresholds
        self._shares: dict[tuple[float, tuple[int, ...]], Shares] = {}
        for threshold in self.thresholds:
            self.shares((), threshold)
        self.reference = self._evaluate(Placement((self.network.layers,) * 2), self.thresholds[0])
        if self.weights.errors and self.reference.accuracy >= 1:
            raise InvalidInput(
                "The network without early exits makes no mistakes, to which others could be compared; "
                "set weights.errors=0"
            )

    def shares(self, exits: tuple[int, ...], threshold: float) -> Shares:
        """What happens at exits."""
        key = (threshold, exits)
        if key not in self._shares:
            self._shares[key] = self.table.shares(self.way, threshold, exits)
        return self._shares[key]

    def _evaluate(self, placement: Placement, threshold: float) -> Evaluation:
        return self.network.evaluate(placement, self.shares(placement.exits, threshold))

    def cost(self, evaluation: Evaluation) -> float:
        """See :class:`Weights`."""
        weights, reference = self.weights, self.reference
        total = weights.latency * evaluation.latency_s / reference.latency_s
        total += weights.flops * evaluation.terminal_flops / reference.terminal_flops
        total += weights.bytes * evaluation.bytes / self.network.sizes[0]
        if weights.errors:
            total += weights.errors * (1 - evaluation.accuracy) / (1 - reference.accuracy)
        return total

    def found(self, placement: Placement, threshold: float, evaluated: int = 1) -> Found:
        """A placement with what it costs."""
        evaluation = self._evaluate(placement, threshold)
        return Found(placement, threshold, evaluation, self.cost(evaluation), evaluated)

    def single_tier(self) -> tuple[Found, Found, Found]:
        """All on the terminal, all on the edge, all in the cloud, without early exits."""
        terminal, edge, cloud = (
            self.found(Placement(cuts), self.thresholds[0]) for cuts in self._single_cuts
        )
        return terminal, edge, cloud

    @property
    def _single_cuts(self) -> tuple[tuple[int, int], ...]:
        layers = self.network.layers
        return (layers, layers), (0, layers), (0, 0)

    # -- exits where the cuts are: points are (i, j, threshold's number) -------------------------

    def greedy(self, restarts: bool = True) -> Found:
        """Coordinate search from (L/3, 2L/3) and the middle threshold.

        Args:
            restarts: also from everything on one tier, which a single coordinate may not lead to; the
                best of the four ends, never worse than a single tier.
        """
        middle = len(self.thresholds) // 2
        starts = self._starts(middle) if restarts else self._starts(middle)[:1]
        point, evaluated = _best_end(self._cost_at, starts, self._choices)
        return self.found(*self._at(point), evaluated)

    def every_threshold(self) -> Found:
        """:meth:`greedy` from each threshold instead of the middle one, so never worse than that.

        From a threshold that suits no exit, every single cut loses to the start.
        """
        starts = [s for k in range(len(self.thresholds)) for s in self._starts(k)]
        point, evaluated = _best_end(self._cost_at, starts, self._choices)
        return self.found(*self._at(point), evaluated)

    def _starts(self, threshold: int) -> list[Point]:
        layers = self.network.layers
        cuts = ((layers // 3, 2 * layers // 3), *self._single_cuts)
        return [(*pair, threshold) for pair in cuts]

    def _choices(self, point: Point, coordinate: int) -> Iterable[int]:
        i, j, _ = point
        thresholds = range(len(self.thresholds))
        return (range(j + 1), range(i, self.network.layers + 1), thresholds)[coordinate]

    def exhaustive(self) -> Found:
        """The best of all positions and thresholds."""
        layers, count = self.network.layers, len(self.thresholds)
        pairs = itertools.combinations_with_replacement(range(layers + 1), 2)
        points = [(*pair, k) for pair in pairs for k in range(count)]
        return self.found(*self._at(min(points, key=self._cost_at)), len(points))

    def _at(self, point: Point) -> tuple[Placement, float]:
        i, j, k = point
        return Placement.at(i, j, self.network.layers), self.thresholds[k]

    def _cost_at(self, point: Point) -> float:
        return self.cost(self._evaluate(*self._at(point)))

    # -- exits anywhere: points are (cut, cut, exit, exit, threshold's number), exit 0 is none ----

    def greedy_joint(self) -> Found:
        """Coordinate search over cuts and exits apart, from where :meth:`greedy` starts four times."""
        starts = self._joint_starts(len(self.thresholds) // 2)
        point, evaluated = _best_end(self._joint_cost_at, starts, self._joint_choices)
        return self.found(*self._joint_at(point), evaluated)

    def every_threshold_joint(self) -> Found:
        """:meth:`greedy_joint` from each threshold instead of the middle one."""
        starts = [s for k in range(len(self.thresholds)) for s in self._joint_starts(k)]
        point, evaluated = _best_end(self._joint_cost_at, starts, self._joint_choices)
        return self.found(*self._joint_at(point), evaluated)

    def _joint_starts(self, threshold: int) -> list[Point]:
        layers = self.network.layers
        i, j = layers // 3, 2 * layers // 3
        first = (i, j, *_two_exits(i, j, layers), threshold)
        return [first, *((*cuts, 0, 0, threshold) for cuts in self._single_cuts)]

    def _joint_choices(self, point: Point, coordinate: int) -> Iterable[int]:
        layers = self.network.layers
        i, j, a, b, _ = point
        first = range(b) if b else range(1)
        second = range(a + 1, layers) if a else range(layers)
        thresholds = range(len(self.thresholds))
        return (range(j + 1), range(i, layers + 1), first, second, thresholds)[coordinate]

    def exhaustive_joint(self) -> Found:
        """The best of all cuts, exits and thresholds."""
        layers, count = self.network.layers, len(self.thresholds)
        cuts = list(itertools.combinations_with_replacement(range(layers + 1), 2))
        exits = [(0, 0), *itertools.combinations(range(layers), 2)]
        points = [
            (*pair, *two, k)
            for pair in cuts
            for two in exits
            for k in range(count if any(two) else 1)
        ]
        return self.found(*self._joint_at(min(points, key=self._joint_cost_at)), len(points))

    def _joint_at(self, point: Point) -> tuple[Placement, float]:
        i, j, a, b, k = point
        return Placement((i, j), tuple(e for e in (a, b) if e)), self.thresholds[k]

    def _joint_cost_at(self, point: Point) -> float:
        return self.cost(self._evaluate(*self._joint_at(point)))


def _two_exits(i: int, j: int, layers: int) -> tuple[int, int]:
    exits = sorted({i, j} - {0, layers})
    first, second = [*[0] * (2 - len(exits)), *exits]
    return first, second


def gap(found: Found, best: Found) -> float:
    """By how much a placement costs more than the best one, relatively."""
    return found.cost / best.cost - 1
