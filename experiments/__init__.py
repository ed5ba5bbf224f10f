"""Commands: list, describe, simulate, sweep, compare, calibrate, validate; and studies, each a package with its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.runs.results import load_results

__all__ = ["load_results"]
# A study is a command like the others: ``python -m experiments.flip``.
__path__.append(str(Path(__file__).with_name("studies")))


def __getattr__(name: str) -> Any:
    # Imported when first used: most commands need no table of results, and pandas takes time.
    if name == "load_results":
        from experiments.runs.results import load_results

        return load_results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
