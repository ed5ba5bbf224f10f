"""What measuring the runner's copies is worth: saved validations, predicted with it and without.

``python -m tests.benchmarks.copying docs/validation/h200`` prints for each folder how far simulated makespans are off
when devices and order of operators are as measured, and what simulating with the scheduler's own decisions says then:

``as the links say``
    copies take what their link's figures say;
``as found in the runner``
    and what the probe found beyond, on another model before the cases ran (:mod:`experiments.probes.runner_overhead`), as
    latency; not in runs that had no such probe;
``with the interpreter``
    copies have the interpreter before they go and when they have come, for as long as the probe found; in runs that had no
    such probe as long as makes copies of the *other* models, under the same scheduler with as many jobs, take what they took.

Nothing is fitted to the cases that are predicted.

``--link`` measures the figures of links: what the runner's thread that copies takes from being asked to having copied,
nothing else running, on one memory that counts as two (``rome2_apart``, ``turin2_apart``).
"""

from __future__ import annotations

import argparse
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.probes.overhead import Overhead, with_overhead
from experiments.probes.runner_overhead import copies_beyond
from experiments.validation.cases import Case, ModelValidation, Validation
from experiments.validation.contestants import Contestant
from experiments.validation.pairs import pairs, regret
from experiments.validation.saved import load_validation
from scenarios.arrivals import build_workload
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.plan import Plan
from simulator.model.trace import Trace
from simulator.schedulers.planned import Planned

LINK_SIZES = tuple(4**i * 1024 for i in range(8))
"""Bytes: 1 KiB to 16 MiB, as tensors between operators have."""
LINK_COPIES = 40
"""Of each size."""


LAUNCHES = (0.0, 2e-5, 4e-5, 6e-5, 8e-5, 12e-5, 16e-5)
"""Seconds of the interpreter, between which is looked for what other models' copies need."""
LEAST_COPIES = 8
"""Of a case from which something is learnt about copies."""


@dataclass(frozen=True, eq=False)
class Run:
    """A case and what it is of."""

    model: ModelValidation
    contestant: Contestant
    case: Case

    def simulated(self, overhead: Overhead, scheduler: Scheduler) -> Trace:
        """With that overhead; schedulers believe what they were told."""
        model, case, scenario = self.model, self.case, self.contestant.scenario
        costs = CostTable({model.graph: model.costs})
        cluster = with_overhead(
            model.cluster,
            overhead,
            model.handover,
            model.corun,
            model.caches,
            model.cooling,
            model.reading,
        )
        return simulate(
            build_workload(scenario.workload, model.graph, cluster.host, scenario.seed.workload),
            cluster,
            costs,
            scheduler,
            actual=costs.scaled(model.slowed),
            believed=with_overhead(model.cluster, case.believed or case.overhead),
            movement=scenario.simulation.movement,
            contention=scenario.simulation.contention,
        )

    def replayed(self, overhead: Overhead) -> Trace:
        """With the measured decisions."""
        measured = self.case.measured
        return self.simulated(
            overhead,
            Planned(Plan.executed(measured, [self.model.graph] * len(measured.jobs["job"]))),
        )


def runs_of(validation: Validation) -> list[Run]:
    """Every case."""
    return [
        Run(model, contestant, case)
        for model in validation.models
        for contestant, case in zip(model.contestants, model.cases, strict=True)
    ]


def launching(overhead: Overhead, seconds: float) -> Overhead:
    """With copies that have the interpreter for so long, twice."""
    return replace(overhead, copy=0.0, copy_launch=seconds)


def of_other_models(runs: Sequence[Run]) -> Callable[[Run], float]:
    """Seconds for which the copies of other models have the interpreter, under the same scheduler with as many jobs."""
    taken: dict[Run, tuple[float, list[float]]] = {}
    for run in runs:
        measured = copies_beyond(run.case.measured, run.model.cluster)
        if len(measured) >= LEAST_COPIES:
            overheads = (launching(run.case.overhead, seconds) for seconds in LAUNCHES)
            simulated = (copies_beyond(run.replayed(o), run.model.cluster) for o in overheads)
            taken[run] = float(np.mean(measured)), [float(np.mean(s)) for s in simulated]

    def needed(run: Run) -> float:
        others = [
            found
            for other, found in taken.items()
            if other.model is not run.model
            and (other.case.scheduler, other.case.jobs) == (run.case.scheduler, run.case.jobs)
        ]
        if not others:
            return 0.0
        curve = np.maximum.accumulate(np.mean([simulated for _, simulated in others], axis=0))
        return float(np.interp(np.mean([measured for measured, _ in others]), curve, LAUNCHES))

    return needed


def ways(runs: Sequence[Run]) -> Iterator[tuple[str, Callable[[Run], Overhead]]]:
    """What copies are taken to need, one way after the other."""
    yield "as the links say", lambda run: replace(run.case.overhead, copy=0.0, copy_launch=None)
    if any(run.case.overhead.copy for run in runs):
        yield "as found in the runner", lambda run: replace(run.case.overhead, copy_launch=None)
    if any(run.case.overhead.copy_launch is not None for run in runs):
        yield "with the interpreter", lambda run: run.case.overhead
    else:
        needed = of_other_models(runs)
        yield "with the interpreter", lambda run: launching(run.case.overhead, needed(run))


def row(runs: Sequence[Run], way: Callable[[Run], Overhead]) -> str:
    """Mean error and bias at the measured decisions; with the schedulers' own, and what they say of winners."""
    measured = np.array([run.case.measured_s for run in runs])
    overheads = [way(run) for run in runs]
    replayed = np.array([r.replayed(o).makespan for r, o in zip(runs, overheads, strict=True)])
    own = [
        replace(r.case, simulated_s=r.simulated(o, r.contestant.make()).makespan)
        for r, o in zip(runs, overheads, strict=True)
    ]
    error = replayed / measured - 1
    errors = np.array([case.error for case in own])
    separate = [pair.agrees for pair in pairs(own) if pair.separate]
    regrets = list(regret(own).values())
    return (
        f"{np.abs(error).mean():8.1%} {error.mean():+7.1%} | {np.abs(errors).mean():7.1%} {errors.mean():+7.1%} "
        f"{np.abs(errors).max():7.1%} {np.mean(separate):8.1%} {np.mean(regrets):7.1%}"
    )


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
    print(f"{'':51} | measured decisions | the schedulers' own")
    print(
        f"{'validation':28} {'copies':22} | {'error':>8} {'bias':>7}   | {'error':>7} {'bias':>7} {'worst':>7} "
        f"{'winners':>8} {'regret':>7}"
    )
    for folder in parser.parse_args(arguments).folders:
        try:
            validation, _ = load_validation(folder)
        except InvalidInput as refused:
            raise SystemExit(str(refused)) from None
        runs = runs_of(validation)
        if not any(len(run.case.measured.transfers["start"]) for run in runs):
            print(f"{folder!s:28} has no transfers")
            continue
        for label, way in ways(runs):
            print(f"{folder!s:28} {label:22} | {row(runs, way)}", flush=True)


if __name__ == "__main__":
    main()
