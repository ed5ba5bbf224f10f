"""Requests served together in limited memory: how many fit, and that no space ever holds more than it can."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.residency import occupancy
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.memory.serving_limits import activation_bytes, node_rooms
from simulator.model.closed_loop import ClosedLoop
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.segments import coarsen
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.serving.fleet import Fleet, poisson

INTO, OUT, WEIGHTS = 1000, 100, 5000
BATCHING = ("task_groups", "fcfs_batching", "dynamic_batching")


def model(name: str, batch: int, weights: float = WEIGHTS, parts: int = 1) -> DataflowGraph:
    """A chain of ``parts`` operators; each but the last writes 300 bytes an item for the next."""
    tensors = [Tensor("x", "input", INTO * batch)]
    tensors += [Tensor(f"h{i}", "activation", 300.0 * batch) for i in range(parts - 1)]
    tensors += [Tensor("y", "activation", OUT * batch), Tensor("w", "weight", weights)]
    last = len(tensors) - 1
    return DataflowGraph(
        name,
        [Operator(f"run{i}", "segment") for i in range(parts)],
        tensors,
        [[i, last] if not i else [i] for i in range(parts)],
        [[i + 1] for i in range(parts)],
        [{"tensor": "y"}],
        batch,
    )


def fleet_of(
    models: Sequence[tuple[float, float]],
    capacity: float,
    nodes: int = 1,
    sources: int = 0,
    parts: int = 1,
    slots: int = 1,
    most: int = 16,
    **options: float,
) -> Fleet:
    """A fleet of models with weights, each in ``parts``, on nodes of limited memory."""
    fleet = Fleet(models, [1.0] * nodes, sources, most=most, **options)
    fleet.graphs = [
        {b: model(f"m{i}", b, parts=parts) for b in range(1, most + 1)} for i in range(len(models))
    ]
    fleet.costs = CostTable(
        {
            graph: GraphCosts(np.full((parts, nodes), (a + c * b) / parts))
            for (a, c), graphs in zip(models, fleet.graphs, strict=True)
            for b, graph in graphs.items()
        }
    )
    fleet.batches = {g: graphs for graphs in fleet.graphs for g in graphs.values()}
    limit(fleet, capacity, slots)
    return fleet


def limit(fleet: Fleet, capacity: float, slots: int = 1) -> None:
    """Give the nodes so many bytes, and their devices so many slots."""
    nodes = {*fleet.cluster.space_of}
    fleet.cluster = dataclasses.replace(
        fleet.cluster,
        spaces=[
            dataclasses.replace(space, capacity=capacity if s in nodes else math.inf)
            for s, space in enumerate(fleet.cluster.spaces)
        ],
        devices=[dataclasses.replace(device, slots=slots) for device in fleet.cluster.devices],
    )


def most_bytes(trace: Trace, fleet: Fleet, jobs: Sequence[Job]) -> dict[str, float]:
    """Replayed from executions and transfers alone: for every node the most bytes of weights, of inputs
    from their transfer there (or their execution) on, and of what executions wrote.
    """
    runs, moves = trace.executions, trace.transfers
    names = [space.name for space in fleet.cluster.spaces]
    changes: dict[str, list[tuple[float, int, float]]] = {name: [] for name in names}

    def lies(space: str, begin: float, end: float, size: float) -> None:
        changes[space] += [(begin, 1, size), (end, 0, -size)]

    loaded: dict[tuple[str, str], float] = {}
    for row in range(len(runs["execution"])):
        members = trace.members["job"][trace.members["execution"] == row].tolist()
        space = names[fleet.cluster.space_of[int(runs["device"][row])]]
        start, finish = float(runs["start"][row]), float(runs["finish"][row])
        for job in members:
            key = (space, jobs[job].model)
            loaded[key] = min(loaded.get(key, math.inf), start)
            came = (moves["job"] == job) & (moves["tensor"] == 0)
            begin = float(moves["start"][came].min()) if came.any() else start
            if runs["operator"][row] == 0:
                lies(space, begin, finish, INTO)
            back = (moves["job"] == job) & (moves["tensor"] != 0)
            until = max(finish, *moves["finish"][back].tolist(), finish)
            parts = int(trace.meta["graphs"][int(trace.jobs["graph"][job])]["operators"].__len__())
            if runs["operator"][row] == parts - 1:
                lies(space, start, until, OUT)
            else:  # for the next part, which ends later
                after = (runs["job"] == runs["job"][row]) & (
                    runs["operator"] == runs["operator"][row] + 1
                )
                lies(space, start, float(runs["finish"][after].max(initial=finish)), 300)
    for (space, _), begin in loaded.items():
        lies(space, begin, math.inf, WEIGHTS)
    found = {}
    for space, rows in changes.items():
        total = most = 0.0
        for _, _, change in sorted(rows):
            total += change
            most = max(most, total)
        found[space] = most
    return found


@pytest.mark.parametrize("scheduler", BATCHING)
@pytest.mark.parametrize("fits", [1, 3, 5, 16])
def test_memory_for_exactly_b_serves_b_at_a_time(scheduler: str, fits: int) -> None:
    """Saturated throughput is ``B / (a + c B)`` for the B that fits, not for ``max_batch``."""
    a, c = 0.02, 0.01
    for spare in (0, INTO + OUT - 1):  # less than one more
        fleet = fleet_of([(a, c)], WEIGHTS + fits * (INTO + OUT) + spare)
        jobs = [fleet.job(0.0) for _ in range(240)]
        trace = fleet.run(jobs, scheduler, _memory="limited")
        assert np.bincount(trace.members["execution"]).tolist() == [fits] * (240 // fits)
        assert 240 / trace.makespan == pytest.approx(fits / (a + c * fits))
        served = WEIGHTS + fits * (INTO + OUT)
        assert most_bytes(trace, fleet, jobs)["node0"] == served
        # Of the rest one more input may lie there.
        assert trace.meta["peak_bytes"][0] == served + (INTO if spare else 0)


def test_inputs_that_come_from_elsewhere_leave_room_for_what_is_served() -> None:
    fleet = fleet_of([(0.02, 0.01)], WEIGHTS + 4 * (INTO + OUT), sources=1)
    jobs = [fleet.job(0.0, at="user0") for _ in range(40)]
    trace = fleet.run(jobs, "dynamic_batching", delay="10s", _memory="limited")
    assert np.bincount(trace.members["execution"]).tolist() == [4] * 10
    # Beyond the first four inputs none leaves before the first four are served.
    into = trace.transfers["destination"] == 0
    first = trace.executions["finish"].min()
    assert (trace.transfers["start"][into] < first).sum() == 4


def test_a_larger_memory_takes_the_next_inputs_while_it_serves() -> None:
    fleet = fleet_of([(0.02, 0.01)], 1e9, sources=1, latency=0.05)
    jobs = [fleet.job(0.0, at="user0") for _ in range(64)]

    def makespan(capacity: float) -> float:
        limit(fleet, capacity)
        return fleet.run(jobs, "task_groups", _memory="limited", max_batch=4).makespan

    tight, double = makespan(WEIGHTS + 4 * (INTO + OUT)), makespan(WEIGHTS + 4 * (2 * INTO + OUT))
    assert double < tight
    assert double == pytest.approx(makespan(1e9), rel=0.1)


@pytest.mark.parametrize("slots", [1, 3])
def test_every_slot_has_room_for_the_largest_batch(slots: int) -> None:
    fleet = fleet_of([(1.0, 0.0)], WEIGHTS + slots * 2 * (INTO + OUT), slots=slots)
    jobs = [fleet.job(0.0) for _ in range(12 * slots)]
    trace = fleet.run(jobs, "fcfs_batching", _memory="limited")
    assert np.bincount(trace.members["execution"]).tolist() == [2] * 6 * slots
    assert trace.makespan == 6.0


def test_weights_of_all_models_are_counted_once() -> None:
    fleet = fleet_of([(0.02, 0.01)] * 3, 3 * WEIGHTS + 4 * (INTO + OUT))
    rooms = node_rooms(
        Workload([fleet.job(0.0, m) for m in range(3)], fleet.batches), fleet.cluster, fleet.costs
    )
    assert rooms[0].fitting == {fleet.graphs[m][b] for m in range(3) for b in range(1, 5)}
    assert rooms[0].inputs == 4 * INTO


def test_what_is_written_is_counted_at_its_peak() -> None:
    # 300 bytes an item for the next part while it writes as many or 100: 600 at the most.
    assert activation_bytes(model("m", 2, parts=3), serial=True) == 2 * 600
    assert activation_bytes(model("m", 2, parts=3), serial=False) == 2 * 700
    fleet = fleet_of([(0.3, 0.3)], WEIGHTS + 2 * (INTO + 600), parts=3)
    trace = fleet.run([fleet.job(0.0) for _ in range(6)], "task_groups", _memory="limited")
    assert trace.meta["peak_bytes"][0] <= WEIGHTS + 2 * (INTO + 600)
    assert np.bincount(trace.members["execution"]).tolist() == [2] * 9


def test_what_stays_inside_a_whole_model_takes_room() -> None:
    fleet = fleet_of([(0.02, 0.01)], math.inf)
    parts = {b: coarsen(model("m0", b, parts=3)) for b in range(1, 17)}
    fleet.graphs = [{b: found.graph for b, found in parts.items()}]
    fleet.costs = CostTable(
        {g: GraphCosts(np.array([[0.02 + 0.01 * b]])) for b, g in fleet.graphs[0].items()}
    )
    fleet.batches = dict.fromkeys(fleet.graphs[0].values(), fleet.graphs[0])
    limit(fleet, WEIGHTS + 3 * (INTO + 600 + OUT))  # 300 read and 300 written, and the result
    trace = fleet.run([fleet.job(0.0) for _ in range(12)], "task_groups", _memory="limited")
    assert np.bincount(trace.members["execution"]).tolist() == [3] * 4
    assert occupancy(trace)[0].peak == WEIGHTS + 3 * (INTO + 600 + OUT)


REFUSED = [
    (
        WEIGHTS + INTO + OUT - 1,
        r"A request of 'm0' fits into no memory.*weights take 5.00 kB.*'node0'",
    ),
    (
        2 * WEIGHTS + INTO + OUT - 1,
        r"Memory space 'node0' has .*weights of the 2 models .* 10.0 kB.*fewer",
    ),
]


@pytest.mark.parametrize(("capacity", "message"), REFUSED)
def test_what_does_not_fit_alone_is_refused_before_the_run(capacity: float, message: str) -> None:
    fleet = fleet_of([(1.0, 1.0)] * 2, capacity)
    asked: list[int] = []
    scheduler = create("task_groups")
    scheduler.decide = lambda context: asked.append(1)  # type: ignore[method-assign]
    with pytest.raises(InvalidInput, match=message):
        simulate(
            Workload([fleet.job(0.0), fleet.job(0.0, 1)], fleet.batches),
            fleet.cluster,
            fleet.costs,
            scheduler,
            memory="limited",
        )
    assert not asked


def test_a_node_that_is_too_small_gets_no_requests() -> None:
    fleet = fleet_of([(1.0, 0.0)], 1e6, nodes=2, sources=1)
    spaces = list(fleet.cluster.spaces)
    spaces[0] = dataclasses.replace(spaces[0], capacity=WEIGHTS)
    fleet.cluster = dataclasses.replace(fleet.cluster, spaces=spaces, host=None)
    jobs = [fleet.job(0.1 * i, at="user0") for i in range(20)]
    trace = fleet.run(jobs, "task_groups", select="random", _memory="limited")
    assert set(trace.executions["device"].tolist()) == {1}


def test_batches_that_nobody_makes_need_not_fit() -> None:
    fleet = fleet_of([(1.0, 1.0)], WEIGHTS + 2 * (INTO + OUT))
    trace = fleet.run([fleet.job(0.0), fleet.job(0.0)], "fcfs", _memory="limited")
    assert trace.makespan == 4.0


def test_a_batch_stays_in_the_memory_space_of_its_inputs() -> None:
    from simulator.context.serving import BatchingContext
    from tests.simulator.serving.test_batching import Scripted

    fleet = fleet_of([(1.0, 1.0)], 1e6, nodes=2)

    def act(context: BatchingContext, _: int) -> None:
        context.place(context.tasks_of(context.batch([0, 1]))[0], 1)

    with pytest.raises(SchedulingError, match=r"'run0#0' of a batch .* 'node1', .* lie in 'node0'"):
        simulate(
            Workload([fleet.job(0.0), fleet.job(0.0)], fleet.batches),
            fleet.cluster,
            fleet.costs,
            Scripted(act),
            memory="limited",
        )


def test_models_that_clients_ask_for_later_count_as_well() -> None:
    fleet = fleet_of([(0.02, 0.01), (0.05, 0.0)], 2 * WEIGHTS + 2 * (INTO + OUT))
    clients = [[fleet.job(0.0), fleet.job(0.0, 1), fleet.job(0.0)] for _ in range(5)]
    loop = ClosedLoop(clients, fleet.batches)
    trace = simulate(loop, fleet.cluster, fleet.costs, create("task_groups"), memory="limited")
    assert (trace.jobs["status"] == "finished").all()
    assert len(trace.jobs["job"]) == 15
    assert trace.meta["peak_bytes"][0] <= 2 * WEIGHTS + 2 * (INTO + OUT)
    limit(fleet, WEIGHTS + INTO + OUT)
    with pytest.raises(InvalidInput, match="weights of the 2 models"):
        simulate(loop, fleet.cluster, fleet.costs, create("task_groups"), memory="limited")


@pytest.mark.parametrize("horizon", [0.05, 0.11, 0.3])
def test_a_run_that_ends_early_counts_what_never_came_in(horizon: float) -> None:
    fleet = fleet_of([(0.02, 0.01)], WEIGHTS + 3 * (INTO + OUT))
    jobs = [fleet.job(0.0) for _ in range(30)]
    trace = fleet.run(jobs, "task_groups", _memory="limited", _horizon=horizon)
    done = 3 * int(horizon / 0.05 + 1e-9)
    assert (trace.jobs["status"] == "finished").sum() == done
    assert (trace.jobs["status"] == "queued").sum() == 30 - done
    never = [job for job, moment in trace.meta["inputs_waited"] if moment is None]
    assert never == list(range(done + 3, 30))
    assert occupancy(trace)[0].peak <= WEIGHTS + 3 * (INTO + OUT)


def test_room_of_refused_requests_is_given_back() -> None:
    """Requests of a deadline that passes while they wait make room for those that came later."""
    fleet = fleet_of([(1.0, 0.0)], WEIGHTS + INTO + OUT)
    late = [fleet.job(0.0, deadline=1.5) for _ in range(5)]
    jobs = [*late, fleet.job(0.2)]
    trace = fleet.run(jobs, "edf", drop_late=True, _memory="limited")
    assert trace.jobs["status"].tolist() == ["finished", *["rejected"] * 4, "finished"]
    assert trace.jobs["finish"][-1] == 2.0


@settings(max_examples=examples(80), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scheduler=st.sampled_from([*BATCHING, "edf", "deadline_accuracy"]),
    count=st.integers(1, 40),
    nodes=st.integers(1, 3),
    sources=st.integers(0, 2),
    parts=st.integers(1, 3),
    slots=st.integers(1, 2),
    room=st.integers(1, 6),
    select=st.sampled_from(["home", "random", "least_loaded", "two_stage"]),
    packing=st.sampled_from([None, {"age": "20ms"}, {"size": "3kB", "eager": False}]),
    contention=st.sampled_from(["none", "fifo", "fair"]),
)
def test_no_space_ever_holds_more_than_it_can_and_all_are_served(
    seed: int,
    scheduler: str,
    count: int,
    nodes: int,
    sources: int,
    parts: int,
    slots: int,
    room: int,
    select: str,
    packing: dict[str, object] | None,
    contention: str,
) -> None:
    written = 300 * (parts - 1) + OUT  # at least what is there at once
    capacity = 2 * WEIGHTS + slots * room * (INTO + written) + int(seed % 900)
    fleet = fleet_of(
        [(0.02, 0.01), (0.05, 0.03)],
        capacity,
        nodes,
        sources,
        parts,
        slots,
        latency=0.005,
        bandwidth=1e5,
    )
    rng = np.random.default_rng(seed)
    places = [f"user{i}" for i in range(sources)] or ["node0"]
    jobs = [
        fleet.job(t, int(rng.integers(2)), str(rng.choice(places)), deadline=t + 100)
        for t in poisson(60, count, seed)
    ]
    trace = fleet.run(
        jobs, scheduler, select=select, packing=packing, _contention=contention, _memory="limited"
    )
    assert (trace.jobs["status"] == "finished").all()
    assert sorted({*trace.members["job"].tolist()}) == list(range(count))
    replayed = most_bytes(trace, fleet, jobs)
    lay = occupancy(trace)
    for number, space in enumerate(fleet.cluster.spaces):
        assert replayed[space.name] <= trace.meta["peak_bytes"][number] <= space.capacity
        assert lay[number].peak <= trace.meta["peak_bytes"][number]


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scheduler=st.sampled_from([*BATCHING, "edf", "deadline_accuracy"]),
    nodes=st.integers(1, 3),
    parts=st.integers(1, 3),
    select=st.sampled_from(["home", "random", "least_loaded", "two_stage"]),
    packing=st.sampled_from([None, {"size": "3kB", "eager": False}]),
    contention=st.sampled_from(["none", "fifo", "fair"]),
)
def test_enough_memory_changes_nothing(
    seed: int,
    scheduler: str,
    nodes: int,
    parts: int,
    select: str,
    packing: dict[str, object] | None,
    contention: str,
) -> None:
    fleet = fleet_of(
        [(0.02, 0.01), (0.05, 0.03)], math.inf, nodes, 2, parts, latency=0.005, bandwidth=1e5
    )
    rng = np.random.default_rng(seed)
    jobs = [
        fleet.job(t, int(rng.integers(2)), str(rng.choice(["user0", "user1", "node0"])))
        for t in poisson(40, 60, seed)
    ]

    def run(memory: str) -> Trace:
        return fleet.run(
            jobs, scheduler, select=select, packing=packing, _contention=contention, _memory=memory
        )

    one = run("unlimited")
    for capacity in (math.inf, 1e9):
        if select == "two_stage" and capacity < math.inf:
            continue  # it looks at the memory in use
        limit(fleet, capacity)
        two = run("limited")
        for table, columns in COLUMNS.items():
            for name in columns:
                assert getattr(one, table)[name].tolist() == getattr(two, table)[name].tolist()


def test_a_message_with_more_than_the_room_for_inputs_is_taken_apart() -> None:
    fleet = fleet_of([(0.02, 0.01)], WEIGHTS + 2 * (INTO + OUT), sources=1)
    jobs = [fleet.job(0.0, at="user0") for _ in range(6)]
    packing = {"size": "6kB", "eager": False, "age": "1s"}
    trace = fleet.run(jobs, "task_groups", packing=packing, _memory="limited", _contention="fifo")
    assert (trace.jobs["status"] == "finished").all()


def test_variants_share_a_node_with_the_model_that_was_asked_for() -> None:
    large, small = model("large", 1), model("small", 1, weights=2000.0)
    cluster = Cluster(
        "one",
        [MemorySpace("node", 5000 + 2000 + INTO + OUT), MemorySpace("user")],
        [Device("d", "node")],
        [Link("l", ("user", "node"), 1e9)],
    )
    costs = CostTable({large: GraphCosts(np.array([[2.0]])), small: GraphCosts(np.array([[1.0]]))})
    # There is room for one request at a time: 2 s, 2 s, and no more than 1.5 s for the third.
    jobs = [Job(large, 0.0, deadline=5.5, origin="user", destination="user") for _ in range(3)]
    workload = Workload(jobs, None, {large: [small]}, {large: 0.9, small: 0.7})
    trace = simulate(workload, cluster, costs, create("deadline_accuracy"), memory="limited")
    assert (trace.jobs["status"] == "finished").all()
    served = [trace.meta["graphs"][g]["name"] for g in trace.jobs["graph"].tolist()]
    assert sorted(served) == ["large", "large", "small"]
    assert trace.meta["peak_bytes"][0] <= 5000 + 2000 + INTO + OUT
    tight = dataclasses.replace(
        cluster,
        spaces=[
            dataclasses.replace(cluster.spaces[0], capacity=5000 + INTO + OUT),
            cluster.spaces[1],
        ],
    )
    with pytest.raises(InvalidInput, match=re.escape("the weights of the 2 models")):
        simulate(workload, tight, costs, create("deadline_accuracy"), memory="limited")
