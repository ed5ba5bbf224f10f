"""Cached weights first: orders by hand, and FCFS or MCT where there is nothing to choose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.weight_hit_curve import ReuseCurve
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.strategies import graphs

LEFT = 0.25
ONE_WEIGHT = ReuseCurve((4.0,), (1.0,))
"""Keeps 4 bytes: one weight, once another was used nothing of it."""


def independent(uses: Sequence[Sequence[int]]) -> DataflowGraph:
    """Operators that read weights of 4 bytes, by number, and nothing of each other."""
    count, different = len(uses), max(map(max, uses)) + 1
    tensors = [Tensor("x", "input", 0.0)]
    tensors += [Tensor(f"a{i}", "activation", 0.0) for i in range(count)]
    tensors += [Tensor(f"w{i}", "weight", 4.0) for i in range(different)]
    return DataflowGraph(
        "independent",
        [Operator(f"o{i}", "task") for i in range(count)],
        tensors,
        [[0, *(1 + count + w for w in row)] for row in uses],
        [[1 + i] for i in range(count)],
        [{"tensor": f"a{i}"} for i in range(count)],
    )


def cores(curve: ReuseCurve | None, count: int = 1) -> Cluster:
    names = [Device(f"d{i}", "m") for i in range(count)]
    return Cluster("cores", [MemorySpace("m", cache=curve)], names)


def times(graph: DataflowGraph, seconds: Sequence[float], cached: bool = True) -> CostTable:
    """So many seconds on each device, a part of it with cached weights."""
    rows = np.tile(np.array(seconds), (len(graph), 1))
    return CostTable(
        {graph: GraphCosts(rows, cached=np.full(rows.shape, LEFT) if cached else None)}
    )


def order(trace: Trace) -> list[int]:
    rows = np.lexsort((trace.executions["device"], trace.executions["start"]))
    return trace.executions["operator"][rows].tolist()


def test_one_core_takes_what_reads_the_same_weights_one_behind_the_other() -> None:
    """0 and 1 in turn: three of each, of which two find them; in the order of arrival nobody does."""
    graph = independent([(0,), (1,), (0,), (1,), (0,), (1,)])
    believed = times(graph, [1.0])
    fcfs = simulate(graph, cores(ONE_WEIGHT), believed, create("fcfs"))
    assert fcfs.makespan == 6.0
    trace = simulate(graph, cores(ONE_WEIGHT), believed, create("cache_affinity"))
    assert order(trace) == [0, 2, 4, 1, 3, 5]
    assert trace.makespan == 2 * (1 + 2 * LEFT)


def test_most_seconds_saved_come_first_not_the_largest_part() -> None:
    """The first brings both weights; of the others one saves nine tenths of a second, the next half of twenty."""
    graph = independent([(0, 1), (0,), (1,)])
    parts = np.array([[1.0], [0.1], [0.5]])
    believed = CostTable({graph: GraphCosts(np.array([[1.0], [1.0], [20.0]]), cached=parts)})
    trace = simulate(graph, cores(ReuseCurve((16.0,), (1.0,))), believed, create("cache_affinity"))
    assert order(trace) == [0, 2, 1]


def test_two_cores_share_a_cache() -> None:
    """0 and 1 begin cold; 3, 5 and 7 find the weight that was used last; 2 brings the other, which 4 and 6 find while
    2 still runs: 1 + 0.25 + 1.
    """
    graph = independent([(0,), (1,), (0,), (1,), (0,), (1,), (0,), (1,)])
    believed = times(graph, [1.0, 1.0])
    trace = simulate(graph, cores(ONE_WEIGHT, 2), believed, create("cache_affinity"))
    assert trace.makespan == 2 + LEFT
    assert simulate(graph, cores(ONE_WEIGHT, 2), believed, create("fcfs")).makespan == 4.0


def test_a_task_waits_for_the_device_that_is_done_with_it_first() -> None:
    """The slow device would take ten seconds; FCFS gives it the second task."""
    graph = independent([(0,), (1,)])
    believed = times(graph, [1.0, 10.0])
    trace = simulate(graph, cores(None, 2), believed, create("cache_affinity"))
    assert trace.executions["device"].tolist() == [0, 0]
    assert trace.makespan == 2.0
    assert simulate(graph, cores(None, 2), believed, create("fcfs")).makespan == 10.0


def test_a_device_of_several_slots_takes_several() -> None:
    graph = independent([(0,), (1,), (2,)])
    cluster = Cluster("slots", [MemorySpace("m")], [Device("d", "m", slots=3)])
    assert simulate(graph, cluster, times(graph, [1.0]), create("cache_affinity")).makespan == 1.0


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.data())
def test_without_caches_equal_devices_are_fcfs(graph: DataflowGraph, data: st.DataObject) -> None:
    lengths = st.lists(st.floats(0.1, 10.0), min_size=len(graph), max_size=len(graph))
    seconds = np.repeat(np.array(data.draw(lengths))[:, None], 2, axis=1)
    believed = CostTable({graph: GraphCosts(seconds)})
    mine, fcfs = (
        simulate(graph, cores(None, 2), believed, create(name))
        for name in ("cache_affinity", "fcfs")
    )
    for column in ("operator", "device", "start", "finish"):
        assert mine.executions[column].tolist() == fcfs.executions[column].tolist()


def test_it_says_what_caches_save() -> None:
    graph = independent([(0,), (0,)])
    said: list[str] = []
    cluster, believed = cores(ReuseCurve((8.0,), (1.0,))), times(graph, [1.0])
    simulate(graph, cluster, believed, create("cache_affinity"), explain=said.append)
    assert said == [
        "o0 -> d0: caches save 0, finish 1 < no other",
        "o1 -> d0: caches save 0.75, finish 1.25 < no other",
    ]


def test_its_pricing_is_checked() -> None:
    with pytest.raises(InvalidInput, match="Unknown pricing 'nothing'"):
        create("cache_affinity", pricing="nothing")
