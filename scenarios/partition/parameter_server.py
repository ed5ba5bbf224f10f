"""One iteration with parameter servers: who gets which samples and owns which parameters.

The jobs' graphs have one operator for each sample, which reads the parameters that it touches and nothing else
(``family=parameter_server``); each device, alone in its memory, is a worker and a server. What is made of them: for every two
machines one pull, whose tensor holds the parameters that one owns and the other's samples touch; the samples of each
machine as one operator, which reads what was pulled and what is there; one push of as many gradients back; and the
owner's step, which writes ``parameters of P1:updated``. Owners apply the gradients where the next iteration pulls.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cost_models.optimizer_steps import UPDATED, optimizer_of
from scenarios.partition.partitioner import Partitioner, Problem
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.plan import Plan
from simulator.planners.parameter_server import POLICIES, Allocation, ServerProblem

MOST_PAIRS = 100_000_000
"""Samples times parameters; more are taken for an error."""


class ParameterServer(Partitioner):
    """Allocates samples and parameters. See the module docstring.

    Args:
        policy: ``two_step``; baselines ``hash``, ``contiguous`` and ``parsa`` (:mod:`simulator.planners.parameter_server`).
        slack: by which a machine may have more samples, or parameters, than in proportion to its speed, or its link;
            of ``two_step``.
        seed: of ``hash``.

    Raises:
        InvalidInput: an unknown policy.
    """

    name: ClassVar[str] = "parameter_server"
    makes_graphs: ClassVar[bool] = True
    beside_devices = False

    def __init__(self, policy: str = "two_step", slack: float = 0.05, seed: int = 0) -> None:
        if policy not in POLICIES:
            raise InvalidInput(
                f"Partition 'parameter_server' has policy={policy}; known: {', '.join(POLICIES)}"
            )
        if not slack >= 0:
            raise InvalidInput(f"Partition 'parameter_server' has slack={slack}; give 0 or more")
        self.policy, self.slack, self.seed = policy, slack, seed

    def plan(self, problem: Problem) -> Plan:
        """See :class:`scenarios.partition.partitioner.Partitioner`.

        Raises:
            InvalidInput: operators that read anything but parameters, several graphs, or devices that share a memory.
        """
        graph, cluster = problem.graph, problem.cluster
        servers = _problem(graph, problem.costs[graph].seconds, cluster, self.slack)
        found = POLICIES[self.policy](servers, self.seed)
        made, device, seconds = iteration(graph.name, cluster, servers, found)
        problem.know(made, GraphCosts(seconds))
        jobs = len(problem.jobs)
        moved = found.moved(servers)
        return Plan(
            self.name,
            (made,) * jobs,
            tuple(one.name for one in cluster.devices),
            np.tile(device, jobs),
            np.arange(jobs * len(made)),
            notes={
                "policy": self.policy,
                "closed_form_s": float(found.seconds(servers).max()),
                "transfers": found.transfers(servers),
                "fewest_transfers": found.fewest_transfers(servers),
                "moved_bytes": 2.0 * float(servers.size @ moved.sum(axis=1)),
                "samples": np.bincount(found.worker, minlength=servers.machines).tolist(),
                "parameters": np.bincount(found.owner, minlength=servers.machines).tolist(),
            },
        )


def _problem(
    graph: DataflowGraph, seconds: np.ndarray, cluster: Cluster, slack: float
) -> ServerProblem:
    spaces = cluster.space_of
    if len(set(spaces)) < len(spaces):
        raise InvalidInput(
            f"Partition 'parameter_server' takes machines with a memory each; devices of cluster '{cluster.name}' share one"
        )
    weights = {tensor: number for number, tensor in enumerate(graph.weights)}
    for operator, reads in zip(graph.operators, graph.reads, strict=True):
        if not reads or not weights.keys() >= set(reads):
            raise InvalidInput(
                f"Partition 'parameter_server' takes samples that read parameters alone, and operator '{operator.name}' does "
                "not; take family=parameter_server"
            )
    if len(graph) * len(weights) > MOST_PAIRS:
        raise InvalidInput(
            f"{len(graph)} samples and {len(weights)} parameters are {len(graph) * len(weights):.3g} pairs; at most "
            f"{MOST_PAIRS:.3g} are planned"
        )
    if not np.isfinite(seconds).all():
        raise InvalidInput(
            "Partition 'parameter_server' takes machines that can all run any sample"
        )
    touches = np.zeros((len(graph), len(weights)), dtype=bool)
    for sample, reads in enumerate(graph.reads):
        touches[sample, [weights[tensor] for tensor in reads]] = True
    link = [
        sum(link.bandwidth for link in cluster.links if cluster.spaces[space].name in link.ends)
        for space in spaces
    ]
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    size = graph.tensor_bytes[list(weights)]
    return ServerProblem(touches, seconds + overhead, size, np.array(link), slack)


def iteration(
    name: str, cluster: Cluster, servers: ServerProblem, found: Allocation
) -> tuple[DataflowGraph, np.ndarray, np.ndarray]:
    """The graph of one iteration, int64[operators] the device of each, and float[operators, devices] their seconds.

    An operator can run on its machine alone.
    """
    count = servers.machines
    names = [device.name for device in cluster.devices]
    moved = found.moved(servers)
    owned = np.eye(count, dtype=bool)[found.owner]
    # Bytes that each machine (row) owns and each other one (column) pulls.
    between = (owned * servers.size[:, None]).T @ moved
    held = servers.size @ owned
    computed = np.bincount(
        found.worker, servers.seconds[np.arange(len(found.worker)), found.worker], count
    )
    tensors: list[Tensor] = []

    def tensor(name: str, size: float, weight: bool = False) -> int:
        tensors.append(Tensor(name, "weight" if weight else "activation", size))
        return len(tensors) - 1

    rows: list[tuple[Operator, list[int], list[int], int, float]] = []
    own = {
        i: tensor(f"parameters of {names[i]}", held[i], weight=True)
        for i in range(count)
        if held[i]
    }
    pulled: list[list[int]] = [[] for _ in range(count)]
    # In turns, so that no machine is asked by all others at once.
    pairs = [(i, (i + turn) % count) for turn in range(1, count) for i in range(count)]
    pairs = [pair for pair in pairs if between[pair]]
    for server, worker in pairs:
        pulled[worker].append(
            tensor(f"{names[worker]} pulls of {names[server]}", between[server, worker])
        )
        pull = Operator(f"pull {names[server]} to {names[worker]}", "pull")
        rows.append((pull, [own[server]], pulled[worker][-1:], server, 0.0))
    pushed: list[list[int]] = [[] for _ in range(count)]
    writes: list[list[int]] = [[] for _ in range(count)]
    for server, worker in pairs:
        gradient = tensor(f"{names[worker]} pushes to {names[server]}", between[server, worker])
        pushed[server].append(gradient)
        writes[worker].append(gradient)
    for worker in range(count):
        if not (found.worker == worker).any():
            continue
        reads = pulled[worker]
        used = servers.touches[found.worker == worker].any(axis=0) & owned[:, worker]
        if used.any():
            reads = [*reads, own[worker]]
            here = tensor(f"gradients of {names[worker]}", float(servers.size @ used))
            pushed[worker].append(here)
            writes[worker].append(here)
        samples = Operator(f"samples of {names[worker]}", "samples")
        rows.append((samples, reads, writes[worker], worker, float(computed[worker])))
    for server in range(count):
        if pushed[server]:
            label = tensors[own[server]].name
            updated = tensor(f"{label}{UPDATED}", held[server])
            step = Operator(f"{label}/sgd_step", "sgd_step", target=optimizer_of("sgd").target)
            rows.append((step, [own[server], *pushed[server]], [updated], server, 0.0))
    operators, reads_of, writes_of, device, seconds = zip(*rows, strict=True)
    graph = DataflowGraph(f"{name} iteration", operators, tensors, reads_of, writes_of)
    times = np.full((len(rows), count), np.inf)
    times[np.arange(len(rows)), device] = seconds
    return graph, np.array(device), times
