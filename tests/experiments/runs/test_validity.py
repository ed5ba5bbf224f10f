"""The line of validity: derived from the shipped validations, and in every place that states a result."""

import csv
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from cost_models.profile import Profile
from experiments.runs.validity import (
    APART,
    BOTH,
    CORES,
    GPUS,
    SUMMARY,
    apart,
    labels_compared,
    validity,
    world_of,
)
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.support.shipped import CHECKOUT
from tests.benchmarks.validity import rows, splitting


def profiles(*names):
    return [Profile.load(name) for name in names]


@pytest.fixture(scope="module")
def epyc():
    return profiles("amd-epyc-25-17-1core", "amd-epyc-25-17-1core-3x")


def test_the_summary_is_that_of_the_reports():
    with SUMMARY.open() as file:
        assert [*csv.reader(file)][1:] == [[str(value) for value in row] for row in rows()]


def test_what_splitting_came_to_by_hand():
    def case(jobs, scheduler, measured, simulated):
        return {
            "model": "m",
            "jobs": jobs,
            "scheduler": scheduler,
            "measured_s": measured,
            "simulated_s": simulated,
        }

    cases = [case(1, "single_device", 1.02, 3.0), case(1, "heft", 1.0, 2.0)]
    cases += [case(4, "single_device", 4.1, 4.0), case(4, "heft", 4.0, 4.0)]
    assert splitting(cases) == (2, 1, 1.25)
    assert splitting(cases[1::2]) == (0, 0, 1.0)


def test_a_wheel_has_what_the_packages_read():
    """Files beside the code that pyproject.toml does not name are in no wheel."""
    setuptools = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]
    named = {
        path
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
        for path in (CHECKOUT / package.replace(".", "/")).glob(pattern)
    }
    assert SUMMARY in named
    beside = {p for p in (CHECKOUT / "experiments").rglob("*.*") if "__pycache__" not in p.parts}
    assert {p for p in beside - named if p.suffix not in (".py", ".typed")} == set()


def test_worlds():
    assert world_of({False}, 1) == CORES
    assert world_of({False}, 2) == APART
    assert world_of({True, False}, 2) == BOTH
    assert world_of({True}, 1) == GPUS


def test_devices_that_were_validated(epyc):
    # docs/validation/report.md: mean error 4.2%, 316 of 336 makespans in the 90% interval.
    found = validity(epyc, 1)
    assert found.line == "CPU cores: validated, one run, 4.2% off, 94% in the 90% interval"
    assert found.validated
    # Four other processors say what may be expected of a fifth, and no more.
    other = validity([replace(epyc[0], name="mine")], 1)
    assert other.line == (
        "CPU cores: validated on other devices, 5 runs, 3.6 to 5.2% off, 88 to 95% in the 90% interval"
    )
    assert not other.validated


def test_devices_that_were_not(epyc):
    h200 = validity(profiles("intel-xeon-6-207-1core", "nvidia-h200-awaited"), 2)
    assert h200.line == (
        "CPU and GPU together: one run, 24.7% off, 47% in the 90% interval; not validated since"
    )
    assert not h200.validated
    mixed = validity([*epyc, *profiles("tesla-t4", "jetson-orin-nano-8gb")], 2, planned=True)
    assert mixed.line.startswith(
        "CPU and GPU together: one run, 24.7% off, 47% in the 90% interval on other devices"
    )
    # docs/validation.md, "CPU and GPU": fastest or within 2% in 11 of the 12 settings.
    assert mixed.line.endswith(
        "; public data, never: tesla-t4; data sheet, never: jetson-orin-nano-8gb; where schedules over both promised "
        "1.14x, all on the GPU was as fast in 11 of 12 settings"
    )
    alone = validity(profiles("tesla-t4"), 1)
    assert alone.line == "GPUs without a CPU core: never validated; public data, never: tesla-t4"
    assert "\n" not in mixed.line


def test_devices_that_run_alone_are_said_together_where_the_same_is_known(epyc):
    (said,) = apart(epyc)
    assert said.names == tuple(profile.name for profile in epyc)
    assert said.validated
    # Two validations, each of one of them: the range of both.
    both = apart([epyc[0], *profiles("intel-xeon-6-167-1core")])
    assert len(both) == 1
    assert "validated, 2 runs" in both[0].line
    cpu, gpu = apart([epyc[0], *profiles("tesla-t4")])
    assert cpu.validated
    assert not gpu.validated
    assert gpu.line.startswith(f"{GPUS}: ")
    assert gpu.line.endswith("public data, never: tesla-t4")


def test_devices_of_different_labels_by_hand():
    ram = MemorySpace("ram")
    devices = [
        Device(n, ram.name, profile=p) for n, p in (("a", "core"), ("b", "t4"), ("c", "orin"))
    ]
    labels = {"core": "measured", "t4": "public", "orin": "datasheet"}
    cluster = Cluster("three", [ram], devices, [], labels=labels)
    # As believed 4, 2 and 1 seconds; in the draws the second takes 1, 2 and 4 of the first's 4.
    totals = np.array([[4.0, 2.0, 1.0], [4.0, 1.0, 1.0], [4.0, 2.0, 1.0], [4.0, 4.0, 1.0]])
    assert labels_compared(cluster, totals, ["orin"]) == (
        "t4 (public) against core (measured): 0.5 [0.26, 0.97] of its time; "
        "orin (datasheet) against core (measured): 0.25 (nobody knows the error of orin) of its time"
    )
    assert "0.5 (no draws) of its time" in labels_compared(cluster, totals[:1], [])
    alike = replace(cluster, labels=dict.fromkeys(labels, "public"))
    assert labels_compared(alike, totals, []) == ""
