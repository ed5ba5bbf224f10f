"""Options that a configuration gives to a class, bound before it is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from simulator.errors import InvalidInput

T = TypeVar("T")


def construct(kind: Callable[..., T], what: str, options: Mapping[str, Any]) -> T:
    """Call ``kind(**options)``.

    Args:
        kind: a class, or what makes an object.
        what: its name at the beginning of a sentence, such as ``Scheduler 'heft'``.
        options: keyword arguments.

    Raises:
        InvalidInput: it does not take these options; says which it has.
    """
    signature = inspect.signature(kind)
    try:
        signature.bind(**options)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise InvalidInput(
            f"{what} does not take these options ({error}); it has: {known}"
        ) from None
    return kind(**options)
