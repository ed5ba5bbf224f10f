"""Task groups: the waiting requests of one model are one group, served as a batch by priority."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from simulator.context.serving import BatchingContext
from simulator.errors import InvalidInput
from simulator.model.units import parse_seconds
from simulator.serving.dispatching import Choice, Dispatcher
from simulator.serving.node import Group, Node


class TaskGroups(Dispatcher):
    """The group of the highest ``b / t(b) * (1 + theta * age / tau)`` runs next.

    ``b`` requests of a group fit into one execution of ``t(b)`` predicted seconds; ``age`` is that of its
    oldest request, ``tau`` a moving average of the executions' seconds. A group whose oldest request is
    older than ``starve_after`` goes first, the oldest of them before the others. ``theta=0`` is the rule
    of the thesis: Smith's weight over time, with which rare models may starve under load.

    With ``by_priority`` groups whose first request has a higher priority go before the others, and the rule
    above decides among those of the same; within a group requests of higher priority come first, and those of
    lower priority fill up their batch. What runs is never interrupted.

    Overloaded nodes may upload what waits: when a node's believed work exceeds ``upload_above``, requests
    leave from the tail of the group of the lowest priority for ``upload_to``, as long as each is believed
    to be done there before it would be here, until the work is below ``upload_below``.

    Args:
        theta: weight of age.
        starve_after: like ``2s``; None: never.
        max_batch: items at most in one execution.
        upload_to: name of the memory space of the next tier; None: nothing is uploaded.
        upload_above, upload_below: like ``500ms``.
        select, packing: see :class:`simulator.serving.dispatching.Dispatcher`.
        by_priority: whether priorities of requests count.

    Raises:
        InvalidInput: an option is out of range.

    Source: thesis 001 (priority by group size and predicted execution time; early upload; packing).
    """

    name: ClassVar[str] = "task_groups"

    def __init__(
        self,
        theta: float = 0.1,
        starve_after: str | None = None,
        max_batch: int = 16,
        upload_to: str | None = None,
        upload_above: str = "1s",
        upload_below: str = "500ms",
        select: str | Mapping[str, Any] = "home",
        packing: Mapping[str, Any] | None = None,
        by_priority: bool = False,
    ) -> None:
        super().__init__(max_batch, select, packing)
        self.by_priority = by_priority
        if not 0 <= theta < math.inf:
            raise InvalidInput(f"The weight of age, theta, is {theta}; give 0 or more")
        self.theta = theta
        self.starve_after = (
            math.inf if starve_after is None else parse_seconds(starve_after, "starve_after")
        )
        self.upload_to = upload_to
        self.upload_above = parse_seconds(upload_above, "upload_above")
        self.upload_below = parse_seconds(upload_below, "upload_below")
        if upload_to is not None and not 0 <= self.upload_below <= self.upload_above:
            raise InvalidInput(
                f"Uploads begin above {upload_above} and end below {upload_below} of work; the second "
                "must not be larger"
            )
        self._tau = 0.0
        self._uploading: set[int] = set()  # nodes that upload until their work is below the mark
        self.uploaded = 0
        """Requests that were sent on so far."""

    def choose(self, context: BatchingContext, node: Node, device: int) -> Choice | None:
        """See :class:`Dispatcher`."""
        starving = self._starving(context, node, device)
        if starving is not None:
            return Choice(starving, self.fitting(context, starving, [device]))
        best: tuple[int, float, float, int, Group, int] | None = None
        for number, group in enumerate(node.groups.values()):
            if not group.queue:
                continue
            count = self.fitting(context, group, [device])
            items = group.items(context, count)
            seconds = group.seconds[items][device]
            if seconds == math.inf:
                continue
            head = context.jobs[group.queue[0]].arrival
            rank = -self._priority(items, seconds, context.now - head)
            key = (-self.urgency(context, group), rank, head, number)
            if best is None or key < best[:4]:
                best = (*key, group, count)
        return None if best is None else Choice(best[4], best[5])

    def started(self, context: BatchingContext, group: Group, device: int, seconds: float) -> None:
        """See :class:`Dispatcher`."""
        self._tau = seconds if not self._tau else self._tau + 0.1 * (seconds - self._tau)

    def balance(self, context: BatchingContext) -> None:
        """See :class:`Dispatcher`."""
        if self.upload_to is None:
            return
        index = context.cluster.space_index
        if self.upload_to not in index or index[self.upload_to] not in self.nodes:
            raise InvalidInput(
                f"upload_to={self.upload_to} is no memory space with devices of cluster "
                f"'{context.cluster.name}'"
            )
        target = self.nodes[index[self.upload_to]]
        for node in self.nodes.values():
            if node is not target and any(map(context.is_up, target.devices)):
                self._upload(context, node, target)

    def _priority(self, items: int, seconds: float, age: float) -> float:
        rate = items / seconds if seconds > 0 else math.inf
        if not self.theta or not self._tau:
            return rate
        return rate * (1 + self.theta * age / self._tau)

    def _starving(self, context: BatchingContext, node: Node, device: int) -> Group | None:
        if self.starve_after == math.inf:
            return None
        found, oldest = None, context.now - self.starve_after
        jobs, first = context.jobs, -1
        for group in node.groups.values():
            if group.queue and group.runs_on(context, device):
                job = group.queue[0]
                if self.by_priority:  # those of low priority stand behind younger ones
                    job = min(group.queue, key=lambda j: jobs[j].arrival)
                if jobs[job].arrival < oldest:
                    found, oldest, first = group, jobs[job].arrival, job
        if found is not None and found.queue[0] != first:
            found.queue.remove(first)
            found.queue.appendleft(first)
        return found

    def _upload(self, context: BatchingContext, node: Node, target: Node) -> None:
        work = self.backlog_seconds(context, node)
        if work > self.upload_above:
            self._uploading.add(node.space)
        elif work < self.upload_below:
            self._uploading.discard(node.space)
        while node.space in self._uploading:
            group = self._last(context, node)
            if group is None or not self._pays(context, group, target, work):
                return
            job = group.queue.pop()
            if context.explain:
                name = context.cluster.spaces[target.space].name
                context.explain(
                    f"#{job} of {group.graph.name} is uploaded to {name}: {work:.6g} s here"
                )
            self.send(context, job, target)
            self.uploaded += 1
            work = self.backlog_seconds(context, node)
            if work < self.upload_below:
                self._uploading.discard(node.space)

    def _last(self, context: BatchingContext, node: Node) -> Group | None:
        """The waiting group of the lowest priority."""
        lowest: tuple[int, float, Group] | None = None
        for group in node.groups.values():
            if group.queue:
                count = self.fitting(context, group, node.devices)
                seconds = min(self.seconds_of(context, group, count, d) for d in node.devices)
                age = context.now - context.jobs[group.queue[0]].arrival
                rank = self._priority(group.items(context, count), seconds, age)
                # That of the request that would leave.
                urgency = context.jobs[group.queue[-1]].priority if self.by_priority else 0
                if lowest is None or (urgency, rank) < lowest[:2]:
                    lowest = (urgency, rank, group)
        return None if lowest is None else lowest[2]

    def _pays(self, context: BatchingContext, group: Group, target: Node, work: float) -> bool:
        """Whether a group's last request is believed to be done at ``target`` before it would be here,
        where it is behind ``work`` seconds.
        """
        job = group.queue[-1]
        here = context.inputs_in(job)
        if not here:
            return False
        graph = group.graph
        size = float(sum(graph.tensor_bytes[t] for t in graph.inputs))
        items = context.jobs[job].batch or 1
        there = min(self.group_at(context, job, target).seconds[items][d] for d in target.devices)
        source = next(iter(here))
        if self.outbox is None:
            arrives = context.transfer_end(size, source, target.space)
        else:
            arrives = self.outbox.arrival(context, source, target.space, size)
        ahead = self.backlog_seconds(context, target) + self.coming_seconds(target.space)
        return max(arrives, context.now + ahead) + there + self._way_back(context, job, target) < (
            context.now + work
        )

    def _way_back(self, context: BatchingContext, job: int, target: Node) -> float:
        """Seconds that an answer takes from a node, behind those that wait for the way."""
        entry = context.jobs[job]
        if entry.destination is None:
            return 0.0
        size = float(sum(entry.graph.tensor_bytes[t] for t in entry.graph.outputs))
        home = context.cluster.space_index[entry.destination]
        alone = context.transfer_seconds(size, target.space, home)
        # Those that are on their way to the node will want the same way back.
        before = sum(space == target.space for space, _ in self._node_of.values())
        return context.transfer_end(size, target.space, home) - context.now + before * alone
