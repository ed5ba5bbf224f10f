"""Exit tables by real training: a multi-exit network on scikit-learn's digits, trained in three ways.

    python -m experiments.train_exits [seeds=5] [epochs=20] [table=scenarios/serving/exit_tables/digits.csv]

Every seed splits the images, initialises and trains anew; all ways of a seed meet the same split, the same
initial weights and the same order of images. Leaves in ``outputs/exits`` the table, the weights as
safetensors, and ``summary.txt``: what each exit lets go and gets right, and which way of training wins, with
95% intervals (Student's t) of the paired differences over the seeds. ``weights=FOLDER`` makes the table again
from saved weights, without training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from experiments.comparison.statistics import verdict
from experiments.runs import atomic
from experiments.runs.command import key_values, number, report_errors
from experiments.runs.help import answered
from experiments.runs.progress import progress_bar
from scenarios.serving.exit_table import THRESHOLDS, Counts, ExitTable, count_exits

KEYS = ("seeds", "epochs", "head_epochs", "table", "weights", "output_dir")
SHOWN = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Thresholds of the printed tables."""
BASE = "separate"
MOST_SEEDS = 100


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences over the seeds and its 95% interval (Student's t)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Difference:
        """From one difference for each seed, two seeds at least."""
        from scipy.stats import t

        column = np.array(values)
        mean = float(column.mean())
        half = float(t.ppf(0.975, len(column) - 1) * column.std(ddof=1) / np.sqrt(len(column)))
        return cls(mean, mean - half, mean + half)

    @property
    def text(self) -> str:
        """``+0.52 [+0.10, +0.94] points``."""
        low, high = 100 * self.low, 100 * self.high
        return f"{100 * self.mean:+.2f} [{low:+.2f}, {high:+.2f}]"

    @property
    def verdict(self) -> int:
        """1 above 0, -1 below, 0 not separable from it."""
        return verdict(self.low, self.high) or 0


def make_table(
    seeds: int,
    epochs: int,
    head_epochs: int,
    folder: Path,
    weights: Path | None,
    console: Console,
) -> ExitTable:
    """Train every way with every seed, or read their weights; keep the weights in ``folder``."""
    import torch

    from scenarios.serving import exit_training

    training = exit_training.Training(epochs=epochs, head_epochs=head_epochs)
    counts: dict[tuple[str, int, float, int, int], Counts] = {}
    torch.set_num_threads(1)  # so small a network is slower on several
    with progress_bar(console) as progress:
        task = progress.add_task("training", total=seeds * len(exit_training.WAYS))
        for way in exit_training.WAYS:
            for seed in range(seeds):
                progress.update(task, description=f"{way}, seed {seed}")
                data = exit_training.digits(seed, training.test_share)
                name = f"{way}-{seed}.safetensors"
                if weights is not None:
                    network = exit_training.load_weights(training, weights / name)
                else:
                    network = exit_training.train(way, data, training, seed)
                    with atomic.replacing(folder / name) as temporary:
                        exit_training.save_weights(network, temporary)
                found = exit_training.outcomes(network, data)
                for key, value in count_exits(found.confidence, found.correct, THRESHOLDS).items():
                    counts[way, seed, *key] = value
                progress.advance(task)
    return ExitTable(counts)


def accuracy(
    table: ExitTable, way: str, threshold: float, exits: Sequence[int], seed: int
) -> float:
    """Share of right answers of the network with these exits."""
    found = table.counts(way, threshold, exits, seed)
    return (sum(found.right) + found.right_last) / found.samples


def early_share(
    table: ExitTable, way: str, threshold: float, exits: Sequence[int], seed: int
) -> float:
    """Share of samples that leave before the final exit."""
    found = table.counts(way, threshold, exits, seed)
    return sum(found.left) / found.samples


def summary(table: ExitTable) -> list[str]:
    """What the module docstring says, as Markdown."""
    layers = table.layers
    seeds = len(table.seeds)
    lines = [
        f"{layers} blocks, {seeds} seeds, "
        f"{table.counts(BASE, table.thresholds[0], ()).samples // seeds} held-out images each",
        "",
        "Each exit alone: share that leaves there (accuracy of those that leave), means over the seeds",
        "",
        f"| threshold | way | {' | '.join(f'exit {n}' for n in range(1, layers))} | final, all samples |",
        "|" + "---|" * (layers + 2),
    ]
    for threshold in SHOWN:
        for way in table.ways:
            cells = []
            for exit_ in range(1, layers):
                shares = table.shares(way, threshold, (exit_,))
                cells.append(f"{shares.leave[0]:.0%} ({shares.accuracy[0]:.1%})")
            last = table.shares(way, threshold, ()).last
            lines.append(f"| {threshold} | {way} | {' | '.join(cells)} | {last:.2%} |")
    lines += ["", *_comparison(table)]
    return lines


def _comparison(table: ExitTable) -> list[str]:
    others = [way for way in table.ways if way != BASE]
    if len(table.seeds) < 2:
        return ["One seed says nothing of which way wins."]
    pair = (table.layers // 3, 2 * table.layers // 3)
    lines = [
        f"Against {BASE}, in points (hundredths), 95% intervals over the seeds; two exits: after blocks "
        f"{pair[0]} and {pair[1]}",
        "",
        f"| what | {' | '.join(others)} |",
        "|" + "---|" * (len(others) + 1),
    ]
    rows: list[tuple[str, Mapping[str, Difference]]] = [
        (
            "accuracy of the final exit alone",
            {way: _difference(table, accuracy, way, table.thresholds[0], ()) for way in others},
        )
    ]
    for threshold in SHOWN:
        for what, figure in (("accuracy", accuracy), ("leave early", early_share)):
            rows.append(
                (
                    f"two exits, threshold {threshold}: {what}",
                    {way: _difference(table, figure, way, threshold, pair) for way in others},
                )
            )
    for what, found in rows:
        lines.append(f"| {what} | {' | '.join(found[way].text for way in others)} |")
    lines.append("")
    compared = [(what, found) for what, found in rows if what.endswith(("accuracy", "alone"))]
    for way in others:
        verdicts = [found[way].verdict for _, found in compared]
        better, worse = verdicts.count(1), verdicts.count(-1)
        lines.append(
            f"{way} against {BASE}, accuracy: better in {better}, worse in {worse}, not separable in "
            f"{verdicts.count(0)} of {len(verdicts)} comparisons"
        )
    return lines


def _difference(
    table: ExitTable, figure: object, way: str, threshold: float, exits: Sequence[int]
) -> Difference:
    assert callable(figure)
    return Difference.of(
        [
            figure(table, way, threshold, exits, seed) - figure(table, BASE, threshold, exits, seed)
            for seed in table.seeds
        ]
    )


def train_exits(given: Mapping[str, str], console: Console | None = None) -> ExitTable:
    """The command.

    Raises:
        InvalidInput: a number out of range, no scikit-learn, or weights that do not fit.
    """
    console = console or Console()
    seeds = number(given, "seeds", 5, MOST_SEEDS)
    epochs = number(given, "epochs", 20, 10_000)
    head_epochs = number(given, "head_epochs", epochs, 10_000)
    folder = Path(given.get("output_dir", "outputs")) / "exits"
    folder.mkdir(parents=True, exist_ok=True)
    weights = Path(given["weights"]) if "weights" in given else None
    table = make_table(seeds, epochs, head_epochs, folder, weights, console)
    command = f"python -m experiments.train_exits seeds={seeds} epochs={epochs}"
    if head_epochs != epochs:
        command += f" head_epochs={head_epochs}"
    comment = (
        f"{command}\n8-block multi-exit CNN on scikit-learn's digits; "
        "scenarios/serving/exit_table.py says what the columns are"
    )
    path = Path(given.get("table", folder / "table.csv"))
    atomic.write_text(path, table.text(comment))
    lines = summary(table)
    atomic.write_text(folder / "summary.txt", "\n".join([command, "", *lines]) + "\n")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True, highlight=False)
    console.print(f"wrote {path}, {folder}/", style="dim", soft_wrap=True, markup=False)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    if answered("train_exits", arguments):
        return 0
    parser = argparse.ArgumentParser(prog="python -m experiments.train_exits", add_help=False)
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE")
    parsed = parser.parse_args(arguments)

    def run() -> None:
        train_exits(key_values("train_exits", parsed.options, KEYS))

    return report_errors(run)


if __name__ == "__main__":
    sys.exit(main())
