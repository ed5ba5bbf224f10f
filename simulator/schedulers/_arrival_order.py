"""What the simplest on-line schedulers share: tasks in the order in which they became ready."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler


class ArrivalOrder(Scheduler):
    """Every task at once to a device, in the order in which they became ready (ties: the smaller id)."""

    @abstractmethod
    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """The device for a task, of those that can run it."""

    @abstractmethod
    def reason(
        self, context: SchedulingContext, task: int, devices: Sequence[int], device: int
    ) -> str:
        """What speaks for the device that was chosen, in numbers."""

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for task in context.placeable:
            able = context.able(task)
            device = self.choose(context, task, able)
            if context.explain:
                name = context.cluster.devices[device].name
                why = self.reason(context, task, able, device)
                context.explain(f"{context.label(task)} -> {name}: {why}")
            context.place(task, device)


def that_work(context: SchedulingContext, devices: Sequence[int]) -> Sequence[int]:
    """Those of some devices that are up; all of them if none is."""
    return [device for device in devices if context.is_up(device)] or devices
