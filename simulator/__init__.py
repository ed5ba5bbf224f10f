"""Simulated time: graphs, clusters, the engine, schedulers, traces and metrics.

The packages, lowest first; each imports only those before it:

- ``model``: what is run and what came of it, as data (graphs, clusters, costs, noise, workloads, traces).
- ``links``: how transfers share links. ``context``: what a scheduler may see and do, in both worlds.
- ``devices``: how a device executes. ``memory``: room in memory spaces. ``analysis``: figures of a trace.
- ``engine``: the one event loop, on SimPy. ``planners``, ``schedulers``, ``serving``: who decides.

Names are imported on first use, so that schedulers can be used where SimPy is not installed.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.context.scheduler import Scheduler
    from simulator.engine.run import simulate
    from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
    from simulator.model.costs import CostTable, GraphCosts
    from simulator.model.graph import DataflowGraph, from_edges
    from simulator.model.operator import Operator, Tensor
    from simulator.model.workload import Job, Workload

__all__ = [
    "Cluster",
    "CostTable",
    "DataflowGraph",
    "Device",
    "GraphCosts",
    "Job",
    "Link",
    "MemorySpace",
    "Operator",
    "Scheduler",
    "Tensor",
    "Workload",
    "from_edges",
    "fully_connected",
    "simulate",
]

_HOMES = {
    "engine.run": ("simulate",),
    "context.scheduler": ("Scheduler",),
    "model.cluster": ("Cluster", "Device", "Link", "MemorySpace", "fully_connected"),
    "model.costs": ("CostTable", "GraphCosts"),
    "model.graph": ("DataflowGraph", "from_edges"),
    "model.operator": ("Operator", "Tensor"),
    "model.workload": ("Job", "Workload"),
}
_FORMER = {
    **{
        name: f"model.{name}"
        for name in ("graph", "cluster", "costs", "noise", "segments", "trace", "units", "workload")
    },
    "faults": "engine.faults",
    "metrics": "analysis.metrics",
    "pricing": "schedulers._pricing",
    "scheduler": "context.scheduler",
}
"""Modules that users import by the names that they had before they moved into packages."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Former(MetaPathFinder, Loader):
    """Finds modules by their former names; such a module has the names of the one that it became."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        return ModuleSpec(name, self) if package == __name__ and module in _FORMER else None

    def exec_module(self, module: ModuleType) -> None:
        home = importlib.import_module(f"{__name__}.{_FORMER[module.__name__.rpartition('.')[2]]}")
        vars(module).update((key, value) for key, value in vars(home).items() if key[:2] != "__")


sys.meta_path.insert(0, _Former())
