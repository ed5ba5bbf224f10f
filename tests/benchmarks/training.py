"""How long a large training plan takes to build and to simulate, its step's trace given.

``python -m tests.benchmarks.training`` spreads GPT-2 (batch 64, Adam) over 16 devices, 64 micro-batches under 1F1B,
and prints seconds and memory. What is reached for: 20 s and 1.5 GiB for about 59,000 tasks. Tracing is reported
apart: cold, and from the cache.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from experiments.runs.catalog import entry
from scenarios.graph_cache import GraphCache
from scenarios.model_config import ModelConfig, graph_of
from scenarios.partition.partitioner import Problem
from scenarios.training.parallel_training import ParallelTraining
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job, Workload

DEVICES, MICRO_BATCHES = 16, 64
LIMIT_S, LIMIT_GIB = 20.0, 1.5
BYTES_PER_SECOND = 100e9
"""Of every operator: how long it is said to take does not matter here."""


class Streaming:
    """Prices operators by their bytes."""

    def price(self, graphs: list[DataflowGraph]) -> CostTable:
        """See :class:`simulator.model.costs.Prices`."""
        return CostTable({graph: GraphCosts(self._seconds(graph)) for graph in graphs})

    def _seconds(self, graph: DataflowGraph) -> np.ndarray:
        moved = [sum(s.bytes for s in (*o.inputs, *o.outputs)) for o in graph.operators]
        column = 1e-6 + np.array(moved, dtype=float)[:, None] / BYTES_PER_SECOND
        return np.repeat(column, DEVICES, axis=1)


def config() -> ModelConfig:
    """GPT-2's step of the whole batch."""
    found = entry("model", "gpt2", ())
    assert found is not None
    known = {k: v for k, v in found.content.items() if k in ModelConfig.__dataclass_fields__}
    return replace(ModelConfig(**known), training=True, optimizer="adam", batch=MICRO_BATCHES)


def main() -> None:
    """The command."""
    model = config()
    if sys.argv[1:] != ["planned"]:
        with tempfile.TemporaryDirectory() as folder:
            for what in ("cold", "from the cache"):
                began = time.perf_counter()
                program = "import tests.benchmarks.training as t, sys; t.trace(sys.argv[1])"
                subprocess.run([sys.executable, "-c", program, folder], check=True)
                print(
                    f"traced, {what}: {time.perf_counter() - began:.1f} s, torch's import included"
                )
        trace(None)  # fills the user's cache
        subprocess.run([sys.executable, "-m", __spec__.name, "planned"], check=True)
        return
    whole = graph_of(model)
    graph_of(model, 1)
    cluster, prices = fully_connected("devices", DEVICES, 10e9), Streaming()
    problem = Problem(
        Workload([Job(whole)]),
        cluster,
        prices.price([whole]),
        prices,
        at_batch=partial(graph_of, model),
    )
    began = time.perf_counter()
    plan = ParallelTraining(micro_batches=MICRO_BATCHES).plan(problem)
    built = time.perf_counter()
    problem.makespan(plan)
    ended = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{len(plan.graphs[0]):,} tasks: built in {built - began:.1f} s, simulated in {ended - built:.1f} s "
        f"(at most {LIMIT_S:g} together), {memory:.2f} GiB of {LIMIT_GIB}"
    )
    if ended - began > LIMIT_S or memory > LIMIT_GIB:
        sys.exit("missed")


def trace(folder: str | None) -> None:
    """Trace the step of the whole batch and of one micro-batch, or read what was traced."""
    cache = None if folder is None else GraphCache(Path(folder))
    for batch in (MICRO_BATCHES, 1):
        graph_of(config(), batch, cache)


if __name__ == "__main__":
    main()
