"""Devices whose operators one thread launches, one at a time.

Where one interpreter, or one thread of a host, launches the operators of several devices, launches wait for
each other although the devices do not. The launch overhead of an execution is the time for which it needs the
launcher. An execution that starts while another one is being launched waits, in the order of the starts; the
launcher goes on ``launch_handover`` after that one, which is what waking the thread that waits takes, and is
busy meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.cluster import Cluster
from simulator.execution import ExecutionModel


class Launcher:
    """Says how long each launch waits, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._free = 0.0

    def wait(self, now: float, overhead: float, handover: float) -> float:
        """Seconds from ``now`` until a launch of ``overhead`` seconds begins; takes the launcher."""
        begin = now
        if now < self._free:
            begin = self._free + handover
        self._free = begin + overhead
        return begin - now


class Launched:
    """A device's execution model behind its launcher."""

    def __init__(
        self, model: ExecutionModel, launcher: Launcher, overhead: float, handover: float
    ) -> None:
        self._model = model
        self._launcher = launcher
        self._overhead = overhead
        self._handover = handover

    def begin(self, task: int, seconds: float, start: float) -> None:
        """See :class:`simulator.execution.ExecutionModel`."""
        waited = self._launcher.wait(start, self._overhead, self._handover)
        self._model.begin(task, seconds, start + waited)

    def end(self, task: int) -> None:
        """See :class:`simulator.execution.ExecutionModel`."""
        self._model.end(task)


def launched(cluster: Cluster, models: Sequence[ExecutionModel]) -> list[ExecutionModel]:
    """The execution models of a cluster's devices, behind launchers where devices share one."""
    shared = _shared(cluster)
    launchers = {name: Launcher() for name in shared}
    return [
        Launched(model, launchers[device.launcher], device.launch_overhead, device.launch_handover)
        if device.launcher in launchers
        else model
        for device, model in zip(cluster.devices, models, strict=True)
    ]


def shares_launchers(cluster: Cluster) -> bool:
    """Whether a launch may have to wait for another."""
    return bool(_shared(cluster))


def _shared(cluster: Cluster) -> list[str]:
    slots: Counter[str] = Counter()
    for device in cluster.devices:
        if device.launcher is not None:
            slots[device.launcher] += device.slots
    return [name for name, count in slots.items() if count > 1]
