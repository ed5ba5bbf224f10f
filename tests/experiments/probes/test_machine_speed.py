"""The panel on a machine whose slowness is known: simulation takes the place of the hardware."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cost_models.profile import Profile
from cost_models.roofline import Roofline
from experiments.probes.machine_speed import (
    SORTS,
    MachineSpeed,
    PanelTimes,
    check_speed,
    sorts_of,
)
from experiments.probes.overhead import Overhead, corun_text, with_overhead
from experiments.probes.panel import (
    LEAST_RUNS,
    PANEL,
    SHARE,
    SMALL,
    PanelRuns,
    panel_parts,
    run_seconds,
)
from experiments.probes.resting import REST_S, WAKE_AFTER, wake_seconds, with_waking
from experiments.runs.configs import CostModelConfig
from experiments.validation.measured_runs import Block
from experiments.validation.predicted_cases import _machine, _of_visits
from scenarios.model_config import graph_of
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.operator import Operator, Tensor, TensorSpec
from simulator.model.weight_hit_curve import ReuseCurve

torch = pytest.importorskip("torch")

# 100 GFLOP/s and 25 GB/s: 4 operations in the time of a byte.
SHEET = Roofline({"float32": 1e11}, 2.5e10)
PROFILES = {name: Profile(name, "measured", SHEET) for name in ("fast", "slow")}
MODEL = CostModelConfig(name="roofline")


def cluster(corun=0.0):
    return Cluster(
        "two",
        [MemorySpace("ram", corun_slowdown=corun)],
        [Device("one", "ram", "fast"), Device("two", "ram", "slow")],
        host="ram",
    )


_SAID: dict = {}


def said(profile, graph):
    """Seconds of a graph's operators by a profile, predicted once."""
    key = (id(profile), graph)
    if key not in _SAID:
        _SAID[key] = (
            profile,
            profile.price(graph.operators).seconds,
        )  # which keeps the profile, too
    return _SAID[key][1]


def mean(seconds):
    return float(seconds.mean())


class SimulatedMachine:
    """Runs as a machine that needs so many times the profiles' seconds for each sort of operators."""

    def __init__(
        self,
        slowness,
        corun=0.0,
        overhead=0.0,
        handover=None,
        here=None,
        cold=(),
        added=(),
        traffic=(),
    ):
        self.cluster = here or cluster(corun)
        self._believed = with_overhead(self.cluster, Overhead(overhead), handover)
        self._slowness, self._overhead = slowness, overhead
        self._extra = {"cold": cold, "added": added, "traffic": traffic}
        self._profiles = [PROFILES[device.profile] for device in self.cluster.devices]

    def load(self, graph, weights):
        assert set(weights) == {graph.tensors[i].name for i in graph.weights}

    def run(self, jobs, costs, scheduler, inputs):
        (graph,) = jobs.graphs
        speed = MachineSpeed(tuple(self._slowness), **self._extra)
        seconds = np.stack([said(profile, graph) for profile in self._profiles], axis=1)
        actual = CostTable.of(graph, seconds * speed.factors(graph, self._profiles, seconds))
        trace = simulate(jobs, self._believed, costs, scheduler, actual=actual)
        trace.executions["start"][:] += self._overhead  # a measured execution is its kernel alone
        return SimpleNamespace(trace=trace)


def panel_on(machine, runs=3):
    panel = PanelRuns(machine)
    for _ in range(runs):
        panel.run()
    return panel


def speed_of(panel, statistic=mean, overhead=0.0, handover=None):
    times = PanelTimes(panel.machine.cluster, PROFILES, MODEL)
    return times.speed(panel.alone, panel.beside, statistic, overhead, handover)


SLOW = [
    dict(zip(SORTS, (3.0, 2.0, 1.0, 1.3, 1.7, 1.4, 1.5, 1.2), strict=True)),
    dict(zip(SORTS, (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8), strict=True)),
]


def of_roofline(slowness):
    """Of the sorts that there are where everything takes as long as at peak rates."""
    return {sort: by for sort, by in slowness.items() if sort != "arithmetic"}


def test_what_is_awaited_takes_so_many_microseconds_longer_however_long_it_is(monkeypatch):
    awaited = replace(PROFILES["slow"], cache="awaited")
    monkeypatch.setitem(PROFILES, "slow", awaited)
    panel = panel_on(SimulatedMachine([SLOW[0], dict.fromkeys(SORTS, 1.0)], added=(0.0, 7e-6)))
    speed = speed_of(panel)
    assert speed.added == pytest.approx((0.0, 7e-6))
    assert speed.slowness[0] == pytest.approx(of_roofline(SLOW[0]))
    graph = graph_of(PANEL)
    profiles = [PROFILES["fast"], awaited]
    said = np.stack([profile.price(graph.operators).seconds for profile in profiles], axis=1)
    read = MachineSpeed.from_json(speed.to_json())
    seconds = said * read.factors(graph, profiles, said)
    assert seconds[:, 1] == pytest.approx(said[:, 1] + 7e-6)
    # On a machine that is faster than its profile nothing is added.
    fast = speed_of(panel_on(SimulatedMachine([SLOW[0], dict.fromkeys(SORTS, 0.9)])))
    assert fast.added == (0.0, 0.0)
    assert list(fast.slowness[1].values()) == pytest.approx([0.9] * len(fast.slowness[1]))


def test_parts_are_the_panel():
    """Each operator in one part, with the tensors that it has in the panel, in the panel's order."""
    graph = graph_of(PANEL)
    named = [tensor.name for tensor in graph.tensors]
    assert [part.name for part in panel_parts()] == [*SMALL, "large"]
    assert sorted(np.concatenate([*panel_parts().values()])) == list(range(len(graph)))
    for part, rows in panel_parts().items():
        assert (np.diff(rows) > 0).all()
        for position, row in enumerate(rows):
            assert part.operators[position] == graph.operators[row]
            for mine, its in ((part.reads, graph.reads), (part.writes, graph.writes)):
                names = [part.tensors[t].name for t in mine[position]]
                assert names == [named[t] for t in its[row]]
    outputs = [p.tensors[t].name for p in panel_parts() for t in p.outputs]
    assert sorted(outputs) == sorted(named[t] for t in graph.outputs)


def test_a_part_that_counts_ran_just_before_on_the_same_device():
    machine = SimulatedMachine(SLOW)
    runs = []
    machine.run, plain = (lambda jobs, *rest: runs.append(jobs) or plain(jobs, *rest)), machine.run
    panel = panel_on(machine, 1)
    alone, beside = runs[:-3], runs[-3:]
    each = [part for part in panel.parts for _ in range(4)]
    assert [jobs.jobs[0].graph for jobs in alone] == each
    for part, jobs in zip(panel.parts, beside, strict=True):
        assert {job.graph for job in jobs} == {part}
        # the second device is 1.1 to 1.8 times as slow as the profile, and as fast by it
        assert len(jobs) >= 3
    said = np.ones((len(graph_of(PANEL)), 2))
    said[:, 1] = 3.0
    # twice each alone, then once on the slow one while the fast one executes it twice
    assert run_seconds(said, cluster()) == 2 * 4 * len(said) + 3 * len(said)


def test_each_sorts_slowness_is_found():
    found = speed_of(panel_on(SimulatedMachine(SLOW, overhead=2e-5)), overhead=2e-5)
    for device, known in zip(found.slowness, SLOW, strict=True):
        assert device == pytest.approx(of_roofline(known))
    assert found.corun == pytest.approx(0.0, abs=1e-6)


def test_launches_that_do_not_cool_are_found_so():
    """The gaps of all runs are the runner's overhead, whatever ran before."""
    panel = panel_on(SimulatedMachine(SLOW, overhead=2e-5))
    gaps = panel.gap_seconds()
    assert gaps.shape == (2, 3, len(graph_of(PANEL)))
    for rows in panel_parts().values():
        assert (gaps[:, :, rows[0]] == 0.0).all()
        assert gaps[:, :, rows[1:]] == pytest.approx(2e-5)
    times = PanelTimes(panel.machine.cluster, PROFILES, MODEL)
    found = times.speed(panel.alone, panel.beside, mean, 2e-5, gaps=gaps)
    assert [curve.factors for curve in found.cooling] == [pytest.approx((1.0,) * 10)] * 2
    assert found.corun == pytest.approx(0.0, abs=1e-6)


def test_what_cold_code_costs_is_found():
    """The panel has light operators behind long ones and behind short ones."""
    cold = ((4e-5, 1e-5), (6e-5, 0.0))
    found = speed_of(panel_on(SimulatedMachine(SLOW, overhead=2e-5, cold=cold)), overhead=2e-5)
    for mine, known in zip(found.cold, cold, strict=True):
        assert mine == pytest.approx(known)
    for device, known in zip(found.slowness, SLOW, strict=True):
        assert device == pytest.approx(of_roofline(known))
    assert MachineSpeed.from_json(json.loads(json.dumps(found.to_json()))) == found
    # Not told apart it is in the factors of all alike, and the panel takes as long.
    alike, devices = found.without_cold(), list(PROFILES.values())
    totals = np.zeros((2, 2))
    for part in panel_parts():
        said = np.stack([profile.price(part.operators).seconds for profile in devices], axis=1)
        for total, speed in zip(totals, (found, alike), strict=True):
            total += (said * speed.factors(part, devices, said)).sum(axis=0)
    assert totals[0] == pytest.approx(totals[1])
    assert alike.slowness[0]["light"] > 1.1 * found.slowness[0]["light"]
    assert alike.cold == ()


def test_what_traffic_costs_convolutions_is_found():
    """The panel has convolutions that move much and little; how much slower those of another model are follows."""
    panel = panel_on(SimulatedMachine(SLOW, traffic=(0.5, 0.0)))
    found = speed_of(panel)
    assert found.traffic == (pytest.approx(0.5), pytest.approx(0.0, abs=1e-9))
    for device, known in zip(found.slowness, SLOW, strict=True):
        assert device == pytest.approx(of_roofline(known))
    assert MachineSpeed.from_json(json.loads(json.dumps(found.to_json()))) == found
    # 2 x 9 x 64 x 64 x 97 x 97 operations, 6.9 ms, of 5.1 MB, .2 ms; all that it takes is moving at half that rate.
    one = operator("conv2d", [(1, 64, 99, 99), (64, 64, 3, 3)], (1, 64, 97, 97))
    graph, moved = alone(one), 4 * (64 * 99 * 99 + 64 * 64 * 9 + 64 * 97 * 97)
    profiles = list(PROFILES.values())
    for seconds, share in ((9e-3, moved / 2.5e10 / 9e-3), (2 * moved / 2.5e10, 0.5)):
        factors = found.factors(graph, profiles, np.full((1, 2), seconds))
        assert factors[0, 0] == pytest.approx(1.5 + 0.5 * np.sqrt(share))
        assert factors[0, 1] == pytest.approx(1.7)


@pytest.mark.parametrize("handover", [None, 4e-5])
def test_what_devices_cost_each_other_is_found(handover):
    """The waiting for one interpreter is known, and not counted as the kernels' own."""
    machine = SimulatedMachine(SLOW, 0.08, 2e-5, handover)
    found = speed_of(panel_on(machine), overhead=2e-5, handover=handover)
    assert found.corun == pytest.approx(0.08, abs=0.012)
    assert found.slowness[0] == pytest.approx(of_roofline(SLOW[0]))


@pytest.mark.parametrize("stated", [0.0, 0.5])
def test_what_is_found_is_simulated_whatever_the_cluster_states(stated):
    shared = with_overhead(cluster(stated), Overhead(), corun=0.08)
    assert shared.spaces[0].corun_slowdown == 0.08
    assert with_overhead(cluster(stated), Overhead()).spaces[0].corun_slowdown == stated
    by_bandwidth = replace(cluster(), spaces=[MemorySpace("ram", bandwidth=1e9)])
    assert with_overhead(by_bandwidth, Overhead(), corun=0.08).spaces == by_bandwidth.spaces


def test_of_equal_devices_not_the_one_that_seemed_faster():
    """Of two equal devices both count: one that by chance was 4% faster alone is not slowed more by the other."""
    equal = replace(cluster(), devices=[Device(name, "ram", "fast") for name in ("one", "two")])
    panel = panel_on(
        SimulatedMachine([SLOW[0], SLOW[0]], here=with_overhead(equal, Overhead(), corun=0.1))
    )
    (run,) = {tuple(r) for r in panel.alone[0]}
    panel.alone[0] = [0.96 * np.array(run)] * 3
    panel.alone[1] = [1.04 * np.array(run)] * 3
    assert speed_of(panel).corun == pytest.approx(0.1, abs=0.005)


def test_what_waking_a_device_costs_is_found():
    """Each pair's first execution pays all but e^-4 of it, the second none; devices differ."""
    machine = SimulatedMachine(SLOW)
    machine._believed = with_waking(machine._believed, [2e-3, 0.0])
    first, second = wake_seconds(machine)
    assert first == pytest.approx(2e-3 * (1 - np.exp(-REST_S / WAKE_AFTER)), rel=1e-6)
    assert second == pytest.approx(0.0, abs=1e-12)


def test_of_equal_devices_all_pairs_count():
    equal = replace(cluster(), devices=[Device(name, "ram", "fast") for name in ("one", "two")])
    machine = SimulatedMachine([SLOW[0], SLOW[0]], here=equal)
    machine._believed = with_waking(equal, [2e-3, 4e-3])
    first, second = wake_seconds(machine)
    assert first == second
    assert 2e-3 < first / (1 - np.exp(-REST_S / WAKE_AFTER)) < 4e-3


def test_a_statistic_of_sums():
    """Of two runs, each slow in another sort, the lower quantile of the sums is above that of the parts."""
    calm = dict.fromkeys(SORTS, 1.0)
    machine = SimulatedMachine([{**calm, "weights": 2.0}, calm])
    panel = panel_on(machine, 1)
    machine._slowness = [{**calm, "convolutions": 1.5}, calm]
    panel.run()
    speed = speed_of(panel, lambda seconds: float(seconds.min()))
    graph = graph_of(PANEL)
    said = np.stack([one.price(graph.operators).seconds for one in PROFILES.values()], axis=1)

    def total(slow):
        return said[:, 0] @ slow.factors(graph, list(PROFILES.values()), said)[:, 0]

    whole = total(speed)
    parts = [
        total(MachineSpeed(({**calm, sort: by}, calm)))
        for sort, by in (("weights", 2.0), ("convolutions", 1.5))
    ]
    assert whole == pytest.approx(min(parts))
    assert min(speed.slowness[0].values()) > 1


def test_noise_is_what_another_measurement_would_differ_by():
    """Of the mean of 60 runs that vary by 10% each."""
    panel = panel_on(SimulatedMachine(SLOW), 1)
    assert speed_of(panel).noise == 0.0
    rng = np.random.default_rng(0)
    (run,) = panel.alone[0]
    for device in panel.alone:
        device[:] = [run * by for by in np.exp(0.1 * rng.standard_normal(60))]
    noise = speed_of(panel).noise
    assert noise == pytest.approx(0.1 / np.sqrt(60), rel=0.25)
    speed = MachineSpeed(({"light": 2.0},), (2.0,), noise=noise)
    assert MachineSpeed.from_json(speed.to_json()) == speed


def apart(bus=None, slowdowns=(0.0, 0.0)):
    spaces = [
        MemorySpace(name, corun_slowdown=s, bus=bus)
        for name, s in zip("ab", slowdowns, strict=True)
    ]
    devices = [Device("one", "a", "fast"), Device("two", "b", "slow")]
    return Cluster("apart", spaces, devices, [Link("link", ("a", "b"), 1e9)], host="a")


def test_devices_that_share_no_memory_do_not_slow_each_other():
    assert speed_of(panel_on(SimulatedMachine(SLOW, here=apart()))).corun is None


def test_devices_whose_memories_share_a_bus_slow_each_other():
    """Each memory's own are slowed by their own fraction, which is what is simulated then."""
    found = speed_of(panel_on(SimulatedMachine(SLOW, here=apart("host", (0.08, 0.02)))))
    assert found.corun == {
        "a": pytest.approx(0.08, abs=0.012),
        "b": pytest.approx(0.02, abs=0.012),
    }
    assert MachineSpeed.from_json(found.to_json()) == found
    simulated = with_overhead(apart("host"), Overhead(), corun={"a": 0.25})
    assert [space.corun_slowdown for space in simulated.spaces] == [0.25, 0.0]
    assert corun_text({"a": 0.0312, "b": 0.0}) == "+3.1/+0.0%"
    assert [corun_text(None), corun_text(0.0312)] == ["", "+3.1%"]


def test_the_panel_takes_a_share_of_the_time(monkeypatch):
    monkeypatch.setattr("experiments.probes.panel.LEAST_RUNS", LEAST_RUNS)
    monkeypatch.setattr("experiments.probes.panel.SHARE", SHARE)
    panel = PanelRuns(SimulatedMachine(SLOW))
    for _ in range(LEAST_RUNS):
        assert panel.is_due(0.0)
        panel.run()
    assert not panel.is_due(0.0)
    assert panel.is_due(panel._spent / SHARE)
    panel.clear()
    assert panel.is_due(0.0)


def operator(kind, shapes, output, **attributes):
    specs = tuple(TensorSpec(shape) for shape in shapes)
    return Operator(kind, kind, specs, (TensorSpec(output),), attributes)


# What is executed, what it takes in microseconds, and its sort, at 100 GFLOP/s and 25 GB/s.
BY_HAND = [
    # 2 x 100 x 1000 x 1000 operations, 2 ms, of 4.8 MB, 0.2 ms
    (operator("linear", [(100, 1000), (1000, 1000)], (100, 1000)), 2500, "products"),
    # 2 MFLOP, 20 us, of 4 MB of weights, 160 us
    (operator("linear", [(1, 1000), (1000, 1000)], (1, 1000)), 170, "weights"),
    # 8 MB of activations, 320 us; a tangent takes longer than moving them
    (operator("relu", [(1000, 1000)], (1000, 1000)), 330, "activations"),
    (operator("tanh", [(1000, 1000)], (1000, 1000)), 1000, "arithmetic"),
    (operator("relu", [(1, 1000)], (1, 1000)), 6, "light"),
    # of neighbours: by channel, over all of them, and of none; one whose weights are most of it
    (
        operator("conv2d", [(1, 64, 100, 100), (64, 1, 3, 3)], (1, 64, 98, 98), groups=64),
        900,
        "depthwise",
    ),
    (operator("conv2d", [(1, 64, 99, 99), (64, 64, 3, 3)], (1, 64, 97, 97)), 9e3, "convolutions"),
    (
        operator("conv2d", [(1, 64, 99, 99), (64, 64, 1, 1), (64,)], (1, 64, 99, 99)),
        990,
        "convolutions",
    ),
    (
        operator("conv2d", [(1, 1000, 1, 1), (1000, 1000, 1, 1)], (1, 1000, 1, 1)),
        170,
        "weights",
    ),
    (operator("max_pool2d", [(1, 64, 100, 100)], (1, 64, 50, 50)), 2000, "arithmetic"),
    (
        operator("scaled_dot_product_attention", [(1, 8, 200, 64)] * 3, (1, 8, 200, 64)),
        900,
        "attention",
    ),
]


def alone(*operators):
    """A graph of operators that have nothing to do with each other; what each reads but the first is weights."""
    tensors, reads, writes = [], [], []
    for one in operators:
        mine = []
        for position, spec in enumerate(one.inputs):
            role = "weight" if position else "input"
            tensors.append(Tensor(f"t{len(tensors)}", role, float(spec.bytes), spec))
            mine.append(len(tensors) - 1)
        reads.append(mine)
        spec = one.outputs[0]
        tensors.append(Tensor(f"t{len(tensors)}", "activation", float(spec.bytes), spec))
        writes.append([len(tensors) - 1])
    named = [
        Operator(f"{i}", o.kind, o.inputs, o.outputs, o.attributes) for i, o in enumerate(operators)
    ]
    return DataflowGraph("by hand", named, tensors, reads, writes)


def test_sorts_by_hand():
    graph = alone(*(one for one, _, _ in BY_HAND))
    took = np.array([microseconds for _, microseconds, _ in BY_HAND]) * 1e-6
    found = [SORTS[i] for i in sorts_of(graph, PROFILES["fast"], took)]
    assert found == [sort for _, _, sort in BY_HAND]
    speed = MachineSpeed(({"light": 5.0, "weights": 2.0}, {"products": 3.0}))
    factors = speed.factors(graph, list(PROFILES.values()), np.stack([took, took], axis=1))
    assert factors[:5].tolist() == [[1, 3], [2, 1], [1, 1], [1, 1], [5, 1]]
    speed = replace(speed, whole=(1.5, 1.25))  # where the panel has none of a sort
    factors = speed.factors(graph, list(PROFILES.values()), np.stack([took, took], axis=1))
    assert factors[:5].tolist() == [[1.5, 3], [2, 1.25], [1.5, 1.25], [1.5, 1.25], [5, 1.25]]


def test_the_panel_has_operators_of_every_sort():
    graph = graph_of(PANEL)
    for name in ("amd-epyc-25-17-1core", "amd-epyc-25-17-1core-3x"):
        profile = Profile.load(name)
        sorts = sorts_of(graph, profile, profile.price(graph.operators).seconds)
        assert set(sorts) == set(range(len(SORTS)))
        assert np.bincount(sorts).min() >= 1


def test_what_the_panel_pools_is_as_it_is_where_profiles_are_measured():
    panel = PanelRuns(SimulatedMachine(SLOW))
    inputs = {name: t for given in panel.inputs.values() for name, t in given.items()}
    assert len(inputs) == 7
    zeros = {name: float((tensor == 0).float().mean()) for name, tensor in inputs.items()}
    pooled = {name for name, tensor in inputs.items() if tensor.shape[1] == 64}
    assert len(pooled) == 2
    for name, share in zeros.items():
        assert share == pytest.approx(0.5 if name in pooled else 0.0, abs=0.02)


def test_it_is_read_as_it_was_written():
    curves = {"ram": (ReuseCurve((1.0, 2.0), (1.0, 0.5)), ReuseCurve((1.0,), (1.0,)))}
    cooling = (CoolingCurve((1e-4, 1e-3), (0.5, 2.0)), None)
    speed = MachineSpeed(({"light": 2.0},), (2.0,), 0.2, reuse=curves, cooling=cooling)
    assert MachineSpeed.from_json(json.loads(json.dumps(speed.to_json()))) == speed


def test_runs_in_an_array_are_the_complete_ones():
    panel = panel_on(SimulatedMachine(SLOW))
    panel.alone[0].append(panel.alone[0][0])  # interrupted after the first device
    seconds = panel.seconds()
    assert seconds.shape == (2, 2, 3, len(graph_of(PANEL)))
    assert (seconds[0, 1] == panel.alone[1]).all()
    assert (seconds[1, 0] == panel.beside[0]).all()


def block_on(machine):
    document = {"handover_s": None, "overhead_s": 0.0}
    panel = panel_on(machine)
    seconds, gaps = panel.seconds(), panel.gap_seconds()
    alone = np.zeros((2, 1, 2))
    return Block(
        {},
        {},
        {},
        {},
        alone,
        seconds,
        gaps,
        np.zeros((0, 0, 0, 0)),
        {},
        0.0,
        1.0,
        0.0,
        (),
        document,
        "",
    )


def test_runs_of_all_visits_are_one_sample():
    """A makespan that is a low quantile of both visits is one of the faster visit, and so is the speed."""
    slower = [{sort: 2 * by for sort, by in device.items()} for device in SLOW]
    blocks = [block_on(SimulatedMachine(slower)), block_on(SimulatedMachine(SLOW))]
    said = PanelTimes(cluster(), PROFILES, MODEL)
    found = MachineSpeed.from_json(_machine("m", blocks, said, "minimum")["speed"])
    for device, known in zip(found.slowness, SLOW, strict=True):
        assert device == pytest.approx(of_roofline(known))


def test_what_the_runner_needs_is_that_of_the_visits_whose_runs_count():
    needs = [80.0, 40.0, 60.0]
    assert _of_visits(needs, [2, 2, 2], "minimum") == 40
    assert _of_visits(needs, [2, 2, 2], "median") == 60
    # the third smallest of 22, and of 20
    assert _of_visits(needs[:2], [20, 2], "p10") == pytest.approx(80)
    assert _of_visits(needs[:2], [10, 10], "p10") == 40
    slow, fast = (block_on(SimulatedMachine(SLOW)) for _ in range(2))
    slow = replace(slow, machine=slow.machine | {"handover_s": 3e-5})
    fast = replace(fast, machine=fast.machine | {"handover_s": 1e-5})
    said = PanelTimes(cluster(), PROFILES, MODEL)
    assert _machine("m", [slow, fast], said, "minimum")["handover_s"] == 1e-5
    fast = replace(fast, machine=fast.machine | {"handover_s": None})
    assert _machine("m", [slow, fast], said, "minimum")["handover_s"] is None


def test_runs_beside_another_panel_are_refused():
    block = block_on(SimulatedMachine(SLOW))
    older = replace(block, panel=block.panel[..., 1:])
    said = PanelTimes(cluster(), PROFILES, MODEL)
    with pytest.raises(InvalidInput, match="runs of m were made beside another panel of operators"):
        _machine("m", [older, block], said, "minimum")


def test_a_speed_that_is_none_is_refused():
    check_speed("now")
    with pytest.raises(InvalidInput, match="speed=fast: give now or profile"):
        check_speed("fast")
