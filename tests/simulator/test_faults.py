"""Faults by hand: what is lost, what runs again, when everything is done, to the last number.

The usual cluster has two memories, ``a`` with device A and ``b`` with device B, and a link of one byte
per second: bytes are seconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from simulator.analysis.metrics import metrics
from simulator.clock import Clock
from simulator.context import SchedulingContext
from simulator.engine.faults import Fault, FaultInjector, Faults, RandomFaults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.plan import Plan
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import available, create
from simulator.schedulers._pricing import best_device, estimated_finishes
from simulator.schedulers.planned import Planned
from tests.simulator.scripted import Script

INF = math.inf


def pair(host: str | None = None, **device: float) -> Cluster:
    """A in a, B in b; one byte a second."""
    return Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a", **device), Device("B", "b", **device)],  # type: ignore[arg-type]
        [Link("ab", ("a", "b"), 1.0)],
        host,
    )


def run(
    graph: DataflowGraph,
    seconds: list[list[float]],
    *events: Fault,
    scheduler: str = "donf",
    max_attempts: int | None = 4,
    cluster: Cluster | None = None,
) -> Trace:
    workload = Workload([Job(graph)])
    faults = Faults(events, max_attempts=max_attempts)
    costs = CostTable.of(graph, np.array(seconds))
    return simulate(workload, cluster or pair(), costs, create(scheduler), faults=faults)


def rows(trace: Trace) -> list[tuple[int, int, int, str, float, float]]:
    """(task, attempt, device, status, start, finish), in order of finish."""
    keys = ("task", "attempt", "device", "status", "start", "finish")
    return list(zip(*(trace.executions[k].tolist() for k in keys), strict=True))


def outcome(trace: Trace) -> tuple[str, str, float]:
    """(status, reason, finish) of the only job."""
    (row,) = zip(*(trace.jobs[k].tolist() for k in ("status", "reason", "finish")), strict=True)
    return row


ONE = from_edges("one", 1, [], names=["x"])
CHAIN = from_edges("chain", 2, [(0, 1, 4.0)], names=["x", "y"])


# -- a device fails -------------------------------------------------------------------------------


def test_a_running_task_goes_elsewhere() -> None:
    """4 s on A, 6 s on B; A breaks after 1 s for good."""
    trace = run(ONE, [[4.0, 6.0]], Fault("device_failure", "A", 1.0))
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 1.0), (0, 1, 1, "finished", 1.0, 7.0)]
    assert outcome(trace) == ("finished", "", 7.0)
    assert trace.meta["outages"] == [[0, 1.0, 7.0]]
    assert trace.meta["faults"] == [
        {"what": "device_failure", "where": "A", "from": 1.0, "to": None, "factor": 0.0}
    ]
    assert metrics(trace)["jobs_finished"] == 1


@pytest.mark.parametrize("scheduler", ["fcfs", "donf", "heft", "sufferage", "single_device"])
def test_what_only_a_broken_device_can_run_waits_for_it(scheduler: str) -> None:
    trace = run(ONE, [[4.0, INF]], Fault("device_failure", "A", 1.0, 3.0), scheduler=scheduler)
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 1.0), (0, 1, 0, "finished", 3.0, 7.0)]


@pytest.mark.parametrize("scheduler", ["fcfs", "donf", "heft", "sufferage", "single_device"])
def test_what_can_never_run_fails_its_job(scheduler: str) -> None:
    trace = run(ONE, [[4.0, INF]], Fault("device_failure", "A", 1.0), scheduler=scheduler)
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 1.0)]
    assert outcome(trace) == ("failed", "'x' waits for device 'A', never mended", 1.0)
    assert metrics(trace)["jobs_finished"] == 0


def test_faults_that_come_together_do_not_hide_that_nothing_else_happens() -> None:
    """x is stuck from 1 on; what happens to link and B at 5 does not matter."""
    late = [
        Fault("link_outage", "ab", 5.0, 6.0),
        Fault("device_slowdown", "B", 5.0, 6.0, factor=0.5),
    ]
    trace = run(ONE, [[4.0, INF]], Fault("device_failure", "A", 1.0), *late)
    assert outcome(trace)[2] == 1.0
    assert len(trace.meta["faults"]) == 1


def test_too_many_attempts() -> None:
    breaks = [Fault("device_failure", "A", 4.0 * i + 1, 4.0 * i + 2) for i in range(3)]
    trace = run(ONE, [[4.0, INF]], *breaks, max_attempts=3)
    assert outcome(trace) == (
        "failed",
        "'x' was executed 3 times and would have to run again",
        9.0,
    )
    assert outcome(run(ONE, [[4.0, INF]], *breaks))[0] == "finished"
    once = run(ONE, [[4.0, INF]], *breaks, max_attempts=1)
    assert outcome(once)[1:] == ("'x' was executed once and would have to run again", 1.0)
    assert outcome(run(ONE, [[4.0, INF]], *breaks, max_attempts=None))[2] == 14.0


def test_queued_tasks_come_back_and_are_placed_nowhere() -> None:
    graph = from_edges("two", 2, [], names=["x", "y"])
    seen: list[tuple[float, list[int], list[int], bool, float]] = []

    def act(context: SchedulingContext, call: int) -> None:
        seen.append(
            (context.now, list(context.lost), context.idle, context.is_up(0), context.available(0))
        )
        for task in (*context.ready, *context.lost):
            assert context.device_of(task) == -1
            context.place(task, 0 if call == 0 else 1)

    simulate(
        graph,
        pair(),
        CostTable.of(graph, np.full((2, 2), 4.0)),
        Script(act),
        faults=Faults([Fault("device_failure", "A", 1.0, 2.0)]),
    )
    assert seen == [
        (0.0, [], [0, 1], True, 0.0),
        (1.0, [0, 1], [1], False, INF),
        (2.0, [], [0], True, 2.0),  # the recovery is something that happened
        (5.0, [], [0], True, 5.0),
        (9.0, [], [0, 1], True, 9.0),
    ]


# -- a memory is lost -----------------------------------------------------------------------------


def test_a_lost_tensor_is_written_again() -> None:
    """x on A until 2, its 4 bytes under way to y on B when A breaks at 3: x runs again on B."""
    seconds = [[2.0, 3.0], [INF, 1.0]]
    trace = run(CHAIN, seconds, Fault("device_failure", "A", 3.0))
    assert rows(trace) == [
        (0, 0, 0, "finished", 0.0, 2.0),
        (0, 1, 1, "finished", 3.0, 6.0),
        (1, 0, 1, "finished", 6.0, 7.0),
    ]
    # One of four bytes had crossed when the transfer was called off.
    moves = trace.transfers
    assert [moves[k].tolist() for k in ("start", "finish", "bytes")] == [[2.0], [3.0], [1.0]]
    # The tasks that count are the last attempts.
    assert trace.tasks["start"].tolist() == [3.0, 6.0]


@pytest.mark.parametrize(("host", "lost"), [("a", None), (None, False)])
def test_a_memory_that_is_kept_goes_on_sending(host: str | None, lost: bool | None) -> None:
    """The same with A's memory kept: because it is the host's, or because the fault says so."""
    trace = run(
        CHAIN,
        [[2.0, 3.0], [INF, 1.0]],
        Fault("device_failure", "A", 3.0, memory_lost=lost),
        cluster=pair(host),
    )
    assert rows(trace) == [(0, 0, 0, "finished", 0.0, 2.0), (1, 0, 1, "finished", 6.0, 7.0)]


def test_a_copy_elsewhere_is_as_good() -> None:
    """x's byte is in b since 3; when A breaks with its own, z reads the copy."""
    graph = DataflowGraph(
        "fan",
        [Operator(name, "task") for name in "xyz"],
        [Tensor("t", "activation", 1.0)],
        [[], [0], [0]],
        [[0], [], []],
    )
    trace = run(graph, [[2.0, 9.0], [INF, 1.0], [5.0, 6.0]], Fault("device_failure", "A", 3.5))
    assert rows(trace) == [
        (0, 0, 0, "finished", 0.0, 2.0),
        (2, 0, 0, "lost", 2.0, 3.5),
        (1, 0, 1, "finished", 3.0, 4.0),
        (2, 1, 1, "finished", 4.0, 10.0),
    ]


def test_what_nobody_needs_any_more_stays_lost() -> None:
    """y has begun with its copy in b: x's own tensor is not missed. The copy is lost at 6.5 with y."""
    seconds = [[2.0, INF], [INF, 4.0]]
    trace = run(CHAIN, seconds, Fault("device_failure", "A", 6.2, 6.4))
    assert [row[:4] for row in rows(trace)] == [(0, 0, 0, "finished"), (1, 0, 1, "finished")]
    trace = run(
        CHAIN,
        seconds,
        Fault("device_failure", "A", 6.2, 6.4),
        Fault("device_failure", "B", 6.5, 6.75),
    )
    assert rows(trace) == [
        (0, 0, 0, "finished", 0.0, 2.0),
        (1, 0, 1, "lost", 6.0, 6.5),
        (0, 1, 0, "finished", 6.5, 8.5),
        (1, 1, 1, "finished", 12.5, 16.5),
    ]


def test_producers_run_again_as_far_back_as_needed() -> None:
    """x -> y -> z, all on A but z, which only B can run: when A breaks, x and y are needed again."""
    graph = from_edges("chain", 3, [(0, 1, 1.0), (1, 2, 5.0)], names=["x", "y", "z"])
    trace = run(
        graph,
        [[1.0, INF], [1.0, INF], [INF, 1.0]],
        Fault("device_failure", "A", 3.0, 4.0),
    )
    assert rows(trace) == [
        (0, 0, 0, "finished", 0.0, 1.0),
        (1, 0, 0, "finished", 1.0, 2.0),
        (0, 1, 0, "finished", 4.0, 5.0),
        (1, 1, 0, "finished", 5.0, 6.0),
        (2, 0, 1, "finished", 11.0, 12.0),
    ]


def test_an_end_that_the_host_has_not_learnt_of_is_lost() -> None:
    """x ends at 2, the host would know at 3; A breaks at 2.5."""
    cluster = pair(completion_latency=1.0)
    trace = run(ONE, [[2.0, INF]], Fault("device_failure", "A", 2.5, 5.0), cluster=cluster)
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 2.0), (0, 1, 0, "finished", 5.0, 7.0)]
    assert outcome(trace)[2] == 8.0


def test_what_was_being_issued_to_a_device_that_breaks_is_issued_anew() -> None:
    """x would be issued at .5; A breaks before, and then after that."""
    cluster = pair(completion_latency=1.0, issue_overhead=0.5)
    trace = run(ONE, [[2.0, INF]], Fault("device_failure", "A", 0.25, 5.0), cluster=cluster)
    assert [row[3:] for row in rows(trace) if row[3] == "finished"] == [("finished", 5.5, 7.5)]
    assert outcome(trace)[2] == 8.5
    trace = run(ONE, [[2.0, INF]], Fault("device_failure", "A", 0.75, 5.0), cluster=cluster)
    assert [row[3:] for row in rows(trace)] == [("lost", 0.5, 0.75), ("finished", 5.5, 7.5)]


# -- slowdown and links ---------------------------------------------------------------------------


def test_slowdowns_multiply() -> None:
    """4 s; a quarter of the rate from 1 to 5: 7. At a quarter and a random half of that: later."""
    slow = Fault("device_slowdown", "A", 1.0, 5.0, factor=0.25)
    assert outcome(run(ONE, [[4.0, INF]], slow))[2] == 7.0
    cluster = Cluster("ps", [MemorySpace("a")], [Device("A", "a", slots=2, sharing="processor")])
    # Two tasks of 2 s share A: 0.5 each until 1, 0.125 until 5: 1 s left, two more.
    graph = from_edges("two", 2, [])
    assert rows(run(graph, [[2.0], [2.0]], slow, cluster=cluster)) == [
        (0, 0, 0, "finished", 0.0, 7.0),
        (1, 0, 0, "finished", 0.0, 7.0),
    ]


SENT = [[2.0, INF], [INF, 1.0]]


def test_links_stop_and_slow_down() -> None:
    """4 bytes from 2 on; one has crossed at 3, when the link stops or halves until 5."""
    assert outcome(run(CHAIN, SENT))[2] == 7.0
    assert outcome(run(CHAIN, SENT, Fault("link_outage", "ab", 3.0, 5.0)))[2] == 9.0
    slow = Fault("link_degradation", "ab", 3.0, 5.0, factor=0.5)
    assert outcome(run(CHAIN, SENT, slow))[2] == 8.0


def test_a_link_that_never_comes_back() -> None:
    trace = run(CHAIN, SENT, Fault("link_outage", "ab", 3.0))
    assert outcome(trace) == ("failed", "'y' waits for link 'ab', never mended", 3.0)


def test_what_came_for_a_lost_task_is_priced_as_there() -> None:
    """x's 4 bytes are on their way to B, there at 6, when y is lost at 5 with its queue; B, which
    keeps its memory, is back at 5.5. y would be done at 7 on B, at 8.5 on A.
    """
    finishes: list[tuple[float, int]] = []

    def act(context: SchedulingContext, call: int) -> None:
        if context.now < 5.5:
            for task in context.ready:
                context.place(task, context.operator_of(task))
        elif context.device_of(1) < 0:
            finishes[:] = estimated_finishes(context, 1, [0, 1], "per_link")
            context.place(1, best_device(context, 1, [0, 1], "per_link"))

    trace = simulate(
        CHAIN,
        pair(),
        CostTable.of(CHAIN, np.array([[2.0, INF], [3.0, 1.0]])),
        Script(act),
        faults=Faults([Fault("device_failure", "B", 5.0, 5.5, memory_lost=False)]),
    )
    assert finishes == [(8.5, 0), (7.0, 1)]
    assert outcome(trace)[2] == 7.0


# -- every scheduler ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, kind in available().items() if not kind.needs])
def test_every_shipped_scheduler_survives(name: str) -> None:
    """Three diamonds, the last one urgent, on devices that break in turn, once both at a time."""
    graph = from_edges("diamond", 4, [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0)])
    jobs = Workload([Job(graph), Job(graph, 2.0), Job(graph, 5.0, priority=1)])
    costs = CostTable.of(graph, np.array([[2.0, 3.0], [1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]))
    scheduler = create(name)
    if name == "planned":
        unbroken = simulate(jobs, pair(), costs, create("heft"))
        scheduler = Planned(Plan.executed(unbroken, [graph] * 3))
    breaks = [("A", 1.0, 4.0), ("B", 3.0, 6.0), ("A", 8.0, 9.0), ("B", 9.5, 11.0)]
    trace = simulate(
        jobs,
        pair(),
        costs,
        scheduler,
        faults=Faults([Fault("device_failure", *row) for row in breaks], max_attempts=None),
    )
    assert trace.jobs["status"].tolist() == ["finished"] * 3
    assert {*trace.tasks["status"].tolist()} == {"finished"}
    assert "lost" in trace.executions["status"].tolist()


# -- a job fails, others go on --------------------------------------------------------------------


def test_counts_add_up() -> None:
    """Of two jobs one needs A; what fails does not hold up the other, nor a third that comes later."""
    other = from_edges("other", 2, [(0, 1, 0.0)], names=["p", "q"])
    costs = CostTable.of(ONE, np.array([[4.0, INF]]))
    costs = CostTable({**costs, **CostTable.of(other, np.full((2, 2), 3.0))})
    for scheduler in ("fcfs", "donf", "heft", "sufferage"):
        trace = simulate(
            Workload([Job(ONE), Job(other), Job(other, 5.0)]),
            pair(),
            costs,
            create(scheduler),
            faults=Faults([Fault("device_failure", "A", 1.0)]),
        )
        assert trace.jobs["status"].tolist() == ["failed", "finished", "finished"], scheduler


def test_a_scheduler_that_gives_up_is_refused_with_faults_as_without() -> None:
    """Random faults go on for ever, but do not hide that nothing else happens."""
    with pytest.raises(SchedulingError, match="1 were never placed, the first is 'x'"):
        simulate(
            ONE,
            pair(),
            CostTable.of(ONE, np.ones((1, 2))),
            Script(lambda context, call: None),
            faults=Faults(random=[RandomFaults("device_failure", 5.0, 1.0)]),
        )


# -- a horizon ------------------------------------------------------------------------------------


def cut(
    horizon: float, *events: Fault, random: Sequence[RandomFaults] = (), **options: Any
) -> Trace:
    """x, 4 s, on A only, and then z, 1 s, which arrives at 3 and needs A, too."""
    later = from_edges("later", 1, [], names=["z"])
    costs = CostTable({**CostTable.of(ONE, np.array([[4.0, INF]]))})
    costs = CostTable({**costs, **CostTable.of(later, np.array([[1.0, INF]]))})
    return simulate(
        Workload([Job(ONE), Job(later, 3.0)]),
        pair(**options),
        costs,
        create("fcfs"),
        faults=Faults(events, random),
        horizon=horizon,
    )


def test_what_a_device_that_is_down_at_the_horizon_has_lost_is_queued() -> None:
    trace = cut(5.0, Fault("device_failure", "A", 1.0, 6.0))
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 1.0)]
    assert trace.jobs["status"].tolist() == ["queued", "queued"]
    assert trace.meta["outages"] == [[0, 1.0, 5.0]]
    figures = metrics(trace)
    assert (figures["jobs_queued"], figures["tasks_lost"]) == (2, 1)
    assert figures["devices"]["A"]["idle_s"]["down"] == 4.0


def test_a_second_attempt_is_cut_off_as_such() -> None:
    trace = cut(5.0, Fault("device_failure", "A", 1.0, 2.0))
    assert rows(trace) == [(0, 0, 0, "lost", 0.0, 1.0), (0, 1, 0, "running", 2.0, 5.0)]


@pytest.mark.parametrize(
    "random", [(), [RandomFaults("link_degradation", 1.0, 1.0, factor=0.5)]], ids=["one", "more"]
)
def test_what_can_never_run_has_failed_at_the_horizon(random: list[RandomFaults]) -> None:
    """Unless there may be more to come: at 2 the second job has yet to arrive."""
    broken = Fault("device_failure", "A", 1.0)
    trace = cut(2.0, broken, random=random)
    assert (trace.jobs["status"].tolist(), trace.jobs["job"].tolist()) == (["queued"], [0])
    if not random:
        trace = cut(5.0, broken, random=random)
        assert trace.jobs["status"].tolist() == ["failed", "failed"]
        assert trace.jobs["finish"].tolist() == [3.0, 3.0]
        assert trace.jobs["reason"][1] == "'z#1' waits for device 'A', never mended"


def test_a_result_that_waits_for_a_memory_to_come_back_is_not_there() -> None:
    """o ends at 2 and its 3 bytes are to go to b, which is lost from 2.5 to 6."""
    graph = DataflowGraph(
        "delivers",
        [Operator("o", "task")],
        [Tensor("out", "activation", 3.0)],
        [[]],
        [[0]],
        [{"tensor": "out", "views": []}],
    )
    for horizon, status in ((5.0, "queued"), (8.9, "queued"), (9.0, "finished")):
        trace = simulate(
            Workload([Job(graph, destination="b")]),
            pair(),
            CostTable.of(graph, np.array([[2.0, INF]])),
            create("fcfs"),
            faults=Faults([Fault("device_failure", "B", 2.5, 6.0)]),
            horizon=horizon,
        )
        assert trace.jobs["status"].tolist() == [status]


# -- random faults --------------------------------------------------------------------------------


def test_times_are_exponential_and_apart() -> None:
    clock = Clock()
    entry = RandomFaults("device_failure", 10.0, 2.0)
    injector = FaultInjector(Faults(random=[entry]), pair(), clock, 5, lambda: clock.now > 30_000)
    while clock._queue:
        clock.step()
        injector.take()
    for name in ("A", "B"):
        mine = [f for f in injector.happened if f.where == name]
        down = np.array([f.end - f.start for f in mine])
        up = np.array([b.start - a.end for a, b in itertools.pairwise(mine)])
        assert np.all(up > 0)
        for found, mean in ((down, 2.0), (up, 10.0)):
            assert found.mean() == pytest.approx(mean, rel=0.08)
            assert found.std() == pytest.approx(mean, rel=0.12)
    first = [next(f.start for f in injector.happened if f.where == name) for name in ("A", "B")]
    assert first[0] != first[1]


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (Faults([Fault("fire", "A", 0.0)]), "There is no fault 'fire'; known: device_failure, "),
        (Faults([Fault("device_failure", "ab", 0.0)]), "is to hit 'ab'; .* the devices A, B"),
        (Faults([Fault("link_outage", "A", 0.0)]), "is to hit 'A'; .* the links ab"),
        (Faults([Fault("device_failure", "A", -1.0)]), "'A' lasts from -1.0 s to inf s"),
        (Faults([Fault("device_failure", "A", math.nan)]), "lasts from nan s"),
        (Faults([Fault("device_failure", "A", 2.0, 2.0)]), "lasts from 2.0 s to 2.0 s"),
        (Faults([Fault("device_slowdown", "A", 0.0)]), "needs a factor between 0 and 1"),
        (Faults([Fault("link_degradation", "ab", 0.0, factor=1.5)]), "it has 1.5"),
        (Faults([Fault("device_failure", "A", 0.0, factor=0.5)]), "takes no factor"),
        (Faults([Fault("link_outage", "ab", 0.0, memory_lost=True)]), "takes no memory"),
        (
            Faults([Fault("device_failure", "A", 0.0, 5.0), Fault("device_failure", "A", 4.0)]),
            "'A' has a device_failure from 0.0 s to 5.0 s and another from 4.0 s",
        ),
        (Faults(random=[RandomFaults("device_failure", 0.0, 1.0)]), "has mtbf 0.0 s"),
        (Faults(random=[RandomFaults("device_failure", 1.0, INF)]), "has mttr inf s"),
        (Faults([Fault("device_failure", "A", 0.0)], max_attempts=0), "max_attempts is 0"),
    ],
)
def test_refused(faults: Faults, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        simulate(ONE, pair(), CostTable.of(ONE, np.ones((1, 2))), create("fcfs"), faults=faults)
