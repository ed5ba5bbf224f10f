"""What is measured of this machine before serving is held against it, by generic probes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.probes.within_segments import segment_seconds, task_seconds
from experiments.serving_validation.outcome import all_at_once
from experiments.serving_validation.site import Site
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

BURST_SECONDS = 3.0
"""Of work in a burst that the capacity is measured with, about."""
BURSTS = 3
AGREEING = 0.05
"""By which two capacities measured one after the other may differ; else it is measured once more."""
MEASURED_AT_MOST = 5
"""Times, until two of them agree."""
JOINS = 7
"""Batches of each size from which the seconds of concatenating their inputs are taken."""


@dataclass
class Figures:
    """What was measured of this machine before the cases.

    Attributes:
        key: what it depends on.
        capacity_per_s: requests that it serves one at a time, all devices busy.
        capacities_per_s: as that was measured, until two in a row agreed.
        simulated_capacity_per_s: the same, simulated of the machine as it was during the last of them.
        speed: how much longer operators took on average beside the bursts than the profiles say, and what busy
            devices then cost each other, as :meth:`MachineSpeed.to_json` has it; None if the profiles' speed is taken.
        wake_s: seconds that an execution takes longer on each device after a long rest; None if the cluster's are
            taken.
        dispatch_s: the runner's overhead per task under each scheduler, seconds.
        segment_s: seconds per operator within a segment beyond the operator's own.
        joining_s: seconds of concatenating a batch's inputs, by model and batch.
        load_average: of the machine over the minute before.
    """

    key: str
    capacity_per_s: float = 0.0
    capacities_per_s: list[float] = field(default_factory=list)
    simulated_capacity_per_s: float = 0.0
    speed: dict[str, Any] | None = None
    wake_s: list[float] | None = None
    dispatch_s: dict[str, float] = field(default_factory=dict)
    segment_s: float = 0.0
    joining_s: dict[str, dict[str, float]] = field(default_factory=dict)
    load_average: float = 0.0


def measure_machine(site: Site, base: Workload, key: str) -> Figures:
    """What the cases rest on, the schedulers apart; warms the machine up on the way.

    Args:
        site: the models on the machine.
        base: requests for bursts.
        key: what the figures depend on.

    Raises:
        HetsimError: something cannot be run, or an answer is not the module's.
    """
    found = Figures(key, load_average=os.getloadavg()[0])
    found.segment_s = segment_seconds(site.machine)
    plain = task_seconds(site.machine, lambda: create("fcfs"))
    found.joining_s = _joining(site, plain)
    found.wake_s = site.waking()
    site.prediction.price(found.segment_s, found.joining_s, found.wake_s)
    measure_capacity(found, lambda: _bursts(site, base, plain, found))
    return found


def measure_capacity(found: Figures, once: Callable[[], float]) -> None:
    """Measure the capacity until two in a row agree: of those it is the mean, of all the median where none do.

    Args:
        found: takes it.
        once: measures it, requests per second.
    """
    measured = found.capacities_per_s
    while len(measured) < MEASURED_AT_MOST and not settled(measured):
        measured.append(once())
    found.capacity_per_s = float(np.median(measured[-2:] if settled(measured) else measured))


def settled(capacities: Sequence[float]) -> bool:
    """Whether the last two agree: what else ran for some seconds is in one of them only.

    What is simulated is not asked. A capacity that is measured until it is the simulated one would make the
    simulation look better than it is.
    """
    first, last = capacities[-2:] if len(capacities) > 1 else (0.0, 1.0)
    return max(first, last) <= (1.0 + AGREEING) * min(first, last)


def _bursts(site: Site, base: Workload, overhead: float, found: Figures) -> float:
    """The capacity by some bursts; ``found`` takes what is simulated of the machine as it was meanwhile."""
    rates: list[float] = []
    with site.timed(overhead) as around:
        # Once to learn how many requests make a burst of a few seconds, then in earnest.
        for number in range(BURSTS + 1):
            count = 16 if not number else max(16, round(rates[0] * BURST_SECONDS))
            burst = all_at_once(base, min(count, len(base)))
            trace = site.run(burst, create("fcfs"), overhead, 600.0).trace
            rates.append(len(burst) / trace.makespan)
    (conditions,) = around
    found.speed = None if conditions.speed is None else conditions.speed.to_json()
    simulated = site.prediction.steady(burst, create("fcfs"), overhead, conditions)
    found.simulated_capacity_per_s = len(burst) / simulated.makespan
    return float(np.median(rates[1:]))


def _joining(site: Site, overhead: float) -> dict[str, dict[str, float]]:
    """Median seconds of concatenating the inputs of batches of single items, by model and batch."""
    found: dict[str, dict[str, float]] = {}
    for name, model in site.requests.models.items():
        sizes = sorted(model.graphs)
        if 1 not in site.requests.sizes or name not in site.requests.shares:
            continue
        host = site.machine.cluster.host
        job = Job(model.graphs[1], model=name, batch=1, origin=host, destination=host)
        for batch in sizes[1:]:
            workload = Workload([job] * batch, dict.fromkeys(model.graphs.values(), model.graphs))
            seconds = []
            for _ in range(JOINS):
                scheduler = create("fcfs_batching", max_batch=batch)
                trace = site.run(workload, scheduler, overhead, 600.0).trace
                seconds += [row[2] for row in trace.meta["joins"]]
            found.setdefault(name, {})[str(batch)] = float(np.median(seconds))
    return found
