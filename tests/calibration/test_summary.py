import json
import time

import numpy as np
import pandas as pd
import pytest

from calibration.folder import (
    REFERENCE,
    plan_of,
    prepare_folder,
    process_records,
    read_raw,
    visited,
)
from calibration.plan import MeasurePlan
from calibration.recorder import Recorder
from calibration.samples import in_dtypes
from calibration.summary import (
    corun,
    deviations,
    drift,
    measurement_table,
    peaks,
    reference_seconds,
    reference_spread,
    reuse,
    steady,
    throttling,
)
from cost_models.table import load
from simulator.errors import InvalidInput


@pytest.fixture
def folder(tmp_path, tiny_operators):
    """Two processes with known samples of the first two operators; the third was never reached."""
    prepare_folder(tmp_path, MeasurePlan("cpu", "box-1core", ("graph", "warm")), tiny_operators)
    samples = {
        (0, 0, "warm"): [4.0, 2.0, 3.0],
        (0, 1, "warm"): [2.2, 8.0],
        (0, 0, "graph"): [10.0],
        (0, 1, "graph"): [11.0],
        (1, 0, "warm"): [5.0],
        (REFERENCE, 0, "warm"): [1.0],
        (REFERENCE, 1, "warm"): [1.02],
    }
    for process in (0, 1):
        recorder = Recorder(tmp_path, process)
        for (operator, which, cache), values in samples.items():
            for number, value in enumerate(values):
                if which == process:
                    recorder.add(operator, number, cache, value * 1e-6, value * 1e-7)
        recorder.flush(force=True)
        record = {
            "started": time.time(),
            "versions": {"torch": "2.13.0"},
            "processor": "box",
            "peaks": {
                "flops_per_s": {"float32": 1e9 * (process + 1)},
                "bandwidth_bytes_per_s": 2e9 - process,
                "call_overhead_s": 1e-6 * (process + 1),
            },
            "transfers": [{"way": "copy", "bytes": 1024, "seconds": 3e-6 - process * 1e-6}],
        }
        if process == 1:
            del record["transfers"]
        else:
            record |= {
                "capacity_bytes": 2.0**30,
                "allocation": [{"state": "fresh", "bytes": 4096, "seconds": 1e-6}],
            }
        (tmp_path / f"process-{process:04d}.json").write_text(json.dumps(record))
    return tmp_path


def test_statistics_of_known_samples(folder):
    table = measurement_table(folder, "minimum")
    assert len(load(table)) == 3
    row = table[(table["kind"] == "linear") & (table["cache"] == "warm")].iloc[0]
    assert row["seconds"] == row["minimum_s"] == pytest.approx(2e-6)
    assert row["median_s"] == pytest.approx(3e-6)
    # Of 2, 2.2, 3, 4, 8 the 10th percentile lies 0.4 of the way from the first to the second.
    assert row["p10_s"] == pytest.approx(2.08e-6)
    assert row["half_a_s"] == pytest.approx(2e-6)
    assert row["half_b_s"] == pytest.approx(2.2e-6)
    assert row["repeats"] == 5
    low, high = np.quantile(np.log([2, 2.2, 3, 4, 8]), [0.16, 0.84])
    assert row["spread"] == pytest.approx((high - low) / 2)
    assert row["host_seconds"] == pytest.approx(2e-7)
    assert row["device"] == "box-1core"
    assert row["inputs"] == ((2, 8), (4, 8))
    assert list(row["architectures"]) == ["net"]
    usual = measurement_table(folder)
    assert usual["seconds"].equals(usual["p10_s"])


def test_operator_of_one_process_has_no_second_half(folder):
    table = measurement_table(folder)
    row = table[np.isclose(table["seconds"], 5e-6)].iloc[0]
    assert row["half_a_s"] == pytest.approx(5e-6)
    assert np.isnan(row["half_b_s"])
    assert list(row["architectures"]) == []


def test_other_statistic(folder):
    table = measurement_table(folder, "median")
    row = table[(table["kind"] == "linear") & (table["cache"] == "warm")].iloc[0]
    assert row["seconds"] == pytest.approx(3e-6)
    assert row["half_a_s"] == pytest.approx(3e-6)
    assert row["half_b_s"] == pytest.approx(5.1e-6)
    with pytest.raises(InvalidInput, match="No statistic 'mean'"):
        measurement_table(folder, "mean")


def test_reference_shows_drift_and_stays_out_of_the_table(folder):
    assert list(drift(folder)["seconds"]) == [1e-6, 1.02e-6]
    assert len(measurement_table(folder)) == 3


def test_processes_in_which_the_machine_was_slow_are_corrected():
    rows = [
        (operator, process, "graph", slow * base * 1e-6)
        for process, slow in ((0, 1.0), (1, 1.02), (2, 1.0), (3, 1.5))
        for operator, base in ((REFERENCE, 10.0), (0, 4.0))
    ]
    raw = pd.DataFrame(rows, columns=["operator", "process", "cache", "seconds"])
    raw["host_seconds"] = raw["seconds"]
    found = steady(raw)
    # The median process is between 10 and 10.2 us; 1 and 2% are left as they are, 50% is not.
    expected = [4.0, 4.08, 4.0, 4.0 * 1.01]
    assert found[found["operator"] == 0]["seconds"].to_numpy() * 1e6 == pytest.approx(expected)
    assert (found["host_seconds"] == found["seconds"]).all()
    raw["host_seconds"] = 1e-6  # a GPU's
    assert (steady(raw)["host_seconds"] == 1e-6).all()


def test_samples_without_the_reference_stay_as_they_are():
    raw = pd.DataFrame({"operator": [0, 0], "process": [0, 1], "cache": ["warm"] * 2})
    raw["seconds"] = raw["host_seconds"] = [1e-6, 3e-6]
    assert list(steady(raw)["seconds"]) == [1e-6, 3e-6]


def test_reference_of_the_median_process(folder):
    assert reference_seconds(folder, "warm") == pytest.approx(1.01e-6)
    assert reference_seconds(folder) is None


def test_spread_of_the_machine_between_processes(tmp_path):
    """Medians of 1, e and e^2 us: log seconds 0, 1 and 2 apart, deviation 1."""
    prepare_folder(tmp_path, MeasurePlan("cpu", "box", ("graph",)), [])
    for process in range(3):
        recorder = Recorder(tmp_path, process)
        for _ in range(5):
            recorder.add(-1, 0, "graph", 1e-6 * np.exp(process), 1e-6)
        recorder.flush(force=True)
    assert reference_spread(tmp_path) == pytest.approx(1.0)
    assert reference_spread(tmp_path, "warm") == 0.0


def test_best_peaks_of_all_processes(folder):
    found = peaks(folder)
    assert found["flops_per_s"] == {"float32": 2e9}
    assert found["bandwidth_bytes_per_s"] == 2e9
    assert found["call_overhead_s"] == 1e-6
    assert found["transfers"] == [{"way": "copy", "bytes": 1024, "seconds": 3e-6}]


def test_allocation_and_capacity_of_those_that_looked(folder):
    found = peaks(folder)
    assert found["allocation"] == [{"state": "fresh", "bytes": 4096, "seconds": 1e-6}]
    assert found["capacity_bytes"] == 2.0**30


def test_samples_under_throttling_are_counted(folder):
    raw = read_raw(folder).to_pandas()
    stamps = raw.loc[(raw["process"] == 0) & (raw["operator"] != REFERENCE), "timestamp"].to_numpy()
    first = float(stamps[0])
    readings = [
        {"timestamp": first - 10, "clocks_event_reasons.active": "0x4"},
        {"timestamp": first - 4, "clocks_event_reasons.active": "0x0"},
        {"timestamp": float(stamps[-2]), "clocks_event_reasons.active": "0x24"},
    ]
    for process, clocks in ((0, readings), (1, {"clocks.sm": "1980 MHz"})):
        path = folder / f"process-{process:04d}.json"
        record = json.loads(path.read_text()) | {"process": process, "clocks": clocks}
        path.write_text(json.dumps(record))
    rows = throttling(folder).set_index("reason")
    last = int((stamps >= stamps[-2]).sum())
    assert rows["samples"].to_dict() == {"power cap": last, "thermal (software)": last}
    assert rows["share"]["power cap"] == pytest.approx(last / len(stamps))
    assert rows["seconds"]["power cap"] == pytest.approx(6 + stamps[-1] - stamps[-2], abs=1e-3)
    assert (rows["process"] == 0).all()


def test_a_last_reading_behind_all_samples_holds_none(folder):
    stamps = read_raw(folder).to_pandas().query("process == 0")["timestamp"].to_numpy()
    reading = {"timestamp": float(stamps.max()) + 1, "clocks_event_reasons.active": "0x4"}
    path = folder / "process-0000.json"
    record = json.loads(path.read_text()) | {"process": 0, "clocks": [reading]}
    path.write_text(json.dumps(record))
    (row,) = throttling(folder).to_dict("records")
    assert (row["reason"], row["seconds"], row["samples"]) == ("power cap", 0.0, 0)


def test_corun_is_read_where_it_is(folder):
    assert corun(folder) == {}
    (folder / "corun.json").write_text('{"fraction": 0.03}')
    assert corun(folder) == {"fraction": 0.03}


def test_tf32_is_an_element_type_of_the_table(tmp_path, tiny_operators):
    prepare_folder(
        tmp_path,
        MeasurePlan("cuda:0", "gpu", ("warm",)),
        in_dtypes(tiny_operators, ["float32", "tf32", "bfloat16"]),
    )
    recorder = Recorder(tmp_path, 0)
    for index in range(9):
        recorder.add(index, 0, "warm", 1e-6, 1e-6)
    recorder.flush(force=True)
    table = load(measurement_table(tmp_path))
    assert table["dtype"].tolist() == ["float32"] * 3 + ["tf32"] * 3 + ["bfloat16"] * 3


def test_folder_without_a_plan_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no measuring plan"):
        plan_of(tmp_path)


def test_deviations_of_known_samples(folder):
    found = deviations(folder, "warm", "minimum")
    # 2, 2.2, 3, 4, 8 us around their minimum, and the one call of the other linear around itself;
    # quantiles at 1%, 3%, ..., 99%.
    logs = np.log(np.array([2, 2.2, 3, 4, 8, 2]) / 2)
    expected = np.quantile(logs, np.arange(0.01, 1, 0.02))
    assert found == {kind: pytest.approx(expected, abs=1e-4) for kind in ("linear", "*")}
    assert deviations(folder, "graph", "minimum")["linear"][0] == pytest.approx(
        np.log(1.1) / 100, abs=1e-4
    )
    logs[:5] -= np.log(1.5)
    expected = np.quantile(logs, np.arange(0.01, 1, 0.02))
    medians = deviations(folder, "warm", "median")["linear"]
    assert medians == pytest.approx(expected, abs=1e-4)
    with pytest.raises(InvalidInput, match="no samples in cache state 'cold'"):
        deviations(folder, "cold")
    with pytest.raises(InvalidInput, match="No statistic 'mean'"):
        deviations(folder, "warm", "mean")


@pytest.mark.parametrize("name", ["process-0000.json", "corun.json", "reuse.json", "visited.json"])
@pytest.mark.parametrize("data", [b"", b'{"process": 0, "vers', b"\xff\x00\x80", b"3"])
def test_a_damaged_record_is_one_sentence(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    read = {
        "process-0000.json": process_records,
        "corun.json": corun,
        "reuse.json": reuse,
        "visited.json": lambda folder: visited(folder, 3),
    }[name]
    with pytest.raises(InvalidInput, match=rf"{name} is not .* Delete it and measure again"):
        read(tmp_path)
