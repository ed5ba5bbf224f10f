"""How fast the engine is: tasks per second beside a bare SimPy callback loop in the same process.

``python -m tests.benchmarks.engine [--sizes 1000 10000 100000] [--repeats 3] [--json FILE]`` prints a
table and JSON. Each measurement runs the engine and the loop in turn, garbage collector on for both,
and takes the best of the repeats: what disturbs a run only ever slows it. The engine's time is all of
``simulate``: admission, the scheduler's decisions and the trace. The fixed plan ends at the same time
in both, to the last digit, or the benchmark fails.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from simulator.engine import simulate
from simulator.scheduler import Scheduler
from simulator.schedulers import create
from tests.benchmarks.callbacks import run_callbacks
from tests.benchmarks.layered import Layered, layered
from tests.simulator.scripted import StaticPlan

ONLINE_TASKS = 10_000
"""Size at which the on-line schedulers are timed."""


@dataclass
class Row:
    """One measurement; ``ratio`` is the loop's time over the engine's, larger is faster."""

    name: str
    tasks: int
    engine_s: float
    callbacks_s: float
    callback_events: int
    engine_tasks_per_s: float
    callbacks_tasks_per_s: float
    ratio: float


def timed(act: Callable[[], float]) -> tuple[float, float]:
    """(seconds, result) of one call, after a full collection."""
    gc.collect()
    began = time.perf_counter()
    result = act()
    return time.perf_counter() - began, result


def measure(
    name: str, case: Layered, scheduler: Callable[[], Scheduler], contention: str, repeats: int
) -> Row:
    """Engine and loop in turn; the best time of each."""
    seconds, after, needs = case.dependencies()
    events = 0

    def loop() -> float:
        nonlocal events
        makespan, events = run_callbacks(seconds, after, list(needs))
        return makespan

    def engine() -> float:
        trace = simulate(case.graph, case.cluster, case.costs, scheduler(), contention=contention)
        return trace.makespan

    simulate(case.graph, case.cluster, case.costs, scheduler(), contention=contention)  # indices
    engine_s = callbacks_s = float("inf")
    for _ in range(repeats):
        elapsed, expected = timed(loop)
        callbacks_s = min(callbacks_s, elapsed)
        elapsed, makespan = timed(engine)
        engine_s = min(engine_s, elapsed)
    if name == "fixed plan" and makespan != expected:
        raise AssertionError(f"the engine ends at {makespan!r} s, the loop at {expected!r} s")
    tasks = len(case.work)
    return Row(
        name,
        tasks,
        engine_s,
        callbacks_s,
        events,
        tasks / engine_s,
        tasks / callbacks_s,
        callbacks_s / engine_s,
    )


def fixed_plan(case: Layered) -> Callable[[], Scheduler]:
    """Everything placed at arrival, ranked by its place in the plan."""
    device, order = case.plan
    rank = [0.0] * len(order)
    for position, task in enumerate(order):
        rank[task] = float(position)
    rows = list(zip(device, rank, strict=True))
    return lambda: StaticPlan(rows)


def run(sizes: list[int], repeats: int) -> list[Row]:
    """All measurements."""
    rows = []
    for tasks in sizes:
        case = layered(tasks)
        rows.append(measure("fixed plan", case, fixed_plan(case), "none", repeats))
    case = layered(ONLINE_TASKS)
    for name in ("fcfs", "donf"):
        make = lambda name=name: create(name)  # noqa: E731
        rows.append(measure(f"{name}, fifo", case, make, "fifo", repeats))
    return rows


def main() -> None:
    """Print the table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the JSON to this file, too")
    options = parser.parse_args()
    rows = run(options.sizes, options.repeats)
    print(f"{'run':<12} {'tasks':>8} {'engine/s':>10} {'callbacks/s':>12} {'ratio':>6}")
    for row in rows:
        print(
            f"{row.name:<12} {row.tasks:>8,} {row.engine_tasks_per_s:>10,.0f} "
            f"{row.callbacks_tasks_per_s:>12,.0f} {row.ratio:>6.2f}"
        )
    document = json.dumps(
        {
            "python": platform.python_version(),
            "repeats": options.repeats,
            "rows": [asdict(row) for row in rows],
        },
        indent=1,
    )
    print(document)
    if options.json:
        options.json.write_text(document + "\n")


if __name__ == "__main__":
    main()
