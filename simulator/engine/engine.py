"""The engine: one event loop on SimPy that executes jobs on devices and links.

The loop applies all events of one instant, lets the scheduler decide once, sends what placements and
finishes have asked for, and starts what can start. The order within an instant is: task finish, transfer
end, device or link change, arrival, decision, transfer requests, start; then id.

What varies is a part that the engine composes, and each part declares what it needs:

- A link model whose transfers' ends are final when they are booked (:mod:`simulator.links.registry`) needs no event for
  them. Where an end may move (shared links, faults, limited memory, links that are believed otherwise than they
  are), transfers are flows with events (:mod:`simulator.links.flows`).
- A device whose executions end when they are said to (:mod:`simulator.devices.constant`) may be given its next task
  while the task's data is on its way: the start is known, and needs no event either.
- Memory (:mod:`simulator.memory.memory`), faults (:mod:`simulator.engine.disturbances`) and the time that decisions take
  (:mod:`simulator.engine.decision_delay`) are there where the run asks for them.
- The recorder (:mod:`simulator.engine.recorder`) decides what is kept.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, ClassVar

import numpy as np

from simulator.clock import Clock, Moment
from simulator.context.scheduling import EVERYWHERE
from simulator.context.serving import SERVING
from simulator.devices.host_launch_lock import launchers_of
from simulator.devices.input_reuse_cost import FarInputs, reads_far
from simulator.devices.launched_transfers import flows_of
from simulator.devices.shared_rate import execution_models
from simulator.devices.submission import submission_of
from simulator.devices.weight_cache import WeightCaches, caches_weights
from simulator.engine.decision_delay import DecisionDelay
from simulator.engine.disturbances import Disturbances
from simulator.engine.movement import DataMovement
from simulator.engine.recorder import TraceRecorder
from simulator.engine.setting import EngineRun, Part, Recorder, Setting, check_possible
from simulator.errors import InvalidInput
from simulator.memory.registry import abilities, make_memory
from simulator.model.costs import CostTable, rows_of
from simulator.model.graph import DataflowGraph
from simulator.model.trace import FINISHED
from simulator.model.workload import Job


class Simulation(DataMovement):
    """One run. Use :func:`simulator.engine.run.simulate`."""

    _ways_out: ClassVar[Mapping[str, str]] = {
        "evict": "load weights on demand (weights=on_demand)",
        "batch": "keep weights resident (weights=resident)",
    }

    def __init__(
        self, setting: Setting, recorder: Callable[[EngineRun], Recorder] = TraceRecorder
    ) -> None:
        super().__init__(setting, Clock())
        cluster, costs = setting.cluster, setting.costs
        self.offers = abilities(setting.weights) | {"pack"}
        if setting.weights == "resident":
            self.offers |= SERVING
        self._checked: set[tuple[object, ...]] = set()  # kinds of jobs that can be run
        if setting.workload.known:
            self._check_run(setting.workload, setting.scheduler)
        else:
            self._check_abilities(setting.scheduler)
        if isinstance(setting.actual, CostTable):
            setting.actual.check_covers(cluster)
            for graph in setting.workload.graphs:
                check_possible(graph, cluster, costs[graph], setting.actual[graph])
        self._workload = setting.workload
        self.scheduler = setting.scheduler
        self.is_static = setting.scheduler.static
        self._reacts = setting.workload.reacts
        self._actual_source = setting.actual
        self._rng = np.random.default_rng(setting.seed)
        self.actual_seconds = []
        self._to_come: Iterator[Job] = iter(())
        self._next: Job | None = None
        self._joining: deque[Job] = deque()  # jobs of this instant, where jobs follow on others
        self.followed = set()
        self.woken = False
        self._settled_at = -1.0  # the instant whose starts have happened
        self.last_news = 0.0  # when anything has happened last
        self.deciding_seconds = 0.0
        self.decisions = 0
        self._awaiting: set[int] = set()  # jobs that it will be told of when their inputs have room
        self.serving = bool(SERVING & self.offers & setting.scheduler.needs)
        self._plans_ahead = False  # whether a task was ever placed before it was ready
        self._prepare()
        self.recorder = recorder(self)
        self._forgets = self.recorder.forgets

    def _prepare(self) -> None:
        """Compose the parts."""
        setting, cluster = self.setting, self.real
        devices = range(len(cluster.devices))
        self._on_finish = [self._end]
        self._on_alarm = [self._ring]
        self._on_wake = [self._wake_up]
        self._on_arrival = [self._come]
        self._on_follower = [self._come_after]
        self._faults = Disturbances(self, setting.faults) if setting.faults else None
        self._fails = setting.faults.fails_devices
        self._delay = (
            None if setting.decision_cost is None else DecisionDelay(self, setting.decision_cost)
        )
        launchers = launchers_of(cluster)
        slowed = setting.faults.slowed(cluster)
        self.device_models, self.shared_rates = execution_models(
            cluster, self._bytes_of, self.finish_at, launchers, slowed
        )
        self.submissions = [submission_of(self, d) for d in devices]
        for device, submission in enumerate(self.submissions):
            if submission is not None:
                self._projections[device] = submission.window.project
        self._submits_ahead = any(s is not None for s in self.submissions)
        self._caches = WeightCaches(cluster) if caches_weights(cluster) else None
        self._far_inputs = FarInputs(cluster) if reads_far(cluster) else None
        self.links = flows_of(cluster, self.contention, self.clock, launchers, self._on_delivered)
        self.memory = make_memory(
            self, self.links, setting.memory, setting.weights, setting.workload, setting.horizon
        )
        launched = any(link.launcher is not None for link in cluster.links)
        self.booked = self._link_model.final and not (
            self.memory or self._faults or launched or self.real is not self.cluster
        )
        # Devices whose next start needs no event although its data is on its way, and the tasks there.
        unaffected = self._caches is None and self._far_inputs is None
        self._foresees = [
            self.booked
            and unaffected
            and self.device_models[d].final
            and self.submissions[d] is None
            and self.slots[d] == 1
            for d in devices
        ]
        self.foreseen = [-1 for _ in devices]
        self._overheads = [device.launch_overhead for device in cluster.devices]
        self._alarms = [-1.0 for _ in devices]  # when a device looks again at its queue
        self._shared = list(dict.fromkeys(self.shared_rates.values()))

    @property
    def parts(self) -> list[Part]:
        """Those that the run asks for."""
        parts: tuple[Part | None, ...] = (self.memory, self._faults, self._delay)
        return [part for part in parts if part is not None]

    # -- the loop -------------------------------------------------------------------------------

    def run(self) -> Any:
        """Run to the end, or to the horizon; returns what the recorder makes of it.

        Raises:
            SchedulingError: work is left that can never run; names it.
        """
        self.scheduler.begin(self)
        self._workload.begin()
        self._to_come = iter(self._workload)
        self._schedule_arrival()
        horizon, memory = self.setting.horizon, self.memory
        self.clock.run_instants(self._settle, horizon)
        while self.is_at_rest() and memory is not None and memory.relax():
            self.clock.run_instants(self._settle, horizon)
        if self.is_at_rest():
            self._check_rest()
        return self.recorder.result()

    def is_at_rest(self) -> bool:
        """Whether nothing is left to happen, faults aside: they are no reason to go on."""
        if self._faults is not None and self._faults.is_all_that_waits:
            return True
        return self.clock.peek() == math.inf

    def _check_rest(self) -> None:
        """Nothing is left to happen: refuse that anything is left to do."""
        faults, memory = self._faults, self.memory
        if not (faults is not None and faults.give_up()) and memory is not None:
            memory.check()
        self._check_finished(self.scheduler)

    def _settle(self, now: float) -> None:
        """One round of an instant: apply what happened, decide, send and start what can be.

        Tasks that take no time end in another round of the same instant.
        """
        self.now = now
        memory = self.memory
        news = self._apply(now)
        if self._delay is not None:
            news = self._delay.may_decide(news)
        if news:
            self.last_news = now
            if len(self.ready) > 1:
                self.ready.sort()
            if self._delay is None:
                self._decide()
            else:
                self._delay.decide(self._decide)
        if memory is not None:
            memory.settle()
        if not self.booked:
            self._send_flows()
            self.links.settle()
        elif self.requested:
            self._send_booked()
        if self.touched:
            touched, self.touched = self.touched, set()
            for device in sorted(touched) if len(touched) > 1 else touched:
                submission = self.submissions[device]
                if self.down[device]:
                    continue
                if submission is None:
                    self._feed(device)
                else:
                    submission.feed()
        for shared in self._shared:
            shared.settle(now)
        self._settled_at = now
        if self._forgets:
            self.recorder.settled()
        if self._faults is not None:
            self._faults.note_rest()

    def _apply(self, now: float) -> bool:
        """Apply everything that happened; returns whether the scheduler must be asked."""
        news = self.woken
        self.woken = False
        if self.due:
            news = news or not self.is_static
            self.last_news = now
            due, self.due = self.due, []
            if len(due) > 1:
                due.sort()
            for task in due:
                self._finish(task)
            self.finished += due
        if self.delivered_flows:
            self._deliver()
        if self._landed:
            self._apply_landed()
        if self._faults is not None and self._faults.apply():
            news = True
        while self._joining:
            news = True
            self._arrive()
        if self.serving and self.memory is not None:  # inputs that find room at once are there
            self.memory.settle()
        return news or len(self.delivered) > 0

    def _decide(self) -> None:
        """Let the scheduler decide once."""
        began = time.perf_counter()
        self.scheduler.decide(self)
        self.deciding_seconds += time.perf_counter() - began
        self.decisions += 1
        self._clear_instant()

    # -- arrivals -------------------------------------------------------------------------------

    def _schedule_arrival(self) -> None:
        job = next(self._to_come, None)
        if not self._workload.known and job is not None:
            self._check_next(job)
        self._next = job
        if job is not None:
            self.clock.at(job.arrival, self._on_arrival, job)

    def _check_next(self, job: Job) -> None:
        """Refuse a job that is drawn while the run goes on and cannot be run."""
        if self._next is not None and job.arrival < self._next.arrival:
            number = len(self.jobs) + len(self._joining)
            raise InvalidInput(
                f"Job {number} arrives at {job.arrival} s, before job {number - 1} at "
                f"{self._next.arrival} s; sort the jobs by arrival"
            )
        kind = (job.graph, job.origin, job.destination)
        if kind not in self._checked:
            self._check_job(job)
            self._checked.add(kind)

    def _come(self, event: Moment) -> None:
        self._joining.append(event.subject)
        self._schedule_arrival()

    def _come_after(self, event: Moment) -> None:
        self._joining.append(event.subject)

    def _follow(self, job: int) -> None:
        """A job may be done: if its outputs are where they must be, another may follow on it."""
        if self.tasks_left[job] or job in self.followed:
            return
        first, index = self.first_tensor[job], self.job_index[job]
        for t in index.wanted if index.updates or self.destination[job] != EVERYWHERE else ():
            for goal in self.goals(job, t):
                at = self.copy_time(first + t, goal)
                if at is None or at > self.now or (first + t, goal) in self.under_way:
                    return
        self._send_next(job)

    def _send_next(self, job: int) -> None:
        self.followed.add(job)
        follower = self._workload.follow(self.jobs[job], self.now)
        if follower is not None:
            self.clock.at(follower.arrival, self._on_follower, follower)

    def reject(self, job: int, reason: str) -> None:
        """See :class:`BatchingContext`."""
        self._check_serving(job)
        if self._delay is not None:
            self._delay.rejects(job, reason)
        super().reject(job, reason)
        if self._delay is not None and self._delay.holds_back:
            return
        self._awaiting.discard(job)
        if self.memory is not None:
            self.memory.rejected(job)
        if self.requested:
            self._take_back_requests(-1)
        if self._reacts:
            self._send_next(job)
        self.recorder.left((job,))

    def send(self, job: int, space: int) -> None:
        """See :class:`BatchingContext`."""
        super().send(job, space)
        if self._delay is not None:
            self._delay.sends(job, space)

    def _arrive(self) -> None:
        job = self._joining.popleft()
        number = self._admit(job)
        self._keeps_state |= bool(self.job_index[number].updates)
        self.actual_seconds.append(self._actual_of(job.graph, job.arrival))
        if self.memory is not None:
            self.memory.arrived(number)
        self.recorder.arrived(job)

    def _may_serve(self) -> bool:
        return self.serving

    def _note_batch(self, leader: int, graph: DataflowGraph) -> None:
        self.actual_seconds[leader] = self._actual_of(graph, self.now)
        if self.memory is not None:
            self.memory.batched(leader)

    def awaits_room(self, job: int) -> bool:
        """See :class:`BatchingContext`."""
        if self.memory is None or not self.memory.is_outside(job):
            return False
        self._awaiting.add(job)
        return True

    def found_room(self, job: int) -> None:
        """A job's inputs lie where they come from."""
        if job in self._awaiting:
            self._awaiting.discard(job)
            self.delivered.append(job)

    def _actual_of(self, graph: DataflowGraph, moment: float) -> list[Sequence[float]]:
        """Actual seconds [operators][devices] of an execution of a graph that was known from then on;
        executions with one table share them.
        """
        source = self._actual_source
        if source is None:
            return self.believed_costs[graph].lists
        if isinstance(source, CostTable):
            return source[graph].lists
        return rows_of(source.realise(graph, self.believed_costs[graph], self._rng, moment))

    # -- tasks ----------------------------------------------------------------------------------

    def _feed(self, device: int) -> None:
        """Let a device begin the heads of its queue, as far as it has slots and they lack nothing."""
        slots, queue = self.free_slots[device], self.queues[device]
        now = self.now
        foresees = self._foresees[device]
        while slots and queue:
            task = queue[0][2]
            if self.pending[task]:
                return
            start = now
            if self.booked:
                start = self.data_at[task]
                if start < 0:
                    start = self.data_at[task] = self._data_arrival(task, device)
                if start > now and not foresees:
                    self._look_again(device, start)
                    return
                if start < now:
                    start = now
            elif not self.admits(task, device):
                return
            if foresees:
                job = self.task_job[task]
                seconds = self.actual_seconds[job][task - self.first_task[job]][device]
                finish = start + (self._overheads[device] + seconds)
                if start > now:
                    if finish == start:  # it ends in another round of the instant of its start
                        self._look_again(device, start)
                        return
                    self.foreseen[device] = task
                else:
                    self.started[task] = True
                self.running[device].append(heappop(queue)[2])
                self.task_slot[task] = heappop(slots)
                self.start_time[task] = start
                self.finish_time[task] = finish
                self.clock.at(finish, self._on_finish, task)
            else:
                self.started[self._start(device)] = True
                self.execute(task, device, heappop(slots))

    def _look_again(self, device: int, moment: float) -> None:
        """Let a device look at its queue when the data of the head will be there."""
        if moment < math.inf and self._alarms[device] != moment:
            self._alarms[device] = moment
            self.clock.at(moment, self._on_alarm, device)

    def _ring(self, event: Moment) -> None:
        self.touched.add(event.subject)

    def admits(self, task: int, device: int) -> bool:
        """Whether the head of a queue, which must be taken then, has its data and its room."""
        if self.booked:
            arrival = self._data_arrival(task, device)
            if arrival > self.now:
                self._look_again(device, arrival)
            return arrival <= self.now
        return self._data_is_here(task, device) and (
            self.memory is None or self.memory.admit(task, device)
        )

    def take(self, device: int) -> None:
        """Take the head of a queue out of it: it can no longer be withdrawn."""
        self.started[self._start(device)] = True

    def execute(self, task: int, device: int, slot: int) -> None:
        """Let a task that was taken begin now."""
        self.task_slot[task] = slot
        self.start_time[task] = self.now
        job = self.task_job[task]
        operator = task - self.first_task[job]
        seconds = self.actual_seconds[job][operator][device]
        if self._caches is not None:
            index = self.job_index[job]
            seconds *= self._caches.execute(index.costs, index.graph, operator, device)
        if self._far_inputs is not None:
            graph = self.job_index[job].graph
            seconds += self._far_inputs.execute(graph, job, operator, device)
        self.device_models[device].begin(task, seconds, self.now)

    def finish_at(self, task: int, moment: float) -> None:
        """Let a running task end then; an earlier word about it no longer counts."""
        self.finish_time[task] = moment
        self.clock.at(moment, self._on_finish, task)

    def _end(self, event: Moment) -> None:
        """A task may end now."""
        task = event.subject
        # Not if it was re-timed since, nor twice if that led back to the same end.
        if self.finish_time[task] != event.time:
            return
        self.finish_time[task] = math.inf
        device = self.task_device[task]
        if self._foresees[device]:
            self.due.append(task)
            return
        model = self.device_models[device]
        if model.goes_on(task, event.time):
            return
        model.end(task, event.time)
        submission = self.submissions[device]
        if submission is None:
            self.due.append(task)
        else:
            submission.ended(task)

    def _finish(self, task: int) -> None:
        """The host learns that a task has finished."""
        now, device, job = self.now, self.task_device[task], self.task_job[task]
        submission = self.submissions[device]
        if submission is None:
            heappush(self.free_slots[device], self.task_slot[task])
            finish = now
            if self.foreseen[device] == task:
                self.foreseen[device] = -1
                self.started[task] = True
        else:
            finish = submission.known(task)
        touched = self.touched
        touched.add(device)
        self.recorder.execution(task, device, finish, FINISHED)
        released = self._complete(task, device)
        if self._plans_ahead:
            for successor in released:
                place = self.task_device[successor]
                if place >= 0:
                    touched.add(place)
                    if not self.pushes:
                        self._fetch(successor, place)
        if self._submits_ahead:
            for successor in self.successors_of(task):
                # The others that it waits for may all be submitted to its own device.
                if self.pending[successor] and self.task_device[successor] >= 0:
                    touched.add(self.task_device[successor])
        if self._faults is not None:
            self._faults.finished(task)
        elif (
            self.destination[job] != EVERYWHERE
            or self.members
            or self._plans_ahead
            or self.job_index[job].updates
        ):
            self._request_outputs(task, device)
        if self.memory is not None:
            self.memory.finished(task, device)
        if self.done_at[job] < now:
            self.done_at[job] = now
        if self._reacts:
            for member in self.members.get(job, (job,)):
                self._follow(member)
        if not self.tasks_left[job]:
            self.recorder.left(self.members.get(job, (job,)))

    def _bytes_of(self, task: int) -> float:
        """Bytes that a task reads and writes, weights included."""
        job = self.task_job[task]
        return self.job_index[job].moved_bytes[task - self.first_task[job]]

    def _began(self, task: int) -> float:
        return self.start_time[task]

    def has_started(self, task: int) -> bool:
        """See :class:`simulator.context.scheduling.SchedulingContext`."""
        if self.started[task]:
            return True
        # A foreseen start has no event of its own; at its instant, decisions precede it.
        start = self.start_time[task]
        return start < self.now or (start == self.now and self._settled_at == start)

    def is_done(self, task: int) -> bool:
        """Whether a task has finished and need not run again, where tasks may have to."""
        return self._faults is not None and self._faults.is_done(task)

    def is_waiting(self, job: int) -> bool:
        """See :class:`BatchingContext`."""
        return super().is_waiting(job) and job not in self.failed_jobs

    def has_failed(self, job: int) -> bool:
        """See :class:`BatchingContext`."""
        return job in self.failed_jobs

    def has_left(self, job: int) -> bool:
        """Whether a job has failed or was refused."""
        return job in self.failed_jobs or job in self.rejected

    def let_go(self, tensor: int) -> None:
        """A tensor lies nowhere any more; only what runs again could want it."""
        if self._faults is not None:
            self._faults.let_go(tensor)

    def is_beyond_faults(self, job: int) -> None:
        """A job is done, its results are where they must be."""
        if self._faults is not None:
            self._faults.is_beyond(job)

    # -- placement ------------------------------------------------------------------------------

    @property
    def expects_jobs(self) -> bool:
        """Whether jobs are to arrive yet that do not follow on others."""
        return self._next is not None or bool(self._joining)

    @property
    def forecasts_hold(self) -> bool:
        """See :class:`simulator.context.scheduling.SchedulingContext`."""
        return self.booked and self.contention == "none" and not self.returned

    def accept(self, task: int, device: int, rank: float) -> float | None:
        """See :class:`SchedulingContext`."""
        self.touched.add(device)
        if self.memory is not None:
            self.memory.placed(task, device)
        foreseen = self.foreseen[device]
        if foreseen >= 0 and rank < self.task_rank[foreseen] and not self.has_started(foreseen):
            self._return_foreseen(device)
        if self.pending[task]:
            self._plans_ahead = True
            if self.pushes:
                self._fetch(task, device)
            return None
        return self._fetch(task, device)

    def _request_state(self, task: int, device: int) -> None:
        if self._faults is None:
            super()._request_state(task, device)
        else:
            self._faults.placed(task)

    def _return_foreseen(self, device: int) -> None:
        """Put a task whose start was foreseen back into the queue, whose order changes."""
        task = self.foreseen[device]
        self.foreseen[device] = -1
        self.start_time[task] = self.finish_time[task] = math.inf
        heappush(self.free_slots[device], self.task_slot[task])
        self.running[device].remove(task)
        heappush(self.queues[device], (self.task_rank[task], self.task_sequence[task], task))

    def _release(self, task: int, device: int) -> None:
        self.touched.add(device)
        if self.foreseen[device] == task:
            self._return_foreseen(device)
        if self.memory is not None:
            self.memory.withdrawn(task, device)
        self.data_at[task] = -1.0
        if self.requested:
            self._take_back_requests(task)

    def _wake(self, moment: float) -> None:
        if self._delay is None:
            self.wake(moment)
        else:
            self._delay.wake(moment)

    def wake(self, moment: float) -> None:
        """Have the scheduler asked at a moment."""
        self.clock.at(moment, self._on_wake)

    def _wake_up(self, _: Moment) -> None:
        self.woken = True

    # -- the end --------------------------------------------------------------------------------

    def settings(self) -> dict[str, object]:
        """What a trace's description says beside the names of things."""
        settings: dict[str, object] = {
            "world": self.world,
            "scheduler": self.scheduler.name,
            "movement": self.movement,
            "contention": self.contention,
            "memory": self.setting.memory,
            "weights": self.setting.weights,
        }
        for part in self.parts:
            settings |= part.report()
        if self.setting.horizon < math.inf:
            settings["horizon_s"] = self.setting.horizon
        return settings

    def fates(self) -> tuple[list[float], list[str], list[str]]:
        """Of every job the finish, what it ended as, and why if it failed."""
        count = len(self.jobs)
        finishes, statuses, reasons = list(self.done_at), ["finished"] * count, [""] * count
        # A run without a horizon ends when all is done.
        unfinished = self._unfinished_jobs() if self.setting.horizon < math.inf else ()
        for job in unfinished:
            finishes[job], statuses[job] = math.inf, "queued"
        for status, jobs in (("failed", self.failed_jobs), ("rejected", self.rejected)):
            for job, (moment, reason) in jobs.items():
                finishes[job], statuses[job], reasons[job] = moment, status, reason
        return finishes, statuses, reasons

    def _unfinished_jobs(self) -> set[int]:
        """Jobs of which tasks are not known to be finished, or outputs not delivered."""
        if self._faults is not None:
            return self._faults.unfinished_jobs()
        horizon = self.setting.horizon
        unfinished = {
            j for j, left in enumerate(self.tasks_left) if left or self.done_at[j] > horizon
        }
        for tensor, space in self.under_way:
            job = self.job_of_tensor(tensor)
            if self.is_awaited(job, tensor - self.first_tensor[job], space):
                unfinished.add(job)
        return unfinished

    def cut_off(self) -> list[tuple[int, int, float, str]]:
        """Task, device, end and status of the executions of which the host knew no end at the horizon."""
        horizon, rows = self.setting.horizon, []
        for device, tasks in enumerate(self.running):
            for task in sorted(tasks):
                submission = self.submissions[device]
                end = None if submission is None else submission.end_of(task)
                if self.start_time[task] <= horizon:  # not if it was submitted only
                    row = (task, device, horizon if end is None else end)
                    rows.append((*row, "running" if end is None else FINISHED))
        return rows
