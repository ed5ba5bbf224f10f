"""How often the interpreter looks for garbage in cycles: a tenth of a command's time goes into that.

A command ends soon and leaves few cycles, so it looks when there are 20,000 new objects instead of 700.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

FEWEST_NEW = 20_000
"""New objects from which on it looks; a few megabytes of them."""


def collect_seldom() -> None:
    """Look less often from now on, in a process of one's own."""
    gc.set_threshold(FEWEST_NEW, *gc.get_threshold()[1:])


@contextlib.contextmanager
def seldom_collecting() -> Iterator[None]:
    """Look less often in the block."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
