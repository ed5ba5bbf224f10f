"""Whether measuring what ``settle`` names does what it expects: ``python -m tests.benchmarks.settling``.

Takes an architecture out of the shipped tables, lets ``settle`` choose kernels for two schedulers that
cannot be told apart without it, gives these kernels' measured times back, and compares again. The truth
is all of its measured times. ``common`` instead measures by how much the error that a kind's operators
share falls where half an architecture's operators are measured, and by how much draws let it fall.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.evaluation import architectures_of
from cost_models.fitting import fitted_models
from cost_models.profile import Profile
from cost_models.table import identities, load
from cost_models.uncertainty import POOLED, narrowing
from experiments.grid import compose_grid
from experiments.settle import Question, Settlement, settle
from experiments.settled import compare_again, profiles_in
from simulator.errors import InvalidInput

PROFILES = ("amd-epyc-1core", "amd-epyc-1core-3x")
MODEL = "boosted"
CASES = tuple(itertools.product(("googlenet", "inception_v3"), (1, 2, 4)))
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


def given_back(without: Profile, whole: Profile, found: Settlement) -> Profile:
    """A profile with the measured times of what was chosen."""
    rows = {choice.row for choice in found.choices if choice.profile == whole.name}
    table = whole.measurements
    assert table is not None
    assert isinstance(without.table, pd.DataFrame)
    columns = (table[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes"))
    chosen = np.array([key in rows for key in zip(*columns, strict=True)])
    more = table[chosen & (table["cache"] == whole.cache)]
    joined = load(pd.concat([without.table, more], ignore_index=True))
    models = fitted_models(joined, whole.roofline, (MODEL,))
    return replace(without, models=models, table=joined)


def settling(cases: Sequence[tuple[str, int]]) -> None:
    """One line for each verdict that is open without the architecture."""
    whole = {name: Profile.load(name) for name in PROFILES}
    print(
        "contest           pair               kernels  seconds  P now  expected  P then  P of all measured"
    )
    for architecture, group in itertools.groupby(cases, key=lambda case: case[0]):
        without = {
            name: replace(profile.without(architecture, (MODEL,)), name=name)
            for name, profile in whole.items()
        }
        for batch in (case[1] for case in group):
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                for name, profile in without.items():
                    profile.save(root / "without" / name)
                for question in questions(architecture, batch):
                    _line(question, root, whole, without)


def _line(
    question: Question, root: Path, whole: dict[str, Profile], without: dict[str, Profile]
) -> None:
    with profiles_in(root / "without"):
        try:
            found = settle(question)
        except InvalidInput:
            return  # separable already, or the same
    if not found.choices:
        return
    place = root / "-".join(question.labels)
    for name, profile in without.items():
        given_back(profile, whole[name], found).save(place / name)
    then, _ = compare_again(found.question, place)
    truth, _ = compare_again(found.question, root / "nothing")  # the shipped profiles, looked up
    print(
        f"{question.contest:16}  {'-'.join(found.question.labels):18} {len(found.choices):7}  "
        f"{found.seconds:7.1f}  {found.now:5.2f}  {found.expected:8.2f}  {then:6.2f}  {truth:17.2f}",
        flush=True,
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
        settling(CASES)
