"""What a cache keeps: machines of a known curve, and this one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import environment, reuse
from simulator.model.weight_hit_curve import ReuseCurve

pytest.importorskip("torch")

MIB = 1 << 20


def times(curve, weights=(MIB, 2 * MIB), most=8, kept=1.0, gone=3.0):
    """Calls on a machine that keeps what a curve says; larger weights take longer."""
    return {
        (float(w), n): [
            (w / MIB) * (gone - (gone - kept) * (1.0 if n == 1 else curve.share(w * n)))
        ]
        for w in weights
        for n in range(1, most * MIB // w + 1)
    }


def test_a_known_curve_is_found():
    curve = ReuseCurve((2.0 * MIB, 6.0 * MIB), (1.0, 0.0))
    found = reuse.summary(times(curve))["curve"]
    again = ReuseCurve(*(tuple(column) for column in zip(*found, strict=True)))
    for distance in (1.0, 2.0, 3.0, 4.5, 5.0, 6.0, 7.0, 9.0):
        assert again.share(distance * MIB) == pytest.approx(curve.share(distance * MIB), abs=1e-3)


def test_a_cache_that_drops_all_at_once_has_two_points_at_its_edge():
    """4 MiB: kept whole at 4, nothing at 5."""
    found = reuse.summary(times(ReuseCurve((4.0 * MIB,), (1.0,)), weights=(MIB,)))["curve"]
    assert found == [[MIB, 1.0], [4 * MIB, 1.0], [5 * MIB, 0.0], [8 * MIB, 0.0]]


def back(*left, uses=8, kept=1.0, gone=3.0):
    """Uses of weights that were driven out, each of which leaves so much of what it does not find."""
    curve = ReuseCurve((1.0,), (1.0,), left)
    missing = [sum(curve.left(curve.unused, use)) for use in range(uses)] + [0.0]
    return [kept + (gone - kept) * share for share in missing]


def each_use(shares):
    """Of three uses: the last share is that of all later ones."""
    return [*shares, *[shares[-1]] * (3 - len(shares))]


@pytest.mark.parametrize(
    "left", [(0.05,), (0.3,), (0.77,), (0.07, 0.75, 0.83), (0.3, 0.3, 0.1), (0.5, 0.1, 0.9)]
)
def test_how_fast_weights_come_back_is_found(left):
    """Of five rounds the two slowest do not count."""
    rounds = [back(*left)] * 3 + [back(*(share / 2 for share in left))] * 2
    found = reuse.summary(times(ReuseCurve((4.0 * MIB,), (1.0,))), rounds)
    each = left if len(left) == 3 else left * 3
    assert each_use(found["taken"]) == pytest.approx(each, abs=0.011)
    assert found["uses"] == pytest.approx(back(*left), rel=1e-3)
    assert each_use(reuse.taken(np.array(back(*left)) * 7)) == pytest.approx(each, abs=0.011)


def test_where_nearly_all_is_back_noise_says_nothing_of_later_uses():
    """A third share of .02 would keep away for ever what is missing then."""
    uses = np.array(back(0.7, 0.9, 0.02))
    assert reuse.taken(uses) == pytest.approx([0.7, 0.9], abs=0.011)
    assert reuse.taken(np.array(back(0.77))) == pytest.approx([0.77, 0.77], abs=0.011)
    assert reuse.taken(np.array(back(0.95))) == pytest.approx([0.95], abs=0.011)
    assert len(reuse.taken(np.array(back(0.7, 0.5, 0.02)))) == 3


def test_weights_that_are_back_at_once_or_were_not_looked_at_are_all_taken():
    assert reuse.summary(times(ReuseCurve((4.0 * MIB,), (1.0,))))["taken"] == [1.0]
    assert reuse.taken(np.array(back(1.0))) == [1.0]
    assert reuse.taken(np.array(back(0.3, kept=3.0))) == [1.0]


@given(st.lists(st.floats(0.5, 4.0), min_size=4, max_size=9))
def test_whatever_uses_take_they_leave_shares(seconds):
    ReuseCurve((1.0,), (1.0,), tuple(reuse.taken(np.array(seconds))))


def test_weights_whose_place_does_not_matter_have_no_curve():
    assert reuse.summary(times(ReuseCurve((MIB,), (1.0,)), kept=2.0, gone=2.0)) == {}


@given(
    st.lists(st.tuples(st.integers(1, 99), st.floats(-0.5, 1.5)), min_size=1, max_size=20),
)
def test_whatever_is_measured_is_a_curve(points):
    curve = reuse._curve([(float(d * MIB), share) for d, share in points])
    ReuseCurve(*(tuple(column) for column in zip(*curve, strict=True)))


def test_this_machine_is_measured(monkeypatch):
    """A small cache is claimed, so that it does not take long; times are what they are."""
    monkeypatch.setattr(environment, "cache", lambda device: 256 << 10)
    found = reuse.measure("cpu", rounds=2)
    if found:  # weights of 256 KiB may save nothing
        assert all(row["seconds"] > 0 for row in found["rows"])
        assert all(0 < share <= 1 for share in found["taken"])
        assert len(found["uses"]) == reuse.USES + 1
        assert {row["operators"] for row in found["rows"] if row["weights"] < 20_000} == {
            *(1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32)
        }


@pytest.mark.gpu
@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="no CUDA device")
def test_a_gpu_keeps_less_of_what_is_farther():
    found = reuse.measure("cuda:0")["curve"]
    assert found[0][1] == pytest.approx(1.0, abs=0.2)
    assert found[-1][1] == pytest.approx(0.0, abs=0.2)
