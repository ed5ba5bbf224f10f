"""Cells that are missing, and cells that are stale: named in the table, in the report and in methods.txt."""

import io

import yaml
from rich.console import Console

from experiments.compare import compare_sweep
from experiments.comparison import report
from experiments.comparison.answers import incomplete
from experiments.comparison.leaderboard import standings
from experiments.comparison.request_comparison import compare_requests
from experiments.comparison.request_report import request_table
from experiments.comparison.tables import main_frame, main_table
from experiments.comparison.terminal import terminal_table
from experiments.runs.results import told_apart
from tests.experiments.comparison.test_request_comparison import write
from tests.experiments.synthetic_sweep import grid_rows, write_sweep

AXES = {"scheduler": ["heft", "donf", "fcfs"], "model": ["a", "b"]}


def sweep():
    """Six cells were asked for: of model b nobody ran donf, and heft's of model a is stale."""
    seconds = {"heft": 1.0, "donf": 2.0, "fcfs": 3.0}
    rows, choices = grid_rows(lambda scheduler, *_: seconds[scheduler], AXES, seeds=[0])
    rows["stale"] = ""
    at = (rows["scheduler"] == "heft") & (rows["model"] == "a")
    rows.loc[at, "stale"] = "scheduler changed"
    left = rows[~((rows["scheduler"] == "donf") & (rows["model"] == "b"))]
    return left, choices


MISSING = (
    "not complete: 6 cells were asked for, 5 are done, 0 failed, 1 are missing: scheduler=donf model=b "
    "seed.workload=0"
)
STALE = (
    "1 cells are stale (*), made before something changed: a c heft seeds 0,0,0 (scheduler changed)"
)


def test_a_whole_sweep_has_nothing_to_say():
    rows, choices = grid_rows(lambda *_: 1.0, AXES)
    assert incomplete(standings(rows, choices)) == []
    assert incomplete(standings(rows)) == []  # without grid.yaml nobody knows what was asked for


def test_tables_name_what_is_missing_and_mark_what_is_stale():
    table = standings(*sweep())
    assert incomplete(table) == [MISSING, STALE]
    lines = [line.plain for line in terminal_table(table)]
    (marked,) = [line for line in lines if line.endswith("*")]
    assert marked.split()[:2] == ["a", "heft"]
    assert max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    assert MISSING in text
    assert STALE in text
    rows = [row for row in main_table(table).rows if row[-1].endswith("*")]
    assert [(row[0], row[1]) for row in rows] == [("a", "heft")]
    assert "*: stale" in main_table(table).caption
    frame = main_frame(table)
    assert frame.loc[frame["stale"], ["model", "scheduler"]].values.tolist() == [["a", "heft"]]


def test_report_and_methods_name_them_too(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_draw", lambda *_: ([], [], []))
    rows, choices = sweep()
    write_sweep(tmp_path, rows)
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump({"cells": choices}, sort_keys=False))
    console = Console(file=io.StringIO(), width=100, highlight=False)
    index = compare_sweep(tmp_path, console=console)
    assert MISSING in " ".join(console.file.getvalue().split())
    for text in (index.read_text(), (tmp_path / "report" / "methods.txt").read_text()):
        assert MISSING[1:] in text
        assert STALE[1:] in text


def test_many_are_counted_in_the_terminal_and_named_in_the_report():
    rows, choices = grid_rows(lambda *_: 1.0, {"scheduler": ["heft", "donf"]}, seeds=range(20))
    table = standings(rows[rows["scheduler"] == "heft"], choices)
    (note,) = incomplete(table)
    assert note.endswith("scheduler=donf seed.workload=5; and 14 more")
    (note,) = incomplete(table, 300)
    assert note.count("scheduler=donf") == 20


def test_requests_say_which_rows_are_stale(tmp_path):
    cells = [write(tmp_path, name, 0, 1.0, 2.0, 0.5) for name in ("fcfs", "edf")]
    found = compare_requests(tmp_path, cells, {}, stale={cells[1]})
    assert [row[0] for row in request_table(found).rows] == ["fcfs", "edf *"]


def cell(choices, **labels):
    return {"labels": {"model": "m", "cluster": "c", "scheduler": "s"} | labels, "choices": choices}


def test_files_of_the_same_name_are_told_apart_and_others_left_alone():
    for axis, label, first, second, shown in (
        ("instance", "model", "one/a.json", "two/b.json", ("m(instance=a)", "m(instance=b)")),
        ("instance", "model", "one/a.json", "two/a.json", ("m(instance=one/a.json)", None)),
        ("cluster", "cluster", "box", "big", ("c(cluster=box)", "c(cluster=big)")),
        ("scheduler", "scheduler", "a.py:S", "b.py:S", ("s(scheduler=a)", "s(scheduler=b)")),
    ):
        found = told_apart([cell({axis: first}), cell({axis: second}), cell({axis: first})])
        names = [document["labels"][label] for document in found]
        assert names[0] == names[2] == shown[0]
        assert names[1] == (shown[1] or f"m(instance={second})")
    # One more thing that an axis changes in it.
    (found, _) = told_apart(
        [cell({"cluster": name}, cluster="c(count=2)") for name in ("box", "big")]
    )
    assert found["labels"]["cluster"] == "c(count=2, cluster=box)"
    alone = [cell({"cluster": "box"}), cell({"cluster": "box"})]
    assert told_apart(alone) == alone
    two = [cell({"cluster": "box"}, cluster="x"), cell({"cluster": "big"}, cluster="y")]
    assert told_apart(two) == two
