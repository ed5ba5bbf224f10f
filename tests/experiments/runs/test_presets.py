"""Every preset runs under its own command, and is refused in one sentence under others."""

import importlib
import importlib.util

import pytest

from experiments import list as listing
from experiments import sweep
from experiments.runs import catalog
from experiments.runs.grid import compose_grid
from experiments.runs.presets import SWEEPING, command_of
from experiments.studies.early_exit.command import EarlyExit
from experiments.studies.size import command as size

PRESETS = {entry.name: entry for entry in catalog.entries("experiment")}
OTHERS = ("simulate", "describe", "size", "early_exit", "train_predictor", "sweep", "validate")
OWN = """# @package _global_
command: experiments.size
description: ours
defaults:
  - override /workload: serving
vary: {cpu: "1..2"}
slo: {p99: 1s}
minimise: devices
"""


def module_of(command):
    """Where a command is: the studies are packages."""
    name = command.rpartition(".")[2]
    study = importlib.util.find_spec(f"experiments.studies.{name}")
    return importlib.import_module(f"experiments.studies.{name}.command" if study else command)


def received(monkeypatch, module):
    """What the command of a module is called with, instead of being called."""
    given = []
    name = f"{module.__name__.removesuffix('.command').rpartition('.')[2]}_command"
    monkeypatch.setattr(module, name, lambda config, invocation: given.append(config))
    return given


OF_ONE = [name for name, e in PRESETS.items() if command_of(e.content) not in SWEEPING]


@pytest.mark.parametrize("name", OF_ONE)
def test_presets_compose_under_their_own_command(name, monkeypatch):
    """Those of sweeps: test_grid.py."""
    command = command_of(PRESETS[name].content)
    module = module_of(command)
    given = received(monkeypatch, module)
    assert module.main([f"experiment={name}"]) == 0
    assert given[0].command == command
    assert given[0].description == PRESETS[name].description


def test_the_documented_commands_are_what_the_presets_hold(monkeypatch):
    """The words that docs/serving.md and docs/early_exit.md had before there were presets."""
    early_exit = module_of("experiments.early_exit")
    words = {
        size: (
            "serving/sizing",
            [
                *("workload=serving", "workload.rate=150/s", "workload.jobs=1500", "seeds=3"),
                *("scheduler=task_groups", "cluster=edge_t4_cpu", "slo.p99=100ms"),
                "vary={t4:0..3,cpu:0..8}",
                "scheduler.options.select={name: earliest_finish, move: true}",
            ],
        ),
        early_exit: (
            "serving/early_exit",
            [
                *("model=multi_exit", "cluster=tiers", "workload=poisson"),
                *("workload.rate=5/s", "workload.jobs=300"),
            ],
        ),
    }
    for module, (name, given) in words.items():
        found = received(monkeypatch, module)
        assert module.main([f"experiment={name}"]) == 0
        assert module.main(given) == 0
        preset, plain = (config.settled() for config in found)
        assert preset.document() == plain.document()
        if module is size:
            assert (preset.slo, preset.seeds) == (plain.slo, plain.seeds)
            fleets = [size.Sizing(config).candidates for config in (preset, plain)]
            assert fleets[0] == fleets[1]
            assert f"{len(fleets[0])} fleets" in PRESETS[name].description
        else:
            assert [b for _, b in EarlyExit(preset).bandwidths] == [
                b for _, b in EarlyExit(plain).bandwidths
            ]


@pytest.mark.parametrize("name", ["serving/sizing", "serving/early_exit", "demo", "validation"])
@pytest.mark.parametrize("other", OTHERS)
def test_a_preset_is_refused_under_another_command(name, other, folder, capsys):
    command = command_of(PRESETS[name].content)
    module = f"experiments.{other}"
    if module == command or {module, command} <= {*SWEEPING}:
        return
    assert module_of(module).main([f"experiment={name}"]) == 2
    error = capsys.readouterr().err
    assert f"python -m {command} experiment={name}" in error
    assert len(error.strip().splitlines()) == 1
    assert not (folder.parent / "outputs").exists()


def test_presets_of_the_users_are_treated_alike(folder, capsys, monkeypatch):
    words = ["--config-dir", str(folder)]
    presets = folder / "experiment"
    presets.mkdir()
    (presets / "fleet.yaml").write_text(OWN)
    (presets / "grid.yaml").write_text("# @package _global_\nsweep: {scheduler: [heft, donf]}\n")
    (presets / "plain.yaml").write_text("# @package _global_\nseed: {noise: 3}\n")
    given = received(monkeypatch, size)
    assert size.main([*words, "experiment=fleet", "cluster=box"]) == 0
    assert given[0].vary == {"cpu": "1..2"}
    assert sweep.main([*words, "experiment=fleet"]) == 2
    assert "python -m experiments.size experiment=fleet" in capsys.readouterr().err
    # Among several, and without a word of its own on what it is for.
    assert sweep.main([*words, "experiment=grid,fleet"]) == 2
    assert "python -m experiments.size experiment=fleet" in capsys.readouterr().err
    assert size.main([*words, "experiment=grid"]) == 2
    assert "python -m experiments.sweep experiment=grid" in capsys.readouterr().err
    # What has neither axes nor a command is for any.
    assert size.main([*words, "experiment=plain"]) == 0
    assert given[1].seed.noise == 3
    assert compose_grid(["experiment=plain"], [folder]).cells[0].scenario.seed.noise == 3


@pytest.mark.parametrize("baseline", ["donf(pricing=none)", "hefty"])
def test_a_baseline_that_a_preset_lacks_is_refused_before_any_cell_runs(baseline, folder, capsys):
    (folder / "experiment").mkdir()
    (folder / "experiment" / "grid.yaml").write_text(
        "# @package _global_\ninstance: peft\n"
        "sweep: {scheduler: [donf], scheduler.options.pricing: [per_link, per_edge]}\n"
        f"baseline: {baseline}\n"
    )
    words = ["--config-dir", str(folder), "experiment=grid"]
    assert sweep.main(words) == 2
    assert (
        f"baseline={baseline} names nobody; this sweep has: donf, donf(pricing=per_edge)"
        in capsys.readouterr().err
    )
    assert not (folder.parent / "outputs").exists()
    # Whoever takes other options compares with nobody in particular.
    assert sweep.main([*words, "scheduler.options.pricing=per_edge", "dry_run=true"]) == 0


@pytest.mark.parametrize("module", [size, sweep])
def test_a_scenario_for_another_command_is_refused(module, folder, capsys):
    assert module.main(["command=experiments.simulate"]) == 2
    assert "for experiments.simulate: python -m experiments.simulate" in capsys.readouterr().err


def test_the_list_says_which_command_runs_a_preset(folder, capsys):
    (folder / "experiment").mkdir()
    (folder / "experiment" / "fleet.yaml").write_text(OWN)
    assert listing.main(["experiments", "--config-dir", str(folder)]) == 0
    commands, command = {}, ""
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("python -m "):
            command = line.removeprefix("python -m ").rstrip(":")
        elif line:
            commands[line.split()[0]] = command
    assert commands["serving/sizing"] == "experiments.size"
    assert commands["serving/early_exit"] == "experiments.early_exit"
    assert commands["serving/task_groups"] == "experiments.sweep"
    assert commands["validation"] == "experiments.validate"
    assert commands["fleet"] == "experiments.size"
