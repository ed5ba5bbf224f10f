"""Transfers that a launcher begins and tells of: by hand, against booked ones, and every launch recounted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.devices.host_launch_lock import Launcher
from simulator.devices.launched_transfers import LaunchedFlows
from simulator.engine.faults import Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.links.flows import Flow
from simulator.links.registry import Fifo
from simulator.model.cluster import Cluster, Device, Link, LinkLaunch, MemorySpace, Route
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from tests.examples import examples
from tests.simulator.fluid import Asked
from tests.simulator.scripted import StaticPlan
from tests.simulator.strategies import Case
from tests.simulator.test_contention import World, networks, transfers
from tests.simulator.test_fault_properties import broken_cases, rich_cases
from tests.simulator.test_properties import quick


class LaunchedWorld(World):
    """The same with flows that are launched."""

    def __init__(
        self, contention: str, capacities: Sequence[float], launchers: dict[str, Launcher]
    ) -> None:
        super().__init__(contention, capacities)
        links = [
            Link(f"l{i}", ("a", "b"), width, half_duplex=True) for i, width in enumerate(capacities)
        ]
        spaces = [MemorySpace("a"), MemorySpace("b")]
        cluster = Cluster("links", spaces, [Device("d", "a")], links)
        self.flows = LaunchedFlows(self.clock, cluster, contention, launchers, self._deliver)


def launched(route: Route, *overheads: float, handover: float = 0.0, passed: int = 0) -> Route:
    """A route that needs launcher ``i`` for the ``i``-th overhead before and behind a transfer."""
    launches = tuple(
        LinkLaunch(f"host{i}", overhead, handover, passed) for i, overhead in enumerate(overheads)
    )
    return replace(route, latency=route.latency + 2 * sum(overheads), launches=launches)


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_alone_with_its_launcher_a_transfer_takes_a_longer_latency(data: st.DataObject) -> None:
    widths, routes = data.draw(networks())
    overheads = st.lists(st.sampled_from([0.0, 0.5, 0.3]), max_size=2)
    routes = [launched(route, *data.draw(overheads)) for route in routes]
    asked = data.draw(transfers(routes))
    for contention, free in (("none", None), ("fifo", [0.0] * len(widths))):
        world = LaunchedWorld(contention, widths, {})
        flows = [world.ask(a) for a in asked]
        world.run()
        assert len(world.delivered) == len(asked)
        for flow, a in zip(flows, asked, strict=True):
            booked = a.moment, a.moment + a.route.seconds(a.size)
            if free is not None:
                booked = Fifo().book(a.route, a.size, a.moment, free)
            assert (flow.start, flow.end) == pytest.approx(booked)


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_without_launchers_they_are_the_flows_that_they_are_made_of(data: st.DataObject) -> None:
    widths, routes = data.draw(networks())
    asked = data.draw(transfers(routes))
    changes = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from([0.5, 1.5, 3.0]),
                st.integers(0, len(widths) - 1),
                st.sampled_from([0.5, 1.0]),
            ),
            max_size=3,
        )
    )
    for contention in ("none", "fifo", "fair"):
        worlds = World(contention, widths), LaunchedWorld(contention, widths, {})
        both = []
        for world in worlds:
            both.append([world.ask(a) for a in asked])
            for moment, channel, factor in changes:
                world.at(moment, lambda w=world, c=channel, f=factor: w.flows.set_capacity(c, f))
            world.run()
        for plain, wrapped in zip(*both, strict=True):
            assert (wrapped.start, wrapped.end) == pytest.approx((plain.start, plain.end))


class Recording(Launcher):
    """A launcher that tells when what it launched began."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[list[float]] = []  # asked, begun and over; what moved is written over

    def begin(
        self,
        now: float,
        overhead: float,
        handover: float,
        passes: int,
        moved: Callable[[float], None],
    ) -> float:
        row = [now, 0.0, 0.0]

        def at(moment: float) -> None:
            row[1:] = moment, moment + overhead
            moved(moment)

        begin = super().begin(now, overhead, handover, passes, at)
        row[1:] = begin, begin + overhead
        self.launches.append(row)
        return begin


@given(st.data(), st.sampled_from([0.0, 0.25]), st.integers(0, 2))
@settings(max_examples=examples(150), deadline=None)
def test_launches_never_overlap_and_transfers_go_between_theirs(
    data: st.DataObject, handover: float, passed: int
) -> None:
    widths, routes = data.draw(networks())
    overhead = 0.3
    routes = [launched(route, overhead, handover=handover, passed=passed) for route in routes]
    asked = data.draw(transfers(routes))
    contention = data.draw(st.sampled_from(["none", "fifo"]))
    host = Recording()
    world = LaunchedWorld(contention, widths, {"host0": host})
    flows = [world.ask(a) for a in asked]
    world.run()
    assert len(world.delivered) == len(asked)
    assert len(host.launches) == 2 * len(asked)
    rows = sorted(host.launches, key=lambda row: row[1])
    for (_, _, over), (wanted, begun, _) in itertools.pairwise(rows):
        assert begun >= over - 1e-9
        waited = begun > wanted + 1e-9
        assert not waited or begun >= over + handover - 1e-9
    begins, overs = ({round(row[i], 9) for row in host.launches} for i in (1, 2))
    for flow, a in zip(flows, asked, strict=True):
        assert round(flow.start, 9) in begins
        assert round(flow.end, 9) in overs
        assert flow.start >= a.moment
        assert flow.end - flow.start >= a.route.seconds(a.size) - 1e-9
    for channel in range(len(widths)) if contention == "fifo" else ():
        mine = sorted((f.start, f.end) for f in flows if channel in f.channels)
        assert all(b[0] >= a[1] - 1e-9 for a, b in itertools.pairwise(mine))


def test_two_launchers_of_a_route_are_had_one_behind_the_other() -> None:
    """1 and 2 s before 4 s of bytes, and again behind them; the second launcher is taken until 5."""
    far = Launcher()
    far.begin(0.0, 5.0, 0.0, 0, lambda _: None)
    world = LaunchedWorld("none", [1.0, 1.0], {"host1": far})
    flow = world.send(0.0, launched(Route((0, 1), 1.0, 0.0), 1.0, 2.0), 4.0)
    world.run()
    assert (flow.start, flow.end) == (0.0, 5.0 + 2.0 + 4.0 + 1.0 + 2.0)


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_what_is_called_off_leaves_its_channels_to_others(data: st.DataObject) -> None:
    widths, routes = data.draw(networks())
    routes = [launched(route, 0.3) for route in routes]
    odd = st.integers(0, 900).map(lambda n: n * 0.01037 + 0.00061)
    asked = [
        replace(a, cancelled=c) if c is not None and c > a.moment else a
        for a in data.draw(transfers(routes))
        for c in [data.draw(st.none() | odd)]
    ]
    contention = data.draw(st.sampled_from(["none", "fifo", "fair"]))
    world = LaunchedWorld(contention, widths, {"host0": Launcher()})
    flows = [world.ask(a) for a in asked]
    world.run()
    for flow, a in zip(flows, asked, strict=True):
        if flow in world.delivered:
            assert flow.remaining == 0.0
            assert a.cancelled is None or flow.end <= a.cancelled
        else:
            assert flow.end == a.cancelled
            assert 0.0 <= flow.remaining <= flow.size


def test_what_is_believed_of_transfers_on_their_way() -> None:
    """Launches of 1 s each; 2 s of bytes each: the first is told of at 4, the second, behind it, at 8."""
    route = launched(Route((0,), 1.0, 0.0), 1.0)
    world = LaunchedWorld("fifo", [1.0], {})
    first, second = (world.send(0.0, route, 2.0) for _ in range(2))
    found: dict[float, tuple[float, ...]] = {}

    def look() -> None:
        flows = world.flows
        found[world.clock.now] = (
            flows.expected(first),
            flows.expected(second),
            flows.free(route),
            flows.estimate(route, 2.0),
        )

    for moment in (0.5, 1.5, 3.5, 4.5, 7.5):
        world.at(moment, look)
    world.run()
    assert found == dict.fromkeys((0.5, 1.5, 3.5, 4.5, 7.5), (4.0, 8.0, 8.0, 12.0))
    assert (first.end, second.end) == (4.0, 8.0)


# -- in runs ------------------------------------------------------------------------------------


def one_host(overhead: float = 0.0, handover: float = 0.0, bandwidth: float = 1.0) -> Cluster:
    """Two devices with memories of their own whose operators and copies one interpreter launches."""
    own = {"launcher": "host", "launch_handover": handover}
    return Cluster(
        "apart",
        [MemorySpace("near"), MemorySpace("far")],
        [
            Device("a", "near", launch_overhead=1.0, **own),
            Device("b", "far", launch_overhead=1.0, **own),
        ],
        [Link("l", ("near", "far"), bandwidth, launch_overhead=overhead, **own)],
        host="near",
    )


PAIR = from_edges("pair", 2, [(0, 1, 2.0)])
"""An operator whose 2 bytes another one reads."""


def run_pairs(where: Cluster, plan: list[tuple[int, float]], seconds: float) -> Trace:
    """Two jobs of two operators under the plan, the second with its devices changed about."""
    costs = CostTable.of(PAIR, np.full((2, 2), seconds))
    other = [(1 - device, rank) for device, rank in plan]
    jobs = Workload([Job(PAIR, origin="near", destination="near")] * 2)
    return simulate(jobs, where, costs, StaticPlan(plan, other), contention="fifo")


def test_copies_and_operators_wait_for_one_interpreter() -> None:
    """Each device has an operator of 10 s, behind launches at 0 and 1, whose 2 bytes the other device then reads.

    The first copy is launched at 11 until 12, there at 14 and told of at 15; the second, whose operator ended at 12,
    is launched until 13, there at 15 and told of when the interpreter is free again, at 16. The operator that may go
    from 15 on is launched behind that, and the last one behind it, from 17 until 18.
    """
    trace = run_pairs(one_host(1.0), [(0, 0.0), (1, 1.0)], 10.0)
    moves = {
        (job, tensor): (start, finish)
        for job, tensor, start, finish, source in zip(
            *(trace.transfers[c].tolist() for c in ("job", "tensor", "start", "finish", "source")),
            strict=True,
        )
    }
    assert sorted(moves.values()) == [(11.0, 15.0), (12.0, 16.0)]
    rows = trace.executions
    finishes = sorted(rows["finish"].tolist())
    assert finishes == [11.0, 12.0, 27.0, 28.0]


def settled(case: Case, overhead: float, handover: float, passed: int) -> Case:
    """The case with all its devices and links launched by one host."""
    own = {"launcher": "host", "launch_handover": handover, "launch_passed": passed}
    cluster = case.cluster
    case.cluster = replace(
        cluster,
        devices=[replace(device, **own) for device in cluster.devices],
        links=[replace(link, launch_overhead=overhead, **own) for link in cluster.links],
    )
    return case


LAUNCHES = (st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.3]), st.integers(0, 2))


@settings(quick, max_examples=examples(150))
@given(rich_cases(), *LAUNCHES)
def test_runs_end_and_keep_the_rules(
    case: Case, overhead: float, handover: float, passed: int
) -> None:
    case = settled(case, overhead, handover, passed)
    trace = case.run()
    check_rules(case, trace)
    again = case.run()
    for table in ("executions", "transfers", "jobs"):
        mine, theirs = getattr(trace, table), getattr(again, table)
        for column in mine:
            np.testing.assert_array_equal(mine[column], theirs[column])


def check_rules(case: Case, trace: Trace) -> None:
    """Nobody reads what is not there, and what is sent takes its route's seconds at least."""
    cluster, moves = case.cluster, trace.transfers
    arrived: dict[tuple[int, int, int], float] = {}
    for row in range(len(moves["start"])):
        job, tensor = int(moves["job"][row]), int(moves["tensor"][row])
        ends = int(moves["source"][row]), int(moves["destination"][row])
        route = cluster.route(*ends)
        start, finish = float(moves["start"][row]), float(moves["finish"][row])
        assert start >= float(moves["requested"][row])
        assert finish - start >= route.seconds(float(moves["bytes"][row])) * (1 - 1e-9) - 1e-9
        arrived[job, tensor, ends[1]] = finish
    if case.contention == "fifo":
        for link in set(moves["link"].tolist()):
            rows = np.flatnonzero(moves["link"] == link)
            spans = sorted({(moves["start"][r], moves["finish"][r]) for r in rows})
            assert all(b[0] >= a[1] - 1e-9 for a, b in itertools.pairwise(spans))
    rows = trace.executions
    for job, operator, device, start in zip(
        *(rows[c].tolist() for c in ("job", "operator", "device", "start")), strict=True
    ):
        graph = case.workload.jobs[job].graph
        for t in graph.reads[operator]:
            there = arrived.get((job, t, cluster.space_of[device]))
            assert there is None or start >= there - 1e-9


@settings(quick, max_examples=examples(150))
@given(broken_cases(), *LAUNCHES)
def test_runs_in_which_something_breaks_end(
    broken: tuple[Case, Faults], overhead: float, handover: float, passed: int
) -> None:
    case, faults = broken
    case = settled(case, overhead, handover, passed)
    trace = case.run(faults=faults)
    assert math.isfinite(trace.makespan)
    rows = trace.transfers
    assert (rows["finish"] >= rows["start"]).all()


def test_nobody_waits_where_launching_takes_no_time_and_nothing_is_handed_over() -> None:
    where = one_host()
    free = replace(
        where,
        devices=[replace(d, launcher=None, launch_overhead=0.0) for d in where.devices],
        links=[Link("l", ("near", "far"), 1.0)],
    )
    same = replace(where, devices=[replace(d, launch_overhead=0.0) for d in where.devices])
    plan = [(0, 0.0), (1, 1.0)]
    assert run_pairs(same, plan, 10.0).makespan == run_pairs(free, plan, 10.0).makespan


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"launch_overhead": 1.0}, "has a launch_overhead and no launcher"),
        ({"launch_handover": 1.0}, "has a launch_handover and no launcher"),
        ({"launcher": "host", "launch_overhead": -1.0}, "launch_overhead must be >= 0 s"),
        ({"launcher": "host", "launch_handover": math.nan}, "launch_handover must be >= 0 s"),
        ({"launcher": "host", "launch_passed": -1}, "has launch_passed -1"),
    ],
)
def test_impossible_launches_of_links_are_refused(given: dict[str, object], message: str) -> None:
    spaces = [MemorySpace("a"), MemorySpace("b")]
    with pytest.raises(InvalidInput, match=f"Link 'l'.*{message}"):
        Cluster("c", spaces, [Device("d", "a")], [Link("l", ("a", "b"), 1.0, **given)])  # type: ignore[arg-type]


def test_flows_that_ended_or_were_never_asked_for_can_be_called_off() -> None:
    world = LaunchedWorld("fifo", [1.0], {})
    flow = world.ask(Asked(0.0, launched(Route((0,), 1.0, 0.0), 1.0), 1.0, cancelled=9.0))
    world.flows.cancel(Flow((1,), 0, 1, Route((0,), 1.0, 0.0), 1.0, 0.0))
    world.run()
    assert (flow.end, flow.remaining) == (3.0, 0.0)
