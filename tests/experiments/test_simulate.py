"""One run: its folder, its answer, and that its command repeats it."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from experiments import simulate
from experiments.results import load_results
from simulator.graph import DataflowGraph
from simulator.trace import Trace

FILES = {
    "config.yaml",
    "command.txt",
    "executions.parquet",
    "members.parquet",
    "jobs.parquet",
    "transfers.parquet",
    "trace.json",
    "trace.perfetto.json",
    "graph.json",
    "gantt.pdf",
    "gantt.png",
    "gantt.csv",
    "result.json",
}
TRACE = ("executions.parquet", "jobs.parquet", "transfers.parquet", "members.parquet", "trace.json")


@pytest.fixture
def no_plots(monkeypatch):
    """A Gantt chart takes a second; the tests of plots look at those."""
    monkeypatch.setattr("experiments.plots.gantt.draw_gantt", lambda *_, **__: [])


def runs() -> list[Path]:
    return sorted(Path("outputs/runs").iterdir())


def run_again(command: str) -> None:
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "experiments.simulate"]
    assert simulate.main(words[3:]) == 0


def test_a_run_leaves_its_folder_and_nothing_else(folder, capsys):
    assert simulate.main(["instance=topcuoglu", "scheduler=heft"]) == 0
    (run,) = runs()
    assert {path.name for path in run.iterdir()} >= FILES
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
    assert Path("outputs/latest").resolve() == run.resolve()
    assert {path.name for path in Path("outputs").iterdir()} == {"runs", "latest"}
    assert not Path(".hydra").exists()
    out = capsys.readouterr().out
    assert "topcuoglu on topcuoglu with heft: makespan 80" in out
    assert max(map(len, out.splitlines())) <= 100 or "outputs/runs" in out


def test_explain_prints_ranks_and_choices(no_plots, folder, capsys):
    assert simulate.main(["instance=topcuoglu", "scheduler=heft", "explain=true"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Published: rank of the first task 108; it goes to the third device, done at 9 < 14, 16.
    assert "t0 (rank 108) -> P3 at 0: 9 < 14, 16" in lines
    assert sum(" -> P" in line for line in lines) == 10


def test_the_result_says_where_it_comes_from(no_plots, folder):
    assert simulate.main(["instance=peft", "scheduler=donf", "seed.search=3"]) == 0
    (run,) = runs()
    result = json.loads((run / "result.json").read_text())
    assert result["format"] == "hetsim.result/1"
    assert result["seeds"] == {"workload": 0, "noise": 0, "search": 3}
    assert result["config"]["scheduler"]["name"] == "donf"
    # The instance takes the place of model and cluster; contention is recorded as it was applied.
    assert "model" not in result["config"]
    assert result["config"]["simulation"]["contention"] == "none"
    assert result["metrics"]["makespan_s"] == Trace.load(run).makespan
    assert {"python", "numpy", "simpy"} <= result["versions"].keys()
    (profile,) = result["profiles"]
    assert len(profile["digest"]) == 64
    assert run.name.split("-")[1:3] == ["peft", "donf"]


def test_the_command_repeats_the_run_to_the_byte(no_plots, folder):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box", "scheduler=donf"]
    words += ["simulation.noise=lognormal", "simulation.sigma=0.2", "simulation.draws=3"]
    words += ["workload=poisson", "workload.jobs=3", "workload.rate=1e4/s", "seed.noise=7"]
    assert simulate.main(words) == 0
    (first,) = runs()
    run_again((first / "command.txt").read_text())
    second = next(run for run in runs() if run != first)
    for name in (*TRACE, "graph.json", "trace.perfetto.json", "config.yaml"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    a, b = (json.loads((run / "result.json").read_text()) for run in (first, second))
    assert a.pop("wallclock") != b.pop("wallclock")
    assert a == b
    # Another seed gives another trace.
    assert simulate.main([*words, "seed.noise=8"]) == 0
    third = next(run for run in runs() if run not in (first, second))
    assert (first / "executions.parquet").read_bytes() != (
        third / "executions.parquet"
    ).read_bytes()
    assert len(Trace.load(third).jobs["job"]) == 3


def test_a_traced_model_on_profiles_with_an_interval(no_plots, folder, capsys):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box", "scheduler=heft"]
    assert simulate.main([*words, "simulation.draws=40"]) == 0
    (run,) = runs()
    result = json.loads((run / "result.json").read_text())
    figures = result["metrics"]
    assert len(result["draws"]) == 40
    low, high = np.percentile(result["draws"], [2.5, 97.5])
    assert (figures["makespan_low_s"], figures["makespan_high_s"]) == (low, high)
    # Errors of 10% a kind do not average out over operators.
    assert 0.1 < high / low - 1 < 0.6
    assert figures["bound_s"] <= figures["makespan_s"] <= figures["best_device_s"] * (1 + 1e-9)
    # The card is four times faster, but its transfers take longer than everything here.
    assert figures["best_device"] == "cpu0"
    assert [p["label"] for p in result["profiles"]] == ["measured", "measured"]
    assert result["labels"]["profiles"] == "2x toy-core (measured), 1x toy-card (measured)"
    graph = DataflowGraph.from_json(json.loads((run / "graph.json").read_text()))
    assert graph.digest == result["graph"]["digest"]
    assert "95%" in capsys.readouterr().out
    (row,) = load_results(run).to_dict("records")
    assert (row["model"], row["batch"], row["cluster"]) == ("branches", 2, "box")
    assert row["makespan_s"] == figures["makespan_s"]
    assert list(row["draws"]) == result["draws"]


def test_a_scheduler_of_the_users_gets_its_options_and_the_search_seed(no_plots, folder, capsys):
    words = ["--config-dir", str(folder), "instance=fork", "scheduler=mine", "explain=true"]
    assert simulate.main([*words, "scheduler.options.device=1", "seed.search=5"]) == 0
    out = capsys.readouterr().out
    assert "t0 with seed 5" in out
    # Four tasks one after the other on the second device.
    assert "fork on fork with mine(device=1): makespan 14" in out
    assert simulate.main([*words, "+scheduler.options.color=red"]) == 2
    assert "does not take these options" in capsys.readouterr().err


def test_multirun_leaves_the_same_form(no_plots, folder):
    assert simulate.main(["-m", "instance=topcuoglu,peft", "scheduler=heft,fcfs"]) == 0
    assert len(runs()) == 4
    assert all(
        FILES - {"gantt.pdf", "gantt.png", "gantt.csv"} <= {path.name for path in run.iterdir()}
        for run in runs()
    )
    assert not list(Path("outputs").rglob(".hydra"))
    frame = load_results("outputs")
    makespans = frame.set_index(["model", "scheduler"])["makespan_s"]
    assert makespans["topcuoglu", "heft"] == 80
    assert makespans["peft", "heft"] == 133


def test_runs_within_one_second_have_folders_of_their_own(no_plots, folder, monkeypatch):
    monkeypatch.setattr(simulate.time, "strftime", lambda *_: "20260101_000000")
    for _ in range(2):
        assert simulate.main(["instance=peft"]) == 0
    assert len(runs()) == 2


def test_strict_refuses_extrapolation(no_plots, folder, capsys):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box", "strict=true"]
    words += ["cluster.allow_datasheet=true", "cluster.devices.gpu.profile=toy-sheet"]
    assert simulate.main(words) == 2
    error = capsys.readouterr().err
    assert "strict=true" in error
    assert "on 'gpu' (toy-sheet)" in error


def test_a_torn_run_is_no_result(no_plots, folder):
    assert simulate.main(["instance=peft"]) == 0
    (run,) = runs()
    text = (run / "result.json").read_text()
    (run / "result.json").write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=r"result\.json is damaged"):
        load_results("outputs")
