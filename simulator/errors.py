"""Errors that a user can cause and mend.

Every refusal is one of these, with one sentence that names the thing and the way out. Anything else
that escapes the program is a defect of the program.
"""

from __future__ import annotations

import re

LONGEST_WORD = 200
"""Characters of a word that a message shows whole."""


def shortened(message: str) -> str:
    """A message without words that no reader wants whole: a file read as a name, say."""
    return re.sub(
        rf"\S{{{LONGEST_WORD + 1},}}",
        lambda word: f"{word[0][: LONGEST_WORD // 2]}... ({len(word[0])} characters)",
        message,
    )


class HetsimError(Exception):
    """Base of every error that a user can cause; commands print it without a traceback."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class InvalidInput(HetsimError, ValueError):
    """A file, a graph, a cluster, a workload or a configuration value that cannot be used."""


class CannotWrite(HetsimError, OSError):
    """A file or a folder that cannot be written: a full disk, a folder that may only be read."""

    @classmethod
    def of(cls, path: object, error: OSError) -> CannotWrite:
        """The refusal for a path and what the system said."""
        reason = error.strerror or str(error).strip() or type(error).__name__
        found = cls(f"Cannot write {path}: {reason}; what was finished before is kept")
        found.strerror = reason
        return found


class SchedulingError(HetsimError, RuntimeError):
    """A scheduler did something its protocol forbids, or left work that can never run."""


class ExecutionError(HetsimError, RuntimeError):
    """A run on hardware that could not be completed: a kernel failed, or the run took too long."""
