"""Simulating a plan that is whole before anything happens: ``simulate(..., engine="evaluator")``.

A static scheduler places everything when the jobs arrive. It is asked once, in a world in which nothing executes;
what it placed is then evaluated by compiled loops (:mod:`simulator.engine.evaluator`), which write the trace that
the engine would write.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from simulator.context.scheduling import name_of
from simulator.engine.engine import Setting, Simulation
from simulator.engine.evaluator import Evaluator, check_settings
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.trace import Trace


class Planning(Simulation):
    """A run up to its first decision: nothing is sent, nothing starts."""

    def plan(self) -> tuple[np.ndarray, np.ndarray]:
        """Ask the scheduler at the first arrival.

        Returns:
            int64[tasks], the device of every task, and their order in their devices' queues.

        Raises:
            InvalidInput: it asked to be woken later.
            SchedulingError: it broke its protocol, or left tasks that it did not place.
        """
        self.scheduler.begin(self)
        self._workload.begin()
        self._to_come = iter(self._workload)
        self._schedule_arrival()
        self.clock.run_instants(self._settle, self.setting.workload.jobs[0].arrival)
        if self.clock.peek() < math.inf:
            raise InvalidInput(
                f"Scheduler '{name_of(self.scheduler)}' asks to be woken later, so its first decision is not its whole "
                "plan; engine=evaluator needs one that is"
            )
        device = np.array(self.task_device)
        if (device < 0).any():
            self._check_finished(self.scheduler)
        return device, np.lexsort((np.array(self.task_sequence), np.array(self.task_rank)))

    def _settle(self, now: float) -> None:
        """See :class:`Simulation`: apply what happened and decide."""
        self.now = now
        if self._apply(now):
            self._decide()


def simulate_plan(setting: Setting, explain: Callable[[str], None] | None = None) -> Trace:
    """The trace of a run whose plan is whole at its first decision.

    Args:
        setting: see :func:`simulator.engine.simulate`.
        explain: the same.

    Raises:
        InvalidInput: the plan is not whole then, or the run asks for what the evaluator does not know.
        SchedulingError: the scheduler broke its protocol or left tasks that can never run.
    """
    _check(setting)
    check_settings(setting.cluster, setting.movement, setting.contention)
    workload, costs = setting.workload, setting.costs
    planning = Planning(setting)
    planning.explain = explain
    device, order = planning.plan()
    deciding_seconds = planning.deciding_seconds
    del planning  # its columns are larger than the plan
    return Evaluator(
        workload,
        setting.cluster,
        costs,
        movement=setting.movement,
        contention=setting.contention,
        actual=actual_seconds(setting),
    ).trace(device, order, scheduler=setting.scheduler.name, deciding_seconds=deciding_seconds)


def actual_seconds(setting: Setting) -> list[np.ndarray]:
    """For each job the seconds that happen, drawn as the engine draws them."""
    actual, rng = setting.actual, np.random.default_rng(setting.seed)
    found = []
    for job in setting.workload:
        believed = setting.costs[job.graph]
        if actual is None:
            found.append(believed.seconds)
        elif isinstance(actual, CostTable):
            found.append(actual[job.graph].seconds)
        else:
            found.append(actual.realise(job.graph, believed, rng, job.arrival))
    return found


def _check(setting: Setting) -> None:
    """Refuse a run that is no plan which is evaluated.

    Raises:
        InvalidInput: says what it is besides.
    """
    scheduler, workload = setting.scheduler, setting.workload
    if not scheduler.static:
        raise InvalidInput(
            f"Scheduler '{name_of(scheduler)}' decides while the run goes on; engine=evaluator takes plans that are "
            "whole before it, those of static schedulers"
        )
    if (
        workload.reacts
        or not workload.known
        or workload.jobs[-1].arrival > workload.jobs[0].arrival
    ):
        raise InvalidInput(
            "Jobs arrive later than the first one, and are planned then; engine=evaluator takes plans that are "
            "whole at the first arrival"
        )
    for is_so, what in (
        (setting.memory != "unlimited", "limited memory"),
        (setting.weights != "resident", "weights that are loaded on demand"),
        (bool(setting.faults), "faults"),
        (setting.decision_cost is not None, "decisions that take time"),
        (setting.believed is not None, "a cluster that is believed otherwise than it is"),
        (setting.horizon < math.inf, "a horizon"),
        (bool(scheduler.needs), f"schedulers that need {', '.join(sorted(scheduler.needs))}"),
    ):
        if is_so:
            raise InvalidInput(
                f"The evaluator of fixed plans does not know {what}; use engine=engine"
            )
