"""The command that trains a load predictor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.runs.cell import make_scheduler
from experiments.runs.grid import compose_grid
from experiments.runs.world import source_digests
from experiments.studies.train_predictor import command as train_predictor
from experiments.studies.train_predictor.command import evaluate
from scenarios.serving.load_predictor import LoadNetwork, fit, load_network, split
from scenarios.serving.load_records import LoadRecord, read_loads, write_loads
from simulator.errors import InvalidInput
from tests.scenarios.serving.test_load_predictor import noisy_sine

STREAM = """
name: stream
arrivals: poisson
jobs: 400
rate: 2000/s
max_batch: 4
deadline: 10ms
"""
SELECT = "scheduler.options.select={name: two_stage, predictor: none, sample: 0.001}"


def test_it_learns_from_recorded_loads(tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    runs = [noisy_sine(400, 2, seed) for seed in (1, 2)]
    write_loads("loads.csv", LoadRecord(0.1, ("a", "b"), runs))
    words = ["loads=loads.csv", "file=made/p.safetensors", "epochs=8", "hidden=8"]
    assert train_predictor.main(words) == 0
    printed = capsys.readouterr().out
    assert "304 predictions on the last 25% of 2 runs (2 nodes, 800 samples of 0.1 s)" in printed
    network = load_network("made/p.safetensors")
    assert network.options == {"sample": 0.1}
    assert network.notes["nodes"] == ["a", "b"]
    (document,) = [json.loads(p.read_text()) for p in tmp_path.rglob("result.json")]
    errors = document["errors"]
    assert set(errors) == {"lstm", "persistence", "ewma", "training mean"}
    for row in errors.values():
        assert row["low"] < row["mse"] < row["high"]
        assert len(row["by_stretch"]) == 20
    assert errors["lstm"]["mse"] < errors["persistence"]["mse"]
    assert f"{errors['lstm']['mse']:.4g}" in printed
    # The errors are of the file, on what it was not trained on.
    before, after = split(read_loads("loads.csv").runs, 0.25)
    found = evaluate(network, before, after)
    assert found.mean("lstm") == pytest.approx(errors["lstm"]["mse"])
    # The same again gives the same file.
    assert train_predictor.main([*words[:1], "file=q.safetensors", *words[2:]]) == 0
    first, second = load_network("made/p.safetensors"), load_network("q.safetensors")
    assert np.array_equal(first.over, second.over)
    assert np.array_equal(first.out, second.out)


def test_errors_by_hand() -> None:
    """A network without weights says its bias; 20 and 5 of 30 samples leave six windows."""
    network = LoadNetwork(
        20, 5, 0.0, 1.0,
        np.zeros(4, dtype=np.float32), np.zeros((1, 4), dtype=np.float32),
        np.zeros(4, dtype=np.float32), np.array([0.0, 0.25], dtype=np.float32),
    )  # fmt: skip
    held_out = np.where(np.arange(30)[:, None] < 20, 0.5, 1.0)
    found = evaluate(network, [np.full((30, 1), 0.75)], [held_out, held_out[:7]])
    assert found.count == 6
    assert found.mean("training mean") == pytest.approx(0.0625)
    assert found.mean("lstm") == pytest.approx(0.75**2)
    # It last saw 0.5 once, then 1.0 five times.
    assert found.mean("persistence") == pytest.approx(0.25 / 6)
    gain, _ = found.gain("training mean")
    assert gain == pytest.approx(1 - 0.75**2 / 0.0625)
    with pytest.raises(InvalidInput, match="25 samples"):
        evaluate(network, [held_out], [held_out[:7]])


def test_it_records_what_a_simulation_saw(folder: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    (folder / "workload").mkdir()
    (folder / "workload" / "stream.yaml").write_text(STREAM)
    words = ["--config-dir", str(folder), "model=branches", "cluster=box", "workload=stream"]
    words += ["scheduler=fcfs_batching", "runs=2", "epochs=1", "hidden=2", "record=loads.csv"]
    assert train_predictor.main(words) == 2
    assert "does not select in two stages" in capsys.readouterr().err
    words += [SELECT, "file=p.safetensors"]
    assert train_predictor.main([*words, "rates=[1000/s,2000/s]"]) == 0
    assert "validity: CPU cores with memories apart: one run" in capsys.readouterr().out
    record = read_loads("loads.csv")
    assert record.nodes == ("ram", "vram")
    assert record.sample == 0.001
    lengths = [len(run) for run in record.runs]
    assert len(lengths) == 4
    assert lengths[0] == pytest.approx(400, rel=0.2)  # 400 requests at 1000/s
    assert lengths[2] == pytest.approx(200, rel=0.2)
    assert max(run.max() for run in record.runs) > 0
    assert load_network("p.safetensors").options == {
        "sample": 0.001, "average": 0.3, "queue_capacity": 16,
    }  # fmt: skip
    # What was trained serves; and it records without itself.
    use = "scheduler.options.select={name: two_stage, sample: 0.001, predictor: "
    use += "'scenarios.serving.load_predictor:LstmPredictor', predictor_options: {file: p.safetensors}}"
    assert train_predictor.main([*words[:-2], use, "file=q.safetensors"]) == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["loads=none.csv"], "Cannot read loads"),
        (["loads=short.csv"], "at least 125 samples"),
        (["loads=short.csv", "record=x.csv"], "leave out record"),
        (["loads=short.csv", "held_out=1.0"], "held_out=1.0"),
        (["runs=0"], "runs=0"),
    ],
)
def test_refusals(tmp_path: Path, capsys, monkeypatch, words, reason) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    write_loads("short.csv", LoadRecord(0.1, ("a",), [noisy_sine(60, 1, 0)]))
    assert train_predictor.main([*words, "file=p.safetensors"]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.safetensors"))


def test_an_error_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    network = fit([noisy_sine(200, 1, 0)], hidden=2, epochs=1)
    path = network.save(tmp_path / "p.safetensors")
    before = path.read_bytes()
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(InvalidInput, match="Cannot write"):
        network.save(tmp_path / "folder.safetensors")
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.safetensors", "p.safetensors"]


def test_the_preset_has_what_it_needs_wherever_it_is_run(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    cells = compose_grid(["experiment=serving/edge_selection", "seed.workload=0"]).cells
    configs = {cell.scenario.scheduler.name: cell.scenario.scheduler for cell in cells}
    assert len(configs) == 14
    made = {name: make_scheduler(config).selection for name, config in configs.items()}  # type: ignore[attr-defined]
    assert made["edge/two_stage_lstm"].predictor.network.notes["nodes"][-1] == "edge4"
    assert made["edge/two_stage_oracle"].oracle
    assert made["edge/least_loaded_2s"].period == 2.0


def test_another_predictor_makes_another_run(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    words = ["workload=edge_streams", "cluster=edge_nodes", "scheduler=edge/two_stage_lstm"]
    words += ["scheduler.options.select.predictor_options.file=p.safetensors"]
    (cell,) = compose_grid(words).cells
    digests = []
    for seed in (1, 2):
        fit([noisy_sine(150, 1, 0)], hidden=2, epochs=1, seed=seed).save("p.safetensors")
        digests.append(source_digests(cell.scenario)["predictor"])
    assert digests[0] != digests[1]
