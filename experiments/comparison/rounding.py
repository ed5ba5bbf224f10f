"""Numbers as tables show them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_TIME_UNITS = ((1e1, 1.0, "s"), (1e-4, 1e3, "ms"), (0.0, 1e6, "us"))


def time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Factor and name of the unit for a column of makespans: ms unless all are far from it."""
    values = sorted(seconds)
    middle = values[len(values) // 2] if values else 1.0
    return next((factor, unit) for least, factor, unit in _TIME_UNITS if middle >= least)


def decimals(value: float) -> int:
    """Decimals that a figure is shown with: three digits or four."""
    return 0 if value >= 1000 else 1 if value >= 10 else 2 if value >= 1 else 3


def figure(value: float) -> str:
    """A positive figure, rounded to three digits or four."""
    return f"{value:.{decimals(value)}f}"


def ratio(value: float) -> str:
    """``1.38x``; ``-`` where unknown."""
    return "-" if math.isnan(value) else f"{value:.2f}x"


def gap(value: float) -> str:
    """``<= 9%``; ``-`` where unknown."""
    if math.isnan(value):
        return "-"
    if abs(value) < 1e-9:
        return "optimal"
    # Rounded up, to stay true. Below 0 only where noise made operators faster than the bound's times.
    return f"<= {math.ceil(100 * value - 1e-6)}%"


def probability(value: float | None, spaced: bool = False) -> str:
    """``.97``; ``>.99`` instead of a certainty that draws cannot give."""
    assert value is not None
    if value > 0.99:
        return "> .99" if spaced else ">.99"
    return f"{value:.2f}".removeprefix("0")


def percent(share: float) -> str:
    """A share as ``21%``."""
    return f"{number(share)}%"


def number(share: float) -> str:
    """A share in percent: whole, but for less than 10% with one decimal."""
    value = 100 * share
    text = f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def listed(names: Sequence[str]) -> str:
    """``a, b and c``; of many the first."""
    if len(names) == 1:
        return names[0]
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} others"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def fit(text: str, width: int) -> str:
    """The text, its middle left out where it is too long: options stand at the end."""
    if len(text) <= width or width < 5:
        return text[:width]
    half = (width - 1) // 2
    return text[: width - 1 - half] + "…" + text[-half:]
