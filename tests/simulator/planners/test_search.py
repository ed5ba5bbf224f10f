"""Searches for plans: optima, never worse than their seeds, moves that keep the order, faults, streams."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.instances import instance_from_json
from simulator.engine.evaluator import Evaluator, evaluable
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.plan import Plan
from simulator.model.weight_hit_curve import ReuseCurve
from simulator.model.workload import Job, Workload
from simulator.planners import moves
from simulator.schedulers import create
from simulator.schedulers._search import Problem, SearchPlanner
from tests.benchmarks.search import random_instance
from tests.examples import examples, one_in
from tests.simulator.strategies import Case, cases

ORACLES = Path(__file__).parents[2] / "oracles"
CERTIFIED: list[dict[str, Any]] = json.loads((ORACLES / "certified.json").read_text())
CLASSIC: dict[str, Any] = json.loads((ORACLES / "classic.json").read_text())
SEARCHES = ("annealing", "genetic")
INF = math.inf


def test_certified_optima() -> None:
    """What 2,000 evaluations find on certified instances: never less than the optimum, never more than
    HEFT, and nearly all of the optima (of the 30 HEFT finds 11, the best of the list plans that are the
    seeds 24; with other random numbers 30 and 29 were found).
    """
    reached, documents = dict.fromkeys(SEARCHES, 0), one_in(3, CERTIFIED, 1)
    for document in documents:
        graph, cluster, costs = instance_from_json(document)
        for name in SEARCHES:
            makespan = simulate(graph, cluster, costs, create(name, budget=2_000)).makespan
            assert document["optimum"] <= makespan <= document["heft"]
            reached[name] += makespan == document["optimum"]
    assert reached["genetic"] >= 0.93 * len(documents)
    assert reached["annealing"] >= 0.9 * len(documents)


def test_topcuoglu() -> None:
    """HEFT 80, optimum 73."""
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"])
    assert simulate(graph, cluster, costs, create("genetic")).makespan == 73


def believed(planner: SearchPlanner) -> list[float]:
    """Of every job the makespan that the plan was believed to have."""
    return [float(o.text.split(" -> ")[1].split(",")[0]) for o in planner.outcomes.values()]


@settings(max_examples=examples(60), deadline=None)
@given(
    case=cases(schedulers=("heft",), exact=True, weights=0),
    name=st.sampled_from(SEARCHES),
    budget=st.sampled_from([1, 5, 60]),
)
def test_one_job_is_never_later_than_any_seed(case: Case, name: str, budget: int) -> None:
    """On an idle cluster, as it happens: not later than HEFT (the first seed), and where the budget
    allows not later than any device alone.
    """
    job = case.workload.jobs[0]
    case.workload = Workload([job])
    found = case.run(create(name, budget=budget)).makespan
    assert found <= case.run(create("heft")).makespan
    if budget >= 60:
        seconds = case.costs[job.graph].seconds
        for number, device in enumerate(case.cluster.devices):
            if np.isfinite(seconds[:, number]).all():
                alone = create("single_device", device=device.name)
                assert found <= case.run(alone).makespan


def test_seeds_that_begin_at_once_queue_in_the_order_of_their_planning() -> None:
    """Two slots, two tasks that both wait for data until 5, as HEFT believes; t1, the longer one, is
    planned first and begins first. Over one link its data is there at 10, and t0 waits behind it.
    """
    graph = DataflowGraph(
        "late",
        [Operator(f"t{i}", "task") for i in range(2)],
        [Tensor("x", "input", 5.0), Tensor("y", "input", 5.0)],
        [[0], [1]],
        [[], []],
    )
    cluster = Cluster(
        "pool",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("d", "a", slots=2)],
        [Link("ab", ("a", "b"), 1.0)],
    )
    costs = CostTable.of(graph, np.array([[1.0], [3.0]]))
    workload = Workload([Job(graph, origin="b")])
    for name, budget in (("heft", {}), ("annealing", {"budget": 1})):
        scheduler = create(name, **budget)
        trace = simulate(workload, cluster, costs, scheduler, contention="fifo")
        assert trace.tasks["start"].tolist() == [10.0, 10.0]


class Listening(SearchPlanner):
    """Takes its best seed and keeps the problems."""

    name = "listening"

    def __init__(self) -> None:
        super().__init__(budget=1_000, seed=0)
        self.problems: list[Problem] = []

    def search(self, problem: Problem, rng: np.random.Generator) -> Plan:
        self.problems.append(problem)
        return problem.seeds[0]


@settings(max_examples=examples(60), deadline=None)
@given(
    case=cases(
        schedulers=("heft",), exact=True, weights=0, contentions=("none",), movements=("push",)
    )
)
def test_streams_run_as_planned(case: Case) -> None:
    """Without contention and with what is believed true, jobs planned behind and between one another
    run as planned, or sooner.
    """
    planner = Listening()
    trace = case.run(planner)
    tasks = trace.tasks
    for number, outcome in planner.outcomes.items():
        own = np.flatnonzero(tasks["job"] == number)
        for operator, (end, device, _, _) in outcome.choices:
            assert tasks["device"][own[operator]] == device
            assert tasks["finish"][own[operator]] <= end + 1e-9
    assert len(planner.problems) == len(case.workload.jobs)


def test_a_later_job_is_planned_behind_the_first_or_in_its_gaps() -> None:
    """P1: p 0-2; P2: q 4-10; P1: r 12-14, planned. A task of 2 s for P1 alone arrives at 3: in the gap
    it ends at 5, behind at 16. One of 9 s fits no gap.
    """
    chain = from_edges("chain", 3, [(0, 1, 2.0), (1, 2, 2.0)])
    short, long = from_edges("short", 1, []), from_edges("long", 1, [])
    costs = CostTable(
        {
            chain: GraphCosts(np.array([[2, INF], [INF, 6], [2, INF]])),
            short: GraphCosts(np.array([[2, INF]])),
            long: GraphCosts(np.array([[11, INF]])),
        }
    )
    cluster = fully_connected("pair", 2)
    for later, times, said in (
        (short, (3, 5), "heft 16 -> 16, heft in gaps 5 is taken"),
        (long, (14, 25), "heft 25 -> 25 ("),
    ):
        lines: list[str] = []
        workload = Workload([Job(chain), Job(later, 3.0)])
        planner = create("annealing", budget=100)
        trace = simulate(workload, cluster, costs, planner, explain=lines.append)
        assert (trace.tasks["start"][3], trace.tasks["finish"][3]) == times
        assert trace.tasks["finish"][:3].tolist() == [2, 10, 14]
        assert any(said in line for line in lines), lines


def test_explains_each_decision() -> None:
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"])
    lines: list[str] = []
    trace = simulate(graph, cluster, costs, create("genetic"), explain=lines.append)
    assert lines[0] == "job 0: heft 80 -> 73 (10000 evaluations)"
    tasks = trace.tasks
    expected = {
        f"t{i} -> {trace.devices[d]}: {s:.6g} to {f:.6g}"
        for i, (d, s, f) in enumerate(
            zip(tasks["device"], tasks["start"], tasks["finish"], strict=True)
        )
    }
    names = {line.split(" -> ")[0] for line in lines[1:]}
    assert len(names) == len(lines) - 1 == 10
    assert {line.split(" -> ")[1] for line in lines[1:]} == {
        line.split(" -> ")[1] for line in expected
    }


@pytest.mark.parametrize("name", SEARCHES)
def test_reproducible_and_seeded(name: str) -> None:
    """Same seed, same plan; of three seeds some differ."""
    _, graph, cluster, costs = random_instance(1)
    rows = []
    for seed in (0, 1, 2, 0):
        tasks = simulate(graph, cluster, costs, create(name, budget=1_500, seed=seed)).tasks
        rows.append((tasks["device"].tolist(), tasks["start"].tolist()))
    assert rows[0] == rows[-1]
    assert len({str(row) for row in rows}) > 1


@pytest.mark.parametrize("name", SEARCHES)
def test_the_budget_is_what_is_evaluated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, cluster, costs = instance_from_json(CERTIFIED[5])
    calls = []
    plain = Evaluator.evaluate

    def counting(self: Evaluator, device: Any, order: Any) -> float:
        calls.append(0)
        return plain(self, device, order)

    monkeypatch.setattr(Evaluator, "evaluate", counting)
    for budget in (1, 3, 50, 333):
        calls.clear()
        simulate(graph, cluster, costs, create(name, budget=budget))
        assert len(calls) == budget + 1  # the chosen one again, for its times


@pytest.mark.parametrize("movement", ["push", "pull"])
@pytest.mark.parametrize("contention", ["none", "fifo"])
@pytest.mark.parametrize("name", SEARCHES)
def test_what_was_found_is_what_happens(name: str, movement: str, contention: str) -> None:
    graph, cluster, costs = instance_from_json(CERTIFIED[11])
    planner = create(name, budget=300)
    assert isinstance(planner, SearchPlanner)
    trace = simulate(graph, cluster, costs, planner, movement=movement, contention=contention)
    (found,) = believed(planner)
    assert trace.makespan == pytest.approx(found, rel=1e-5)


def test_devices_of_other_ways_are_believed_plain() -> None:
    """Rates that are shared, fair links and late knowledge are believed away, not refused."""
    cluster = Cluster(
        "odd",
        [MemorySpace("a", corun_slowdown=0.1), MemorySpace("b")],
        [
            Device("x", "a", slots=2, sharing="processor", launch_overhead=0.5),
            Device("y", "b", completion_latency=0.25, issue_depth=2),
        ],
        [Link("ab", ("a", "b"), 1.0)],
    )
    graph = from_edges("fork", 4, [(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0)])
    costs = CostTable.of(graph, np.array([[1.0, 1.0]] * 4))
    for name in SEARCHES:
        trace = simulate(graph, cluster, costs, create(name, budget=50), contention="fair")
        assert trace.jobs["status"].tolist() == ["finished"]


@pytest.mark.parametrize("name", SEARCHES)
def test_what_a_fault_takes_goes_where_it_is_done_first(name: str) -> None:
    """Three tasks of 4 s on three devices; P1 breaks at 2 for good: its task goes behind another."""
    graph = from_edges("three", 3, [])
    cluster = fully_connected("three", 3)
    costs = CostTable.of(graph, np.full((3, 3), 4.0))
    faults = Faults([Fault("device_failure", "P1", 2.0)])
    trace = simulate(graph, cluster, costs, create(name, budget=200), faults=faults)
    assert trace.jobs["status"].tolist() == ["finished"]
    assert trace.makespan == 8
    # A device that is down at arrival gets nothing that others can run.
    late = Workload([Job(graph, 3.0)])
    trace = simulate(late, cluster, costs, create(name, budget=200), faults=faults)
    assert 0 not in trace.tasks["device"].tolist()
    assert trace.makespan == 11


def test_runs_of_the_same_beliefs_plan_once() -> None:
    graph, cluster, costs = instance_from_json(CERTIFIED[5])
    first, second = create("annealing", budget=200), create("annealing", budget=200)
    assert isinstance(first, SearchPlanner)
    simulate(graph, cluster, costs, first)
    second.recall(first)
    second.search = None  # type: ignore[method-assign, assignment]
    again = simulate(graph, cluster, costs, second)
    assert (
        again.makespan == simulate(graph, cluster, costs, create("annealing", budget=200)).makespan
    )
    with pytest.raises(TypeError):  # other times are another plan
        simulate(graph, cluster, CostTable.of(graph, 2 * costs[graph].seconds), second)


@settings(max_examples=examples(150), deadline=None)
@given(
    tasks=st.integers(1, 12), devices=st.integers(1, 4), seed=st.integers(0, 2**31), data=st.data()
)
def test_moves_keep_plans_possible(
    tasks: int, devices: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    edges = [(i, j, 1.0) for j in range(tasks) for i in range(j) if rng.random() < 0.3]
    graph = from_edges("random", tasks, edges)
    possible = rng.random((tasks, devices)) < 0.6
    possible[np.arange(tasks), rng.integers(0, devices, tasks)] = True
    able = _problem(graph, np.where(possible, 1.0, INF)).able
    rows = [
        part
        for csr in (able, graph.predecessors_csr, graph.successors_csr)
        for part in (csr.offsets, csr.values)
    ]
    plans = []
    for _ in range(2):
        device = np.array([rng.choice(np.flatnonzero(row)) for row in possible])
        order = np.arange(tasks)
        position = np.arange(tasks)
        undo = np.empty(moves.ROOM, dtype=np.int64)
        for _ in range(20):
            before = device.copy(), order.copy(), position.copy()
            moves.change(rng.random(moves.DRAWS), device, order, position, *rows, undo)
            _check(graph, possible, device, order, position)
            if rng.random() < 0.5:
                moves.take_back(device, order, position, undo)
                for one, other in zip(before, (device, order, position), strict=True):
                    assert one.tolist() == other.tolist()
        plans.append((device, order))
    device, order, position = (np.empty(tasks, dtype=np.int64) for _ in range(3))
    draw = np.array([data.draw(st.floats(0, 1, exclude_max=True)) for _ in range(2)])
    seen = np.empty(tasks, dtype=np.bool_)
    moves.cross(draw, *plans[0], *plans[1], device, order, position, seen)
    _check(graph, possible, device, order, position)
    cut = int(draw[0] * (tasks + 1))
    assert order[:cut].tolist() == plans[0][1][:cut].tolist()
    rest = [t for t in plans[1][1].tolist() if t not in order[:cut].tolist()]
    assert order[cut:].tolist() == rest


def _problem(graph: DataflowGraph, seconds: np.ndarray) -> Problem:
    return Problem(Job(graph), None, seconds, None, None, ())  # type: ignore[arg-type]


def _check(
    graph: DataflowGraph,
    possible: np.ndarray,
    device: np.ndarray,
    order: np.ndarray,
    position: np.ndarray,
) -> None:
    assert possible[np.arange(len(device)), device].all()
    assert sorted(order.tolist()) == list(range(len(order)))
    assert position[order].tolist() == list(range(len(order)))
    assert all(
        position[j] < position[i] for i, parents in enumerate(graph.predecessors) for j in parents
    )


def test_moves_reach_every_plan_of_a_small_graph() -> None:
    """A fork of three on two devices: 2^3 placements times 2 orders."""
    graph = from_edges("fork", 3, [(0, 1, 1.0), (0, 2, 1.0)])
    able = _problem(graph, np.ones((3, 2))).able
    rows = [
        part
        for csr in (able, graph.predecessors_csr, graph.successors_csr)
        for part in (csr.offsets, csr.values)
    ]
    device, order, position = np.zeros(3, dtype=np.int64), np.arange(3), np.arange(3)
    rng, undo = np.random.default_rng(0), np.empty(moves.ROOM, dtype=np.int64)
    seen = set()
    for _ in range(500):
        moves.change(rng.random(moves.DRAWS), device, order, position, *rows, undo)
        seen.add((*device.tolist(), *order.tolist()))
    assert len(seen) == 16


def test_clusters_that_cache_weights_or_launch_transfers_are_planned_on_plain_ones() -> None:
    """A search believes latencies to include launches, 1 + 2 * 0.5 s, and that nothing waits for a launcher."""
    spaces = [MemorySpace("a", cache=ReuseCurve((4.0,), (1.0,))), MemorySpace("b")]
    link = Link("ab", ("a", "b"), 1.0, 1.0, launcher="host", launch_overhead=0.5)
    cluster = Cluster("launched", spaces, [Device("A", "a"), Device("B", "b")], [link])
    plain = evaluable(cluster)
    assert plain.route(0, 1).latency == cluster.route(0, 1).latency == 2.0
    graph = from_edges("edge", 2, [(0, 1, 1.0)])
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [9.0, 1.0]]))
    assert Evaluator(graph, plain, costs).evaluate([0, 1], [0, 1]) == 1 + 3 + 1
    simulate(graph, cluster, costs, create("annealing", budget=20))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("genetic", {"budget": 0}, "'genetic' has budget 0; give an integer of at least 1"),
        (
            "annealing",
            {"budget": 1.5},
            "'annealing' has an option budget that is a whole number, not 1.5",
        ),
        ("annealing", {"seed": -1}, "'annealing' has seed -1; give an integer of at least 0"),
        ("annealing", {"hot": 0.001}, "hot 0.001 and cold 0.01; they must be positive"),
        ("genetic", {"population": 1}, "population 1; give an integer of at least 2"),
        ("genetic", {"crossover": 1.5}, "crossover 1.5; give a probability from 0 to 1"),
    ],
)
def test_options_that_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        create(name, **options)
