"""Jobs of stages, as data-parallel frameworks run them: a stage fetches, computes and perhaps writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.layered import Layered
from scenarios.random_graphs.shape import MOST_TASKS, Shape, check_number, check_size
from simulator.errors import InvalidInput

KINDS = ("network", "processor", "disk")
"""The kinds of devices in the order in which a stage needs them."""


@dataclass(frozen=True)
class StagedJobs:
    """Jobs whose stages form layered graphs (:class:`scenarios.random_graphs.layered.Layered`).

    A stage fetches what its parents left (network), computes (processor) and, some of them, writes (disk);
    its fetching starts after the last phase of every parent. The phases of a stage of work 1 are the
    fetching, drawn about ``fetch_share``, and the computing, the rest; what a stage writes takes as long as
    another drawn fetching.

    Source: Duan, Wang, Wu, *Accelerating DAG-Style Job Execution via Optimizing Resource Pipeline Scheduling*,
    JCST 37(4):852-868, 2022 (model); layers as of Topcuoglu, Hariri, Wu, 2002.

    Attributes:
        jobs: that are there at once, without edges between them.
        stages: of each job.
        alpha, degree: of the layers, see there.
        fetch_share: mean share of the fetching.
        share_spread: a share lies within this of the mean, all equally likely; 0: all stages are alike.
        writing: share of the stages that write.
    """

    jobs: int
    stages: int
    alpha: float
    degree: int
    fetch_share: float
    share_spread: float
    writing: float

    def __post_init__(self) -> None:
        check_number("jobs", self.jobs, 1, MOST_TASKS)
        check_number("stages", self.stages, 1, MOST_TASKS)
        check_size(3 * self.jobs * self.stages, self.jobs * self.stages * (2 + self.degree))
        Layered(self.stages, self.alpha, self.degree)
        check_number("fetch_share", self.fetch_share, 0, 1)
        check_number("writing", self.writing, 0, 1)
        check_number("share_spread", self.share_spread, 0, 1)
        if not self.share_spread <= min(self.fetch_share, 1 - self.fetch_share) + 1e-12:
            raise InvalidInput(
                f"family.share_spread={self.share_spread} about family.fetch_share={self.fetch_share} leaves 0 to 1; "
                f"give at most {min(self.fetch_share, 1 - self.fetch_share):g}"
            )

    def draw(self, draws: Draws) -> Shape:
        """Such jobs; tasks are numbered job by job, stage by stage."""
        edges: list[tuple[int, int]] = []
        work: list[float] = []
        machines: list[int] = []
        names: list[str] = []
        low, high = self.fetch_share - self.share_spread, self.fetch_share + self.share_spread
        for job in range(self.jobs):
            layers = Layered(self.stages, self.alpha, self.degree).draw(draws)
            fetches = draws.between(low, high, self.stages).tolist()
            written = draws.between(low, high, self.stages).tolist()
            writes = (draws.uniform(self.stages) < self.writing).tolist()
            first: list[int] = []
            last: list[int] = []
            for stage, fetch in enumerate(fetches):
                phases = [fetch, 1.0 - fetch, *([written[stage]] if writes[stage] else [])]
                first.append(len(work))
                work += phases
                last.append(len(work) - 1)
                machines += range(len(phases))
                edges += [(task, task + 1) for task in range(first[-1], last[-1])]
                names += [
                    f"j{job}.s{stage}.{phase}"
                    for phase, _ in zip(("fetch", "compute", "write"), phases, strict=False)
                ]
            edges += [
                (last[parent], first[child])
                for parent, child in zip(
                    layers.source.tolist(), layers.target.tolist(), strict=True
                )
            ]
        pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
        return Shape(
            len(work),
            pairs[:, 0],
            pairs[:, 1],
            np.array(work),
            np.ones(len(pairs)),
            tuple(names),
            machines=np.array(machines, dtype=np.int64),
            kinds=KINDS,
        )


__all__ = ["KINDS", "StagedJobs"]
