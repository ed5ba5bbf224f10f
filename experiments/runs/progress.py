"""How long work shows how far it is: one bar, gone at the end; a line a minute where no terminal is."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

LINE_EVERY = 60.0
"""Seconds between two lines of a log."""


def progress_bar(console: Console, **options: Any) -> Progress:
    """A bar with the number done and the time left; ``options`` are those of ``rich``'s Progress."""
    kind = Progress if console.is_terminal else _Lines
    return kind(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        **options,
    )


class _Lines(Progress):
    """For files and pipes, which keep what a bar would overwrite."""

    def __init__(self, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._said = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """See rich."""
        super().update(task_id, **changes)
        self._say(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """See rich."""
        super().advance(task_id, advance)
        self._say(task_id)

    def _say(self, task_id: TaskID) -> None:
        now = time.monotonic()
        if now - self._said < LINE_EVERY:
            return
        self._said = now
        (task,) = (task for task in self.tasks if task.id == task_id)
        of = "" if task.total is None else f" of {task.total:.0f}"
        self.console.print(f"{task.description}: {task.completed:.0f}{of}", soft_wrap=True)
