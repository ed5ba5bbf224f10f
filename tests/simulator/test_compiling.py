"""Compiled functions where nothing can be kept, and where several processes keep them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core import caching

from simulator import compiling

ROOT = Path(__file__).resolve().parents[2]
CLOSURES = """
import sys
from simulator.compiling import compiled

def adding(number):
    @compiled()
    def add(a):
        return a + number
    return add

one, two = adding(1), adding(2)

@compiled()
def both(a):
    return 10 * one(a) + two(a)

print({"one": one, "two": two, "both": both}[sys.argv[1]](0))
"""


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


@pytest.mark.parametrize("signature", [None, "f8(f8)"])
def test_one_process_at_a_time_writes_what_it_compiled(
    signature: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While numba writes, another holder of the folder's lock would have to wait; then no longer."""
    waits: list[bool] = []

    def would_wait(folder: str) -> bool:
        with (Path(folder) / "compiling.lock").open("w") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def saving(self: Any, *_: Any) -> None:
        waits.append(would_wait(self.cache_path))

    monkeypatch.setattr(caching.Cache, "save_overload", saving)
    monkeypatch.setattr(caching.Cache, "load_overload", lambda *_: None)
    function = compiling.compiled(signature)(twice)
    assert function(3.0) == 6.0
    assert waits == [True]
    assert not would_wait(function._cache.cache_path)


def test_closures_that_several_processes_kept_are_told_apart(tmp_path: Path) -> None:
    """Two processes compile one closure each, as the first thing they compile; a third links both."""
    (tmp_path / "closures.py").write_text(CLOSURES)
    there = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    printed = [
        subprocess.run(
            [sys.executable, str(tmp_path / "closures.py"), which],
            env=there,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for which in ("one", "two", "both")
    ]
    assert printed == ["1", "2", "12"]
