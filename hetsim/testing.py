"""Checks of a scheduler of your own: does it keep the protocol, does it decide the same twice, does it know simple answers?

from hetsim.testing import check_scheduler

def test_mine():
    check_scheduler(Mine)
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hetsim.scenarios import class_of
from simulator.context.scheduler import Scheduler
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import HetsimError, SchedulingError
from simulator.model.cluster import Cluster, fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.support.options import construct

TASKS, DEVICES = 24, 3
Make = Callable[[], Scheduler]


@dataclasses.dataclass(frozen=True)
class Check:
    """One check: what it is of, and what was wrong; empty where nothing was."""

    name: str
    fault: str = ""


def check_scheduler(scheduler: str | type[Scheduler], **options: Any) -> list[Check]:
    """Run a scheduler on small instances and hold it against its protocol and against known answers.

    It is run on random graphs under every rule of data movement and contention, on jobs that arrive one after the
    other, on tasks that not all devices can run, on tasks that take no time, and beside a device that fails. It must
    finish every task, repeat itself exactly, keep no state between runs, be no better than a lower bound, and take
    what the tasks take where there is one device.

    Args:
        scheduler: a class, a name, or a class path.
        **options: arguments of its constructor.

    Returns:
        What was checked.

    Raises:
        AssertionError: names every check that failed and why.
        InvalidInput: there is no such scheduler, or it does not take these options.

    Example:
        >>> from hetsim.testing import check_scheduler
        >>> [check.name for check in check_scheduler("heft")][0]
        'one device'
    """
    kind = class_of(scheduler)

    def make() -> Scheduler:
        return construct(kind, f"Scheduler '{kind.__name__}'", options)

    make()  # options that it does not take are refused as such
    found = [Check(name, _fault(check, make)) for name, check in _CHECKS.items()]
    if wrong := [check for check in found if check.fault]:
        lines = "\n".join(f"  {check.name}: {check.fault}" for check in wrong)
        raise AssertionError(f"{kind.__name__} fails {len(wrong)} of {len(found)} checks:\n{lines}")
    return found


def _fault(check: Callable[[Make], str], make: Make) -> str:
    try:
        return check(make)
    except HetsimError as error:
        return str(error)
    except Exception as error:  # of the scheduler's own code
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = "" if where is None else f" ({where.tb_frame.f_code.co_filename}:{where.tb_lineno})"
        return f"{type(error).__name__}: {error}{line}"


# -- instances ----------------------------------------------------------------------------------


def _instance(seed: int) -> tuple[DataflowGraph, Cluster, CostTable]:
    """A random graph; times of unrelated devices, a tenth of which cannot run a task, some of which take no time."""
    rng = random.Random(seed)
    edges = [
        (a, b, float(rng.randint(0, 6)))
        for b in range(1, TASKS)
        for a in sorted(rng.sample(range(b), min(b, rng.randint(0, 3))))
    ]
    graph = from_edges(f"random{seed}", TASKS, edges)
    seconds = np.array([[float(rng.randint(0, 9)) for _ in range(DEVICES)] for _ in range(TASKS)])
    for row in seconds[:: 10 - seed % 3]:
        row[rng.randrange(DEVICES)] = math.inf
    return graph, fully_connected("three", DEVICES), CostTable.of(graph, seconds)


def _unfinished(trace: Trace, jobs: int) -> str:
    done = int(np.sum(trace.jobs["status"] == "finished"))
    return "" if done == jobs else f"{done} of {jobs} jobs finished"


def _rules() -> Iterator[tuple[str, str]]:
    yield from ((m, c) for m in ("push", "pull") for c in ("none", "fifo", "fair"))


# -- checks -------------------------------------------------------------------------------------


def _one_device(make: Make) -> str:
    graph, _, _ = _instance(1)
    seconds = np.arange(1.0, TASKS + 1.0)[:, None]
    trace = simulate(graph, fully_connected("one", 1), CostTable.of(graph, seconds), make())
    expected = float(seconds.sum())
    if abs(trace.makespan - expected) <= 1e-9 * expected:
        return ""
    return (
        f"{TASKS} tasks that take {expected:g} s together take {trace.makespan:g} s on one device"
    )


def _finishes(make: Make) -> str:
    for seed in range(4):
        graph, cluster, costs = _instance(seed)
        for movement, contention in _rules():
            trace = simulate(
                graph, cluster, costs, make(), movement=movement, contention=contention
            )
            if fault := _unfinished(trace, 1):
                return f"{fault} (movement {movement}, contention {contention})"
    return ""


def _bound(make: Make) -> str:
    from simulator.analysis.bounds import workload_bound

    for seed in range(4):
        graph, cluster, costs = _instance(seed)
        bound = workload_bound(Workload([Job(graph)]), costs, cluster).bound_s
        scheduler = make()
        makespan = simulate(graph, cluster, costs, scheduler).makespan
        if makespan < bound * (1 - 1e-9):
            return f"a makespan of {makespan:g} s is below the lower bound of {bound:g} s"
        proven = scheduler.proven_bound_s
        if proven is not None and makespan < proven * (1 - 1e-9):
            return f"a makespan of {makespan:g} s is below the {proven:g} s that it proved"
    return ""


def _several_jobs(make: Make) -> str:
    graph, cluster, costs = _instance(2)
    workload = Workload([Job(graph, arrival=at) for at in (0.0, 1.0, 1.0, 400.0)])
    return _unfinished(simulate(workload, cluster, costs, make(), contention="fifo"), 4)


def _repeats(make: Make) -> str:
    graph, cluster, costs = _instance(3)
    first = _rows(simulate(graph, cluster, costs, make(), contention="fifo"))
    other_graph, other_cluster, other_costs = _instance(0)
    simulate(other_graph, other_cluster, other_costs, make())
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - a scheduler must not read it
    if _rows(simulate(graph, cluster, costs, make(), contention="fifo")) == first:
        return ""
    return (
        "the same run twice gives two traces: a seed that is not its own, the wall clock, the order of a set, or state "
        "of the class"
    )


def _static(make: Make) -> str:
    if not make().static:
        return ""
    graph, cluster, costs = _instance(1)
    asked = make()
    asked.static = False  # type: ignore[misc] # of this object alone: it is then asked at every instant
    if _rows(simulate(graph, cluster, costs, asked)) == _rows(
        simulate(graph, cluster, costs, make())
    ):
        return ""
    return "it says static = True, and decides otherwise when it is asked at every instant"


def _device_fails(make: Make) -> str:
    graph, cluster, costs = _instance(1)
    fault = Fault("device_failure", cluster.devices[0].name, 3.0, 9.0)
    try:
        trace = simulate(graph, cluster, costs, make(), faults=Faults((fault,)))
    except SchedulingError as error:
        return (
            f"{error}; tasks that a failing device gives up are in context.lost: place them again"
        )
    return _unfinished(trace, 1)


def _rows(trace: Trace) -> dict[str, list[Any]]:
    return {name: np.asarray(column).tolist() for name, column in trace.executions.items()}


_CHECKS: dict[str, Callable[[Make], str]] = {
    "one device": _one_device,
    "finishes under every rule": _finishes,
    "not below the lower bound": _bound,
    "several jobs": _several_jobs,
    "repeats itself": _repeats,
    "static as it says": _static,
    "a device fails": _device_fails,
}

__all__ = ["Check", "check_scheduler"]
