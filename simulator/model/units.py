"""Quantities as people write them: ``"25 GB/s"``, ``"80ms"``, ``"24 GiB"``, ``"20/s"``.

A bare number other than zero is refused, and so is a unit that could mean two things: ``Gb`` may be a
slip for ``GB`` or mean gigabits, which differ by a factor of 8, so bits are spelt out (``Gbit/s``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from simulator.errors import InvalidInput

# Fractions, so that "10us" is the number closest to 1e-5 and not 10 times the one closest to 1e-6.
_DECIMAL = {"": Fraction(1), "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9)}
_DECIMAL["T"] = Fraction(10**12)
_BINARY = {"Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}
_BINARY["Ti"] = Fraction(2**40)

_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}bit": factor / 8 for prefix, factor in _DECIMAL.items()}
_BANDWIDTHS = {f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()}
_MICROSECOND = Fraction(1, 10**6)
_SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": _MICROSECOND,
    "µs": _MICROSECOND,
    "μs": _MICROSECOND,
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_POWERS = {"mW": Fraction(1, 1000), "W": Fraction(1), "kW": Fraction(1000)}
_PRICES = {"/h": Fraction(1), "/min": Fraction(60), "/day": Fraction(1, 24)}
_RATES = {"/s": Fraction(1), "/min": Fraction(1, 60), "/h": Fraction(1, 3600)}

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")


def parse_bytes(text: str | float, what: str = "size") -> float:
    """Bytes of ``"24 GiB"``, ``"16 GB"``, ``"512 B"``.

    Raises:
        InvalidInput: no number, no unit, or a unit that is unknown or ambiguous; ``what`` names it.
    """
    return _parse(text, what, _BYTES, "24 GiB or 16 GB")


def parse_bandwidth(text: str | float, what: str = "bandwidth") -> float:
    """Bytes per second of ``"25 GB/s"``, ``"100 Gbit/s"``.

    Raises:
        InvalidInput: as :func:`parse_bytes`.
    """
    return _parse(text, what, _BANDWIDTHS, "25 GB/s or 100 Gbit/s")


def parse_seconds(text: str | float, what: str = "time") -> float:
    """Seconds of ``"80ms"``, ``"10 us"``, ``"5min"``.

    Raises:
        InvalidInput: as :func:`parse_bytes`.
    """
    return _parse(text, what, _SECONDS, "80ms or 5min")


def parse_rate(text: str | float, what: str = "rate") -> float:
    """Events per second of ``"20/s"``, ``"90/min"``.

    Raises:
        InvalidInput: as :func:`parse_bytes`.
    """
    return _parse(text, what, _RATES, "20/s or 90/min")


def parse_power(text: str | float, what: str = "power") -> float:
    """Watts of ``"70 W"``, ``"1.2 kW"``.

    Raises:
        InvalidInput: as :func:`parse_bytes`.
    """
    return _parse(text, what, _POWERS, "70 W or 1.2 kW")


def parse_price(text: str | float, what: str = "price") -> float:
    """Price of an hour, of ``"0.35/h"``, ``"12/day"``; the currency is the reader's own.

    Raises:
        InvalidInput: as :func:`parse_bytes`.
    """
    return _parse(text, what, _PRICES, "0.35/h")


def format_seconds(seconds: float) -> str:
    """A time with three significant digits in the unit that suits it: ``41.2 ms``."""
    if not math.isfinite(seconds):
        return str(seconds)
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= factor * 0.9995:
            return f"{_three_digits(seconds / factor)} {unit}"
    return "0 s" if seconds == 0 else f"{_three_digits(seconds / 1e-9)} ns"


def format_bytes(size: float) -> str:
    """A size with three significant digits in decimal units: ``97.5 MB``."""
    if not math.isfinite(size):
        return str(size)
    for unit in ("TB", "GB", "MB", "kB"):
        if abs(size) >= _BYTES[unit] * 0.9995:
            return f"{_three_digits(size / float(_BYTES[unit]))} {unit}"
    return f"{size:.0f} B"


def exact_bytes(size: float) -> str:
    """A size to the byte, with :func:`format_bytes` of it: ``123456 bytes (123 kB)``."""
    exact = f"{size:.0f} bytes"
    return exact if size < 1000 else f"{exact} ({format_bytes(size)})"


def format_energy(joules: float) -> str:
    """An energy with three significant digits: ``1.25 kJ``."""
    if not math.isfinite(joules):
        return str(joules)
    for unit, factor in (("MJ", 1e6), ("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3)):
        if abs(joules) >= factor * 0.9995:
            return f"{_three_digits(joules / factor)} {unit}"
    return "0 J" if joules == 0 else f"{_three_digits(joules / 1e-6)} uJ"


def _three_digits(value: float) -> str:
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    whole = len(str(int(abs(value) + 1e-9)))
    return f"{value:.{max(0, 3 - whole)}f}"


def _parse(text: str | float, what: str, units: Mapping[str, Fraction], example: str) -> float:
    shown = " ".join(str(text).split())
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    match = _NUMBER.fullmatch(str(text))
    if match is None:
        raise InvalidInput(f"The {what} '{shown}' is not a quantity; write it like {example}")
    number, unit = match[1], match[2]
    # Before any fraction is made: one of 1e-999999999 would fill the memory.
    if not math.isfinite(float(number)):
        raise InvalidInput(f"The {what} '{shown}' is not finite")
    if not unit:
        if float(number) == 0:
            return 0.0
        raise InvalidInput(f"The {what} '{shown}' has no unit; write it like {example}")
    if unit in units:
        try:
            return float(Fraction(number) * units[unit]) if float(number) else 0.0
        except (OverflowError, ValueError):  # the latter of thousands of digits
            raise InvalidInput(f"The {what} '{shown}' is not finite") from None
    near = [known for known in units if known.lower() == unit.lower()]
    if re.fullmatch(r"[kKMGT]?b(/s)?", unit):
        prefix = unit.rstrip("/s").rstrip("b")
        rate = "/s" if unit.endswith("/s") else ""
        raise InvalidInput(
            f"The {what} '{shown}' is ambiguous: bytes are written '{prefix}B{rate}', bits "
            f"'{prefix}bit{rate}'"
        )
    hint = f"did you mean '{near[0]}'?" if near else f"known units: {', '.join(units)}"
    raise InvalidInput(f"The {what} '{shown}' has the unknown unit '{unit}'; {hint}")
