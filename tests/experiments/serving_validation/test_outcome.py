"""The arithmetic of serving held against a machine."""

import math
from dataclasses import replace

import numpy as np
import pytest

from experiments.serving_validation.outcome import (
    ServingCase,
    all_at_once,
    answers,
    averaged,
    by_the_others,
    case_frame,
    drawn_figures,
    figures_of,
    stretched,
    summary,
    taken_apart,
    winners,
    with_joining,
)
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.closed_loop import ClosedLoop
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

GRAPH = DataflowGraph(
    "g",
    [Operator("a", "k"), Operator("b", "k"), Operator("c", "k")],
    [
        Tensor("w", "weight", 4),
        Tensor("x", "input", 4),
        Tensor("y", "activation", 4),
        Tensor("z", "activation", 4),
        Tensor("u", "activation", 4),
    ],
    [[0], [1, 2], [1, 3]],
    [[2], [3], [4]],
)


def figures(served, delay, batch=1.0, **more):
    delays = {f"{name}_delay_s": delay * factor for name, factor in FACTORS.items()}
    return {"served_per_s": served, **delays, "mean_batch": batch, "requests": 10, **more} | {
        "offered_per_s": served
    }


FACTORS = {"mean": 1.0, "p50": 0.9, "p95": 2.0, "p99": 3.0}


def case(load, scheduler, measured, simulated, run=1):
    return ServingCase(load, scheduler, figures(*measured), figures(*simulated), run=run)


def test_arrivals_are_stretched_to_a_rate():
    times = [1.0, 1.5, 4.0, 5.0]  # three gaps in 4 s
    jobs = [Job(GRAPH, t, deadline=None if t == 4.0 else t + 0.2, model=str(t)) for t in times]
    batches = {GRAPH: {1: GRAPH}}
    found = stretched(Workload(jobs, batches), 3.0, 100.0)
    assert [job.arrival for job in found] == pytest.approx([0.0, 0.125, 0.75, 1.0])
    assert [job.deadline for job in found] == pytest.approx([0.2, 0.325, None, 1.2])
    assert [job.model for job in found] == [str(t) for t in times]
    assert found.batches == batches
    assert [job.model for job in stretched(Workload(jobs), 3.0, 0.75)] == ["1.0", "1.5", "4.0"]
    for wrong in (
        Workload([Job(GRAPH)]),
        Workload([Job(GRAPH), Job(GRAPH)]),
        ClosedLoop([[Job(GRAPH)], [Job(GRAPH, 1.0)]]),
    ):
        with pytest.raises(InvalidInput, match="take two requests at least, at different times"):
            stretched(wrong, 1.0, 1.0)


def test_a_burst_is_the_first_requests_at_once():
    jobs = [Job(GRAPH, float(i), deadline=i + 1.0, model=str(i)) for i in range(4)]
    found = all_at_once(Workload(jobs), 3)
    assert [(job.arrival, job.deadline, job.model) for job in found] == [
        (0.0, None, "0"),
        (0.0, None, "1"),
        (0.0, None, "2"),
    ]


def test_joining_is_paid_by_the_first_operator_that_reads_the_input():
    plain = CostTable({GRAPH: GraphCosts(np.ones((3, 2)), np.full((3, 2), 0.1))})
    found = with_joining(plain, {GRAPH: 0.25})[GRAPH]
    assert found.seconds.tolist() == [[1, 1], [1.25, 1.25], [1, 1]]
    assert found.spread is plain[GRAPH].spread
    assert plain[GRAPH].seconds.tolist() == [[1, 1]] * 3
    assert with_joining(plain, {})[GRAPH] is plain[GRAPH]


def test_errors_and_what_they_amount_to():
    cases = [
        case(0.5, "a", (100.0, 0.010), (101.0, 0.011)),
        case(0.5, "b", (100.0, 0.020), (100.0, 0.018)),
        case(1.2, "a", (200.0, 1.0), (190.0, 1.5)),
        case(1.2, "b", (200.0, 0.5), (202.0, 0.52)),
    ]
    assert cases[0].error("served_per_s") == pytest.approx(0.01)
    assert cases[2].error("mean_delay_s") == pytest.approx(0.5)
    found = summary(cases)
    assert found["mean_delay_s"]["mean_absolute_error"] == pytest.approx(
        (0.1 + 0.1 + 0.5 + 0.04) / 4
    )
    assert found["mean_delay_s"]["bias"] == pytest.approx((0.1 - 0.1 + 0.5 + 0.04) / 4)
    assert found["mean_delay_s"]["worst_absolute_error"] == pytest.approx(0.5)
    assert found["mean_delay_s"]["mean_factor"] == pytest.approx(
        (1.1 / 0.9 * 1.5 * 1.04) ** (1 / 4)
    )
    assert found["mean_delay_s"]["within"] == 3
    assert found["served_per_s"]["within"] == 3
    assert "bound" not in found["p99_delay_s"]
    lines = answers(cases)
    assert lines[0].startswith("mean delay: simulated within 12% of measured in 3 of 4 cases")
    assert "at worst +50.0% (a at 1.2 of capacity)" in lines[0]
    assert lines[1].startswith("throughput: simulated within 4% of measured in 3 of 4 cases")
    assert any(line.startswith("at 0.5 of capacity") and "mean 10.0%" in line for line in lines)
    assert winners(cases) == (2, 2)
    frame = case_frame(cases)
    assert frame["mean_delay_s_error"].tolist() == pytest.approx([0.1, -0.1, 0.5, 0.04])
    assert frame["load"].tolist() == [0.5, 0.5, 1.2, 1.2]


def test_winners_count_pairs_that_differ_on_the_machine():
    cases = [
        case(1.0, "a", (1.0, 1.00), (1.0, 2.0)),
        case(1.0, "b", (1.0, 1.04), (1.0, 1.0)),  # level with a
        case(1.0, "c", (1.0, 2.00), (1.0, 1.5)),  # behind a, and not in simulation
        case(2.0, "a", (1.0, 9.00), (1.0, 9.0)),  # another load
    ]
    assert winners(cases) == (1, 2)


def test_what_nobody_waited_for_has_no_error():
    empty = figures(0.0, 1.0) | {"mean_delay_s": None}
    found = ServingCase(1.0, "a", empty, empty)
    assert math.isnan(found.error("mean_delay_s"))
    assert math.isnan(found.error("served_per_s"))
    assert "mean_delay_s" not in summary([found])


RUNS = [
    case(0.5, "a", (100.0, 0.010), (101.0, 0.012), 1),
    case(0.5, "b", (100.0, 0.020), (100.0, 0.011), 1),
    case(0.5, "a", (104.0, 0.020), (103.0, 0.014), 2),
    case(0.5, "b", (100.0, 0.010), (100.0, 0.011), 2),
]
"""Two runs of two schedulers, which the machine has in one order and then in the other."""


def test_what_of_a_delay_was_executing():
    """Two requests at once on one device, one by one and then as one."""
    one, two = (
        DataflowGraph(
            f"of {batch}",
            [Operator("a", "k")],
            [Tensor("x", "input", 4.0), Tensor("y", "activation", 4.0)],
            [[0]],
            [[1]],
            batch=batch,
        )
        for batch in (1, 2)
    )
    cluster = Cluster("c", [MemorySpace("m")], [Device("d", "m")])
    costs = CostTable(
        {one: GraphCosts(np.full((1, 1), 2.0)), two: GraphCosts(np.full((1, 1), 3.0))}
    )
    jobs = Workload([Job(one, batch=1)] * 2, {one: {1: one, 2: two}})
    found = figures_of(simulate(jobs, cluster, costs, create("fcfs")), 0.0)
    assert (found["mean_execution_s"], found["mean_delay_s"]) == (2.0, 3.0)
    scheduler = create("fcfs_batching", max_batch=2)
    found = figures_of(simulate(jobs, cluster, costs, scheduler), 0.0)
    assert (found["mean_execution_s"], found["mean_delay_s"]) == (3.0, 3.0)
    assert figures_of(simulate(jobs, cluster, costs, scheduler), 1.0)["mean_execution_s"] is None


def test_runs_of_a_case_are_averaged():
    a, b = averaged(RUNS)
    assert (a.scheduler, b.scheduler) == ("a", "b")
    assert a.measured["mean_delay_s"] == pytest.approx(0.015)
    assert a.simulated["mean_delay_s"] == pytest.approx(0.013)
    assert a.error("mean_delay_s") == pytest.approx(13 / 15 - 1)
    assert a.measured["requests"] == 10
    assert isinstance(a.measured["requests"], int)
    assert averaged(RUNS[:2]) == RUNS[:2]
    nobody = [
        replace(
            run, measured={**run.measured, "p99_delay_s": None} if run.run == 1 else run.measured
        )
        for run in RUNS
    ]
    assert averaged(nobody)[0].measured["p99_delay_s"] is None


def test_a_run_is_told_by_the_others():
    """Of three runs by the mean of two; a case of a single run says nothing of another."""
    more = [*RUNS, case(0.5, "a", (90.0, 0.030), (1.0, 1.0), 3), case(0.8, "a", (1.0, 1.0), (1, 1))]
    found = {(one.load, one.scheduler, one.run): one for one in by_the_others(more)}
    assert set(found) == {(0.5, "a", 1), (0.5, "a", 2), (0.5, "a", 3), (0.5, "b", 1), (0.5, "b", 2)}
    assert found[0.5, "a", 1].simulated["mean_delay_s"] == pytest.approx(0.025)
    assert found[0.5, "a", 1].error("mean_delay_s") == pytest.approx(1.5)
    assert found[0.5, "a", 3].simulated["served_per_s"] == pytest.approx(102.0)
    assert found[0.5, "b", 1].error("mean_delay_s") == pytest.approx(-0.5)
    assert by_the_others(RUNS[:2]) == []


def test_what_the_machine_itself_reaches_is_said():
    lines = answers(RUNS)
    assert "in 0 of 2 cases (means of 2 runs)" in lines[0]
    itself, order = lines[-2:]
    # By the other run twice or half as long.
    by = math.exp(sum(abs(math.log1p(run.error("mean_delay_s"))) for run in RUNS) / 4)
    assert itself.startswith(
        f"the machine itself: a single run's mean delay differs from its own simulation's by a factor of {by:.3g} and "
        "from the mean of the case's other runs by one of 2 (1 and 0 of 4 within 12%), its throughput "
    )
    assert any(
        line.startswith("at 0.5 of capacity")
        and line.endswith(
            f"by a factor of {by:.3g} and from the mean of the case's other runs by one of 2"
        )
        for line in lines
    )
    assert order.startswith("of 2 pairs of schedulers in the same round of runs")
    assert order.endswith("simulation has 1 in that order and the other rounds have 0")
    assert not any("the machine itself" in line for line in answers(RUNS[:2]))


def test_runs_that_answer_nobody_are_no_error():
    delays = {"mean_delay_s": None, "p50_delay_s": None, "p95_delay_s": None, "p99_delay_s": None}
    runs = [
        replace(run, measured={**run.measured, **delays}) for run in RUNS if run.scheduler == "a"
    ]
    lines = answers(runs)
    assert lines[0].startswith("throughput")
    assert not any("mean delay" in line for line in lines)


def test_of_draws_the_medians_and_the_middle():
    draws = [figures(100.0, delay, by_model={"m": {"delay": delay}}) for delay in np.arange(101.0)]
    simulated, low, high = drawn_figures(
        [*draws, figures(100.0, 50.0, by_model={"m": {"delay": 7}})]
    )
    assert simulated["mean_delay_s"] == 50.0
    assert simulated["by_model"]["m"]["delay"] == pytest.approx(49.5)
    assert simulated["requests"] == 10
    assert low["mean_delay_s"] == pytest.approx(5.05)
    assert high["mean_delay_s"] == pytest.approx(95.0, abs=0.1)
    assert "mean_execution_s" not in low
    unknown = [{**draw, "p99_delay_s": None} for draw in draws]
    assert drawn_figures(unknown)[0]["p99_delay_s"] is None
    assert "p99_delay_s" not in drawn_figures(unknown)[1]


def known(measured, simulated, speed, phases, ends=(0.0, 1.0), run=1):
    return replace(
        case(0.5, "a", (100.0, measured), (100.0, simulated), run),
        low={"mean_delay_s": ends[0]},
        high={"mean_delay_s": ends[1]},
        steady=figures(100.0, simulated),
        own_speed=figures(100.0, speed),
        own_phases=figures(100.0, phases),
    )


def test_an_error_is_taken_apart_into_steps_that_add_up():
    one = known(0.040, 0.020, 0.030, 0.042)
    steps = taken_apart(one)
    assert steps == pytest.approx({"speed": 0.25, "phases": 0.3, "rest": -0.05})
    assert sum(steps.values()) == pytest.approx(0.5)
    assert taken_apart(RUNS[0]) is None


def test_what_intervals_hold_and_who_knew_better_is_said():
    runs = [
        known(0.040, 0.020, 0.030, 0.041),
        known(0.040, 0.020, 0.030, 0.041, (0.01, 0.03), run=2),
    ]
    assert [one.covers("mean_delay_s") for one in runs] == [True, False]
    assert runs[0].covers("served_per_s") is None
    text = " ".join(answers(runs))
    assert "the predicted 90% interval has the mean delay in 1 of 2 runs" in text
    assert (
        "at the mean speed around a run throughout 50.0% (at worst 50.0%; 0 of 1 within 12%)"
        in text
    )
    assert "took on average in the run 25.0% (at worst 25.0%; 0 of 1 within 12%)" in text
    assert "from moment to moment 2.5% (at worst 2.5%; 1 of 1 within 12%)" in text
    assert "mean delays would be off" not in " ".join(answers(RUNS))


def test_nothing_is_saved_of_joining():
    costs = CostTable({GRAPH: GraphCosts(np.ones((3, 1)), cached=np.full((3, 1), 0.5))})
    found = with_joining(costs, {GRAPH: 1.0})[GRAPH]
    assert found.seconds[:, 0].tolist() == [1.0, 2.0, 1.0]
    assert found.cached[:, 0] == pytest.approx([0.5, 0.75, 0.5])
