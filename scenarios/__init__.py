"""What is run: models traced into graphs, instances, arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.instances import load_instance
    from scenarios.model_config import ModelConfig, graph_of, load_model
    from scenarios.tracing import trace_family, trace_model

__all__ = [
    "ModelConfig",
    "graph_of",
    "load_instance",
    "load_model",
    "trace_family",
    "trace_model",
]

# Imported when first used, so that simulating bare instances needs no torch.
_LAZY = {
    "ModelConfig": "scenarios.model_config",
    "graph_of": "scenarios.model_config",
    "load_instance": "scenarios.instances",
    "load_model": "scenarios.model_config",
    "trace_family": "scenarios.tracing",
    "trace_model": "scenarios.tracing",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
