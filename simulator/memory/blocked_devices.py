"""Devices whose next task finds no room in their memory, and who hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun


class BlockedDevices:
    """Of a run; devices, tasks and spaces are its numbers."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self.all: dict[int, tuple[int, int]] = {}
        """Device -> its task, bytes that this would write."""
        self._told: dict[int, int] = {}  # device -> the task that the scheduler was told of

    def block(self, device: int, task: int, size: int) -> None:
        """A task cannot start; the scheduler is told once of each."""
        self.all[device] = (task, size)
        if self._told.get(device) != task:
            self._told[device] = task
            self.ask_scheduler()

    def free(self, device: int) -> None:
        """Its next task may be tried."""
        self.all.pop(device, None)

    def withdrawn(self, task: int, device: int) -> None:
        """A task is in the device's queue no more."""
        if self.all.get(device, (-1, 0))[0] == task:
            del self.all[device]

    def heads(self) -> list[tuple[int, int, int]]:
        """Device, task and bytes wherever the head of a queue waits for room."""
        return [
            (device, task, size)
            for device, (task, size) in sorted(self.all.items())
            if self._run.head(device) == task
        ]

    def try_again(self, space: int) -> None:
        """Room was given back: let the blocked devices of a space see whether they can start."""
        space_of = self._run.cluster.space_of
        self._run.touched |= {d for d in self.all if space_of[d] == space}

    def try_all(self, space: int) -> None:
        """Data has come: let every device of a space see whether it can start something."""
        self._run.touched |= {d for d, s in enumerate(self._run.cluster.space_of) if s == space}

    def ask_scheduler(self) -> None:
        """Let it decide once more at this instant: something waits for room."""
        self._run._wake(self._run.now)
