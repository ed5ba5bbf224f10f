"""Runs of any number of requests: state for those in the system, figures of those that have left.

The engine is the same. What differs is what is kept: the columns by job, task and tensor are windows, and a job
that is done is counted (:class:`simulator.analysis.streamed_figures.StreamedFigures`) and dropped from them. Where a part of
the run keeps state by job, the columns are whole and jobs are counted at the end.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from simulator.analysis.streamed_figures import StreamedFigures
from simulator.clock import Moment
from simulator.context import EVERYWHERE
from simulator.errors import SchedulingError
from simulator.model.trace import FINISHED

if TYPE_CHECKING:
    from simulator.context.simulated import Request
    from simulator.engine.setting import EngineRun
    from simulator.links.flows import Flow
    from simulator.model.workload import Job

T = TypeVar("T")


class Window(dict[int, T], Generic[T]):
    """A column of which the entries of jobs that have left are gone; its length counts these, too.

    Args:
        default: of entries that nobody has set; None: such an entry has left.
    """

    __slots__ = ("default", "length")

    def __init__(self, default: T | None = None) -> None:
        super().__init__()
        self.default = default
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def __missing__(self, number: int) -> T:
        if self.default is None:
            raise SchedulingError(
                f"Number {number} is of a request that has left: this run keeps figures only. Keep the "
                "whole trace for a scheduler that looks back"
            )
        return self.default

    def append(self, value: T) -> None:
        """The entry of a new number."""
        self[self.length] = value
        self.length += 1

    def __iadd__(self, values: Sequence[T]) -> Window[T]:
        """The entries of new numbers; where there is a default, they have that."""
        if self.default is None:
            self.update(enumerate(values, self.length))
        self.length += len(values)
        return self


class FiguresRecorder:
    """Counts jobs when they leave and drops them; the result is :class:`StreamedFigures`.

    Args:
        run: the simulation, which has begun nothing yet.
        warm_up: seconds from the start that figures leave out.

    Attributes:
        forgets: whether jobs that have left are dropped: where no part of the run needs them.
    """

    def __init__(self, run: EngineRun, warm_up: float) -> None:
        self._run = run
        self.figures = StreamedFigures(run.cluster, warm_up)
        self._leaving: list[int] = []  # jobs that may be done
        # By job: the transfers of its tensors, and until when they last, or how many are under way.
        self._crossings: dict[int, list[tuple[int, int]]] = {}
        self._until: dict[int, float] = {}
        self._flying: dict[int, int] = {}
        self._executed: set[int] = set()  # tasks that may run again, and have finished
        self.forgets = not any(part.keeps_jobs for part in run.parts)
        self._repeats = bool(run.setting.faults)
        if self.forgets:
            self._open_windows(run)

    def _open_windows(self, run: EngineRun) -> None:
        run.jobs = Window()  # type: ignore[assignment]
        run.job_index = Window()  # type: ignore[assignment]
        run.first_task = array("q")  # type: ignore[assignment]
        run.first_tensor = array("q")  # type: ignore[assignment]
        run.tasks_left = Window()  # type: ignore[assignment]
        run.destination = Window()  # type: ignore[assignment]
        run.done_at = Window()  # type: ignore[assignment]
        run.actual_seconds = Window()  # type: ignore[assignment]
        run.task_job = Window()  # type: ignore[assignment]
        run.pending = Window()  # type: ignore[assignment]
        run.task_device = Window()  # type: ignore[assignment]
        run.ready_at = Window(math.inf)  # type: ignore[assignment]
        run.task_sequence = Window(0)  # type: ignore[assignment]
        run.task_rank = Window(0.0)  # type: ignore[assignment]
        run.placed_at = Window(math.inf)  # type: ignore[assignment]
        run.started = Window(False)  # type: ignore[assignment]
        run.expected_finish = Window(math.inf)  # type: ignore[assignment]
        run.start_time = Window(math.inf)  # type: ignore[assignment]
        run.finish_time = Window(math.inf)  # type: ignore[assignment]
        run.task_slot = Window(0)  # type: ignore[assignment]
        run.data_at = Window(-1.0)  # type: ignore[assignment]
        run.tensor_home = Window(EVERYWHERE)  # type: ignore[assignment]
        run.tensor_written = Window(math.inf)  # type: ignore[assignment]
        self._of_job: tuple[Any, ...] = (
            *(
                run.jobs,
                run.job_index,
                run.tasks_left,
                run.destination,
                run.done_at,
                run.actual_seconds,
            ),
        )
        self._of_task: tuple[Any, ...] = (
            *(
                run.task_job,
                run.pending,
                run.task_device,
                run.ready_at,
                run.task_sequence,
                run.task_rank,
            ),
            *(run.placed_at, run.started, run.expected_finish, run.start_time, run.finish_time),
            *(run.task_slot, run.data_at),
        )

    def arrived(self, job: Job) -> None:
        """See :class:`simulator.engine.recorder.Recorder`."""
        self.figures.arrive(job.arrival)

    def execution(self, task: int, device: int, finish: float, status: str) -> None:
        """See :class:`simulator.engine.recorder.Recorder`."""
        run = self._run
        job = run.task_job[task]
        self.figures.execute(
            run.job_index[job].graph,
            task - run.first_task[job],
            device,
            run.start_time[task],
            finish,
            len(run.members[job]) if job in run.members else 1,
            status,
        )
        if self._repeats and status == FINISHED:
            self.figures.repeated += task in self._executed
            self._executed.add(task)

    def booked(self, requests: Sequence[Request]) -> None:
        """See :class:`simulator.engine.recorder.Recorder`."""
        run, until = self._run, self._until
        horizon = run.setting.horizon
        for tensor, space, *_, end, size in requests:
            job = run.job_of_tensor(tensor)
            self._crossings.setdefault(job, []).append((tensor, space))
            if end > until.get(job, -1.0):
                until[job] = end
            if end <= horizon:
                self.figures.move(1, size)

    def sent(self, flow: Flow) -> None:
        """See :class:`simulator.engine.recorder.Recorder`."""
        for tensor in flow.tensors if self.forgets else ():
            job = self._run.job_of_tensor(tensor)
            self._crossings.setdefault(job, []).append((tensor, flow.destination))
            self._flying[job] = self._flying.get(job, 0) + 1

    def delivered(self, flow: Flow) -> None:
        """See :class:`simulator.engine.recorder.Recorder`."""
        run = self._run
        for tensor in flow.tensors:
            if self.forgets:
                job = run.job_of_tensor(tensor)
                self._flying[job] -= 1
                self._leaving.append(job)
            size = flow.size if len(flow.tensors) == 1 else run.own_bytes(tensor)
            self.figures.move(1, size * flow.carried)

    def left(self, jobs: Iterable[int]) -> None:
        """See :class:`simulator.engine.recorder.Recorder`."""
        if self.forgets:
            self._leaving += jobs

    def settled(self) -> None:
        """An instant is settled: count and forget the jobs that are done."""
        run = self._run
        kept: dict[int, Job] = run.jobs  # type: ignore[assignment]
        for job in self._leaving:
            if job not in kept or run.tasks_left[job] or self._flying.get(job):
                continue
            until = max(self._until.get(job, -1.0), run.done_at[job])
            if until > run.now:
                run.clock.at(until, [self._come_back], job)
                continue
            entry = kept[job]
            if job in run.rejected:
                self.figures.reject(entry, run.rejected.pop(job)[0])
            else:
                graph = run.served_by.pop(job, entry.graph)
                self.figures.finish(entry, run.done_at[job], graph)
            self._forget(job)
        self._leaving.clear()

    def _come_back(self, event: Moment) -> None:
        self._leaving.append(event.subject)

    def _forget(self, job: int) -> None:
        run = self._run
        index, task, tensor = run.job_index[job], run.first_task[job], run.first_tensor[job]
        for number in range(task, task + len(index.pending)):
            for column in self._of_task:
                column.pop(number, None)
        for number in range(tensor, tensor + len(index.bytes)):
            run.tensor_home.pop(number, None)  # type: ignore[call-arg]
            run.tensor_written.pop(number, None)  # type: ignore[call-arg]
        for crossing, space in self._crossings.pop(job, ()):
            run.copies[space].pop(crossing, None)
        self._until.pop(job, None)
        self._flying.pop(job, None)
        for column in self._of_job:
            del column[job]
        if job in run.members:
            del run.members[job]
        elif job in run.leader:
            del run.leader[job]
        run.followed.discard(job)

    def result(self) -> StreamedFigures:
        """See :class:`simulator.engine.recorder.Recorder`."""
        run, figures, horizon = self._run, self.figures, self._run.setting.horizon
        if horizon < math.inf:
            figures.horizon = horizon
            for task, device, end, status in run.cut_off():
                self.execution(task, device, end, status)
        if self.forgets:
            for entry in run.jobs.values():  # type: ignore[attr-defined]
                figures.queue(entry)
        else:
            self._count_jobs()
        figures.settings = run.settings()
        figures.wallclock = {
            "decisions": float(run.decisions),
            "deciding_seconds": run.deciding_seconds,
        }
        return figures

    def _count_jobs(self) -> None:
        """Count all jobs by what became of them."""
        run, figures = self._run, self.figures
        for job, (finish, status, reason) in enumerate(zip(*run.fates(), strict=True)):
            entry = run.jobs[job]
            if status == FINISHED:
                figures.finish(entry, finish, run.served_by.get(job, entry.graph))
            elif status == "failed":
                figures.fail(entry, finish, reason)
            elif status == "rejected":
                figures.reject(entry, finish)
            else:
                figures.queue(entry)
