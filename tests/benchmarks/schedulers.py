"""How fast schedulers decide, beside a bare SimPy loop that executes a plan of the same graph.

``python -m tests.benchmarks.schedulers [--schedulers NAME ...] [--sizes N ...] [--wide N] [--json FILE]``
prints a table. ``docs/benchmarks.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs.atomic import write_text
from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.schedulers import _equal_devices as equal_devices
from simulator.schedulers import available, create
from tests.benchmarks.callbacks import run_callbacks
from tests.benchmarks.engine import machine
from tests.benchmarks.layered import BANDWIDTH, SPEEDS, Layered, layered
from tests.benchmarks.measure import timed

FORMAT = "hetsim.benchmark.schedulers/1"
LEFT_OUT = ("exact", "genetic", "annealing", "lru_eviction", "packed", "priority")
"""Searches take what they are given; the last three wrap or need what this graph has not."""
LONGEST_S = 6.0
"""A scheduler that took longer is not asked to do ten times as much."""
TARGET_TASKS_PER_S = {"heft": 50_000, "donf": 50_000}
WIDE_TARGET_TASKS_PER_S = 10_000
WIDE_SPEEDS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)


class Clocked(Scheduler):
    """Another scheduler, with the seconds that it computes."""

    def __init__(self, inner: Scheduler) -> None:
        self.inner = inner
        self.seconds = 0.0
        for name in ("name", "static", "needs"):
            setattr(self, name, getattr(inner, name))

    def begin(self, context: SchedulingContext) -> None:
        began = time.process_time()
        self.inner.begin(context)
        self.seconds += time.process_time() - began

    def decide(self, context: SchedulingContext) -> None:
        began = time.process_time()
        self.inner.decide(context)
        self.seconds += time.process_time() - began


def star(devices: int) -> Cluster:
    """So many devices of eight speeds, each on a link of its own to one switch."""
    numbers = range(devices)
    return Cluster(
        f"star of {devices}",
        [MemorySpace("switch"), *(MemorySpace(f"m{i}") for i in numbers)],
        [
            Device(f"P{i}", f"m{i}", profile=f"speed {WIDE_SPEEDS[i % len(WIDE_SPEEDS)]}")
            for i in numbers
        ],
        [Link(f"l{i}", ("switch", f"m{i}"), BANDWIDTH) for i in numbers],
    )


def row(
    case: Layered,
    cluster: Cluster,
    costs: CostTable,
    name: str,
    loop: Callable[[], float],
    repeats: int,
) -> dict[str, Any]:
    """A scheduler on a graph: the best of the repeats, in turns with the bare loop."""
    tasks = len(case.work)
    whole = deciding = beside = float("inf")
    makespan = 0.0
    for _ in range(repeats):
        scheduler = Clocked(create(name))
        seconds, makespan = timed(
            lambda s=scheduler: simulate(case.graph, cluster, costs, s).makespan
        )  # type: ignore[misc]
        whole, deciding = min(whole, seconds), min(deciding, scheduler.seconds)
        beside = min(beside, timed(loop)[0])
    return {
        "scheduler": name,
        "tasks": tasks,
        "devices": len(cluster.devices),
        "deciding_tasks_per_s": tasks / deciding,
        "tasks_per_s": tasks / whole,
        "ratio": beside / whole,
        "beside_tasks_per_s": tasks / beside,
        "makespan_s": makespan,
        "seconds": whole,
    }


HEADER = (
    f"{'scheduler':<20} {'tasks':>8} {'devices':>7} {'deciding':>10} {'in all':>10} {'ratio':>6} "
    f"{'target':>8}  tasks/s"
)


def line(found: dict[str, Any]) -> str:
    """One row of the table."""
    target = found.get("target")
    return (
        f"{found['scheduler']:<20} {found['tasks']:>8,} {found['devices']:>7,} "
        f"{found['deciding_tasks_per_s']:>10,.0f} {found['tasks_per_s']:>10,.0f} "
        f"{found['ratio']:>6.2f} {'' if target is None else format(target, ','):>8}"
        f"{found.get('note', '')}"
    )


def bare_loop(case: Layered) -> Callable[[], float]:
    """The SimPy loop on a plan for eight devices."""
    seconds, after, needs = case.dependencies().lists()
    return lambda: run_callbacks(seconds, after, list(needs))[0]


def run(
    names: Sequence[str], sizes: Sequence[int], wide: int, repeats: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All rows; a line of ``say`` for each as it comes."""
    found: list[dict[str, Any]] = []
    slow: set[str] = set()
    for tasks in sorted(sizes):
        case = layered(tasks)
        loop = bare_loop(case)
        for name in names:
            if name in slow or (tasks > 10_000 and name not in TARGET_TASKS_PER_S):
                continue
            entry = row(case, case.cluster, case.costs, name, loop, repeats)
            if tasks == 10_000:
                entry["target"] = TARGET_TASKS_PER_S.get(name)
            if entry["seconds"] > LONGEST_S:
                slow.add(name)
            found.append(entry)
            say(line(entry))
    if wide:
        case = layered(10_000, width=2 * wide)
        loop = bare_loop(case)
        cluster = star(wide)
        speeds = np.array(WIDE_SPEEDS)[np.arange(wide) % len(WIDE_SPEEDS)]
        costs = CostTable.of(case.graph, case.work[:, None] / speeds)
        few = equal_devices.LEAST_DEVICES
        for name in ("fcfs", "donf"):
            entry = row(case, cluster, costs, name, loop, repeats)
            entry["target"] = WIDE_TARGET_TASKS_PER_S
            try:
                equal_devices.LEAST_DEVICES = wide + 1
                scan = row(case, cluster, costs, name, loop, 1)
            finally:
                equal_devices.LEAST_DEVICES = few
            if scan["makespan_s"] != entry["makespan_s"]:
                raise AssertionError(f"{name} decides otherwise when it looks at every device")
            entry["scan_tasks_per_s"] = scan["tasks_per_s"]
            entry["note"] = f"  {scan['tasks_per_s']:,.0f} looking at every device"
            found.append(entry)
            say(line(entry))
    return found


def main() -> None:
    """Print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedulers", nargs="+", metavar="NAME", help="all unless given")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--wide", type=int, default=1024, help="devices of the wide cluster; 0: none"
    )
    parser.add_argument("--repeats", type=int, default=3, help="of which the best counts")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    options = parser.parse_args()
    names = options.schedulers or [name for name in available() if name not in LEFT_OUT]
    for name in names:
        create(name)  # a name that is unknown is refused before anything is made
    print(HEADER)
    found = run(names, options.sizes, options.wide, options.repeats, lambda t: print(t, flush=True))
    by_size = {
        (r["scheduler"], r["tasks"]): r["deciding_tasks_per_s"]
        for r in found
        if r["devices"] == len(SPEEDS)
    }
    for name in TARGET_TASKS_PER_S:
        if {(name, 10_000), (name, 100_000)} <= by_size.keys():
            growth = by_size[name, 10_000] / by_size[name, 100_000]
            print(f"{name}: deciding for a task at 100k takes {growth:.2f} of what it takes at 10k")
    if options.json:
        document = {"format": FORMAT, "machine": machine(), "rows": found}
        write_text(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
