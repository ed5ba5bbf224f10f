"""What the runner needs for each operator within a segment.

There is neither completion nor decision between two operators of a segment, but arguments are gathered, results are
kept and tensors are freed, by an interpreter whose code and data the kernels have pushed out of the core's caches. So
a model (:mod:`experiments.probed_model`) is executed in turns as one segment and operator by operator, and what the
segment takes longer than its operators did is divided among them. A chain of equal kernels of one argument had said
less than 1 us where models take 4 to 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.probed_model import ProbedModel

if TYPE_CHECKING:
    from calibration.runner import Machine

TURNS = 100
"""Of each way, after one that is not counted; the median of the differences counts."""


def segment_seconds(machine: Machine) -> float:
    """Seconds that a segment takes for each of its operators beyond what the operator takes by itself, not below 0;
    0 where the first device is a GPU, whose kernels are queued while others run.
    """
    if machine.specs[0].device != "cpu":
        return 0.0
    probed = ProbedModel(machine, joined=True)
    longer = [probed.joined_seconds(0) - float(probed.seconds([0]).sum()) for _ in range(TURNS + 1)]
    return max(0.0, float(np.median(longer[1:])) / len(probed.graph))
