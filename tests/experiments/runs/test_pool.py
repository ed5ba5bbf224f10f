"""The pool: every task once, tasks of a kind kept together, a dead process loses one task."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.runs.pool import WorkerDiedError, _Queue, work_through


def square(number):
    if number < 0:
        os._exit(1)
    return number * number, os.getpid()


def test_every_task_has_one_answer_and_a_dead_process_loses_its_own():
    tasks = [(str(n % 3), n) for n in (0, 1, 2, 3, -1, 4, 5)]
    answers = list(work_through(tasks, square, 2))
    assert sorted(task for task, _ in answers) == [-1, 0, 1, 2, 3, 4, 5]
    for task, answer in answers:
        if task < 0:
            assert isinstance(answer, WorkerDiedError)
        else:
            assert answer[0] == task * task
            assert answer[1] != os.getpid()


def test_one_worker_is_this_process_and_works_kind_by_kind():
    answers = list(work_through([("a", 2), ("b", 3), ("a", 1)], square, 1))
    assert answers == [(2, (4, os.getpid())), (1, (1, os.getpid())), (3, (9, os.getpid()))]


def test_a_worker_stays_with_a_kind_and_helps_with_the_longest_in_the_end():
    tasks = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"), ("b", "b3")]
    queue = _Queue(tasks)
    first, second = set(), set()

    def take(seen):
        return [tasks[number][1] for number in queue.take(seen)]

    assert take(first) == ["a1"]
    assert take(second) == ["b1"]
    assert take(first) == ["a2"]
    # Nothing of its kind or fresh is left: the longest queue.
    assert take(first) == ["b2"]
    assert take(second) == ["b3"]
    assert take(first) == []


ENDLESS = """
import os, sys, time
from pathlib import Path
from experiments.runs.pool import work_through

def endless(folder):
    Path(folder, f"{os.getpid()}.begun").touch()
    if Path(folder, "holds").exists():
        sum(range(10**12))  # holds the interpreter: no other thread of the process can act
    time.sleep(600)

if __name__ == "__main__":
    list(work_through([("a", sys.argv[1]), ("b", sys.argv[1]), ("c", sys.argv[1])], endless, 2))
"""


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("with_signal", "holds"), [("SIGTERM", False), ("SIGKILL", False), ("SIGKILL", True)]
)
def test_workers_end_with_a_killed_parent(tmp_path, pytestconfig, with_signal, holds):
    if holds:
        (tmp_path / "holds").touch()
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(pytestconfig.rootpath)},
        stderr=subprocess.DEVNULL,
    )
    workers = []
    try:
        assert until(lambda: len(list(tmp_path.glob("*.begun"))) == 2, 120)
        workers = [int(path.stem) for path in tmp_path.glob("*.begun")]
        assert all(map(running, workers))
        parent.send_signal(getattr(signal, with_signal))
        assert until(lambda: not any(map(running, workers)), 20)
        assert until(lambda: parent.poll() is not None, 20)
    finally:
        for pid in (parent.pid, *filter(running, workers)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.wait()
