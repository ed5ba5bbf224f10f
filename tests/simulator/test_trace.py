"""Traces: tables, files, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import COLUMNS, Trace, TraceRecorder
from simulator.model.workload import Job, Workload
from simulator.schedulers import create


@pytest.fixture
def trace() -> Trace:
    graph = from_edges("chain", 3, [(0, 1, 4.0), (1, 2, 1.0)], names=["a", "b", "c"])
    never = np.inf
    costs = CostTable.of(graph, np.array([[1.0, never], [never, 2.0], [1.0, never]]))
    workload = Workload(
        [Job(graph, model="net", batch=4), Job(graph, 1.0, deadline=99.0, priority=2)]
    )
    return simulate(workload, fully_connected("bare", 2), costs, create("fcfs"), movement="pull")


def test_tables_have_the_documented_columns(trace: Trace) -> None:
    for name, columns in COLUMNS.items():
        table = getattr(trace, name)
        assert list(table) == list(columns)
        assert len({len(column) for column in table.values()}) == 1
        for column, kind in columns.items():
            assert table[column].dtype.kind == "U" if kind == "U" else table[column].dtype == kind
    assert trace.members["job"].tolist() == trace.executions["job"].tolist()
    assert np.all(np.diff(trace.executions["finish"]) >= 0)
    assert trace.jobs["model"].tolist() == ["net", "chain"]
    assert trace.jobs["batch"].tolist() == [4, 1]
    assert trace.jobs["deadline"].tolist() == [np.inf, 99.0]
    assert trace.jobs["priority"].tolist() == [0, 2]
    assert sorted(trace.transfers["tensor"].tolist()) == [0, 0, 1, 1]  # numbers in the job's graph
    assert trace.makespan == trace.jobs["finish"].max()


def test_meta_explains_the_numbers(trace: Trace) -> None:
    assert trace.meta["world"] == "simulated"
    assert (trace.meta["scheduler"], trace.meta["movement"]) == ("fcfs", "pull")
    assert trace.meta["contention"] == "none"
    assert trace.devices == ["P1", "P2"]
    assert trace.meta["channels"] == ["l0-1:m0->m1", "l0-1:m1->m0"]
    assert trace.meta["graphs"] == [
        {
            "name": "chain",
            "batch": None,
            "operators": ["a", "b", "c"],
            "kinds": ["task"] * 3,
            "bytes": [4.0, 1.0],
            "roles": "aa",
            "reads": {"count": [0, 1, 1], "tensor": [0, 1]},
            "writes": {"count": [1, 1, 0], "tensor": [0, 1]},
            "results": [],
            "weights": [],
            "inner": [],
        }
    ]
    assert trace.meta["capacities_bytes"] == [None, None]
    assert trace.meta["power_busy_w"] == trace.meta["price_per_hour"] == [None, None]
    assert trace.operator(1, 2) == ("c", "task")


def test_last_attempts_are_the_tasks(trace: Trace) -> None:
    again = {
        name: np.concatenate([column, column[:1]]) for name, column in trace.executions.items()
    }
    again["attempt"][-1] = 1
    again["start"][-1], again["finish"][-1] = 50.0, 51.0
    tasks = dataclasses.replace(trace, executions=again).tasks
    assert tasks["task"].tolist() == list(range(6))
    assert (tasks["start"][0], tasks["attempt"][0]) == (50.0, 1)


def test_save_and_load(trace: Trace, tmp_path: Path) -> None:
    trace.save(tmp_path / "new" / "run")
    loaded = Trace.load(tmp_path / "new" / "run")
    assert loaded.meta == json.loads(json.dumps(trace.meta, default=dict))
    for name in COLUMNS:
        for column, values in getattr(trace, name).items():
            assert getattr(loaded, name)[column].tolist() == values.tolist()
            assert getattr(loaded, name)[column].dtype.kind == values.dtype.kind
    assert not list((tmp_path / "new" / "run").glob("*.tmp"))
    assert loaded.makespan == trace.makespan
    assert "deciding_seconds" not in (tmp_path / "new" / "run" / "trace.json").read_text()


@pytest.mark.parametrize("name", COLUMNS)
def test_damaged_tables_are_refused(trace: Trace, tmp_path: Path, name: str) -> None:
    trace.save(tmp_path)
    path = tmp_path / f"{name}.parquet"
    whole = path.read_bytes()
    for length in (0, 4, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidInput, match=rf"Cannot read .*{name}\.parquet: .*truncated\?"):
            Trace.load(tmp_path)
    path.unlink()
    with pytest.raises(InvalidInput, match=rf"Cannot read .*{name}\.parquet"):
        Trace.load(tmp_path)


def test_other_columns_are_refused(trace: Trace, tmp_path: Path) -> None:
    trace.save(tmp_path)
    path = tmp_path / "jobs.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["arrival"]), path)
    with pytest.raises(InvalidInput, match=r"jobs\.parquet has columns .*; expected job, graph"):
        Trace.load(tmp_path)


def test_folders_that_hold_no_trace(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is no trace: it has no trace\.json"):
        Trace.load(tmp_path)
    (tmp_path / "trace.json").write_text('{"format"')
    with pytest.raises(InvalidInput, match=r"trace\.json is damaged"):
        Trace.load(tmp_path)
    for text in ("[]", "{}", '{"format": "other/1"}'):
        (tmp_path / "trace.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"is not of format 'hetsim\.trace/1'"):
            Trace.load(tmp_path)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("executions", "device", 2),
        ("executions", "job", -1),
        ("executions", "operator", 3),
        ("executions", "slot", 1),
        ("jobs", "graph", 1),
        ("jobs", "origin", -2),
        ("members", "job", 2),
        ("transfers", "tensor", 2),
        ("transfers", "link", 2),
        ("transfers", "source", 2),
    ],
)
def test_tables_that_point_at_nothing_are_refused(
    trace: Trace, tmp_path: Path, table: str, column: str, value: int
) -> None:
    values = getattr(trace, table)[column].copy()
    values[1] = value
    getattr(trace, table)[column] = values
    trace.save(tmp_path)
    with pytest.raises(
        InvalidInput, match=rf"{table}\.parquet: {column} {value} in row 1 does not exist"
    ):
        Trace.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta.pop("power_idle_w"), "has no list 'power_idle_w'"),
        (lambda meta: meta["slots"].append(1), "'slots' has 3 entries, not 2"),
        (lambda meta: meta["graphs"][0].pop("bytes"), "graph 0 lacks bytes"),
        (lambda meta: meta["graphs"][0].update(roles="ax"), "contradicts itself in 'roles'"),
        (lambda meta: meta["graphs"][0].update(roles="aw"), "contradicts itself in 'roles'"),
        (lambda meta: meta["graphs"][0].update(bytes=["4", 1]), "contradicts itself in 'bytes'"),
        (lambda meta: meta["graphs"][0].update(results=[2]), "contradicts itself in 'results'"),
        (lambda meta: meta["graphs"][0]["reads"]["tensor"].pop(), "contradicts itself in 'reads'"),
        (lambda meta: meta["graphs"][0]["kinds"].pop(), "contradicts itself in 'kinds'"),
    ],
)
def test_descriptions_that_contradict_themselves_are_refused(
    trace: Trace, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    trace.save(tmp_path)
    document = json.loads((tmp_path / "trace.json").read_text())
    change(document)
    (tmp_path / "trace.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=message):
        Trace.load(tmp_path)


def test_a_run_that_was_ended_early_has_no_infinite_makespan(trace: Trace) -> None:
    finish, status = trace.jobs["finish"].copy(), trace.jobs["status"].astype("U8")
    early = dataclasses.replace(trace, jobs={**trace.jobs, "finish": finish, "status": status})
    finish[1], status[1] = np.inf, "queued"
    assert early.makespan == finish[0]
    assert early.end == trace.executions["finish"].max()
    finish[0], status[0] = 1e3, "failed"
    assert early.makespan == trace.executions["finish"].max()
    assert early.end == 1e3
    finish[0], status[0] = np.inf, "queued"
    assert early.makespan == trace.executions["finish"].max()
    assert dataclasses.replace(early, meta={**trace.meta, "horizon_s": 3}).end == 3.0


def test_a_finished_job_has_a_finish(trace: Trace, tmp_path: Path) -> None:
    jobs = {**trace.jobs, "finish": np.full_like(trace.jobs["finish"], np.inf)}
    dataclasses.replace(trace, jobs=jobs).save(tmp_path)
    with pytest.raises(InvalidInput, match=r"jobs\.parquet: finish inf in row 0 cannot be"):
        Trace.load(tmp_path)


def test_a_failed_save_leaves_the_old_files(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(table: object, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        trace.save(tmp_path)
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.suffix != ".tmp"}
    assert after == before


def test_a_recorder_with_nothing_makes_empty_tables() -> None:
    graph = from_edges("one", 1, [])
    empty = TraceRecorder().trace(
        cluster=fully_connected("bare", 1),
        jobs=[Job(graph)],
        first_tensor=[0],
        finishes=[0.0],
        settings={},
        decisions=0,
        deciding_seconds=0.0,
    )
    assert len(empty.tasks["task"]) == 0
    assert len(empty.transfers["bytes"]) == 0
