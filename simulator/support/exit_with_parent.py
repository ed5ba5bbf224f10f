"""Processes that end with the one that started them, however that ends.

A process that is killed cannot tell its children. But the other end of a pipe that it alone holds open closes
with it, and that a child can wait for. Where the system can, it kills the child itself: a child whose thread
waits for the pipe cannot go on while another holds the interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent ends."""


def end_with(
    lifeline: Connection, ask: Callable[[], None] | None = None, patience: float = 0.0
) -> None:
    """End this process when the other end of a pipe is closed, or the process that holds it is gone.

    Args:
        lifeline: nothing is ever sent through it. It is kept open by what waits for it.
        ask: called first, from another thread, to let the process save what it has and end by itself.
        patience: seconds that it may take for that.
    """
    if ask is None and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            # When the thread that started this process ends, which waits for its answers.
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_wait, args=(lifeline, ask, patience), daemon=True).start()


def _wait(lifeline: Connection, ask: Callable[[], None] | None, patience: float) -> None:
    lifeline.poll(None)
    if ask is not None:
        ask()
        time.sleep(patience)
    os._exit(1)
