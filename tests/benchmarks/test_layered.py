"""The benchmark measures what it says: same plan, same events, same makespan to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine import simulate
from simulator.metrics import metrics
from simulator.schedulers import create
from tests.benchmarks.callbacks import run_callbacks
from tests.benchmarks.engine import fixed_plan, main
from tests.benchmarks.layered import SPEEDS, layered


@pytest.mark.parametrize("seed", [0, 1])
def test_engine_and_loop_end_at_the_same_time(seed: int) -> None:
    case = layered(1_500, seed)
    trace = simulate(case.graph, case.cluster, case.costs, fixed_plan(case)())
    makespan, events = run_callbacks(*case.dependencies())
    assert trace.makespan == makespan
    # An event for every task and for every edge between devices; the engine sends as many tensors.
    assert events == len(case.work) + metrics(trace)["transfers"]
    online = simulate(case.graph, case.cluster, case.costs, create("donf"), contention="fifo")
    assert online.makespan > 0.9 * makespan


def test_the_graph_is_as_described() -> None:
    case = layered(6_400)
    parents = np.bincount([b for _, b, _ in case.edges], minlength=6_400)
    assert set(parents[:64]) == {0}
    assert (parents[64:].min(), parents[64:].max()) == (1, 5)
    assert parents[64:].mean() == pytest.approx(3, abs=0.05)
    layer = np.array([(b // 64 - a // 64) for a, b, _ in case.edges])
    assert set(layer) == {1, 2}
    assert np.mean([size for *_, size in case.edges]) / 1e6 == pytest.approx(0.0567, rel=0.03)
    assert case.work.mean() * np.mean(1 / np.array(SPEEDS)) == pytest.approx(0.72, rel=0.05)
    assert layered(500).edges == layered(500).edges


def test_the_command_prints_a_table_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["engine", "--sizes", "200", "--repeats", "1"])
    monkeypatch.setattr("tests.benchmarks.engine.ONLINE_TASKS", 200)
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "tasks", "engine/s", "callbacks/s", "ratio"]
    assert [line.split()[0] for line in lines[1:4]] == ["fixed", "fcfs,", "donf,"]
    assert lines[4] == "{"
