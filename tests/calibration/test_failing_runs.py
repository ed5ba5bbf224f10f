"""Runs that cannot be completed end within seconds, in one sentence, with their workers gone."""

import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibration import hardware_run  # noqa: E402
from calibration.kernels import make_operator  # noqa: E402
from calibration.runner import CLOSING_S, Machine  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from simulator.errors import ExecutionError  # noqa: E402
from simulator.model.cluster import Cluster, Device, Link, MemorySpace  # noqa: E402
from simulator.model.costs import CostTable  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402
from simulator.model.operator import Tensor, TensorSpec  # noqa: E402
from simulator.model.workload import Job, Workload  # noqa: E402
from simulator.schedulers import create  # noqa: E402
from tests.calibration.test_runner import adder_graph  # noqa: E402

SECONDS = 5.0
"""A run that fails ends in far less, on a busy machine too."""
SHARED = Cluster(
    "two", [MemorySpace("ram")], [Device("first", "ram"), Device("second", "ram")], host="ram"
)
APART = Cluster(
    "apart",
    [MemorySpace("ram"), MemorySpace("far")],
    [Device("near", "ram"), Device("remote", "far")],
    [Link("bus", ("ram", "far"), 1e9, 1e-5)],
    host="ram",
)
CHAIN = adder_graph([[i - 1, i - 1] for i in range(8)])
COSTS = CostTable.of(CHAIN, np.full((8, 2), 1e-4))
INPUTS = {CHAIN: {"x": torch.ones(4)}}


@contextmanager
def machine_with(kernel, cluster=SHARED, at=4):
    """A machine on which one operator of the chain is executed by this function."""
    with Machine(cluster, {device.name: WorkerSpec() for device in cluster.devices}) as machine:
        machine.load(CHAIN, {})
        for kernels in machine.program(CHAIN).kernels.values():
            kernels[at] = kernel
        yield machine


def failing_run(machine, match, error=ExecutionError, **options):
    began = time.monotonic()
    with pytest.raises(error, match=match):
        machine.run(CHAIN, COSTS, create("fcfs"), INPUTS, **options)
    assert time.monotonic() - began < SECONDS


def alive(names):
    return [t.name for t in threading.enumerate() if t.name in names]


def wait_until_gone(names):
    limit = time.monotonic() + SECONDS
    while alive(names) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not alive(names)


def named(*names):
    """The chain's machine with device names of its own, so that no other test's threads are met."""
    devices = [Device(name, "ram") for name in names]
    return Cluster("own", [MemorySpace("ram")], devices, host="ram")


def test_memory_that_is_not_there_is_said_in_one_sentence():
    column, row = TensorSpec((1 << 25, 1)), TensorSpec((1, 1 << 25))  # of 4 PiB together
    product = make_operator("aten.mul.Tensor", column, row)
    size = float(column.bytes)
    tensors = [Tensor("a", "input", size, column), Tensor("b", "input", size, row)]
    tensors.append(Tensor("y", "activation", float(1 << 52), TensorSpec((1 << 25, 1 << 25))))
    graph = DataflowGraph("outer", [product], tensors, [[0, 1]], [[2]])
    given = {"a": torch.ones(1, 1).expand(1 << 25, 1), "b": torch.ones(1, 1).expand(1, 1 << 25)}
    with Machine(SHARED, {"first": WorkerSpec(), "second": WorkerSpec()}) as machine:
        machine.load(graph, {})
        began = time.monotonic()
        with pytest.raises(
            ExecutionError,
            match=r"\(kind mul\) ran out of memory on device 'first' \(cpu\): .*smaller",
        ):
            machine.run(graph, CostTable.of(graph, np.ones((1, 2))), create("fcfs"), {graph: given})
        assert time.monotonic() - began < SECONDS


def test_a_gpus_lack_of_memory_is_told_from_other_failures():
    def short(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore words")

    with machine_with(short) as machine:
        failing_run(machine, r"'o4' .* ran out of memory on device 'first' .*20.00 GiB.; run fewer")


def test_a_worker_that_dies_inside_an_operator_does_not_take_the_program_with_it():
    def die(*_):
        raise SystemExit(3)

    with machine_with(die) as machine:
        failing_run(machine, "Worker 'first' died of SystemExit: 3")
        failing_run(machine, "Worker 'first' died of SystemExit: 3")  # the machine is still of use


def test_a_worker_whose_thread_is_gone_is_noticed(monkeypatch):
    monkeypatch.setattr(hardware_run, "LOOK_SECONDS", 0.05)
    serve = hardware_run.HardwareRun.serve

    def vanish(run, worker):
        if worker.name == "second":
            run._entered.release()
            raise SystemExit
        serve(run, worker)

    monkeypatch.setattr(hardware_run.HardwareRun, "serve", vanish)
    monkeypatch.setattr(threading, "excepthook", lambda *_: None)
    with machine_with(torch.relu) as machine:
        job = Job(CHAIN, arrival=60.0, origin="ram", destination="ram")
        began = time.monotonic()
        with pytest.raises(ExecutionError, match="Worker 'second' died; make a new machine"):
            machine.run(Workload([job]), COSTS, create("fcfs"), INPUTS)
        assert time.monotonic() - began < SECONDS


def test_a_worker_that_never_began_is_noticed(monkeypatch):
    monkeypatch.setattr(hardware_run, "LOOK_SECONDS", 0.05)
    with machine_with(torch.relu) as machine:
        machine.workers[0].close()
        machine.workers[0]._thread.join(SECONDS)
        failing_run(machine, "Worker 'first' died; make a new machine")


def test_an_operator_that_never_returns_is_named_and_its_worker_given_up(monkeypatch):
    monkeypatch.setattr(hardware_run, "LOOK_SECONDS", 0.05)
    release = threading.Event()

    def hang(*reads):
        release.wait(60)
        return reads

    try:
        with machine_with(hang) as machine:
            failing_run(
                machine,
                r"Worker 'first' hangs: operator 'o4' has run for .* believed",
                patience=0.3,
            )
            failing_run(machine, "Worker first has not come back from an earlier run")
            began = time.monotonic()
        assert time.monotonic() - began < CLOSING_S  # nobody waits for it
        assert [worker.name for worker in machine.workers if worker.is_alive()] == ["first"]
    finally:
        release.set()


def test_closing_waits_for_the_threads():
    with machine_with(lambda *reads: (torch.relu(reads[0]),), APART) as machine:
        machine.run(CHAIN, COSTS, create("fcfs"), INPUTS)
        assert machine.copiers
        threads = [end._thread for end in (*machine.workers, *machine.copiers.values())]
        assert all(thread.is_alive() for thread in threads)
    assert not any(thread.is_alive() for thread in threads)


def test_a_slow_operator_is_not_taken_for_one_that_hangs(monkeypatch):
    monkeypatch.setattr(hardware_run, "LOOK_SECONDS", 0.02)

    def slow(*reads):
        time.sleep(0.3)
        return (torch.relu(reads[0]),)

    with machine_with(slow) as machine:
        believed = CostTable.of(CHAIN, np.full((8, 2), 0.2))  # ten times of it is patience enough
        machine.run(CHAIN, believed, create("fcfs"), INPUTS, patience=0.0)


def test_a_copy_that_fails_is_named_with_its_way(monkeypatch):
    from calibration.copies import Copier

    def short(self, tensor):
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore words")

    monkeypatch.setattr(Copier, "_begin", short)
    with Machine(APART, {"near": WorkerSpec(), "remote": WorkerSpec()}) as machine:
        machine.load(CHAIN, {})
        began = time.monotonic()
        with pytest.raises(
            ExecutionError, match="'x' could not be copied from 'ram' to 'far': Out"
        ) as e:
            machine.run(CHAIN, COSTS, create("single_device", device="remote"), INPUTS)
        assert time.monotonic() - began < SECONDS
    assert len(str(e.value).splitlines()) == 1


def test_a_schedulers_own_defect_ends_the_run_with_its_traceback():
    class Defect(type(create("fcfs"))):
        name = "defect"

        def decide(self, context):
            if context.finished:
                raise ZeroDivisionError("of its own")
            super().decide(context)

    with machine_with(torch.relu, at=7) as machine, pytest.raises(ZeroDivisionError):
        machine.run(CHAIN, COSTS, Defect(), INPUTS)


def test_ctrl_c_while_waiting_for_requests_and_the_workers_are_gone():
    names = ("waits_1", "waits_2")
    cluster = named(*names)
    with machine_with(lambda x: (torch.relu(x),), cluster) as machine:
        jobs = [Job(CHAIN, arrival=t, origin="ram", destination="ram") for t in (0.0, 60.0)]
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            machine.run(Workload(jobs), COSTS, create("fcfs"), INPUTS)
        assert time.monotonic() - began < SECONDS
        assert sorted(alive(names)) == sorted(names)
        trace = machine.run(CHAIN, COSTS, create("fcfs"), INPUTS).trace
        assert len(trace.executions["task"]) == 8
    wait_until_gone(names)


@pytest.mark.parametrize("error", [RuntimeError("broken"), torch.OutOfMemoryError("short")])
def test_workers_are_gone_after_a_failure(error):
    names = ("fails_1", "fails_2")

    def fail(*_):
        raise error

    with machine_with(fail, named(*names)) as machine:
        failing_run(machine, "'o4' .*(failed|ran out of memory) on device 'fails_1'")
    wait_until_gone(names)


def test_a_failed_run_holds_no_tensors():
    def fail(*_):
        raise RuntimeError("broken")

    class Keeping(type(create("fcfs"))):
        name = "keeping"
        context = None

        def begin(self, context):
            super().begin(context)
            Keeping.context = context

    with machine_with(fail) as machine, pytest.raises(ExecutionError):
        machine.run(CHAIN, COSTS, Keeping(), INPUTS)
    assert not any(any(v is not None for v in held) for held in Keeping.context._values)


def test_a_weight_that_does_not_fit_is_named(monkeypatch):
    from calibration.program import PlacedWeights

    class Elsewhere:
        """A weight that no memory takes."""

        device = torch.device("meta")
        dtype, shape = torch.float32, (4,)

        def data_ptr(self):
            return 1

        def stride(self):
            return (1,)

        def to(self, place):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore")

    with pytest.raises(ExecutionError, match="'w' does not fit into the memory of cpu: CUDA out"):
        PlacedWeights().on("cpu", "w", Elsewhere())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_without_memory_ends_the_run_and_is_of_use_again():
    cluster = named("gpu")
    wide = TensorSpec((1 << 28,))
    relu = make_operator("aten.relu.default", wide)
    count = 1 + torch.cuda.get_device_properties(0).total_memory // wide.bytes
    tensors = [Tensor("x", "input", float(wide.bytes), wide)]
    tensors += [Tensor(f"y{i}", "activation", float(wide.bytes), wide) for i in range(count)]
    graph = DataflowGraph(
        "wide",
        [replace(relu, name=f"o{i}") for i in range(count)],
        tensors,
        [[0]] * count,
        [[i + 1] for i in range(count)],
        [{"tensor": f"y{i}", "views": []} for i in range(count)],  # all are kept
    )
    costs = CostTable.of(graph, np.full((count, 1), 1e-3))
    with Machine(cluster, {"gpu": WorkerSpec("cuda:0")}) as machine:
        machine.load(graph, {})
        with pytest.raises(ExecutionError, match=r"ran out of memory on device 'gpu' \(cuda:0\)"):
            machine.run(graph, costs, create("fcfs"), {graph: {"x": torch.ones(wide.shape)}})
        machine.load(CHAIN, {})
        machine.run(CHAIN, CostTable.of(CHAIN, np.full((8, 1), 1e-4)), create("fcfs"), INPUTS)


def test_ctrl_c_in_the_moment_in_which_a_run_ends_is_not_lost(monkeypatch):
    watch = hardware_run.HardwareRun._watch

    def pressed(run, limit):
        watch(run, limit)
        raise KeyboardInterrupt

    monkeypatch.setattr(hardware_run.HardwareRun, "_watch", pressed)
    with machine_with(lambda x: (torch.relu(x),)) as machine, pytest.raises(KeyboardInterrupt):
        machine.run(CHAIN, COSTS, create("fcfs"), INPUTS)
