"""Jobs of stages: their phases, and devices of their own."""

from __future__ import annotations

import re

import numpy as np
import pytest

from scenarios.family_config import FamilyConfig, draw_instance
from scenarios.random_graphs import Draws, Times
from scenarios.random_graphs.staged_jobs import StagedJobs
from simulator.errors import InvalidInput

FAMILY = StagedJobs(3, 12, 1.0, 2, 0.5, 0.4, 0.5)
SHOP = Times(3, "dedicated", work_spread=0.5, ccr=0)


def test_a_stage_fetches_when_its_parents_are_through() -> None:
    graph, cluster, costs = SHOP.instance("jobs", FAMILY.draw(Draws(3)), 3)
    assert [device.name for device in cluster.devices] == ["network", "processor", "disk"]
    names = [operator.name for operator in graph.operators]
    last = {name.rsplit(".", 1)[0]: name for name in sorted(names)}  # compute < fetch < write
    last = {
        stage: f"{stage}.write" if f"{stage}.write" in names else f"{stage}.compute"
        for stage in last
    }
    for i, name in enumerate(names):
        stage, phase = name.rsplit(".", 1)
        parents = [names[j] for j in graph.predecessors[i]]
        if phase == "fetch":
            assert all(last[p.rsplit(".", 1)[0]] == p for p in parents)
            assert {p.split(".")[0] for p in parents} <= {stage.split(".")[0]}  # of its own job
        else:
            assert parents == [f"{stage}.{'fetch' if phase == 'compute' else 'compute'}"]
        able = np.flatnonzero(np.isfinite(costs[graph].seconds[i])).tolist()
        assert able == [["fetch", "compute", "write"].index(phase)]
    assert len({name.split(".")[0] for name in names}) == 3
    assert sum(name.endswith("fetch") for name in names) == 36
    assert 8 < sum(name.endswith("write") for name in names) < 28
    finite = costs[graph].seconds[np.isfinite(costs[graph].seconds)]
    assert finite.mean() == pytest.approx(1.0)


def test_shares_of_the_fetching() -> None:
    shape = StagedJobs(1, 400, 1.0, 2, 0.4, 0.3, 0.0).draw(Draws(0))
    fetching = shape.work[0::2]
    assert shape.work[1::2] == pytest.approx(1 - fetching)
    assert 0.1 <= fetching.min() < 0.12 < 0.68 < fetching.max() <= 0.7
    assert fetching.mean() == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fetch_share": 0.2}, "give at most 0.2"),
        ({"devices": 2}, "family.devices=2 must be 3"),
        ({"sharing": "fair"}, "no family.sharing=fair"),
        ({"jobs": 0}, "family.jobs=0"),
        ({"writing": 1.5}, "family.writing=1.5"),
    ],
)
def test_refusals(changes: dict[str, object], reason: str) -> None:
    config = FamilyConfig(
        "staged_jobs", "staged_jobs", jobs=1, stages=5, alpha=1.0, degree=2, fetch_share=0.5,
        share_spread=0.4, writing=0.0, heterogeneity="dedicated", ccr=0, task_time="1s",
    )  # fmt: skip
    draw_instance(config)
    for key, value in changes.items():
        setattr(config, key, value)
    with pytest.raises(InvalidInput, match=re.escape(reason)):
        draw_instance(config)


def test_other_families_are_for_no_device() -> None:
    config = FamilyConfig("p", "erdos_renyi", n=5, p=0.5, heterogeneity="dedicated", ccr=0)
    with pytest.raises(InvalidInput, match="for no device of their own"):
        draw_instance(config)
