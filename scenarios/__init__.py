"""What is run: models traced into graphs, drawn graphs, instances, arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.family_config import FamilyConfig, draw_instance
    from scenarios.instances import load_instance, save_instance
    from scenarios.model_config import ModelConfig, graph_of, load_model
    from scenarios.tracing import trace_family, trace_model
    from scenarios.training_graph import trace_training

__all__ = [
    "FamilyConfig",
    "ModelConfig",
    "draw_instance",
    "graph_of",
    "load_instance",
    "load_model",
    "save_instance",
    "trace_family",
    "trace_model",
    "trace_training",
]

# Imported when first used, so that simulating bare instances needs no torch.
_LAZY = {
    "FamilyConfig": "scenarios.family_config",
    "ModelConfig": "scenarios.model_config",
    "draw_instance": "scenarios.family_config",
    "graph_of": "scenarios.model_config",
    "load_instance": "scenarios.instances",
    "load_model": "scenarios.model_config",
    "save_instance": "scenarios.instances",
    "trace_family": "scenarios.tracing",
    "trace_model": "scenarios.tracing",
    "trace_training": "scenarios.training_graph",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
