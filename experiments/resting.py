"""What waking a device of this machine costs.

A worker that waits for a request sleeps, and what comes first afterwards finds other guests' data in the caches
(:mod:`simulator.waking`). So a model is executed in pairs, the first of each after a rest and the second right behind
it, and their first operators are compared. The panel's first would say too little: seven in 20 ms, 13 of which are a
maximal pooling, took 0.05 ms longer where whole models took 0.4 to 1 ms. The model is EfficientNet-B0, a part of the
panel, which has some two hundred operators of all sorts in that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scenarios.model_config import InputConfig, ModelConfig, graph_of, load_model
from simulator.cluster import Cluster
from simulator.costs import CostTable
from simulator.workload import Job, Workload

if TYPE_CHECKING:
    import torch

    from calibration.runner import Machine
    from simulator.graph import DataflowGraph

    Inputs = dict[DataflowGraph, dict[str, torch.Tensor]]

RESTED = ModelConfig(
    "rested", "scenarios.models.panel.EfficientNet", inputs=[InputConfig([1, 3, 224, 224])]
)
"""What is executed."""

WAKE_AFTER = 12e-3
"""Seconds of rest after which all but 1 / e of the cost is due. On a third-generation EPYC with busy neighbours
MobileNetV2 and the panel took half or more of it after 10 ms, and no more of it after 120 ms than after 40."""

REST_S = 4 * WAKE_AFTER
"""Before the first execution of a pair."""

HEAD_S = 20e-3
"""Of an execution, in which what waking costs is looked for. Later operators add noise."""

PAIRS = 40
"""On each device, after one that is not counted."""


def wake_seconds(machine: Machine) -> list[float]:
    """What an execution takes longer on each device after a long rest, not below 0: of each of the first operators
    the median over the pairs on all devices of its profile, added up.
    """
    from calibration.sequential import named_inputs, weights_of

    graph = graph_of(RESTED)
    module, given = load_model(RESTED)
    machine.load(graph, weights_of(module, graph))
    inputs = {graph: named_inputs(graph, list(given.args))}
    devices = machine.cluster.devices
    # Nobody is to choose by these.
    costs = CostTable.of(graph, np.full((len(graph), len(devices)), 1e-3))
    pairs: dict[str | None, list[np.ndarray]] = {}
    for number, device in enumerate(devices):
        found = [_pair(machine, graph, costs, inputs, number) for _ in range(PAIRS + 1)][1:]
        pairs.setdefault(device.profile, []).extend(found)
    longer = {profile: _longer(np.array(found)) for profile, found in pairs.items()}
    return [longer[device.profile] for device in devices]


def _pair(
    machine: Machine, graph: DataflowGraph, costs: CostTable, inputs: Inputs, device: int
) -> np.ndarray:
    """float64[2, operators] seconds of two executions on a device, the first when it has rested."""
    from calibration.dispatch import OneByOne

    job = Job(graph, REST_S, origin=machine.cluster.host, destination=machine.cluster.host)
    trace = machine.run(Workload([job, job]), costs, OneByOne([device, device]), inputs).trace
    rows = trace.executions
    seconds = np.empty((2, len(graph)))
    seconds[rows["job"], rows["operator"]] = rows["finish"] - rows["start"]
    return seconds


def _longer(pairs: np.ndarray) -> float:
    """Of float64[pairs, 2, operators]."""
    first, second = pairs[:, 0], pairs[:, 1]
    head = np.cumsum(np.median(second, axis=0)) <= HEAD_S
    return max(0.0, float(np.median(first - second, axis=0)[head].sum()))


def with_waking(cluster: Cluster, seconds: Sequence[float]) -> Cluster:
    """The cluster whose devices, in order, take so many seconds to wake up from a long rest."""
    devices = [
        replace(device, wake_cost=cost, wake_after=WAKE_AFTER)
        for device, cost in zip(cluster.devices, seconds, strict=True)
    ]
    return replace(cluster, devices=devices)
