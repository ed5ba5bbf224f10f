"""A cell costs what the benchmark says, and nothing is read or drawn in vain."""

from pathlib import Path

import pytest

from experiments.runs import catalog
from simulator.errors import InvalidInput
from tests.benchmarks.cell import SCHEDULERS, cell_row


def test_the_benchmark_of_a_cell(folder: Path) -> None:
    pytest.importorskip("torch")
    overrides = ("model=branches", "cluster=box", "simulation.draws=0")
    row = cell_row(1, overrides, (folder,))
    assert row["tasks"] == 11
    assert set(row["cells"]) == set(SCHEDULERS)
    parts = [cell["overhead_s"] for cell in row["cells"].values()]
    assert all(0 < part < 1 for part in parts)
    assert row["overhead_s"] == row["config_s"] + max(parts)
    assert 0 < row["cost_table_s"] < 1


def test_an_entry_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "model" / "own.yaml"
    path.parent.mkdir()
    path.write_text("name: own\noptions: {a: 1}\n")
    first = catalog.read(path)
    first["options"]["a"] = 7  # what a caller does with it stays with the caller
    assert catalog.read(path) == {"name": "own", "options": {"a": 1}}
    path.write_text("name: own\noptions: {a: 22}\n")
    assert catalog.read(path)["options"] == {"a": 22}
    path.write_text("name: [")
    with pytest.raises(InvalidInput, match=r"Cannot read .*own\.yaml"):
        catalog.read(path)
    path.unlink()
    with pytest.raises(InvalidInput, match=r"Cannot read .*own\.yaml: No such file"):
        catalog.read(path)
