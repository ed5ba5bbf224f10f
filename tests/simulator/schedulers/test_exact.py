"""The exact planner: certified optima, all plans of tiny graphs, and what rounding may not break."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.instances import instance_from_json
from simulator.analysis.bounds import lower_bound
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.plan import Certificate
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.planners.exact_model import MOST_TICKS, common_tick
from simulator.schedulers import create
from simulator.schedulers.exact import Exact
from tests.benchmarks.search import random_instance
from tests.examples import examples
from tests.simulator.brute_force import optimum
from tests.simulator.strategies import clusters, graphs, seconds_of

ORACLES = Path(__file__).parents[2] / "oracles"
CERTIFIED: list[dict[str, Any]] = json.loads((ORACLES / "certified.json").read_text())
CLASSIC: dict[str, Any] = json.loads((ORACLES / "classic.json").read_text())

solved = pytest.mark.skipif(
    "not __import__('importlib.util').util.find_spec('ortools')", reason="OR-tools is not installed"
)


def plan(
    job: Job | DataflowGraph, cluster: Cluster, costs: CostTable, limit: float = 20.0
) -> tuple[Trace, Certificate]:
    """A run of one job, and what was proved about it."""
    exact = create("exact", limit=limit)
    assert isinstance(exact, Exact)
    workload = job if isinstance(job, DataflowGraph) else Workload([job])
    trace = simulate(workload, cluster, costs, exact)
    certificate = exact.outcomes[0].certificate
    assert certificate is not None
    assert exact.proven_bound_s == trace.jobs["arrival"][0] + certificate.bound_s
    return trace, certificate


DOCUMENTS = [
    *((f"seed{d['seed']}", d, d["optimum"]) for d in CERTIFIED),
    *((name, d, d["recomputed"]["optimum"]) for name, d in CLASSIC.items()),
]


@solved
@pytest.mark.parametrize(
    ("document", "best"), [d[1:] for d in DOCUMENTS], ids=[d[0] for d in DOCUMENTS]
)
def test_every_certified_optimum(document: dict[str, Any], best: float) -> None:
    graph, cluster, costs = instance_from_json(document)
    trace, certificate = plan(graph, cluster, costs)
    assert trace.makespan == best
    assert certificate == Certificate(best, best, "optimal", True, 1.0)
    assert certificate.gap == 0


@st.composite
def tiny(draw: st.DrawFn) -> tuple[Job, Cluster, CostTable]:
    cluster = draw(clusters())
    graph = draw(graphs(operators=4))
    seconds = draw(seconds_of(graph, len(cluster.devices)))
    spaces = st.sampled_from([None, *(space.name for space in cluster.spaces)])
    arrival = draw(st.sampled_from([0.0, 2.5]))
    job = Job(graph, arrival, origin=draw(spaces), destination=draw(spaces))
    return job, cluster, CostTable({graph: GraphCosts(seconds)})


@solved
@settings(max_examples=examples(60), deadline=None)
@given(tiny())
def test_the_best_of_all_plans(made: tuple[Job, Cluster, CostTable]) -> None:
    """Slots, overheads, several outputs and readers, origin and destination; times that are no whole
    ticks. Where an operator takes no time on a device of several slots the model lets it begin
    beside whatever runs: then the bound may be too low, never the plan wrong.
    """
    job, cluster, costs = made
    trace, certificate = plan(job, cluster, costs)
    best = optimum(job, cluster, costs) - job.arrival
    assert certificate.bound_s <= best * (1 + 1e-9) + 1e-12
    assert certificate.makespan_s >= best * (1 - 1e-9)
    assert trace.makespan == pytest.approx(job.arrival + certificate.makespan_s, abs=1e-12)
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    if ((costs[job.graph].seconds + overhead) > 0).all():
        # Rounding can let a plan through that is longer by a tick for every operator and transfer.
        slack = 0.0 if certificate.exact else 10 * certificate.tick_s
        assert certificate.makespan_s <= best + slack + 1e-9
        assert certificate.bound_s >= best - slack - 1e-9
        assert certificate.status == "optimal" or (
            slack and certificate.status == "optimal up to rounding"
        )


@solved
def test_times_without_a_common_tick_are_rounded_down_for_the_bound() -> None:
    """Random times: the bound stays below the plan, closer than a tick for each of ten operators."""
    rng = np.random.default_rng(3)
    graph = from_edges("ten", 6, [(0, i, float(rng.random())) for i in range(1, 6)])
    cluster = fully_connected("two", 2)
    costs = CostTable.of(graph, rng.random((6, 2)) * 1e-3)
    _, certificate = plan(graph, cluster, costs)
    assert not certificate.exact
    assert certificate.status == "optimal up to rounding"
    assert certificate.bound_s <= certificate.makespan_s
    assert certificate.makespan_s - certificate.bound_s <= 12 * certificate.tick_s
    assert certificate.tick_s < 1e-5 * certificate.makespan_s


@solved
def test_a_limit_leaves_a_gap_and_is_reproducible() -> None:
    _, graph, cluster, costs = random_instance(0, 40)
    runs = [plan(graph, cluster, costs, limit=0.05) for _ in range(2)]
    assert runs[0][1] == runs[1][1]
    assert runs[0][0].tasks["start"].tolist() == runs[1][0].tasks["start"].tolist()
    trace, certificate = runs[0]
    assert certificate.status == "feasible"
    assert certificate.gap > 0
    assert trace.makespan <= simulate(graph, cluster, costs, create("heft")).makespan
    assert certificate.bound_s >= (
        lower_bound(graph, costs[graph].seconds, cluster).bound_s - 2 * certificate.tick_s
    )


@solved
def test_ctrl_c_ends_the_search_and_still_works_behind_it() -> None:
    _, graph, cluster, costs = random_instance(0, 40)
    plan(graph, cluster, costs, limit=0.05)
    # Behind one search, and amid another.
    for act in (lambda: time.sleep(30), lambda: plan(graph, cluster, costs, limit=1_000.0)):
        began = time.monotonic()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            act()
        assert time.monotonic() - began < 20


@solved
def test_a_later_job_is_the_best_behind_the_first() -> None:
    """P1 is taken until 4 and P2 until 1; two tasks of 2 s, the second after the first: P2 1-3, 3-5."""
    first, chain = from_edges("first", 2, []), from_edges("chain", 2, [(0, 1, 9.0)])
    costs = CostTable(
        {
            first: GraphCosts(np.array([[4.0, math.inf], [math.inf, 1.0]])),
            chain: GraphCosts(np.array([[2.0, 2.0], [2.0, 2.0]])),
        }
    )
    exact = create("exact")
    assert isinstance(exact, Exact)
    workload = Workload([Job(first), Job(chain, 0.5)])
    trace = simulate(workload, fully_connected("pair", 2), costs, exact)
    assert trace.tasks["start"][2:].tolist() == [1.0, 3.0]
    certificate = exact.outcomes[1].certificate
    assert certificate is not None
    assert (certificate.status, certificate.makespan_s, certificate.bound_s) == (
        "optimal",
        4.5,
        4.5,
    )
    assert exact.proven_bound_s is None  # a bound for each job is none for the stream


@solved
def test_the_bound_holds_for_other_movements_and_contention() -> None:
    for document in CERTIFIED[:4]:
        graph, cluster, costs = instance_from_json(document)
        for movement, contention in (("pull", "none"), ("push", "fifo"), ("pull", "fair")):
            trace = simulate(
                graph, cluster, costs, create("exact"), movement=movement, contention=contention
            )
            assert trace.makespan >= document["optimum"]


@solved
def test_explains_what_is_proved() -> None:
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"])
    lines: list[str] = []
    simulate(graph, cluster, costs, create("exact"), explain=lines.append)
    assert lines[0] == "job 0: heft 80 -> 73 (optimal, gap 0.00%)"
    assert len(lines) == 11


def test_ticks() -> None:
    assert common_tick(np.array([1.0, 14.0, 0.0]), 100.0) == (Fraction(1), True)
    assert common_tick(np.array([0.5, 0.1, 1 / 3]), 10.0) == (Fraction(1, 30), True)
    tick, exact = common_tick(np.array([0.5, math.pi]), 10.0)
    assert (tick, exact) == (Fraction(1, 100_000), False)
    assert not common_tick(np.array([1.0]), 2.0 * MOST_TICKS)[1]
    assert common_tick(np.array([]), 0.0) == (Fraction(1), True)


def test_says_how_to_install_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == "ortools"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ortools", None)
    graph, cluster, costs = instance_from_json(CERTIFIED[2])
    with pytest.raises(InvalidInput, match=r"needs OR-tools.*pip install 'hetsim\[exact\]'"):
        simulate(graph, cluster, costs, create("exact"))


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        *((limit, "'exact' has limit") for limit in (0, -1.0, math.inf)),
        (True, "'exact' has an option limit that is a number, not True"),
    ],
)
def test_limits_that_are_refused(limit: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        create("exact", limit=limit)
