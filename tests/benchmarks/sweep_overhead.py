"""What a sweep costs beside simulating, and what a second process gains: ``python -m tests.benchmarks.sweep_overhead``.

Layered random graphs of 200 tasks on three devices, ten schedulers for each, 10,000 cells in all. **Overhead** is all that
the command does but its calls of ``simulate``: composing the grid, worlds and bounds, figures, files, tables. It is given
in seconds that the process computed, and on the clock. **Gain** is the time on the clock with one process over that
with two; a cell of it takes some 50 ms.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import os
import pstats
import tempfile
import time
from collections.abc import Sequence

from rich.console import Console

from experiments import sweep
from experiments.runs import cell, world
from experiments.runs.command import Invocation
from experiments.runs.garbage import seldom_collecting
from tests.benchmarks.cell import Stopwatch

SCHEDULERS = (
    *("heft", "peft", "cpop", "donf", "fcfs", "mct", "olb", "min_min", "max_min", "sufferage"),
)
TARGET_S, TARGET_GAIN = 0.010, 1.8


def words(cells: int, tasks: int, workers: int, folder: str) -> tuple[str, ...]:
    """The command of a sweep of so many cells."""
    return (
        *("family=layered", f"family.n={tasks}", f"scheduler={','.join(SCHEDULERS)}"),
        f"seed.workload=range(0,{cells // len(SCHEDULERS)})",
        *("simulation.draws=0", f"workers={workers}", "name=cells", f"output_dir={folder}"),
    )


def swept(cells: int, tasks: int, workers: int) -> tuple[float, float]:
    """Seconds on the clock of planning a sweep, and of all of it but its report."""
    with tempfile.TemporaryDirectory() as folder, seldom_collecting():  # as every command does
        os.environ["HETSIM_CACHE"] = f"{folder}/cache"  # of bounds that were worked out before
        invocation = Invocation("experiments.sweep", words(cells, tasks, workers, folder), ())
        began = time.perf_counter()
        plan = sweep.plan_sweep(invocation)
        planned = time.perf_counter()
        assert sweep.run_sweep(plan, invocation, Console(file=io.StringIO()))
        assert len(plan.documents) == len(plan.tasks)
        return planned - began, time.perf_counter() - began


def overhead(cells: int, tasks: int) -> dict[str, float]:
    """Seconds a cell of everything but simulating, in this process."""
    watch, computing = Stopwatch(cell.simulate), Stopwatch(cell.simulate, time.process_time)
    watch.simulate = computing
    cell.simulate = world.simulate = watch
    try:
        began, computed = time.perf_counter(), time.process_time()
        planned, whole = swept(cells, tasks, 1)
        computed = time.process_time() - computed
        whole = time.perf_counter() - began
    finally:
        cell.simulate = world.simulate = computing.simulate
    return {
        "overhead_s": (whole - watch.seconds) / cells,
        "computed_s": (computed - computing.seconds) / cells,
        "plan_s": planned / cells,
        "simulate_s": computing.seconds / cells,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument(
        "--gain-cells", type=int, default=1_000, help="cells of each of the two sweeps"
    )
    parser.add_argument(
        "--gain-tasks", type=int, default=600, help="a cell of which takes some 50 ms"
    )
    parser.add_argument("--profile", action="store_true", help="where the overhead goes")
    asked = parser.parse_args(arguments)
    overhead(2 * len(SCHEDULERS), 200)  # reads configs, loads what is imported late
    profile = cProfile.Profile(time.process_time)
    if asked.profile:
        profile.enable()
    found = overhead(asked.cells, 200)
    profile.disable()
    print(
        f"overhead {1e3 * found['overhead_s']:.1f} ms a cell, of which {1e3 * found['computed_s']:.1f} ms computed "
        f"({1e3 * found['plan_s']:.1f} ms planning); target {1e3 * TARGET_S:.0f} ms; beside it "
        f"{1e3 * found['simulate_s']:.1f} ms computed to simulate; {asked.cells} cells"
    )
    if asked.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(90)
    if asked.gain_cells:
        alone, both = (swept(asked.gain_cells, asked.gain_tasks, n) for n in (1, 2))
        print(
            f"two processes are {alone[1] / both[1]:.2f} times as fast as one; target {TARGET_GAIN}; a cell takes "
            f"{1e3 * alone[1] / asked.gain_cells:.0f} ms alone, {1e3 * alone[0] / asked.gain_cells:.1f} ms of it planning; "
            f"{asked.gain_cells} cells"
        )


if __name__ == "__main__":
    main()
