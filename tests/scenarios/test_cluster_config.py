"""Clusters from configs: expansion of counts, memory spaces and links; refusals."""

import pytest

from scenarios import cluster_config
from scenarios.cluster_config import (
    ClusterConfig,
    DeviceConfig,
    LinkConfig,
    SpaceConfig,
    build_cluster,
)
from simulator.errors import InvalidInput
from simulator.model.weight_hit_curve import ReuseCurve


def config(gpus=2, per_device=True, **changes):
    values = {
        "name": "box",
        "host": "ram",
        "spaces": {
            "ram": SpaceConfig("24 GiB"),
            "vram": SpaceConfig("16 GB", per_device=per_device),
        },
        "devices": {
            "cpu": DeviceConfig("some-core", "ram", count=2),
            "gpu": DeviceConfig("some-gpu", "vram", count=gpus, slots=2, launch_overhead="5us"),
        },
        "links": {"pcie": LinkConfig(["ram", "vram"], "12 GB/s", "10us")},
    }
    return ClusterConfig(**values | changes)


def test_counts_spaces_and_links_expand():
    cluster = build_cluster(
        config(), {"some-gpu": "datasheet"}, {"some-gpu": 1.0, "some-core": 1e-7}
    )
    assert [(d.name, d.space, d.profile) for d in cluster.devices] == [
        ("cpu0", "ram", "some-core"),
        ("cpu1", "ram", "some-core"),
        ("gpu0", "vram0", "some-gpu"),
        ("gpu1", "vram1", "some-gpu"),
    ]
    assert cluster.devices[2].slots == 2
    # The config's own overhead comes before the profile's.
    assert [d.launch_overhead for d in cluster.devices] == [1e-7, 1e-7, 5e-6, 5e-6]
    assert [(s.name, s.capacity) for s in cluster.spaces] == [
        ("ram", 24 * 2**30),
        ("vram0", 16e9),
        ("vram1", 16e9),
    ]
    assert [(link.name, link.ends) for link in cluster.links] == [
        ("pcie0", ("ram", "vram0")),
        ("pcie1", ("ram", "vram1")),
    ]
    assert (cluster.links[0].bandwidth, cluster.links[0].latency) == (12e9, 1e-5)
    assert cluster.labels == {"some-gpu": "datasheet"}
    # From one card to the other by way of the host.
    assert len(cluster.route(1, 2).channels) == 2


def test_power_and_price_are_of_each_device_and_unknown_unless_given():
    devices = {
        "cpu": DeviceConfig("some-core", "ram", count=2),
        "gpu": DeviceConfig(
            "some-gpu", "vram", power_idle="10 W", power_busy="0.07 kW", price="8.4/day"
        ),
    }
    cpu, _, gpu = build_cluster(config(devices=devices)).devices
    assert (cpu.power_idle, cpu.power_busy, cpu.price) == (None, None, None)
    assert (gpu.power_idle, gpu.power_busy, gpu.price) == (10, 70, 0.35)


def test_one_of_a_kind_keeps_its_name():
    cluster = build_cluster(config(gpus=1))
    assert [d.name for d in cluster.devices] == ["cpu0", "cpu1", "gpu"]
    assert [s.name for s in cluster.spaces] == ["ram", "vram"]
    assert [link.name for link in cluster.links] == ["pcie"]


def test_links_are_launched_where_they_say_so():
    launched = LinkConfig(["ram", "vram"], "12 GB/s", "10us", launcher="process")
    launched.launch_overhead, launched.launch_handover, launched.launch_passed = "60us", "20us", 2
    (link, _) = build_cluster(config(links={"pcie": launched})).links
    assert (link.launcher, link.launch_passed) == ("process", 2)
    assert (link.launch_overhead, link.launch_handover) == pytest.approx((6e-5, 2e-5))
    launched.launch_overhead = "soon"
    with pytest.raises(InvalidInput, match="launch_overhead of link 'pcie'"):
        build_cluster(config(links={"pcie": launched}))


def test_a_link_within_a_space_of_each_device_joins_every_pair():
    links = {
        "pcie": LinkConfig(["ram", "vram"], "12 GB/s"),
        "nvlink": LinkConfig(["vram", "vram"], "300 GB/s"),
    }
    cluster = build_cluster(config(gpus=3, links=links))
    joined = [link.ends for link in cluster.links if link.name.startswith("nvlink")]
    assert joined == [("vram0", "vram1"), ("vram0", "vram2"), ("vram1", "vram2")]


def test_devices_can_share_one_space():
    cluster = build_cluster(config(per_device=False))
    assert [d.space for d in cluster.devices] == ["ram", "ram", "vram", "vram"]
    assert len(cluster.links) == 1


def test_no_device_of_a_kind_leaves_out_its_spaces_and_links():
    cluster = build_cluster(config(gpus=0))
    assert [d.name for d in cluster.devices] == ["cpu0", "cpu1"]
    assert (len(cluster.spaces), len(cluster.links)) == (1, 0)


def test_submission_ahead_is_taken_over():
    late = DeviceConfig("p", "ram", issue_depth=4, completion_latency="10us")
    cluster = build_cluster(
        config(devices={"gpu": late, "cpu": DeviceConfig("p", "ram")}, links={})
    )
    found = [(d.issue_depth, d.completion_latency, d.issue_overhead) for d in cluster.devices]
    assert found == [(4, pytest.approx(1e-5), 0.0), (1, 0.0, 0.0)]


@pytest.mark.parametrize(
    ("given", "issue", "launch"),
    [("0s", 0.0, 9e-6), ("15us", 15e-6, 9e-6), ("profile", 9e-6, 0.0)],
)
def test_what_launching_took_is_the_devices_or_the_hosts(given, issue, launch):
    gpu = DeviceConfig("p", "ram", completion_latency="10us", issue_overhead=given)
    cluster = build_cluster(config(devices={"gpu": gpu}, links={}), launch_overheads={"p": 9e-6})
    (device,) = cluster.devices
    assert (device.issue_overhead, device.launch_overhead) == pytest.approx((issue, launch))


def test_launchers_are_taken_over():
    one = DeviceConfig("p", "ram", count=2, launcher="process", launch_handover="20us")
    cluster = build_cluster(config(devices={"gpu": one, "cpu": DeviceConfig("p", "ram")}, links={}))
    found = [(d.launcher, d.launch_handover) for d in cluster.devices]
    assert found == [*2 * [("process", pytest.approx(2e-5))], (None, 0.0)]


def test_waking_is_taken_over():
    sleepy = DeviceConfig("p", "ram", wake_cost="1.5ms", wake_after="8ms")
    cluster = build_cluster(
        config(devices={"gpu": sleepy, "cpu": DeviceConfig("p", "ram")}, links={})
    )
    found = [(d.wake_cost, d.wake_after) for d in cluster.devices]
    assert found == [(pytest.approx(1.5e-3), pytest.approx(8e-3)), (0.0, pytest.approx(1e-2))]


def test_launches_that_cool_are_taken_over():
    curve = {"5ms": 3, "20us": 0.5}
    cooling = DeviceConfig("p", "ram", launcher="host", launch_passed=2, launch_cooling=curve)
    cluster = build_cluster(
        config(devices={"gpu": cooling, "cpu": DeviceConfig("p", "ram")}, links={})
    )
    first, second = cluster.devices
    assert (first.launch_passed, second.launch_passed, second.launch_cooling) == (2, 0, None)
    assert first.launch_cooling.after == pytest.approx((2e-5, 5e-3))
    assert first.launch_cooling.factors == (0.5, 3.0)


@pytest.mark.parametrize("curve", ["5ms", [1, 2], {"5ms": "long"}, {"5": 1}, {"5ms": 1, "20us": 2}])
def test_what_is_no_curve_of_cooling_launches_is_refused(curve):
    device = DeviceConfig("p", "ram", launch_cooling=curve)
    with pytest.raises(InvalidInput, match=r"launch_cooling|curve of cooling|no unit"):
        build_cluster(config(devices={"gpu": device}, links={}))


def test_measured_slowdown_is_the_largest_of_the_profiles_in_a_space():
    spaces = {
        "ram": SpaceConfig(corun_slowdown="profile", bus="host"),
        "vram": SpaceConfig(per_device=True, corun_slowdown=0.2),
    }
    devices = {
        "cpu": DeviceConfig("core", "ram", count=2),
        "slow": DeviceConfig("slow-core", "ram"),
        "absent": DeviceConfig("unmeasured", "ram", count=0),
        "gpu": DeviceConfig("some-gpu", "vram", slots=2),
    }
    cluster = build_cluster(
        config(spaces=spaces, devices=devices),
        corun_slowdowns={"core": 0.03, "slow-core": 0.05, "some-gpu": 0.9},
    )
    assert [space.corun_slowdown for space in cluster.spaces] == [0.05, 0.2]
    assert [space.bus for space in cluster.spaces] == ["host", None]


@pytest.mark.parametrize(
    ("given", "curve"),
    [
        (None, None),
        ("profile", ReuseCurve((1e6, 2e6), (1.0, 0.25))),
        ("2 MiB", ReuseCurve((2.0 * 2**20,), (1.0,))),
        ({"3 MB": 0, "1 MB": 1}, ReuseCurve((1e6, 3e6), (1.0, 0.0))),
    ],
)
def test_a_cache_is_measured_or_stated(given, curve):
    spaces = {"ram": SpaceConfig(cache=given), "vram": SpaceConfig(per_device=True)}
    cluster = build_cluster(
        config(spaces=spaces), reuse_curves={"some-core": ReuseCurve((1e6, 2e6), (1.0, 0.25))}
    )
    assert [space.cache for space in cluster.spaces[:2]] == [curve, None]


def test_what_a_use_leaves_is_measured_or_stated():
    measured = {"some-core": ReuseCurve((1e6, 2e6), (1.0, 0.25), (0.4,))}
    for given, stated, taken in (
        ("profile", None, (0.4,)),
        ("profile", 0.7, (0.7,)),
        ("profile", [0.1, 0.7], (0.1, 0.7)),
        ("2 MiB", 0.3, (0.3,)),
        ("2 MiB", None, (1.0,)),
    ):
        spaces = {"ram": SpaceConfig(cache=given, cache_taken=stated), "vram": SpaceConfig()}
        cluster = build_cluster(config(spaces=spaces), reuse_curves=measured)
        assert cluster.spaces[0].cache.taken == taken


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"spaces": {"ram": SpaceConfig(cache_taken=0.5), "vram": SpaceConfig()}},
            "'ram'.*cache_taken=0.5 and no cache",
        ),
        (
            {"spaces": {"ram": SpaceConfig(cache="1 MB", cache_taken=2), "vram": SpaceConfig()}},
            r"taken=\[2\]",
        ),
        (
            {
                "spaces": {
                    "ram": SpaceConfig(cache="1 MB", cache_taken="all"),
                    "vram": SpaceConfig(),
                }
            },
            "cache_taken=all; give a share",
        ),
        (
            {"spaces": {"ram": SpaceConfig(cache="profile"), "vram": SpaceConfig()}},
            "cache of memory space 'ram'.*'some-core', for which none was measured",
        ),
        ({"spaces": {"ram": SpaceConfig(cache="16"), "vram": SpaceConfig()}}, "'ram'.*no unit"),
        (
            {"spaces": {"ram": SpaceConfig(cache={"1 MB": "x"}), "vram": SpaceConfig()}},
            "cache of memory space 'ram'.*give shares",
        ),
        (
            {"spaces": {"ram": SpaceConfig(cache={"1 MB": 0, "2 MB": 1}), "vram": SpaceConfig()}},
            "reuse curve",
        ),
        ({"devices": {"cpu": DeviceConfig("p", "rom")}}, "'rom'.*lacks; it has ram, vram"),
        ({"devices": {"cpu": DeviceConfig("p", "ram", count=-1)}}, "count >= 0"),
        ({"devices": {"a": DeviceConfig("p", "vram"), "b": DeviceConfig("p", "vram")}}, "'b'"),
        ({"links": {"l": LinkConfig(["ram", "rom"], "1 GB/s")}}, "'rom'"),
        ({"links": {"l": LinkConfig(["ram"], "1 GB/s")}}, "two ends"),
        ({"links": {"l": LinkConfig(["ram", "vram"], "1 Gb/s")}}, "link 'l'.*ambiguous"),
        ({"spaces": {"ram": SpaceConfig("24"), "vram": SpaceConfig()}}, "'ram'.*no unit"),
        ({"devices": {"cpu": DeviceConfig("p", "ram", launch_overhead="5")}}, "'cpu'.*no unit"),
        ({"devices": {"cpu": DeviceConfig("p", "ram", power_busy="70")}}, "busy power.*no unit"),
        ({"devices": {"cpu": DeviceConfig("p", "ram", power_idle="-1 W")}}, "idle power -1"),
        ({"devices": {"cpu": DeviceConfig("p", "ram", price="2 EUR/h")}}, "price.*unknown unit"),
        ({"devices": {"cpu": DeviceConfig("p", "ram", issue_depth=0)}}, "issue_depth 0"),
        (
            {"devices": {"cpu": DeviceConfig("p", "ram", completion_latency="9")}},
            "latency.*no unit",
        ),
        (
            {
                "devices": {
                    "cpu": DeviceConfig(
                        "p", "ram", completion_latency="9us", issue_overhead="profile"
                    )
                }
            },
            "'cpu'.*issue_overhead.*profile 'p', for which no launch was measured; give seconds",
        ),
        ({"devices": {}}, "no devices"),
        (
            {"spaces": {"ram": SpaceConfig(corun_slowdown="some"), "vram": SpaceConfig()}},
            "'ram'.*corun_slowdown 'some'; give a fraction such as 0.03, or profile",
        ),
        (
            {"spaces": {"ram": SpaceConfig(corun_slowdown="profile"), "vram": SpaceConfig()}},
            "'ram'.*profile 'some-core', for which none was measured",
        ),
    ],
)
def test_refusals_name_the_thing(changes, reason):
    with pytest.raises(InvalidInput, match=reason):
        build_cluster(config(**changes))


def test_far_inputs_are_read_by_the_megabyte():
    costs = {"4MiB": "0us", "32 MiB": "15us", "elsewhere": "20us"}
    device = DeviceConfig("p", "ram", count=2, far_inputs=costs)
    cluster = build_cluster(
        ClusterConfig("c", devices={"cpu": device}, spaces={"ram": SpaceConfig()}, host="ram")
    )
    for one in cluster.devices:
        assert one.far_inputs.distances == (2.0**22, 2.0**25)
        assert one.far_inputs.costs == pytest.approx((0.0, 1.5e-11))
        assert one.far_inputs.elsewhere == pytest.approx(2e-11)


@pytest.mark.parametrize("given", ["4MiB", {}, {"elsewhere": "3us"}])
def test_far_inputs_without_distances_are_refused(given):
    device = DeviceConfig("p", "ram", far_inputs=given)
    with pytest.raises(InvalidInput, match="give distances and what a megabyte takes longer"):
        build_cluster(
            ClusterConfig("c", devices={"cpu": device}, spaces={"ram": SpaceConfig()}, host="ram")
        )


def test_the_limits_are_those_of_the_whole_cluster(monkeypatch):
    """Many entries of an allowed size each must not add up to a cluster that takes the memory."""
    monkeypatch.setattr(cluster_config, "MOST_DEVICES", 7)
    spaces = {"a": SpaceConfig(per_device=True), "b": SpaceConfig(per_device=True)}
    devices = {name: DeviceConfig("p", name, count=4) for name in "ab"}
    with pytest.raises(InvalidInput, match="more than 7 devices"):
        build_cluster(ClusterConfig("c", spaces, devices))
    monkeypatch.setattr(cluster_config, "MOST_DEVICES", 8)
    monkeypatch.setattr(cluster_config, "MOST_LINKS", 27)
    links = {"x": LinkConfig(["a", "b"], "1 GB/s"), "y": LinkConfig(["a", "a"], "1 GB/s")}
    build_cluster(ClusterConfig("c", spaces, devices, links))
    links["z"] = LinkConfig(["b", "b"], "1 GB/s")
    with pytest.raises(InvalidInput, match="'z' of cluster 'c' would make more than 27 links"):
        build_cluster(ClusterConfig("c", spaces, devices, links))
