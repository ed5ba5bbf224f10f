"""Tasks whose rate changes while they run: closed forms, and every execution's work added up."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.devices.shared_rate import SharedRates, fair_level
from simulator.engine.engine import Setting, Simulation
from simulator.engine.faults import Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Job, Workload
from tests.examples import examples
from tests.simulator.scripted import StaticPlan, WhenReady
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick


def alone(name: str, **device: object) -> Cluster:
    """One device with its memory."""
    return Cluster(name, [MemorySpace("m")], [Device("d", "m", **device)])  # type: ignore[arg-type]


def cores(**space: float) -> Cluster:
    """Two devices in one memory."""
    return Cluster("cores", [MemorySpace("m", **space)], [Device("A", "m"), Device("B", "m")])


def finishes(cluster: Cluster, times: list[float], devices: list[int]) -> list[float]:
    """Finishes of independent tasks that all start at 0."""
    graph = from_edges("independent", len(times), [])
    costs = CostTable.of(graph, np.repeat(np.array(times)[:, None], len(cluster.devices), axis=1))
    plan = StaticPlan([(device, 0.0) for device in devices])
    return simulate(graph, cluster, costs, plan).tasks["finish"].tolist()


# -- closed forms ---------------------------------------------------------------------------------


def test_processor_sharing_halves_the_rate_of_two() -> None:
    """4 s and 2 s: the short one has run 2 of 4 s when it ends, the other has 2 s left alone."""
    cluster = alone("ps", slots=2, sharing="processor")
    assert finishes(cluster, [4.0, 2.0], [0, 0]) == [6.0, 4.0]


def test_processor_sharing_admits_as_many_as_there_are_slots() -> None:
    """1 s each on two slots: the first two end at 2, the third runs alone from then on."""
    cluster = alone("ps", slots=2, sharing="processor")
    assert finishes(cluster, [1.0, 1.0, 1.0], [0, 0, 0]) == [2.0, 2.0, 3.0]


def test_the_launch_overhead_is_not_slowed() -> None:
    """1 s of overhead for both at once, then 2 s each at half the rate."""
    cluster = alone("ps", slots=2, sharing="processor", launch_overhead=1.0)
    assert finishes(cluster, [2.0, 2.0], [0, 0]) == [5.0, 5.0]


def test_co_run_slowdown_of_two_cores() -> None:
    """3 % while both run: 1.03 s, of which the longer one has done 1 s; the rest alone."""
    assert finishes(cores(corun_slowdown=0.03), [1.0, 2.0], [0, 1]) == pytest.approx(
        [1.03, 2.03], rel=1e-15
    )


def moving(*rows: tuple[float, float]) -> tuple[DataflowGraph, CostTable]:
    """Independent operators that each read an input of (bytes) and take (seconds)."""
    graph = DataflowGraph(
        "moving",
        [Operator(f"o{i}", "task") for i in range(len(rows))],
        [Tensor(f"i{i}", "input", size) for i, (size, _) in enumerate(rows)],
        [[i] for i in range(len(rows))],
        [[] for _ in rows],
    )
    seconds = np.array([[time, time] for _, time in rows])
    return graph, CostTable({graph: GraphCosts(seconds)})


def test_bandwidth_is_shared_max_min() -> None:
    """6 B/s and 2 B/s on 6 B/s: the small demand is met, the large one runs at 4/6 until t = 1."""
    graph, costs = moving((6.0, 1.0), (2.0, 1.0))
    plan = StaticPlan([(0, 0.0), (1, 0.0)])
    trace = simulate(graph, cores(bandwidth=6.0), costs, plan)
    assert trace.tasks["finish"].tolist() == pytest.approx([4 / 3, 1.0], rel=1e-15)
    # Enough for both: nobody is slowed, to the last bit.
    assert simulate(graph, cores(bandwidth=8.0), costs, plan).tasks["finish"].tolist() == [1, 1]


def test_a_task_alone_is_bound_by_the_bandwidth() -> None:
    """12 bytes cannot pass 6 B/s in 1 s."""
    graph, costs = moving((12.0, 1.0), (0.0, 3.0))
    trace = simulate(graph, cores(bandwidth=6.0), costs, StaticPlan([(0, 0.0), (1, 0.0)]))
    assert trace.tasks["finish"].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("demands", "capacity", "level"),
    [
        ([1.0, 2.0], 3.0, math.inf),
        ([5.0, 5.0], 6.0, 3.0),
        ([1.0, 5.0, 9.0], 9.0, 4.0),
        ([2.0, 2.0, 9.0], 7.0, 3.0),
        ([], 1.0, math.inf),
    ],
)
def test_fair_level(demands: list[float], capacity: float, level: float) -> None:
    assert fair_level(demands, capacity) == level


def test_an_interval_of_slowdown() -> None:
    """4 s of work, at a quarter of the rate from 1 s to 5 s: 1 + 1 done at 5, the rest until 7."""
    told: list[tuple[int, float]] = []
    shared = SharedRates(
        {0: MemorySpace("m")}, {0: 0.0}, {0: 0}, [], lambda _: 0.0, lambda *row: told.append(row)
    )
    shared.begin(0, 7, 4.0, 0.0)
    shared.settle(0.0)
    shared.set_factor(0, 0.25)
    shared.settle(1.0)
    shared.set_factor(0, 1.0)
    shared.settle(5.0)
    assert told == [(7, 4.0), (7, 13.0), (7, 7.0)]


def test_only_tasks_whose_rate_changes_are_timed_anew() -> None:
    told: list[int] = []
    shared = SharedRates(
        {0: MemorySpace("m")},
        {0: 0.0, 1: 0.0},
        {0: 0, 1: 0},
        [1],
        lambda _: 0.0,
        lambda task, _: told.append(task),
    )
    for task, device in enumerate((0, 1)):
        shared.begin(device, task, 4.0, 0.0)
    shared.settle(0.0)
    shared.begin(1, 2, 4.0, 1.0)
    shared.settle(1.0)
    assert told == [0, 1, 1, 2]
    # One leaves and one comes at once: the others keep their rate.
    told.clear()
    shared.end(2)
    shared.begin(1, 3, 4.0, 2.0)
    shared.settle(2.0)
    assert told == [3]


# -- queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["exponential", "deterministic"])
def test_processor_sharing_queue(service: str) -> None:
    """Poisson arrivals at load 0.6: the mean time in the system is E[S] / (1 - load) whatever the
    distribution of the service times (Kleinrock 1976, vol. 2, section 4.4).
    """
    rng = np.random.default_rng(11)
    count, load = 20_000, 0.6
    times = rng.exponential(1.0, count) if service == "exponential" else np.ones(count)
    arrivals = np.cumsum(rng.exponential(1.0 / load, count))
    graph = from_edges("task", 1, [])
    cluster = alone("queue", slots=10_000, sharing="processor")

    class Times:
        def __init__(self) -> None:
            self.left = iter(times.tolist())

        def realise(
            self,
            graph: DataflowGraph,
            costs: GraphCosts,
            rng: np.random.Generator,
            arrival: float,
        ) -> np.ndarray:
            return np.array([[next(self.left)]])

    workload = Workload([Job(graph, float(arrival)) for arrival in arrivals])
    costs = CostTable.of(graph, np.ones((1, 1)))
    trace = simulate(workload, cluster, costs, WhenReady([0]), actual=Times())
    spent = (trace.jobs["finish"] - trace.jobs["arrival"])[2000:]
    assert spent.mean() == pytest.approx(1.0 / (1.0 - load), rel=0.05)


# -- every run ------------------------------------------------------------------------------------


@st.composite
def sharing_cases(draw: st.DrawFn) -> Case:
    """Runs on clusters whose devices and memories share."""
    case = draw(cases(contentions=("none",)))
    cluster = case.cluster
    spaces = []
    for space in cluster.spaces:
        kind = draw(st.sampled_from(["none", "bandwidth", "slowdown"]))
        spaces.append(
            dataclasses.replace(
                space,
                bandwidth=draw(st.sampled_from([0.5, 3.0, 20.0])) if kind == "bandwidth" else None,
                corun_slowdown=draw(st.sampled_from([0.03, 1.0])) if kind == "slowdown" else 0.0,
                bus=None if kind == "bandwidth" else draw(st.sampled_from([None, "x", "y"])),
            )
        )
    devices = [
        dataclasses.replace(d, sharing=draw(st.sampled_from(["slots", "processor"])))
        for d in cluster.devices
    ]
    case.cluster = dataclasses.replace(cluster, spaces=spaces, devices=devices)
    return case


@settings(quick, max_examples=examples(150))
@given(sharing_cases())
def test_rates_add_up_to_the_work(case: Case) -> None:
    """From the trace and the definition of the rates alone: the integral of a task's rate from its
    start on, overhead first, is its seconds at full rate.
    """
    trace = case.run()
    rows = trace.executions
    devices, spaces = case.cluster.devices, case.cluster.spaces
    actual = case.actual_seconds()
    tasks = []
    for j, o, d, start, finish in zip(
        *(rows[k].tolist() for k in ("job", "operator", "device", "start", "finish")), strict=True
    ):
        graph = case.workload.jobs[j].graph
        moved = sum(graph.tensors[t].bytes for t in (*graph.reads[o], *graph.writes[o]))
        seconds = float(actual[j][o, d])
        if start < finish:  # those that take no time are over before anybody is slowed
            tasks.append((d, start, finish, seconds, moved / seconds if seconds else 0.0))
    done = [0.0] * len(tasks)
    moments = sorted(
        {
            m
            for d, start, finish, *_ in tasks
            for m in (start, finish, start + devices[d].launch_overhead)
        }
    )
    for begin, end in itertools.pairwise(moments):
        running = [i for i, t in enumerate(tasks) if t[1] <= begin and end <= t[2]]
        for i in running:
            d, start, _, _, demand = tasks[i]
            if begin < start + devices[d].launch_overhead:
                continue

            def given_rate(k: int) -> float:
                device = tasks[k][0]
                if devices[device].sharing == "slots":
                    return 1.0
                return 1.0 / sum(tasks[m][0] == device for m in running)  # noqa: B023

            memory = spaces[case.cluster.space_index[devices[d].space]]

            def slows(k: int) -> bool:
                other = spaces[case.cluster.space_index[devices[tasks[k][0]].space]]
                own = other.name == memory.name  # noqa: B023
                return own or (other.bus is not None and other.bus == memory.bus)  # noqa: B023

            beside = [k for k in running if slows(k)]
            rate = given_rate(i)
            rate /= 1 + memory.corun_slowdown * (len(beside) - 1)
            if memory.bandwidth is not None and demand:
                # Water-filling by bisection, another way than the engine's.
                wants = [given_rate(k) * tasks[k][4] for k in beside]
                low, high = 0.0, max(wants)
                for _ in range(100):
                    level = (low + high) / 2
                    if sum(min(w, level) for w in wants) > memory.bandwidth:
                        high = level
                    else:
                        low = level
                rate *= min(1.0, high / (given_rate(i) * demand))
            assert 0 < rate <= 1
            done[i] += rate * (end - begin)
    assert done == pytest.approx([t[3] for t in tasks], rel=1e-9, abs=1e-9)
    # Nobody is faster than alone.
    for d, start, finish, seconds, _ in tasks:
        assert finish - start >= devices[d].launch_overhead + seconds - 1e-9


def simulate_generally(case: Case) -> Trace:
    """At constant rates."""
    return case.run()


def paced(setting: Setting) -> Simulation:
    """A run in which every device could be slowed, and none is."""
    with pytest.MonkeyPatch.context() as patch:
        everyone = set(range(len(setting.cluster.devices)))
        patch.setattr(Faults, "slowed", lambda faults, cluster: everyone)
        return Simulation(setting)


@settings(quick, max_examples=examples(150))
@given(cases())
def test_where_nobody_is_slowed_the_trace_is_the_same(case: Case) -> None:
    setting = Setting(
        case.workload,
        case.cluster,
        case.costs,
        case.scheduler(),
        case.actual,
        case.movement,
        case.contention,
        case.seed,
    )
    slowed, constant = paced(setting).run(), simulate_generally(case)
    for table, columns in COLUMNS.items():
        for column in columns:
            found, expected = getattr(slowed, table)[column], getattr(constant, table)[column]
            assert np.array_equal(found, expected), (table, column)


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "device", "message"),
    [
        ({"bandwidth": 0.0}, {}, "Memory space 'm' has a bandwidth of 0.0 B/s"),
        ({"corun_slowdown": -0.1}, {}, "Memory space 'm' has corun_slowdown -0.1; give the"),
        ({"corun_slowdown": math.nan}, {}, "Memory space 'm' has corun_slowdown nan"),
        ({"bandwidth": 1.0, "corun_slowdown": 0.1}, {}, "two models of the same thing"),
        (
            {"bandwidth": 1.0, "bus": "host"},
            {},
            "Memory space 'm' has a bandwidth.*shares bus 'host'",
        ),
        ({}, {"sharing": "time"}, "Device 'd' has sharing 'time'; known: slots, processor"),
    ],
)
def test_refused(space: dict[str, float], device: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Cluster("c", [MemorySpace("m", **space)], [Device("d", "m", **device)], [])  # type: ignore[arg-type]


def test_memories_of_one_bus() -> None:
    """Each is slowed by its own fraction for each busy slot of both: A and B need 1 s, C of a third memory too."""
    cluster = Cluster(
        "host",
        [
            MemorySpace("ram", corun_slowdown=0.5, bus="host"),
            MemorySpace("vram", corun_slowdown=0.25, bus="host"),
            MemorySpace("other", corun_slowdown=0.5),
        ],
        [Device("A", "ram"), Device("B", "vram"), Device("C", "other")],
        [Link("ab", ("ram", "vram"), 1.0), Link("ac", ("ram", "other"), 1.0)],
    )
    assert cluster.buses == ((0, 1), (2,))
    graph = from_edges("three", 3, [])
    costs = CostTable.of(graph, np.ones((3, 3)))
    trace = simulate(graph, cluster, costs, StaticPlan([(0, 0.0), (1, 0.0), (2, 0.0)]))
    # B ends at 1.25, when A has done 1.25 / 1.5 of its second, and has the rest alone.
    assert trace.tasks["finish"].tolist() == pytest.approx([1.25 + 1 / 6, 1.25, 1.0])


def test_links_and_shares_together() -> None:
    """A transfer reaches a slowed device: 2 s of A, 3 bytes, then 1 s of B at half the rate."""
    cluster = Cluster(
        "two",
        [MemorySpace("a"), MemorySpace("b", corun_slowdown=1.0)],
        [Device("A", "a"), Device("B", "b"), Device("C", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    graph = from_edges("pair", 3, [(0, 1, 3.0)])
    costs = CostTable.of(graph, np.array([[2.0] * 3, [1.0] * 3, [6.0] * 3]))
    trace = simulate(graph, cluster, costs, StaticPlan([(0, 0.0), (1, 1.0), (2, 0.0)]))
    # C alone until 5, both at 1/2 until C has done its 6 s and B its 1 s: at 7.
    assert trace.tasks["finish"].tolist() == [2.0, 7.0, 7.0]
