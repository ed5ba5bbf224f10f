"""A graph on all devices of a cluster at once, to learn what they cost each other.

Devices that are equal and begin together end each operator at the same time, all the way through: each time all
but one of them wait for the interpreter, and all read weights while the others do. On two cores a panel of 351
operators that began on both at once took 12% longer than on one, begun half a panel apart 6%. So equal devices begin
apart and execute the graph twice, and what is looked at is one execution of each operator during which all
devices were busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cluster import Cluster
from simulator.graph import DataflowGraph
from simulator.trace import Trace
from simulator.workload import Job, Workload


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Executions of a graph on all devices of a cluster.

    Attributes:
        devices: of the jobs, in their order.
        jobs: what is executed.
        begins: seconds at which each device begins.
    """

    devices: tuple[int, ...]
    jobs: Workload
    begins: tuple[float, ...]

    @classmethod
    def of(cls, graph: DataflowGraph, cluster: Cluster, length: float) -> SideBySide:
        """Devices whose profiles are equal begin equal parts of the graph's time apart.

        Args:
            graph: any.
            cluster: any.
            length: seconds that the graph takes on devices that others are equal to, about.
        """
        profiles = [device.profile for device in cluster.devices]
        equals = [profiles.count(profile) for profile in profiles]
        begins = tuple(
            length * profiles[:device].count(profile) / equals[device]
            for device, profile in enumerate(profiles)
        )
        order = sorted(range(len(profiles)), key=lambda device: begins[device])
        devices = tuple(d for d in order for _ in range(2 if equals[d] > 1 else 1))
        jobs = [
            Job(graph, begins[device], origin=cluster.host, destination=cluster.host)
            for device in devices
        ]
        return cls(devices, Workload(jobs), begins)

    def length(self, each: Sequence[float] | np.ndarray) -> float:
        """Seconds until all have ended, of which one execution takes so many on each device."""
        rest = [0.0 for _ in self.begins]
        for device in self.devices:
            rest[device] += float(each[device])
        return max(begin + own for begin, own in zip(self.begins, rest, strict=True))

    def rows(self, trace: Trace) -> np.ndarray:
        """int[devices, operators]: which execution of a trace of these jobs counts for each device and operator:
        of those that are there twice the first that began when all devices had.
        """
        table = trace.executions
        found = np.empty((len(self.jobs), int(table["operator"].max()) + 1), dtype=np.int64)
        found[table["job"], table["operator"]] = np.arange(len(table["job"]))
        chosen = []
        for device in range(len(self.begins)):
            first, *more = (found[job] for job, at in enumerate(self.devices) if at == device)
            late = table["start"][first] >= max(self.begins)
            chosen.append(np.where(late, first, more[0]) if more else first)
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
