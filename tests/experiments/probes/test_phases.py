"""Speeds that wander: what runs of the panel say, what executions have shown, and what a simulation makes of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.probes.phases import Phases, SpeedPath, windowed
from simulator.cluster import Cluster, Device, MemorySpace
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.graph import DataflowGraph, Operator
from simulator.schedulers import create
from tests.examples import examples

CLUSTER = Cluster("two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram")


def runs(*seconds):
    """Of a panel of two operators."""
    return [np.array([0.25, 0.75]) * total for total in seconds]


def test_each_run_of_the_panel_is_a_block():
    """Alone on each device, then on both at once; each beside its own mean."""
    panel = SimpleNamespace(
        alone=[runs(1.0, 3.0), runs(2.0, 2.0)], beside=[runs(2.0, 6.0), runs(4.0, 4.0)]
    )
    first, second = Phases.of(panel).blocks
    assert first == ((1.0, 0.5), (2.0, 1.0), (3.0, 0.75))
    assert second == ((3.0, 1.5), (2.0, 1.0), (5.0, 1.25))
    one_device = SimpleNamespace(alone=[runs(1.0, 3.0)], beside=[[]])
    assert Phases.of(one_device).blocks == (((1.0, 0.5),), ((3.0, 1.5),))


def test_a_path_is_made_of_whole_blocks():
    phases = Phases((((1.0, 0.5), (2.0, 1.0)), ((4.0, 1.5),)))
    seen = set()
    for seed in range(20):
        path = phases.path(30.0, np.random.default_rng(seed))
        assert path == phases.path(30.0, np.random.default_rng(seed))
        assert 30.0 <= path.ends[-1] < 34.0
        lengths = np.diff([0.0, *path.ends])
        steps = list(zip(lengths.tolist(), path.slowness, strict=True))
        while steps:
            seen.add(steps[0])
            if steps[0] == (4.0, 1.5):
                del steps[:1]
            else:
                assert steps[:2] == [(1.0, 0.5), (2.0, 1.0)]
                del steps[:2]
    assert seen == {(1.0, 0.5), (4.0, 1.5)}
    assert Phases().path(30.0, np.random.default_rng(0)) == SpeedPath((), ())


def test_operators_take_as_long_as_the_steps_say():
    """4 s of work: 2 s at half the mean speed do 1 s of it, 1 s at twice do 2 s, the rest is at the mean."""
    graph = DataflowGraph("g", [Operator("o", "k")], [], [[]], [[]])
    costs = CostTable.of(graph, np.array([[4.0, 4.0]]))
    path = SpeedPath((2.0, 3.0), (2.0, 0.5))
    assert path.fastest == 0.5
    trace = simulate(
        graph,
        CLUSTER,
        costs,
        create("fcfs"),
        actual=costs.scaled(path.fastest),
        faults=path.faults(CLUSTER),
    )
    assert trace.makespan == pytest.approx(4.0)
    assert not SpeedPath((), ()).faults(CLUSTER)
    assert SpeedPath((), ()).fastest == 1.0


def test_windows_by_hand():
    """Two executions in the first second, one of them reaching into the second; nothing in the third."""
    path = windowed(
        np.array([0.0, 0.5, 3.5]), np.array([0.5, 2.0, 4.0]), np.array([1.0, 2.0, 0.5]), 1.0
    )
    assert path.ends == (1.0, 2.0, 3.0, 4.0)
    assert path.slowness == pytest.approx((1.0 / 0.75, 2.0, 1.0, 0.5))
    nobody = np.zeros(0)
    assert windowed(nobody, nobody, nobody, 1.0) == SpeedPath((), ())


@settings(max_examples=examples(40))
@given(st.data())
def test_work_is_conserved_in_windows(data):
    """What was worked according to the windows is what the executions are on average."""
    count = data.draw(st.integers(1, 8))
    lengths = np.array(data.draw(st.lists(st.floats(0.01, 2.0), min_size=count, max_size=count)))
    slow = np.array(data.draw(st.lists(st.floats(0.3, 3.0), min_size=count, max_size=count)))
    finish = np.cumsum(lengths)
    path = windowed(finish - lengths, finish, slow, 0.25)
    busy = np.diff([0.0, *path.ends])
    busy[-1] -= path.ends[-1] - finish[-1]
    assert (busy / path.slowness).sum() == pytest.approx((lengths / slow).sum())
