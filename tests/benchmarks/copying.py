"""What measuring the runner's copies is worth: saved validations, predicted with it and without.

``python -m tests.benchmarks.copying docs/validation/apart`` prints for each folder how far simulated makespans are off
when devices and order of operators are as measured, and which part of that transfers are. Nothing is fitted: what a copy
takes beyond its link's figures was measured on another model before the cases ran (:mod:`experiments.probes.runner_overhead`).

``--link`` measures such figures: what the runner's thread that copies takes from being asked to having copied, nothing else
running, on one memory that counts as two (``rome2_apart``, ``turin2_apart``).
"""

from __future__ import annotations

import argparse
import queue
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.probes.overhead import with_overhead
from experiments.runs.configs import Scenario
from experiments.validation.cases import Case, ModelValidation
from experiments.validation.saved import load_validation
from experiments.validation.waterfall import error_steps
from scenarios.arrivals import build_workload
from simulator.costs import CostTable
from simulator.errors import InvalidInput

LINK_SIZES = tuple(4**i * 1024 for i in range(8))
"""Bytes: 1 KiB to 16 MiB, as tensors between operators have."""
LINK_COPIES = 40
"""Of each size."""


def shares(
    model: ModelValidation, case: Case, scenario: Scenario, copying: bool
) -> tuple[float, float]:
    """The error at the measured decisions, and the step ``transfers``, both over the measured makespan."""
    overhead = case.overhead if copying else replace(case.overhead, copy=0.0)
    cluster = with_overhead(
        model.cluster, overhead, model.handover, model.corun, model.caches, model.cooling
    )
    steps = error_steps(
        build_workload(scenario.workload, model.graph, cluster.host, scenario.seed.workload),
        cluster,
        CostTable({model.graph: model.costs}).scaled(model.slowed),
        case.simulated_s,
        case.measured,
        case.measured_s,
        {model.graph: model.alone},
        scenario.simulation.movement,
        scenario.simulation.contention,
    )
    replayed = case.simulated_s + steps["decisions"]
    return replayed / case.measured_s - 1, steps["transfers"] / case.measured_s


def link_figures() -> tuple[float, float]:
    """Latency in seconds and bytes per second of a copy within main memory by a thread of its own, from medians."""
    import torch

    from calibration.copies import Copier
    from calibration.transfers import fit_line

    torch.set_num_threads(1)
    copier, medians = Copier("cpu", "cpu"), []
    for size in LINK_SIZES:
        source, took = torch.ones(size, dtype=torch.uint8), []
        for _ in range(LINK_COPIES):
            there: queue.SimpleQueue[float] = queue.SimpleQueue()
            asked = time.perf_counter()
            copier.copy([source], lambda *_, there=there: there.put(time.perf_counter()))  # type: ignore[misc]
            took.append(there.get() - asked)
        medians.append(float(np.median(took)))
    copier.close()
    return fit_line(LINK_SIZES, medians)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.copying")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--link", action="store_true")
    if parser.parse_args(arguments).link:
        latency, bandwidth = link_figures()
        print(f"latency {latency * 1e6:.1f} us, bandwidth {bandwidth / 1e9:.1f} GB/s")
        return
    print(f"{'validation':28} {'copies':22} {'cases':>5} {'error':>7} {'bias':>7} {'transfers':>9}")
    for folder in parser.parse_args(arguments).folders:
        try:
            validation, _ = load_validation(folder)
        except InvalidInput as refused:
            raise SystemExit(str(refused)) from None
        for copying, label in ((False, "as the links say"), (True, "as found in the runner")):
            found = np.array(
                [
                    shares(model, case, one.scenario, copying)
                    for model in validation.models
                    for one, case in zip(model.contestants, model.cases, strict=True)
                    if len(case.measured.transfers["start"])
                ]
            )
            if not len(found):
                print(f"{folder!s:28} has no transfers")
                break
            error, transfers = found.T
            print(
                f"{folder!s:28} {label:22} {len(found):5} {np.abs(error).mean():7.1%} "
                f"{error.mean():+7.1%} {transfers.mean():+9.1%}"
            )


if __name__ == "__main__":
    main()
