"""Where a job may be cut between a terminal and servers, and what each cut costs.

A cut keeps a downward-closed set of operators on the terminal. All that stand up to some place in the graph's order
are such a set; between two articulation points, where operators branch, minimum cuts
(:mod:`simulator.planners.min_cut`) add those sets that are best for some price of the terminal's time against the
link's. Of all only those are tried that upload little for what they leave to either side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.planners.min_cut import articulation_points, min_cut

STAGES = 4
"""On the terminal, upload, on the server, results back."""
MOST_HALVED = 4
"""How often a stretch of the lower hull between two cuts is halved."""


@dataclass(frozen=True)
class Site:
    """A server as one terminal sees it.

    Attributes:
        cluster: both are in.
        terminal, server: devices.
    """

    cluster: Cluster
    terminal: int
    server: int

    @property
    def ends(self) -> tuple[int, int]:
        """Memory spaces of terminal and server."""
        return self.cluster.space_of[self.terminal], self.cluster.space_of[self.server]

    @property
    def up(self) -> int:
        """The channel that uploads queue for: the narrowest on the way."""
        return self._narrowest(*self.ends)

    @property
    def down(self) -> int:
        """The channel that results queue for."""
        return self._narrowest(*reversed(self.ends))

    def _narrowest(self, source: int, target: int) -> int:
        channels = self.cluster.route(source, target).channels
        return min(channels, key=lambda channel: self.cluster.capacities[channel])


@dataclass(frozen=True)
class Times:
    """Seconds that a graph's parts take at a site.

    Attributes:
        local, remote: float[operators], launch overheads included.
        up: float[tensors], to cross to the server; 0 for weights, and for inputs that are everywhere.
        down: float[operators], for results of each to come back; 0 where they may stay.
        delivered: results that must reach the server's memory.
    """

    site: Site
    graph: DataflowGraph
    local: np.ndarray
    remote: np.ndarray
    up: np.ndarray
    down: np.ndarray
    delivered: frozenset[int]

    def stages(self, local: np.ndarray) -> np.ndarray:
        """float[4], the seconds of a cut in each stage."""
        graph, there = self.graph, ~local
        needed = np.zeros(len(self.up), dtype=bool)
        needed[list(self.delivered)] = True
        needed[graph.reads_csr.values[there[graph.reads_csr.row_of]]] = True
        producer = graph.tensor_producer
        sent = needed & ((producer < 0) | local[producer])
        columns = self.local[local], self.up[sent], self.remote[there], self.down[there]
        return np.array([column.sum() for column in columns])


def times_at(
    site: Site,
    graph: DataflowGraph,
    costs: CostTable,
    origin: str | None,
    destination: str | None,
) -> Times:
    """What a job's parts take at a site.

    Args:
        site: where.
        graph: of the job.
        costs: of the graph on all devices.
        origin: memory space of its inputs; None: they are everywhere.
        destination: memory space that its results must reach; None: they may stay.

    Raises:
        InvalidInput: there is no route between terminal and server.
    """
    cluster, (here, there) = site.cluster, site.ends
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    seconds = costs[graph].seconds + overhead
    route, back = cluster.route(here, there), cluster.route(there, here)
    up = np.array([route.seconds(size) for size in graph.tensor_bytes.tolist()])
    up[list(graph.weights)] = 0.0
    if origin is None:
        up[list(graph.inputs)] = 0.0
    down = np.zeros(len(graph))
    if destination == cluster.spaces[here].name:
        for tensor in graph.outputs:
            if graph.producer[tensor] >= 0:
                down[graph.producer[tensor]] += back.seconds(float(graph.tensor_bytes[tensor]))
    delivered = graph.outputs if destination == cluster.spaces[there].name else ()
    columns = seconds[:, site.terminal], seconds[:, site.server]
    return Times(site, graph, *columns, up, down, frozenset(delivered))


def cuts_at(times: Times) -> list[np.ndarray]:
    """bool[operators] of each cut that is worth trying, everything remote first, everything local last."""
    count = len(times.graph)
    prefixes = [np.arange(count) < end for end in range(count + 1)]
    bounds = [0, *(point + 1 for point in articulation_points(times.graph)), count]
    found = list(prefixes)
    for first, end in itertools.pairwise(bounds):
        if end - first > 1:
            found += _inside(times, prefixes[first], prefixes[end], range(first, end))
    return found


def worth_trying(stages: np.ndarray) -> list[int]:
    """Cuts by ascending time on the terminal: at some server the best of a single job, or with the least upload of all
    that leave no more to the terminal, or of all that leave no more to the server.

    Args:
        stages: float[cuts, sites, 4], what each takes.
    """
    kept: set[int] = set()
    for site in range(stages.shape[1]):
        f, g, h, d = stages[:, site].T
        able = np.flatnonzero(np.isfinite(f + h))
        for busy in (f, h):
            least = np.inf
            for cut in able[np.lexsort((g[able], busy[able]))].tolist():
                if g[cut] < least:
                    kept.add(cut)
                    least = g[cut]
        kept |= set(able[np.argsort((f + g + h + d)[able], kind="stable")][:1].tolist())
        kept |= set(able[np.argsort(f[able], kind="stable")][[0, -1]].tolist() if len(able) else ())
    return sorted(kept, key=lambda cut: (*stages[cut, 0].tolist(), cut))


def _inside(
    times: Times, first: np.ndarray, last: np.ndarray, block: range
) -> Iterator[np.ndarray]:
    """Cuts within a block: the best one of a single job, and the lower hull of terminal against link."""
    free = np.where(np.isfinite(times.remote), 0.0, np.inf)

    def between(a: np.ndarray, b: np.ndarray, depth: int) -> Iterator[np.ndarray]:
        (f0, g0), (f1, g1) = times.stages(a)[:2], times.stages(b)[:2]
        if not (f0 < f1 and g1 < g0 and np.isfinite(f1)) or not depth:
            return
        cut = min_cut(times.graph, times.local * (g0 - g1), free, times.up * (f1 - f0), block)
        f, g = times.stages(cut.local)[:2]
        if (g0 - g1) * (f - f0) + (f1 - f0) * (g - g0) < -1e-9 * (g0 - g1) * (f1 - f0):
            yield cut.local
            yield from between(a, cut.local, depth - 1)
            yield from between(cut.local, b, depth - 1)

    yield from between(first, last, MOST_HALVED)
    if np.isfinite(np.minimum(times.local, times.remote)[block.start : block.stop]).all():
        yield min_cut(times.graph, times.local, times.remote + times.down, times.up, block).local


def check_cuts(kept: Sequence[int], graph: DataflowGraph, cluster: Cluster, terminal: int) -> None:
    """Refuse a graph without a cut.

    Raises:
        InvalidInput: names the graph and the terminal.
    """
    if not kept:
        raise InvalidInput(
            f"Graph '{graph.name}' has no cut between device '{cluster.devices[terminal].name}' and the servers of "
            f"cluster '{cluster.name}': some operator can run on neither side of it; name other devices"
        )
