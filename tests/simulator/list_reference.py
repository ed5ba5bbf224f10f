"""List schedulers written once more, straight from their definitions: slow, and without a line in common
with the library's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from statistics import fmean, pstdev
from typing import ClassVar

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph

Row = tuple[int, int, float]
"""Operator, device and planned start."""


def near(value: float) -> float:
    return float(f"{value:.9e}")


class World:
    """One graph on one cluster: what the definitions call w, c, pred and succ."""

    def __init__(
        self, graph: DataflowGraph, cluster: Cluster, w: Sequence[Sequence[float]]
    ) -> None:
        self.graph, self.cluster, self.w = graph, cluster, w
        self.space = [cluster.space_index[device.space] for device in cluster.devices]
        self.P = range(len(self.space))
        self.V = range(len(w))
        self.moved: dict[tuple[int, int], list[float]] = {}
        columns = (graph.edge_source, graph.edge_target, graph.edge_tensor)
        for i, j, t in zip(*(column.tolist() for column in columns), strict=True):
            self.moved.setdefault((i, j), []).append(graph.tensors[t].bytes)
        self.succ = [sorted(j for a, j in self.moved if a == i) for i in self.V]
        self.pred = [sorted(i for i, b in self.moved if b == j) for j in self.V]
        self.mean = [fmean(s for s in row if s < math.inf) for row in w]
        self.c = cache(self.transfer)

    def wire(self, size: float, a: int, b: int) -> float:
        """Seconds between two spaces."""
        return 0.0 if a == b else self.cluster.route(a, b).seconds(size)

    def transfer(self, i: int, j: int) -> float:
        """Mean transfer over the ordered pairs of different devices."""
        pairs = list(itertools.permutations(self.space, 2))
        if not pairs:
            return 0.0
        return max(fmean(self.wire(size, a, b) for a, b in pairs) for size in self.moved[i, j])

    def longest(
        self, own: Sequence[float], edge: Callable[[int, int], float] | None = None
    ) -> list[float]:
        """From each operator to the end, its own length included."""
        length = [0.0] * len(own)
        for i in reversed(self.V):
            ways = [(edge(i, j) if edge else 0.0) + length[j] for j in self.succ[i]]
            length[i] = own[i] + max(ways, default=0.0)
        return length

    def rank_u(self) -> list[float]:
        return self.longest(self.mean, self.c)

    def rank_d(self) -> list[float]:
        rank = [0.0] * len(self.w)
        for j in self.V:
            ways = [rank[i] + self.mean[i] + self.c(i, j) for i in self.pred[j]]
            rank[j] = max(ways, default=0.0)
        return rank

    def descendants(self, i: int) -> set[int]:
        return set().union(*({j} | self.descendants(j) for j in self.succ[i]))


# -- orders and priorities -----------------------------------------------------------------------


def by_rank(world: World, rank: Sequence[float]) -> list[int]:
    return sorted(world.V, key=lambda i: (-near(rank[i]), i))


def by_ready_rank(world: World, rank: Sequence[float]) -> list[int]:
    order: list[int] = []
    while len(order) < len(world.w):
        ready = [i for i in world.V if i not in order and {*world.pred[i]} <= {*order}]
        order.append(min(ready, key=lambda i: (-near(rank[i]), i)))
    return order


def through(world: World) -> list[float]:
    return [u + d for u, d in zip(world.rank_u(), world.rank_d(), strict=True)]


def critical_path(world: World) -> tuple[list[int], int]:
    """The tasks of CPOP's path, and their device."""
    length = through(world)
    entries = [i for i in world.V if not world.pred[i]]
    path = [min(entries, key=lambda i: (-near(length[i]), i))]
    longest = near(length[path[0]])
    while world.succ[path[-1]]:
        path.append(next(j for j in world.succ[path[-1]] if near(length[j]) == longest))

    def load(p: int) -> tuple[int, float, int]:
        able = [world.w[i][p] for i in path if world.w[i][p] < math.inf]
        return len(path) - len(able), sum(able), p

    return path, min(world.P, key=load)


def oct_table(world: World) -> list[list[float]]:
    table = [[0.0] * len(world.P) for _ in world.V]
    for i in reversed(world.V):
        for p in world.P:
            for j in world.succ[i]:
                way = min(
                    table[j][q]
                    + world.w[j][q]
                    + (world.c(i, j) if world.space[p] != world.space[q] else 0.0)
                    for q in world.P
                )
                table[i][p] = max(table[i][p], way)
    return table


def oct_rank(world: World) -> list[float]:
    table = oct_table(world)
    return [fmean(table[i][p] for p in world.P if world.w[i][p] < math.inf) for i in world.V]


def pets_order(world: World) -> list[int]:
    level, rank = [0] * len(world.w), [0.0] * len(world.w)
    for i in world.V:
        level[i] = max((level[h] + 1 for h in world.pred[i]), default=0)
        rank[i] = world.mean[i] + sum(world.c(i, j) for j in world.succ[i])
        rank[i] += max((rank[h] for h in world.pred[i]), default=0.0)
    return sorted(world.V, key=lambda i: (level[i], -near(rank[i]), near(world.mean[i]), i))


def hcpt_order(world: World) -> list[int]:
    aest, length = world.rank_d(), through(world)
    order: list[int] = []

    def visit(i: int) -> None:
        if i not in order:
            for h in sorted(world.pred[i], key=lambda h: (near(aest[h]), h)):
                visit(h)
            order.append(i)

    critical = [i for i in world.V if near(length[i]) == near(max(length))]
    exits = [i for i in world.V if not world.succ[i]]
    for roots in (critical, exits):
        for i in sorted(roots, key=lambda i: (near(aest[i]), i)):
            visit(i)
    return order


def hsip_rank(world: World) -> list[float]:
    rank = [0.0] * len(world.w)
    for i in reversed(world.V):
        times = [s for s in world.w[i] if s < math.inf]
        rank[i] = fmean(times) * pstdev(times) + sum(world.c(i, j) for j in world.succ[i])
        rank[i] += max((rank[j] for j in world.succ[i]), default=0.0)
    return rank


def mcp_order(world: World) -> list[int]:
    # The latest start is the longest path less the rank; a list that ends is behind one that goes on.
    rank = world.rank_u()
    lists = [
        [*sorted(-near(rank[j]) for j in {i} | world.descendants(i)), math.inf] for i in world.V
    ]
    return sorted(world.V, key=lambda i: (lists[i], i))


def behind(order: Sequence[int]) -> list[float]:
    return [float(len(order) - 1 - order.index(i)) for i in range(len(order))]


def medians(world: World) -> list[float]:
    """Sih and Lee's adjusted median: the largest finite time where the median is infinite."""
    found = []
    for row in world.w:
        ascending, half = sorted(row), len(row) // 2
        middle = ascending[half : half + 1] if len(row) % 2 else ascending[half - 1 : half + 1]
        value = sum(middle) / len(middle)
        found.append(value if value < math.inf else max(s for s in row if s < math.inf))
    return found


def etf_key(world: World) -> Callable[[int, int, float], tuple[float, ...]]:
    level = world.longest(world.mean)
    return lambda i, p, start: (start, -near(level[i]), i, start + world.w[i][p], p)


def dls_key(world: World) -> Callable[[int, int, float], tuple[float, ...]]:
    star = medians(world)
    static = world.longest(star)

    def key(i: int, p: int, start: float) -> tuple[float, ...]:
        level = near(static[i] + (star[i] - world.w[i][p]))
        return -near(level - start), -level, i, start + world.w[i][p], p

    return key


# -- plans ---------------------------------------------------------------------------------------


class Plan:
    """Intervals booked on every slot, and what is placed so far."""

    def __init__(self, world: World, origin: int | None, insertion: bool) -> None:
        self.world, self.origin, self.insertion = world, origin, insertion
        self.slots: list[list[list[tuple[float, float]]]] = [
            [[] for _ in range(device.slots)] for device in world.cluster.devices
        ]
        self.at: dict[int, tuple[int, float]] = {}
        self.rows: list[Row] = []

    def copy(self) -> Plan:
        other = Plan(self.world, self.origin, self.insertion)
        other.slots = [[[*slot] for slot in slots] for slots in self.slots]
        other.at, other.rows = dict(self.at), [*self.rows]
        return other

    def ready(self, i: int, p: int) -> float:
        """When the data of those parents that are placed is there."""
        world, times = self.world, [0.0]
        for t in world.graph.activations_read[i]:
            size, source = world.graph.tensors[t].bytes, world.graph.producer[t]
            if source in self.at:
                device, end = self.at[source]
                times.append(end + world.wire(size, world.space[device], world.space[p]))
            elif source < 0 and self.origin is not None:
                times.append(world.wire(size, self.origin, world.space[p]))
        return max(times)

    def earliest(self, booked: list[tuple[float, float]], ready: float, length: float) -> float:
        if not self.insertion:
            return max([ready, *(end for _, end in booked)])
        times = [ready, *(end for _, end in booked if end > ready)]
        return min(
            t
            for t in times
            if all(t >= end or (t < start and t + length <= start) for start, end in booked)
        )

    def start(self, i: int, p: int) -> tuple[float, int]:
        ready, length = self.ready(i, p), self.world.w[i][p]
        return min((self.earliest(b, ready, length), s) for s, b in enumerate(self.slots[p]))

    def finish(self, i: int, p: int) -> float:
        return self.start(i, p)[0] + self.world.w[i][p]

    def able(self, i: int) -> list[int]:
        return [p for p in self.world.P if self.world.w[i][p] < math.inf]

    def book(self, i: int, p: int) -> None:
        start, slot = self.start(i, p)
        end = start + self.world.w[i][p]
        self.slots[p][slot].append((start, end))
        self.at[i] = p, end
        self.rows.append((i, p, start))

    def first(self, i: int) -> int:
        """The device of earliest finish."""
        return min(self.able(i), key=lambda p: (self.finish(i, p), p))


def in_order(plan: Plan, order: Iterable[int]) -> None:
    for i in order:
        plan.book(i, plan.first(i))


def cpop(plan: Plan) -> None:
    path, device = critical_path(plan.world)
    for i in by_ready_rank(plan.world, through(plan.world)):
        plan.book(i, device if i in path and device in plan.able(i) else plan.first(i))


def peft(plan: Plan) -> None:
    table = oct_table(plan.world)
    for i in by_ready_rank(plan.world, oct_rank(plan.world)):
        plan.book(
            i,
            min(
                plan.able(i),
                key=lambda p: (near(plan.finish(i, p) + table[i][p]), plan.finish(i, p), p),
            ),
        )


def lookahead(plan: Plan) -> None:
    order = by_rank(plan.world, plan.world.rank_u())
    for i in order:

        def children_done(p: int, i: int = i) -> tuple[float, float, int]:
            trial = plan.copy()
            trial.book(i, p)
            children = [j for j in order if j in plan.world.succ[i]]
            in_order(trial, children)
            last = max((trial.at[j][1] for j in children), default=trial.at[i][1])
            return last, trial.at[i][1], p

        plan.book(i, min(plan.able(i), key=children_done))


def jointly(plan: Plan, key: Callable[[int, int, float], tuple[float, ...]]) -> None:
    while len(plan.at) < len(plan.world.w):
        ready = [
            i for i in plan.world.V if i not in plan.at and {*plan.world.pred[i]} <= plan.at.keys()
        ]
        pairs = [(i, p) for i in ready for p in plan.able(i)]
        plan.book(*min(pairs, key=lambda pair: key(*pair, plan.start(*pair)[0])))


PLANS: dict[str, Callable[[Plan], None]] = {
    "heft": lambda plan: in_order(plan, by_rank(plan.world, plan.world.rank_u())),
    "cpop": cpop,
    "peft": peft,
    "pets": lambda plan: in_order(plan, pets_order(plan.world)),
    "hcpt": lambda plan: in_order(plan, hcpt_order(plan.world)),
    "hsip": lambda plan: in_order(plan, by_rank(plan.world, hsip_rank(plan.world))),
    "mcp": lambda plan: in_order(plan, mcp_order(plan.world)),
    "lookahead": lookahead,
    "etf": lambda plan: jointly(plan, etf_key(plan.world)),
    "dls": lambda plan: jointly(plan, dls_key(plan.world)),
}


def plan_of(name: str, world: World, origin: int | None, insertion: bool) -> list[Row]:
    """What ``name`` plans for one job at time 0, in the order of planning."""
    plan = Plan(world, origin, insertion)
    PLANS[name](plan)
    return plan.rows


# -- on line -------------------------------------------------------------------------------------

PRIORITIES: dict[str, Callable[[World], list[float]]] = {
    "dynamic_heft": World.rank_u,
    "dynamic_cpop": through,
    "dynamic_peft": oct_rank,
    "dynamic_pets": lambda world: behind(pets_order(world)),
    "dynamic_hcpt": lambda world: behind(hcpt_order(world)),
    "dynamic_hsip": hsip_rank,
    "dynamic_mcp": lambda world: behind(mcp_order(world)),
    "dynamic_lookahead": World.rank_u,
}


class OnLine(Scheduler):
    """A ready list or a joint choice, priced through public questions only."""

    name: ClassVar[str] = "reference"

    def __init__(self, rule: str, pricing: str) -> None:
        self.rule, self.pricing = rule, pricing

    def begin(self, context: SchedulingContext) -> None:
        self.worlds: dict[int, World] = {}
        self.ranks: dict[int, list[float]] = {}
        self.since: dict[int, float] = {}

    def decide(self, context: SchedulingContext) -> None:
        for job in context.arrived:
            costs = context.cost_matrix(job).tolist()
            self.worlds[job] = World(context.jobs[job].graph, context.cluster, costs)
            if self.rule in PRIORITIES:
                self.ranks[job] = [near(rank) for rank in PRIORITIES[self.rule](self.worlds[job])]
        ready = [*context.placeable]
        self.since |= dict.fromkeys(ready, context.now)
        while ready:
            if self.rule in PRIORITIES:
                task = min(ready, key=lambda task: self.turn(context, task))
                device = min(context.able(task), key=lambda d: self.value(context, task, d))
            else:
                pairs = [(task, d) for task in ready for d in context.able(task)]
                task, device = min(pairs, key=lambda pair: self.joint(context, *pair))
            context.place(task, device)
            ready.remove(task)

    def turn(self, context: SchedulingContext, task: int) -> tuple[float, float, int]:
        rank = self.ranks[context.job_of(task)][context.operator_of(task)]
        return -rank, self.since[task], task

    def start(self, context: SchedulingContext, task: int, device: int) -> float:
        space = context.cluster.space_of[device]
        times = [context.available(device)]
        parcels: list[tuple[int, float]] = []
        for tensor, size, home, _ in context.inputs(task):
            there = context.copy_time(tensor, space)
            if there is None:
                parcels.append((home, size))
            else:
                times.append(there)
        if not self.pricing.startswith("per_edge"):
            homes = dict.fromkeys(home for home, _ in parcels)
            parcels = [(h, sum(size for home, size in parcels if home == h)) for h in homes]
        for home, size in parcels:
            begin = context.now
            if self.pricing.endswith("aware"):
                begin = context.link_free(home, space)
            times.append(begin + context.transfer_seconds(size, home, space))
        return max(times)

    def value(self, context: SchedulingContext, task: int, device: int) -> tuple[float, ...]:
        world, i = self.worlds[context.job_of(task)], context.operator_of(task)
        end = self.start(context, task, device) + context.seconds(task)[device]
        if self.rule == "dynamic_cpop":
            path, critical = critical_path(world)
            return float(i not in path or device != critical), end, device
        if self.rule == "dynamic_peft":
            return near(end + oct_table(world)[i][device]), end, device
        if self.rule == "dynamic_lookahead":
            return self.children_done(context, task, device, end), end, device
        return end, device

    def children_done(
        self, context: SchedulingContext, task: int, device: int, end: float
    ) -> float:
        world, i = self.worlds[context.job_of(task)], context.operator_of(task)
        rank = self.ranks[context.job_of(task)]
        free = {
            d: [context.available(d)] * context.cluster.devices[d].slots
            for d in range(len(context.cluster.devices))
        }
        free[device].remove(min(free[device]))
        free[device].append(end)
        ends = []
        for j in sorted(world.succ[i], key=lambda j: (-rank[j], j)):
            child = task - i + j
            options = []
            for d in context.able(child):
                begin = max(min(free[d]), context.now)
                for t, (tensor, size, home, written) in zip(
                    world.graph.activations_read[j], context.inputs(child), strict=True
                ):
                    space, here = world.space[d], world.space[device]
                    if world.graph.producer[t] == i:
                        begin = max(begin, end + world.wire(size, here, space))
                    elif written < math.inf and home != EVERYWHERE:
                        there = context.copy_time(tensor, space)
                        if there is None:
                            there = context.now + context.transfer_seconds(size, home, space)
                        begin = max(begin, there)
                options.append((begin + context.seconds(child)[d], d))
            done, best = min(options)
            free[best].remove(min(free[best]))
            free[best].append(done)
            ends.append(done)
        return max(ends, default=end)

    def joint(self, context: SchedulingContext, task: int, device: int) -> tuple[float, ...]:
        world, i = self.worlds[context.job_of(task)], context.operator_of(task)
        key = (etf_key if self.rule == "dynamic_etf" else dls_key)(world)
        start = self.start(context, task, device)
        found = key(i, device, start)
        return (*found[:2], task, *found[3:])
