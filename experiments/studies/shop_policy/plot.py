"""The curve of a training, and a policy beside other schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.plots.style import (
    COLOURS,
    DASHES,
    MARKERS,
    ONE_COLUMN,
    TWO_COLUMNS,
    figure_style,
    new_figure,
    save_figure,
)
from experiments.studies.shop_policy.evaluation import LEARNT, OTHERS, Evaluation


def draw_curves(
    curves: Mapping[int, Sequence[tuple[int, float, float]]], objective: str, stem: Path
) -> list[Path]:
    """The validations of each seed by iteration, and the entropy below them."""
    import pandas as pd

    with figure_style():
        figure = new_figure(ONE_COLUMN, 3.2)
        above, below = figure.subplots(2, sharex=True)
        for number, (seed, curve) in enumerate(curves.items()):
            iterations, shares, entropies = np.array(curve).T
            look = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": DASHES[number % len(DASHES)],
            }
            above.plot(iterations, 100 * shares, label=f"seed {seed}", **look)
            below.plot(iterations, entropies, **look)
        above.set_ylabel(f"{objective.replace('_', ' ')}\n(% of FIFO's)")
        below.set_ylabel("entropy\n(nats/decision)")
        below.set_ylim(bottom=0)
        below.set_xlabel("iteration")
        figure.legend(loc="outside upper center", ncols=3)
        data = pd.DataFrame(
            [(seed, *row) for seed, curve in curves.items() for row in curve],
            columns=["seed", "iteration", "share_of_fifo", "entropy_nats"],
        )
        caption = "Validation by the best choice of each decision; mean over sequences of jobs that no training has."
        return save_figure(figure, stem, data, caption)


def draw_evaluation(evaluation: Evaluation, stem: Path) -> list[Path]:
    """How much shorter than under fair sharing the makespan is: a panel row for each mix, a mark for each scheduler."""
    import pandas as pd

    methods = [name for name in (LEARNT, *OTHERS) if name != "fair_sharing"]
    rows = []
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 0.6 + 0.36 * len(evaluation.seconds))
        axis = figure.subplots()
        for number, method in enumerate(methods):
            for place, mix in enumerate(evaluation.seconds):
                share, around = evaluation.gain(mix, "fair_sharing", method)
                low, high = (share, share) if around is None else (around.low, around.high)
                rows.append((mix, method, share, low, high))
                axis.errorbar(
                    100 * share, place + 0.11 * (number - (len(methods) - 1) / 2),
                    xerr=[[100 * (share - low)], [100 * (high - share)]],
                    fmt=MARKERS[number], color=COLOURS[(0, 5, 2, 1, 4, 7, 3)[number]], markersize=3.5, linewidth=0.8,
                    label=method if place == 0 else None,
                )  # fmt: skip
        for line in range(1, len(evaluation.seconds)):
            axis.axhline(line - 0.5, color="#DDDDDD", linewidth=0.5)
        axis.axvline(0, color="black", linewidth=0.7)
        axis.set_yticks(range(len(evaluation.seconds)), list(evaluation.seconds))
        axis.set_ylim(len(evaluation.seconds) - 0.5, -0.5)
        axis.set_xlabel("makespan below fair sharing's (%)")
        figure.legend(loc="outside upper center", ncols=7)
        columns = ["mix", "scheduler", "below_fair_sharing", "low", "high"]
        caption = (
            "Means of paired shares over held-out sequences; whiskers are their 95% intervals."
        )
        return save_figure(figure, stem, pd.DataFrame(rows, columns=columns), caption)
