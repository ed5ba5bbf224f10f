"""When jobs arrive."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph
from simulator.units import parse_rate, parse_seconds
from simulator.workload import Job, Workload

MOST_JOBS = 10_000_000
MOST_SECONDS = 1e12
"""Later arrivals (after 32,000 years) are taken for errors."""
ARRIVALS = ("single", "poisson", "periodic")


@dataclass
class WorkloadConfig:
    """A stream of jobs of one model.

    Attributes:
        arrivals: ``single`` (one job at 0), ``poisson`` (the first job at 0, then exponential gaps of
            mean 1 / ``rate``) or ``periodic`` (every ``period`` from 0).
        jobs: how many.
        rate: jobs per second, like ``20/s``.
        period: like ``80ms``.
        warm_up: seconds from the start that steady-state figures leave out, like ``10s``.
    """

    name: str
    arrivals: str = "single"
    jobs: int = 1
    rate: str | None = None
    period: str | None = None
    warm_up: str | None = None
    description: str = ""
    source: str = ""

    @property
    def warm_up_s(self) -> float:
        """The warm-up in seconds.

        Raises:
            InvalidInput: not a time, or negative.
        """
        if self.warm_up is None:
            return 0.0
        seconds = parse_seconds(self.warm_up, f"warm-up of workload '{self.name}'")
        if not 0 <= seconds < math.inf:
            raise InvalidInput(
                f"Workload '{self.name}' has warm_up {self.warm_up}; it must be at least 0"
            )
        return seconds


def arrival_times(config: WorkloadConfig, seed: int) -> list[float]:
    """Arrival of every job in seconds, ascending from 0.

    Raises:
        InvalidInput: an unknown kind of arrivals, no jobs, or a quantity it lacks.
    """
    if not 1 <= config.jobs <= MOST_JOBS:
        raise InvalidInput(
            f"Workload '{config.name}' has {config.jobs} jobs; give at least 1 and at most {MOST_JOBS}"
        )
    if config.arrivals == "single":
        if config.jobs != 1:
            raise InvalidInput(
                f"Workload '{config.name}' is a single job but has workload.jobs={config.jobs}; "
                "take workload=poisson or workload=periodic"
            )
        return [0.0]
    if config.arrivals == "poisson":
        rate = _positive(config, "rate", config.rate, parse_rate)
        gaps = np.random.default_rng(seed).exponential(1 / rate, config.jobs - 1)
        return _checked(config, [0.0, *np.cumsum(gaps).tolist()])
    if config.arrivals == "periodic":
        period = _positive(config, "period", config.period, parse_seconds)
        return _checked(config, [number * period for number in range(config.jobs)])
    raise InvalidInput(
        f"Workload '{config.name}' has unknown arrivals '{config.arrivals}'; known: "
        f"{', '.join(ARRIVALS)}"
    )


def _checked(config: WorkloadConfig, times: list[float]) -> list[float]:
    if not times[-1] <= MOST_SECONDS:
        raise InvalidInput(
            f"The last job of workload '{config.name}' would arrive after {times[-1]:g} s, later than "
            f"{MOST_SECONDS:g} s; give a shorter period or a higher rate"
        )
    return times


def build_workload(
    config: WorkloadConfig, graph: DataflowGraph, host: str | None, seed: int
) -> Workload:
    """Jobs of ``graph`` that begin and end in memory ``host``; ``seed`` draws the arrivals."""
    return Workload(
        [
            Job(
                graph,
                arrival,
                model=graph.name,
                batch=graph.batch,
                origin=host,
                destination=host,
            )
            for arrival in arrival_times(config, seed)
        ]
    )


def _positive(
    config: WorkloadConfig, key: str, text: str | None, parse: Callable[[str, str], float]
) -> float:
    if text is None:
        raise InvalidInput(f"Workload '{config.name}' needs workload.{key}")
    value = parse(text, f"{key} of workload '{config.name}'")
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"Workload '{config.name}' has {key} {text}; it must be above 0")
    return value
