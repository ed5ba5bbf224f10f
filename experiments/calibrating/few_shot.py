"""Which few operators to measure when another device's profile is the starting point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from calibration.samples import OperatorSample
    from cost_models.profile import Profile


def few_operators(
    samples: Sequence[OperatorSample], start: Profile, count: int
) -> list[OperatorSample]:
    """Operators of the kinds in which models spend their time, far from one another in size.

    Kinds get numbers in proportion to the square root of their time, priced by ``start``, over the
    operators that occur in models (all, where none does): the largest kind needs most, and not all.
    Within a kind the longest comes first, then always the one that is farthest from those chosen.

    Args:
        samples: to choose from.
        start: the other device's profile.
        count: how many.

    Returns:
        ``count`` of them, or all if there are no more; in their order.
    """
    from cost_models.adapted import axes_of
    from cost_models.table import rows_of

    if len(samples) <= count:
        return list(samples)
    operators = [sample.operator for sample in samples]
    seconds = start.price(operators).seconds
    kinds = np.array([operator.kind for operator in operators], dtype=object)
    used = np.array([bool(sample.architectures) for sample in samples])
    weight = seconds * used if used.any() else seconds
    axes = axes_of(rows_of(operators))
    members = {kind: np.flatnonzero(kinds == kind) for kind in sorted(set(kinds))}
    shares = {kind: float(np.sqrt(weight[rows].sum())) for kind, rows in members.items()}
    numbers = _apportioned(shares, {kind: len(rows) for kind, rows in members.items()}, count)
    chosen: list[int] = []
    for kind, rows in members.items():
        chosen += _spread_out(rows, seconds[rows], axes[rows], numbers[kind])
    return [samples[position] for position in sorted(chosen)]


def _apportioned(shares: dict[str, float], room: dict[str, int], count: int) -> dict[str, int]:
    """``count`` seats by D'Hondt's method, no kind with more than it has room for."""
    numbers = dict.fromkeys(shares, 0)
    for _ in range(min(count, sum(room.values()))):
        open_kinds = [kind for kind in shares if numbers[kind] < room[kind]]
        best = max(open_kinds, key=lambda kind: shares[kind] / (numbers[kind] + 1))
        numbers[best] += 1
    return numbers


def _spread_out(rows: np.ndarray, seconds: np.ndarray, axes: np.ndarray, count: int) -> list[int]:
    """``count`` of ``rows``: the longest, then the farthest from all before."""
    if not count:
        return []
    found = [int(np.argmax(seconds))]
    nearest = np.linalg.norm(axes - axes[found[0]], axis=1)
    while len(found) < count:
        nearest[found] = -1.0
        found.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, np.linalg.norm(axes - axes[found[-1]], axis=1))
    return [int(rows[position]) for position in found]
