"""Limited memory on hand-drawn graphs, rule by rule, with exact numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.scripted import Script, StaticPlan


def graph_of(
    operators: Mapping[str, tuple[Sequence[str], Mapping[str, float]]],
    given: Mapping[str, tuple[str, float]] | None = None,
    results: Sequence[str] = (),
    name: str = "drawn",
) -> DataflowGraph:
    """A graph: operator -> (tensors read, {tensor written: bytes}); given -> (role, bytes)."""
    tensors = [Tensor(t, role, size) for t, (role, size) in (given or {}).items()]  # type: ignore[arg-type]
    tensors += [
        Tensor(t, "activation", size)
        for _, wrote in operators.values()
        for t, size in wrote.items()
    ]
    index = {tensor.name: i for i, tensor in enumerate(tensors)}
    return DataflowGraph(
        name,
        [Operator(o, "task") for o in operators],
        tensors,
        [[index[t] for t in read] for read, _ in operators.values()],
        [[index[t] for t in wrote] for _, wrote in operators.values()],
        [{"tensor": t, "views": []} for t in results],
    )


def cluster_of(devices: str, capacity: Mapping[str, float], host: str | None = None) -> Cluster:
    """``"a a b"``: a device in each of these spaces; 1 byte/s between any two spaces."""
    names = list(dict.fromkeys([*devices.split(), *capacity]))
    return Cluster(
        "drawn",
        [MemorySpace(n, capacity.get(n, math.inf)) for n in names],
        [Device(f"d{i}", s) for i, s in enumerate(devices.split())],
        [Link(f"{a}{b}", (a, b), 1.0) for i, a in enumerate(names) for b in names[i + 1 :]],
        host,
    )


def run(
    workload: DataflowGraph | Workload,
    cluster: Cluster,
    seconds: Mapping[str, float],
    scheduler: Scheduler,
    **settings: Any,
) -> Trace:
    """``seconds`` of every operator, the same on every device."""
    workload = Workload([Job(workload)]) if isinstance(workload, DataflowGraph) else workload
    costs = CostTable(
        {
            g: costs
            for g in workload.graphs
            for costs in CostTable.of(
                g,
                np.array([[seconds[o.name]] * len(cluster.devices) for o in g.operators]),
            ).values()
        }
    )
    return simulate(workload, cluster, costs, scheduler, **{"memory": "limited", **settings})


def spans(trace: Trace) -> dict[str, tuple[float, float]]:
    """Operator -> start, finish; ``name#job`` where there are several jobs."""
    rows = trace.executions
    several = len(trace.jobs["job"]) > 1
    return {
        trace.operator(j, o)[0] + (f"#{j}" if several else ""): (s, f)
        for j, o, s, f in zip(
            *(rows[k].tolist() for k in ("job", "operator", "start", "finish")), strict=True
        )
    }


def moves(trace: Trace) -> list[tuple[int, int, int, float, float, float]]:
    """(tensor, source, destination, requested, start, finish) of every transfer."""
    columns = ("tensor", "source", "destination", "requested", "start", "finish")
    return list(zip(*(trace.transfers[k].tolist() for k in columns), strict=True))


def test_a_task_waits_for_room_for_its_outputs() -> None:
    graph = graph_of({"a": ([], {"x": 6}), "b": ([], {"y": 6}), "c": (["x"], {"z": 1})})
    plan = StaticPlan([(0, 0), (1, 0), (0, 1)])
    seconds = {"a": 3, "b": 2, "c": 1}
    free = run(graph, cluster_of("m m", {}), seconds, plan)
    assert spans(free) == {"a": (0, 3), "b": (0, 2), "c": (3, 4)}
    assert free.meta["peak_bytes"] == [12.0]
    # Until c has read x: then y (6) fits beside nothing else.
    tight = run(graph, cluster_of("m m", {"m": 10}), seconds, plan)
    assert spans(tight) == {"a": (0, 3), "c": (3, 4), "b": (4, 6)}
    assert tight.meta["peak_bytes"] == [7.0]
    # The same capacity without effect.
    assert spans(run(graph, cluster_of("m m", {"m": 10}), seconds, plan, memory="unlimited")) == (
        spans(free)
    )


def test_half_bytes_count_whole() -> None:
    graph = graph_of({"a": ([], {"x": 1.5, "y": 1.5})})
    plan = StaticPlan([(0, 0)])
    assert run(graph, cluster_of("m", {"m": 4.9}), {"a": 1}, plan).meta["peak_bytes"] == [4.0]
    with pytest.raises(InvalidInput, match="needs 4 bytes"):
        run(graph, cluster_of("m", {"m": 3.9}), {"a": 1}, plan)


def test_a_copy_occupies_its_destination_from_its_request() -> None:
    # x crosses from 1 to 7; its 6 bytes are taken in n all that time, and until k has read it.
    graph = graph_of(
        {
            "a": ([], {"x": 6}),
            "b": ([], {"w": 0}),
            "k": (["x"], {"z": 1}),
            "g": (["w"], {"y": 5}),
        }
    )
    seconds = {"a": 1, "b": 2, "k": 1, "g": 1}
    plan = StaticPlan([(0, 0), (1, 0), (2, 0), (3, 0)])
    free = run(graph, cluster_of("m m n n", {}), seconds, plan)
    assert spans(free)["g"] == (2, 3)
    tight = run(graph, cluster_of("m m n n", {"n": 10}), seconds, plan)
    assert spans(tight) == {"a": (0, 1), "b": (0, 2), "k": (7, 8), "g": (8, 9)}
    assert tight.meta["peak_bytes"] == [6.0, 7.0]


def test_a_copy_without_room_waits_and_those_to_other_spaces_go_on() -> None:
    # n holds p (6) until q has read it at 4; x (6) goes there only then, y goes to o at once.
    graph = graph_of(
        {
            "p": ([], {"p": 6}),
            "q": (["p"], {"q": 0}),
            "a": ([], {"x": 6, "y": 6}),
            "k": (["x"], {}),
            "l": (["y"], {}),
        }
    )
    seconds = {"p": 3, "q": 1, "a": 1, "k": 1, "l": 1}
    plan = StaticPlan([(1, 0), (1, 1), (0, 0), (1, 2), (2, 0)])
    trace = run(graph, cluster_of("m n o", {"n": 10}), seconds, plan)
    assert moves(trace) == [(3, 0, 2, 1, 1, 7), (2, 0, 1, 4, 4, 10)]
    assert spans(trace)["k"] == (10, 11)
    assert spans(trace)["l"] == (7, 8)
    # x was still in m until 10: 12 bytes written by a.
    assert trace.meta["peak_bytes"] == [12.0, 6.0, 6.0]


@pytest.mark.parametrize(("rank", "v"), [(3, (4, 6)), (0, (1, 3))])
def test_copies_wait_in_the_order_of_the_queues(rank: float, v: tuple[float, float]) -> None:
    # v (2) would fit beside p (6) from 1 on, yet x (6) is needed first, or is not.
    graph = graph_of(
        {
            "p": ([], {"p": 6}),
            "q": (["p"], {"q": 0}),
            "a": ([], {"x": 6, "v": 2}),
            "k": (["x"], {}),
            "l": (["v"], {}),
        }
    )
    seconds = {"p": 3, "q": 1, "a": 1, "k": 1, "l": 1}
    plan = StaticPlan([(1, 0), (1, 1), (0, 0), (1, 2), (2, rank)])
    trace = run(graph, cluster_of("m n n", {"n": 10}), seconds, plan)
    assert sorted(moves(trace)) == [(2, 0, 1, 4, 4, 10), (3, 0, 1, v[0], *v)]


def withdraw_and_place_again(to: int, filler: int) -> Script:
    """c, first placed on device 1, goes to device ``to`` at 5; the filler runs on device 0 at 4."""

    def act(context: SchedulingContext, call: int) -> None:
        for job in context.arrived:
            a, stop, c, fill = context.tasks_of(job)
            context.place(a, 0, 0)
            context.place(stop, 1, 0)
            context.place(c, 1, 1)
            if filler:
                context.place(fill, 0, 4)
            else:
                context.place(fill, 2, 0)
            context.wake_at(5)
        if context.now == 5 and context.is_queued(context.tasks_of(0)[2]):
            c = context.tasks_of(0)[2]
            context.withdraw(c)
            context.place(c, to, 9)

    return Script(act)


READ_ELSEWHERE = {
    "a": ([], {"x": 3}),
    "stop": ([], {}),
    "c": (["x"], {}),
    "fill": ([], {"f": 8}),
}


@pytest.mark.parametrize("to", [0, 2])
def test_unwanted_data_makes_way_and_crosses_again(to: int) -> None:
    # c waits behind stop in n, where x has been since 4; then m needs room for f (8).
    graph = graph_of(READ_ELSEWHERE)
    seconds = {"a": 1, "stop": 20, "c": 1, "fill": 9}
    trace = run(
        graph, cluster_of("m n o", {"m": 10}), seconds, withdraw_and_place_again(to, filler=1)
    )
    # f could start only when x had arrived in n and went from m. Then x came from n.
    assert spans(trace)["fill"] == (4, 13)
    assert moves(trace) == [(0, 0, 1, 1, 1, 4), (0, 1, to, 5, 5, 8)] if to else True
    if to:
        assert spans(trace)["c"] == (8, 9)
    else:  # back into m, once f (nobody reads it) is gone; d0 is free then, too
        assert moves(trace) == [(0, 0, 1, 1, 1, 4), (0, 1, 0, 13, 13, 16)]
        assert spans(trace)["c"] == (16, 17)


def test_unwanted_data_can_be_used_while_it_still_lies() -> None:
    graph = graph_of(READ_ELSEWHERE)
    seconds = {"a": 1, "stop": 20, "c": 1, "fill": 9}
    trace = run(graph, cluster_of("m n o", {"m": 10}), seconds, withdraw_and_place_again(0, 0))
    assert moves(trace) == [(0, 0, 1, 1, 1, 4)]
    assert spans(trace)["c"] == (5, 6)


def test_results_stay_until_their_job_is_done() -> None:
    # r (6) is wanted nowhere else; the job ends with b at 5, and only then is there room for job 1.
    graph = graph_of(
        {"a": ([], {"r": 6}), "b": ([], {"s": 1})},
        results=["r"],
    )
    jobs = Workload([Job(graph), Job(graph, 2.0)])
    plan = StaticPlan([(0, 0), (1, 0)], [(0, 2), (1, 2)])
    trace = run(jobs, cluster_of("m m", {"m": 10}), {"a": 1, "b": 5}, plan)
    assert spans(trace) == {"a#0": (0, 1), "b#0": (0, 5), "a#1": (5, 6), "b#1": (5, 10)}
    # Delivered over the link (5 bytes would do, from 1 to 7): the copy stays until the end, b#0 at 5
    # is earlier.
    jobs = Workload([Job(graph, destination="n")])
    trace = run(jobs, cluster_of("m m", {"n": 6}), {"a": 1, "b": 5}, StaticPlan([(0, 0), (1, 0)]))
    assert trace.jobs["finish"].tolist() == [7]
    assert trace.meta["peak_bytes"] == [7.0, 6.0]


def test_a_delivered_result_stays_until_its_job_is_done() -> None:
    # r (6) is in n at 7, its job goes on until 12; then there is room for s (5) in n.
    graph = graph_of({"a": ([], {"r": 6}), "b": ([], {})}, results=["r"])
    other = graph_of({"c": ([], {"s": 5})}, name="other")
    jobs = Workload([Job(graph, destination="n"), Job(other, 8.0)])
    plan = StaticPlan([(0, 0), (1, 0)], [(2, 0)])
    trace = run(jobs, cluster_of("m m n", {"n": 10}), {"a": 1, "b": 12, "c": 1}, plan)
    assert trace.jobs["finish"].tolist() == [12, 13]
    assert spans(trace)["c#1"] == (12, 13)


def test_a_copy_gives_its_room_back_when_its_readers_have_finished() -> None:
    # x (6) is in n from 1, read there by k at 8; it lives on in m, where late reads it until 21.
    graph = graph_of(
        {
            "a": ([], {"x": 6}),
            "k": (["x"], {}),
            "late": (["x"], {}),
            "g": ([], {"y": 6}),
        }
    )

    def act(context: SchedulingContext, call: int) -> None:
        for _ in context.arrived:
            for task, device in enumerate((0, 1, 0)):
                context.place(task, device, task)
            context.wake_at(2)
        if context.now == 2 and context.device_of(3) < 0:  # the copy is on its way
            context.place(3, 2, 0)

    seconds = {"a": 1, "k": 1, "late": 20, "g": 1}
    trace = run(graph, cluster_of("m n n", {"n": 10}), seconds, Script(act))
    assert spans(trace) == {"a": (0, 1), "k": (7, 8), "g": (8, 9), "late": (1, 21)}


def test_a_reader_in_no_queue_keeps_the_original() -> None:
    # k has its copy of x (6) in n at 7; l is placed in m at 20 only. f (6) waits for it, until 21.
    graph = graph_of({"a": ([], {"x": 6}), "k": (["x"], {}), "l": (["x"], {}), "f": ([], {"y": 6})})

    def act(context: SchedulingContext, call: int) -> None:
        for _ in context.arrived:
            context.place(0, 0, 0)
            context.place(1, 1, 0)
            context.wake_at(2)
            context.wake_at(20)
        if context.now == 2 and context.device_of(3) < 0:
            context.place(3, 2, 0)
        if context.now == 20 and context.device_of(2) < 0:
            context.place(2, 0, 0)

    seconds = dict.fromkeys("aklf", 1)
    trace = run(graph, cluster_of("m n m", {"m": 11}), seconds, Script(act))
    assert spans(trace) == {"a": (0, 1), "k": (7, 8), "l": (20, 21), "f": (21, 22)}


def test_unwanted_data_that_was_unwanted_first_goes_first() -> None:
    # In m (12) x is unwanted from 4, v from 7; f (7) takes the room of x alone at 8.
    graph = graph_of(
        {
            "a": ([], {"x": 3, "v": 3}),
            "stop": ([], {}),
            "k": (["x"], {}),
            "l": (["v"], {}),
            "f": ([], {"y": 7}),
        }
    )

    def act(context: SchedulingContext, call: int) -> None:
        for _ in context.arrived:
            for task, device, rank in ((0, 0, 0), (1, 1, 0), (2, 1, 1), (3, 1, 2)):
                context.place(task, device, rank)
            context.wake_at(8)
            context.wake_at(10)
        if context.now == 8:
            context.place(4, 0, 8)
        if context.now == 10 and context.device_of(2) == 1:
            for task in (2, 3):
                context.withdraw(task)
                context.place(task, 2, 10)

    seconds = {"a": 1, "stop": 30, "k": 1, "l": 1, "f": 9}
    cluster = cluster_of("m n m", {"m": 12})
    trace = run(graph, cluster, seconds, Script(act), contention="fifo")
    # Back in m, x must cross again and find room beside f (until 17); v has stayed.
    assert moves(trace) == [(0, 0, 1, 1, 1, 4), (1, 0, 1, 1, 4, 7), (0, 1, 0, 17, 17, 20)]


def test_a_jobs_inputs_occupy_their_origin_and_wait_for_room_there() -> None:
    graph = graph_of({"a": (["i"], {"x": 1})}, {"i": ("input", 6)})
    jobs = Workload([Job(graph, origin="m"), Job(graph, 1.0, origin="m")])
    plan = StaticPlan([(0, 0)], [(1, 0)])
    # The second job's input comes in when the first is read, at 6 + 3, and crosses for 6 s.
    trace = run(jobs, cluster_of("m n", {"m": 10}), {"a": 9}, StaticPlan([(0, 0)], [(1, 0)]))
    assert spans(trace) == {"a#0": (0, 9), "a#1": (15, 24)}
    assert moves(trace) == [(0, 0, 1, 9, 9, 15)]
    assert trace.meta["peak_bytes"] == [7.0, 7.0]
    trace = run(jobs, cluster_of("m n", {"m": 13}), {"a": 9}, plan)
    assert spans(trace) == {"a#0": (0, 9), "a#1": (7, 16)}


# -- refusals -----------------------------------------------------------------------------------


def test_a_run_that_is_stuck_names_task_space_and_bytes() -> None:
    # Under pull x (6) stays in m until c is ready, which is when b has written y (6): never.
    graph = graph_of({"a": ([], {"x": 6}), "b": ([], {"y": 6}), "c": (["x", "y"], {})})
    plan = StaticPlan([(0, 0), (1, 0), (2, 0)])
    seconds = {"a": 1, "b": 1, "c": 1}
    cluster = cluster_of("m m n", {"m": 10})
    with pytest.raises(SchedulingError) as error:
        run(graph, cluster, seconds, plan, movement="pull")
    assert str(error.value) == (
        "Out of memory: nothing is left to happen, and task 'b' on device 'd1' needs 6 bytes in memory "
        "space 'm', of whose 10 bytes 4 are free. Give it a larger capacity, take a smaller batch, "
        "fewer jobs at once or another movement, or load weights on demand (weights=on_demand)"
    )
    assert spans(run(graph, cluster, seconds, plan)) == {"a": (0, 1), "b": (7, 8), "c": (14, 15)}


def test_what_is_brought_leaves_room_for_outputs() -> None:
    # x and v (4 each) would fit into n (9) from 1 on, but then k had no room for y (2).
    graph = graph_of(
        {"a": ([], {"x": 4, "v": 4}), "k": (["x"], {"y": 2}), "l": (["v", "y"], {})},
    )
    seconds = {"a": 1, "k": 1, "l": 1}
    trace = run(graph, cluster_of("m n", {"n": 9}), seconds, StaticPlan([(0, 0), (1, 1), (1, 2)]))
    assert moves(trace) == [(0, 0, 1, 1, 1, 5), (1, 0, 1, 6, 6, 10)]
    assert spans(trace) == {"a": (0, 1), "k": (5, 6), "l": (10, 11)}


def test_nothing_waits_for_the_sake_of_outputs_that_can_never_come() -> None:
    # r stands first in the queue of n, but it waits for b, which waits for k; when nothing else is
    # left to happen, x does not leave room for z (4) any longer.
    graph = graph_of(
        {
            "a": ([], {"x": 6}),
            "k": (["x"], {"y": 0}),
            "b": (["y"], {"w": 1}),
            "r": (["w"], {"z": 4}),
        }
    )
    plan = StaticPlan([(0, 0), (2, 5), (0, 1), (1, 2)])
    trace = run(graph, cluster_of("m n n", {"n": 9}), dict.fromkeys("akbr", 1), plan)
    assert moves(trace)[0] == (0, 0, 1, 1, 1, 7)
    assert spans(trace) == {"a": (0, 1), "k": (7, 8), "b": (8, 9), "r": (10, 11)}


def test_a_stuck_copy_names_who_wants_it() -> None:
    # r, which would give back p (6), stands behind k, which waits for x (6).
    operators = {"p": ([], {"p": 6}), "a": ([], {"x": 6}), "r": (["p"], {}), "k": (["x"], {})}
    plan = StaticPlan([(1, 0), (0, 0), (1, 2), (1, 1)])
    message = r"a copy of 'x' for task 'k' needs 6 bytes in memory space 'n', of whose 10 bytes 4 are free"
    with pytest.raises(SchedulingError, match=message):
        run(graph_of(operators), cluster_of("m n", {"n": 10}), dict.fromkeys("park", 1), plan)


def test_what_fits_nowhere_is_refused_before_the_run() -> None:
    graph = graph_of({"a": (["i", "w"], {"x": 4})}, {"i": ("input", 3), "w": ("weight", 5)})
    plan = StaticPlan([(0, 0)])
    with pytest.raises(InvalidInput) as error:
        run(graph, cluster_of("m n", {"m": 8, "n": 5}), {"a": 1}, plan)
    assert str(error.value) == (
        "Operator 'a' of 'drawn' needs 9 bytes for its weights, inputs and outputs; the "
        "largest memory of a device that can run it, 'm', has 8. Take a smaller batch or a larger "
        "memory"
    )
    jobs = Workload([Job(graph, origin="n")])
    with pytest.raises(InvalidInput, match="needs 12 bytes"):
        run(jobs, cluster_of("m", {"m": 11, "n": math.inf}), {"a": 1}, plan)
    with pytest.raises(InvalidInput, match=r"The inputs of job 0 \('drawn'\) take 3 bytes, .* 'n'"):
        run(jobs, cluster_of("m n", {"n": 2}), {"a": 1}, plan)
    with pytest.raises(InvalidInput, match=r"The weights of the workload take 5 bytes, .* 'n'"):
        run(
            jobs,
            cluster_of("m n", {"n": 4}, host="n"),
            {"a": 1},
            plan,
            weights="on_demand",
        )


def test_devices_that_cannot_hold_an_operator_cannot_run_it() -> None:
    graph = graph_of({"a": ([], {"x": 6})})
    trace = run(graph, cluster_of("m n", {"m": 5, "n": 6}), {"a": 1}, create("fcfs"))
    assert trace.executions["device"].tolist() == [1]
    with pytest.raises(SchedulingError, match="Device 'd0' cannot run task 'a'"):
        run(graph, cluster_of("m n", {"m": 5, "n": 6}), {"a": 1}, StaticPlan([(0, 0)]))


# -- weights ------------------------------------------------------------------------------------


MODEL = {"a": (["w", "i"], {"x": 1}), "b": (["w", "v", "x"], {"y": 1})}
GIVEN = {"i": ("input", 2), "w": ("weight", 4), "v": ("weight", 3)}


def test_resident_weights_count_once_and_take_no_time() -> None:
    graph = graph_of(MODEL, GIVEN)
    jobs = Workload([Job(graph), Job(graph, 1.0)])
    plan = StaticPlan([(0, 0), (0, 1)], [(0, 2), (0, 3)])
    trace = run(jobs, cluster_of("m n", {}), {"a": 1, "b": 1}, plan)
    assert spans(trace) == {"a#0": (0, 1), "b#0": (1, 2), "a#1": (2, 3), "b#1": (3, 4)}
    assert len(trace.transfers["tensor"]) == 0
    assert trace.meta["peak_bytes"] == [4 + 3 + 2.0, 0.0]
    # Another batch of the same model shares them, another model does not.
    twin = graph_of(MODEL, {**GIVEN, "i": ("input", 5)})
    other = graph_of(MODEL, GIVEN, name="other")
    for second, peak in ((twin, 9.0), (other, 16.0)):
        jobs = Workload([Job(graph), Job(second, 1.0)])
        assert run(jobs, cluster_of("m", {}), {"a": 1, "b": 1}, plan).meta["peak_bytes"] == [peak]


def test_resident_weights_without_room() -> None:
    graph = graph_of(MODEL, GIVEN)
    plan = StaticPlan([(0, 0), (0, 1)])
    assert run(graph, cluster_of("m", {"m": 9}), {"a": 1, "b": 1}, plan).makespan == 2
    jobs = Workload([Job(graph), Job(graph_of(MODEL, GIVEN, name="other"), 1.0)])
    message = r"weights of task 'a#1' need 4 bytes in memory space 'm', of whose 10 bytes"
    with pytest.raises(SchedulingError, match=message):
        run(
            jobs,
            cluster_of("m", {"m": 10}),
            {"a": 1, "b": 1},
            StaticPlan([(0, 0), (0, 1)], [(0, 2), (0, 3)]),
        )


def test_weights_on_demand_cross_once_from_the_host() -> None:
    graph = graph_of(MODEL, GIVEN)
    jobs = Workload([Job(graph), Job(graph, 20.0)])
    cluster = cluster_of("h n", {}, host="h")
    plan = StaticPlan([(1, 0), (1, 1)])
    seconds = {"a": 1, "b": 1}
    options = {"weights": "on_demand", "contention": "fifo"}
    trace = run(jobs, cluster, seconds, plan, **options)
    # One after another over the link: w at 4, v at 7.
    assert moves(trace) == [(1, 0, 1, 0, 0, 4), (2, 0, 1, 0, 4, 7)]
    assert spans(trace) == {"a#0": (4, 5), "b#0": (7, 8), "a#1": (20, 21), "b#1": (21, 22)}
    assert trace.meta["peak_bytes"] == [7.0, 9.0]
    # pull: v only when b is ready.
    trace = run(jobs, cluster, seconds, plan, movement="pull", **options)
    assert moves(trace) == [(1, 0, 1, 0, 0, 4), (2, 0, 1, 5, 5, 8)]
    # In the host memory itself nothing crosses. Without limits the same happens.
    home = StaticPlan([(0, 0), (0, 1)])
    assert run(jobs, cluster, seconds, home, **options).jobs["finish"].tolist() == [2, 22]
    trace = run(
        jobs, cluster_of("h n", {"n": 1}, "h"), seconds, plan, memory="unlimited", **options
    )
    assert spans(trace)["b#0"] == (7, 8)


def test_weights_on_demand_need_a_place_to_come_from() -> None:
    graph = graph_of(MODEL, GIVEN)
    plan = StaticPlan([(0, 0), (0, 1)])
    with pytest.raises(InvalidInput, match="weights of 'drawn' lie nowhere"):
        run(graph, cluster_of("m n", {}), {"a": 1, "b": 1}, plan, weights="on_demand")
    jobs = Workload([Job(graph, origin="n"), Job(graph)])
    trace = run(jobs, cluster_of("m n", {}), {"a": 1, "b": 1}, plan, weights="on_demand")
    assert [row[:3] for row in moves(trace)] == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]


class EvictAt(StaticPlan):
    """A static plan that evicts at given times: (time, graph, space, names)."""

    needs = frozenset({"evict"})

    def __init__(self, *plan: list[tuple[int, float]], evict: list[tuple[Any, ...]]) -> None:
        super().__init__(*plan)
        self.evictions = evict
        self.freed: list[float] = []
        self.seen: list[tuple[float, float]] = []

    def begin(self, context: SchedulingContext) -> None:
        for time, *_ in self.evictions:
            context.wake_at(time)

    def decide(self, context: SchedulingContext) -> None:
        super().decide(context)
        for time, graph, space, names in self.evictions:
            if time == context.now and not context.arrived:
                self.freed.append(context.evict(graph, space, names))
                self.seen.append((context.free_bytes(space), context.resident_bytes(graph, space)))


def test_evicted_weights_are_loaded_again() -> None:
    graph = graph_of(MODEL, GIVEN)
    jobs = Workload([Job(graph), Job(graph, 20.0)])
    cluster = cluster_of("h n", {"n": 10}, host="h")
    plan = EvictAt([(1, 0), (1, 1)], evict=[(10, graph, 1, ["w"]), (12, graph, 1, None)])
    options = {"weights": "on_demand", "contention": "fifo"}
    trace = run(jobs, cluster, {"a": 1, "b": 1}, plan, **options)
    assert plan.freed == [4.0, 3.0]
    assert plan.seen == [(10 - 3, 3.0), (10, 0.0)]
    assert moves(trace)[2:] == [(1, 0, 1, 20, 20, 24), (2, 0, 1, 20, 24, 27)]
    assert spans(trace)["b#1"] == (27, 28)
    assert trace.meta["evictions"] == [[10.0, 1, 0, 1], [12.0, 1, 0, 2]]


@pytest.mark.parametrize(
    ("time", "space", "names", "message"),
    [
        (7.5, 1, ["v"], "Weight 'v' of 'drawn' cannot be evicted from .*'n': a task placed there"),
        (7.5, 1, ["u"], "Weight 'u' of 'drawn' .*: it is not there"),
        (7.5, 0, ["v"], "come from there"),
    ],
)
def test_what_cannot_be_evicted(time: float, space: int, names: Any, message: str) -> None:
    graph = graph_of(MODEL, GIVEN)
    cluster = cluster_of("h n", {}, host="h")
    plan = EvictAt([(1, 0), (1, 1)], evict=[(time, graph, space, names)])
    options = {"weights": "on_demand", "contention": "fifo"}
    with pytest.raises(SchedulingError, match=message):
        run(graph, cluster, {"a": 1, "b": 1}, plan, **options)


def test_weights_in_use_stay_when_all_others_go() -> None:
    # At 7.5 b runs, which reads both; at 5.5 w has been read by a, yet b, placed, wants it too.
    graph = graph_of(MODEL, GIVEN)
    cluster = cluster_of("h n", {}, host="h")
    plan = EvictAt([(1, 0), (1, 1)], evict=[(5.5, graph, 1, None), (7.5, graph, 1, None)])
    run(graph, cluster, {"a": 1, "b": 1}, plan, weights="on_demand", contention="fifo")
    assert plan.freed == [0.0, 0.0]


@pytest.mark.parametrize("memory", ["unlimited", "limited"])
def test_eviction_is_refused_where_weights_are_resident(memory: str) -> None:
    graph = graph_of(MODEL, GIVEN)
    plan = EvictAt([(0, 0), (0, 1)], evict=[])
    with pytest.raises(
        SchedulingError, match="needs evict, which simulated runs do not offer; load"
    ):
        run(graph, cluster_of("m", {}), {"a": 1, "b": 1}, plan, memory=memory)


def test_the_scheduler_is_asked_when_something_waits_for_room() -> None:
    # Both models need n whole. Nothing happens after 9 unless the first one's weights go.
    one, two = (graph_of(MODEL, GIVEN, name=name) for name in ("one", "two"))
    cluster = cluster_of("h n", {"n": 10}, host="h")
    asked: list[tuple[float, float]] = []

    class Asked(StaticPlan):
        needs = frozenset({"evict"})

        def decide(self, context: SchedulingContext) -> None:
            super().decide(context)
            if context.waiting_bytes(1):
                asked.append((context.now, context.waiting_bytes(1)))
                context.evict(one, 1)

    jobs = Workload([Job(one), Job(two, 10.0)])
    plan = Asked([(1, 0), (1, 1)])
    trace = run(jobs, cluster, {"a": 1, "b": 1}, plan, weights="on_demand", contention="fifo")
    # Weights of 7, and outputs of 2 that are to come.
    assert asked == [(10.0, 9.0)]
    assert spans(trace) == {"a#0": (4, 5), "b#0": (7, 8), "a#1": (14, 15), "b#1": (17, 18)}


def test_the_scheduler_is_asked_when_outputs_find_no_room() -> None:
    one = graph_of({"a": (["w"], {})}, {"w": ("weight", 4)}, name="one")
    two = graph_of({"b": ([], {"y": 4})}, name="two")
    asked: list[tuple[float, float]] = []

    class Asked(StaticPlan):
        needs = frozenset({"evict"})

        def decide(self, context: SchedulingContext) -> None:
            super().decide(context)
            if context.waiting_bytes(1):
                asked.append((context.now, context.waiting_bytes(1)))
                context.evict(one, 1)

    cluster = cluster_of("h n", {"n": 7}, host="h")
    jobs = Workload([Job(one), Job(two, 10.0)])
    plan = Asked([(1, 0)], [(1, 1)])
    trace = run(jobs, cluster, {"a": 1, "b": 1}, plan, weights="on_demand")
    assert asked == [(10.0, 4.0)]
    assert spans(trace) == {"a#0": (4, 5), "b#1": (10, 11)}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"memory": "finite"}, "Unknown memory 'finite'; known: unlimited, limited"),
        ({"weights": "lazy"}, "Unknown weights 'lazy'; known: resident, on_demand"),
    ],
)
def test_unknown_settings(setting: dict[str, str], message: str) -> None:
    graph = graph_of({"a": ([], {})})
    with pytest.raises(InvalidInput, match=message):
        run(graph, cluster_of("m", {}), {"a": 1}, StaticPlan([(0, 0)]), **setting)
