"""What a user gets wrong is one sentence and exit code 2, never a traceback."""

import dataclasses
import re
import subprocess
import sys
from importlib import import_module

import pytest

from experiments import simulate, sweep
from experiments.calibrating.settings import CalibrateConfig
from experiments.runs import help
from experiments.runs.command import command_line, user_folders
from experiments.runs.configs import DescribeConfig, SimulateConfig
from experiments.studies.early_exit.command import EarlyExitConfig
from experiments.studies.size.command import SizeConfig
from experiments.studies.train_predictor.command import TrainPredictorConfig

CASES = [
    (["scheduler=hft"], "No scheduler 'hft'. Nearest: heft."),
    (["model=googlene"], "No model 'googlene'. Nearest: googlenet."),
    (["cluster=cpu3"], "No cluster 'cpu3'. Nearest: cpu2, "),
    (["scheduler=[heft,donf]"], "python -m experiments.sweep scheduler=heft,donf"),
    (["scheduler=heft,donf"], "add -m"),
    (["seeed.noise=1"], "There is no key 'seeed'. Nearest: seed."),
    (["seed.nois=1"], "There is no key 'seed.nois'. Nearest: seed.noise."),
    (["+seed.more=1"], "There is no key 'seed.more'."),
    (["seed.noise=much"], "seed.noise: Value 'much'"),
    (["scheduler.options.insert=false"], "Nearest: scheduler.options.insertion."),
    (["dry_run=true"], "It belongs to python -m experiments.sweep."),
    (["experiment=nothing"], "No experiment 'nothing'."),
    (["model=from_class"], "model.name has no default"),
    (["seed.noise=[1"], "Cannot read 'seed.noise=[1'"),
    (["instance=forg"], "No instance 'forg'."),
    (["simulation.movement=carry"], "known: push, pull"),
    (["simulation.noise=lognormal"], "needs simulation.sigma"),
    (["simulation.sigma=0.1"], "has no meaning with simulation.noise=none"),
    (
        ["simulation.noise=lognormal+loud"],
        "There is no simulation.noise=loud; known: none, lognormal",
    ),
    (["simulation.noise=drift+drift"], "'drift' stands twice"),
    (["simulation.noise=none+drift"], "'none' cannot be joined with others"),
    (["simulation.noise=stragglers"], "needs simulation.stragglers.probability, e.g. 0.01"),
    (["simulation.noise=drift"], "needs simulation.drift.per_hour, e.g. 0.02, or"),
    (
        ["simulation.noise=measured", "simulation.drift.per_hour=0.1"],
        "drift.per_hour has no meaning with simulation.noise=measured; add simulation.noise=measured+drift",
    ),
    (["simulation.noise=drift", "simulation.drift.sigma=0.1"], "belong together"),
    (
        [
            "simulation.noise=lognormal",
            "simulation.sigma=0.1",
            "simulation.drift.time_constant=5min",
        ],
        "no meaning with simulation.noise=lognormal",
    ),
    (
        [
            "simulation.noise=drift",
            "simulation.drift={sigma:0.1,time_constant:10}",
            "instance=peft",
        ],
        "The simulation.drift.time_constant '10' has no unit",
    ),
    (
        ["simulation.noise=stragglers", "simulation.stragglers={probability:2,factor:5}"],
        "a probability from 0 to 1, got 2",
    ),
    (["simulation.noise=empirical", "instance=peft"], "no profile of a bare instance holds any"),
    (["simulation.noise=systematic", "instance=peft"], "give a simulation.systematic.sigma"),
    (["simulation.draws=1"], "at least 2 draws"),
    (["model=branches", "cluster=box", "cluster.links.pcie.bandwidth=12 Gb/s"], "ambiguous"),
]


@pytest.mark.parametrize(("words", "sentence"), CASES, ids=[c[0][-1] for c in CASES])
def test_a_mistake_of_the_user_is_one_sentence(words, sentence, folder, capsys):
    code = simulate.main(["--config-dir", str(folder), *words])
    error = capsys.readouterr().err
    assert code == 2
    assert sentence in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1
    assert not (folder.parent / "outputs" / "runs").exists()


def test_a_missing_profile_names_the_nearest_and_the_command_that_measures_it(folder, capsys):
    words = ["model=branches", "cluster=box", "cluster.devices.gpu.profile=toy-cart"]
    assert simulate.main(["--config-dir", str(folder), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("No profile 'toy-cart'. Nearest: toy-card (measured)")
    assert "python -m experiments.calibrate" in error


def test_a_datasheet_has_to_be_allowed(folder, capsys):
    words = ["model=branches", "cluster=box", "cluster.devices.gpu.profile=toy-sheet"]
    words = ["--config-dir", str(folder), "simulation.draws=0", *words]
    assert simulate.main(words) == 2
    assert "cluster.allow_datasheet=true" in capsys.readouterr().err
    assert simulate.main([*words, "cluster.allow_datasheet=true"]) == 0
    assert "toy-sheet (datasheet)" in capsys.readouterr().out


def test_jobs_of_a_multirun_fail_one_by_one(folder, capsys):
    code = simulate.main(["-m", "instance=peft,nothing,topcuoglu", "scheduler=heft"])
    captured = capsys.readouterr()
    assert code == 2
    assert "No instance 'nothing'" in captured.err
    assert "makespan 133" in captured.out
    assert "makespan 80" in captured.out


def test_a_missing_config_folder_is_refused(folder, capsys):
    for command in (simulate, sweep):
        assert command.main(["--config-dir", "/nowhere", "instance=peft"]) == 2
        assert "/nowhere" in capsys.readouterr().err


def test_a_defect_keeps_its_traceback(folder, monkeypatch):
    def defect(*_, **__):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(simulate, "run_scenario", defect)
    with pytest.raises(ZeroDivisionError):
        simulate.main(["instance=peft"])


def test_flags_for_the_users_folder(tmp_path):
    for words in (
        ["--config-dir", str(tmp_path)],
        [f"--config-dir={tmp_path}"],
        ["a=b", "-cd", str(tmp_path), "c=d"],
    ):
        assert user_folders(words) == [tmp_path]
    assert user_folders(["a=b"]) == []


def test_a_command_line_is_quoted_for_the_shell(tmp_path):
    line = command_line("experiments.simulate", ["a=[b c]"], [tmp_path / "my folder"])
    assert line == f"python -m experiments.simulate --config-dir '{tmp_path}/my folder' 'a=[b c]'"


ONLY = {
    "simulate": "explain=true",
    "describe": "advise=true",
    "sweep": "dry_run=true",
    "size": "slo.p99=100ms",
    "calibrate": "budget=15min",
    "validate": "held_out=true",
    "devices": "batch=1,16",
    "early_exit": "bandwidths=",
    "train_predictor": "record=loads.csv",
    "flip": "precision=",
    "compare": "map=",
}
"""Commands, each with an option that it alone takes."""


@pytest.mark.parametrize("command", help.COMMANDS)
def test_help_shows_the_options_of_that_command_alone(command, capsys):
    name = f"experiments.{command}"
    module = import_module(name)
    module = module if hasattr(module, "main") else import_module(f"{name}.command")
    assert module.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: python -m experiments.{command} ")
    assert max(map(len, text.splitlines())) <= 100
    others = {option for other, option in ONLY.items() if other != command}
    assert ONLY.get(command, "") in text
    assert not [option for option in others if option in text]


@pytest.mark.parametrize("command", help.COMMANDS)
def test_help_comes_before_what_takes_time_is_imported(command):
    """As ``python -m experiments.COMMAND --help`` does it: no NumPy, no Hydra, no rich."""
    code = f"""
import runpy, sys
sys.argv = ["x", "--help"]
try: runpy.run_module("experiments.{command}", run_name="__main__", alter_sys=False)
except SystemExit as end: assert not end.code
assert not {{"numpy", "hydra", "rich", "omegaconf", "torch"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python -m experiments.{command} ")


def test_simulate_lists_only_options_that_there_are():
    """Every ``key=`` of a help whose values are a configuration is a key of it."""
    for command, schema in (
        ("simulate", SimulateConfig),
        ("describe", DescribeConfig),
        ("size", SizeConfig),
        ("calibrate", CalibrateConfig),
        ("early_exit", EarlyExitConfig),
        ("train_predictor", TrainPredictorConfig),
    ):
        keys = re.findall(r"(?:^| |')([a-z_]+)(?:\.\w+)*=", help.COMMANDS[command].text)
        known = {field.name for field in dataclasses.fields(schema)} | {"calibration"}
        assert keys
        assert set(keys) <= known
