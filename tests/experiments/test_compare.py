"""compare: a sweep's folder to table and report, two runs to their differences."""

import io
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from experiments import compare as command
from experiments.compare import compare, compare_sweep, main
from experiments.comparison import report
from experiments.comparison.analysis import Options
from experiments.comparison.differences import (
    compare_runs,
    config_differences,
    operator_differences,
)
from simulator import schedulers
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from tests.experiments.comparison.test_leaderboard import row
from tests.experiments.synthetic_sweep import sweep_rows, write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A small sweep with traces, a failed cell, and its report."""
    folder = tmp_path_factory.mktemp("sweeps") / "small"
    models = (("branches", 8, 4), ("narrow", 6, 2))
    names = ("fcfs", "heft", "single_device")
    rows = sweep_rows(models, names, draws=20, cells=folder / "cells")
    failed = pd.DataFrame(
        [
            row(
                "donf",
                np.nan,
                model="narrow",
                cluster="cpu2_gpu1",
                status="failed",
                error="it <broke>",
            )
        ]
    )
    write_sweep(
        folder,
        pd.concat([rows, failed], ignore_index=True),
        name="small",
        command="python -m experiments.sweep name=small",
        wall_s=1.5,
        simulated=6,
    )
    console = Console(file=io.StringIO(), width=100, highlight=False)
    index = compare_sweep(folder, console=console)
    return folder, index, console.file.getvalue()


class Links(HTMLParser):
    """Collects what a page refers to and checks that its tags close."""

    def __init__(self):
        super().__init__()
        self.found, self.open = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.found += [value for key, value in attrs if key in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_table_is_printed_and_names_the_report(sweep):
    folder, index, text = sweep
    lines = text.splitlines()
    assert all(len(line) <= 100 for line in lines[:-1])
    assert lines[0].startswith("branches: ")
    assert "7 cells, 1 failed, 1.5 s" in text
    assert "run them again: python -m experiments.sweep name=small rerun=failed" in text
    assert lines[-1] == f"wrote {index}"
    assert index == folder / "report" / "index.html"


def test_report_is_complete(sweep):
    _, index, _ = sweep
    names = {path.name for path in index.parent.iterdir() if path.is_file()}
    stems = ["fig_makespan", "fig_profile", "fig_pairs", "fig_gap", "fig_planning"]
    stems += ["fig_gantt_branches", "fig_gantt_narrow"]
    figures = {f"{stem}.{suffix}" for stem in stems for suffix in ("pdf", "png", "csv", "txt")}
    tables = ("table_main", "table_overall", "table_pairs", "table_by_factor")
    written = {f"{name}.{suffix}" for name in tables for suffix in ("csv", "md", "tex")}
    assert names == figures | written | {"index.html", "methods.txt"}
    page = index.read_text()
    links = Links()
    links.feed(page)
    assert links.open == []
    for link in links.found:
        # Nothing from the network, nothing missing; the sweep writes failures.csv itself.
        there = link == "../failures.csv" or (index.parent / link).is_file()
        assert there or link.startswith("#"), link
    assert "it &lt;broke&gt;" in page
    assert "uncalibrated" in page
    for stem in stems:
        caption = (index.parent / f"{stem}.txt").read_text()
        assert "n = " in caption


def test_figures_hold_the_sweeps_own_numbers(sweep):
    folder, index, _ = sweep
    results = pd.read_parquet(folder / "results.parquet").set_index(["model", "scheduler"])
    main_table = pd.read_csv(index.parent / "table_main.csv").set_index(["model", "scheduler"])
    key = ("branches", "heft")
    assert main_table.loc[key, "makespan_s"] == pytest.approx(results.loc[key, "makespan_s"])
    draws = np.stack(
        [results.loc[("branches", name), "draws"] for name in ("heft", "fcfs", "single_device")]
    )
    wins = (draws[0] < draws[1:].min(axis=0)).mean()
    assert main_table.loc[key, "p_best"] == pytest.approx(wins, abs=0.026)
    gaps = pd.read_csv(index.parent / "fig_gap.csv").set_index(["contest", "scheduler"])
    expected = results.loc[key, "makespan_s"] / results.loc[key, "bound_s"]
    assert gaps.loc[key, "ratio_to_bound"] == pytest.approx(expected)
    pairs = pd.read_csv(index.parent / "fig_pairs.csv")
    assert set(pairs["scheduler"]) == {"fcfs", "heft", "best device"}
    assert (pairs["wins"] + pairs["ties"] + pairs["losses"] == 2).all()
    profile = pd.read_csv(index.parent / "fig_profile.csv")
    assert set(profile["reference"]) == {"best", "lower bound"}
    for _, part in profile.groupby("reference"):
        assert part["ratio"].iloc[0] == 1.0
        assert (part.iloc[-1, 2:] == 1.0).all()


def test_a_new_report_replaces_an_old_one_whole(sweep, tmp_path, monkeypatch):
    folder = write_sweep(tmp_path / "s", pd.DataFrame([row("a", 1.0), row("b", 2.0)]), name="s")
    old = folder / "report" / "fig_gantt_gone.png"
    old.parent.mkdir()
    old.write_bytes(b"")
    for drawing in ("draw_profile", "draw_pairs", "draw_makespans"):
        monkeypatch.setattr(report, drawing, fake_figure)
    for drawing in ("draw_gaps", "draw_planning"):
        monkeypatch.setattr(report, drawing, lambda *_: None)
    console = Console(file=io.StringIO(), width=100)
    index = compare_sweep(folder, console=console)
    assert not old.exists()
    before = index.read_text()

    def fail(*_):
        raise RuntimeError("disk full")

    monkeypatch.setattr(report, "draw_pairs", fail)
    with pytest.raises(RuntimeError):
        compare_sweep(folder, console=console)
    assert index.read_text() == before
    assert not list(index.parent.glob(".*"))


def fake_figure(*arguments):
    (stem,) = (argument for argument in arguments if isinstance(argument, Path))
    for suffix in (".png", ".pdf", ".csv", ".txt"):
        stem.with_name(stem.name + suffix).write_text("n = 1")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda f: None, r"There is no folder .*/broken\. There: .*/good"),
        (lambda f: f.mkdir(), "neither a sweep's folder"),
        (lambda f: (f / "cells").mkdir(parents=True), "no results.parquet yet"),
        (
            lambda f: (f.mkdir(), (f / "results.parquet").write_bytes(b"PAR1")),
            "Cannot read .*truncated",
        ),
        (
            lambda f: write_sweep(f, pd.DataFrame([row("a", 1.0)]).drop(columns="scheduler")),
            "lack column scheduler",
        ),
        (
            lambda f: write_sweep(
                f, pd.DataFrame([row("a", np.nan, status="failed", error="why")])
            ),
            "All 1 cells .* failed. The first: why",
        ),
        (
            lambda f: (
                write_sweep(f, pd.DataFrame([row("a", 1.0)])),
                (f / "manifest.json").write_text('{"wall_s": '),
            ),
            "manifest.json is damaged",
        ),
    ],
)
def test_damaged_folders_are_named_in_one_sentence(tmp_path, prepare, message):
    write_sweep(tmp_path / "good", pd.DataFrame([row("a", 1.0)]))
    folder = tmp_path / "broken"
    prepare(folder)
    with pytest.raises(InvalidInput, match=message):
        compare_sweep(folder, console=Console(file=io.StringIO()))
    assert not (folder / "report").exists()


def test_command_line(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(
        command, "compare", lambda paths, baseline, **more: seen.append((paths, baseline, more))
    )
    assert main(["outputs/sweeps/x", "baseline=heft"]) == 0
    ((paths, baseline, more),) = seen
    assert more == {"options": None, "style": None}
    assert [str(path) for path in paths] == ["outputs/sweeps/x"]
    assert baseline == "heft"
    assert main(["outputs/sweeps/x", "base=heft"]) == 2
    assert "compare has no option 'base'" in capsys.readouterr().err
    assert main(["x", "map=ccr,fat", "unit=seed", "error=sigma"]) == 0
    assert seen[-1][2]["options"] == Options(None, ("ccr", "fat"), "seed", "sigma")
    assert main(["x", "style=column"]) == 0
    assert seen[-1][2] == {"options": None, "style": "column"}
    assert main(["x", "map=ccr"]) == 2
    assert "a map has two factors" in capsys.readouterr().err
    # A folder whose name has '=' in it is a folder.
    (tmp_path / "a=b").mkdir()
    assert main([str(tmp_path / "a=b")]) == 0
    assert seen[-1][0] == [tmp_path / "a=b"]


# -- two runs -----------------------------------------------------------------------------------


def write_run(folder, scheduler, draws=(), **config):
    cluster = Cluster("pair", [MemorySpace("m")], [Device("slow", "m"), Device("fast", "m")])
    graph = from_edges("fork", 3, [(0, 1, 0.0), (0, 2, 0.0)])
    table = CostTable.of(graph, np.array([[2.0, 1.0], [4.0, 3.0], [4.0, 3.0]]))
    options = {"device": "slow"} if scheduler == "single_device" else {}
    trace = simulate(graph, cluster, table, schedulers.create(scheduler, **options))
    trace.save(folder)
    document = {
        "labels": {"scheduler": scheduler},
        "config": {"scheduler": {"name": scheduler}, "model": {"batch": 1}, **config},
        "metrics": {"makespan_s": trace.makespan, "utilisation": 0.5},
        "draws": list(draws),
    }
    (folder / "result.json").write_text(json.dumps(document))
    return trace


def test_two_runs_by_hand(tmp_path):
    truth = np.linspace(0.9, 1.1, 40)
    # slow alone: 2 + 4 + 4; heft: t0 on fast until 1, then t1 on fast until 4 and t2 on slow until 5.
    slow = write_run(tmp_path / "A", "single_device", 10 * truth)
    heft = write_run(tmp_path / "B", "heft", 5 * truth)
    assert (slow.makespan, heft.makespan) == (10.0, 5.0)
    differences = operator_differences(slow, heft)
    # t0 and one of the others moved to the fast device and take a second less each.
    assert {(d.devices, d.seconds) for d in differences} == {
        (("slow", "fast"), (2.0, 1.0)),
        (("slow", "fast"), (4.0, 3.0)),
    }
    assert all(d.moved and d.difference == -1.0 for d in differences)
    lines = [str(line) for line in compare_runs(tmp_path / "A", tmp_path / "B")]
    assert lines[0].startswith(
        "B (heft) is 50.0% shorter than A (single_device): 5.00 s, 10.0 s; B beats A"
    )
    assert "by 50% [50, 50], P(win)" in lines[0]
    text = "\n".join(lines)
    assert "scheduler.name" in text
    assert "operators: 2 of 3 run on other devices" in text
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 100


def test_draws_of_different_worlds_are_not_paired(tmp_path):
    write_run(tmp_path / "A", "heft", np.ones(40), simulation={"contention": "none"})
    write_run(tmp_path / "B", "fcfs", np.ones(40), simulation={"contention": "fifo"})
    assert "draws" not in str(compare_runs(tmp_path / "A", tmp_path / "B")[0])


def test_config_differences_are_dotted_and_ignore_descriptions():
    a = {"x": {"y": 1, "description": "old"}, "z": [1, 2]}
    b = {"x": {"y": 2, "description": "new"}, "z": [1, 2], "w": {}}
    assert config_differences(a, b) == {"x.y": ("1", "2"), "w": ("-", "{}")}


def test_runs_without_traces_or_figures(tmp_path):
    write_run(tmp_path / "A", "heft")
    write_run(tmp_path / "B", "heft")
    (tmp_path / "B" / "trace.json").unlink()
    lines = [str(line) for line in compare_runs(tmp_path / "A", tmp_path / "B")]
    assert "take the same time: 5.00 s" in lines[0]
    assert "the same configuration" in lines
    assert lines[-1] == "no trace in B: operators cannot be compared"
    (tmp_path / "B" / "result.json").write_text('{"status": "failed"}')
    with pytest.raises(InvalidInput, match="has no makespan"):
        compare_runs(tmp_path / "A", tmp_path / "B")


def test_one_sweep_or_two_runs(tmp_path):
    write_run(tmp_path / "A", "heft")
    write_run(tmp_path / "B", "heft")
    console = Console(file=io.StringIO(), width=100)
    compare([tmp_path / "A", tmp_path / "B"], None, console)
    assert "take the same time" in console.file.getvalue()
    with pytest.raises(InvalidInput, match="Name a sweep's folder"):
        compare([], None)
    with pytest.raises(InvalidInput, match="got 1 runs and 0 sweeps"):
        compare([tmp_path / "A"], None)
    with pytest.raises(InvalidInput, match="baseline= is for sweeps"):
        compare([tmp_path / "A", tmp_path / "B"], "heft")
    with pytest.raises(InvalidInput, match="map=, unit=, error= and style= are for sweeps"):
        compare([tmp_path / "A", tmp_path / "B"], None, options=Options(unit="seed"))
    with pytest.raises(InvalidInput, match="There is no folder"):
        compare([tmp_path / "A", tmp_path / "nowhere"], None)
