"""How many examples the dear properties are tried on."""

from __future__ import annotations

import os


def examples(thoroughly: int) -> int:
    """A third of what ``HETSIM_THOROUGH=1`` tries: the examples that a check of every change can afford."""
    return thoroughly if os.environ.get("HETSIM_THOROUGH") else -(-thoroughly // 3)
