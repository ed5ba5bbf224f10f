"""Requests simulated as a machine was found to serve them: what who knows more of a run would have said."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibration.environment import device_name  # noqa: E402
from experiments import validate_serving as command  # noqa: E402
from experiments.probes.phases import Phases, SpeedPath  # noqa: E402
from experiments.runs.prepare import prepare  # noqa: E402
from experiments.serving_validation.outcome import figures_of, stretched  # noqa: E402
from experiments.serving_validation.prediction import Conditions, ServingPrediction  # noqa: E402
from simulator.model.costs import CostTable  # noqa: E402

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = torch.nn.Linear(64, width)
    def forward(self, x):
        return self.a(x).relu()
"""
STILL = Conditions()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file of its own for all tests: each of its models is traced once."""
    path = tmp_path_factory.mktemp("source") / "net.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def served(tmp_path, monkeypatch, machine, _graphs, source):
    """Two models on two cores under two schedulers, at 1.1 of what the cores can do one request at a time."""
    monkeypatch.setenv("HETSIM_PROFILES", str(machine / "profiles"))
    monkeypatch.setenv("HETSIM_CACHE", str(_graphs))
    for group in ("model", "cluster"):
        (tmp_path / group).mkdir()
    for name, width in (("narrow", 32), ("wide", 4096)):
        (tmp_path / "model" / f"{name}.yaml").write_text(
            f"name: {name}\ntarget: {source}:Net\narguments: {{width: {width}}}\n"
            "inputs: [{shape: [batch, 64], dtype: float32}]\nbatch: 1\n"
        )
    (tmp_path / "cluster" / "here.yaml").write_text(
        "name: here\nhost: ram\nspaces: {ram: {}}\n"
        f"devices: {{core: {{profile: {device_name('cpu')}, space: ram, count: 2}}}}\n"
    )
    words = ["cluster=here", "mix=narrow:1 wide:1", "max_batch=4", "scheduler=fcfs,fcfs_batching"]
    _, overrides = command.read_settings(words)
    contestants = command.plan(overrides, [tmp_path])
    scenario = contestants[0].scenario
    prediction = ServingPrediction(scenario, prepare(scenario, [tmp_path]))
    seconds = [e.seconds.sum(axis=0).mean() for g, e in prediction.costs.items() if g.batch == 1]
    rate = 1.1 * 2 / float(np.mean(seconds))
    base = command._base(scenario, prediction.world, 400)
    return prediction, contestants, stretched(base, rate, 300 / rate)


def test_who_knows_how_fast_a_run_was_says_what_happened(served):
    """Executions of one model take twice, of the other three times as long from beginning to end."""
    prediction, contestants, workload = served
    by_model = {"narrow": 2.0, "wide": 3.0}
    slow = CostTable(
        {g: replace(e, seconds=e.seconds * by_model[g.name]) for g, e in prediction.costs.items()}
    )
    for contestant in contestants:
        measured = prediction._simulate(workload, contestant.make(), 0.0, STILL, slow)
        steady = prediction.steady(workload, contestant.make(), 0.0, STILL)
        assert steady.makespan < 0.95 * measured.makespan
        speed, phases = prediction.told(workload, contestant.make, 0.0, STILL, measured, steady)
        for told in (speed, phases):
            assert told.jobs["finish"] == pytest.approx(measured.jobs["finish"])


def test_who_knows_the_phases_says_more(served):
    """A machine that is slow in the first half of a run, and fast in the second: delays of who knows the mean speed
    are off by a multiple of those of who knows the windows."""
    prediction, contestants, workload = served
    half = workload.jobs[-1].arrival / 2
    path = SpeedPath((half, 40 * half), (3.0, 0.8))
    fast = prediction.costs.scaled(path.fastest)
    errors = []
    for contestant in contestants:
        measured = prediction._simulate(workload, contestant.make(), 0.0, STILL, fast, path)
        steady = prediction.steady(workload, contestant.make(), 0.0, STILL)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("experiments.serving_validation.prediction.WINDOW_S", half / 20)
            told = prediction.told(workload, contestant.make, 0.0, STILL, measured, steady)
        delay = figures_of(measured, 0.0)["mean_delay_s"]
        errors.append([abs(figures_of(t, 0.0)["mean_delay_s"] / delay - 1) for t in told])
    speed, phases = np.max(errors, axis=0)
    assert phases < 0.1
    assert speed > 3 * phases


def test_draws_are_of_the_seed_and_wander_with_the_phases(served):
    prediction, contestants, workload = served
    make = contestants[0].make
    length = workload.jobs[-1].arrival
    wandering = Conditions(known=Phases((((length / 10, 0.5),), ((length / 10, 1.5),))))

    steady = prediction.steady(workload, make(), 0.0, STILL)

    def delays(conditions):
        drawn = prediction.drawn(workload, make, 0.0, conditions, steady, 6)
        return [figures_of(trace, 0.0)["mean_delay_s"] for trace in drawn]

    assert delays(STILL) == delays(STILL)
    assert delays(wandering) == delays(wandering)
    assert len(delays(wandering)) == 6
    assert np.std(np.log(delays(wandering))) > np.std(np.log(delays(STILL)))
