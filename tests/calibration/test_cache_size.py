"""How much of a large cache there is: machines of a known size, and this one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import cache_size, environment
from calibration.cache_size import BELIEVED, effective_cache, found_cache

MIB = 1 << 20


def reading(size, inside=1.0, outside=2.0):
    """Seconds per byte on a machine whose cache keeps so many bytes, and of more what fits."""
    return lambda asked: outside - (outside - inside) * min(1.0, max(0.0, 2 - asked / size))


@pytest.mark.parametrize(
    ("real", "found"),
    [(20, 64), (42, 64), (48, 128), (80, 128), (150, 256), (479, 480), (480, 480)],
)
def test_a_cache_is_as_large_as_the_first_size_that_does_not_fit(real, found):
    """Of 480 MiB that are stated; of twice what it keeps nothing is saved."""
    assert found_cache(480 * MIB, reading(real * MIB)) == found * MIB


def test_a_cache_that_saves_nothing_is_the_least():
    assert found_cache(480 * MIB, lambda size: 1.0) == BELIEVED


@given(st.integers(65, 2000), st.floats(0.5, 3.0), st.floats(0.5, 3.0), st.floats(1.0, 3000.0))
def test_it_is_never_more_than_stated_nor_less_than_is_believed(stated, inside, outside, real):
    found = found_cache(stated * MIB, reading(real * MIB, inside, outside))
    assert BELIEVED <= found <= stated * MIB


def test_a_size_that_a_core_may_well_have_is_believed(monkeypatch):
    def refuse(size):
        raise AssertionError("it was measured")

    monkeypatch.setattr(cache_size, "Reading", refuse)
    assert effective_cache(32 * MIB) == 32 * MIB
    assert effective_cache(BELIEVED) == BELIEVED


def test_this_machine_is_read(monkeypatch):
    """A small cache is claimed, so that it does not take long."""
    pytest.importorskip("torch")
    monkeypatch.setattr(cache_size, "BELIEVED", 1 * MIB)
    assert effective_cache(4 * MIB) in (1 * MIB, 2 * MIB, 4 * MIB)


def test_a_process_measures_once_what_the_system_says(monkeypatch):
    asked = []
    monkeypatch.setattr(cache_size, "effective_cache", lambda stated: asked.append(stated) or 7)
    monkeypatch.setattr(environment, "_cache_sizes", lambda: {1: 32 << 10, 3: 480 * MIB})
    environment.last_level_cache.cache_clear()
    try:
        assert [environment.last_level_cache() for _ in range(2)] == [7, 7]
    finally:
        environment.last_level_cache.cache_clear()
    assert asked == [480 * MIB]
