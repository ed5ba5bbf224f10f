"""What waking a device of this machine costs, by the panel.

A worker that waits for a request sleeps, and what comes first afterwards finds other guests' data in the caches
(:mod:`simulator.waking`). So the panel (:mod:`scenarios.models.panel`) is executed in pairs, the first of each after a
rest and the second right behind it, and their first operators are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simulator.cluster import Cluster

if TYPE_CHECKING:
    from experiments.machine_speed import PanelRuns

WAKE_AFTER = 12e-3
"""Seconds of rest after which all but 1 / e of the cost is due. On a third-generation EPYC with busy neighbours
MobileNetV2 and the panel took half or more of it after 10 ms, and no more of it after 120 ms than after 40."""

REST_S = 4 * WAKE_AFTER
"""Before the first execution of a pair."""

HEAD_S = 20e-3
"""Of a panel's execution, in which what waking costs is looked for. Later operators add noise."""

PAIRS = 16
"""On each device, after one that is not counted."""


def wake_seconds(panel: PanelRuns) -> list[float]:
    """What an execution takes longer on each device after a long rest: the median over the pairs on all devices of its
    profile, not below 0.
    """
    longer: dict[str | None, list[float]] = {}
    devices = panel.machine.cluster.devices
    for number, device in enumerate(devices):
        pairs = [panel.behind_each_other(number, REST_S) for _ in range(PAIRS + 1)][1:]
        found = longer.setdefault(device.profile, [])
        found += [_longer(first, second) for first, second in pairs]
    return [max(0.0, float(np.median(longer[device.profile]))) for device in devices]


def _longer(first: np.ndarray, second: np.ndarray) -> float:
    head = np.cumsum(second) <= HEAD_S
    return float((first - second)[head].sum())


def with_waking(cluster: Cluster, seconds: Sequence[float]) -> Cluster:
    """The cluster whose devices, in order, take so many seconds to wake up from a long rest."""
    devices = [
        replace(device, wake_cost=cost, wake_after=WAKE_AFTER)
        for device, cost in zip(cluster.devices, seconds, strict=True)
    ]
    return replace(cluster, devices=devices)
