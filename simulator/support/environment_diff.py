"""In what the software and the hardware differ that times were measured with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMPARED = ("torch", "cuda", "driver", "processor")


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In words, such as ``torch 2.12.0, here 2.13.0``; empty where nothing differs.

    Args:
        there: what was measured with, of :data:`COMPARED`.
        here: what there is now; what either side does not know is passed over, and so is the build of a
            release (``2.13.0+cpu`` is ``2.13.0``).
    """
    return [
        f"{key} {there[key]}, here {here[key]}"
        for key in COMPARED
        if there.get(key) and here.get(key) and _release(there[key]) != _release(here[key])
    ]


def _release(version: Any) -> str:
    return str(version).partition("+")[0].strip()
