"""How many examples the dear properties are tried on, and which dear cases are tried at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")


def examples(thoroughly: int) -> int:
    """A sixth of what ``HETSIM_THOROUGH=1`` tries: the examples that a check of every change can afford."""
    return thoroughly if os.environ.get("HETSIM_THOROUGH") else -(-thoroughly // 6)


def sample(thoroughly: int) -> int:
    """A third of a sample whose mean is held against a closed form."""
    return thoroughly if os.environ.get("HETSIM_THOROUGH") else -(-thoroughly // 3)


def only_thoroughly(*cases: Case) -> tuple[Case, ...]:
    """Cases of a test that ``HETSIM_THOROUGH=1`` alone tries: large ones, beside smaller that always are."""
    return cases if os.environ.get("HETSIM_THOROUGH") else ()


def one_in(step: int, cases: Sequence[Case], first: int) -> Sequence[Case]:
    """Every ``step``-th case from the ``first`` on, taken modulo ``step``; with ``HETSIM_THOROUGH=1`` all."""
    return cases if os.environ.get("HETSIM_THOROUGH") else cases[first % step :: step]
