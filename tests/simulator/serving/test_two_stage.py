"""Two-stage selection: how loads are sampled, when a request goes elsewhere, known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.serving_metrics import serving_metrics
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers.fcfs_batching import FCFSBatching
from simulator.serving.entropy_weights import entropy_weights
from simulator.serving.two_stage import MovingAverage, Persistence, TwoStage, make_predictor
from tests.examples import examples
from tests.simulator.serving.fleet import Fleet, flows, poisson

ALL = (
    "random",
    "round_robin",
    "least_loaded",
    "power_of_two",
    {"name": "two_stage", "predictor": "none"},
    {"name": "two_stage", "predictor": "persistence", "overload": 0.3},
    {"name": "two_stage", "predictor": "oracle", "overload": 0.3},
)


def run(fleet: Fleet, jobs: list[Job], select: object, **engine: object) -> tuple[Trace, TwoStage]:
    """A run of plain first come first served, and its selection."""
    scheduler = FCFSBatching(1, select)  # type: ignore[arg-type]
    workload = Workload(jobs, fleet.batches)
    trace = simulate(workload, fleet.cluster, fleet.costs, scheduler, **engine)  # type: ignore[arg-type]
    return trace, scheduler.selection  # type: ignore[return-value]


def with_capacity(fleet: Fleet, capacity: float) -> None:
    cluster = fleet.cluster
    spaces = [replace(space, capacity=capacity) for space in cluster.spaces]
    fleet.cluster = Cluster("fleet", spaces, cluster.devices, cluster.links, host="node0")


def with_slots(fleet: Fleet, slots: int) -> None:
    cluster = fleet.cluster
    devices = [replace(device, slots=slots) for device in cluster.devices]
    fleet.cluster = Cluster("fleet", cluster.spaces, devices, cluster.links, host="node0")


def sampled(fleet: Fleet, jobs: list[Job], **options: object) -> list[float]:
    """Loads of the first node, told every second, without memory of the sample before."""
    chosen = {"predictor": "none", "sample": 1.0, "average": 1.0, "record": True}
    _, selection = run(fleet, jobs, {"name": "two_stage", **chosen, **options})
    return [float(loads[0]) for loads in selection.recorded]


def test_a_sample_is_the_mean_over_its_time() -> None:
    # Busy from 0.25 to 1.5 and from 2.0 to 3.25; the last request only ends the last sample.
    fleet = Fleet([(0.0, 1.25), (0.0, 1.0)])
    jobs = [fleet.job(0.25), fleet.job(2.0), fleet.job(4.0, 1)]
    assert sampled(fleet, jobs, weights=[1, 0, 0, 0]) == pytest.approx([0.75, 0.5, 1.0, 0.25, 1.0])
    # Two wait, from 0.25 and 0.5 on, for turns that come at 1.5 and 2.75.
    jobs = [fleet.job(t) for t in (0.25, 0.25, 0.5)]
    waiting = sampled(fleet, jobs, weights=[0, 0, 0, 1], queue_capacity=4)
    assert waiting == pytest.approx([(0.75 + 0.5) / 4, (0.5 * 2 + 0.5) / 4, 0.75 / 4, 0.0])
    # Averages: of what is told, the latest counts for so much.
    fading = sampled(fleet, [fleet.job(0.25), fleet.job(4.0)], weights=[1, 0, 0, 0], average=0.5)
    assert fading[:4] == pytest.approx([0.375, 0.4375, 0.21875, 0.109375])


@settings(max_examples=examples(40), deadline=None)
@given(
    gaps=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=12),
    sample=st.floats(0.05, 2.0),
    slots=st.integers(1, 3),
)
def test_samples_are_the_busy_time_of_the_trace(
    gaps: list[float], sample: float, slots: int
) -> None:
    fleet = Fleet([(0.0, 0.7)])
    with_slots(fleet, slots)
    jobs = [fleet.job(t) for t in np.cumsum(gaps).tolist()]
    options = {"predictor": "none", "average": 1.0, "record": True, "weights": [1, 0, 0, 0]}
    trace, selection = run(fleet, jobs, {"name": "two_stage", "sample": sample, **options})
    start, finish = trace.executions["start"], trace.executions["finish"]
    for number, loads in enumerate(selection.recorded):
        low, high = number * sample, (number + 1) * sample
        busy = np.clip(np.minimum(finish, high) - np.maximum(start, low), 0.0, None).sum()
        assert loads[0] == pytest.approx(busy / sample / slots, abs=1e-9)
    assert len(selection.recorded) == pytest.approx(finish.max() / sample, abs=1.0)


def test_slots_in_use_count_each() -> None:
    fleet = Fleet([(0.0, 1.25)])
    with_slots(fleet, 2)
    jobs = [fleet.job(0.0), fleet.job(0.5), fleet.job(4.0)]
    found = sampled(fleet, jobs, weights=[1, 0, 0, 0])
    assert found[:3] == pytest.approx([(1 + 0.5) / 2, (0.25 + 0.75) / 2, 0.0])


def test_the_way_to_a_node_is_in_use_while_inputs_come() -> None:
    fleet = Fleet([(0.0, 0.001)], sources=1, latency=0.5, bandwidth=1e12)
    jobs = [fleet.job(0.25, at="user0"), fleet.job(2.0, at="user0")]
    assert sampled(fleet, jobs, weights=[0, 0, 1, 0])[:2] == pytest.approx([0.5, 0.0], abs=1e-6)


def test_memory_counts_where_it_has_a_limit() -> None:
    fleet = Fleet([(0.0, 1.0)])
    jobs = [fleet.job(0.0), fleet.job(0.0), fleet.job(0.0), fleet.job(3.0)]
    # 1000 bytes of input each: two wait in the first second, one in the next.
    assert sampled(fleet, jobs, weights=[1, 0, 0, 0])[:2] == [1.0, 1.0]
    busy_and_queue = [0.6 * 1 + 0.4 * n / 4 for n in (2, 1)]
    options = {"weights": [0.3, 0.5, 0, 0.2], "queue_capacity": 4}
    assert sampled(fleet, jobs, **options)[:2] == pytest.approx(busy_and_queue)
    with_capacity(fleet, 4000.0)
    all_three = [0.3 + 0.5 * n / 4 + 0.2 * n / 4 for n in (2, 1)]
    assert sampled(fleet, jobs, **options)[:2] == pytest.approx(all_three)


def test_entropy_weights_by_hand() -> None:
    # Shares 1, 0: entropy 0. Alike: entropy 1. Shares 3/4, 1/4: -(.75 ln .75 + .25 ln .25) / ln 2 = 0.811278.
    weights = entropy_weights(np.array([[0.8, 0.5, 0.3, 0.0], [0.0, 0.5, 0.1, 0.0]]))
    assert weights == pytest.approx([1 / 1.188722, 0.0, 0.188722 / 1.188722, 0.0], abs=1e-6)
    assert entropy_weights(np.full((3, 2), 0.7)) is None
    assert entropy_weights(np.array([[0.1, 0.9]])) is None


@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=6),
    scale=st.floats(0.1, 10),
)
def test_entropy_weights_are_of_differences_alone(rows: list[list[float]], scale: float) -> None:
    values = np.array(rows)
    values[values < 1e-6] = 0.0  # sums of smaller ones round to nothing
    weights = entropy_weights(values)
    if weights is None:
        return
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert entropy_weights(values[::-1]) == pytest.approx(weights, abs=1e-6)
    assert entropy_weights(values * scale) == pytest.approx(weights, abs=1e-6)
    for column in range(3):
        if np.ptp(values[:, column]) == 0:
            assert weights[column] == pytest.approx(0, abs=1e-6)


def test_loads_by_entropy_weigh_what_tells_nodes_apart() -> None:
    fleet = Fleet([(2.0, 0.0)], speeds=[1.0, 1.0])
    # First second: node0 executes, and 4 of 16 wait; node1 idles. Only their shares differ: both 1, 0.
    jobs = [fleet.job(0.0) for _ in range(5)]
    with_capacity(fleet, np.inf)
    usual = sampled(fleet, jobs)[0]
    entropy = sampled(fleet, jobs, weights="entropy")[0]
    assert usual == pytest.approx((0.4 * 1 + 0.2 * 4 / 16) / 0.8)
    assert entropy == pytest.approx(0.5 * 1 + 0.5 * 4 / 16)
    # As long as the nodes are alike the usual weights hold.
    one = Fleet([(2.0, 0.0)])
    alone = [one.job(0.0) for _ in range(5)]
    assert sampled(one, alone, weights="entropy")[0] == pytest.approx(usual)


def test_a_saturated_node_has_load_one() -> None:
    fleet = Fleet([(0.0, 1.0)])
    jobs = [fleet.job(0.0) for _ in range(40)]
    found = sampled(fleet, jobs, weights=[0.4, 0.2, 0.0, 0.4], queue_capacity=8)
    assert found[:20] == pytest.approx([1.0] * 20)


def test_loads_are_only_kept_on_demand() -> None:
    fleet = Fleet([(0.0, 1.0)])
    assert sampled(fleet, [fleet.job(0.0), fleet.job(5.0)], record=False) == []


class Foretold:
    """Says the same of every node, always."""

    def __init__(self, *loads: float) -> None:
        self.loads, self.seen = np.array(loads), []

    def predict(self, history: np.ndarray) -> np.ndarray:
        self.seen.append(history.copy())
        return self.loads


def second_stage(overload: float, margin: float, cooldown: float, loads: tuple[float, ...]):  # type: ignore[no-untyped-def]
    """Where requests at 10, 10.2 and 11 s go if node0 is the less loaded, and what was predicted."""
    fleet = Fleet([(0.0, 100.0)], speeds=[1.0, 1.0], sources=1, bandwidth=1e12)
    with_slots(fleet, 99)
    # One runs at the first node and two at the second: loads of 1/99 and 2/99.
    jobs = [fleet.job(0.0, at="node0"), *[fleet.job(0.0, at="node1")] * 2]
    jobs += [fleet.job(t, at="user0") for t in (10.0, 10.2, 11.0)]
    select = TwoStage(
        "none", weights=[1, 0, 0, 0], overload=overload, margin=margin, cooldown=cooldown
    )
    predictor = Foretold(*loads)
    select.predictor = predictor
    scheduler = FCFSBatching(1)
    scheduler.selection = select
    trace = simulate(Workload(jobs, fleet.batches), fleet.cluster, fleet.costs, scheduler)
    device = dict(
        zip(trace.executions["job"].tolist(), trace.executions["device"].tolist(), strict=True)
    )
    return [device[job] for job in (3, 4, 5)], predictor, select


def test_the_second_stage() -> None:
    away, predictor, select = second_stage(0.0, 0.05, 0.0, (0.9, 0.1))
    assert away == [1, 1, 1]
    assert select.moved == 3
    assert predictor.seen[0].shape == (2, 20)
    assert predictor.seen[0][:, -1] == pytest.approx([1 / 99, 2 / 99], rel=1e-3)
    # Not overloaded; too little gained; cooling down.
    calm, predictor, select = second_stage(0.5, 0.05, 0.0, (0.9, 0.1))
    assert (calm[:1], predictor.seen, select.moved) == ([0], [], 0)
    assert second_stage(0.0, 0.8, 0.0, (0.9, 0.1))[2].moved == 0
    assert second_stage(0.0, 0.7, 0.0, (0.9, 0.1))[0][0] == 1
    assert second_stage(0.0, 0.05, 0.5, (0.9, 0.1))[0] == [1, 0, 1]
    # The first stays where it is the best.
    assert second_stage(0.0, 0.05, 0.0, (0.1, 0.9))[0][0] == 0


def test_what_was_sent_since_the_sample_can_count() -> None:
    fleet = Fleet([(0.0, 0.1)], speeds=[1.0] * 4, sources=1, bandwidth=1e12)
    jobs = [fleet.job(0.5, at="user0") for _ in range(4)]

    def spread(**options: object) -> int:
        trace, _ = run(fleet, jobs, {"name": "two_stage", "predictor": "none", **options})
        return len(set(trace.executions["device"].tolist()))

    assert spread(own=1.0) == 4
    assert spread(own=1.0, choices=1, seed=3) < 4
    # A sample that is a second old: all go where it was the least, unless two are drawn each time.
    old = {"name": "two_stage", "predictor": "none", "sample": 1.0, "weights": [1, 0, 0, 0]}
    jobs = [fleet.job(0.0, at=f"node{i}") for i in (0, 1, 2)]
    jobs += [fleet.job(1.0 + i / 100, at="user0") for i in range(20)]
    assert set(run(fleet, jobs, old)[0].executions["device"][3:].tolist()) == {3}
    drawn = run(fleet, jobs, {**old, "choices": 2})[0].executions["device"][3:]
    assert len(set(drawn.tolist())) > 2


def test_predictors_by_hand() -> None:
    history = np.array([[0.0, 1.0, 0.5], [0.2, 0.2, 0.2]])
    assert Persistence().predict(history).tolist() == [0.5, 0.2]
    # 0.5 * 0.5 + 0.25 * 1 + 0.25 * 0
    assert MovingAverage(0.5).predict(history) == pytest.approx([0.5, 0.2])
    assert MovingAverage(0.2).predict(history)[0] == pytest.approx(0.2 * 0.5 + 0.16 * 1.0)


class Exponential:
    """Service times that are exponential around what is believed."""

    def realise(  # type: ignore[no-untyped-def]
        self, graph: DataflowGraph, costs: GraphCosts, rng: np.random.Generator, arrival=0.0
    ) -> np.ndarray:
        return np.tile(rng.exponential(1.0), costs.seconds.shape) * costs.seconds


def test_queues_under_a_random_split_are_mm1() -> None:
    """n queues, n times the arrivals of one: each waits rho / (1 - rho)."""
    load, wait = 0.6, 1.5
    fleet = Fleet([(0.0, 1.0)], speeds=[1.0] * 4, sources=1, bandwidth=1e12)
    jobs = [fleet.job(t, at="user0") for t in poisson(4 * load, 12_000, 11)]
    trace, _ = run(fleet, jobs, {"name": "random", "seed": 2}, actual=Exponential(), seed=3)
    assert flows(trace).mean() - 1 == pytest.approx(wait, rel=0.12)
    device = trace.executions["device"]
    start, arrival = trace.executions["start"], trace.jobs["arrival"][trace.executions["job"]]
    for node in range(4):
        waits = (start - arrival)[device == node]
        assert len(waits) == pytest.approx(3000, rel=0.07)
        assert waits.mean() == pytest.approx(wait, rel=0.25)


def test_below_saturation_no_policy_serves_more_than_another() -> None:
    """Equal nodes, a constant load: all serve what is offered."""
    fleet = Fleet([(0.0, 0.1)], speeds=[1.0] * 4, sources=1, bandwidth=1e12)
    jobs = [fleet.job(t, at="user0") for t in poisson(28, 1500, 7)]
    rates = []
    for select in ALL:
        figures = serving_metrics(run(fleet, jobs, select)[0], 5.0)
        assert figures["waiting"] == 0
        rates.append(figures["served_per_s"])
    assert rates == pytest.approx([figures["offered_per_s"]] * len(ALL), rel=0.015)


def test_backlog_of_a_node_with_two_slots_is_shared_by_them() -> None:
    fleet = Fleet([(0.0, 1.0)])
    with_slots(fleet, 2)
    scheduler, told = FCFSBatching(1), []

    class Telling(TwoStage):
        def settle(self, context, dispatcher) -> None:  # type: ignore[no-untyped-def]
            super().settle(context, dispatcher)
            told.append((context.now, dispatcher.backlog_seconds(context, dispatcher.nodes[0])))

    scheduler.selection = Telling("none")
    jobs = [fleet.job(t) for t in (0.0, 0.5, 0.5, 0.5)]
    simulate(Workload(jobs, fleet.batches), fleet.cluster, fleet.costs, scheduler)
    # At 0.5: half a second and a whole one run, two more wait; at 1.0 the second has half left.
    assert dict(told)[0.5] == pytest.approx((0.5 + 1.0 + 2.0) / 2)
    assert dict(told)[1.0] == pytest.approx((0.5 + 1.0 + 1.0) / 2)
    assert dict(told)[1.5] == pytest.approx((0.5 + 1.0) / 2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sample": 0.0}, "sample 0.0"),
        ({"window": 0}, "window 0"),
        ({"weights": [1, 2]}, "give four"),
        ({"weights": "equal"}, "give four numbers, or 'entropy'"),
        ({"average": 0.0}, "average 0.0"),
        ({"own": -1.0}, "own -1.0"),
        ({"choices": 0}, "best of 0 nodes"),
        ({"queue_capacity": 0}, "queue of 0"),
        ({"predictor": "prophet"}, "no load predictor 'prophet'"),
        ({"predictor": "no.module:Class"}, "Cannot import 'no.module'"),
        ({"predictor": "ewma", "predictor_options": {"wait": 1}}, "it has: weight"),
        ({"predictor": "persistence", "predictor_options": {"x": 1}}, "it has: none"),
        ({"predictor": "oracle", "predictor_options": {"x": 1}}, "'oracle' has no options"),
        ({"predictor": "none", "predictor_options": {"x": 1}}, "'none' has no options"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        TwoStage(**options)  # type: ignore[arg-type]


def test_predictors_by_name() -> None:
    assert make_predictor("none", {}) is None
    found = make_predictor("simulator.serving.two_stage:MovingAverage", {"weight": 1.0})
    assert found is not None
    assert found.predict(np.array([[1.0, 2.0]])).tolist() == [2.0]
