"""Generated networks run as their graphs say, in place and by visits."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibration import networks  # noqa: E402
from calibration.sequential import run_graph  # noqa: E402
from calibration.summary import context  # noqa: E402
from calibration.timing import CpuTimer, Timing  # noqa: E402


class Clock(CpuTimer):
    """Says that every call took 1 us."""

    def __init__(self) -> None:
        self.states = ("graph", "warm")
        self.calls = 0

    def visit(self, call, reads, weights=()):
        self.calls += 1
        call(reads)
        return [Timing("graph", 1e-6, 1e-6), Timing("warm", 5e-7, 5e-7)]


def small():
    return min(networks.networks(), key=lambda graph: sum(t.bytes for t in graph.tensors))


def test_a_network_gives_what_its_graph_gives():
    graph = small()
    given = networks.random_given(graph)
    network, noted, last = networks.Network(graph, given), [], {}

    def note(position, seconds, reads):
        noted.append(position)
        last[position] = [tensor.shape for tensor in reads]
        assert seconds > 0

    with torch.inference_mode():
        network.execute(note)
        names = {t: graph.tensors[t].name for t in given}
        weights = {names[t]: given[t] for t in graph.weights}
        inputs = {names[t]: given[t] for t in graph.inputs}
        found = run_graph(graph, weights, inputs)
    assert noted == list(range(len(graph)))
    assert all(torch.isfinite(x).all() and x.abs().max() < 1e6 for x in found)
    specs = [[graph.tensors[t].spec for t in row] for row in graph.reads]
    assert [last[i] for i in noted] == [[s.shape for s in row] for row in specs]


def test_every_operator_is_timed_in_place_and_by_visits(tmp_path, monkeypatch):
    graph = small()
    monkeypatch.setattr(networks, "networks", lambda: (graph,))
    clock = Clock()
    found = networks.measure(clock, times=2, rounds=2)
    entry = found[graph.name]
    assert np.shape(entry["placed"]) == (2 * networks.EXECUTIONS, len(graph))
    assert entry["visited"] == [[1e-6, 1e-6]] * len(graph)
    assert clock.calls == 2 * len(graph)
    records = [{"networks": found}, {"started": 0.0}]
    monkeypatch.setattr("calibration.summary.process_records", lambda folder: records)
    # Of a network alone nobody knows how much others differ.
    said = context(tmp_path, "p10")
    assert said is not None
    assert said.networks == 1
    records[0].pop("networks")
    assert context(tmp_path, "p10") is None
