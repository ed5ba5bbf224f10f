"""Nodes, models and requests for tests of serving, in closed form: ``t(b) = a + c * b``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

MOST = 16


def one(name: str, batch: int, into: float = 1000.0, out: float = 100.0) -> DataflowGraph:
    """A whole model as one operator."""
    return DataflowGraph(
        name,
        [Operator("run", "segment")],
        [Tensor("x", "input", into * batch), Tensor("y", "activation", out * batch)],
        [[0]],
        [[1]],
        [{"tensor": "y"}],
        batch,
    )


class Fleet:
    """Nodes with one device each, joined to sources of requests.

    Args:
        models: for each the times ``(a, c)`` of a device of speed 1.
        speeds: of the nodes, in order; one node alone unless given.
        sources: other memory spaces where requests arise, linked to every node.
        latency, bandwidth: of these links.
    """

    def __init__(
        self,
        models: Sequence[tuple[float, float]],
        speeds: Sequence[float] = (1.0,),
        sources: int = 0,
        latency: float = 0.0,
        bandwidth: float = 1e9,
        most: int = MOST,
    ) -> None:
        nodes = [f"node{i}" for i in range(len(speeds))]
        users = [f"user{i}" for i in range(sources)]
        links = [
            Link(f"{user}-{node}", (user, node), bandwidth, latency)
            for user in users
            for node in nodes
        ]
        if not users and len(nodes) > 1:
            links = [
                Link(f"{a}-{b}", (a, b), bandwidth, latency) for a in nodes for b in nodes if a < b
            ]
        self.cluster = Cluster(
            "fleet",
            [MemorySpace(name) for name in (*nodes, *users)],
            [Device(f"d{i}", node) for i, node in enumerate(nodes)],
            links,
            host=nodes[0],
        )
        self.graphs = [{b: one(f"m{i}", b) for b in range(1, most + 1)} for i in range(len(models))]
        speed = np.array(speeds)
        self.costs = CostTable(
            {
                graph: GraphCosts(((a + c * b) / speed)[None, :])
                for (a, c), graphs in zip(models, self.graphs, strict=True)
                for b, graph in graphs.items()
            }
        )
        self.batches: Mapping[DataflowGraph, Mapping[int, DataflowGraph]] = {
            graph: graphs for graphs in self.graphs for graph in graphs.values()
        }

    def job(self, arrival: float, model: int = 0, at: str = "node0", size: int = 1, **rest) -> Job:  # type: ignore[no-untyped-def]
        """A request that arises at a memory space, and whose answer returns there."""
        return Job(
            self.graphs[model][size],
            arrival,
            model=f"m{model}",
            batch=size,
            origin=at,
            destination=at,
            **rest,
        )

    def run(self, jobs: Sequence[Job], scheduler: str, **options) -> Trace:  # type: ignore[no-untyped-def]
        """Simulate requests; options of the engine start with an underscore."""
        engine = {key[1:]: options.pop(key) for key in list(options) if key.startswith("_")}
        workload = Workload(jobs, self.batches)
        return simulate(workload, self.cluster, self.costs, create(scheduler, **options), **engine)


def poisson(rate: float, count: int, seed: int = 0) -> list[float]:
    """Arrival times."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count)).tolist()


def flows(trace: Trace) -> np.ndarray:
    """Seconds from arrival to answer of every request."""
    return trace.jobs["finish"] - trace.jobs["arrival"]
