"""Devices' times and edges: means as asked for, factors in their range, streams of their own."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.random_graphs import FAMILIES, Draws, Shape, Times
from simulator.errors import InvalidInput

SHAPE = FAMILIES["layered"](n=200, alpha=1.0, degree=3).draw(Draws(5))


def parts(seed=0, shape=SHAPE, **options):
    usual = {"devices": 3, "heterogeneity": "unrelated", "speeds": (1.0, 4.0, 10.0), "beta": 1.0}
    graph, cluster, costs = Times(**(usual | options)).instance("g", shape, seed)
    return graph, cluster, costs[graph].seconds


@settings(deadline=None)
@given(
    st.sampled_from(["unrelated", "related", "both"]),
    st.floats(0, 2),
    st.floats(0.01, 1e4),
    st.floats(1e-6, 1e3),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_ratio_and_mean_are_met_exactly(kind, beta, ccr, task_s, devices, seed):
    graph, _, seconds = parts(
        seed, heterogeneity=kind, beta=beta, ccr=ccr, task_s=task_s, devices=devices
    )
    assert seconds.mean() == pytest.approx(task_s, rel=1e-12)
    assert graph.tensor_bytes.mean() / seconds.mean() == pytest.approx(ccr, rel=1e-12)


@given(st.floats(0, 2), st.integers(0, 99))
def test_unrelated_factors_are_in_topcuoglus_range(beta, seed):
    _, _, seconds = parts(seed, beta=beta, task_s=None, ccr=None, bandwidth=1.0, devices=4)
    assert (seconds >= 1 - beta / 2 - 1e-12).all()
    assert (seconds <= 1 + beta / 2 + 1e-12).all()
    if beta > 0.1:
        # 800 uniform factors: both halves of the range are met, by every device differently.
        assert seconds.min() < 1 - beta / 2 * 0.9
        assert seconds.max() > 1 + beta / 2 * 0.9
        assert seconds.mean() == pytest.approx(1, abs=beta * 0.06)
        assert abs(np.corrcoef(seconds.T) - np.eye(4)).max() < 0.35


def test_related_devices_have_the_speeds_given_in_turn():
    _, _, seconds = parts(heterogeneity="related", devices=5, work_spread=1.0)
    ratios = seconds[:, :1] / seconds
    assert np.allclose(ratios, [1, 4, 10, 1, 4], rtol=1e-12)
    assert len(set(seconds[:, 0].tolist())) == 200


def test_both_are_speeds_with_factors_around_them():
    _, _, plain = parts(heterogeneity="related", work_spread=1.0, task_s=None)
    _, _, seconds = parts(heterogeneity="both", beta=0.4, work_spread=1.0, task_s=None)
    factors = seconds / plain
    assert 0.8 <= factors.min() < 0.82
    assert 1.18 < factors.max() <= 1.2


def test_each_part_has_draws_of_its_own():
    graph, _, seconds = parts(work_spread=0.5, data_spread=0.5, task_s=None, ccr=2.0)
    more_graph, _, more = parts(work_spread=0.5, data_spread=0.5, task_s=None, ccr=4.0, devices=5)
    assert more[:, :3].tolist() == seconds.tolist()
    ratio = more_graph.tensor_bytes / graph.tensor_bytes
    assert ratio == pytest.approx(ratio[0])
    _, _, other = parts(work_spread=0.0, data_spread=0.5, task_s=None, ccr=2.0)
    assert not np.allclose(other, seconds)


def test_spreads_and_no_spread():
    graph, _, _ = parts(data_spread=0.0, ccr=1.0)
    assert len(set(graph.tensor_bytes.tolist())) == 1
    graph, _, _ = parts(data_spread=1.0, ccr=1.0)
    sizes = graph.tensor_bytes / graph.tensor_bytes.mean()
    assert 0 <= sizes.min() < 0.05
    assert 1.9 < sizes.max() < 2.15


def test_bytes_take_what_the_bandwidth_says():
    shape = Shape.of([(0, 1), (1, 2)], [1.0, 2.0, 3.0], [100.0, 300.0])
    graph, _, seconds = parts(
        shape=shape,
        heterogeneity="related",
        speeds=(1.0, 2.0),
        devices=2,
        ccr=None,
        task_s=None,
        bandwidth=200.0,
    )
    assert graph.tensor_bytes.tolist() == [0.5, 1.5]
    assert seconds.tolist() == [[1.0, 0.5], [2.0, 1.0], [3.0, 1.5]]


def test_graphs_without_edges_and_links_of_one_channel():
    shape = Shape.of([], [1.0, 2.0])
    graph, cluster, seconds = parts(shape=shape, ccr=4.0, half_duplex=True)
    assert len(graph.tensors) == 0
    assert math.isclose(seconds.mean(), 1.0)
    assert all(link.half_duplex for link in cluster.links)
    assert len(cluster.links) == 3
    # One memory for each device.
    assert cluster.space_of == (0, 1, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "family.devices=0 must be at least 1 and at most 1,024"),
        ({"heterogeneity": "odd"}, "There is no family.heterogeneity=odd; known: unrelated"),
        ({"speeds": ()}, r"family.speeds is empty; give at least one, e.g. \[1,4,10\]"),
        ({"speeds": (1.0, 0.0)}, "family.speeds=0.0 must be at least"),
        ({"beta": 2.1}, "family.beta=2.1 must be at least 0 and at most 2"),
        ({"work_spread": -1}, "family.work_spread=-1 must be"),
        ({"data_spread": 1.5}, "family.data_spread=1.5 must be"),
        ({"ccr": -0.5}, "family.ccr=-0.5 must be at least 0"),
        ({"task_s": 0.0}, "family.task_time=0.0 must be at least"),
        ({"ccr": 1.0, "bandwidth": 5.0}, "family.ccr=1 scales what edges take, so"),
        ({"ccr": None}, "edges of 'g' have sizes; say what they take by family.ccr"),
        ({"shape": Shape.of([], [0.0])}, "No task of 'g' takes any time"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InvalidInput, match=message):
        parts(**options)
