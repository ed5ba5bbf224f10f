import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import process as measuring
from calibration.folder import (
    REFERENCE,
    plan_of,
    prepare_folder,
    read_raw,
    visits,
    write_visited,
)
from calibration.measure import measure
from calibration.plan import MeasurePlan
from calibration.process import order_of_visits
from calibration.recorder import Recorder
from calibration.samples import in_dtypes, read_samples, write_samples
from calibration.timing import PROTOCOL
from simulator.errors import ExecutionError, HetsimError, InvalidInput
from tests.calibration.conftest import linear, relu

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
PLAN = MeasurePlan("cpu", "test-1core", ("graph", "warm"))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 99))
def test_of_operators_that_cost_the_same_the_least_visited_are_due(count, seed):
    order = order_of_visits(np.array(count), np.full(len(count), 1e-5), seed)
    assert sorted(order) == [i for i, visits in enumerate(count) if visits == min(count)]


@given(st.lists(st.floats(1e-6, 0.3), min_size=1, max_size=12), st.integers(0, 99))
def test_visits_fall_with_the_root_of_what_a_visit_takes(seconds, seed):
    count, cost = np.zeros(len(seconds), dtype=int), 0.01 + 6 * np.array(seconds)
    for round_ in range(200):
        for index in order_of_visits(count, np.array(seconds), seed + round_):
            count[index] += 1
    share = count * np.sqrt(cost / cost.min())
    assert share.max() - share.min() <= np.sqrt(cost.max() / cost.min()) + 1


def test_equally_visited_are_shuffled():
    orders = {
        tuple(order_of_visits(np.zeros(20, dtype=int), np.zeros(20), seed)) for seed in range(5)
    }
    assert len(orders) == 5


@pytest.fixture
def child(tmp_path, tiny_operators, monkeypatch):
    """Measures in this process what a child would, quickly."""
    monkeypatch.setattr(measuring.environment, "steady_allocator", lambda: True)
    monkeypatch.setattr(measuring.environment, "raise_priority", lambda: 0)
    monkeypatch.setattr("calibration.peaks.measure", lambda *given: {"given": str(given)})
    monkeypatch.setattr("calibration.transfers.measure", lambda device: [])
    monkeypatch.setattr("calibration.allocation.measure", lambda device: [])
    monkeypatch.setattr("calibration.networks.measure", lambda clock, times, seed: [times, seed])
    prepare_folder(tmp_path, PLAN, tiny_operators)

    def run(process=0, seconds=0.5, **options):
        messages = []
        measuring.run_process(
            tmp_path, process, time.monotonic() + seconds, messages.append, **options
        )
        return messages

    return run


def test_process_visits_every_operator_in_every_state(child, tmp_path, tiny_operators):
    child(4, 600, rounds=2)
    assert visits(tmp_path, 3)[0].tolist() == [2, 2, 2]  # its time was not up
    raw = read_raw(tmp_path).to_pandas()
    measured = raw[raw["operator"] != REFERENCE]
    pairs = set(zip(measured["operator"], measured["cache"], strict=True))
    assert pairs == {(i, state) for i in range(3) for state in ("graph", "warm")}
    assert (raw["operator"] == REFERENCE).any()
    assert (raw["seconds"] > 0).all()
    assert raw["timestamp"].is_monotonic_increasing
    record = json.loads((tmp_path / "process-0004.json").read_text())
    assert record["networks"] == [1, 4]
    assert record["finished"] >= record["started"]
    assert record["flush_denormal"] is True
    assert sys.float_info.min / 2 > 0  # this thread's own numbers are as before
    assert set(record["versions"]) >= {"torch", "python"}


def test_operator_that_cannot_run_is_reported_and_skipped(tmp_path, child):
    from dataclasses import replace

    broken = linear(2, 8, 4)
    wrong = replace(broken.operator, target="aten.mm.default")  # 2x8 @ 4x8: shapes do not fit
    broken = replace(broken, operator=wrong)
    for path in tmp_path.iterdir():
        path.unlink()
    prepare_folder(tmp_path, PLAN, [relu(4), broken])
    messages = child(0, 600, rounds=1)
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


def test_folder_of_another_plan_is_refused(tmp_path, tiny_operators):
    prepare_folder(tmp_path, PLAN, tiny_operators)
    prepare_folder(tmp_path, PLAN, tiny_operators)
    other = MeasurePlan(**{**asdict(PLAN), "threads": 2})
    with pytest.raises(InvalidInput, match="measured with threads=1, not 2"):
        prepare_folder(tmp_path, other, tiny_operators)


def test_some_of_a_folders_operators_are_visited_on(tmp_path, tiny_operators, child):
    """The others keep what they have; operators that the folder lacks are appended."""
    child(rounds=1, seconds=60)
    one, last = tiny_operators[0], tiny_operators[-1]
    assert prepare_folder(tmp_path, PLAN, [last, one]) == tiny_operators
    write_visited(tmp_path, [0, len(tiny_operators) - 1])
    child(process=1, rounds=2, seconds=60)
    expected = [3, *[1] * (len(tiny_operators) - 2), 3]
    assert visits(tmp_path, len(tiny_operators))[0].tolist() == expected
    write_visited(tmp_path, None)
    child(process=2, rounds=1, seconds=60)
    assert visits(tmp_path, len(tiny_operators))[0].tolist() == [n + 1 for n in expected]


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"torch": "2.12.1+cpu"}, r"measured with torch 2\.13\.0, here 2\.12\.1\+cpu: such times"),
        ({"processor": "Another 9000"}, "processor AMD EPYC, here Another 9000"),
        ({"torch": "2.13.0+cu130", "system": "linux 7"}, None),  # the same release
    ],
)
def test_folder_of_another_machine_or_torch_is_refused(
    tmp_path, tiny_operators, monkeypatch, now, message
):
    """Before anything is measured, and nothing of the folder changes."""
    prepare_folder(tmp_path, PLAN, tiny_operators)
    versions = {"torch": "2.13.0", "python": "3.12.1", "system": "linux 6"}
    record = {"process": 0, "versions": versions, "processor": "AMD EPYC"}
    (tmp_path / "process-0000.json").write_text(json.dumps(record))
    here = {**versions, "processor": "AMD EPYC", **now}
    monkeypatch.setattr("calibration.environment.described", lambda device: here)
    started = []
    monkeypatch.setattr("calibration.measure._child", lambda *given: started.append(given) or [])
    if message is None:
        measure(tmp_path, PLAN, [*tiny_operators, relu(9)], 1.0)
        assert started
        return
    with pytest.raises(InvalidInput, match=message):
        measure(tmp_path, PLAN, [*tiny_operators, relu(9)], 1.0)
    assert not started
    assert len(read_samples(tmp_path / "operators.json")) == 3


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


def test_tf32_is_refused_on_a_cpu(tmp_path, tiny_operators):
    with pytest.raises(InvalidInput, match="tf32 is an element type of CUDA devices"):
        measure(tmp_path, PLAN, in_dtypes(tiny_operators, ["float32", "tf32"]), 1.0)


def test_other_element_types_are_measured_and_have_their_peak(tmp_path, tiny_operators, child):
    for path in tmp_path.iterdir():
        path.unlink()
    prepare_folder(tmp_path, PLAN, in_dtypes(tiny_operators, ["bfloat16"]))
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("calibration.peaks.measure", lambda *given: asked.append(given[2]) or {})
        messages = child(0, 600, rounds=1)
    assert not [message for message in messages if "failed" in message]
    assert asked == [["float32", "bfloat16"]]
    assert visits(tmp_path, 3)[0].tolist() == [1, 1, 1]


def test_lost_device_keeps_what_was_measured_of_the_least_visited(child, tmp_path, monkeypatch):
    visit = measuring.Visitor.visit
    seen = []

    def losing(self, sample, seed):
        seen.append(sample)
        if len(seen) == 3:
            raise RuntimeError("CUDA error: unspecified launch failure\nSearch for ...")
        return visit(self, sample, seed)

    write_visited(tmp_path, [0, 2])
    child(0, 600, rounds=1)
    write_visited(tmp_path, None)
    monkeypatch.setattr(measuring.Visitor, "visit", losing)
    with pytest.raises(
        ExecutionError, match=r"stopped executing at operator '.+' .CUDA error: unsp"
    ):
        child(1, 600)
    assert visits(tmp_path, 3)[0].tolist() == [1, 1, 1]  # the first of the three was the reference


def test_full_disk_is_one_sentence_and_costs_no_part(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, 0)
    recorder.add(0, 0, "warm", 1.0, 1.0)
    recorder.flush(force=True)
    recorder.add(1, 0, "warm", 2.0, 2.0)

    def full(*paths):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(HetsimError, match=rf"Cannot write into {tmp_path}: No space left"):
            recorder.flush(force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["part-0000-0000.parquet"]
    assert recorder.flush(force=True)  # once there is room again
    assert read_raw(tmp_path)["seconds"].to_pylist() == [1.0, 2.0]


def test_error_of_a_measuring_process_is_the_commands(tmp_path, tiny_operators, monkeypatch):
    script = "import json; print(json.dumps({'error': 'the GPU is gone'})); raise SystemExit(1)"
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda words, **options: popen([words[0], "-c", script], **options)
    )
    with pytest.raises(HetsimError, match=r"the GPU is gone\. What was measured is kept in"):
        measure(tmp_path, PLAN, tiny_operators, 5.0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"future": 1}, "says 'future', which this release does not know"),
        ({"states": ["lukewarm"]}, "No cache state 'lukewarm'"),
        (None, "is not JSON"),
        ([], "is not a measuring plan"),
        ({"device": None, "name": None, "drop": "name"}, "incomplete"),
    ],
)
def test_foreign_plan_is_one_sentence(tmp_path, tiny_operators, damage, message):
    prepare_folder(tmp_path, PLAN, tiny_operators)
    path = tmp_path / "plan.json"
    document = json.loads(path.read_text())
    if damage is None:
        path.write_text(path.read_text()[:-5])
    elif isinstance(damage, list):
        path.write_text("[]")
    elif "drop" in damage:
        path.write_text(json.dumps({k: v for k, v in document.items() if k != damage["drop"]}))
    else:
        path.write_text(json.dumps(document | damage))
    with pytest.raises(InvalidInput, match=message):
        prepare_folder(tmp_path, PLAN, tiny_operators)


def test_folder_of_the_first_protocol_is_read_but_not_continued(tmp_path, tiny_operators):
    prepare_folder(tmp_path, PLAN, tiny_operators)
    path = tmp_path / "plan.json"
    document = json.loads(path.read_text())
    del document["protocol"]  # as releases wrote it that knew no other
    path.write_text(json.dumps(document))
    assert plan_of(tmp_path).protocol == 1
    with pytest.raises(InvalidInput, match=f"measured with protocol=1, not {PROTOCOL}"):
        prepare_folder(tmp_path, PLAN, tiny_operators)


def test_part_of_something_else_is_refused_before_measuring(tmp_path, tiny_operators):
    prepare_folder(tmp_path, PLAN, tiny_operators)
    path = tmp_path / "part-0000-0000.parquet"
    pq.write_table(pa.table({"operator": [1]}), path)
    with pytest.raises(InvalidInput, match="lacks the column 'process'"):
        measure(tmp_path, PLAN, tiny_operators, 1.0)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidInput, match="cannot be read"):
        measure(tmp_path, PLAN, tiny_operators, 1.0)


def command(folder: Path, operators: Path, budget: str, *more: str) -> list[str]:
    words = [sys.executable, "-m", "calibration.measure", "--out", str(folder), "--budget", budget]
    core = min(os.sched_getaffinity(0))
    return [*words, "--operators", str(operators), "--cores", str(core), *more]


def test_killed_recorder_leaves_parts_that_can_be_read(tmp_path):
    code = (
        "import sys, pathlib; from calibration.recorder import Recorder\n"
        "recorder = Recorder(pathlib.Path(sys.argv[1]), 0, 0.0)\n"
        "while True: recorder.add(0, 0, 'warm', 1.0, 1.0); recorder.flush()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT) as run:
        try:
            wait_for(lambda: len(list(tmp_path.glob("part-*.parquet"))) >= 5)
        finally:
            run.kill()
    assert len(read_raw(tmp_path)) >= 5


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_ended_runs_save_what_they_have_and_go_on_in_two_fresh_processes(tmp_path, tiny_operators):
    write_samples(tmp_path / "ops.json", tiny_operators)
    folder = tmp_path / "out"
    # Networks are not measured in so short a life, and with --rounds it is never used up.
    words = command(folder, tmp_path / "ops.json", "89s", "--repeat-kernel", "3")

    def ended(number, end):
        """Exit status and output of a run that is ended while its process measures."""
        # One part an hour: what is there in the end was saved on the end.
        run = subprocess.Popen(
            [*words, "--part-seconds", "3600"], cwd=ROOT, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            wait_for((folder / f"process-{number:04d}.json").exists)
            (child,) = children(run.pid)
            time.sleep(1.0)
            end(run.pid)
            wait_for(lambda: not running(child), 20)  # left alone it measures for half a minute
            out, errors = run.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
        assert "Traceback" not in errors
        assert "finished" in json.loads((folder / f"process-{number:04d}.json").read_text())
        assert set(read_raw(folder)["process"].to_pylist()) == {*range(number + 1)}
        return run.returncode, out

    # As a terminal does: the whole group is interrupted.
    status, out = ended(0, lambda pid: os.killpg(pid, signal.SIGINT))
    assert status == 130
    assert "stopped" in out
    # The parent alone is killed, and cannot tell its child.
    ended(1, lambda pid: os.kill(pid, signal.SIGKILL))
    before = len(read_raw(folder))
    (folder / ".part-0000-9999.parquet.123").write_bytes(b"torn")
    done = subprocess.run([*words, "--rounds", "1"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout
    assert not list(folder.glob(".part-*"))
    assert json.loads((folder / "plan.json").read_text())["name"].endswith("-1core-3x")
    raw = read_raw(folder).to_pandas()
    new = raw[raw["process"] > 1]
    assert len(raw) - len(new) == before
    measured = new[new["operator"] != REFERENCE]
    visited = set(zip(measured["process"], measured["operator"], strict=True))
    assert visited == {(process, operator) for process in (2, 3) for operator in range(3)}
    assert set(new["round"]) == {0}
    records = [json.loads(p.read_text()) for p in folder.glob("process-*.json")]
    assert len(records) == 4
    assert all(record["threads"] == 1 and len(record["cores"]) == 1 for record in records)


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


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


def test_the_command_has_no_pandas_and_says_so_to_whoever_asks():
    """Pyarrow imports it, where it is there; torch asks whether it is: an error would be no answer."""
    code = (
        "import importlib.util, runpy, sys\n"
        "sys.argv[1:] = ['--help']\n"
        "try: runpy.run_module('calibration.measure', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "assert importlib.util.find_spec('pandas') is None\n"
        "import pyarrow as pa, numpy as np\n"
        "assert pa.array(np.arange(3)).to_pylist() == [0, 1, 2]\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.gpu
@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="no CUDA device")
def test_command_line_measures_a_gpu(tmp_path, tiny_operators):
    write_samples(tmp_path / "ops.json", tiny_operators)
    words = [sys.executable, "-m", "calibration.measure", "--device", "cuda:0", "--budget", "12s"]
    words += ["--out", str(tmp_path / "out"), "--operators", str(tmp_path / "ops.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    raw = read_raw(tmp_path / "out").to_pandas()
    assert {"graph", "warm", "awaited"} == set(raw["cache"])
    assert (raw["host_seconds"] != raw["seconds"]).any()
