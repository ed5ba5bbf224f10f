"""Requests served together on real tensors: each gets what the module makes of its own input."""

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from calibration.joining import Cut, cut  # noqa: E402
from calibration.runner import Machine  # noqa: E402
from calibration.sequential import named_inputs, results_of, run_graph, weights_of  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from scenarios import trace_model  # noqa: E402
from simulator.analysis.serving_metrics import serving_metrics  # noqa: E402
from simulator.engine.run import simulate  # noqa: E402
from simulator.errors import InvalidInput, SchedulingError  # noqa: E402
from simulator.model.closed_loop import ClosedLoop  # noqa: E402
from simulator.model.cluster import Cluster, Device, Link, MemorySpace  # noqa: E402
from simulator.model.costs import CostTable, GraphCosts  # noqa: E402
from simulator.model.family import GraphFamily  # noqa: E402
from simulator.model.operator import TensorSpec  # noqa: E402
from simulator.model.segments import coarsen  # noqa: E402
from simulator.model.trace import Trace  # noqa: E402
from simulator.model.workload import Job, Workload  # noqa: E402
from simulator.schedulers import create  # noqa: E402
from tests.calibration.test_runner import adder_graph  # noqa: E402

SHARED = Cluster("two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram")
APART = Cluster(
    "apart",
    [MemorySpace("ram"), MemorySpace("far")],
    [Device("near", "ram"), Device("remote", "far")],
    [Link("bus", ("ram", "far"), 1e9, 1e-5)],
    host="ram",
)
MOST = 4
BATCHING = ("task_groups", "fcfs_batching", "dynamic_batching", "edf")
MOVING = {"name": "round_robin", "move": True}
ONE_BY_ONE = ("fcfs", "sufferage", "sjf", "min_min")


class Net(torch.nn.Module):
    """Of the inputs one has no batch dimension; of the results one is shared by all, one is read
    later, and one is an input as it came.
    """

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x, table):
        hidden = torch.relu(self.first(x) + table)
        return self.second(hidden), hidden, table.exp(), x


class Site:
    """The net at batches 1 to 4, loaded on a machine, and three different inputs."""

    def __init__(self, cluster, segments=None, **specs):
        torch.manual_seed(1)
        self.module = Net().eval()
        self.table = torch.randn(8)
        traced = [
            trace_model(self.module, (torch.randn(b, 6), self.table), name="net", batch=b)
            for b in (2, 3, 5)
        ]
        family = GraphFamily.from_graphs(*traced)
        self.sets = [
            [(torch.randn(size, 6), self.table) for _ in range(3)] for size in range(1, MOST + 1)
        ]
        specs = specs or {device.name: WorkerSpec() for device in cluster.devices}
        self.machine = Machine(cluster, specs)
        self.cluster = cluster
        self.graphs, entries, self.inputs = {}, {}, {}
        for batch in range(1, MOST + 1):
            fine = family.at(batch)
            parts = None if segments is None else coarsen(fine, min(segments, len(fine)))
            graph = fine if parts is None else parts.graph
            self.machine.load(graph, weights_of(self.module, fine), parts)
            seconds = np.full((len(graph), len(cluster.devices)), 1e-4 * (1 + batch) / 2)
            entries[graph] = GraphCosts(seconds)
            self.graphs[batch] = graph
            self.inputs[graph] = [named_inputs(graph, given) for given in self.sets[batch - 1]]
        self.costs = CostTable(entries)
        self.batches = dict.fromkeys(self.graphs.values(), self.graphs)

    def workload(self, arrivals, sizes=None, **options):
        sizes = sizes or [1] * len(arrivals)
        jobs = [
            Job(self.graphs[size], time, batch=size, origin="ram", destination="ram", **options)
            for time, size in zip(arrivals, sizes, strict=True)
        ]
        return Workload(jobs, self.batches)

    def run(self, workload, scheduler, **options):
        return self.machine.run(workload, self.costs, scheduler, self.inputs, **options)

    def check(self, workload, run):
        """Every job's outputs are the module's on its own input."""
        turns = Counter()
        for job, outputs, graph in zip(workload, run.outputs, run.graphs, strict=True):
            given = self.sets[job.batch - 1][turns[job.graph] % 3]
            turns[job.graph] += 1
            with torch.no_grad():
                expected = self.module(*given)
            torch.testing.assert_close(results_of(graph, outputs), list(expected))


@pytest.fixture(scope="module", params=["operators", "one segment", "three segments"])
def segments(request):
    return {"operators": None, "one segment": 1, "three segments": 3}[request.param]


@pytest.fixture(scope="module")
def shared(segments):
    site = Site(SHARED, segments)
    yield site
    site.machine.close()


@pytest.fixture(scope="module")
def apart(segments):
    site = Site(APART, segments)
    yield site
    site.machine.close()


def batch_sizes(trace):
    """Jobs in each execution of a graph's first operator."""
    first = trace.executions["execution"][trace.executions["operator"] == 0]
    return [int((trace.members["execution"] == execution).sum()) for execution in first]


@pytest.mark.parametrize("scheduler", [*BATCHING, *ONE_BY_ONE])
def test_every_request_gets_the_modules_answer_to_its_own_input(shared, scheduler):
    options = {"max_batch": MOST} if scheduler in BATCHING else {}
    workload = shared.workload([0.0] * 9 + [0.002] * 3)
    run = shared.run(workload, create(scheduler, **options))
    shared.check(workload, run)
    jobs = run.trace.jobs
    assert np.all(jobs["status"] == "finished")
    assert np.all(jobs["finish"] > jobs["arrival"])
    sizes = batch_sizes(run.trace)
    assert sum(sizes) == 12
    assert set(np.unique(run.trace.members["job"])) == set(range(12))
    if scheduler in BATCHING:
        assert sorted(sizes)[-2:] == [MOST, MOST]  # at the first instant
        joined = sorted(row[1] for row in run.trace.meta["joins"])
        assert joined == sorted(size for size in sizes if size > 1)
        seconds = sum(row[2] for row in run.trace.meta["joins"])
        assert 0 < seconds == run.trace.wallclock["joining_seconds"] < 1
        assert 0 < run.trace.wallclock["splitting_seconds"] < 1
    else:
        assert sizes == [1] * 12
        assert "joins" not in run.trace.meta
    assert serving_metrics(run.trace)["mean_batch"] == pytest.approx(np.mean(sizes))


@pytest.mark.parametrize("scheduler", BATCHING)
@pytest.mark.parametrize("packing", [None, {"age": "1ms"}, {"size": "60B", "eager": False}])
def test_inputs_are_sent_and_answers_return_where_memories_differ(apart, scheduler, packing):
    chosen = create(scheduler, max_batch=MOST, select=MOVING, packing=packing)
    workload = apart.workload([0.0] * 8 + [0.001 * i for i in range(8)])
    run = apart.run(workload, chosen, contention="fifo")
    apart.check(workload, run)
    moved = run.trace.transfers
    far = {job for job, space in zip(moved["job"], moved["destination"], strict=True) if space}
    assert len(far) == 8  # every other request
    executed = run.trace.executions
    served = {
        int(run.trace.members["job"][i])
        for i, execution in enumerate(run.trace.members["execution"])
        if executed["device"][execution] == 1
    }
    assert served == far
    # Both inputs of each went there, and three results (one an input that is there) came back.
    keys = list(zip(moved["job"], moved["tensor"], moved["destination"], strict=True))
    assert len(set(keys)) == len(keys)
    for job in far:
        back = moved["finish"][(moved["job"] == job) & (moved["destination"] == 0)]
        assert len(back) == 3
        assert run.trace.jobs["finish"][job] == back.max()


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_requests_of_any_sizes_at_any_times(data):
    site = _sites(data.draw(st.sampled_from(["shared", "apart"])))
    count = data.draw(st.integers(1, 12))
    arrivals = sorted(data.draw(st.lists(st.floats(0, 0.01), min_size=count, max_size=count)))
    sizes = data.draw(st.lists(st.integers(1, MOST), min_size=count, max_size=count))
    name = data.draw(st.sampled_from([*BATCHING, *ONE_BY_ONE]))
    options = {}
    if name in BATCHING:
        selects = ["home"] if site.cluster is SHARED else ["home", MOVING]
        options = {"max_batch": data.draw(st.integers(1, MOST))}
        options["select"] = data.draw(st.sampled_from(selects))
    workload = site.workload(arrivals, sizes)
    run = site.run(workload, create(name, **options))
    site.check(workload, run)
    for members in _members(run.trace):
        total = sum(sizes[job] for job in members)
        assert len(members) == 1 or total <= options["max_batch"]


_made = {}


def _sites(name):
    if name not in _made:
        _made[name] = Site(SHARED if name == "shared" else APART, 2)
    return _made[name]


def _members(trace):
    found = {}
    for execution, job in zip(trace.members["execution"], trace.members["job"], strict=True):
        found.setdefault(int(execution), []).append(int(job))
    return found.values()


def test_the_same_decisions_in_both_worlds_where_time_does_not_matter(shared):
    """All at once on one device, priorities that do not age: batches cannot depend on the world."""
    workload = shared.workload([0.0] * 10)
    one = Cluster("one", [MemorySpace("ram")], [Device("a", "ram")], host="ram")
    costs = CostTable({g: GraphCosts(c.seconds[:, :1]) for g, c in shared.costs.items()})
    with Machine(one, {"a": WorkerSpec()}) as machine:
        machine._programs = shared.machine._programs  # loaded once is enough
        for name in ("fcfs_batching", "edf", "task_groups"):
            simulated = simulate(workload, one, costs, create(name, max_batch=MOST))
            measured = machine.run(workload, costs, create(name, max_batch=MOST), shared.inputs)
            assert batch_sizes(simulated) == batch_sizes(measured.trace) == [4, 4, 2]
            for table in ("executions", "members"):
                a, b = getattr(simulated, table), getattr(measured.trace, table)
                assert a["job"].tolist() == b["job"].tolist()


def test_a_trace_of_batches_is_saved_and_loaded(shared, tmp_path):
    workload = shared.workload([0.0] * 6)
    trace = shared.run(workload, create("fcfs_batching", max_batch=MOST)).trace
    trace.save(tmp_path)
    loaded = Trace.load(tmp_path)
    assert loaded.meta["joins"] == trace.meta["joins"]
    assert serving_metrics(loaded) == serving_metrics(trace)


def test_waiting_for_others_is_by_the_wall_clock(shared):
    workload = shared.workload([0.0, 0.01, 0.15])
    run = shared.run(workload, create("dynamic_batching", delay="40ms", max_batch=MOST))
    shared.check(workload, run)
    rows = run.trace.executions
    starts = sorted(rows["start"][rows["operator"] == 0].tolist())
    assert batch_sizes(run.trace) == [2, 1]
    assert 0.04 <= starts[0] < 0.15
    assert starts[1] >= 0.19


def test_refused_requests_have_no_outputs(shared):
    workload = shared.workload([0.0] * 5, deadline=1e-5)
    run = shared.run(workload, create("edf", drop_late=True))
    assert run.trace.jobs["status"].tolist() == ["rejected"] * 5
    assert set(run.trace.jobs["reason"]) == {"its deadline can no longer be met"}
    assert run.outputs == [{}] * 5
    assert len(run.trace.executions["task"]) == 0


def test_a_variant_serves_and_gives_its_own_results():
    torch.manual_seed(0)
    small = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU()).eval()
    large = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh()).eval()
    graphs, entries, inputs = {}, {}, {}
    with Machine(SHARED, {"a": WorkerSpec(), "b": WorkerSpec()}) as machine:
        for name, module in (("small", small), ("large", large)):
            graphs[name] = {}
            for batch in (1, 2):
                fine = trace_model(module, (torch.randn(batch, 6),), name=name, batch=batch)
                parts = coarsen(fine)
                graphs[name][batch] = parts.graph
                machine.load(parts.graph, weights_of(module, fine), parts)
                seconds = 2e-4 if name == "large" else 1e-4
                entries[parts.graph] = GraphCosts(np.full((1, 2), seconds * batch))
        given = [torch.randn(1, 6) for _ in range(2)]
        (name,) = (graphs["large"][1].tensors[t].name for t in graphs["large"][1].inputs)
        inputs[graphs["large"][1]] = [{name: x} for x in given]
        job = Job(graphs["large"][1], batch=1, origin="ram", destination="ram")
        batches = {g: graphs[n] for n in graphs for g in graphs[n].values()}
        variants = {graphs["large"][1]: [graphs["small"][1]]}
        workload = Workload([job, job], batches, variants)

        class ByTheSmall(type(create("fcfs_batching"))):
            name = "by_the_small"

            def choose(self, context, node, device):
                choice = super().choose(context, node, device)
                return choice and choice._replace(graph=graphs["small"][choice.requests])

        run = machine.run(workload, CostTable(entries), ByTheSmall(2), inputs)
    assert run.graphs == [graphs["small"][1]] * 2
    for outputs, x in zip(run.outputs, given, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(results_of(graphs["small"][1], outputs), [small(x)])


@pytest.mark.parametrize("scheduler", ["fcfs", "sufferage", "task_groups", "fcfs_batching"])
def test_live_check_delays_are_the_simulated_ones_where_operators_take_what_is_believed(scheduler):
    """Operators that sleep: the machine may be busy, the clock and the queues are real."""

    def seconds(batch):
        return 0.012 + 0.004 * batch

    def sleeping(kernel, least):
        def run(*reads):
            end = time.perf_counter() + least
            written = kernel(*reads)
            time.sleep(max(0.0, end - time.perf_counter()))
            return written

        return run

    site = Site(SHARED, 1)
    costs = {}
    for batch, graph in site.graphs.items():
        costs[graph] = GraphCosts(np.full((1, 2), seconds(batch)))
        for kernels in site.machine.program(graph).kernels.values():
            kernels[0] = sleeping(kernels[0], seconds(batch))
    options = {"max_batch": MOST} if scheduler in BATCHING else {}
    gaps = np.random.default_rng(0).exponential(seconds(1) / 2 / 0.9, 80)  # 0.9 of the capacity
    workload = site.workload([0.0, *np.cumsum(gaps).tolist()])
    with site.machine:
        run = site.machine.run(
            workload, CostTable(costs), create(scheduler, **options), site.inputs
        )
    site.check(workload, run)
    simulated = simulate(workload, SHARED, CostTable(costs), create(scheduler, **options))
    a, b = serving_metrics(simulated), serving_metrics(run.trace)
    print(scheduler, {k: (a[k], b[k]) for k in ("mean_delay_s", "p99_delay_s", "served_per_s")})
    assert a["mean_delay_s"] * 0.9 < b["mean_delay_s"] < 1.6 * a["mean_delay_s"] + 0.01
    assert b["served_per_s"] == pytest.approx(a["served_per_s"], rel=0.25)


# -- what cannot be served ------------------------------------------------------------------------


def test_an_input_without_a_batch_dimension_must_be_the_same_for_all(shared):
    inputs = dict(shared.inputs)
    own = shared.graphs[1]
    inputs[own] = [{**s, "table": s["table"] + i} for i, s in enumerate(inputs[own])]
    began = time.monotonic()
    with pytest.raises(InvalidInput, match="'table' has no batch dimension and differs between"):
        shared.machine.run(
            shared.workload([0.0] * 3),
            shared.costs,
            create("fcfs_batching", max_batch=MOST),
            inputs,
        )
    assert time.monotonic() - began < 2
    again = shared.workload([0.0] * 3)
    shared.check(again, shared.run(again, create("fcfs_batching", max_batch=MOST)))


def test_closed_loops_and_graphs_not_loaded_are_refused_before_the_run(shared):
    job = Job(shared.graphs[1], origin="ram", destination="ram")
    with pytest.raises(InvalidInput, match="closed loop cannot be replayed on hardware"):
        shared.run(ClosedLoop([[job]]), create("fcfs"))
    other = coarsen(trace_model(torch.nn.Linear(2, 2), (torch.ones(1, 2),))).graph
    costs = CostTable({other: GraphCosts(np.ones((1, 2)))})
    with pytest.raises(InvalidInput, match="is not loaded on this machine"):
        shared.machine.run(Workload([Job(other)]), costs, create("fcfs"), {})
    with pytest.raises(InvalidInput, match="is of segments; load it with what they are made of"):
        shared.machine.load(other, {"weight": torch.ones(2, 2), "bias": torch.ones(2)})
    with pytest.raises(InvalidInput, match="has an empty list of inputs"):
        shared.machine.run(
            shared.workload([0.0]), shared.costs, create("fcfs"), {shared.graphs[1]: []}
        )


def test_graphs_that_depend_in_other_ways_are_not_exchanged():
    chain, fork = adder_graph([[-1, -1], [0, 0], [1, 1]]), adder_graph([[-1, -1], [0, 0], [0, 0]])
    chain.batch, fork.batch = 1, 2
    with Machine(SHARED, {"a": WorkerSpec(), "b": WorkerSpec()}) as machine:
        for graph in (chain, fork):
            machine.load(graph, {})
        costs = CostTable({g: GraphCosts(np.full((3, 2), 1e-4)) for g in (chain, fork)})
        workload = Workload([Job(chain, batch=1)] * 2, {chain: {1: chain, 2: fork}})
        with pytest.raises(
            SchedulingError, match="operators depend on each other in different ways"
        ):
            machine.run(
                workload,
                costs,
                create("fcfs_batching", max_batch=2),
                {chain: {"x": torch.ones(4)}},
            )


# -- parts ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shares_of_what_was_joined_are_the_members(data):
    rank = data.draw(st.integers(1, 3))
    axis = data.draw(st.integers(0, rank - 1))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    lengths = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    parts = [torch.rand([*shape[:axis], length, *shape[axis + 1 :]]) for length in lengths]
    whole = torch.cat(parts, axis)
    how = cut("t", [TensorSpec(tuple(p.shape)) for p in parts], TensorSpec(tuple(whole.shape)))
    assert how == Cut(axis, tuple(lengths))
    for share, part in zip(how.shares(whole), parts, strict=True):
        assert torch.equal(share, part)


def test_the_batch_dimension_is_read_off_the_shapes():
    one, four = TensorSpec((1, 3, 8)), TensorSpec((4, 3, 8))
    assert cut("t", [one] * 4, four) == Cut(0, (1, 1, 1, 1))
    assert cut("t", [TensorSpec((3, 1)), TensorSpec((3, 2))], TensorSpec((3, 3))) == Cut(1, (1, 2))
    assert cut("t", [TensorSpec((7,))] * 2, TensorSpec((7,))).axis is None
    for alone, together in (
        ([one] * 3, four),  # 3 are not 4
        ([one] * 2, TensorSpec((2, 6, 8))),  # two dimensions differ
        ([one] * 2, TensorSpec((2, 3))),
        ([one, TensorSpec((1, 5, 8))], TensorSpec((2, 3, 8))),
    ):
        with pytest.raises(InvalidInput, match="'t' cannot be made of those of single jobs"):
            cut("t", alone, together)
    with pytest.raises(InvalidInput, match="'t' has no shape"):
        cut("t", [None, None], four)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_segments_of_random_graphs_give_the_values_of_their_operators(data):
    size = data.draw(st.integers(1, 20))
    parents = [
        [data.draw(st.integers(-1, i - 1)), data.draw(st.integers(-1, i - 1))] for i in range(size)
    ]
    fine = adder_graph(parents)
    if data.draw(st.booleans()):
        cuts = data.draw(st.sets(st.integers(1, max(1, size - 1)), max_size=4))
        parts = coarsen(fine, sorted({0, *(c for c in cuts if c < size)}))
    else:
        try:
            parts = coarsen(
                fine, parts=np.array([data.draw(st.integers(0, 2)) for _ in range(size)])
            )
        except InvalidInput:  # parts that wait for each other
            assume(False)
    given = {"x": torch.arange(4.0)}
    repeat = data.draw(st.sampled_from([1, 3]))
    with Machine(SHARED, {"a": WorkerSpec(), "b": WorkerSpec(repeat_kernel=repeat)}) as machine:
        machine.load(parts.graph, {}, parts)
        costs = CostTable.of(parts.graph, np.ones((len(parts.graph), 2)))
        run = machine.run(parts.graph, costs, create("sufferage"), {parts.graph: given})
    found = results_of(parts.graph, run.outputs[0])
    torch.testing.assert_close(found, run_graph(fine, {}, given), rtol=0, atol=0)


def test_graphs_of_one_module_share_its_weights(shared):
    weights = [shared.machine.program(graph) for graph in shared.graphs.values()]
    held = [list(program.weights[0].values()) for program in weights]
    for other in held[1:]:
        assert [t.data_ptr() for t in other] == [t.data_ptr() for t in held[0]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("segments", [None, 1])
@pytest.mark.parametrize("scheduler", BATCHING)
def test_requests_are_served_on_a_gpu_beside_the_cpu(scheduler, segments):
    site = Site(APART, segments, near=WorkerSpec(), remote=WorkerSpec("cuda:0"))
    workload = site.workload([0.0] * 8 + [0.001 * i for i in range(8)])
    with site.machine:
        run = site.run(workload, create(scheduler, max_batch=MOST, select=MOVING))
    run.outputs[:] = [{n: t.cpu() for n, t in outputs.items()} for outputs in run.outputs]
    site.check(workload, run)
    programs = [site.machine.program(graph) for graph in site.graphs.values()]
    moved = [[t.data_ptr() for t in program.weights[1].values()] for program in programs]
    assert all(row == moved[0] for row in moved)
