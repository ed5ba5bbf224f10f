"""Simulated time: graphs, clusters, the engine, schedulers, traces and metrics.

``simulate`` is imported on first use, so that schedulers can be used where SimPy is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.engine import simulate

__all__ = ["simulate"]


def __getattr__(name: str) -> Any:
    if name == "simulate":
        from simulator.engine import simulate

        return simulate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
