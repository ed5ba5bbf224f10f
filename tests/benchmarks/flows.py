"""What a transfer costs: microseconds per flow of each contention model, by how much flows overlap.

``python -m tests.benchmarks.flows [--flows 10000 100000] [--repeats 3] [--json FILE]`` prints a table
and JSON. Eight memory spaces hang on a hub by an up and a down channel each, so a flow crosses two.
Flows of log-normal size are requested in bursts of up to four from one space, as a task with several
consumers does, at random moments; ``load`` is the mean share of a channel's bandwidth that they need.
A bare SimPy loop, one event for each burst and one for each flow's end, is timed beside them.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import groupby, product
from pathlib import Path

import numpy as np
import simpy

from simulator.clock import Clock
from simulator.links.flows import Flow
from simulator.links.registry import flows_by_name
from simulator.model.cluster import Route

SPACES = 8
MODELS = ("none", "fifo", "fair")
LOADS = (0.05, 0.2, 0.5, 0.8)

Request = tuple[float, int, int, float]
"""When, from where, to where, bytes."""


@dataclass
class Row:
    """One measurement.

    Attributes:
        overlap: mean number of flows requested and not delivered.
        us_per_flow: microseconds of processor time, events of the bursts included.
        callbacks_us: the bare loop's, for a flow.
    """

    model: str
    load: float
    flows: int
    overlap: float
    us_per_flow: float
    callbacks_us: float


def requests(flows: int, load: float, seed: int = 0) -> list[Request]:
    """Requests in order of time, at bandwidth 1 byte per second and a mean size of 1 byte."""
    rng = np.random.default_rng(seed)
    made: list[Request] = []
    moment = 0.0
    while len(made) < flows:
        burst = int(rng.integers(1, 5))
        moment += rng.exponential(burst / (load * SPACES))
        source = int(rng.integers(SPACES))
        others = [s for s in range(SPACES) if s != source]
        sizes = rng.lognormal(-0.125, 0.5, burst)
        chosen = rng.choice(others, burst, replace=False)
        made += [(moment, source, int(d), float(b)) for d, b in zip(chosen, sizes, strict=True)]
    return made[:flows]


def run_model(model: str, made: list[Request]) -> tuple[float, float]:
    """(seconds that the model took, mean number of flows under way)."""
    clock = Clock()
    done: list[Flow] = []
    flows = flows_by_name(model, clock, [1.0] * (2 * SPACES), done.append)
    routes = {
        (a, b): Route((a, SPACES + b), 1.0, 0.0) for a in range(SPACES) for b in range(SPACES)
    }
    bursts = [(moment, list(group)) for moment, group in groupby(made, lambda r: r[0])]

    def burst(event: simpy.Event) -> None:
        for moment, source, destination, size in event.subject:
            route = routes[source, destination]
            flows.request(Flow((0,), source, destination, route, size, moment))

    for moment, group in bursts:
        clock.at(moment, [burst], group)
    began = time.process_time()
    clock.run_instants(lambda _: flows.settle())
    elapsed = time.process_time() - began
    assert len(done) == len(made)
    return elapsed, sum(flow.end - flow.requested for flow in done) / max(flow.end for flow in done)


def run_callbacks(made: list[Request]) -> float:
    """Seconds of a bare loop: every flow takes as long as it would alone."""
    environment = simpy.Environment()
    done: list[float] = []
    bursts = [(moment, list(group)) for moment, group in groupby(made, lambda r: r[0])]

    def finish(event: simpy.Event) -> None:
        done.append(event.value)

    def burst(event: simpy.Event) -> None:
        for request in event.value:
            environment.timeout(request[3], request).callbacks.append(finish)

    for moment, group in bursts:
        environment.timeout(moment, group).callbacks.append(burst)
    began = time.process_time()
    environment.run()
    return time.process_time() - began


def best(act: Callable[[], float], repeats: int) -> float:
    """The shortest: what disturbs a run only ever slows it."""
    return min(act() for _ in range(repeats))


def run(sizes: list[int], repeats: int) -> list[Row]:
    """All measurements."""
    rows = []
    for flows, load in product(sizes, LOADS):
        made = requests(flows, load)
        bare = best(lambda made=made: run_callbacks(made), repeats)  # type: ignore[misc]
        for model in MODELS:
            seconds, overlap = min(run_model(model, made) for _ in range(repeats))
            rows.append(Row(model, load, flows, overlap, seconds / flows * 1e6, bare / flows * 1e6))
    return rows


def main() -> None:
    """Print the table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the JSON to this file, too")
    options = parser.parse_args()
    rows = run(options.flows, options.repeats)
    print(
        f"{'flows':>8} {'model':<6} {'load':>5} {'under way':>9} {'us/flow':>8} {'callbacks us/flow':>18}"
    )
    for row in rows:
        print(
            f"{row.flows:>8,} {row.model:<6} {row.load:>5.2f} {row.overlap:>9.1f} {row.us_per_flow:>8.2f} "
            f"{row.callbacks_us:>18.2f}"
        )
    document = json.dumps(
        {
            "python": platform.python_version(),
            "repeats": options.repeats,
            "rows": [asdict(row) for row in rows],
        },
        indent=1,
    )
    print(document)
    if options.json:
        options.json.write_text(document + "\n")


if __name__ == "__main__":
    main()
