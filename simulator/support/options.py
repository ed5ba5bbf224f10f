"""Options that a configuration gives to a class, bound before it is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from simulator.errors import InvalidInput

T = TypeVar("T")


def construct(kind: Callable[..., T], what: str, options: Mapping[str, Any]) -> T:
    """Call ``kind(**options)``.

    Args:
        kind: a class, or what makes an object.
        what: its name at the beginning of a sentence, such as ``Scheduler 'heft'``.
        options: keyword arguments.

    Raises:
        InvalidInput: it does not take these options, or not of this type; says what it takes.
    """
    signature = inspect.signature(kind)
    try:
        signature.bind(**options)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise InvalidInput(
            f"{what} does not take these options ({error}); it has: {known}"
        ) from None
    hints = _hints(kind)
    for name, value in options.items():
        if name in hints and not _fits(value, hints[name]):
            raise InvalidInput(
                f"{what} has an option {name} that is {_words(hints[name])}, not {value!r}"
            )
    return kind(**options)


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "null",
    Mapping: "a mapping",
    Iterable: "a list",
}


def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    """Types of the arguments that say theirs; empty where they cannot be found out."""
    try:
        made = kind.__init__ if isinstance(kind, type) else kind  # type: ignore[misc]
        return get_type_hints(made)
    except Exception:  # a user's annotations are any expressions
        return {}


def _plain(hint: Any) -> tuple[Any, ...]:
    """The types of configuration values that a hint allows: keys of the words above, and choices."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return tuple(one for part in get_args(hint) for one in _plain(part))
    if origin is Literal or hint in _WORDS:
        return (hint,)
    kind = origin or hint
    if isinstance(kind, type) and kind is not object:
        for general in (Mapping, Iterable):
            if issubclass(kind, general):
                return (general,)
    return (Any,)


def _fits(value: Any, hint: Any) -> bool:
    for one in _plain(hint):
        if one is Any or (get_origin(one) is Literal and value in get_args(one)):
            return True
        if get_origin(one) is Literal:
            continue
        if one in (int, float):
            numbers = int if one is int else (int, float)
            fits = isinstance(value, numbers) and not isinstance(value, bool)
        else:
            fits = isinstance(value, one) and not (one is Iterable and isinstance(value, str))
        if fits:
            return True
    return False


def _words(hint: Any) -> str:
    return " or ".join(
        f"one of {', '.join(map(str, get_args(one)))}"
        if get_origin(one) is Literal
        else _WORDS[one]
        for one in _plain(hint)
    )
