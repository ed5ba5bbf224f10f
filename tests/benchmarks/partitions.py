"""How long partitions take to plan, of graphs that are traced and priced, compiled code loaded.

``python -m tests.benchmarks.partitions [--repeats N]`` prints a table. What is reached for: 5 s for Inception-v3 or
BERT-base over CPU and GPU, 2 s for 50 mixed jobs that are offloaded.
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

from experiments.runs.grid import compose_grid
from experiments.runs.prepare import partitioned, partitioner_of
from experiments.runs.world import unpartitioned

MIXED = "alexnet:1 googlenet:1 resnet18:1 mobilenet_v2:1"
CASES = (
    *(
        (5.0, f"model={model}", "cluster=cpu2_gpu1", f"partition={name}")
        for model in ("inception_v3", "bert_base")
        for name in ("cpu_gpu", "duet", "advise", "fused", "tensor_split", "eop")
    ),
    (
        2.0,
        "cluster=offload_4g",
        "partition=offload",
        "workload=concurrent",
        "workload.jobs=50",
        f"workload.mix='{MIXED}'",
    ),
)
"""Seconds to be reached, and what is planned."""


def planning_seconds(words: tuple[str, ...], repeats: int) -> list[float]:
    """Wall-clock seconds of planning, the engine's runs that hold the plan against each device included."""
    (cell,) = compose_grid([*words, "scheduler=planned"]).cells
    made, world = partitioner_of(cell.scenario), unpartitioned(cell.scenario)
    found = []
    for _ in range(repeats + 1):  # the first loads what is compiled
        began = time.perf_counter()
        partitioned(made, world, cell.scenario)
        found.append(time.perf_counter() - began)
    return found[1:]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2)
    repeats = parser.parse_args().repeats
    table = Table("planned", "seconds", "to be reached", box=None)
    for limit, *words in CASES:
        seconds = planning_seconds(tuple(words), repeats)
        shown = ", ".join(f"{s:.2f}" for s in seconds)
        table.add_row(
            " ".join(words), shown, f"{limit:g}" + ("" if min(seconds) <= limit else " (missed)")
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
