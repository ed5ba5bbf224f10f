"""Eviction of the weights that were used longest ago, with exact numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.test_memory import cluster_of, graph_of, moves, run, spans


def model(name: str, weight: float) -> DataflowGraph:
    """One operator that reads one weight."""
    return graph_of({"a": (["w"], {})}, {"w": ("weight", weight)}, name=name)


def serve(
    jobs: list[tuple[DataflowGraph, float]], capacity: float, scheduler: Scheduler, **options: Any
) -> Trace:
    """Jobs (graph, arrival) on a device of limited memory beside the host; 1 byte/s."""
    cluster = cluster_of("n", {"n": capacity, "h": math.inf}, host="h")
    options = {"weights": "on_demand", "contention": "fifo", **options}
    return run(Workload([Job(*job) for job in jobs]), cluster, {"a": 1}, scheduler, **options)


def test_the_model_used_longest_ago_goes() -> None:
    one, two, three = (model(name, 4) for name in ("one", "two", "three"))
    jobs = [(one, 0.0), (two, 10.0), (one, 20.0), (three, 30.0), (one, 40.0), (two, 50.0)]
    trace = serve(jobs, 8, create("lru_eviction"))
    # Two models fit. At 30 two was used last at 15, one at 21.
    assert [
        (int(j), b) for j, b in zip(trace.transfers["job"], trace.transfers["start"], strict=True)
    ] == [
        (0, 0.0),
        (1, 10.0),
        (3, 30.0),
        (1, 50.0),
    ]
    assert [s for s, _ in spans(trace).values()] == [4, 14, 20, 34, 40, 54]
    assert trace.meta["evictions"] == [[30.0, 0, 1, 0], [50.0, 0, 3, 0]]
    assert trace.meta["peak_bytes"] == [8.0, 12.0]


def test_weights_in_use_stay_and_what_waits_goes_on_when_they_are_free() -> None:
    # two arrives while one loads (0-4) and runs (4-5); nothing can go before 5.
    one, two = model("one", 4), model("two", 4)
    trace = serve([(one, 0.0), (two, 2.0)], 7, create("lru_eviction", scheduler="single_device"))
    assert moves(trace) == [(0, 1, 0, 0, 0, 4), (0, 1, 0, 5, 5, 9)]
    assert spans(trace)["a#1"] == (9, 10)


@pytest.mark.parametrize("movement", ["push", "pull"])
def test_weights_larger_than_memory_stream_through_it(movement: str) -> None:
    # Layers of 4 bytes through 9 bytes. There is no room for v before u has gone, since a and b need
    # some for what they write.
    layers = graph_of(
        {"a": (["u"], {"x": 1}), "b": (["v", "x"], {"y": 1}), "c": (["w", "y"], {})},
        {"u": ("weight", 4), "v": ("weight", 4), "w": ("weight", 4)},
    )
    cluster = cluster_of("n", {"n": 9, "h": math.inf}, host="h")
    seconds = dict.fromkeys("abc", 1)
    plan = create("lru_eviction", scheduler="single_device")
    options = {"weights": "on_demand", "contention": "fifo"}
    trace = run(layers, cluster, seconds, plan, movement=movement, **options)
    assert moves(trace) == [(0, 1, 0, 0, 0, 4), (1, 1, 0, 5, 5, 9), (2, 1, 0, 10, 10, 14)]
    assert spans(trace) == {"a": (4, 5), "b": (9, 10), "c": (14, 15)}
    # At 10 w finds 4 bytes free, and nothing goes.
    assert trace.meta["evictions"] == [[5.0, 0, 0, 0]]
    with pytest.raises(SchedulingError, match="task 'b' on device 'd0' needs 1 bytes"):
        run(layers, cluster, seconds, create("single_device"), movement=movement, **options)


def test_options_and_needs() -> None:
    with pytest.raises(InvalidInput, match="No scheduler 'nothing'"):
        create("lru_eviction", scheduler="nothing")
    with pytest.raises(SchedulingError, match=r"needs evict, .*; load weights on demand"):
        serve([(model("one", 4), 0.0)], 8, create("lru_eviction"), weights="resident")
    scheduler = create("lru_eviction", scheduler="donf", options={"pricing": "per_edge"})
    assert scheduler.inner.pricing == "per_edge"  # type: ignore[attr-defined]


def test_it_explains_what_leaves() -> None:
    class Told(type(create("lru_eviction"))):  # type: ignore[misc]
        lines: list[str] = []  # noqa: RUF012

        def begin(self, context: SchedulingContext) -> None:
            context.explain = self.lines.append
            super().begin(context)

    serve([(model("one", 4), 0.0), (model("two", 4), 10.0)], 7, Told())
    assert "weights of 'one' leave n: 4 bytes" in Told.lines
