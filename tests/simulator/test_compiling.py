"""Compiled functions where nothing can be kept."""

from __future__ import annotations

from typing import Any

import pytest
from numba.core import caching

from simulator import compiling


def twice(number: float) -> float:
    return 2.0 * number


@pytest.mark.parametrize("signature", [None, "f8(f8)"])
def test_without_a_folder_to_write_each_process_compiles(
    signature: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        return None  # no place to keep it, as on a read-only file system

    for locator in caching.CacheImpl._locator_classes:
        monkeypatch.setattr(locator, "from_function", refuse)
    with pytest.raises(RuntimeError, match="cannot cache"):
        compiling.njit(cache=True)(twice)
    assert compiling.compiled(signature)(twice)(21.0) == 42.0
