"""What the runner needs for a segment, and for each operator within it.

There is neither completion nor decision between two operators of a segment, but arguments are gathered, results are
kept and tensors are freed, by an interpreter whose code and data the kernels have pushed out of the core's caches. So
a model (:mod:`experiments.probes.probed_model`) is executed in turns as one segment and operator by operator, and what the
segment takes longer than its operators did is divided among them.

Between two segments on a device a request's results are handed over, tensors are freed and the scheduler decides, all of
it with code that a whole model has pushed out: .1 to .2 ms, where a chain of single operators had said .02. And the
first segment after a rest starts when the thread that lets requests in has been woken, has decided, and has woken the
worker, and a virtual machine its processors: half a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from experiments.probes.probed_model import ProbedModel
from experiments.probes.resting import REST_S

if TYPE_CHECKING:
    from calibration.runner import Machine
    from simulator.context.scheduler import Scheduler

TURNS = 100
"""Of each way, after one that is not counted; the median of the differences counts."""
STARTS = 40
"""On each device, after one that is not counted."""
BURSTS, BURST = 4, 24
"""Of requests at once, after one that is not counted, and how many are in each."""


def segment_seconds(machine: Machine) -> float:
    """Seconds that a segment takes for each of its operators beyond what the operator takes by itself, not below 0;
    0 where the first device is a GPU, whose kernels are queued while others run.
    """
    if machine.specs[0].device != "cpu":
        return 0.0
    probed = ProbedModel(machine, joined=True)
    longer = []
    for _ in range(TURNS + 1):
        joined = probed.one_by_one(0, [0.0], joined=True).seconds.sum()
        longer.append(float(joined - probed.one_by_one(0, [0.0]).seconds.sum()))
    return max(0.0, float(np.median(longer[1:])) / len(probed.graph))


def start_seconds(machine: Machine) -> float:
    """Mean seconds from a request's arrival to the start of its segment on a device that has rested."""
    probed = ProbedModel(machine, joined=True)
    devices = range(len(machine.cluster.devices))
    late = [
        float(probed.one_by_one(device, [REST_S], joined=True).start[0, 0]) - REST_S
        for _ in range(STARTS + 1)
        for device in devices
    ]
    return float(np.mean(late[len(devices) :]))


def task_seconds(machine: Machine, make_scheduler: Callable[[], Scheduler]) -> float:
    """Mean seconds between the end of a segment and the start of the next one on the same device, requests waiting.

    Args:
        machine: any.
        make_scheduler: gives a fresh scheduler, whose decisions are among them.
    """
    probed = ProbedModel(machine, joined=True)
    gaps: list[float] = []
    for number in range(BURSTS + 1):
        times = probed.run([0.0] * BURST, make_scheduler(), joined=True)
        for device in np.unique(times.device) if number else ():
            mine = times.device == device
            start, finish = np.sort(times.start[mine, 0]), np.sort(times.finish[mine, 0])
            gaps += (start[1:] - finish[:-1]).tolist()
    return float(np.mean(gaps))
