"""Devices whose operators one thread launches, one at a time.

Where one interpreter, or one thread of a host, launches the operators of several devices, launches wait for
each other although the devices do not. The launch overhead of an execution is the time for which it needs the
launcher. An execution that starts while another one is being launched waits, in the order of the starts, and begins
``launch_handover`` after that one, which is what waking the thread that waits takes.

A launcher may be free meanwhile, as CPython's interpreter is, which is not handed over but set free: who comes just
then is awake and takes it, and who waited finds it taken when woken, and sleeps on. A thread that has slept for
long makes the one that sets it free wait, so a launch that waits is passed over at most ``launch_passed`` times (0:
never).

Of a device whose launches take longer after long operators (:mod:`simulator.model.launch_cold_start`) they do so here, whether it
shares a launcher or not.

Transfers may be launched, too (:mod:`simulator.devices.launched_transfers`).

An operator may be several kernels (``launches``), one after the other and equally long: between two of them it
must have the launcher again, for no time of its own, and waits if that is busy.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from simulator.devices.constant import ExecutionModel
from simulator.model.cluster import Cluster, Device

ROUNDING = 1e-12
"""Relative, of moments."""


class LaunchClock:
    """What each launch on a device takes.

    Of several idle slots the one that was left last is taken. On a slot that has launched nothing yet the last
    launch is taken to be long ago.

    Args:
        device: whose overhead and curve count.
    """

    def __init__(self, device: Device) -> None:
        self._overhead = device.launch_overhead
        self._curve = device.launch_cooling
        self._idle = [-math.inf] * device.slots  # when the last launch on each idle slot ended
        self._ended: dict[int, float] = {}  # that of what runs

    def seconds(self, task: int, start: float) -> float:
        """Of the launch of a task that begins at ``start``."""
        if self._curve is None:
            return self._overhead
        self._ended[task] = self._idle.pop()
        return self._overhead * self._curve.factor(start - self._ended[task])

    def launched(self, task: int, at: float) -> None:
        """Its launch ends then."""
        if self._curve is not None:
            self._ended[task] = at

    def left(self, task: int) -> None:
        """A task has left its slot."""
        if self._curve is not None:
            self._idle.append(self._ended.pop(task))


class Launch:
    """A launch that waits for its launcher.

    Attributes:
        begin: when it begins, unless another comes before it.
        overhead: seconds that it takes.
        handover: seconds until it begins once the launcher is free.
        moved: called when it is to begin later.
        passes: how often others may be before it yet.
    """

    __slots__ = ("begin", "handover", "moved", "overhead", "passes")

    def __init__(
        self,
        begin: float,
        overhead: float,
        handover: float,
        passes: int,
        moved: Callable[[float], None],
    ) -> None:
        self.begin = begin
        self.overhead = overhead
        self.handover = handover
        self.moved = moved
        self.passes = passes


class Launcher:
    """Says when each launch begins."""

    def __init__(self) -> None:
        self._free = 0.0
        self._waiting: deque[Launch] = deque()

    def begin(
        self,
        now: float,
        overhead: float,
        handover: float,
        passes: int,
        moved: Callable[[float], None],
    ) -> float:
        """When a launch of ``overhead`` seconds begins that is asked for now; ``moved`` is called with the
        moment if that becomes a later one, since others were before it, at most ``passes`` times.
        """
        waiting = self._waiting
        while waiting and waiting[0].begin <= now:
            first = waiting.popleft()
            self._free = first.begin + first.overhead
        # Who comes at the very moment waits for nobody, however that moment was summed up.
        taken = self._free - now > ROUNDING * self._free
        if taken or (waiting and waiting[0].passes <= 0):
            free = waiting[-1].begin + waiting[-1].overhead if waiting else self._free
            waiting.append(Launch(free + handover, overhead, handover, passes, moved))
            return free + handover
        free = self._free = now + overhead
        for launch in waiting:
            if launch.begin >= free:
                break
            launch.passes -= 1
            launch.begin = free + launch.handover
            launch.moved(launch.begin)
            free = launch.begin + launch.overhead
        return now


class Launched:
    """A device's execution model behind its launcher, or one (None) for which no launch waits."""

    final = False

    def __init__(self, model: ExecutionModel, launcher: Launcher | None, device: Device) -> None:
        self._model = model
        self._launcher = launcher
        self._overhead = device.launch_overhead
        self._handover = device.launch_handover
        self._passed = device.launch_passed
        self._launches = 1 if launcher is None else device.launches
        self._clock = LaunchClock(device)
        self._left: dict[int, tuple[int, float]] = {}  # kernels to come, and the seconds of each
        self._latest: dict[int, Callable[[float], None]] = {}  # by task, of the launch that counts

    def begin(self, task: int, seconds: float, start: float) -> None:
        """See :class:`simulator.devices.constant.ExecutionModel`."""
        each = seconds / self._launches
        if self._launches > 1:
            self._left[task] = self._launches - 1, each
        self._launch(task, each, start, self._clock.seconds(task, start), begun=False)

    def goes_on(self, task: int, now: float) -> bool:
        """See :class:`simulator.devices.constant.ExecutionModel`."""
        left, each = self._left.pop(task, (0, 0.0))
        if not left:
            return False
        if left > 1:
            self._left[task] = left - 1, each
        self._launch(task, each, now, 0.0, begun=True)
        return True

    def end(self, task: int, now: float) -> None:
        """See :class:`simulator.devices.constant.ExecutionModel`."""
        self._left.pop(task, None)
        self._latest.pop(task, None)
        self._clock.left(task)
        self._model.end(task, now)

    def _launch(self, task: int, seconds: float, now: float, overhead: float, begun: bool) -> None:
        """A kernel of so many seconds behind a launch that is asked for now."""

        def at(moment: float) -> None:
            nonlocal begun
            if self._latest.get(task) is not at:
                return  # lost while it waited
            if begun:
                self._model.end(task, now)
            begun = True
            if overhead:
                self._clock.launched(task, moment + overhead)
            # The model adds the device's own overhead.
            self._model.begin(task, seconds, moment + (overhead - self._overhead))

        self._latest[task] = at
        if self._launcher is None:
            at(now)
        else:
            at(self._launcher.begin(now, overhead, self._handover, self._passed, at))


def launchers_of(cluster: Cluster) -> dict[str, Launcher]:
    """By name those for which a launch may have to wait."""
    return {name: Launcher() for name in _shared(cluster)}


def launched(
    cluster: Cluster, models: Sequence[ExecutionModel], launchers: Mapping[str, Launcher]
) -> list[ExecutionModel]:
    """The execution models of a cluster's devices, behind launchers where they are shared or launches cool.

    Args:
        cluster: of the devices.
        models: of its devices.
        launchers: of :func:`launchers_of`.
    """
    shared: list[Launcher | None] = [
        None if device.launcher is None else launchers.get(device.launcher)
        for device in cluster.devices
    ]
    return [
        Launched(model, launcher, device)
        if launcher is not None or device.launch_cooling is not None
        else model
        for device, model, launcher in zip(cluster.devices, models, shared, strict=True)
    ]


def shares_launchers(cluster: Cluster) -> bool:
    """Whether a launch may have to wait for another, or transfers are launched."""
    return bool(_shared(cluster)) or any(link.launcher is not None for link in cluster.links)


def _shared(cluster: Cluster) -> list[str]:
    users: Counter[str] = Counter()
    for device in cluster.devices:
        if device.launcher is not None:
            users[device.launcher] += device.slots
    for link in cluster.links:
        if link.launcher is not None:
            users[link.launcher] += 2  # one each way at least
    return [name for name, count in users.items() if count > 1]
