"""Requests served together: what a batch is, whom it serves, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.context.serving import BatchingContext
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import SchedulingError
from simulator.model.workload import Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.serving.fleet import Fleet, flows, poisson


def test_two_requests_run_once_and_are_answered_each_at_its_place() -> None:
    fleet = Fleet([(1.0, 1.0)], sources=2, latency=0.5, bandwidth=1000.0)
    # 1,000 bytes there: 0.5 + 1 s; 100 bytes back: 0.5 + 0.1 s; t(2) = 3 s.
    jobs = [fleet.job(0.0, at="user0"), fleet.job(0.0, at="user1")]
    trace = fleet.run(jobs, "task_groups", _contention="fifo")
    assert trace.executions["start"].tolist() == [1.5]
    assert trace.executions["finish"].tolist() == [4.5]
    assert trace.members["job"].tolist() == [0, 1]
    assert trace.members["execution"].tolist() == [0, 0]
    assert flows(trace) == pytest.approx([5.1, 5.1])
    back = trace.transfers["bytes"][trace.transfers["requested"] > 1]
    assert back.tolist() == [100.0, 100.0]


def test_the_graph_of_a_batch_is_what_the_trace_says() -> None:
    fleet = Fleet([(1.0, 1.0)])
    trace = fleet.run([fleet.job(0.0), fleet.job(0.0), fleet.job(0.0)], "fcfs_batching")
    graphs = [trace.meta["graphs"][g]["batch"] for g in trace.jobs["graph"].tolist()]
    assert graphs == [3, 3, 3]
    assert trace.jobs["batch"].tolist() == [1, 1, 1]


class Scripted(Scheduler):
    """Does at its first decision what a test says."""

    needs = frozenset({"batch"})

    def __init__(self, act) -> None:  # type: ignore[no-untyped-def]
        self.act, self.asked = act, 0

    def decide(self, context: SchedulingContext) -> None:
        assert isinstance(context, BatchingContext)
        self.asked += 1
        self.act(context, self.asked)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda c, _: c.batch([0, 0]), "each once"),
        (lambda c, _: c.batch([]), "needs jobs"),
        (lambda c, _: c.batch([0, 7]), "no job 7"),
        (lambda c, _: (c.batch([0, 1]), c.place(1, 0)), "runs with job 0, which leads its batch"),
        (lambda c, _: (c.batch([0, 1]), c.batch([1, 2])), "does not wait"),
        (lambda c, _: (c.place(0, 0), c.batch([0, 1])), "Job 0 does not wait"),
        (lambda c, _: c.batch([0, 3]), "inputs are not where those of job 0"),
        (lambda c, _: c.send(0, 0), "already"),
        (lambda c, _: c.send(0, 9), "no memory space 9"),
        (lambda c, _: (c.reject(0, "no"), c.place(0, 0)), "was refused"),
        (lambda c, _: (c.reject(0, "no"), c.reject(0, "no")), "does not wait"),
    ],
)
def test_what_cannot_be_served_together_is_refused(act, message: str) -> None:  # type: ignore[no-untyped-def]
    fleet = Fleet([(1.0, 1.0)], sources=1)
    jobs = [fleet.job(0.0), fleet.job(0.0), fleet.job(0.0), fleet.job(0.0, at="user0")]
    with pytest.raises(SchedulingError, match=message):
        simulate(Workload(jobs, fleet.batches), fleet.cluster, fleet.costs, Scripted(act))


def test_a_batch_without_a_graph_names_those_that_are_prepared() -> None:
    fleet = Fleet([(1.0, 1.0)], most=2)
    jobs = [fleet.job(0.0) for _ in range(3)]
    with pytest.raises(SchedulingError, match="for a batch of 3; prepared are 1, 2"):
        simulate(
            Workload(jobs, fleet.batches),
            fleet.cluster,
            fleet.costs,
            Scripted(lambda c, _: c.batch([0, 1, 2])),
        )


def test_serving_is_an_ability_that_must_be_declared() -> None:
    fleet = Fleet([(1.0, 1.0)])

    class Undeclared(Scripted):
        needs = frozenset()

    with pytest.raises(SchedulingError, match="without having declared it"):
        simulate(
            Workload([fleet.job(0.0)], fleet.batches),
            fleet.cluster,
            fleet.costs,
            Undeclared(lambda c, _: c.batch([0])),
        )


@pytest.mark.parametrize("memory", ["limited", "unlimited"])
def test_weights_on_demand_are_refused_before_the_run(memory: str) -> None:
    fleet = Fleet([(1.0, 1.0)])
    with pytest.raises(SchedulingError, match=r"needs batch.*keep weights resident"):
        fleet.run([fleet.job(0.0)], "task_groups", _memory=memory, _weights="on_demand")


def test_slow_devices_serve_later() -> None:
    fleet = Fleet([(1.0, 1.0)])
    device = fleet.cluster.devices[0].name
    slows = Faults([Fault("device_slowdown", device, 0.0, 50.0, factor=0.5)])
    alone = fleet.run([fleet.job(0.0)], "task_groups").makespan
    assert fleet.run([fleet.job(0.0)], "task_groups", _faults=slows).makespan > alone


def test_a_refused_request_is_in_the_trace_with_its_reason() -> None:
    fleet = Fleet([(1.0, 1.0)])

    def act(context: BatchingContext, asked: int) -> None:
        if asked == 1:
            context.reject(0, "full")
            context.place(context.tasks_of(1)[0], 0)

    trace = simulate(
        Workload([fleet.job(0.0), fleet.job(0.0)], fleet.batches),
        fleet.cluster,
        fleet.costs,
        Scripted(act),
    )
    assert trace.jobs["status"].tolist() == ["rejected", "finished"]
    assert trace.jobs["reason"].tolist() == ["full", ""]
    assert len(trace.executions["task"]) == 1


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_of_a_request_refused_while_its_inputs_come_nothing_is_delivered(delay: float) -> None:
    fleet = Fleet([(1.0, 1.0)], sources=1, latency=1.0)
    told: list[list[int]] = []

    def act(context: BatchingContext, asked: int) -> None:
        told.append(list(context.delivered))
        if asked == 1:
            context.send(0, 0)
            context.send(1, 0)
            if delay:
                context.wake_at(delay)
        if context.now == delay and 0 not in context.rejected:
            context.reject(0, "full")
        if 1 in context.delivered:
            context.place(context.tasks_of(1)[0], 0)

    jobs = [fleet.job(0.0, at="user0"), fleet.job(0.0, at="user0")]
    trace = simulate(Workload(jobs, fleet.batches), fleet.cluster, fleet.costs, Scripted(act))
    assert trace.jobs["status"].tolist() == ["rejected", "finished"]
    assert [row for row in told if row] == [[1]]
    # What was under way goes on; what was asked for at the same instant never begins.
    assert (trace.transfers["job"] == 0).sum() == (1 if delay else 0)


def test_batches_are_saved_and_read_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    fleet = Fleet([(1.0, 1.0)])
    trace = fleet.run([fleet.job(0.0) for _ in range(5)], "task_groups", max_batch=4)
    trace.save(tmp_path)
    again = type(trace).load(tmp_path)
    assert again.members["job"].tolist() == trace.members["job"].tolist()
    assert again.jobs["graph"].tolist() == trace.jobs["graph"].tolist()


SCHEDULERS = ("task_groups", "fcfs_batching", "dynamic_batching", "edf", "deadline_accuracy")


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scheduler=st.sampled_from(SCHEDULERS),
    count=st.integers(1, 30),
    nodes=st.integers(1, 3),
    sources=st.integers(0, 2),
    select=st.sampled_from(["home", "random", "round_robin", "least_loaded", "two_stage"]),
    packing=st.sampled_from([None, {"age": "20ms"}, {"size": "3kB", "eager": False}]),
    contention=st.sampled_from(["none", "fifo", "fair"]),
)
def test_every_request_is_served_once_after_its_data_came(
    seed: int,
    scheduler: str,
    count: int,
    nodes: int,
    sources: int,
    select: str,
    packing: dict[str, object] | None,
    contention: str,
) -> None:
    rng = np.random.default_rng(seed)
    fleet = Fleet(
        [(0.02, 0.01), (0.05, 0.03)],
        speeds=rng.uniform(0.5, 2, nodes),
        sources=sources,
        latency=0.005,
        bandwidth=1e5,
    )
    places = [f"user{i}" for i in range(sources)] or ["node0"]
    jobs = [
        fleet.job(t, int(rng.integers(2)), str(rng.choice(places)), deadline=t + 100)
        for t in poisson(30, count, seed)
    ]
    options = {} if scheduler in ("edf", "deadline_accuracy") else {"max_batch": 4}
    trace = fleet.run(
        jobs, scheduler, select=select, packing=packing, _contention=contention, **options
    )
    assert (trace.jobs["status"] == "finished").all()
    assert sorted(trace.members["job"].tolist()) == list(range(count))
    runs = trace.executions
    for device in range(nodes):  # one at a time
        mine = runs["device"] == device
        order = np.argsort(runs["start"][mine])
        assert (runs["start"][mine][order][1:] >= runs["finish"][mine][order][:-1]).all()
    for execution, job in zip(trace.members["execution"], trace.members["job"], strict=True):
        entry = jobs[job]
        space = fleet.cluster.space_of[int(runs["device"][execution])]
        size = len(trace.members["job"][trace.members["execution"] == execution])
        graph = fleet.graphs[int(entry.model[1])][size]
        took = float(fleet.costs[graph].seconds[0, runs["device"][execution]])
        assert runs["finish"][execution] - runs["start"][execution] == pytest.approx(took)
        assert runs["start"][execution] >= entry.arrival
        came = (trace.transfers["job"] == job) & (trace.transfers["destination"] == space)
        if entry.origin != fleet.cluster.spaces[space].name:
            assert trace.transfers["bytes"][came].sum() >= 1000
            assert (trace.transfers["finish"][came] <= runs["start"][execution] + 1e-12).all()
        assert trace.jobs["finish"][job] >= runs["finish"][execution]
    again = fleet.run(
        jobs, scheduler, select=select, packing=packing, _contention=contention, **options
    )
    assert again.executions["start"].tolist() == runs["start"].tolist()


def test_without_batches_it_is_first_come_first_served() -> None:
    fleet = Fleet([(0.02, 0.01), (0.05, 0.03)], speeds=[1.0])
    rng = np.random.default_rng(3)
    jobs = [fleet.job(t, int(rng.integers(2))) for t in poisson(20, 200)]
    one = fleet.run(jobs, "fcfs_batching", max_batch=1)
    two = simulate(Workload(jobs, fleet.batches), fleet.cluster, fleet.costs, create("fcfs"))
    assert one.executions["start"].tolist() == two.executions["start"].tolist()
    assert one.jobs["finish"].tolist() == two.jobs["finish"].tolist()
