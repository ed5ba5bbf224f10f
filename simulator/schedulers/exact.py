"""The best plan there is, with a proof, for small graphs; a constraint programme.

Source: Laborie, Rogerie, Shaw, Vilim, "IBM ILOG CP optimizer for scheduling", Constraints 23(2):210-250,
2018, doi:10.1007/s10601-018-9281-x, for interval variables on alternative machines; solved by OR-tools'
CP-SAT (Perron, Didier, Gay, "The CP-SAT-LP Solver", CP 2023, doi:10.4230/LIPIcs.CP.2023.3).
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.errors import InvalidInput
from simulator.model.plan import Certificate, Plan
from simulator.planners.exact_model import load_solver, prove
from simulator.planners.list_planner import Draft
from simulator.schedulers._search import Outcome, Problem, SearchPlanner

_SAME = 1e-9  # relative; makespans are sums of rounded numbers


class Exact(SearchPlanner):
    """The plan of least makespan under ``push`` without contention, or the best found within the limit,
    and how far from the least it can be (``explain``, and the certificate in :attr:`outcomes`). Under
    other movements and contention the plan is the same, the bound still holds, and the plan need not be
    the best. A run of one job reports the bound (:attr:`proven_bound_s`).

    Needs the optional extra ``exact`` (OR-tools).

    Args:
        limit: of the solver's deterministic time for each job: the same number of steps on every machine,
            a few seconds of one core for each.
        seed: of the solver.
    """

    name: ClassVar[str] = "exact"
    settings = ("push", "none")

    def __init__(self, limit: float = 10.0, seed: int = 0) -> None:
        super().__init__(budget=1_000, seed=seed)
        if isinstance(limit, bool) or not 0 < limit < math.inf:
            raise InvalidInput(
                f"Scheduler 'exact' has limit {limit!r}; give the solver's deterministic seconds, > 0"
            )
        self.limit = limit

    def begin(self, context: SchedulingContext) -> None:
        """Refuse at once where OR-tools is missing."""
        load_solver()
        super().begin(context)

    def search(self, problem: Problem, rng: np.random.Generator) -> Plan:
        """See :class:`SearchPlanner`."""
        best, begin = problem.seeds[0], problem.job.arrival
        schedule = problem.evaluator.schedule(best.device, best.order)
        proof = prove(
            problem.job,
            problem.cluster,
            problem.seconds,
            (best.device, schedule.start - begin, best.makespan_s - begin),
            np.maximum(problem.available - begin, 0.0),
            self.limit,
            self.seed,
        )
        if proof.device is not None and proof.order is not None:
            found = problem.evaluator.plan(self.name, proof.device, proof.order)
            if found.makespan_s < best.makespan_s:
                best = found
        makespan = best.makespan_s - begin
        optimal = makespan <= proof.bound_s * (1 + _SAME)
        status = "optimal" if optimal else "feasible"
        if proof.closed and not (optimal or proof.exact):
            status = "optimal up to rounding"
        proved = Certificate(makespan, proof.bound_s, status, proof.exact, proof.tick_s)
        return dataclasses.replace(best, certificate=proved)

    def plan(self, draft: Draft, ranking: None) -> None:
        """See :class:`SearchPlanner`."""
        super().plan(draft, ranking)
        context, certificate = self._context, self.outcomes[draft.job].certificate
        alone = len(context.jobs) == 1
        self.proven_bound_s = None
        if alone and certificate and all(map(context.is_up, range(len(context.cluster.devices)))):
            self.proven_bound_s = context.now + certificate.bound_s

    def remark(self, outcome: Outcome) -> str:
        """See :class:`SearchPlanner`."""
        proof = outcome.certificate
        assert proof is not None
        counted = (
            "" if proof.exact else f", times rounded down to {proof.tick_s:.3g} s for the bound"
        )
        return f" ({proof.status}, gap {proof.gap:.2%}{counted})"
