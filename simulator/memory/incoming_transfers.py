"""Transfers that need room where they go: a copy occupies its destination from the request of its transfer.

A packed message takes the room of all its tensors at once; when nothing else is left to happen, one that still
waits is taken apart. Of one that waited, what nobody may want there any more stays behind.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simulator.memory.liveness import LiveTensors
from simulator.memory.room import Room
from simulator.memory.room_queues import FIRST, LAST, Lines, Order, Waiting
from simulator.memory.tensor_table import JobTensors
from simulator.memory.weights import LoadedWeights

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun
    from simulator.links.flows import Flow
    from simulator.memory.memory import Links


class ArrivingCopies:
    """From their being asked for to their departure.

    Args:
        run: the simulation.
        links: what carries transfers.
        room: what copies occupy.
        lines: where they wait for it.
        tensors: of the run's jobs.
        live: those of them that exist, but for weights.
        weights: those.
    """

    def __init__(
        self,
        run: SimulatedRun,
        links: Links,
        room: Room,
        lines: Lines,
        tensors: JobTensors,
        live: LiveTensors,
        weights: LoadedWeights,
    ) -> None:
        self._run = run
        self._links = links
        self._room = room
        self._lines = lines
        self._tensors = tensors
        self._live = live
        self._weights = weights
        self._delayed: set[Flow] = set()  # in a line, or waiting for what they are to carry
        self._sourceless: dict[int, list[Flow]] = {}  # by tensor

    def send(self, flow: Flow) -> None:
        """Hand a transfer to its links once there is room for what it brings."""
        self._delayed.add(flow)
        for tensor in flow.tensors:
            if tensor in self._live.all or tensor in self._weights.here[flow.source]:
                continue
            if self._tensors.is_to_come(tensor):
                self._sourceless.setdefault(tensor, []).append(flow)
                return
            if self._is_due(tensor, flow):
                self._tensors.forget_copy(tensor, flow.destination)
        size = sum(map(self._tensors.bytes, flow.tensors))
        waiting = Waiting(
            self._order(flow),
            size,
            lambda: any(
                self._is_due(t, flow) and self._is_wanted(t, flow.destination) for t in flow.tensors
            ),
            lambda: self._start(flow, size),
            lambda: self._cancel(flow),
            lambda: self._describe(flow),
            (lambda: self._send_singly(flow)) if len(flow.tensors) > 1 else None,
            self._inputs_ahead(flow),
        )
        self._lines.ask(flow.destination, waiting)

    def has_source(self, tensor: int) -> None:
        """What waited to be brought lies there now: what is to carry it on may be sent."""
        for flow in self._sourceless.pop(tensor, ()):
            if any(self._is_due(t, flow) for t in flow.tensors):
                self.send(flow)
            else:
                self._delayed.discard(flow)

    def abandon(self, tensor: int) -> None:
        """What waited to be brought does not come."""
        for flow in self._sourceless.pop(tensor, ()):
            self.send(flow)

    def expected(self, flow: Flow) -> float:
        """When a transfer is believed to be there, seconds."""
        if flow in self._delayed:
            return self._run.now + flow.route.seconds(flow.size)
        return self._links.expected(flow)

    def called_off(self, flow: Flow) -> bool:
        """A transfer is called off; returns whether it had been handed to its links."""
        if flow in self._delayed:  # its place in a line lapses
            for tensor in flow.tensors:
                if flow in (waiting := self._sourceless.get(tensor, [])):
                    waiting.remove(flow)
                    self._delayed.discard(flow)
            return False
        for tensor in flow.tensors:
            live = self._live.all.get(tensor)
            if live is None:
                self._weights.called_off(tensor, flow.destination)
            else:
                self._live.lose_copy(tensor, live, flow.destination)
        return True

    # -- waiting --------------------------------------------------------------------------------

    def _order(self, flow: Flow) -> Order:
        """That of the first task that is to read what a flow brings."""
        space = flow.destination
        readers = (reader for t in flow.tensors for reader in self._tensors.readers(t))
        orders = [
            *(self._weights.first_need(tensor, space) for tensor in flow.tensors),
            *(self._lines.queued_order(reader, space) for reader in readers),
        ]
        delivers = any(
            (live.result and live.target == space) or space in live.owed
            for t in flow.tensors
            if (live := self._live.all.get(t)) is not None
        )
        none = FIRST if delivers else LAST
        return min([order for order in orders if order is not None], default=none)

    def _is_due(self, tensor: int, flow: Flow) -> bool:
        """Whether a flow that waits is still to bring a tensor."""
        return self._run.under_way.get((tensor, flow.destination)) is flow

    def _is_wanted(self, tensor: int, space: int) -> bool:
        live = self._live.all.get(tensor)
        if live is None:
            return self._weights.wants(tensor, space)
        if live.home == space:
            return False  # the original was dropped, and what is left of it is here
        if live.result and live.target == space:
            return True
        return bool(live.unplaced or space in live.users or space in live.owed)

    def _inputs_ahead(self, flow: Flow) -> int:
        """Of a flow the bytes of inputs that are sent ahead to where their room is limited."""
        space = flow.destination
        if self._room.most_inputs[space] == math.inf:
            return 0
        ahead = [t for t in flow.tensors if self._run.is_sent_ahead(t, space)]
        return sum(map(self._tensors.bytes, ahead))

    def _send_singly(self, flow: Flow) -> None:
        """A message has no room as a whole: ask for each of its tensors alone."""
        run = self._run
        self._delayed.discard(flow)
        space = flow.destination
        for tensor in flow.tensors:
            if not self._is_due(tensor, flow):
                continue
            if not self._is_wanted(tensor, space):
                self._tensors.forget_copy(tensor, space)
                continue
            size = run.tensor_bytes(tensor)
            single = type(flow)((tensor,), flow.source, space, flow.route, size, run.now)
            run.under_way[tensor, space] = single
            self.send(single)

    def _cancel(self, flow: Flow) -> None:
        self._delayed.discard(flow)
        for tensor in flow.tensors:
            if self._is_due(tensor, flow):
                self._tensors.forget_copy(tensor, flow.destination)

    # -- departing ------------------------------------------------------------------------------

    def _start(self, flow: Flow, size: int) -> None:
        """Let a transfer that has found room begin."""
        self._delayed.discard(flow)
        if not any(self._is_due(t, flow) for t in flow.tensors):
            return
        all_live = self._live.all
        if len(flow.tensors) == 1:
            live = all_live.get(flow.tensors[0])
            if live is None and not self._weights.wants(flow.tensors[0], flow.destination):
                self._cancel(flow)  # its job was refused
                return
            self._depart(flow, flow.tensors, flow.source if live is None else live.home, size)
            return
        # Of a message that waited, what nobody may want there any more stays; and where the rest lies
        # may have changed, so that it comes from several spaces.
        waited = flow.requested != self._run.now
        parts: dict[int, list[int]] = {}
        for tensor in flow.tensors:
            live = all_live.get(tensor)
            if not self._is_due(tensor, flow):
                continue
            if live is None or (waited and not self._is_wanted(tensor, flow.destination)):
                self._tensors.forget_copy(tensor, flow.destination)
            else:
                parts.setdefault(live.home, []).append(tensor)
        for source, tensors in sorted(parts.items()):
            self._depart(flow, tuple(tensors), source, sum(map(self._tensors.bytes, tensors)))

    def _depart(self, flow: Flow, tensors: tuple[int, ...], source: int, size: int) -> None:
        """Let these tensors of a flow cross from ``source``; there is room for them."""
        run, space = self._run, flow.destination
        self._room.take(space, size)
        if (source, run.now, tensors) != (flow.source, flow.requested, flow.tensors):  # it waited
            route = run.real.route(source, space)
            total = flow.size
            if tensors != flow.tensors:
                total = math.fsum(run.tensor_bytes(tensor) for tensor in tensors)
            flow = type(flow)(tensors, source, space, route, total, run.now)
            run.under_way |= {(tensor, space): flow for tensor in flow.tensors}
        for tensor in flow.tensors:
            live = self._live.all.get(tensor)
            if live is None:
                self._weights.departed(tensor, space)
            else:
                live.copies[space] = False
                live.flying += 1
                self._room.inputs[space] += live.input * live.bytes
        self._links.request(flow)

    def _describe(self, flow: Flow) -> str:
        run, space = self._run, flow.destination
        tensor = flow.tensors[0]
        job = self._tensors.job(tensor)
        name = run.jobs[job].graph.tensors[tensor - self._tensors.first(job)].name
        readers = [
            run.label(task)
            for tensor in flow.tensors
            for task in self._tensors.readers(tensor)
            if run.device_of(task) >= 0 and run.cluster.space_of[run.device_of(task)] == space
        ]
        whose = f"task '{readers[0]}'" if readers else f"job {job}"
        return f"a copy of '{name}' for {whose} needs"
