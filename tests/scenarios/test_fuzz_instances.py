"""Bare instances, damaged in any way: refused in one sentence, or simulated."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from scenarios.instances import instance_from_json, load_instance
from simulator.analysis.bounds import workload_bound
from simulator.analysis.metrics import metrics
from simulator.engine.run import simulate
from simulator.errors import HetsimError
from simulator.model.cluster import MOST_PAIRED, Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.mutations import JUNK, check_refusal, damaged, mutated, text_of

FUZZ = settings(
    deadline=timedelta(seconds=2),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
INSTANCE: dict[str, Any] = {
    "name": "fork",
    "cost": [[2, 4.5], [6, None], [6, 3], [2, 4]],
    "edges": [[0, 1, 1], [0, 2, 1.5], [1, 3, 1], [2, 3, 0]],
    "names": ["a", "b", "c", "d"],
    "half_duplex": True,
}


def use(graph: DataflowGraph, cluster: Cluster, costs: CostTable) -> None:
    """What any accepted instance must be good for."""
    for scheduler in ("heft", "fcfs", "donf"):
        trace = simulate(graph, cluster, costs, create(scheduler), contention="fifo")
        assert metrics(trace)["jobs_finished"] == 1
        assert np.isfinite(trace.makespan)
    assert workload_bound(Workload([Job(graph)]), costs, cluster).bound_s <= trace.makespan * 1.001


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("instances") / "fork.json"


def load(file: Path, data: bytes) -> None:
    """Load the file's new contents; use what is accepted."""
    file.write_bytes(data)
    try:
        parts = load_instance(file)
    except HetsimError as error:
        check_refusal(error, file)
    else:
        use(*parts)


def test_the_instance_itself_is_accepted() -> None:
    use(*instance_from_json(INSTANCE))


@settings(FUZZ, max_examples=200)
@given(changed=mutated(INSTANCE))
def test_changed_instances(file: Path, changed: Any) -> None:
    load(file, text_of(changed))


@settings(FUZZ, max_examples=60)
@given(changed=mutated(INSTANCE) | JUNK)
def test_changed_instances_in_memory(changed: Any) -> None:
    try:
        parts = instance_from_json(changed)
    except HetsimError as error:
        check_refusal(error)
    else:
        use(*parts)


@settings(FUZZ, max_examples=100)
@given(data=damaged(text_of(INSTANCE)))
def test_damaged_files(file: Path, data: bytes) -> None:
    load(file, data)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"cost": [[1]], "edges": [], "name": "' + "x" * 100_000 + '"}',
        '{"cost": [[' + "9" * 5000 + ']], "edges": []}',
        '{"cost": [[1e300, 1e300]], "edges": []}',
        '{"cost": [[1], [1]], "edges": [[0, 1, 1e300]]}',
        '{"cost": [[1e12, 1e-300], [1e-300, 1e12]], "edges": []}',
        '{"cost": [[1e-300], [5e-324]], "edges": [[0, 1, 5e-324]]}',
    ],
    ids=["brackets", "long name", "digits", "large times", "large edge", "wide", "tiny times"],
)
def test_hard_cases(file: Path, text: str) -> None:
    load(file, text.encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"cost": [[1e16]], "edges": []},
            r"'cost' of task 0 holds 1e\+16; times are 0 to 1e\+12 s",
        ),
        ({"cost": [[-1]], "edges": []}, "'cost' of task 0 holds -1; times are 0 to"),
        (
            {"edges": [[0, 1, 1e13]]},
            r"Edge \[0, 1, 10000000000000.0\] takes 10000000000000.0 s, not",
        ),
        ({"edges": [[0, 1, float("nan")]]}, r"Edge \[0, 1, nan\] takes nan s"),
        ({"edges": [[0, 1, 10**400]]}, "Edge .* takes 1000"),
    ],
)
def test_times_that_cannot_be_meant(change: dict[str, Any], message: str) -> None:
    with pytest.raises(HetsimError, match=message):
        instance_from_json(json.loads(json.dumps(INSTANCE | change)))


def test_an_instance_has_no_more_devices_than_pairs_can_be_linked() -> None:
    """4 kB of text would make millions of links."""
    document = {"cost": [[1] * (MOST_PAIRED + 1)], "edges": []}
    with pytest.raises(HetsimError, match="1025 devices with a link between any two; at most 1024"):
        instance_from_json(document)
