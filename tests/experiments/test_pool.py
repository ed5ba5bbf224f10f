"""The pool: every task once, tasks of a kind kept together, a dead process loses one task."""

import os

from experiments.pool import WorkerDiedError, _Queue, _Worker, work_through


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


def test_one_worker_is_this_process():
    answers = list(work_through([("a", 2), ("b", 3)], square, 1))
    assert answers == [(2, (4, os.getpid())), (3, (9, os.getpid()))]


def test_a_worker_stays_with_a_kind_and_helps_with_the_longest_in_the_end():
    queue = _Queue([("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"), ("b", "b3")])
    first, second = _Worker.__new__(_Worker), _Worker.__new__(_Worker)
    first.seen, second.seen = set(), set()
    assert queue.take(first) == "a1"
    assert queue.take(second) == "b1"
    assert queue.take(first) == "a2"
    # Nothing of its kind or fresh is left: the longest queue.
    assert queue.take(first) == "b2"
    assert queue.take(second) == "b3"
    assert queue.take(first) is None
