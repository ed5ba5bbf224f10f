"""Which kinds of operators share a fitted function, and which have one of their own.

A kind that multiplies matrices (convolution, linear layer, attention, ...) has its own. All kinds that
stream through memory share one in which the kind is a feature: they differ by little more than a
constant.

Where operators were measured in several element types, the one with most rows has a function of its own
beside that of all: the others, few and of other kernels, would tell it more that is wrong than right. They
themselves learn from all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from cost_models.features import Values

OWN_MODEL = 40
"""Rows that a kind needs for a function of its own; with fewer it joins the shared one."""
SHARED = "*"
COMPUTING = ("float64", "float32", "tf32", "float16", "bfloat16")
"""Element types in which kernels compute; of integers and truth values there are copies."""
_OF_TYPE = "@"
"""Between a group's kind and the element type that has most of its rows."""


def groups_of(
    kinds: np.ndarray,
    dtypes: np.ndarray,
    values: Sequence[Values],
    only: Collection[str] | None = None,
    own_model: int = OWN_MODEL,
) -> dict[str, np.ndarray]:
    """Rows of each group, by the name of its kind or :data:`SHARED`.

    Where a group's rows compute in several element types, that with most of them has a group besides,
    ``kind@type``, if those are enough.

    Args:
        kinds: of each row.
        dtypes: of each row.
        values: features of each row; what has ``flops`` multiplies matrices.
        only: no more groups than pricing these kinds needs; None for all.
        own_model: rows that a kind needs for itself, and an element type.

    Returns:
        int64 row positions by label.
    """
    multiplies = np.array([row["flops"] > 0 for row in values], dtype=bool)
    groups: dict[str, np.ndarray] = {}
    left = np.ones(len(kinds), dtype=bool)
    for kind in sorted({str(k) for k in kinds}):
        of_kind = kinds == kind
        if of_kind.sum() >= own_model and multiplies[of_kind].any():
            left &= ~of_kind
            if only is None or kind in only:
                groups[kind] = np.flatnonzero(of_kind)
    shared = {str(k) for k in kinds[left]}
    # A kind that was never measured takes the shared function's correction.
    own = {str(k) for k in kinds} - shared
    if left.any() and (only is None or not {*only} <= own):
        groups[SHARED] = np.flatnonzero(left)
    for label, rows in [*groups.items()]:
        found, counts = np.unique(dtypes[rows].astype(str), return_counts=True)
        computing = np.isin(found, COMPUTING)
        if computing.sum() > 1:
            most = int(np.argmax(np.where(computing, counts, -1)))
            if counts[most] >= own_model:
                own_type = rows[dtypes[rows] == found[most]]
                groups[f"{label}{_OF_TYPE}{found[most]}"] = own_type
    return groups


def rows_by_group(
    kinds: np.ndarray,
    dtypes: np.ndarray,
    multiplies: np.ndarray,
    labels: Collection[str],
    shared: Collection[str],
) -> dict[str, np.ndarray]:
    """Row positions by the group that prices them; not those that none does.

    Args:
        kinds: of each row.
        dtypes: of each row; one that has a group of its own is priced by that.
        multiplies: whether a row multiplies matrices.
        labels: of the groups.
        shared: kinds that the shared group was fitted to. A kind never measured takes its correction
            if it streams, as those do: of a product that is none of them it says nothing.
    """
    found = {}
    alone = [label for label in labels if _OF_TYPE not in label]
    own = np.isin(kinds, [label for label in alone if label != SHARED])
    for label in alone:
        if label == SHARED:
            chosen = ~own & (~multiplies | np.isin(kinds, list(shared)))
        else:
            chosen = kinds == label
        for other in labels:
            kind, of_type, dtype = other.partition(_OF_TYPE)
            if of_type and kind == label:
                there = chosen & (dtypes == dtype)
                if there.any():
                    found[other] = np.flatnonzero(there)
                chosen = chosen & ~there
        if chosen.any():
            found[label] = np.flatnonzero(chosen)
    return found
