"""The other commands on runs of requests: strict, intervals, describe, compare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments import compare, describe, simulate, sweep
from experiments.runs.cell import INTERVALS, intervals

pytest.importorskip("torch")

WORDS = [
    "workload=serving",
    "workload.mix={wide_and_deep: 1, two_tower: 3}",
    "workload.jobs=60",
    "workload.max_batch=4",
    "workload.deadline=30ms",
    "workload.rate=100/s",
    "cluster=cpu2",
    "scheduler=task_groups",
]


def results(folder: str = "outputs") -> list[dict]:  # type: ignore[type-arg]
    """Of all runs in a folder, in the order of their making."""
    paths = sorted(Path(folder, "runs").glob("*/result.json"), key=lambda p: p.stat().st_mtime_ns)
    return [json.loads(path.read_text()) for path in paths]


def test_draws_give_delays_an_interval(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    for keep in ("null", "figures"):
        assert simulate.main([*WORDS, "simulation.draws=8", f"keep={keep}"]) == 0
        out = capsys.readouterr().out
        assert "requests for wide_and_deep, two_tower on cpu2 with task_groups: mean delay" in out
        assert "in time" in out
        assert "8 draws" in out
    whole, some = (result["metrics"] for result in results())
    for figures in (whole, some):
        assert figures["intervals"].keys() == set(INTERVALS)
        for low, high in figures["intervals"].values():
            assert low <= high
        low, high = figures["intervals"]["mean_delay_s"]
        assert low < high  # the draws' times differ, and so do the delays
        assert low == pytest.approx(figures["mean_delay_s"], rel=0.5)
    for name in ("mean_delay_s", "success_rate", "goodput_per_s"):
        assert some["intervals"][name] == pytest.approx(whole["intervals"][name])


def test_without_draws_there_is_no_interval(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    assert simulate.main([*WORDS, "simulation.draws=0"]) == 0
    assert "95%:" not in capsys.readouterr().out
    assert results()[0]["metrics"]["intervals"] == {}


def test_an_interval_is_of_the_draws_in_which_a_figure_is_known() -> None:
    rows = [{"mean_delay_s": float(i), "fairness": None} for i in range(101)]
    found = intervals([*rows, {"mean_delay_s": None}])
    assert found == {"mean_delay_s": pytest.approx(np.percentile(range(101), [2.5, 97.5]).tolist())}


def test_strict_looks_at_every_model_and_batch(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    """The first model is within what was measured; the second, or a batch, is not."""
    words = [*WORDS, "simulation.draws=0", "strict=true", "cluster=edge_t4"]
    assert simulate.main(words) == 2
    error = capsys.readouterr().err
    assert "of the predictions for '" in error
    assert "' at batch " in error
    assert "kind segment" not in error
    assert "prepare smaller batches (workload.max_batch)" in error


def test_describe_tells_of_every_model_and_what_devices_serve(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    assert describe.main(WORDS[:-1]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "wide_and_deep, batch 1: " in out
    assert "two_tower, batch 1: " in out
    assert "segment" not in out
    assert "requests: wide_and_deep 25%, two_tower 75%" in out
    assert "alone on the idle cluster, ways included: " in out
    single, four = (
        float(out.split("serves at most ")[1].split(", ")[i].split("/s")[0]) for i in (0, 1)
    )
    assert four >= single > 0
    assert simulate.main([*WORDS, "simulation.draws=0", "workload.rate=1/s"]) == 0
    alone = results()[0]["metrics"]["by_model"]["two_tower"]["slowdown"]
    assert alone == pytest.approx(1, rel=0.2)


def test_two_runs_of_requests_are_compared_by_their_delays(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    for name in ("task_groups", "fcfs_batching"):
        words = [word for word in WORDS if not word.startswith("scheduler")]
        assert simulate.main([*words, f"scheduler={name}", "simulation.draws=0"]) == 0
    capsys.readouterr()
    runs = sorted(map(str, Path("outputs/runs").iterdir()), key=lambda p: "fcfs_batching" in p)
    assert compare.main(runs) == 0
    out = capsys.readouterr().out
    assert "B (fcfs_batching) and A (task_groups), requests: mean delay" in out
    for figure in ("mean_delay_s", "p99_delay_s", "goodput_per_s", "success_rate", "fairness"):
        assert figure in out


def test_a_sweep_of_requests_is_compared_by_delays(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    words = [word for word in WORDS if not word.startswith("scheduler")]
    given = [*words, "scheduler=fcfs,fcfs_batching", "simulation.draws=0", "name=two", "workers=1"]
    assert sweep.main(given) == 0
    capsys.readouterr()
    assert compare.main(["outputs/sweeps/two"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "fcfs_batching against fcfs: mean delay" in out
    assert "makespan" not in out
    assert "python -m experiments.serving outputs/sweeps/two" in out
