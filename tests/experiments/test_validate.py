"""The command, end to end on a tiny model with a profile made for this machine."""

import csv
import json
import shutil

import pytest

torch = pytest.importorskip("torch")

from calibration.environment import device_name  # noqa: E402
from calibration.workers import WorkerSpec, workers_for  # noqa: E402
from cost_models.profile_files import SHIPPED  # noqa: E402
from experiments import validate  # noqa: E402
from simulator.cluster import Cluster, Device, MemorySpace  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.trace import Trace  # noqa: E402

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    def forward(self, x):
        return torch.cat([self.a(x).relu(), self.b(x).tanh()], 1)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's folder: a model, a cluster of this machine, and profiles under this machine's name."""
    base = device_name("cpu")
    for name in (base, f"{base}-3x"):
        folder = tmp_path / "profiles" / name
        shutil.copytree(SHIPPED / "amd-epyc-1core", folder)
        document = json.loads((folder / "profile.json").read_text())
        (folder / "profile.json").write_text(json.dumps(document | {"name": name}))
    monkeypatch.setenv("HETSIM_PROFILES", str(tmp_path / "profiles"))
    monkeypatch.setenv("HETSIM_CACHE", str(tmp_path / "cache"))
    for group in ("model", "cluster"):
        (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "conf" / "model" / "tiny.yaml").write_text(
        f"name: tiny\ntarget: {tmp_path / 'net.py'}:Net\n"
        "inputs: [{shape: [batch, 64], dtype: float32}]\nbatch: 4\n"
    )
    (tmp_path / "conf" / "cluster" / "here.yaml").write_text(
        f"name: here\nhost: ram\nspaces: {{ram: {{}}}}\n"
        f"devices: {{one: {{profile: {base}, space: ram}}, three: {{profile: {base}-3x, space: ram}}}}\n"
    )
    return tmp_path


def command(home, *words):
    return validate.main(
        ["--config-dir", str(home / "conf"), f"output_dir={home}", "cores=[0,0]", *words]
    )


def test_a_validation_from_end_to_end(home, capsys):
    words = ["model=tiny", "scheduler=fcfs,heft", "cluster=here", "simulation.draws=5"]
    assert command(home, *words, "repeats=4", "warmup=1", "seconds=0") == 0
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines() if not line.startswith("wrote")) <= 100
    assert "2 cases of 1 models" in printed
    (folder,) = (p for p in (home / "validation").iterdir() if p.name != "latest")
    rows = list(csv.DictReader((folder / "cases.csv").open()))
    assert [(r["model"], r["scheduler"]) for r in rows] == [("tiny", "fcfs"), ("tiny", "heft")]
    for row in rows:
        simulated, measured = float(row["simulated_s"]), float(row["measured_s"])
        assert float(row["error"]) == pytest.approx(simulated / measured - 1)
        assert 1e-6 < measured < 10
        traces = folder / "traces" / f"tiny-{row['scheduler']}"
        assert Trace.load(traces / "simulated").makespan == pytest.approx(simulated)
        real = Trace.load(traces / "measured")
        assert real.meta["world"] == "measured"
        assert real.makespan == pytest.approx(measured)
        steps = [float(row[f"{s}_share"]) for s in ("decisions", "operators", "co_run", "runner")]
        assert sum(steps) == pytest.approx((measured - simulated) / measured)
        assert float(row["dispatch_s"]) > 0
        assert (folder / f"gantt-tiny-{row['scheduler']}.png").stat().st_size > 1000
    repeats = list(csv.DictReader((folder / "repeats.csv").open()))
    for row in rows:
        mine = [float(r["makespan_s"]) for r in repeats if r["scheduler"] == row["scheduler"]]
        assert len(mine) == 4
        assert min(mine) == pytest.approx(float(row["measured_s"]))
    operators = list(csv.DictReader((folder / "operators.csv").open()))
    assert {r["device"] for r in operators} == {"one", "three"}
    assert len(operators) == 2 * 5
    report = (folder / "report.md").read_text()
    assert "| tiny | [heft](gantt-tiny-heft.png) |" in report
    document = json.loads((folder / "validation.json").read_text())
    assert document["summary"]["cases"] == 2
    assert document["summary"]["pairs"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["repeats=1"], "repeats=1: give warmup >= 0 and repeats >= 2"),
        (["limit=0"], "limit > 0"),
        (["instance=topcuoglu"], "Instances and drawn graphs have no kernels to run"),
        (["workload=poisson"], "one job at a time"),
        (["cluster=cpu2_gpu1", "cluster.allow_datasheet=true"], "not of this machine|No profile"),
        (["scheduler=nosuch"], "nosuch"),
        (["repeats=many"], "repeats"),
    ],
)
def test_what_cannot_be_validated_is_refused_in_one_sentence(home, capsys, words, message):
    import re

    base = [] if any(w.startswith("cluster=") for w in words) else ["cluster=here"]
    assert command(home, "model=tiny", *base, *words) == 2
    printed = capsys.readouterr().err.strip()
    assert re.search(message, printed), printed
    assert len(printed.splitlines()) == 1


def test_settings_come_from_the_file_and_the_command_line():
    settings, rest = validate.read_settings(["repeats=7", "model=gpt2", "cores=[1]"])
    assert (settings.repeats, settings.cores) == (7, [1])
    assert rest == [
        "model=gpt2",
        "scheduler=single_device,fcfs,donf,heft,sufferage",
        "cluster=cpu_1x_3x",
    ]
    _, rest = validate.read_settings(["experiment=mine"])
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
