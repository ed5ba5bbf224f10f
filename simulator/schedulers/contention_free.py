"""Contention-free scheduling of staged jobs: one task at a time on each device, by Johnson's rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.errors import InvalidInput
from simulator.planners.flow_shop import johnson
from simulator.schedulers._one_at_a_time import OneAtATime

RULES = ("johnson", "critical_path", "shortest_job", "fifo", "random")


class ContentionFree(OneAtATime):
    """The devices are the machines of a flow shop with precedence between stages (``F2 | prec | Cmax``).

    ``johnson``: the first phase that starts next is that of the ready stage which Johnson's rule puts first, ties
    by the larger upward rank; stages of three phases f, g, h count as two of f + g, g + h, all of them as
    soon as one stage of any job has three. A later phase is chosen by the longest path behind its stage (what
    Schrage's rule goes by), ties by age. Without precedence this is exactly Johnson's schedule. The other
    rules choose every phase alike and are baselines: ``critical_path`` by the largest upward rank, ``shortest_job``
    by the least seconds of its job that are left, ties by age, ``fifo`` by age, ``random``.

    Args:
        rule: one of :data:`RULES`.
        seed: of the draws of ``random``; ``seed.search`` unless given.

    Raises:
        InvalidInput: there is no such rule.

    Source: Duan, Wang, Wu, *Accelerating DAG-Style Job Execution via Optimizing Resource Pipeline Scheduling*,
    JCST 37(4):852-868, 2022 (of its abstract: contention-free stages, three phases); the rule for ready
    stages is a reconstruction.
    """

    name: ClassVar[str] = "contention_free"

    def __init__(self, rule: str = "johnson", seed: int = 0) -> None:
        if rule not in RULES:
            raise InvalidInput(
                f"Scheduler 'contention_free' has no rule '{rule}'; known: {', '.join(RULES)}"
            )
        self.rule = rule
        self._random = random.Random(seed)

    def choose(self, context: SchedulingContext, waiting: Sequence[int]) -> int:
        """See :class:`OneAtATime`."""
        if self.rule == "fifo":
            return waiting[0]
        if self.rule == "random":
            return self._random.choice(waiting)
        if self.rule == "shortest_job":
            return min(waiting, key=lambda task: self.left[context.job_of(task)])
        known = [self.stages(context, task) for task in waiting]
        ranks = [stages.rank[operator] for stages, operator in known]
        by_rank = sorted(range(len(waiting)), key=lambda i: -ranks[i])
        if self.rule == "critical_path":
            return waiting[by_rank[0]]
        if any(stages.is_first[operator] for stages, operator in known):
            most = max(2, *(stages.most for stages in self.of_graph.values()))
            phases = [known[i][0].phases[known[i][1]] for i in by_rank]
            machines = [(sum(p[: most - 1]), sum(p[1:])) for p in phases]
            return waiting[by_rank[johnson(machines)[0]]]
        tails = [stages.tail[operator] for stages, operator in known]
        return waiting[tails.index(max(tails))]
