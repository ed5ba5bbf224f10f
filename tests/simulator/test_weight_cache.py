"""Weights that lie in the cache: by hand, and every execution's share recounted from the trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.bounds import workload_bound
from simulator.devices.weight_cache import WeightCaches, shortest
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.segments import coarsen
from simulator.model.trace import Trace
from simulator.model.weight_hit_curve import ReuseCurve
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.scripted import StaticPlan

LEFT = 0.25


def chain(
    uses: Sequence[Sequence[int]],
    sizes: Sequence[float],
    name: str = "chain",
    written: float = 0.0,
    kinds: Sequence[str] | None = None,
) -> DataflowGraph:
    """Operators one after the other; each reads weights by number."""
    count = len(uses)
    tensors = [Tensor("x", "input", 1.0)]
    tensors += [Tensor(f"a{i}", "activation", written) for i in range(count)]
    tensors += [Tensor(f"w{i}", "weight", size) for i, size in enumerate(sizes)]
    reads = [[*(1 + count + w for w in row), i] for i, row in enumerate(uses)]
    return DataflowGraph(
        name,
        [Operator(f"o{i}", kinds[i] if kinds else "task") for i in range(count)],
        tensors,
        reads,
        [[1 + i] for i in range(count)],
        [{"tensor": f"a{count - 1}"}],
    )


def shared(curve: ReuseCurve | None, devices: int = 1, launches: int = 1) -> Cluster:
    """Devices of one memory and cache."""
    names = [Device(f"d{i}", "m", launches=launches) for i in range(devices)]
    return Cluster("cluster", [MemorySpace("m", cache=curve)], names)


def times(*graphs: DataflowGraph, devices: int = 1, left: float = LEFT) -> CostTable:
    """A second each, ``left`` of it with cached weights."""
    return CostTable(
        {
            g: GraphCosts(np.ones((len(g), devices)), cached=np.full((len(g), devices), left))
            for g in graphs
        }
    )


def lengths(trace: Trace) -> list[float]:
    """Of executions in the order in which they began."""
    order = np.lexsort((trace.tasks["device"], trace.tasks["start"]))
    return (trace.tasks["finish"] - trace.tasks["start"])[order].round(12).tolist()


def alone(graph: DataflowGraph, curve: ReuseCurve) -> list[float]:
    return lengths(simulate(graph, shared(curve), times(graph), create("fcfs")))


# -- by hand --------------------------------------------------------------------------------------


def test_two_weights_in_turn_fit_or_do_not() -> None:
    """Own 4 bytes and the other's 4: both are kept from distance 8 on, neither below."""
    graph = chain([[0], [1], [0], [1]], [4.0, 4.0])
    assert alone(graph, ReuseCurve((8.0,), (1.0,))) == [1.0, 1.0, LEFT, LEFT]
    assert alone(graph, ReuseCurve((7.9,), (1.0,))) == [1.0] * 4


def test_a_weight_counts_once_however_often_it_was_used() -> None:
    graph = chain([[0], [1], [1], [1], [0]], [4.0, 4.0])
    assert alone(graph, ReuseCurve((8.0,), (1.0,))) == [1.0, 1.0, LEFT, LEFT, LEFT]


def test_what_is_written_counts_every_time() -> None:
    """Two executions write 3 bytes each between the first and the last use of 4: distance 10."""
    graph = chain([[0], [], [0]], [4.0], written=3.0)
    assert alone(graph, ReuseCurve((10.0,), (1.0,)))[2] == LEFT
    assert alone(graph, ReuseCurve((9.9,), (1.0,)))[2] == 1.0


def test_shares_lie_on_the_line_between_points_and_are_averaged_by_bytes() -> None:
    """At distance 12 half is kept; of 4 + 8 bytes only the 4 were ever used."""
    curve = ReuseCurve((8.0, 16.0), (1.0, 0.0))
    one = alone(chain([[0], [1], [0]], [4.0, 8.0]), curve)
    assert one[2] == pytest.approx(1 - 0.5 * (1 - LEFT))
    two = alone(chain([[0], [0, 1]], [4.0, 8.0]), curve)
    assert two[1] == pytest.approx(1 - 0.5 * (1 - LEFT) * 4 / 12)


def test_a_use_leaves_a_part_of_what_it_did_not_find() -> None:
    """Half of what is missing: 0, 1/2, 3/4, 7/8 are found."""
    curve = ReuseCurve((8.0,), (1.0,), taken=(0.5,))
    found = alone(chain([[0]] * 4, [4.0]), curve)
    assert found == pytest.approx([1 - share * (1 - LEFT) for share in (0, 1 / 2, 3 / 4, 7 / 8)])


def test_every_launch_is_a_use_and_the_first_says_what_is_found() -> None:
    """Three leave 7/8 of what is missing."""
    graph = chain([[0]] * 3, [4.0])
    cluster = shared(ReuseCurve((8.0,), (1.0,), taken=(0.5,)), launches=3)
    found = lengths(simulate(graph, cluster, times(graph), create("fcfs")))
    assert found == pytest.approx([1 - share * (1 - LEFT) for share in (0, 7 / 8, 63 / 64)])


def test_a_cache_that_takes_little_at_first_has_most_after_the_second_use() -> None:
    """0, .1, .1 + .9 * .8 and .82 + .18 * .5 are found."""
    curve = ReuseCurve((8.0,), (1.0,), taken=(0.1, 0.8, 0.5))
    found = alone(chain([[0]] * 4, [4.0]), curve)
    assert found == pytest.approx([1 - share * (1 - LEFT) for share in (0, 0.1, 0.82, 0.91)])


@pytest.mark.parametrize("taken", [(0.25,), (0.1, 0.5)])
def test_what_is_used_again_and_again_comes_to_what_the_curve_says(taken) -> None:
    """Two weights in turn at distance 12, where .6 is kept; a third drives them out once."""
    curve = ReuseCurve((8.0, 13.0), (1.0, 0.5), taken=taken)
    settled = 1 - curve.share(12.0) * (1 - LEFT)
    turns = [[0], [1]] * 40
    found = alone(chain([*turns, [2], *turns], [6.0, 6.0, 20.0]), curve)
    assert found[78:80] == pytest.approx([settled, settled], abs=1e-6)
    assert found[80:83] == [1.0, 1.0, 1.0]
    assert found[83] > settled + 0.2
    assert found[-1] == pytest.approx(settled, abs=1e-6)


def test_operators_that_save_nothing_take_their_time() -> None:
    graph = chain([[0], [0]], [4.0])
    cluster = shared(ReuseCurve((8.0,), (1.0,)))
    costs = CostTable.of(graph, np.ones((2, 1)))
    assert lengths(simulate(graph, cluster, costs, create("fcfs"))) == [1.0, 1.0]


def test_tables_that_are_looked_up_neither_stay_nor_drive_out() -> None:
    curve = ReuseCurve((8.0,), (1.0,))
    sizes = [4.0, 1000.0]
    assert alone(chain([[0], [1], [0]], sizes), curve) == [1.0, 1.0, 1.0]
    kinds = ("task", "embedding", "task")
    assert alone(chain([[0], [1], [0]], sizes, kinds=kinds), curve) == [1.0, 1.0, LEFT]


def test_jobs_of_one_model_find_each_others_weights() -> None:
    graph = chain([[0]], [4.0])
    other = chain([[0]], [4.0], name="another")
    curve = ReuseCurve((8.0,), (1.0,))
    for second, expected in ((graph, [1.0, LEFT]), (other, [1.0, 1.0])):
        trace = simulate(
            Workload([Job(graph, arrival=0.0), Job(second, arrival=0.0)]),
            shared(curve),
            times(graph, other),
            create("fcfs"),
        )
        assert lengths(trace) == expected


def test_devices_share_the_cache_of_their_memory_alone() -> None:
    graph = chain([[0], [0]], [4.0])
    curve = ReuseCurve((8.0,), (1.0,))
    plan = StaticPlan([(0, 0.0), (1, 0.0)])
    together = simulate(graph, shared(curve, 2), times(graph, devices=2), plan)
    assert lengths(together) == [1.0, LEFT]
    apart = Cluster(
        "apart",
        [MemorySpace("m", cache=curve), MemorySpace("n", cache=curve)],
        [Device("d", "m"), Device("e", "n")],
        [Link("l", ("m", "n"), 1e9)],
    )
    plan = StaticPlan([(0, 0.0), (1, 0.0)])
    assert lengths(simulate(graph, apart, times(graph, devices=2), plan)) == [1.0, 1.0]


def test_segments_save_what_their_operators_save() -> None:
    """Of 1 s and 3 s, .25 and .5 are left: 1.75 of 4."""
    graph = chain([[0], [1]], [4.0, 4.0])
    costs = GraphCosts(np.array([[1.0], [3.0]]), cached=np.array([[0.25], [0.5]]))
    assert coarsen(graph, [0]).costs(costs).cached == pytest.approx(np.array([[1.75 / 4]]))


def test_launching_within_a_segment_is_not_saved() -> None:
    """Of 1 s, 3 s and a second launch of 2 s all but 1.75 s and the launch are saved: 3.75 of 6 are left."""
    graph = chain([[0], [1]], [4.0, 4.0])
    costs = GraphCosts(np.array([[1.0], [3.0]]), cached=np.array([[0.25], [0.5]]))
    found = coarsen(graph, [0]).costs(costs, np.array([2.0]))
    assert found.seconds.tolist() == [[6.0]]
    assert found.cached == pytest.approx(np.array([[3.75 / 6]]))


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_a_segments_weights_are_as_far_away_as_its_operators(segments: int) -> None:
    """Between two jobs lie 12 bytes of weights and what three operators write, whoever else reads that."""
    fine = chain([[0], [1], [2]], [4.0, 4.0, 4.0], written=3.0)
    parts = coarsen(fine, segments)
    costs = CostTable({parts.graph: parts.costs(times(fine)[fine])})
    for reach, left in ((21.0, LEFT), (20.9, 1.0)):
        cluster = shared(ReuseCurve((reach,), (1.0,)))
        jobs = Workload([Job(parts.graph), Job(parts.graph, arrival=100.0)])
        trace = simulate(jobs, cluster, costs, create("fcfs"))
        found = lengths(trace)
        assert sum(found[:segments]) == pytest.approx(3.0)
        assert sum(found[segments:]) == pytest.approx(3.0 * left)


def test_the_scheduler_believes_in_the_time_from_memory() -> None:
    """Two equal devices, one in a space with a cache: MCT goes by what it believes, not by what it saw."""
    graph = chain([[0], [0], [0]], [4.0])
    cluster = shared(ReuseCurve((8.0,), (1.0,)), 2)
    trace = simulate(graph, cluster, times(graph, devices=2), create("mct"))
    assert trace.makespan == 1.0 + 2 * LEFT


@pytest.mark.parametrize(
    ("distances", "kept"),
    [((), ()), ((1.0,), ()), ((2.0, 1.0), (1.0, 0.5)), ((1.0, 2.0), (0.5, 1.0)), ((1.0,), (2.0,))],
)
def test_what_is_no_curve_is_refused(distances, kept) -> None:
    with pytest.raises(InvalidInput, match="reuse curve"):
        ReuseCurve(distances, kept)


@pytest.mark.parametrize("taken", [(), (0.0,), (0.5, -0.1), (1.1,), (float("nan"),)])
def test_what_is_no_share_taken_is_refused(taken) -> None:
    with pytest.raises(InvalidInput, match="taken="):
        ReuseCurve((1.0,), (1.0,), taken)


# -- recounted --------------------------------------------------------------------------------------


@st.composite
def runs(draw: st.DrawFn) -> tuple[DataflowGraph, Cluster, CostTable, StaticPlan, int]:
    count = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1, 9).map(float), min_size=count, max_size=count))
    uses = draw(
        st.lists(
            st.lists(st.integers(0, count - 1), unique=True, max_size=2), min_size=1, max_size=9
        )
    )
    graph = chain(uses, sizes, written=float(draw(st.integers(0, 4))))
    points = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=3)))
    shares = sorted(draw(st.lists(st.floats(0, 1), min_size=len(points), max_size=len(points))))
    taken = draw(st.sampled_from([(1.0,), (0.6,), (0.1,), (0.1, 0.7), (0.05, 0.6, 0.9)]))
    curve = ReuseCurve(tuple(map(float, points)), tuple(reversed(shares)), taken)
    devices = draw(st.integers(1, 3))
    plan = StaticPlan([(draw(st.integers(0, devices - 1)), 0.0) for _ in uses])
    left = draw(st.floats(0.1, 1.0))
    jobs = draw(st.integers(1, 3))
    launches = draw(st.sampled_from([1, 1, 3]))
    return (
        graph,
        shared(curve, devices, launches),
        times(graph, devices=devices, left=left),
        plan,
        jobs,
    )


@settings(max_examples=examples(200), deadline=None)
@given(runs())
def test_every_execution_takes_what_its_distances_say(run) -> None:
    """The distance of a weight: own bytes, distinct others used since, and all that was written. What survives that is
    counted by how many uses in a row a part of it has had: of those that were driven out at one use, at another ...
    """
    graph, cluster, costs, plan, jobs = run
    workload = Workload([Job(graph, arrival=0.0) for _ in range(jobs)])
    trace = simulate(workload, cluster, costs, plan)
    curve = cluster.spaces[0].cache
    assert curve is not None
    tasks = trace.tasks
    order = np.lexsort((tasks["device"], tasks["start"])).tolist()
    weights = set(graph.weights)
    sizes = graph.tensor_bytes
    launches, last_share = cluster.devices[0].launches, len(curve.taken) - 1
    # Of each weight, parts: how much of it, uses since it was driven out, how much of that is cached.
    parts: dict[int, list[tuple[float, int, float]]] = {}
    seen: list[tuple[set[int], float]] = []  # weights that each read, bytes that it wrote
    for row in order:
        operator = int(tasks["operator"][row])
        own = {t for t in graph.reads[operator] if t in weights}
        kept = 0.0
        for weight in own:
            last = max((i for i, (used, _) in enumerate(seen) if weight in used), default=None)
            if last is not None:
                others = set().union(*(used for used, _ in seen[last + 1 :])) - own
                written = sum(size for _, size in seen[last:])
                survives = curve.survival(sizes[[*own, *others]].sum() + written)
                left = parts[weight]
                stays = [(size * survives, uses, cached) for size, uses, cached in left]
                parts[weight] = [*stays, (1 - survives, 0, 0.0)]
            else:
                parts[weight] = [(1.0, 0, 0.0)]
            kept += sizes[weight] * sum(size * cached for size, _, cached in parts[weight])
            for _ in range(launches):
                parts[weight] = [
                    (size, uses + 1, cached + (1 - cached) * curve.taken[min(uses, last_share)])
                    for size, uses, cached in parts[weight]
                ]
        share = kept / sizes[list(own)].sum() if own else 0.0
        left = float(costs[graph].cached[operator, 0])
        length = tasks["finish"][row] - tasks["start"][row]
        assert length == pytest.approx(1 - share * (1 - left), abs=1e-9)
        seen.append((own, float(sizes[list(graph.writes[operator])].sum())))


@settings(max_examples=examples(100), deadline=None)
@given(runs())
def test_no_run_is_shorter_than_the_bound(run) -> None:
    graph, cluster, costs, plan, jobs = run
    workload = Workload([Job(graph, arrival=0.0) for _ in range(jobs)])
    least = shortest(costs, workload, cluster)
    bound = workload_bound(workload, least, cluster).bound_s
    assert simulate(workload, cluster, costs, plan).makespan >= bound * (1 - 1e-9)
    # What nothing else reads costs its whole time.
    readers = [len(graph.consumers[t]) for t in range(len(graph.tensors))]
    for operator, row in enumerate(graph.reads):
        if jobs == 1 and all(t not in graph.weights or readers[t] == 1 for t in row):
            assert (least[graph].seconds[operator] == costs[graph].seconds[operator]).all()


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), max_size=3, unique=True), min_size=1, max_size=12),
    st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=5, max_size=5),
    st.integers(1, 3),
)
def test_what_would_be_found_is_what_a_use_then_finds(
    uses: list[list[int]], sizes: list[float], launches: int
) -> None:
    """Asked as often as one likes, and of all operators before each use."""
    graph = chain(uses, sizes, written=0.5)
    curve = ReuseCurve((4.0, 12.0), (1.0, 0.0), (0.5,))
    caches = WeightCaches(shared(curve, launches=launches))
    for operator in range(len(graph)):
        asked = [caches.kept(graph, other, 0) for other in range(len(graph))]
        assert asked == [caches.kept(graph, other, 0) for other in range(len(graph))]
        assert caches.use(graph, operator, 0) == asked[operator]
