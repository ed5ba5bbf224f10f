"""Sweeps of requests compared: known ratios come back, pairs are of one seed, the report is whole."""

import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from experiments import compare, sweep
from experiments.comparison.request_comparison import (
    Change,
    compare_requests,
    delay_change,
    sentences,
    share_change,
)
from simulator.errors import InvalidInput

SEEDS = 8


def write(folder, scheduler, seed, delay, p99, share, choices=None, **labels):
    """A finished cell of requests."""
    cell = f"{scheduler}-{seed}-{'-'.join((choices or {}).values())}".replace("/", "_")
    path = folder / cell / "result.json"
    path.parent.mkdir(parents=True)
    document = {
        "status": "done",
        "labels": {"scheduler": scheduler, **labels},
        "config": {"seed": {"workload": seed, "noise": 0, "search": 0}},
        "metrics": {"mean_delay_s": delay, "p99_delay_s": p99, "success_rate": share},
        "choices": {"scheduler": scheduler, "seed.workload": str(seed), **(choices or {})},
    }
    path.write_text(json.dumps(document))
    return cell


@pytest.fixture
def cells(tmp_path):
    """Seeds differ by a factor of a hundred; half is always half of fcfs, near is as often above it."""
    rng = np.random.default_rng(0)
    written = []
    for seed, scale in enumerate(np.logspace(-2, 0, SEEDS)):
        noise = 1 + 0.02 * (-1) ** seed
        for rate in ("20/s", "40/s"):
            at = {"workload.rate": f'"{rate}"'}
            share = rng.uniform(0.3, 0.6)
            written += [
                write(tmp_path, "fcfs", seed, scale, 3 * scale, share, at),
                write(tmp_path, "half", seed, scale / 2, 12 * scale, share + 0.25, at),
                write(tmp_path, "near", seed, scale * noise, 3 * scale, share, at),
            ]
    return tmp_path, written


def test_known_ratios_come_back_however_seeds_differ(cells):
    folder, names = cells
    found = compare_requests(folder, names, {})
    assert found.baseline == "fcfs"
    assert found.settings == ["workload.rate=20/s", "workload.rate=40/s"]
    for setting in found.settings:
        rows = {row.scheduler: row for row in found.of(setting)}
        assert next(iter(rows)) == "half"
        half = rows["half"].figures
        mean, p99, share = (half[n] for n in ("mean_delay_s", "p99_delay_s", "success_rate"))
        assert (mean.change, mean.low, mean.high) == pytest.approx((0.5, 0.5, 0.5))
        assert (p99.change, p99.low, p99.high) == pytest.approx((4, 4, 4))
        assert (share.change, share.low, share.high) == pytest.approx((0.25, 0.25, 0.25))
        assert rows["half"].verdict == "shorter"
        near = rows["near"].figures["mean_delay_s"]
        assert near.low < 1 < near.high
        assert near.change == pytest.approx(math.sqrt(1.02 * 0.98))
        assert rows["near"].verdict == "~"
        assert rows["fcfs"].verdict == ""
        assert rows["fcfs"].figures["mean_delay_s"].value == pytest.approx(
            np.mean(np.logspace(-2, 0, SEEDS))
        )
    half, near = sentences(found)
    assert half == (
        "half against fcfs: mean delay shorter in 2, longer in 0; over all settings mean delay -50%, "
        "p99 4x, in time +25 points"
    )
    assert "not separable in 2" in near


def test_the_other_way_round_is_the_inverse(cells):
    folder, names = cells
    found = compare_requests(folder, names, {}, baseline="half")
    rows = {row.scheduler: row for row in found.of("workload.rate=20/s")}
    assert rows["fcfs"].figures["mean_delay_s"].change == pytest.approx(2)
    assert rows["fcfs"].figures["success_rate"].change == pytest.approx(-0.25)
    assert rows["fcfs"].verdict == "longer"
    with pytest.raises(
        InvalidInput, match="No scheduler 'edf' to compare with; this sweep has: fcfs"
    ):
        compare_requests(folder, names, {}, baseline="edf")
    # What the sweep is usually compared with is taken where it is there.
    assert compare_requests(folder, names, {}, usual="near").baseline == "near"
    assert compare_requests(folder, names, {}, usual="edf").baseline == "fcfs"


def test_only_common_seeds_are_compared(tmp_path):
    names = [write(tmp_path, "a", seed, 1.0, 1.0, 1.0) for seed in range(6)]
    names += [write(tmp_path, "b", seed, 2.0, 2.0, 1.0) for seed in range(3, 9)]
    names += [write(tmp_path, "c", 100, 1.0, 1.0, 1.0)]
    # Where none is called fcfs, the slowest is the baseline.
    found = compare_requests(tmp_path, names, {})
    assert found.baseline == "b"
    assert [(row.scheduler, row.seeds) for row in found.rows] == [("a", 3), ("b", 6)]
    assert found.apart == [("", "c")]
    (row, _) = found.rows
    assert row.figures["mean_delay_s"].change == pytest.approx(0.5)
    assert math.isnan(row.figures["mean_delay_s"].low)  # three seeds are too few
    assert row.verdict == ""
    assert sentences(found) == ["a against b: mean delay -50%, p99 -50%, in time 0 points"]


def test_a_run_that_answered_nobody_has_no_delay(tmp_path):
    names = [write(tmp_path, "fcfs", seed, 1.0, 1.0, 0.5) for seed in range(6)]
    names += [write(tmp_path, "none", seed, None, None, 0.0) for seed in range(6)]
    found = compare_requests(tmp_path, names, {})
    last = found.rows[-1]
    assert last.scheduler == "none"
    assert math.isnan(last.figures["mean_delay_s"].value)
    assert delay_change(last.figures["mean_delay_s"]) == "-"
    assert last.figures["success_rate"].change == pytest.approx(-0.5)
    # A warm-up that all requests fell into leaves nobody to be answered.
    path = tmp_path / names[0] / "result.json"
    document = json.loads(path.read_text())
    document["metrics"] |= {"requests": 0, "success_rate": 0.0, "mean_delay_s": None}
    path.write_text(json.dumps(document))
    found = compare_requests(tmp_path, names, {})
    assert found.rows[0].figures["success_rate"].value == pytest.approx(0.5)
    with pytest.raises(InvalidInput, match="no finished runs of requests"):
        compare_requests(tmp_path, ["missing"], {})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change(1, 0.92, 0.89, 0.95), "-8% [-11, -5]"),
        (Change(1, 1.034, 1.03, 1.04), "+3.4% [+3, +4]"),
        (Change(1, 12.3, 11, 14), "12.3x [11, 14]"),
        (Change(1, 1.0, 1.0, 1.0), "0% [0, 0]"),
        (Change(1, 0.5), "-50%"),
        (Change(1), "-"),
    ],
)
def test_changes_of_delays_in_words(change, text):
    assert delay_change(change) == text


def test_changes_of_shares_in_words():
    assert share_change(Change(0.9, 0.03, 0.012, 0.045)) == "+3 [+1.2, +4.5]"
    assert share_change(Change(0.9, -0.2)) == "-20"
    assert share_change(Change(math.nan)) == "-"


def test_a_sweep_of_requests_is_compared_by_delays(folder, capsys):
    pytest.importorskip("torch")
    words = [
        "workload=serving",
        "workload.mix={wide_and_deep: 1, two_tower: 3}",
        *("workload.jobs=60", "workload.max_batch=4", "workload.deadline=30ms"),
        *("cluster=cpu2", "simulation.draws=0", "workload.rate=100/s,400/s"),
        *("scheduler=fcfs,fcfs_batching", "seed.workload=range(0,5)", "name=loads", "workers=1"),
    ]
    assert sweep.main([*words, "baseline=fcfs_batching"]) == 0
    out = capsys.readouterr().out
    assert "makespan" not in out
    assert out.startswith("loads: 20 cells")
    assert "fcfs against fcfs_batching: mean delay" in out
    where = Path("outputs/sweeps/loads")
    report = where / "report"
    assert f"wrote {report / 'index.html'}" in out
    console = Console(file=io.StringIO(), width=100, highlight=False)
    compare.compare_sweep(where, console=console)  # the sweep's own baseline
    text = console.file.getvalue()
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "workload.rate=400/s" in text
    assert "20 cells, 0 failed" in text
    table = pd.read_csv(report / "table_requests.csv").set_index(["setting", "scheduler"])
    documents = [json.loads(p.read_text()) for p in (where / "cells").glob("*/result.json")]
    delays = {
        (d["choices"]["scheduler"], d["config"]["seed"]["workload"]): d["metrics"]["mean_delay_s"]
        for d in documents
        if "400" in d["choices"]["workload.rate"]
    }
    ratios = [delays["fcfs", seed] / delays["fcfs_batching", seed] for seed in range(5)]
    row = table.loc["workload.rate=400/s", "fcfs"]
    assert row["mean_delay_s_ratio"] == pytest.approx(math.exp(np.mean(np.log(ratios))))
    assert (
        row["mean_delay_s_ratio_low"] < row["mean_delay_s_ratio"] < row["mean_delay_s_ratio_high"]
    )
    names = {path.name for path in report.iterdir()}
    figures = {f"fig_serving.{suffix}" for suffix in ("pdf", "png", "csv", "txt")}
    tables = {f"table_requests.{suffix}" for suffix in ("csv", "md", "tex")}
    assert names == figures | tables | {"index.html", "methods.txt"}
    page = (report / "index.html").read_text()
    assert "Schedulers by the delays of requests" in page
    cells = json.loads(re.search(r'id="cells-data">(.*?)</script>', page)[1])
    columns = {column["name"]: column["values"] for column in cells["columns"]}
    assert not {"makespan [ms]", "ratio to best", "gap to bound [%]"} & set(columns)
    shown = dict(zip(cells["cells"], columns["mean delay [ms]"], strict=True))
    expected = {d["hash"]: 1e3 * d["metrics"]["mean_delay_s"] for d in documents}
    assert shown == pytest.approx(expected, rel=1e-3)
    assert {"p99 delay [ms]", "in time [%]", "cluster"} - set(columns) == {"cluster"}
    assert "seed by seed" in (report / "methods.txt").read_text()
    # The label says what was asked for, and not the model of the configuration.
    assert {d["labels"]["model"] for d in documents} == {"wide_and_deep:1 two_tower:3"}
    assert compare.main([str(where), "baseline=edf"]) == 2
    assert "this sweep has: fcfs, fcfs_batching" in capsys.readouterr().err
    assert compare.main([str(where), "unit=seed"]) == 2
    assert "compared by their delays" in capsys.readouterr().err


def test_a_mix_that_cannot_be_read_is_refused_before_anything_runs(folder, capsys):
    words = [
        "workload=serving",
        "workload.jobs=5",
        "cluster=cpu2",
        "simulation.draws=0",
        "workers=1",
    ]
    assert sweep.main([*words, "workload.mix=[a]", "name=bad", "scheduler=fcfs,sjf"]) == 2
    assert "write it like" in capsys.readouterr().err
