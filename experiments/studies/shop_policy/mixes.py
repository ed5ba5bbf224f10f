"""Mixes of staged jobs: those that a policy is trained on, drawn anew for each sequence, and those held out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scenarios.random_graphs import Draws, Times
from scenarios.random_graphs.staged_jobs import StagedJobs
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job, Workload

MIX, GAPS = 20, 21
"""Streams of draws: what a training sequence is of, and the gaps between arrivals."""
TRAINING = 1_000_000
"""Sequences to train on have this seed and the next ones; those held out have seeds below."""
VALIDATION = 900_000
TIMES = Times(3, "dedicated", work_spread=0.5, ccr=0)


@dataclass(frozen=True)
class Mix:
    """Jobs of one family.

    Attributes:
        stages: of each job, from the first to the second number.
        load: seconds of work that arrive at the busiest device in a second, jobs by a Poisson process; 0: all are
            there at once.
    """

    jobs: int
    stages: tuple[int, int]
    alpha: float = 1.0
    degree: int = 2
    fetch_share: float = 0.5
    share_spread: float = 0.4
    writing: float = 0.0
    load: float = 0.0

    def draw(self, seed: int) -> Sequence:
        """A sequence of jobs; the same for the same seed, everywhere."""
        draws = Draws(seed, GAPS)
        sizes = draws.integers(*self.stages, self.jobs).tolist()
        # -ln of a uniform number; 1 - u is never 0.
        gaps = [-math.log(1.0 - u) for u in draws.uniform(self.jobs).tolist()]
        tables: dict[DataflowGraph, GraphCosts] = {}
        jobs, clock, busiest = [], 0.0, 0.0
        for number, (stages, gap) in enumerate(zip(sizes, gaps, strict=True)):
            family = StagedJobs(
                1,
                stages,
                self.alpha,
                self.degree,
                self.fetch_share,
                self.share_spread,
                self.writing,
            )
            seed_of_job = seed * 1000 + number
            graph, cluster, costs = TIMES.instance(
                f"job{number}", family.draw(Draws(seed_of_job)), seed_of_job
            )
            clock += gap * busiest / self.load if self.load else 0.0
            jobs.append(Job(graph, clock))
            tables.update(costs)
            seconds = costs[graph].seconds
            busiest = max(math.fsum(s for s in c if s < math.inf) for c in seconds.T.tolist())
        return Sequence(Workload(jobs), cluster, CostTable(tables))


@dataclass(frozen=True)
class Sequence:
    """Jobs with their times, as :func:`simulator.simulate` takes them."""

    workload: Workload
    cluster: Cluster
    costs: CostTable


def training_mix(seed: int) -> Mix:
    """What the training sequence of a seed is of: 1 to 4 jobs at once or, one in three, 4 to 8 that arrive."""
    draws = Draws(seed, MIX)
    arrives = draws.below(3) == 0
    jobs = 4 + draws.below(5) if arrives else 1 + draws.below(4)
    (share,) = draws.between(0.3, 0.7, 1).tolist()
    (spread,) = draws.between(0.1, min(share, 1 - share), 1).tolist()
    return Mix(
        jobs,
        (4, 20) if jobs < 4 else (4, 10),
        alpha=(0.7, 1.0, 1.5)[draws.below(3)],
        degree=1 + draws.below(3),
        fetch_share=share,
        share_spread=spread,
        writing=(0.0, 0.5)[draws.below(2)],
        load=(0.5, 0.8)[draws.below(2)] if arrives else 0.0,
    )


_SEVERAL = Mix(4, (5, 15))
HELD_OUT: Mapping[str, Mix] = {
    "one job": Mix(1, (20, 20)),
    "four jobs": _SEVERAL,
    "ten jobs": replace(_SEVERAL, jobs=10),
    "wide": Mix(1, (30, 30), alpha=2.0),
    "deep": Mix(4, (10, 10), alpha=0.5),
    "stages alike": Mix(1, (20, 20), share_spread=0.0),
    "processor-bound": replace(_SEVERAL, fetch_share=0.35, share_spread=0.3),
    "network-bound": replace(_SEVERAL, fetch_share=0.65, share_spread=0.3),
    "writing": replace(_SEVERAL, writing=0.7),
    "arriving, load 0.5": replace(_SEVERAL, jobs=12, load=0.5),
    "arriving, load 0.9": replace(_SEVERAL, jobs=12, load=0.9),
}
"""By name what a policy is evaluated on."""
