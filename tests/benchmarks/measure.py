"""One row of the benchmark, measured in a process of its own so that its peak memory is its own.

``python -m tests.benchmarks.measure ROW CASE REPEATS`` prints one line of JSON; CASE is a file that
:meth:`tests.benchmarks.layered.Layered.save` wrote. :mod:`tests.benchmarks.engine` starts these.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.schedulers import create
from tests.benchmarks.callbacks import run_callbacks
from tests.benchmarks.layered import Dependencies, Layered

Row = dict[str, Any]


def timed(act: Callable[[], float]) -> tuple[float, float]:
    """(seconds, result) of one call, after a full collection; the collector stays on.

    Seconds in which this process computed: those in which others had its core are not its own.
    """
    gc.collect()
    began = time.process_time()
    result = act()
    return time.process_time() - began, result


def alternate(acts: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Best seconds of each act; they take turns, so that what slows the machine slows all."""
    best = dict.fromkeys(acts, float("inf"))
    for _ in range(repeats):
        for name, act in acts.items():
            best[name] = min(best[name], timed(act)[0])
    return best


def peak_mib() -> float:
    """The largest resident memory of this process so far, MiB."""
    kilo = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilo / (2**20 if sys.platform == "darwin" else 2**10)


class FixedPlan(Scheduler):
    """Places every task of its one job at arrival."""

    name: ClassVar[str] = "fixed_plan"
    static: ClassVar[bool] = True

    def __init__(self, device: np.ndarray, rank: np.ndarray) -> None:
        self.device, self.rank = device, rank

    def decide(self, context: SchedulingContext) -> None:
        for job in context.arrived:
            context.place_job(job, self.device, self.rank)


def fixed_plan(case: Layered) -> Callable[[], Scheduler]:
    """Everything placed at arrival, ranked by its place in the plan."""
    device, order = case.plan
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order))
    return lambda: FixedPlan(device, rank)


def references(
    plan: Dependencies, everything: bool
) -> tuple[dict[str, Callable[[], float]], float]:
    """The loops beside which the engine is timed, and the seconds of compiling one of them.

    Args:
        plan: what they execute.
        everything: or the SimPy callbacks alone.
    """
    seconds, after, needs = plan.lists()
    acts: dict[str, Callable[[], float]] = {
        "callbacks": lambda: run_callbacks(seconds, after, list(needs))[0]
    }
    if not everything:
        return acts, 0.0
    from tests.benchmarks.c_loop import compiler, run_c
    from tests.benchmarks.heap_loop import compile_heap, run_heap

    acts["heapq"] = lambda: run_heap(seconds, after, list(needs))[0]
    run_numba = compile_heap()
    columns = (plan.seconds, plan.after.offsets, plan.after.values, plan.delay)
    acts["numba"] = lambda: run_numba(*columns, plan.needs.copy())[0]
    began = time.process_time()
    acts["numba"]()
    jit_s = time.process_time() - began
    if compiler() is not None:
        acts["c"] = lambda: run_c(plan, plan.needs.copy())[0]
        acts["c"]()
    return acts, jit_s


def engine_row(
    case: Layered,
    make: Callable[[], Scheduler],
    repeats: int,
    contention: str = "none",
    star: bool = False,
    planned: bool = False,
) -> Row:
    """The engine, all of ``simulate`` (admission, decisions, trace), beside the callback loop.

    With ``planned`` beside all loops, and it must end when they end, to the last digit.
    """
    before = peak_mib()
    cluster = case.star if star else case.cluster
    began = time.process_time()
    graph, costs = case.graph, case.costs
    build_s = time.process_time() - began

    def engine() -> float:
        return simulate(graph, cluster, costs, make(), contention=contention).makespan

    first_s, makespan = timed(engine)
    peak = peak_mib()
    acts, jit_s = references(case.dependencies(), everything=planned)
    if planned:
        for name, act in acts.items():
            if act() != makespan:
                raise AssertionError(f"the engine ends at {makespan!r} s, {name} at {act()!r} s")
    # The two that are compared take turns by themselves; further loops are for orientation.
    best = alternate({"callbacks": acts.pop("callbacks"), "engine": engine}, repeats)
    best |= alternate(acts, repeats)
    engine_s = min(first_s, best.pop("engine"))
    tasks = len(case.work)
    row: Row = {
        "tasks": tasks,
        "seconds": engine_s,
        "tasks_per_s": tasks / engine_s,
        "beside": "callbacks",
        "beside_tasks_per_s": tasks / best["callbacks"],
        "ratio": best["callbacks"] / engine_s,
        "makespan_s": makespan,
        "build_s": build_s,
        "peak_mib": peak,
        "base_mib": before,
    }
    if planned:
        row["loops_tasks_per_s"] = {name: tasks / value for name, value in best.items()}
        row["loops_jit_s"] = jit_s
    return row


def evaluator_row(case: Layered, contention: str, repeats: int) -> Row:
    """The compiled evaluator beside the C loop, on the same plan."""
    from simulator.engine.evaluator import Evaluator
    from tests.benchmarks.c_loop import compiler, run_c

    if compiler() is None:
        return {"skipped": "there is no C compiler"}
    plan = case.dependencies()
    device, order = case.plan
    device = device.astype(np.int64)
    began = time.process_time()
    evaluator = Evaluator(case.graph, case.cluster, case.costs, contention=contention)
    build_s = time.process_time() - began
    began = time.process_time()
    makespan = evaluator.evaluate(device, order)
    first_s = time.process_time() - began
    expected = run_c(plan, plan.needs.copy())[0]
    if contention == "fifo":
        make = fixed_plan(case)
        trace = simulate(case.graph, case.cluster, case.costs, make(), contention=contention)
        expected = trace.makespan
    if makespan != expected:
        raise AssertionError(f"the evaluator ends at {makespan!r} s, not at {expected!r} s")
    best = alternate(
        {
            "c": lambda: run_c(plan, plan.needs.copy())[0],
            "evaluator": lambda: evaluator.evaluate(device, order),
        },
        max(repeats, 3) * 4,
    )
    tasks = len(order)
    return {
        "tasks": tasks,
        "seconds": best["evaluator"],
        "tasks_per_s": tasks / best["evaluator"],
        "beside": "c",
        "beside_tasks_per_s": tasks / best["c"],
        "ratio": best["c"] / best["evaluator"],
        "makespan_s": makespan,
        "build_s": build_s,
        "jit_s": first_s - best["evaluator"],
    }


def trace_row(case: Layered, repeats: int) -> Row:
    """Preparing the compiled evaluator and writing the fixed plan's trace, beside the callback loop."""
    from simulator.engine.evaluator import Evaluator

    before = peak_mib()
    graph, costs, (device, order) = case.graph, case.costs, case.plan

    def evaluator() -> float:
        return Evaluator(graph, case.cluster, costs).trace(device, order).makespan

    first_s, makespan = timed(evaluator)
    peak = peak_mib()
    callbacks = references(case.dependencies(), everything=False)[0]["callbacks"]
    if callbacks() != makespan:
        raise AssertionError(f"the evaluator ends at {makespan!r} s, the callbacks elsewhere")
    best = alternate({"callbacks": callbacks, "evaluator": evaluator}, repeats)
    tasks = len(order)
    return {
        "tasks": tasks,
        "seconds": best["evaluator"],
        "tasks_per_s": tasks / best["evaluator"],
        "beside": "callbacks",
        "beside_tasks_per_s": tasks / best["callbacks"],
        "ratio": best["callbacks"] / best["evaluator"],
        "makespan_s": makespan,
        "peak_mib": peak,
        "base_mib": before,
        "jit_s": first_s - best["evaluator"],
    }


def measure(name: str, case: Layered, repeats: int) -> Row:
    """The row of that name."""
    if name == "plan":
        return engine_row(case, fixed_plan(case), repeats, planned=True)
    if name == "fair":
        return engine_row(case, fixed_plan(case), repeats, "fair", star=True)
    schedulers: dict[str, Callable[[], Scheduler]] = {
        "fcfs": lambda: create("fcfs"),
        "donf": lambda: create("donf", pricing="contention_aware"),
    }
    if name in schedulers:
        return engine_row(case, schedulers[name], repeats, "fifo")
    if name == "evaluator-trace":
        return trace_row(case, repeats)
    return evaluator_row(case, name.removeprefix("evaluator-"), repeats)


def main() -> None:
    """Measure and print."""
    name, path, repeats = sys.argv[1:]
    if name == "cell":
        from tests.benchmarks.cell import cell_row

        row = cell_row(int(repeats))
    else:
        row = measure(name, Layered.load(Path(path)), int(repeats))
    print(json.dumps(row))


if __name__ == "__main__":
    main()
