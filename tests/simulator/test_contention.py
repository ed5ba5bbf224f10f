"""Event-driven transfers against known answers, booked fifo, closed forms and an exact reference."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.clock import Clock
from simulator.errors import InvalidInput
from simulator.links.contention import FairFlows, FifoFlows, UncontendedFlows
from simulator.links.flows import Flow, FlowModel
from simulator.links.registry import Fifo, flows_by_name
from simulator.model.cluster import Route
from tests.examples import examples
from tests.simulator.fluid import Asked, transfer_ends

ORACLES = json.loads((Path(__file__).parents[1] / "oracles" / "network_sharing.json").read_text())
MODELS = ["none", "fifo", "fair"]
Ends = Sequence[tuple[float, float] | None]
"""Start and end of each transfer; None if it was called off."""


class World:
    """A clock, a model, and the loop that settles it at the end of every instant."""

    def __init__(self, contention: str, capacities: Sequence[float]) -> None:
        self.clock = Clock()
        self.delivered: list[Flow] = []
        self.flows: FlowModel = flows_by_name(contention, self.clock, capacities, self._deliver)
        self.instant: Callable[[], None] = lambda: None

    def _deliver(self, flow: Flow) -> None:
        assert flow.end == self.clock.now
        assert flow not in self.delivered
        self.delivered.append(flow)

    def at(self, moment: float, act: Callable[[], object]) -> None:
        self.clock.at(moment, [lambda _: act()])

    def ask(self, asked: Asked, tensors: tuple[int, ...] = (0,)) -> Flow:
        flow = Flow(tensors, 0, 1, asked.route, asked.size, asked.moment)
        self.at(asked.moment, lambda: self.flows.request(flow))
        if asked.cancelled is not None:
            self.at(asked.cancelled, lambda: self.flows.cancel(flow))
        return flow

    def send(self, moment: float, route: Route, size: float) -> Flow:
        return self.ask(Asked(moment, route, size))

    def run(self) -> World:
        queue = self.clock._queue
        while queue:
            self.clock.step()
            if not queue or queue[0][0] > self.clock.now:
                self.flows.settle()
                self.instant()
        return self


# -- random transfers ---------------------------------------------------------------------------

# Whole numbers make events coincide, the others make sums round.
MOMENTS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 0.1, 4.7, 5.3])
SIZES = st.sampled_from([1.0, 1.0, 2.0, 4.0, 0.3, 7.7, 12.0, 0.0])
LATENCIES = st.sampled_from([0.0, 0.0, 0.0, 1.0, 0.25, 0.1])
WIDTHS = st.sampled_from([1.0, 1.0, 2.0, 0.7, 3.3])


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[float], list[Route]]:
    """Up to five channels and up to five routes over one to three of them."""
    channels = draw(st.integers(1, 5))
    even = draw(st.booleans())
    widths = [1.0] * channels if even else [draw(WIDTHS) for _ in range(channels)]
    ways = st.lists(st.integers(0, channels - 1), min_size=1, max_size=3, unique=True)
    routes = [
        Route(tuple(way), min(widths[c] for c in way), draw(LATENCIES))
        for way in draw(st.lists(ways, min_size=1, max_size=5))
    ]
    return widths, routes


@st.composite
def transfers(draw: st.DrawFn, routes: list[Route]) -> list[Asked]:
    """Up to eight transfers in order of request."""
    asked = st.builds(Asked, MOMENTS, st.sampled_from(routes), SIZES)
    return sorted(draw(st.lists(asked, max_size=8)), key=lambda a: a.moment)


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_undisturbed_fifo_and_none_are_the_booked_models_to_the_last_bit(
    data: st.DataObject,
) -> None:
    widths, routes = data.draw(networks())
    asked = data.draw(transfers(routes))
    world = World("fifo", widths)
    flows = [world.ask(a) for a in asked]
    world.run()
    free = [0.0] * len(widths)
    for flow, a in zip(flows, asked, strict=True):
        assert (flow.start, flow.end) == Fifo().book(a.route, a.size, a.moment, free)
    alone = World("none", widths)
    flows = [alone.ask(a) for a in asked]
    alone.run()
    for flow, a in zip(flows, asked, strict=True):
        assert (flow.start, flow.end) == (a.moment, a.moment + a.route.seconds(a.size))
    assert len(world.delivered) == len(alone.delivered) == len(asked)


def _nearly(first: Ends, second: Ends) -> bool:
    """Whether the same transfers end, within 1e-7."""
    return all(
        (one is None) == (other is None)
        and (one is None or other is None or abs(one[1] - other[1]) < 1e-7)
        for one, other in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("contention", MODELS)
@given(data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_degraded_and_called_off_transfers_follow_the_exact_reference(
    contention: str, data: st.DataObject
) -> None:
    widths, routes = data.draw(networks())
    # Odd moments: whether something that ends at this very instant is called off is not the question.
    odd = st.integers(0, 900).map(lambda n: n * 0.01037 + 0.00061)
    asked = [
        replace(a, cancelled=c) if c is not None and c > a.moment else a
        for a in data.draw(transfers(routes))
        for c in [data.draw(st.none() | st.none() | odd)]
    ]
    change = st.tuples(
        st.one_of(MOMENTS, odd),
        st.integers(0, len(widths) - 1),
        st.sampled_from([0.0, 0.5, 1.0, 0.3]),
    )
    changes = sorted(data.draw(st.lists(change, max_size=5)), key=lambda c: c[0])
    changes += [(20.0, channel, 1.0) for channel in range(len(widths))]
    expected = transfer_ends(contention, widths, asked, changes)
    # Not even nearly at this very instant: floats may differ from the fractions.
    ends = [e[1] for e in expected if e is not None]
    assume(all(abs(a.cancelled - end) > 1e-9 for a in asked if a.cancelled for end in ends))
    # Nor whether something ends at the very instant at which its channel does: 4.7 + .6 and 5.3 are one float.
    for nudge in (-1e-9, 1e-9):
        moved = [(max(0.0, moment + nudge), *change) for moment, *change in changes]
        assume(_nearly(expected, transfer_ends(contention, widths, asked, moved)))
    world = World(contention, widths)
    flows = [world.ask(a) for a in asked]
    for moment, channel, factor in changes:
        world.at(moment, lambda c=channel, f=factor: world.flows.set_capacity(c, f))  # type: ignore[misc]
    sent = dict.fromkeys(flows, 0.0)
    pace: dict[Flow, tuple[float, float]] = {}  # bytes per second, and since when

    def integrate() -> None:
        """Bytes that went by at the rates that held until now; the rates from now on."""
        now = world.clock.now
        for flow, (rate, since) in pace.items():
            sent[flow] += rate * max(0.0, now - since)
        pace.clear()
        for flow in flows:
            if flow.requested <= now < flow.end and flow.rate > 0:
                pace[flow] = flow.rate, max(now, flow.since)
        for flow in flows:
            if now < flow.end < math.inf and flow.requested <= now:
                assert world.flows.expected(flow) == flow.end

    world.instant = integrate
    world.run()
    for flow, a, wanted in zip(flows, asked, expected, strict=True):
        assert (flow in world.delivered) == (wanted is not None)
        if wanted is not None:
            assert (flow.start, flow.end) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
            assert flow.remaining == 0.0
        else:
            assert flow.end == a.cancelled
        assert sent[flow] + flow.remaining == pytest.approx(a.size, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("contention", ["none", "fair"])
@given(data=st.data())
@settings(max_examples=examples(50), deadline=None)
def test_ends_do_not_depend_on_the_order_within_an_instant(
    contention: str, data: st.DataObject
) -> None:
    widths, routes = data.draw(networks())
    asked = data.draw(transfers(routes))
    world = World(contention, widths)
    flows = [world.ask(a) for a in asked]
    world.run()
    other = World(contention, widths)
    order = data.draw(st.permutations(range(len(asked))))
    again = {i: other.ask(asked[i]) for i in order}
    other.run()
    assert [flow.end for flow in flows] == [again[i].end for i in range(len(asked))]


@given(st.data())
@settings(max_examples=examples(50), deadline=None)
def test_flows_that_share_nothing_are_as_fast_as_alone_to_the_last_bit(data: st.DataObject) -> None:
    widths, routes = data.draw(networks())
    asked = data.draw(transfers(routes))
    ends = transfer_ends("fair", widths, asked)
    for i, a in enumerate(asked):
        world = World("fair", widths)
        flow = world.ask(a)
        world.run()
        assert flow.end == a.moment + a.route.seconds(a.size)
        end = ends[i]
        assert end is not None
        assert flow.end <= end[1] + 1e-9  # others never help


# -- known answers ------------------------------------------------------------------------------


def test_known_mix_of_fair_flows() -> None:
    mix = ORACLES["timed"]
    nodes = mix["nodes"]
    world = World("fair", [float(mix["up"])] * nodes + [float(mix["down"])] * nodes)
    flows = []
    for row in mix["flows"]:
        route = Route((row["src"], nodes + row["dst"]), 100.0, 0.0)
        flows.append(world.send(float(row["start"]), route, float(row["bytes"])))
    world.run()
    assert [flow.end for flow in flows] == [row["finish"] for row in mix["flows"]]


def star(latency: float = 0.0) -> Callable[[int, int], Route]:
    """Routes between four spaces at a hub, 1 byte per second each way."""
    return lambda a, b: Route((a, 4 + b), 1.0, latency)


@pytest.mark.parametrize(
    ("contention", "ends"), [("none", (4.0, 5.0)), ("fifo", (4.0, 8.0)), ("fair", (7.0, 8.0))]
)
def test_the_example_of_the_docs(contention: str, ends: tuple[float, float]) -> None:
    world = World(contention, [1.0] * 8)
    flows = world.send(0.0, star()(0, 1), 4.0), world.send(1.0, star()(2, 1), 4.0)
    world.run()
    assert (flows[0].end, flows[1].end) == ends


def test_fair_flows_pay_their_latency_before_they_share() -> None:
    route = star(latency=2.0)
    world = World("fair", [1.0] * 8)
    a = world.send(0.0, route(0, 1), 4.0)  # sends from 2
    b = world.send(2.0, route(0, 2), 4.0)  # sends from 4, when a has 2 bytes left
    beliefs: list[tuple[float, ...]] = []
    for moment in (0.5, 3.0, 5.0):
        world.at(
            moment,
            lambda: beliefs.append(
                tuple(world.flows.expected(f) for f in (a, b) if f.requested <= world.clock.now)
            ),
        )
    world.run()
    assert (a.start, a.end) == (0.0, 8.0)
    assert (b.start, b.end) == (2.0, 10.0)
    # While b's latency runs, a is believed to go on at full rate, and b to get half from 4 on.
    assert beliefs == [(6.0,), (6.0, 12.0), (8.0, 12.0)]


def test_a_half_duplex_link_is_one_channel_for_both_directions() -> None:
    world = World("fair", [1.0])
    link = Route((0,), 1.0, 0.0)
    there, back = world.send(0.0, link, 1.0), world.send(0.0, link, 2.0)
    world.run()
    assert (there.end, back.end) == (2.0, 3.0)


def test_a_flow_over_several_links_counts_once_on_each() -> None:
    # 0 -> 1 -> 2 with a flow on each link and one over both: half for all; then 1's rest alone.
    world = World("fair", [1.0, 1.0])
    long = world.send(0.0, Route((0, 1), 1.0, 0.0), 1.0)
    first = world.send(0.0, Route((0,), 1.0, 0.0), 1.0)
    second = world.send(0.0, Route((1,), 1.0, 0.0), 3.0)
    world.run()
    assert (long.end, first.end, second.end) == (2.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("contention", "ends"),
    # 4 bytes each on one channel, b 1 s later; the channel is out from 2 to 5 and halved until 6.
    [("none", (7.5, 8.5)), ("fifo", (7.5, 11.5)), ("fair", (10.5, 11.5))],
)
def test_an_outage_stops_flows_and_they_go_on_afterwards(
    contention: str, ends: tuple[float, float]
) -> None:
    world = World(contention, [1.0])
    link = Route((0,), 1.0, 0.0)
    a, b = world.send(0.0, link, 4.0), world.send(1.0, link, 4.0)
    for moment, factor in ((2.0, 0.0), (5.0, 0.5), (6.0, 1.0)):
        world.at(moment, lambda f=factor: world.flows.set_capacity(0, f))  # type: ignore[misc]
    beliefs: list[float] = []
    for moment in (3.0, 5.5, 7.0):
        world.at(moment, lambda: beliefs.append(world.flows.expected(a)))
        world.at(moment, lambda: beliefs.append(world.flows.estimate(link, 1.0)))
    world.run()
    assert (a.end, b.end) == ends
    assert beliefs[:2] == [math.inf, math.inf]
    assert beliefs[4] == {"none": 7.5, "fifo": 7.5, "fair": 10.5}[contention]
    assert all(belief < math.inf for belief in beliefs[2:])


def test_latency_runs_on_during_an_outage_and_no_bytes_need_no_link() -> None:
    for contention in MODELS:
        world = World(contention, [1.0])
        link = Route((0,), 1.0, 3.0)
        empty, full = world.send(0.0, link, 0.0), world.send(4.0, link, 1.0)
        world.at(1.0, lambda w=world: w.flows.set_capacity(0, 0.0))  # type: ignore[misc]
        world.at(6.0, lambda w=world: w.flows.set_capacity(0, 1.0))  # type: ignore[misc]
        world.run()
        assert (empty.end, full.end) == (3.0, 8.0)


def test_an_outage_for_ever_leaves_the_flow_undelivered() -> None:
    for contention in MODELS:
        world = World(contention, [1.0])
        flow = world.send(0.0, Route((0,), 1.0, 0.0), 2.0)
        world.at(1.0, lambda w=world: w.flows.set_capacity(0, 0.0))  # type: ignore[misc]
        world.run()
        assert world.delivered == []
        assert (flow.end, flow.remaining) == (math.inf, 1.0)


def test_what_is_called_off_frees_the_queue_behind_it() -> None:
    world = World("fifo", [1.0, 1.0])
    both = Route((0, 1), 1.0, 0.0)
    world.send(0.0, Route((0,), 1.0, 0.0), 2.0)
    off = world.ask(Asked(0.0, both, 5.0, cancelled=1.0))
    behind = world.send(0.0, Route((1,), 1.0, 0.0), 1.0)
    after = world.send(0.5, both, 1.0)
    free: list[float] = []
    for moment in (0.5, 1.0):
        world.at(moment, lambda: free.append(world.flows.free(both)))
    world.run()
    assert free == [9.0, 3.0]
    assert (off.end, off.remaining, off in world.delivered) == (1.0, 5.0, False)
    assert (behind.start, behind.end) == (1.0, 2.0)
    assert (after.start, after.end) == (2.0, 3.0)


def test_what_moves_up_takes_those_behind_it_along() -> None:
    # 5 bytes on 0 are called off at 1; what waited for 0 and 1 starts, and behind it what waits for 1.
    for disturb in ("cancel", "degrade"):
        world = World("fifo", [1.0, 1.0, 1.0])
        head = world.send(0.0, Route((0,), 1.0, 0.0), 5.0)
        both = world.send(0.0, Route((0, 1), 1.0, 0.0), 2.0)
        last = world.send(0.0, Route((1, 2), 1.0, 0.0), 1.0)
        apart = world.send(0.0, Route((2,), 1.0, 0.0), 1.0)
        if disturb == "cancel":
            world.at(1.0, lambda w=world, f=head: w.flows.cancel(f))  # type: ignore[misc]
            ends = [(1.0, 3.0), (3.0, 4.0), (4.0, 5.0)]
        else:
            world.at(1.0, lambda w=world: w.flows.set_capacity(0, 0.5))  # type: ignore[misc]
            ends = [(9.0, 13.0), (13.0, 14.0), (14.0, 15.0)]
        world.run()
        assert [(f.start, f.end) for f in (both, last, apart)] == ends


@pytest.mark.parametrize("contention", MODELS)
def test_what_ends_at_this_very_instant_has_ended(contention: str) -> None:
    # An outage comes before the flow's own event of the instant, and somebody asks in between. By
    # rounding, 4e-16 bytes would be left.
    world = World(contention, [1.1])
    link = Route((0,), 1.1, 0.7)
    answers: list[float] = []

    def fail() -> None:
        world.flows.set_capacity(0, 0.0)
        answers.append(world.flows.expected(flow))

    world.at(link.seconds(3.3), fail)
    flow = world.send(0.0, link, 3.3)
    world.run()
    assert world.delivered == [flow]
    assert answers == [flow.end] == [link.seconds(3.3)]


def test_calling_off_what_has_ended_changes_nothing() -> None:
    for contention in MODELS:
        world = World(contention, [1.0])
        flow = world.ask(Asked(0.0, Route((0,), 1.0, 0.0), 2.0, cancelled=3.0))
        twice = world.ask(Asked(4.0, Route((0,), 1.0, 0.0), 2.0, cancelled=5.0))
        world.at(5.0, lambda w=world, f=twice: w.flows.cancel(f))  # type: ignore[misc]
        world.run()
        assert world.delivered == [flow]
        assert (flow.end, twice.end, twice.remaining) == (2.0, 5.0, 1.0)


def test_estimates_of_what_is_not_requested_yet() -> None:
    link = Route((0,), 2.0, 0.5)
    wanted = {"none": (1.0, 2.5), "fifo": (4.5, 6.0), "fair": (1.0, 3.5)}
    for contention, answer in wanted.items():
        world = World(contention, [2.0])
        world.send(0.0, link, 8.0)
        answers: list[tuple[float, float]] = []
        world.at(
            1.0,
            lambda w=world, a=answers: a.append((w.flows.free(link), w.flows.estimate(link, 2.0))),  # type: ignore[misc]
        )
        world.run()
        assert answers == [answer]


def test_a_packed_flow_is_one_message() -> None:
    # Three tensors of 1, 2 and 3 bytes at latency 1: one after the other, or as one message.
    route = Route((0,), 2.0, 1.0)
    for contention, apart in (("none", 2.5), ("fifo", 6.0), ("fair", 4.0)):
        world = World(contention, [2.0])
        packed = world.ask(Asked(0.0, route, 6.0), tensors=(3, 5, 8))
        world.run()
        assert [(flow.tensors, flow.end) for flow in world.delivered] == [((3, 5, 8), 4.0)]
        assert packed.start == 0.0
        world = World(contention, [2.0])
        single = [world.send(0.0, route, size) for size in (1.0, 2.0, 3.0)]
        world.run()
        assert max(flow.end for flow in single) == apart


# -- cost ---------------------------------------------------------------------------------------


def test_all_that_happens_at_an_instant_is_worked_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("fair", [1.0] * 8)
    route = star()
    for size in (3.0, 3.0, 3.0, 5.0, 5.0):
        world.send(0.0, route(0, 1), size)
    world.send(7.5, route(0, 2), 1.0)
    world.at(7.5, lambda: world.flows.set_capacity(0, 0.5))
    fills: list[tuple[float, int]] = []
    sharing = world.flows._sharing  # type: ignore[attr-defined]
    update = sharing.update

    def counted() -> list[Flow]:
        changed: list[Flow] = update()
        if changed:
            fills.append((world.clock.now, len(changed)))
        return changed

    monkeypatch.setattr(sharing, "update", counted)
    world.run()
    # Five start; one more and a slower link; three end at 22.5 with one byte and a half each
    # before; and so on: never twice at one instant.
    assert [moment for moment, _ in fills] == sorted({moment for moment, _ in fills})
    assert fills[:2] == [(0.0, 5), (7.5, 6)]


def test_few_events_reach_the_clock() -> None:
    world = World("fair", [1.0] * 8)
    rng = random.Random(0)
    route = star(latency=0.125)
    for i in range(400):
        a, b = rng.sample(range(4), 2)
        world.send(i * 0.3, route(a, b), 1.0)
    before = next(world.clock._eid)
    world.run()
    # At most the end of its latency and its own end for each flow, and one for each that drew nearer.
    assert next(world.clock._eid) - before < 3.5 * 400
    assert len(world.delivered) == 400


# -- refusals -----------------------------------------------------------------------------------


def test_models_by_name() -> None:
    made = [flows_by_name(name, Clock(), [1.0], lambda _: None) for name in MODELS]
    assert [type(model) for model in made] == [UncontendedFlows, FifoFlows, FairFlows]
    with pytest.raises(InvalidInput, match="Unknown contention 'tcp'; known: none, fifo, fair"):
        flows_by_name("tcp", Clock(), [1.0], lambda _: None)


@pytest.mark.parametrize("factor", [-0.1, 1.5, math.nan, math.inf])
def test_factors_outside_0_to_1_are_refused(factor: float) -> None:
    for contention in MODELS:
        with pytest.raises(InvalidInput, match="between 0 and 1"):
            World(contention, [1.0]).flows.set_capacity(0, factor)
