"""Which scheduler, placement or partition is best for these models on these devices, by how much, and how sure is that?

>>> import hetsim
>>> result = hetsim.compare("googlenet", cluster="cpu_1x_3x", schedulers=["heft", "donf", "fcfs"])
>>> print(result.verdict)  # doctest: +ELLIPSIS
googlenet: ...
>>> run = hetsim.simulate("googlenet", cluster="cpu_1x_3x", scheduler="heft")
>>> run.why_idle()  # doctest: +ELLIPSIS
              device ...

The names here are the whole interface; what they return shows itself in a notebook. Names are imported when they are
first used: ``import hetsim`` takes milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.runs.results import load_results
    from hetsim.catalogue import clusters, devices, models, schedulers
    from hetsim.commands import calibrate
    from hetsim.comparison import Comparison, compare
    from hetsim.run import Run, simulate
    from hetsim.scenarios import load_cluster
    from scenarios.tracing import trace_model as trace
    from simulator.context.scheduler import Scheduler
    from simulator.errors import HetsimError, InvalidInput
    from simulator.model.graph import DataflowGraph

__all__ = [
    "Comparison",
    "DataflowGraph",
    "HetsimError",
    "InvalidInput",
    "Run",
    "Scheduler",
    "calibrate",
    "clusters",
    "compare",
    "devices",
    "load_cluster",
    "load_results",
    "models",
    "schedulers",
    "simulate",
    "trace",
]

_HOMES = {
    "Comparison": "hetsim.comparison",
    "DataflowGraph": "simulator.model.graph",
    "HetsimError": "simulator.errors",
    "InvalidInput": "simulator.errors",
    "Run": "hetsim.run",
    "Scheduler": "simulator.context.scheduler",
    "calibrate": "hetsim.commands",
    "clusters": "hetsim.catalogue",
    "compare": "hetsim.comparison",
    "devices": "hetsim.catalogue",
    "load_cluster": "hetsim.scenarios",
    "load_results": "experiments.runs.results",
    "models": "hetsim.catalogue",
    "schedulers": "hetsim.catalogue",
    "simulate": "hetsim.run",
}


def __getattr__(name: str) -> Any:
    if name == "trace":
        from scenarios.tracing import trace_model

        return trace_model
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'hetsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
