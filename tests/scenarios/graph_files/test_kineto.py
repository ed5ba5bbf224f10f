"""Traces of PyTorch's profiler: replayed in the traced time, and priced as a graph traced here."""

import gzip
import json
import logging
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cost_models.pricing import price_graphs
from cost_models.profile import Profile
from scenarios import load_instance, trace_model
from scenarios.graph_files import read_graph, read_graph_file
from scenarios.graph_files.kineto import read_kineto
from scenarios.graph_files.kineto_replay import replay
from simulator import simulate
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.schedulers import create
from tests.scenarios.graph_files.kineto_samples import Branches, event, of, on_gpu, record, text
from tests.scenarios.graph_files.onnx_models import torch_cnn

TRACES = "HETSIM_HTA_TRACES"
"""Names a folder of HolisticTraceAnalysis' example traces (its repository's ``tests/data``)."""


def write(path, document):
    path.write_text(text(document))
    return path


def makespans(parts):
    """Of schedulers that decide each in its own way."""
    return [simulate(*parts, create(name)).makespan for name in ("fcfs", "heft")]


def described(graph):
    return [
        (o.kind, dict(o.attributes), [t.shape for t in o.inputs], [t.shape for t in o.outputs])
        for o in graph.operators
    ]


def edges(graph):
    return [*zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A trace of this machine's CPU with an ExecutionTraceObserver's file beside it."""
    folder = tmp_path_factory.mktemp("kineto")
    return record(folder, Branches().eval(), (torch.arange(8).reshape(2, 4),))


@pytest.mark.parametrize("part", ["", "@1", "@forward"])
def test_replay_takes_as_long_as_the_traced_iteration(recorded, part):
    found = []
    events = json.loads(recorded.read_text())["traceEvents"]
    wanted = {"": "ProfilerStep#2", "@1": "ProfilerStep#1", "@forward": "forward"}[part]
    traced = [
        e["dur"] * 1e-6 for e in events if e["name"] == wanted and e["cat"] == "user_annotation"
    ]
    graph, cluster, costs = load_instance(f"{recorded}{part}", say=found.append)
    for makespan in makespans((graph, cluster, costs)):
        assert makespan == pytest.approx(traced[-1], rel=0.001)
    said = re.search(r": '(.+)' took ([0-9.e-]+) s when it was recorded$", found[0])
    assert said[1] == wanted
    assert float(said[2]) == pytest.approx(traced[-1], rel=1e-4)
    (thread,) = cluster.devices
    assert thread.name.startswith("thread ")
    host = [
        s
        for n, s in zip(graph.operator_names, costs[graph].seconds[:, 0], strict=True)
        if n.startswith("host")
    ]
    assert 0 < sum(host) < traced[-1]


def test_the_graph_of_a_trace_is_that_of_tracing_here(recorded, caplog):
    """Kinds, shapes, attributes and dependencies, by the profiler's own shapes and tensor numbers."""
    here = trace_model(Branches().eval(), (torch.arange(8).reshape(2, 4),))
    with caplog.at_level(logging.WARNING):
        found = read_graph_file(recorded)
    assert described(found) == described(here)
    assert edges(found) == edges(here)
    assert "is the host's own time between operators, which is left out" in caplog.text
    assert DataflowGraph.from_json(found.to_json()).digest == found.digest


def test_without_an_observers_file_operators_follow_each_other(recorded, tmp_path):
    """Shapes are those of PyTorch's shape functions then, the order is that of the program."""
    alone = tmp_path / "alone.json"
    alone.write_text(recorded.read_text())
    graph = read_graph_file(alone)
    assert described(graph) == described(read_graph_file(recorded))
    assert edges(graph) == [(i, i + 1) for i in range(len(graph) - 1)]
    assert "no ExecutionTraceObserver's file lies beside it" in read_graph(alone).notes[1]


def test_a_task_graph_has_measured_work(recorded):
    shape, graph = read_graph(recorded), read_graph_file(recorded)
    assert list(shape.names) == graph.operator_names
    iteration = read_kineto(json.loads(recorded.read_text()))
    assert 0 < shape.work.sum() < iteration.seconds
    assert shape.data.tolist() == graph.tensor_bytes[graph.edge_tensor].tolist()


def test_priced_on_other_devices_as_a_traced_model(tmp_path):
    path = record(tmp_path, torch_cnn(), (torch.randn(8, 3, 32, 32),))
    here = trace_model(torch_cnn(), (torch.randn(8, 3, 32, 32),))
    graph = read_graph_file(path)
    core = Profile.load("amd-epyc-25-17-1core")
    table = price_graphs([graph, here], [core.name], {core.name: core})
    np.testing.assert_allclose(table[graph].seconds, table[here].seconds)


def test_unknown_operators_keep_their_scaled_times(tmp_path, caplog):
    """Half of the time is of an operator of nobody's: it takes as many times as long as the other does."""
    shapes = {
        "Input Dims": [[8, 64], [64, 64]],
        "Input type": ["float", "float"],
        "Concrete Inputs": ["", ""],
    }
    path = write(
        tmp_path / "t.json",
        of(
            event("aten::mm", "cpu_op", 0, 100, **shapes),
            event("mine::mystery", "cpu_op", 100, 150),
            event("mine::mystery", "cpu_op", 150, 200),
        ),
    )
    graph = read_graph_file(path)
    assert graph.operator_kinds == ["matmul", "measured", "measured"]
    core = Profile.load("amd-epyc-25-17-1core")
    with caplog.at_level(logging.WARNING):
        entry = price_graphs([graph], [core.name], {core.name: core})[graph]
    known, first, second = entry.seconds[:, 0]
    assert first == second == pytest.approx(known / 2)
    assert entry.in_range[:, 0].tolist()[1:] == [False, False]
    assert (
        "50.0% of the recorded time of 't' is of operators that no cost model knows (mine::mystery)"
        in caplog.text
    )
    document = graph.to_json()
    document["operators"][1]["attributes"] = {"seconds": "long"}
    with pytest.raises(InvalidInput, match="needs attributes 'seconds' and 'priced_s'"):
        price_graphs([DataflowGraph.from_json(document)], [core.name], {core.name: core})


def test_kernels_follow_launches_streams_and_waits():
    """The hand-written step takes its 100 us; without the host's last wait it would end with the second kernel."""
    iteration = read_kineto(on_gpu())
    graph, cluster, costs = replay(iteration, "gpu")
    lanes = [device.name for device in cluster.devices]
    assert lanes == ["thread 1", "gpu 0 stream 7", "gpu 0 stream 20"]
    assert makespans((graph, cluster, costs)) == pytest.approx([100e-6, 100e-6], rel=1e-4)
    names = graph.operator_names
    links = {(names[a], names[b]) for a, b in edges(graph)}
    assert {("k1#1", "latency#2"), ("latency#2", "k2#1")} <= links  # the other stream's event
    assert ("host#1", "aten::mm#1") in links
    assert any(a == "aten::mm#1" and b == "latency#1" for a, b in links)
    (waiting,) = (b for a, b in links if a == "k2#1")
    took = costs[graph].seconds.min(axis=1)[names.index(waiting)]
    assert took == pytest.approx(5e-6, rel=1e-3)
    # Kernels of half the length: the host then waits for less.
    faster = costs.scaled(np.array([1.0, 0.5, 0.5]))
    assert simulate(graph, cluster, faster, create("fcfs")).makespan < 80e-6


def test_a_thread_waits_for_another():
    """An operator of a backward thread is between two of the main one, whose own time is what is left."""
    trace = of(
        event("aten::mm", "cpu_op", 0, 10),
        event("autograd::engine::evaluate_function: MmBackward0", "cpu_op", 14, 48, thread=2),
        event("MmBackward0", "cpu_op", 15, 45, thread=2),
        event("aten::mm", "cpu_op", 20, 40, thread=2),
        event("aten::add_", "cpu_op", 60, 70),
    )
    graph, cluster, costs = replay(read_kineto(trace), "threads")
    assert makespans((graph, cluster, costs)) == pytest.approx([70e-6] * 2, rel=1e-4)
    slower = costs.scaled(
        np.array([1.0, 2.0])
    )  # the other thread and its way there: 10 + 2 * 30 + 20 + 10
    assert [d.name for d in cluster.devices] == ["thread 1", "thread 2"]
    assert makespans((graph, cluster, slower)) == pytest.approx([100e-6] * 2, rel=1e-4)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (of(event("slice", "python", 0, 1)), "without operators of PyTorch"),
        ({**on_gpu(), "schemaVersion": 7}, "schemaVersion 7 is not read, 1 is"),
        (of(event("aten::mm", "cpu_op", 0, -1)), "has dur -1, not microseconds"),
        ({"traceEvents": {}}, "'traceEvents' must be a list"),
        ({"schema": "1.1.1", "nodes": []}, "ExecutionTraceObserver's file, which has no times"),
    ],
)
def test_refusals(tmp_path, document, said):
    path = write(tmp_path / "t.json", document)
    for read in (load_instance, read_graph, read_graph_file):
        with pytest.raises(InvalidInput, match=said):
            read(path)


def test_refusals_of_parts_and_of_other_files(tmp_path):
    path = write(tmp_path / "t.json", on_gpu())
    with pytest.raises(InvalidInput, match=r"no range 'nine'; it has ProfilerStep#4"):
        load_instance(f"{path}@nine")
    with pytest.raises(InvalidInput, match="recorded without shapes"):
        read_graph_file(path)
    beside = write(tmp_path / "t.et.json", {"schema": "0.9", "nodes": []})
    with pytest.raises(
        InvalidInput, match=r"t.et.json beside it: Execution traces of schema '0.9' are not read"
    ):
        read_graph(path)
    write(beside, {"schema": "1.1.1", "nodes": []})
    with pytest.raises(InvalidInput, match="recorded in another run"):
        read_graph(path)
    write(beside, {"schema": "1.1.1", "nodes": [{"attrs": [{"name": "rf_id", "value": 3}]}]})
    with pytest.raises(InvalidInput, match="is malformed"):
        read_graph(path)
    with pytest.raises(InvalidInput, match="leave out '@3'"):
        load_instance(f"{write(tmp_path / 'b.json', {'cost': [[1]], 'edges': []})}@3")
    packed = tmp_path / "t2.json.gz"
    packed.write_bytes(gzip.compress(text(on_gpu()).encode())[:-20])
    with pytest.raises(InvalidInput, match="was it truncated"):
        load_instance(packed)


@pytest.mark.skipif(
    not os.environ.get(TRACES), reason=f"set {TRACES} to HolisticTraceAnalysis' tests/data"
)
def test_example_traces_are_replayed_within_three_percent():
    files = [p for p in sorted(Path(os.environ[TRACES]).rglob("*.json.gz")) if "trace" in p.name]
    held = 0
    for path in files:
        try:
            iteration = read_kineto(json.loads(gzip.decompress(path.read_bytes())))
        except InvalidInput:
            continue
        parts = replay(iteration, path.stem)
        assert simulate(*parts, create("fcfs")).makespan == pytest.approx(
            iteration.seconds, rel=0.03
        ), path
        held += 1
    assert held
