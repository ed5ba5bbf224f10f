"""How the speed of a machine wanders within a run, and a simulated machine whose speed does.

A shared host has phases: for tenths of a second or for ten seconds all that its cores do takes a tenth longer, or less.
A mean says nothing of them, but who waits in a queue does: what a slow phase adds to it the next fast one does not take
off. So a run of requests is simulated several times, each time with phases drawn from the executions of the panel
before and after it and the runs before it (:mod:`experiments.probes.panel`): the runs of the panel that followed each
other are one stretch, and a stretch is drawn as a whole, so that what lasts for seconds there does in the simulation.
(The block bootstrap: H. R. Kuensch, *The jackknife and the bootstrap for general stationary observations*,
Annals of Statistics 17(3), 1989, doi:10.1214/aos/1176347265.) Single runs of the panel, drawn one by one, leave out two
thirds of what the speed of five seconds differs by (docs/validation.md, "Serving on hardware").
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.engine.faults import Fault, Faults
from simulator.model.cluster import Cluster

if TYPE_CHECKING:
    from experiments.probes.panel import PanelRuns

Stretch = tuple[tuple[float, float], ...]
"""Steps that followed each other: seconds, and how many times as long as on average operators took in them."""


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
        stretches: that follow each other in any order; none: it does not wander.
        variances: of the log of the mean speed of two stretches, one for each pair that was taken for one mean.
    """

    stretches: tuple[Stretch, ...] = ()
    variances: tuple[float, ...] = ()

    @classmethod
    def of(cls, panel: PanelRuns, before: tuple[int, float], after: tuple[int, float]) -> Phases:
        """Of runs of the panel: on each device alone, then on all at once, beside the mean of all of them.

        Two stretches differ from their own mean by a square root of two less than from the mean of all that might
        have been, and so much more is taken.

        Args:
            panel: its runs.
            before: of the first stretch how many runs it has, and how many seconds it took.
            after: the same of the second.
        """
        columns = [[float(each.sum()) for each in runs] for runs in panel.alone]
        if any(panel.beside):
            beside = np.mean([[each.sum() for each in runs] for runs in panel.beside], axis=0)
            columns.append(beside.tolist())
        took = np.array(columns).T  # runs, columns
        slowness = took / took.mean(axis=0)
        first, second = slice(0, before[0]), slice(before[0], before[0] + after[0])
        apart = float(np.log(slowness[second].mean() / slowness[first].mean()))
        wider = float(np.exp((np.sqrt(2.0) - 1.0) * apart / 2.0))
        return cls(
            (
                _steps(took[first], slowness[first] / wider, before[1]),
                _steps(took[second], slowness[second] * wider, after[1]),
            ),
            (apart**2 / 4.0,),
        )

    @property
    def noise(self) -> float:
        """Standard deviation of the log of a mean of such stretches; 0 where nothing says."""
        return float(np.sqrt(np.mean(self.variances))) if self.variances else 0.0

    def __add__(self, other: Phases) -> Phases:
        return Phases(self.stretches + other.stretches, self.variances + other.variances)

    def path(self, seconds: float, rng: np.random.Generator) -> SpeedPath:
        """A drawn path of at least so many seconds, which begins within a stretch; one without steps where the speed
        does not wander.
        """
        ends: list[float] = []
        slowness: list[float] = []
        now = 0.0
        while self.stretches and now < seconds:
            steps = self.stretches[int(rng.integers(len(self.stretches)))]
            for length, slow in steps if ends else steps[int(rng.integers(len(steps))) :]:
                now += length
                ends.append(now)
                slowness.append(slow)
        return SpeedPath(tuple(ends), tuple(slowness))

    def to_json(self) -> dict[str, Any]:
        """For :meth:`of_json`."""
        return {"stretches": [*map(list, self.stretches)], "variances": list(self.variances)}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Phases:
        """What :meth:`to_json` gave."""
        return cls(
            tuple(
                tuple((float(length), float(slow)) for length, slow in steps)
                for steps in document["stretches"]
            ),
            tuple(map(float, document["variances"])),
        )


def _steps(took: np.ndarray, slowness: np.ndarray, seconds: float) -> Stretch:
    """Of a stretch that took so many seconds, of which what its runs took is a part (caches are probed between them)."""
    lengths = took.ravel() * (seconds / took.sum())
    return tuple(zip(lengths.tolist(), slowness.ravel().tolist(), strict=True))


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
