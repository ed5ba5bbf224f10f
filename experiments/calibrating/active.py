"""What to measure next: where a device's cost model is least sure, per second that it takes.

A few boosted models are fitted to bootstrap samples of what is measured so far. For an operator not yet
measured their disagreement, and for its kind the error on rows that a model did not see, say how much
its measurement may teach; divided by the seconds that it takes it is the operator's score. Operators are
drawn with chances proportional to their scores, without replacement: the best alone would be many times
the same (stochastic batch acquisition, Kirsch et al. 2023, https://openreview.net/forum?id=vcHwQyNBjW).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from calibration.samples import OperatorSample
    from cost_models.roofline import Roofline

MEMBERS = 4
ROUNDS = 100
"""Models, and trees of each: they rank operators and price none."""
UNKNOWN = 0.4
"""Log error of a kind that was never measured, at least: a roofline's."""


@dataclass(frozen=True)
class Score:
    """Of each candidate.

    Attributes:
        value: float64[candidates], expected squared log error over seconds of measuring.
        seconds: float64[candidates], predicted time of one run.
        error: float64[candidates], expected log error.
    """

    value: np.ndarray
    seconds: np.ndarray
    error: np.ndarray


def scores(
    table: pd.DataFrame,
    roofline: Roofline,
    candidates: pd.DataFrame,
    seed: int = 0,
    members: int = MEMBERS,
) -> Score:
    """How much each candidate's measurement may teach for its time.

    Args:
        table: measurements in one cache state; at least two different operators.
        roofline: of the device.
        candidates: feature columns (:func:`cost_models.table.rows_of`).
        seed: of the bootstrap.
        members: models.
    """
    from calibration.process import CALLS, VISIT_SECONDS
    from cost_models.boosted import Boosted
    from cost_models.table import identities

    rng = np.random.default_rng([seed, 5])
    same = identities(table)
    names = np.unique(same)
    both = pd.concat([table, candidates], ignore_index=True)
    logs, unseen = [], []
    for member in range(members):
        counts = np.bincount(rng.integers(0, len(names), len(names)), minlength=len(names))
        drawn = np.isin(same, names[counts > 0])
        model = Boosted.fitted(
            table[drawn].reset_index(drop=True),
            roofline=roofline,
            seed=seed + member,
            rounds=ROUNDS,
        )
        logs.append(np.log(model.predict(both)))
        unseen.append(~drawn)
    found, out = np.array(logs), np.array(unseen)
    residual = np.abs(found[:, : len(table)] - np.log(table["seconds"].to_numpy()))
    known = pd.DataFrame(
        {"kind": np.tile(table["kind"], members)[out.ravel()], "error": residual[out]}
    )
    whole = float(known["error"].mean()) if len(known) else 1.0
    # Few rows of a kind say little of its error: two rows' worth of the whole come in.
    groups = known.groupby("kind")["error"]
    kinds = (groups.sum() + 2 * whole) / (groups.size() + 2)
    error = candidates["kind"].map(kinds).fillna(max(2 * whole, UNKNOWN)).to_numpy(dtype=float)
    new = found[:, len(table) :]
    seconds = np.exp(new.mean(axis=0))
    expected = np.sqrt(new.var(axis=0) + error**2)
    return Score(expected**2 / (VISIT_SECONDS + CALLS * seconds), seconds, expected)


def choose(score: Score, count: int, seed: int = 0) -> list[int]:
    """Positions of ``count`` candidates, drawn with chances proportional to their scores; ascending."""
    rng = np.random.default_rng([seed, 6])
    with np.errstate(divide="ignore"):
        keys = np.log(score.value) + rng.gumbel(size=len(score.value))
    return sorted(np.argsort(-keys, kind="stable")[:count].tolist())


def next_operators(
    table: pd.DataFrame,
    roofline: Roofline,
    pool: Sequence[OperatorSample],
    count: int,
    seed: int = 0,
) -> list[OperatorSample]:
    """``count`` operators of a pool, the likeliest to teach most for their time.

    Args:
        table: measurements in one cache state.
        roofline: of the device.
        pool: operators that are not measured yet.
        count: how many; all of the pool if it has no more.
        seed: of bootstrap and draws.
    """
    from cost_models.table import rows_of

    if len(pool) <= count:
        return list(pool)
    candidates = rows_of([sample.operator for sample in pool])
    candidates["dtype"] = [sample.dtype for sample in pool]
    if "cache" in table:
        candidates["cache"] = table["cache"].iloc[0]
    score = scores(table, roofline, candidates, seed)
    return [pool[position] for position in choose(score, count, seed)]
