"""The console that commands print to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from simulator.model.units import format_seconds

if TYPE_CHECKING:
    from experiments.runs.configs import Scenario

WIDTH = 100
"""Columns at most; of exactly so many where the output is no terminal."""
OWN_UNIT = "times are in the instance's own unit"


def time_text(scenario: Scenario) -> Callable[[float], str]:
    """How a scenario's times are shown: a bare instance's say no unit, a drawn graph's are seconds with all digits."""
    if scenario.instance is not None:
        return lambda seconds: f"{seconds:.6g}"
    return (lambda seconds: f"{seconds:.6g} s") if scenario.bare else format_seconds


def make_console() -> Console:
    """A console of at most 100 columns, of exactly 100 where the output is no terminal."""
    console = Console(highlight=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    return console


def print_validity(line: str, console: Console, style: str = "yellow") -> None:
    """Say in which world the devices of a result were validated; nothing where times are given (an empty line)."""
    if line:
        console.print(f"validity: {line}", style=style, markup=False, soft_wrap=True)
