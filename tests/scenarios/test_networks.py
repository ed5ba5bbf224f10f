"""Networks by name: their bandwidths, in clusters, varying, and what is refused."""

import pytest

from scenarios.bandwidth import BandwidthConfig, bandwidth_faults
from scenarios.cluster_config import (
    ClusterConfig,
    DeviceConfig,
    LinkConfig,
    SpaceConfig,
    build_cluster,
)
from scenarios.networks import NETWORKS, link_bandwidth
from simulator.errors import InvalidInput


@pytest.mark.parametrize(
    ("name", "mbit"), [("3g", 1.1), ("4g", 5.85), ("wifi", 18.88), ("4G", 5.85), (" WiFi ", 18.88)]
)
def test_a_network_is_its_bandwidth(name, mbit):
    assert link_bandwidth(name) == pytest.approx(mbit * 1e6 / 8, rel=1e-15)
    assert link_bandwidth(f"{mbit} Mbit/s") == link_bandwidth(name)


def cluster(bandwidth, varies=None):
    config = ClusterConfig(
        "c",
        {"users": SpaceConfig(), "edge": SpaceConfig()},
        {"d": DeviceConfig("p", "edge")},
        {"way": LinkConfig(["users", "edge"], bandwidth, varies=varies)},
        "users",
    )
    return config, build_cluster(config)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_link_of_a_network_may_vary(name, tmp_path):
    file = tmp_path / "b.csv"
    # In bytes per second: half of the network's own.
    file.write_text(f"time_s,bandwidth\n0,{link_bandwidth(name) / 2}\n1,{link_bandwidth(name)}\n")
    config, built = cluster(name, BandwidthConfig(file=str(file)))
    assert built.links[0].bandwidth == link_bandwidth(name)
    (fault,) = bandwidth_faults(config, built, 0)
    assert (fault.start, fault.end, fault.factor) == (0, 1, pytest.approx(0.5))
    drawn = BandwidthConfig(step="1s", sigma=0.5, length="60s")
    shares = [f.factor for f in bandwidth_faults(*cluster(name, drawn), 0)]
    assert len({*shares}) > 20
    # The same shares of whatever goes through.
    assert shares == [f.factor for f in bandwidth_faults(*cluster("1 GB/s", drawn), 0)]


def test_what_is_no_network_is_refused():
    with pytest.raises(
        InvalidInput, match=r"'5g' has the unknown unit.*name a network: 3g, 4g, wifi"
    ):
        cluster("5g")
    with pytest.raises(InvalidInput, match="bandwidth of link 'way'"):
        cluster("wired")
    # A memory is no link.
    spaces = {"edge": SpaceConfig(bandwidth="4g")}
    with pytest.raises(InvalidInput, match="unknown unit"):
        build_cluster(ClusterConfig("c", spaces, {"d": DeviceConfig("p", "edge")}))


@pytest.mark.parametrize(
    ("varies", "message"),
    [
        ("4g", r"has varies=4g; write it like \{step: 500ms"),
        ({"sigm": 0.5}, r"has varies.sigm, which there is not; known: file, step, sigma"),
        ({"sigma": "wide"}, r"has varies.sigma=wide; give a number"),
        ({"step": 5}, r"has varies.step=5; give a text"),
    ],
)
def test_how_a_link_varies_is_checked(varies, message):
    with pytest.raises(InvalidInput, match=message):
        bandwidth_faults(*cluster("4g", varies), 0)


def test_a_mapping_says_the_same():
    given = {"step": "1s", "sigma": 0.5, "length": "60s", "median": 1}
    expected = bandwidth_faults(*cluster("4g", BandwidthConfig(**given)), 3)
    assert bandwidth_faults(*cluster("4g", given), 3) == expected != ()
