"""Batch-mode schedulers against known makespans and against plain loops that price everything anew."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.instances import instance_from_json
from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import COLUMNS
from simulator.model.workload import Job, Workload
from simulator.planners.priorities import rounded
from simulator.schedulers import _batch_mapping as batch_mode
from simulator.schedulers import create
from simulator.schedulers._pricing import PRICINGS, estimated_finishes
from tests.examples import examples
from tests.simulator.schedulers.test_arrival_order import Times, matrices, run
from tests.simulator.schedulers.test_sufferage import BEATS_MIN_MIN, EQUAL_MACHINES
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick

NAMES = ("min_min", "max_min", "duplex", "sufferage_one")


@pytest.mark.parametrize(
    ("name", "published", "equal"),
    [("min_min", 93, 18), ("max_min", 82, 12), ("duplex", 82, 12), ("sufferage_one", 78, 12)],
)
def test_matrices(name: str, published: float, equal: float) -> None:
    assert run(BEATS_MIN_MIN, name).makespan == published
    assert run(EQUAL_MACHINES, name).makespan == equal


def test_max_min_on_equal_machines_is_longest_first() -> None:
    """Graham 1969: the example on which that is 4/3 - 1/(3m) times the optimum of 9."""
    times: Times = [[float(s)] * 3 for s in (5, 5, 4, 4, 3, 3, 3)]
    assert run(times, "max_min").makespan == 11


def suffers(scores: list[tuple[float, int]]) -> float:
    if len(scores) < 2 or scores[0][0] == math.inf:
        return 0.0
    return rounded(scores[1][0] - scores[0][0])


KEYS = {
    "min_min": lambda scores: scores[0][0],
    "max_min": lambda scores: -scores[0][0],
    "sufferage_one": lambda scores: -suffers(scores),
}
"""By sorted (completion, device) of a task: the smallest comes first, ties to the first task."""


def reference(times: Times, name: str) -> tuple[list[int], float]:
    """Devices and makespan of independent tasks."""
    free, devices, left = [0.0] * len(times[0]), [-1] * len(times), list(range(len(times)))
    while left:
        scores = {
            t: sorted((free[d] + s, d) for d, s in enumerate(times[t]) if s < math.inf)
            for t in left
        }
        task = min(left, key=lambda t: KEYS[name](scores[t]))
        finish, device = scores[task][0]
        free[device], devices[task] = finish, device
        left.remove(task)
    return devices, max(free)


WAYS = st.sampled_from([0, 1 << 30])
"""Of :data:`simulator.schedulers._batch_mapping.FEW`: all batches in arrays, all in lists."""


@quick
@given(matrices(), st.sampled_from(NAMES), WAYS)
def test_independent_tasks(times: Times, name: str, few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_mode, "FEW", few)
        found = run(times, name)
    if name == "duplex":
        expected, other = reference(times, "min_min"), reference(times, "max_min")
        expected = other if other[1] < expected[1] else expected
    else:
        expected = reference(times, name)
    assert (found.tasks["device"].tolist(), found.makespan) == expected


class Plain(Scheduler):
    """The same rules, every task priced anew before each placement."""

    name: ClassVar[str] = "plain"

    def __init__(self, rule: str, pricing: str) -> None:
        self.rule = rule
        self.pricing = pricing

    def decide(self, context: SchedulingContext) -> None:
        left = list(context.placeable)
        while left:
            scores = {
                t: sorted(estimated_finishes(context, t, context.able(t), self.pricing))
                for t in left
            }
            task = min(left, key=lambda t: KEYS[self.rule](scores[t]))
            context.place(task, scores[task][0][1])
            left.remove(task)


@settings(quick, max_examples=examples(300))
@given(
    cases(schedulers=("fcfs",), contentions=("none", "fifo")),
    st.sampled_from(sorted(KEYS)),
    st.sampled_from(PRICINGS),
    WAYS,
)
def test_times_that_are_kept_are_those_of_pricing_anew(
    case: Case, name: str, pricing: str, few: int
) -> None:
    """On shared links an expected end may round otherwise from one question to the next, which decides ties."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_mode, "FEW", few)
        found = case.run(create(name, pricing=pricing))
    expected = case.run(Plain(name, pricing))
    for table, columns in COLUMNS.items():
        for column in columns:
            assert np.array_equal(getattr(found, table)[column], getattr(expected, table)[column])


@settings(quick, max_examples=examples(100))
@given(cases(schedulers=("fcfs",)), st.sampled_from(PRICINGS))
def test_duplex_is_one_of_the_two_on_a_single_batch(case: Case, pricing: str) -> None:
    """One batch of tasks without predecessors, believed as it happens: the better of both."""
    count = len(case.workload.jobs[0].graph)
    graph = from_edges("batch", count, [])
    costs = CostTable.of(graph, case.costs[case.workload.jobs[0].graph].seconds)
    spans = [
        simulate(graph, case.cluster, costs, create(name, pricing=pricing)).makespan
        for name in ("min_min", "max_min", "duplex")
    ]
    assert spans[2] == min(spans[:2])


@pytest.mark.parametrize(
    ("pricing", "calls"), [("per_link", 40), ("per_edge", 40), ("contention_aware", 40 * 41 // 2)]
)
@pytest.mark.parametrize("few", [0, 1 << 30])
def test_tasks_are_priced_once(
    pricing: str, calls: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced = []

    def counted(context: SchedulingContext, task: int, *more: object) -> list[float]:
        priced.append(task)
        return real(context, task, *more)  # type: ignore[arg-type]

    real = batch_mode.data_ready
    monkeypatch.setattr(batch_mode, "data_ready", counted)
    monkeypatch.setattr(batch_mode, "FEW", few)
    run([[3.0, 2.0, 5.0]] * 40, "min_min", pricing=pricing)
    assert len(priced) == calls


@pytest.mark.parametrize("name", ["min_min", "max_min"])
def test_remap_takes_back_what_has_not_started(name: str) -> None:
    """Two tasks of 4 s are on A; at 1 comes one of 2 s. Remapped, the shortest or the longest of what
    has not started is next.
    """
    pair, single = from_edges("pair", 2, []), from_edges("single", 1, [])
    costs = CostTable(
        {**CostTable.of(pair, np.full((2, 1), 4.0)), **CostTable.of(single, np.array([[2.0]]))}
    )
    _, cluster, _ = instance_from_json({"cost": [[1.0]], "edges": []})
    workload = Workload([Job(pair), Job(single, 1.0)])
    starts = {
        remap: simulate(workload, cluster, costs, create(name, remap=remap)).tasks["start"].tolist()
        for remap in (False, True)
    }
    assert starts[False] == [0, 4, 8]
    assert starts[True] == ([0, 6, 4] if name == "min_min" else [0, 4, 8])


def test_explained_by_rank_and_finish() -> None:
    graph, cluster, costs = instance_from_json({"cost": [[2, 3], [4, 9], [5, 1]], "edges": []})
    said: dict[str, list[str]] = {}
    for name in NAMES:
        simulate(graph, cluster, costs, create(name), explain=said.setdefault(name, []).append)
    assert said["min_min"] == [
        "t2 -> P2: finish 1, the smallest of 3",
        "t0 -> P1: finish 2, the smallest of 2",
        "t1 -> P1: finish 6, the smallest of 1",
    ]
    assert said["max_min"][0] == "t1 -> P1: finish 4, the largest of 3"
    assert said["sufferage_one"][0] == "t1 -> P1: finish 4, sufferage 5"
    assert said["duplex"][0] == "t1 -> P1: finish 4, max_min: all by 4 <= 6"
