"""Offloading: jobs at a terminal, each cut somewhere, and their order, so that terminal and link are both busy.

A cut job computes on the terminal, uploads what crosses, goes on on a server and sends its results back. Jobs
follow each other through these stages as through a permutation flow shop (:mod:`simulator.planners.flow_shop`), so
that where they are cut and in which order they go is one question: Y. Duan and J. Wu, *Joint optimization of DNN
partition and scheduling for mobile cloud computing*, ICPP 2021, reconstructed and extended by general graphs, jobs
of several models, servers and results.

No graph is transformed. ``fifo`` links make the pipeline: a tensor is uploaded when its operator ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from scenarios.partition.offload_cuts import Site, Times
from scenarios.partition.offload_shop import (
    RULES,
    Choice,
    JobClass,
    Shop,
    classes_of,
    exhaustive,
    joint_cuts,
)
from scenarios.partition.partitioner import Partitioner, Problem
from simulator.errors import InvalidInput
from simulator.model.plan import Plan
from simulator.planners import flow_shop

POLICIES = (
    *("joint", "local", "cloud", "partition_only", "schedule_only"),
    *("neh", "exhaustive"),
)

Candidate = tuple[Shop, Choice, list[int]]
"""Cuts of all jobs and their order."""


class Offload(Partitioner):
    """Cuts jobs between a terminal and servers and orders them. See the module docstring.

    Args:
        policy: ``joint``: cuts and order together, never worse in what is believed than ``local``, ``cloud``,
            ``partition_only`` (each job's own best cut, jobs as they arrive) or ``schedule_only`` (the same cuts in
            Johnson's order). References: ``neh``, joint cuts in the order of Nawaz, Enscore and Ham;
            ``exhaustive``, all choices of cuts of few jobs, each in Johnson's order.
        rule: how ``joint`` and ``neh`` find cuts: ``search`` improves on all others; for the jobs of each class
            ``ratio``, ``two_cuts`` or ``one_cut`` (:mod:`simulator.planners.job_cuts`).
        stages: 3: terminal, link, servers and results; 2: cuts and orders consider terminal and link alone.
        terminal: the device where jobs begin; the fastest in the memory of their origin unless given.
        servers: devices that jobs may go on on; all outside that memory unless given.

    Raises:
        InvalidInput: an unknown policy or rule, or neither two stages nor three.
    """

    name: ClassVar[str] = "offload"

    def __init__(
        self,
        policy: str = "joint",
        rule: str = "search",
        stages: int = 3,
        terminal: str | None = None,
        servers: Sequence[str] | None = None,
    ) -> None:
        for what, value, known in (
            ("policy", policy, POLICIES),
            ("rule", rule, RULES),
            ("stages", stages, (2, 3)),
        ):
            if value not in known:
                raise InvalidInput(
                    f"Partition 'offload' has {what}={value}; known: {', '.join(map(str, known))}"
                )
        self.policy, self.rule, self.stages = policy, rule, stages
        self.terminal, self.servers = terminal, servers

    def plan(self, problem: Problem) -> Plan:
        """See :class:`scenarios.partition.partitioner.Partitioner`.

        Raises:
            InvalidInput: jobs begin in several memories or nowhere, there is no server or no route to one, or a
                graph has no cut.
        """
        sites = self._sites(problem)
        # Several servers together are not always better than the best alone.
        groups = [sites, *([site] for site in sites if len(sites) > 1)]
        classes = classes_of(problem, sites)
        candidates = [
            candidate
            for group in groups
            for candidate in self._candidates([c.at(group) for c in classes], group)
        ]
        evaluator = problem.evaluator()
        plans = [evaluator.plan(self.name, *placed(*candidate)) for candidate in candidates]
        best = min(range(len(plans)), key=lambda number: plans[number].makespan_s)
        found, (shop, choice, order) = plans[best], candidates[best]
        notes = {
            "policy": self.policy,
            "order": order,
            "local_operators": [
                int(shop.class_of[job].cuts[cut].sum()) for job, cut in enumerate(choice)
            ],
            "flow_shop_s": shop.dispatch(choice, order)[0],
        }
        return replace(found, notes=notes)

    def _candidates(self, classes: Sequence[JobClass], sites: Sequence[Site]) -> list[Candidate]:
        """What is held against each other; of ``joint`` the baselines too."""
        shop = Shop(classes, sites, self.stages)
        arriving = list(range(len(shop.class_of)))
        own = shop.each(lambda members: members.own_best)
        found: list[tuple[Choice, list[int]]] = []
        if self.policy in ("local", "joint"):
            found.append((shop.each(lambda members: members.extremes[1]), arriving))
        if self.policy in ("cloud", "joint"):
            found.append((shop.each(lambda members: members.extremes[0]), arriving))
        if self.policy in ("partition_only", "joint"):
            found.append((own, arriving))
        if self.policy in ("schedule_only", "joint"):
            found += [(own, order) for order in shop.orders(own)]
        if self.policy == "joint":
            choice = joint_cuts(shop, self.rule)
            found += [(choice, order) for order in shop.orders(choice)]
        elif self.policy == "neh":
            choice = joint_cuts(shop, self.rule)
            found.append((choice, flow_shop.neh(shop.means(choice))))
        elif self.policy == "exhaustive":
            found.append(exhaustive(shop))
        return [(shop, choice, order) for choice, order in found]

    def _sites(self, problem: Problem) -> list[Site]:
        cluster = problem.cluster
        origins = {job.origin or cluster.host for job in problem.jobs}
        if len(origins) != 1 or None in origins:
            raise InvalidInput(
                f"Partition 'offload' takes jobs that begin in one memory, got {', '.join(sorted(map(str, origins)))}; "
                "give the cluster a host, or all jobs one origin"
            )
        for name in (self.terminal, *(self.servers or ())):
            if name is not None and name not in cluster.device_index:
                raise InvalidInput(
                    f"Partition 'offload' names device '{name}', which cluster '{cluster.name}' lacks; it has "
                    f"{', '.join(cluster.device_index)}"
                )
        home = cluster.space_index[str(origins.pop())]
        devices = range(len(cluster.devices))
        near = [d for d in devices if cluster.space_of[d] == home]
        if self.terminal is not None:
            near = [cluster.device_index[self.terminal]]
        if not near:
            raise InvalidInput(
                f"Cluster '{cluster.name}' has no device in memory '{cluster.spaces[home].name}', where jobs begin; "
                "name partition.options.terminal"
            )
        total = sum(problem.costs[graph].seconds.sum(axis=0) for graph in problem.graphs)
        terminal = min(near, key=lambda d: (float(np.asarray(total)[d]), d))
        far = [d for d in devices if cluster.space_of[d] != cluster.space_of[terminal]]
        if self.servers is not None:
            far = [cluster.device_index[name] for name in self.servers]
            if any(cluster.space_of[d] == cluster.space_of[terminal] for d in far):
                raise InvalidInput(
                    f"A server of partition 'offload' lies in the memory of terminal '{cluster.devices[terminal].name}'; "
                    "name devices of other memories"
                )
        if not far:
            raise InvalidInput(
                f"Cluster '{cluster.name}' has no device outside memory "
                f"'{cluster.devices[terminal].space}', which jobs could be offloaded to; add a server"
            )
        return [Site(cluster, terminal, server) for server in far]


def placed(shop: Shop, choice: Choice, order: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Device and order of all tasks."""
    used = shop.dispatch(choice, order)[1]
    graphs = [members.times[0].graph for members in shop.class_of.values()]
    first = [0, *itertools.accumulate(map(len, graphs))]
    device = np.empty(first[-1], dtype=np.int64)
    inner: dict[tuple[int, int, int], np.ndarray] = {}  # jobs of one class, cut and site are alike
    tasks: list[np.ndarray] = []
    for job in order:
        members = shop.class_of[job]
        cut, times = members.cuts[choice[job]], members.times[used[job]]
        site = shop.sites[used[job]]
        device[first[job] : first[job + 1]] = np.where(cut, site.terminal, site.server)
        key = id(members), choice[job], used[job]
        if key not in inner:
            inner[key] = np.array(pipelined_operators(times, cut))
        tasks.append(first[job] + inner[key])
    return device, np.concatenate(tasks)


def pipelined_operators(times: Times, local: np.ndarray) -> list[int]:
    """A job's operators in an order in which uploads begin early.

    Parts of the terminal's side that have nothing to do with each other, such as the subtrees of a tree, are jobs of a
    flow shop of their own: Johnson's rule orders them. The server's side follows in the order in which its inputs come.
    """
    graph = times.graph
    part = np.arange(len(graph))

    def root(operator: int) -> int:
        while part[operator] != operator:
            operator = int(part[operator])
        return operator

    for operator in np.flatnonzero(local).tolist():
        for before in graph.predecessors[operator]:
            part[root(before)] = root(operator)
    roots = {operator: root(operator) for operator in np.flatnonzero(local).tolist()}
    parts = list(dict.fromkeys(roots.values()))
    rows = np.zeros((len(parts), 2))
    crossing = {t for i in np.flatnonzero(~local).tolist() for t in graph.reads[i]}
    for operator, owner in roots.items():
        rows[parts.index(owner), 0] += times.local[operator]
        rows[parts.index(owner), 1] += sum(
            times.up[t] for t in graph.writes[operator] if t in crossing
        )
    turn = {parts[p]: rank for rank, p in enumerate(flow_shop.johnson(rows))} if parts else {}
    key = [0] * len(graph)
    for operator in range(len(graph)):
        inputs = [key[before] for before in graph.predecessors[operator]]
        key[operator] = turn[roots[operator]] if local[operator] else max(inputs, default=0)
    return sorted(range(len(graph)), key=lambda operator: (not local[operator], key[operator]))
