"""Flow shops and cuts of identical jobs: known answers, and all orders and choices of small ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InvalidInput
from simulator.planners import flow_shop, job_cuts
from tests.examples import examples

TWO = [(4, 5), (4, 1), (30, 4), (6, 30), (2, 3)]
OTHER = [(3, 6), (5, 2), (1, 2), (6, 6), (7, 5)]
THREE = [(8, 2, 4), (5, 4, 5), (6, 1, 3), (7, 3, 2)]
NETWORK = np.array([(0, 12), (2, 9), (4, 6), (6, 4), (8, 2), (10, 0)])
"""Seconds on the device and of the upload, for each cut of a chain of five layers."""
RULES = (job_cuts.one_cut, job_cuts.two_cuts, job_cuts.ratio_rule)


def by_definition(times, order):
    """Each stage begins when the job's last and the machine's last have ended."""
    end = {}
    for position, job in enumerate(order):
        for stage, seconds in enumerate(times[job]):
            before = end.get((position - 1, stage), 0), end.get((position, stage - 1), 0)
            end[position, stage] = max(before) + seconds
    return max(end.values())


def best(times):
    """Of all orders."""
    return min(by_definition(times, order) for order in itertools.permutations(range(len(times))))


def least_of_all_cuts(jobs):
    """The least makespan of all choices of cuts of :data:`NETWORK`, in Johnson's order, which is that of the cuts.

    ``n`` jobs of ``f`` and ``g`` behind others that leave device and link at ``a`` and ``b`` leave them at ``a + n f``
    and at the largest of ``b + n g``, ``a + f + n g`` and ``a + n f + g``.
    """
    bars = np.array(list(itertools.combinations(range(jobs + 5), 5)))
    ends = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), jobs + 5)])
    counts = np.diff(ends, axis=1) - 1
    assert (counts.sum(axis=1) == jobs).all()
    a, b = np.zeros((2, len(counts)))
    for (f, g), n in zip(NETWORK, counts.T, strict=True):
        after = np.maximum(b + n * g, np.maximum(a + f + n * g, a + n * f + g))
        a, b = a + n * f, np.where(n > 0, after, b)
    return b.min()


@pytest.mark.parametrize(
    ("times", "order", "makespan", "arrival"),
    [
        (TWO, [4, 0, 3, 2, 1], 47, 77),
        (OTHER, [2, 0, 3, 4, 1], 24, 27),
        (THREE, [1, 0, 3, 2], 30, 31),
    ],
)
def test_johnson_known_answers(times, order, makespan, arrival):
    assert flow_shop.johnson(times) == order
    assert flow_shop.makespan(times, order) == makespan
    assert flow_shop.makespan(times) == arrival == by_definition(times, range(len(times)))
    assert best(times) == makespan


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=5))
def test_orders_against_all_orders(times):
    two = [row[:2] for row in times]
    assert flow_shop.makespan(two, flow_shop.johnson(two)) == best(two)
    rule = flow_shop.makespan(times, flow_shop.johnson(times))
    assert rule == by_definition(times, flow_shop.johnson(times)) >= best(times)
    first, second, third = np.array(times).T
    if max(first.min(), third.min()) >= second.max():
        assert rule == best(times)
    assert flow_shop.makespan(times, flow_shop.neh(times)) >= best(times)


def test_neh_is_no_better_than_the_best_order_and_near_it():
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(20):
        times = rng.integers(1, 30, (6, 3))
        gaps.append(flow_shop.makespan(times, flow_shop.neh(times)) / best(times) - 1)
    assert min(gaps) >= 0
    assert np.mean(gaps) < 0.02


@pytest.mark.parametrize(
    ("jobs", "local", "cloud", "found"),
    [
        (1, 10, 12, (10, 10, 10, 10)),
        (4, 40, 48, (28, 22, 24, 22)),
        (8, 80, 96, (52, 44, 44, 42)),
        (10, 100, 120, (64, 52, 54, 52)),
        (20, 200, 240, (124, 104, 104, 102)),
    ],
)
def test_cuts_of_identical_jobs(jobs, local, cloud, found):
    assert job_cuts.pipelined(NETWORK, [5] * jobs) == local
    assert job_cuts.pipelined(NETWORK, [0] * jobs) == cloud
    made = [job_cuts.pipelined(NETWORK, rule(NETWORK, jobs)) for rule in RULES]
    assert (*made, least_of_all_cuts(jobs)) == found


def test_the_ratio_rule_balances_device_and_link():
    cuts = job_cuts.ratio_rule(NETWORK, 1000)
    busy = NETWORK[list(cuts)].sum(0)
    assert set(cuts) == {2, 3}
    assert abs(busy[0] - busy[1]) <= 4
    assert job_cuts.ratio_rule([(5, 9), (7, 7), (9, 1)], 3) == (1, 1, 1)


def test_other_numbers_of_stages_are_refused():
    with pytest.raises(InvalidInput, match="two stages or three"):
        flow_shop.johnson([(1, 2, 3, 4)])
