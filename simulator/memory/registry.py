"""The memory policies, by the name of a run's ``memory``: how many bytes of each memory space may be used.

``unlimited`` counts nothing. ``limited`` allows the capacity of each space. Another policy is a function of a
space; :func:`register` offers it to every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from simulator.context.simulated import SimulatedRun
from simulator.errors import InvalidInput
from simulator.memory.limited import LimitedMemory
from simulator.memory.memory import Links, Memory
from simulator.memory.serving_limits import node_rooms
from simulator.memory.weights import weight_store
from simulator.model.cluster import Cluster, MemorySpace
from simulator.model.workload import Workload

MemoryPolicy = Callable[[MemorySpace], float]
"""Bytes of a memory space that may be used; ``inf`` where nobody counts."""
WEIGHTS = ("resident", "on_demand")
_POLICIES: dict[str, MemoryPolicy] = {
    "unlimited": lambda space: math.inf,
    "limited": lambda space: space.capacity,
}


def register(memory: str, policy: MemoryPolicy) -> None:
    """Offer another memory policy under a name of its own; every run with that ``memory`` uses it.

    Raises:
        InvalidInput: the name is taken.
    """
    if memory in _POLICIES:
        raise InvalidInput(f"There is a memory '{memory}' already; choose another name")
    _POLICIES[memory] = policy


def unregister(memory: str) -> None:
    """Offer a memory policy of one's own no more."""
    del _POLICIES[memory]


def memories() -> tuple[str, ...]:
    """The names of all memory policies."""
    return tuple(_POLICIES)


def usable(cluster: Cluster, memory: str) -> Cluster:
    """The cluster with the capacities that a policy allows.

    Raises:
        InvalidInput: there is no such policy.
    """
    if memory not in _POLICIES:
        raise InvalidInput(f"Unknown memory '{memory}'; known: {', '.join(_POLICIES)}")
    policy = _POLICIES[memory]
    return replace(
        cluster, spaces=[replace(space, capacity=policy(space)) for space in cluster.spaces]
    )


def abilities(weights: str) -> frozenset[str]:
    """What schedulers may do with weights that are ``resident`` or ``on_demand``.

    Raises:
        InvalidInput: they are neither.
    """
    if weights not in WEIGHTS:
        raise InvalidInput(f"Unknown weights '{weights}'; known: {', '.join(WEIGHTS)}")
    return frozenset({"evict"}) if weights == "on_demand" else frozenset()


def make_memory(
    run: SimulatedRun, links: Links, memory: str, weights: str, workload: Workload, until: float
) -> Memory | None:
    """What carries out the settings ``memory`` and ``weights`` (see :func:`simulator.engine.run.simulate`); None
    where nothing is counted.

    Args:
        run: the simulation.
        links: what carries transfers.
        memory: the name of a policy.
        weights: ``resident`` or ``on_demand``.
        workload: what may arrive.
        until: the run's end at the latest, seconds.
    """
    if memory == "unlimited" and weights == "resident":
        return None
    cluster = usable(run.cluster, memory)
    store = weight_store(workload.kinds(until), cluster) if weights == "on_demand" else None
    inputs = [math.inf] * len(cluster.spaces)
    if memory != "unlimited" and run.serving:
        inputs = [room.inputs for room in node_rooms(workload, cluster, run.believed_costs)]
    capacities = [space.capacity for space in cluster.spaces]
    return LimitedMemory(run, links, capacities, store, inputs)
