"""Presets: entries of ``conf/experiment``, and which command each is for.

A preset with axes (``sweep:``) is for whatever works through a grid; ``command:`` says which of these
commands it was made for, ``experiments.sweep`` unless it does. A preset of a command that takes one scenario
names it: ``command: experiments.size``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from experiments.runs import catalog
from experiments.runs.configs import SWEEP_ONLY, Preset
from simulator.errors import InvalidInput

SWEEP = "experiments.sweep"
SWEEPING = (
    SWEEP,
    "experiments.validate",
    "experiments.validate_serving",
    "experiments.flip",
    "experiments.adversary",
)
"""Commands that work through a grid: they read the same presets."""
_OF_ONE = {*Preset.__dataclass_fields__}
_OF_SWEEPS = {*SWEEP_ONLY} - _OF_ONE


def command_of(content: Mapping[str, Any]) -> str | None:
    """The command that a preset is for, without ``python -m``; None where any may take it.

    Args:
        content: the file's keys.
    """
    if content.get("command"):
        return str(content["command"])
    return SWEEP if _OF_SWEEPS & content.keys() else None


def refuse_foreign(
    overrides: Sequence[Override], module: str, config_dirs: Sequence[Path] = ()
) -> None:
    """Refuse a preset of another command, before its keys are found to be unknown.

    Args:
        overrides: of the command line.
        module: the command's; one of :data:`SWEEPING` stands for all of them.
        config_dirs: the user's folders of configs.

    Raises:
        InvalidInput: names the right command.
    """
    for override in overrides:
        if override.key_or_group != "experiment":
            continue
        for name in _names(override):
            preset = catalog.entry("experiment", name, config_dirs)
            if preset is not None:  # a name that is unknown is Hydra's to refuse
                check_command(command_of(preset.content), module, name)


def check_command(command: str | None, module: str, name: str | None = None) -> None:
    """Refuse a scenario that says it is for another command.

    Args:
        command: as :func:`command_of` gives it.
        module: the command that was asked for.
        name: of the preset.

    Raises:
        InvalidInput: names the right command.
    """
    if command is None or command == module or {command, module} <= {*SWEEPING}:
        return
    given = "command" if name is None else "experiment"
    preset = "" if name is None else f" experiment={name}"
    raise InvalidInput(
        f"{given}={name or command} is not for this command but for {command}: "
        f"python -m {command}{preset}"
    )


def _names(override: Override) -> list[str]:
    if override.is_choice_sweep():
        return [str(text) for text in override.sweep_string_iterator()]
    return [str(override.value())]
