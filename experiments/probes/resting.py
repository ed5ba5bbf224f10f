"""What waking a device of this machine costs.

A worker that waits for a request sleeps, and what comes first afterwards finds other guests' data in the caches
(:mod:`simulator.devices.idle_wakeup`). So a model (:mod:`experiments.probes.probed_model`) is executed in pairs, the first of each after
a rest and the second right behind it, and their first operators are compared. The panel's first would say too little:
seven in 20 ms, 13 of which are a maximal pooling, took 0.05 ms longer where whole models took 0.4 to 1 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from experiments.probes.probed_model import ProbedModel
from simulator.model.cluster import Cluster

if TYPE_CHECKING:
    from calibration.runner import Machine

WAKE_AFTER = 12e-3
"""Seconds of rest after which all but 1 / e of the cost is due. On a third-generation EPYC with busy neighbours
MobileNetV2 and the panel took half or more of it after 10 ms, and no more of it after 120 ms than after 40."""

REST_S = 4 * WAKE_AFTER
"""Before the first execution of a pair."""

HEAD_S = 20e-3
"""Of an execution, in which what waking costs is looked for. Later operators add noise."""

PAIRS = 40
"""On each device, after one that is not counted."""


def wake_seconds(machine: Machine) -> list[float]:
    """What an execution takes longer on each device after a long rest, not below 0: of each of the first operators
    the median over the pairs on all devices of its profile, added up.
    """
    probed = ProbedModel(machine)
    devices = machine.cluster.devices
    pairs: dict[str | None, list[np.ndarray]] = {}
    for number, device in enumerate(devices):
        found = [probed.one_by_one(number, [REST_S, REST_S]).seconds for _ in range(PAIRS + 1)]
        pairs.setdefault(device.profile, []).extend(found[1:])
    longer = {profile: _longer(np.array(found)) for profile, found in pairs.items()}
    return [longer[device.profile] for device in devices]


def _longer(pairs: np.ndarray) -> float:
    """Of float64[pairs, 2, operators]."""
    first, second = pairs[:, 0], pairs[:, 1]
    head = np.cumsum(np.median(second, axis=0)) <= HEAD_S
    return max(0.0, float(np.median(first - second, axis=0)[head].sum()))


def with_waking(cluster: Cluster, seconds: Sequence[float]) -> Cluster:
    """The cluster whose devices, in order, take so many seconds to wake up from a long rest."""
    devices = [
        replace(device, wake_cost=cost, wake_after=WAKE_AFTER)
        for device, cost in zip(cluster.devices, seconds, strict=True)
    ]
    return replace(cluster, devices=devices)
