"""Planned splits: closed forms, signs of what bandwidth and unequal devices do, and both worlds."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from calibration.kernels import make_operator  # noqa: E402
from calibration.runner import Machine  # noqa: E402
from calibration.sequential import results_of, run_graph, weights_of  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from scenarios.partition.eop import EOP, key_operators  # noqa: E402
from scenarios.partition.operator_parts import Split  # noqa: E402
from scenarios.partition.partitioner import partition  # noqa: E402
from scenarios.partition.split_graph import split_graph  # noqa: E402
from scenarios.partition.tensor_split import TensorSplit  # noqa: E402
from simulator.engine.run import simulate  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.costs import CostTable  # noqa: E402
from simulator.model.graph import from_edges  # noqa: E402
from simulator.model.plan import Plan  # noqa: E402
from simulator.schedulers.planned import Planned  # noqa: E402
from tests.examples import examples  # noqa: E402
from tests.scenarios.partition.linear_prices import LinearPrices, problem_of  # noqa: E402
from tests.scenarios.partition.test_split_graph import graph_of_one, net, spec  # noqa: E402, F401
from tests.simulator.planners.linear_shares import linear_shares  # noqa: E402


def product(rows=8, inner=16, columns=240):
    """A job of one product of matrices."""
    operator = make_operator("aten.linear.default", spec(rows, inner), spec(columns, inner))
    return graph_of_one(operator, (1,))


@pytest.mark.parametrize("devices", [2, 3, 8])
def test_equal_devices_without_communication_are_so_many_times_as_fast(devices):
    graph, _, _ = product()
    problem = problem_of(graph, [1e6] * devices)
    found = partition(TensorSplit(units=240), problem)
    alone = problem.costs[graph].seconds[0, 0]
    assert found.plan.makespan_s == pytest.approx(alone / devices)


def test_unequal_devices_with_overheads_get_the_shares_of_the_closed_form():
    graph, _, _ = product(columns=400)
    flops = 2.0 * 8 * 16 * 400
    problem = problem_of(graph, [3 * flops, flops], [0.0, 0.1])
    found = partition(TensorSplit(dimensions=["channels"], units=400), problem)
    end, shares = linear_shares((3, 1), (0, 0.1))
    assert end == pytest.approx(0.275)
    assert found.plan.makespan_s == pytest.approx(end)
    (split,) = found.plan.notes["splits"].values()
    np.testing.assert_allclose(np.array(split["sizes"]) / 400, shares)
    # A device whose overhead is longer than all takes no part.
    assert (
        partition(TensorSplit(), problem_of(graph, [flops, flops], [0, 2])).plan.notes.get(
            "split", 0
        )
        == 0
    )


def test_memories_count_slices_of_weights():
    """262,144 bytes of weights fit into neither memory of 200,000; halves of them do."""
    graph, _, _ = product(rows=1, inner=64, columns=1024)
    given_ = problem_of(graph, [1e6, 1e6], bandwidth=1e9)
    spaces = [dataclasses.replace(space, capacity=200_000.0) for space in given_.cluster.spaces]
    cluster = dataclasses.replace(given_.cluster, spaces=spaces)
    small = dataclasses.replace(given_, cluster=cluster, memory="limited")
    found = partition(TensorSplit(dimensions=["channels"]), small)
    assert set(found.makespans) == {"tensor_split"}  # no device holds everything
    assert found.plan.notes["split"] == 1


@pytest.mark.parametrize(("tc", "tg", "least"), [(16.70, 4.24, 0.18), (4.0, 4.0, 0.5)])
def test_eop_saves_what_a_linear_split_can(tc, tg, least):
    """``tg / (tc + tg)`` of the GPU's time, up to the grid of sixteenths: ResNet-18's convolutions 20%."""
    graph, _, _ = product()
    flops = 2.0 * 8 * 16 * 240
    found = partition(EOP(), problem_of(graph, [flops / tg, flops / tc]))
    saved = 1 - found.plan.makespan_s / tg
    assert least <= saved <= tg / (tc + tg) + 1e-9
    assert tg / (tc + tg) - saved < tc / (tc + tg) / 16 + 1e-9


def test_eop_leaves_whole_what_gains_nothing_and_what_is_light():
    graph, _, _ = product()
    slow_link = problem_of(graph, [1e6, 1e6], bandwidth=1e3)
    assert partition(EOP(), slow_link).plan.notes.get("split", 0) == 0
    plan = EOP(0.5).plan(slow_link)
    assert plan.notes["split"] == 1
    assert partition(EOP(0.5), slow_link).plan.origin == "all on d0"
    assert key_operators(np.array([5.0, 1.0, 80.0, 10.0, 4.0])) == [2, 3]
    with pytest.raises(InvalidInput, match="a number from 0 to 1"):
        EOP(1.5)


speeds = st.lists(st.sampled_from([1e5, 3e5, 1e6]), min_size=2, max_size=3)


@settings(max_examples=examples(36), deadline=None)
@given(data=st.data(), speed=speeds, bandwidth=st.sampled_from([None, 1e5, 1e8]))
def test_no_plan_is_worse_than_the_best_device(net, data, speed, bandwidth):  # noqa: F811
    graph, module, inputs = net
    problem = problem_of(graph, speed, [1e-5] * len(speed), bandwidth, 1e-5)
    partitioner = data.draw(
        st.sampled_from([TensorSplit(budget=4), TensorSplit("equal", budget=4), EOP(), EOP(0.5)])
    )
    found = partition(partitioner, problem)
    alone = [v for k, v in found.makespans.items() if k.startswith("all on")]
    assert found.plan.makespan_s <= min(alone)
    assert found.plan.makespan_s >= min(alone) / len(speed) / (max(speed) / min(speed))
    made = found.plan.graphs[0]
    expected = run_graph(graph, weights_of(module, graph), inputs)
    for one, other in zip(run_graph(made, weights_of(module, made), inputs), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def gain(graph, partitioner, *args):
    found = partition(partitioner, problem_of(graph, *args))
    return min(v for k, v in found.makespans.items() if k.startswith("all")) / found.plan.makespan_s


def test_the_gain_falls_to_none_with_bandwidth_and_is_bounded_by_the_devices(net):  # noqa: F811
    graph, _, _ = net
    for devices in (2, 4):
        speed = [1e6] * devices
        gains = [
            gain(graph, TensorSplit(), speed, None, bandwidth, 0.0)
            for bandwidth in (1e10, 1e7, 1e5, 1e3)
        ]
        assert gains[0] <= devices * (1 + 1e-9)
        assert gains[0] > devices / 2
        assert gains[-1] == 1.0
        assert all(a >= b - 0.02 for a, b in pairwise(gains))


@pytest.mark.parametrize("bandwidth", [None, 1e7])
def test_tuned_shares_are_no_worse_than_equal_ones_on_unequal_devices(net, bandwidth):  # noqa: F811
    graph, _, _ = net
    args = ([1e6, 2.5e5], [1e-6, 1e-6], bandwidth)
    tuned, equal = (gain(graph, TensorSplit(shares), *args) for shares in ("tuned", "equal"))
    assert tuned >= equal
    assert tuned > 1.05


def carried_out(graph, splits, cluster):
    placed = split_graph(graph, [0] * len(graph), splits, cluster.space_of, 0)
    names = tuple(d.name for d in cluster.devices)
    return Plan("split", (placed.graph,), names, placed.device, np.arange(len(placed.graph)))


def test_only_slices_cross_the_link():
    conv = make_operator(
        "aten.conv2d.default", spec(1, 4, 20, 6), spec(8, 4, 3, 3), None, [1, 1], [1, 1]
    )
    graph, _, _ = graph_of_one(conv, (1,))
    problem = problem_of(graph, [1e6, 1e6], None, 1e6)
    plan = carried_out(graph, {0: Split(2, (13, 7), (0, 1))}, problem.cluster)
    costs = LinearPrices((1e6, 1e6), (0, 0)).price(plan.graphs)
    trace = simulate(plan.graphs[0], problem.cluster, costs, Planned(plan))
    halo, item = 1, 4
    assert sorted(trace.transfers["bytes"]) == sorted([(7 + halo) * 4 * 6 * item, 7 * 8 * 6 * item])


def test_workers_with_memories_of_their_own_compute_the_same(net):  # noqa: F811
    graph, module, inputs = net
    problem = problem_of(graph, [1e6, 1e6], [0, 0], 1e9, 1e-6)
    plan = TensorSplit(budget=2).plan(problem)
    assert plan.notes["split"] > 3
    made = plan.graphs[0]
    expected = run_graph(graph, weights_of(module, graph), inputs)
    costs = CostTable.of(made, np.full((len(made), 2), 1e-4))
    with Machine(problem.cluster, {"d0": WorkerSpec(), "d1": WorkerSpec()}) as machine:
        machine.load(made, weights_of(module, made))
        done = machine.run(made, costs, Planned(plan), {made: inputs})
    for one, other in zip(results_of(made, done.outputs[0]), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    trace = simulate(made, problem.cluster, costs, Planned(plan))
    sent = [sorted(t.transfers["bytes"]) for t in (done.trace, trace)]
    assert sent[0] == sent[1] != []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shares": "fair"}, "There are no shares 'fair'"),
        ({"dimensions": ["depth"]}, "split along batch, channels, rows, inner; got depth"),
        ({"units": 1}, "an integer of at least 2"),
        ({"devices": ["d7"]}, "No device 'd7' can run all of 'one'; these can: d0, d1"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        TensorSplit(**options).plan(problem_of(product()[0], [1, 1]))


def test_bare_graphs_are_refused():
    graph = from_edges("bare", 2, [(0, 1, 4)])
    problem = problem_of(product()[0], [1, 1])
    from scenarios.partition.partitioner import Problem
    from simulator.model.workload import Job, Workload

    bare = Problem(Workload([Job(graph)]), problem.cluster, CostTable.of(graph, np.ones((2, 2))))
    with pytest.raises(InvalidInput, match="no operators that could be split"):
        TensorSplit().plan(bare)
