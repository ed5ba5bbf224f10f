"""The heap loop in C, compiled when it is asked for by whatever C compiler there is."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from tests.benchmarks.layered import Dependencies

SOURCE = Path(__file__).with_name("c_loop.c")


def compiler() -> str | None:
    """The C compiler, None if there is none."""
    return shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")


@cache
def load() -> ctypes.CDLL:
    """Compile and load; the compiled file is gone again afterwards.

    Raises:
        RuntimeError: there is no C compiler.
    """
    found = compiler()
    if found is None:
        raise RuntimeError("there is no C compiler (gcc, cc or clang)")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "c_loop.so")
        subprocess.run(
            [found, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True
        )
        loaded = ctypes.CDLL(str(library))
    loaded.run_plan.restype = ctypes.c_double
    return loaded


def run_c(plan: Dependencies, needs: np.ndarray) -> tuple[float, int]:
    """Execute a plan; ``needs`` is used up. Returns (makespan in seconds, number of events)."""
    events = ctypes.c_int64()
    columns = (plan.seconds, plan.after.offsets, plan.after.values, plan.delay, needs)
    pointers = (ctypes.c_void_p(column.ctypes.data) for column in columns)
    makespan = load().run_plan(ctypes.c_int64(len(needs)), *pointers, ctypes.byref(events))
    return float(makespan), int(events.value)
