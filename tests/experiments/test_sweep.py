"""Sweeps: what is done is kept, what is stale or failed is said, nothing is half written."""

import csv
import errno
import json
import os
import shlex
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments import simulate, sweep
from experiments.comparison.leaderboard import standings
from experiments.runs import cell_folder
from experiments.runs.command import Invocation
from experiments.runs.results import load_results
from experiments.runs.sweep_folder import choices_of, read_sweep

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


def test_a_sweep_leaves_results_and_what_is_done_is_not_done_again(quiet, capsys, monkeypatch):
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

    before = contents()
    monkeypatch.setattr(sweep, "run_cell", lambda task: pytest.fail("simulated again"))
    assert sweep.main(WORDS) == 0
    assert "4 done, 0 stale, 0 failed" in capsys.readouterr().out
    cells = {path: data for path, data in contents().items() if "cells" in path.parts}
    assert cells == {path: data for path, data in before.items() if "cells" in path.parts}
    assert contents()[SWEEP / "results.parquet"] == before[SWEEP / "results.parquet"]


def test_a_larger_grid_of_the_same_name_adds_what_is_new(quiet, capsys):
    assert sweep.main(WORDS) == 0
    larger = [*WORDS[:1], "scheduler=heft,fcfs,donf", *WORDS[2:]]
    assert states(*larger) == ["done"] * 4 + ["missing"] * 2
    capsys.readouterr()
    assert sweep.main(larger) == 0
    assert "extends outputs/sweeps/study: 2 cells beside the 4 there" in capsys.readouterr().out
    assert len(load_results(SWEEP)) == 6


def test_changed_code_makes_cells_stale_which_are_run_again_unless_kept(quiet, capsys, monkeypatch):
    assert sweep.main(WORDS) == 0
    monkeypatch.setattr(cell_folder, "code_digest", lambda: "other")
    capsys.readouterr()
    assert sweep.main([*WORDS, "rerun=none"]) == 0
    out = capsys.readouterr().out
    assert "0 done, 4 stale (code changed): kept, rerun=stale runs them again, 0 failed" in out
    assert set(load_results(SWEEP)["stale"]) == {"code changed"}
    assert json.loads((SWEEP / "manifest.json").read_text())["stale"] == 4
    assert plan(*WORDS, "rerun=none").todo == []
    assert len(plan(*WORDS, "rerun=failed").todo) == 4
    # Without a word, stale cells are run again.
    assert sweep.main(WORDS) == 0
    assert "0 done, 4 stale (code changed): run again, 0 failed" in capsys.readouterr().out
    assert states(*WORDS) == ["done"] * 4
    assert set(load_results(SWEEP)["stale"]) == {""}
    assert json.loads((SWEEP / "manifest.json").read_text())["stale"] == 0


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


OWN = """
from simulator.context.scheduler import Scheduler
from lab.parts import device

class Mine(Scheduler):
    name = "mine"

    def decide(self, context):
        for task in context.ready:
            context.place(task, device())
"""


@pytest.fixture
def lab(quiet, monkeypatch):
    """A scheduler in a package of the user's, and a module that it imports one that it imports from."""
    package = quiet / "lab"
    package.mkdir()
    for name, text in (
        ("__init__", ""),
        ("own", OWN),
        ("parts", "from lab.numbers import DEVICE\n\n\ndef device():\n    return DEVICE\n"),
        ("numbers", "DEVICE = 0\n"),
        ("other", ""),
    ):
        (package / f"{name}.py").write_text(text)
    (quiet / "scheduler" / "mine.yaml").write_text(
        "name: mine\nclass_path: lab.own.Mine\ndescription: all on one\n"
    )
    monkeypatch.syspath_prepend(quiet)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        del sys.modules[name]


@pytest.mark.parametrize("form", ["lab.own.Mine", "lab/own.py:Mine", "nested"])
def test_an_edited_module_of_the_users_own_makes_cells_stale_and_its_figures_new(lab, quiet, form):
    """In any form of class path, also within a shipped scheduler's options; not others' cells."""
    config = quiet / "scheduler" / "mine.yaml"
    if form == "nested":
        config.write_text(
            "name: mine\nclass_path: packed\ndescription: mine, packed\n"
            "options: {scheduler: lab.own.Mine}\n"
        )
    else:
        config.write_text(config.read_text().replace("lab.own.Mine", form))
    words = ["instance=fork", "scheduler=mine,heft", "name=study", "workers=1"]
    words += ["simulation.draws=0", "--config-dir", str(quiet)]
    assert sweep.main(words) == 0
    made = load_results(SWEEP).set_index("scheduler")["makespan_s"]
    assert made["mine"] == 16  # the sum of the first column
    (lab / "other.py").write_text("changed = True\n")
    assert sorted(plan(*words[:-2], folders=[quiet]).states.values()) == ["done", "done"]
    (lab / "numbers.py").write_text("DEVICE = 1\n")
    found = plan(*words[:-2], folders=[quiet])
    assert found.changed == ("scheduler",)
    assert [task.choices["scheduler"] for task in found.todo] == ["mine"]
    assert sweep.main(words) == 0
    again = load_results(SWEEP).set_index("scheduler")["makespan_s"]
    assert (again["mine"], again["heft"]) == (14, made["heft"])


def test_a_failed_cell_of_edited_code_is_run_again(lab, quiet):
    """Who mends a scheduler and repeats the command wants to see what it does now."""
    right = (lab / "numbers.py").read_text()
    (lab / "numbers.py").write_text("DEVICE = 99\n")
    words = ["instance=fork", "scheduler=mine,heft", "name=study", "workers=1"]
    words += ["--config-dir", str(quiet)]
    assert sweep.main(words) == 1
    assert plan(*words[:-2], folders=[quiet]).todo == []
    (lab / "numbers.py").write_text(right)
    assert sweep.main(words) == 0
    assert set(load_results(SWEEP)["status"]) == {"done"}


def test_the_entry_of_a_model_that_requests_name_is_part_of_their_key(quiet):
    """A mix names models by their entries in the user's folder, which may be edited."""
    words = ["model=branches", "cluster=box", "scheduler=fcfs", "name=study", "simulation.draws=0"]
    words += ["workload=poisson", "workload.mix={branches: 1}", "workload.jobs=3"]
    (task,) = plan(*words, folders=[quiet]).tasks
    (quiet / "model" / "other.yaml").write_text(
        (quiet / "model" / "branches.yaml").read_text().replace("name: branches", "name: other")
    )
    words[-2] = "workload.mix={other: 1}"
    (before,) = plan(*words, folders=[quiet]).tasks
    entry = quiet / "model" / "other.yaml"
    entry.write_text(entry.read_text().replace("width: 8", "width: 16"))
    (after,) = plan(*words, folders=[quiet]).tasks
    assert (before.hash, before.key["model"]) == (after.hash, after.key["model"])
    assert before.key["requests"] != after.key["requests"]
    assert task.hash != after.hash


def test_another_grid_under_an_old_name_is_refused(quiet, capsys):
    assert sweep.main(WORDS) == 0
    before = contents()
    for other, lost in (
        ([*WORDS[:1], "scheduler=heft,donf", *WORDS[2:]], 2),
        ([*WORDS[:1], "scheduler=heft", *WORDS[2:]], 2),
        ([*WORDS, "seed.noise=3"], 4),
    ):
        assert sweep.main(other) == 2
        assert (
            f"outputs/sweeps/study holds another sweep: {lost} of its 4 cells are not in this grid. Take "
            "another name=, ask for its cells too (then they are kept), or remove the folder"
        ) in " ".join(capsys.readouterr().err.split())
        assert contents() == before


def test_an_edited_config_takes_the_place_of_the_old_one_in_words(quiet, capsys):
    words = ["instance=fork", "scheduler=mine,heft", "name=study", "workers=1"]
    words += ["--config-dir", str(quiet)]
    assert sweep.main(words) == 0
    config = quiet / "scheduler" / "mine.yaml"
    config.write_text(config.read_text().replace("device: 0", "device: 1"))
    capsys.readouterr()
    assert sweep.main(words) == 0
    told = "the configs changed: 1 cells of outputs/sweeps/study are not of this grid, and left out"
    assert told in capsys.readouterr().out
    assert len(load_results(SWEEP)) == 2


def test_a_preset_with_other_axes_has_a_folder_of_its_own(quiet, capsys):
    """The name is the preset's, not typed: both sweeps are kept."""
    (quiet / "experiment").mkdir()
    (quiet / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nname: study\ninstance: peft\nsweep: {scheduler: [heft, fcfs]}\nworkers: 1\n"
    )
    words = ["--config-dir", str(quiet), "experiment=mine"]
    assert sweep.main(words) == 0
    capsys.readouterr()
    assert sweep.main([*words, "scheduler=donf,heft"]) == 0
    assert "this one is outputs/sweeps/study-" in capsys.readouterr().out
    (other,) = Path("outputs/sweeps").glob("study-*")
    assert set(load_results(other)["scheduler"]) == {"donf", "heft"}
    assert set(load_results(SWEEP)["scheduler"]) == {"fcfs", "heft"}


def test_a_damaged_grid_is_one_sentence(quiet, capsys):
    assert sweep.main(WORDS) == 0
    (SWEEP / "grid.yaml").write_bytes(b"\xff\xfe\x00")
    assert sweep.main(WORDS) == 2
    assert "Remove it, and the sweep's command writes it anew" in capsys.readouterr().err
    (SWEEP / "grid.yaml").unlink()
    assert sweep.main(WORDS) == 0


def test_files_that_hold_the_same_name_are_two(quiet):
    """All of their cells are simulated, and the comparison tells them apart."""
    fork = json.loads((quiet / "instances" / "fork.json").read_text()) | {"name": "same"}
    (quiet / "instances" / "fork.json").write_text(json.dumps(fork))
    fork["cost"][0] = [20, 40]
    (quiet / "instances" / "slow.json").write_text(json.dumps(fork))
    words = ["instance=fork,slow", "scheduler=heft,fcfs", "name=study", "workers=1"]
    assert sweep.main(["--config-dir", str(quiet), *words]) == 0
    frame = load_results(SWEEP)
    names = {"same(instance=fork)", "same(instance=slow)"}
    assert set(frame["model"]) == names
    assert {c.model for c in standings(read_sweep(SWEEP), choices_of(SWEEP)).contests} == names


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


def test_a_torn_cell_counts_as_missing(quiet):
    assert sweep.main(WORDS) == 0
    victim = plan(*WORDS).tasks[0].folder / "result.json"
    for broken in ("", "[]", '{"status": "done"}', '{"format": "hetsim'):
        victim.write_text(broken)
        assert states(*WORDS) == ["done"] * 3 + ["missing"], broken
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
    assert sweep.main([*WORDS, "scheduler=donf,heft,fcfs", "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert "4 done, 0 stale, 0 failed" in out
    assert "to do: 2 cells" in out
    assert contents() == before


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("rerun=some", "known: stale, failed, all, none"),
        ("workers=0", "at least one process"),
        ("name=../away", "names a folder"),
        ("name=..", "names a folder"),
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
    words += ["scheduler=heft,mine,first_core", "simulation.draws=2", "traces=true"]
    assert sweep.main(words) == 0
    frame = load_results(SWEEP).set_index("scheduler")
    # Two ways to put everything on the first core; only the order of the additions differs.
    assert list(frame["draws"]["mine"]) == pytest.approx(frame["draws"]["first_core"], rel=1e-12)
    assert list(frame["draws"]["mine"]) != list(frame["draws"]["heft"])
    assert (SWEEP / "cells" / frame["cell"]["heft"] / "trace.json").is_file()
    # Another seed of noise: other draws around the same schedule.
    assert sweep.main([*words, "seed.noise=1", "name=again"]) == 0
    again = load_results("outputs/sweeps/again").set_index("scheduler")
    assert list(again["draws"]["heft"]) != list(frame["draws"]["heft"])
    assert again["makespan_s"]["heft"] == frame["makespan_s"]["heft"]


def test_what_an_axis_changes_in_a_cluster_shows_in_its_name(quiet):
    words = ["--config-dir", str(quiet), "model=branches", "cluster=box", "name=study", "workers=1"]
    words += ["cluster.devices.cpu.count=1,4", "model.batch=2,3", "simulation.draws=0"]
    assert sweep.main(words) == 0
    frame = load_results(SWEEP)
    assert sorted(zip(frame["cluster"], frame["batch"], frame["model"], strict=True)) == [
        ("box(devices.cpu.count=1)", 2, "branches"),
        ("box(devices.cpu.count=1)", 3, "branches"),
        ("box(devices.cpu.count=4)", 2, "branches"),
        ("box(devices.cpu.count=4)", 3, "branches"),
    ]


DEADLY = """
import os
from simulator.context.scheduler import Scheduler

class Deadly(Scheduler):
    name = "deadly"

    def decide(self, context):
        os._exit(9)
"""


def test_processes_share_the_work_and_a_killed_one_leaves_its_cell_to_do(quiet, capsys):
    (quiet / "deadly.py").write_text(DEADLY)
    (quiet / "scheduler" / "deadly.yaml").write_text(
        "name: deadly\nclass_path: deadly.py:Deadly\ndescription: dies\n"
    )
    words = ["--config-dir", str(quiet), "instance=fork", "name=study", "workers=2"]
    assert sweep.main([*words, "scheduler=heft,deadly,fcfs"]) == 1
    frame = load_results(SWEEP).set_index("scheduler")
    assert frame["status"].to_dict() == {"heft": "done", "fcfs": "done"}
    assert "1 of 3 cells are still to do: their process was killed" in capsys.readouterr().out
    assert not (SWEEP / "failures.csv").exists()
    # Mended, the same command simulates it.
    (quiet / "deadly.py").write_text(DEADLY.replace("os._exit(9)", "raise ValueError('no')"))
    three = states(*words[2:], "scheduler=heft,deadly,fcfs", folders=[quiet])
    assert three == ["done", "done", "missing"]
    # In one process or in several: the same results.
    alone = sweep.main([*words[:-2], "name=alone", "workers=1", "scheduler=heft,fcfs"])
    assert alone == 0
    other = load_results("outputs/sweeps/alone").set_index("scheduler")
    for name in ("heft", "fcfs"):
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


def test_a_disk_that_is_full_costs_no_finished_cell(quiet, capsys, monkeypatch):
    written = []

    def full(path, document):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        return write_json(path, document)

    write_json = cell_folder.atomic.write_json
    with monkeypatch.context() as patch:
        patch.setattr(cell_folder.atomic, "write_json", full)
        assert sweep.main(WORDS) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device; what was finished before is kept" in line
    assert states(*WORDS) == ["done", "done", "missing", "missing"]


def test_a_file_without_sizes_is_told_once(folder, capsys, monkeypatch):
    monkeypatch.setattr("experiments.compare.compare_sweep", lambda *_, **__: None)
    Path("a.dot").write_text("digraph { a -> b; a -> c }")
    assert sweep.main(["instance=a.dot", "family=file", "scheduler=heft,fcfs", "workers=1"]) == 0
    assert capsys.readouterr().out.count("no node has a size or weight") == 1


def test_a_cell_of_the_results_is_no_formula(quiet):
    Path("a.json").write_text('{"name": "=1+1", "cost": [[1, 2]], "edges": []}')
    assert sweep.main(["instance=a.json", "scheduler=heft", "name=study", "workers=1"]) == 0
    with open(SWEEP / "results.csv") as file:
        (row,) = csv.DictReader(file)
    assert row["model"] == "'=1+1"
    assert load_results(SWEEP)["model"].tolist() == ["=1+1"]
