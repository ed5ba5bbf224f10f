"""A lower bound on the makespan from the longest path and the devices' load together.

A linear programme: operators divided at will among the devices (``x[i, p]``, adding up to 1), whose
times ``sum_p w[i, p] x[i, p]`` must fit both into the longest path and, device by device, into the work
that they bring. Of every schedule the shares 0 and 1 satisfy it, so its least T bounds all of them;
transfers are left out.

It knows windows as well: an operator that begins at ``a`` at the earliest (the longest path before it,
everything on its fastest device) and has ``b`` behind it must lie in ``[a, T - b]``, so all operators
with at least these need ``sum w x <= slots (T - a - b)`` of every device. The bound of Fernandez and
Bussell ("Bounds on the number of processors and time for multiprocessor optimal schedules", IEEE Trans.
Computers C-22(8):745-751, 1973, doi:10.1109/TC.1973.5009153) for devices that differ. Windows that the
solution breaks are added and it is solved again.

The value is that of prices, not of the solver's solution: for any flow of 1 - sum slots price along the
graph and prices >= 0 of the windows it is a bound, so the flow is rebuilt from the solver's dual
solution, exactly, and the solver's tolerance cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.model.graph import DataflowGraph

MOST_ENTRIES = 5_000
"""Operators times different devices; at that size the programme takes a second or two."""
_ROUNDS = 5
_LEAST_GAIN = 1e-4  # of the unit; less is not worth another round
_WINDOWS = 24
"""Values of the time before and of the time behind that windows are made of."""
_MOST_SHARE = 1e9  # of the unit; the solver takes 1e15 for infinite


def path_load_bound(graph: DataflowGraph, seconds: np.ndarray, slots: np.ndarray) -> float | None:
    """The bound in seconds, from the job's arrival on; None for what is larger than
    :data:`MOST_ENTRIES`.

    Args:
        graph: the job's graph.
        seconds: float64[operators, devices], ``inf`` where a device cannot run an operator.
        slots: float64[devices].
    """
    # Equal devices are one: sharing among them evenly is as good as anything.
    seconds, column_of = np.unique(seconds, axis=1, return_inverse=True)
    slots = np.bincount(column_of.ravel(), weights=slots)
    if seconds.size > MOST_ENTRIES:
        return None
    fastest = seconds.min(axis=1)
    before, behind = _paths(graph, fastest)
    unit = max(float((before + fastest).max()), float(fastest.sum() / slots.sum()))
    if unit == 0.0:
        return 0.0
    with np.errstate(over="ignore"):  # a device that much slower is none
        scaled = seconds / unit
    programme = _Programme(_Segments.of(graph), scaled, slots, before / unit, behind / unit)
    windows = [(0.0, 0.0)]
    best = 0.0
    for _ in range(_ROUNDS):
        value, broken = programme.solve(windows)
        gained, best = value - best, max(best, value)
        if not broken or gained < _LEAST_GAIN:
            break
        windows += broken
    return best * unit


def _paths(graph: DataflowGraph, fastest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of the longest path before each operator, and behind it."""
    before, behind = [0.0] * len(graph), [0.0] * len(graph)
    length = fastest.tolist()
    for i, parents in enumerate(graph.predecessors):
        before[i] = max((before[j] + length[j] for j in parents), default=0.0)
    for i in range(len(graph) - 1, -1, -1):
        behind[i] = max((behind[j] + length[j] for j in graph.successors[i]), default=0.0)
    return np.array(before), np.array(behind)


@dataclass(frozen=True)
class _Segments:
    """A graph's chains, each as one: nothing else begins or ends within.

    Attributes:
        segment_of: int64[operators].
        before: for each segment, in topological order, those that it waits for.
        is_last: whether nothing waits for the segment.
    """

    segment_of: np.ndarray
    before: Sequence[Sequence[int]]
    is_last: Sequence[bool]

    @classmethod
    def of(cls, graph: DataflowGraph) -> _Segments:
        segment_of: list[int] = []
        before: list[list[int]] = []
        for parents in graph.predecessors:
            if len(parents) == 1 and len(graph.successors[parents[0]]) == 1:
                segment_of.append(segment_of[parents[0]])
            else:
                segment_of.append(len(before))
                before.append(sorted({segment_of[j] for j in parents}))
        waited_for = {j for row in before for j in row}
        is_last = [j not in waited_for for j in range(len(before))]
        return cls(np.array(segment_of), before, is_last)


class _Programme:
    """The programme in units of its own, without windows.

    Columns: shares ``x`` of every possible (operator, device), the end of every segment, the begin of
    segments that wait for several, T. Rows: each segment's end after its begin and its work; begins
    after what they wait for; T after the last ends.
    """

    def __init__(
        self,
        segments: _Segments,
        seconds: np.ndarray,
        slots: np.ndarray,
        before: np.ndarray,
        behind: np.ndarray,
    ) -> None:
        self.segments, self.seconds, self.slots = segments, seconds, slots
        self.before, self.behind = before, behind
        self.operator, self.device = np.nonzero(np.isfinite(seconds))
        self.share = np.minimum(seconds[self.operator, self.device], _MOST_SHARE)
        shares, count = len(self.share), len(segments.before)
        begins: dict[int, int] = {}
        for segment, parents in enumerate(segments.before):
            if len(parents) > 1:
                begins[segment] = shares + count + len(begins)
        self.last_column = shares + count + len(begins)
        row = segments.segment_of[self.operator].tolist()
        column = list(range(shares))
        value = self.share.tolist()
        self.arcs: list[tuple[int, int, int]] = []  # (row, from, to); -1: the end of all
        rows = count
        for segment, parents in enumerate(segments.before):
            row.append(segment)
            column.append(shares + segment)
            value.append(-1.0)
            if parents:
                begin = begins.get(segment, shares + parents[0])
                row.append(segment)
                column.append(begin)
                value.append(1.0)
                if len(parents) == 1:
                    self.arcs.append((segment, parents[0], segment))
                    continue
                for parent in parents:
                    row += [rows, rows]
                    column += [shares + parent, begin]
                    value += [1.0, -1.0]
                    self.arcs.append((rows, parent, segment))
                    rows += 1
        for segment, last in enumerate(segments.is_last):
            if last:
                row += [rows, rows]
                column += [shares + segment, self.last_column]
                value += [1.0, -1.0]
                self.arcs.append((rows, segment, -1))
                rows += 1
        self.rows = rows
        self.entries = np.array(row), np.array(column), np.array(value)

    def solve(
        self, windows: Sequence[tuple[float, float]]
    ) -> tuple[float, list[tuple[float, float]]]:
        """The bound under these windows, and windows that its solution breaks."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        devices, shares = len(self.slots), len(self.share)
        row, column, value = ([part] for part in self.entries)
        right = np.zeros(self.rows + len(windows) * devices)
        rows = self.rows
        for a, b in windows:
            kept = np.flatnonzero((self.before >= a) & (self.behind >= b))
            inside = np.isin(self.operator, kept)
            row += [rows + self.device[inside], rows + np.arange(devices)]
            column += [np.flatnonzero(inside), np.full(devices, self.last_column)]
            value += [self.share[inside], -self.slots]
            right[rows : rows + devices] = -self.slots * (a + b)
            rows += devices
        columns = self.last_column + 1
        limits = coo_array(
            (np.concatenate(value), (np.concatenate(row), np.concatenate(column))),
            shape=(rows, columns),
        )
        once = coo_array(
            (np.ones(shares), (self.operator, np.arange(shares))),
            shape=(len(self.seconds), columns),
        )
        objective = np.zeros(columns)
        objective[-1] = 1.0
        solution = linprog(
            objective,
            A_ub=limits.tocsr(),
            b_ub=right,
            A_eq=once.tocsr(),
            b_eq=np.ones(len(self.seconds)),
            method="highs",
        )
        if solution.status != 0:
            raise RuntimeError(
                f"the linear programme of path and load was not solved: {solution.message}"
            )
        prices = np.maximum(-solution.ineqlin.marginals, 0.0)
        found = self._value(prices[: self.rows], prices[self.rows :].reshape(-1, devices), windows)
        return found, self._broken(solution.x, windows)

    def _value(
        self, raw: np.ndarray, prices: np.ndarray, windows: Sequence[tuple[float, float]]
    ) -> float:
        """The bound that prices make, whatever they are.

        Args:
            raw: float64[rows], how much the solver sends along the graph; mended here.
            prices: float64[windows, devices].
            windows: as solved.
        """
        total = sum(raw[row] for row, _, to in self.arcs if to < 0) + (prices @ self.slots).sum()
        if total <= 0.0:
            return 0.0
        prices = prices / total
        flow = max(1.0 - float((prices @ self.slots).sum()), 0.0)
        # What leaves a segment enters it, divided as the solver does. From the end back: where a segment
        # ends at 0, the solver lets more leave it than enters.
        entering: dict[int, list[tuple[float, int]]] = {}
        for row, source, target in self.arcs:
            entering.setdefault(target, []).append((float(raw[row]), source))
        through = [0.0] * len(self.segments.before)
        _divide(flow, entering[-1], through)
        for segment in range(len(through) - 1, -1, -1):
            _divide(through[segment], entering.get(segment, ()), through)
        price = np.array(through)[self.segments.segment_of][:, None] + np.zeros(len(self.slots))
        value = 0.0
        for (a, b), row in zip(windows, prices, strict=True):
            price[(self.before >= a) & (self.behind >= b)] += row
            value += float(row @ self.slots) * (a + b)
        with np.errstate(invalid="ignore"):
            priced = np.where(np.isfinite(self.seconds), self.seconds * price, np.inf)
        return value + float(priced.min(axis=1).sum())

    def _broken(
        self, solution: np.ndarray, windows: Sequence[tuple[float, float]]
    ) -> list[tuple[float, float]]:
        """The windows that this solution breaks most, at most four."""
        ends = solution[-1]
        a, b = _levels(self.before), _levels(self.behind)
        at = np.searchsorted(a, self.before, side="right") - 1
        bt = np.searchsorted(b, self.behind, side="right") - 1
        load = np.zeros((len(a), len(b), len(self.slots)))
        work = self.share * solution[: len(self.share)]
        np.add.at(load, (at[self.operator], bt[self.operator], self.device), work)
        # Summed over all that begin no earlier and have no less behind them.
        load = load[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
        # Windows in which nothing must lie say nothing.
        last = np.full(len(a), -1)
        np.maximum.at(last, at, bt)
        last = np.maximum.accumulate(last[::-1])[::-1]
        excess = (load / self.slots).max(axis=2) - (ends - a[:, None] - b[None, :])
        excess[np.arange(len(b)) > last[:, None]] = -np.inf
        known = set(windows)
        found: list[tuple[float, float]] = []
        for entry in np.argsort(-excess, axis=None, kind="stable")[: 4 + len(known)].tolist():
            i, j = divmod(entry, len(b))
            window = float(a[i]), float(b[j])
            if excess[i, j] > 1e-6 and window not in known and len(found) < 4:
                found.append(window)
        return found


def _divide(amount: float, ways: Sequence[tuple[float, int]], into: list[float]) -> None:
    """Add ``amount`` to the ends of ``ways`` in proportion to their weights."""
    total = sum(weight for weight, _ in ways)
    for place, (weight, end) in enumerate(ways):
        into[end] += amount * weight / total if total > 0 else amount * (place == 0)


def _levels(values: np.ndarray) -> np.ndarray:
    """Some of the values, ascending, the least among them."""
    distinct = np.unique(values)
    if len(distinct) <= _WINDOWS:
        return distinct
    return distinct[np.linspace(0, len(distinct) - 1, _WINDOWS).round().astype(int)]
