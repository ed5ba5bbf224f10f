"""Tensors between memory spaces: requests of an instant, booked or sent as flows, and their ends."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from simulator.clock import Clock, Moment
from simulator.context.packing import Message, is_weight, message
from simulator.context.scheduling import RequestedTransfer, name_of
from simulator.context.simulated import Request
from simulator.context.state import EVERYWHERE
from simulator.engine.decision_delay import DecisionDelay
from simulator.engine.disturbances import Disturbances
from simulator.engine.setting import EngineRun, Setting
from simulator.errors import SchedulingError
from simulator.links.flows import Flow
from simulator.links.registry import link_model
from simulator.model.graph import DataflowGraph


class DataMovement(EngineRun):
    """The part of a run that moves tensors.

    Requests of an instant see each other in the order of asking; when the instant ends, they are sent in the
    order of tensor and destination. Where ends are final (``booked``) they need no event.
    """

    _faults: Disturbances | None
    _delay: DecisionDelay | None
    _reacts: bool

    @abstractmethod
    def _follow(self, job: int) -> None:
        """A job may be done: if its outputs are where they must be, another may follow on it."""

    def __init__(self, setting: Setting, clock: Clock) -> None:
        cluster = setting.cluster
        believed = cluster if setting.believed is None else setting.believed
        super().__init__(
            cluster, believed, setting.costs, setting.movement, setting.contention, clock
        )
        self.setting = setting
        # What is believed of transfers, and true of those whose ends are final.
        self._link_model = link_model(setting.contention)
        self._book = self._link_model.book
        self._results: list[tuple[int, int]] = []  # results among the requests of this instant
        self._keeps_state = False  # whether a job changes weights
        self._free_before: dict[int, float] = {}  # when channels were free before them
        self._fetched: list[int] = []  # tasks whose data was asked for at this instant
        self.data_at = []
        self.delivered_flows = []
        # Booked transfers that end at this instant and that somebody awaits.
        self._landed: list[tuple[int, int]] = []
        self._on_landed = [self._land]

    def _add_tasks(self, count: int) -> None:
        super()._add_tasks(count)
        self.data_at += [-1.0] * count

    def _bring(
        self, tensors: Iterable[int], first: int, space: int, sizes: Sequence[float]
    ) -> float:
        """Ask for transfers now; a tensor crosses to a space once.

        Within a decision later questions see them booked in the order of asking; when the instant
        ends, the requests of the whole instant are sent in the order of tensor id.

        Args:
            tensors: of a job's graph.
            first: the number of the job's first tensor.
            space: where they are wanted.
            sizes: bytes of the graph's tensors.

        Returns:
            When all of them are believed to be there, at least now; ``inf`` if one cannot be sent now.
        """
        homes, copies = self.tensor_home, self.copies[space]
        now = latest = self.now
        for t in tensors:
            tensor = first + t
            home = homes[tensor]
            if home == space or home < 0:
                continue
            if tensor in copies:
                end = copies[tensor]
            elif self._faults is not None and self._faults.stops(tensor, space):
                end = math.inf
            else:
                route, size = self._routes[home][space] or self.route(home, space), sizes[t]
                free, before = self.channel_free, self._free_before
                for channel in route.channels:
                    if channel not in before:
                        before[channel] = free[channel]
                start, end = self._book(route, size, now, free)
                self.requested.append((tensor, space, home, now, start, end, size))
                copies[tensor] = end
            if end > latest:
                latest = end
        return latest

    def request(self, tensor: int, space: int, size: float) -> None:
        """Ask for a transfer now, unless the tensor is there or was asked for."""
        self._bring((0,), tensor, space, (size,))

    def _take_back_requests(self, task: int) -> None:
        """Unmake the requests of this instant that nobody but ``task``, now withdrawn, needs."""
        requests = self.requested
        kept = [
            request
            for request in requests
            if request[:2] in self.packed or self.is_wanted(*request[:2], task)
        ]
        if len(kept) < len(requests):
            self.book_again(kept)

    def book_again(self, requests: list[Request]) -> None:
        """Book these in place of all requests of this instant."""
        copies, free = self.copies, self.channel_free
        before = {row[:2]: copies[row[1]].pop(row[0], None) for row in self.requested}
        for channel, moment in self._free_before.items():
            free[channel] = moment
        self._free_before.clear()
        self.requested = []
        for tensor, space, *_, size in requests:
            if (tensor, space) in self.packed:
                self._request_message(self.packed[tensor, space])
            else:
                self.request(tensor, space, size)
        if any(copies[space].get(tensor) != end for (tensor, space), end in before.items()):
            self.forget_forecasts()
            for task in self._fetched:
                self.data_at[task] = -1.0

    def _put_in_order(self) -> None:
        """Book the requests of this instant anew if they were not made in the order of tensor and destination;
        the rows of a message stand together, at its first tensor.
        """
        requests = self.requested
        if len(requests) > 1:
            ordered = sorted(requests)
            if self.packed or ordered != requests:
                self.book_again(ordered)

    def requests(self) -> list[RequestedTransfer]:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        return [
            RequestedTransfer(tensor, size, home, space)
            for tensor, space, home, *_, size in sorted(self.requested)
            if (tensor, space) not in self.packed and not is_weight(self, tensor)
        ]

    def pack(self, transfers: Iterable[tuple[int, int]]) -> None:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        parcel = message(self, transfers)
        keys = {(tensor, parcel.destination) for tensor in parcel.tensors}
        others = [request for request in self.requested if request[:2] not in keys]
        self.packed |= dict.fromkeys(keys, parcel)
        self.book_again(others)
        self._request_message(parcel)
        if self._delay is not None:
            self._delay.packs(parcel)
        self.forget_forecasts()
        for task in self._fetched:
            self.data_at[task] = -1.0

    def _check_packs(self) -> None:
        if "pack" not in self.offers & self.scheduler.needs:
            raise SchedulingError(
                f"Scheduler '{name_of(self.scheduler)}' packs transfers without having declared it: "
                'needs = {"pack"}'
            )

    def _request_message(self, parcel: Message) -> None:
        """Ask for a message now unless that was done: a row for each tensor, booked as one."""
        space = parcel.destination
        if parcel.tensors[0] in self.copies[space]:
            return
        home = self.tensor_home[parcel.tensors[0]]
        faults = self._faults
        if faults is not None and any(faults.stops(t, space) for t in parcel.tensors):
            for tensor in parcel.tensors:
                del self.packed[tensor, space]
            for tensor in parcel.tensors:
                self.request(tensor, space, self.tensor_bytes(tensor))
            return
        route, free, now = self.route(home, space), self.channel_free, self.now
        for channel in route.channels:
            self._free_before.setdefault(channel, free[channel])
        start, end = self._book(route, parcel.bytes, now, free)
        for tensor in parcel.tensors:
            size = self.own_bytes(tensor)
            self.requested.append((tensor, space, home, now, start, end, size))
            self.copies[space][tensor] = end

    def is_wanted(self, tensor: int, space: int, without: int) -> bool:
        """Whether a placed task other than ``without``, or its job, wants a tensor in a space."""
        if self.is_sent_ahead(tensor, space):
            return True
        if self.memory is not None and self.memory.wants(tensor, space):
            return True
        job = self.job_of_tensor(tensor)
        index = self.job_index[job]
        t = tensor - self.first_tensor[job]
        if t in index.wanted and space in self.goals(job, t, without):
            return True
        for reader in index.consumers[t]:
            task = self.first_task[job] + reader
            device = self.task_device[task]
            here = task != without and device >= 0 and self.space_of[device] == space
            if here and (self.pushes or not self.pending[task]):
                return True
        return False

    def state_goals(self, job: int, tensor: int, without: int = -1) -> list[int]:
        """See :class:`SchedulingContext`."""
        found = super().state_goals(job, tensor, without)
        store = None if self.memory is None else self.memory.store_of(self.job_index[job].graph)
        return (
            found if store is None or tensor not in self.job_index[job].updates else [*found, store]
        )

    def _request_result(self, job: int, output: int, space: int) -> None:
        super()._request_result(job, output, space)
        if self.booked and output in self.job_index[job].outputs:
            for member in self.members.get(job, (job,)):
                destination = self.destination[member]
                if destination not in (EVERYWHERE, space):
                    self._results.append((self.first_tensor[member] + output, destination))

    def _send_booked(self) -> None:
        """Send what was asked for at this instant, in the order of tensor id; its ends are final."""
        self._put_in_order()
        requests, self.requested = self.requested, []
        if self._keeps_state:
            for tensor, space, *_ in requests:
                job = self.job_of_tensor(tensor)
                if tensor - self.first_tensor[job] in self.job_index[job].updates:
                    self._results.append((tensor, space))
        for tensor, destination in self._results:
            end, job = self.copies[destination][tensor], self.job_of_tensor(tensor)
            if end > self.done_at[job]:
                self.done_at[job] = end
            if self._reacts:
                self._await(tensor, destination, end)
        if self._results:
            self._results.clear()
        if self.coming:
            for request in requests:
                if self.is_sent_ahead(*request[:2]):
                    self._await(*request[:2], request[5])
        self.recorder.booked(requests)
        self._free_before.clear()
        self._fetched.clear()
        if self.packed:
            self.packed.clear()
        if self._landed:  # what takes no time
            self._apply_landed()
            if self.delivered:  # the scheduler is asked in another round of this instant
                self._wake(self.now)

    def _await(self, tensor: int, space: int, end: float) -> None:
        """Somebody has to be told when a booked transfer ends."""
        if end == self.now:
            self._landed.append((tensor, space))
        else:
            self.clock.at(end, self._on_landed, (tensor, space))

    def _land(self, event: Moment) -> None:
        self._landed.append(event.subject)

    def _apply_landed(self) -> None:
        for tensor, space in self._landed:
            self._note_delivery(tensor, space)
            if self._reacts:
                self._follow(self.job_of_tensor(tensor))
        self._landed.clear()

    def _send_flows(self) -> None:
        """Send what was asked for at this instant, in the order of tensor id, as flows."""
        memory = self.memory
        if self.requested:
            self._put_in_order()
            packed, send = self.packed, self.links.request if memory is None else memory.send
            for tensor, space, home, *_, size in self.requested:
                parcel = packed.get((tensor, space)) if packed else None
                way = self.route(home, space)
                if self.real is not self.cluster:
                    way = self.real.route(home, space)
                if parcel is None:
                    flow = Flow((tensor,), home, space, way, size, self.now)
                    self.under_way[tensor, space] = flow
                elif tensor == parcel.tensors[0]:
                    flow = Flow(parcel.tensors, home, space, way, parcel.bytes, self.now)
                    self.under_way |= {(t, space): flow for t in parcel.tensors}
                else:
                    continue
                self.recorder.sent(flow)
                send(flow)
            self.requested.clear()
            self._free_before.clear()
            if packed:
                packed.clear()
            if memory is not None:
                memory.settle()
        while self.delivered_flows:  # what takes no time
            self._deliver()
            if memory is not None:
                memory.settle()
        if self.delivered:  # the scheduler is asked in another round of this instant
            self._wake(self.now)

    def _on_delivered(self, flow: Flow) -> None:
        self.delivered_flows.append(flow)

    def _deliver(self) -> None:
        """Apply the flows that have ended."""
        for flow in self.delivered_flows:
            space = flow.destination
            self.recorder.delivered(flow)
            for tensor in flow.tensors:
                key = (tensor, space)
                del self.under_way[key]
                if self.copies[space][tensor] != self.now:
                    self.copies[space][tensor] = self.now
                    self.forget_forecasts()
                self._note_arrival(tensor, space)
                if self.memory is not None:
                    self.memory.delivered(tensor, space)
        self.delivered_flows.clear()

    def forget_copy(self, tensor: int, space: int) -> None:
        """A copy is gone, or was given up before it was sent: who wants it must ask again."""
        self.under_way.pop((tensor, space), None)
        self.copies[space].pop(tensor, None)

    def _note_arrival(self, tensor: int, space: int) -> None:
        """A tensor is there: its readers may start, and its job may be done."""
        job = self.job_of_tensor(tensor)
        index = self.job_index[job]
        t = tensor - self.first_tensor[job]
        for reader in index.consumers[t]:
            device = self.task_device[self.first_task[job] + reader]
            if device >= 0 and self.space_of[device] == space:
                self.touched.add(device)
        if self.is_awaited(job, t, space):
            self.done_at[job] = self.now
            if self._faults is not None:
                self._faults.note_state(tensor)
            if self._reacts:
                self._follow(job)
        self._note_delivery(tensor, space)

    def transfer_end(self, size: float, source: int, destination: int) -> float:
        """See :class:`SchedulingContext`."""
        if self._link_model.final or source in (destination, EVERYWHERE):
            return super().transfer_end(size, source, destination)
        return self.links.estimate(self.route(source, destination), size)

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`SchedulingContext`; flows by what is known of them now."""
        if self.under_way:
            flow = self.under_way.get((tensor, space))
            if flow is not None:
                carrier = self.links if self.memory is None else self.memory
                return carrier.expected(flow)
        return super().copy_time(tensor, space)

    def is_under_way(self, tensor: int, space: int) -> bool:
        """Whether a transfer of a tensor to a space was sent at an earlier instant and has not ended."""
        if self.booked:
            return self.copies[space].get(tensor, -math.inf) > self.now
        return (tensor, space) in self.under_way

    def _data_arrival(self, task: int, device: int) -> float:
        """When what finished predecessors wrote for a placed task is in its device's space, at least now;
        ``inf`` where some of it was not asked for yet.
        """
        job, space, latest = self.task_job[task], self.space_of[device], self.now
        first, copies, homes = self.first_tensor[job], self.copies[space], self.tensor_home
        for t in self.job_index[job].reads[task - self.first_task[job]]:
            home = homes[first + t]
            if home != space and home >= 0:
                arrival = copies.get(first + t, math.inf)
                if arrival > latest:
                    latest = arrival
        return latest

    def _data_is_here(self, task: int, device: int) -> bool:
        """Whether all that finished predecessors wrote for a placed task is in its device's space."""
        job = self.task_job[task]
        first = self.first_tensor[job]
        space = self.space_of[device]
        for t in self.job_index[job].reads[task - self.first_task[job]]:
            home = self.tensor_home[first + t]
            if home not in (space, EVERYWHERE):
                tensor = first + t
                if tensor not in self.copies[space] or (tensor, space) in self.under_way:
                    return False
        return True

    def _fetch(self, task: int, device: int) -> float | None:
        """Ask for what a placed task reads and may be brought now. Returns when all that is written will
        be there, at least now; None where that may change.
        """
        job = self.task_job[task]
        index = self.job_index[job]
        latest = self._bring(
            index.reads[task - self.first_task[job]],
            self.first_tensor[job],
            self.space_of[device],
            index.bytes,
        )
        if not self.booked:
            if self.memory is not None:
                self.memory.fetch(task, device)
            return None
        if not self.pending[task]:
            self.data_at[task] = latest
            self._fetched.append(task)
        return latest

    def free_bytes(self, space: int) -> float:
        """See :class:`SchedulingContext`."""
        return super().free_bytes(space) if self.memory is None else self.memory.free_bytes(space)

    def waiting_bytes(self, space: int) -> float:
        """See :class:`SchedulingContext`."""
        if self.memory is None:
            return super().waiting_bytes(space)
        return self.memory.waiting_bytes(space)

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """See :class:`SchedulingContext`."""
        if self.memory is None:
            return super().resident_bytes(graph, space)
        return self.memory.resident_bytes(graph, space)

    def evict(
        self, graph: DataflowGraph, space: int, weights: Sequence[str] | None = None
    ) -> float:
        """See :class:`SchedulingContext`."""
        if self.memory is None:
            raise SchedulingError("This run keeps weights resident: there is nothing to evict")
        return self.memory.evict(graph, space, weights)
