"""What holds for every run with limited memory: random graphs, clusters, capacities and schedulers."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.engine import Setting, Simulation
from simulator.errors import InvalidInput, SchedulingError
from simulator.memory.capacity import within_capacity
from simulator.memory.limited import LimitedMemory
from simulator.model.trace import COLUMNS, Trace
from tests.examples import examples
from tests.simulator.occupancy import intervals, peak
from tests.simulator.scripted import Recorded
from tests.simulator.strategies import SCHEDULERS, Case, cases
from tests.simulator.test_properties import quick

OUT_OF_MEMORY = re.compile(
    r"^Out of memory: nothing is left to happen, and "
    r"(task '.+' on device '.+' needs|a copy of '.+' for (task '.+'|job \d+) needs"
    r"|weights of task '.+' need|the (inputs|weights) of job \d+ \('.+'\) need)"
    r" \d+ bytes in memory space '.+', of whose \d+ bytes \d+ are free\. Give it a larger capacity, "
    r"take a smaller batch, fewer jobs at once or another movement, or .+$"
)
TOO_LARGE = re.compile(
    r"^(Operator '.+' of '.+' needs \d+ bytes|The (inputs|results) of job \d+ \('.+'\) take \d+ bytes"
    r"|The weights of the workload take \d+ bytes)"
)
STEADY = ("fcfs", "donf", "adon", "sufferage", "heft", "heft-append")
"""Schedulers that never withdraw."""


class Evicting(Scheduler):
    """Another scheduler; whenever something waits for room, weights that nobody needs must go."""

    name = "evicting"
    needs = frozenset({"evict"})

    def __init__(self, inner: Scheduler) -> None:
        self.inner = inner
        self.needs = self.needs | inner.needs  # type: ignore[misc]

    def begin(self, context: SchedulingContext) -> None:
        self.inner.begin(context)

    def decide(self, context: SchedulingContext) -> None:
        self.inner.decide(context)
        for space, description in enumerate(context.cluster.spaces):
            if not context.waiting_bytes(space):
                continue
            for graph in dict.fromkeys(job.graph for job in context.jobs):
                if description.name != context.cluster.host:
                    before = context.free_bytes(space)
                    freed = context.evict(graph, space)
                    assert context.free_bytes(space) == before + freed


def simulation_of(
    case: Case, memory: str, weights: str, scheduler: Scheduler | None = None
) -> Simulation:
    costs = case.costs
    if memory == "limited":
        costs = within_capacity(costs, case.workload, case.cluster, weights)
    return Simulation(
        Setting(
            case.workload,
            case.cluster,
            costs,
            scheduler or case.scheduler(),
            case.actual,
            case.movement,
            case.contention,
            case.seed,
            memory,
            weights,
        )
    )


def check_accounts(memory: LimitedMemory) -> None:
    """The sums are those of the parts, and no space holds more than it can."""
    for space, capacity in enumerate(memory._room.capacity):
        held = [h for h in memory._live.all.values() if space == h.home or space in h.copies]
        used = sum(h.bytes for h in held if space not in h.idle)
        used += sum(memory._weights.here[space].values())
        used += sum(size for s, size in memory._spare.values() if s == space)
        idle = sum(h.bytes for h in held if space in h.idle)
        assert used == memory._room.used[space]
        assert idle == memory._room.idle_bytes[space] == sum(memory._room.idle[space].values())
        assert used + idle <= capacity
        assert memory._room.peak[space] >= used


def without_waiting(case: Case) -> bool:
    """Whether nothing that has bytes takes no time: momentary things have no length in a trace."""
    return all((seconds > 0).all() for seconds in case.actual_seconds())


@st.composite
def tight_cases(draw: st.DrawFn, schedulers: tuple[str, ...] = tuple(SCHEDULERS)) -> Case:
    """A run in spaces of little capacity."""
    case = draw(cases(schedulers, weights=3))
    tighten(draw, case)
    return case


def tighten(draw: st.DrawFn, case: Case) -> None:
    """Give the spaces of a case little capacity."""
    need = max(
        sum(math.ceil(graph.tensors[t].bytes) for t in (*graph.reads[o], *graph.writes[o]))
        for graph in case.workload.graphs
        for o in range(len(graph))
    )
    sizes = st.sampled_from([1.2 * need, 1.5 * need, 2.0 * need, 12.0, 18.0, 24.0, math.inf])
    spaces = [
        dataclasses.replace(space, capacity=max(1.0, need, draw(sizes)))
        for space in case.cluster.spaces
    ]
    case.cluster = dataclasses.replace(case.cluster, spaces=spaces)


def give_host(case: Case) -> None:
    """Weights on demand need a place to come from; it has room for all of them."""
    first, *others = case.cluster.spaces
    spaces = [dataclasses.replace(first, capacity=math.inf), *others]
    case.cluster = dataclasses.replace(case.cluster, spaces=spaces, host=first.name)


@settings(quick, max_examples=examples(100))
@given(cases())
def test_enough_memory_changes_nothing(case: Case) -> None:
    one = case.run()
    simulation = simulation_of(case, "limited", "resident")
    two = simulation.run()
    for table, columns in COLUMNS.items():
        for column in columns:
            if column != "slot":
                found, expected = getattr(two, table)[column], getattr(one, table)[column]
                assert np.array_equal(found, expected), (table, column)
    assert one.wallclock["decisions"] == two.wallclock["decisions"]
    memory = simulation.memory
    assert isinstance(memory, LimitedMemory)
    check_accounts(memory)
    assert not memory._live.all


@settings(quick, max_examples=examples(100))
@given(cases(schedulers=STEADY, weights=3), st.sampled_from(["resident", "on_demand"]))
def test_peak_is_that_of_the_trace(case: Case, weights: str) -> None:
    if weights == "on_demand":
        give_host(case)
    trace = simulation_of(case, "limited", weights).run()
    rows = intervals(trace, case.workload, case.cluster, hindsight=False)
    for space, found in enumerate(trace.meta["peak_bytes"]):
        if without_waiting(case):
            assert found == peak(rows[space])
        else:
            assert found >= peak(rows[space])


@settings(quick, max_examples=examples(150))
@given(tight_cases(), st.sampled_from(["resident", "on_demand"]), st.booleans())
def test_never_above_capacity(case: Case, weights: str, evicting: bool) -> None:
    if weights == "on_demand":
        give_host(case)

    def watch(context: SchedulingContext) -> None:
        memory = context.memory  # type: ignore[attr-defined]
        check_accounts(memory)
        for space in range(len(context.cluster.spaces)):
            assert context.free_bytes(space) >= 0

    inner = case.scheduler()
    if evicting and weights == "on_demand":
        inner = Evicting(inner)
    try:
        simulation = simulation_of(case, "limited", weights, Recorded(inner, watch))
        trace = simulation.run()
    except (InvalidInput, SchedulingError) as error:
        check_refusal(error)
        return
    memory = simulation.memory
    assert isinstance(memory, LimitedMemory)
    check_accounts(memory)
    # Everything is given back but weights.
    assert not memory._live.all
    assert not memory._copies._delayed
    assert not memory._blocked.all
    assert not any(memory._lines._lines)
    assert memory._room.used == [sum(rows.values()) for rows in memory._weights.here]
    assert not any(memory._weights._needing.values())
    check_run(case, trace)
    if not trace.meta.get("evictions"):
        rows = intervals(trace, case.workload, case.cluster, hindsight=True)
        for space, description in enumerate(case.cluster.spaces):
            assert peak(rows[space]) <= trace.meta["peak_bytes"][space] <= description.capacity


def check_refusal(error: Exception) -> None:
    """Only what memory cannot hold is refused, and said as it should be."""
    worded = TOO_LARGE if isinstance(error, InvalidInput) else OUT_OF_MEMORY
    assert worded.match(str(error)), error


def check_run(case: Case, trace: Trace) -> None:
    """Every task once, on a device that can, after its data arrived; what left arrived."""
    rows = trace.executions
    assert sorted(rows["task"].tolist()) == list(range(sum(len(j.graph) for j in case.workload)))
    space_of = case.cluster.space_of
    ran = {
        (int(j), int(o)): (space_of[int(d)], float(s), float(f))
        for j, o, d, s, f in zip(
            *(rows[k] for k in ("job", "operator", "device", "start", "finish")), strict=True
        )
    }
    actual = case.actual_seconds()
    for j, o, d, s, f in zip(
        *(rows[k].tolist() for k in ("job", "operator", "device", "start", "finish")), strict=True
    ):
        assert f == s + (case.cluster.devices[d].launch_overhead + actual[j][o, d])
    table = trace.transfers
    here: dict[tuple[int, int, int], list[tuple[float, int]]] = {}
    for j, t, a, b, f in zip(
        *(table[k].tolist() for k in ("job", "tensor", "source", "destination", "finish")),
        strict=True,
    ):
        here.setdefault((j, t, b), []).append((f, a))
    for j, job in enumerate(case.workload):
        graph = job.graph
        for operator in range(len(graph)):
            space, start, _ = ran[j, operator]
            for t in graph.activations_read[operator]:
                producer = graph.producer[t]
                if producer >= 0:
                    home, _, written = ran[j, producer]
                    assert written <= start
                elif job.origin is None:
                    continue
                else:
                    home = case.cluster.space_index[job.origin]
                if home != space:
                    assert min(f for f, _ in here[j, t, space]) <= start
        if job.destination is not None:
            for t in graph.outputs:
                home, _, _ = ran[j, graph.producer[t]]
                target = case.cluster.space_index[job.destination]
                assert home == target or here[j, t, target]
    sizes = Counter()
    for j, t, size in zip(*(table[k].tolist() for k in ("job", "tensor", "bytes")), strict=True):
        assert size == case.workload.jobs[j].graph.tensors[t].bytes
        sizes[j, t] += 1
