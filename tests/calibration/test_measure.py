import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import measure as measuring
from calibration.measure import (
    REFERENCE,
    MeasurePlan,
    Recorder,
    measure,
    order_of_visits,
    prepare_folder,
    read_raw,
    visits,
)
from calibration.samples import read_samples, write_samples
from simulator.errors import InvalidInput
from tests.calibration.conftest import linear, relu

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
PLAN = MeasurePlan("cpu", "test-1core", ("graph", "warm"))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 99))
def test_least_visited_come_first_and_all_come_once(count, seed):
    order = order_of_visits(np.array(count), seed)
    assert sorted(order) == list(range(len(count)))
    assert [count[i] for i in order] == sorted(count)


def test_equally_visited_are_shuffled():
    orders = {tuple(order_of_visits(np.zeros(20, dtype=int), seed)) for seed in range(5)}
    assert len(orders) == 5


@pytest.fixture
def child(tmp_path, tiny_operators, monkeypatch):
    """Measures in this process what a child would, quickly."""
    monkeypatch.setattr(measuring.environment, "steady_allocator", lambda: True)
    monkeypatch.setattr(measuring.environment, "raise_priority", lambda: 0)
    monkeypatch.setattr("calibration.peaks.measure", lambda device, budget: {"budget": budget})
    monkeypatch.setattr("calibration.transfers.measure", lambda device: [])
    prepare_folder(tmp_path, PLAN, tiny_operators)

    def run(process=0, seconds=0.5, **options):
        messages = []
        measuring.run_process(tmp_path, process, time.time() + seconds, messages.append, **options)
        return messages

    return run


def test_process_visits_every_operator_in_every_state(child, tmp_path, tiny_operators):
    child(0, 1.5)
    raw = read_raw(tmp_path).to_pandas()
    measured = raw[raw["operator"] != REFERENCE]
    pairs = set(zip(measured["operator"], measured["cache"], strict=True))
    assert pairs == {(i, state) for i in range(3) for state in ("graph", "warm")}
    assert (raw["operator"] == REFERENCE).any()
    assert (raw["seconds"] > 0).all()
    assert raw["timestamp"].is_monotonic_increasing
    record = json.loads((tmp_path / "process-0000.json").read_text())
    assert record["finished"] >= record["started"]
    assert set(record["versions"]) >= {"torch", "python"}


def test_second_process_goes_on_with_the_least_visited(child, tmp_path):
    child(0, 0.7)
    before = visits(tmp_path, 3)
    child(1, 0.7)
    after = visits(tmp_path, 3)
    assert (after >= before).all()
    assert after.sum() > before.sum()
    assert after.max() - after.min() <= 1


def test_operator_that_cannot_run_is_reported_and_skipped(tmp_path, child):
    from dataclasses import replace

    broken = linear(2, 8, 4)
    wrong = replace(broken.operator, target="aten.mm.default")  # 2x8 @ 4x8: shapes do not fit
    broken = replace(broken, operator=wrong)
    for path in tmp_path.iterdir():
        path.unlink()
    prepare_folder(tmp_path, PLAN, [relu(4), broken])
    messages = child(0, 0.6)
    assert {m["failed"] for m in messages if "failed" in m} == {1}
    assert set(read_raw(tmp_path).to_pandas()["operator"]) == {REFERENCE, 0}


def test_repeat_kernel_runs_the_kernel_that_often():
    calls = []
    call = measuring._repeated(lambda *reads: calls.append(reads), 3)
    call(["a", "b"])
    assert calls == [("a", "b")] * 3


def test_recorder_writes_whole_parts_only(tmp_path):
    recorder = Recorder(tmp_path, 7, interval=1000)
    recorder.add(0, 0, "warm", 1.0, 1.0)
    assert not recorder.flush()
    assert recorder.flush(force=True)
    assert not recorder.flush(force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["part-0007-0000.parquet"]
    assert read_raw(tmp_path).to_pylist()[0]["process"] == 7


def test_folder_of_another_plan_or_other_operators_is_refused(tmp_path, tiny_operators):
    prepare_folder(tmp_path, PLAN, tiny_operators)
    prepare_folder(tmp_path, PLAN, tiny_operators)
    other = MeasurePlan(**{**asdict(PLAN), "threads": 2})
    with pytest.raises(InvalidInput, match="measured with threads=1, not 2"):
        prepare_folder(tmp_path, other, tiny_operators)
    with pytest.raises(InvalidInput, match="other operators"):
        prepare_folder(tmp_path, PLAN, tiny_operators[:2])


def test_folder_grows_by_appending(tmp_path, tiny_operators):
    prepare_folder(tmp_path, PLAN, tiny_operators)
    more = [relu(9), *reversed(tiny_operators), relu(9)]
    grown = prepare_folder(tmp_path, PLAN, more)
    identities = [sample.identity for sample in (*tiny_operators, relu(9))]
    assert [sample.identity for sample in grown] == identities
    assert [sample.identity for sample in read_samples(tmp_path / "operators.json")] == identities


def test_damaged_part_is_named(tmp_path):
    recorder = Recorder(tmp_path, 0)
    recorder.add(0, 0, "warm", 1.0, 1.0)
    recorder.flush(force=True)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InvalidInput, match=r"part-0000-0000\.parquet cannot be read"):
        read_raw(tmp_path)


def test_empty_folder_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="holds no samples"):
        read_raw(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": ("lukewarm",)}, "No cache state 'lukewarm'"),
        ({"repeat_kernel": 0}, "at least 1"),
        ({"device": "tpu"}, "No device 'tpu' here"),
    ],
)
def test_impossible_plans_are_refused(tmp_path, tiny_operators, change, message):
    with pytest.raises(InvalidInput, match=message):
        measure(tmp_path, MeasurePlan(**{**asdict(PLAN), **change}), tiny_operators, 1.0)


def test_nothing_to_measure_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no operators"):
        measure(tmp_path, PLAN, [], 1.0)


def command(folder: Path, operators: Path, budget: str, *more: str) -> list[str]:
    words = [sys.executable, "-m", "calibration.measure", "--out", str(folder), "--budget", budget]
    core = min(os.sched_getaffinity(0))
    return [*words, "--operators", str(operators), "--core", str(core), *more]


def test_command_line_measures_in_two_fresh_processes(tmp_path, tiny_operators):
    write_samples(tmp_path / "ops.json", tiny_operators)
    words = command(tmp_path / "out", tmp_path / "ops.json", "8s", "--repeat-kernel", "3")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["name"].endswith("-1core-3x")
    raw = read_raw(tmp_path / "out").to_pandas()
    assert set(raw["process"]) == {0, 1}
    records = [json.loads(p.read_text()) for p in (tmp_path / "out").glob("process-*.json")]
    assert all(record["threads"] == 1 and len(record["cores"]) == 1 for record in records)


def test_killed_run_keeps_its_parts_and_goes_on(tmp_path, tiny_operators):
    write_samples(tmp_path / "ops.json", tiny_operators)
    folder = tmp_path / "out"
    words = command(folder, tmp_path / "ops.json", "20s", "--part-seconds", "0.2")
    run = subprocess.Popen(
        words, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: len(list(folder.glob("part-*.parquet"))) >= 2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    kept = len(read_raw(folder))  # every part that is there can be read
    assert kept > 0
    (folder / ".part-0000-9999.parquet.123").write_bytes(b"torn")
    words = command(folder, tmp_path / "ops.json", "4s")
    again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    raw = read_raw(folder).to_pandas()
    assert len(raw) > kept
    assert raw["process"].max() >= 1
    assert not list(folder.glob(".part-*"))


def test_interrupt_saves_and_says_how_to_go_on(tmp_path, tiny_operators):
    write_samples(tmp_path / "ops.json", tiny_operators)
    folder = tmp_path / "out"
    # One part an hour: what is there in the end was saved on the interrupt.
    words = command(folder, tmp_path / "ops.json", "20s", "--part-seconds", "3600")
    run = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: (folder / "process-0000.json").exists())
        time.sleep(1.0)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the whole group
        out, errors = run.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 130, errors
    assert "stopped" in out
    assert "Traceback" not in errors
    assert len(read_raw(folder)) > 0


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.1)


def test_command_line_refuses_in_one_sentence(tmp_path):
    words = command(tmp_path / "out", tmp_path / "missing.json", "5s")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.strip().startswith("Cannot read the operators file")
    assert "Traceback" not in done.stderr


def test_measuring_half_needs_no_simpy_hydra_xgboost_or_pandas(tmp_path):
    code = (
        "import sys\n"
        "for name in ('simpy', 'hydra', 'omegaconf', 'xgboost', 'pandas', 'scipy', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "import calibration.measure, calibration.kernels, calibration.samples\n"
        "import calibration.timing, calibration.transfers, calibration.peaks, calibration.sampling\n"
        "calibration.sampling.draw('linear', 2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="no CUDA device")
def test_command_line_measures_a_gpu(tmp_path, tiny_operators):
    write_samples(tmp_path / "ops.json", tiny_operators)
    words = [sys.executable, "-m", "calibration.measure", "--device", "cuda:0", "--budget", "40s"]
    words += ["--out", str(tmp_path / "out"), "--operators", str(tmp_path / "ops.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    raw = read_raw(tmp_path / "out").to_pandas()
    assert {"graph", "warm", "cold"} == set(raw["cache"])
    assert (raw["host_seconds"] != raw["seconds"]).any()
