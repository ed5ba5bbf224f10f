"""Predictions sealed before they are measured, scored as they stand, and listed with their misses."""

import json

import pytest

torch = pytest.importorskip("torch")

from calibration import environment  # noqa: E402
from experiments.runs.provenance import digest  # noqa: E402
from experiments.validation.sealed_table import sealed_table  # noqa: E402
from experiments.validation.sealing import read_sealed  # noqa: E402
from experiments.validation.simulated_vs_measured import Hardware  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from tests.experiments.own_machine import command  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_figures")
WORDS = ("model=tiny", "scheduler=fcfs,heft", "cluster=here", "simulation.draws=5")
RUNS = ("repeats=3", "warmup=0", "seconds=0")


@pytest.fixture
def sealed(home):
    """A prediction with a stated overhead, which takes no hardware."""
    folder = home / "sealed"
    assert command(home, f"sealed_dir={folder}", "seal=march", "dispatch=25us", *WORDS, *RUNS) == 0
    return folder


def test_a_check_scores_the_sealed_numbers(home, capsys, monkeypatch):
    sealed = home / "sealed"
    with monkeypatch.context() as patch:

        def refuse(*_, **__):
            raise AssertionError("sealing runs no model")

        patch.setattr(Hardware, "__init__", refuse)
        assert command(home, f"sealed_dir={sealed}", "seal=march", *WORDS, *RUNS) == 0
    document = json.loads((sealed / "march.json").read_text())
    assert document["settings"]["repeats"] == 3
    assert [(c["model"], c["jobs"], c["scheduler"]) for c in document["cases"]] == [
        ("tiny", 1, "fcfs"),
        ("tiny", 1, "heft"),
    ]
    for case in document["cases"]:
        assert case["low_s"] < case["high_s"]
        assert case["simulated_s"] > 0
        assert case["dispatch_s"] > 0
        assert len(case["graph"]) == 64
        assert {len(value) for value in case["profiles"].values()} == {64}
    given = document.pop("sha256")
    assert digest(document) == given
    known = environment.described("cpu")
    monkeypatch.setattr(environment, "described", lambda device: known | {"torch": "99.0"})
    capsys.readouterr()
    where = f"sealed_dir={sealed}"
    assert "| march | " in sealed_table(sealed)
    assert "| not yet |" in sealed_table(sealed)
    assert command(home, where, "check=march") == 0
    printed = capsys.readouterr().out
    assert "right winner among them" in printed
    prediction = json.loads((sealed / "march.json").read_text())
    score = json.loads((sealed / "march.check-1.json").read_text())
    assert score["sha256"] == prediction["sha256"]
    assert score["changes"] == []
    (block,) = home.glob("validation/check-march-*/measured/*/*/block.json")
    told = json.loads(block.read_text())["believed"].values()  # in the order of their keys
    sealed_s = sorted(row["dispatch_s"] for row in prediction["cases"])
    assert sorted(row["dispatch_s"] for row in told) == sealed_s
    assert len(score["differences"]) == 2  # a sentence for each profile
    for text in score["differences"]:
        assert "was measured with torch " in text
        assert "here 99.0" in text
        assert text in " ".join(printed.split())
    errors = []
    for then, now in zip(prediction["cases"], score["cases"], strict=True):
        assert now["simulated_s"] == then["simulated_s"]
        assert now["repeats"] == 3
        assert now["error"] == pytest.approx(then["simulated_s"] / now["measured_s"] - 1)
        assert now["covered"] == (then["low_s"] <= now["measured_s"] <= then["high_s"])
        errors.append(abs(now["error"]))
    assert score["score"]["mean_absolute_error"] == pytest.approx(sum(errors) / 2)
    assert command(home, where, "check=march") == 0  # another check takes nothing from the first
    assert json.loads((sealed / "march.check-1.json").read_text()) == score
    rows = sealed_table(sealed).splitlines()[2:]
    assert len(rows) == 2
    assert all(row.startswith("| march | ") for row in rows)
    assert f"{score['score']['mean_absolute_error']:.1%}" in rows[0]
    assert score["machine"]["processor"] in rows[0]


def test_what_was_changed_after_sealing_is_refused(home, sealed, capsys):
    path = sealed / "march.json"
    document = json.loads(path.read_text())
    document["cases"][0]["high_s"] *= 10
    path.write_text(json.dumps(document))
    capsys.readouterr()
    assert command(home, f"sealed_dir={sealed}", "check=march") == 2
    assert "was changed after it was sealed" in capsys.readouterr().err
    assert not list(sealed.glob("*.check-*"))
    with pytest.raises(InvalidInput, match="was changed after it was sealed"):
        sealed_table(sealed)


def test_a_seal_stays(home, sealed, capsys):
    capsys.readouterr()
    assert command(home, f"sealed_dir={sealed}", "seal=march", *WORDS) == 2
    assert "a sealed prediction stays" in capsys.readouterr().err
    assert command(home, f"sealed_dir={sealed}", "check=may") == 2
    assert "known: march" in capsys.readouterr().err
    assert command(home, f"sealed_dir={sealed}", "check=march", "scheduler.name=x") == 2
    assert "has no meaning there" in capsys.readouterr().err


def test_a_prediction_for_another_machine_needs_a_stated_overhead(home, capsys):
    where = f"sealed_dir={home / 'sealed'}"
    words = ["model=tiny", "scheduler=heft", "cluster=edge_t4", "simulation.draws=0", where]
    assert command(home, *words, "seal=t4") == 2
    assert "dispatch=25us" in capsys.readouterr().err
    assert command(home, *words, "seal=t4", "dispatch=25us") == 0
    document = read_sealed(home / "sealed", "t4")
    assert document["dispatch"] == "stated: 25us"
    assert document["cases"][0]["dispatch_s"] == pytest.approx(25e-6)
    assert document["cases"][0]["low_s"] is None


def test_the_table_stands_between_its_marks(home, sealed, capsys):
    path = home / "page.md"
    path.write_text("before\n<!-- sealed -->\nold\n<!-- /sealed -->\nafter\n")
    assert command(home, f"sealed_dir={sealed}", f"table={path}") == 0
    text = path.read_text()
    assert text.startswith("before\n<!-- sealed -->\n| name |")
    assert text.endswith("\n<!-- /sealed -->\nafter\n")
    assert "old" not in text
    path.write_text("no marks")
    assert command(home, f"sealed_dir={sealed}", f"table={path}") == 2
    assert "for the table to stand between" in capsys.readouterr().err
    assert sealed_table(home / "nothing") == "None has been made yet."


def test_the_table_of_the_documentation_is_that_of_its_files():
    from pathlib import Path

    docs = Path(__file__).parents[3] / "docs"
    text = (docs / "validation.md").read_text()
    table = text.partition("<!-- sealed -->\n")[2].partition("\n<!-- /sealed -->")[0]
    assert table == sealed_table(docs / "validation" / "sealed")
