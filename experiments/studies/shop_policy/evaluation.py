"""A trained policy beside other schedulers on mixes of jobs that are held out, the same jobs for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.bootstrap import FEWEST
from experiments.comparison.statistics import Interval, bootstrap_mean, reduction, verdict
from experiments.studies.shop_policy.mixes import HELD_OUT
from experiments.studies.shop_policy.training import OBJECTIVES, outcome, run
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.schedulers import create
from simulator.schedulers._stage_policy import StagePolicy
from simulator.schedulers.learnt import Learnt

if TYPE_CHECKING:
    import pandas as pd

LEARNT = "learnt"
MOST_OF_CRITICAL_PATH = 1 / 0.9
"""A policy passes whose mean makespan on every mix is at most so many times that of the critical path."""
OTHERS: Mapping[str, Callable[[int], Scheduler]] = {
    "contention_free": lambda seed: create("contention_free"),
    "critical_path": lambda seed: create("contention_free", rule="critical_path"),
    "shortest_job": lambda seed: create("contention_free", rule="shortest_job"),
    "fifo": lambda seed: create("contention_free", rule="fifo"),
    "random": lambda seed: create("contention_free", rule="random", seed=seed),
    "delay_stage": lambda seed: create("delay_stage"),
    "fair_sharing": lambda seed: create("olb"),
}
"""Schedulers that a policy is compared with, by name; each function takes the seed of a sequence of jobs."""


@dataclass(frozen=True)
class Evaluation:
    """Seconds of every scheduler on the same sequences.

    Attributes:
        seconds: by mix, objective (:data:`OBJECTIVES`) and scheduler, of each sequence.
    """

    seconds: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]

    def gain(
        self, mix: str, other: str, method: str = LEARNT, objective: str = "makespan"
    ) -> tuple[float, Interval | None]:
        """By how much ``method`` is shorter than ``other``, as a mean share over a mix's sequences, and the 95%
        interval of that mean; None with too few sequences.
        """
        rows = self.seconds[mix][objective]
        shares = reduction(rows[method], rows[other])
        return float(shares.mean()), bootstrap_mean(shares) if len(shares) >= FEWEST else None

    def overall(self, other: str, method: str = LEARNT) -> tuple[float, Interval | None]:
        """:meth:`gain` of the makespan over the sequences of all mixes."""
        shares = np.concatenate(
            [
                reduction(rows["makespan"][method], rows["makespan"][other])
                for rows in self.seconds.values()
            ]
        )
        return float(shares.mean()), bootstrap_mean(shares) if len(shares) >= FEWEST else None

    def failures(self) -> list[str]:
        """Which of the criteria a policy misses, in words; none: it passes.

        It must beat random and FIFO over all held-out sequences, with an interval of 95% that excludes 0, and
        its mean makespan on every mix be at most the critical path's / 0.9.
        """
        found = []
        for other in ("random", "fifo"):
            share, around = self.overall(other)
            if around is None or verdict(around.low, around.high) != 1:
                found.append(f"it does not beat {other} (shorter by {share:.1%})")
        for mix, rows in self.seconds.items():
            ratio = rows["makespan"][LEARNT].mean() / rows["makespan"]["critical_path"].mean()
            if ratio > MOST_OF_CRITICAL_PATH:
                found.append(f"on '{mix}' it takes {ratio:.3f} times as long as the critical path")
        return found

    def table(self) -> pd.DataFrame:
        """A row for each mix, sequence and scheduler."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"mix": mix, "seed": seed, "scheduler": name}
                | {f"{objective}_s": rows[objective][name][seed] for objective in OBJECTIVES}
                for mix, rows in self.seconds.items()
                for name in rows["makespan"]
                for seed in range(len(rows["makespan"][name]))
            ]
        )


def evaluate(
    policy: StagePolicy,
    sequences: int,
    names: Sequence[str] = tuple(HELD_OUT),
    others: Sequence[str] = tuple(OTHERS),
    progress: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Run every scheduler on the sequences of seeds 0, 1, ... of each mix.

    Args:
        policy: the learnt one's.
        sequences: of each mix.
        names: of mixes.
        others: of :data:`OTHERS`.
        progress: called after each sequence.

    Raises:
        InvalidInput: no such mix.
    """
    found = {}
    for name in names:
        if name not in HELD_OUT:
            raise InvalidInput(f"There is no held-out mix '{name}'; known: {', '.join(HELD_OUT)}")
        rows: dict[str, dict[str, list[float]]] = {objective: {} for objective in OBJECTIVES}
        for seed in range(sequences):
            sequence = HELD_OUT[name].draw(seed)
            for method in (LEARNT, *others):
                scheduler = Learnt(policy=policy) if method == LEARNT else OTHERS[method](seed)
                trace = run(sequence, scheduler)
                for objective in OBJECTIVES:
                    rows[objective].setdefault(method, []).append(outcome(trace, objective))
            progress()
        found[name] = {o: {m: np.array(v) for m, v in r.items()} for o, r in rows.items()}
    return Evaluation(found)
