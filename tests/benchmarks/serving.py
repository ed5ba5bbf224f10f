"""Requests a second: task groups on twenty nodes, beside the bare SimPy callback loop.

    python -m tests.benchmarks.serving [--keep trace|figures|compiled] [requests ...]
    python -m tests.benchmarks.serving --turns [requests [turns]]

Requests for eight models arise at one place, cross to one of twenty nodes of one device each (links without
contention), and their answers cross back, at 1.5 times what the nodes could serve one by one. Prints, for
each number of requests and for three ways, the run that keeps the whole trace, the one that keeps figures
alone, and the same compiled: requests and events (arrivals, ends of transfers and of executions) a second in
the engine, those of a SimPy loop that does nothing but pass one callback on to the next in the same process,
the ratios of both to these, and peak memory. Requests are drawn beforehand for a trace and within the time
for figures, by column for the compiled ones. CPU seconds of this process; loading compiled code, or compiling
it, comes before and is told apart.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import simpy

from simulator.cluster import Cluster, Device, Link, MemorySpace
from simulator.costs import CostTable, GraphCosts
from simulator.engine import simulate, simulate_stream
from simulator.graph import DataflowGraph, Operator, Tensor
from simulator.schedulers import create
from simulator.stream import RequestBlock, RequestColumns, Stream
from simulator.workload import Job, Workload
from tests.benchmarks.measure import peak_mib

NODES, MODELS, LARGEST, LOAD = 20, 8, 16, 1.5
COUNTS = (10_000, 100_000, 1_000_000)
WAYS = ("trace", "figures", "compiled")
BLOCK = 4096


Rows = tuple[Sequence[Mapping[int, DataflowGraph]], Cluster, CostTable, float]


def fleet() -> Rows:
    """The models' graphs by batch, the nodes, the times, and the requests a second that arrive."""
    cluster = Cluster(
        "fleet",
        [MemorySpace("users"), *(MemorySpace(f"node{i}") for i in range(NODES))],
        [Device(f"gpu{i}", f"node{i}") for i in range(NODES)],
        [Link(f"way{i}", ("users", f"node{i}"), 1e9, 1e-3) for i in range(NODES)],
    )
    alone = np.linspace(0.02, 0.05, MODELS)
    each = np.linspace(0.01, 0.025, MODELS)
    graphs = [
        {
            b: DataflowGraph(
                f"m{m}",
                [Operator("run", "segment")],
                [Tensor("x", "input", 1e5 * b), Tensor("y", "activation", 4e3 * b)],
                [[0]],
                [[1]],
                [{"tensor": "y"}],
                b,
            )
            for b in range(1, LARGEST + 1)
        }
        for m in range(MODELS)
    ]
    costs = CostTable(
        {
            graph: GraphCosts(np.full((1, NODES), alone[m] + each[m] * b))
            for m in range(MODELS)
            for b, graph in graphs[m].items()
        }
    )
    return graphs, cluster, costs, LOAD * NODES / float((alone + each).mean())


def blocks(rate: float, count: int, seed: int = 0) -> Iterator[RequestBlock]:
    """Poisson arrivals of so many requests, by column; models are their kinds."""
    rng = np.random.default_rng(seed)
    last = 0.0
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        times = last + np.cumsum(rng.exponential(1 / rate, size))
        last = float(times[-1])
        yield RequestBlock(rng.integers(MODELS, size=size), times, np.full(size, np.inf))


def request(graphs: Sequence[Mapping[int, DataflowGraph]], model: int, arrival: float = 0.0) -> Job:
    """One request."""
    places = {"origin": "users", "destination": "users"}
    return Job(graphs[model][1], arrival, model=f"m{model}", batch=1, **places)


def requests(
    graphs: Sequence[Mapping[int, DataflowGraph]], rate: float, count: int, seed: int = 0
) -> Iterator[Job]:
    """The same one by one."""
    for block in blocks(rate, count, seed):
        for model, arrival in zip(block.kind.tolist(), block.arrival.tolist(), strict=True):
            yield request(graphs, model, arrival)


def stream_of(
    graphs: Sequence[Mapping[int, DataflowGraph]], rate: float, count: int
) -> tuple[Stream, Mapping[DataflowGraph, Mapping[int, DataflowGraph]]]:
    """The requests of a run that keeps figures, and the graphs of larger batches."""
    batches = {g[1]: g for g in graphs}
    kinds = [request(graphs, model) for model in range(MODELS)]
    columns = RequestColumns(kinds, lambda: blocks(rate, count))
    asked = [g[1] for g in graphs]
    stream = Stream(lambda: requests(graphs, rate, count), asked, batches, columns=columns)
    return stream, batches


def events_per_second(count: int = 300_000) -> float:
    """Of a loop of callbacks, each of which lets the next happen."""
    environment = simpy.Environment()
    left = [count]

    def on(event: simpy.Event) -> None:
        left[0] -= 1
        if left[0]:
            environment.timeout(1.0).callbacks.append(on)

    environment.timeout(1.0).callbacks.append(on)
    began = time.process_time()
    environment.run()
    return count / (time.process_time() - began)


def measure(count: int, keep: str) -> str:
    """One row."""
    graphs, cluster, costs, rate = fleet()
    options = {"select": {"name": "round_robin"}}
    stream, batches = stream_of(graphs, rate, count)
    loading = 0.0
    if keep == "compiled":
        began = time.process_time()
        few, _ = stream_of(graphs, rate, 1)
        simulate_stream(few, cluster, costs, create("task_groups", **options), way="compiled")
        loading = time.process_time() - began
    loops = [events_per_second()]
    scheduler = create("task_groups", **options)
    if keep == "trace":
        workload = Workload(requests(graphs, rate, count), batches)
        began = time.process_time()
        trace = simulate(workload, cluster, costs, scheduler)
        took = time.process_time() - began
        executions, moves = len(trace.executions["task"]), len(trace.transfers["job"])
    else:
        way = "compiled" if keep == "compiled" else "general"
        began = time.process_time()
        run = simulate_stream(stream, cluster, costs, scheduler, way=way)
        took = time.process_time() - began
        figures = run.metrics()
        executions, moves = figures["tasks"], figures["transfers"]
    loops.append(events_per_second())
    events = count + executions + moves
    cells = [
        *(keep, f"{count:,}", f"{count / took:,.0f}", f"{events / took:,.0f}"),
        *(f"{max(loops):,.0f}", f"{events / took / max(loops):.2f}"),
        *(f"{count / took / max(loops):.2f}", f"{count / executions:.1f}"),
        *(f"{peak_mib():,.0f}", f"{loading:.1f}"),
    ]
    return f"| {' | '.join(cells)} |"


def in_turns(count: int = 8_000, turns: int = 8) -> str:
    """Requests a second of the three ways and events a second of the bare loop, the best of some turns in
    one process: what a busy machine still shows of their ratios. Jobs are made beforehand, columns are not.
    """
    graphs, cluster, costs, rate = fleet()
    stream, batches = stream_of(graphs, rate, count)
    jobs = list(requests(graphs, rate, count))
    given = Stream(lambda: iter(jobs), [g[1] for g in graphs], batches)
    best = dict.fromkeys(("compiled", "figures", "trace", "bare loop"), 0.0)
    for _ in range(turns + 1):  # the first one loads what is compiled
        for way in ("compiled", "figures", "trace"):
            scheduler = create("task_groups", select={"name": "round_robin"})
            began = time.process_time()
            if way == "trace":
                simulate(Workload(jobs, batches), cluster, costs, scheduler)
            elif way == "figures":
                simulate_stream(given, cluster, costs, scheduler, way="general")
            else:
                run = simulate_stream(stream, cluster, costs, scheduler, way="compiled")
            best[way] = max(best[way], count / (time.process_time() - began))
        best["bare loop"] = max(best["bare loop"], events_per_second(100_000))
    figures = run.metrics()
    events = count + figures["tasks"] + figures["transfers"]
    ratio = best["compiled"] * events / count / best["bare loop"]
    text = ", ".join(f"{way} {rate:,.0f}/s" for way, rate in best.items())
    return f"{text}; events of the compiled way to those of the bare loop: {ratio:.2f}"


def main(arguments: Sequence[str]) -> int:
    """Print the table; each row in a process of its own."""
    if arguments[:1] == ["--turns"]:
        print(in_turns(*map(int, arguments[1:])))
        return 0
    if arguments[:1] == ["--row"]:
        print(measure(int(arguments[1]), arguments[2] if len(arguments) > 2 else "trace"))
        return 0
    ways = WAYS
    if arguments[:1] == ["--keep"]:
        ways, arguments = (arguments[1],), arguments[2:]
    print(
        "| kept | requests | requests/s | events/s | SimPy events/s | ratio of events | "
        "requests to SimPy events | requests a batch | peak MiB | loading s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for count in [int(a) for a in arguments] or COUNTS:
        for keep in ways:
            row = ["--row", str(count), keep]
            command = [sys.executable, "-m", "tests.benchmarks.serving", *row]
            root = Path(__file__).resolve().parents[2]
            answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
            print(answer.stdout.strip(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
