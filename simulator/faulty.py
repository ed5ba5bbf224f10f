"""Runs in which devices and links fail: what is lost, and what must run again.

The semantics are stated in docs/semantics.md. In short: a failure takes what runs and is queued on the
device; where it takes the memory as well, tensors of which no other copy is left are written again by
their producers if anybody still needs them. All of it comes back through ``context.lost``.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from simulator.cluster import Cluster
from simulator.context import EVERYWHERE
from simulator.errors import InvalidInput
from simulator.faults import Fault, FaultInjector
from simulator.flows import Flow
from simulator.packing import Message
from simulator.simulation import LOST, Simulation
from simulator.trace import Table

NEVER = 1 << 40
"""Predecessors that a task of a failed job waits for."""


class FaultySimulation(Simulation):
    """See the module docstring."""

    def _prepare(self) -> None:
        setting, cluster = self._setting, self.cluster
        setting.faults.check(cluster)
        unusual = setting.memory != "unlimited" or setting.weights != "resident"
        if setting.faults.fails_devices and unusual:
            raise InvalidInput(
                "Failing devices are simulated with memory 'unlimited' and weights 'resident' only; "
                f"this run has memory '{setting.memory}' and weights '{setting.weights}'"
            )
        super()._prepare()
        devices = range(len(cluster.devices))
        self._down = [0 for _ in devices]  # failures in force
        self._down_since = [0.0 for _ in devices]
        self._outages: list[tuple[int, float, float]] = []
        self._slowdowns: list[list[float]] = [[] for _ in devices]
        self._links_left: dict[str, list[float]] = {link.name: [] for link in cluster.links}
        self._channels_of = _channels_of(cluster)
        self._done: set[int] = set()
        self._missing: dict[int, set[int]] = {}  # by job: tensors that were written and are lost
        self._gone: set[int] = set()  # tasks to come back through `lost` at this instant
        self._closed: set[int] = set()  # spaces that are lost until a device of theirs is back
        self._held: set[tuple[int, int]] = set()  # transfers asked for from or to these
        self._cancelled: list[Flow] = []
        # By tensor and destination: transfers that had started and were called off.
        self._called_off: Counter[tuple[int, int]] = Counter()
        self._given_up: set[tuple[int, int]] = set()  # asked for once more than they may be sent
        self._unissued: Counter[int] = Counter()  # by task: failures while it was being issued
        self._over: set[int] = set()  # jobs that no fault can reach
        self._last_news = 0.0  # when anything has happened last
        self._rests = False  # whether nothing but faults was to come after the last instant
        self._handlers = {
            "device_failure": self._on_failure,
            "device_slowdown": self._on_slowdown,
            "link_outage": self._on_link,
            "link_degradation": self._on_link,
        }
        self._injector = FaultInjector(
            setting.faults, cluster, self._clock, setting.seed, self._is_over
        )

    def _slowed(self) -> set[int]:
        return self._setting.faults.slowed(self.cluster)

    # -- what schedulers see --------------------------------------------------------------------

    def is_up(self, device: int) -> bool:
        """See :class:`simulator.context.SchedulingContext`."""
        return not self._down[device]

    @property
    def idle(self) -> list[int]:
        """See :class:`simulator.context.SchedulingContext`; devices that are down are not idle."""
        return [device for device in super().idle if not self._down[device]]

    def available(self, device: int) -> float:
        """See :class:`simulator.context.SchedulingContext`; ``inf`` while a device is down."""
        return math.inf if self._down[device] else super().available(device)

    def _decide(self) -> None:
        self._last_news = self.now
        super()._decide()

    def _finish(self, task: int) -> None:
        self._last_news = self.now
        super()._finish(task)

    def _run_to_horizon(self) -> None:
        self._injector.idle_events = int(self._setting.horizon < math.inf)
        super()._run_to_horizon()
        self._injector.idle_events = 0

    def _settle(self) -> None:
        super()._settle()
        # What may go at rest goes at once, not when the next fault has put the clock forward.
        self._rests = self._is_at_rest() and not self._memory.relax()

    def _is_at_rest(self) -> bool:
        """See :class:`Simulation`; faults to come are no reason to go on."""
        return not self._clock._queue or self._injector.is_all_that_waits

    # -- changes --------------------------------------------------------------------------------

    def _change(self) -> bool:
        changes = self._injector.take()
        for begins, fault in changes:
            self._handlers[fault.what](fault, begins)
        if changes:
            for job in sorted(self._missing):
                self._run_again(job)
            for task in self._gone:
                self._check_attempts(task)
            self.lost = sorted(t for t in self._gone if self._job[t] not in self._failed_jobs)
            self._gone.clear()
        return self._give_up() or bool(changes)

    def _check_attempts(self, task: int) -> None:
        """Fail the job of a task that was begun as often as it may be and would have to be again."""
        executed, submitted = self._attempts.get(task, 0), self._unissued[task]
        for attempts, what in (
            (executed, f"executed {_times(executed)} and would have to run again"),
            (
                submitted,
                f"submitted {_times(submitted)} to a device that failed before it began, and would have to "
                "be submitted again",
            ),
        ):
            if self._are_too_many(attempts) and self._job[task] not in self._failed_jobs:
                self._fail_job(self._job[task], f"'{self.label(task)}' was {what}")

    def _are_too_many(self, attempts: int) -> bool:
        limit = self._setting.faults.max_attempts
        return limit is not None and attempts >= limit

    def _give_up(self) -> bool:
        """Fail the jobs whose transfers were called off as often as they may be; whether there were any."""
        given_up = [key for key in sorted(self._given_up) if self._is_wanted(*key, -1)]
        self._given_up.clear()
        for tensor, space in given_up:
            job = self._job_of_tensor(tensor)
            if job not in self._failed_jobs:
                spaces = self.cluster.spaces
                what = self._job_index[job].graph.tensors[tensor - self._first_tensor[job]].name
                self._fail_job(
                    job,
                    f"The transfer of '{what}' from '{spaces[self._home[tensor]].name}' to "
                    f"'{spaces[space].name}' was called off {_times(self._called_off[tensor, space])} and "
                    "would have to start again; allow more with max_attempts, or let the memory survive "
                    "(memory_lost: false)",
                )
        return bool(given_up)

    def _on_slowdown(self, fault: Fault, begins: bool) -> None:
        device = self.cluster.device_index[fault.where]
        factors = self._slowdowns[device]
        (factors.append if begins else factors.remove)(fault.left)
        self._shared_rates[self._space_of[device]].set_factor(device, math.prod(sorted(factors)))

    def _on_link(self, fault: Fault, begins: bool) -> None:
        factors = self._links_left[fault.where]
        (factors.append if begins else factors.remove)(fault.left)
        for channel in self._channels_of[fault.where]:
            self._links.set_capacity(channel, math.prod(sorted(factors)))

    def _on_failure(self, fault: Fault, begins: bool) -> None:
        device = self.cluster.device_index[fault.where]
        space = self._space_of[device]
        if not begins:
            self._down[device] -= 1
            if not self._down[device]:
                self._outages.append((device, self._down_since[device], self.now))
                self._stale[device] = True
                self._touched.add(device)
                self._open(space)
            return
        self._down[device] += 1
        if self._down[device] == 1:
            self._down_since[device] = self.now
            self._halt(device)
            self._gone.update(self._empty_queue(device))
        if self._takes_memory(fault, device):
            self._lose(space)

    def _takes_memory(self, fault: Fault, device: int) -> bool:
        if fault.memory_lost is not None:
            return fault.memory_lost
        space = self._space_of[device]
        return self._space_of.count(space) == 1 and self.cluster.spaces[space].name != (
            self.cluster.host
        )

    # -- what a device loses --------------------------------------------------------------------

    def _halt(self, device: int) -> None:
        """Take all that a device has begun or was submitted."""
        running = list(self._running[device])
        waiting = [task for task in running if self._start_time[task] == math.inf]
        if len(running) - len(waiting) < self._slots[device]:
            self._unissued.update(waiting[:1])  # a slot waited for the host to issue it
        for task in running:
            if self._start_time[task] < math.inf:
                end = self._feeders[device].end_of(task)
                self._record(task, device, self.now if end is None else end, LOST)
                self._attempts[task] = self._attempts.get(task, 0) + 1
                if self._finish_time[task] < math.inf:
                    self._models[device].end(task, self.now)
            self._start_time[task] = self._finish_time[task] = math.inf
            self._ready_at[task] = self.now
            self._drop(task)
            self._gone.add(task)
        self._feeders[device].reset()
        self._due = [task for task in self._due if self._device[task] >= 0]

    # -- what a memory loses --------------------------------------------------------------------

    def _lose(self, space: int) -> None:
        """Everything in a memory space is gone, and so are transfers from and to it."""
        inside = [d for d, home in enumerate(self._space_of) if home == space]
        for device in inside:
            self._halt(device)
        if all(self._down[device] for device in inside):
            self._closed.add(space)
        changed = self._call_off(space)
        for key in [key for key in self._copies if key[1] == space]:
            del self._copies[key]
            changed.add(key[0])
        for job in range(len(self.jobs)):
            if not self._is_beyond(job):
                changed |= self._move_homes(job, space)
        for tensor in sorted(changed):
            self._request_again(tensor)

    def _call_off(self, space: int) -> set[int]:
        """Cancel transfers from and to a space; returns their tensors."""
        kept = [row for row in self._requests if space not in (row[1], row[2])]
        changed = {row[0] for row in self._requests} - {row[0] for row in kept}
        if len(kept) < len(self._requests):
            self._book_again(kept)
        flows = {
            id(flow): flow
            for flow in self._under_way.values()
            if space in (flow.source, flow.destination)
        }
        for flow in flows.values():
            started = flow.start < self.now
            self._links.cancel(flow)
            if started:
                self._cancelled.append(flow)
                self._called_off.update((tensor, flow.destination) for tensor in flow.tensors)
            for tensor in flow.tensors:
                self._forget(tensor, flow.destination)
                changed.add(tensor)
        return changed

    def _move_homes(self, job: int, space: int) -> set[int]:
        """What was written into a lost space is at home where a copy is left, or is missing."""
        index, first = self._job_index[job], self._first_tensor[job]
        asked = {row[:2] for row in self._requests}
        changed = set()
        for tensors in index.writes:
            for tensor in (first + t for t in tensors):
                if self._home[tensor] != space or self._written[tensor] == math.inf:
                    continue
                changed.add(tensor)
                for other in range(len(self.cluster.spaces)):
                    key = (tensor, other)
                    if key in self._copies and key not in self._under_way and key not in asked:
                        self._home[tensor] = other
                        self._written[tensor] = self._copies.pop(key)
                        break
                else:
                    self._home[tensor] = EVERYWHERE
                    self._written[tensor] = math.inf
                    self._missing.setdefault(job, set()).add(tensor)
        return changed

    def _run_again(self, job: int) -> None:
        """Let the producers of missing tensors run again if somebody needs what they wrote."""
        if self._is_beyond(job):
            del self._missing[job]
            return
        index = self._job_index[job]
        first, first_tensor = self._first_task[job], self._first_tensor[job]
        missing = self._missing[job]
        again, held = [], set()
        for operator in range(len(index.pending) - 1, -1, -1):
            task = first + operator
            if task in self._done and any(
                first_tensor + t in missing and self._is_needed(job, t)
                for t in index.writes[operator]
            ):
                self._done.remove(task)
                again.append(task)
                held.update(self._reopen(task))
                self._attempts[task] = self._attempts.get(task, 0) + 1
                self._start_time[task] = self._finish_time[task] = math.inf
        self._gone.update(again)
        for task in again:
            self._ready_at[task] = math.inf if self._pending[task] else self.now
        for task in held - self._done:
            if self._started[task]:
                continue
            if task not in self._gone and self.is_queued(task):
                self.withdraw(task)
                self._gone.add(task)
            self._ready_at[task] = math.inf
        if held:
            self.ready = [task for task in self.ready if not self._pending[task]]

    def _is_needed(self, job: int, tensor: int) -> bool:
        """Whether a missing tensor (of a job's graph) is a result or has readers yet to start."""
        index = self._job_index[job]
        if tensor in index.outputs:
            return True
        readers = (self._first_task[job] + reader for reader in index.consumers[tensor])
        return any(task not in self._done and not self._started[task] for task in readers)

    # -- what comes back ------------------------------------------------------------------------

    def _open(self, space: int) -> None:
        """A device of a space is back: what was asked for meanwhile may be sent."""
        self._closed.discard(space)
        held = sorted(self._held)
        self._held.clear()
        for tensor in dict.fromkeys(tensor for tensor, _ in held):
            self._request_again(tensor)

    def _request_again(self, tensor: int) -> None:
        """Ask for a tensor wherever it is wanted and not on its way."""
        job = self._job_of_tensor(tensor)
        if self._written[tensor] == math.inf or self._is_beyond(job):
            return
        index = self._job_index[job]
        t = tensor - self._first_tensor[job]
        wanted = set()
        for reader in index.consumers[t]:
            task = self._first_task[job] + reader
            if self.is_queued(task) and (self._push or not self._pending[task]):
                wanted.add(self._space_of[self._device[task]])
        if t in index.outputs and t not in index.inputs and self._destination[job] != EVERYWHERE:
            wanted.add(self._destination[job])
        for space in sorted(wanted):
            if self._home[tensor] not in (space, EVERYWHERE):
                self._request(tensor, space, index.bytes[t])

    def _request(self, tensor: int, space: int, size: float) -> None:
        if self._are_too_many(self._called_off[tensor, space]):
            self._given_up.add((tensor, space))
            Simulation._wake(self, self.now)
        elif space in self._closed or self._home[tensor] in self._closed:
            self._held.add((tensor, space))
        else:
            super()._request(tensor, space, size)

    def _request_message(self, parcel: Message) -> None:
        space = parcel.destination
        closed = space in self._closed or self._home[parcel.tensors[0]] in self._closed
        if closed or any(self._are_too_many(self._called_off[t, space]) for t in parcel.tensors):
            for tensor in parcel.tensors:
                del self._packed[tensor, space]
            for tensor in parcel.tensors:
                self._request(tensor, space, self._tensor_bytes(tensor))
        else:
            super()._request_message(parcel)

    def _request_outputs(self, task: int, device: int) -> None:
        job = self._job[task]
        first = self._first_tensor[job]
        for t in self._job_index[job].writes[task - self._first_task[job]]:
            if self._push or t in self._job_index[job].outputs:
                self._request_again(first + t)

    def _begin_tasks(self, device: int) -> None:
        if not self._down[device]:
            super()._begin_tasks(device)

    def _complete(self, task: int, device: int) -> list[int]:
        job = self._job[task]
        first = self._first_tensor[job]
        tensors = [first + t for t in self._job_index[job].writes[task - self._first_task[job]]]
        # Of a task that ran again: what was not lost stays where it is.
        left = [
            (t, self._home[t], self._written[t]) for t in tensors if self._written[t] < math.inf
        ]
        released = super()._complete(task, device)
        for tensor, home, written in left:
            self._home[tensor], self._written[tensor] = home, written
        if job in self._missing:
            self._missing[job].difference_update(tensors)
        self._done.add(task)
        begun = {t for t in released if t in self._done or self._started[t]}
        if begun:
            self.ready = [t for t in self.ready if t not in begun]
        return [t for t in released if t not in begun]

    # -- jobs -----------------------------------------------------------------------------------

    def _is_beyond(self, job: int) -> bool:
        """Whether a job has failed, or is done with all outputs delivered."""
        if job in self._over or job in self._failed_jobs:
            return True
        if self._left[job]:
            return False
        destination, first = self._destination[job], self._first_tensor[job]
        index = self._job_index[job]
        if destination != EVERYWHERE:
            asked = {row[:2] for row in self._requests}
            for t in index.outputs:
                key = (first + t, destination)
                if t in index.inputs or self._home[key[0]] == destination:
                    continue
                if key not in self._copies or key in self._under_way or key in asked:
                    return False
        self._over.add(job)
        return True

    def _is_over(self) -> bool:
        """Whether no fault can change anything any more."""
        if self._next_job < len(self._workload) or self._admit_now:
            return False
        if all(self._is_beyond(job) for job in range(len(self.jobs))):
            return True
        pending = self._due or self._delivered or self._woken or self._requests
        return not pending and self._rests

    def _unfinished_jobs(self) -> set[int]:
        return {job for job in range(len(self.jobs)) if not self._is_beyond(job)}

    def _fail_job(self, job: int, reason: str) -> None:
        """A job runs no more: what is queued of it is withdrawn; what runs, runs to its end."""
        self._failed_jobs[job] = (self.now, reason)
        self.failed.append(job)
        for task in self.tasks_of(job):
            if self.is_queued(task):
                self.withdraw(task)
            if task not in self._done:
                self._pending[task] += NEVER
        self.ready = [task for task in self.ready if self._job[task] != job]
        self.lost = [task for task in self.lost if self._job[task] != job]

    def _check_rest(self) -> None:
        # What was to happen after the last news was overtaken by faults.
        self.now = self._last_news
        if self._broken():
            for job in range(len(self.jobs)):
                if not self._is_beyond(job):
                    self._fail_job(job, self._reason(job))
        else:
            self._memory.check()
        for job in self._failed_jobs:  # nothing is expected of these
            self._left[job] = 0
            for task in self.tasks_of(job):
                self._device[task] = max(0, self._device[task])
        self._check_finished(self._scheduler)

    def _broken(self) -> list[Fault]:
        """The faults in force that let nothing go on."""
        return [fault for fault in self._injector.active if not fault.left]

    def _reason(self, job: int) -> str:
        """Why a job that is not done can never be."""
        broken = ", ".join(
            f"{'device' if fault.what.startswith('device') else 'link'} '{fault.where}'"
            for fault in self._broken()
        )
        left = [t for t in self.tasks_of(job) if t not in self._done]
        ready = [t for t in left if self.is_ready(t)]
        what = f"'{self.label((ready or left)[0])}'" if left else "Its output"
        return f"{what} waits for {broken}, never mended"

    # -- the end --------------------------------------------------------------------------------

    def _carried(self, flow: Flow) -> float:
        # What is not sent of a transfer that was called off; 0 of the others.
        return 1.0 - flow.remaining / flow.size if flow.size else 1.0

    def _transfer_table(self) -> Table:
        self._arrivals.update(self._cancelled)
        return super()._transfer_table()

    def _report(self) -> dict[str, Any]:
        horizon = self._setting.horizon
        end = max(self.now, *self._done_at) if horizon == math.inf else horizon
        down = [
            (device, self._down_since[device], max(end, self._down_since[device]))
            for device, count in enumerate(self._down)
            if count
        ]
        report: dict[str, Any] = {}
        if self._injector.happened:
            report["faults"] = self._injector.report()
        if self._outages or down:
            report["outages"] = [list(row) for row in sorted([*self._outages, *down])]
        return report


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _channels_of(cluster: Cluster) -> dict[str, list[int]]:
    """For each link the channels that it has."""
    found, channel = {}, 0
    for link in cluster.links:
        count = 1 if link.half_duplex else 2
        found[link.name] = list(range(channel, channel + count))
        channel += count
    return found
