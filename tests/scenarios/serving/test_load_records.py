"""Loads as CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scenarios.serving.load_records import LoadRecord, read_loads, write_loads
from simulator.errors import InvalidInput


def test_runs_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    runs = [rng.random((n, 3)).round(6) for n in (7, 1, 4)]
    path = write_loads(tmp_path / "sub" / "loads.csv", LoadRecord(0.05, ("a", "b", "c"), runs))
    assert path.read_text().splitlines()[0] == "time_s,a,b,c"
    assert path.read_text().splitlines()[1].startswith("0.05,")
    found = read_loads(path)
    assert found.sample == 0.05
    assert found.nodes == ("a", "b", "c")
    assert [run.tolist() for run in found.runs] == [run.tolist() for run in runs]
    assert [p.name for p in path.parent.iterdir()] == ["loads.csv"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must begin"),
        ("a,b\n1,2\n", "must begin"),
        ("time_s\n1\n2\n", "must begin"),
        ("time_s,a,a\n1,2,3\n", "twice"),
        ("time_s,a\n1,2\n", "has 1 samples"),
        ("time_s,a\n1,2\n2,x\n", "line 3: a sample consists of numbers"),
        ("time_s,a\n1,2\n2\n", "line 3: needs a time and 1 finite"),
        ("time_s,a\n1,2\n2,nan\n", "line 3: needs a time"),
        ("time_s,a\n1,2\n2,2\n3.5,2\n", "line 4: 1.5 s after"),
        ("time_s,a\n1,2\n1,2\n", "does not rise"),
    ],
)
def test_bad_records_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "loads.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=reason):
        read_loads(path)
    with pytest.raises(InvalidInput, match="Cannot read"):
        read_loads(tmp_path / "none.csv")
