"""What searching for a plan gains over HEFT, and what it takes.

    python -m tests.benchmarks.search [budget ...]
    python -m tests.benchmarks.search exact

Thirty random graphs (60 tasks in layers of different widths, edges to the next one to four layers,
unrelated devices, communication over computation of 0.2, 1 and 5) and traced models on two clusters,
each planned by ``heft`` and by the searches with budgets of 1,000, 10,000 and 100,000 evaluations
unless given. Makespans are relative to HEFT's, push without contention; a row for each set of graphs.
``exact`` instead plans random graphs of 10, 20 and 30 tasks with ``exact``.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simulator.analysis.bounds import lower_bound
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.schedulers import create
from simulator.schedulers.exact import Exact

BUDGETS = (1_000, 10_000, 100_000)
SEARCHES = ("annealing", "genetic")
MODELS = ("resnet50", "inception_v3", "lstm_cells")
CLUSTERS = ("cpu_1x_3x", "cpu2_gpu1")


class Instance(NamedTuple):
    """What is planned, and under which name it is reported."""

    name: str
    graph: DataflowGraph
    cluster: Cluster
    costs: CostTable


def random_instance(seed: int, tasks: int = 60) -> Instance:
    """Layers as ``daggen`` makes them; four devices that no factor relates."""
    rng = np.random.default_rng(seed)
    ccr = (0.2, 1.0, 5.0)[seed % 3]
    width = math.sqrt(tasks) * rng.choice([0.5, 1.0, 2.0])
    layer: list[int] = []
    while len(layer) < tasks:
        count = max(1, round(width * rng.uniform(0.2, 1.8)))
        layer += [layer[-1] + 1 if layer else 0] * min(count, tasks - len(layer))
    level = np.array(layer)
    density = rng.choice([0.1, 0.4, 0.8])
    edges = []
    for task in range(tasks):
        above = np.flatnonzero((level < level[task]) & (level >= level[task] - rng.integers(1, 5)))
        if len(above):
            chosen = above[rng.random(len(above)) < density]
            parents = chosen if len(chosen) else rng.choice(above, 1)
            edges += [(int(p), task, float(rng.uniform(0, 2 * ccr * 10))) for p in parents]
    seconds = rng.uniform(0, 20, tasks)[:, None] * rng.uniform(0.5, 1.5, (tasks, 4))
    graph = from_edges(f"random{seed}", tasks, edges)
    return Instance(
        f"random, CCR {ccr:g}", graph, fully_connected("four", 4), CostTable.of(graph, seconds)
    )


def traced_instances() -> Iterator[Instance]:
    """The models on the clusters; none without torch."""
    if importlib.util.find_spec("torch") is None:
        return
    from experiments import sweep
    from experiments.runs import world
    from experiments.runs.command import Invocation

    for cluster in CLUSTERS:
        for model in MODELS:
            words = (f"model={model}", f"cluster={cluster}", "name=search")
            task = sweep.plan_sweep(Invocation("experiments.sweep", words, ())).todo[0]
            made = world.unpartitioned(task.scenario)
            yield Instance(f"{model}, {cluster}", made.graph, made.cluster, made.costs)


def row_of(instance: Instance, budget: int) -> dict[str, tuple[float, float]]:
    """For each search its makespan over HEFT's and the seconds that planning took; and the bound."""
    _, graph, cluster, costs = instance
    heft = simulate(graph, cluster, costs, create("heft")).makespan
    bound = lower_bound(graph, costs[graph].seconds, cluster).bound_s
    found = {"bound": (bound / heft, 0.0)}
    for search in SEARCHES:
        began = time.perf_counter()
        makespan = simulate(graph, cluster, costs, create(search, budget=budget)).makespan
        found[search] = makespan / heft, time.perf_counter() - began
    return found


def print_exact() -> None:
    """What ``exact`` proves of random graphs with its default limit."""
    print("| graph | tasks | HEFT over exact | status | gap | seconds |")
    print("|---|---|---|---|---|---|")
    for tasks in (10, 20, 30):
        for seed in range(3):
            name, graph, cluster, costs = random_instance(seed, tasks)
            heft = simulate(graph, cluster, costs, create("heft")).makespan
            exact = create("exact")
            assert isinstance(exact, Exact)
            began = time.perf_counter()
            makespan = simulate(graph, cluster, costs, exact).makespan
            took = time.perf_counter() - began
            proof = exact.outcomes[0].certificate
            assert proof is not None
            print(
                f"| {name} | {tasks} | {heft / makespan:.3f} | {proof.status} | {proof.gap:.2%} | "
                f"{took:.1f} |"
            )
            sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Print the table."""
    if arguments == ["exact"]:
        print_exact()
        return 0
    budgets = tuple(map(int, arguments)) or BUDGETS
    sets: dict[str, list[Instance]] = {}
    for instance in [*map(random_instance, range(30)), *traced_instances()]:
        sets.setdefault(instance.name, []).append(instance)
    row_of(random_instance(0), 100)  # compiles
    titles = [f"{search} (seconds)" for search in SEARCHES]
    print("| graphs | budget | bound | " + " | ".join(titles) + " |")
    print("|---|---|---|" + "---|" * len(titles))
    for name, instances in sets.items():
        for budget in budgets:
            rows = [row_of(instance, budget) for instance in instances]
            ratio = {k: math.exp(np.mean([math.log(row[k][0]) for row in rows])) for k in rows[0]}
            took = {k: float(np.mean([row[k][1] for row in rows])) for k in rows[0]}
            cells = [f"{ratio[search]:.3f} ({took[search]:.2f})" for search in SEARCHES]
            of = f"{name} ({len(rows)})" if len(rows) > 1 else name
            print(f"| {of} | {budget:,} | {ratio['bound']:.3f} | " + " | ".join(cells) + " |")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
