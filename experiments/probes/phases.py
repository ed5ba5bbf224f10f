"""How the speed of a machine wanders within a run, and a simulated machine whose speed does.

A shared host has phases: for some tenths of a second all that its cores do takes a tenth longer, or less. A mean says
nothing of them, but who waits in a queue does: what a slow phase adds to it the next fast one does not take off. So
a run of requests is simulated several times, each time with phases drawn from the executions of the panel around it
(:mod:`experiments.probes.machine_speed`), whole runs of the panel at a time, so that what follows each other there does
in the simulation. (The block bootstrap: H. R. Kuensch, *The jackknife and the bootstrap for general stationary
observations*, Annals of Statistics 17(3), 1989, doi:10.1214/aos/1176347265.)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.cluster import Cluster
from simulator.faults import Fault, Faults

if TYPE_CHECKING:
    from experiments.probes.panel import PanelRuns

Block = tuple[tuple[float, float], ...]
"""Of one run of the panel: seconds, and how many times as long as on average operators took in them."""


@dataclass(frozen=True)
class SpeedPath:
    """A speed that changes in steps.

    Attributes:
        ends: at which seconds each step ends, ascending; before the first it begins at 0, after the last operators
            take as long as on average.
        slowness: how many times as long as on average they take in each.
    """

    ends: tuple[float, ...]
    slowness: tuple[float, ...]

    @property
    def fastest(self) -> float:
        """The least slowness; 1 where there are no steps."""
        return min((*self.slowness, 1.0))

    def faults(self, cluster: Cluster) -> Faults:
        """Every device of a cluster slowed from the fastest step's speed, of which times are to be."""
        fastest, events = self.fastest, []
        starts = (0.0, *self.ends)
        steps = [*zip(starts, self.ends, self.slowness, strict=False), (starts[-1], np.inf, 1.0)]
        for device in cluster.devices:
            for start, end, slowness in steps:
                if slowness > fastest:
                    left = fastest / slowness
                    events.append(Fault("device_slowdown", device.name, start, end, left))
        return Faults(events)


@dataclass(frozen=True)
class Phases:
    """What the speed may do in a run.

    Attributes:
        blocks: that follow each other in any order; none: it does not wander.
    """

    blocks: tuple[Block, ...] = ()

    @classmethod
    def of(cls, panel: PanelRuns) -> Phases:
        """Of runs of the panel: on each device alone, then on all at once."""
        alone = [[float(each.sum()) for each in runs] for runs in panel.alone]
        columns = list(alone)
        if any(panel.beside):
            beside = np.mean([[each.sum() for each in runs] for runs in panel.beside], axis=0)
            columns.append(beside.tolist())
        means = [float(np.mean(column)) for column in columns]
        rows = zip(*columns, strict=True)
        return cls(
            tuple(tuple((s, s / m) for s, m in zip(row, means, strict=True)) for row in rows)
        )

    def path(self, seconds: float, rng: np.random.Generator) -> SpeedPath:
        """A drawn path of at least so many seconds; one without steps where the speed does not wander."""
        ends: list[float] = []
        slowness: list[float] = []
        now = 0.0
        while self.blocks and now < seconds:
            for length, slow in self.blocks[int(rng.integers(len(self.blocks)))]:
                now += length
                ends.append(now)
                slowness.append(slow)
        return SpeedPath(tuple(ends), tuple(slowness))


def windowed(
    start: np.ndarray, finish: np.ndarray, slowness: np.ndarray, width: float
) -> SpeedPath:
    """The path that executions have shown, in windows.

    Args:
        start: float64[executions] seconds.
        finish: of the same.
        slowness: how many times as long as on average each took.
        width: of a window, seconds.

    Returns:
        For each window what was worked in it over what that would take on average: the harmonic mean of the
        executions' slowness, by their seconds in it; 1 where nothing was executed.
    """
    count = int(np.ceil(float(finish.max()) / width)) if len(finish) else 0
    edges = [number * width for number in range(count + 1)]
    found: list[float] = []
    for low, high in itertools.pairwise(edges):
        inside = np.clip(np.minimum(finish, high) - np.maximum(start, low), 0.0, None)
        worked = float((inside / slowness).sum())
        found.append(float(inside.sum()) / worked if worked > 0 else 1.0)
    return SpeedPath(tuple(edges[1:]), tuple(found))
