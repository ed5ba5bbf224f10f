"""Settings of a command that stand among a sweep's overrides: ``iterations=500 scheduler=heft,donf``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from omegaconf import OmegaConf

from experiments.runs.overrides import parse
from simulator.errors import InvalidInput

T = TypeVar("T")


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.partition("=")[0].lstrip("+~")


def read_own(
    schema: type[T], overrides: Sequence[str], document: Any = None, apart: Sequence[str] = ()
) -> tuple[T, list[str]]:
    """A command's own settings, and the overrides that are not for them.

    Args:
        schema: a dataclass; its fields are the keys.
        overrides: all that stood on the command line.
        document: values from a file, before those of the command line.
        apart: fields that the command line does not set.

    Raises:
        InvalidInput: a value is missing, or several stand for one.
        OmegaConfBaseException: a value of the wrong type.
    """
    kinds = {field.name: str(field.type) for field in fields(schema)}  # type: ignore[arg-type]
    own = {field.name for field in fields(schema)} - {*apart}  # type: ignore[arg-type]
    mine = [word for word in overrides if key_of(word) in own]
    rest = [word for word in overrides if key_of(word) not in own]
    given = {key_of(word): _value(word, kinds[key_of(word)]) for word in mine}
    layers = [OmegaConf.structured(schema), *([document] if document is not None else [])]
    merged = OmegaConf.merge(*layers, given)
    settings: T = OmegaConf.to_object(merged)  # type: ignore[assignment]
    return settings, rest


def _value(word: str, kind: str) -> Any:
    """What an override sets; a text is taken as it stands, whatever characters it has."""
    key, separator, text = word.partition("=")
    if not separator or not text.strip():
        raise InvalidInput(f"'{word}' has no value; write {key.lstrip('+~')}=VALUE")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    if kind.startswith("str") and text != "null" and not quoted:
        return text
    override = parse(word)
    if override.is_sweep_override():
        raise InvalidInput(f"'{word}' takes one value; a list is written {key}=[...]")
    return override.value()
