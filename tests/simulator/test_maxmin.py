"""Max-min fair rates against known answers, a linear programme, their definition and exact fractions."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from simulator.links.max_min import MaxMin
from tests.examples import examples
from tests.simulator.fluid import max_min

ORACLES = json.loads((Path(__file__).parents[1] / "oracles" / "network_sharing.json").read_text())
CAPACITIES = st.sampled_from([1.0, 1.0, 1.0, 2.0, 0.1, 3.3, 0.7, 1e-3, 1e6])


class Member:
    """A flow as the solver sees it."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        self.channels = channels
        self.share = -1.0
        self.mark = -1

    def __repr__(self) -> str:
        return f"{self.channels}: {self.share}"


def solved(routes: list[tuple[int, ...]], capacities: list[float]) -> list[float]:
    solver: MaxMin[Member] = MaxMin(capacities)
    members = [Member(route) for route in routes]
    for member in members:
        solver.add(member)
    solver.update()
    return [member.share for member in members]


@st.composite
def networks(draw: st.DrawFn, flows: int = 8) -> tuple[list[tuple[int, ...]], list[float]]:
    """Routes of up to three channels, and the capacities, often equal."""
    channels = draw(st.integers(1, 6))
    even = draw(st.booleans())
    capacities = (
        [2.0] * channels
        if even
        else draw(st.lists(CAPACITIES, min_size=channels, max_size=channels))
    )
    route = st.lists(st.integers(0, channels - 1), min_size=1, max_size=3, unique=True).map(tuple)
    return draw(st.lists(route, min_size=1, max_size=flows)), capacities


def by_linear_programmes(routes: list[tuple[int, ...]], capacities: list[float]) -> list[float]:
    """Max-min by its definition as lexicographic optimum: raise the smallest rate as far as it goes,
    find out which flows cannot have more, fix them, go on.
    """
    count = len(routes)
    crosses = np.array([[c in route for route in routes] for c in range(len(capacities))], float)
    fixed: dict[int, float] = {}
    while len(fixed) < count:
        floor = np.zeros((count, count + 1))
        for i in range(count):
            floor[i, i], floor[i, count] = -1.0, 0.0 if i in fixed else 1.0
        a = np.vstack([np.hstack([crosses, np.zeros((len(capacities), 1))]), floor])
        b = np.concatenate([capacities, [-fixed.get(i, 0.0) for i in range(count)]])
        level = -linprog(np.r_[np.zeros(count), -1.0], a, b).fun
        least = [fixed.get(i, level) for i in range(count)]
        found = {}
        for i in range(count):
            if i not in fixed:
                goal = np.zeros(count)
                goal[i] = -1.0
                bounds = [(x * (1 - 1e-9), None) for x in least]
                most = -linprog(goal, crosses, capacities, bounds=bounds).fun
                if most <= level * (1 + 1e-6):
                    found[i] = level
        assert found
        fixed |= found
    return [fixed[i] for i in range(count)]


@pytest.mark.parametrize("case", ORACLES["rates"])
def test_known_rates(case: dict) -> None:  # type: ignore[type-arg]
    ups = len(case["up"])
    routes = [(a, ups + b) for a, b in case["flows"]]
    assert solved(routes, case["up"] + case["down"]) == pytest.approx(case["rate"], rel=1e-12)


@given(networks(flows=4).filter(lambda n: max(n[1]) / min(n[1]) < 1e3))
@settings(max_examples=30, deadline=None)
def test_rates_are_the_lexicographic_optimum(
    network: tuple[list[tuple[int, ...]], list[float]],
) -> None:
    assert solved(*network) == pytest.approx(by_linear_programmes(*network), rel=1e-5)


@given(networks())
@settings(max_examples=examples(200), deadline=None)
def test_rates_are_exact_and_every_flow_has_a_bottleneck(
    network: tuple[list[tuple[int, ...]], list[float]],
) -> None:
    routes, capacities = network
    rates = solved(routes, capacities)
    exact = max_min(routes, [Fraction(c) for c in capacities])
    assert rates == pytest.approx([float(rate) for rate in exact], rel=1e-12)
    used = [
        sum(rate for rate, route in zip(rates, routes, strict=True) if channel in route)
        for channel in range(len(capacities))
    ]
    for channel, load in enumerate(used):
        assert load <= capacities[channel] * (1 + 1e-12)
    # Fair and work conserving: on some full channel of its route nobody has more than it.
    for rate, route in zip(rates, routes, strict=True):
        assert any(
            used[channel] >= capacities[channel] * (1 - 1e-12)
            and all(
                other <= rate * (1 + 1e-12)
                for other, way in zip(rates, routes, strict=True)
                if channel in way
            )
            for channel in route
        )


@given(networks(flows=12), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_after_any_changes_rates_are_those_from_scratch_to_the_last_bit(
    network: tuple[list[tuple[int, ...]], list[float]], data: st.DataObject
) -> None:
    routes, capacities = network
    capacities = list(capacities)
    nominal = list(capacities)
    solver: MaxMin[Member] = MaxMin(capacities)
    outside = [Member(route) for route in routes]
    inside: list[Member] = []
    shares: dict[Member, float] = {}
    for act in data.draw(
        st.lists(st.sampled_from(["add", "add", "remove", "capacity", "update"]), max_size=30)
    ):
        if act == "add" and outside:
            inside.append(outside.pop())
            solver.add(inside[-1])
        elif act == "remove" and inside:
            member = inside.pop(data.draw(st.integers(0, len(inside) - 1)))
            solver.remove(member)
            shares.pop(member, None)
            outside.insert(0, member)
        elif act == "capacity":
            channel = data.draw(st.integers(0, len(capacities) - 1))
            capacities[channel] = nominal[channel] * data.draw(st.sampled_from([0.0, 0.5, 1.0]))
            solver.set_capacity(channel, capacities[channel])
        elif act == "update":
            changed = solver.update()
            assert len(changed) == len(set(changed))
            now = {member: member.share for member in inside}
            assert set(changed) == {m for m in inside if shares.get(m, -1.0) != now[m]}
            shares = now
    solver.update()
    again = list(enumerate(inside))
    random.Random(0).shuffle(again)
    fresh = solved([member.channels for _, member in again], capacities)
    assert [inside[i].share for i, _ in again] == fresh


def test_a_change_leaves_alone_what_shares_no_channel_with_it() -> None:
    solver: MaxMin[Member] = MaxMin([1.0] * 6)
    members = [Member(route) for route in ((0, 1), (0, 2), (3, 4), (3, 5))]
    for member in members:
        solver.add(member)
    assert solver.update() == members
    members[2].share = -7.0  # would be mended by any computation that comes by
    late = Member((1, 2))
    solver.add(late)
    solver.update()
    assert [m.share for m in members] == [0.5, 0.5, -7.0, 0.5]
    solver.remove(late)
    solver.remove(members[3])
    solver.update()
    assert [m.share for m in members[:3]] == [0.5, 0.5, 1.0]


def test_infinite_capacities_limit_nobody() -> None:
    inf = math.inf
    assert solved([(0,), (0, 1), (0, 1)], [inf, inf]) == [inf] * 3
    assert solved([(0,), (0, 1), (0, 1)], [inf, 1.0]) == [inf, 0.5, 0.5]
    assert solved([(0, 1), (0, 1), (1, 2)], [inf, 6.0, 1.0]) == [2.5, 2.5, 1.0]


def test_prospect_is_an_equal_share_of_the_narrowest() -> None:
    solver: MaxMin[Member] = MaxMin([1.0, 3.0])
    assert solver.prospect((0, 1)) == 1.0
    for _ in range(3):
        solver.add(Member((1,)))
    assert solver.prospect((0, 1)) == 0.75
