"""Devices whose time is that of their FLOPs; what moves data and multiplies nothing is free."""

import dataclasses

import numpy as np

from cost_models.arithmetic import operator_flops
from scenarios.partition.partitioner import Problem
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.workload import Job, Workload


@dataclasses.dataclass
class LinearPrices:
    """Seconds are ``overhead + FLOPs / speed``."""

    speed: tuple[float, ...]
    overhead: tuple[float, ...]

    def price(self, graphs):
        return CostTable({g: GraphCosts(self.seconds(g)) for g in graphs})

    def seconds(self, graph):
        flops = np.array([operator_flops(o) for o in graph.operators])[:, None]
        work = flops / np.array(self.speed)
        return np.where(flops > 0, work + np.array(self.overhead), 0.0)


def problem_of(graph, speed, overhead=None, bandwidth=None, latency=0.0):
    """One job on linear devices: of one memory, or each of its own on a link of this bandwidth to the first's."""
    devices = range(len(speed))
    apart = bandwidth is not None
    spaces = [MemorySpace(f"m{d}") for d in devices] if apart else [MemorySpace("m0")]
    links = [Link(f"l{d}", ("m0", f"m{d}"), bandwidth, latency) for d in devices[1:] if apart]
    parts = [Device(f"d{d}", f"m{d if apart else 0}") for d in devices]
    cluster = Cluster("linear", spaces, parts, links, host="m0")
    prices = LinearPrices(tuple(speed), tuple(overhead or (0.0,) * len(speed)))
    jobs = Workload([Job(graph, batch=graph.batch, origin="m0", destination="m0")])
    return Problem(jobs, cluster, prices.price([graph]), prices)
