"""Graph files, damaged in any way: refused in one sentence, or simulated."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scenarios import FamilyConfig, draw_instance, load_instance
from scenarios.graph_files import read_graph, read_graph_file
from scenarios.graph_files.chakra import chakra_bytes
from simulator.engine.run import simulate
from simulator.errors import HetsimError
from simulator.schedulers import create
from tests.examples import examples
from tests.scenarios.graph_files.kineto_samples import OBSERVED, WITH_SHAPES, on_gpu
from tests.scenarios.graph_files.samples import (
    DAGGEN,
    DAX,
    DAX_3,
    DOT,
    SIMGRID,
    STG,
    STG_WITH_COSTS,
    wfformat,
)
from tests.scenarios.graph_files.test_chakra import NODES
from tests.simulator.mutations import check_refusal, damaged, mutated, text_of

FUZZ = settings(
    deadline=timedelta(seconds=4),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
RATIO = FamilyConfig("file", "file", beta=1.0, ccr=1.0, task_time="1s")
BYTES = FamilyConfig("file", "file", heterogeneity="related", speeds=[1.0], bandwidth="1 GB/s")
TEXTS = {"a.stg": [STG, STG_WITH_COSTS], "a.dot": [DAGGEN, DOT, SIMGRID], "a.dax": [DAX, DAX_3]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("graphs")
    replayed(
        made / "warm.json", text_of(WITH_SHAPES)
    )  # PyTorch's shape functions take seconds to load
    return made


def load(path: Path, data: bytes) -> None:
    """Load the file's new contents; simulate what is accepted."""
    path.write_bytes(data)
    for config in (RATIO, BYTES):
        try:
            graph, cluster, costs = draw_instance(config, 3, path)
        except HetsimError as error:
            check_refusal(error, path)
            continue
        for scheduler in ("heft", "donf"):
            trace = simulate(graph, cluster, costs, create(scheduler), contention="fifo")
            assert trace.jobs["status"].tolist() == ["finished"]
            assert np.isfinite(trace.makespan)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, bytes]:
    """A text file with bytes damaged, or with words moved, doubled, dropped or replaced."""
    name = draw(st.sampled_from(sorted(TEXTS)))
    text = draw(st.sampled_from(TEXTS[name]))
    if draw(st.booleans()):
        return name, draw(damaged(text.encode()))
    words = text.replace("\n", " \n ").split(" ")
    for _ in range(draw(st.integers(1, 4))):
        at, other = (draw(st.integers(0, len(words) - 1)) for _ in range(2))
        kind = draw(st.sampled_from(["swap", "drop", "twice", "junk"]))
        if kind == "swap":
            words[at], words[other] = words[other], words[at]
        elif kind == "drop" and len(words) > 1:
            del words[at]
        elif kind == "twice":
            words.insert(at, words[other])
        else:
            words[at] = draw(
                st.sampled_from(["-1", "1e999", "nan", "9" * 400, '"', "{", "->", "\0"])
            )
    return name, " ".join(words).encode()


@settings(FUZZ, max_examples=examples(900))
@given(case=texts())
def test_damaged_texts(folder: Path, case: tuple[str, bytes]) -> None:
    name, data = case
    load(folder / name, data)


@settings(FUZZ, max_examples=examples(600))
@given(
    changed=st.sampled_from(["1.1", "1.3", "1.4", "1.5"]).flatmap(
        lambda version: mutated(wfformat(version))
    )
)
def test_changed_workflows(folder: Path, changed: Any) -> None:
    load(folder / "a.json", text_of(changed))


@settings(FUZZ, max_examples=60)
@given(data=damaged(text_of(wfformat())))
def test_damaged_workflows(folder: Path, data: bytes) -> None:
    load(folder / "a.json", data)


def replayed(path: Path, data: bytes) -> None:
    """Read a recorded file in every way; simulate what is accepted."""
    path.write_bytes(data)
    for read in (load_instance, read_graph, read_graph_file):
        try:
            found = read(path)
        except HetsimError as error:
            check_refusal(error, path)
            continue
        if read is load_instance:
            assert np.isfinite(simulate(*found, create("fcfs")).makespan)


@settings(FUZZ, max_examples=examples(600))
@given(changed=mutated(on_gpu()) | mutated(WITH_SHAPES))
def test_changed_profiler_traces(folder: Path, changed: Any) -> None:
    replayed(folder / "trace.json", text_of(changed))


@settings(FUZZ, max_examples=examples(300))
@given(data=damaged(chakra_bytes(NODES)) | st.binary(max_size=60))
def test_damaged_chakra_traces(folder: Path, data: bytes) -> None:
    replayed(folder / "trace.et", data)


@settings(FUZZ, max_examples=examples(300))
@given(draw=st.data())
def test_damaged_onnx_models(folder: Path, draw: st.DataObject) -> None:
    pytest.importorskip("onnx")
    from tests.scenarios.graph_files.onnx_models import attention, cnn

    model = draw.draw(st.sampled_from([cnn, attention]))()
    replayed(folder / "net.onnx", draw.draw(damaged(model)))


@settings(FUZZ, max_examples=examples(300))
@given(changed=mutated(OBSERVED))
def test_changed_execution_traces(folder: Path, changed: Any) -> None:
    (folder / "observed.et.json").write_bytes(text_of(changed))
    replayed(folder / "observed.json", text_of(WITH_SHAPES))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.dot", "digraph {" + "{" * 100_000),
        ("a.dot", "digraph {" + "subgraph x {" * 20_000 + "a" + "}" * 20_001),
        ("a.dot", 'digraph { a [size="' + "\\" * 200_001),
        ("a.dot", "digraph { /*" + "/*" * 100_000),
        ("a.dot", "digraph { " + "a -> " * 50_000 + "a }"),
        ("a.dot", "digraph { " + "x" * 300_000 + " }"),
        ("a.dot", "digraph { a [" + "size=1 " * 50_000 + "] }"),
        ("a.stg", "1000000\n" + "0 0 0\n" * 10),
        ("a.stg", "1\n0 1 999999999\n" + "0 0\n" * 50_000),
        ("a.stg", "1\n0 " + "9" * 5000 + " 0\n"),
        ("a.json", '{"workflow": ' + "[" * 100_000),
    ],
    ids=lambda value: value if len(value) < 10 else "",
)
def test_hard_cases(folder: Path, name: str, text: str) -> None:
    load(folder / name, text.encode())
