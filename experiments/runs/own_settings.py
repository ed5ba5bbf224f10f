"""Settings of a command that stand among a sweep's overrides: ``iterations=500 scheduler=heft,donf``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from omegaconf import OmegaConf

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
        OmegaConfBaseException: a value of the wrong type.
    """
    own = {field.name for field in fields(schema)} - {*apart}  # type: ignore[arg-type]
    mine = [word for word in overrides if key_of(word) in own]
    rest = [word for word in overrides if key_of(word) not in own]
    layers = [OmegaConf.structured(schema), *([document] if document is not None else [])]
    merged = OmegaConf.merge(*layers, OmegaConf.from_dotlist(mine))
    settings: T = OmegaConf.to_object(merged)  # type: ignore[assignment]
    return settings, rest
