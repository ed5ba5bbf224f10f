"""Planned list schedulers and their on-line forms: published examples, certified instances, and plans
that equal those of the definitions written once more.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.instances import instance_from_json
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.ranks import upward_rank
from simulator.schedulers import create
from simulator.schedulers._pricing import PRICINGS
from simulator.schedulers.cpop import CriticalPath
from simulator.schedulers.dls import Dls, DynamicLevel, adjusted_medians
from simulator.schedulers.peft import OptimisticCosts
from tests.examples import examples
from tests.simulator.list_reference import PLANS, OnLine, World, plan_of
from tests.simulator.scripted import Recorded
from tests.simulator.strategies import cases, clusters, graphs, seconds_of
from tests.simulator.test_properties import quick

ORACLES = Path(__file__).parents[2] / "oracles"
CLASSIC: dict[str, Any] = json.loads((ORACLES / "classic.json").read_text())
CERTIFIED: list[dict[str, Any]] = json.loads((ORACLES / "certified.json").read_text())
TOPCUOGLU, PEFT, DSLAB = "topcuoglu2002", "arabnejad2014_peft", "dslab_test_4"

PUBLISHED = [
    ("heft", TOPCUOGLU, 80),  # Topcuoglu et al. 2002
    ("cpop", TOPCUOGLU, 86),
    ("peft", TOPCUOGLU, 85),
    ("pets", TOPCUOGLU, 76),
    ("heft", PEFT, 133),  # Arabnejad and Barbosa 2014
    ("cpop", PEFT, 167),
    ("peft", PEFT, 122),
    ("pets", PEFT, 147),
    ("hcpt", PEFT, 142),
    ("lookahead", TOPCUOGLU, 76),
    ("lookahead", PEFT, 127),
    ("dls", TOPCUOGLU, 91),  # as Topcuoglu et al. compare
    ("lookahead", DSLAB, 94),
    ("heft", DSLAB, 98),  # DSLab's tests
    ("cpop", DSLAB, 113),
    ("peft", DSLAB, 95),
]


def makespan(document: Any, name: str, **options: Any) -> float:
    graph, cluster, costs = instance_from_json(document)
    return simulate(graph, cluster, costs, create(name, **options)).makespan


@pytest.mark.parametrize(("name", "example", "expected"), PUBLISHED)
def test_published_examples(name: str, example: str, expected: float) -> None:
    assert makespan(CLASSIC[example], name) == expected


def test_hcpt_without_insertion() -> None:
    assert makespan(CLASSIC[PEFT], "hcpt", insertion=False) == 166


@pytest.mark.parametrize("name", ["heft", "cpop", "peft"])
@pytest.mark.parametrize("document", CERTIFIED, ids=lambda d: f"seed{d['seed']}")
def test_certified(document: dict[str, Any], name: str) -> None:
    assert makespan(document, name) == document[name]


@pytest.mark.parametrize(("example", "device"), [(TOPCUOGLU, 1), (PEFT, 0), (DSLAB, 2)])
def test_critical_path(example: str, device: int) -> None:
    """Topcuoglu's is {1, 2, 9, 10}, on P2."""
    graph, cluster, costs = instance_from_json(CLASSIC[example])
    ranking = CriticalPath(graph, costs[graph].seconds, Communication(cluster))
    assert (ranking.path, ranking.device) == (CLASSIC[example]["critical_path"], device)


@pytest.mark.parametrize("example", sorted(CLASSIC))
def test_optimistic_cost_table(example: str) -> None:
    graph, cluster, costs = instance_from_json(CLASSIC[example])
    ranking = OptimisticCosts(graph, costs[graph].seconds, Communication(cluster))
    assert ranking.table == CLASSIC[example]["optimistic_cost_table"]


def test_ranks_by_optimistic_cost() -> None:
    """Arabnejad and Barbosa 2014, as printed there to one digit."""
    graph, cluster, costs = instance_from_json(CLASSIC[PEFT])
    ranking = OptimisticCosts(graph, costs[graph].seconds, Communication(cluster))
    printed = [72.7, 41, 37, 43.7, 31, 41.7, 17, 20.7, 16.3, 0]
    assert ranking.priorities == pytest.approx(printed, abs=0.05)


class LevelsWithTransfers(DynamicLevel):
    """DSLab's: mean transfers count in the static level."""

    cluster: Cluster

    def levels(self, graph: DataflowGraph, seconds: np.ndarray) -> np.ndarray:
        median = adjusted_medians(seconds)
        edges = mean_edge_seconds(graph, Communication(self.cluster))
        static = np.array(upward_rank(median.tolist(), edges))
        return static[:, None] + median[:, None] - seconds


def test_dls_with_transfers_in_its_levels() -> None:
    """DSLab's test of its DLS ends at 96."""
    graph, cluster, costs = instance_from_json(CLASSIC[DSLAB])

    class Variant(Dls):
        rule = LevelsWithTransfers()

    Variant.rule.cluster = cluster
    assert simulate(graph, cluster, costs, Variant(insertion=True)).makespan == 96


def on_devices(edges: list[tuple[int, int, float]], seconds: list[list[float]]) -> Any:
    """A bare graph, a cluster of as many devices as there are columns, and its times."""
    graph = from_edges("bare", len(seconds), edges)
    cluster = fully_connected("bare", len(seconds[0]))
    return graph, cluster, CostTable.of(graph, np.array(seconds))


def placed(instance: Any, name: str, **options: Any) -> list[int]:
    recorded = Recorded(create(name, **options))
    simulate(*instance, recorded)
    return [row[0] for d in recorded.decisions for verb, row in d.verbs if verb == "place"]  # type: ignore[misc]


def test_a_critical_path_that_no_device_can_run_as_a_whole() -> None:
    """P1 and P2 can run two of the three, P2 faster; the first runs where it can."""
    never = math.inf
    instance = on_devices([(0, 1, 1.0), (1, 2, 1.0)], [[1.0, never], [3.0, 2.0], [never, 1.0]])
    trace = simulate(*instance, create("cpop"))
    assert trace.tasks["device"].tolist() == [0, 1, 1]
    assert trace.makespan == 5.0


def test_critical_tasks_go_elsewhere_while_their_device_is_down() -> None:
    graph, cluster, costs = on_devices([], [[1.0, 5.0]])
    path = CriticalPath(graph, costs[graph].seconds, Communication(cluster))
    assert path.device == 0
    assert path.choose(0, [(1.0, 0), (5.0, 1)]) == (1.0, 0)
    assert path.choose(0, [(9.0, 0), (5.0, 1)]) == (9.0, 0)
    assert path.choose(0, [(5.0, 1)]) == (5.0, 1)


def test_equal_sums_of_peft_go_by_finish_not_by_rounding() -> None:
    """0.3 and 0.1 + 0.2 are one score."""
    graph, cluster, costs = on_devices([], [[0.3, 0.1]])
    ranking = OptimisticCosts(graph, costs[graph].seconds, Communication(cluster))
    ranking.table = [[0.0, 0.2]]
    assert ranking.choose(0, [(0.3, 0), (0.1, 1)]) == (0.1, 1)


def test_equal_ranks_of_pets_go_by_mean_time() -> None:
    """0 runs 3 s; 1 runs 1 s and sends for 2 s."""
    instance = on_devices([(1, 2, 2.0)], [[3.0, 3.0], [1.0, 1.0], [1.0, 1.0]])
    assert placed(instance, "pets") == [1, 0, 2]
    assert placed(instance, "dynamic_pets") == [1, 0, 2]


def test_mcp_breaks_ties_by_descendants() -> None:
    """0 and 1 start at 0 at the latest; what follows 0 at 1 and 3, what follows 1 at 1 and 2."""
    instance = on_devices(
        [(0, 2, 0.0), (0, 3, 0.0), (1, 4, 0.0), (1, 5, 0.0)],
        [[1.0], [1.0], [3.0], [1.0], [3.0], [2.0]],
    )
    assert placed(instance, "heft") == [0, 1, 2, 4, 5, 3]
    assert placed(instance, "mcp") == [1, 0, 2, 4, 5, 3]
    # On line 4 and 5 are ready, and placed, when 1 has run.
    assert placed(instance, "dynamic_mcp") == [1, 0, 4, 5, 2, 3]


def test_mcp_puts_operators_of_no_length_behind_their_predecessors() -> None:
    assert placed(on_devices([(0, 1, 0.0), (1, 2, 0.0)], [[0.0]] * 3), "mcp") == [0, 1, 2]


def test_hsip_puts_tasks_first_whose_times_differ() -> None:
    """0: mean 5, deviation 0; 1: mean 2, deviation 1."""
    instance = on_devices([], [[5.0, 5.0], [1.0, 3.0]])
    assert placed(instance, "heft") == [0, 1]
    assert placed(instance, "hsip") == [1, 0]
    assert placed(instance, "dynamic_hsip") == [1, 0]


@pytest.mark.parametrize("form", ["", "dynamic_"])
def test_etf_looks_at_starts_alone_and_dls_at_devices_too(form: str) -> None:
    """ETF starts the second of three tasks on the slow device, which is free; DLS waits."""
    instance = on_devices([], [[10.0, 1.0]] * 3)
    assert simulate(*instance, create(f"{form}etf")).makespan == 10.0
    assert simulate(*instance, create(f"{form}dls")).makespan == 3.0


def star(to_second: float) -> Cluster:
    """A, from which a link of 1 B/s leads to B and another to C."""
    return Cluster(
        "star",
        [MemorySpace(name) for name in "abc"],
        [Device(name.upper(), name) for name in "abc"],
        [Link("ab", ("a", "b"), 1.0), Link("ac", ("a", "c"), to_second)],
    )


@pytest.mark.parametrize("name", ["dynamic_etf", "dynamic_dls"])
@pytest.mark.parametrize(
    ("pricing", "expected"),
    [("per_edge", 1), ("per_link", 1), ("contention_aware", 2), ("per_edge_aware", 2)],
)
def test_what_was_just_sent_keeps_a_link_from_others(
    name: str, pricing: str, expected: int
) -> None:
    """At 1 both readers of A's data may go to B from 11 on, or to C from 17 on. When one is sent to B,
    the other could be there at 21.
    """
    never = math.inf
    graph = from_edges("fork", 3, [(0, 1, 10.0), (0, 2, 10.0)])
    times = [[1.0, never, never], [never, 1.0, 1.0], [never, 1.0, 1.0]]
    costs = CostTable.of(graph, np.array(times))
    scheduler = create(name, pricing=pricing)
    trace = simulate(graph, star(0.625), costs, scheduler, contention="fifo")
    assert trace.tasks["device"].tolist() == [0, 1, expected]


@pytest.mark.parametrize("name", ["dynamic_etf", "dynamic_dls"])
def test_what_was_just_sent_need_not_be_sent_for_others(name: str) -> None:
    """The second reader wants the first one's tensor and another: together on B at 21, on C at 17. Once
    the first is sent to B, only the other has to follow, there at 11.
    """
    never = math.inf
    tensors = [Tensor(name, "activation", 10.0) for name in ("x", "y")]
    operators = [Operator(name, "task") for name in ("source", "first", "second")]
    graph = DataflowGraph("shared", operators, tensors, [[], [0], [0, 1]], [[0, 1], [], []], [])
    times = [[1.0, never, never], [never, 1.0, never], [never, 1.0, 1.0]]
    costs = CostTable.of(graph, np.array(times))
    trace = simulate(graph, star(1.25), costs, create(name, pricing="per_link"))
    assert trace.tasks["device"].tolist() == [0, 1, 1]


def test_rankings_are_made_once_a_graph() -> None:
    graph, cluster, costs = instance_from_json(CLASSIC[TOPCUOGLU])
    workload = Workload([Job(graph), Job(graph, 10.0), Job(graph, 20.0)])
    for name in ("heft", "etf", "dynamic_heft"):
        scheduler: Any = create(name)
        asked: list[str] = []
        make = scheduler.rank if name != "etf" else scheduler.rule.levels
        owner = scheduler if name != "etf" else scheduler.rule

        def counted(
            *arguments: Any, make: Any = make, asked: list[str] = asked, name: str = name
        ) -> Any:
            asked.append(name)
            return make(*arguments)

        attribute = "rank" if name != "etf" else "levels"
        setattr(owner, attribute, counted)
        try:
            simulate(workload, cluster, costs, scheduler)
        finally:
            delattr(owner, attribute)
        assert asked == [name]


EXPLAINED = {
    "cpop": "t0 (critical, longest path 108) -> P2 at 0: 16 instead of 14, 9",
    "dynamic_cpop": "t0 (critical, longest path 108) -> P2: 16 instead of 14, 9",
    "peft": "t0 (OCT 48 38 53, rank 46.3333) -> P2 at 0: 54 < 62, 62",
    "dynamic_peft": "t0 (OCT 48 38 53, rank 46.3333) -> P2: 54 < 62, 62",
    "pets": "t0 (level 0, rank 77) -> P3 at 0: 9 < 14, 16",
    "hcpt": "t0 (average earliest start 0, latest 0) -> P3 at 0: 9 < 14, 16",
    "mcp": "t0 (latest start 0) -> P3 at 0: 9 < 14, 16",
    "lookahead": "t0 (rank 108) -> P3 at 0: 42 < 44, 47",
    "dynamic_lookahead": "t0 (rank 108) -> P3: 42 < 44, 47",
    "etf": "t0 (level 61) -> P3 at 0: start 0 < 0, 0",
    "dynamic_etf": "t0 (level 61) -> P3: start 0 < 0, 0",
    "dls": "t0 (level 71) -> P3 at 0: dynamic level 71 > 66, 64",
    "dynamic_dls": "t0 (level 71) -> P3: dynamic level 71 > 66, 64",
}


@pytest.mark.parametrize("name", sorted(EXPLAINED))
def test_decisions_are_explained_with_the_numbers_that_made_them(name: str) -> None:
    graph, cluster, costs = instance_from_json(CLASSIC[TOPCUOGLU])
    lines: list[str] = []
    simulate(graph, cluster, costs, create(name), explain=lines.append)
    assert len(lines) == len(graph)
    assert lines[0] == EXPLAINED[name]


@st.composite
def instances(draw: st.DrawFn) -> tuple[World, CostTable, str | None]:
    """A graph on a cluster, believed times, and where its inputs lie."""
    cluster, graph = draw(clusters()), draw(graphs())
    seconds = draw(seconds_of(graph, len(cluster.devices)))
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    origin = draw(st.sampled_from([None, *(space.name for space in cluster.spaces)]))
    world = World(graph, cluster, (overhead + seconds).tolist())
    return world, CostTable({graph: GraphCosts(seconds)}), origin


@pytest.mark.parametrize("name", sorted(PLANS))
@settings(quick, max_examples=examples(60))
@given(instance=instances(), insertion=st.booleans())
def test_plans_are_those_of_the_definitions(
    name: str, instance: tuple[World, CostTable, str | None], insertion: bool
) -> None:
    world, costs, origin = instance
    recorded = Recorded(create(name, insertion=insertion))
    workload = Workload([Job(world.graph, origin=origin)])
    simulate(workload, world.cluster, costs, recorded)
    rows = [row for d in recorded.decisions for verb, row in d.verbs if verb == "place"]
    space = None if origin is None else world.cluster.space_index[origin]
    assert rows == plan_of(name, world, space, insertion)


@settings(quick, max_examples=examples(100))
@given(case=cases(schedulers=("heft",)), name=st.sampled_from(sorted(PLANS)))
def test_plans_of_the_first_instant_are_made_once(case: Any, name: str) -> None:
    """A scheduler that recalls another's plans does what it does without; what happens may differ."""
    first, again = create(name), create(name)
    case.run(first, actual=None)
    again.recall(first)
    for column, values in case.run(again).tasks.items():
        assert np.array_equal(values, case.run(create(name)).tasks[column]), column


def test_recalled_plans_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, cluster, costs = instance_from_json(CLASSIC[TOPCUOGLU])
    workload = Workload([Job(graph), Job(graph), Job(graph, 10.0)])
    first, again = create("heft"), create("heft")
    simulate(workload, cluster, costs, first)
    again.recall(first)
    planned: list[int] = []
    plan = type(again).plan  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(again),
        "plan",
        lambda self, draft, r: (planned.append(draft.job), plan(self, draft, r)),
    )
    simulate(workload, cluster, costs, again)
    assert planned == [2]


ON_LINE = sorted(f"dynamic_{name}" for name in PLANS)


@pytest.mark.parametrize("name", ON_LINE)
@settings(quick, max_examples=examples(60))
@given(
    case=cases(schedulers=("fcfs",)),
    pricing=st.sampled_from(PRICINGS),
)
def test_on_line_forms_are_those_of_the_definitions(name: str, case: Any, pricing: str) -> None:
    recorded, expected = Recorded(create(name, pricing=pricing)), Recorded(OnLine(name, pricing))
    case.run(recorded)
    case.run(expected)
    placed, wanted = (
        [(d.time, row) for d in r.decisions for verb, row in d.verbs if verb == "place"]
        for r in (recorded, expected)
    )
    assert placed == wanted
