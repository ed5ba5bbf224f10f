"""Which streams run in the compiled way: requests that are one task each, served by a known rule.

What makes the state of such a run fit into tables: a request is executed once, alone or in a batch, on a
device with one slot, and every transfer's end is known when it is asked for. Schedulers and selections
are known by their class and the options below; one with any other option than the usual is not covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from simulator.cooling import cools
from simulator.costs import CostTable
from simulator.dispatching import Dispatcher
from simulator.errors import InvalidInput
from simulator.far_inputs import reads_far
from simulator.graph import DataflowGraph
from simulator.launchers import shares_launchers
from simulator.rates import shares_rates
from simulator.schedulers.dynamic_batching import DynamicBatching
from simulator.schedulers.fcfs_batching import FCFSBatching
from simulator.schedulers.task_groups import TaskGroups
from simulator.selection import Home, LeastLoaded, RandomNode, RoundRobinNode, Selection
from simulator.simulation import Setting
from simulator.waking import wakes
from simulator.weight_cache import caches_weights

MOST_SPACES = 2000
"""Memory spaces of which every two may have a route in a table."""
_MARKS = ("upload_above", "upload_below")  # of no meaning where nothing is uploaded
RULES: dict[type[Dispatcher], frozenset[str]] = {
    TaskGroups: frozenset({"theta", "starve_after", "max_batch", "selection", *_MARKS}),
    FCFSBatching: frozenset({"max_batch", "selection"}),
    DynamicBatching: frozenset({"max_batch", "delay", "selection"}),
}
"""Schedulers, and what of them may differ from what it is without options."""
_OF_SELECTIONS = frozenset({"among", "move", "rng"})
SELECTIONS: tuple[type[Selection], ...] = (Home, RandomNode, RoundRobinNode, LeastLoaded)


def covers(setting: Setting) -> bool:
    """Whether the compiled way can simulate a stream in this setting, as far as is known beforehand."""
    scheduler, workload, cluster = setting.scheduler, setting.workload, setting.cluster
    if not isinstance(scheduler, Dispatcher) or type(scheduler) not in RULES:
        return False
    selection = scheduler.selection
    return (
        type(selection) in SELECTIONS
        and _is_usual(scheduler, RULES[type(scheduler)])
        and _is_usual(selection, _OF_SELECTIONS)
        and set(selection.among or ()) <= cluster.space_index.keys()
        and not workload.reacts
        and setting.movement == "push"
        and setting.contention != "fair"
        and (setting.actual is None or isinstance(setting.actual, CostTable))
        and all(d.slots == 1 and not d.completion_latency for d in cluster.devices)
        and not shares_rates(cluster)
        and len(cluster.spaces) <= MOST_SPACES
        and not caches_weights(cluster)
        and not shares_launchers(cluster)
        and not cools(cluster)
        and not wakes(cluster)
        and not reads_far(cluster)
        and all(len(g) == 1 and {*g.outputs} <= {*g.writes[0]} for g in workload.graphs)
        and _are_prepared(workload.batches)
        and _are_timed(setting.costs, workload.graphs, isinstance(scheduler, DynamicBatching))
    )


def _is_usual(thing: Any, known: frozenset[str]) -> bool:
    """Whether nothing but what is ``known`` differs from a thing that was made without options."""
    usual = vars(type(thing)())
    return all(
        name in known or (name in usual and value == usual[name])
        for name, value in vars(thing).items()
    )


def _are_prepared(batches: Mapping[DataflowGraph, Mapping[int, DataflowGraph]]) -> bool:
    """Whether every batch has its graph, like that of one request."""
    checked = set()
    for graph, prepared in batches.items():
        some = next(iter(prepared.values()), graph)
        if not _are_alike(graph, some):
            return False
        if id(prepared) not in checked:
            checked.add(id(prepared))
            for items, other in prepared.items():
                if (other.batch or 1) != items or not _are_alike(some, other):
                    return False
    return True


def _are_alike(one: DataflowGraph, two: DataflowGraph) -> bool:
    return one is two or (
        len(one.tensors) == len(two.tensors)
        and one.inputs == two.inputs
        and one.outputs == two.outputs
    )


def _are_timed(costs: CostTable, graphs: Iterable[DataflowGraph], everywhere: bool) -> bool:
    """Whether all graphs have times, and on every device where somebody waits for any of them."""
    try:
        return all(not everywhere or np.isfinite(costs[g].seconds).all() for g in graphs)
    except InvalidInput:
        return False
