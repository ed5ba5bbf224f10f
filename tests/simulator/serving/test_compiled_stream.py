"""The compiled way of streams, beside the other one: the same figures to the last bit."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import stream_kernels as kernels
from simulator.closed_loop import ClosedLoop
from simulator.cluster import Cluster, Device, Link, MemorySpace
from simulator.compiled_stream import CompiledStream
from simulator.costs import CostTable, GraphCosts
from simulator.engine import simulate, simulate_stream
from simulator.errors import InvalidInput, SchedulingError
from simulator.graph import DataflowGraph, Operator, Tensor, from_edges
from simulator.noise import LogNormalNoise
from simulator.quantiles import Spread
from simulator.schedulers import create
from simulator.simulation import Setting
from simulator.stream import RequestBlock, RequestColumns, Stream
from simulator.streamed_figures import ModelTally, StreamedFigures
from simulator.whole_requests import covers
from simulator.workload import Job, Workload
from tests.examples import examples
from tests.simulator.serving.fleet import Fleet, poisson
from tests.simulator.serving.test_streaming import same_figures

MOST = 5
SCHEDULERS: list[tuple[str, dict[str, Any]]] = [
    ("task_groups", {}),
    ("task_groups", {"theta": 0.0, "max_batch": 3}),
    ("task_groups", {"theta": 2.0, "starve_after": "3s", "max_batch": MOST}),
    ("fcfs_batching", {"max_batch": 4}),
    ("fcfs_batching", {"max_batch": 1}),
    ("dynamic_batching", {"delay": "2s", "max_batch": 4}),
    ("dynamic_batching", {"delay": "500ms"}),
]
SELECTIONS: list[dict[str, Any]] = [
    {"name": "home"},
    {"name": "home", "move": True},
    {"name": "random", "move": True, "seed": 3},
    {"name": "round_robin", "move": True},
    {"name": "least_loaded", "move": True},
    {"name": "least_loaded", "seed": 5},
]


def whole(name: str, batch: int, inputs: int, outputs: int, size: float) -> DataflowGraph:
    """A model as one operator with weights, and one tensor more than it must deliver."""
    read = [Tensor(f"x{i}", "input", size * batch * (i + 1)) for i in range(inputs)]
    written = [Tensor(f"y{i}", "activation", size * batch / (i + 2)) for i in range(outputs + 1)]
    tensors = [Tensor("w", "weight", 9.0), *read, *written]
    return DataflowGraph(
        name,
        [Operator("run", "segment")],
        tensors,
        [list(range(inputs + 1))],
        [list(range(inputs + 1, len(tensors)))],
        [{"tensor": f"y{i}"} for i in range(outputs)],
        batch,
    )


@dataclass
class Case:
    """What a run needs."""

    cluster: Cluster
    costs: CostTable
    actual: CostTable | None
    batches: Mapping[DataflowGraph, Mapping[int, DataflowGraph]]
    jobs: list[Job] = field(default_factory=list)

    def workload(self) -> Workload:
        return Workload(self.jobs, self.batches)


@st.composite
def cases(draw: Any) -> Case:
    """Fleets and requests of whole numbers and halves, so that much happens at once."""
    nodes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    names = [f"node{i}" for i in range(len(nodes))]
    users = [f"user{i}" for i in range(draw(st.integers(0, 2)))]
    latency = draw(st.sampled_from([0.0, 0.0, 1.0]))
    bandwidth = draw(st.sampled_from([1.0, 4.0, 1e30, 3.7]))
    ends = [(user, names[0]) for user in users] + list(itertools.pairwise(names))
    devices = [(f"d{i}.{k}", name) for i, name in enumerate(names) for k in range(nodes[i])]
    devices = draw(st.permutations(devices))
    overhead = draw(st.sampled_from([0.0, 0.5]))
    cluster = Cluster(
        "random",
        [MemorySpace(name) for name in draw(st.permutations([*names, *users]))],
        [Device(name, space, launch_overhead=overhead) for name, space in devices],
        [
            Link(f"l{i}", pair, bandwidth, latency, half_duplex=draw(st.booleans()))
            for i, pair in enumerate(ends)
        ],
    )
    models: list[dict[int, DataflowGraph]] = []
    seconds, happens = {}, {}
    for m in range(draw(st.integers(1, 3))):
        shape = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
        size = draw(st.sampled_from([1.0, 2.0]))
        prepared = draw(st.sampled_from([[1, 2, 3, 4, 5], [1, 2, 4], [1, 3], [2, 4]]))
        models.append({batch: whole(f"m{m % 2}", batch, *shape, size) for batch in prepared})
        fixed, each = draw(st.sampled_from([(1.0, 0.5), (0.0, 1.0), (2.0, 0.1), (0.0, 0.0)]))
        able = draw(st.lists(st.booleans(), min_size=len(devices), max_size=len(devices)))
        reach = np.array([draw(st.sampled_from([MOST, MOST, 2])) for _ in devices])
        one = draw(st.integers(0, len(devices) - 1))  # that can run all
        able[one], reach[one] = True, MOST
        everywhere = np.array(able) | draw(st.sampled_from([True, True, False]))
        speed = np.array(
            draw(st.lists(st.sampled_from([1, 2]), min_size=len(able), max_size=len(able)))
        )
        for batch, graph in models[-1].items():
            row = (fixed + each * batch) / speed
            happens[graph] = GraphCosts((row + draw(st.sampled_from([0.0, 0.25])))[None, :])
            can = everywhere & (batch <= reach)
            seconds[graph] = GraphCosts(np.where(can, row, np.inf)[None, :])
    batches = {graph: graphs for graphs in models for graph in graphs.values()}
    actual = CostTable(happens) if draw(st.booleans()) else None
    case = Case(cluster, CostTable(seconds), actual, batches)
    arrival = 0.0
    places = st.sampled_from([None, *names, *users, *users])
    gaps = st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 0.3])
    for gap in draw(st.lists(gaps, min_size=1 if draw(st.booleans()) else 20, max_size=50)):
        arrival += gap
        m = draw(st.integers(0, len(models) - 1))
        after = draw(st.sampled_from([None, 1.0, 4.0]))
        sizes = [*models[m]]
        batch = draw(st.sampled_from([sizes[0], sizes[0], sizes[0], *sizes]))
        case.jobs.append(
            Job(
                models[m][batch],
                arrival,
                deadline=None if after is None else arrival + after,
                model=draw(st.sampled_from(["", f"model{m}"])),
                batch=batch,
                origin=draw(places),
                destination=draw(places),
            )
        )
    return case


def spread(of: Spread) -> dict[str, Any]:
    return {name: getattr(of, name) for name in Spread.__slots__}


def tally(of: ModelTally) -> tuple[Any, ...]:
    return of.on_time, of.rejected, spread(of.delays)


def state(run: StreamedFigures) -> dict[str, Any]:
    """All that figures hold, orders of mappings included."""
    found = dict(vars(run))
    for name in ("_here", "_early"):
        found[name] = [(model, tally(of)) for model, of in found[name].items()]
    for name in ("_successes", "graph_seconds"):
        found[name] = list(found[name].items())
    found["_queued"] = [
        (job.graph, job.arrival, job.deadline, job.model, job.origin) for job in run._queued
    ]
    found["wallclock"] = run.wallclock["decisions"]
    return found


def both(workload: Workload, case: Any, name: str, options: Any, **given: Any) -> StreamedFigures:
    """Both ways, held to each other; the figures of the compiled one."""
    runs = {}
    for way in ("general", "compiled"):
        scheduler = create(name, **options)
        runs[way] = simulate_stream(workload, case.cluster, case.costs, scheduler, way=way, **given)
    assert state(runs["compiled"]) == state(runs["general"])
    accuracies = {"m0": 0.5, "m1": 0.75}
    if runs["general"].end > given.get("warm_up", 0.0):
        assert runs["compiled"].serving(accuracies) == runs["general"].serving(accuracies)
        assert runs["compiled"].metrics() == runs["general"].metrics()
    return runs["compiled"]


@settings(deadline=None, max_examples=examples(300))
@given(
    cases(),
    st.sampled_from(SCHEDULERS),
    st.sampled_from(SELECTIONS),
    st.sampled_from([0.0, 1.0, 4.5]),
    st.sampled_from([None, 3.0, 10.25]),
    st.sampled_from(["none", "fifo"]),
)
def test_figures_are_those_of_the_other_way(
    case: Case,
    scheduler: tuple[str, dict[str, Any]],
    selection: dict[str, Any],
    warm_up: float,
    horizon: float | None,
    contention: str,
) -> None:
    name, options = scheduler
    options = {**options, "select": selection}
    run: dict[str, Any] = {"warm_up": warm_up, "horizon": horizon, "contention": contention}
    run["actual"] = case.actual
    able = all(np.isfinite(table.seconds).all() for table in case.costs.values())
    if name == "dynamic_batching" and not able:
        return  # not covered
    try:
        simulate_stream(
            case.workload(), case.cluster, case.costs, create(name, **options), way="general", **run
        )
    except (InvalidInput, SchedulingError, KeyError) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            simulate_stream(
                case.workload(),
                *(case.cluster, case.costs, create(name, **options)),
                way="compiled",
                **run,
            )
        return
    both(case.workload(), case, name, options, **run)


@settings(deadline=None, max_examples=30)
@given(
    cases(),
    st.sampled_from(SCHEDULERS[:5]),
    st.sampled_from(SELECTIONS),
    st.sampled_from([0.0, 2.0]),
)
def test_figures_are_those_of_the_trace(
    case: Case, scheduler: tuple[str, dict[str, Any]], selection: dict[str, Any], warm_up: float
) -> None:
    name, options = scheduler
    options = {**options, "select": selection}
    parts = (case.workload(), case.cluster, case.costs)
    try:
        trace = simulate(*parts, create(name, **options), actual=case.actual, way="general")
    except (InvalidInput, SchedulingError, KeyError):
        return
    if trace.end <= warm_up:
        warm_up = 0.0
    run = simulate_stream(
        *parts, create(name, **options), actual=case.actual, warm_up=warm_up, way="compiled"
    )
    serving = {name: value for name, value in run.serving().items() if name != "by_model"}
    assert serving["requests"] == len(case.jobs) or warm_up
    same_figures(run, trace, warm_up)


def many(count: int, rate: float = 150.0) -> tuple[Fleet, list[Job]]:
    """A fleet of two nodes, and Poisson requests of two models that cross to it."""
    fleet = Fleet([(0.01, 0.002), (0.02, 0.003)], (1.0, 1.5), sources=1, latency=1e-3)
    jobs = [fleet.job(t, n % 2, at="user0") for n, t in enumerate(poisson(rate, count))]
    return fleet, jobs


def stream_of(fleet: Fleet, jobs: list[Job], **rest: Any) -> Stream:
    return Stream(
        lambda: iter(jobs), [g for m in fleet.graphs for g in m.values()], fleet.batches, **rest
    )


def blocks(jobs: list[Job], sizes: Iterator[int]) -> tuple[list[Job], list[RequestBlock]]:
    """The same requests as kinds and blocks of these sizes, empty ones among them."""
    kinds = list({(job.graph, job.origin): job for job in jobs}.values())
    number = {(job.graph, job.origin): n for n, job in enumerate(kinds)}
    found, begin = [], 0
    while begin < len(jobs):
        part = jobs[begin : begin + next(sizes)]
        begin += len(part)
        found.append(
            RequestBlock(
                np.array([number[job.graph, job.origin] for job in part], dtype=np.int64),
                np.array([job.arrival for job in part]),
                np.full(len(part), np.inf),
            )
        )
    return kinds, found


@pytest.mark.parametrize("select", ["random", "round_robin", "least_loaded"])
@pytest.mark.parametrize("scheduler", ["task_groups", "fcfs_batching", "dynamic_batching"])
def test_more_requests_than_a_block(scheduler: str, select: str) -> None:
    fleet, jobs = many(10_000)
    options = {"select": select}
    run = both(stream_of(fleet, jobs), fleet, scheduler, options, contention="fifo")
    assert run.serving()["requests"] == 10_000
    assert run.serving()["mean_batch"] > 1.2


def test_blocks_end_within_an_instant() -> None:
    fleet = Fleet([(1.0, 0.5), (0.0, 1.0)], (1.0, 2.0), sources=1)
    jobs = [fleet.job(float(n // 7), n % 2, at="user0") for n in range(100)]
    kinds, found = blocks(jobs, itertools.cycle([1, 3, 0, 10]))
    columns = RequestColumns(kinds, lambda: found)
    options = {"select": "least_loaded"}
    for horizon in (None, 5.0):
        expected = both(stream_of(fleet, jobs), fleet, "task_groups", options, horizon=horizon)
        by_column = both(
            stream_of(fleet, jobs, columns=columns), fleet, "task_groups", options, horizon=horizon
        )
        assert state(by_column) == state(expected)


def test_tables_do_not_grow_with_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    write = CompiledStream._write_figures

    def watch(run: CompiledStream, *rest: Any) -> None:
        sizes.append(sum(array.nbytes for array in run._arrays.values()))
        write(run, *rest)

    monkeypatch.setattr(CompiledStream, "_write_figures", watch)
    for count in (20_000, 100_000):
        fleet, jobs = many(count)
        simulate_stream(
            stream_of(fleet, jobs),
            *(fleet.cluster, fleet.costs, create("dynamic_batching", select="random")),
            way="compiled",
        )
    assert sizes[1] < 1.05 * sizes[0]


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("below", [1, 2, 3, 20, 1000, 3 * 2**29, 2**31 - 1])
def test_numbers_are_drawn_as_by_numpy(below: int, seed: int) -> None:
    rng = np.random.default_rng([seed, 7])
    raw = np.random.default_rng([seed, 7]).bit_generator.random_raw(3000)
    words = np.column_stack([raw & 0xFFFFFFFF, raw >> 32]).ravel().astype(np.int64)
    header = np.zeros(kernels.HEADER, dtype=np.int64)
    header[kernels.WORDS] = len(words)
    header[kernels.WHOLE + kernels.TABLES.index("words")] = words.ctypes.data
    assert [kernels.draw(header, below) for _ in range(1000)] == [
        int(rng.integers(below)) for _ in range(1000)
    ]
    assert not header[kernels.ODD]


def test_what_is_not_covered_takes_the_other_way() -> None:
    fleet, jobs = many(50)
    fine = fleet.batches
    others: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("edf", {}, {}),
        ("fcfs", {}, {}),
        ("task_groups", {"upload_to": "node1"}, {}),
        ("task_groups", {"packing": {}}, {}),
        ("task_groups", {"by_priority": True}, {}),
        ("fcfs_batching", {"by_priority": True}, {}),
        ("task_groups", {"select": "power_of_two"}, {}),
        ("task_groups", {"select": {"name": "least_loaded", "period": 1.0}}, {}),
        ("task_groups", {}, {"contention": "fair"}),
        ("task_groups", {}, {"movement": "pull"}),
        ("task_groups", {}, {"actual": LogNormalNoise(0.1)}),
        ("task_groups", {}, {"explain": [].append}),
    ]
    for name, options, rest in others:
        parts = (Workload(jobs, fine), fleet.cluster, fleet.costs, create(name, **options))
        with pytest.raises(InvalidInput, match="in the way 'compiled'; possible: general"):
            simulate_stream(*parts, way="compiled", **rest)
    loop = ClosedLoop([jobs], fine)
    with pytest.raises(InvalidInput, match="possible: general"):
        simulate_stream(loop, fleet.cluster, fleet.costs, create("task_groups"), way="compiled")
    graph, costs, cluster = from_chain()
    with pytest.raises(InvalidInput, match="possible: general"):
        simulate_stream(
            Workload([Job(graph)]), cluster, costs, create("task_groups"), way="compiled"
        )
    compiled = (Workload(jobs, fine), fleet.cluster, fleet.costs, create("task_groups"))
    with pytest.raises(InvalidInput, match="in the way 'planned'; possible: "):
        simulate_stream(*compiled, way="planned")


def from_chain() -> tuple[DataflowGraph, CostTable, Cluster]:
    """A request of two tasks."""
    graph = from_edges("chain", 2, [(0, 1, 1.0)])
    cluster = Cluster("one", [MemorySpace("m")], [Device("d", "m")])
    return graph, CostTable.of(graph, np.ones((2, 1))), cluster


@pytest.mark.parametrize("slots", [1, 2])
def test_devices_of_several_slots_are_not_covered(slots: int) -> None:
    fleet = Fleet([(0.0, 1.0)])
    device = replace(fleet.cluster.devices[0], slots=slots)
    cluster = replace(fleet.cluster, devices=[device])
    setting = Setting(
        Workload([fleet.job(0.0)], fleet.batches), cluster, fleet.costs, create("edf")
    )
    assert not covers(setting)
    assert covers(replace(setting, scheduler=create("task_groups"))) == (slots == 1)


def test_what_the_other_way_refuses_is_refused_in_its_words() -> None:
    fleet = Fleet([(0.0, 0.01)])
    graphs = fleet.graphs[0]

    def run(jobs: list[Job], **options: Any) -> None:
        stream = Stream(lambda: jobs, graphs.values(), fleet.batches)
        simulate_stream(
            stream, fleet.cluster, fleet.costs, create("task_groups"), way="compiled", **options
        )

    unordered = [fleet.job(0.2), fleet.job(0.1)]
    with pytest.raises(InvalidInput, match=r"Job 1 arrives at 0.1 s, before job 0 at 0.2 s"):
        run(unordered)
    run(unordered, horizon=0.15)  # nobody sees it
    with pytest.raises(InvalidInput, match="origin 'moon', which is no memory space"):
        run([fleet.job(0.0), fleet.job(0.1, at="moon")])
    single = Stream(lambda: [fleet.job(0.0, size=2)], graphs.values(), {graphs[2]: {1: graphs[1]}})
    for way in ("general", "compiled"):
        with pytest.raises(SchedulingError, match="for which no batch is prepared"):
            simulate_stream(single, fleet.cluster, fleet.costs, create("task_groups"), way=way)


@pytest.mark.parametrize(
    ("kind", "arrival", "deadline"),
    [
        ([0, 1], [0.1, 0.2], [1.0, 1.0]),
        ([0, -1], [0.1, 0.2], [1.0, 1.0]),
        ([0], [0.1, 0.2], [1.0, 1.0]),
        ([0, 0], [0.2, 0.1], [1.0, 1.0]),
        ([0, 0], [0.1, 0.2], [0.05, 1.0]),
        ([0, 0], [0.1, math.nan], [1.0, 1.0]),
        ([0, 0], [-0.1, 0.2], [1.0, 1.0]),
        ([0, 0], [0.1, math.inf], [1.0, math.inf]),
    ],
)
def test_columns_that_cannot_be_are_not_believed(
    kind: list[int], arrival: list[float], deadline: list[float]
) -> None:
    fleet = Fleet([(0.0, 0.01)])
    jobs = [fleet.job(0.1, deadline=1.0), fleet.job(0.2, deadline=1.0)]
    block = RequestBlock(np.array(kind), np.array(arrival), np.array(deadline))
    columns = RequestColumns(jobs[:1], lambda: [block])
    expected = both(stream_of(fleet, jobs), fleet, "task_groups", {})
    run = both(stream_of(fleet, jobs, columns=columns), fleet, "task_groups", {})
    assert state(run) == state(expected)


def test_a_delay_beyond_all_bins_is_counted_in_the_other_way() -> None:
    fleet = Fleet([(1e-40, 0.0)])
    run = both(Workload([fleet.job(0.0)], fleet.batches), fleet, "task_groups", {})
    assert run.serving()["mean_delay_s"] == 1e-40


def test_numba_is_loaded_by_a_run_for_which_it_pays() -> None:
    """In a process of its own: not by short runs, nor by one whose length nobody knows."""
    program = """
import sys
from simulator import engine
from simulator.schedulers import create
from simulator.stream import Stream
from tests.simulator.serving.fleet import Fleet
fleet = Fleet([(0.0, 0.01)])
engine.PAYS_TO_COMPILE = 10_000
for number, length in enumerate([None, 1500, None, 1500, 2000]):
    jobs = [fleet.job(0.02 * n) for n in range(length or 100)]
    stream = Stream(lambda: jobs, fleet.graphs[0].values(), fleet.batches, length=length)
    engine.simulate_stream(stream, fleet.cluster, fleet.costs, create("task_groups"))
    assert ("simulator.stream_kernels" in sys.modules) == (number >= 4), number
    assert ("numba" in sys.modules) == (number >= 4), number
"""
    subprocess.run([sys.executable, "-c", program], check=True)
