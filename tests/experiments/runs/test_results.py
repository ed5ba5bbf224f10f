"""Reading results: folders of any depth, damage, other commands' results."""

import json

import numpy as np
import pytest

from experiments import load_results
from experiments.runs.results import COLUMNS, table_of, write_results
from simulator.errors import InvalidInput


def row(cell, **values):
    return dict.fromkeys(COLUMNS) | {"cell": cell, "status": "done", "makespan_s": 1.5} | values


def test_rows_come_back_as_written(tmp_path):
    rows = [row("a", draws=[1.0, 2.0], batch=4), row("b", status="failed", error="x", draws=None)]
    write_results(tmp_path, rows)
    frame = load_results(tmp_path)
    assert list(frame.columns) == [*COLUMNS, "folder"]
    assert frame["cell"].tolist() == ["a", "b"]
    assert list(frame["draws"][0]) == [1.0, 2.0]
    assert frame["draws"][1] is None
    assert np.isnan(frame["batch"][1])
    assert "draws" not in (tmp_path / "results.csv").read_text().splitlines()[0]


def test_training_figures_are_columns_where_some_row_has_them(tmp_path):
    figures = {"iteration_s": 2.0, "bubble": 0.25, "exposed_communication_s": 0.5}
    write_results(tmp_path, [row("a", **figures), row("b")])
    frame = load_results(tmp_path)
    assert list(frame.columns) == [*COLUMNS, *figures, "folder"]
    assert frame["iteration_s"].tolist() == pytest.approx([2.0, np.nan], nan_ok=True)


def test_a_folder_of_sweeps_is_read_whole_and_cells_once(tmp_path):
    for name in ("one", "two"):
        folder = tmp_path / "sweeps" / name
        write_results(folder, [row(name)])
        cell = folder / "cells" / "abc"
        cell.mkdir(parents=True)
        (cell / "result.json").write_text(json.dumps({"status": "done"}))
    (tmp_path / "latest").symlink_to(tmp_path / "sweeps" / "one")
    assert load_results(tmp_path)["cell"].tolist() == ["one", "two"]


def test_results_of_other_commands_are_left_out(tmp_path):
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "result.json").write_text('{"format": "other"}')
    write_results(tmp_path / "sweep", [row("a")])
    assert load_results(tmp_path)["cell"].tolist() == ["a"]


def test_nothing_and_damage_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no folder"):
        load_results(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="holds no results"):
        load_results(tmp_path)
    write_results(tmp_path, [row("a")])
    data = (tmp_path / "results.parquet").read_bytes()
    (tmp_path / "results.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(InvalidInput, match=r"results\.parquet.*truncated"):
        load_results(tmp_path)


def test_no_rows_still_have_columns():
    assert table_of([]).column_names == list(COLUMNS)
