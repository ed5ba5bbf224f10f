"""Requests a second: task groups on twenty nodes, beside the bare SimPy callback loop.

    python -m tests.benchmarks.serving [--keep trace|figures] [requests ...]

Requests for eight models arise at one place, cross to one of twenty nodes of one device each (links without
contention), and their answers cross back, at 1.5 times what the nodes could serve one by one. Prints, for
each number of requests, for the run that keeps the whole trace and for the one that keeps figures alone:
requests and events (arrivals, ends of transfers and of executions) a second in the engine, those of a SimPy
loop that does nothing but pass one callback on to the next in the same process, the ratios of both to these,
and peak memory. Requests are drawn beforehand for a trace and within the time for figures. CPU seconds of
this process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import simpy

from simulator.engine.run import simulate, simulate_stream
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Stream, Workload
from simulator.schedulers import create
from tests.benchmarks.measure import peak_mib

NODES, MODELS, LARGEST, LOAD = 20, 8, 16, 1.5
COUNTS = (10_000, 100_000, 1_000_000)
KEPT = ("trace", "figures")


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


def request(graphs: Sequence[Mapping[int, DataflowGraph]], model: int, arrival: float = 0.0) -> Job:
    """One request."""
    places = {"origin": "users", "destination": "users"}
    return Job(graphs[model][1], arrival, model=f"m{model}", batch=1, **places)


def requests(
    graphs: Sequence[Mapping[int, DataflowGraph]], rate: float, count: int, seed: int = 0
) -> Iterator[Job]:
    """Poisson arrivals of so many requests."""
    rng = np.random.default_rng(seed)
    arrival = 0.0
    for _ in range(count):
        arrival += rng.exponential(1 / rate)
        yield request(graphs, int(rng.integers(MODELS)), arrival)


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
    batches = {g[1]: g for g in graphs}
    scheduler = create("task_groups", select={"name": "round_robin"})
    loops = [events_per_second()]
    if keep == "trace":
        workload = Workload(requests(graphs, rate, count), batches)
        began = time.process_time()
        trace = simulate(workload, cluster, costs, scheduler)
        took = time.process_time() - began
        executions, moves = len(trace.executions["task"]), len(trace.transfers["job"])
    else:
        stream = Stream(lambda: requests(graphs, rate, count), [g[1] for g in graphs], batches)
        began = time.process_time()
        figures = simulate_stream(stream, cluster, costs, scheduler).metrics()
        took = time.process_time() - began
        executions, moves = figures["tasks"], figures["transfers"]
    loops.append(events_per_second())
    events = count + executions + moves
    cells = [
        *(keep, f"{count:,}", f"{count / took:,.0f}", f"{events / took:,.0f}"),
        *(f"{max(loops):,.0f}", f"{events / took / max(loops):.2f}"),
        *(f"{count / took / max(loops):.2f}", f"{count / executions:.1f}"),
        f"{peak_mib():,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> int:
    """Print the table; each row in a process of its own."""
    if arguments[:1] == ["--row"]:
        print(measure(int(arguments[1]), arguments[2] if len(arguments) > 2 else "trace"))
        return 0
    kept = KEPT
    if arguments[:1] == ["--keep"]:
        kept, arguments = (arguments[1],), arguments[2:]
    print(
        "| kept | requests | requests/s | events/s | SimPy events/s | ratio of events | "
        "requests to SimPy events | requests a batch | peak MiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for count in [int(a) for a in arguments] or COUNTS:
        for keep in kept:
            row = ["--row", str(count), keep]
            command = [sys.executable, "-m", "tests.benchmarks.serving", *row]
            root = Path(__file__).resolve().parents[2]
            answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
            print(answer.stdout.strip(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
