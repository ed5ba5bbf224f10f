"""Batch-mode decisions over few ready tasks: kept in lists against kept in arrays.

    python -m tests.benchmarks.few_ready

Layers of independent tasks, each mapped as one batch; the same batches both ways, in turns. A line has the
median time of a decision, microseconds, and which is how much faster.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from scenarios.instances import instance_from_json
from simulator.context import SchedulingContext
from simulator.engine.run import simulate
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import _batch_mapping as batch_mode
from simulator.schedulers.min_min import MinMin

LAYERS, TURNS = 40, 5
COUNTS, DEVICES = (2, 3, 4, 8, 16, 32, 64), (2, 4, 8)
WAYS = {"lists": 1 << 30, "arrays": 0}
"""By name: what :data:`simulator.schedulers._batch_mapping.FEW` is."""


class Timed(MinMin):
    """Keeps how long every decision over several tasks took."""

    def __init__(self, pricing: str) -> None:
        super().__init__(pricing)
        self.seconds: list[float] = []

    def map(self, context: SchedulingContext, tasks: list[int]) -> None:
        """See :class:`MinMin`."""
        begin = time.perf_counter()
        super().map(context, tasks)
        self.seconds.append(time.perf_counter() - begin)


def compare(count: int, devices: int, pricing: str) -> dict[str, float]:
    """Median microseconds of a decision over ``count`` tasks, each way."""
    edges: list[tuple[int, int, float]] = []
    for layer in range(LAYERS):
        gate = layer * (count + 1)
        for task in range(gate + 1, gate + 1 + count):
            edges.append((gate, task, 1.0))
            if layer < LAYERS - 1:
                edges.append((task, gate + 1 + count, 1.0))
    graph = from_edges("layers", LAYERS * (count + 1), edges)
    rng = np.random.default_rng(0)
    _, cluster, _ = instance_from_json({"cost": [[1.0] * devices], "edges": []})
    costs = CostTable.of(graph, rng.uniform(1, 10, (len(graph), devices)))
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    spans = set()
    kept = batch_mode.FEW
    try:
        for _ in range(TURNS):
            for name, few in WAYS.items():
                batch_mode.FEW = few
                scheduler = Timed(pricing)
                spans.add(simulate(graph, cluster, costs, scheduler).makespan)
                found[name] += scheduler.seconds
    finally:
        batch_mode.FEW = kept
    assert len(spans) == 1  # the same decisions
    return {name: statistics.median(seconds) * 1e6 for name, seconds in found.items()}


def main() -> None:
    """Print the table."""
    print(
        f"{'pricing':18} {'tasks':>5} {'devices':>7} {'lists, us':>9} {'arrays, us':>10}  ratio  taken"
    )
    for pricing in ("per_link", "contention_aware"):
        for devices in DEVICES:
            for count in COUNTS:
                found = compare(count, devices, pricing)
                ratio = found["arrays"] / found["lists"]
                taken = "lists" if count <= batch_mode.FEW else "arrays"
                print(
                    f"{pricing:18} {count:5} {devices:7} {found['lists']:9.0f} {found['arrays']:10.0f}"
                    f"  {ratio:5.2f}  {taken}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
