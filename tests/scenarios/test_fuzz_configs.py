"""Clusters and workloads as configs describe them, damaged: refused in one sentence, or simulated.

As on the command line, a document passes the schema first (OmegaConf), whose own refusals are printed
in one line by ``experiments.runs.command``.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.runs.command import readable
from scenarios.arrivals import WorkloadConfig, arrival_times, build_workload
from scenarios.cluster_config import ClusterConfig, build_cluster
from simulator.analysis.metrics import metrics
from simulator.engine.run import simulate
from simulator.errors import HetsimError
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import create
from tests.simulator.mutations import check_refusal, mutated

FUZZ = settings(deadline=timedelta(seconds=2), suppress_health_check=[HealthCheck.too_slow])
GRAPH = from_edges("fork", 4, [(0, 1, 1e6), (0, 2, 0.0), (1, 3, 2.0**63), (2, 3, 1.0)])
CLUSTER: dict[str, Any] = {
    "name": "box",
    "host": "ram",
    "spaces": {"ram": {"capacity": "24 GiB"}, "vram": {"capacity": "16 GB", "per_device": True}},
    "devices": {
        "cpu": {"profile": "core", "space": "ram", "count": 2, "launch_overhead": "5us"},
        "gpu": {"profile": "card", "space": "vram", "count": 2, "slots": 2},
    },
    "links": {
        "pcie": {"ends": ["ram", "vram"], "bandwidth": "12 GB/s", "latency": "10us"},
        "nvlink": {"ends": ["vram", "vram"], "bandwidth": "100 GB/s", "half_duplex": True},
    },
}
WORKLOADS: list[dict[str, Any]] = [
    {"name": "one", "arrivals": "single", "jobs": 1},
    {"name": "poisson", "arrivals": "poisson", "jobs": 20, "rate": "10/s"},
    {"name": "periodic", "arrivals": "periodic", "jobs": 20, "period": "100ms"},
]
QUANTITIES = st.sampled_from(
    [
        *("0", "0 s", "1 s", "1e-300 s", "1e300 s", "1e999 s", "-1 s", "1e12 h", "5 us", "5us us"),
        *("1 B/s", "1e-300 B/s", "1e300 GB/s", "0 B/s", "1 Gb/s", "1 GB", "1e400 GB", "nan GB"),
        *(
            "1/s",
            "1e-300/s",
            "1e300/s",
            "0/s",
            "inf/s",
            "1",
            "",
            " ",
            "s",
            "½ s",
            "１ s",
            "1 s\n1 s",
        ),
        *("1e999999999 s", "1e-999999999 B/s", "9" * 400 + " GiB", "W", "1 W", "1/h"),
    ]
)


@st.composite
def with_quantity(draw: st.DrawFn, document: dict[str, Any]) -> Any:
    """The document after other damage, perhaps, with one of its texts replaced by a quantity."""
    changed = copy.deepcopy(draw(st.one_of(st.just(document), mutated(document))))
    owners = [changed] if isinstance(changed, dict) else []
    for owner in owners:
        owners += [v for v in owner.values() if isinstance(v, dict)]
    places = [(o, k) for o in owners for k, v in o.items() if isinstance(v, str)]
    if places:
        owner, key = draw(st.sampled_from(places))
        owner[key] = draw(QUANTITIES)
    return changed


def typed(document: Any, schema: type) -> Any:
    """As a command reads it; None where the schema refuses, in one line."""
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), document))
    except (OmegaConfBaseException, ValueError, TypeError) as error:
        # YAML can hold neither NaN keys nor lists at the top; Hydra refuses those by itself.
        if isinstance(error, OmegaConfBaseException):
            check_refusal(HetsimError(readable(error).ljust(11)))
        return None


@settings(FUZZ, max_examples=100)
@given(document=with_quantity(CLUSTER))
@example(CLUSTER)
@example(CLUSTER | {"devices": {"cpu": {"profile": "c", "space": "ram", "count": 10**12}}})
@example(CLUSTER | {"devices": {"cpu": {"profile": "c", "space": "ram", "slots": 10**12}}})
@example(CLUSTER | {"devices": {"gpu": {"profile": "c", "space": "vram", "count": 4000}}})
@example(
    CLUSTER
    | {
        "devices": {
            "cpu0": {"profile": "c", "space": "ram"},
            "cpu": {"profile": "c", "space": "ram", "count": 2},
        }
    }
)
def test_changed_clusters(document: Any) -> None:
    config = typed(document, ClusterConfig)
    if config is None:
        return
    try:
        cluster = build_cluster(config)
        cluster.check_connected()
    except HetsimError as error:
        check_refusal(HetsimError(readable(error)))
        return
    costs = CostTable.of(GRAPH, np.ones((4, len(cluster.devices))))
    for contention in ("none", "fifo"):
        trace = simulate(GRAPH, cluster, costs, create("heft"), contention=contention)
        assert np.isfinite(trace.makespan)
        assert metrics(trace)["jobs_finished"] == 1


@settings(FUZZ, max_examples=100)
@given(document=st.sampled_from(WORKLOADS).flatmap(with_quantity), seed=st.integers(0, 9))
@example(WORKLOADS[1] | {"jobs": 10**12}, 0)
@example(WORKLOADS[2] | {"jobs": 10**12}, 0)
@example(WORKLOADS[2] | {"period": "1e300 s"}, 0)
@example(WORKLOADS[1] | {"rate": "1e-300/s"}, 0)
def test_changed_workloads(document: Any, seed: int) -> None:
    config = typed(document, WorkloadConfig)
    if config is None:
        return
    try:
        times = arrival_times(config, seed)
        workload = build_workload(config, GRAPH, "ram", seed)
    except HetsimError as error:
        check_refusal(HetsimError(readable(error)))
        return
    assert len(times) == config.jobs == len(workload)
    assert times == sorted(times)
    assert times[0] == 0
    assert np.isfinite(times).all()
    if config.jobs <= 100:
        cluster = build_cluster(typed(CLUSTER, ClusterConfig))
        costs = CostTable.of(GRAPH, np.ones((4, 4)))
        trace = simulate(workload, cluster, costs, create("fcfs"), contention="fifo")
        assert metrics(trace)["jobs_finished"] == config.jobs


@pytest.mark.parametrize("text", ["1e999999999 s", "1e-999999999 s", "0e999999999 s"])
def test_huge_exponents_take_no_time(text: str) -> None:
    """Exact fractions of them would not fit into memory."""
    config = typed(WORKLOADS[2] | {"period": text}, WorkloadConfig)
    with pytest.raises(HetsimError, match="period"):
        arrival_times(config, 0)
