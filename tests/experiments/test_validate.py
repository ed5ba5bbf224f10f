"""The command, end to end on a tiny model with a profile made for this machine."""

import csv
import json
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibration import environment  # noqa: E402
from calibration.environment import device_name  # noqa: E402
from calibration.workers import WorkerSpec, workers_for  # noqa: E402
from experiments.validation import run as validation_run  # noqa: E402
from experiments.validation.settings import read_settings  # noqa: E402
from experiments.validation.waterfall import STEPS  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.cluster import Cluster, Device, MemorySpace  # noqa: E402
from simulator.model.trace import Trace  # noqa: E402
from tests.experiments.own_machine import command, newest  # noqa: E402


def test_a_validation_from_end_to_end(home, capsys):
    words = ["model=tiny", "scheduler=fcfs,heft", "cluster=here", "simulation.draws=5"]
    assert command(home, *words, "repeats=4", "warmup=1", "seconds=0") == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines() if not line.startswith("wrote")) <= 100
    assert "2 cases of 1 models" in printed
    (folder,) = (p for p in (home / "validation").iterdir() if p.name != "latest")
    rows = list(csv.DictReader((folder / "cases.csv").open()))
    assert [(r["model"], r["scheduler"]) for r in rows] == [("tiny", "fcfs"), ("tiny", "heft")]
    makespan_of = {}
    for row in rows:
        simulated, measured = float(row["simulated_s"]), float(row["measured_s"])
        assert float(row["error"]) == pytest.approx(simulated / measured - 1)
        assert 1e-6 < measured < 10
        traces = folder / "traces" / f"tiny-{row['scheduler']}"
        assert Trace.load(traces / "simulated").makespan == pytest.approx(simulated)
        real = Trace.load(traces / "measured")
        assert real.meta["world"] == "measured"
        makespan_of[row["scheduler"]] = real.makespan
        steps = [float(row[f"{step.replace('-', '_')}_share"]) for step in STEPS]
        assert sum(steps) == pytest.approx((measured - simulated) / measured)
        assert float(row["dispatch_s"]) > 0
        assert (folder / f"gantt-tiny-{row['scheduler']}.png").stat().st_size > 1000
    repeats = list(csv.DictReader((folder / "repeats.csv").open()))
    for row in rows:
        mine = [float(r["makespan_s"]) for r in repeats if r["scheduler"] == row["scheduler"]]
        assert len(mine) == 4
        measured = float(row["measured_s"])
        assert measured == pytest.approx(np.quantile(mine, 0.1))
        # What is taken apart is the run nearest to it.
        taken_apart = min(mine, key=lambda makespan: abs(makespan - measured))
        assert makespan_of[row["scheduler"]] == pytest.approx(taken_apart)
    operators = list(csv.DictReader((folder / "operators.csv").open()))
    assert {r["device"] for r in operators} == {"one", "three"}
    assert len(operators) == 2 * 5
    report = (folder / "report.md").read_text()
    assert "| tiny | [heft](gantt-tiny-heft.png) |" in report
    document = json.loads((folder / "validation.json").read_text())
    assert document["summary"]["cases"] == 2
    assert document["summary"]["pairs"] == 1


@pytest.mark.parametrize(
    "processes",
    [
        False,
        # Ten seconds a process. Its task is pickled, too, where there are none.
        pytest.param(True, marks=pytest.mark.thorough),
    ],
)
def test_models_predicted_in_processes_come_out_the_same(
    request, home_as_others_see_it, no_figures, capsys, monkeypatch, processes
):
    """The second command measures nothing; what it draws anew is drawn in two processes."""
    if not processes:
        request.getfixturevalue("small_images")
    home = home_as_others_see_it
    words = ["model=tiny", "model.batch=2,4", "scheduler=fcfs", "cluster=here", "name=two"]
    words += ["simulation.draws=5", "repeats=3", "warmup=0", "seconds=0", "held_out=true"]
    assert command(home, *words) == 0
    for path in [*newest(home).glob("*.*")]:
        path.rename(path.with_name(f"{path.name}.before"))
    drawn = [*(newest(home) / "draws").iterdir()]
    assert len(drawn) == 2
    for path in drawn:
        path.unlink()
    monkeypatch.setattr(validation_run, "CASES_PER_PROCESS", 1)
    monkeypatch.setattr(validation_run, "available_cores", lambda: 2)
    began = []
    monkeypatch.setattr(validation_run, "measure_block", began.append)
    if processes:
        monkeypatch.setattr(validation_run, "model_validation", None)  # nobody in this process
    else:

        def pickled(tasks, predict, workers):
            assert workers == 2
            for _, task in reversed(tasks):  # in whatever order
                yield task, predict(pickle.loads(pickle.dumps(task)))

        monkeypatch.setattr(validation_run, "work_through", pickled)
    assert command(home, *words) == 0
    assert not began
    assert "2 of 2 cases are there and are kept" in capsys.readouterr().out
    for name in ("cases.csv", "report.md"):
        before, after = newest(home) / f"{name}.before", newest(home) / name
        assert after.read_text() == before.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["repeats=1"], "repeats=1: give warmup >= 0 and repeats >= 2"),
        (["limit=0"], "limit > 0"),
        (["instance=topcuoglu"], "'instance=topcuoglu' takes the place of model and cluster"),
        (["workload=poisson"], "one job at a time"),
        (["cluster=cpu2_gpu1", "cluster.allow_datasheet=true"], "not of this machine|No profile"),
        (["scheduler=nosuch"], "nosuch"),
        (["repeats=many"], "repeats"),
        (["budget=20"], "20"),
        (["budget=0s"], "budget=0s: give a time above 0"),
        (["visits=0"], "visits=0, top=3: give both at least 1"),
        (["name=a/b"], "name=a/b names a folder"),
        (["sweep=none"], r"There is no sweep with cells in .*none; known: none"),
        (["simulation.movement=push,pull"], "'heft' on 'tiny' stands twice"),
        (["recheck=nowhere"], "nowhere/validation.json"),
        (["seal=a", "check=b"], "seal= and check= are two commands"),
        (["dispatch=25us"], "dispatch= has a meaning with seal=NAME alone"),
    ],
)
def test_what_cannot_be_validated_is_refused_in_one_sentence(home, capsys, words, message):
    import re

    named = {word.partition("=")[0] for word in words}
    defaults = {"cluster": "here", "scheduler": "heft", "model": "tiny"}
    base = [f"{key}={value}" for key, value in defaults.items() if key not in named]
    base = [] if named & {"sweep", "recheck"} else base
    assert command(home, *base, *words) == 2
    printed = capsys.readouterr().err.strip()
    assert re.search(message, printed), printed
    assert len(printed.splitlines()) == 1


def test_a_cluster_of_another_machine_is_refused_and_leaves_nothing(home, capsys, monkeypatch):
    other = "AMD EPYC (family 1 model 1)"
    monkeypatch.setattr(environment, "cpu_model", lambda: other)
    assert command(home, "model=tiny", "scheduler=fcfs", "cluster=here") == 2
    assert "which is not of this machine (amd-epyc-1-1-1core)" in capsys.readouterr().err
    assert not [*(home / "validation").iterdir()]


def test_settings_come_from_the_file_and_the_command_line(monkeypatch):
    monkeypatch.setattr(environment, "cpu_model", lambda: "AMD EPYC (family 25 model 1, AVX2)")
    settings, rest = read_settings(["repeats=7", "model=gpt2", "cores=[1]"])
    assert (settings.repeats, settings.cores) == (7, [1])
    assert rest == [
        "model=gpt2",
        "scheduler=single_device,fcfs,donf,heft,sufferage",
        "cluster=milan_1x_3x",
    ]
    _, rest = read_settings(["experiment=mine"])
    assert rest == ["experiment=mine"]


def test_a_clusters_devices_are_found_on_this_machine():
    base = device_name("cpu")
    devices = [
        Device("pool", "ram", base, slots=2),
        Device("slow", "ram", f"{base}-3x"),
        Device("wide", "ram", device_name("cpu", 4)),
    ]
    cluster = Cluster("c", [MemorySpace("ram")], devices)
    assert workers_for(cluster, [5, 3, 2, 7, 8, 9, 10]) == {
        "pool": WorkerSpec("cpu", (5, 3)),
        "slow": WorkerSpec("cpu", (2,), repeat_kernel=3),
        "wide": WorkerSpec("cpu", (7, 8, 9, 10), threads=4),
    }
    with pytest.raises(InvalidInput, match="'slow' needs 1 cores of its own, 0 are left"):
        workers_for(cluster, [0, 1])
    other = Cluster("c", [MemorySpace("ram")], [Device("x", "ram", "imaginary-gpu")])
    with pytest.raises(InvalidInput, match="profile 'imaginary-gpu', which is not of this machine"):
        workers_for(other)
