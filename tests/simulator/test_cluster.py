"""Clusters: what is refused, and routes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, Route, fully_connected
from tests.simulator.strategies import clusters

A, B = MemorySpace("a"), MemorySpace("b")
CPU, GPU = Device("cpu", "a"), Device("gpu", "b")
BUS = Link("bus", ("a", "b"), 10.0, 0.5)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([A, A], [CPU]), "Cluster 'c' has two memory spaces named 'a'"),
        (([A], [CPU, CPU]), "Cluster 'c' has two devices named 'cpu'"),
        (([A, B], [CPU], [BUS, BUS]), "Cluster 'c' has two links named 'bus'"),
        (([A], []), "Cluster 'c' has no devices"),
        (([A], [GPU]), "'gpu' is in memory space 'b', which cluster 'c' lacks; it has a"),
        (([MemorySpace("a", 0)], [CPU]), "Memory space 'a' has capacity 0"),
        (([MemorySpace("a", math.nan)], [CPU]), "Memory space 'a' has capacity nan"),
        (([A], [Device("cpu", "a", slots=0)]), "Device 'cpu' has 0 slots"),
        (([A], [Device("cpu", "a", launch_overhead=-1)]), "'cpu': launch overhead must be >= 0 s"),
        (([A], [Device("cpu", "a", launch_overhead=math.inf)]), "launch overhead must be >= 0 s"),
        (([A], [CPU], [BUS]), "Link 'bus' ends at unknown memory space 'b'"),
        (([A], [CPU], [Link("loop", ("a", "a"), 1.0)]), "Link 'loop' joins 'a' to itself"),
        (([A, B], [CPU], [Link("l", ("a", "b"), 0.0)]), "Link 'l' needs a bandwidth > 0"),
        (([A, B], [CPU], [Link("l", ("a", "b"), math.nan)]), "Link 'l' needs a bandwidth > 0"),
        (
            ([A, B], [CPU], [Link("l", ("a", "b"), 1.0, -1.0)]),
            "Link 'l' needs .* got 1.0 B/s and -1.0",
        ),
        (([A], [CPU], [], "z"), "Cluster 'c': host memory 'z' does not exist"),
    ],
)
def test_refused(parts: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Cluster("c", *parts)


def test_unconnected_memories_are_named() -> None:
    cluster = Cluster("islands", [A, B], [CPU, GPU])
    with pytest.raises(
        InvalidInput, match="'islands' has no route from memory space 'a' to 'b'; add"
    ):
        cluster.check_connected()
    Cluster("unused", [A, B], [CPU]).check_connected()
    with pytest.raises(InvalidInput, match="from memory space 'a' to 'b'"):
        Cluster("host", [A, B], [CPU], host="b").check_connected()


def test_channels() -> None:
    half = Link("half", ("a", "b"), 1.0, half_duplex=True)
    cluster = Cluster("c", [A, B], [CPU, GPU], [half, BUS])
    assert cluster.channels == ("half", "bus:a->b", "bus:b->a")
    assert cluster.route(0, 1) == Route((1,), 10.0, 0.5)  # the wider of two parallel links
    assert cluster.route(1, 0) == Route((2,), 10.0, 0.5)
    assert cluster.route(0, 1).seconds(20) == 2.5


def test_routes_have_the_fewest_links_then_the_greatest_bandwidth() -> None:
    names = "abcde"
    links = [
        Link("ab", ("a", "b"), 9.0, 0.1),
        Link("be", ("b", "e"), 2.0, 0.2),
        Link("ac", ("a", "c"), 3.0, 0.3),
        Link("ec", ("e", "c"), 4.0, 0.4),
        Link("ad", ("a", "d"), 9.0),
        Link("de", ("d", "e"), 1.0),
        Link("bc", ("b", "c"), 99.0),
    ]
    cluster = Cluster(
        "c", [MemorySpace(n) for n in names], [Device("p", "a"), Device("q", "e")], links
    )
    route = cluster.route(0, 4)
    assert [cluster.channels[c] for c in route.channels] == ["ac:a->c", "ec:c->e"]
    assert (route.bandwidth, route.latency) == (3.0, pytest.approx(0.7))
    back = cluster.route(4, 0)
    assert [cluster.channels[c] for c in back.channels] == ["ec:e->c", "ac:c->a"]
    # Three links over b would be as wide as four, but longer: b is reached directly.
    assert [cluster.channels[c] for c in cluster.route(3, 1).channels] == ["ad:d->a", "ab:a->b"]


def test_fully_connected() -> None:
    cluster = fully_connected("bare", 3)
    assert [device.name for device in cluster.devices] == ["P1", "P2", "P3"]
    assert len(cluster.channels) == 6
    assert len(fully_connected("half", 3, half_duplex=True).channels) == 3
    assert all(cluster.route(a, b).seconds(7) == 7 for a in range(3) for b in range(3) if a != b)
    assert cluster.host is None


def switched(leaves: int) -> Cluster:
    """Leaves of two kinds around a hub, and one behind another switch."""
    names = [f"m{i}" for i in range(leaves)]
    widths = [4.0 if i % 2 else 2.0 for i in range(leaves)]
    return Cluster(
        "switched",
        [MemorySpace(name) for name in (*names, "hub", "switch", "far")],
        [Device(f"d{name}", name) for name in (*names, "far")],
        [
            *(Link(f"l{n}", (n, "hub"), w, 0.5) for n, w in zip(names, widths, strict=True)),
            Link("up", ("hub", "switch"), 3.0, 0.25),
            Link("down", ("switch", "far"), 9.0, 1.0),
        ],
    )


def test_twins_have_the_same_links() -> None:
    assert switched(5).twins == (0, 1, 0, 1, 0, 5, 6, 7)
    assert fully_connected("all", 4).twins == (0, 0, 0, 0)
    alone = Cluster("alone", [MemorySpace("a"), MemorySpace("b")], [Device("d", "a")])
    assert alone.twins == (0, 0)


def test_spaces_that_differ_in_one_link_are_no_twins() -> None:
    spaces = [MemorySpace(name) for name in "abc"]
    devices = [Device(name.upper(), name) for name in "abc"]
    links = [Link("ab", ("a", "b"), 1.0), Link("ac", ("a", "c"), 1.0), Link("bc", ("b", "c"), 2.0)]
    assert Cluster("triangle", spaces, devices, links).twins == (0, 1, 1)


@given(clusters())
def test_what_comes_to_twins_takes_the_same_way(cluster: Cluster) -> None:
    spaces = range(len(cluster.spaces))
    for a in spaces:
        for b in spaces:
            if a == b or cluster.twins[a] != cluster.twins[b]:
                continue
            for other in set(spaces) - {a, b}:
                for one, two in (((other, a), (other, b)), ((a, other), (b, other))):
                    first, second = cluster.route(*one), cluster.route(*two)
                    assert (first.bandwidth, first.latency) == (second.bandwidth, second.latency)


def test_a_route_behind_a_switch() -> None:
    cluster = switched(3)
    route = cluster.route(0, 5)
    assert [cluster.channels[c] for c in route.channels] == [
        "lm0:m0->hub", "up:hub->switch", "down:switch->far"
    ]  # fmt: skip
    assert (route.bandwidth, route.latency) == (2.0, 1.75)


def test_no_route_between_two_pairs() -> None:
    spaces = [MemorySpace(name) for name in "abcd"]
    devices = [Device(name.upper(), name) for name in "abcd"]
    links = [Link("ab", ("a", "b"), 1.0), Link("cd", ("c", "d"), 1.0)]
    cluster = Cluster("two", spaces, devices, links)
    with pytest.raises(InvalidInput, match="no route from memory space 'a' to 'c'"):
        cluster.check_connected()
    with pytest.raises(InvalidInput, match="no route from memory space 'd' to 'b'"):
        cluster.route(3, 1)
