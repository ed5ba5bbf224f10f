"""What a cell of a sweep costs beyond simulating: config, scheduler, metrics, bounds, files.

ResNet-50 on two cores and a GPU, three schedulers by several noise seeds, as a sweep runs them in one
process. The world of a cell (graph, cluster, cost table) is shared by all cells of a model on a cluster
and made once; making its cost table is timed apart.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SCHEDULERS = ("fcfs", "donf", "heft")
OVERRIDES = ("model=resnet50", "cluster=cpu2_gpu1", "simulation.draws=0")


class Stopwatch:
    """Stands in for ``simulate`` and adds up what it takes."""

    def __init__(self, simulate: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self.simulate, self.clock = simulate, clock
        self.seconds = 0.0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        began = self.clock()
        try:
            return self.simulate(*arguments, **options)
        finally:
            self.seconds += self.clock() - began


def cell_row(
    repeats: int,
    overrides: Sequence[str] = OVERRIDES,
    config_dirs: tuple[Path, ...] = (),
) -> dict[str, Any]:
    """Seconds of a cell: of its config, of everything around the simulation, and of pricing."""
    if importlib.util.find_spec("torch") is None:
        return {"skipped": "torch is not installed; ResNet-50 is traced from it"}
    from experiments import sweep
    from experiments.runs import cell, world
    from experiments.runs.cell_folder import run_cell
    from experiments.runs.command import Invocation

    with tempfile.TemporaryDirectory() as folder:

        def plan(seeds: int) -> sweep.Plan:
            chosen = (
                f"scheduler={','.join(SCHEDULERS)}",
                f"seed.noise=range(0,{seeds})",
                *("simulation.noise=lognormal", "simulation.sigma=0.05"),  # what the seed draws
                f"output_dir={folder}",
                "name=cells",
            )
            return sweep.plan_sweep(
                Invocation("experiments.sweep", (*overrides, *chosen), config_dirs)
            )

        plan(1)  # reads configs and profiles
        few_s = many_s = float("inf")
        for _ in range(max(repeats, 2)):
            began = time.perf_counter()
            plan(5)
            few_s = min(few_s, time.perf_counter() - began)
            began = time.perf_counter()
            todo = plan(25).todo
            many_s = min(many_s, time.perf_counter() - began)
        config_s = (many_s - few_s) / (20 * len(SCHEDULERS))
        watch = Stopwatch(cell.simulate)
        cell.simulate = world.simulate = watch
        first = run_cell(todo[0])  # traces and prices
        if first["status"] != "done":
            return {"skipped": f"the cell failed: {first['error']}"}
        best: dict[str, tuple[float, float]] = {}
        count = 4 * max(repeats, 2)
        for task in [t for k, t in enumerate(todo) if 0 < k % 25 <= count]:
            watch.seconds = 0.0
            began = time.perf_counter()
            document = run_cell(task)
            whole = time.perf_counter() - began
            name = document["labels"]["scheduler"]
            row = (whole - watch.seconds, watch.seconds)
            best[name] = min(best.get(name, row), row)
        cell.simulate = world.simulate = watch.simulate
        made = next(reversed(world.worlds.values()))  # of this process, the last one used
        price_s = float("inf")
        for _ in range(max(repeats, 2)):
            began = time.perf_counter()
            made.pricer.price([made.graph])
            price_s = min(price_s, time.perf_counter() - began)
    overhead_s = max(row[0] for row in best.values())
    return {
        "tasks": len(made.graph),
        "cells": {name: {"overhead_s": row[0], "simulate_s": row[1]} for name, row in best.items()},
        "config_s": config_s,
        "overhead_s": config_s + overhead_s,
        "cost_table_s": price_s,
    }
