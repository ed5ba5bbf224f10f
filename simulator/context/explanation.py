"""How a decision is explained in one line."""

from __future__ import annotations

from collections.abc import Sequence


def compared(device: int, scores: Sequence[tuple[float, int]]) -> str:
    """The score of the chosen device beside those of the others.

    Args:
        device: the chosen one.
        scores: what was compared, the smaller the better, and the device.
    """
    own = next(score for score, other in scores if other == device)
    others = [score for score, other in scores if other != device]
    relation = "<" if all(own <= score for score in others) else "instead of"
    return f"{own:.6g} {relation} {', '.join(f'{s:.6g}' for s in others) or 'no other'}"
