"""Requests to a multi-exit network: jobs whose graph ends where their sample leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.serving.exit_graphs import ExitGraph, tier_devices
from scenarios.serving.exit_positions import Placement
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.workload import Job, Workload


@dataclass(frozen=True)
class ExitRequests:
    """What the simulator takes.

    Attributes:
        workload: the requests.
        costs: of their graphs.
        spaces: by graph name the memory space of each segment, for the scheduler ``tier_placement``.
        leaves: of each request the layer after which it leaves.
    """

    workload: Workload
    costs: CostTable
    spaces: Mapping[str, list[str]]
    leaves: tuple[int, ...]


def exit_requests(
    graph: ExitGraph,
    costs: GraphCosts,
    cluster: Cluster,
    tiers: Sequence[str],
    placement: Placement,
    leaving: Sequence[float],
    arrivals: Sequence[float],
    seed: int,
) -> ExitRequests:
    """Requests from the terminal, whose answers return there.

    Args:
        graph: the network.
        costs: of its graph on the cluster's devices.
        cluster: with the three tiers.
        tiers: memory spaces of terminal, edge and cloud.
        placement: cuts and exits.
        leaving: share of the samples that leave at each exit and, last, at the final one.
        arrivals: seconds, ascending.
        seed: of where each request leaves; the shares are met as nearly as so many requests can.

    Raises:
        InvalidInput: see :func:`scenarios.serving.exit_graphs.tier_devices`.
    """
    tier_devices(cluster, tiers)
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    ends = (*placement.exits, len(graph.layers))
    rng, count = np.random.default_rng([seed, 7]), len(arrivals)
    # One draw in each of as many equal strata, in random order: shares are met within 1 / count.
    draws = (rng.permutation(count) + rng.random(count)) / count
    limits = np.cumsum(leaving)[:-1]
    leaves = [ends[k] for k in np.searchsorted(limits, draws, side="right").tolist()]
    jobs = {end: graph.job(placement, end, costs, overhead) for end in sorted(set(leaves))}
    workload = Workload(
        [
            Job(
                jobs[end].graph,
                time,
                batch=graph.graph.batch,
                origin=tiers[0],
                destination=tiers[0],
            )
            for time, end in zip(arrivals, leaves, strict=True)
        ]
    )
    table = CostTable({job.graph: job.costs for job in jobs.values()})
    spaces = {job.graph.name: [tiers[tier] for tier in job.tiers] for job in jobs.values()}
    return ExitRequests(workload, table, spaces, tuple(leaves))
