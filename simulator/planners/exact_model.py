"""The best plan of a small graph, with a proof: a model for OR-tools' CP-SAT solver.

Unrelated devices with slots, ``push`` without contention: a tensor is in another memory space its
latency and its bytes over the bandwidth after its producer's finish, whoever else reads it there. Each
operator is an interval on one of its devices; pairs of memory spaces with a transfer between them
delay a reader. What a schedule of the model does at its times, queues in the order of these times do no
later, so the model's optimum is that of all static plans, and no on-line scheduler, movement or
contention can do better than it.

The solver counts in whole ticks. Where all times are multiples of one fraction of a second that keeps
the horizon below :data:`MOST_TICKS`, that is the tick and nothing is lost. Otherwise a tick is a
millionth of the horizon and every time is rounded *down*: rounding down all starts of a true schedule
makes one of the model, so the model's bound stays one. It can be too low by a tick for every operator
and transfer on a path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from simulator.analysis.lp_bound import path_load_bound
from simulator.context import EVERYWHERE
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.workload import Job

MOST_TICKS = 10**9
"""Longest horizon, in ticks, that is counted exactly."""
_ROUNDED_TICKS = 10**6
_MOST_DENOMINATOR = 1000


@dataclass(frozen=True)
class Proof:
    """What the solver found.

    Attributes:
        device: int64[operators]; None if it found no plan better than the one it was given.
        order: int64[operators], in the order of their starts.
        bound_s: no plan's makespan, from the job's arrival on, is below this.
        tick_s: seconds of a tick.
        exact: whether all times are whole ticks; if not, they were rounded down for the bound.
        closed: whether the search was completed, so that only rounding is left between plan and bound.
    """

    device: np.ndarray | None
    order: np.ndarray | None
    bound_s: float
    tick_s: float
    exact: bool
    closed: bool


def load_solver() -> Any:
    """OR-tools' module of CP-SAT.

    Raises:
        InvalidInput: it is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise InvalidInput(
            "The exact planner needs OR-tools, which is not installed: pip install 'hetsim[exact]'"
        ) from None
    return cp_model


def common_tick(times: np.ndarray, horizon: float) -> tuple[Fraction, bool]:
    """The tick in seconds, and whether all times are multiples of it; see the module docstring."""
    denominator = 1
    for value in np.unique(times[times > 0]).tolist():
        near = Fraction(value).limit_denominator(_MOST_DENOMINATOR)
        if float(near) != value:
            break
        denominator = math.lcm(denominator, near.denominator)
        if denominator * horizon > MOST_TICKS:
            break
    else:
        if denominator * horizon <= MOST_TICKS:
            return Fraction(1, denominator), True
    return Fraction(horizon) / _ROUNDED_TICKS, False


def prove(
    job: Job,
    cluster: Cluster,
    seconds: np.ndarray,
    known: tuple[np.ndarray, np.ndarray, float],
    available: np.ndarray,
    limit: float,
    seed: int = 0,
) -> Proof:
    """Search for the best plan of one job behind what occupies the devices.

    Args:
        job: the job; its arrival does not matter.
        cluster: devices, memory spaces and links.
        seconds: float64[operators, devices], launch overhead included, ``inf`` where a device cannot
            run an operator.
        known: a plan to improve on: device and start in seconds from arrival of every operator, and its
            makespan.
        available: float64[slots], device by device: seconds from arrival until each slot is free.
        limit: of the solver's deterministic time: the same number of steps on every machine, a few
            seconds of one core for each.
        seed: of the solver.

    Raises:
        InvalidInput: OR-tools is not installed.
    """
    cp_model = load_solver()
    model = _Model(cp_model, job, cluster, seconds, known, available)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = limit
    status = _interruptible(solver, model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        raise RuntimeError(
            f"CP-SAT calls the model {solver.status_name(status)}: {model.model.validate()}"
        )
    tick = float(model.tick)
    bound = max(math.ceil(solver.best_objective_bound - 1e-6), model.least) * tick
    if status == cp_model.UNKNOWN:
        return Proof(None, None, min(bound, known[2]), tick, model.exact, False)
    starts = [solver.value(start) for start in model.starts]
    ends = [solver.value(end) for end in model.ends]
    device = [next(p for p, here in row.items() if solver.value(here)) for row in model.on]
    # Operators without duration go before those that begin with them.
    order = sorted(range(len(starts)), key=lambda i: (starts[i], ends[i], i))
    closed = status == cp_model.OPTIMAL
    bound = min(bound, known[2])
    return Proof(np.array(device), np.array(order), bound, tick, model.exact, closed)


def _interruptible(solver: Any, model: Any) -> Any:
    """Solve; Ctrl-C ends that as it ends everything else. The solver's own way of noticing it swallows it, and leaves
    the process without Python's handler: the next Ctrl-C kills it, whatever it was about to write.
    """
    solver.parameters.catch_sigint_signal = False
    # Python's handlers run on this thread, and only while it is not inside the solver.
    with ThreadPoolExecutor(1) as pool:
        solving = pool.submit(solver.solve, model)
        try:
            return solving.result()
        except BaseException:
            while not solving.done():
                solver.stop_search()
                wait([solving], timeout=0.05)
            raise


class _Model:
    """The constraints; ``on[i][p]`` says whether operator i is on device p."""

    def __init__(
        self,
        cp_model: Any,
        job: Job,
        cluster: Cluster,
        seconds: np.ndarray,
        known: tuple[np.ndarray, np.ndarray, float],
        available: np.ndarray,
    ) -> None:
        graph = job.graph
        space_of = cluster.space_of
        origin, destination = (
            EVERYWHERE if name is None else cluster.space_index[name]
            for name in (job.origin, job.destination)
        )
        used = sorted({*space_of})
        sources = used if origin == EVERYWHERE else sorted({*used, origin})
        targets = used if destination == EVERYWHERE else sorted({*used, destination})
        routes = {(a, b): cluster.route(a, b) for a in sources for b in targets if a != b}
        size = graph.tensor_bytes.tolist()

        def way(tensors: Sequence[int], a: int, b: int) -> float:
            return max(routes[a, b].seconds(size[tensor]) for tensor in tensors)

        # What moves along each edge, into each reader of the job's inputs, and out.
        between: dict[tuple[int, int], list[int]] = {}
        for source, target, tensor in zip(
            graph.edge_source.tolist(),
            graph.edge_target.tolist(),
            graph.edge_tensor.tolist(),
            strict=True,
        ):
            between.setdefault((source, target), []).append(tensor)
        brought = {}
        if origin != EVERYWHERE:
            inputs = {*graph.inputs}
            for i, tensors in enumerate(graph.activations_read):
                if own := [tensor for tensor in tensors if tensor in inputs]:
                    brought[i] = own
        delivered = {}
        if destination != EVERYWHERE:
            outputs = {*graph.outputs}
            for i, tensors in enumerate(graph.writes):
                if own := [tensor for tensor in tensors if tensor in outputs]:
                    delivered[i] = own
        pairs = [(a, b) for a in used for b in used if a != b]
        delays = {
            edge: {pair: way(tensors, *pair) for pair in pairs} for edge, tensors in between.items()
        }
        times = [
            seconds[np.isfinite(seconds)],
            [v for row in delays.values() for v in row.values()],
        ]
        times += [
            [way(own, origin, b) for own in brought.values() for b in used if b != origin],
            [
                way(own, a, destination)
                for own in delivered.values()
                for a in used
                if a != destination
            ],
        ]
        times.append(available)
        device, start, makespan = known
        self.tick, self.exact = common_tick(np.concatenate(times), max(makespan, 1e-300))
        ticks = self._ticks
        # What is known is a sum of rounded numbers.
        self.most = ticks(makespan) + (not self.exact)
        slots = np.array([d.slots for d in cluster.devices], dtype=np.float64)
        least = path_load_bound(graph, seconds, slots) or 0.0
        self.least = min(math.floor(Fraction(least * (1 - 1e-9)) / self.tick), self.most)

        self.model = model = cp_model.CpModel()
        last = model.new_int_var(self.least, self.most, "makespan")
        self.starts, self.ends, self.on, space = [], [], [], []
        intervals: list[list[Any]] = [[] for _ in cluster.devices]
        for i in range(len(graph)):
            begin = model.new_int_var(0, self.most, "")
            end = model.new_int_var(0, self.most, "")
            on = {}
            for p in np.flatnonzero(np.isfinite(seconds[i])).tolist():
                length = ticks(seconds[i, p])
                if length > self.most:
                    continue
                on[p] = model.new_bool_var("")
                intervals[p].append(
                    model.new_optional_fixed_size_interval_var(begin, length, on[p], "")
                )
            model.add_exactly_one(on.values())
            model.add(end == begin + sum(ticks(seconds[i, p]) * here for p, here in on.items()))
            model.add(last >= end)
            self.starts.append(begin)
            self.ends.append(end)
            self.on.append(on)
            space.append(_spaces(model, on, space_of))
            model.add_hint(begin, min(ticks(start[i]), self.most))
            for p, here in on.items():
                model.add_hint(here, int(device[i] == p))
        slot = 0
        for p, own in enumerate(intervals):
            for until in available[slot : slot + cluster.devices[p].slots].tolist():
                if ticks(until):
                    own.append(model.new_fixed_size_interval_var(0, ticks(until), ""))
            slot += cluster.devices[p].slots
            if cluster.devices[p].slots == 1:
                model.add_no_overlap(own)
            elif own:
                model.add_cumulative(own, [1] * len(own), cluster.devices[p].slots)
        for (i, j), row in delays.items():
            model.add(self.starts[j] >= self.ends[i])
            for (a, b), delay in row.items():
                if ticks(delay) and a in space[i] and b in space[j]:
                    model.add(self.starts[j] >= self.ends[i] + ticks(delay)).only_enforce_if(
                        space[i][a], space[j][b]
                    )
        for i, own in brought.items():
            for b, here in space[i].items():
                if b != origin:
                    model.add(self.starts[i] >= ticks(way(own, origin, b))).only_enforce_if(here)
        for i, own in delivered.items():
            for a, here in space[i].items():
                if a != destination:
                    model.add(
                        last >= self.ends[i] + ticks(way(own, a, destination))
                    ).only_enforce_if(here)
        model.minimize(last)

    def _ticks(self, value: float) -> int:
        # Of a multiple of the tick the nearest float may be less.
        ticks = Fraction(value) / self.tick
        return round(ticks) if self.exact else math.floor(ticks)


def _spaces(model: Any, on: dict[int, Any], space_of: Sequence[int]) -> dict[int, Any]:
    """For each memory space in which an operator can be whether it is there."""
    members: dict[int, list[Any]] = {}
    for p, here in on.items():
        members.setdefault(space_of[p], []).append(here)
    found = {}
    for space, literals in members.items():
        if len(literals) == 1:
            found[space] = literals[0]
        else:
            found[space] = model.new_bool_var("")
            model.add(sum(literals) == found[space])
    return found
