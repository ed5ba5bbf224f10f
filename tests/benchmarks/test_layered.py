"""The benchmark measures what it says: same plan, same events, same makespan to the last digit."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from simulator.analysis.metrics import metrics
from simulator.engine.evaluator import Evaluator
from simulator.engine.run import simulate
from simulator.schedulers import create
from tests.benchmarks import engine, measure
from tests.benchmarks.c_loop import compiler, run_c
from tests.benchmarks.callbacks import run_callbacks
from tests.benchmarks.heap_loop import compile_heap, run_heap
from tests.benchmarks.layered import SPEEDS, Layered, layered


@pytest.mark.parametrize("seed", [0, 1])
def test_engine_and_loops_end_at_the_same_time(seed: int) -> None:
    case = layered(1_500, seed)
    trace = simulate(case.graph, case.cluster, case.costs, measure.fixed_plan(case)())
    plan = case.dependencies()
    seconds, after, needs = plan.lists()
    makespan, events = run_callbacks(seconds, after, list(needs))
    assert trace.makespan == makespan
    # An event for every task and for every edge between devices; the engine sends as many tensors.
    assert events == len(case.work) + metrics(trace)["transfers"]
    assert run_heap(seconds, after, list(needs)) == (makespan, events)
    columns = (plan.seconds, plan.after.offsets, plan.after.values, plan.delay)
    assert compile_heap()(*columns, plan.needs.copy()) == (makespan, events)
    assert Evaluator(case.graph, case.cluster, case.costs).evaluate(*case.plan) == makespan
    online = simulate(case.graph, case.cluster, case.costs, create("donf"), contention="fifo")
    assert online.makespan > 0.9 * makespan


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
def test_the_c_loop_ends_at_the_same_time() -> None:
    case = layered(1_500)
    plan = case.dependencies()
    assert run_c(plan, plan.needs.copy()) == run_callbacks(*plan.lists())


def test_the_graph_is_as_described() -> None:
    case = layered(6_400)
    parents = np.bincount(case.target, minlength=6_400)
    assert set(parents[:64]) == {0}
    assert (parents[64:].min(), parents[64:].max()) == (1, 5)
    assert parents[64:].mean() == pytest.approx(3, abs=0.05)
    assert set(case.target // 64 - case.source // 64) == {1, 2}
    assert case.size.mean() / 1e6 == pytest.approx(0.0567, rel=0.03)
    assert case.work.mean() * np.mean(1 / np.array(SPEEDS)) == pytest.approx(0.72, rel=0.05)
    assert layered(500).edges == layered(500).edges
    star = case.star
    ways = {star.route(a, b).channels for a in range(1, 9) for b in range(1, 9) if a != b}
    assert len(ways) == 56
    assert all(len(way) == 2 for way in ways)


def test_the_plan_is_list_scheduling() -> None:
    """Against the same rules in plain Python."""
    case = layered(400)
    delays = case.size / 1e6
    parents = [
        [(a, delays[k]) for k, (a, b, _) in enumerate(case.edges) if b == t] for t in range(400)
    ]
    rank = case.work * np.mean(1 / np.array(SPEEDS))
    for task in range(399, -1, -1):
        ways = [delays[k] * 7 / 8 + rank[b] for k, (a, b, _) in enumerate(case.edges) if a == task]
        rank[task] += max(ways, default=0.0)
    device, order = case.plan
    assert rank[order].tolist() == pytest.approx(sorted(rank, reverse=True))
    free, finish = [0.0] * 8, np.zeros(400)
    for task in order:
        ends = []
        for p, speed in enumerate(SPEEDS):
            data = (finish[a] + (d if device[a] != p else 0.0) for a, d in parents[task])
            ends.append(max(free[p], *data, 0.0) + case.work[task] / speed)
        assert device[task] == int(np.argmin(ends))
        finish[task] = free[device[task]] = min(ends)


def test_saved_and_loaded(tmp_path: Path) -> None:
    case = layered(300)
    case.save(tmp_path / "case.npz")
    back = Layered.load(tmp_path / "case.npz")
    assert back.edges == case.edges
    assert [column.tolist() for column in back.plan] == [column.tolist() for column in case.plan]
    assert back.graph.digest == case.graph.digest


@pytest.fixture
def reference() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The modules of the benchmark that the speed claims are stated in, where they are at hand."""
    folder = os.environ.get("HETSIM_BENCH")
    if not folder or not Path(folder, "workload.py").is_file():
        pytest.skip("HETSIM_BENCH names no folder with the reference workload.py and executors.py")
    if shutil.which("gcc") is None:
        pytest.skip("the reference plans in C and there is no gcc")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("workload"), importlib.import_module("executors")
    finally:
        sys.path.remove(folder)


@pytest.mark.parametrize("tasks", [1_000, 10_000])
def test_equals_the_reference(tasks: int, reference: tuple[ModuleType, ModuleType]) -> None:
    """Same graph, same plan, same events, same makespan to the last digit."""
    workload, executors = reference
    case = layered(tasks)
    work, source, target, size = workload.make_dag(tasks)
    for found, expected in (
        (case.work, work),
        (case.source, source),
        (case.target, target),
        (case.size, size),
    ):
        assert found.tolist() == expected.tolist()
    device, order, _ = workload.list_schedule(work, source, target, size)
    assert case.plan[0].tolist() == device.tolist()
    assert case.plan[1].tolist() == order.tolist()
    instance = {
        "n": tasks,
        "m": len(SPEEDS),
        "bandwidth": workload.BANDWIDTH,
        "speeds": workload.SPEEDS.tolist(),
        "work": work.tolist(),
        "device": device.tolist(),
        "order": order.tolist(),
        "edges": list(zip(source.tolist(), target.tolist(), size.tolist(), strict=True)),
    }
    seconds, after, needs = workload.plan(instance)
    columns = (np.array(seconds), *executors.csr(after))
    expected = executors.simpy_callbacks(seconds, after, list(needs))
    assert executors.heapq_loop(seconds, after, list(needs)) == expected
    assert executors.c_loop(*columns, np.array(needs, np.int32)) == expected
    plan = case.dependencies()
    ours = plan.lists()
    assert run_callbacks(*ours[:2], list(needs)) == expected
    assert run_heap(*ours[:2], list(needs)) == expected
    if compiler() is not None:
        assert run_c(plan, plan.needs.copy()) == expected
    assert Evaluator(case.graph, case.cluster, case.costs).evaluate(*case.plan) == expected[0]
    trace = simulate(case.graph, case.cluster, case.costs, measure.fixed_plan(case)())
    assert trace.makespan == expected[0]


def test_the_command_prints_a_table_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    words = ["engine", "--sizes", "200", "--repeats", "1", "--warm", "--rows", "plan", "fcfs"]
    monkeypatch.setattr("sys.argv", [*words, "--json", str(path)])
    engine.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["run", "tasks", "tasks/s"]
    assert [text.split()[0] for text in lines[1:3]] == ["fixed", "fcfs,"]
    document = json.loads(path.read_text())
    assert document == json.loads("\n".join(lines[lines.index("{") :]))
    row = document["rows"][0]
    assert row["tasks"] == 200
    assert row["ratio"] == pytest.approx(row["tasks_per_s"] / row["beside_tasks_per_s"])
    assert {"callbacks", "heapq", "numba"} <= row["loops_tasks_per_s"].keys()
    assert row["peak_mib"] >= row["base_mib"] > 10


def test_scaling_is_cost_per_task() -> None:
    rows = [{"row": "plan", "tasks": n, "tasks_per_s": v} for n, v in ((50_000, 3e5), (10**6, 2e5))]
    assert engine.scaling(rows) == 1.5
    assert engine.scaling(rows[:1]) is None


def test_a_row_of_fair_sharing() -> None:
    assert measure.measure("fair", layered(100), 1)["ratio"] > 0
