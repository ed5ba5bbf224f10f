"""Runs that keep figures alone, beside the figures of the whole trace of the same requests."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.metrics import metrics
from simulator.analysis.quantiles import ERROR
from simulator.analysis.serving_metrics import serving_metrics
from simulator.analysis.streamed_figures import StreamedFigures
from simulator.context.scheduler import Scheduler
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.engine import Setting, Simulation
from simulator.engine.faults import Fault, Faults
from simulator.engine.figures_recorder import FiguresRecorder, Window
from simulator.engine.run import simulate, simulate_stream
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.closed_loop import ClosedLoop
from simulator.model.noise import LogNormalNoise
from simulator.model.workload import Job, Stream, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.serving.fleet import Fleet, poisson
from tests.simulator.strategies import Case
from tests.simulator.test_fault_properties import broken_cases
from tests.simulator.test_memory_properties import give_host, tighten
from tests.simulator.test_properties import quick

SCHEDULERS: list[tuple[str, dict[str, Any]]] = [
    ("task_groups", {}),
    ("task_groups", {"theta": 0.0, "max_batch": 3, "select": "round_robin"}),
    ("task_groups", {"upload_to": "node1", "upload_above": "30ms", "upload_below": "10ms"}),
    ("task_groups", {"packing": {"age": "5ms"}, "select": {"name": "random", "move": True}}),
    ("fcfs_batching", {"packing": {}, "select": {"name": "power_of_two", "move": True}}),
    ("dynamic_batching", {"delay": "20ms", "select": {"name": "least_loaded", "move": True}}),
    ("edf", {"drop_late": True, "max_batch": 4, "select": "earliest_finish"}),
    ("deadline_accuracy", {"select": {"name": "deadline", "admission": True, "move": True}}),
    ("task_groups", {"select": {"name": "two_stage", "move": True}}),
    ("fcfs", {}),
    ("sjf", {}),
    ("round_robin", {}),
    ("dynamic_heft", {}),
]


def approximately(value: Any, of: Any, rel: float = 1e-9) -> bool:
    if isinstance(value, Mapping):
        assert value.keys() == of.keys()
        return all(
            approximately(
                value[k], of[k], ERROR + 1e-9 if k[0] == "p" and k[1:3].isdigit() else rel
            )
            for k in value
        )
    if value is None or of is None or isinstance(value, str):
        return bool(value is of or value == of)
    assert value == pytest.approx(of, rel=rel, abs=1e-12, nan_ok=True), (value, of)
    return True


def same_figures(run: StreamedFigures, trace: Any, warm_up: float) -> None:
    """All that a run without a trace says is what the trace says."""
    accuracies = {"m0": 0.7, "m1": 0.9, "m2": 0.95}
    alone = {"m0": 0.05, "m1": 0.2, "m2": 0.7}
    figures = serving_metrics(trace, warm_up, accuracies, alone)
    assert approximately(run.serving(accuracies, alone), figures)
    whole, some = metrics(trace, warm_up), run.metrics()
    for name, value in some.items():
        if name == "devices":
            for device, row in value.items():
                there = whole["devices"][device]
                assert approximately(row, {key: there[key] for key in row})  # type: ignore[literal-required]
        else:
            assert approximately({name: value}, {name: whole[name]})  # type: ignore[literal-required]
    assert run.end == trace.end
    seconds = trace.executions["finish"] - trace.executions["start"]
    assert sum(run.graph_seconds.values()) == pytest.approx(seconds.sum())
    assert {k: v for k, v in run.settings.items() if k != "horizon_s"}.items() <= dict(
        trace.meta
    ).items()
    assert run.wallclock["decisions"] == trace.wallclock["decisions"]


@st.composite
def cases(draw: Any) -> tuple[Fleet, list[Job]]:
    models = draw(st.integers(1, 3))
    times = [(draw(st.sampled_from([0.0, 0.01, 0.03])), 0.004 * (m + 1)) for m in range(models)]
    speeds = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2, max_size=3))
    latency = draw(st.sampled_from([0.0, 0.002]))
    sources = draw(st.integers(0, 2))
    fleet = Fleet(times, speeds, sources, latency, draw(st.sampled_from([1e5, 1e9])))
    places = [f"user{i}" for i in range(sources)] or [f"node{i}" for i in range(len(speeds))]
    gaps = draw(st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.03]), min_size=1, max_size=40))
    jobs = []
    arrival = 0.0
    for gap in gaps:
        arrival += gap
        after = draw(st.sampled_from([None, 0.02, 0.1]))
        jobs.append(
            fleet.job(
                arrival,
                draw(st.integers(0, models - 1)),
                draw(st.sampled_from(places)),
                draw(st.sampled_from([1, 1, 1, 2])),
                deadline=None if after is None else arrival + after,
                accuracy_sensitivity=0.5,
            )
        )
    return fleet, jobs


@settings(max_examples=examples(300), deadline=None)
@given(
    cases(),
    st.sampled_from(SCHEDULERS),
    st.sampled_from(["none", "fifo", "fair"]),
    st.sampled_from(["push", "pull"]),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from([None, 0.05, 0.2]),
    st.booleans(),
)
def test_figures_are_those_of_the_trace(
    case: tuple[Fleet, list[Job]],
    scheduler: tuple[str, dict[str, Any]],
    contention: str,
    movement: str,
    warm_up: float,
    horizon: float | None,
    noisy: bool,
) -> None:
    fleet, jobs = case
    name, options = scheduler
    given: dict[str, Any] = {
        "contention": contention,
        "movement": movement,
        "horizon": horizon,
        "actual": LogNormalNoise(0.3) if noisy else None,
    }
    workload = Workload(jobs, fleet.batches)
    stream = Stream(
        lambda: iter(jobs), [g for m in fleet.graphs for g in m.values()], fleet.batches
    )
    try:
        trace = simulate(workload, fleet.cluster, fleet.costs, create(name, **options), **given)
    except (InvalidInput, SchedulingError) as error:
        with pytest.raises(type(error)):
            simulate_stream(stream, fleet.cluster, fleet.costs, create(name, **options), **given)
        return
    if trace.end <= warm_up:
        warm_up = 0.0
    run = simulate_stream(
        stream, fleet.cluster, fleet.costs, create(name, **options), warm_up=warm_up, **given
    )
    same_figures(run, trace, warm_up)


@st.composite
def further(draw: Any, fleet: Fleet) -> dict[str, Any]:
    """What else a run of a fleet may be asked for: short memory, faults, decisions that take time."""
    given: dict[str, Any] = {}
    if draw(st.booleans()):
        room = draw(st.sampled_from([4e3, 9e3, 1e6]))
        spaces = [dataclasses.replace(space, capacity=room) for space in fleet.cluster.spaces]
        fleet.cluster = dataclasses.replace(fleet.cluster, spaces=spaces)
        given["memory"] = "limited"
    if draw(st.booleans()):
        whats = ["device_slowdown", "device_failure"]
        events = {}
        for _ in range(draw(st.integers(1, 3))):
            fault = draw(st.sampled_from(whats + ["link_outage"] * bool(fleet.cluster.links)))
            things = fleet.cluster.links if fault == "link_outage" else fleet.cluster.devices
            start = draw(st.sampled_from([0.0, 0.004, 0.02, 0.05]))
            end = start + draw(st.sampled_from([0.003, 0.05, math.inf]))
            name = draw(st.sampled_from([thing.name for thing in things]))
            factor = 0.5 if fault == "device_slowdown" else None
            events[fault, name] = Fault(fault, name, start, end, factor)
        given["faults"] = Faults([*events.values()], max_attempts=draw(st.sampled_from([1, 4])))
    if draw(st.booleans()):
        given["decision_cost"] = DecisionCost(draw(st.sampled_from([0.0, 0.002])), 0.001)
    return given


@settings(max_examples=examples(300), deadline=None)
@given(
    cases(),
    st.sampled_from(SCHEDULERS),
    st.sampled_from(["none", "fifo", "fair"]),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from([None, 0.05, 0.2]),
    st.data(),
)
def test_figures_are_those_of_the_trace_whatever_else_is_asked_for(
    case: tuple[Fleet, list[Job]],
    scheduler: tuple[str, dict[str, Any]],
    contention: str,
    warm_up: float,
    horizon: float | None,
    data: st.DataObject,
) -> None:
    fleet, jobs = case
    name, options = scheduler
    given = {"contention": contention, "horizon": horizon, **data.draw(further(fleet))}
    workload = Workload(jobs, fleet.batches)
    stream = Stream(lambda: iter(jobs), workload.asked, fleet.batches)
    compare(workload, stream, fleet, lambda: create(name, **options), warm_up, given)


@settings(quick, max_examples=examples(150))
@given(broken_cases(), st.data())
def test_figures_of_jobs_of_several_tasks(broken: tuple[Case, Faults], data: st.DataObject) -> None:
    case, faults = broken
    kind = data.draw(st.sampled_from(["faults", "resident", "on_demand", "decisions"]))
    given: dict[str, Any] = {"faults": faults, "horizon": data.draw(st.sampled_from([None, 20.0]))}
    if kind == "decisions":
        given["decision_cost"] = DecisionCost(0.3, 0.1)
    elif kind != "faults":
        tighten(data.draw, case)
        given |= {"memory": "limited", "weights": kind}
        if kind == "on_demand":
            give_host(case)
        if data.draw(st.booleans()):
            del given["faults"]
    given |= {"actual": case.actual, "movement": case.movement, "contention": case.contention}
    stream = Stream(lambda: iter(case.workload), case.workload.graphs)
    if not any(job.arrival > 20.0 for job in case.workload):
        compare(case.workload, stream, case, case.scheduler, 0.0, given | {"seed": case.seed})


def compare(
    workload: Workload,
    stream: Workload,
    where: Any,
    scheduler: Callable[[], Scheduler],
    warm_up: float,
    given: dict[str, Any],
) -> None:
    """A run without a trace says what the one with a trace says, or is refused like it."""
    try:
        trace = simulate(workload, where.cluster, where.costs, scheduler(), **given)
    except (InvalidInput, SchedulingError) as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            simulate_stream(stream, where.cluster, where.costs, scheduler(), **given)
        return
    warm_up = warm_up if trace.end > warm_up else 0.0
    run = simulate_stream(stream, where.cluster, where.costs, scheduler(), warm_up=warm_up, **given)
    same_figures(run, trace, warm_up)


def test_lost_executions_count_as_lost() -> None:
    """1 s each, asked for at 0 and 1.5; the device fails from 0.5 to 1 and at 2.25 for good. The first runs
    from 1 to 2, the second begins at 2 and can have no second attempt.
    """
    fleet = Fleet([(0.0, 1.0)])
    faults = [Fault("device_failure", "d0", 0.5, 1.0), Fault("device_failure", "d0", 2.25)]
    jobs = [fleet.job(0.0), fleet.job(1.5)]
    run = simulate_stream(
        Workload(jobs), fleet.cluster, fleet.costs, create("fcfs"), faults=Faults(faults)
    )
    figures = run.metrics()
    assert (figures["jobs_finished"], figures["jobs_failed"], figures["tasks"]) == (1, 1, 1)
    assert (figures["tasks_lost"], figures["lost_s"]) == (2, 0.75)
    assert figures["failures"] == {"'run#1' waits for device 'd0', never mended": 1}
    assert run.serving()["requests"] == 2
    assert run.serving()["success_rate"] == 0.5


def endless(fleet: Fleet, rate: float, count: int) -> Callable[[], Iterator[Job]]:
    def draw() -> Iterator[Job]:
        for number, moment in enumerate(poisson(rate, count)):
            yield fleet.job(moment, number % 2, at="user0")

    return draw


def setting(fleet: Fleet, draw: Callable[[], Iterator[Job]], scheduler: Scheduler) -> Setting:
    stream = Stream(draw, [g for m in fleet.graphs for g in m.values()], fleet.batches)
    return Setting(stream, fleet.cluster, fleet.costs, scheduler)


@pytest.mark.parametrize("contention", ["none", "fair"])
def test_what_is_kept_does_not_grow_with_the_requests(contention: str) -> None:
    fleet = Fleet([(0.01, 0.002), (0.02, 0.003)], (1.0, 1.0), sources=1, latency=1e-3)

    class Watched(Simulation):
        most = 0

        def _settle(self, now: float) -> None:
            super()._settle(now)
            entries = sum(
                dict.__len__(value) if isinstance(value, Window) else len(value)
                for part in (self, self.recorder)
                for value in vars(part).values()
                if isinstance(value, dict | list | set)
            )
            self.most = max(self.most, entries + sum(map(len, self.copies)))

    def most(count: int) -> int:
        scheduler = create("task_groups", select="round_robin")
        stream = Stream(
            endless(fleet, 150.0, count),
            [g for m in fleet.graphs for g in m.values()],
            fleet.batches,
        )
        setting = Setting(stream, fleet.cluster, fleet.costs, scheduler, contention=contention)
        run = Watched(setting, lambda run: FiguresRecorder(run, 0.0))
        figures = run.run()
        assert figures.serving()["requests"] == count
        for column in (v for v in vars(run).values() if isinstance(v, Window)):
            assert not list(column)
        for name in ("under_way", "members", "leader", "served_by", "coming", "rejected"):
            assert not getattr(run, name)
        assert not any(run.copies)
        for name in ("_crossings", "_until", "_flying", "_leaving"):
            assert not getattr(run.recorder, name)
        return run.most

    assert most(1600) < 1.5 * most(400)


def test_requests_are_drawn_as_they_arrive() -> None:
    fleet = Fleet([(0.0, 0.01)])
    drawn: list[float] = []

    def draw() -> Iterator[Job]:
        for number in range(1000):
            drawn.append(number)
            yield fleet.job(number * 0.1)

    stream = Stream(draw, fleet.graphs[0].values(), fleet.batches)
    run = simulate_stream(stream, fleet.cluster, fleet.costs, create("task_groups"), horizon=0.95)
    assert run.metrics()["jobs_finished"] == 10
    assert len(drawn) <= 12


def test_md1() -> None:
    """Pollaczek and Khinchine: with unit service at load 0.8 the mean wait is 2."""
    fleet = Fleet([(0.0, 1.0)])
    times = poisson(0.8, examples(40_000), 1)
    stream = Stream(lambda: (fleet.job(t) for t in times), fleet.graphs[0].values(), fleet.batches)
    run = simulate_stream(stream, fleet.cluster, fleet.costs, create("task_groups", max_batch=1))
    mean = run.serving()["mean_delay_s"]
    assert mean is not None
    assert mean - 1 == pytest.approx(2.0, rel=0.06)


def test_a_closed_loop_streams() -> None:
    fleet = Fleet([(0.01, 0.002), (0.02, 0.003)])
    clients = [[fleet.job(0.01 * c, (c + i) % 2) for i in range(30)] for c in range(5)]
    for name in ("task_groups", "fcfs"):
        trace = simulate(
            ClosedLoop(clients, fleet.batches),
            fleet.cluster,
            fleet.costs,
            create(name),
        )
        run = simulate_stream(
            ClosedLoop(clients, fleet.batches), fleet.cluster, fleet.costs, create(name)
        )
        same_figures(run, trace, 0.0)


def test_arrivals_out_of_order_are_refused() -> None:
    fleet = Fleet([(0.0, 0.01)])
    jobs = [fleet.job(0.2), fleet.job(0.1)]
    stream = Stream(lambda: jobs, fleet.graphs[0].values(), fleet.batches)
    with pytest.raises(InvalidInput, match=r"Job 1 arrives at 0.1 s, before job 0 at 0.2 s"):
        simulate_stream(stream, fleet.cluster, fleet.costs, create("task_groups"))


def test_unknown_places_are_refused() -> None:
    fleet = Fleet([(0.0, 0.01)])
    stream = Stream(lambda: [fleet.job(0.0, at="moon")], fleet.graphs[0].values(), fleet.batches)
    with pytest.raises(InvalidInput, match="origin 'moon', which is no memory space"):
        simulate_stream(stream, fleet.cluster, fleet.costs, create("task_groups"))


def test_what_has_left_cannot_be_asked_after() -> None:
    fleet = Fleet([(0.0, 0.01)])
    stream = Stream(
        lambda: [fleet.job(0.0), fleet.job(1.0)], fleet.graphs[0].values(), fleet.batches
    )

    class LooksBack(type(create("fcfs"))):  # type: ignore[misc]
        def decide(self, context: Any) -> None:
            super().decide(context)
            if context.now > 0.5:
                context.device_of(0)

    with pytest.raises(SchedulingError, match="has left: this run keeps figures only"):
        simulate_stream(stream, fleet.cluster, fleet.costs, LooksBack())


def test_the_jobs_of_a_stream_are_not_known_beforehand() -> None:
    fleet = Fleet([(0.0, 0.01)], (1.0, 1.0))
    stream = Stream(lambda: [fleet.job(0.0)], fleet.graphs[0].values(), fleet.batches)
    assert set(stream.graphs) == set(fleet.graphs[0].values())
    with pytest.raises(InvalidInput, match="not known before they arrive"):
        simulate(stream, fleet.cluster, fleet.costs, create("task_groups"))


def test_what_waits_at_the_end_counts_with_its_age() -> None:
    fleet = Fleet([(0.0, 1.0)])
    jobs = [fleet.job(t) for t in (0.0, 0.5, 0.75)]
    run = simulate_stream(
        Workload(jobs, fleet.batches),
        fleet.cluster,
        fleet.costs,
        create("task_groups", max_batch=1),
        horizon=1.5,
    )
    figures = run.serving()
    assert (figures["requests"], figures["waiting"], figures["max_delay_s"]) == (3, 2, 1.0)
    assert figures["mean_delay_s"] == pytest.approx((1.0 + 1.0 + 0.75) / 3)
    assert math.isclose(run.metrics()["utilisation"], 1.0)
    assert np.isfinite(run.makespan)
