"""How often P(win) comes true on hardware, by how much schedules are taken to be off beyond their operators' times.

    python -m tests.benchmarks.reliability [FOLDER ...]

For each saved validation (``docs/validation``, or those named): the draws that were saved with it, or, where there are none, of
every case anew, by the present profiles and code (ten minutes a folder on two cores; kept in ``outputs/benchmarks/reliability``,
so that the same command goes on), then P(win) of all pairs of schedulers for several ``simulation.discrepancy``, as their normal
distribution gives it. Prints the log score (smaller is better; .693 says nothing), how many pairs that are called separable came
out so, and how many of those with a P(win) of .7 to .9 and of .9 up to that. With several folders also what the discrepancy with the
best log score on the others reaches on each.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from experiments.validation.saved import Validation

SIGMAS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06)
KEPT = Path("outputs") / "benchmarks" / "reliability"
LEAST = 0.005
"""No P(win) counts as nearer to 0 or 1 than half of what 100 draws can tell."""


@dataclass(frozen=True)
class _Task:
    """A model of a folder, for whichever process takes it."""

    folder: Path
    number: int


@cache
def _validation(folder: Path) -> Validation:
    from experiments.validation.saved import load_validation

    return load_validation(folder)[0]


def _lead(task: _Task) -> list[tuple[np.ndarray, float]]:
    """Of each pair of schedulers float64[draws] log ratios of drawn makespans, and of the measured ones."""
    from experiments.runs.discrepancy import discrepancies
    from experiments.runs.prepare import prepare
    from experiments.runs.provenance import digest
    from experiments.validation.predicted_cases import Draws
    from experiments.validation.saved import present_contestant
    from experiments.validation.simulated_vs_measured import Prediction

    model = _validation(task.folder).models[task.number]
    kept = Draws(KEPT / f"{digest([str(task.folder), model.key])[:16]}.json")
    by_setting: dict[str, list[tuple[np.ndarray, float]]] = {}
    for saved, case in zip(model.contestants, model.cases, strict=True):
        group = by_setting.setdefault(case.setting, [])
        if len(case.draws_s):
            own = discrepancies(
                saved.scenario.simulation.discrepancy,
                *(case.simulated, len(case.draws_s), saved.scenario.seed.noise),
            )
            group.append((np.log(case.draws_s / own), np.log(case.measured_s)))
            continue
        simulation = replace(saved.scenario.simulation, discrepancy=0.0)
        one = present_contestant(
            replace(saved, scenario=replace(saved.scenario, simulation=simulation)), ()
        )
        if isinstance(one, str):
            raise SystemExit(one)
        prediction = Prediction(
            prepare(one.scenario, ()),
            *(model.slowed, model.handover, model.corun, model.noise, model.reuse),
            *(model.cooling, model.reading),
        )
        run = prediction.run(one, case.overhead, believed=case.believed)
        drawn = kept.get(prediction, one, case.overhead, run, case.believed)
        group.append((np.log(drawn), np.log(case.measured_s)))
    return [
        (b - a, float(y - x))
        for group in by_setting.values()
        for (a, x), (b, y) in itertools.combinations(group, 2)
    ]


def judged(
    leads: Sequence[tuple[np.ndarray, float]], sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Of each pair P(win) of the first, and whether it was the shorter on hardware."""
    from scipy.special import ndtr

    from experiments.comparison.statistics import TIE

    drawn = np.array([lead for lead, _ in leads])
    if sigma:
        shares = ndtr(drawn / (np.sqrt(2) * sigma))
    else:
        shares = np.where(np.abs(drawn) <= TIE, 0.5, drawn > 0)
    return shares.mean(axis=1), np.array([measured > 0 for _, measured in leads])


def scored(leads: Sequence[tuple[np.ndarray, float]], sigma: float) -> tuple[float, int, int]:
    """Log score, pairs that are called separable, and how many of these came out so."""
    from experiments.comparison.statistics import SEPARABLE

    said, won = judged(leads, sigma)
    bounded = np.clip(said, LEAST, 1 - LEAST)
    score = -np.log(np.where(won, bounded, 1 - bounded)).mean()
    return float(score), *came_true(leads, sigma, SEPARABLE, 1.0)


def came_true(
    leads: Sequence[tuple[np.ndarray, float]], sigma: float, low: float, high: float
) -> tuple[int, int]:
    """How many pairs have the P(win) of whom it favours between the two, and in how many that one was the shorter."""
    said, won = judged(leads, sigma)
    sure = np.maximum(said, 1 - said)
    among = (sure >= low) & (sure <= high)
    return int(among.sum()), int((among & ((said > 0.5) == won)).sum())


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    from experiments.comparison.statistics import SEPARABLE
    from experiments.runs.pool import WorkerDiedError, available_cores, work_through
    from experiments.runs.results import read_document

    folders = [Path(text) for text in arguments or ["docs/validation"]]
    tasks = [
        _Task(folder, number)
        for folder in folders
        for number in range(len(read_document(folder / "validation.json")["models"]))
    ]
    found: dict[Path, list[tuple[np.ndarray, float]]] = {folder: [] for folder in folders}
    work = work_through([(str(task), task) for task in tasks], _lead, available_cores())
    for number, (task, answer) in enumerate(work, 1):
        if isinstance(answer, WorkerDiedError):
            raise SystemExit(f"A process died over {task}; the same command goes on")
        found[task.folder] += answer
        print(f"{number} of {len(tasks)} models drawn", file=sys.stderr)
    scores = {folder: [scored(leads, s) for s in SIGMAS] for folder, leads in found.items()}
    for folder, leads in found.items():
        print(f"{folder}: {len(leads)} pairs")
        print("discrepancy  log score  separable  came out so   .7 to .9    up to separable")
        for sigma, (score, sure, right) in zip(SIGMAS, scores[folder], strict=True):
            print(f"{sigma:11.3f}  {score:9.3f}  {sure:9d}  {right / max(sure, 1):11.1%}", end="")
            for low, high in ((0.7, 0.9), (0.9, SEPARABLE)):
                pairs, so = came_true(leads, sigma, low, np.nextafter(high, 0.0))
                print(f"  {so / max(pairs, 1):5.1%} of {pairs:4d}", end="")
            print()
    for folder in folders if len(folders) > 1 else ():
        others = [scores[other] for other in folders if other != folder]
        best = int(
            np.argmin([np.mean([rows[i][0] for rows in others]) for i in range(len(SIGMAS))])
        )
        score, sure, right = scores[folder][best]
        print(
            f"{folder} with {SIGMAS[best]}, the best of the others: log score {score:.3f} (without "
            f"{scores[folder][0][0]:.3f}), {right} of {sure} separable pairs came out so"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
