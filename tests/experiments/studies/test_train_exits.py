"""The command that trains exits: what it leaves, that weights make the same table, intervals."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.studies.train_exits import command as train_exits
from scenarios.serving.exit_table import DIGITS, ExitTable


def test_the_interval_is_students() -> None:
    """Mean 2, standard deviation 1, n = 4: t = 3.182446 of 3 degrees of freedom."""
    values = np.array([-1.0, 1.0, -1.0, 1.0]) * np.sqrt(3) / 2 + 2
    found = train_exits.Difference.of(values.tolist())
    assert found.mean == pytest.approx(2)
    assert found.high - found.mean == pytest.approx(3.182446 / 2, rel=1e-6)
    assert found.mean - found.low == pytest.approx(3.182446 / 2, rel=1e-6)
    assert found.verdict == 1
    assert train_exits.Difference(-2, -3, -1).verdict == -1
    assert train_exits.Difference(-2, -5, 1).verdict == 0


def test_the_summary_is_of_the_table() -> None:
    table = ExitTable.load(DIGITS)
    lines = train_exits.summary(table)
    row = next(line for line in lines if line.startswith("| 0.9 | joint |"))
    shares = table.shares("joint", 0.9, (3,))
    assert row.split(" | ")[4] == f"{shares.leave[0]:.0%} ({shares.accuracy[0]:.1%})"
    row = next(line for line in lines if line.startswith("| two exits, threshold 0.9: accuracy"))
    differences = []
    for seed in table.seeds:
        right = []
        for way in ("joint", "separate"):
            counts = table.counts(way, 0.9, (2, 5), seed)
            right.append((sum(counts.right) + counts.right_last) / counts.samples)
        differences.append(right[0] - right[1])
    assert row.split(" | ")[1].startswith(f"{100 * np.mean(differences):+.2f} [")
    assert any(line.startswith("joint against separate") for line in lines)


@pytest.mark.slow
def test_saved_weights_make_the_same_table(tmp_path, capsys) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    words = ["seeds=2", "epochs=1", f"output_dir={tmp_path}"]
    assert train_exits.main(words) == 0
    folder = tmp_path / "exits"
    names = {path.name for path in folder.iterdir()}
    weights = {f"{w}-{s}.safetensors" for w in ("separate", "joint", "joint_depth") for s in (0, 1)}
    assert names == weights | {"table.csv", "summary.txt"}
    again = [*words, f"weights={folder}", f"table={tmp_path / 'again.csv'}"]
    assert train_exits.main(again) == 0
    assert (tmp_path / "again.csv").read_bytes() == (folder / "table.csv").read_bytes()
    assert "joint against separate, accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sides=2", "has no option 'sides=2'; known: seeds"),
        ("seeds=0", "seeds=0 must be an integer from 1 to 100"),
        ("epochs=few", "epochs=few must be an integer"),
    ],
)
def test_wrong_options_are_refused(word, message, capsys) -> None:
    assert train_exits.main([word]) == 2
    assert message in capsys.readouterr().err
