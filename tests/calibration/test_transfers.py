import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import allocation, peaks, transfers

pytest.importorskip("torch")


@given(st.floats(1e-7, 1e-3), st.floats(1e8, 1e12))
def test_line_is_recovered(latency, bandwidth):
    seconds = [latency + size / bandwidth for size in transfers.SIZES]
    found = transfers.fit_line(transfers.SIZES, seconds)
    assert found == pytest.approx((latency, bandwidth), rel=1e-4, abs=1e-12)


def test_negative_latency_becomes_zero():
    latency, bandwidth = transfers.fit_line([1000, 2000], [0.5e-6, 2e-6])
    assert latency == 0.0
    assert 1e9 < bandwidth < 2e9


def test_cpu_copies_of_every_size():
    rows = transfers.measure("cpu", sizes=(1024, 1 << 20), repeats=2)
    assert [(row["way"], row["bytes"]) for row in rows] == [("copy", 1024), ("copy", 1 << 20)]
    assert 0 < rows[0]["seconds"] < rows[1]["seconds"] < 1


def test_fresh_memory_costs_more_with_its_size_and_more_than_reused():
    rows = allocation.measure("cpu", sizes=(4096, 1 << 24, 1 << 28), repeats=3)
    seconds = {(row["state"], row["bytes"]): row["seconds"] for row in rows}
    assert set(seconds) == {
        *(("reused", size) for size in (4096, 1 << 24, 1 << 28)),
        *(("fresh", size) for size in (4096, 1 << 24)),
    }
    assert seconds["fresh", 1 << 24] > 5 * seconds["fresh", 4096]
    assert seconds["fresh", 1 << 24] > seconds["reused", 1 << 24] > 0


def test_peaks_are_plausible():
    found = peaks.measure("cpu", budget=0.01, dtypes=("float32", "bfloat16"))
    assert found["flops_per_s"]["bfloat16"] > 1e7
    assert 1e8 < found["flops_per_s"]["float32"] < 1e14
    assert 1e8 < found["bandwidth_bytes_per_s"] < 1e13
    assert 0 < found["call_overhead_s"] < 1e-2


@pytest.mark.parametrize(("seconds", "asked"), [(1 / 65, [384, 1536]), (1 / 63, [384, 384])])
def test_a_large_product_is_not_waited_for_where_it_takes_seconds(monkeypatch, seconds, asked):
    import torch

    sizes = []

    def fastest(call, device, budget):
        sizes.append(len(call()))
        return seconds

    monkeypatch.setattr(peaks, "_fastest", fastest)
    rate = peaks._rate(torch.ones(1536, 1536), "cpu", 0.01)
    assert sizes == asked
    assert rate == 2.0 * asked[-1] ** 3 / seconds


@pytest.mark.gpu
@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="no CUDA device")
def test_gpu_transfers_have_four_ways_and_a_launch():
    rows = transfers.measure("cuda:0", sizes=(1024, 1 << 22), repeats=2)
    assert len(rows) == 9
    assert rows[-1]["way"] == "launch"
    assert all(0 < row["seconds"] < 1 for row in rows)
