"""Digests of traces see any change of a run, and no other process gives others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import trace_digests


def test_digests_are_the_same_in_another_process(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "digests.txt"
    command = ["-m", "tests.benchmarks.trace_digests", "write", str(file), "--count", "12"]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    assert trace_digests.main(["compare", str(file)]) == 0
    lines = file.read_text().split()
    assert len({*lines}) == 12
    file.write_text("\n".join([*lines[:5], "0" * trace_digests.DIGITS, *lines[6:]]))
    assert trace_digests.main(["compare", str(file)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "0 of 12 runs differ",
        "1 of 12 runs differ: 5",
    ]


def test_a_slot_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trace_digests.rich_case(0).run()
    before = trace_digests.digest(0)

    class Changed:
        def run(self) -> object:
            run.executions["slot"][-1] += 1
            return run

    monkeypatch.setattr(trace_digests, "rich_case", lambda number: Changed())
    assert trace_digests.digest(0) != before
