"""Flip distances against closed forms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.studies.flip import command as flip
from experiments.studies.flip.command import Factor, FlipSettings, flip_of, winner_of


def instance(path: Path, cost: list[list[float]], edges: list[list[float]]) -> Path:
    path.write_text(json.dumps({"cost": cost, "edges": edges}))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert flip.main(words) == 0
    return capsys.readouterr().out


def result(folder: Path) -> dict[str, object]:
    (path,) = (folder / "flips").glob("*/result.json")
    return json.loads(path.read_text())


def test_a_device_must_be_as_much_faster_as_it_is_slower(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One task of 4 s or 5 s: P1 loses at 4/5 of its speed, P2 wins at 5/4 of its."""
    file = instance(tmp_path / "one.json", [[4.0, 5.0]], [])
    out = run(
        capsys,
        f"instance={file}",
        "scheduler=single_device",
        "scheduler.options.device=P1,P2",
        f"output_dir={tmp_path}",
    )
    document = result(tmp_path)
    flips = {(row["what"], row["of"]): row for row in document["flips"]}  # type: ignore[attr-defined]
    assert document["winner"] == "single_device(device=P1)"
    one, two = flips["speed", "P1"], flips["speed", "P2"]
    assert one["down"] == pytest.approx(0.8, rel=0.005)
    assert one["up"] is None
    assert two["up"] == pytest.approx(1.25, rel=0.005)
    assert two["down"] is None
    assert one["winner_down"] == two["winner_up"] == "single_device(device=P2)"
    assert flips["time", "task"]["down"] is None
    assert "as believed single_device(device=P1) takes 4; single_device(device=P1) beats " in out
    assert "by 20%" in out
    assert (next((tmp_path / "flips").glob("*")) / "flips.pdf").is_file()


def test_a_link_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """t1 is 6 s shorter on P2, and its data takes 9 s: from 9/6 of the bandwidth on HEFT moves it."""
    file = instance(tmp_path / "two.json", [[1.0, 50.0], [10.0, 4.0]], [[0, 1, 9.0]])
    run(capsys, f"instance={file}", "scheduler=single_device,heft", f"output_dir={tmp_path}")
    document = result(tmp_path)
    assert document["makespans_s"] == {"single_device": 11.0, "heft": 11.0}
    assert document["winner"] == "single_device"  # level, and named first
    flips = {(row["what"], row["of"]): row for row in document["flips"]}  # type: ignore[attr-defined]
    link = flips["bandwidth", "l0-1"]
    assert link["up"] == pytest.approx(1.5, rel=0.006)
    assert link["winner_up"] == "heft"
    assert link["down"] is None


def test_level_schedulers_are_no_change() -> None:
    assert winner_of([2.0, 2.0, 3.0]) == 0
    assert winner_of([2.0, 2.0, 3.0], reigning=1) == 1
    assert winner_of([2.0, 2.0 * (1 + 1e-12), 3.0], reigning=1) == 1
    assert winner_of([2.0, 2.1, 1.0], reigning=1) == 2


@pytest.mark.parametrize("threshold", [1.01, 1.3, 2.0, 5.0])
@pytest.mark.parametrize("upwards", [False, True])
def test_the_first_change_is_found_to_the_precision(threshold: float, upwards: bool) -> None:
    """A winner that changes at the threshold, on one side, and changes back far outside."""
    tried: list[float] = []

    def makespans(x: float) -> list[float]:
        tried.append(x)
        apart = x if upwards else 1 / x
        return [1.0, 0.5 if threshold < apart < 7.9 else 2.0]

    factor = Factor("speed", "it", lambda x: x)  # type: ignore[arg-type,return-value]
    found = flip_of(factor, makespans, 0, ["a", "b"], FlipSettings())  # type: ignore[arg-type]
    near, far = (found.up, found.down) if upwards else (found.down, found.up)
    assert near is not None
    assert far is None
    assert max(near, 1 / near) == pytest.approx(threshold, rel=0.006)
    assert max(near, 1 / near) >= threshold
    assert found.nearest == (near, "b")
    assert found.distance == max(near, 1 / near)
    assert max(np.abs(np.log(tried))) <= np.log(8) + 1e-9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scheduler=heft"], "name two or more: scheduler=heft,donf,fcfs"),
        (["scheduler=heft,donf", "limit=0.5"], "factors above 1"),
        (["scheduler=heft,donf", "precision=2"], "give shares below 1"),
        (["scheduler=heft,donf", "simulation.horizon=3s"], "leave the horizon out"),
    ],
)
def test_refusals(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert flip.main(["instance=topcuoglu", *words]) == 2
    assert message in capsys.readouterr().err
