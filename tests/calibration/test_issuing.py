"""Devices that are submitted to ahead: the same results, the simulator's window, and an end in every case."""

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from calibration import hardware_run  # noqa: E402
from calibration.issuing import Issuing  # noqa: E402
from calibration.runner import Machine  # noqa: E402
from calibration.sequential import results_of, run_graph  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from simulator.devices.issue_window import IssueWindow  # noqa: E402
from simulator.engine.run import simulate  # noqa: E402
from simulator.errors import ExecutionError, InvalidInput, SchedulingError  # noqa: E402
from simulator.model.cluster import Cluster  # noqa: E402
from simulator.model.costs import CostTable  # noqa: E402
from simulator.model.workload import Job, Workload  # noqa: E402
from simulator.schedulers import create  # noqa: E402
from tests.calibration.test_runner import (  # noqa: E402
    APART,
    SCHEDULERS,
    SHARED,
    Backwards,
    Branches,
    Broken,
    Forgetful,
    Stage,
    adder_graph,
    check_trace,
)
from tests.calibration.test_serving_on_hardware import BATCHING, MOST, Site  # noqa: E402
from tests.simulator.scripted import StaticPlan, WhenReady  # noqa: E402

LATENCY = 5e-5
CHAIN = adder_graph([[i - 1, i - 1] for i in range(6)])
INPUTS = {CHAIN: {"x": torch.ones(4)}}


def issued(cluster: Cluster, depth: int, latency: float = LATENCY, first: int = 0) -> Cluster:
    """The cluster with devices from ``first`` on that are submitted to ahead."""
    devices = [
        replace(d, issue_depth=depth, completion_latency=latency) if i >= first else d
        for i, d in enumerate(cluster.devices)
    ]
    return replace(cluster, devices=devices)


def machine_of(cluster: Cluster) -> Machine:
    return Machine(cluster, {device.name: WorkerSpec() for device in cluster.devices})


@pytest.fixture(scope="module", params=[SHARED, APART], ids=["shared", "apart"])
def stage(request):
    generator = torch.Generator().manual_seed(0)
    inputs = (torch.randn(1, 8, 12, 12, generator=generator),)
    stage = Stage(Branches(), inputs, issued(request.param, 4, first=1))
    yield stage
    stage.machine.close()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_live_check_every_scheduler_gives_the_models_own_result(stage, scheduler):
    for movement in ("push", "pull"):
        run = stage.run(scheduler, movement=movement)
        torch.testing.assert_close(results_of(stage.graph, run.outputs[0])[0], stage.expected)
        check_trace(run.trace, stage.graph)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_graphs_and_windows(data):
    size = data.draw(st.integers(1, 25))
    parent = st.integers(-1, 10**6)
    parents = [[min(data.draw(parent), i - 1), min(data.draw(parent), i - 1)] for i in range(size)]
    graph, inputs = adder_graph(parents), {"x": torch.arange(4.0)}
    expected = run_graph(graph, {}, inputs)
    base, first = data.draw(st.sampled_from([SHARED, APART])), data.draw(st.integers(0, 1))
    cluster = issued(base, data.draw(st.integers(1, 5)), first=first)
    scheduler = create(data.draw(st.sampled_from(SCHEDULERS)))
    jobs = [Job(graph, 1e-4 * i, origin="ram", destination="ram") for i in range(2)]
    costs = CostTable.of(graph, np.array([[1.0, data.draw(st.sampled_from([0.5, 2.0]))]] * size))
    with pytest.MonkeyPatch.context() as patch, machine_of(cluster) as machine:
        most = watched(patch)
        machine.load(graph, {})
        run = machine.run(Workload(jobs), costs, scheduler, {graph: inputs})
    for outputs in run.outputs:
        torch.testing.assert_close(results_of(graph, outputs), expected, rtol=0, atol=0)
    check_trace(run.trace, graph, jobs=2)
    assert all(count <= cluster.devices[device].issue_depth for device, count in most.items())


def watched(patch) -> dict[int, int]:
    """By device the most that was submitted and not known to be complete, at once."""
    most: dict[int, int] = {}
    submit = IssueWindow.submit

    def counted(window, task):
        submit(window, task)
        most[window._device] = max(most.get(window._device, 0), len(window._submitted_at))

    patch.setattr(IssueWindow, "submit", counted)
    return most


def slow_to_learn(patch, latency):
    """Let the host know of an end so many seconds after it."""
    tell = Issuing._tell

    def later(issuing, issued, before):
        time.sleep(max(0.0, issued.finish + latency - time.perf_counter()))
        return tell(issuing, issued, before)

    patch.setattr(Issuing, "_tell", later)


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_a_plan_is_executed_as_it_was_simulated(monkeypatch, depth):
    """A chain placed ahead: ``depth`` operators in a row, then the host must have learnt of the first of them."""
    latency = 0.1  # against operators of microseconds, and what a busy machine adds
    slow_to_learn(monkeypatch, latency)
    cluster = issued(SHARED, depth, latency)
    costs = CostTable.of(CHAIN, np.full((6, 2), 1e-5))
    plan = [(1, float(i)) for i in range(6)]
    simulated = simulate(CHAIN, cluster, costs, StaticPlan(plan))
    with machine_of(cluster) as machine:
        machine.load(CHAIN, {})
        measured = machine.run(CHAIN, costs, StaticPlan(plan), INPUTS)
    torch.testing.assert_close(
        results_of(CHAIN, measured.outputs[0]), run_graph(CHAIN, {}, INPUTS[CHAIN])
    )
    for column in ("start", "finish"):
        wanted = simulated.executions[column]
        assert np.abs(measured.trace.executions[column] - wanted).max() < latency / 2
    assert measured.trace.makespan == pytest.approx(simulated.makespan, abs=latency / 2)
    # On line every dependent step is a latency behind the one before.
    with machine_of(cluster) as machine:
        machine.load(CHAIN, {})
        trace = machine.run(CHAIN, costs, WhenReady([1] * 6), INPUTS).trace
    assert np.diff(np.sort(trace.executions["start"])).min() >= latency


def test_what_is_believed_of_such_a_device_counts_its_latency(monkeypatch):
    """Schedulers are told the same of the same state of a device in both worlds."""
    seen = []

    class Asking(StaticPlan):
        def decide(self, context):
            if context.arrived:
                seen.append(context.available(1))
                super().decide(context)
                seen.append(context.available(1))

    cluster = issued(SHARED, 1, 0.25)
    costs = CostTable.of(CHAIN, np.full((6, 2), 1.0))
    plan = [(1, float(i)) for i in range(6)]
    simulate(CHAIN, cluster, costs, Asking(plan))
    with machine_of(cluster) as machine:
        machine.load(CHAIN, {})
        machine.run(CHAIN, costs, Asking(plan), INPUTS)
    assert seen == [0.0, 6 * 1.25] * 2


@pytest.fixture(scope="module")
def site():
    site = Site(issued(SHARED, 4))
    yield site
    site.machine.close()


@pytest.mark.parametrize("scheduler", BATCHING)
def test_batches_on_such_a_device_answer_every_request(site, scheduler):
    workload = site.workload([2e-4 * i for i in range(3 * MOST)])
    site.check(workload, site.run(workload, create(scheduler, max_batch=MOST)))


@pytest.fixture(scope="module")
def small_stage():
    stage = Stage(Branches(), (torch.ones(1, 8, 6, 6),), issued(SHARED, 3))
    yield stage
    stage.machine.close()


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (Forgetful(), "never placed, the first is 'branches.1.2/conv2d'"),
        (Backwards(), "the queues' order contradicts the graph"),
        (Broken(), "is placed on"),
    ],
)
def test_a_scheduler_that_leaves_work_is_reported(small_stage, scheduler, message):
    with pytest.raises(SchedulingError, match=message):
        small_stage.run(scheduler)
    # The machine is as good as before.
    check_trace(small_stage.run("heft").trace, small_stage.graph)


def failing(kernel, at=3):
    machine = machine_of(issued(SHARED, 3))
    machine.load(CHAIN, {})
    for kernels in machine.program(CHAIN).kernels.values():
        kernels[at] = kernel
    return machine


def run_on(machine, **options):
    costs = CostTable.of(CHAIN, np.full((6, 2), 1e-4))
    return machine.run(CHAIN, costs, create("heft"), INPUTS, **options)


def test_an_operator_that_fails_is_named():
    def fail(*_):
        raise RuntimeError("this shape is too large\nand more")

    with failing(fail) as machine:
        for _ in range(2):
            with pytest.raises(ExecutionError, match=r"'o3' .*failed on device .*too large$"):
                run_on(machine)


def test_an_operator_that_hangs_is_named(monkeypatch):
    monkeypatch.setattr(hardware_run, "LOOK_SECONDS", 0.05)
    release = threading.Event()

    def hang(*_):
        release.wait(10)
        raise RuntimeError

    with failing(hang) as machine:
        began = time.monotonic()
        with pytest.raises(ExecutionError, match="hangs: operator 'o3' has run for"):
            run_on(machine, patience=0.2)
        assert time.monotonic() - began < 5
        with pytest.raises(ExecutionError, match="has not come back"):
            run_on(machine)
        release.set()


def test_ctrl_c_ends_the_run_and_its_threads():
    def interrupt(*reads):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return (reads[0].clone(),)

    before = threading.active_count()
    with failing(interrupt) as machine:
        with pytest.raises(KeyboardInterrupt):
            run_on(machine)
        limit = time.monotonic() + 5
        while threading.active_count() > before + 2 and time.monotonic() < limit:
            time.sleep(0.01)
        assert threading.active_count() <= before + 2  # the two workers


def test_several_slots_are_refused():
    devices = [replace(device, slots=2) for device in SHARED.devices]
    with pytest.raises(
        InvalidInput, match=r"'fast' has 2 slots and a completion latency: .* one slot"
    ):
        machine_of(issued(replace(SHARED, devices=devices), 2))


def test_a_run_cannot_believe_in_another_way_of_submitting():
    with machine_of(SHARED) as machine:
        machine.load(CHAIN, {})
        costs = CostTable.of(CHAIN, np.full((6, 2), 1e-4))
        with pytest.raises(InvalidInput, match="does not have the devices"):
            machine.run(CHAIN, costs, create("heft"), INPUTS, believed=issued(SHARED, 2))


# -- on a GPU -----------------------------------------------------------------------------------


def on_gpu(*rest):
    return pytest.mark.gpu(
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")(*rest)
    )


@on_gpu
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("depth", [1, 8])
def test_one_graph_across_cpu_and_a_stream(scheduler, depth):
    workers = {"near": WorkerSpec(), "remote": WorkerSpec("cuda:0")}
    cluster = issued(APART, depth, first=1)
    stage = Stage(Branches(), (torch.randn(1, 8, 12, 12),), cluster, **workers)
    with stage.machine:
        run = stage.run(scheduler)
    torch.testing.assert_close(
        results_of(stage.graph, run.outputs[0])[0], stage.expected, rtol=1e-3, atol=1e-3
    )
    check_trace(run.trace, stage.graph)


@on_gpu
def test_a_stream_is_told_the_time_by_the_hosts_clock():
    from calibration.stream_clock import StreamClock

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        clock = StreamClock(stream)
        before = time.perf_counter()
        marks = []
        for _ in range(5):
            torch.cuda._sleep(10_000_000)  # some milliseconds
            marks.append(clock.mark())
        launched = time.perf_counter()
        reached = [mark.wait() for mark in marks]
    assert launched - before < reached[-1] - before
    assert np.diff(reached).min() > 1e-3
    assert before < reached[0]
    assert reached[-1] <= time.perf_counter()


@on_gpu
def test_a_plan_keeps_the_stream_busy():
    """Launched ahead, long kernels follow each other; awaited one by one they do not."""
    square = torch.randn(4096, 4096)
    linear = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8)))
    gaps = {}
    for depth in (1, 8):
        workers = {"near": WorkerSpec(), "remote": WorkerSpec("cuda:0")}
        stage = Stage(linear, (square,), issued(APART, depth, first=1), **workers)
        with stage.machine:
            for _ in range(3):
                trace = stage.run(StaticPlan([(1, float(i)) for i in range(8)])).trace
        rows = trace.executions
        ((device, count, seconds),) = trace.meta["launched"]
        assert (device, count) == (1, 8)
        assert 0 < seconds < rows["finish"].max()
        order = np.argsort(rows["start"])
        gaps[depth] = (rows["start"][order][1:] - rows["finish"][order][:-1]).sum()
    assert gaps[8] < gaps[1]
