"""How functions of the hot paths are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(signature: str | None = None) -> Any:
    """Compile for these types now, without a signature at the first call; or read what an earlier
    process compiled.

    That is kept until the function's own file changes, so numbers of another file must not get into it.
    Where no folder can be written nothing is kept, and each process compiles anew.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        signatures = () if signature is None else (signature,)
        try:
            return njit(*signatures, cache=True, error_model="numpy")(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return njit(*signatures, error_model="numpy")(function)

    return decorate
