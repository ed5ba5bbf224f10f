"""Requests a second: task groups on twenty nodes, beside the bare SimPy callback loop.

    python -m tests.benchmarks.serving [requests ...]

Requests for eight models arise at one place, cross to one of twenty nodes of one device each (links without
contention), and their answers cross back, at 1.5 times what the nodes could serve one by one. Prints, for each number of
requests: requests a second in the engine, events a second of a SimPy loop that does nothing but pass one
callback on to the next in the same process, their ratio, and peak memory. CPU seconds of this process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import simpy

from simulator.cluster import Cluster, Device, Link, MemorySpace
from simulator.costs import CostTable, GraphCosts
from simulator.engine import simulate
from simulator.graph import DataflowGraph, Operator, Tensor
from simulator.schedulers import create
from simulator.workload import Job, Workload
from tests.benchmarks.measure import peak_mib

NODES, MODELS, LARGEST, LOAD = 20, 8, 16, 1.5
COUNTS = (10_000, 100_000, 1_000_000)


def case(count: int, seed: int = 0) -> tuple[Workload, Cluster, CostTable]:
    """Requests, nodes and times."""
    rng = np.random.default_rng(seed)
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
    rate = LOAD * NODES / float((alone + each).mean())
    times = np.cumsum(rng.exponential(1 / rate, count)).tolist()
    models = rng.integers(MODELS, size=count).tolist()
    jobs = [
        Job(graphs[m][1], t, model=f"m{m}", batch=1, origin="users", destination="users")
        for t, m in zip(times, models, strict=True)
    ]
    return Workload(jobs, {g[1]: g for g in graphs}), cluster, costs


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


def measure(count: int) -> str:
    """One row."""
    workload, cluster, costs = case(count)
    scheduler = create("task_groups", select={"name": "round_robin"})
    loops = [events_per_second()]
    began = time.process_time()
    trace = simulate(workload, cluster, costs, scheduler)
    took = time.process_time() - began
    loops.append(events_per_second())
    batch = count / len(trace.executions["task"])
    return (
        f"| {count:,} | {count / took:,.0f} | {max(loops):,.0f} | {count / took / max(loops):.2f} | "
        f"{batch:.1f} | {peak_mib():,.0f} |"
    )


def main(arguments: Sequence[str]) -> int:
    """Print the table; each row in a process of its own."""
    if arguments[:1] == ["--row"]:
        print(measure(int(arguments[1])))
        return 0
    print("| requests | requests/s | SimPy events/s | ratio | requests a batch | peak MiB |")
    print("|---|---|---|---|---|---|")
    for count in [int(a) for a in arguments] or COUNTS:
        command = [sys.executable, "-m", "tests.benchmarks.serving", "--row", str(count)]
        root = Path(__file__).resolve().parents[2]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
        print(answer.stdout.strip(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
