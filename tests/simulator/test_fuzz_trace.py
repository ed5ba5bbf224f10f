"""Trace folders, damaged in any way: refused in one sentence, or every figure can be made of them."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.runs.perfetto import perfetto_events
from simulator.analysis.metrics import metrics
from simulator.engine.run import simulate
from simulator.errors import HetsimError
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.mutations import check_refusal, damaged, mutated, text_of

FUZZ = settings(
    deadline=timedelta(seconds=2),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def run() -> Trace:
    graph = from_edges("chain", 3, [(0, 1, 4.0), (1, 2, 1.0)], names=["a", "b", "c"])
    costs = CostTable.of(graph, np.array([[1.0, math.inf], [math.inf, 2.0], [1.0, math.inf]]))
    workload = Workload([Job(graph, model="net", batch=4), Job(graph, 1.0, deadline=99.0)])
    return simulate(workload, fully_connected("bare", 2), costs, create("fcfs"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces") / "saved"
    run().save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(saved: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(saved, saved.with_name("damaged")))


def restore(saved: Path, folder: Path) -> None:
    for file in saved.iterdir():
        shutil.copyfile(file, folder / file.name)


def load(folder: Path) -> bool:
    """Load the folder and use what is accepted; whether it was."""
    try:
        trace = Trace.load(folder)
    except HetsimError as error:
        check_refusal(error, folder)
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = metrics(trace)
    json.dumps(figures)
    json.dumps(perfetto_events(trace))
    assert len(trace.tasks["task"]) <= len(trace.executions["task"])
    for job, operator in zip(trace.executions["job"], trace.executions["operator"], strict=True):
        trace.operator(job, operator)
    return True


def test_the_trace_itself_is_accepted(saved: Path) -> None:
    assert load(saved)


def test_a_job_that_two_others_serve_is_refused(saved: Path, folder: Path) -> None:
    restore(saved, folder)
    path = folder / "members.parquet"
    table = pq.read_table(path)
    more = pa.table({"execution": [0], "job": [1]}, schema=table.schema)
    pq.write_table(pa.concat_tables([table, more]), path)
    with pytest.raises(HetsimError, match=r"members\.parquet: job 1 in row"):
        Trace.load(folder)


META = json.loads(json.dumps({"format": "hetsim.trace/1", **run().meta}, default=dict))


@settings(FUZZ, max_examples=examples(100))
@given(changed=mutated(META))
def test_changed_descriptions(saved: Path, folder: Path, changed: Any) -> None:
    restore(saved, folder)
    (folder / "trace.json").write_bytes(text_of(changed))
    load(folder)


@settings(FUZZ, max_examples=examples(60))
@given(data=damaged(text_of(META)))
def test_damaged_descriptions(saved: Path, folder: Path, data: bytes) -> None:
    restore(saved, folder)
    (folder / "trace.json").write_bytes(data)
    load(folder)


@settings(FUZZ, max_examples=examples(60))
@given(name=st.sampled_from(sorted(COLUMNS)), data=st.data())
def test_damaged_tables(saved: Path, folder: Path, name: str, data: st.DataObject) -> None:
    restore(saved, folder)
    path = folder / f"{name}.parquet"
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    load(folder)


VALUES = {
    "i": [-2, -1, 0, 1, 2, 5, 2**31 - 1, None],
    "f": [-1.0, 0.0, 1e308, -1e308, math.nan, math.inf, -math.inf, None],
    "U": ["", "finished", "lost", "x" * 1000, None],
}
TYPES = [
    pa.string(),
    pa.binary(),
    pa.float32(),
    pa.float64(),
    pa.int8(),
    pa.int64(),
    pa.bool_(),
    pa.timestamp("us"),
    pa.list_(pa.float64()),
    pa.null(),
]


@st.composite
def changed_table(draw: st.DrawFn, name: str, table: pa.Table) -> pa.Table:
    """Wrong columns, types, lengths or values."""
    column = draw(st.sampled_from(table.column_names))
    index = table.column_names.index(column)
    kind = draw(st.sampled_from(["values", "values", "cast", "drop", "rename", "swap", "rows"]))
    if kind == "drop":
        return table.drop_columns([column])
    if kind == "rename":
        return table.rename_columns([c + "_" if c == column else c for c in table.column_names])
    if kind == "swap":
        return table.select(draw(st.permutations(table.column_names)))
    if kind == "rows":
        rows = draw(st.lists(st.integers(0, len(table) - 1), max_size=2 * len(table)))
        return table.take(pa.array(rows, pa.int64()))
    if kind == "cast":
        wanted = draw(st.sampled_from(TYPES))
        nothing = pa.nulls(len(table), wanted)
        try:
            return table.set_column(index, column, table.column(column).cast(wanted))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return table.set_column(index, column, nothing)
    declared = np.dtype("U" if COLUMNS[name][column] == "U" else COLUMNS[name][column]).kind
    values = table.column(column).to_pylist()
    row = draw(st.integers(0, len(values) - 1))
    values[row] = draw(st.sampled_from(VALUES[declared]))
    return table.set_column(index, column, pa.array(values, table.schema.field(column).type))


@settings(FUZZ, max_examples=examples(100))
@given(name=st.sampled_from(sorted(COLUMNS)), data=st.data())
def test_changed_tables(saved: Path, folder: Path, name: str, data: st.DataObject) -> None:
    restore(saved, folder)
    table = data.draw(changed_table(name, pq.read_table(saved / f"{name}.parquet")))
    pq.write_table(table, folder / f"{name}.parquet")
    load(folder)


@settings(FUZZ, max_examples=12)
@given(names=st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
def test_tables_of_another_run(saved: Path, folder: Path, names: set[str]) -> None:
    """Files of two runs in one folder."""
    restore(saved, folder)
    other = saved.with_name("other")
    if not other.exists():
        graph = from_edges("wide", 9, [(0, i, 1.0) for i in range(1, 9)])
        costs = CostTable.of(graph, np.ones((9, 3)))
        workload = Workload([Job(graph, float(i)) for i in range(4)])
        simulate(workload, fully_connected("three", 3), costs, create("fcfs")).save(other)
    for name in names:
        shutil.copyfile(other / f"{name}.parquet", folder / f"{name}.parquet")
    assert not load(folder)
