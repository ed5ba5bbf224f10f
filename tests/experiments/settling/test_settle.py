"""What to measure next: critical paths, the question, and one verdict measured for real."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from calibration import environment
from calibration.folder import prepare_folder
from calibration.measure import SHIPPED_OPERATORS
from calibration.plan import MeasurePlan
from calibration.recorder import Recorder
from calibration.samples import read_samples
from calibration.timing import PROTOCOL
from cost_models.profile import Profile, row_keys
from cost_models.roofline import Roofline
from cost_models.table import load, row_of
from experiments import sweep as sweep_command
from experiments.calibrate import main
from experiments.compare import settling
from experiments.comparison.leaderboard import standings
from experiments.runs.prepare import prepare
from experiments.runs.results import load_results
from experiments.settling.settle import path_seconds, question_of, settle
from experiments.settling.settled import anchors_of, command_for, merged, refit, samples_for
from simulator.engine.run import simulate
from simulator.errors import HetsimError
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from tests.cost_models.conftest import linear_row, relu_row
from tests.simulator.scripted import StaticPlan

pytest.importorskip("torch")

CLUSTER = """
name: pair
description: this machine's core and a toy
host: ram
spaces: {{ram: {{}}}}
devices:
  own: {{profile: {here}, space: ram}}
  toy: {{profile: toy-core, space: ram}}
"""


# -- critical paths --------------------------------------------------------------------------------


def test_sensitivity_on_a_diamond():
    """0 -> {1, 2} -> 3 with 2, 5, 3 and 1 s on two cores: 2 s of 0, 5 s of 1, none of 2, 1 s of 3."""
    graph = from_edges("diamond", 4, [(0, 1, 0.0), (0, 2, 0.0), (1, 3, 0.0), (2, 3, 0.0)])
    devices = [Device("a", "ram", launch_overhead=0.25), Device("b", "ram")]
    cluster = Cluster("two", [MemorySpace("ram")], devices, host="ram")
    seconds = np.array([[2.0, 2.0], [5.0, 5.0], [3.0, 3.0], [1.0, 1.0]])
    plan = [(0, 0), (0, 1), (1, 2), (1, 3)]

    def run(table):
        return simulate(graph, cluster, CostTable.of(graph, table), StaticPlan(plan))

    found = path_seconds(run(seconds), cluster, (4, 2))
    assert found.tolist() == [[2, 0], [5, 0], [0, 0], [0, 1]]
    # What the name says: the makespan's derivative by the log of each time.
    for operator, device in np.ndindex(4, 2):
        changed = seconds.copy()
        changed[operator, device] *= np.exp(1e-6)
        slope = (run(changed).makespan - run(seconds).makespan) / 1e-6
        assert slope == pytest.approx(found[operator, device], abs=1e-4)


# -- the question ----------------------------------------------------------------------------------


@pytest.fixture
def here(folder, monkeypatch):
    """A cluster of this machine's core, of which a profile knows other operators, and a toy."""
    monkeypatch.setattr(sweep_command, "_report", lambda *_: None)
    name = environment.device_name("cpu")
    rows = [linear_row(m, 17, 23, 1e-6 + 1e-8 * m) for m in range(1, 31)]
    rows += [relu_row(100_003 + m, 1e-4) for m in range(30)]
    table = pd.DataFrame(rows).assign(
        device=name, cache="graph", spread=0.02, repeats=24, statistic="minimum"
    )
    rng = np.random.default_rng(0)
    for half in ("half_a_s", "half_b_s"):
        table[half] = table["seconds"] * np.exp(0.01 * rng.standard_normal(len(table)))
    table["architectures"] = [[] for _ in range(len(table))]
    residuals = Profile.load("toy-core").residuals
    Profile(
        name,
        "measured",
        Roofline({"float32": 1e9}, 1e9, 1e-6),
        cache="graph",
        residuals=residuals,
        spread=dict.fromkeys(("linear", "relu", "add"), 0.02),
        statistic="minimum",
        provenance={"threads": 1, "repeat_kernel": 1, "protocol": PROTOCOL},
        table=load(table),
    ).save(folder / "profiles" / name)
    (folder / "cluster" / "pair.yaml").write_text(CLUSTER.format(here=name))
    return folder


def sweep(folder, *words, draws=20):
    """A sweep of as few draws as tell two schedulers apart, unless more are asked for."""
    common = ["workers=1", "name=open", "--config-dir", str(folder), "cost_model=roofline"]
    common += [f"simulation.draws={draws}"]
    assert sweep_command.main([*words, *common]) in (0, 1)
    return "outputs/sweeps/open"


def own(folder):
    return ["--config-dir", str(folder)]


OPEN = ["model=branches", "cluster=pair", "scheduler=mine", "scheduler.options.device=0,1"]


@pytest.mark.slow
def test_a_verdict_is_measured_and_settled(here, capsys, monkeypatch):
    """Both cores are believed to be equally fast; the toy's real times are what it says, ours are not."""
    run = sweep(here, *OPEN, draws=60)
    # A tie at believed times is not worth settling, unless asked for.
    assert settling(standings(load_results(run)), Path(run)) == []
    pair = "pair=mine,mine(device=1)"
    assert main([*own(here), f"settle={run}", pair, "step=plan"]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("P(win)", "linear", "expected", "validity: CPU cores"))
    assert not list(here.parent.glob("outputs/settled/*"))

    code = main([*own(here), f"settle={run}", pair, "rounds=1", "out=done"])
    assert code == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert "'toy-core' is another device" in told
    assert "python -m calibration.measure --device cpu --name toy-core" in told
    assert "measured and looked up" in told
    document = json.loads((here.parent / "done" / "settle.json").read_text())
    name = environment.device_name("cpu")
    chosen = [c for c in document["choices"] if c["profile"] == name]
    assert chosen
    assert 0.5 <= document["probability"] < 0.95
    assert document["probability_expected"] > document["probability"]
    # A real core of today takes microseconds a call, several times what the toy roofline says.
    winner = document["schedulers"].index("mine(device=1)")
    after = document["after"]["probability"]
    assert (after if winner == 0 else 1 - after) > 0.95
    refitted = Profile.load(here.parent / "done" / "profiles" / name)
    assert len(refitted.measurements) == 60 + len(chosen)
    monkeypatch.setenv(
        "HETSIM_PROFILES", f"{here.parent / 'done' / 'profiles'}:{here / 'profiles'}"
    )
    assert main([*own(here), f"settle={run}", pair, "step=plan"]) in (0, 2)
    assert "looked up" in "".join(capsys.readouterr())


def test_the_open_verdict_of_a_sweep_is_found(here, capsys):
    # 4% slower at believed times: behind, but within what may be wrong.
    profile = Profile.load("toy-core")
    slower = Roofline({"float32": 1e9}, 1e9, 1.04e-6)
    replace(profile, roofline=slower).save(here / "profiles" / "toy-core")
    run = sweep(here, *OPEN, draws=60)
    assert settling(standings(load_results(run)), Path(run)) == [
        "to settle mine against mine(device=1) on branches x2, measure what this names:",
        f"  python -m experiments.calibrate settle={run} step=plan",
    ]
    question = question_of(run, config_dirs=(here.resolve(),))
    assert question.labels == ("mine", "mine(device=1)")
    assert question.contest == "branches x2"
    assert question.config_dirs == (here.resolve(),)
    assert [s.scheduler.options["device"] for s in question.scenarios] == [0, 1]
    found = settle(question)
    # All of one core's path against all of the other's.
    assert {c.profile for c in found.choices} == {environment.device_name("cpu"), "toy-core"}
    assert 0 < found.after < found.variance
    assert sum(c.share for c in found.choices) == pytest.approx(
        1 - found.after / found.variance, rel=1e-6
    )
    assert found.expected > max(found.now, found.normal) - 0.02
    assert len(samples_for(found, "toy-core")) == sum(
        c.profile == "toy-core" for c in found.choices
    )
    # Whatever the budget, a chosen operator fits in.
    less = settle(question, budget=found.choices[0].seconds * 1.01)
    assert len(less.choices) == 1


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (["instance=topcuoglu", "scheduler=heft,fcfs"], [], "given with the graphs, not predicted"),
        ([*OPEN[:2], "scheduler=heft,fcfs"], ["pair=heft,peft"], "has no scheduler 'peft'"),
        ([*OPEN[:2], "scheduler=heft,fcfs"], ["pair=heft"], "a pair is two schedulers"),
        ([*OPEN[:2], "scheduler=heft,fcfs"], ["contest=gpt2"], "has no contest 'gpt2'"),
        ([*OPEN[:2], "scheduler=heft"], [], "No verdict of outputs/sweeps/open is open"),
        ([*OPEN[:2], *OPEN[2:3], "scheduler.options.device=0,1", "simulation.noise=systematic"],
         ["pair=mine,mine(device=1)"], "no measuring narrows it"),
    ],
)  # fmt: skip
def test_what_cannot_be_settled_is_one_sentence(here, capsys, words, options, message):
    bare = words[0].startswith("instance")
    run = sweep(here, *words) if not bare else _bare(words)
    capsys.readouterr()
    assert main([*own(here), f"settle={run}", *options, "step=plan"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def _bare(words):
    assert sweep_command.main([*words, "workers=1", "name=open"]) == 0
    return "outputs/sweeps/open"


def test_what_is_missing_is_one_sentence(here, capsys, monkeypatch):
    sheet = (here / "cluster" / "pair.yaml").read_text().replace("toy-core", "toy-sheet")
    (here / "cluster" / "pair.yaml").write_text(sheet + "allow_datasheet: true\n")
    as_fast = Roofline({"float32": 1e9}, 1e9, 1e-6)
    replace(Profile.load("toy-sheet"), roofline=as_fast).save(here / "profiles" / "toy-sheet")
    run = sweep(here, *OPEN)
    capsys.readouterr()
    pair = "pair=mine,mine(device=1)"
    assert main([*own(here), f"settle={run}", pair, "step=plan"]) == 2
    assert "Nobody knows how wrong 'toy-sheet' (datasheet) is" in capsys.readouterr().err
    monkeypatch.setenv("HETSIM_PROFILES", "elsewhere")
    assert main([*own(here), f"settle={run}", pair, "step=plan"]) == 2
    assert "No profile '" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pair=heft,donf"], "pair= goes with settle="),
        (["step=plan"], "step=plan goes with settle="),
        (["settle=nowhere"], "There is no folder nowhere"),
        (["settle=nowhere", "step=fit"], "step=fit needs out="),
        (["settle=nowhere", "operators=training"], "leave model=, operators= and base= out"),
    ],
)
def test_words_that_do_not_go_together(folder, capsys, words, message):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_measured_times_are_looked_up_when_asked_for(here):
    """One of the model's operators took half a second when it was measured."""
    name = environment.device_name("cpu")
    profile = Profile.load(name)
    question = question_of(sweep(here, *OPEN), ["mine", "mine(device=1)"], None, (here,))
    operator = prepare(question.scenarios[0], question.config_dirs).graph.operators[0]
    row = row_of(operator) | {"device": name, "cache": "graph", "seconds": 0.5, "source": "test"}
    table = pd.concat([profile.measurements, pd.DataFrame([row])], ignore_index=True)
    table["architectures"] = [[] for _ in range(len(table))]
    replace(profile, table=load(table)).save(here / "more" / name)
    os.environ["HETSIM_PROFILES"] = f"{here / 'more'}:{here / 'profiles'}"  # undone by the fixture
    shutil.rmtree(
        "outputs/sweeps/open"
    )  # another grid takes another name, or the place of the first
    words = [*OPEN[:2], "scheduler=mine", "cost_model.lookup=false,true"]
    frame = load_results(sweep(here, *words)).set_index("cost_model")
    assert set(frame.index) == {"roofline", "roofline+lookup"}
    assert frame["makespan_s"]["roofline"] < 1e-3
    # As often as the model has it; its three branches begin alike.
    count = frame["makespan_s"]["roofline+lookup"] / 0.5
    assert count == pytest.approx(round(count), rel=1e-3)
    assert round(count) >= 1
    # By the repeat error of the other rows, halves of 1%, and the spread between runs.
    assert np.std(frame["draws"]["roofline+lookup"]) < 0.05 * count * 0.5


# -- tables and devices ----------------------------------------------------------------------------


def test_a_row_takes_the_place_of_one_of_the_same_state_only():
    base = load(
        pd.DataFrame(
            [
                linear_row(2, 3, 4, 1.0, cache="graph", architectures=["a"]),
                linear_row(2, 3, 4, 0.5, cache="warm", architectures=["a"]),
                relu_row(7, 2.0, cache="graph", architectures=[]),
            ]
        )
    )
    new = load(
        pd.DataFrame(
            [
                linear_row(2, 3, 4, 3.0, cache="graph", architectures=["b"], half_a_s=3.0),
                relu_row(8, 4.0, cache="graph", architectures=["b"], half_a_s=4.0),
            ]
        )
    )
    found = merged(base, new)
    assert found["seconds"].tolist() == [0.5, 2.0, 3.0, 4.0]
    assert found["cache"].tolist() == ["warm", "graph", "graph", "graph"]
    assert found["architectures"].tolist() == [["a"], [], ["a", "b"], ["b"]]
    assert load(found).equals(found)


def test_a_device_that_changed_is_refused(here):
    """An operator of the profile takes a tenth of its time now: nothing is mixed."""
    sweep(here, *OPEN, draws=60)
    found = settle(question_of("outputs/sweeps/open", ["mine", "mine(device=1)"], None, (here,)))
    name = environment.device_name("cpu")
    profile = Profile.load(name)
    anchor = next(s for s in read_samples(SHIPPED_OPERATORS) if s.operator.kind == "relu")
    row = row_of(anchor.operator) | {
        "device": name, "cache": "graph", "seconds": 1.0, "source": "test", "spread": 0.02,
        "architectures": [],
    }  # fmt: skip
    table = pd.concat([profile.measurements, pd.DataFrame([row])], ignore_index=True)
    profile = replace(profile, table=load(table))
    samples = [*samples_for(found, name), anchor]
    _measured(here / "out" / "measured" / name / "raw", samples, name, 0.1)
    with pytest.raises(HetsimError, match=r"take 0\.10 times as long now"):
        refit(profile, here / "out", found)
    assert not (here / "out" / "profiles").exists()
    # Without the change everything asked for is taken, the anchor left as it was.
    _measured(here / "out2" / "measured" / name / "raw", samples, name, 1.0)
    again = refit(profile, here / "out2", found)
    assert (again.anchors, again.ratio) == (1, pytest.approx(1.0, rel=0.05))
    kept = Profile.load(here / "out2" / "profiles" / name)
    assert len(kept.measurements) == 61 + len(samples) - 1
    keys = row_keys([sample.operator for sample in samples])
    assert kept.is_measured(keys).all()
    assert kept.residuals == profile.residuals


def test_a_profile_of_another_protocol_is_not_added_to(here, capsys):
    run, name = sweep(here, *OPEN), environment.device_name("cpu")
    profile = Profile.load(name)
    replace(profile, provenance={**profile.provenance, "protocol": PROTOCOL - 1}).save(
        here / "profiles" / name
    )
    assert main([*own(here), f"settle={run}", "pair=mine,mine(device=1)", "out=never"]) == 2
    assert f"measures by protocol {PROTOCOL}" in capsys.readouterr().err
    assert not list((here.parent / "never").rglob("raw"))


def test_a_graph_that_stays_in_the_cache_is_measured_as_it_is_priced(here):
    """It is priced warm: times of its operators in state `graph` are not its times."""
    name = environment.device_name("cpu")
    profile = Profile.load(name)
    run = sweep(here, *OPEN, draws=60)
    question = question_of(run, ["mine", "mine(device=1)"], None, (here,))
    graph = prepare(question.scenarios[0], question.config_dirs).graph
    base = {"device": name, "source": "test", "spread": 0.02, "repeats": 48, "architectures": []}
    rows = [row_of(o) | base | {"cache": "graph", "seconds": 0.5} for o in graph.operators]
    anchor = next(s for s in read_samples(SHIPPED_OPERATORS) if s.operator.kind == "linear")
    rows += [row_of(anchor.operator) | base | {"cache": c, "seconds": s} for c, s in WARM]
    table = load(pd.concat([profile.measurements, pd.DataFrame(rows)], ignore_index=True))
    cached = replace(
        profile,
        table=table,
        cache_bytes=2.0**30,
        provenance={**profile.provenance, "states": ["graph", "warm"]},
    )
    cached.save(here / "profiles" / name)
    found = settle(question)
    assert found.states == {name: "warm", "toy-core": None}
    assert found.known == 0  # all are measured, in the other state
    assert found.now < 0.95  # and none is looked up
    assert name in {choice.profile for choice in found.choices}
    samples = samples_for(found, name)
    assert anchors_of(cached, samples, "warm") == [anchor]
    raw = here / "out" / "measured" / name / "raw"
    _measured(raw, [*samples, anchor], name, 0.25, "warm")
    again = refit(cached, here / "out", found)
    assert (again.anchors, again.ratio) == (1, pytest.approx(1.0, rel=0.05))
    kept = Profile.load(here / "out" / "profiles" / name)
    keys = row_keys([sample.operator for sample in samples])
    assert kept.is_measured(keys, "warm").all()
    for state, seconds in (("graph", 0.5), ("warm", 0.25)):
        priced = kept.price_rows(keys, model="roofline", cache=state, lookup=True).seconds
        assert priced == pytest.approx(seconds, rel=0.05)


WARM = (("graph", 1.0), ("warm", 0.25))
"""Of an operator measured in both states, seconds."""


def test_a_machine_of_other_software_is_told_before_it_is_measured(here, capsys, monkeypatch):
    run, name = sweep(here, *OPEN), environment.device_name("cpu")
    torch_here = environment.described("cpu")["torch"]
    asked = []
    monkeypatch.setattr(
        "experiments.settling.settled.measure_here", lambda *given: asked.append(given[0].name)
    )
    for torch, told in (("1.0.0", True), (torch_here, False)):
        profile = replace(Profile.load(name), versions={"torch": torch})
        profile.save(here / "profiles" / name)
        capsys.readouterr()
        words = [
            *own(here),
            f"settle={run}",
            "pair=mine,mine(device=1)",
            "step=measure",
            "out=away",
        ]
        assert main(words) == 0
        sentence = f"profile '{name}' was measured with torch 1.0.0, here "
        assert (sentence in " ".join(capsys.readouterr().err.split())) is told
        assert main([*words[:4], "step=plan"]) == 0  # which touches no hardware
        assert sentence not in " ".join(capsys.readouterr().err.split())
    assert asked == [name, name]


def _measured(raw, samples, name, seconds, state="graph"):
    prepare_folder(raw, MeasurePlan("cpu", name, (state,)), samples)
    for process in (0, 1):
        recorder = Recorder(raw, process)
        for index in range(len(samples)):
            for number in range(3):
                recorder.add(index, 0, state, seconds * (1 + 0.01 * number), seconds)
        recorder.flush(force=True)
        record = {"started": time.time(), "versions": {"torch": "2"}, "processor": "box"}
        (raw / f"process-{process:04d}.json").write_text(json.dumps(record))


def test_the_command_for_another_device_says_how_it_was_measured(here, tmp_path):
    profile = replace(
        Profile.load("toy-card"),
        name="nvidia-toy",
        cache="graph",
        provenance={"threads": 2, "repeat_kernel": 3},
    )
    found = SimpleNamespace(visits={"nvidia-toy": 7}, states={"nvidia-toy": "warm"})
    command = command_for(profile, tmp_path / "measured" / "nvidia-toy", found)
    assert command.startswith("python -m calibration.measure --device cuda:0 --name nvidia-toy")
    assert "--rounds 4" in command
    assert command.endswith("--states warm --threads 2 --repeat-kernel 3")
