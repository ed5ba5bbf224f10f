"""The console that commands print to."""

from __future__ import annotations

from rich.console import Console

WIDTH = 100
"""Columns at most; of exactly so many where the output is no terminal."""


def make_console() -> Console:
    """A console of at most 100 columns, of exactly 100 where the output is no terminal."""
    console = Console(highlight=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    return console


def print_validity(line: str, console: Console, style: str = "yellow") -> None:
    """Say in which world the devices of a result were validated; nothing where times are given (an empty line)."""
    if line:
        console.print(f"validity: {line}", style=style, markup=False, soft_wrap=True)
