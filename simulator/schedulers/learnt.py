"""A scheduler of staged jobs that was trained by reinforcement learning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.schedulers._one_at_a_time import OneAtATime
from simulator.schedulers._stage_policy import FEATURES, StagePolicy, load_policy
from simulator.support.shipped import find_file


class Learnt(OneAtATime):
    """A free device runs the waiting task to which a trained policy gives the highest score, ties by age.

    The features of a task (:data:`simulator.schedulers._stage_policy.FEATURES`) have no unit. Seconds x are seen as
    ln(1 + x / m) with the mean m of all phases that have arrived: ``own_seconds`` of the phase, ``next_seconds``
    and ``later_seconds`` of the stage's phases behind it, ``own_backlog`` of all that wait for the device,
    ``next_backlog`` of what waits for or runs on the device of the stage's next phase, or of a first phase where
    there is none. ``rank`` (longest path to the end, with the phase) and ``tail`` (its part behind the
    stage) are shares of the longest rank of those that wait, ``job_left`` of the most unplaced seconds of
    any of their jobs. ``feeds_next``: whether the phase is shorter than the next one. ``children``: a quarter of the
    number of stages behind the stage; ``unlocks``: the share of them that wait for no other stage.
    ``job_age`` and ``age``: 0 for the oldest job or task of those that wait, to 1 for the youngest. ``first_phase``,
    ``last_phase``: whether the stage begins, or ends, with the phase.

    Args:
        file: what ``python -m experiments.shop_policy train`` wrote; relative to the current folder or the project's.
        policy: instead of a file.

    Raises:
        InvalidInput: the file holds no policy, or one of other features.

    Source: H. Mao et al., *Learning scheduling algorithms for data processing clusters*, SIGCOMM 2019
    (doi:10.1145/3341302.3342080), with features of stages in place of a graph network.
    """

    name: ClassVar[str] = "learnt"

    def __init__(
        self,
        file: str = "conf/predictors/staged_jobs.safetensors",
        policy: StagePolicy | None = None,
    ) -> None:
        self.policy = load_policy(find_file(file)) if policy is None else policy
        self._seconds, self._phases = 0.0, 0

    def admit(self, context: SchedulingContext, job: int) -> None:
        """See :class:`OneAtATime`."""
        super().admit(context, job)
        self._seconds += self.left[job]
        self._phases += len(context.tasks_of(job))

    def choose(self, context: SchedulingContext, waiting: Sequence[int]) -> int:
        """See :class:`OneAtATime`."""
        return waiting[int(np.argmax(self.policy.scores(self.features(context, waiting))))]

    def features(self, context: SchedulingContext, waiting: Sequence[int]) -> np.ndarray:
        """float32[tasks, features] of tasks that wait for one device, the oldest first."""
        mean = self._seconds / self._phases or 1.0

        def scaled(seconds: float) -> float:
            return math.log1p(max(0.0, seconds) / mean)

        backlog = [
            scaled(self._backlog(context, device, tasks))
            for device, tasks in enumerate(self.waiting)
        ]
        known = [self.stages(context, task) for task in waiting]
        longest = max(stages.rank[operator] for stages, operator in known) or 1.0
        jobs = [context.job_of(task) for task in waiting]
        most = max(self.left[job] for job in jobs) or 1.0
        place = {job: number for number, job in enumerate(sorted(set(jobs)))}
        rows = []
        for age, (job, (stages, operator)) in enumerate(zip(jobs, known, strict=True)):
            phases, children = stages.phases[operator], stages.children[operator]
            base = waiting[age] - operator
            follower = stages.after[operator]
            rows.append(
                (
                    scaled(phases[0]),
                    scaled(phases[1]) if len(phases) > 1 else 0.0,
                    scaled(sum(phases[2:])),
                    stages.rank[operator] / longest,
                    stages.tail[operator] / longest,
                    len(phases) > 1 and phases[0] < phases[1],
                    backlog[stages.device[operator]],
                    backlog[follower],
                    len(children) / 4,
                    sum(context.pending[base + child] == 1 for child in children)
                    / max(1, len(children)),
                    self.left[job] / most,
                    place[job] / max(1, len(place) - 1),
                    age / (len(waiting) - 1) if len(waiting) > 1 else 0.0,
                    stages.is_first[operator],
                    len(phases) == 1,
                )
            )
        return np.array(rows, dtype=np.float32).reshape(-1, len(FEATURES))

    def _backlog(self, context: SchedulingContext, device: int, tasks: Sequence[int]) -> float:
        """Believed seconds of what waits for a device or runs on it."""
        seconds = max(0.0, self.free_at[device] - context.now)
        for task in tasks:
            stages, operator = self.stages(context, task)
            seconds += stages.phases[operator][0]
        return seconds
