"""How long work shows how far it is: one bar, gone at the end; a line a minute where no terminal is."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

LINE_EVERY = 60.0
"""Seconds between two lines of a log."""


def progress_bar(console: Console, **options: Any) -> Progress:
    """A bar with the number done and the time left; ``options`` are those of ``rich``'s Progress."""
    kind = Progress if console.is_terminal else _Lines
    return kind(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Left(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        **options,
    )


def time_left(completed: float, total: float | None, elapsed: float | None) -> str:
    """``about 2 min left``, at the mean rate so far; empty where nothing is done, or it is unknown how much there is."""
    if not completed or not elapsed or total is None or completed >= total:
        return ""
    seconds = elapsed / completed * (total - completed)
    if seconds < 99.5:
        return f"about {seconds:.0f} s left"
    if seconds < 5970:
        return f"about {seconds / 60:.0f} min left"
    return f"about {seconds / 3600:.1f} h left"


class _Left(ProgressColumn):
    """The time left; unlike rich's own also of steps that take longer than half a minute each."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """See rich."""
        return Text(time_left(task.completed, task.total, task.elapsed), "progress.remaining")


class _Lines(Progress):
    """For files and pipes, which keep what a bar would overwrite."""

    def __init__(self, *columns: Any, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._said = time.monotonic()
        self._began: dict[TaskID, float] = {}

    def add_task(self, description: str, *arguments: Any, **options: Any) -> TaskID:
        """See rich."""
        task = super().add_task(description, *arguments, **options)
        self._began[task] = time.monotonic()
        return task

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
        left = time_left(task.completed, task.total, now - self._began[task_id])
        text = f"{task.description}: {task.completed:.0f}{of}" + (f", {left}" if left else "")
        self.console.print(text, soft_wrap=True)
