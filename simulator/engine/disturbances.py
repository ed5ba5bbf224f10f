"""Devices and links that fail: a part of the engine that says what is lost, and what must run again.

The semantics are stated in docs/semantics.md. In short: a failure takes what runs and is queued on the
device; where it takes the memory as well, tensors of which no other copy is left are written again by
their producers if anybody still needs them. All of it comes back through ``context.lost``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from simulator.context import EVERYWHERE
from simulator.context.packing import is_weight
from simulator.engine.faults import KINDS, Fault, FaultInjector, Faults, RandomFaults
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.trace import LOST

if TYPE_CHECKING:
    from simulator.engine.setting import EngineRun

NEVER = 1 << 40
"""Predecessors that a task of a failed job waits for."""


class Disturbances:
    """What faults do to a run.

    Args:
        run: the simulation.
        faults: what goes wrong.

    Raises:
        InvalidInput: a fault cannot be, or would move the inputs of a batch in limited memory.
    """

    keeps_jobs = True

    def __init__(self, run: EngineRun, faults: Faults) -> None:
        setting, cluster = run.setting, run.cluster
        faults.check(cluster)
        self._run = run
        self._limit = faults.max_attempts
        devices = range(len(cluster.devices))
        self._down_since = [0.0 for _ in devices]
        self._outages: list[tuple[int, float, float]] = []
        self._slowdowns: list[list[float]] = [[] for _ in devices]
        self._links_left: dict[str, list[float]] = {link.name: [] for link in cluster.links}
        self._channels_of = _channels_of(cluster)
        self._done: set[int] = set()
        self._missing: dict[int, set[int]] = {}  # by job: tensors that were written and are lost
        self._gone: set[int] = set()  # tasks to come back through `lost` at this instant
        self._held: set[tuple[int, int]] = set()  # transfers asked for from or to closed spaces
        self._closed: set[int] = (
            set()
        )  # memory spaces that are lost until a device of theirs is back
        # By tensor and destination: transfers that had started and were called off.
        self._called_off: Counter[tuple[int, int]] = Counter()
        self._given_up: set[tuple[int, int]] = set()  # asked for once more than they may be sent
        self._unissued: Counter[int] = Counter()  # by task: failures while it was being issued
        self._over: set[int] = set()  # jobs that no fault can reach
        self._settled: set[int] = set()  # tensors that weights have become wherever they are read
        self._rests = False  # whether nothing but faults was to come after the last instant
        self._handlers: dict[str, Callable[[Fault, bool], None]] = {
            "device_failure": self._on_failure,
            "device_slowdown": self._on_slowdown,
            "link_outage": self._on_link,
            "link_degradation": self._on_link,
            **{what: partial(kind.apply, run) for what, kind in KINDS.items() if kind.apply},
        }
        if setting.memory != "unlimited" and run.serving:
            self._check_batches(faults)
        self._injector = FaultInjector(faults, cluster, run.clock, setting.seed, self._is_over)

    def _check_batches(self, faults: Faults) -> None:
        """Refuse that a failure takes a memory of limited capacity in which requests are served together."""
        for entry in faults.sources:
            for device in self._run.cluster.devices if entry.what == "device_failure" else ():
                index = self._run.cluster.device_index[device.name]
                if entry.where in (None, device.name) and self._takes_memory(entry, index):
                    raise InvalidInput(
                        f"A failure of '{device.name}' takes its memory, and with it the inputs of batches, which "
                        "in limited memory must stay where they are; let the memory survive "
                        "(memory_lost: false), or take memory=unlimited"
                    )

    # -- what the engine asks -------------------------------------------------------------------

    @property
    def is_all_that_waits(self) -> bool:
        """Whether nothing is left to happen but faults, none of which ends another."""
        return self._injector.is_all_that_waits

    def note_rest(self) -> None:
        """An instant is settled. What may go at rest goes at once, not when the next fault has put the
        clock forward.
        """
        run = self._run
        self._rests = run.is_at_rest() and (run.memory is None or not run.memory.relax())

    def stops(self, tensor: int, space: int) -> bool:
        """Whether a transfer that is asked for cannot be sent now: a memory is lost, or it was called off as
        often as it may be.
        """
        if self._are_too_many(self._called_off[tensor, space]):
            self._given_up.add((tensor, space))
            self._run.wake(self._run.now)
        elif space in self._closed or self._run.tensor_home[tensor] in self._closed:
            self._held.add((tensor, space))
        else:
            return False
        return True

    def apply(self) -> bool:
        """Apply what has changed about devices and links; returns whether anything has."""
        run = self._run
        changes = self._injector.take()
        for begins, fault in changes:
            self._handlers[fault.what](fault, begins)
        if changes:
            for job in sorted(self._missing):
                self._run_again(job)
            for task in self._gone:
                self._check_attempts(task)
            lost = {*run.lost, *self._gone}
            run.lost = sorted(t for t in lost if run.task_job[t] not in run.failed_jobs)
            self._gone.clear()
        return self._give_up() or bool(changes)

    def _check_attempts(self, task: int) -> None:
        """Fail the job of a task that was begun as often as it may be and would have to be again."""
        run = self._run
        executed, submitted = run.attempts.get(task, 0), self._unissued[task]
        for attempts, what in (
            (executed, f"executed {_times(executed)} and would have to run again"),
            (
                submitted,
                f"submitted {_times(submitted)} to a device that failed before it began, and would have to "
                "be submitted again",
            ),
        ):
            if self._are_too_many(attempts) and run.task_job[task] not in run.failed_jobs:
                self._fail_job(run.task_job[task], f"'{run.label(task)}' was {what}")

    def _are_too_many(self, attempts: int) -> bool:
        return self._limit is not None and attempts >= self._limit

    def _give_up(self) -> bool:
        """Fail the jobs whose transfers were called off as often as they may be; whether there were any."""
        run = self._run
        given_up = [key for key in sorted(self._given_up) if run.is_wanted(*key, -1)]
        self._given_up.clear()
        for tensor, space in given_up:
            jobs = [run.job_of_tensor(tensor)]
            spaces = run.cluster.spaces
            what = run.job_index[jobs[0]].graph.tensors[tensor - run.first_tensor[jobs[0]]].name
            reason = (
                f"The transfer of '{what}' from '{spaces[run.tensor_home[tensor]].name}' to "
                f"'{spaces[space].name}' was called off {_times(self._called_off[tensor, space])} and "
                "would have to start again; allow more with max_attempts, or let the memory survive "
                "(memory_lost: false)"
            )
            if run.memory is not None and is_weight(run, tensor):
                jobs = run.memory.jobs_waiting_for(tensor, space)
                del self._called_off[tensor, space]  # other jobs may try again
            for job in jobs:
                if job not in run.failed_jobs:
                    self._fail_job(job, reason)
        return bool(given_up)

    def is_done(self, task: int) -> bool:
        """Whether a task has finished and need not run again."""
        return task in self._done

    def is_beyond(self, job: int) -> None:
        """A job is done, its results are where they must be."""
        self._over.add(job)

    def let_go(self, tensor: int) -> None:
        """A tensor lies nowhere any more: should its readers run again, an input comes from its origin, and another
        is written again.
        """
        run = self._run
        for space, copies in enumerate(run.copies):
            if copies.pop(tensor, None) is not None:
                run.under_way.pop((tensor, space), None)
        job = run.job_of_tensor(tensor)
        if tensor - run.first_tensor[job] in run.job_index[job].inputs:
            run.tensor_home[tensor] = self._origin(job)
        else:
            self._miss(job, tensor)

    def _miss(self, job: int, tensor: int) -> None:
        """A tensor that was written is lost."""
        run = self._run
        run.tensor_home[tensor], run.tensor_written[tensor] = EVERYWHERE, math.inf
        self._missing.setdefault(run.leader.get(job, job), set()).add(tensor)

    def _origin(self, job: int) -> int:
        run = self._run
        origin = run.jobs[job].origin
        return EVERYWHERE if origin is None else run.cluster.space_index[origin]

    def finished(self, task: int) -> None:
        """A task has finished: ask for what it wrote wherever it is wanted."""
        run = self._run
        job = run.task_job[task]
        index, first = run.job_index[job], run.first_tensor[job]
        writes = index.writes[task - run.first_task[job]]
        self._done.add(task)
        for t in writes:
            if run.pushes or t in index.wanted:
                self._request_again(first + t)
        if index.updates:
            for t in (*writes, *index.inherits.get(task - run.first_task[job], ())):
                self.note_state(first + t)
        for member in run.members.get(job, (job,)):
            results = [run.first_tensor[member] + t for t in writes]
            if job in self._missing:
                self._missing[job].difference_update(results)
            for tensor, t in zip(results, writes, strict=True) if member != job else ():
                if t in index.outputs:
                    if run.tensor_written[tensor] == math.inf:
                        run.tensor_home[tensor] = run.space_of[run.task_device[task]]
                        run.tensor_written[tensor] = run.now
                    self._request_again(tensor)

    def placed(self, task: int) -> None:
        """A reader of weights is placed: ask for what has become of them already."""
        run = self._run
        job = run.task_job[task]
        inherits = run.job_index[job].inherits
        for t in inherits.get(task - run.first_task[job], ()) if inherits else ():
            tensor = run.first_tensor[job] + t
            if tensor not in self._settled:
                self._request_again(tensor)

    # -- changes --------------------------------------------------------------------------------

    def _on_slowdown(self, fault: Fault, begins: bool) -> None:
        run = self._run
        device = run.cluster.device_index[fault.where]
        factors = self._slowdowns[device]
        (factors.append if begins else factors.remove)(fault.left)
        run.shared_rates[run.space_of[device]].set_factor(device, math.prod(sorted(factors)))

    def _on_link(self, fault: Fault, begins: bool) -> None:
        factors = self._links_left[fault.where]
        (factors.append if begins else factors.remove)(fault.left)
        for channel in self._channels_of[fault.where]:
            self._run.links.set_capacity(channel, math.prod(sorted(factors)))

    def _on_failure(self, fault: Fault, begins: bool) -> None:
        run = self._run
        device = run.cluster.device_index[fault.where]
        space = run.space_of[device]
        if not begins:
            run.down[device] -= 1
            if not run.down[device]:
                self._outages.append((device, self._down_since[device], run.now))
                run.stale[device] = True
                run.touched.add(device)
                self._open(space)
            return
        run.down[device] += 1
        if run.down[device] == 1:
            self._down_since[device] = run.now
            self._halt(device)
            self._gone.update(run.empty_queue(device))
        if self._takes_memory(fault, device):
            self._lose(space)

    def _takes_memory(self, fault: Fault | RandomFaults, device: int) -> bool:
        if fault.memory_lost is not None:
            return fault.memory_lost
        run = self._run
        space = run.space_of[device]
        return run.space_of.count(space) == 1 and run.cluster.spaces[space].name != (
            run.cluster.host
        )

    # -- what a device loses --------------------------------------------------------------------

    def _halt(self, device: int) -> None:
        """Take all that a device has begun or was submitted."""
        run = self._run
        submission = run.submissions[device]
        running = list(run.running[device])
        waiting = [task for task in running if run.start_time[task] == math.inf]
        if len(running) - len(waiting) < run.slots[device]:
            self._unissued.update(waiting[:1])  # a slot waited for the host to issue it
        for task in running:
            if run.start_time[task] < math.inf:
                end = None if submission is None else submission.end_of(task)
                run.recorder.execution(task, device, run.now if end is None else end, LOST)
                run.attempts[task] = run.attempts.get(task, 0) + 1
                if run.finish_time[task] < math.inf:
                    run.device_models[device].end(task, run.now)
            run.start_time[task] = run.finish_time[task] = math.inf
            run.ready_at[task] = run.now
            if run.memory is not None:
                run.memory.lost(task, device)
            run.drop(task)
            self._gone.add(task)
        run.free_slots[device][:] = range(run.slots[device])
        if submission is not None:
            submission.reset()
        run.due = [task for task in run.due if run.task_device[task] >= 0]

    # -- what a memory loses --------------------------------------------------------------------

    def _lose(self, space: int) -> None:
        """Everything in a memory space is gone, and so are transfers from and to it."""
        run = self._run
        inside = [d for d, home in enumerate(run.space_of) if home == space]
        for device in inside:
            self._halt(device)
        if all(run.down[device] for device in inside):
            self._closed.add(space)
        changed = self._call_off(space)
        changed |= run.copies[space].keys()
        run.copies[space].clear()
        if run.memory is not None:
            run.memory.lose(space)
        for job in range(len(run.jobs)):
            if not self._is_beyond(job) or (run.memory is not None and job in run.failed_jobs):
                changed |= self._move_homes(job, space)
        for tensor in sorted(changed):
            self._request_again(tensor)

    def _call_off(self, space: int) -> set[int]:
        """Cancel transfers from and to a space; returns their tensors."""
        run = self._run
        kept = [row for row in run.requested if space not in (row[1], row[2])]
        changed = {row[0] for row in run.requested} - {row[0] for row in kept}
        for tensor, to, *_ in run.requested:
            if tensor in changed and run.is_sent_ahead(tensor, to):
                self._send_no_more(run.job_of_tensor(tensor))
        if len(kept) < len(run.requested):
            run.book_again(kept)
        flows = {
            id(flow): flow
            for flow in run.under_way.values()
            if space in (flow.source, flow.destination)
        }
        for flow in flows.values():
            started = flow.start < run.now
            if run.memory is None or run.memory.called_off(flow):
                run.links.cancel(flow)
            if started:
                run.recorder.delivered(flow)
                self._called_off.update((tensor, flow.destination) for tensor in flow.tensors)
            for tensor in flow.tensors:
                changed.add(tensor)
                if run.under_way.get((tensor, flow.destination)) is flow:
                    run.forget_copy(tensor, flow.destination)
                if run.is_sent_ahead(tensor, flow.destination):
                    self._send_no_more(run.job_of_tensor(tensor))
        return changed

    def _send_no_more(self, job: int) -> None:
        """The inputs of a job that waits do not lie where they were sent: the scheduler is told."""
        run = self._run
        if run.coming.pop(job, None) is not None or run.is_waiting(job):
            self._gone.update(task for task in run.tasks_of(job) if run.is_ready(task))

    def _move_homes(self, job: int, space: int) -> set[int]:
        """What was written into a lost space is at home where a copy is left, or is missing; an input that had moved
        there is at home where a copy is left, or where it came from.
        """
        run, memory = self._run, self._run.memory
        index, first = run.job_index[job], run.first_tensor[job]
        asked = {row[:2] for row in run.requested}
        changed = set()
        inputs = index.inputs if self._origin(job) != space else ()
        for tensor in (first + t for t in (*inputs, *chain.from_iterable(index.writes))):
            if run.tensor_home[tensor] != space or run.tensor_written[tensor] == math.inf:
                continue
            changed.add(tensor)
            for other in range(len(run.cluster.spaces)):
                key = (tensor, other)
                there = tensor in run.copies[other]
                if there and key not in run.under_way and key not in asked:
                    run.tensor_home[tensor] = other
                    run.tensor_written[tensor] = run.copies[other].pop(tensor)
                    if memory is not None:
                        memory.moved(tensor, other)
                    break
            else:
                if tensor - first in inputs:
                    run.tensor_home[tensor] = self._origin(job)
                    if run.serving:
                        self._send_no_more(job)
                else:
                    self._miss(job, tensor)
                if memory is not None:
                    memory.gone(tensor)
        return changed

    def _run_again(self, job: int) -> None:
        """Let the producers of missing tensors run again if somebody needs what they wrote."""
        run = self._run
        members = run.members.get(job, (job,))
        if all(map(self._is_beyond, members)):
            del self._missing[job]
            return
        index = run.job_index[job]
        first = run.first_task[job]
        missing = self._missing[job]
        again, held = [], set()
        for operator in range(len(index.pending) - 1, -1, -1):
            task = first + operator
            if task in self._done and any(
                run.first_tensor[member] + t in missing and self._is_needed(member, t)
                for t in index.writes[operator]
                for member in members
            ):
                self._done.remove(task)
                again.append(task)
                held.update(run.reopen(task))
                if run.memory is not None:
                    run.memory.reopened(task)
                run.attempts[task] = run.attempts.get(task, 0) + 1
                run.start_time[task] = run.finish_time[task] = math.inf
        self._gone.update(again)
        for task in again:
            run.ready_at[task] = math.inf if run.pending[task] else run.now
        for task in held - self._done:
            if run.started[task]:
                continue
            if task not in self._gone and run.is_queued(task):
                run.withdraw(task)
                self._gone.add(task)
            run.ready_at[task] = math.inf
        if held:
            run.ready = [task for task in run.ready if not run.pending[task]]

    def _is_needed(self, job: int, tensor: int) -> bool:
        """Whether a missing tensor (of a job's graph) is a result or has readers yet to start."""
        run = self._run
        index = run.job_index[job]
        settled = run.first_tensor[job] + tensor in self._settled
        if tensor in index.wanted and not settled and not self._is_beyond(job):
            return True
        readers = (run.first_task[job] + reader for reader in index.consumers[tensor])
        return any(task not in self._done and not run.started[task] for task in readers)

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
        run = self._run
        job = run.job_of_tensor(tensor)
        if run.memory is not None and is_weight(run, tensor):
            run.memory.request_again(tensor)
        if run.tensor_written[tensor] == math.inf or self._is_beyond(job):
            return
        index = run.job_index[job]
        t = tensor - run.first_tensor[job]
        wanted = set()
        for reader in index.consumers[t]:
            task = run.first_task[job] + reader
            if run.is_queued(task) and (run.pushes or not run.pending[task]):
                wanted.add(run.space_of[run.task_device[task]])
        if t in index.wanted and t not in index.inputs and tensor not in self._settled:
            wanted.update(run.goals(job, t))
        if t in index.inputs and job in run.coming:
            wanted.add(run.coming[job][0])
        for space in sorted(wanted):
            if run.tensor_home[tensor] not in (space, EVERYWHERE):
                answers = t in index.outputs and not index.consumers[t]
                run.request(tensor, space, run.own_bytes(tensor) if answers else index.bytes[t])

    # -- jobs -----------------------------------------------------------------------------------

    def _is_beyond(self, job: int) -> bool:
        """Whether a job has failed, or is done with all outputs delivered."""
        run = self._run
        if job in self._over or job in run.failed_jobs:
            return True
        if run.tasks_left[job]:
            return False
        first, index = run.first_tensor[job], run.job_index[job]
        asked = {row[:2] for row in run.requested}
        for t in index.wanted - set(index.inputs):
            for goal in () if first + t in self._settled else run.goals(job, t):
                key = (first + t, goal)
                if run.tensor_home[key[0]] == goal:
                    continue
                if key[0] not in run.copies[goal] or key in run.under_way or key in asked:
                    return False
        self._over.add(job)
        return True

    def note_state(self, tensor: int) -> None:
        """What becomes of a weight may lie wherever the weight is read: it has taken its place then, and can no more be
        lost than that.
        """
        run = self._run
        job = run.job_of_tensor(tensor)
        t, asked = tensor - run.first_tensor[job], {row[:2] for row in run.requested}
        readers = run.job_index[job].updates.get(t)
        if readers is None:
            return
        heirs = [run.first_task[job] + reader for reader in readers]
        if run.tensor_written[tensor] == math.inf or not self._done.issuperset(heirs):
            return
        for goal in run.goals(job, t):
            key = (tensor, goal)
            there = tensor in run.copies[goal] and key not in run.under_way and key not in asked
            if run.tensor_home[tensor] != goal and not there:
                return
        self._settled.add(tensor)

    def _is_over(self) -> bool:
        """Whether no fault can change anything any more."""
        run = self._run
        if run.expects_jobs:
            return False
        if all(self._is_beyond(job) for job in range(len(run.jobs))):
            return True
        pending = run.due or run.delivered_flows or run.woken or run.requested
        return not pending and self._rests

    def unfinished_jobs(self) -> set[int]:
        """Jobs that are neither done nor failed."""
        return {job for job in range(len(self._run.jobs)) if not self._is_beyond(job)}

    def _fail_job(self, job: int, reason: str) -> None:
        """A job runs no more, nor do those that it serves: what is queued is withdrawn; what runs, runs to its end."""
        run = self._run
        for member in run.members.get(job, ())[1:]:
            if not self._is_beyond(member):
                self._fail_job(member, reason)
        run.coming.pop(job, None)
        run.failed_jobs[job] = (run.now, reason)
        run.failed.append(job)
        for task in run.tasks_of(job):
            if run.is_queued(task):
                run.withdraw(task)
            if task not in self._done and not run.started[task]:
                run.pending[task] += NEVER
        if run.memory is not None:
            run.memory.failed(job)
        run.ready = [task for task in run.ready if run.task_job[task] != job]
        run.lost = [task for task in run.lost if run.task_job[task] != job]

    def give_up(self) -> bool:
        """Nothing is left to happen: fail the jobs that wait for what is never mended. Returns whether
        anything is broken for good.
        """
        run = self._run
        # What was to happen after the last news was overtaken by faults.
        run.now = run.last_news
        broken = self._broken()
        if broken:
            for job in range(len(run.jobs)):
                if not self._is_beyond(job):
                    self._fail_job(job, self._reason(job))
            if run.memory is not None:
                run.memory.settle()
        for job in run.failed_jobs:  # nothing is expected of these
            run.tasks_left[job] = 0
            for task in run.tasks_of(job):
                run.task_device[task] = max(0, run.task_device[task])
        return bool(broken)

    def _broken(self) -> list[Fault]:
        """The faults in force that let nothing go on."""
        return [fault for fault in self._injector.active if not fault.left]

    def _reason(self, job: int) -> str:
        """Why a job that is not done can never be."""
        run = self._run
        broken = ", ".join(
            f"{'device' if fault.what.startswith('device') else 'link'} '{fault.where}'"
            for fault in self._broken()
        )
        left = [t for t in run.tasks_of(job) if t not in self._done]
        ready = [t for t in left if run.is_ready(t)]
        what = f"'{run.label((ready or left)[0])}'" if left else "Its output"
        return f"{what} waits for {broken}, never mended"

    # -- the end --------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """What a trace's description says of it."""
        run = self._run
        horizon = run.setting.horizon
        end = max(run.now, *run.done_at) if horizon == math.inf else horizon
        down = [
            (device, self._down_since[device], max(end, self._down_since[device]))
            for device, count in enumerate(run.down)
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
