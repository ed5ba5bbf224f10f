"""How long work shows how far it is: one bar, gone at the end, and none where nobody watches."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress_bar(console: Console, **options: Any) -> Progress:
    """A bar with the number done and the time left; ``options`` are those of ``rich``'s Progress."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        **options,
    )
