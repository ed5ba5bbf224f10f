"""How fast this machine is beside what its profiles say: the reference operator, timed again on each device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from simulator.cluster import Cluster
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from calibration.workers import WorkerSpec
    from cost_models.profile import Profile

SPEEDS = ("now", "profile")
"""For which speed a validation predicts."""


def check_speed(speed: str) -> None:
    """Refuse what is not one of :data:`SPEEDS`.

    Raises:
        InvalidInput: names them.
    """
    if speed not in SPEEDS:
        raise InvalidInput(f"speed={speed}: give {' or '.join(SPEEDS)}")


def slowness(
    cluster: Cluster,
    profiles: Mapping[str, Profile],
    workers: Mapping[str, WorkerSpec],
    statistic: Callable[[np.ndarray], float],
    visits: int = 20,
) -> np.ndarray | None:
    """How much longer the reference operator takes now than when profiles were measured.

    Args:
        cluster: whose devices are on this machine.
        profiles: by name.
        workers: by device.
        statistic: of the times of now; profiles hold 10th percentiles.
        visits: of the operator, 15 ms each on a core.

    Returns:
        float64[devices], from the device's profile, or any other that was measured on devices of its
        kind and says; None where none does.
    """
    from calibration.reference import reference_times

    then: dict[str, float] = {}  # by kind of device: a core that repeats kernels is a core
    for device in cluster.devices:
        profile = profiles.get(device.profile or "")
        known = profile and profile.provenance.get("reference_s")
        if profile and known and profile.provenance.get("repeat_kernel", 1) == 1:
            then.setdefault(workers[device.name].device, float(known))
    found = []
    for device in cluster.devices:
        spec = workers[device.name]
        if spec.device not in then:
            return None
        times = [reference_times(spec.device, visits, core) for core in spec.cores or (None,)]
        found.append(float(np.mean([statistic(t) for t in times])) / then[spec.device])
    return np.array(found)


def mean(times: np.ndarray) -> float:
    """What queues are made of."""
    return float(times.mean())


def tenth_percentile(times: np.ndarray) -> float:
    """What profiles hold of their samples."""
    return float(np.quantile(times, 0.1))
