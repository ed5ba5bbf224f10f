"""Traces as they are saved: to the tenth of a nanosecond what they were."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.validation.compact_traces import read_traces, write_traces
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from simulator.schedulers import create


def far():
    spaces = [MemorySpace("near"), MemorySpace("far")]
    devices = [Device("a", "near", slots=2), Device("b", "far")]
    return Cluster("apart", spaces, devices, [Link("wire", ("near", "far"), 7.0)], host="near")


def run(size, edges, seconds, jobs, scheduler):
    graph = from_edges("drawn", size, edges)
    times = np.resize(np.array(seconds), (size, 2)) / 3
    workload = Workload([Job(graph, n / 7, origin="near") for n in range(jobs)])
    costs = CostTable.of(graph, times)
    return graph, simulate(workload, far(), costs, create(scheduler), contention="fifo")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(1, 8),
    st.lists(st.floats(1e-4, 1.0), min_size=3, max_size=9),
    st.integers(1, 3),
    st.sampled_from(["heft", "fcfs", "mct"]),
)
def test_what_comes_back_is_what_was_written(tmp_path, size, seconds, jobs, scheduler):
    edges = [(i, i + 1, 3.0) for i in range(size - 1)]
    graph, trace = run(size, edges, seconds, jobs, scheduler)
    write_traces(tmp_path, {"first": trace, "second": trace})
    found = read_traces(tmp_path, {"second": [graph] * jobs})["second"]
    for column in ("execution", "task", "job", "operator", "device", "slot", "attempt", "status"):
        np.testing.assert_array_equal(found.executions[column], trace.executions[column])
    for column, error in (("start", 1e-10), ("finish", 1e-10), ("ready", 2e-6), ("placed", 2e-6)):
        np.testing.assert_allclose(
            found.executions[column], trace.executions[column], rtol=0, atol=error
        )
    assert (found.executions["ready"] <= found.executions["start"] + 1e-9).all()
    for table in ("jobs", "members", "transfers"):
        for column, values in getattr(trace, table).items():
            np.testing.assert_array_equal(getattr(found, table)[column], values)
    assert found.makespan == pytest.approx(trace.makespan, abs=1e-9)
    assert dict(found.meta) | {"graphs": 0} == dict(trace.meta) | {"graphs": 0}
    assert [dict(graph) for graph in found.meta["graphs"]] == [
        dict(graph) for graph in trace.meta["graphs"]
    ]


def test_a_thousand_executions_take_a_few_bytes_each(tmp_path):
    rng = np.random.default_rng(1)
    graph = from_edges("wide", 1000, [])
    costs = CostTable.of(graph, rng.uniform(1e-5, 1e-3, (1000, 2)))
    write_traces(tmp_path, {"one": simulate(graph, far(), costs, create("mct"))})
    assert (tmp_path / "traces.parquet").stat().st_size < 20 * 1000


def test_what_does_not_fit_is_refused(tmp_path):
    graph, trace = run(2, [(0, 1, 1.0)], [0.5, 0.7, 0.9], 1, "heft")
    write_traces(tmp_path, {"one": trace})
    with pytest.raises(InvalidInput, match="has no trace 'two'"):
        read_traces(tmp_path, {"two": [graph]})
    with pytest.raises(InvalidInput, match="does not fit its graph: 2 executions of 3 operators"):
        read_traces(tmp_path, {"one": [from_edges("other", 3, [])]})
    with pytest.raises(InvalidInput, match="does not fit its graph: 1 jobs of 2 graphs"):
        read_traces(tmp_path, {"one": [graph, graph]})
    (tmp_path / "traces.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInput, match="Cannot read the traces"):
        read_traces(tmp_path, {"one": [graph]})
    trace.executions["status"] = np.array(["finished", "lost"])
    with pytest.raises(InvalidInput, match="has batches or lost executions"):
        write_traces(tmp_path, {"one": trace})
