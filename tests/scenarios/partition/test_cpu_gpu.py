"""Placements of subgraphs against closed forms and enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.partition.cpu_gpu import CpuGpu, along_critical_path
from scenarios.partition.duet import Duet
from scenarios.partition.partitioner import Problem, partition
from scenarios.partition.placement import Placement
from simulator import Cluster, Device, Link, MemorySpace
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.segments import coarsen
from simulator.model.workload import Job, Workload
from tests.examples import examples


def box(bandwidth=1.0, latency=0.0, cpus=1, capacity=1e30):
    """CPUs of one memory and a GPU behind a link."""
    return Cluster(
        "box",
        [MemorySpace("ram", capacity), MemorySpace("vram", capacity)],
        [*(Device(f"cpu{i}", "ram") for i in range(cpus)), Device("gpu", "vram")],
        [Link("pcie", ("ram", "vram"), bandwidth, latency)],
    )


def problem(graph, seconds, cluster, jobs=1, **options):
    costs = CostTable.of(graph, np.asarray(seconds, dtype=float))
    return Problem(Workload([Job(graph)] * jobs), cluster, costs, **options)


def chain(count, size):
    return from_edges("chain", count, [(i, i + 1, size) for i in range(count - 1)])


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_chain_takes_the_least_of_each_or_stays_whole(cpus):
    seconds = np.random.default_rng(1).uniform(1, 9, (12, 2))[:, [0] * cpus + [1]]
    free = problem(chain(12, 0.0), seconds, box(cpus=cpus))
    assert CpuGpu().plan(free).makespan_s == pytest.approx(seconds.min(axis=1).sum())
    dear = problem(chain(12, 1e3), seconds, box(cpus=cpus))
    assert CpuGpu().plan(dear).makespan_s == pytest.approx(seconds.sum(axis=0).min())
    assert CpuGpu(eps=1.0).plan(dear).notes["subgraphs"] == 1


@pytest.mark.parametrize("kind", [CpuGpu, Duet])
@pytest.mark.parametrize(("a", "b"), [(3.0, 4.0), (1.0, 5.0), (7.0, 2.0)])
def test_two_equal_branches(kind, a, b):
    graph = from_edges("fork", 4, [(0, 1, 0.0), (0, 2, 0.0), (1, 3, 0.0), (2, 3, 0.0)])
    found = partition(kind(), problem(graph, [[0, 0], [a, b], [a, b], [0, 0]], box()))
    assert found.plan.makespan_s == pytest.approx(min(2 * a, 2 * b, max(a, b)))


def test_equal_cores_share_branches():
    graph = from_edges("fork", 4, [(0, n, 1.0) for n in (1, 2, 3)])
    seconds = [[1, 1, 9], [4, 4, 9], [4, 4, 9], [4, 4, 9]]
    assert CpuGpu().plan(problem(graph, seconds, box(cpus=2))).makespan_s == 9.0  # 1 + 4 + 4
    seconds = [[1, 1, 9], [4, 4, 3], [4, 4, 9], [4, 4, 9]]
    assert CpuGpu().plan(problem(graph, seconds, box(cpus=2))).makespan_s == 5.0


def linear_extensions(graph):
    """Every order of the operators in which none stands before a predecessor."""
    for order in itertools.permutations(range(len(graph))):
        place = {v: i for i, v in enumerate(order)}
        if all(place[a] < place[b] for b in order for a in graph.predecessors[b]):
            yield np.array(order)


@settings(max_examples=examples(36), deadline=None)
@given(st.integers(2, 5), st.integers(0, 10_000), st.sampled_from(["none", "fifo"]))
def test_no_plan_is_below_the_best_of_all_placements_and_orders(count, seed, contention):
    rng = np.random.default_rng(seed)
    pairs = [(a, b, float(rng.integers(0, 5))) for a, b in itertools.combinations(range(count), 2)]
    graph = from_edges("random", count, [pair for pair in pairs if rng.random() < 0.5])
    seconds = rng.integers(1, 9, (count, 2))
    given_ = problem(graph, seconds, box(2.0, 0.5), contention=contention)
    evaluator = given_.evaluator()
    least = min(
        evaluator.evaluate(np.array(device), order)
        for order in linear_extensions(graph)
        for device in itertools.product((0, 1), repeat=count)
    )
    single = min(evaluator.evaluate(np.full(count, d), np.arange(count)) for d in (0, 1))
    plan = CpuGpu().plan(given_)
    assert least - 1e-9 <= plan.makespan_s <= single + 1e-9
    assert given_.makespan(plan) == pytest.approx(plan.makespan_s)  # each operator is a subgraph
    # A local search may miss it.
    assert plan.makespan_s <= 1.5 * least


@pytest.mark.parametrize("seed", range(3))
def test_enumeration_of_twelve_subgraphs(seed):
    """Of 2^12 placements in the order of the best found none is better by more than 10%."""
    rng = np.random.default_rng(seed)
    branches = [[0, *range(1 + 5 * b, 6 + 5 * b), 11] for b in (0, 1)]
    edges = [(a, b, 2.0) for row in branches for a, b in itertools.pairwise(row)]
    given_ = problem(from_edges("two", 12, edges), rng.uniform(1, 5, (12, 2)), box(2.0, 0.1))
    plan = CpuGpu().plan(given_)
    evaluator = given_.evaluator()
    every = np.array(list(itertools.product((0, 1), repeat=12)))
    least = min(evaluator.evaluate(device, plan.order) for device in every)
    assert least <= plan.makespan_s + 1e-9 <= 1.1 * least


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(1, 12), st.integers(1, 3), st.integers(0, 10_000), st.sampled_from(["push", "pull"])
)
def test_never_worse_than_a_device_alone_by_the_engine(count, jobs, seed, movement):
    rng = np.random.default_rng(seed)
    pairs = [(a, b, float(rng.integers(0, 9))) for a, b in itertools.combinations(range(count), 2)]
    graph = from_edges("random", count, [pair for pair in pairs if rng.random() < 0.3])
    seconds = rng.integers(1, 9, (count, 3)).astype(float)
    seconds[rng.random((count, 3)) < 0.2] = np.inf
    seconds[:, 0] = np.where(np.isfinite(seconds).any(axis=1), seconds[:, 0], 1.0)
    given_ = problem(graph, seconds, box(2.0, 0.5, cpus=2), jobs, movement=movement)
    for partitioner in (CpuGpu(), CpuGpu(eps=1.0), Duet()):
        found = partition(partitioner, given_)
        assert found.plan.makespan_s == min(found.makespans.values())
        assert np.isfinite(seconds[np.tile(np.arange(count), jobs), found.plan.device]).all()


def test_coarse_times_are_the_engine_s_and_the_critical_path_is_a_longest():
    graph = from_edges("fork", 5, [(0, 1, 2.0), (0, 2, 2.0), (1, 3, 2.0), (2, 3, 4.0), (3, 4, 1.0)])
    given_ = problem(graph, np.arange(10).reshape(5, 2) + 1.0, box(2.0, 0.5))
    placement = Placement(given_, {graph: coarsen(graph, parts=np.arange(5))})
    device = np.array([0, 1, 0, 1, 1])
    # Bytes over 2, and 0.5 before: behind 4 is nothing, 2 to 3 takes 2.5, 0 to 1 takes 1.5.
    assert placement.bottom_levels(device).tolist() == [1 + 25.5, 4 + 18, 5 + 2.5 + 18, 18, 10]
    assert placement.critical_path(device) == [0, 2, 3, 4]
    assert placement.order(device).tolist() == [0, 2, 1, 3, 4]


def test_a_part_that_its_memory_cannot_hold_is_refused():
    tensors = [
        Tensor("x", "input", 1.0),
        Tensor("w", "weight", 100.0),
        Tensor("y", "activation", 1.0),
    ]
    graph = DataflowGraph("net", [Operator("o", "linear")], tensors, [[0, 1]], [[2]])
    given_ = problem(graph, [[5, 1]], box(capacity=50.0), memory="limited")
    with pytest.raises(InvalidInput, match="'cpu_gpu' puts 100 B of weights into memory 'vram'"):
        partition(CpuGpu(), given_)


def test_options_are_numbers_of_at_least_0():
    with pytest.raises(InvalidInput, match="eps -1"):
        CpuGpu(eps=-1)


def test_beside_the_critical_path_the_soonest_end_decides():
    graph = from_edges("fork", 3, [(0, 1, 1.0), (0, 2, 1.0)])
    given_ = problem(graph, [[1, 1, 9], [5, 5, 9], [4, 4, 9]], box(cpus=2))
    placement = Placement(given_, {graph: coarsen(graph, parts=np.arange(3))})
    # All three are fastest on the first core; the path 0, 1 stays there.
    assert along_critical_path(placement).tolist() == [0, 0, 1]


def test_a_subgraph_has_a_device_that_can_run_it():
    graph = chain(3, 1.0)
    seconds = [[1, np.inf], [np.inf, 1], [2, 1]]
    for partitioner in (CpuGpu(eps=9.0), Duet()):
        assert partitioner.plan(problem(graph, seconds, box())).device.tolist() == [0, 1, 1]
