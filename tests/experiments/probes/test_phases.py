"""Speeds that wander: what runs of the panel say, what executions have shown, and what a simulation makes of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.probes.phases import Phases, SpeedPath, windowed
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator
from simulator.schedulers import create
from tests.examples import examples

CLUSTER = Cluster("two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram")


def runs(*seconds):
    """Of a panel of two operators."""
    return [np.array([0.25, 0.75]) * total for total in seconds]


def test_runs_of_the_panel_that_follow_each_other_are_a_stretch():
    """Alone on each device, then on both at once; each beside its own mean, in seconds that it all took."""
    panel = SimpleNamespace(
        alone=[runs(1.0, 3.0) * 2, runs(2.0, 2.0) * 2],
        beside=[runs(2.0, 6.0) * 2, runs(4.0, 4.0) * 2],
    )
    phases = Phases.of(panel, (2, 32.0), (2, 16.0))
    for steps, seconds in zip(phases.stretches, (32.0, 16.0), strict=True):
        lengths, slowness = zip(*steps, strict=True)
        assert slowness == pytest.approx((0.5, 1.0, 0.75, 1.5, 1.0, 1.25))
        assert lengths == pytest.approx(np.array([2.0, 4.0, 6.0, 6.0, 4.0, 10.0]) * seconds / 32.0)
    assert phases.noise == pytest.approx(0.0)  # neither was slower than the other
    one_device = SimpleNamespace(alone=[runs(1.0, 3.0) * 2], beside=[[]])
    found = Phases.of(one_device, (2, 4.0), (2, 4.0)).stretches
    assert found == (((1.0, 0.5), (3.0, 1.5)),) * 2


def test_two_stretches_differ_by_more_than_from_their_mean():
    """One twice as slow as the other: the logs are ln 2 / 2 off from their mean, of which the variance is (ln 2)^2 / 4;
    from that of all that might be a square root of two more.
    """
    panel = SimpleNamespace(alone=[runs(1.0, 1.0, 2.0, 2.0)], beside=[[]])
    phases = Phases.of(panel, (2, 2.0), (2, 4.0))
    fast, slow = ({slowness for _, slowness in steps} for steps in phases.stretches)
    assert len(fast) == len(slow) == 1
    assert np.log(slow.pop() / fast.pop()) == pytest.approx(np.sqrt(2.0) * np.log(2.0))
    assert phases.noise == pytest.approx(np.log(2.0) / 2.0)
    assert Phases.of_json(phases.to_json()) == phases
    both = phases + Phases((((1.0, 1.0),),), (0.0,))
    assert (len(both.stretches), both.noise) == (3, pytest.approx(np.log(2.0) / np.sqrt(8.0)))


def test_a_path_is_made_of_whole_stretches_and_begins_within_one():
    phases = Phases((((1.0, 0.5), (2.0, 1.0)), ((4.0, 1.5),)))
    first, seen = set(), set()
    for seed in range(30):
        path = phases.path(30.0, np.random.default_rng(seed))
        assert path == phases.path(30.0, np.random.default_rng(seed))
        assert 30.0 <= path.ends[-1] < 34.0
        lengths = np.diff([0.0, *path.ends])
        steps = list(zip(lengths.tolist(), path.slowness, strict=True))
        first.add(steps[0])
        if steps[0] == (2.0, 1.0):
            del steps[0]
        while steps:
            seen.add(steps[0])
            if steps[0] == (4.0, 1.5):
                del steps[:1]
            else:
                assert steps[:2] == [(1.0, 0.5), (2.0, 1.0)]
                del steps[:2]
    assert seen == {(1.0, 0.5), (4.0, 1.5)}
    assert first == seen | {(2.0, 1.0)}
    assert Phases().path(30.0, np.random.default_rng(0)) == SpeedPath((), ())


def wandering(rng, seconds, step=0.25):
    """Seconds that each next ``step`` of work takes on a machine whose speed has phases of some six seconds."""
    took, now = [], 0.0
    while now < seconds:
        end, slowness = now + rng.exponential(6.0), np.exp(0.1 * rng.standard_normal())
        while now < end:
            took.append(step * slowness * np.exp(0.02 * rng.standard_normal()))
            now += took[-1]
    return np.array(took)


def test_what_a_run_may_take_is_known_from_around_it():
    """Against the truth: twelve seconds of panel, fifteen of a run, twelve of panel, forty times; the middle 90% of the
    drawn mean speeds has that of the run in most. Drawn step by step it is in a sixth.
    """
    rng = np.random.default_rng(7)
    known, inside, by_steps = Phases(), 0, 0
    for _ in range(40):
        took = wandering(rng, 60.0)
        around = np.concatenate([took[:48], took[108:156]])
        run = took[48:108].mean() / around.mean()
        panel = SimpleNamespace(alone=[[np.array([each]) for each in around]], beside=[[]])
        spans = [(48, float(took[:48].sum())), (48, float(took[108:156].sum()))]
        known += Phases.of(panel, *spans)
        means = []
        for _ in range(60):
            path = known.path(15.0, rng)
            lengths = np.diff([0.0, *path.ends])
            lengths[-1] -= path.ends[-1] - 15.0
            worked = (lengths / path.slowness).sum()
            means.append(15.0 / worked * np.exp(known.noise * rng.standard_normal()))
        low, high = np.quantile(means, [0.05, 0.95])
        inside += low <= run <= high
        mixed = rng.choice(around, (60, 60)).mean(axis=1) / around.mean()
        low, high = np.quantile(mixed, [0.05, 0.95])
        by_steps += low <= run <= high
    assert 31 <= inside <= 40
    assert by_steps <= 15


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
