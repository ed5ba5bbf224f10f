"""A graph on all devices of a cluster at once, to learn what they cost each other.

Devices that are equal and begin together end each operator at the same time, all the way through: each time all
but one of them wait for the interpreter, and all read weights while the others do. On two cores a panel of 351
operators that began on both at once took 12% longer than on one, begun half a panel apart 6%. So equal devices begin
apart and execute the graph once more, and what is looked at is one execution of each operator during which all
devices were busy, behind executions of the same graph as what it is held against.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload

ROUNDING = 0.1
"""Of an execution that a slower device may be idle at the end: its seconds are known about."""


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Executions of a graph on all devices of a cluster.

    Attributes:
        devices: of the jobs, in their order.
        jobs: what is executed.
        begins: seconds at which each device begins.
        equals: of each device whether there are others of its profile.
    """

    devices: tuple[int, ...]
    jobs: Workload
    begins: tuple[float, ...]
    equals: tuple[bool, ...]

    @classmethod
    def of(
        cls, graph: DataflowGraph, cluster: Cluster, lengths: Sequence[float], before: int = 0
    ) -> SideBySide:
        """Devices whose profiles are equal begin equal parts of the graph's time apart.

        Args:
            graph: any.
            cluster: any.
            lengths: seconds that the graph takes on each device, about.
            before: executions on the fastest device before the one that counts; slower devices are busy meanwhile.
        """
        profiles = [device.profile for device in cluster.devices]
        equals = [profiles.count(profile) for profile in profiles]
        # Equal devices' times may differ by chance.
        times = [lengths[profiles.index(profile)] for profile in profiles]
        begins = tuple(
            times[device] * profiles[:device].count(profile) / equals[device]
            for device, profile in enumerate(profiles)
        )
        counts = [
            max(1, math.ceil((before + 1) * min(times) / own - ROUNDING)) + (equal > 1)
            for own, equal in zip(times, equals, strict=True)
        ]
        order = sorted(range(len(profiles)), key=lambda device: begins[device])
        devices = tuple(device for device in order for _ in range(counts[device]))
        jobs = [
            Job(graph, begins[device], origin=cluster.host, destination=cluster.host)
            for device in devices
        ]
        return cls(devices, Workload(jobs), begins, tuple(count > 1 for count in equals))

    def length(self, each: Sequence[float] | np.ndarray) -> float:
        """Seconds until all have ended, of which one execution takes so many on each device."""
        rest = [0.0 for _ in self.begins]
        for device in self.devices:
            rest[device] += float(each[device])
        return max(begin + own for begin, own in zip(self.begins, rest, strict=True))

    def rows(self, trace: Trace) -> np.ndarray:
        """int[devices, operators]: which execution of a trace of these jobs counts for each device and operator: on
        a device that has no equals the last, on others the last but one, or where that began when not all devices
        had, the last.
        """
        table = trace.executions
        found = np.empty((len(self.jobs), int(table["operator"].max()) + 1), dtype=np.int64)
        found[table["job"], table["operator"]] = np.arange(len(table["job"]))
        chosen = []
        for device in range(len(self.begins)):
            mine = [found[job] for job, at in enumerate(self.devices) if at == device]
            if self.equals[device]:
                late = table["start"][mine[-2]] >= max(self.begins)
                chosen.append(np.where(late, mine[-2], mine[-1]))
            else:
                chosen.append(mine[-1])
        return np.stack(chosen)

    def spans(self, trace: Trace, device: int) -> np.ndarray:
        """float64[operators]: seconds from the end of what a device executed before to the end of each operator."""
        table = trace.executions
        mine = np.flatnonzero(table["device"] == device)
        mine = mine[np.argsort(table["start"][mine])]
        spans = np.empty(len(table["job"]))
        spans[mine] = np.diff(table["finish"][mine], prepend=self.begins[device])
        found: np.ndarray = spans[self.rows(trace)[device]]
        return found
