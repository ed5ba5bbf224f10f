"""Processes that work through tasks, each keeping to tasks of a kind so that its caches serve them.

Every worker is a process of its own with one task at a time: when one dies it is known which task it
had, and only that task is lost. All of them end with the process that started them, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from experiments.runs.garbage import collect_seldom
from simulator.errors import InvalidInput
from simulator.support.exit_with_parent import end_with
from simulator.support.own_errors import own_error

T = TypeVar("T")
R = TypeVar("R")


def available_cores() -> int:
    """Cores that this process may use: in a container or under taskset fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerDiedError(Exception):
    """The process that had the task ended without an answer."""


class _Worker:
    def __init__(self) -> None:
        # Spawned, not forked: the parent may have threads (NumPy, XGBoost), which a fork would break.
        self._executor = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(_lifeline()[0],),
        )
        self.seen: set[str] = set()

    def submit(self, function: Callable[[T], R], task: T) -> Future[R]:
        return self._executor.submit(_called, function, task)

    def stop(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def _called(function: Callable[[T], R], task: T) -> R:
    """The answer; an error of a user's own code travels with its line, which tracebacks do not."""
    try:
        return function(task)
    except Exception as error:
        line = own_error(error)
        if line is None:
            raise
        raise InvalidInput(line) from None


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
    """Tasks by kind; a worker goes on with a kind it knows while there is one."""

    def __init__(self, tasks: Sequence[tuple[str, T]]) -> None:
        self._kinds: dict[str, list[T]] = {}
        for kind, task in tasks:
            self._kinds.setdefault(kind, []).append(task)
        for queue in self._kinds.values():
            queue.reverse()  # taken from the end
        self._begun: set[str] = set()

    def take(self, worker: _Worker) -> T | None:
        left = [kind for kind, queue in self._kinds.items() if queue]
        if not left:
            return None
        known = [kind for kind in left if kind in worker.seen]
        fresh = [kind for kind in left if kind not in self._begun]
        longest = max(left, key=lambda kind: len(self._kinds[kind]))
        kind = (known or fresh or [longest])[0]
        worker.seen.add(kind)
        self._begun.add(kind)
        return self._kinds[kind].pop()


def work_through(
    tasks: Sequence[tuple[str, T]], function: Callable[[T], R], workers: int
) -> Iterator[tuple[T, R | WorkerDiedError]]:
    """Yield (task, answer) as answers come.

    Args:
        tasks: (kind, task); tasks of one kind share what is costly to make.
        function: a module's own function; its argument and answer travel between processes. An
            exception of it ends the iteration.
        workers: processes; with 1 everything runs in this one.
    """
    if workers <= 1 or len(tasks) <= 1:
        for _, task in tasks:
            yield task, function(task)
        return
    queue = _Queue(tasks)
    running: dict[Future[R], tuple[_Worker, T]] = {}
    idle = [_Worker() for _ in range(min(workers, len(tasks)))]
    try:
        while True:
            while idle:
                worker = idle.pop()
                following = queue.take(worker)
                if following is None:
                    worker.stop()
                else:
                    running[worker.submit(function, following)] = (worker, following)
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                worker, task = running.pop(future)
                try:
                    answer: R | WorkerDiedError = future.result()
                except BrokenProcessPool:
                    worker.stop()
                    worker = _Worker()
                    answer = WorkerDiedError("the process ended without an answer")
                idle.append(worker)
                yield task, answer
    finally:
        for worker in (*idle, *(worker for worker, _ in running.values())):
            worker.stop()
