"""Words of a command line as Hydra's overrides; what is mistyped, or would be ignored, is refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString

from experiments.runs import own_schedulers
from experiments.runs.configs import GROUPS
from simulator.errors import InvalidInput

PRICED = ("model", "cluster", "cost_model")
"""Groups whose place an instance or a drawn graph takes."""


def read_overrides(words: Sequence[str], config_dirs: Sequence[Path] = ()) -> list[Override]:
    """The overrides that a command line gives.

    Schedulers named by class path are made known to Hydra, and their options need no ``+``.

    Raises:
        InvalidInput: a word is no override, a list stands for a group that takes one choice, something would be
            ignored, or a class path leads nowhere.
    """
    overrides = [parse(word) for word in words]
    given = {override.key_or_group for override in overrides}
    if own_schedulers.GROUP not in given:
        # A class with the options of the default scheduler would be neither.
        overrides = [
            parse(re.sub(r"^\+*scheduler\.class_path=", "scheduler=", str(o.input_line)))
            if o.key_or_group == "scheduler.class_path"
            else o
            for o in overrides
        ]
    _refuse_lists(overrides)
    _refuse_ignored(overrides)
    chosen = [
        name
        for override in overrides
        if override.key_or_group == own_schedulers.GROUP and not override.is_delete()
        for name in choices_of(override)
    ]
    own_schedulers.register(chosen, config_dirs)
    return open_options(overrides, chosen, config_dirs)


def open_options(
    overrides: Sequence[Override], schedulers: Sequence[str], config_dirs: Sequence[Path]
) -> list[Override]:
    """The overrides; options of schedulers need no ``+`` where one of these is found by class path."""
    if not any(own_schedulers.is_own(name, config_dirs) for name in schedulers):
        return list(overrides)
    return [
        parse(f"++{o.input_line}")
        if o.key_or_group.startswith("scheduler.options.") and o.type.name == "CHANGE"
        else o
        for o in overrides
    ]


def parse(word: str) -> Override:
    """One override.

    Raises:
        InvalidInput: it cannot be read; shows how to quote it, if that helps.
    """
    override = _parsed(word)
    if override is not None and override.key_or_group:
        return override
    key, separator, value = word.partition("=")
    if not separator and not key.startswith("~"):
        raise InvalidInput(
            f"'{word}' is no override: write key=value, and lists without spaces, such as scheduler=heft,fcfs"
        )
    if not re.fullmatch(r"[+~]{0,2}[\w./@]+", key):
        raise InvalidInput(f"Cannot read '{word}': '{key}' is no key, write key=value")
    if re.search(r",\s*(,|$)|^\s*,", value):
        names = ",".join(part for part in (p.strip() for p in value.split(",")) if part)
        meant = f"{key}={names}"
        if names and _parsed(meant) is not None:
            raise InvalidInput(
                f"Cannot read '{word}': a value is missing beside a comma; values are joined by commas without "
                f"spaces: {shlex.quote(meant)}"
            )
    quoted = f"{key}={quote(value)}"
    if _parsed(quoted) is not None and not _is_open(value):
        raise InvalidInput(
            f"Cannot read '{word}': a value with such characters is written in quotes within quotes: "
            f"{shlex.quote(quoted)}"
        )
    raise InvalidInput(
        f"Cannot read '{word}': its brackets or quotes do not match, or something is missing between them; "
        f"a text with such characters is written in quotes: {shlex.quote(quoted)}"
    )


def choices_of(override: Override) -> list[str]:
    """The values of an override as names, without quotes."""
    value = override.value()
    if override.is_choice_sweep():
        return [str(_parsed(f"x={text}").value()) for text in override.sweep_string_iterator()]  # type: ignore[union-attr]
    return [] if override.is_sweep_override() or value is None else [str(value)]


def quote(value: str) -> str:
    """A text as the right side of an override."""
    return str(QuotedString(value, Quote.double).with_quotes())


def _parsed(word: str) -> Override | None:
    try:
        override: Override = OverridesParser.create().parse_override(word)
        override.value()
    except Exception:  # not only Hydra's own, where it relies on assertions
        return None
    return override


def _is_open(value: str) -> bool:
    """Whether a bracket or a quote of a value has no partner."""
    pairs = {")": "(", "]": "[", "}": "{"}
    waiting: list[str] = []
    for character in value:
        if character in pairs.values():
            waiting.append(character)
        elif character in pairs and (not waiting or waiting.pop() != pairs[character]):
            return True
    return bool(waiting) or any(value.count(mark) % 2 for mark in "\"'")


def _refuse_lists(overrides: Sequence[Override]) -> None:
    for override in overrides:
        value = override.value()
        if override.key_or_group not in GROUPS:
            continue
        if isinstance(value, list | dict):
            names = ",".join(map(str, value))
            raise InvalidInput(
                f"'{override.input_line}': a run has one {override.key_or_group}. To compare "
                f"several: python -m experiments.sweep {override.key_or_group}={names}"
            )
        if value is None or value == "":
            raise InvalidInput(
                f"'{override.input_line}' names nothing; python -m experiments.list says what there is"
            )


def _refuse_ignored(overrides: Sequence[Override]) -> None:
    """Refuse what cannot change anything beside the rest of the command line."""
    given = {o.key_or_group: o for o in overrides if not o.is_delete()}
    taken = next(
        (
            given[key]
            for key in ("instance", "family")
            if key in given and given[key].value() not in (None, "none")
        ),
        None,
    )
    for key, override in given.items():
        if taken is not None and key.partition(".")[0] in PRICED:
            raise InvalidInput(
                f"'{override.input_line}' would be ignored: '{taken.input_line}' takes the place of model and "
                "cluster; leave one of both out"
            )
