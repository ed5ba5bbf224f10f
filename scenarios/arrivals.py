"""When jobs arrive."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.units import parse_rate, parse_seconds
from simulator.model.workload import Job, Workload

MOST_JOBS = 10_000_000
MOST_SECONDS = 1e12
"""Later arrivals (after 32,000 years) are taken for errors."""
LATEST_FIRST = 1e8
"""Seconds; a recorded stream that begins later (after three years) counts from 1970, say, and not from its start."""
BLOCK = 4096
"""Jobs that are drawn at a time where they are not all needed at once."""
ARRIVALS = (
    *("single", "concurrent", "poisson", "periodic", "gamma", "mmpp", "diurnal", "closed", "trace"),
)
DRAWN = ("poisson", "gamma", "mmpp", "diurnal", "closed")
"""Arrivals that depend on the seed."""
READ = {
    "rate": ("poisson", "gamma", "diurnal"),
    "period": ("periodic", "diurnal"),
    "cv": ("gamma",),
    "rates": ("mmpp",),
    "sojourns": ("mmpp",),
    "file": ("trace",),
    "amplitude": ("diurnal",),
    "phase": ("diurnal",),
    "clients": ("closed",),
    "think": ("closed",),
}
"""Which arrivals read a value; the others of a workload concern all."""


@dataclass
class WorkloadConfig:
    """A stream of jobs, of one model or of several.

    Attributes:
        arrivals: ``single`` (one job at 0), ``concurrent`` (all jobs at 0), ``periodic`` (every
            ``period`` from 0), ``poisson`` (the first job at 0, then exponential gaps of mean 1 / ``rate``), ``gamma`` (gaps of that mean
            whose standard deviation is ``cv`` times as large), ``mmpp`` (Poisson at each of ``rates``
            in turn, for exponential times of the mean ``sojourns``; on and off with a rate of
            ``0/s``), ``diurnal`` (Poisson, the rate rising and falling by ``amplitude`` as a sine of
            ``period``), ``closed`` (``clients`` that each send a request, wait for its answer, think
            for an exponential time of mean ``think``, and send the next), or ``trace`` (the times in
            ``file``).
        jobs: how many; None takes all that ``file`` has.
        rate: jobs per second, like ``20/s``.
        period: like ``80ms``.
        warm_up: seconds from the start that steady-state figures leave out, like ``10s``.
        cv: coefficient of variation: 1 is Poisson, more is burstier, 0 is periodic.
        rates: of a Markov-modulated stream, like ``[100/s, 5/s]``.
        sojourns: mean time at each of them, like ``[1s, 9s]``.
        file: CSV with a column ``arrival_s``, ascending seconds, and perhaps ``priority``, ``model``,
            ``size``, ``deadline_s`` (after the arrival) and ``source``.
        urgent: share of the jobs that have priority 1 instead of 0, each on its own.
        amplitude: of a diurnal rate, relative to its mean, 0 to 1.
        phase: share of its period by which the sine is ahead, 0 to 1.
        clients: of a closed loop, how many.
        think: of a closed loop, mean seconds between an answer and the next request, like ``100ms``.
        mix: models (entries of the group) and how often each is asked for, relative to the others, like
            ``{resnet18: 4, googlenet: 1}`` or ``"resnet18:4 googlenet:1"``; None: the scenario's model
            alone.
        sizes: items of a request (its batch) and how often, relative to the others; None: the model's
            own batch.
        max_batch: the largest batch that is prepared, for schedulers that serve requests together.
        segments: into how many tasks a request's model is joined; None: one for each operator, or one
            in all where ``max_batch`` is above 1.
        deadline: seconds from arrival, like ``100ms``; a mapping gives one for each model.
        least_accuracy: of a variant that may serve a request.
        sensitivity: share of time sensitivity (the rest is accuracy sensitivity): ``0.5`` for all, or
            ``uniform``, drawn from 0 to 1 for each request.
        streams: further streams that run beside this one, by name: mappings of the keys of a workload
            that differ from this one's, such as the load that nodes have of their own.
        variants: for models of the mix the models that may serve in their place, best first.
        accuracies: of models that may serve, by name, 0 to 1.
        sources: memory spaces where requests arise, and how often relative to the others; their answers
            return there. None: the cluster's host.
    """

    name: str
    arrivals: str = "single"
    jobs: int | None = 1
    rate: str | None = None
    period: str | None = None
    warm_up: str | None = None
    cv: float | None = None
    rates: list[str] | None = None
    sojourns: list[str] | None = None
    file: str | None = None
    urgent: float = 0.0
    amplitude: float | None = None
    phase: float = 0.0
    clients: int | None = None
    think: str | None = None
    mix: Any = None
    sizes: dict[int, float] | None = None
    max_batch: int = 1
    segments: int | None = None
    deadline: Any = None
    least_accuracy: float = 0.0
    sensitivity: Any = 0.5
    streams: dict[str, Any] | None = None
    variants: dict[str, list[str]] | None = None
    accuracies: dict[str, float] | None = None
    sources: dict[str, float] | None = None
    description: str = ""
    source: str = ""

    @property
    def serves(self) -> bool:
        """Whether jobs are requests that may differ in model, size, source or what they ask for."""
        plain = WorkloadConfig(self.name)
        keys = (
            *("mix", "sizes", "max_batch", "segments", "deadline", "least_accuracy", "sensitivity"),
            *("variants", "sources", "accuracies", "streams"),
        )
        return self.arrivals == "closed" or any(getattr(self, k) != getattr(plain, k) for k in keys)

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
    """Arrival of every job in seconds, ascending.

    Raises:
        InvalidInput: an unknown kind of arrivals, no jobs, or a quantity it lacks.
    """
    _check_kind(config)
    if config.arrivals == "trace":
        return _checked(config, [row.arrival for row in _recorded(config)])
    if config.jobs is None:
        raise InvalidInput(f"Workload '{config.name}' needs workload.jobs")
    if config.arrivals == "single":
        if config.jobs != 1:
            raise InvalidInput(
                f"Workload '{config.name}' is a single job but has workload.jobs={config.jobs}; "
                "take workload=poisson or workload=periodic"
            )
        return [0.0]
    if config.arrivals == "concurrent":
        return [0.0] * config.jobs
    if config.arrivals == "periodic":
        period = _positive(config, "period", config.period, parse_seconds)
        return _checked(config, [number * period for number in range(config.jobs)])
    rng = np.random.default_rng(seed)
    if config.arrivals == "mmpp":
        return _checked(config, _modulated(config, config.jobs, rng))
    if config.arrivals == "closed":
        return _checked(config, _first_of_clients(config, rng))
    if config.arrivals == "diurnal":
        return _checked(config, _diurnal(config, config.jobs, rng))
    draw = _gaps(config, rng)
    return _checked(config, [0.0, *np.cumsum(draw(config.jobs - 1)).tolist()])


def arrival_blocks(config: WorkloadConfig, seed: int) -> Iterator[list[float]]:
    """What :func:`arrival_times` says, some at a time: for streams that nobody wants to hold at once.

    Poisson, gamma and periodic arrivals are drawn block by block; the others are drawn at once and kept as
    8 bytes each.

    Raises:
        InvalidInput: see :func:`arrival_times`; before the first block, but for arrivals that are too late.
    """
    drawn = config.arrivals in ("poisson", "gamma")
    if not (drawn or config.arrivals == "periodic"):
        times = np.array(arrival_times(config, seed))
        return (times[i : i + BLOCK].tolist() for i in range(0, len(times), BLOCK))
    _check_kind(config)
    if config.jobs is None:
        raise InvalidInput(f"Workload '{config.name}' needs workload.jobs")
    if not drawn:
        period = _positive(config, "period", config.period, parse_seconds)
        begins = range(0, config.jobs, BLOCK)
        return (
            _checked(config, [n * period for n in range(i, min(i + BLOCK, config.jobs))])
            for i in begins
        )
    draw = _gaps(config, np.random.default_rng(seed))
    draw(0)
    return _drawn_blocks(config, config.jobs, draw)


def _check_kind(config: WorkloadConfig) -> None:
    if config.arrivals not in ARRIVALS:
        raise InvalidInput(
            f"Workload '{config.name}' has unknown arrivals '{config.arrivals}'; known: "
            f"{', '.join(ARRIVALS)}"
        )
    if config.jobs is not None and not 1 <= config.jobs <= MOST_JOBS:
        raise InvalidInput(
            f"Workload '{config.name}' has {config.jobs} jobs; give at least 1 and at most {MOST_JOBS}"
        )


def _drawn_blocks(
    config: WorkloadConfig, count: int, draw: Callable[[int], np.ndarray]
) -> Iterator[list[float]]:
    times = [0.0]
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        gaps = draw(size if begin else size - 1)
        # Added one after the other from the last time on, as a sum of all of them is.
        sums = np.cumsum([times[-1], *gaps]).tolist()
        times = _checked(config, sums[1:] if begin else sums)
        yield times


def _gaps(config: WorkloadConfig, rng: np.random.Generator) -> Callable[[int], np.ndarray]:
    """What draws so many times between Poisson or gamma arrivals."""
    rate = _positive(config, "rate", config.rate, parse_rate)
    if config.arrivals == "poisson":
        return lambda count: rng.exponential(1 / rate, count)
    return lambda count: _gamma_gaps(config, rate, count, rng)


def _gamma_gaps(
    config: WorkloadConfig, rate: float, count: int, rng: np.random.Generator
) -> np.ndarray:
    if config.cv is None or not (config.cv == 0 or 1e-3 <= config.cv <= 100):
        raise InvalidInput(
            f"Workload '{config.name}' has workload.cv={config.cv}; gamma arrivals need a coefficient "
            "of variation: 0, or 0.001 to 100"
        )
    if config.cv == 0:
        return np.full(count, 1 / rate)
    shape = config.cv**-2
    return rng.gamma(shape, 1 / (rate * shape), count)


def _modulated(config: WorkloadConfig, count: int, rng: np.random.Generator) -> list[float]:
    """The first job at 0, the others of a Markov-modulated Poisson process in its steady state."""
    texts, sojourn_texts = config.rates or [], config.sojourns or []
    if len(texts) < 2 or len(texts) != len(sojourn_texts):
        raise InvalidInput(
            f"Workload '{config.name}' needs as many workload.rates as workload.sojourns, at least 2; "
            f"it has {len(texts)} and {len(sojourn_texts)}"
        )
    rates = [parse_rate(text, f"rates of workload '{config.name}'") for text in texts]
    sojourns = [_positive(config, "sojourns", text, parse_seconds) for text in sojourn_texts]
    if not (min(rates) >= 0 and 0 < max(rates) < math.inf):
        raise InvalidInput(
            f"Workload '{config.name}' has rates {', '.join(texts)}; none may be below 0, and one "
            "must be above"
        )
    mean = float(np.dot(rates, sojourns)) / sum(sojourns)
    if count / mean > MOST_JOBS * min(sojourns):
        raise InvalidInput(
            f"Workload '{config.name}' changes its rate over {MOST_JOBS} times before its {count} jobs "
            "have arrived; give longer workload.sojourns or higher workload.rates"
        )
    state = int(rng.choice(len(rates), p=np.array(sojourns) / sum(sojourns)))
    moment, times = 0.0, [0.0]
    while len(times) < count:
        end = moment + rng.exponential(sojourns[state])
        while rates[state] > 0 and len(times) < count:
            moment += rng.exponential(1 / rates[state])
            if moment >= end:
                break
            times.append(moment)
        moment, state = end, (state + 1) % len(rates)
    return times


def _first_of_clients(config: WorkloadConfig, rng: np.random.Generator) -> list[float]:
    """When each client of a closed loop sends its first request: after thinking once."""
    count = config.clients
    if count is None or not 1 <= count <= (config.jobs or 0):
        raise InvalidInput(
            f"Workload '{config.name}' has workload.clients={count}; give at least 1, and at most "
            f"workload.jobs={config.jobs}"
        )
    think = parse_seconds(config.think or "0s", f"think of workload '{config.name}'")
    if not 0 <= think < math.inf:
        raise InvalidInput(f"Workload '{config.name}' has think {config.think}; give 0s or more")
    times: list[float] = sorted(rng.exponential(think, count).tolist()) if think else [0.0] * count
    return times


def _diurnal(config: WorkloadConfig, count: int, rng: np.random.Generator) -> list[float]:
    """Poisson arrivals of a rate that is a sine of time, by thinning those of the highest rate.

    Source: P. A. W. Lewis and G. S. Shedler, *Simulation of nonhomogeneous Poisson processes by thinning*,
    Naval Research Logistics Quarterly 26(3), 1979.
    """
    rate = _positive(config, "rate", config.rate, parse_rate)
    period = _positive(config, "period", config.period, parse_seconds)
    if config.amplitude is None or not 0 <= config.amplitude <= 1:
        raise InvalidInput(
            f"Workload '{config.name}' has workload.amplitude={config.amplitude}; a diurnal rate needs "
            "one from 0 to 1"
        )
    if not 0 <= config.phase <= 1:
        raise InvalidInput(
            f"Workload '{config.name}' has workload.phase={config.phase}; it is a share of the period, "
            "0 to 1"
        )
    highest = rate * (1 + config.amplitude)
    times: list[float] = []
    moment = 0.0
    while len(times) < count:
        gaps = rng.exponential(1 / highest, 2 * (count - len(times)) + 16)
        moments = moment + np.cumsum(gaps)
        angle = 2 * np.pi * moments / period + 2 * np.pi * config.phase
        now = rate * (1 + config.amplitude * np.sin(angle))
        times += moments[rng.random(len(moments)) * highest < now].tolist()
        moment = float(moments[-1])
    return times[:count]


class _Record(NamedTuple):
    """A line of a file of arrivals; None where it does not say."""

    arrival: float
    priority: int
    model: str | None
    size: int | None
    deadline: float | None
    source: str | None


def recorded_requests(config: WorkloadConfig) -> dict[str, list[Any]]:
    """What a file says of its requests beside when they arrive, None where it does not.

    Raises:
        InvalidInput: the file cannot be read, or a line of it says what cannot be.
    """
    rows = _recorded(config)
    keys = ("model", "size", "deadline", "source")
    return {key: [getattr(row, key) for row in rows] for key in keys}


def _recorded(config: WorkloadConfig) -> list[_Record]:
    """The jobs in a file."""
    if config.file is None:
        raise InvalidInput(f"Workload '{config.name}' needs workload.file, a CSV of arrivals")
    path = Path(config.file).expanduser()
    try:
        with path.open(newline="") as stream:
            reader = csv.DictReader(stream)
            if "arrival_s" not in (reader.fieldnames or ()):
                raise InvalidInput(
                    f"{path} has no column 'arrival_s'; the first line must name the columns"
                )
            rows = [_record(row, path, line) for line, row in enumerate(reader, 2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"Cannot read arrivals from {path}: {error}") from None
    for line, (before, after) in enumerate(itertools.pairwise(rows), 3):
        if after.arrival < before.arrival:
            raise InvalidInput(f"{path}, line {line}: arrives before the job above it; sort them")
    if rows and rows[0].arrival >= LATEST_FIRST:
        raise InvalidInput(
            f"{path}: the first job arrives at {rows[0].arrival:.15g} s, as if counted from 1970; arrival_s counts "
            f"from the start of the run: subtract {rows[0].arrival:.15g} from every line"
        )
    if (config.jobs is not None and len(rows) < config.jobs) or not rows:
        raise InvalidInput(
            f"Workload '{config.name}' is to have {config.jobs or 'some'} jobs, {path} has {len(rows)}"
        )
    return rows[: config.jobs]


def _record(row: dict[str, str], path: Path, line: int) -> _Record:
    try:
        arrival, priority = float(row["arrival_s"]), int(row.get("priority") or 0)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{path}, line {line}: '{row['arrival_s']}' must be seconds, and a priority a whole number"
        ) from None
    if not (math.isfinite(arrival) and arrival >= 0):
        raise InvalidInput(f"{path}, line {line}: a job cannot arrive at {arrival} s")
    try:
        size = int(row["size"]) if row.get("size") else None
        deadline = float(row["deadline_s"]) if row.get("deadline_s") else None
    except ValueError:
        raise InvalidInput(
            f"{path}, line {line}: size '{row.get('size')}' must be a whole number, and deadline_s "
            f"'{row.get('deadline_s')}' seconds"
        ) from None
    if deadline is not None and not 0 < deadline < math.inf:
        raise InvalidInput(
            f"{path}, line {line}: a deadline {deadline} s after the arrival cannot be met"
        )
    return _Record(
        arrival, priority, row.get("model") or None, size, deadline, row.get("source") or None
    )


def priorities(config: WorkloadConfig, count: int, seed: int) -> list[int]:
    """Priority of each of ``count`` jobs: the file's, or 1 for the share ``urgent`` of them.

    Raises:
        InvalidInput: the share is not between 0 and 1, or a file says the priorities already.
    """
    return priority_draws(config, seed)(count)


def priority_draws(config: WorkloadConfig, seed: int) -> Callable[[int], list[int]]:
    """What says the priorities of so many jobs, and called again of those after them.

    Raises:
        InvalidInput: see :func:`priorities`.
    """
    if not 0 <= config.urgent <= 1:
        raise InvalidInput(
            f"Workload '{config.name}' has workload.urgent={config.urgent}; it is a share, 0 to 1"
        )
    if config.arrivals == "trace":
        if config.urgent:
            raise InvalidInput(
                f"Workload '{config.name}' takes priorities from {config.file}; leave out "
                "workload.urgent"
            )
        recorded = iter([row.priority for row in _recorded(config)])
        return lambda count: list(itertools.islice(recorded, count))
    # A stream of its own: the arrivals do not depend on the share.
    rng = np.random.default_rng([seed, 1])
    return lambda count: (rng.random(count) < config.urgent).astype(int).tolist()


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
    arrivals = arrival_times(config, seed)
    return Workload(
        [
            Job(
                graph,
                arrival,
                priority=priority,
                model=graph.name,
                batch=graph.batch,
                origin=host,
                destination=host,
            )
            for arrival, priority in zip(
                arrivals, priorities(config, len(arrivals), seed), strict=True
            )
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
