"""The hardware runner: the model's own results, honest traces, and an end in every case."""

import gc
import os
import signal
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from calibration.kernels import make_operator  # noqa: E402
from calibration.runner import Machine  # noqa: E402
from calibration.sequential import (  # noqa: E402
    named_inputs,
    results_of,
    run_graph,
    weights_of,
)
from calibration.workers import WorkerSpec  # noqa: E402
from scenarios import trace_model, trace_training  # noqa: E402
from simulator.context.scheduler import Scheduler  # noqa: E402
from simulator.engine.run import simulate  # noqa: E402
from simulator.errors import ExecutionError, InvalidInput, SchedulingError  # noqa: E402
from simulator.model.cluster import Cluster, Device, Link, MemorySpace  # noqa: E402
from simulator.model.costs import CostTable  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402
from simulator.model.operator import Tensor, TensorSpec  # noqa: E402
from simulator.model.workload import Job, Workload  # noqa: E402
from simulator.schedulers import create  # noqa: E402

SCHEDULERS = (
    *("single_device", "fcfs", "donf", "heft", "sufferage"),
    *("sjf", "mct", "min_min", "duplex", "work_stealing", "donf_memory"),
)
SHARED = Cluster(
    "two", [MemorySpace("ram")], [Device("fast", "ram"), Device("slow", "ram")], host="ram"
)
APART = Cluster(
    "apart",
    [MemorySpace("ram"), MemorySpace("far")],
    [Device("near", "ram"), Device("remote", "far")],
    [Link("bus", ("ram", "far"), 1e9, 1e-5)],
    host="ram",
)
VECTOR = TensorSpec((4,))


class Branches(torch.nn.Module):
    def __init__(self, branches=3, depth=4, channels=8):
        super().__init__()
        self.branches = torch.nn.ModuleList(
            torch.nn.Sequential(
                *(
                    layer
                    for _ in range(depth)
                    for layer in (
                        torch.nn.Conv2d(channels, channels, 3, padding=1),
                        torch.nn.ReLU(),
                    )
                )
            )
            for _ in range(branches)
        )

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1).mean((2, 3))


class Stage:
    """A model traced and loaded on a machine."""

    def __init__(self, module, inputs, cluster=SHARED, **specs):
        module.eval()
        self.graph = trace_model(module, inputs)
        with torch.no_grad():
            self.expected = module(*inputs)
        self.inputs = {self.graph: named_inputs(self.graph, inputs)}
        specs = specs or {device.name: WorkerSpec() for device in cluster.devices}
        self.machine = Machine(cluster, specs)
        self.machine.load(self.graph, weights_of(module, self.graph))
        rows = [[1e-4 * (1 + 2 * d) for d in range(len(cluster.devices))]] * len(self.graph)
        self.costs = CostTable.of(self.graph, np.array(rows))

    def run(self, scheduler, **options):
        scheduler = create(scheduler) if isinstance(scheduler, str) else scheduler
        return self.machine.run(self.graph, self.costs, scheduler, self.inputs, **options)


@pytest.fixture(scope="module")
def stage():
    generator = torch.Generator().manual_seed(0)
    stage = Stage(Branches(), (torch.randn(1, 8, 12, 12, generator=generator),))
    yield stage
    stage.machine.close()


class Fading(torch.nn.Module):
    """Its numbers become denormal on the way; what is not taken for zero comes back at the end."""

    def forward(self, x):
        return x * 1e-5 * 1e10


@pytest.mark.parametrize("threads", [1, 2])
def test_workers_and_their_threads_take_denormal_numbers_for_zero(threads):
    x = torch.full((200_000,), 1e-35)
    spec = WorkerSpec(threads=threads)
    fading = Stage(Fading(), (x,), fast=spec, slow=spec)
    assert fading.expected.all()  # the caller's thread does not
    with fading.machine as machine:
        assert machine.flushes_denormals
        for device in ("fast", "slow"):
            execution = fading.run(create("single_device", device=device))
            (result,) = execution.outputs[0].values()
            assert not result.any()
    assert (x * 1e-5).all()


def adder_graph(parents):
    """Operator i adds vectors of its (one or two) parents; -1 is the graph's input."""
    add = make_operator("aten.add.Tensor", VECTOR, VECTOR)
    relu = make_operator("aten.relu.default", VECTOR)
    tensors = [Tensor("x", "input", 16.0, VECTOR)]
    tensors += [Tensor(f"y{i}", "activation", 16.0, VECTOR) for i in range(len(parents))]
    reads = [sorted({p + 1 for p in pair}) for pair in parents]
    operators = [replace(add if len(r) == 2 else relu, name=f"o{i}") for i, r in enumerate(reads)]
    writes = [[i + 1] for i in range(len(parents))]
    results = [{"tensor": f"y{i}", "views": []} for i in range(len(parents)) if i % 3 == 0]
    return DataflowGraph("adders", operators, tensors, reads, writes, results)


def check_trace(trace, graph, jobs=1):
    """Every task once; no overlap on a slot; producers before consumers; transfers before readers."""
    rows = trace.executions
    assert sorted(rows["task"]) == list(range(len(graph) * jobs))
    assert np.all(rows["start"] < rows["finish"])
    assert np.all(rows["ready"] <= rows["start"])
    assert np.all(rows["placed"] <= rows["start"])
    for device in np.unique(rows["device"]):
        for slot in np.unique(rows["slot"]):
            here = (rows["device"] == device) & (rows["slot"] == slot)
            order = np.argsort(rows["start"][here])
            starts, ends = rows["start"][here][order], rows["finish"][here][order]
            assert np.all(starts[1:] >= ends[:-1])
    finish = dict(zip(rows["task"].tolist(), rows["finish"].tolist(), strict=True))
    start = dict(zip(rows["task"].tolist(), rows["start"].tolist(), strict=True))
    for job in range(jobs):
        first = job * len(graph)
        for a, b in zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True):
            assert finish[first + a] <= start[first + b]


@pytest.mark.parametrize("scheduler", ["heft", "fcfs"])
@pytest.mark.parametrize("cluster", [SHARED, APART], ids=["shared", "apart"])
def test_live_check_a_training_step_is_autograds(scheduler, cluster):
    torch.manual_seed(0)
    module = torch.nn.Sequential(Branches(2, 2), torch.nn.Linear(16, 5))
    x, target = torch.randn(3, 8, 12, 12), torch.tensor([0, 4, 2])
    graph = trace_training(module, x, optimizer="adamw")
    # What becomes of the parameters is to be looked at, so it is delivered.
    updated = [{"tensor": t.name, "views": []} for t in graph.tensors if ":updated" in t.name]
    graph = DataflowGraph.from_json(graph.to_json() | {"results": [*graph.results, *updated]})
    inputs = {graph: named_inputs(graph, [x, target])}
    rows = [[1e-4] * len(cluster.devices)] * len(graph)
    with Machine(cluster, {device.name: WorkerSpec() for device in cluster.devices}) as machine:
        machine.load(graph, weights_of(module, graph))
        run = machine.run(graph, CostTable.of(graph, np.array(rows)), create(scheduler), inputs)
    check_trace(run.trace, graph)
    # What becomes of a weight is copied to every memory in which the weight was read.
    rows, moves = run.trace.executions, run.trace.transfers
    space = np.array(cluster.space_of)[rows["device"][np.argsort(rows["operator"])]]
    moved = set(zip(moves["tensor"].tolist(), moves["destination"].tolist(), strict=True))
    for tensor, weight in graph.updates.items():
        read = {int(space[reader]) for reader in graph.consumers[weight]}
        home = int(space[graph.producer[tensor]])
        assert {(tensor, where) for where in read - {home}} <= moved
    found = run.outputs[0]
    loss = torch.nn.functional.cross_entropy(module(x), target)
    loss.backward()
    torch.optim.AdamW(module.parameters()).step()
    torch.testing.assert_close(results_of(graph, found)[0], loss.detach())
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(found[f"{name}:updated"], parameter.detach())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_live_check_every_scheduler_gives_the_models_own_result(stage, scheduler):
    for _ in range(2):
        run = stage.run(scheduler)
        (actual,) = results_of(stage.graph, run.outputs[0])
        torch.testing.assert_close(actual, stage.expected)
        check_trace(run.trace, stage.graph)
        assert run.trace.meta["world"] == "measured"
        assert run.trace.meta["scheduler"] == scheduler
        assert 0 < run.trace.makespan < 30
        assert run.trace.makespan == run.trace.executions["finish"].max()
        assert run.trace.wallclock["decisions"] == len(stage.graph) + 1


def test_a_static_plan_is_executed_as_it_was_simulated(stage):
    """Where and in which order a plan puts tasks does not depend on the world."""
    simulated = simulate(stage.graph, SHARED, stage.costs, create("heft")).executions
    measured = stage.run("heft").trace.executions
    for device in (0, 1):
        orders = []
        for rows in (simulated, measured):
            here = rows["device"] == device
            orders.append(rows["task"][here][np.argsort(rows["start"][here])].tolist())
        assert orders[0] == orders[1]
        assert orders[0]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_graphs_give_the_same_values_as_one_operator_after_the_other(data):
    size = data.draw(st.integers(1, 25))
    parents = [
        [data.draw(st.integers(-1, i - 1)), data.draw(st.integers(-1, i - 1))] for i in range(size)
    ]
    graph = adder_graph(parents)
    inputs = {"x": torch.arange(4.0)}
    expected = run_graph(graph, {}, inputs)
    seconds = np.array([[1.0, data.draw(st.sampled_from([0.5, 2.0]))]] * size)
    scheduler = create(data.draw(st.sampled_from(SCHEDULERS)))
    cluster = data.draw(st.sampled_from([SHARED, APART]))
    movement = data.draw(st.sampled_from(["push", "pull"]))
    workers = {device.name: WorkerSpec() for device in cluster.devices}
    with Machine(cluster, workers) as machine:
        machine.load(graph, {})
        costs = CostTable.of(graph, seconds)
        run = machine.run(graph, costs, scheduler, {graph: inputs}, movement=movement)
    actual = results_of(graph, run.outputs[0])
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    check_trace(run.trace, graph)
    # Whatever crossed arrived before whoever reads it there started; nothing crossed twice.
    moved = run.trace.transfers
    keys = list(zip(moved["tensor"].tolist(), moved["destination"].tolist(), strict=True))
    assert len(set(keys)) == len(keys)
    arrival = dict(zip(keys, moved["finish"].tolist(), strict=True))
    rows = run.trace.executions
    space = dict(zip(rows["task"].tolist(), rows["device"].tolist(), strict=True))
    starts = dict(zip(rows["task"].tolist(), rows["start"].tolist(), strict=True))
    for tensor, readers in enumerate(graph.consumers):
        home = space[graph.producer[tensor]] if graph.producer[tensor] >= 0 else 0
        for reader in readers:
            if cluster is APART and space[reader] != home:
                assert arrival[tensor, space[reader]] <= starts[reader]
    if cluster is SHARED:
        assert not keys


def test_outputs_are_delivered_where_the_job_wants_them():
    graph = adder_graph([[-1, -1]])
    with Machine(APART, {"near": WorkerSpec(), "remote": WorkerSpec()}) as machine:
        machine.load(graph, {})
        costs = CostTable.of(graph, np.ones((1, 2)))
        run = machine.run(
            graph, costs, create("single_device", device="remote"), {graph: {"x": torch.ones(4)}}
        )
    moved = run.trace.transfers
    assert [APART.channels[i] for i in moved["link"]] == ["bus:ram->far", "bus:far->ram"]
    assert moved["bytes"].tolist() == [16.0, 16.0]
    assert run.trace.makespan == moved["finish"][1] > run.trace.executions["finish"].max()


def test_a_device_of_several_slots_has_a_worker_for_each():
    cluster = Cluster("pool", [MemorySpace("ram")], [Device("cpu", "ram", slots=3)], host="ram")
    stage = Stage(Branches(), (torch.ones(1, 8, 6, 6),), cluster, cpu=WorkerSpec())
    with stage.machine:
        run = stage.run("donf")
    torch.testing.assert_close(results_of(stage.graph, run.outputs[0])[0], stage.expected)
    check_trace(run.trace, stage.graph)
    assert set(run.trace.executions["slot"]) == {0, 1, 2}


def test_repeating_kernels_makes_a_slower_device():
    x = torch.randn(256, 256)
    linear = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6)))
    stage = Stage(linear, (x,), fast=WorkerSpec(), slow=WorkerSpec(repeat_kernel=3))
    shortest = {}
    with stage.machine:
        for name in ("fast", "slow"):
            found = []
            for _ in range(12):
                run = stage.run(create("single_device", device=name))
                torch.testing.assert_close(
                    results_of(stage.graph, run.outputs[0])[0], stage.expected
                )
                found.append(run.trace.executions["finish"] - run.trace.executions["start"])
            shortest[name] = np.min(found, axis=0).sum()
    assert 2.0 < shortest["slow"] / shortest["fast"] < 4.5


def test_jobs_arrive_in_real_time(stage):
    jobs = [Job(stage.graph, arrival=0.03 * i, origin="ram", destination="ram") for i in range(4)]
    run = stage.machine.run(Workload(jobs), stage.costs, create("sufferage"), stage.inputs)
    check_trace(run.trace, stage.graph, jobs=4)
    rows = run.trace.executions
    for number in range(4):
        assert rows["start"][rows["job"] == number].min() >= 0.03 * number
        torch.testing.assert_close(results_of(stage.graph, run.outputs[number])[0], stage.expected)
    assert run.trace.makespan >= 0.09


class Watching(Scheduler):
    """Everything on the first device; notes how the interpreter is set."""

    name = "watching"

    def __init__(self):
        self.seen = set()

    def decide(self, context):
        self.seen.add((sys.getswitchinterval() < 1e-3, gc.isenabled()))
        for job in context.arrived:
            for task in context.tasks_of(job):
                context.place(task, 0)


def test_threads_share_the_interpreter_at_once_while_a_run_lasts(stage):
    """Python's 5 ms are longer than many operators: a worker would wait them for another one's."""
    before = sys.getswitchinterval(), gc.isenabled()
    watching = Watching()
    stage.machine.run(stage.graph, stage.costs, watching, stage.inputs)
    assert watching.seen == {(True, False)}
    assert (sys.getswitchinterval(), gc.isenabled()) == before


class Later(Scheduler):
    """Places everything, takes it back, and places it again a while after."""

    name = "later"

    def __init__(self, delay):
        self.delay = delay
        self.held = []

    def decide(self, context):
        for job in context.arrived:
            for task in context.tasks_of(job):
                context.place(task, 0)
                context.withdraw(task)
                self.held.append(task)
            context.wake_at(context.now + self.delay)
        if context.now >= self.delay:
            for task in self.held:
                context.place(task, 1)
            self.held = []


def test_wake_up_and_withdrawal(stage):
    run = stage.run(Later(0.02))
    check_trace(run.trace, stage.graph)
    assert run.trace.executions["start"].min() >= 0.02
    assert set(run.trace.executions["device"]) == {1}


class Forgetful(Scheduler):
    name = "forgetful"

    def decide(self, context):
        for task in context.ready:
            if context.label(task) != "branches.1.2/conv2d":
                context.place(task, 0)


class Backwards(Scheduler):
    name = "backwards"

    def decide(self, context):
        for job in context.arrived:
            for task in context.tasks_of(job):
                context.place(task, 0, rank=-task)


class Broken(Scheduler):
    name = "broken"

    def decide(self, context):
        for task in context.ready:
            context.place(task, 0)
        if len(context.finished) and context.finished[0] == 3:
            context.place(3, 0)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (Forgetful(), "never placed, the first is 'branches.1.2/conv2d'"),
        (Backwards(), "the queues' order contradicts the graph"),
        (Broken(), "is placed on 'fast' already"),
    ],
)
def test_a_scheduler_that_leaves_work_is_reported_not_waited_for(stage, scheduler, message):
    began = time.monotonic()
    with pytest.raises(SchedulingError, match=message):
        stage.run(scheduler)
    assert time.monotonic() - began < 5
    check_trace(stage.run("fcfs").trace, stage.graph)  # the machine is as good as before


def test_an_operator_that_fails_is_named_and_ends_the_run():
    class Lookup(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(4, 8)
            self.tail = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(50)))

        def forward(self, index, x):
            return self.table(index), self.tail(x)

    stage = Stage(Lookup(), (torch.tensor([1]), torch.ones(1, 8)))
    stage.inputs[stage.graph]["index"] = torch.tensor([7])
    with stage.machine:
        began = time.monotonic()
        with pytest.raises(
            ExecutionError, match=r"'table/embedding' \(kind embedding\) failed on device '.*Index"
        ):
            stage.run("fcfs")
        assert time.monotonic() - began < 1
        stage.inputs[stage.graph]["index"] = torch.tensor([1])
        check_trace(stage.run("fcfs").trace, stage.graph)


class Interrupting(Scheduler):
    """Everything on one device; when a few operators have run, the user presses Ctrl-C."""

    name = "interrupting"

    def decide(self, context):
        for task in context.ready:
            context.place(task, 0)
        if context.finished == [5]:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_over_its_limit_and_ctrl_c_end_within_a_second():
    square = TensorSpec((512, 512))
    product = make_operator("aten.mm.default", square, square)
    product = replace(product, template={"args": [{"read": 0, "views": []}] * 2, "kwargs": {}})
    count = 2000  # several seconds
    tensors = [Tensor("x", "input", 1 << 20, square)]
    tensors += [Tensor(f"y{i}", "activation", 1 << 20, square) for i in range(count)]
    graph = DataflowGraph(
        "products",
        [replace(product, name=f"o{i}") for i in range(count)],
        tensors,
        [[i] for i in range(count)],
        [[i + 1] for i in range(count)],
    )
    inputs = {graph: {"x": torch.zeros(512, 512)}}
    costs = CostTable.of(graph, np.array([[1.0, 3.0]] * count))
    with Machine(SHARED, {"fast": WorkerSpec(), "slow": WorkerSpec()}) as machine:
        machine.load(graph, {})
        began = time.monotonic()
        with pytest.raises(
            ExecutionError, match=r"not ended after 0.2 s; running: 'o\d+' on 'fast'"
        ):
            machine.run(graph, costs, create("single_device"), inputs, limit=0.2)
        assert time.monotonic() - began < 2
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            machine.run(graph, costs, Interrupting(), inputs)
        assert time.monotonic() - began < 2


class Counting(Scheduler):
    """Counts the tensors that a run holds whenever it decides."""

    name = "counting"

    def __init__(self):
        self.held = []

    def decide(self, context):
        self.held.append(sum(value is not None for value in context._values[0]))
        for task in context.ready:
            context.place(task, 0)


def test_tensors_are_freed_after_their_last_consumer():
    graph = adder_graph([[i - 1, i - 1] for i in range(6)])
    with Machine(SHARED, {"fast": WorkerSpec(), "slow": WorkerSpec()}) as machine:
        machine.load(graph, {})
        counting = Counting()
        inputs = {graph: {"x": torch.ones(4)}}
        machine.run(graph, CostTable.of(graph, np.ones((6, 2))), counting, inputs)
    # The input; then what somebody still reads, and the results y0 and y3 from when they are there.
    assert counting.held == [1, 1, 2, 2, 2, 3, 2]


def test_what_does_not_fit_is_refused_before_the_run(stage):
    with pytest.raises(InvalidInput, match="Device 'slow' of cluster 'two' has no worker here"):
        Machine(SHARED, {"fast": WorkerSpec()})
    with pytest.raises(InvalidInput, match="Core 4096 is not available"):
        Machine(SHARED, {"fast": WorkerSpec(cores=(4096,)), "slow": WorkerSpec()})
    with pytest.raises(InvalidInput, match="has 1 slots of 1 threads, its worker 2 cores"):
        Machine(SHARED, {"fast": WorkerSpec(cores=(0, 0)), "slow": WorkerSpec()})
    with pytest.raises(InvalidInput, match="cannot be both on cpu and on cuda:0"):
        Machine(SHARED, {"fast": WorkerSpec(), "slow": WorkerSpec("cuda:0")})
    with pytest.raises(InvalidInput, match=r"needs the weight 'branches.0.0.weight'"):
        stage.machine.load(stage.graph, {})
    with pytest.raises(InvalidInput, match="needs the input 'x'"):
        stage.machine.run(stage.graph, stage.costs, create("fcfs"), {})
    other = adder_graph([[-1, -1]])
    costs = CostTable.of(other, np.ones((1, 2)))
    with pytest.raises(InvalidInput, match="'adders' is not loaded"):
        stage.machine.run(other, costs, create("fcfs"), {})


def test_a_scheduler_may_believe_other_overheads_but_not_other_devices(stage):
    overheads = [replace(device, launch_overhead=1e-3) for device in SHARED.devices]
    believed = replace(SHARED, devices=overheads)

    class Reading(Later):
        """Takes note of a task's believed time."""

        name = "reading"
        believed = ()

        def decide(self, context):
            self.believed = self.believed or tuple(context.seconds(0))
            super().decide(context)

    scheduler = Reading(0.0)
    stage.run(scheduler, believed=believed)
    assert scheduler.believed == (1.1e-3, 1.3e-3)
    with pytest.raises(InvalidInput, match=r"'apart' does not have the devices .*: fast, slow"):
        stage.run("fcfs", believed=APART)
    with pytest.raises(InvalidInput, match="does not have the devices"):
        stage.run("fcfs", believed=replace(SHARED, devices=SHARED.devices[:1]))


def test_a_scheduler_that_needs_more_is_refused(stage):
    class Evicting(Later):
        name = "evicting"
        needs = frozenset({"evict", "batch"})

    with pytest.raises(SchedulingError, match="needs evict, which measured runs do not offer"):
        stage.run(Evicting(1.0))


class Undeclared(Scheduler):
    """Asks for an ability that it has not declared."""

    name = "undeclared"

    def __init__(self, verb):
        self.verb = verb

    def decide(self, context):
        {
            "batch": lambda: context.batch([0]),
            "reject": lambda: context.reject(0, "why not"),
            "pack": lambda: context.pack([(0, 0)]),
            "requests": context.requests,
        }[self.verb]()


@pytest.mark.parametrize("verb", ["batch", "reject", "pack", "requests"])
def test_verbs_must_be_declared(stage, verb):
    with pytest.raises(SchedulingError, match="without having declared it"):
        stage.run(Undeclared(verb))


@pytest.mark.parametrize("movement", ["push", "pull"])
def test_packed_transfers_are_one_request_and_arrive_together(movement):
    """Two tensors that finish at once for the same task cross in one message."""
    graph = adder_graph([[-1, -1], [-1, -1], [0, 1], [0, 2], [1, 3]])
    inputs = {"x": torch.arange(4.0)}
    costs = CostTable.of(graph, np.ones((5, 2)))

    class Split(Scheduler):
        """The first two operators near, the rest far away; what goes there at once is packed."""

        name = "split"
        needs = frozenset({"pack"})

        def decide(self, context):
            for task in context.ready:
                context.place(task, int(task > 1))
            asked = context.requests()
            if len(asked) > 1:
                ends = {context.copy_time(r.tensor, r.destination) for r in asked}
                context.pack([(r.tensor, r.destination) for r in asked])
                assert len({context.copy_time(r.tensor, r.destination) for r in asked}) == 1
                assert len(ends) == 2  # under fifo one after the other
                assert context.requests() == []
                with pytest.raises(SchedulingError, match="it is in another message"):
                    context.pack([(asked[0].tensor, asked[0].destination)])

    with Machine(APART, {"near": WorkerSpec(), "remote": WorkerSpec()}) as machine:
        machine.load(graph, {})
        run = machine.run(
            graph, costs, Split(), {graph: inputs}, movement=movement, contention="fifo"
        )
        packed = machine.run(graph, costs, create("packed"), {graph: inputs}, movement=movement)
    for found in (run, packed):
        actual = results_of(graph, found.outputs[0])
        torch.testing.assert_close(actual, run_graph(graph, {}, inputs), rtol=0, atol=0)
    moved = run.trace.transfers
    there = {int(t): i for i, t in enumerate(moved["tensor"]) if moved["destination"][i] == 1}
    assert {1, 2} <= there.keys()
    for column in ("requested", "start", "finish"):
        assert moved[column][there[1]] == moved[column][there[2]]


def test_spinning_and_sleeping_workers_do_the_same():
    for spin in (True, False):
        stage = Stage(Branches(), (torch.ones(1, 8, 6, 6),))
        stage.machine.close()
        workers = {name: WorkerSpec() for name in ("fast", "slow")}
        with Machine(SHARED, workers, spin=spin) as machine:
            machine.load(stage.graph, weights_of(Branches(), stage.graph))
            for _ in range(3):
                run = machine.run(stage.graph, stage.costs, create("fcfs"), stage.inputs)
                check_trace(run.trace, stage.graph)
            assert run.trace.meta["spinning"] is spin


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("movement", ["push", "pull"])
def test_one_graph_across_cpu_and_gpu(scheduler, movement):
    workers = {"near": WorkerSpec(), "remote": WorkerSpec("cuda:0")}
    stage = Stage(Branches(), (torch.randn(1, 8, 12, 12),), APART, **workers)
    with stage.machine:
        run = stage.run(scheduler, movement=movement)
    (actual,) = results_of(stage.graph, run.outputs[0])
    torch.testing.assert_close(actual, stage.expected, rtol=1e-3, atol=1e-3)
    check_trace(run.trace, stage.graph)
