"""Tier placement: each segment of a job runs in the memory space that a map names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput


class TierPlacement(Scheduler):
    """Tasks, when they are ready, to the device of their memory space that is free first (ties: the
    smaller id); a device serves them in the order in which they became ready.

    Args:
        spaces: names of memory spaces, the ``k``-th for operator ``k`` of every job's graph and the last
            for all operators behind; or such a list for each graph by name. None: where the job arises.

    Raises:
        InvalidInput: a list is empty; at the beginning of a run: a name is no memory space of the
            cluster or one without devices.

    Source: thesis 001 (a multi-exit network over terminal, edge and cloud).
    """

    name: ClassVar[str] = "tier_placement"

    def __init__(self, spaces: Sequence[str] | Mapping[str, Sequence[str]] | None = None) -> None:
        lists = (
            spaces.values()
            if isinstance(spaces, Mapping)
            else [["-"] if spaces is None else spaces]
        )
        if any(isinstance(names, str) or not names for names in lists):
            raise InvalidInput(
                "Scheduler 'tier_placement' takes spaces=[terminal, edge, cloud], or such a list for each "
                "graph by name"
            )
        self.spaces = spaces
        self._devices: dict[str, list[int]] = {}

    def begin(self, context: SchedulingContext) -> None:
        """Refuse memory spaces that cannot be."""
        cluster = context.cluster
        for device in cluster.devices:
            self._devices.setdefault(device.space, []).append(cluster.device_index[device.name])
        given = self.spaces
        lists = given.values() if isinstance(given, Mapping) else [given or ()]
        for name in dict.fromkeys(name for names in lists for name in names):
            self._in(context, name)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for task in context.placeable:
            name = self._space_of(context, task)
            able = set(context.able(task))
            devices = [device for device in self._in(context, name) if device in able]
            if not devices:
                raise InvalidInput(
                    f"No device in memory space '{name}' can run '{context.label(task)}'"
                )
            device = min(devices, key=lambda d: (context.available(d), d))
            if context.explain:
                context.explain(
                    f"{context.label(task)} -> {context.cluster.devices[device].name}: its place is {name}"
                )
            context.place(task, device)

    def _space_of(self, context: SchedulingContext, task: int) -> str:
        job = context.jobs[context.job_of(task)]
        names = self.spaces
        if isinstance(names, Mapping):
            if job.graph.name not in names:
                raise InvalidInput(
                    f"Scheduler 'tier_placement' has no memory spaces for graph '{job.graph.name}'; it has "
                    f"them for {', '.join(names)}"
                )
            names = names[job.graph.name]
        if names is None:
            space = job.origin or context.cluster.host
            return context.cluster.devices[0].space if space is None else space
        return names[min(context.operator_of(task), len(names) - 1)]

    def _in(self, context: SchedulingContext, name: str) -> list[int]:
        if name not in self._devices:
            known = ", ".join(self._devices)
            raise InvalidInput(
                f"Scheduler 'tier_placement' is to use memory space '{name}', but cluster "
                f"'{context.cluster.name}' has devices in {known}"
            )
        return self._devices[name]
