"""How fast the engine is, beside reference loops in the same process.

``python -m tests.benchmarks.engine [--quick] [--sizes N ...] [--rows ROW ...] [--repeats N] [--warm] [--json FILE]``
prints a table and, at its end, JSON. ``docs/benchmarks.md`` says what each row is and how to read it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from simulator.errors import InvalidInput
from tests.benchmarks.layered import layered

FORMAT = "hetsim.benchmark/1"
ROOT = Path(__file__).parents[2]
ROWS = {
    "plan": "fixed plan",
    "fcfs": "fcfs, fifo",
    "donf": "donf, fifo",
    "fair": "fixed plan, fair",
    "evaluator-none": "evaluator",
    "evaluator-fifo": "evaluator, fifo",
    "evaluator-trace": "evaluator, trace",
    "cell": "sweep cell",
}
LARGE, BASE = 1_000_000, 50_000
"""Cost per task at the first over that at the second is the scaling figure."""
SIZES = {
    "fcfs": (10_000,),
    "donf": (10_000,),
    "fair": (10_000,),
    "evaluator-none": (10_000, 100_000),
    "evaluator-fifo": (10_000, 100_000),
    "evaluator-trace": (10_000, BASE, 100_000, LARGE),
}
"""Sizes of the rows that are not measured at all sizes."""
TARGETS = {
    "plan": 0.4,
    "fcfs": 0.45,
    "donf": 0.3,
    "fair": 0.08,
    "evaluator-none": 0.5,
    "evaluator-fifo": 0.5,
    "evaluator-trace": 1.5,
}
SCALING_TARGET = 1.3
MEMORY_TARGET_MIB = 1536
OVERHEAD_TARGET_S = 0.010


def start(
    row: str, case: Path | None, repeats: int, scratch: Path, warm: bool = False
) -> dict[str, Any]:
    """One row in a process of its own; compiled code goes to ``scratch``, so compiling shows.

    Unless it is ``warm``: then what earlier runs compiled is used.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    if not warm:
        environment["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(dir=scratch)
    command = [sys.executable, "-m", "tests.benchmarks.measure", row, str(case), str(repeats)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{ROWS[row]} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"row": row, "name": ROWS[row], "target": TARGETS.get(row), **result}


def run(
    rows: list[str], sizes: list[int], repeats: int, say: Any = print, warm: bool = False
) -> list[dict[str, Any]]:
    """Measure; a line of ``say`` for each row as it comes."""
    if LARGE in sizes and BASE not in sizes:
        sizes = sorted([*sizes, BASE])
    found = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for tasks in sizes:
            wanted = [
                row
                for row in rows
                if row != "cell"
                and (row == "plan" or tasks in SIZES[row] or tasks == max(sizes) < min(SIZES[row]))
            ]
            if not wanted:
                continue
            path = scratch / f"{tasks}.npz"
            began = time.perf_counter()
            layered(tasks).save(path)
            made_s = time.perf_counter() - began
            for row in wanted:
                few = min(repeats, 2) if tasks >= LARGE else repeats
                found.append({**start(row, path, few, scratch, warm), "workload_s": made_s})
                say(line(found[-1]))
            path.unlink()
        if "cell" in rows:
            found.append(start("cell", None, repeats, scratch, warm))
            say(line(found[-1]))
    return found


HEADER = (
    f"{'run':<18} {'tasks':>9} {'tasks/s':>10} {'beside':>10} {'tasks/s':>10} {'ratio':>6} "
    f"{'target':>7} {'jit s':>6} {'peak MiB':>8}"
)


def line(row: dict[str, Any]) -> str:
    """One row of the terminal's table."""
    if "skipped" in row:
        return f"{row['name']:<18} skipped: {row['skipped']}"
    if row["row"] == "cell":
        return (
            f"{row['name']:<18} {row['tasks']:>9,} {row['overhead_s'] * 1e3:.1f} ms beside "
            f"simulating, of that {row['config_s'] * 1e3:.1f} ms config (target < {OVERHEAD_TARGET_S * 1e3:.0f} "
            f"ms); cost table {row['cost_table_s'] * 1e3:.1f} ms, once a model and cluster"
        )
    target = "" if row["target"] is None else f"{row['target']:.2f}"
    jit = f"{row['jit_s']:.1f}" if "jit_s" in row else ""
    peak = f"{row['peak_mib']:,.0f}" if "peak_mib" in row else ""
    return (
        f"{row['name']:<18} {row['tasks']:>9,} {row['tasks_per_s']:>10,.0f} {row['beside']:>10} "
        f"{row['beside_tasks_per_s']:>10,.0f} {row['ratio']:>6.2f} {target:>7} "
        f"{jit:>6} {peak:>8}"
    )


def loops_table(rows: list[dict[str, Any]]) -> list[str]:
    """Tasks per second of the reference loops on the fixed plan, by size."""
    plans = [row for row in rows if row["row"] == "plan"]
    if not plans:
        return []
    names = list(plans[0]["loops_tasks_per_s"])
    head = f"{'tasks':>9} " + " ".join(f"{name:>10}" for name in (*names, "engine"))
    lines = ["", "The same fixed plan in bare loops, tasks/s", head]
    for row in plans:
        speeds = [*row["loops_tasks_per_s"].values(), row["tasks_per_s"]]
        lines.append(f"{row['tasks']:>9,} " + " ".join(f"{speed:>10,.0f}" for speed in speeds))
    return lines


def scaling(rows: list[dict[str, Any]], name: str = "plan") -> float | None:
    """Of the rows of that name, seconds per task at a million tasks over those at 50 thousand."""
    speed = {row["tasks"]: row["tasks_per_s"] for row in rows if row["row"] == name}
    return speed[BASE] / speed[LARGE] if {BASE, LARGE} <= speed.keys() else None


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    packages = {}
    for name in ("simpy", "numpy", "numba"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        **packages,
    }


def main() -> None:
    """Print the tables, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1k and 10k tasks, no sweep cell")
    parser.add_argument("--sizes", type=int, nargs="+", help="of the graph (default 1k to 1M)")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="ROW")
    parser.add_argument("--repeats", type=int, help="of which the best counts (default 5, quick 2)")
    parser.add_argument("--json", type=Path, help="write the JSON to this file, too")
    parser.add_argument("--warm", action="store_true", help="use what earlier runs compiled")
    options = parser.parse_args()
    sizes = options.sizes or [1_000, 10_000, *([] if options.quick else [100_000, LARGE])]
    if min(sizes) < 1:
        raise SystemExit("--sizes are numbers of tasks, 1 or more")
    repeats = options.repeats or (2 if options.quick else 5)
    rows = options.rows or [row for row in ROWS if not (options.quick and row == "cell")]
    print(HEADER)
    try:
        found = run(
            rows, sorted(set(sizes)), repeats, lambda text: print(text, flush=True), options.warm
        )
    except InvalidInput as error:
        raise SystemExit(str(error)) from None
    for text in loops_table(found):
        print(text)
    for name in ("plan", "evaluator-trace"):
        growth = scaling(found, name)
        if growth is not None:
            peak = next(r["peak_mib"] for r in found if r["row"] == name and r["tasks"] == LARGE)
            print(
                f"\n{ROWS[name]}: cost per task at 1M over 50k: {growth:.2f} (target <= {SCALING_TARGET}); "
                f"peak memory at 1M: {peak:,.0f} MiB (target < {MEMORY_TARGET_MIB:,})"
            )
    document = {
        "format": FORMAT,
        "machine": machine(),
        "repeats": repeats,
        "scaling_1m_over_50k": scaling(found),
        "trace_scaling_1m_over_50k": scaling(found, "evaluator-trace"),
        "rows": found,
    }
    text = json.dumps(document, indent=1)
    print(text)
    if options.json:
        temporary = options.json.with_name(options.json.name + ".tmp")
        temporary.write_text(text + "\n")
        os.replace(temporary, options.json)


if __name__ == "__main__":
    main()
