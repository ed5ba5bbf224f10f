"""Devices that are slower after a rest.

A core that nobody needs sleeps: another takes its place on the processor, fills its caches, and its clock falls.
The first operators when it is needed again pay for it. An execution on a slot that was idle for ``t`` seconds takes
``wake_cost (1 - exp(-t / wake_after))`` longer, whatever it executes; a slot that has executed nothing yet is idle
from the beginning of the run. Of several idle slots the one that was left last is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.devices.constant import ExecutionModel
from simulator.model.cluster import Cluster, Device


class Woken:
    """A device's execution model behind what waking it costs."""

    final = False

    def __init__(self, model: ExecutionModel, device: Device) -> None:
        self._model = model
        self._cost = device.wake_cost
        self._after = device.wake_after
        self._idle_since = [0.0] * device.slots

    def begin(self, task: int, seconds: float, start: float) -> None:
        """See :class:`simulator.devices.constant.ExecutionModel`."""
        idle = start - self._idle_since.pop()
        woken = self._cost * -math.expm1(-idle / self._after)
        self._model.begin(task, seconds + woken, start)

    def goes_on(self, task: int, now: float) -> bool:
        """See :class:`simulator.devices.constant.ExecutionModel`."""
        return self._model.goes_on(task, now)

    def end(self, task: int, now: float) -> None:
        """See :class:`simulator.devices.constant.ExecutionModel`."""
        self._idle_since.append(now)
        self._model.end(task, now)


def woken(cluster: Cluster, models: Sequence[ExecutionModel]) -> list[ExecutionModel]:
    """The execution models of a cluster's devices, behind waking where that costs something."""
    return [
        Woken(model, device) if device.wake_cost else model
        for device, model in zip(cluster.devices, models, strict=True)
    ]
