"""The learnt scheduler of staged jobs: its training, its evaluation, and what the shipped one is worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.runs.cell import make_scheduler
from experiments.runs.grid import compose_grid
from experiments.runs.world import source_digests
from experiments.studies.shop_policy import command, evaluation, mixes, training
from experiments.studies.shop_policy.evaluation import Evaluation, evaluate
from experiments.studies.shop_policy.training import Training, train
from simulator.schedulers._stage_policy import StagePolicy, load_policy
from simulator.schedulers.learnt import Learnt

SHIPPED = "conf/predictors/staged_jobs.safetensors"
SMALL: dict[str, Any] = {
    "sequences": 2,
    "runs": 2,
    "hidden": (4,),
    "validate_every": 1,
    "validations": 2,
}


@pytest.fixture(autouse=True)
def short_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training sequences that take milliseconds."""
    monkeypatch.setattr(training.mixes, "training_mix", lambda seed: mixes.Mix(2, (4, 5)))


def same(first: StagePolicy, second: StagePolicy) -> bool:
    pairs = zip([*first.weights, *first.biases], [*second.weights, *second.biases], strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    """The same policy as of a training in one go, which is the same each time."""
    whole, state = train(Training(iterations=4, **SMALL), 1)
    file = tmp_path / "checkpoint.safetensors"

    class Interrupted(Exception):
        pass

    def stop(done: int, share: float) -> None:
        if done == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(Training(iterations=4, **SMALL), 1, file, stop)
    resumed, again = train(Training(iterations=4, **SMALL), 1, file)
    assert same(whole, resumed)
    assert again.curve == state.curve
    assert [row[0] for row in state.curve] == [1, 2, 3, 4]
    assert state.best == min(row[1] for row in state.curve)
    other, _ = train(Training(iterations=4, **SMALL), 2)
    assert not same(whole, other)


def test_it_learns() -> None:
    """Short stages of a flow shop in which order alone counts: the policy comes to take less than FIFO."""
    settings = Training(
        iterations=15, sequences=4, runs=6, hidden=(8,), validate_every=5, validations=12
    )
    _, state = train(settings, 0)
    assert state.best < 0.98
    assert state.curve[-1][2] < state.curve[0][2]  # entropy


def test_commands(tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    class Small(Training):
        def __new__(cls, **given):  # type: ignore[no-untyped-def]
            return Training(**{**given, **SMALL})

    monkeypatch.setattr(command, "Training", Small)
    assert command.main(["train", "seeds=2", "iterations=2", "file=made/p.safetensors"]) == 0
    printed = capsys.readouterr().out
    assert "seed 0" in printed
    assert printed.count("kept") == 1
    assert (
        load_policy("made/p.safetensors")
        .notes["command"]
        .endswith("iterations=2 objective=makespan")
    )
    (curve,) = tmp_path.rglob("curve.csv")
    assert curve.read_text().count("\n") == 5
    held_out: Mapping[str, mixes.Mix] = {
        "two": mixes.Mix(2, (4, 5)),
        "arriving": mixes.Mix(2, (4, 5), load=0.5),
    }
    for module in (command, evaluation):
        monkeypatch.setattr(module, "HELD_OUT", held_out)
    evaluated = evaluate(load_policy("made/p.safetensors"), 2, tuple(held_out))
    monkeypatch.setattr(command, "evaluate", lambda *args, **more: evaluated)
    assert command.main(["evaluate", "file=made/p.safetensors", "sequences=2"]) == 0
    printed = capsys.readouterr().out
    assert "arriving" in printed
    (rows,) = tmp_path.rglob("sequences.csv")
    assert rows.read_text().count("\n") == 1 + 2 * 2 * 8


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["train", "seeds=0"], "seeds=0"),
        (["train", "objective=profit"], "objective=profit"),
        (["evaluate", "file=none.safetensors"], "Cannot read policy none.safetensors"),
        (["evaluate", "seeds=3"], "no option 'seeds=3'"),
    ],
)
def test_refusals(tmp_path: Path, capsys, monkeypatch, words: list[str], reason: str) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_the_shipped_policy_passes() -> None:
    """On held-out jobs it beats random and FIFO, the interval leaving 0 out, and nowhere takes more than the critical
    path / 0.9."""
    found = evaluate(load_policy(SHIPPED), 4, others=("critical_path", "fifo", "random"))
    assert found.failures() == []
    assert len(found.seconds) == 11


def test_what_fails_is_said() -> None:
    slow = {"learnt": np.full(10, 12.0), "critical_path": np.full(10, 10.0)}
    others = {"fifo": np.full(10, 12.0), "random": np.linspace(12.5, 13.5, 10)}
    found = Evaluation({"mix": {"makespan": {**slow, **others}}}).failures()
    assert found == [
        "it does not beat fifo (shorter by 0.0%)",
        "on 'mix' it takes 1.200 times as long as the critical path",
    ]


def test_held_out_seeds_are_not_trained_on() -> None:
    assert mixes.VALIDATION + 1000 < mixes.TRAINING
    first = mixes.HELD_OUT["four jobs"].draw(0).workload
    again = mixes.HELD_OUT["four jobs"].draw(0).workload
    assert [job.graph.digest for job in first] == [job.graph.digest for job in again]
    arriving = mixes.HELD_OUT["arriving, load 0.5"].draw(3)
    arrivals = [job.arrival for job in arriving.workload]
    assert arrivals == sorted(arrivals)
    assert arrivals[1] > 0


def test_arrivals_bring_the_load() -> None:
    """Over many jobs the busiest device's work comes at the load's rate."""
    mix = mixes.Mix(400, (4, 5), load=0.5)
    sequence = mix.draw(1)
    work = sum(
        max(s[np.isfinite(s)].sum() for s in sequence.costs[job.graph].seconds.T)
        for job in sequence.workload
    )
    assert work / sequence.workload.jobs[-1].arrival == pytest.approx(0.5, rel=0.15)


def test_another_policy_makes_another_cell(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    words = ["family=staged_jobs", "scheduler=learnt"]
    (cell,) = compose_grid(words).cells
    shipped = source_digests(cell.scenario)["policy"]
    scheduler = make_scheduler(cell.scenario.scheduler)
    assert isinstance(scheduler, Learnt)
    policy = scheduler.policy
    StagePolicy(policy.weights, policy.biases, {"of": "mine"}).save("mine.safetensors")
    (cell,) = compose_grid([*words, "scheduler.options.file=mine.safetensors"]).cells
    mine = source_digests(cell.scenario)["policy"]
    assert mine != shipped
    policy.save("mine.safetensors")
    assert source_digests(cell.scenario)["policy"] != mine


def test_the_preset_runs_every_scheduler(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    cells = compose_grid(
        ["experiment=dag_shop", "seed.workload=0", "family.alpha=1.0", "family.writing=0.0"]
    ).cells
    assert len(cells) == 7 * 2 * 2
    names = {cell.scenario.scheduler.name for cell in cells}
    assert {"contention_free", "learnt", "delay_stage", "shop/fair_sharing"} < names
    for cell in cells[::4]:
        make_scheduler(cell.scenario.scheduler)
