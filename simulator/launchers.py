"""Devices whose operators one thread launches, one at a time.

Where one interpreter, or one thread of a host, launches the operators of several devices, launches wait for
each other although the devices do not. The launch overhead of an execution is the time for which it needs the
launcher. An execution that starts while another one is being launched waits, in the order of the starts; the
launcher goes on ``launch_handover`` after that one, which is what waking the thread that waits takes, and is
busy meanwhile.

An operator may be several kernels (``launches``), one after the other and equally long: between two of them it
must have the launcher again, for no time of its own, and waits if that is busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.cluster import Cluster, Device
from simulator.execution import ExecutionModel

ROUNDING = 1e-12
"""Relative, of moments."""


class Launcher:
    """Says how long each launch waits, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._free = 0.0

    def wait(self, now: float, overhead: float, handover: float) -> float:
        """Seconds from ``now`` until a launch of ``overhead`` seconds begins; takes the launcher."""
        begin = now
        # Who comes at the very moment waits for nobody, however that moment was summed up.
        if self._free - now > ROUNDING * self._free:
            begin = self._free + handover
        self._free = begin + overhead
        return begin - now


class Launched:
    """A device's execution model behind its launcher."""

    def __init__(self, model: ExecutionModel, launcher: Launcher, device: Device) -> None:
        self._model = model
        self._launcher = launcher
        self._overhead = device.launch_overhead
        self._handover = device.launch_handover
        self._launches = device.launches
        self._left: dict[int, tuple[int, float]] = {}  # kernels to come, and the seconds of each

    def begin(self, task: int, seconds: float, start: float) -> None:
        """See :class:`simulator.execution.ExecutionModel`."""
        waited = self._launcher.wait(start, self._overhead, self._handover)
        each = seconds / self._launches
        if self._launches > 1:
            self._left[task] = self._launches - 1, each
        self._model.begin(task, each, start + waited)

    def goes_on(self, task: int, now: float) -> bool:
        """See :class:`simulator.execution.ExecutionModel`."""
        left, each = self._left.pop(task, (0, 0.0))
        if not left:
            return False
        if left > 1:
            self._left[task] = left - 1, each
        waited = self._launcher.wait(now, 0.0, self._handover)
        self._model.end(task, now)
        # The model puts the launch overhead first, which was paid before the first kernel.
        self._model.begin(task, each, now + waited - self._overhead)
        return True

    def end(self, task: int, now: float) -> None:
        """See :class:`simulator.execution.ExecutionModel`."""
        self._left.pop(task, None)
        self._model.end(task, now)


def launched(cluster: Cluster, models: Sequence[ExecutionModel]) -> list[ExecutionModel]:
    """The execution models of a cluster's devices, behind launchers where devices share one."""
    shared = _shared(cluster)
    launchers = {name: Launcher() for name in shared}
    return [
        Launched(model, launchers[device.launcher], device)
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
