"""Names of operators of a training step over micro-batches: each ends in its phase and its micro-batch.

``conv1#F3`` computes micro-batch 3 forward, ``conv1/grad#B3`` backward. Micro-batches count from 0. Updates have a
micro-batch only where each one is followed by an update (``step#U3``); one on a replica of the first device has the
replica's number (``step#U@1``). What sums gradients over devices ends in ``#C``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

PHASES = {
    "F": "forward",
    "B": "backward",
    "W": "weight gradient",
    "R": "recomputation",
    "U": "update",
    "C": "communication",
}
"""Letters and what they stand for."""

_TAG = re.compile(r"#(?:([FBWR])(\d+)|U(?:(\d+)|@\d+)?|C)\Z")


class Tag(NamedTuple):
    """What an operator does for which micro-batch; None: for all of them."""

    phase: str
    micro_batch: int | None = None


def tagged(name: str, phase: str, micro_batch: int | None = None, replica: int = 0) -> str:
    """A name with its tag.

    Args:
        name: of the operator in the step of one micro-batch.
        phase: one of :data:`PHASES`.
        micro_batch: None for updates after all micro-batches, and for communication.
        replica: of updates after all micro-batches.
    """
    number = "" if micro_batch is None else str(micro_batch)
    return f"{name}#{phase}{number}" + (f"@{replica}" if replica else "")


def tag_of(name: str) -> Tag | None:
    """The tag of a name, None if it has none."""
    # Most names of most graphs have none, which this says faster.
    found = _TAG.search(name) if "#" in name else None
    if found is None:
        return None
    number = found[2] or found[3]
    return Tag(found[0][1], None if number is None else int(number))


def in_step(name: str, step: int, micro_batches: int) -> str:
    """A name in one of several steps in a row, ``conv1#1#F7`` for ``conv1#F3``: micro-batches count on.

    Args:
        name: of the operator in one step.
        step: which, from 0.
        micro_batches: of each step.
    """
    found = _TAG.search(name)
    if found is None:
        return f"{name}#{step}"
    number = found[2] or found[3]
    tag = found[0] if number is None else f"{found[0][:2]}{int(number) + step * micro_batches}"
    return f"{name[: found.start()]}#{step}{tag}"


def tags_of(names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Tags of many names.

    Returns:
        int64[names], the number of each one's phase in the order of :data:`PHASES`, -1 without a tag; and
        int64[names], its micro-batch, -1 for none.
    """
    number = {phase: place for place, phase in enumerate(PHASES)}
    rows = [
        (-1, -1)
        if (tag := tag_of(name)) is None
        else (number[tag.phase], -1 if tag.micro_batch is None else tag.micro_batch)
        for name in names
    ]
    phase, micro_batch = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return phase, micro_batch


__all__ = ["PHASES", "Tag", "in_step", "tag_of", "tagged", "tags_of"]
