"""The engine: one event loop on SimPy, made of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.engine.run import simulate, simulate_stream

__all__ = ["simulate", "simulate_stream"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from simulator.engine import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
