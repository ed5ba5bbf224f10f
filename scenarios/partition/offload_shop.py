"""The flow shop of offloaded jobs: where all are cut, in which order they go, and to which server.

Jobs that are alike are a class. Cuts are found by rules for each class (:mod:`simulator.planners.job_cuts`), by
balancing terminal and link over all, and by moving single jobs to other cuts as long as the makespan falls.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scenarios.partition.offload_cuts import (
    STAGES,
    Site,
    Times,
    check_cuts,
    cuts_at,
    times_at,
    worth_trying,
)
from scenarios.partition.partitioner import Problem
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.planners import flow_shop, job_cuts

RULES = ("search", "ratio", "two_cuts", "one_cut")
MOST_PLANS = 600
"""Flow shops that the search for cuts evaluates from one start."""
IMPROVED = 3
"""Starts from which it goes on."""
MOST_TRIED = 1000
"""Choices of cuts up to which the search tries all."""
MOST_CHOICES = 100_000
"""Choices of cuts that ``exhaustive`` tries."""


@dataclass(frozen=True)
class JobClass:
    """Jobs that are alike.

    Attributes:
        jobs: their numbers.
        times: at each site.
        cuts: bool[operators] each, by ascending time on the terminal.
        stages: float[cuts, sites, 4], seconds.
    """

    jobs: tuple[int, ...]
    times: tuple[Times, ...]
    cuts: tuple[np.ndarray, ...]
    stages: np.ndarray

    def at(self, sites: Sequence[Site]) -> JobClass:
        """The same with some of the servers alone."""
        kept = [number for number, times in enumerate(self.times) if times.site in sites]
        return replace(self, times=tuple(self.times[k] for k in kept), stages=self.stages[:, kept])

    @property
    def own_best(self) -> int:
        """The best cut of a job by itself."""
        return int(self.stages.sum(axis=2).min(axis=1).argmin())

    @property
    def extremes(self) -> tuple[int, int]:
        """The cuts that leave most to the servers, and least."""
        kept = [int(cut.sum()) for cut in self.cuts]
        return kept.index(min(kept)), kept.index(max(kept))


Choice = tuple[int, ...]
"""The cut of every job, as a number among those of its class."""


class Shop:
    """The flow shop that jobs make of a terminal, links and servers.

    Args:
        classes: of all jobs.
        sites: a server each; those with one narrowest channel queue for it together.
        stages: 3, or 2 where the times of servers and results are left out.
    """

    def __init__(self, classes: Sequence[JobClass], sites: Sequence[Site], stages: int) -> None:
        self.classes, self.sites, self.considered = classes, sites, stages
        self._last = STAGES if stages == 3 else 2
        self.class_of = dict(sorted((j, c) for c in classes for j in c.jobs))
        names = [
            (("terminal",), ("link", s.up), ("server", s.server), ("link", s.down)) for s in sites
        ]
        machines = {n: number for number, n in enumerate(dict.fromkeys(itertools.chain(*names)))}
        # Of each job by cut and site the (machine, seconds) that it passes.
        rows = {
            id(c): [
                [
                    [
                        (machines[n], t)
                        for n, t in zip(names[k], row[: self._last], strict=False)
                        if t
                    ]
                    for k, row in enumerate(cut)
                ]
                for cut in c.stages.tolist()
            ]
            for c in classes
        }
        self._passes = [rows[id(c)] for c in self.class_of.values()]
        self._machines = len(machines)
        # Several links carry so many uploads at once.
        links = len({s.up for s in sites})
        self.mean = {
            id(c): c.stages.mean(axis=1) / [1.0, links, len(sites), links] for c in classes
        }
        """By class float[cuts, 4]: stages of a job, shared by all links and servers."""
        self._means = np.concatenate(list(self.mean.values()))
        first = dict(zip(self.mean, np.cumsum([0, *map(len, self.mean.values())]), strict=False))
        self._first = np.array([first[id(c)] for c in self.class_of.values()])

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Cuts and jobs of each class."""
        return [(len(c.cuts), len(c.jobs)) for c in self.classes]

    @property
    def choices(self) -> int:
        """In how many ways the jobs can be cut."""
        return math.prod(math.comb(cuts + jobs - 1, jobs) for cuts, jobs in self.sizes)

    def means(self, choice: Choice) -> np.ndarray:
        """float[jobs, 4]: stages of each job, shared by all links and servers."""
        found: np.ndarray = self._means[self._first + np.array(choice)]
        return found

    def dispatch(self, choice: Choice, order: Sequence[int]) -> tuple[float, list[int]]:
        """Makespan, and the site of every job: in this order each takes the one where it ends first."""
        free = [0.0] * self._machines
        used, last = [0] * len(order), 0.0
        for job in order:
            sites = self._passes[job][choice[job]]
            if len(sites) > 1:
                ends = [_passed(row, free) for row in sites]
                used[job] = ends.index(min(ends))
            ready = 0.0
            for machine, seconds in sites[used[job]]:
                ready = max(ready, free[machine]) + seconds
                free[machine] = ready
            last = max(last, ready)
        return last, used

    def orders(self, choice: Choice) -> Iterator[list[int]]:
        """Johnson's orders of terminal and link, and with the server."""
        means = self.means(choice)
        yield flow_shop.johnson(means[:, :2])
        if self.considered == 3:
            yield flow_shop.johnson(means[:, :3])

    def best_order(self, choice: Choice) -> tuple[float, list[int]]:
        """The better one of Johnson's orders, and the makespan."""
        return min((self.dispatch(choice, order)[0], order) for order in self.orders(choice))

    def spread(self, counts: Sequence[Sequence[int]]) -> Choice:
        """Cuts of the jobs of each class, in turn."""
        found: dict[int, int] = {}
        for members, cuts in zip(self.classes, counts, strict=True):
            found |= dict(zip(members.jobs, sorted(cuts), strict=True))
        return tuple(found[job] for job in sorted(found))

    def each(self, cut: Callable[[JobClass], int]) -> Choice:
        """One cut for all jobs of a class."""
        return tuple(cut(members) for members in self.class_of.values())


def _passed(row: Sequence[tuple[int, float]], free: Sequence[float]) -> float:
    """When a job would be through with these machines."""
    ready = 0.0
    for machine, seconds in row:
        ready = max(ready, free[machine]) + seconds
    return ready


def classes_of(problem: Problem, sites: Sequence[Site]) -> list[JobClass]:
    """Jobs of one graph, origin and destination together, with the cuts that are worth trying.

    Raises:
        InvalidInput: there is no route to a server, or no cut of a graph.
    """
    members: dict[tuple[DataflowGraph, str | None, str | None], list[int]] = {}
    for number, job in enumerate(problem.jobs):
        members.setdefault((job.graph, job.origin, job.destination), []).append(number)
    found = []
    for (graph, *ends), jobs in members.items():
        times = tuple(times_at(site, graph, problem.costs, *ends) for site in sites)
        tried = {cut.tobytes(): cut for at in times for cut in cuts_at(at)}
        cuts = list(tried.values())
        stages = np.array([[at.stages(cut) for at in times] for cut in cuts])
        kept = worth_trying(stages)
        check_cuts(kept, graph, problem.cluster, sites[0].terminal)
        found.append(JobClass(tuple(jobs), times, tuple(cuts[k] for k in kept), stages[kept]))
    return found


def joint_cuts(shop: Shop, rule: str) -> Choice:
    """Cuts of all jobs, sought together with their order."""
    if rule != "search":
        return shop.spread([_by_rule(shop, members, rule) for members in shop.classes])
    if shop.choices <= MOST_TRIED:
        return exhaustive(shop)[0]
    starts = [
        shop.each(lambda members: members.own_best),
        *(
            shop.spread([_by_rule(shop, members, one) for members in shop.classes])
            for one in RULES[1:]
        ),
        *balanced(shop),
    ]
    best = sorted((shop.best_order(start)[0], start) for start in set(starts))[:IMPROVED]
    return min(improved(shop, start) for _, start in best)[1]


def _by_rule(shop: Shop, members: JobClass, rule: str) -> tuple[int, ...]:
    """Cuts of one class's jobs, as if there were no others."""
    means = shop.mean[id(members)]
    front = lower_front(means[:, :2], hull=rule == "two_cuts")
    rows = means[front, :2] if shop.considered == 2 else means[front, :3]
    choose = {
        "ratio": job_cuts.ratio_rule,
        "two_cuts": job_cuts.two_cuts,
        "one_cut": job_cuts.one_cut,
    }[rule]
    return tuple(front[cut] for cut in choose(rows, len(members.jobs)))


def lower_front(points: np.ndarray, hull: bool) -> list[int]:
    """Points that no other is below in both coordinates, by ascending first one; of the lower hull alone if asked."""
    front: list[int] = []
    for point in np.lexsort((points[:, 1], points[:, 0])).tolist():
        x, y = points[point]
        if front and y >= points[front[-1]][1]:
            continue
        while hull and len(front) > 1:
            (x0, y0), (x1, y1) = points[front[-2]], points[front[-1]]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            front.pop()
        front.append(point)
    return front


def balanced(shop: Shop) -> list[Choice]:
    """Cuts of the least weighted sum of terminal and link, with the weights between which the busier of both changes,
    and all mixes of the two choices job by job.
    """

    def at(weight: float) -> tuple[Choice, bool]:
        choice = shop.each(
            lambda members: int(
                (shop.mean[id(members)][:, :2] @ np.array([weight, 1 - weight])).argmin()
            )
        )
        terminal, link = shop.means(choice)[:, :2].sum(axis=0)
        return choice, terminal > link

    low, high = 0.0, 1.0  # the heavier the terminal's time weighs, the less is left there
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[1] else (low, middle)
    ends = at(low)[0], at(high)[0]
    return [(*ends[0][:done], *ends[1][done:]) for done in range(len(ends[0]) + 1)]


def improved(shop: Shop, choice: Choice) -> tuple[float, Choice]:
    """Makespan and cuts after moving jobs to other cuts, one or two at a time, as long as that helps."""
    best = shop.best_order(choice)[0]
    left, moved = MOST_PLANS, True
    while moved and left > 0:
        moved = False
        singles = list(moves(shop, choice))
        pairs = itertools.combinations(singles, 2)
        for changes in itertools.chain(zip(singles, strict=True), pairs):
            tried = list(choice)
            for job, cut in changes:
                tried[job] = cut
            left -= 1
            makespan = shop.best_order(tuple(tried))[0]
            if makespan < best * (1 - 1e-12):
                best, choice, moved = makespan, tuple(tried), True
                break
            if left <= 0:
                break
    return best, choice


def moves(shop: Shop, choice: Choice) -> Iterator[tuple[int, int]]:
    """(job, other cut); of a class's jobs of one cut one alone is moved."""
    for members in shop.classes:
        first = {choice[job]: job for job in reversed(members.jobs)}
        for old, job in sorted(first.items()):
            yield from ((job, new) for new in range(len(members.cuts)) if new != old)


def exhaustive(shop: Shop) -> tuple[Choice, list[int]]:
    """The best of all choices of cuts, each in Johnson's order.

    Raises:
        InvalidInput: there are more than :data:`MOST_CHOICES`.
    """
    if shop.choices > MOST_CHOICES:
        raise InvalidInput(
            f"Policy 'exhaustive' would try more than {MOST_CHOICES} choices of cuts; give fewer jobs, or policy joint"
        )
    each = (itertools.combinations_with_replacement(range(cuts), jobs) for cuts, jobs in shop.sizes)
    choices = (shop.spread(counts) for counts in itertools.product(*each))
    (_, order), choice = min((shop.best_order(choice), choice) for choice in choices)
    return choice, order
