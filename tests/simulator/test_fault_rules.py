"""The rules of docs/semantics.md on faults, one by one, from what a run and its trace say in public.

The usual cluster is that of :mod:`tests.simulator.test_faults`: A in memory a, B in memory b, one byte a second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from simulator.analysis.metrics import metrics
from simulator.context import SchedulingContext
from simulator.engine.faults import Fault, Faults, RandomFaults
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.scripted import Script
from tests.simulator.test_faults import CHAIN, INF, ONE, outcome, pair, rows

DOWN, SLOW, OUTAGE, NARROW = (
    "device_failure",
    "device_slowdown",
    "link_outage",
    "link_degradation",
)


def graph_of(
    tensors: dict[str, tuple[float, int, Sequence[int]]],
    tasks: int,
    results: Sequence[str] = (),
    inputs: dict[str, tuple[float, Sequence[int]]] | None = None,
) -> DataflowGraph:
    """``tensors[name] = (bytes, producer, readers)``; ``inputs[name] = (bytes, readers)``."""
    every = [(n, "input", b, -1, r) for n, (b, r) in (inputs or {}).items()]
    every += [(n, "activation", b, p, r) for n, (b, p, r) in tensors.items()]
    return DataflowGraph(
        "drawn",
        [Operator(f"t{i}", "task") for i in range(tasks)],
        [Tensor(name, role, size) for name, role, size, _, _ in every],  # type: ignore[arg-type]
        [[i for i, row in enumerate(every) if task in row[4]] for task in range(tasks)],
        [[i for i, row in enumerate(every) if row[3] == task] for task in range(tasks)],
        [{"tensor": name, "views": []} for name in results],
    )


def spaces(devices: str, *names: str, slots: int = 1, **links: float) -> Cluster:
    """``devices`` such as ``A:a B:b``; every two memories joined by a link of one byte a second each way."""
    parts = [part.split(":") for part in devices.split()]
    known = [*dict.fromkeys([space for _, space in parts]), *names]
    joined = [
        Link(f"{x}{y}", (x, y), links.get(f"{x}{y}", 1.0))
        for i, y in enumerate(known)
        for x in known[:i]
    ]
    return Cluster(
        "drawn",
        [MemorySpace(name) for name in known],
        [Device(name, space, slots=slots) for name, space in parts],
        joined,
    )


def where(*plan: int) -> Callable[[SchedulingContext, int], None]:
    """Place every task on its device of the plan as soon as it is ready, and again when it was lost."""

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.placeable:
            context.place(task, plan[context.operator_of(task)])

    return act


def ahead(*plan: int) -> Callable[[SchedulingContext, int], None]:
    """Place every task when its job arrives, in the order of operators, and again when it was lost."""

    def act(context: SchedulingContext, call: int) -> None:
        tasks = [t for job in context.arrived for t in context.tasks_of(job)]
        for task in sorted({*tasks, *context.lost}):
            context.place(task, plan[context.operator_of(task)], context.operator_of(task))

    return act


def run(
    graph: DataflowGraph,
    seconds: Sequence[float] | Sequence[Sequence[float]],
    act: Callable[[SchedulingContext, int], None],
    *events: Fault,
    cluster: Cluster | None = None,
    job: dict[str, Any] | None = None,
    max_attempts: int | None = 4,
    random: Sequence[RandomFaults] = (),
    **settings: Any,
) -> Trace:
    cluster = cluster or pair()
    times = np.array(seconds, dtype=float)
    if times.ndim == 1:  # the same on every device
        times = np.repeat(times[:, None], len(cluster.devices), axis=1)
    return simulate(
        Workload([Job(graph, **(job or {}))]),
        cluster,
        CostTable.of(graph, times),
        Script(act),
        faults=Faults(events, random, max_attempts),
        **settings,
    )


def moves(trace: Trace) -> list[tuple[Any, ...]]:
    """(tensor, source, destination, start, finish, bytes) of every transfer."""
    keys = ("tensor", "source", "destination", "start", "finish", "bytes")
    return list(zip(*(trace.transfers[k].tolist() for k in keys), strict=True))


def column(trace: Trace, name: str) -> list[Any]:
    found: list[Any] = trace.executions[name].tolist()
    return found


# -- what breaks, and when -----------------------------------------------------------------------


def test_a_launch_overhead_is_not_slowed() -> None:
    """1 s of overhead, 4 s at half the rate."""
    trace = run(
        ONE, [4.0], where(0), Fault(SLOW, "A", 0.0, factor=0.5), cluster=pair(launch_overhead=1.0)
    )
    assert rows(trace)[0][5] == 9.0


@pytest.mark.parametrize("what", [OUTAGE, NARROW])
@pytest.mark.parametrize("first", [0, 1])
def test_a_link_breaks_both_ways(what: str, first: int) -> None:
    """4 bytes from 2 on; one has crossed at 3, then nothing, or half as much, until 5: at 8, or at 7."""
    fault = Fault(what, "ab", 3.0, 5.0, factor=0.5 if what == NARROW else None)
    trace = run(CHAIN, [2.0, 1.0], where(first, 1 - first), fault)
    assert moves(trace)[0][3:] == (2.0, 8.0 if what == OUTAGE else 7.0, 4.0)


def test_faults_of_different_kinds_multiply() -> None:
    """Of 4 bytes from 2 on 1 has crossed at 3; at half the rate another at 5, none until 6, two until 10."""
    narrow, out = Fault(NARROW, "ab", 3.0, 20.0, factor=0.5), Fault(OUTAGE, "ab", 5.0, 6.0)
    assert moves(run(CHAIN, [2.0, 1.0], where(0, 1), narrow, out))[0][4] == 10.0


@pytest.mark.parametrize("what", [SLOW, NARROW])
def test_random_and_given_factors_multiply(what: str) -> None:
    """A random half of the rate from all but 0 on, and for good; a given half of that: 4 times as long."""
    thing = "A" if what == SLOW else "ab"
    random = [RandomFaults(what, 1e-12, 1e12, thing, 0.5)]
    given = Fault(what, thing, 0.0, factor=0.5)
    trace = run(CHAIN, [2.0, 1.0], where(0, 1), given, random=random)
    x, moved = rows(trace)[0], moves(trace)[0]
    assert x[5] == pytest.approx(8.0 if what == SLOW else 2.0)
    assert moved[4] - moved[3] == pytest.approx(4.0 if what == SLOW else 16.0)


def test_random_and_given_faults_of_a_kind_add_up() -> None:
    """A is down until both have ended; the random ones are those that come without the other."""
    random = [RandomFaults(DOWN, 6.0, 3.0, "A", memory_lost=False)]
    alone = run(ONE, [[60.0, INF]], where(0), random=random, max_attempts=None, horizon=100.0)
    first, second = alone.meta["outages"][:2]
    given = Fault(DOWN, "A", first[2] - 0.5, second[1] - 0.25, memory_lost=False)
    trace = run(
        ONE, [[60.0, INF]], where(0), given, random=random, max_attempts=None, horizon=100.0
    )
    assert trace.meta["outages"][0] == [0, first[1], second[1] - 0.25]
    assert trace.meta["outages"][1] == second


def test_what_ends_with_the_fault_has_ended() -> None:
    """x ends at 2, when A breaks: it is not lost, though what it wrote is."""
    trace = run(CHAIN, [2.0, 1.0], where(0, 0), Fault(DOWN, "A", 2.0, 3.0, memory_lost=False))
    assert [row[3:] for row in rows(trace)] == [("finished", 0.0, 2.0), ("finished", 3.0, 4.0)]
    # The 4 bytes from 2 on have come at 6: there is a copy when A's memory goes.
    trace = run(CHAIN, [2.0, 1.0], where(0, 1), Fault(DOWN, "A", 6.0))
    assert [row[3:] for row in rows(trace)] == [("finished", 0.0, 2.0), ("finished", 6.0, 7.0)]
    assert moves(trace) == [(0, 0, 1, 2.0, 6.0, 4.0)]


def test_what_arrives_with_the_fault_finds_it() -> None:
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        seen.append((context.now, context.arrived[:], context.is_up(0)))
        where(1)(context, call)

    run(ONE, [1.0], act, Fault(DOWN, "A", 3.0, 4.0), job={"arrival": 3.0})
    assert seen[0] == (3.0, [0], False)


def test_ends_of_faults_come_before_beginnings() -> None:
    """A's slowdown ends when another begins: at a quarter until 4, at half from then on: 1 + 6 = 7 s left."""
    one, two = Fault(SLOW, "A", 0.0, 4.0, factor=0.25), Fault(SLOW, "A", 4.0, 50.0, factor=0.5)
    assert rows(run(ONE, [4.0], where(0), one, two))[0][5] == 10.0
    # And a device that is back and fails again at once was up in between for nobody.
    again = [Fault(DOWN, "A", 1.0, 2.0), Fault(DOWN, "A", 2.0, 3.0)]
    trace = run(ONE, [4.0], where(0), *again)
    assert trace.meta["outages"] == [[0, 1.0, 2.0], [0, 2.0, 3.0]]
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 1.0), (0, 1, 0, "finished", 3.0, 7.0)]


@pytest.mark.parametrize("what", [DOWN, SLOW, OUTAGE, NARROW])
def test_the_scheduler_is_asked_when_a_fault_begins_and_when_it_ends(what: str) -> None:
    asked = []

    def act(context: SchedulingContext, call: int) -> None:
        asked.append(context.now)
        where(1)(context, call)

    thing = "A" if what in (DOWN, SLOW) else "ab"
    factor = 0.5 if what in (SLOW, NARROW) else None
    run(ONE, [9.0], act, Fault(what, thing, 2.0, 5.0, factor))
    assert asked == [0.0, 2.0, 5.0, 9.0]


def test_nothing_breaks_once_every_job_is_done() -> None:
    """Done at 4: the fault at 3 happened, that at 4.5 and the random ones after it did not."""
    events = [Fault(SLOW, "B", 3.0, 9.0, factor=0.5), Fault(SLOW, "B", 9.5, factor=0.5)]
    trace = run(
        ONE, [4.0], where(0), *events, random=[RandomFaults(OUTAGE, 0.5, 0.5)], max_attempts=1
    )
    begun = [(row["what"], row["from"]) for row in trace.meta["faults"]]
    assert (SLOW, 3.0) in begun
    assert all(moment <= 4.0 for _, moment in begun)
    assert trace.makespan == 4.0


# -- what a device loses --------------------------------------------------------------------------


def test_an_attempt_is_ready_from_the_fault_on() -> None:
    """x was ready at 0, and is anew at 1, when A breaks with it; y, queued behind it, is since 0."""
    graph = from_edges("two", 2, [], names=["x", "y"])
    trace = run(graph, [4.0, 3.0], where(0, 0), Fault(DOWN, "A", 1.0, 2.0))
    assert list(zip(column(trace, "task"), column(trace, "attempt"), strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    assert column(trace, "status") == ["lost", "finished", "finished"]
    assert column(trace, "ready") == [0.0, 1.0, 0.0]
    assert column(trace, "placed") == [0.0, 1.0, 1.0]
    assert column(trace, "start") == [0.0, 2.0, 6.0]


def test_what_must_be_written_again_is_ready_when_that_is_possible() -> None:
    """x, y on A, z on B. A's memory goes at 3: x can run again at once, y when x has."""
    graph = from_edges("chain", 3, [(0, 1, 1.0), (1, 2, 5.0)])
    trace = run(graph, [1.0, 1.0, 1.0], where(0, 0, 1), Fault(DOWN, "A", 3.0, 4.0))
    assert column(trace, "task") == [0, 1, 0, 1, 2]
    assert column(trace, "ready") == [0.0, 1.0, 3.0, 5.0, 6.0]


def test_what_was_submitted_leaves_no_row() -> None:
    """x runs, y was submitted behind it, w is queued: all come back, x alone was begun."""
    graph = from_edges("three", 3, [], names=["x", "y", "w"])
    lost = []

    def act(context: SchedulingContext, call: int) -> None:
        lost.append((context.lost[:], [context.device_of(t) for t in context.lost]))
        where(0, 0, 0)(context, call)

    cluster = pair(completion_latency=1.0, issue_depth=2)
    trace = run(graph, [2.0] * 3, act, Fault(DOWN, "A", 1.0, 5.0), cluster=cluster)
    assert lost[:2] == [([], []), ([0, 1, 2], [-1, -1, -1])]
    assert rows(trace)[0] == (0, 0, 0, "lost", 0.0, 1.0)
    assert [row[:4] for row in rows(trace)[1:]] == [
        (0, 1, 0, "finished"),
        (1, 0, 0, "finished"),
        (2, 0, 0, "finished"),
    ]


def test_the_other_devices_go_on() -> None:
    graph = from_edges("two", 2, [], names=["x", "y"])
    trace = run(graph, [4.0, 4.0], where(0, 1), Fault(DOWN, "A", 1.0, 9.0, memory_lost=True))
    assert (1, 0, 1, "finished", 0.0, 4.0) in rows(trace)


# -- whose memory is lost -------------------------------------------------------------------------


SHARED = "A:a B:b C:b"


def test_a_shared_memory_survives_one_of_its_devices() -> None:
    """x on B writes into b; B breaks at 3 and C, beside it, goes on with y, whose 4 s began at 2."""
    trace = run(CHAIN, [2.0, 4.0], where(1, 2), Fault(DOWN, "B", 3.0), cluster=spaces(SHARED))
    assert [row[:5] for row in rows(trace)] == [
        (0, 0, 1, "finished", 0.0),
        (1, 0, 2, "finished", 2.0),
    ]


def test_what_others_run_on_a_lost_memory_is_lost_what_they_have_queued_is_not() -> None:
    """B takes b: y, which C runs, is lost; z, queued behind y, stays, and begins at once."""
    graph = from_edges("three", 3, [], names=["x", "y", "z"])
    lost, up = [], []

    def act(context: SchedulingContext, call: int) -> None:
        lost.append(context.lost[:])
        up.append((context.is_up(1), context.is_up(2), context.device_of(2)))
        where(1, 2, 2)(context, call)

    fault = Fault(DOWN, "B", 1.0, 9.0, memory_lost=True)
    trace = run(graph, [4.0, 4.0, 4.0], act, fault, cluster=spaces(SHARED))
    assert (lost[1], up[1]) == ([0, 1], (False, True, 2))
    assert rows(trace) == [
        (0, 0, 1, "lost", 0.0, 1.0),
        (1, 0, 2, "lost", 0.0, 1.0),
        (2, 0, 2, "finished", 1.0, 5.0),
        (1, 1, 2, "finished", 5.0, 9.0),
        (0, 1, 1, "finished", 9.0, 13.0),
    ]


def test_a_lost_memory_of_which_a_device_is_up_is_sent_to() -> None:
    """B takes b at 1 and stays away; C is up: x's 4 bytes go to y there from 2 on."""
    fault = Fault(DOWN, "B", 1.0, 50.0, memory_lost=True)
    trace = run(CHAIN, [2.0, 1.0], where(0, 2), fault, cluster=spaces(SHARED))
    assert moves(trace) == [(0, 0, 1, 2.0, 6.0, 4.0)]
    # Once C is down as well at a failure that takes b, they wait for the first that is back.
    both = Fault(DOWN, "C", 1.5, 10.0, memory_lost=True)
    trace = run(CHAIN, [2.0, 1.0], where(0, 2), fault, both, cluster=spaces(SHARED))
    assert moves(trace) == [(0, 0, 1, 10.0, 14.0, 4.0)]


def test_nothing_is_sent_from_a_lost_memory_until_a_device_is_back() -> None:
    """A job's input lies in a, which is lost from 1 to 7; y wants it on B at 2."""
    graph = graph_of({"o": (0.0, 0, [1])}, 2, inputs={"in": (3.0, [1])})
    trace = run(graph, [2.0, 1.0], where(1, 1), Fault(DOWN, "A", 1.0, 7.0), job={"origin": "a"})
    assert moves(trace) == [(0, 0, 1, 7.0, 10.0, 3.0)]
    assert column(trace, "task") == [0, 1]  # the input is not lost


def test_a_memory_without_devices_or_with_its_memory_kept_is_never_closed() -> None:
    """A keeps its memory: what lies there is sent while it is down."""
    trace = run(CHAIN, [2.0, 1.0], where(0, 1), Fault(DOWN, "A", 2.5, 50.0, memory_lost=False))
    assert moves(trace) == [(0, 0, 1, 2.0, 6.0, 4.0)]


# -- transfers that are called off -----------------------------------------------------------------

TWO = graph_of({"s": (4.0, 0, [1]), "t": (3.0, 0, [2])}, 3)


def test_a_transfer_that_had_not_started_leaves_no_row() -> None:
    """s crosses from 1 on, t waits behind it (fifo) when b is lost at 2: one row, one byte. Then both go."""
    trace = run(
        TWO, [1.0, 1.0, 1.0], where(0, 1, 1), Fault(DOWN, "B", 2.0, 10.0), contention="fifo"
    )
    assert moves(trace) == [
        (0, 0, 1, 1.0, 2.0, 1.0),
        (0, 0, 1, 10.0, 14.0, 4.0),
        (1, 0, 1, 14.0, 17.0, 3.0),
    ]


def test_a_transfer_that_starts_with_the_fault_leaves_no_row() -> None:
    """s has come at 5, when b is lost and t would start."""
    trace = run(TWO, [1.0, 1.0, 1.0], where(0, 1, 1), Fault(DOWN, "B", 5.0, 9.0), contention="fifo")
    assert moves(trace)[:2] == [(0, 0, 1, 1.0, 5.0, 4.0), (0, 0, 1, 9.0, 13.0, 4.0)]


def test_a_shared_link_has_carried_what_its_rate_let() -> None:
    """Half of the link each from 1 to 4, fair: 1.5 bytes each."""
    trace = run(
        TWO, [1.0, 1.0, 1.0], where(0, 1, 1), Fault(DOWN, "B", 4.0, 10.0), contention="fair"
    )
    assert moves(trace)[:2] == [(0, 0, 1, 1.0, 4.0, 1.5), (1, 0, 1, 1.0, 4.0, 1.5)]


def test_a_latency_carries_no_bytes() -> None:
    cluster = dataclasses.replace(pair(), links=[Link("ab", ("a", "b"), 1.0, 2.0)])
    trace = run(CHAIN, [1.0, 1.0], where(0, 1), Fault(DOWN, "B", 2.0, 10.0), cluster=cluster)
    assert moves(trace)[0] == (0, 0, 1, 1.0, 2.0, 0.0)


def test_transfers_of_other_memories_go_on_and_those_behind_move_up() -> None:
    """Over the hub h, fifo: s to b from 1 on, u to c behind it. b goes at 2: u starts then."""
    cluster = Cluster(
        "hub",
        [MemorySpace(name) for name in "abch"],
        [Device(name.upper(), name) for name in "abc"],
        [Link(f"{name}h", (name, "h"), 1.0) for name in "abc"],
    )
    graph = graph_of({"s": (4.0, 0, [1]), "u": (3.0, 0, [2])}, 3)
    trace = run(
        graph,
        [1.0, 1.0, 1.0],
        where(0, 1, 2),
        Fault(DOWN, "B", 2.0, 50.0),
        cluster=cluster,
        contention="fifo",
    )
    moved = {row[:1] + row[2:] for row in moves(trace)}  # a row for each of its two links
    assert moved == {(0, 1, 1.0, 2.0, 1.0), (1, 2, 2.0, 5.0, 3.0), (0, 1, 50.0, 54.0, 4.0)}


def test_what_is_called_off_at_its_source_and_left_elsewhere_comes_from_there() -> None:
    """x's tensor has been in c since 3 when a goes at 4, with half of it on its way to b: from c, anew."""
    graph = graph_of({"t": (2.0, 0, [1, 2])}, 3)

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 0)
        if context.now == 1.0:
            context.place(1, 2)
            context.wake_at(3.5)
        if context.now == 3.5:
            context.place(2, 1)

    cluster = spaces("A:a B:b C:c")
    trace = run(graph, [1.0, 9.0, 1.0], act, Fault(DOWN, "A", 4.0), cluster=cluster)
    assert moves(trace) == [
        (0, 0, 2, 1.0, 3.0, 2.0),
        (0, 0, 1, 3.5, 4.0, 0.5),
        (0, 2, 1, 4.0, 6.0, 2.0),
    ]
    assert column(trace, "task") == [0, 2, 1]


def test_what_is_asked_for_again_waits_for_its_reader_under_pull() -> None:
    """t of x lies in a, its copy in c. z, placed ahead on B, reads t and what y writes until 8. When a goes
    at 5, t is at home in c; under push it goes from there at once, under pull when y is done.
    """
    graph = graph_of({"t": (2.0, 0, [1, 3]), "w": (0.0, 2, [3])}, 4)
    found = {}
    for movement in ("push", "pull"):

        def act(context: SchedulingContext, call: int) -> None:
            for task in context.placeable:
                if context.operator_of(task) < 3:
                    context.place(task, [0, 2, 1][context.operator_of(task)])
            if context.now == 4.0 and context.device_of(3) < 0:
                context.place(3, 1)
            elif context.now < 4.0:
                context.wake_at(4.0)

        trace = run(
            graph,
            [1.0, 1.0, 8.0, 1.0],
            act,
            Fault(DOWN, "A", 5.0),
            cluster=spaces("A:a B:b C:c"),
            movement=movement,
        )
        assert column(trace, "task") == [0, 1, 2, 3]
        found[movement] = [row[1:] for row in moves(trace) if row[2] == 1]
    assert found["push"] == [(0, 1, 4.0, 5.0, 1.0), (2, 1, 5.0, 7.0, 2.0)]
    assert found["pull"] == [(2, 1, 8.0, 10.0, 2.0)]


# -- tensors that are lost ------------------------------------------------------------------------


def test_home_is_the_first_memory_with_a_copy() -> None:
    """Copies of t in b and c when a goes at 4: D's reader takes it from b, over a link as fast."""
    graph = graph_of({"t": (1.0, 0, [1, 2, 3])}, 4)

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            if task < 3:
                context.place(task, task)
        if context.now < 5.0:
            context.wake_at(5.0)
        elif context.device_of(3) < 0:
            context.place(3, 3)

    trace = run(graph, [1.0] * 4, act, Fault(DOWN, "A", 4.0), cluster=spaces("A:a B:b C:c D:d"))
    assert [row[1:3] for row in moves(trace)] == [(0, 1), (0, 2), (1, 3)]


def test_a_copy_on_its_way_is_none() -> None:
    """t crosses to b, its only other place, from 1 to 5; a goes at 2: x runs again, on B."""
    trace = run(CHAIN, [[1.0, 2.0], [INF, 1.0]], _elsewhere(), Fault(DOWN, "A", 2.0))
    assert rows(trace) == [
        (0, 0, 0, "finished", 0.0, 1.0),
        (0, 1, 1, "finished", 2.0, 4.0),
        (1, 0, 1, "finished", 4.0, 5.0),
    ]


def _elsewhere() -> Callable[[SchedulingContext, int], None]:
    """Place what is ready on the first device that is up and can run it."""

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.placeable:
            context.place(
                task,
                next(
                    d for d, s in enumerate(context.seconds(task)) if s < INF and context.is_up(d)
                ),
            )

    return act


def test_what_has_started_has_read_and_goes_on() -> None:
    """z, on B since 3, has read t, which is lost at 4 with both its places: x need not run again."""
    trace = run(CHAIN, [2.0, 9.0], where(0, 1), Fault(DOWN, "A", 8.0))
    assert [row[:4] for row in rows(trace)] == [(0, 0, 0, "finished"), (1, 0, 1, "finished")]


def test_what_has_no_reader_left_is_not_written_again() -> None:
    """x's tensor has been read; y's has a copy in b, where z runs: when a goes at 4 nothing is missed."""
    graph = from_edges("chain", 3, [(0, 1, 1.0), (1, 2, 1.0)])
    trace = run(graph, [1.0, 1.0, 5.0], where(0, 0, 1), Fault(DOWN, "A", 4.0, 4.5))
    assert column(trace, "task") == [0, 1, 2]


def test_results_count_until_their_job_is_done() -> None:
    """x's result, 1 byte in a without a destination, is lost at 3 while y, which does not read it, runs."""
    graph = graph_of({"r": (1.0, 0, [])}, 2, results=["r"])
    trace = run(graph, [2.0, 5.0], where(0, 1), Fault(DOWN, "A", 3.0, 4.0))
    assert rows(trace) == [
        (0, 0, 0, "finished", 0.0, 2.0),
        (1, 0, 1, "finished", 0.0, 5.0),
        (0, 1, 0, "finished", 4.0, 6.0),
    ]
    assert outcome(trace) == ("finished", "", 6.0)


def test_results_of_a_job_that_is_done_are_safe() -> None:
    """The first job is done at 2; a goes at 3, while the second runs."""
    graph = graph_of({"r": (1.0, 0, [])}, 1, results=["r"])

    def by_number(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            context.place(task, task)

    trace = simulate(
        Workload([Job(graph), Job(graph, 1.0)]),
        pair(),
        CostTable.of(graph, np.array([[2.0, 8.0]])),
        Script(by_number),
        faults=Faults([Fault(DOWN, "A", 3.0)]),
    )
    assert [row[:4] for row in rows(trace)] == [(0, 0, 0, "finished"), (1, 0, 1, "finished")]


def test_a_result_that_was_delivered_and_lost_before_the_job_is_done_is_sent_again() -> None:
    """r is in b from 3 on, lost there at 4; the job goes on until 9 on A."""
    graph = graph_of({"r": (1.0, 0, [])}, 2, results=["r"])
    trace = run(
        graph, [2.0, 7.0], where(0, 0), Fault(DOWN, "B", 4.0, 5.0), job={"destination": "b"}
    )
    assert moves(trace) == [(0, 0, 1, 2.0, 3.0, 1.0), (0, 0, 1, 5.0, 6.0, 1.0)]
    assert column(trace, "task") == [0, 1]


def test_what_else_a_producer_wrote_stays_where_it_is() -> None:
    """x writes s and t; t has a copy in c when a goes at 4. x runs again on B for s alone: z, on D, has
    t from c, not from b.
    """
    graph = graph_of({"s": (0.0, 0, [3]), "t": (1.0, 0, [1, 2])}, 4)

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.placeable:
            if task == 0:
                context.place(0, 0 if context.is_up(0) else 1)
            elif task == 1:
                context.place(1, 2)
            elif task == 3 and context.now > 4.0:
                context.place(3, 1)
        if context.now < 8.0:
            context.wake_at(8.0)
        elif context.device_of(2) < 0:
            context.place(2, 3)

    trace = run(graph, [1.0] * 4, act, Fault(DOWN, "A", 4.0), cluster=spaces("A:a B:b C:c D:d"))
    assert column(trace, "task") == [0, 1, 0, 3, 2]
    assert [row[:3] for row in moves(trace) if row[0] == 1] == [(1, 0, 2), (1, 2, 3)]


def test_successors_are_not_ready_until_their_producer_has_run_again() -> None:
    """y and z read t of x. Both were ready; y is queued on B behind w, z placed nowhere, when a goes at 2.
    y comes back as lost with x; both are ready when x has run again.
    """
    graph = graph_of({"t": (1.0, 0, [1, 2])}, 4)
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        seen.append(
            (
                context.now,
                context.lost[:],
                context.ready[:],
                context.placeable[:],
                [context.is_ready(t) for t in (1, 2)],
                context.device_of(1),
            )
        )
        if call == 0:
            context.place(0, 0)
            context.place(3, 1)
        elif context.now == 1.0:
            context.place(1, 1)
        elif context.now == 2.0:
            context.place(0, 1, -1.0)
        elif context.now == 6.0:
            for task in context.ready:
                context.place(task, 1)

    # Latency keeps the copy from being there at 2.
    cluster = dataclasses.replace(pair(), links=[Link("ab", ("a", "b"), 1.0, 5.0)])
    trace = run(graph, [1.0, 1.0, 1.0, 5.0], act, Fault(DOWN, "A", 2.0), cluster=cluster)
    assert seen[2] == (2.0, [0, 1], [], [0], [False, False], -1)
    (again,) = [row for row in seen if row[0] == 6.0]
    assert (again[2], again[4]) == ([1, 2], [True, True])
    assert column(trace, "task") == [0, 3, 0, 1, 2]


def test_what_was_placed_ahead_and_not_ready_stays_placed() -> None:
    """z, placed ahead on B, waits for x and y. x's tensor is lost while y still runs: z is not lost."""
    graph = graph_of({"s": (1.0, 0, [2]), "t": (1.0, 1, [2])}, 3)
    lost = []

    def act(context: SchedulingContext, call: int) -> None:
        lost.append((context.now, context.lost[:], context.device_of(2)))
        ahead(0, 1, 1)(context, call)

    cluster = dataclasses.replace(pair(), links=[Link("ab", ("a", "b"), 1.0, 5.0)])
    trace = run(graph, [1.0, 4.0, 1.0], act, Fault(DOWN, "A", 2.0, 3.0), cluster=cluster)
    assert (2.0, [0], 1) in lost
    assert column(trace, "task") == [0, 0, 1, 2]


# -- jobs that fail -------------------------------------------------------------------------------


def test_what_a_failed_job_runs_goes_on_and_what_it_has_queued_does_not() -> None:
    """x is executed once too often at 1; y, on B until 5, ends there, z behind it never begins; the scheduler
    hears of it once.
    """
    graph = from_edges("three", 3, [], names=["x", "y", "z"])
    failed = []

    def act(context: SchedulingContext, call: int) -> None:
        failed.append((context.now, context.failed[:], context.lost[:], context.device_of(2)))
        if call == 0:
            for task in context.ready:
                context.place(task, [0, 1, 1][task])

    trace = run(graph, [4.0, 5.0, 1.0], act, Fault(DOWN, "A", 1.0), max_attempts=1)
    assert [row[:2] for row in failed] == [(0.0, []), (1.0, [0]), (5.0, [])]
    assert failed[1][2:] == ([], -1)
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 1.0), (1, 0, 1, "finished", 0.0, 5.0)]
    assert outcome(trace)[2] == 1.0


def test_nothing_of_a_failed_job_becomes_ready() -> None:
    """x fails the job at 1; y, which runs on B, ends at 5, but z, which reads y's, is not ready then."""
    graph = from_edges("three", 3, [(1, 2, 0.0)], names=["x", "y", "z"])
    ready = []

    def act(context: SchedulingContext, call: int) -> None:
        ready.append((context.now, context.ready[:], context.is_ready(2)))
        if call == 0:
            for task in context.ready:
                context.place(task, task)

    run(graph, [4.0, 5.0, 1.0], act, Fault(DOWN, "A", 1.0), max_attempts=1)
    assert ready == [(0.0, [0, 1], False), (1.0, [], False), (5.0, [], False)]


def test_what_is_withdrawn_in_the_same_decision_gives_nothing_up() -> None:
    """One transfer to b was called off, and no other may go; y is placed there, and at once elsewhere."""

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.placeable:
            context.place(task, task)
            if task == 1 and context.now > 2.0:
                context.withdraw(1)
                context.place(1, 0)

    trace = run(CHAIN, [2.0, 1.0], act, Fault(DOWN, "B", 3.0, 4.0), max_attempts=1)
    assert outcome(trace) == ("finished", "", 4.0)


def test_runs_again_count_as_attempts() -> None:
    """x finishes, and its tensor is lost, time and again: at the third loss it has been executed 3 times."""
    breaks = [Fault(DOWN, "A", start, start + 0.5) for start in (3.0, 6.0, 9.0)]
    trace = run(CHAIN, [2.0, 1.0], where(0, 1), *breaks, max_attempts=3)
    assert outcome(trace) == (
        "failed",
        "'x' was executed 3 times and would have to run again",
        9.0,
    )


@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
@pytest.mark.parametrize("movement", ["push", "pull"])
def test_a_transfer_longer_than_its_memory_lasts_is_given_up(
    contention: str, movement: str
) -> None:
    """t takes 4 s to b, which lasts 2: the third one that is called off, at 12, was the last. y's placement
    asks for a fourth when B is back.
    """
    breaks = [Fault(DOWN, "B", start, start + 2.0) for start in (4.0, 8.0, 12.0, 16.0, 20.0)]
    settings: dict[str, Any] = {"contention": contention, "movement": movement}

    def act(context: SchedulingContext, call: int) -> None:
        if context.is_up(1):
            for task in context.tasks_of(0):
                idle = context.device_of(task) < 0 and context.is_ready(task)
                if idle and not context.failed and context.now < 15.0:
                    context.place(task, context.operator_of(task))

    trace = run(CHAIN, [2.0, 1.0], act, *breaks, max_attempts=3, **settings)
    assert outcome(trace) == (
        "failed",
        "The transfer of 'x->y#0' from 'a' to 'b' was called off 3 times and would have to start again; "
        "allow more with max_attempts, or let the memory survive (memory_lost: false)",
        14.0,
    )
    assert [row[3:] for row in moves(trace)] == [
        (2.0, 4.0, 2.0),
        (6.0, 8.0, 2.0),
        (10.0, 12.0, 2.0),
    ]


def test_a_result_that_cannot_be_delivered_is_given_up_at_once() -> None:
    """It is still wanted when its second transfer is called off, at 7: nobody need ask for it."""
    graph = graph_of({"r": (4.0, 0, [])}, 1, results=["r"])
    breaks = [Fault(DOWN, "B", start, start + 1.0) for start in (3.0, 7.0, 11.0)]
    trace = run(graph, [2.0], where(0), *breaks, max_attempts=2, job={"destination": "b"})
    status, reason, finish = outcome(trace)
    assert (status, finish) == ("failed", 7.0)
    assert reason.startswith("The transfer of 'r' from 'a' to 'b' was called off 2 times")


def test_what_did_not_start_is_no_attempt() -> None:
    """t waits behind s (fifo) and never starts; s, of another job, is given up, and t goes."""
    long = graph_of({"s": (9.0, 0, [1])}, 2)
    short = graph_of({"t": (1.0, 0, [1])}, 2)
    costs = {**CostTable.of(long, np.ones((2, 2))), **CostTable.of(short, np.ones((2, 2)))}
    breaks = [Fault(DOWN, "B", start, start + 1.0) for start in (3.0, 6.0, 9.0)]
    trace = simulate(
        Workload([Job(long), Job(short, 0.5)]),
        pair(),
        CostTable(costs),
        Script(where(0, 1)),
        contention="fifo",
        faults=Faults(breaks, max_attempts=2),
    )
    assert trace.jobs["status"].tolist() == ["failed", "finished"]
    assert column(trace, "status") == ["finished"] * 3


@pytest.mark.parametrize("scheduler", ["fcfs", "donf", "heft", "packed"])
def test_nothing_runs_for_ever(scheduler: str) -> None:
    """Random failures of B come a hundred times as often as a transfer is long."""
    random = [RandomFaults(DOWN, 0.05, 0.01, "B")]
    options = {"scheduler": "donf"} if scheduler == "packed" else {}
    trace = simulate(
        Workload([Job(CHAIN), Job(ONE, 1.0)]),
        pair(),
        CostTable(
            {**CostTable.of(CHAIN, np.array(SENT)), **CostTable.of(ONE, np.array([[3.0, INF]]))}
        ),
        create(scheduler, **options),
        faults=Faults(random=random),
    )
    assert trace.jobs["status"].tolist() == ["failed", "finished"]
    assert trace.jobs["reason"][0].startswith(
        "The transfer of 'x->y#0' from 'a' to 'b' was called off 4"
    )


SENT = [[2.0, INF], [INF, 1.0]]


def test_what_no_host_has_the_time_to_issue_is_given_up() -> None:
    """Issuing takes 0.5 s, A lasts 0.05 on average: nothing ever begins there."""
    trace = run(
        ONE,
        [[2.0, INF]],
        where(0),
        random=[RandomFaults(DOWN, 0.05, 0.01, "A")],
        cluster=pair(completion_latency=1.0, issue_overhead=0.5),
    )
    assert outcome(trace)[:2] == (
        "failed",
        "'x' was submitted 4 times to a device that failed before it began, and would have to be submitted "
        "again",
    )


def test_a_failed_job_is_in_no_makespan() -> None:
    other = from_edges("other", 1, [], names=["p"])
    trace = simulate(
        Workload([Job(ONE), Job(other)]),
        pair(),
        CostTable(
            {
                **CostTable.of(ONE, np.array([[9.0, INF]])),
                **CostTable.of(other, np.array([[INF, 3.0]])),
            }
        ),
        create("fcfs"),
        faults=Faults([Fault(DOWN, "A", 5.0)]),
    )
    assert trace.jobs["status"].tolist() == ["failed", "finished"]
    assert metrics(trace)["makespan_s"] == 3.0


# -- what schedulers know -------------------------------------------------------------------------


def test_beliefs_are_of_what_is_unbroken_but_for_what_is_under_way() -> None:
    """At 3 the link stops, A is slow and B down: t was to be in b at 6, and is not known to come at all; at 5
    the link is back, and it is to come at 8.
    """
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        if context.now in (2.0, 3.0, 5.0):
            seen.append(
                (
                    context.copy_time(0, 1),
                    list(context.seconds(0)),
                    context.transfer_seconds(4.0, 0, 1),
                    context.available(0),
                    context.available(1),
                )
            )
        if len(seen) == 1:
            context.wake_at(2.0)
        where(0, 1)(context, call)

    faults = [
        Fault(OUTAGE, "ab", 3.0, 5.0),
        Fault(SLOW, "A", 3.0, 5.0, factor=0.5),
        Fault(DOWN, "B", 3.0, 5.0, memory_lost=False),
    ]
    run(CHAIN, [2.0, 1.0], act, *faults)
    assert [row[0] for row in seen] == [None, 6.0, INF, 8.0]
    assert all(row[1:3] == ([2.0, 2.0], 4.0) for row in seen)
    assert [row[3:] for row in seen[1:]] == [(2.0, 7.0), (3.0, INF), (5.0, 9.0)]
