"""What a worker that had to wait for the interpreter waits beyond that: the time that waking it takes.

A worker that comes back from a kernel while another is between two of its own sleeps until that one has begun its next
kernel, which sets the interpreter free, and must be woken. So the end of a kernel on one worker is found right behind
the beginning of one on the other more often than at other times, and how far behind is the hand-over. It is looked
for between two workers that execute a model each (:mod:`experiments.probes.probed_model`).

What two chains of short kernels take longer beside each other than alone says something else. On an Intel Xeon whose
two processors may be one core's, so that all that both do takes longer, such chains would need 70 us for a hand-over,
where kernels ended 40 us behind beginnings, and simulated with the 70 four jobs under on-line schedulers were 4% too
long (docs/validation/findings.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.probes.probed_model import ProbedModel
from simulator.model.trace import Trace

if TYPE_CHECKING:
    from calibration.runner import Machine

RUNS = 12
"""After one that is not counted."""
LONGEST_S = 1.2e-4
"""A longer hand-over is no waking of a thread."""
LATER_S = 1.5e-4
"""Behind a beginning nobody waits for the interpreter any more."""
STEP_S = 2.5e-6
SURE = 3.0
"""Standard deviations by which more must be found than by chance."""


@dataclass(frozen=True)
class Ends:
    """How the first end on one device comes behind certain moments of a kernel on the other.

    Attributes:
        counts: int[steps] ends, by how far behind, in steps of :data:`STEP_S` up to :data:`LONGEST_S`.
        at_risk: float64[steps], of how many moments an end was still to come and the kernel still running.
    """

    counts: np.ndarray
    at_risk: np.ndarray

    def __add__(self, other: Ends) -> Ends:
        return Ends(self.counts + other.counts, self.at_risk + other.at_risk)


def handover_seconds(machine: Machine, model: ProbedModel, runs: int = RUNS) -> float | None:
    """Seconds until a worker that had to wait for the interpreter goes on, the mean.

    Args:
        machine: whose first two CPU devices, in the order of its cluster, execute.
        model: on it.
        runs: counted.

    Returns:
        0 where none is seen to wait; None where there are no two CPU devices.
    """
    from calibration.one_by_one import OneByOne

    workers = [index for index, spec in enumerate(machine.specs) if spec.device == "cpu"][:2]
    if len(workers) < 2:
        return None
    one, other = workers
    places = [one, other, one, one]  # a slower worker is not alone for long
    traces = [model.trace([0.0] * len(places), OneByOne(places)) for _ in range(runs + 1)]
    return handover(traces[1:], (one, other))


def handover(traces: Sequence[Trace], pair: tuple[int, int] = (0, 1)) -> float:
    """The mean hand-over of runs on a pair of devices; 0 where ends are not more frequent behind beginnings."""
    behind = sum((ends_behind(trace, 0.0, pair) for trace in traces), _NONE)
    otherwise = sum((ends_behind(trace, LATER_S, pair) for trace in traces), _NONE)
    if not otherwise.at_risk.sum():
        return 0.0
    chance = behind.at_risk * (otherwise.counts.sum() / otherwise.at_risk.sum())
    more = behind.counts - chance
    # Right behind a beginning the interpreter is not free yet, and there are fewer ends than by chance.
    added = np.concatenate([[0.0], np.cumsum(more)])
    first = int(np.argmin(added))
    last = first + int(np.argmax(added[first:]))
    total = added[last] - added[first]
    if total <= SURE * np.sqrt(chance.sum()):
        return 0.0
    middles = (np.arange(first, last) + 0.5) * STEP_S
    return float((more[first:last] * middles).sum() / total)


def ends_behind(trace: Trace, seconds: float, pair: tuple[int, int] = (0, 1)) -> Ends:
    """First ends on each of a pair of devices behind the moments ``seconds`` after kernels on the other began."""
    rows, found = trace.executions, _NONE
    for device, partner in (pair, pair[::-1]):
        mine, others = rows["device"] == device, rows["device"] == partner
        ends = np.append(np.sort(rows["finish"][mine]), np.inf)
        moments = rows["start"][others] + seconds
        stops = rows["finish"][others] - moments
        moments, stops = moments[stops > 0], stops[stops > 0]
        lag = ends[np.searchsorted(ends, moments)] - moments
        counts = np.histogram(lag[lag <= stops], _EDGES)[0]
        # At risk throughout a step who is at its middle.
        until = np.sort(np.minimum(lag, stops))
        at_risk = len(until) - np.searchsorted(until, (_EDGES[1:] + _EDGES[:-1]) / 2)
        found += Ends(counts, at_risk.astype(np.float64))
    return found


_EDGES = np.arange(round(LONGEST_S / STEP_S) + 1) * STEP_S
_NONE = Ends(np.zeros(len(_EDGES) - 1), np.zeros(len(_EDGES) - 1))
