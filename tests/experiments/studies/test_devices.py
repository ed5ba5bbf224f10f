"""Devices compared on one model: closed forms, the engine, and what a command line is told."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.profile import Profile
from experiments.studies.devices import command
from experiments.studies.devices.table import alone_seconds, compare_devices, devices_table
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import create
from tests.examples import examples


def alone(seconds, submit=0.0, latency=0.0):
    (found,) = alone_seconds(np.array(seconds)[:, None], np.array([submit]), np.array([latency]))
    return float(found)


def test_launches_ahead_by_hand():
    """docs/semantics.md: n operators of t seconds, i to submit each, latency L: i + (n - 1) max(t, i) + t + L."""
    assert alone([2.0, 3.0, 4.0]) == 9
    assert alone([2.0] * 5, 3.0, 1.0) == 3 + 4 * 3 + 2 + 1
    assert alone([4.0] * 5, 3.0, 1.0) == 3 + 4 * 4 + 4 + 1
    # The second waits for its launch at 6, the third for the second.
    assert alone([1.0, 9.0, 2.0], 3.0, 0.0) == 6 + 9 + 2


@given(
    st.lists(st.floats(0.0, 9.0), min_size=1, max_size=8),
    st.floats(0.0, 5.0),
    st.floats(0.01, 3.0),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(90), deadline=None)
def test_the_closed_form_is_what_the_engine_does(seconds, submit, latency, random):
    n = len(seconds)
    edges = [(a, b, 0.0) for b in range(n) for a in range(b) if random.random() < 0.4]
    graph = from_edges("g", n, edges)
    device = Device("d", "m", issue_depth=n, completion_latency=latency, issue_overhead=submit)
    for one in (device, Device("d", "m")):
        ahead = one is device
        trace = simulate(
            graph,
            Cluster("c", [MemorySpace("m")], [one]),
            CostTable.of(graph, np.array(seconds)[:, None]),
            create("single_device"),
        )
        expected = alone(seconds, submit, latency) if ahead else sum(seconds)
        assert trace.makespan == pytest.approx(expected)


def test_a_table_of_two_devices_and_one_that_is_refused(folder, capsys):
    Profile("toy-half", "measured", Profile.load("toy-card").roofline, dtypes=("float16",)).save(
        folder / "profiles" / "toy-half"
    )
    words = ["--config-dir", str(folder), "model=branches", "batch=2,64", "simulation.draws=20"]
    assert command.main([*words, "profile=toy-core,toy-half,toy-sheet,toy-card"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    text = " ".join(out.split())
    assert "toy-sheet (datasheet) against" in text
    assert "branches, batch 2: " in text
    assert "branches, batch 64: " in text
    assert "toy-half: refused. Profile 'toy-half' (measured) has float16 and not float32" in text
    (file,) = (folder.parent / "outputs" / "devices").glob("*/fig_devices.csv")
    found = pd.read_csv(file)
    rows = found[(found["batch"] == 64) & found["refused"].isna()]
    assert set(rows["device"]) == {"toy-core", "toy-sheet", "toy-card"}
    assert rows["time_s"].is_monotonic_increasing
    assert rows["ratio"].iloc[0] == 1
    core = rows.set_index("device").loc["toy-core"]
    assert core["low_s"] < core["time_s"] < core["high_s"]
    # Nobody knows how wrong a data sheet is.
    assert math.isnan(rows.set_index("device").loc["toy-sheet", "low_s"])
    assert "python -m experiments.devices" in (file.parent / "command.txt").read_text()


def test_ratios_are_of_the_same_draws_and_money_and_energy_are_of_the_time(folder):
    found = devices_table(
        "branches",
        ["toy-core", "toy-card"],
        [8],
        prices={"toy-core": "3.6/h"},
        powers={"toy-core": "50 W"},
        settings={"simulation.draws": 20},
        config_dirs=[folder],
    ).set_index("device")
    core, card = found.loc["toy-core"], found.loc["toy-card"]
    assert list(found.index) == ["toy-card", "toy-core"]
    assert core["ratio"] == pytest.approx(core["time_s"] / card["time_s"])
    assert core["ratio_low"] < core["ratio"] < core["ratio_high"]
    assert core["items_per_s"] == pytest.approx(8 / core["time_s"])
    assert core["energy_j"] == pytest.approx(50 * core["time_s"])
    assert core["cost_per_million"] == pytest.approx(0.001 * core["time_s"] / 8 * 1e6)
    assert math.isnan(card["energy_j"])
    assert math.isnan(card["cost_per_million"])


def test_the_time_is_that_of_a_cluster_of_that_device(folder):
    from experiments.runs.cell import run_scenario
    from experiments.runs.grid import compose_grid

    words = ["model=branches", "simulation.draws=10"]
    (one,) = compare_devices(words, ["toy-core"], [8], config_dirs=(folder,))
    words += ["model.batch=8", "cluster=box", "scheduler=single_device"]
    scenario = compose_grid(words, (folder,)).cells[0].scenario
    devices = {"cpu": dataclasses.replace(scenario.cluster.devices["cpu"], count=1)}
    cluster = dataclasses.replace(
        scenario.cluster, devices=devices, links={}, spaces={"ram": scenario.cluster.spaces["ram"]}
    )
    outcome = run_scenario(dataclasses.replace(scenario, cluster=cluster), (folder,))
    (row,) = one.frame.to_dict("records")
    assert row["time_s"] == pytest.approx(outcome.figures["makespan_s"])
    assert row["low_s"] == pytest.approx(outcome.figures["makespan_low_s"])
    assert row["high_s"] == pytest.approx(outcome.figures["makespan_high_s"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["cluster=box"], "'cluster=box' has no meaning here"),
        (["scheduler=heft"], "'scheduler=heft' has no meaning here"),
        (["batch=few"], "batch=few is no list of sizes; write batch=1,16"),
        (["profile=toy-cart"], "No profile 'toy-cart'. Nearest: toy-card"),
        (["profile=toy-core", "model.dtype=float16"], "has float32 and not float16"),
        (
            ["profile=toy-core", "price={toy-card: 1/h}"],
            "price names 'toy-card', which is none of the",
        ),
        (["profile=toy-core", "power={toy-core: 50}"], "has no unit"),
        (["profile=toy-core", "price=3"], "price=3 is no mapping"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_mistakes_are_one_sentence(words, sentence, folder, capsys):
    assert command.main(["--config-dir", str(folder), "model=branches", *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1
    assert not (folder.parent / "outputs").exists()
