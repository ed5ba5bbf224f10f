"""Workers that work through tasks, each keeping to tasks of a kind so that its caches serve them.

A worker has one batch of tasks at a time: when it dies it is known which those were, and only they are tried
again. Workers are processes of this machine (:class:`Processes`) or of a cluster
(:mod:`experiments.runs.clusters`). Processes end with the one that started them, however that ends.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, Generic, Protocol, TypeVar

from experiments.runs.garbage import collect_seldom
from simulator.errors import HetsimError, InvalidInput
from simulator.support.exit_with_parent import end_with
from simulator.support.own_errors import own_error

T = TypeVar("T")
R = TypeVar("R")
Function = Callable[[Any], Any]
NO_WORKER_S = 60.0
"""Seconds without any worker after which a cluster counts as lost."""
_KEPT = "what was finished is kept, and the same command goes on"


def available_cores() -> int:
    """Cores that this process may use: in a container or under taskset fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerDiedError(Exception):
    """The process that had the task ended without an answer, twice."""


class Worker(Protocol):
    """A process somewhere that takes one batch of tasks at a time."""

    def submit(self, function: Function, tasks: Sequence[Any]) -> Future[list[Any]]:
        """Begin a batch; the answers come in its order, a :class:`HetsimError` in the place of the last if it ended it."""

    def stop(self) -> None:
        """End the worker, and the batch that it has."""


class Pool:
    """A source of workers.

    Args:
        count: workers at once.

    Attributes:
        lost: errors which say that a worker died, and not what its task did.
        gone: errors which say that there is nobody any more to ask.
        interval: seconds after which :meth:`watch` is called again; None: a future says everything.
    """

    lost: tuple[type[BaseException], ...] = (BrokenProcessPool,)
    gone: tuple[type[BaseException], ...] = ()
    interval: float | None = None

    def __init__(self, count: int) -> None:
        self._missing = count

    def batch(self, tasks: int) -> int:
        """The most tasks that a worker gets at once, of so many in all."""
        return 1

    def start(self) -> Worker:
        """A new worker."""
        raise NotImplementedError

    def hire(self, most: int) -> list[Worker]:
        """At most so many workers that are not at work."""
        hired = min(self._missing, most)
        self._missing -= hired
        return [self.start() for _ in range(hired)]

    def lose(self, worker: Worker) -> None:
        """A worker died; :meth:`hire` gives another."""
        worker.stop()
        self._missing += 1

    def watch(self) -> None:
        """End the futures of workers of which nothing else would be heard."""

    def close(self) -> None:
        """Leave nothing behind."""


class Processes(Pool):
    """Processes of this machine."""

    def start(self) -> Worker:
        """See :class:`Pool`."""
        return _Process()


class _Process:
    def __init__(self) -> None:
        # Spawned, not forked: the parent may have threads (NumPy, XGBoost), which a fork would break.
        self._executor = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(_lifeline()[0],),
        )

    def submit(self, function: Function, tasks: Sequence[Any]) -> Future[list[Any]]:
        """See :class:`Worker`."""
        return self._executor.submit(answers_to, function, tasks)

    def stop(self) -> None:
        """See :class:`Worker`."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def answers_to(function: Function, tasks: Sequence[Any]) -> list[Any]:
    """The answers to tasks, in the process of a worker.

    An error of a user's own code becomes its line, which tracebacks do not travel with; an error that the program
    explains is the last answer.
    """
    found: list[Any] = []
    try:
        for task in tasks:
            found.append(function(task))  # noqa: PERF401  # those before an error count
    except Exception as error:
        line = own_error(error)
        if line is None and not isinstance(error, HetsimError):
            raise
        found.append(error if line is None else InvalidInput(line))
    return found


@cache
def _lifeline() -> tuple[Connection, Connection]:
    """Both ends of a pipe; the second is this process's alone, and open as long as it lives."""
    return multiprocessing.get_context("spawn").Pipe(duplex=False)


def _begin(lifeline: Connection) -> None:
    """Ctrl-C reaches the whole process group; files are written whole or not at all, so just end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with(lifeline)
    collect_seldom()


class _Queue(Generic[T]):
    """Tasks by kind; a worker goes on with a kind it knows while there is one.

    What a dead worker had is handed out again, in halves, so that one task that kills its worker is found.
    """

    def __init__(self, tasks: Sequence[tuple[str, T]]) -> None:
        self._kinds: dict[str, list[int]] = {}
        for number, (kind, _) in reversed(list(enumerate(tasks))):
            self._kinds.setdefault(kind, []).append(number)  # taken from the end
        self._fresh = list(self._kinds)
        self._left = len(tasks)
        self._again: list[list[int]] = []
        self._lost: set[int] = set()

    def __len__(self) -> int:
        """Tasks that nobody has."""
        return self._left + sum(map(len, self._again))

    def take(self, seen: set[str], most: int = 1) -> list[int]:
        """The numbers of the tasks that a worker gets, at most so many.

        Args:
            seen: kinds that the worker knows; what it learns is added, what is finished removed.
            most: tasks.
        """
        if self._again:
            return self._again.pop()
        taken: list[int] = []
        while len(taken) < most and self._left:
            kind = self._kind(seen)
            seen.add(kind)
            taken.append(self._kinds[kind].pop())
            self._left -= 1
            if not self._kinds[kind]:
                del self._kinds[kind]
        return taken

    def _kind(self, seen: set[str]) -> str:
        """One that the worker knows, else one that nobody has begun, else that of which most is left."""
        seen &= self._kinds.keys()
        if seen:
            return min(seen)
        while self._fresh:
            kind = self._fresh.pop()
            if kind in self._kinds:
                return kind
        return max(self._kinds, key=lambda kind: len(self._kinds[kind]))

    def lose(self, batch: list[int]) -> bool:
        """The worker of a batch died; whether it was one task that is not tried again, having been lost alone before."""
        if len(batch) == 1:
            if batch[0] in self._lost:
                return True
            self._lost.add(batch[0])
        half = (len(batch) + 1) // 2
        self._again += [part for part in (batch[:half], batch[half:]) if part]
        return False


def work_through(
    tasks: Sequence[tuple[str, T]], function: Callable[[T], R], workers: int | Pool
) -> Iterator[tuple[T, R | WorkerDiedError]]:
    """Yield (task, answer) as answers come.

    A task whose worker died is tried once more.

    Args:
        tasks: (kind, task); tasks of one kind share what is costly to make.
        function: a module's own function; its argument and answer travel between processes. An
            exception of it ends the iteration.
        workers: processes of this machine, with 1 everything runs in this one, kind by kind; or a pool, which
            is closed in the end.

    Raises:
        HetsimError: a cluster has no worker any more.
    """
    if isinstance(workers, int):
        if workers <= 1 or len(tasks) <= 1:
            kinds: dict[str, list[T]] = {}
            for kind, task in tasks:
                kinds.setdefault(kind, []).append(task)
            for task in itertools.chain.from_iterable(kinds.values()):
                yield task, function(task)
            return
        workers = Processes(min(workers, len(tasks)))
    queue, pool = _Queue(tasks), workers
    most = pool.batch(len(tasks))
    running: dict[Future[list[R]], tuple[Worker, set[str], list[int]]] = {}
    idle: list[tuple[Worker, set[str]]] = []
    at_work = watched = time.monotonic()
    try:
        while queue or running:
            idle += [(worker, set()) for worker in pool.hire(-(-len(queue) // most))]
            while idle:
                worker, seen = idle.pop()
                batch = queue.take(seen, most)
                if batch:
                    future = worker.submit(function, [tasks[number][1] for number in batch])
                    running[future] = (worker, seen, batch)
                else:
                    worker.stop()
            if not running:
                if time.monotonic() - at_work > NO_WORKER_S:
                    raise HetsimError(f"The cluster has no worker any more; {_KEPT}")
                time.sleep(pool.interval or 0.1)
                continue
            at_work = time.monotonic()
            if pool.interval is not None and at_work - watched > pool.interval:
                pool.watch()
                watched = at_work
            for future in wait(running, pool.interval, FIRST_COMPLETED).done:
                worker, seen, batch = running.pop(future)
                try:
                    answers = future.result()
                except pool.lost:
                    pool.lose(worker)
                    if queue.lose(batch):
                        yield (
                            tasks[batch[0]][1],
                            WorkerDiedError("the process ended without an answer"),
                        )
                    continue
                idle.append((worker, seen))
                for number, answer in zip(batch, answers, strict=False):
                    if isinstance(answer, HetsimError):
                        raise answer
                    yield tasks[number][1], answer
    except pool.gone as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise HetsimError(f"The cluster went away: {text}; {_KEPT}") from None
    finally:
        for worker in (*(w for w, _ in idle), *(w for w, *_ in running.values())):
            worker.stop()
        pool.close()
