"""Clusters: what is refused, and routes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from simulator.cluster import Cluster, Device, Link, MemorySpace, Route, fully_connected
from simulator.errors import InvalidInput

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
