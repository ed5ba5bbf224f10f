"""Grids: the quick composition is Hydra's own, cells repeat from their commands, exclusions, axes."""

import dataclasses

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import given
from hypothesis import strategies as st

from experiments.runs import catalog
from experiments.runs.command import plain, register
from experiments.runs.configs import GROUPS, Scenario, SimulateConfig
from experiments.runs.grid import compose_grid, value_text
from experiments.runs.overrides import read_overrides
from experiments.runs.presets import SWEEPING, command_of
from simulator.errors import InvalidInput


def by_hydra(overrides, folder=None):
    """What ``simulate`` would get for these overrides."""
    register(SimulateConfig)
    words = list(overrides)
    if folder is not None:
        words.append(f'hydra.searchpath=["file://{folder}"]')
    with initialize_config_dir(str(catalog.CONF), version_base="1.3"):
        config = plain(compose("config", overrides=words), SimulateConfig)
    return config.settled().document()


CASES = [
    ["scheduler=heft,donf", "cluster=cpu2,cpu2_gpu1", "seed.workload=range(0,2)"],
    ["scheduler=donf", "scheduler.options.pricing=per_edge,per_link", "simulation=ideal_links"],
    ["model=gpt2,bert_base", "model.batch=1,4", "cluster.devices.cpu.count=3"],
    ["cluster.devices.gpu.count=1,2", "workload=poisson", "workload.rate=5/s,10/s", "seed.noise=4"],
    ["scheduler=donf,donf2", "++scheduler.options.alpha=0.25", "cost_model=roofline,boosted"],
    ["instance=topcuoglu,peft", "scheduler=heft"],
    ["family=daggen,fft", "family.ccr=0.5,4", "family.heterogeneity=both", "seed.workload=3,4"],
    ["family=layered", "family.speeds=[1,2],[1,10]", "family.heterogeneity=related", "strict=true"],
]


@pytest.mark.parametrize("words", CASES, ids=[" ".join(case)[:60] for case in CASES])
def test_every_cell_is_what_hydra_composes(words):
    grid = compose_grid(words)
    swept = {axis.key for axis in grid.axes}
    for cell in (grid.cells[0], grid.cells[-1]):
        fixed = [w for w in words if w.lstrip("+").partition("=")[0] not in swept]
        direct = [f"{key}={value}" for key, value in cell.choices.items()]
        assert cell.scenario.document() == by_hydra([*direct, *fixed])
        # And the command that repeats it alone leads to the same scenario.
        assert cell.scenario.document() == by_hydra(cell.overrides)


def test_entries_that_are_not_plain_are_left_to_hydra(folder):
    (folder / "cluster" / "big_box.yaml").write_text(
        "defaults: [box, _self_]\nname: big_box\ndevices: {cpu: {count: 8}}\n"
    )
    grid = compose_grid(["cluster=box,big_box", "model=branches", "scheduler=mine,heft"], [folder])
    counts = {
        cell.choices["cluster"]: cell.scenario.cluster.devices["cpu"].count for cell in grid.cells
    }
    assert counts == {"box": 2, "big_box": 8}
    for cell in grid.cells[::3]:
        assert cell.scenario.document() == by_hydra(cell.overrides, folder)
    # Not swept, it is Hydra's as well.
    grid = compose_grid(["cluster=big_box", "model=branches", "scheduler=mine,heft"], [folder])
    assert [c.scenario.cluster.devices["cpu"].count for c in grid.cells] == [8, 8]
    assert grid.cells[0].overrides == ("cluster=big_box", "model=branches", "scheduler=mine")


def test_a_config_that_changed_is_composed_anew(folder):
    words = ["cluster=box", "model=branches", "scheduler=mine"]
    (cell,) = compose_grid(words, [folder]).cells
    assert compose_grid(words, [folder]).cells == (cell,)
    path = folder / "cluster" / "box.yaml"
    path.write_text(path.read_text().replace("count: 2", "count: 16"))
    (changed,) = compose_grid(words, [folder]).cells
    assert changed.scenario.cluster.devices["cpu"].count == 16
    assert changed.hash != cell.hash


PRESET = """# @package _global_
defaults:
  - override /workload: periodic
name: study
description: a preset
sweep:
  scheduler: heft, donf
  instance: [peft, topcuoglu]
  seed.workload: range(0,3)
exclude:
  - {scheduler: donf, instance: peft}
workload: {jobs: 3, period: 1s}
"""


def preset(folder):
    (folder / "experiment").mkdir()
    (folder / "experiment" / "study.yaml").write_text(PRESET)


def test_a_preset_brings_axes_values_and_exclusions(folder):
    preset(folder)
    grid = compose_grid(["experiment=study"], [folder])
    assert grid.settings.name == "study"
    assert [(a.key, len(a.values)) for a in grid.axes] == [
        ("scheduler", 2),
        ("instance", 2),
        ("seed.workload", 3),
    ]
    assert (len(grid.cells), grid.excluded) == (9, 3)
    assert {cell.scenario.workload.jobs for cell in grid.cells} == {3}
    last = grid.cells[-1]
    assert last.scenario.document() == by_hydra(last.overrides)


def test_the_command_line_replaces_axes_of_a_preset(folder):
    preset(folder)
    grid = compose_grid(
        ["experiment=study", "scheduler=fcfs", "seed.workload=5,6", "exclude=[]"], [folder]
    )
    assert {cell.scenario.scheduler.name for cell in grid.cells} == {"fcfs"}
    assert {cell.scenario.seed.workload for cell in grid.cells} == {5, 6}
    assert len(grid.cells) == 4


def test_a_preset_that_changes_a_swept_group_keeps_its_change(folder):
    (folder / "experiment").mkdir()
    (folder / "experiment" / "wide.yaml").write_text(
        "# @package _global_\nsweep: {cluster: [cpu2, cpu2_gpu1]}\n"
        "cluster: {devices: {cpu: {count: 5}}}\n"
    )
    grid = compose_grid(["experiment=wide", "model=branches"], [folder])
    assert [cell.scenario.cluster.devices["cpu"].count for cell in grid.cells] == [5, 5]


def test_exclusions_take_lists_and_any_key():
    words = ["instance=topcuoglu,peft", "scheduler=heft,donf,fcfs", "seed.noise=0,1"]
    grid = compose_grid(
        [*words, "exclude=[{scheduler:[heft,donf],seed.noise:1},{instance:peft,scheduler:fcfs}]"]
    )
    left = {
        (c.choices["instance"], c.choices["scheduler"], c.choices["seed.noise"]) for c in grid.cells
    }
    assert left == {
        ("topcuoglu", "heft", "0"),
        ("topcuoglu", "donf", "0"),
        ("topcuoglu", "fcfs", "0"),
        ("topcuoglu", "fcfs", "1"),
        ("peft", "heft", "0"),
        ("peft", "donf", "0"),
    }
    assert grid.excluded == 6


def test_cells_that_are_the_same_are_simulated_once():
    # One number, written in two ways.
    grid = compose_grid(["family=layered", "family.ccr=2,2.0", "scheduler=heft,fcfs"])
    assert (len(grid.cells), grid.repeated) == (2, 2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["scheduler=[heft,donf]"], "experiments.sweep scheduler=heft,donf"),
        (["scheduler=heft,dnof"], "No scheduler 'dnof'. Nearest: donf"),
        (["name=a,b"], "concerns the whole sweep"),
        (["instance=peft", "model=gpt2,bert_base"], "takes the place of model"),
        (["seed.noise=interval(0,1)"], "an interval"),
        (["instance=peft", "exclude=[{schedular:heft}]"], "'schedular'"),
        (["instance=peft", "exclude=[heft]"], "list of conditions"),
        (["instance=peft", "scheduler=heft", "exclude=[{scheduler:heft}]"], "no cells"),
        (["seed.noise=range(3,3)"], "no values"),
        (["+seed.noise=1,2"], "without \\+"),
    ],
)
def test_refusals(words, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        compose_grid(words)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=12),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(_VALUES)
def test_a_value_written_as_an_override_is_read_back(value):
    (override,) = read_overrides([f"seed.noise={value_text(value)}"])
    read = override.value()
    assert read == value
    assert type(read) is type(value)


def test_shipped_entries_are_named_as_their_files_and_describe_themselves():
    for group in (f.name for f in dataclasses.fields(Scenario)):
        for entry in catalog.entries(group):
            if group != "simulation":
                assert entry.content["name"] in (entry.name, "???")
            assert entry.description, entry.path
            assert len(entry.description) <= 100


SWEEPS = [e for e in catalog.entries("experiment") if command_of(e.content) in SWEEPING]


@pytest.mark.parametrize("entry", SWEEPS, ids=lambda entry: entry.name)
def test_shipped_presets_compose_along_their_longest_axis(entry):
    """The whole product of the axes is thousands of cells that differ in nothing else. Presets of commands
    that are no sweep: test_presets.py.
    """
    assert entry.description
    axes = {key: values for key, values in entry.content["sweep"].items() if len(values) > 1}
    for group in axes.keys() & set(GROUPS):
        named = [axes[group]] if isinstance(axes[group], str) else axes[group]
        assert set(named) <= set(catalog.files(group)), group
    lists = {key: values for key, values in axes.items() if isinstance(values, list)}
    longest = max(lists, key=lambda key: len(lists[key]))
    fixed = [f"{key}={value_text(values[0])}" for key, values in lists.items() if key != longest]
    grid = compose_grid([f"experiment={entry.name}", *fixed])
    assert {cell.choices[longest] for cell in grid.cells} == set(map(value_text, lists[longest]))
    # A sweep's name is one folder.
    assert grid.settings.name == entry.name.rpartition("/")[2]
