"""Schedulers by name or class path.

One scheduler a file of this package; :func:`create` finds it by its class's ``name``. A user's own
scheduler is named by class path: ``package.module.Class`` or ``path/to/file.py:Class``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeGuard

from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.support import own_code
from simulator.support.options import construct

YOUR_OWN = "your own: package.module.Class or path/to/file.py:Class"


@cache
def available() -> dict[str, type[Scheduler]]:
    """Every scheduler of this package by name, sorted."""
    found = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Scheduler)
                and value.__module__ == module.__name__
                and value.name
                and not inspect.isabstract(value)
            ):
                found[value.name] = value
    return dict(sorted(found.items()))


def create(name_or_class_path: str, **options: Any) -> Scheduler:
    """A fresh scheduler.

    Args:
        name_or_class_path: a name of :func:`available`, ``package.module.Class`` or
            ``path/to/file.py:Class``.
        **options: the constructor's arguments.

    Raises:
        InvalidInput: there is no such scheduler, or it does not take these options.
    """
    return construct(resolve(name_or_class_path), f"Scheduler '{name_or_class_path}'", options)


def resolve(name_or_class_path: str) -> type[Scheduler]:
    """The class that :func:`create` would make one of.

    Raises:
        InvalidInput: there is no such scheduler.
    """
    return available().get(name_or_class_path) or _import(name_or_class_path)


def _import(path: str) -> type[Scheduler]:
    what = f"scheduler '{path}'"
    parts = own_code.parse(path)
    if path.endswith((".py", ":")):
        raise InvalidInput(f"The {what} names no class in a file; write path/to/file.py:Class")
    if parts is None:
        near = get_close_matches(path, available(), n=3)
        hint = f"Nearest: {', '.join(near)}. " if near else ""
        raise InvalidInput(
            f"No scheduler '{path}'. {hint}Known: {', '.join(available())}; {YOUR_OWN}"
        )
    kind = own_code.load(path, what)
    if not _is_scheduler(kind):
        raise InvalidInput(
            f"'{path}' is not a scheduler: '{parts.name}' must be a subclass of "
            "simulator.context.scheduler.Scheduler"
        )
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise InvalidInput(f"The {what} is not complete: '{parts.name}' does not define {missing}")
    return kind


def _is_scheduler(value: Any) -> TypeGuard[type[Scheduler]]:
    return isinstance(value, type) and issubclass(value, Scheduler) and value is not Scheduler
