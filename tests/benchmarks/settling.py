"""Whether measuring what ``settle`` names does what it expects: ``python -m tests.benchmarks.settling``.

Takes an architecture (those named, or all of ``BATCHES``) out of the shipped tables, lets ``settle`` choose
kernels for two schedulers that cannot be told apart without it, gives these kernels' measured times back,
and compares again. The truth is all of its measured times. ``common`` instead measures by how much the
error that a kind's operators share falls where half an architecture's operators are measured, and by how
much draws let it fall.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.evaluation import architectures_of
from cost_models.fitting import fitted_models
from cost_models.profile import Profile
from cost_models.table import identities, load
from cost_models.uncertainty import POOLED, narrowing
from experiments.comparison.statistics import SEPARABLE
from experiments.runs.grid import compose_grid
from experiments.runs.prepare import prepare
from experiments.settling.settle import Question, Settlement, settle
from experiments.settling.settled import compare_again, profiles_in
from simulator.errors import InvalidInput

PROFILES = ("amd-epyc-25-17-1core", "amd-epyc-25-17-1core-3x")
MODEL = "boosted"
BATCHES = {
    "googlenet": (1, 2, 4),
    "inception_v3": (1, 2, 4),
    "densenet121": (1, 4),
    "t5_small": (1, 4),
    "two_tower": (1, 8),
    "wide_and_deep": (1, 8),
    "multi_exit": (1, 4),
}
SCHEDULERS = ("heft", "donf", "sufferage", "peft")
FEWEST = 4
"""Operators of a kind whose mean residual says something of what they share."""


def questions(architecture: str, batch: int) -> Iterator[Question]:
    """Every two schedulers on the architecture and the pair of cores."""
    words = [f"model={architecture}", f"model.batch={batch}", "cluster=cpu_1x_3x"]
    cells = compose_grid([*words, f"cost_model={MODEL}", f"scheduler={','.join(SCHEDULERS)}"]).cells
    for first, second in itertools.combinations(cells, 2):
        labels = (first.scenario.scheduler.name, second.scenario.scheduler.name)
        scenarios = (first.scenario, second.scenario)
        yield Question(f"{architecture} x{batch}", scenarios, labels, ())


def given_back(without: Profile, whole: Profile, found: Settlement) -> tuple[Profile, int]:
    """A profile with the measured times of what was chosen, as far as there are any, and their number."""
    rows = {choice.row for choice in found.choices if choice.profile == whole.name}
    table = whole.measurements
    assert table is not None
    assert isinstance(without.table, pd.DataFrame)
    columns = (table[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes"))
    chosen = np.array([key in rows for key in zip(*columns, strict=True)])
    more = table[chosen & (table["cache"] == found.states[whole.name])]
    joined = load(pd.concat([without.table, more], ignore_index=True))
    graph = prepare(found.question.scenarios[0]).graph
    kinds = {operator.kind for operator in graph.operators}
    models = fitted_models(joined, whole.roofline, (MODEL,), only=kinds)
    return replace(without, models=models, table=joined), len(more)


@dataclass(frozen=True)
class Line:
    """A verdict: P(win) of who is ahead without the architecture, then, and with all of it measured."""

    now: float
    expected: float
    then: float
    truth: float


def settling(architectures: Sequence[str]) -> None:
    """One line for each verdict that is open without the architecture, and what they come to."""
    whole = {name: Profile.load(name) for name in PROFILES}
    print(
        "contest           pair               kernels  in table  seconds  P now  expected  P then  "
        "P of all measured"
    )
    lines: list[Line] = []
    for architecture in architectures:
        without = {
            name: replace(profile.without(architecture, (MODEL,)), name=name)
            for name, profile in whole.items()
        }
        for batch in BATCHES[architecture]:
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                for name, profile in without.items():
                    profile.save(root / "without" / name)
                found = (_line(q, root, whole, without) for q in questions(architecture, batch))
                lines += [line for line in found if line is not None]
    if lines:
        print(told(lines))


def _line(
    question: Question, root: Path, whole: dict[str, Profile], without: dict[str, Profile]
) -> Line | None:
    with profiles_in(root / "without"):
        try:
            found = settle(question)
        except InvalidInput:
            return None  # separable already, or the same
    if not found.choices:
        return None
    place, there = root / "-".join(question.labels), 0
    for name, profile in without.items():
        filled, number = given_back(profile, whole[name], found)
        filled.save(place / name)
        there += number
    then, _ = compare_again(found.question, place)
    truth, _ = compare_again(found.question, root / "nothing")  # the shipped profiles, looked up
    print(
        f"{question.contest:16}  {'-'.join(found.question.labels):18} {len(found.choices):7}  {there:8}  "
        f"{found.seconds:7.1f}  {found.now:5.2f}  {found.expected:8.2f}  {then:6.2f}  {truth:17.2f}",
        flush=True,
    )
    return Line(found.now, found.expected, then, truth)


def told(lines: Sequence[Line]) -> str:
    """How often measuring the chosen kernels leads to where measuring everything does."""
    now, expected, then, truth = np.array([astuple(line) for line in lines]).T
    nearer = np.abs(then - truth) < np.abs(now - truth)

    def settled(p: np.ndarray) -> int:
        return int((np.maximum(p, 1 - p) >= SEPARABLE).sum())

    return (
        f"{len(lines)} verdicts: nearer to that of measuring everything in {nearer.sum()}; mean distance "
        f"from it {np.abs(now - truth).mean():.3f} now, {np.abs(then - truth).mean():.3f} then\n"
        f"another winner than now: {(then < 0.5).sum()} then, {(truth < 0.5).sum()} of all measured; the "
        f"same winner in both: {((then < 0.5) == (truth < 0.5)).sum()}\n"
        f"separable: {settled(then)} then, {settled(truth)} of all measured; mean certainty "
        f"max(P, 1 - P) expected {expected.mean():.3f}, then {np.maximum(then, 1 - then).mean():.3f}"
    )


def common() -> None:
    """Root mean square of what a kind's operators share, before and after half of them are measured."""
    profile = Profile.load(PROFILES[0])
    table = profile.measurements
    assert table is not None
    table = table[table["cache"] == profile.cache].reset_index(drop=True)
    same, rng = identities(table), np.random.default_rng(0)
    residuals = profile.residuals_for(MODEL)
    rows = []
    for split in architectures_of(table):
        held, own = table[split.held], same[split.held]
        distinct = np.unique(own)
        hidden = rng.permutation(distinct)[: len(distinct) // 2]
        test = held[np.isin(own, hidden)]
        known = held[~np.isin(own, hidden)]
        for way, seen in (("whole", split.seen), ("half", ~np.isin(same, hidden))):
            part = table[seen].reset_index(drop=True)
            model = fitted_models(part, profile.roofline, (MODEL,), only=set(test["kind"]))[MODEL]
            logs = np.log(test["seconds"].to_numpy() / model.predict(test))
            for kind in sorted(set(test["kind"])):
                of = (test["kind"] == kind).to_numpy()
                if of.sum() < FEWEST:
                    continue
                source = residuals.get(kind) or residuals[POOLED]
                repeat = profile.repeat_error.get(kind) or profile.repeat_error[POOLED]
                left = narrowing(
                    source.bias_variance,
                    source.within_variance + repeat.within_variance,
                    int((known["kind"] == kind).sum()),
                )
                # A mean of few is off by what is each operator's own.
                own_part = logs[of].var(ddof=1) / of.sum()
                shared = source.bias_variance
                rows.append((way, logs[of].mean() ** 2 - own_part, shared, shared * left))
    frame = pd.DataFrame(rows, columns=["way", "seen", "before", "after"])
    size = {way: float(np.sqrt(part["seen"].mean())) for way, part in frame.groupby("way")}
    drawn = float(np.sqrt(frame["after"].mean() / frame["before"].mean()))
    print(f"architecture unseen {size['whole']:.3f}, half of it measured {size['half']:.3f}")
    print(f"ratio {size['half'] / size['whole']:.2f}, in draws {drawn:.2f}")


if __name__ == "__main__":
    if "common" in sys.argv[1:]:
        common()
    else:
        settling(sys.argv[1:] or list(BATCHES))
