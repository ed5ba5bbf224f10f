"""Serving schedulers: requests wait at nodes and are served there, several of a model at once.

A *node* is a memory space with devices. Each request (a job) is sent to the node that a selection names,
waits there in the queue of its model, and runs whole on one device. Subclasses say what runs next.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.context.scheduling import name_of
from simulator.context.serving import BatchingContext
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.graph import DataflowGraph
from simulator.serving.message_batching import Outbox
from simulator.serving.node import Group, Node
from simulator.serving.node_selection import REFUSED, Selection
from simulator.serving.selections import make_selection
from simulator.support.options import construct


class Choice(NamedTuple):
    """What to serve: the first requests of a group's queue, by their own model or by a variant."""

    group: Group
    requests: int
    graph: DataflowGraph | None = None


class Dispatcher(Scheduler):
    """Base of the serving schedulers.

    Args:
        max_batch: items at most in one execution.
        select: which node serves a request (:mod:`simulator.serving.node_selection`); a name, or a mapping with
            ``name`` and options.
        packing: whether and how inputs that go the same way are sent as one message
            (:class:`simulator.serving.message_batching.Outbox`): a mapping of its options; None: each on its own.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"batch", "pack"})
    by_priority = False
    """Whether requests of a higher priority come first; what runs is never interrupted."""

    def __init__(
        self,
        max_batch: int = 1,
        select: str | Mapping[str, Any] = "home",
        packing: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1:
            raise InvalidInput(f"max_batch is {max_batch!r}; give a whole number of at least 1")
        self.max_batch = max_batch
        self.selection: Selection = make_selection(select)
        self.outbox = None if packing is None else construct(Outbox, "Packing", packing)
        self.nodes: dict[int, Node] = {}
        # By job on its way: the space it was sent to, and its believed seconds alone there.
        self._node_of: dict[int, tuple[int, float]] = {}
        # By job in execution that has tasks to come: its device and how many these are.
        self._running: dict[int, tuple[int, int]] = {}
        self._busy_until: dict[int, list[float]] = {}  # by device: believed ends of what runs
        self._coming_work: dict[int, float] = {}  # by space: seconds of what is on its way
        self._touched: set[int] = set()  # spaces where something may be served now
        self._lost: set[int] = set()  # tasks to place where a device is up

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        serving(context, self)
        for device, space in enumerate(context.cluster.space_of):
            node = self.nodes.setdefault(space, Node(space, []))
            node.devices.append(device)
            node.slots += context.cluster.devices[device].slots
        self.selection.begin(self)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        context = serving(context, self)
        self.selection.observe(context, self)
        recovered = self._recover(context) if context.may_fail else ()
        for job in context.arrived:
            self._receive(context, job)
        for job in context.delivered:
            if job not in recovered:  # it has come where it is not awaited any more
                self._enqueue(context, job, self._arrived(job))
        self._continue(context)
        self.balance(context)
        space_of = context.cluster.space_of
        for task in context.finished:
            self._touched.add(space_of[context.device_of(task)])
        touched = self._touched
        for space in sorted(touched) if len(touched) > 1 else list(touched):
            if self._dispatch(context, self.nodes[space]):
                self._touched.discard(space)
        if self.outbox is not None:
            self.outbox.flush(context)
        self.selection.settle(context, self)

    # -- what subclasses say ----------------------------------------------------------------------

    @abstractmethod
    def choose(self, context: BatchingContext, node: Node, device: int) -> Choice | None:
        """What an idle device runs next; None: nothing for now (:meth:`wake_at` when to ask again)."""

    def balance(self, context: BatchingContext) -> None:
        """Called before what waits is served: a place to send some of it elsewhere."""

    def started(self, context: BatchingContext, group: Group, device: int, seconds: float) -> None:
        """Requests of a group were put on a device, for so many believed seconds."""

    def insert(self, context: BatchingContext, group: Group, job: int) -> None:
        """Let a request wait in its group's queue, in the order in which it is served."""
        queue = group.queue
        if not self.by_priority or not queue:
            queue.append(job)
            return
        jobs = context.jobs
        urgency = jobs[job].priority
        place = bisect_right(queue, -urgency, key=lambda other: -jobs[other].priority)
        queue.insert(place, job)

    def urgency(self, context: BatchingContext, group: Group) -> int:
        """Priority of a group's first request, where priorities count."""
        return context.jobs[group.queue[0]].priority if self.by_priority else 0

    # -- what they use ----------------------------------------------------------------------------

    def fitting(self, context: BatchingContext, group: Group, devices: Sequence[int]) -> int:
        """How many of a group's oldest requests fit into one execution on one of some devices of a
        node: all of them, or one.
        """
        most = group.largest(self.max_batch, devices)
        jobs = context.jobs
        total = best = 0
        if group.each:
            best = group.count_within(most)
        else:
            for count, job in enumerate(group.queue, 1):
                total += jobs[job].batch or 1
                if total > most and count > 1:
                    break
                if total in group.seconds:
                    best = count
                if total >= most:
                    break
        if not best:
            job = group.queue[0]
            raise SchedulingError(
                f"Request {job} of '{group.graph.name}' has {jobs[job].batch or 1} items, for which no "
                f"batch is prepared (prepared: {', '.join(map(str, group.sizes))})"
            )
        return best

    def oldest(
        self,
        context: BatchingContext,
        node: Node,
        device: int,
        due: Callable[[Group, float, int], bool] | None = None,
    ) -> Group | None:
        """The group with the oldest request of the highest priority that counts, among those that the device can run and that are ``due``
        by themselves, the arrival of their first request and their number of items.
        """
        jobs, best = context.jobs, None
        for group in node.groups.values():
            if not group.queue or not group.runs_on(context, device):
                continue
            head = group.queue[0]
            key = (-self.urgency(context, group), jobs[head].arrival, head)
            if best is not None and best[0] <= key:
                continue
            if due and not due(group, key[1], group.items(context, len(group.queue))):
                continue
            best = (key, group)
        return None if best is None else best[1]

    def seconds_of(self, context: BatchingContext, group: Group, count: int, device: int) -> float:
        """Believed seconds of a group's ``count`` oldest requests in one execution."""
        return group.seconds[group.items(context, count)][device]

    def backlog_seconds(self, context: BatchingContext, node: Node) -> float:
        """Believed seconds until a node has served all that waits and runs there, its slots sharing
        the work evenly.
        """
        now = context.now
        work = 0.0  # added one by one: sum() rounds in another way from Python 3.12 on
        for device in node.devices:
            for end in self._busy_until.get(device, ()):
                work += max(0.0, end - now)
        for group in node.groups.values():
            if group.queue:
                items = group.items(context, len(group.queue))
                largest = group.largest(self.max_batch, node.devices)
                seconds = min(group.seconds[largest][d] for d in node.devices)
                work += math.ceil(items / largest) * seconds
        return work / node.slots

    def coming_seconds(self, space: int) -> float:
        """Believed seconds of work that is on its way to a node, its slots sharing it evenly."""
        return self._coming_work.get(space, 0.0) / self.nodes[space].slots

    def group_at(self, context: BatchingContext, job: int, node: Node) -> Group:
        """The group of a request's model at a node, made if there is none yet."""
        graph = context.jobs[job].graph
        group = node.groups.get(graph)
        if group is None:
            prepared = context.graphs_for(job)
            seconds = {size: context.serving_seconds(prepared[size]) for size in sorted(prepared)}
            group = Group(graph, list(seconds), seconds, each=context.jobs[job].batch or 1)
            node.groups[graph] = group
        return group

    def send(self, context: BatchingContext, job: int, node: Node) -> None:
        """Let a request that is in no queue wait at a node, once its inputs are there."""
        here = context.inputs_in(job)
        there = here is None or node.space in here
        if there and not context.awaits_room(job):
            self._enqueue(context, job, node.space)
        else:
            work = self._work(context, job, node)
            self._node_of[job] = node.space, work
            self._coming_work[node.space] = self._coming_work.get(node.space, 0.0) + work
            if there or here is None:
                return  # they have no room there yet
            if self.outbox is None or not here:
                context.send(job, node.space)
            else:
                self.outbox.add(context, job, next(iter(here)), node.space)

    # -- the rest ---------------------------------------------------------------------------------

    def _work(self, context: BatchingContext, job: int, node: Node) -> float:
        """Believed seconds of a request alone on a node's fastest device."""
        group = self.group_at(context, job, node)
        seconds = group.seconds[context.jobs[job].batch or 1]
        if len(node.devices) == 1:
            return seconds[node.devices[0]]
        return min(seconds[device] for device in node.devices)

    def _receive(self, context: BatchingContext, job: int) -> None:
        space = self.selection.choose(context, self, job)
        if space == REFUSED:
            context.reject(job, "no node is believed to meet its deadline")
            return
        if space not in self.nodes:
            raise SchedulingError(
                f"Selection '{self.selection.name}' sends request {job} to "
                f"'{context.cluster.spaces[space].name}', which has no device"
            )
        self.send(context, job, self.nodes[space])

    def _enqueue(self, context: BatchingContext, job: int, space: int) -> None:
        self._touched.add(space)
        group = self.group_at(context, job, self.nodes[space])
        if group.each and group.each != (context.jobs[job].batch or 1):
            group.each = 0
        self.insert(context, group, job)

    def _dispatch(self, context: BatchingContext, node: Node) -> bool:
        """Let a node's idle devices serve what waits; returns whether nothing waits, or none is idle."""
        while True:
            idle = [d for d in node.devices if context.is_idle(d) and context.is_up(d)]
            if not idle or not node.any_waits:
                return True
            for device in idle:
                choice = self.choose(context, node, device)
                if choice is not None:
                    self._serve(context, device, choice)
                    break
            else:
                # A choice may have emptied the queues.
                return not node.any_waits

    def _serve(self, context: BatchingContext, device: int, choice: Choice) -> None:
        group, count, graph = choice
        if graph is None:
            seconds = self.seconds_of(context, group, count, device)
        else:
            seconds = context.serving_seconds(graph)[device]
        jobs = [group.queue.popleft() for _ in range(count)]
        if context.explain:
            name = context.cluster.devices[device].name
            context.explain(
                f"{len(jobs)} of {group.graph.name} ({', '.join(f'#{j}' for j in jobs)})"
                + ("" if graph is None else f" by {graph.name}")
                + f" -> {name}: {seconds:.6g} s, {len(group.queue)} more wait"
            )
        alone = count == 1 and graph is None
        leader = jobs[0] if alone else context.batch(jobs, graph)
        # The ends of what still runs there; the newest, where something ended early.
        others = context.slots_in_use(device)
        before = sorted(self._busy_until.get(device, ()))[-others:] if others else []
        self._busy_until[device] = [*before, context.now + seconds]
        tasks = context.tasks_of(leader)
        ready = [task for task in tasks if context.is_ready(task)]
        if len(ready) < len(tasks):
            self._running[leader] = (device, len(tasks) - len(ready))
        for task in ready:
            context.place(task, device)
        if context.explain:
            for task in ready:
                context.explain(f"{context.label(task)} -> {context.cluster.devices[device].name}")
        self.started(context, group, device, seconds)

    def _continue(self, context: BatchingContext) -> None:
        """Place the later tasks of requests in execution where the first ones ran."""
        if not self._running:
            return
        for task in context.ready:
            job = context.job_of(task)
            if job not in self._running or task in self._lost or context.device_of(task) >= 0:
                continue
            device, left = self._running[job]
            self._continue_on(context, task, device)
            if left > 1:
                self._running[job] = (device, left - 1)
            else:
                del self._running[job]

    def _continue_on(self, context: BatchingContext, task: int, device: int) -> None:
        able = context.able(task)
        place = device if device in able else min(able, key=lambda d: (context.available(d), d))
        if not context.is_up(place):
            self._lost.add(task)
            return
        context.place(task, place)
        if context.explain:
            name = context.cluster.devices[place].name
            context.explain(f"{context.label(task)} -> {name}: where its request runs")

    def _arrived(self, job: int) -> int:
        """A request is no longer on its way; returns where it was sent."""
        space, work = self._node_of.pop(job)
        self._coming_work[space] -= work
        return space

    def _forget(self, job: int) -> None:
        """A request waits nowhere and runs nowhere."""
        if job in self._node_of:
            self._arrived(job)
        self._running.pop(job, None)
        if self.outbox is not None:
            self.outbox.forget(job)
        for node in self.nodes.values():
            for group in node.groups.values():
                if job in group.queue:
                    group.queue.remove(job)

    # -- what fails -------------------------------------------------------------------------------

    def _recover(self, context: BatchingContext) -> set[int]:
        """Forget what has failed, let requests that wait again choose a node, and run again what was lost.

        Returns:
            The requests that were forgotten or have chosen anew.
        """
        self._touched |= self.nodes.keys()
        for device in self._busy_until.keys() - set(filter(context.is_up, self._busy_until)):
            del self._busy_until[device]
        for job in context.failed:
            self._forget(job)
        arrived = set(context.arrived)
        again: set[int] = set()
        for task in context.lost:
            job = context.job_of(task)
            if not context.is_waiting(job):
                self._lost.add(task)
            elif job not in again and job not in arrived:
                again.add(job)
                self._forget(job)
                self._receive(context, job)
        for task in sorted(self._lost):
            self._run_again(context, task)
        return again.union(context.failed)

    def _run_again(self, context: BatchingContext, task: int) -> None:
        """Place a lost task where its inputs lie, or, if no device is there, where it can begin first; it waits for one
        that is up.
        """
        job = context.job_of(task)
        if context.has_failed(job) or context.device_of(task) >= 0 or context.is_waiting(job):
            self._lost.discard(task)
            return
        if not context.is_ready(task):
            return
        spaces = {entry.space for entry in context.inputs(task)} & self.nodes.keys()
        able = context.able(task)
        near = [d for d in able if context.cluster.space_of[d] in spaces] or able
        up = [d for d in near if context.is_up(d)]
        if up:
            device = min(up, key=lambda d: (context.available(d), d))
            self._lost.discard(task)
            if job in self._running:
                self._running[job] = (device, self._running[job][1])
            context.place(task, device)
            if context.explain:
                name = context.cluster.devices[device].name
                context.explain(f"{context.label(task)} -> {name}: again, it was lost")


def serving(context: SchedulingContext, scheduler: Scheduler) -> BatchingContext:
    """The context, if requests can be served together in it.

    Raises:
        SchedulingError: they cannot.
    """
    if not isinstance(context, BatchingContext):
        raise SchedulingError(
            f"Scheduler '{name_of(scheduler)}' needs batch, which {context.world} runs do not offer"
        )
    return context
