"""The command, end to end on tiny models with a profile made for this machine."""

import csv
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibration import environment  # noqa: E402
from calibration.environment import device_name  # noqa: E402
from experiments import validate_serving as subject  # noqa: E402
from experiments.serving_validation import prediction  # noqa: E402
from simulator.analysis.serving_metrics import serving_metrics  # noqa: E402
from simulator.errors import ExecutionError  # noqa: E402
from simulator.model.trace import Trace  # noqa: E402

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, width), torch.nn.Linear(64, width)
    def forward(self, x):
        return torch.cat([self.a(x).relu(), self.b(x).tanh()], 1)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "net.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch, machine, small_images, _graphs, source):
    """A user's folder: two models, a cluster of this machine, and a profile under its name."""
    base = device_name("cpu")
    monkeypatch.setenv("HETSIM_PROFILES", str(machine / "profiles"))
    monkeypatch.setenv("HETSIM_CACHE", str(_graphs))
    monkeypatch.setattr("experiments.serving_validation.figures.BURST_SECONDS", 0.02)
    monkeypatch.setattr("experiments.serving_validation.figures.JOINS", 2)
    monkeypatch.setattr("experiments.serving_validation.figures.AGREEING", 100.0)
    monkeypatch.setattr("experiments.serving_validation.site.PANEL_RUNS", 1)
    monkeypatch.setattr("experiments.probes.resting.PAIRS", 1)
    for name, count in (("TURNS", 1), ("STARTS", 1), ("BURSTS", 1), ("BURST", 4)):
        monkeypatch.setattr(f"experiments.probes.within_segments.{name}", count)
    for group in ("model", "cluster"):
        (tmp_path / "conf" / group).mkdir(parents=True)
    for name, width in (("narrow", 32), ("wide", 256)):
        (tmp_path / "conf" / "model" / f"{name}.yaml").write_text(
            f"name: {name}\ntarget: {source}:Net\narguments: {{width: {width}}}\n"
            "inputs: [{shape: [batch, 64], dtype: float32}]\nbatch: 1\n"
        )
    (tmp_path / "conf" / "cluster" / "here.yaml").write_text(
        f"name: here\nhost: ram\nspaces: {{ram: {{}}}}\n"
        f"devices: {{core: {{profile: {base}, space: ram, count: 2}}}}\n"
    )
    return tmp_path


BASE = ("cluster=here", "mix=narrow:1 wide:1", "max_batch=2", "seconds=0.03", "inputs=3", "draws=2")


def command(home, *words, repeats=1):
    words = [*BASE, "cores=[0,0]", f"repeats={repeats}", *words]
    return subject.main(["--config-dir", str(home / "conf"), f"output_dir={home}", *words])


@pytest.mark.slow
def test_a_validation_of_serving_from_end_to_end(home, capsys, monkeypatch):
    known = environment.described("cpu")
    monkeypatch.setattr(environment, "described", lambda device: known | {"torch": "99.0"})
    coruns: list[float] = []
    simulate = prediction.simulate

    def noted(workload, cluster, *arguments, **options):
        coruns.append(cluster.spaces[0].corun_slowdown)
        return simulate(workload, cluster, *arguments, **options)

    monkeypatch.setattr(prediction, "simulate", noted)
    words = ["scheduler=fcfs,task_groups", "loads=[1.2]", "name=one"]
    assert command(home, *words, repeats=2) == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines() if not line.startswith("wrote")) <= 100
    assert "mean delay: simulated within 12%" in printed
    assert "2 cases (means of 2 runs)" in printed
    assert "the machine itself: a single run's mean delay" in printed
    (told,) = json.loads((home / "validation_serving" / "one" / "validation.json").read_text())[
        "differences"
    ]
    assert "was measured with torch" in told
    assert "here 99.0" in told
    assert told in " ".join(printed.split())
    assert f"- {told}\n" in (home / "validation_serving" / "one" / "report.md").read_text()
    folder = home / "validation_serving" / "one"
    machine = json.loads((folder / "machine.json").read_text())
    assert machine["capacity_per_s"] == pytest.approx(np.median(machine["capacities_per_s"]))
    assert len(machine["capacities_per_s"]) == 2
    assert min(machine["capacities_per_s"]) > 0
    assert machine["simulated_capacity_per_s"] > 0
    assert 0 <= machine["speed"]["corun"] < 10
    assert len(machine["wake_s"]) == 2
    assert all(0 <= seconds < 1 for seconds in machine["wake_s"])
    assert "busy device beside the bursts, up to" in " ".join(printed.split())
    assert set(machine["dispatch_s"]) == {"fcfs", "task_groups"}
    assert all(set(sizes) == {"2"} for sizes in machine["joining_s"].values())
    assert all(0 < s < 1 for sizes in machine["joining_s"].values() for s in sizes.values())
    rows = list(csv.DictReader((folder / "runs.csv").open()))
    assert [(int(r["run"]), float(r["load"]), r["scheduler"]) for r in rows] == [
        (run, 1.2, scheduler) for run in (1, 2) for scheduler in ("fcfs", "task_groups")
    ]
    # What busy devices cost each other is of the panel around each run, not of another hour.
    own = [machine["speed"]["corun"]]
    for row in rows:
        cell = folder / "cells" / f"{float(row['load']):g}-{row['scheduler']}" / row["run"]
        own.append(json.loads((cell / "result.json").read_text())["case"]["speed"]["corun"])
    each = 1 + 2 + 2  # at the mean speed, drawn, told what the run was like
    assert coruns[-each * len(rows) :] == [corun for corun in own[1:] for _ in range(each)]
    # Before that the capacity was simulated as often as it was measured; what is kept is of the last time.
    before = coruns[: -each * len(rows)]
    assert len(before) == 2
    assert before[-1] == own[0]
    for row in rows:
        cell = folder / "cells" / f"{float(row['load']):g}-{row['scheduler']}" / row["run"]
        real, simulated = (Trace.load(cell / world) for world in ("measured", "simulated"))
        assert (real.meta["world"], simulated.meta["world"]) == ("measured", "simulated")
        for column in ("arrival", "model", "batch"):
            assert real.jobs[column].tolist() == simulated.jobs[column].tolist()
        assert real.jobs["arrival"][-1] <= 0.03
        measured, other = serving_metrics(real), serving_metrics(simulated)
        assert float(row["mean_delay_s_measured"]) == pytest.approx(measured["mean_delay_s"])
        assert float(row["mean_delay_s_steady"]) == pytest.approx(other["mean_delay_s"])
        assert float(row["mean_delay_s_error"]) == pytest.approx(
            float(row["mean_delay_s_simulated"]) / measured["mean_delay_s"] - 1
        )
        assert 0 < float(row["mean_delay_s_low"]) <= float(row["mean_delay_s_simulated"])
        assert float(row["mean_delay_s_simulated"]) <= float(row["mean_delay_s_high"])
        assert all(float(row[f"mean_delay_s_own_{what}"]) > 0 for what in ("speed", "phases"))
        rate = len(real.jobs["job"]) / 0.03
        assert 0.2 < rate / (float(row["load"]) * machine["capacity_per_s"]) < 3
    assert (folder / "fig_serving.png").stat().st_size > 1000
    report = (folder / "report.md").read_text()
    assert "| 1.2 | fcfs | measured |" in report
    assert "| 1.2 | task_groups | wide |" in report
    assert "| load | scheduler | measured - simulated | speed | phases | rest |" in report
    assert "the predicted 90% interval has the mean delay in" in report
    document = json.loads((folder / "validation.json").read_text())
    assert document["summary"]["cases"] == 2
    assert document["the_machine_itself"]["cases"] == len(document["runs"]) == 4

    # Again, with another: it is measured alone, and nothing a second time.
    measured = []
    original = subject._measure

    def counting(site, contestant, *rest):
        measured.append(contestant.label)
        return original(site, contestant, *rest)

    monkeypatch.setattr(subject, "_measure", counting)
    monkeypatch.setattr(subject, "measure_machine", None)
    words[0] = "scheduler=fcfs,fcfs_batching"
    assert command(home, *words) == 0
    assert measured == ["fcfs_batching"]
    kept, new = csv.DictReader((folder / "runs.csv").open())
    assert kept == rows[0]
    assert (int(new["run"]), float(new["load"]), new["scheduler"]) == (1, 1.2, "fcfs_batching")


def test_finished_cases_are_kept_when_a_run_ends_early(home, capsys, monkeypatch):
    original, calls = subject._measure, []
    errors = [ExecutionError("Operator 'x' failed: broken"), KeyboardInterrupt()]

    def failing(site, contestant, *rest):
        calls.append(contestant.label)
        if contestant.label == "sufferage" and errors:
            raise errors.pop(0)
        return original(site, contestant, *rest)

    monkeypatch.setattr(subject, "_measure", failing)
    words = ["scheduler=fcfs,sufferage", "loads=[0.8]", "speed=profile"]
    for code, message in ((2, "Operator 'x' failed: broken"), (130, "interrupted")):
        assert command(home, *words) == code
        printed = capsys.readouterr()
        assert printed.err.strip() == message
        folder = home / "validation_serving" / "default"
        assert "in 1 of 1 cases" in printed.out or "in 0 of 1 cases" in printed.out
        assert "| 0.8 | fcfs | measured |" in (folder / "report.md").read_text()
    assert command(home, *words) == 0
    assert calls == ["fcfs", "sufferage", "sufferage", "sufferage"]


def test_an_answer_that_is_not_the_modules_is_an_error_not_a_data_point(home, capsys, monkeypatch):
    from calibration.joining import Joint

    gather = Joint.gather

    def wrong(joint, values, space):
        gather(joint, values, space)
        for _, tensors, _ in joint._inputs:
            values[tensors[0]] = values[tensors[0]].flip(0)  # the members' order is lost

    monkeypatch.setattr(Joint, "gather", wrong)
    assert command(home, "scheduler=fcfs_batching", "loads=[1.0]", "speed=profile") == 2
    assert "does not get the module's answer" in capsys.readouterr().err


def test_arrivals_of_a_file_are_replayed(home, monkeypatch):
    """At the profiles' speed, for which no panel is needed."""
    monkeypatch.setattr("experiments.serving_validation.site.PanelRuns", None)
    path = home / "requests.csv"
    times = np.cumsum(np.full(40, 0.5))
    path.write_text("arrival_s,model\n" + "\n".join(f"{t},wide" for t in times) + "\n")
    words = ["scheduler=fcfs", "loads=[0.5]", "workload=trace", f"workload.file={path}"]
    assert command(home, *words, "workload.mix={wide: 1}", "speed=profile") == 0
    trace = Trace.load(
        home / "validation_serving" / "default" / "cells" / "0.5-fcfs" / "1" / "measured"
    )
    assert set(trace.jobs["model"]) == {"wide"}
    gaps = np.diff(trace.jobs["arrival"])
    assert gaps == pytest.approx(np.full(len(gaps), gaps[0]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loads=[0]"], "loads=[0.0]: give shares of the capacity above 0"),
        (["seconds=0"], "seconds=0.0: give seconds above 0"),
        (["inputs=0"], "inputs=0: give at least 1"),
        (["repeats=0"], "repeats=0: give at least 1"),
        (["draws=1"], "draws=1: an interval needs at least 2; 0 for none"),
        (["name=a/b"], "name=a/b names a folder"),
        (["workload=closed_loop"], "has closed arrivals; replay a stream"),
        (["workload=single"], "has single arrivals; replay a stream"),
        (["instance=topcuoglu"], "takes the place of model"),
        (["workload.max_batch=2,4"], "vary the scheduler alone"),
        (["scheduler=nosuch"], "nosuch"),
        (["cluster=edge_t4"], "not of this machine"),
    ],
)
def test_what_cannot_be_validated_is_refused_in_one_sentence(home, capsys, words, message):
    assert command(home, *words) == 2
    printed = capsys.readouterr().err.strip()
    assert message in printed
    assert len(printed.splitlines()) == 1
    assert not list(home.rglob("validation_serving/*"))
