"""A static scheduler's run by the evaluator: the engine's trace, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from simulator.context.scheduler import Scheduler
from simulator.engine import simulate
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.faults import Fault, Faults
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.planners.test_evaluator_trace import assert_same
from tests.simulator.scripted import Script, StaticPlan
from tests.simulator.seeded import seeded_case


def test_equals_the_engine_under_static_schedulers() -> None:
    """Also where what happens is not what is believed, and where several jobs arrive together."""
    for number in range(examples(300)):
        case = seeded_case(number, contentions=("none", "fifo"), static=True)
        first = case.workload.jobs[0].arrival
        case.workload = Workload(dataclasses.replace(j, arrival=first) for j in case.workload)
        assert_same(case.run(engine="evaluator"), case.run())


GRAPH = from_edges("edge", 2, [(0, 1, 1.0)])
COSTS = CostTable.of(GRAPH, np.ones((2, 2)))
PLAN = [(0, 0.0), (1, 1.0)]


def run(scheduler: Scheduler | None = None, **settings: Any) -> Any:
    settings = {"engine": "evaluator", **settings}
    workload = settings.pop("workload", GRAPH)
    cluster = fully_connected("two", 2)
    return simulate(workload, cluster, COSTS, scheduler or StaticPlan(PLAN), **settings)


def test_the_trace_says_what_wrote_it() -> None:
    assert run().meta["engine"] == "evaluator"
    assert run().makespan == 3.0


class Waking(StaticPlan):
    """Asks to be woken at 1."""

    def decide(self, context: Any) -> None:
        super().decide(context)
        context.wake_at(1.0)


@pytest.mark.parametrize(
    ("scheduler", "settings", "message"),
    [
        (None, {"engine": "abacus"}, "Unknown engine 'abacus'; known: engine, evaluator"),
        (create("fcfs"), {}, "Scheduler 'fcfs' decides while the run goes on; engine=evaluator"),
        (
            None,
            {"workload": Workload([Job(GRAPH), Job(GRAPH, 1.0)])},
            "Jobs arrive later than the first one",
        ),
        (None, {"memory": "limited"}, "does not know limited memory; use engine=engine"),
        (None, {"weights": "on_demand"}, "does not know weights that are loaded on demand"),
        (
            None,
            {"faults": Faults((Fault("device_failure", "P1", 1.0, 2.0),))},
            "does not know faults",
        ),
        (None, {"decision_cost": DecisionCost(1.0)}, "does not know decisions that take time"),
        (None, {"believed": fully_connected("two", 2)}, "does not know a cluster that is believed"),
        (None, {"horizon": 9.0}, "does not know a horizon"),
        (None, {"contention": "fair"}, "under contention none or fifo, not 'fair'"),
        (Waking(PLAN), {}, "'static_plan' asks to be woken later"),
    ],
)
def test_what_is_refused(scheduler: Scheduler | None, settings: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run(scheduler, **settings)


def test_tasks_that_are_not_placed_are_named() -> None:
    idle = Script(lambda context, n: context.place(0, 0))
    idle.static = True  # type: ignore[misc]
    with pytest.raises(SchedulingError, match="1 were never placed, the first is 't1'"):
        run(idle)
