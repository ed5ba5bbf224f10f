"""Clusters of unequal devices: which devices share a stage of a pipeline.

The heuristic seeds as many clusters as there are stages with the fastest devices. The next fastest device goes to the
cluster of least summed speed among those that it is connected to well enough, and where there is none to the one that
it is connected to best. Then devices change places, or move, while the slowest stage gets faster. Reconstructed.

HetPipe (Park et al., *HetPipe: Enabling large DNN training on (whimpy) heterogeneous GPU clusters*, USENIX ATC 2020)
groups devices into virtual workers by three policies: of one node each, of every node as many, or of a fast and a slow
node. Its workers are pipelines beside each other; here its policies say which devices share a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from simulator.errors import InvalidInput
from simulator.planners.stages import (
    StageProblem,
    Stages,
    best_stages,
    equal_stages,
    in_order,
)

Clusters = list[list[int]]
LAYERS = ("best", "equal")


def fastest_first(problem: StageProblem, stages: int, least_bandwidth: float = 0.0) -> Clusters:
    """The heuristic's clusters before devices change places.

    Args:
        problem: the layers and devices.
        stages: how many clusters.
        least_bandwidth: bytes per second that a device needs to every other one of its cluster, where it can.
    """
    devices = np.argsort(-problem.speed, kind="stable").tolist()
    clusters = [[device] for device in devices[:stages]]
    for device in devices[stages:]:
        bandwidth = [problem.slowest_connection([device], cluster) for cluster in clusters]
        able = [k for k in range(stages) if bandwidth[k] >= least_bandwidth]
        if able:
            chosen = min(able, key=lambda k: float(problem.speed[clusters[k]].sum()))
        else:
            chosen = int(np.argmax(bandwidth))
        clusters[chosen].append(device)
    return clusters


def refined(problem: StageProblem, clusters: Sequence[Sequence[int]]) -> Stages:
    """The best stages of clusters between which devices change places, or move, while the slowest stage gets faster."""
    best = _fitting(best_stages, problem, clusters)
    while True:
        slowest, better = np.inf if best is None else best.slowest, None
        for tried in _neighbours([list(cluster) for cluster in clusters]):
            # In the order as it stands: every order of every exchange would take long.
            found = _fitting(in_order, problem, tried)
            if found is not None and found.slowest < slowest:
                slowest, better = found.slowest, found
        if better is None:
            break
        best = best_stages(problem, [stage.devices for stage in better.stages])
        clusters = [stage.devices for stage in best.stages]
    return best_stages(problem, clusters) if best is None else best


def _neighbours(clusters: Clusters) -> Iterator[Clusters]:
    for k, cluster in enumerate(clusters):
        for other in range(len(clusters)):
            for i, mine in enumerate(cluster):
                if other != k and len(cluster) > 1:
                    moved = [list(c) for c in clusters]
                    moved[other].append(moved[k].pop(i))
                    yield moved
                for j, theirs in enumerate(clusters[other] if other > k else ()):
                    swapped = [list(c) for c in clusters]
                    swapped[k][i], swapped[other][j] = theirs, mine
                    yield swapped


def _fitting(
    made: Callable[[StageProblem, Sequence[Sequence[int]]], Stages],
    problem: StageProblem,
    clusters: Sequence[Sequence[int]],
) -> Stages | None:
    try:
        return made(problem, clusters)
    except InvalidInput:  # it does not fit into memory
        return None


def every_clustering(devices: int, stages: int) -> Iterator[Clusters]:
    """All ways to put every device into one of so many clusters, none empty, whatever their order."""

    def placed(device: int, clusters: Clusters) -> Iterator[Clusters]:
        if stages - len(clusters) > devices - device:
            return
        if device == devices:
            yield [list(cluster) for cluster in clusters]
            return
        for cluster in clusters:
            cluster.append(device)
            yield from placed(device + 1, clusters)
            cluster.pop()
        if len(clusters) < stages:
            yield from placed(device + 1, [*clusters, [device]])

    yield from placed(0, [])


def _together(problem: StageProblem, stages: int, nodes: Sequence[int], seed: int) -> Clusters:
    return [list(range(len(nodes)))]


def _one_each(problem: StageProblem, stages: int, nodes: Sequence[int], seed: int) -> Clusters:
    return [[device] for device in range(len(nodes))]


def _as_they_stand(problem: StageProblem, stages: int, nodes: Sequence[int], seed: int) -> Clusters:
    return [part.tolist() for part in np.array_split(np.arange(len(nodes)), stages)]


def _node(problem: StageProblem, stages: int, nodes: Sequence[int], seed: int) -> Clusters:
    return _members(nodes)


def _equal_distribution(
    problem: StageProblem, stages: int, nodes: Sequence[int], seed: int
) -> Clusters:
    dealt = [device for members in _members(nodes) for device in members]
    return [dealt[k::stages] for k in range(stages)]


def _hybrid(problem: StageProblem, stages: int, nodes: Sequence[int], seed: int) -> Clusters:
    known = sorted(_members(nodes), key=lambda members: -float(problem.speed[members].sum()))
    half = (len(known) + 1) // 2
    # The fastest node with the slowest one, and so on; a middle one alone.
    pairs = [
        known[at] + (known[-1 - at] if at != len(known) - 1 - at else []) for at in range(half)
    ]
    if stages < half:
        raise InvalidInput(
            f"clusters=hybrid makes at least a stage of each of {half} pairs of nodes; give {half} stages or more"
        )
    counts = [len(part) for part in np.array_split(np.arange(stages), half)]
    return [pair[k::count] for pair, count in zip(pairs, counts, strict=True) for k in range(count)]


def _random(problem: StageProblem, stages: int, nodes: Sequence[int], seed: int) -> Clusters:
    rng = np.random.default_rng(seed)
    dealt = rng.permutation(len(nodes))
    ends = np.sort(rng.choice(len(nodes) - 1, stages - 1, replace=False)) + 1
    return [sorted(part.tolist()) for part in np.split(dealt, ends)]


BASELINES: Mapping[str, Callable[[StageProblem, int, Sequence[int], int], Clusters]] = {
    "together": _together,
    "one_each": _one_each,
    "as_they_stand": _as_they_stand,
    "node": _node,
    "equal_distribution": _equal_distribution,
    "hybrid": _hybrid,
    "random": _random,
}
"""By name: pure data parallelism, a stage on each device, runs of devices, HetPipe's NP, ED and HD, random ones."""
CLUSTERS = ("fastest_first", "exhaustive", *BASELINES)


def plan_stages(
    problem: StageProblem,
    stages: int,
    clusters: str = "fastest_first",
    layers: str = "best",
    nodes: Sequence[int] | None = None,
    least_bandwidth: float = 0.0,
    seed: int = 0,
) -> Stages:
    """Stages of a pipeline on all devices.

    Args:
        problem: the layers and devices.
        stages: how many; ``together`` makes one, ``one_each`` one for each device, ``node`` one for each node, whatever is
            given.
        clusters: one of :data:`CLUSTERS`: the heuristic, all clusterings, or a baseline.
        layers: ``best`` for the clusters, in every order of up to :data:`simulator.planners.stages.ORDERS`; or
            ``equal`` numbers of them, clusters in the order as they stand.
        nodes: the node (a machine) of each device; each is its own unless given.
        least_bandwidth: see :func:`fastest_first`.
        seed: of ``random``.

    Raises:
        InvalidInput: an unknown name, a number of stages that cannot be made, or stages over their memory.
    """
    for what, value, known in (("clusters", clusters, CLUSTERS), ("layers", layers, LAYERS)):
        if value not in known:
            raise InvalidInput(f"There is no {what}={value}; known: {', '.join(known)}")
    devices = len(problem.devices.names)
    if not 1 <= stages <= devices:
        raise InvalidInput(f"{devices} devices cannot be {stages} stages; give 1 to {devices}")
    made = best_stages if layers == "best" else equal_stages
    if clusters == "exhaustive":
        found = [_fitting(made, problem, tried) for tried in every_clustering(devices, stages)]
        if any(found):
            return min(filter(None, found), key=lambda one: one.slowest)
    if clusters in BASELINES:
        home = range(devices) if nodes is None else nodes
        return made(problem, BASELINES[clusters](problem, stages, home, seed))
    chosen = fastest_first(problem, stages, least_bandwidth)
    return refined(problem, chosen) if layers == "best" else equal_stages(problem, chosen)


def _members(nodes: Sequence[int]) -> Clusters:
    return [[d for d, node in enumerate(nodes) if node == known] for known in dict.fromkeys(nodes)]


__all__ = [
    "BASELINES",
    "CLUSTERS",
    "LAYERS",
    "every_clustering",
    "fastest_first",
    "plan_stages",
    "refined",
]
