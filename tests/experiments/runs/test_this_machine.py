"""Who is told that a profile was measured with something else than there is here, and who is not."""

import json
import shutil

import pytest

from calibration import environment
from cost_models.profile import Profile
from cost_models.profile_files import SHIPPED
from cost_models.roofline import Roofline
from experiments import simulate, validate
from experiments.runs import this_machine
from experiments.runs.grid import compose_grid
from experiments.runs.this_machine import (
    busy_text,
    calibration_conditions,
    cluster_here,
    differences_here,
    drift_text,
    same_device_differences,
)

HERE = {"torch": "2.14.0", "processor": "box"}


def profile(name, torch, processor):
    return Profile(
        name,
        "measured",
        Roofline({"float32": 1e9}, 1e9, 1e-6),
        versions={"torch": torch, "python": "3.9"},
        provenance={"processor": processor},
    )


@pytest.fixture(autouse=True)
def _described(monkeypatch):
    monkeypatch.setattr(environment, "described", lambda device: HERE)


def test_a_sentence_names_both_versions():
    profiles = {
        "older": profile("older", "2.13.0+cpu", "box"),
        "same": profile("same", "2.14.0+cpu", "box"),
        "foreign": profile("foreign", "2.13.0", "crate"),
        "unused": profile("unused", "1.0", "crate"),
    }
    places = dict.fromkeys(("same", "older", "foreign"), "cpu")
    assert differences_here(profiles, places) == (
        "profile 'foreign' was measured with torch 2.13.0, here 2.14.0; processor crate, here box",
        "profile 'older' was measured with torch 2.13.0+cpu, here 2.14.0",
    )


def test_a_start_is_told_of_where_it_is_this_very_device():
    older, foreign = profile("older", "2.13.0", "box"), profile("foreign", "2.13.0", "crate")
    (told,) = same_device_differences(older, "cpu")
    assert "torch 2.13.0, here 2.14.0" in told
    assert same_device_differences(foreign, "cpu") == ()
    assert same_device_differences(older, "cuda:77") == ()  # which is not here
    assert same_device_differences(profile("same", "2.14.0", "box"), "cpu") == ()


def test_a_simulation_asks_nothing_of_this_machine(folder, monkeypatch):
    def refuse(device):
        raise AssertionError("a simulation of another machine is no comparison with this one")

    monkeypatch.setattr(environment, "described", refuse)
    older = profile("toy-core", "1.0", "crate")
    older.save(folder / "profiles" / "toy-core")
    words = ["model=branches", "cluster=box", "scheduler=heft", "--config-dir", str(folder)]
    assert simulate.main(words) == 0


@pytest.mark.parametrize(
    ("processor", "cluster"),
    [
        ("AMD EPYC (family 25 model 1, AVX2)", "milan2"),
        ("AMD EPYC (family 25 model 17, AVX-512)", "cpu2"),
        ("Intel(R) Xeon(R) Processor (family 6 model 167, AVX-512)", "xeon2"),
        ("AMD EPYC (family 23 model 49, AVX2)", "rome2"),
        ("AMD EPYC (family 26 model 2, AVX-512)", "turin2"),
    ],
)
def test_the_cluster_that_this_machine_is(monkeypatch, processor, cluster):
    monkeypatch.setattr(environment, "cpu_model", lambda: processor)
    # Not a cluster that has a GPU besides.
    names = ["cpu2_gpu1", "nosuch", "cpu2", "milan2", "xeon2", "rome2", "turin2"]
    assert cluster_here(names) == [f"cluster={cluster}"]


# Of its profile's name, not only of its beginning.
@pytest.mark.parametrize("processor", ["AMD EPYC", "some other processor"])
def test_a_machine_without_a_profile_is_told_what_to_measure(monkeypatch, capsys, processor):
    monkeypatch.setattr(environment, "cpu_model", lambda: processor)
    assert validate.main(["model=lstm_cells", "scheduler=fcfs"]) == 2
    error = capsys.readouterr().err
    assert (
        f"No profile is of this machine's cores, {processor}. Measure one: python -m exp" in error
    )
    assert "experiments.calibrate device=cpu" in error


@pytest.mark.parametrize("repeats", [(1,), (1, 3)])
def test_a_cluster_is_made_of_this_machines_own_profiles(tmp_path, monkeypatch, repeats):
    """Of two cores, one of them artificially slow where that was measured; what is not known is left out."""
    monkeypatch.setattr(environment, "cpu_model", lambda: "Example 9000")
    monkeypatch.setattr(this_machine, "available_cores", lambda: 2)
    for times in repeats:
        name = "example-9000-1core" + (f"-{times}x" if times > 1 else "")
        folder = tmp_path / name
        shutil.copytree(SHIPPED / "amd-epyc-25-17-1core", folder)
        document = json.loads((folder / "profile.json").read_text()) | {"name": name}
        del document["reuse"]
        (folder / "profile.json").write_text(json.dumps(document))
    monkeypatch.setenv("HETSIM_PROFILES", str(tmp_path))
    words = cluster_here(["cpu_1x_3x", "milan_1x_3x"])
    (cell,) = compose_grid(["model=lstm_cells", "scheduler=fcfs", *words]).cells
    cluster = cell.scenario.cluster
    assert sorted((d.profile, d.count, d.launches) for d in cluster.devices.values()) == (
        [("example-9000-1core", 2, 1)]
        if repeats == (1,)
        else [("example-9000-1core", 1, 1), ("example-9000-1core-3x", 1, 3)]
    )
    assert cluster.name == "example-9000_cores"
    assert cluster.spaces["ram"].cache is None
    assert cluster.spaces["ram"].corun_slowdown == "profile"


def test_what_disturbs_here_is_named_with_what_to_do():
    assert busy_text(0.05) == busy_text(float("nan")) == drift_text(0.04) == ""
    assert busy_text(1.24).startswith("other processes kept 1.2 cores of this machine busy: repeat")
    assert "changed by 12% meanwhile, by turbo, heat or neighbours: fix its clock" in drift_text(
        0.12
    )
    quiet = {"flush_denormal": True, "reference_spread": 0.01, "throttled": "never"}
    assert calibration_conditions(quiet, 0.013) == []
    loud = {"flush_denormal": False, "reference_spread": 0.08, "throttled": "power cap 3.1%"}
    denormals, drift, repeats, throttled = calibration_conditions(loud, 0.09)
    assert "denormal numbers were not taken for zero" in denormals
    assert "speed changed by 8%" in drift
    assert "repeat within 9% only, as on a busy host: measure again" in repeats
    assert "held back (power cap 3.1%)" in throttled
    assert calibration_conditions({}, None) == []  # profiles that do not say
