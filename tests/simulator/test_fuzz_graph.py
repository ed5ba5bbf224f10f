"""Graph files, damaged in any way: refused in one sentence, or good for everything else."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.analysis.metrics import metrics
from simulator.engine.run import simulate
from simulator.errors import HetsimError
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable
from simulator.model.family import GraphFamily
from simulator.model.graph import DataflowGraph
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.mutations import JUNK, check_refusal, damaged, mutated, text_of

FUZZ = settings(
    deadline=timedelta(seconds=2),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LINEAR = {
    "args": [
        {"read": 0, "views": [["aten.t.default", [{"self": True}], {}]]},
        {"read": 1, "views": []},
    ],
    "kwargs": {},
}


def document(batch: int = 2) -> dict[str, Any]:
    """A small graph that uses every key of the form."""
    x = {"shape": [batch, 4], "dtype": "float32"}
    w = {"shape": [4, 4], "dtype": "float32", "strides": [1, 4]}
    return {
        "format": "hetsim.graph/1",
        "name": "net",
        "batch": batch,
        "tensors": [
            {"name": "x", "role": "input", **x},
            {"name": "w", "role": "weight", **w},
            {"name": "h", "role": "activation", **x},
            {"name": "y", "role": "activation", **x},
            {"name": "z", "role": "activation", "bytes": 32.0 * batch},
        ],
        "operators": [
            {
                "name": "fc",
                "kind": "linear",
                "target": "aten.linear.default",
                "template": LINEAR,
                "attributes": {"strided": [1]},
                "inputs": [x, w],
                "outputs": [x],
                "reads": ["x", "w"],
                "writes": ["h"],
            },
            {
                "name": "act",
                "kind": "relu",
                "target": "aten.relu.default",
                "template": {"args": [{"read": 0, "views": []}], "kwargs": {}},
                "attributes": {},
                "inputs": [x],
                "outputs": [x],
                "reads": ["h"],
                "writes": ["y"],
            },
            {"name": "end", "kind": "task", "reads": ["y", "h"], "writes": ["z"]},
        ],
        "results": [{"tensor": "y", "views": []}, {"value": 3}],
    }


def use(graph: DataflowGraph) -> None:
    """What any accepted graph must be good for."""
    costs = CostTable.of(graph, np.ones((len(graph), 2)))
    trace = simulate(graph, fully_connected("two", 2), costs, create("heft"), contention="fifo")
    assert metrics(trace)["jobs_finished"] == 1
    assert np.isfinite(trace.makespan)
    again = DataflowGraph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again.digest == graph.digest
    assert graph.weight_bytes >= 0
    graph.networkx()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs") / "graph.json"


def load(file: Path, data: bytes) -> None:
    """Load the file's new contents; use what is accepted."""
    file.write_bytes(data)
    try:
        graph = DataflowGraph.load(file)
    except HetsimError as error:
        check_refusal(error, file)
    else:
        use(graph)


def test_the_document_itself_is_accepted() -> None:
    use(DataflowGraph.from_json(document()))


@settings(FUZZ, max_examples=examples(250))
@given(changed=mutated(document()))
def test_changed_documents(file: Path, changed: Any) -> None:
    load(file, text_of(changed))


@settings(FUZZ, max_examples=examples(100))
@given(changed=mutated(document()) | JUNK)
def test_changed_documents_in_memory(changed: Any) -> None:
    """Values that JSON text cannot hold, too."""
    try:
        graph = DataflowGraph.from_json(changed)
    except HetsimError as error:
        check_refusal(error)
    else:
        use(graph)


@settings(FUZZ, max_examples=examples(100))
@given(data=damaged(text_of(document())))
def test_damaged_files(file: Path, data: bytes) -> None:
    load(file, data)


def test_a_file_cut_off_anywhere(file: Path) -> None:
    whole = text_of(document())
    for length in range(0, len(whole), 7):
        load(file, whole[:length])


HARD = {
    "brackets": b"[" * 100_000,
    "braces": b'{"format": ' * 50_000,
    "deep": text_of(document()).replace(b'"views": []', b'"views": ' + b"[" * 500 + b"]" * 500, 1),
    "digits": text_of(document()).replace(b'"value": 3', b'"value": ' + b"9" * 5000),
    "byte order mark": b"\xef\xbb\xbf" + text_of(document()),
    "utf-16": "{}".encode("utf-16"),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_cases(file: Path, name: str) -> None:
    load(file, HARD[name])


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_hard_cases_of_families(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"family{suffix}"
    path.write_bytes(gzip.compress(HARD[name]) if suffix.endswith("gz") else HARD[name])
    with pytest.raises(HetsimError) as refusal:
        GraphFamily.load(path)
    check_refusal(refusal.value, path)


@settings(FUZZ, max_examples=examples(60))
@given(
    data=damaged(
        gzip.compress(
            text_of({"format": "hetsim.family/1", "graphs": [document(2), document(3)]}), mtime=0
        )
    )
)
def test_damaged_compressed_families(file: Path, data: bytes) -> None:
    path = file.with_name("family.json.gz")
    path.write_bytes(data)
    try:
        graph = GraphFamily.load(path).at(4)
    except HetsimError as error:
        check_refusal(error)
    else:
        use(graph)


@settings(FUZZ, max_examples=examples(60))
@given(
    changed=mutated({"format": "hetsim.family/1", "graphs": [document(2), document(3)]}),
    batch=st.integers(-1, 5),
)
def test_changed_families(changed: Any, batch: int) -> None:
    try:
        graph = GraphFamily.from_json(changed).at(batch)
    except HetsimError as error:
        check_refusal(error)
    else:
        use(graph)
