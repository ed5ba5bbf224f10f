"""Training steps of a chain of layers with given times, for tests."""

from __future__ import annotations

import numpy as np

from scenarios.training.parallelism import Layout, parallelised
from scenarios.training.step import Step
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.plan import Plan
from simulator.model.workload import Job, Workload
from simulator.planners.pipeline_schedules import schedule
from simulator.schedulers.planned import Planned


def chain_step(layers, activation=0.0, weight=0.0, divided=False):
    """A step of layers, each one forward and one backward operator (two if divided) and an update.

    Bytes of activations and weights are of each layer, or the same for all.
    """
    activations = np.broadcast_to(activation, layers).tolist()
    weights = np.broadcast_to(weight, layers).tolist()
    tensors = [Tensor("x", "input", activations[0])]
    tensors += [Tensor(f"w{i}", "weight", weights[i]) for i in range(layers)]
    operators, reads, writes = [], [], []

    def add(name, kind, read, written):
        operators.append(Operator(name, kind))
        reads.append([next(i for i, t in enumerate(tensors) if t.name == r) for r in read])
        first = len(tensors)
        tensors.extend(Tensor(n, "activation", size) for n, size in written)
        writes.append(list(range(first, len(tensors))))

    for i in range(layers):
        add(f"f{i}", "f", [f"a{i - 1}" if i else "x", f"w{i}"], [(f"a{i}", activations[i])])
    for i in range(layers - 1, -1, -1):
        into = [f"g{i + 1}" if i + 1 < layers else f"a{i}"]
        source = [f"a{i - 1}" if i else "x"]
        back, own = [(f"g{i}", activations[i - 1])] if i else [], [(f"gw{i}", weights[i])]
        if divided:
            # the first layer gives a gradient, too, so that all stages are alike
            add(f"b{i}", "b", [*into, f"w{i}"], back or [("g0", activations[0])])
            add(f"v{i}", "w", [*into, *source, *([] if i else ["g0"])], own)
        else:
            add(f"b{i}", "b", [*into, *source, f"w{i}"], back + own)
    for i in range(layers):
        add(f"u{i}", "u", [f"w{i}", f"gw{i}"], [(f"w{i}:updated", weights[i])])
    results = [{"tensor": f"a{layers - 1}", "views": []}]
    return DataflowGraph("chain", operators, tensors, reads, writes, results, 1)


def step_seconds(graph, devices, forward=1.0, backward=2.0, weights=0.0):
    """float[operators, devices]; updates take nothing."""
    seconds = {"f": forward, "b": backward, "w": weights, "u": 0.0}
    column = np.array([seconds[o.kind] for o in graph.operators])
    return np.repeat(column[:, None], devices, axis=1)


def switched(devices, bandwidth=1.0, extra=()):
    """Devices with memories of their own, each joined to a switch by a link that carries both ways at once."""
    names = [*(f"m{i}" for i in range(devices)), *extra]
    spaces = [*map(MemorySpace, names), MemorySpace("switch")]
    links = [Link(f"l-{name}", (name, "switch"), bandwidth) for name in names]
    return Cluster("switched", spaces, [Device(f"d-{name}", name) for name in names], links)


def simulated(graph, seconds, cluster, device, order, **options):
    """The trace of a plan, links ``fifo``."""
    names = tuple(d.name for d in cluster.devices)
    plan = Plan("test", (graph,), names, device, order)
    workload = Workload([Job(graph)])
    costs = CostTable({graph: GraphCosts(seconds)})
    return simulate(workload, cluster, costs, Planned(plan), contention="fifo", **options)


def pipelined(
    name,
    stages,
    micro_batches,
    seconds=(1.0, 2.0, 0.0),
    chunks=1,
    graph=None,
    cluster=None,
    speeds=1.0,
):
    """The trace of a pipeline of one layer a chunk on devices of their own; links are free unless a cluster is given."""
    step = Step.of(graph or chain_step(stages * chunks, divided=name == "zb_h1"))
    part = step.stages(list(range(stages * chunks)))
    worker_of = np.repeat(np.arange(stages)[:, None], micro_batches, axis=1)
    workers = [(d,) for d in range(stages)]
    slots = schedule(name, worker_of, chunks)
    layout = Layout(part, worker_of, workers, slots, asynchronous=name == "pipedream")
    made = parallelised(step, layout)
    given = step_seconds(step.graph, stages, *seconds) / np.asarray(speeds)
    full = np.where(made.origin[:, None] >= 0, given[made.origin], 0.0)
    cluster = cluster or fully_connected("stages", stages)
    return simulated(made.graph, full, cluster, made.device, made.order)
