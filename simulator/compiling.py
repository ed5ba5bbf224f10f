"""How functions of the hot paths are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit


def compiled(signature: str) -> Any:
    """Compile for these types, now; or read what an earlier process compiled.

    That is kept until the function's own file changes, so numbers of another file must not get into it.
    """
    return njit(signature, cache=True, error_model="numpy")
