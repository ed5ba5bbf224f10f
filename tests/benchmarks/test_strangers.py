"""The strangers stay strangers, and the table of them is worked out right."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from calibration.samples import read_samples
from cost_models.table import row_of
from simulator.errors import InvalidInput

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.benchmarks import strangers  # noqa: E402
from tests.benchmarks.stranger_models import STRANGERS  # noqa: E402

ROOT = Path(__file__).parents[2]
FROZEN = "8e97a69545af7235"
"""Of the list as it was before its first run: whoever changes it begins another benchmark."""


def test_the_list_is_as_it_was_frozen():
    as_then = repr(STRANGERS).replace(", graph=None, dtype=None)", ")")  # settings that came later
    assert hashlib.sha256(as_then.encode()).hexdigest()[:16] == FROZEN
    assert len(STRANGERS) >= 20
    assert len({config.name for config in STRANGERS}) == len(STRANGERS)


def test_nothing_that_is_calibrated_or_fitted_reads_the_list():
    for folder in ("calibration", "cost_models", "experiments", "scenarios", "simulator", "conf"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".yaml"):
                assert "stranger_models" not in path.read_text(), path


def test_no_operator_of_a_stranger_is_in_the_calibration_set():
    """Of those that are traced quickly; operators that read nothing have no shape to be known by."""
    from calibration.measure import SHIPPED_OPERATORS
    from scenarios.model_config import graph_of

    known = {tuple(row_of(sample.operator).values()) for sample in read_samples(SHIPPED_OPERATORS)}
    for name in ("dcgan_generator", "super_resolution", "pointnet", "tcn"):
        for operator in graph_of(strangers.stranger(name)).operators:
            assert not operator.inputs or tuple(row_of(operator).values()) not in known


def test_summary_of_known_errors():
    def row(took, said, low, high):
        return took, took, strangers.Simulated(said, low, high, 1.0)

    rows = {
        "a": row(1.0, 1.1, 0.9, 1.2),
        "b": row(1.0, 0.8, 0.7, 0.9),
        "c": row(2.0, 2.0, 1.0, 3.0),
    }
    text = strangers.summary(rows)
    assert "3 models: mean 10.0%, median 10.0%, bias -3.3%, worst -20.0%" in text
    assert "90% interval holds 67%" in text


def test_statistics_are_of_all_processes_together(monkeypatch):
    monkeypatch.setattr(strangers, "simulated", lambda *_: strangers.Simulated(1.0, 0.9, 1.1, 1.0))
    found = {
        "tcn": [
            {"calls": [3.0, 2.0], "placed": [[1.0, 1.0], [2.0, 2.0]]},
            {"calls": [1.0], "placed": [[0.5, 0.25]]},
        ]
    }
    took, place, _ = strangers.rows_of(found, None, 0.0)["tcn"]
    assert (took, place) == (1.0, 0.75)
    assert strangers.rows_of(found, None, 0.5)["tcn"][0] == np.median([1.0, 2.0, 3.0])


def test_operators_of_a_model_can_be_measured(tmp_path, capsys):
    path = tmp_path / "own.json.gz"
    assert strangers.main(["--operators", str(path), "super_resolution"]) == 0
    assert "6 operators in" in capsys.readouterr().out
    assert all(sample.architectures == ("super_resolution",) for sample in read_samples(path))


def test_mistakes_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(strangers, "MEASURED", tmp_path / "none.json")
    with pytest.raises(SystemExit, match=r"No stranger 'resnet'; there are unet"):
        strangers.main(["resnet"])
    with pytest.raises(SystemExit, match="leave --again out"):
        strangers.main(["--again", "tcn"])
    with pytest.raises(InvalidInput, match="No profile 'nobody'"):
        strangers.main(["--profile", "nobody", "tcn"])
