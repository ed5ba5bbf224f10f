"""Commands: list, describe, simulate, sweep, compare, calibrate, validate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.runs.results import load_results

__all__ = ["load_results"]


def __getattr__(name: str) -> Any:
    # Imported when first used: most commands need no table of results, and pandas takes time.
    if name == "load_results":
        from experiments.runs.results import load_results

        return load_results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
