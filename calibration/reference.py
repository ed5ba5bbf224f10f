"""The operator by which a machine's speed is held against another hour's.

Every measuring process repeats it, and a profile keeps what it took. Timing it again beside anything else
that is measured says whether the machine is as fast as it was then: on shared hosts it is not, by 3 to 15%
from one hour to the next.
"""

from __future__ import annotations

import numpy as np

from calibration.environment import alone_on
from calibration.samples import OperatorSample
from calibration.timing import timer
from simulator.model.operator import Operator, TensorSpec


def reference_operator() -> OperatorSample:
    """The operator that every round repeats: a matrix product of 0.27 GFLOP, neither tiny nor long."""
    x, weight = TensorSpec((256, 512)), TensorSpec((1024, 512))
    reads = (x, weight)
    operator = Operator(
        "reference",
        "linear",
        inputs=reads,
        outputs=(TensorSpec((256, 1024)),),
        target="aten.linear.default",
        template={"args": [{"read": 0, "views": []}, {"read": 1, "views": []}], "kwargs": {}},
        reads=reads,
    )
    return OperatorSample(operator, weights=(1,))


def reference_seconds(device: str = "cpu", visits: int = 20, core: int | None = None) -> float:
    """What the reference operator takes on one core or GPU now: the 10th percentile, state ``graph``.

    Args:
        device: ``cpu`` or ``cuda:<index>``.
        visits: how often it is timed, 15 ms each on a core.
        core: where, of a CPU; None: where this thread runs.
    """
    return float(np.quantile(reference_times(device, visits, core), 0.1))


def reference_times(device: str = "cpu", visits: int = 20, core: int | None = None) -> np.ndarray:
    """float64[visits]: seconds of the reference operator in every visit; see :func:`reference_seconds`."""
    with alone_on(core):
        return _timed(device, visits)


def _timed(device: str, visits: int) -> np.ndarray:
    import torch

    from calibration.kernels import build
    from calibration.random_tensors import random_reads

    sample = reference_operator()
    kernel = build(sample.operator, device)
    clock = timer(device, ("graph",))
    with torch.inference_mode():
        reads = random_reads(sample.operator, device)
        return np.array(
            [
                timing.seconds
                for _ in range(visits)
                for timing in clock.visit(lambda given: kernel(*given), reads, sample.weights)
            ]
        )
