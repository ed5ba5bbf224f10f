"""Lower bounds against closed forms, brute force and certified optima."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from scenarios.instances import instance_from_json
from simulator.analysis.bounds import critical_path, load_bound, lower_bound, workload_bound
from simulator.model.cluster import Cluster, Device, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from tests.examples import examples

ORACLES = Path(__file__).parents[1] / "oracles"
CERTIFIED: list[dict[str, Any]] = json.loads((ORACLES / "certified.json").read_text())
CLASSIC: dict[str, Any] = json.loads((ORACLES / "classic.json").read_text())


def test_topcuoglu() -> None:
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"])
    bounds = lower_bound(graph, costs[graph].seconds, cluster)
    assert bounds.critical_path_s == 9 + 13 + 12 + 7  # 1, 2, 9, 10 on their fastest devices
    assert bounds.area_s == pytest.approx((9 + 13 + 11 + 8 + 10 + 9 + 7 + 5 + 12 + 7) / 3)
    assert bounds.area_s <= bounds.load_s <= 73
    assert max(bounds.critical_path_s, bounds.area_s, bounds.load_s) == 41
    assert bounds.bound_s == bounds.path_load_s == pytest.approx(42.11556, abs=1e-4)
    assert bounds.binding == "path and load"
    assert bounds.gap(2 * bounds.bound_s) == 1.0


@pytest.mark.parametrize("document", CERTIFIED, ids=lambda d: f"seed{d['seed']}")
def test_never_above_a_certified_optimum(document: dict[str, Any]) -> None:
    graph, cluster, costs = instance_from_json(document)
    assert lower_bound(graph, costs[graph].seconds, cluster).bound_s <= document["optimum"]


def test_related_devices_share_by_speed() -> None:
    """Times w / speed: the divisible optimum is the sum of w over the sum of speeds."""
    rng = np.random.default_rng(0)
    work, speed = rng.lognormal(0, 1, 50) * 1e-6, np.array([1.0, 1.0, 2.0, 5.0])
    found = load_bound(work[:, None] / speed, np.ones(50), np.ones(4))
    assert found == pytest.approx(work.sum() / speed.sum(), rel=1e-9)


def test_the_load_bound_sees_what_the_area_does_not() -> None:
    """Everything is fast on one device: 10 x 1 s there, or 9 s each elsewhere."""
    graph, cluster = from_edges("ten", 10, []), fully_connected("two", 2)
    bounds = lower_bound(graph, np.array([[1.0, 9.0]] * 10), cluster)
    assert bounds.area_s == 5
    assert bounds.load_s == pytest.approx(9.0)  # x on A, 10 - x on B: x = 9 (10 - x)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_the_load_bound_is_the_linear_programme(data: st.DataObject) -> None:
    rows, devices = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    seconds = np.empty((rows, devices))
    for i in range(rows):
        row = data.draw(
            st.lists(
                st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.7, math.inf]),
                min_size=devices,
                max_size=devices,
            )
        )
        seconds[i] = row
        if not np.isfinite(seconds[i]).any():
            seconds[i, 0] = 2.0
    copies = np.array(data.draw(st.lists(st.integers(1, 4), min_size=rows, max_size=rows)), float)
    slots = np.array(
        data.draw(st.lists(st.integers(1, 3), min_size=devices, max_size=devices)), float
    )
    found = load_bound(seconds * 1e-6, copies, slots)
    # The same programme written out naively: one variable for each copy of each row and device.
    times = np.repeat(seconds, copies.astype(int), axis=0)
    pairs = list(itertools.product(range(len(times)), range(devices)))
    load = np.zeros((devices, len(pairs) + 1))
    once = np.zeros((len(times), len(pairs) + 1))
    upper = [1.0 if math.isfinite(times[i, p]) else 0.0 for i, p in pairs]
    for k, (i, p) in enumerate(pairs):
        load[p, k] = times[i, p] if math.isfinite(times[i, p]) else 0.0
        once[i, k] = 1.0
    load[:, -1] = -slots
    plain = linprog(
        [0.0] * len(pairs) + [1.0],
        load,
        np.zeros(devices),
        once,
        np.ones(len(times)),
        bounds=[*((0.0, u) for u in upper), (0.0, None)],
    )
    assert found * 1e6 == pytest.approx(plain.fun, rel=1e-6, abs=1e-7)


def test_critical_path() -> None:
    graph = from_edges("diamond", 4, [(0, 1, 9.0), (0, 2, 9.0), (1, 3, 9.0), (2, 3, 9.0)])
    assert critical_path(graph, [1.0, 5.0, 2.0, 1.5]) == 7.5


def test_slots_and_launch_overheads_count() -> None:
    cluster = Cluster(
        "pool", [MemorySpace("a")], [Device("cpu", "a", slots=4, launch_overhead=0.5)]
    )
    bounds = lower_bound(from_edges("eight", 8, []), np.ones((8, 1)), cluster)
    assert (bounds.critical_path_s, bounds.area_s) == (1.5, 3.0)
    assert bounds.load_s == pytest.approx(3.0)


def test_jobs_share_the_devices_from_the_first_arrival_on() -> None:
    chain, single = from_edges("chain", 2, [(0, 1, 1.0)]), from_edges("single", 1, [])
    cluster = fully_connected("two", 2)
    costs = {
        chain: GraphCosts(np.array([[4.0, 5.0], [5.0, 4.0]])),
        single: GraphCosts(np.array([[2.0, 2.0]])),
    }
    workload = Workload([Job(chain, 3.0), Job(single, 4.0), Job(single, 10.0), Job(chain, 10.0)])
    bounds = workload_bound(workload, costs, cluster)
    assert bounds.critical_path_s == 18  # the last job: 10 + 4 + 4
    assert bounds.area_s == 3 + (8 + 2 + 2 + 8) / 2
    assert bounds.load_s == pytest.approx(13)
    assert bounds.bound_s == 18
    alone = workload_bound(Workload([Job(chain)]), CostTable(costs), cluster)
    assert alone == lower_bound(chain, costs[chain].seconds, cluster)


def test_no_work_at_all() -> None:
    bounds = lower_bound(from_edges("nothing", 2, []), np.zeros((2, 2)), fully_connected("two", 2))
    assert (bounds.bound_s, bounds.gap(0.0)) == (0.0, 0.0)
