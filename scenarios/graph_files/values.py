"""Values in files that people wrote: numbers checked, anything shown in short."""

from __future__ import annotations

import math
from typing import Any

from simulator.errors import InvalidInput

MOST = 1e24
"""Larger amounts of work or data are taken for errors."""


def shown(value: Any) -> str:
    """A value in at most 60 characters, quoted as Python would."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def number_of(value: Any, what: str) -> float:
    """A number from 0 to :data:`MOST`, of a number or a text.

    Raises:
        InvalidInput: it is none; ``what`` begins the sentence.
    """
    number = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not 0 <= number <= MOST:
        raise InvalidInput(f"{what} is {shown(value)}, not a number from 0 to {MOST:g}")
    return number
