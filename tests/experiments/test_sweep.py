"""Sweeps: what is done is kept, what is stale or failed is said, nothing is half written."""

import csv
import json
import os
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments import simulate, sweep
from experiments.runs import cell_folder
from experiments.runs.command import Invocation
from experiments.runs.results import load_results

WORDS = ["instance=topcuoglu,peft", "scheduler=heft,fcfs", "name=study", "workers=1"]
SWEEP = Path("outputs/sweeps/study")


@pytest.fixture
def quiet(folder, monkeypatch):
    """Sweeps without their report, which its own tests look at."""
    monkeypatch.setattr(sweep, "_report", lambda *_: None)
    return folder


def plan(*words, folders=()):
    return sweep.plan_sweep(Invocation("experiments.sweep", tuple(words), tuple(folders)))


def states(*words, **kwargs):
    return sorted(plan(*words, **kwargs).states.values())


def contents():
    return {path: path.read_bytes() for path in sorted(SWEEP.rglob("*")) if path.is_file()}


def test_a_sweep_leaves_results_and_says_what_is_done(quiet, capsys):
    assert sweep.main(WORDS) == 0
    assert "study: 4 cells of instance (2) x scheduler (2)" in capsys.readouterr().out
    frame = load_results(SWEEP).set_index(["model", "scheduler"])
    assert frame["makespan_s"]["topcuoglu", "heft"] == 80
    assert frame["makespan_s"]["peft", "heft"] == 133
    assert set(frame["status"]) == {"done"}
    # Everything on the second device of the published table takes 130, on the first 127.
    assert frame["best_device_s"]["topcuoglu", "heft"] == 127
    assert frame["best_device"]["topcuoglu", "heft"] == "P1"
    assert pq.read_table(SWEEP / "results.parquet").num_rows == 4
    with open(SWEEP / "results.csv") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["makespan_s"]) for row in rows] == load_results(SWEEP)["makespan_s"].tolist()
    manifest = json.loads((SWEEP / "manifest.json").read_text())
    assert (manifest["cells"], manifest["done"], manifest["failed"]) == (4, 4, 0)
    assert manifest["axes"] == {"instance": ["topcuoglu", "peft"], "scheduler": ["heft", "fcfs"]}
    assert not (SWEEP / "failures.csv").exists()
    assert not list(SWEEP.rglob(".*"))


def test_what_is_done_is_not_done_again(quiet, capsys, monkeypatch):
    assert sweep.main(WORDS) == 0
    before = contents()
    monkeypatch.setattr(sweep, "run_cell", lambda task: pytest.fail("simulated again"))
    capsys.readouterr()
    assert sweep.main(WORDS) == 0
    assert "4 done, 0 stale, 0 failed" in capsys.readouterr().out
    cells = {path: data for path, data in contents().items() if "cells" in path.parts}
    assert cells == {path: data for path, data in before.items() if "cells" in path.parts}
    assert contents()[SWEEP / "results.parquet"] == before[SWEEP / "results.parquet"]


def test_a_larger_grid_of_the_same_name_adds_what_is_new(quiet):
    assert sweep.main(WORDS) == 0
    larger = [*WORDS[:1], "scheduler=heft,fcfs,donf", *WORDS[2:]]
    assert states(*larger) == ["done"] * 4 + ["missing"] * 2
    assert sweep.main(larger) == 0
    assert len(load_results(SWEEP)) == 6


def test_changed_code_makes_cells_stale_and_rerun_renews_them(quiet, capsys, monkeypatch):
    assert sweep.main(WORDS) == 0
    monkeypatch.setattr(cell_folder, "code_digest", lambda: "other")
    capsys.readouterr()
    assert sweep.main(WORDS) == 0
    out = capsys.readouterr().out
    assert "0 done, 4 stale (code changed), 0 failed" in out
    assert "rerun=stale" in out
    assert plan(*WORDS).todo == []
    assert len(plan(*WORDS, "rerun=stale").todo) == 4
    assert sweep.main([*WORDS, "rerun=stale"]) == 0
    assert states(*WORDS) == ["done"] * 4


def test_a_changed_file_that_a_cell_names_makes_it_stale(quiet):
    words = ["instance=fork", "scheduler=mine,heft", "name=study", "workers=1"]
    assert sweep.main(["--config-dir", str(quiet), *words]) == 0
    (quiet / "mine.py").write_text((quiet / "mine.py").read_text() + "\n# changed\n")
    found = plan(*words, folders=[quiet])
    assert found.changed == ("scheduler",)
    assert sorted(found.states.values()) == ["done", "stale"]
    instance = quiet / "instances" / "fork.json"
    instance.write_text(instance.read_text().replace("[2, 4]", "[3, 4]", 1))
    assert states(*words, folders=[quiet]) == ["stale", "stale"]


def test_cells_that_charge_the_wall_clock_are_marked_and_kept(quiet, capsys):
    words = ["instance=peft", "scheduler=heft,donf", "name=study", "workers=1"]
    words += ["simulation.decision_cost.charge=wallclock"]
    assert sweep.main(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "2 cells charge the wall clock for decisions: another run gives other results" in out
    assert set(load_results(SWEEP)["decision_cost"]) == {"wall clock, not reproducible"}
    assert states(*words) == ["done", "done"]
    assert plan(*words).todo == []


def test_the_key_of_a_cell_is_what_decides_its_result(quiet):
    base = ["instance=peft", "name=study"]
    hashes = {}
    for words in (
        [],
        ["seed.workload=1"],
        ["seed.noise=1"],
        ["seed.search=1"],
        ["scheduler=donf"],
        ["scheduler.options.insertion=false"],
        ["simulation.movement=pull"],
        ["simulation.contention=fifo"],
        ["simulation.draws=7"],
        ["workload=periodic"],
        ["simulation.decision_cost.per_task=1us"],
        ["strict=true"],
    ):
        (task,) = plan(*base, *words).tasks
        hashes[task.hash] = words
    assert len(hashes) == 12
    for words in (
        ["output_dir=elsewhere"],
        ["workers=3"],
        ["scheduler.description=better"],
        ["simulation.contention=none"],  # what auto means for an instance
    ):
        (task,) = plan(*base, *words).tasks
        assert hashes.get(task.hash) == [], words


def test_a_failed_cell_keeps_its_error_and_the_command_that_repeats_it(quiet, capsys):
    # The second device cannot run a task, so not everything can go there.
    instance = quiet / "instances" / "fork.json"
    instance.write_text(instance.read_text().replace("[6, 3]", "[6, null]", 1))
    words = ["--config-dir", str(quiet), "instance=fork", "scheduler=heft,mine"]
    words += ["scheduler.options={device:1}", "name=study", "workers=1"]
    words = [word for word in words if "options" not in word]
    (quiet / "scheduler" / "mine.yaml").write_text(
        (quiet / "scheduler" / "mine.yaml").read_text().replace("device: 0", "device: 1")
    )
    assert sweep.main(words) == 1
    frame = load_results(SWEEP).set_index("scheduler")
    assert frame["status"].to_dict() == {"heft": "done", "mine": "failed"}
    assert "Device 'P2' cannot run task 't1'" in frame["error"]["mine"]
    with open(SWEEP / "failures.csv") as file:
        (failure,) = csv.DictReader(file)
    assert failure["scheduler"] == "mine"
    assert failure["error"] == frame["error"]["mine"]
    assert "Traceback" in (SWEEP / "cells" / failure["cell"] / "error.txt").read_text()
    capsys.readouterr()
    assert simulate.main(shlex.split(failure["command"])[3:]) == 2
    assert failure["error"] in capsys.readouterr().err

    # It is not tried again by itself, and is gone once it works.
    found = plan(*words[2:], folders=[quiet])
    assert (sorted(found.states.values()), found.todo) == (["done", "failed"], [])
    instance.write_text(instance.read_text().replace("null", "3"))
    assert sweep.main([*words, "rerun=all"]) == 0
    assert set(load_results(SWEEP)["status"]) == {"done"}
    assert not (SWEEP / "failures.csv").exists()
    assert not list(SWEEP.rglob("error.txt"))


def test_an_interrupted_sweep_keeps_what_is_finished_and_goes_on(quiet, capsys, monkeypatch):
    real, calls = sweep.run_cell, []

    def interrupted(task):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(task)
        return real(task)

    monkeypatch.setattr(sweep, "run_cell", interrupted)
    assert sweep.main(WORDS) == 130
    assert "interrupted: 2 of 4 cells are there" in capsys.readouterr().out
    assert len(load_results(SWEEP)) == 2
    monkeypatch.setattr(sweep, "run_cell", real)
    assert states(*WORDS) == ["done", "done", "missing", "missing"]
    assert sweep.main(WORDS) == 0
    assert len(load_results(SWEEP)) == 4


@pytest.mark.parametrize("broken", ["", '{"format": "hetsim', "[]", '{"status": "done"}'])
def test_a_torn_cell_counts_as_missing(quiet, broken):
    assert sweep.main(WORDS) == 0
    victim = plan(*WORDS).tasks[0].folder / "result.json"
    victim.write_text(broken)
    assert states(*WORDS) == ["done"] * 3 + ["missing"]
    assert sweep.main(WORDS) == 0
    assert states(*WORDS) == ["done"] * 4


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(quiet, capsys):
    assert sweep.main([*WORDS, "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert "to do: 4 cells, about" in out
    assert " MB in outputs/sweeps/study" in out
    assert not Path("outputs").exists()
    assert sweep.main(WORDS) == 0
    before = contents()
    assert sweep.main([*WORDS, "scheduler=donf,heft", "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert "2 done, 0 stale, 0 failed" in out
    assert "to do: 2 cells" in out
    assert contents() == before


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("rerun=some", "known: failed, stale, all"),
        ("workers=0", "at least one process"),
        ("name=../away", "names a folder"),
        ("scheduler=[heft,donf]", "experiments.sweep scheduler=heft,donf"),
        ("scheduler.class_path=no.where.Mine", "Cannot import 'no.where'"),
        ("cluster.devices.gpu.profile=tesla-t5", "No profile 'tesla-t5'"),
    ],
)
def test_mistakes_are_refused_before_anything_is_simulated(quiet, capsys, word, sentence):
    words = ["model=resnet50"] if "profile" in word else ["instance=peft"]
    assert sweep.main([*words, "name=study", "workers=1", word]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("outputs").exists()


def test_schedulers_meet_the_same_draws(quiet):
    (quiet / "scheduler" / "first_core.yaml").write_text(
        "name: first_core\nclass_path: single_device\noptions: {device: cpu0}\n"
    )
    words = ["--config-dir", str(quiet), "model=branches", "cluster=box", "name=study", "workers=1"]
    words += ["scheduler=heft,mine,first_core", "simulation.draws=12", "traces=true"]
    assert sweep.main(words) == 0
    frame = load_results(SWEEP).set_index("scheduler")
    # Two ways to put everything on the first core; only the order of the additions differs.
    assert list(frame["draws"]["mine"]) == pytest.approx(frame["draws"]["first_core"], rel=1e-12)
    assert list(frame["draws"]["mine"]) != list(frame["draws"]["heft"])
    assert (SWEEP / "cells" / frame["cell"]["heft"] / "trace.json").is_file()
    # Another seed of noise: other draws around the same schedule.
    assert sweep.main([*words, "seed.noise=1"]) == 0
    again = load_results(SWEEP).set_index("scheduler")
    assert list(again["draws"]["heft"]) != list(frame["draws"]["heft"])
    assert again["makespan_s"]["heft"] == frame["makespan_s"]["heft"]


def test_what_an_axis_changes_in_a_cluster_shows_in_its_name(quiet):
    words = ["--config-dir", str(quiet), "model=branches", "cluster=box", "name=study", "workers=1"]
    words += ["cluster.devices.cpu.count=1,4", "model.batch=2,4", "simulation.draws=0"]
    assert sweep.main(words) == 0
    frame = load_results(SWEEP)
    assert sorted(zip(frame["cluster"], frame["batch"], frame["model"], strict=True)) == [
        ("box(devices.cpu.count=1)", 2, "branches"),
        ("box(devices.cpu.count=1)", 4, "branches"),
        ("box(devices.cpu.count=4)", 2, "branches"),
        ("box(devices.cpu.count=4)", 4, "branches"),
    ]


DEADLY = """
import os
from simulator.scheduler import Scheduler

class Deadly(Scheduler):
    name = "deadly"

    def decide(self, context):
        os._exit(9)
"""


def test_processes_share_the_work_and_a_killed_one_loses_its_cell_alone(quiet):
    (quiet / "deadly.py").write_text(DEADLY)
    (quiet / "scheduler" / "deadly.yaml").write_text(
        "name: deadly\nclass_path: deadly.py:Deadly\ndescription: dies\n"
    )
    words = ["--config-dir", str(quiet), "instance=fork", "name=study", "workers=2"]
    assert sweep.main([*words, "scheduler=heft,deadly,fcfs,donf"]) == 1
    frame = load_results(SWEEP).set_index("scheduler")
    assert frame["status"].to_dict() == {
        "heft": "done",
        "deadly": "failed",
        "fcfs": "done",
        "donf": "done",
    }
    assert "was killed" in frame["error"]["deadly"]
    # In one process or in several: the same results.
    alone = sweep.main([*words[:-2], "name=alone", "workers=1", "scheduler=heft,fcfs,donf"])
    assert alone == 0
    other = load_results("outputs/sweeps/alone").set_index("scheduler")
    for name in ("heft", "fcfs", "donf"):
        assert other["makespan_s"][name] == frame["makespan_s"][name]
        assert other["cell"][name] == frame["cell"][name]


def test_a_sweep_ends_with_its_table_and_report(folder, capsys):
    assert sweep.main([*WORDS, "baseline=fcfs"]) == 0
    out = capsys.readouterr().out
    assert "topcuoglu: heft beats fcfs by 22%" in out
    assert (SWEEP / "report" / "index.html").is_file()
    assert max(len(line) for line in out.splitlines()) <= 100


def test_the_cores_of_this_process_are_its_workers(quiet):
    assert plan("instance=peft").workers == len(os.sched_getaffinity(0))
