"""Packed transfers: by hand under each contention, misuse, and what holds for every run."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.idle import CAUSES, idle_seconds
from simulator.analysis.metrics import metrics
from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from simulator.schedulers._pricing import data_ready
from tests.examples import examples
from tests.simulator.scripted import Erratic, RandomPacks, Recorded, Script
from tests.simulator.strategies import PACKING, Case, cases
from tests.simulator.test_memory import graph_of, moves, spans
from tests.simulator.test_memory_properties import (
    check_accounts,
    check_refusal,
    check_run,
    simulation_of,
)
from tests.simulator.test_properties import check_replay, quick

CONTENTIONS = ("none", "fifo", "fair")


class Packer(Script):
    """A script that packs."""

    needs = frozenset({"pack"})


def pair(latency: float = 1.0, bandwidth: float = 2.0, **capacity: float) -> Cluster:
    """Spaces a and b with a device each, and a link between them."""
    return Cluster(
        "pair",
        [MemorySpace(name, capacity.get(name, math.inf)) for name in ("a", "b")],
        [Device("cpu", "a"), Device("gpu", "b")],
        [Link("bus", ("a", "b"), bandwidth, latency)],
    )


def reader(*sizes: float) -> DataflowGraph:
    """``read`` reads inputs x0, x1, ... of these sizes."""
    given_ = {f"x{i}": ("input", size) for i, size in enumerate(sizes)}
    return graph_of({"read": (list(given_), {})}, given_)


def one(
    graph: DataflowGraph,
    act: Callable[[SchedulingContext, int], object],
    cluster: Cluster | None = None,
    **options: Any,
) -> Trace:
    """A job from space a; every operator takes 1 s."""
    cluster = cluster or pair()
    costs = CostTable.of(graph, np.ones((len(graph), len(cluster.devices))))
    job = Workload([Job(graph, origin="a", destination=options.pop("destination", None))])
    return simulate(job, cluster, costs, Packer(act), **options)


# -- what a message costs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contention", "singly"),
    [
        ("none", [(0, 3), (0, 2), (0, 4)]),
        ("fifo", [(0, 3), (3, 5), (5, 9)]),
        # Latency until 1; then 2/3 byte/s each until x1 is there at 4, 1 byte/s each until x0 is at 6.
        ("fair", [(0, 6), (0, 4), (0, 7)]),
    ],
)
def test_known_answers(contention: str, singly: list[tuple[float, float]]) -> None:
    """4, 2 and 6 bytes over 1 s of latency at 2 bytes/s: as one message 1 + 12 / 2."""
    for packs in (False, True):

        def act(context: SchedulingContext, call: int, packs: bool = packs) -> None:
            if call == 0:
                context.place(0, 1)
                asked = [(0, 4.0, 0, 1), (1, 2.0, 0, 1), (2, 6.0, 0, 1)]
                assert context.requests() == asked
                if packs:
                    context.pack([(2, 1), (0, 1), (1, 1)])
                    assert context.requests() == []
                    assert [context.copy_time(tensor, 1) for tensor in range(3)] == [7.0] * 3
                    assert context.available(1) == 8.0

        trace = one(reader(4.0, 2.0, 6.0), act, contention=contention)
        expected = [(0.0, 7.0)] * 3 if packs else singly
        assert [row[3:] for row in moves(trace)] == [
            (0.0, start, pytest.approx(finish, rel=1e-12)) for start, finish in expected
        ]
        assert [row[:3] for row in moves(trace)] == [(t, 0, 1) for t in range(3)]
        end = max(finish for _, finish in expected)
        assert spans(trace)["read"] == (pytest.approx(end), pytest.approx(end + 1))
        figures = metrics(trace)
        channel = figures["channels"][next(iter(figures["channels"]))]
        assert channel["busy_s"] == pytest.approx(end)  # counted once
        assert (channel["bytes"], channel["transfers"]) == (12.0, 3)
        assert (figures["transferred_bytes"], figures["transfers"]) == (12.0, 3)


@quick
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.25, 1.0, 3.0]),
    st.sampled_from([0.5, 1.0, 4.0]),
)
def test_what_packing_saves_under_fifo_is_all_latencies_but_one(
    sizes: list[int], latency: float, bandwidth: float
) -> None:
    """Exactly: all numbers are binary fractions."""
    ends = {}
    for packs in (False, True):
        for contention in CONTENTIONS:

            def act(context: SchedulingContext, call: int, packs: bool = packs) -> None:
                if call == 0:
                    context.place(0, 1)
                    if packs:
                        context.pack([(tensor, 1) for tensor in range(len(sizes))])

            trace = one(reader(*sizes), act, pair(latency, bandwidth), contention=contention)
            ends[packs, contention] = {row[0]: row[5] for row in moves(trace)}
    whole = latency + sum(sizes) / bandwidth
    last = {key: max(found.values()) for key, found in ends.items()}
    assert last[True, "fifo"] == last[True, "none"] == whole
    assert last[False, "fifo"] - last[True, "fifo"] == (len(sizes) - 1) * latency
    # The other two gain nothing: under ``fair`` the last byte comes when it came, ``none`` is as fast
    # as the longest alone.
    assert last[True, "fair"] == pytest.approx(whole)
    assert last[False, "fair"] == pytest.approx(whole)
    for contention in ("none", "fair") if latency else CONTENTIONS:
        for tensor, end in ends[True, contention].items():
            assert end >= ends[False, contention][tensor] - 1e-12
    assert set(ends[True, "fifo"].values()) == {whole}


def test_a_message_has_one_share() -> None:
    # 2 + 2 bytes in one message beside 4 bytes alone, 2 bytes/s: half each, all there at 4. Singly the
    # small ones have a third each and are there at 3.
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.pack([(0, 1), (1, 1)])

    trace = one(reader(2.0, 2.0, 4.0), act, pair(0.0), contention="fair")
    assert [row[5] for row in moves(trace)] == pytest.approx([4.0, 4.0, 4.0])


def test_a_message_stands_at_its_first_tensor() -> None:
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.pack([(3, 1), (2, 1)])
            # As asked: 0, 1, then the message, and after it another one.
            assert [context.copy_time(t, 1) for t in range(5)] == [2.0, 4.0, 9.0, 9.0, 6.0]
            context.pack([(4, 1), (0, 1)])
            assert [context.copy_time(t, 1) for t in range(5)] == [8.0, 2.0, 5.0, 5.0, 8.0]
            assert context.link_free(0, 1) == 8.0
        if call == 1:  # as sent: 0 and 4, 1, 2 and 3
            assert [context.copy_time(t, 1) for t in range(5)] == [3.0, 5.0, 8.0, 8.0, 3.0]
        if call < 1:
            context.wake_at(context.now + 0.5)

    trace = one(reader(2.0, 2.0, 2.0, 2.0, 2.0), act, contention="fifo")
    assert [(t, start, end) for t, _, _, _, start, end in moves(trace)] == [
        (0, 0, 3),
        (4, 0, 3),
        (1, 3, 5),
        (2, 5, 8),
        (3, 5, 8),
    ]
    channels = metrics(trace)["channels"]
    assert max(channel["busy_s"] for channel in channels.values()) == 8.0


# -- what is asked for when ---------------------------------------------------------------------


def test_brought_ahead_of_any_placement() -> None:
    """Whoever is placed later finds the message; estimates know it within the decision."""

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            aware = "contention_aware"
            assert data_ready(context, 0, [1], aware) == [1.0 + 6.0 / 2]  # tensors of one space
            context.pack([(0, 1), (1, 1)])
            assert context.link_free(0, 1) == 4.0
            assert context.copy_time(1, 1) == 4.0
            assert context.requests() == []
            context.wake_at(2.0)
        if call == 1:
            context.place(0, 1)
            assert context.available(1) == 5.0
            assert context.requests() == []

    trace = one(reader(4.0, 2.0), act, contention="fifo")
    assert [row[3:] for row in moves(trace)] == [(0, 0, 4), (0, 0, 4)]
    assert spans(trace)["read"] == (4.0, 5.0)


def test_pricing_knows_a_message_of_shared_tensors() -> None:
    graph = graph_of(
        {"p": (["x", "y"], {}), "q": (["x", "y"], {})}, {"x": ("input", 4), "y": ("input", 2)}
    )

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            assert data_ready(context, 1, [1], "contention_aware") == [3.0 + 2.0]
            context.pack([(0, 1), (1, 1)])
            assert data_ready(context, 1, [1], "contention_aware") == [4.0]
            context.place(1, 1)

    assert one(graph, act, contention="fifo").makespan == 6.0


@pytest.mark.parametrize("contention", CONTENTIONS)
def test_a_message_goes_even_if_its_task_is_withdrawn(contention: str) -> None:
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.pack([(0, 1), (1, 1)])
            context.withdraw(0)  # takes x2 back
            assert context.copy_time(2, 1) is None
            assert context.copy_time(0, 1) == 4.0
            context.place(0, 0)

    trace = one(reader(4.0, 2.0, 6.0), act, contention=contention)
    assert [(row[0], *row[3:]) for row in moves(trace)] == [(0, 0, 0, 4), (1, 0, 0, 4)]
    assert trace.makespan == 1.0  # and nobody waits for it


def test_what_finishes_send_off_can_be_packed() -> None:
    """Outputs for a task placed ahead, and results to be delivered."""
    graph = graph_of(
        {"w": ([], {"x": 4, "y": 2}), "r": (["x", "y"], {"u": 1, "v": 3})}, results=["u", "v"]
    )

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 0)
            context.place(1, 1)
        together = [(asked.tensor, asked.destination) for asked in context.requests()]
        if together:
            context.pack(together)

    trace = one(graph, act, contention="fifo", destination="a")
    # w 0-1; x and y 1-5; r 5-6; u and v 6-9.
    assert [row[3:] for row in moves(trace)] == [(1, 1, 5), (1, 1, 5), (6, 6, 9), (6, 6, 9)]
    assert trace.makespan == 9.0


def test_several_links() -> None:
    cluster = Cluster(
        "line",
        [MemorySpace(name) for name in "abc"],
        [Device("cpu", "a"), Device("gpu", "c")],
        [Link("one", ("a", "b"), 2.0, 1.0), Link("two", ("b", "c"), 1.0, 0.5)],
    )

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.pack([(0, 2), (1, 2)])

    trace = one(reader(4.0, 2.0), act, cluster, contention="fifo")
    rows = trace.transfers
    assert rows["tensor"].tolist() == [0, 0, 1, 1]
    assert sorted(set(rows["link"].tolist())) == [0, 2]
    assert set(rows["finish"].tolist()) == {7.5}
    assert metrics(trace)["transferred_bytes"] == 6.0


# -- misuse -------------------------------------------------------------------------------------

DRAWN = graph_of(
    {"p": (["x", "y", "w"], {"u": 1}), "q": (["u", "y"], {"v": 1})},
    {"x": ("input", 4), "y": ("input", 2), "w": ("weight", 3)},
)
X, Y, W, U, V = range(5)


def after(*, packed: bool) -> Callable[[SchedulingContext], object]:
    """x was asked for at an instant before."""

    def act(context: SchedulingContext) -> None:
        context.place(0, 1)
        if packed:
            context.pack([(X, 1)])
        context.wake_at(0.5)

    return act


@pytest.mark.parametrize(
    ("transfers", "message"),
    [
        ([], "A message needs at least one tensor"),
        ([(99, 1)], "There is no tensor 99 to pack"),
        ([(-1, 1)], "There is no tensor -1 to pack"),
        ([(X, 2)], "There is no memory space 2 to pack tensor 'x' for; the cluster has 2"),
        ([(X, -1)], "There is no memory space -1"),
        ([(X, 1), (Y, 0)], "A message goes to one memory space: tensor 'x' is to go to 'b' and "),
        ([(X, 1), (X, 1)], "Tensor 'x' is packed twice"),
        ([(U, 1)], "Cannot pack tensor 'u' for 'b': it is not written yet"),
        ([(X, 0)], "Cannot pack tensor 'x' for 'a': it lies there"),
        ([(W, 1)], "Cannot pack tensor 'w' for 'b': weights cross alone"),
    ],
)
def test_misuse(transfers: Sequence[tuple[int, int]], message: str) -> None:
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            before = (context.requests(), list(context.channel_free))
            with pytest.raises(SchedulingError, match=message):
                context.pack(transfers)
            assert (context.requests(), context.channel_free) == before
            context.place(0, 0)
            context.place(1, 0)

    one(DRAWN, act)


def test_what_is_there_or_on_its_way_cannot_be_packed() -> None:
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.pack([(X, 1)])
            with pytest.raises(SchedulingError, match="'x' for 'b': it is in another message"):
                context.pack([(X, 1), (Y, 1)])
            context.wake_at(0.5)
        if call == 1:
            for tensor in (X, Y):
                with pytest.raises(SchedulingError, match="for 'b': it is under way"):
                    context.pack([(tensor, 1)])
        if call == 2:  # p 3-4
            assert context.now == 4.0
            with pytest.raises(SchedulingError, match="'x' for 'a': it lies there"):
                context.pack([(X, 0)])
            with pytest.raises(SchedulingError, match="'y' for 'b': it is there"):
                context.pack([(Y, 1)])
            with pytest.raises(SchedulingError, match="one memory space: tensor 'u' lies in 'b'"):
                context.pack([(U, 2), (Y, 2)])
            with pytest.raises(SchedulingError, match="no task that has yet to start reads it"):
                context.pack([(X, 2)])
            context.place(1, 1)

    spaces = [MemorySpace(name) for name in "abc"]
    links = [Link("bus", ("a", "b"), 2.0, 1.0), Link("other", ("b", "c"), 2.0, 1.0)]
    cluster = Cluster("three", spaces, [Device("cpu", "a"), Device("gpu", "b")], links)
    assert one(DRAWN, act, cluster).makespan == 5.0


def test_a_tensor_without_origin_is_everywhere() -> None:
    def act(context: SchedulingContext, call: int) -> None:
        with pytest.raises(SchedulingError, match="'x0' of job 1 for 'b': it lies in every memory"):
            context.pack([(1, 1)])
        for task in context.ready:
            context.place(task, 0)

    graph = reader(1.0)
    workload = Workload([Job(graph), Job(graph)])
    simulate(workload, pair(), CostTable.of(graph, np.ones((1, 2))), Packer(act))


def test_packing_must_be_declared_and_offered() -> None:
    graph = reader(1.0)
    costs = CostTable.of(graph, np.ones((1, 2)))
    for contention in ("none", "fair"):
        for act in (lambda c, n: c.pack([(0, 1)]), lambda c, n: c.requests()):
            with pytest.raises(SchedulingError, match="'script' packs transfers without"):
                simulate(graph, pair(), costs, Script(act), contention=contention)


# -- limited memory -----------------------------------------------------------------------------


def test_a_message_takes_its_room_at_once() -> None:
    # n has 8 bytes: e's output of 4 is there until f has read it at 3. x would fit beside it, x and y
    # do not: 6 bytes from 3 on.
    graph = graph_of(
        {"e": ([], {"z": 4}), "f": (["z"], {}), "g": (["x", "y"], {})},
        {"x": ("input", 4), "y": ("input", 2)},
    )

    def act(packs: bool) -> Callable[[SchedulingContext, int], None]:
        def decide(context: SchedulingContext, call: int) -> None:
            if call == 0:
                for task in range(3):
                    context.place(task, 1, float(task))
                if packs:
                    context.pack([(0, 1), (1, 1)])
                    assert context.copy_time(0, 1) == 4.0

        return decide

    options = {"memory": "limited", "contention": "fifo"}
    singly = one(graph, act(False), pair(b=8.0), **options)
    assert [row[3:] for row in moves(singly)] == [(0, 0, 3), (2, 3, 5)]
    trace = one(graph, act(True), pair(b=8.0), **options)
    assert [row[3:] for row in moves(trace)] == [(2, 2, 6), (2, 2, 6)]
    assert spans(trace) == {"e": (0, 1), "f": (1, 2), "g": (6, 7)}
    assert trace.meta["peak_bytes"] == [6.0, 6.0]


def test_what_nobody_wants_any_more_leaves_a_message_that_waits() -> None:
    # x and y wait for room until 2; at 1 the reader of y goes to the other device.
    graph = graph_of(
        {"e": ([], {"z": 4}), "f": (["z"], {}), "g": (["x"], {}), "h": (["y"], {})},
        {"x": ("input", 4), "y": ("input", 2)},
    )

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            for task in range(4):
                context.place(task, 1, float(task))
            context.pack([(0, 1), (1, 1)])
        if context.now == 1.0:
            context.withdraw(3)
            context.place(3, 0)

    trace = one(graph, act, pair(b=8.0), memory="limited", contention="fifo")
    assert [(row[0], *row[3:]) for row in moves(trace)] == [(0, 2, 2, 5)]
    assert spans(trace) == {"e": (0, 1), "f": (1, 2), "g": (5, 6), "h": (1, 2)}


def test_a_message_without_room_is_taken_apart_at_last() -> None:
    # 6 bytes never fit into 5, yet one after the other does.
    graph = graph_of({"g": (["x"], {}), "h": (["y"], {})}, {"x": ("input", 4), "y": ("input", 2)})

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.place(1, 1)
            context.pack([(0, 1), (1, 1)])

    trace = one(graph, act, pair(b=5.0), memory="limited", contention="fifo")
    assert [(row[0], *row[3:]) for row in moves(trace)] == [(0, 0, 0, 3), (1, 4, 4, 6)]
    assert spans(trace) == {"g": (3, 4), "h": (6, 7)}


def test_what_nobody_asked_for_waits_behind_what_somebody_needs() -> None:
    # 4 bytes of n are free until 1 (z 4 of 8). x comes ahead of its reader's placement and waits behind
    # y although it asked first.
    graph = graph_of(
        {"e": ([], {"z": 4}), "g": (["y"], {}), "h": (["x"], {})},
        {"x": ("input", 6), "y": ("input", 5)},
    )

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.pack([(0, 1)])
            context.wake_at(0.5)
        elif context.now == 0.5 and context.device_of(1) < 0:
            context.place(1, 1)
        elif context.finished == [1]:
            context.place(2, 1)

    trace = one(graph, act, pair(b=8.0), memory="limited", contention="fifo")
    assert [row[0] for row in moves(trace)] == [1, 0]


def test_idle_time_waits_for_the_link_not_for_the_rest_of_the_message() -> None:
    # Another transfer holds the link until 3. The message found room at once; then its own 1 + 3 s.
    graph = graph_of(
        {"e": (["u"], {}), "g": (["x", "y"], {})},
        {"u": ("input", 4), "x": ("input", 4), "y": ("input", 2)},
    )

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(1, 1, 0.0)
            context.place(0, 1, 1.0)
            context.pack([(1, 1), (2, 1)])

    for memory in ("unlimited", "limited"):
        trace = one(graph, act, pair(b=99.0), memory=memory, contention="fifo")
        found = dict(zip(CAUSES, idle_seconds(trace)[1].tolist(), strict=True))
        assert {cause: s for cause, s in found.items() if s} == {"link": 3.0, "data": 4.0}
    # Let it start later than the link was free: that was for room.
    late = one(graph, act, pair(b=99.0), memory="limited", contention="fifo")
    for name, delta in (("start", 1.0), ("finish", 1.0)):
        late.transfers[name][1:] += delta
        late.executions[name] += delta
    late.jobs["finish"] += 1.0
    found = dict(zip(CAUSES, idle_seconds(late)[1].tolist(), strict=True))
    assert {c: s for c, s in found.items() if s} == {"link": 3.0, "memory": 1.0, "data": 4.0}


# -- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("packs_again", [False, True])
def test_a_failure_takes_messages_apart(packs_again: bool) -> None:
    # 4 and 2 bytes: 0-4, of which 2 bytes are sent when b fails at 2. What is asked for while it is
    # down, packed or not, goes when it is back at 3, singly: 3-6 and 6-8.
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0 or context.lost:
            context.place(0, 1)
            if call == 0 or packs_again:
                context.pack([(0, 1), (1, 1)])

    faults = Faults([Fault("device_failure", "gpu", 2.0, 3.0, memory_lost=True)])
    trace = one(reader(4.0, 2.0), act, contention="fifo", faults=faults)
    assert [(row[0], *row[3:]) for row in moves(trace)] == [
        (0, 0, 0, 2),
        (1, 0, 0, 2),
        (0, 3, 3, 6),
        (1, 3, 6, 8),
    ]
    assert trace.transfers["bytes"].tolist() == pytest.approx([4 / 3, 2 / 3, 4, 2])
    assert trace.makespan == 9.0


def test_an_outage_of_a_link_holds_a_message_up() -> None:
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 1)
            context.pack([(0, 1), (1, 1)])

    faults = Faults([Fault("link_outage", "bus", 2.0, 5.0)])
    for contention in CONTENTIONS:
        trace = one(reader(4.0, 2.0), act, contention=contention, faults=faults)
        assert [(row[0], *row[3:]) for row in moves(trace)] == [(0, 0, 0, 7), (1, 0, 0, 7)]


# -- every run ----------------------------------------------------------------------------------

packing = settings(quick, max_examples=examples(200))


@packing
@given(cases(schedulers=tuple(PACKING)))
def test_replay_derives_the_same_run(case: Case) -> None:
    check_replay(case, Recorded(case.scheduler()))


def crossings(trace: Trace) -> list[tuple[Any, ...]]:
    columns = ("job", "tensor", "source", "destination", "link", "requested", "start", "finish")
    return list(zip(*(trace.transfers[k].tolist() for k in columns), strict=True))


@packing
@given(cases(schedulers=tuple(PACKING), contentions=CONTENTIONS))
def test_a_tensor_crosses_whole_and_once(case: Case) -> None:
    trace = case.run()
    check_run(case, trace)  # every row has all its tensor's bytes, and data is there in time
    rows = crossings(trace)
    assert len({(row[0], row[1], row[3], row[4]) for row in rows}) == len(rows)
    channels = metrics(trace)["channels"].values()
    assert sum(channel["bytes"] for channel in channels) == pytest.approx(
        trace.transfers["bytes"].sum()
    )
    assert all(channel["busy_s"] <= trace.transfers["finish"].max() for channel in channels if rows)
    again = case.run()
    for table, columns in COLUMNS.items():
        for column in columns:
            found, expected = getattr(again, table)[column], getattr(trace, table)[column]
            assert np.array_equal(found, expected), (table, column)
    if case.contention == "fifo":  # no two messages at once on a channel
        spent: dict[int, set[tuple[float, float]]] = {}
        for row in rows:
            if row[6] < row[7]:
                spent.setdefault(row[4], set()).add((row[6], row[7]))
        for intervals in spent.values():
            ordered = sorted(intervals)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(ordered))


@packing
@given(cases(schedulers=("packs-erratic", "packs-plan"), contentions=CONTENTIONS))
def test_enough_memory_changes_nothing(case: Case) -> None:
    one, two = (
        simulation_of(case, memory, "resident").run() for memory in ("unlimited", "limited")
    )
    for table, columns in COLUMNS.items():
        for column in columns:
            found, expected = getattr(two, table)[column], getattr(one, table)[column]
            assert np.array_equal(found, expected), (table, column)


def crowded(seed: int) -> Case:
    """A run in little memory whose tasks read and write several tensors each, and pack them."""
    pick = random.Random(seed)
    known = [f"x{i}" for i in range(pick.randint(2, 5))]
    given_ = {name: ("input", pick.choice([1, 2, 3, 4.5])) for name in known}
    given_["w"] = ("weight", 2)
    operators = {}
    for number in range(pick.randint(3, 9)):
        read = pick.sample(known, min(len(known), pick.randint(1, 4)))
        wrote = {f"t{number}.{i}": pick.choice([1, 2, 3, 0.5]) for i in range(pick.randint(0, 3))}
        operators[f"o{number}"] = (read + ["w"] * pick.randint(0, 1), wrote)
        known += wrote
    results = [name for name in known if name not in given_ and pick.random() < 0.2]
    graph = graph_of(operators, given_, results)  # type: ignore[arg-type]
    spaces = ["a", "b", "c"]
    need = max(
        sum(math.ceil(graph.tensors[t].bytes) for t in (*graph.reads[o], *graph.writes[o]))
        for o in range(len(graph))
    )
    cluster = Cluster(
        "crowded",
        [MemorySpace(s, math.inf if s == "a" else need + pick.choice([0, 2, 5])) for s in spaces],
        [Device(f"d{i}", pick.choice(spaces)) for i in range(3)],
        [Link(f"l{i}", ("a", s), 2.0, pick.choice([0.0, 0.5])) for i, s in enumerate("bc")],
        host="a",
    )
    times = np.array([[pick.choice([0.5, 1.0, 2.0]) for _ in range(3)] for _ in operators])
    jobs = [Job(graph, arrival, origin="a", destination="a") for arrival in (0.0, 1.0)]
    ahead, erratic = pick.choice([0.0, 0.3, 0.8]), pick.random() < 0.5

    def scheduler() -> Scheduler:
        inner = Erratic(seed, only_ready=False) if erratic else create("donf")
        return RandomPacks(inner, seed, ahead)

    movement, contention = pick.choice(["push", "pull"]), pick.choice(CONTENTIONS)
    costs = CostTable.of(graph, times)
    workload = Workload(jobs[: pick.randint(1, 2)])
    return Case(workload, cluster, costs, None, scheduler, movement, contention, seed, "random")


@settings(quick, max_examples=examples(200))
@given(st.integers(0, 2**20), st.sampled_from(["resident", "on_demand"]))
def test_limited_memory_is_never_above_capacity(seed: int, weights: str) -> None:
    def watch(context: SchedulingContext) -> None:
        check_accounts(context.memory)  # type: ignore[attr-defined]

    case = crowded(seed)
    recorded = Recorded(case.scheduler(), watch)
    try:
        simulation = simulation_of(case, "limited", weights, recorded)
        trace = simulation.run()
    except (InvalidInput, SchedulingError) as error:
        check_refusal(error)
        return
    memory: Any = simulation.memory
    check_accounts(memory)
    assert not memory._live.all
    assert not memory._copies._delayed
    assert not any(memory._lines._lines)
    check_run(case, trace)


@packing
@given(cases(schedulers=tuple(PACKING), contentions=CONTENTIONS), st.floats(0.01, 30.0))
def test_a_horizon_cuts_the_run_to_the_end(case: Case, horizon: float) -> None:
    horizon += case.workload.jobs[0].arrival
    whole = case.run()
    cut = case.run(horizon=horizon)
    done = [row for row in crossings(whole) if row[7] <= horizon]
    assert crossings(cut) == done


@packing
@given(cases(contentions=CONTENTIONS))
def test_a_message_of_one_tensor_is_a_transfer(case: Case) -> None:
    """Packing each transfer alone changes nothing."""

    class Singly(RandomPacks):
        def decide(self, context: SchedulingContext) -> None:
            self.inner.decide(context)
            for asked in context.requests():
                context.pack([(asked.tensor, asked.destination)])

    packed, plain = (
        case.run(scheduler) for scheduler in (Singly(case.scheduler(), 0), case.scheduler())
    )
    for table, columns in COLUMNS.items():
        for column in columns:
            found, expected = getattr(packed, table)[column], getattr(plain, table)[column]
            assert np.array_equal(found, expected), (table, column)
