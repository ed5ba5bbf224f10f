"""Partitions ``pipeline`` and ``data_parallel``: stages, shares, communication by closed forms, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scenarios.partition.partitioner import Problem, partition
from scenarios.training.layers import crossing_bytes
from scenarios.training.parallel_training import (
    DataParallel,
    ParallelTraining,
    shared_out,
)
from scenarios.training.step import Step
from simulator.analysis.residency import occupancy
from simulator.errors import InvalidInput
from simulator.model.cluster import MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.workload import Job, Workload
from tests.scenarios.training.chains import chain_step, step_seconds, switched


def problem(layers=8, devices=4, bandwidth=np.inf, speeds=None, **options):
    """A chain whose layers take 8 s forward and 16 s backward for the whole batch."""
    made = {name: options.pop(name, 0.0) for name in ("activation", "weight")}
    graph = chain_step(layers, **made)
    cluster = options.pop("cluster", None) or switched(devices, bandwidth)
    seconds = step_seconds(graph, devices, 8.0, 16.0) / np.array(speeds or [1.0] * devices)
    costs = CostTable({graph: GraphCosts(seconds)})
    return Problem(Workload([Job(graph)]), cluster, costs, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (8 + 3) * 6),  # two layers a stage, 6 s a micro-batch
        ({"schedule": "gpipe"}, (8 + 3) * 6),
        ({"schedule": "interleaved", "chunks": 2}, 8 * 6 + 3 * 3),
        ({"schedule": "zb_h1"}, (8 + 3) * 6),  # backward operators of layers cannot be divided
        ({"stages": 2}, (4 + 1) * 12),
        ({"stages": 1}, 2 * 24),
        ({"recompute": 1}, (8 + 3) * 6 + 8 * 2),  # and the last stage computes forward again
    ],
)
def test_equal_stages_without_communication(options, expected):
    asked = problem()
    plan = ParallelTraining(**options).plan(asked)
    if "recompute" in options:  # nothing but what the backward pass reads is computed again
        assert 66 < asked.makespan(plan) <= 8 * 8 + 3 * 8
    else:
        assert asked.makespan(plan) == pytest.approx(expected)


def test_stages_follow_the_speeds_of_devices():
    asked = problem(devices=2, speeds=[3.0, 1.0])
    plan = ParallelTraining(micro_batches=4).plan(asked)
    # Both stages take 12 s a micro-batch of 48: 6 layers at 2 s, 2 layers at 6 s.
    assert [d == "d-m0" for (d,) in plan.notes["stages"]] == [
        plan.notes["starts"][1] == "f6",
        plan.notes["starts"][1] == "f2",
    ]
    assert plan.notes["slowest_s"] == pytest.approx(12.0)
    assert asked.makespan(plan) == pytest.approx((4 + 1) * 12)
    equal = ParallelTraining(micro_batches=4, layers="equal").plan(asked)
    assert equal.notes["starts"] == ["f0", "f4"]
    assert asked.makespan(equal) > asked.makespan(plan)


@pytest.mark.parametrize(
    "speeds", [[1.0, 1.0, 1.0, 1.0], [4.0, 4.0, 1.0, 1.0], [8.0, 4.0, 2.0, 1.0]]
)
def test_the_best_clusters_are_those_that_the_engine_finds_fastest(speeds):
    asked = problem(speeds=speeds, weight=4.0, activation=2.0, bandwidth=4.0)

    def makespan(**options):
        return asked.makespan(ParallelTraining(**options).plan(asked))

    asked_for = [(n, c) for n in (1, 2, 4) for c in ("fastest_first", "equal_distribution")]
    others = [makespan(clusters=c, stages=n) for n, c in asked_for]
    assert makespan(clusters="best") <= min(others)
    assert makespan(clusters="best", stages=2) <= min(others[2:4])


def test_replicas_share_in_proportion_to_speed():
    assert shared_out(8, np.array([3.0, 1.0])) == [0, 0, 0, 1, 0, 0, 0, 1]
    asked = problem(devices=2, speeds=[3.0, 1.0])
    plan = DataParallel(micro_batches=8).plan(asked)
    assert asked.makespan(plan) == pytest.approx(6 * 24 / 3) == pytest.approx(2 * 24)


def test_gradients_are_summed_beside_the_backward_pass():
    """A ring of four over 10 bytes/s: one bucket is exposed whole, one a layer only behind the last layers."""
    asked = problem(weight=40.0, bandwidth=10.0)
    ring = 2 * 3 / 4 * 40 / 10
    compute = 8 * (8 + 16) / 4
    at_once = asked.makespan(DataParallel(bucket_mb=1.0).plan(asked))
    assert at_once == pytest.approx(compute + 8 * ring)
    own = asked.makespan(DataParallel(bucket_mb=1e-6).plan(asked))
    assert compute + ring < own < at_once  # each hop waits for the kernel that runs
    names = [d.name for d in asked.cluster.devices]
    twins = [replace(d, name=f"{d.name}-stream") for d in asked.cluster.devices]
    cluster = replace(asked.cluster, devices=[*asked.cluster.devices, *twins])
    ((graph, costs),) = asked.costs.items()
    table = CostTable({graph: GraphCosts(np.hstack([costs.seconds, costs.seconds]))})
    beside = replace(asked, cluster=cluster, costs=table)
    overlapped = beside.makespan(DataParallel(bucket_mb=1e-6, devices=names).plan(beside))
    # A layer's backward pass takes 4 s and its ring 6: rings follow each other from the first gradient on.
    assert overlapped == pytest.approx(8 * 2 + 4 + 8 * ring)
    tree = asked.makespan(DataParallel(bucket_mb=1.0, reduction="tree").plan(asked))
    assert tree == pytest.approx(compute + 2 * 2 * 8 * 40 / 10)


def test_a_communicator_takes_as_long_as_a_ring():
    asked = problem(weight=40.0, bandwidth=10.0)
    names = [d.name for d in asked.cluster.devices]
    spaces = [*asked.cluster.spaces, MemorySpace("net")]
    link = replace(asked.cluster.links[0], name="l-net", ends=("net", "switch"), bandwidth=np.inf)
    device = replace(asked.cluster.devices[0], name="net", space="net")
    # What goes to the communicator takes nothing: the links' time is in its operator.
    links = [replace(row, bandwidth=np.inf) for row in asked.cluster.links]
    cluster = replace(
        asked.cluster, spaces=spaces, devices=[*asked.cluster.devices, device], links=[*links, link]
    )
    ((graph, costs),) = asked.costs.items()
    wider = GraphCosts(np.hstack([costs.seconds, costs.seconds[:, :1]]))
    beside = replace(asked, cluster=cluster, costs=CostTable({graph: wider}))
    plan = DataParallel(communicator="net", devices=names, bucket_mb=1.0).plan(beside)
    assert beside.makespan(plan) == pytest.approx(48.0)  # the closed form over links of no time
    kinds = [o.kind for o in plan.graphs[0].operators]
    assert kinds.count("all_reduce") == 1


def test_recomputation_trades_time_for_memory():
    asked = problem(layers=16, devices=2, activation=16.0, weight=1.0)
    peaks, times = [], []
    for recompute in (None, 1, 4):
        plan = ParallelTraining("gpipe", recompute=recompute).plan(asked)
        trace = asked.trace(plan, "unlimited")
        peaks.append(occupancy(trace)[0].peak)
        times.append(trace.makespan)
    assert peaks[1] < peaks[0]
    assert peaks[2] < peaks[0]
    assert times[0] < times[2] <= times[1] * 1.01


def test_bytes_that_cross_a_cut():
    step = Step.of(chain_step(3, activation=5.0, weight=7.0))
    assert crossing_bytes(step).tolist() == [0.0, 10.0, 10.0]  # an activation and its gradient


def test_the_best_device_alone_is_kept_where_links_are_slow():
    asked = problem(devices=2, activation=1e3, bandwidth=1.0)
    found = partition(ParallelTraining(), asked)
    assert found.plan.origin.startswith("all on")
    assert found.plan.makespan_s == 8 * 24


@pytest.mark.parametrize(
    ("made", "changes", "message"),
    [
        (ParallelTraining(stages=9), {"devices": 9, "layers": 8}, "cannot be 9 stages"),
        (ParallelTraining(stages=5), {}, "5 stages take as many devices, and 4 can"),
        (ParallelTraining(devices=["d9"]), {}, "device 'd9', which cluster 'switched' lacks"),
        (DataParallel(micro_batches=3), {}, "4 replicas of a stage cannot share 3 micro-batches"),
        (DataParallel(reduction="hierarchical", node_size=3), {}, "cannot have nodes of 3"),
    ],
)
def test_what_cannot_be_is_refused(made, changes, message):
    with pytest.raises(InvalidInput, match=message):
        made.plan(problem(**changes))


def test_a_batch_that_cannot_be_divided_is_refused():
    asked = problem()
    graph = asked.graph
    traced = replace(asked, at_batch=lambda batch: graph)
    graph.batch = 6
    with pytest.raises(InvalidInput, match=r"Batch 6 of 'chain' cannot be cut into 4 equal"):
        ParallelTraining(micro_batches=4).plan(traced)


def test_several_jobs_are_refused():
    asked = problem()
    with pytest.raises(InvalidInput, match="plans one job, a training step"):
        ParallelTraining().plan(replace(asked, workload=Workload([Job(asked.graph)] * 2)))


def test_a_stage_over_its_memory_is_refused_with_the_bytes():
    asked = problem(devices=2, activation=1e6, weight=8e6)
    spaces = [replace(space, capacity=20e6) for space in asked.cluster.spaces]
    small = replace(asked, cluster=replace(asked.cluster, spaces=spaces), memory="limited")
    with pytest.raises(InvalidInput, match=r"Stage 0 of 2 \(layers f0 to .*\) needs 65.0 MB"):
        ParallelTraining().plan(small)
    # What the planner leaves out (inputs, copies, gradients under way) is found by a run.
    tight = [replace(space, capacity=66e6) for space in asked.cluster.spaces]
    found = replace(small, cluster=replace(asked.cluster, spaces=tight))
    with pytest.raises(InvalidInput, match=r"on 'd-m.' needs \d+\.?\d* MB .* holds 66.0 MB"):
        ParallelTraining().plan(found)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "2f2b"},
        {"layers": "luck"},
        {"clusters": "stars"},
        {"reduction": "gossip"},
        {"micro_batches": 0},
    ],
)
def test_unknown_options_are_refused(options):
    ((what, value),) = options.items()
    with pytest.raises(InvalidInput, match=f"has {what}={value}"):
        ParallelTraining(**options)
