"""A learnt scheduler of staged jobs (family ``staged_jobs``): training on the simulator, and its evaluation.

    python -m experiments.shop_policy train [seeds=3] [iterations=80] [objective=makespan] [file=mine.safetensors]
    python -m experiments.shop_policy evaluate [file=mine.safetensors] [sequences=30]

``train`` trains a policy for each seed and writes the one that did best in validation, and the curves of all as
a figure and CSV. An interrupted training goes on where it last validated when the same command is given again.
``evaluate`` runs the policy and seven other schedulers on the held-out mixes of jobs and prints by how much it is
shorter, with 95% intervals of the paired differences. ``objective=job_time`` trains for the mean time from a
job's arrival to its end. Both leave what they found in ``outputs/policies``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.runs import atomic
from experiments.runs.command import key_values, number, report_errors
from experiments.runs.help import answered
from experiments.runs.progress import progress_bar
from experiments.runs.provenance import digest
from experiments.studies.shop_policy.evaluation import LEARNT, OTHERS, Evaluation, evaluate
from experiments.studies.shop_policy.mixes import HELD_OUT
from experiments.studies.shop_policy.plot import draw_curves, draw_evaluation
from experiments.studies.shop_policy.training import OBJECTIVES, Training, train
from simulator.schedulers._stage_policy import StagePolicy, load_policy
from simulator.support.shipped import find_file

KEYS = {
    "train": ("seeds", "iterations", "objective", "file", "output_dir"),
    "evaluate": ("file", "sequences", "output_dir"),
}
SHIPPED = "conf/predictors/staged_jobs.safetensors"


def train_policy(given: Mapping[str, str], console: Console) -> StagePolicy:
    """See the module docstring.

    Raises:
        InvalidInput: a number is out of range, or a file cannot be read or written.
    """
    seeds = number(given, "seeds", 3, 100)
    settings = Training(
        objective=given.get("objective", OBJECTIVES[0]),
        iterations=number(given, "iterations", Training.iterations, 100_000),
    )
    name = f"{settings.objective}-{digest(asdict(settings))[:12]}"
    folder = Path(given.get("output_dir", "outputs")) / "policies" / name
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    with progress_bar(console) as progress:
        for seed in range(seeds):
            task = progress.add_task(f"seed {seed}", total=settings.iterations)

            def show(done: int, share: float, task: object = task, seed: int = seed) -> None:
                text = f"seed {seed}: {share:.1%} of FIFO's" if share == share else f"seed {seed}"
                progress.update(task, completed=done, description=text)  # type: ignore[arg-type]

            found[seed] = train(settings, seed, folder / f"seed-{seed}.safetensors", show)
    best = min(found, key=lambda seed: (found[seed][1].best, seed))
    command = (
        f"python -m experiments.shop_policy train seeds={seeds} iterations={settings.iterations} "
        f"objective={settings.objective}"
    )
    policy = found[best][0]
    notes = {"command": command, "seed": best, "validation_share_of_fifo": found[best][1].best}
    policy = StagePolicy(policy.weights, policy.biases, notes)
    file = policy.save(given.get("file", folder / "policy.safetensors"))
    curves = {seed: state.curve for seed, (_, state) in found.items()}
    draw_curves(curves, settings.objective, folder / "curve")
    atomic.write_text(folder / "command.txt", command + "\n")
    for seed, (_, state) in found.items():
        mark = ", kept" if seed == best else ""
        console.print(f"seed {seed}: {state.best:.1%} of FIFO's {settings.objective}{mark}")
    console.print(f"wrote {file}, {folder}/", style="dim", soft_wrap=True, markup=False)
    return policy


def evaluate_policy(given: Mapping[str, str], console: Console) -> Evaluation:
    """See the module docstring.

    Raises:
        InvalidInput: a number is out of range, or the file holds no policy of these features.
    """
    sequences = number(given, "sequences", 30, 10_000)
    file = find_file(given.get("file", SHIPPED))
    policy = load_policy(file)
    with progress_bar(console) as progress:
        task = progress.add_task("sequences", total=sequences * len(HELD_OUT))
        found = evaluate(policy, sequences, progress=lambda: progress.advance(task))
    folder = Path(given.get("output_dir", "outputs")) / "policies" / f"evaluation-{file.stem}"
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder / "sequences.csv", found.table().to_csv(index=False))
    draw_evaluation(found, folder / "evaluation")
    _print(found, sequences, console)
    for failure in found.failures():
        console.print(f"fails: {failure}", soft_wrap=True, markup=False)
    console.print(f"wrote {folder}/", style="dim", soft_wrap=True, markup=False)
    return found


def _print(found: Evaluation, sequences: int, console: Console) -> None:
    wide = Console(highlight=False, width=max(console.width, 132))
    for objective in OBJECTIVES:
        console.print(
            f"[bold]{LEARNT}'s {objective.replace('_', ' ')} is shorter by[/] (%, with 95% intervals; {sequences} held-out "
            "sequences of each mix)",
            soft_wrap=True,
        )
        table = Table(box=None, pad_edge=False)
        table.add_column("than that of", no_wrap=True)
        for other in OTHERS:
            table.add_column(other, justify="right", no_wrap=True)
        for mix in found.seconds:
            cells = []
            for other in OTHERS:
                share, around = found.gain(mix, other, objective=objective)
                between = (
                    "" if around is None else f"\n{100 * around.low:.1f} to {100 * around.high:.1f}"
                )
                cells.append(f"{100 * share:.1f}{between}")
            table.add_row(mix, *cells)
        wide.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    if answered("shop_policy", arguments):
        return 0
    parser = argparse.ArgumentParser(prog="python -m experiments.shop_policy", add_help=False)
    parser.add_argument("what", choices=list(KEYS))
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE")
    parsed = parser.parse_args(arguments)
    console = Console(highlight=False)

    def run() -> None:
        given = key_values(f"shop_policy {parsed.what}", parsed.options, KEYS[parsed.what])
        (train_policy if parsed.what == "train" else evaluate_policy)(given, console)

    return report_errors(run)


if __name__ == "__main__":
    sys.exit(main())
