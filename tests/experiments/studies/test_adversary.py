"""Searching for the instance on which a scheduler loses most."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import simulate
from experiments.studies.adversary import command as adversary

WORDS = ("scheduler=fcfs,heft", "family=layered", "family.n=5", "family.devices=2")


def run(folder: Path, *words: str) -> dict[str, dict[str, object]]:
    assert (
        adversary.main([*WORDS, "iterations=40", "workers=1", f"output_dir={folder}", *words]) == 0
    )
    files = (folder / "adversaries").glob("*/*/result.json")
    return {file.parent.name: json.loads(file.read_text()) for file in files}


@pytest.mark.slow
def test_what_is_found_is_what_the_saved_instance_gives_and_is_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(tmp_path, "restarts=2")
    assert set(found) == {"fcfs-loses-to-heft", "heft-loses-to-fcfs"}
    for name, result in found.items():
        assert result["ratio"] == max(result["ratios"])  # type: ignore[call-overload]
        for ratio, start in zip(result["ratios"], result["start_ratios"], strict=True):  # type: ignore[call-overload]
            assert ratio >= start
        makespans = {}
        (file,) = (tmp_path / "adversaries").glob(f"*/{name}/instance.json")
        for scheduler in ("fcfs", "heft"):
            words = [f"instance={file}", f"scheduler={scheduler}", f"output_dir={tmp_path}"]
            assert simulate.main(words) == 0
            answer = json.loads((tmp_path / "latest" / "result.json").read_text())
            makespans[scheduler] = answer["metrics"]["makespan_s"]
        assert makespans == result["makespans_s"]
        ratio = makespans[str(result["loser"])] / makespans[str(result["winner"])]
        assert result["ratio"] == ratio
    # Waiting for a device that is idle only because it is slow costs FCFS more than HEFT ever loses.
    assert found["fcfs-loses-to-heft"]["ratio"] > 1.5  # type: ignore[operator]
    assert "fcfs takes" in capsys.readouterr().out
    # The same seed finds the same, another one something else, and nothing is searched twice.
    monkeypatch.setattr("experiments.plots.gantt.draw_gantt", lambda *_: None)
    monkeypatch.setattr("experiments.studies.adversary.plot.draw_adversary", lambda *_: None)
    other = run(tmp_path / "b", "restarts=2")
    for name, result in found.items():
        assert result["ratios"] == other[name]["ratios"]
    assert run(tmp_path / "c", "restarts=1", "seed.search=1") != found
    monkeypatch.setattr(adversary, "search", None)
    capsys.readouterr()
    assert run(tmp_path, "restarts=2") == found
    assert "2 of 2 pairs done before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scheduler.options.pricing=per_edge", "scheduler=fcfs"], "name two or more"),
        (["family.n=5,6"], "nothing else that varies"),
        (["restarts=0"], "give 1 or more of each"),
        (["coldest=1"], "the first no lower than the last"),
        (["iterations=x"], "could not be converted to Integer"),
        (["family.n=500"], "the search is for small instances"),
        (
            ["family=none", "family.n=null", "family.devices=3", "scheduler=heft,donf"],
            "not free to be changed",
        ),
        (["workload=poisson", "workload.rate=1/s"], "leave workload at single"),
        (["simulation.noise=lognormal", "simulation.sigma=0.1"], "takes simulation.noise=none"),
    ],
)
def test_refusals(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        word for word in WORDS if word.partition("=")[0] not in {w.partition("=")[0] for w in words}
    ]
    assert adversary.main([*given, *words]) == 2
    assert message in capsys.readouterr().err
