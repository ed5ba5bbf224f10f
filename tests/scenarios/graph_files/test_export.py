"""Runs written for other tools: read again they are the same graph, with the times that were."""

import json

import numpy as np
import pytest

from scenarios import load_instance
from scenarios.graph_files import read_graph, read_wfformat
from scenarios.graph_files.export import export_run
from simulator import simulate
from simulator.errors import InvalidInput
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

TOPCUOGLU = "conf/instances/topcuoglu.json"


@pytest.fixture(scope="module")
def run():
    graph, cluster, costs = load_instance(TOPCUOGLU)
    return simulate(graph, cluster, costs, create("heft")), graph, cluster


def test_a_chakra_file_replays_the_run(run, tmp_path):
    """HEFT's 80 on Topcuoglu's graph: tasks, messages between devices and the order on each of them."""
    trace, graph, cluster = run
    path = export_run(tmp_path / "a.et", trace, graph, cluster)
    again, lanes, costs = load_instance(path)
    for name in ("fcfs", "heft"):
        assert simulate(again, lanes, costs, create(name)).makespan == pytest.approx(80)
    assert set(graph.operator_names) < set(again.operator_names)
    took = dict(zip(again.operator_names, costs[again].seconds.min(axis=1).tolist(), strict=True))
    for row, name in enumerate(np.array(graph.operator_names)[trace.executions["operator"]]):
        assert took[name] == trace.executions["finish"][row] - trace.executions["start"][row]
    assert len(again) == len(graph) + len(trace.transfers["tensor"])
    assert {device.name for device in lanes.devices} == {"P1", "P2", "P3", "network"}
    assert path.read_bytes() == export_run(tmp_path / "b.et", trace, graph, cluster).read_bytes()


def test_a_wfformat_file_is_the_same_graph(run, tmp_path):
    trace, graph, cluster = run
    path = export_run(tmp_path / "a.json", trace, graph, cluster)
    shape = read_graph(path)
    assert list(shape.names) == graph.operator_names
    found = sorted(
        zip(shape.source.tolist(), shape.target.tolist(), shape.data.tolist(), strict=True)
    )
    sizes = graph.tensor_bytes[graph.edge_tensor].tolist()
    assert found == sorted(
        zip(graph.edge_source.tolist(), graph.edge_target.tolist(), sizes, strict=True)
    )
    order = np.argsort(trace.executions["operator"])
    took = (trace.executions["finish"] - trace.executions["start"])[order]
    assert shape.work.tolist() == took.tolist()
    document = json.loads(path.read_text())
    assert read_wfformat(document).notes == ()
    assert document["workflow"]["execution"]["makespanInSeconds"] == trace.makespan


def test_refusals(run, tmp_path):
    trace, graph, cluster = run
    with pytest.raises(InvalidInput, match=r"export=.*a.txt names no form that is written"):
        export_run(tmp_path / "a.txt", trace, graph, cluster)
    _, _, costs = load_instance(TOPCUOGLU)
    jobs = Workload([Job(graph), Job(graph)])
    from simulator.model.costs import CostTable

    twice = simulate(jobs, cluster, CostTable({graph: next(iter(costs.values()))}), create("heft"))
    with pytest.raises(InvalidInput, match="holds one job"):
        export_run(tmp_path / "a.et", twice, graph, cluster)
    assert not (tmp_path / "a.et").exists()
