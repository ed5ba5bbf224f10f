"""Heterogeneous Earliest Finish Time.

Source: Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for
Heterogeneous Computing", IEEE TPDS 13(3):260-274, 2002, doi:10.1109/71.993206.
"""

from __future__ import annotations

import math
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.ranks import mean_seconds, upward_rank
from simulator.planners.timeline import Timeline
from simulator.priorities import rounded
from simulator.scheduler import Scheduler


class Heft(Scheduler):
    """Plans a job when it arrives: tasks by decreasing upward rank (ties: smaller id), each on the
    device of earliest finish (ties: smaller id), in gaps where it fits. Later jobs use the gaps that
    earlier plans leave.

    Transfers are believed as ``push`` without contention, and outputs to be wanted where they are
    written.

    Args:
        insertion: use gaps between tasks planned already; otherwise append.
    """

    name: ClassVar[str] = "heft"
    static: ClassVar[bool] = True

    def __init__(self, insertion: bool = True) -> None:
        self.insertion = insertion
        self._timelines: list[list[Timeline]] = []
        self._plans: dict[int, list[tuple[int, float]]] = {}  # tasks and ranks in order of planning

    def begin(self, context: SchedulingContext) -> None:
        """Lay out an empty plan of every slot."""
        self._communication = Communication(context.cluster)
        self._timelines = [
            [Timeline() for _ in range(device.slots)] for device in context.cluster.devices
        ]

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for job in context.arrived:
            self._plan(context, job)
        if context.lost:
            self._repair(context)

    def _repair(self, context: SchedulingContext) -> None:
        """Place lost tasks anew, each on the device on which it would be done first, at its planned
        rank; what is queued of their jobs enters its queue again, so that all stand in the order of
        the plan.
        """
        lost = set(context.lost)
        for job in sorted({context.job_of(task) for task in lost}):
            for task, rank in self._plans[job]:
                device = context.device_of(task)
                if task in lost:
                    seconds = context.seconds(task)
                    able = context.able(task)
                    ends = [(context.available(d) + seconds[d], d) for d in able]
                    end, device = min(ends)
                    if end == math.inf:  # all that can run it are down
                        _, device = min((seconds[d], d) for d in able)
                elif context.is_queued(task):
                    context.withdraw(task)
                else:
                    continue
                context.place(task, device, rank)

    def _plan(self, context: SchedulingContext, number: int) -> None:
        job = context.jobs[number]
        graph = job.graph
        communication = self._communication
        space_of = context.cluster.space_of
        spaces = sorted({*space_of})
        seconds = context.cost_matrix(number)
        edges = mean_edge_seconds(graph, communication)
        ranks = upward_rank(mean_seconds(seconds), edges)
        order = sorted(range(len(graph)), key=lambda i: (-rounded(ranks[i]), i))
        rows = seconds.tolist()
        size = graph.tensor_bytes.tolist()
        producer = graph.producer
        finish = [0.0] * len(graph)
        place = [-1] * len(graph)
        first = context.tasks_of(number)[0]
        origin = -1 if job.origin is None else context.cluster.space_index[job.origin]
        self._plans[number] = []
        up = [context.is_up(device) for device in range(len(space_of))]
        for i in order:
            # Devices that are down are for what nothing else can run.
            avoid = any(up[d] and s < math.inf for d, s in enumerate(rows[i]))
            # By space: when the inputs are there; what all devices have is there at arrival.
            data_at = [context.now] * len(context.cluster.spaces)
            for tensor in graph.activations_read[i]:
                j = producer[tensor]
                if j >= 0:
                    since, home = finish[j], space_of[place[j]]
                elif origin >= 0:
                    since, home = context.now, origin
                else:
                    continue
                latency, bandwidth = communication.wires(home)
                amount = size[tensor]
                for space in spaces:
                    arrival = since + (latency[space] + amount / bandwidth[space])
                    if arrival > data_at[space]:
                        data_at[space] = arrival
            choices = []
            for device, duration in enumerate(rows[i]):
                if duration == math.inf or (avoid and not up[device]):
                    continue
                ready, lines = data_at[space_of[device]], self._timelines[device]
                start, slot = lines[0].earliest(ready, duration, self.insertion), 0
                for index in range(1, len(lines)):
                    other = lines[index].earliest(ready, duration, self.insertion)
                    if other < start:
                        start, slot = other, index
                choices.append((start + duration, device, slot, start))
            end, device, slot, start = min(choices)
            self._timelines[device][slot].book(start, rows[i][device])
            finish[i], place[i] = end, device
            self._plans[number].append((first + i, start))
            context.place(first + i, device, rank=start)
            if context.explain:
                name = context.cluster.devices[device].name
                others = ", ".join(f"{c[0]:.6g}" for c in choices if c[1] != device)
                context.explain(
                    f"{context.label(first + i)} (rank {ranks[i]:.6g}) -> {name} at {start:.6g}: "
                    f"{end:.6g} < {others or 'no other'}"
                )
