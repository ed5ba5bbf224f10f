"""Where nobody watches, a line now and then says how far long work is."""

import io

import pytest
from rich.console import Console

from experiments.runs import progress


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_a_minute(clock):
    file = io.StringIO()
    with progress.progress_bar(Console(file=file, width=40)) as bar:
        task = bar.add_task("cases", total=10)
        for second in range(0, 200, 20):
            clock[0] = float(second)
            bar.advance(task)
        clock[0] = 300.0
        bar.update(task, description="runs", completed=3, total=None)
    assert file.getvalue().split("\n") == [
        "cases: 4 of 10, about 90 s left",  # four in 60 s
        "cases: 7 of 10, about 51 s left",
        "cases: 10 of 10",
        "runs: 3 of 10, about 12 min left",
        "",
    ]


def test_what_is_short_says_nothing(clock):
    file = io.StringIO()
    with progress.progress_bar(Console(file=file)) as bar:
        for _ in bar.track(range(100), description="factors"):
            clock[0] += 0.1
    assert file.getvalue() == ""


def test_a_terminal_has_a_bar(clock):
    file = io.StringIO()
    with progress.progress_bar(Console(file=file, force_terminal=True)) as bar:
        task = bar.add_task("cases", total=2)
        clock[0] = 500.0
        bar.advance(task)
        bar.refresh()
    assert "cases: 1 of 2" not in file.getvalue()
    assert "1/2" in file.getvalue()
    assert progress.time_left(1, 2, 500.0) == "about 8 min left"


def test_the_time_left_is_that_of_the_mean_rate_so_far():
    assert progress.time_left(0, 10, 5.0) == progress.time_left(3, None, 5.0) == ""
    assert progress.time_left(3, 10, None) == progress.time_left(10, 10, 5.0) == ""
    assert progress.time_left(3, 10, 30.0) == "about 70 s left"
    assert progress.time_left(1, 10, 1000.0) == "about 2.5 h left"
