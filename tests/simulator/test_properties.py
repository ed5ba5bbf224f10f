"""What holds for every run: random graphs, clusters, times, schedulers, movement and contention."""

from __future__ import annotations

import filecmp
import itertools
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, example, given, settings  # noqa: F401

from simulator.analysis.bounds import lower_bound, workload_bound
from simulator.analysis.metrics import metrics
from simulator.context import SchedulingContext
from simulator.engine.run import simulate
from simulator.model.costs import CostTable
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Job, Workload
from tests.examples import examples
from tests.simulator.replay import replay
from tests.simulator.scripted import Recorded, StaticPlan
from tests.simulator.strategies import ONLINE, Case, cases

SLACK = 1e-9
"""Relative; bounds are sums in another order than the schedule's."""

quick = settings(
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def run(case: Case, scheduler: object = None) -> Trace:
    return case.run(scheduler)


@settings(quick, max_examples=examples(300))
@given(cases())
def test_replay_derives_the_same_run(case: Case) -> None:
    check_replay(case, Recorded(case.scheduler()))


def check_replay(case: Case, recorded: Recorded) -> None:
    """A run's rows are those that the rules alone derive from its decisions."""
    trace = run(case, recorded)
    expected = replay(
        case.workload,
        case.cluster,
        case.actual_seconds(),
        recorded.decisions,
        case.movement,
        case.contention,
    )
    rows = trace.executions
    found = {
        (int(j), int(o)): (int(d), float(r), float(p), float(s), float(f))
        for j, o, d, r, p, s, f in zip(
            *(rows[k] for k in ("job", "operator", "device", "ready", "placed", "start", "finish")),
            strict=True,
        )
    }
    assert found == expected.executions
    assert list(zip(rows["job"].tolist(), rows["operator"].tolist(), strict=True)) == expected.order
    table = trace.transfers
    moved = {
        (int(j), int(t), int(to), int(c)): (int(a), float(r), float(s), float(f), float(b))
        for j, t, to, c, a, r, s, f, b in zip(
            *(
                table[k]
                for k in (
                    "job",
                    "tensor",
                    "destination",
                    "link",
                    "source",
                    "requested",
                    "start",
                    "finish",
                    "bytes",
                )
            ),
            strict=True,
        )
    }
    assert len(moved) == len(table["tensor"]), "a tensor crossed twice to one space"
    assert moved == expected.transfers
    assert trace.jobs["finish"].tolist() == expected.jobs


@quick
@given(cases())
def test_invariants(case: Case) -> None:
    trace = run(case)
    rows = trace.executions
    actual = case.actual_seconds()
    # Every task once, in its own time, on a device that can.
    assert sorted(rows["task"].tolist()) == list(range(sum(len(j.graph) for j in case.workload)))
    for j, o, d, start, finish in zip(
        *(rows[k] for k in ("job", "operator", "device", "start", "finish")), strict=True
    ):
        overhead = case.cluster.devices[d].launch_overhead
        assert finish == start + (overhead + actual[j][o, d])
        assert start >= case.workload.jobs[j].arrival
    assert np.all(rows["ready"] <= rows["start"])
    assert np.all(rows["placed"] <= rows["start"])
    # No overlap on a slot, nor on a channel under fifo.
    tracks: dict[tuple[str, int, int], list[tuple[float, float]]] = defaultdict(list)
    for d, s, start, finish in zip(
        *(rows[k] for k in ("device", "slot", "start", "finish")), strict=True
    ):
        assert 0 <= s < case.cluster.devices[d].slots
        tracks["slot", d, s].append((start, finish))
    table = trace.transfers
    if case.contention == "fifo":
        for link, start, finish in zip(
            *(table[k] for k in ("link", "start", "finish")), strict=True
        ):
            tracks["channel", link, 0].append((start, finish))
    for spans in tracks.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    # Precedence with transfers.
    space = [case.cluster.space_index[device.space] for device in case.cluster.devices]
    where = {
        (int(j), int(o)): (int(d), float(s), float(f))
        for j, o, d, s, f in zip(
            *(rows[k] for k in ("job", "operator", "device", "start", "finish")), strict=True
        )
    }
    arrival: dict[tuple[int, int, int], float] = {}
    for j, t, to, finish in zip(
        *(table[k] for k in ("job", "tensor", "destination", "finish")), strict=True
    ):
        arrival[int(j), int(t), int(to)] = float(finish)
    for j, job in enumerate(case.workload):
        graph = job.graph
        for a, b, t in zip(
            *(c.tolist() for c in (graph.edge_source, graph.edge_target, graph.edge_tensor)),
            strict=True,
        ):
            (from_device, _, end), (to_device, begin, _) = where[j, a], where[j, b]
            if space[from_device] == space[to_device]:
                assert end <= begin
            else:
                assert end <= arrival[j, t, space[to_device]] <= begin
    # What left arrived: every hop of a crossing carries the whole tensor over one chain of links.
    for j, t, size in zip(*(table[k] for k in ("job", "tensor", "bytes")), strict=True):
        assert size == case.workload.jobs[j].graph.tensors[t].bytes
    # Bounds and ratios.
    makespan = trace.makespan
    for j, job in enumerate(case.workload):
        bound = lower_bound(job.graph, actual[j], case.cluster).bound_s
        assert trace.jobs["finish"][j] >= (job.arrival + bound) * (1 - SLACK)
    if case.actual is None or isinstance(case.actual, CostTable):
        bound = workload_bound(case.workload, case.actual or case.costs, case.cluster).bound_s
        assert makespan >= bound * (1 - SLACK)
    figures = metrics(trace)
    assert 0 <= figures["utilisation"] <= 1
    assert all(0 <= device["utilisation"] <= 1 for device in figures["devices"].values())
    assert all(0 <= channel["utilisation"] <= 1 for channel in figures["channels"].values())


@settings(quick, max_examples=examples(40))
@given(cases())
def test_same_seed_gives_the_same_bytes(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        trace = run(case)
        trace.save(one)
        run(case).save(two)
        names = sorted(path.name for path in one.iterdir())
        assert names == sorted([*(f"{name}.parquet" for name in COLUMNS), "trace.json"])
        assert filecmp.cmpfiles(one, two, names, shallow=False)[0] == names
        loaded = Trace.load(one)
        for name in COLUMNS:
            for column, values in getattr(trace, name).items():
                back = getattr(loaded, name)[column]
                assert back.dtype.kind == values.dtype.kind
                assert back.tolist() == values.tolist()


@quick
@given(cases(exact=True, contentions=("fifo",)))
def test_removing_contention_never_lengthens_a_fixed_schedule(case: Case) -> None:
    trace = run(case)
    tasks = trace.tasks
    rows: list[list[tuple[int, float]]] = [[] for _ in case.workload]
    position = np.empty(len(tasks["task"]))
    # Equal starts only with zero times: then in order of finish, which respects precedence.
    finished = np.empty(len(tasks["task"]))
    finished[trace.executions["task"]] = np.arange(len(finished))
    position[np.lexsort((finished, tasks["start"]))] = np.arange(len(position))
    for job, device, rank in zip(tasks["job"], tasks["device"], position, strict=True):
        rows[job].append((int(device), float(rank)))
    spans = {}
    for contention in ("fifo", "none"):
        case.contention = contention
        spans[contention] = run(case, StaticPlan(*rows)).jobs["finish"]
    assert np.all(spans["none"] <= spans["fifo"] * (1 + SLACK))


@settings(quick, max_examples=examples(150))
@given(cases(schedulers=ONLINE, exact=True))
def test_estimates_are_exact_when_belief_is_true(case: Case) -> None:
    """``available`` at each decision is when the work placed before it really leaves a slot."""
    seen: list[tuple[int, float, list[float]]] = []

    def watch(context: SchedulingContext) -> None:
        devices = range(len(context.cluster.devices))
        placed = sum(verb == "place" for d in recorded.decisions for verb, _ in d.verbs)
        seen.append((placed, context.now, [context.available(d) for d in devices]))

    recorded = Recorded(case.scheduler(), before=watch)
    trace = run(case, recorded)
    tasks = trace.tasks
    order = [int(row[0]) for d in recorded.decisions for verb, row in d.verbs if verb == "place"]  # type: ignore[call-overload]
    for placed, now, available in seen:
        for device, estimate in enumerate(available):
            mine = [t for t in order[:placed] if tasks["device"][t] == device]
            ends = sorted((float(tasks["finish"][t]) for t in mine), reverse=True)
            slots = case.cluster.devices[device].slots
            free = ends[slots - 1] if len(ends) >= slots else 0.0
            last = max((float(tasks["start"][t]) for t in mine), default=0.0)
            assert estimate == max(now, free, last)


@quick
@given(cases(schedulers=("heft",), exact=True, contentions=("none",)))
def test_heft_keeps_its_plan(case: Case) -> None:
    """Under push without contention tasks start as planned or, behind none, earlier."""
    case.movement = "push"
    recorded = Recorded(case.scheduler())
    trace = run(case, recorded)
    planned = {
        int(row[0]): float(row[2])  # type: ignore[call-overload,arg-type]
        for d in recorded.decisions
        for verb, row in d.verbs
        if verb == "place"
    }
    tasks = trace.tasks
    for task, start in enumerate(tasks["start"].tolist()):
        assert start <= planned[task] + SLACK * max(1.0, abs(start))


@settings(quick, max_examples=examples(40))
@given(cases(exact=True))
def test_a_single_job_is_the_graph_itself(case: Case) -> None:
    """A graph in place of a workload is one job from and to the host at time 0."""
    graph = case.workload.jobs[0].graph
    host = case.cluster.host
    options = {"movement": case.movement, "contention": case.contention, "seed": case.seed}
    one = simulate(graph, case.cluster, case.costs, case.scheduler(), **options)  # type: ignore[arg-type]
    job = Workload([Job(graph, origin=host, destination=host)])
    two = simulate(job, case.cluster, case.costs, case.scheduler(), **options)  # type: ignore[arg-type]
    for name in COLUMNS:
        for column, values in getattr(one, name).items():
            assert values.tolist() == getattr(two, name)[column].tolist()
