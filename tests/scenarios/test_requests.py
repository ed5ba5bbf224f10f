"""Streams of requests: what is drawn, prepared and refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from scenarios.arrivals import WorkloadConfig, arrival_times
from scenarios.bandwidth import BandwidthConfig, bandwidth_faults
from scenarios.cluster_config import ClusterConfig, DeviceConfig, LinkConfig, SpaceConfig
from scenarios.model_config import InputConfig, ModelConfig
from scenarios.requests import prepare_requests
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.closed_loop import ClosedLoop
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.workload import Job, Stream
from simulator.schedulers import create

pytest.importorskip("torch")


def small(name: str, width: int, target: str = "torch.nn.Linear") -> ModelConfig:
    return ModelConfig(
        name,
        target,
        arguments={"in_features": width, "out_features": 4},
        inputs=[InputConfig(["batch", width])],
    )


MODELS = {"a": small("a", 3), "b": small("b", 5)}
CLUSTER = Cluster(
    "two",
    [MemorySpace("edge"), MemorySpace("users")],
    [Device("d", "edge")],
    [Link("way", ("users", "edge"), 1e6, 0.001)],
    host="users",
)


def config(**given) -> WorkloadConfig:  # type: ignore[no-untyped-def]
    values = {"arrivals": "poisson", "jobs": 400, "rate": "100/s", "mix": {"a": 3, "b": 1}}
    return WorkloadConfig("w", **(values | given))


def prepared(**given):  # type: ignore[no-untyped-def]
    return prepare_requests(config(**given), MODELS, MODELS["a"])


def workload(seed: int = 0, **given):  # type: ignore[no-untyped-def]
    return prepared(**given).workload(config(**given), CLUSTER, seed)


def test_the_mix_is_drawn_apart_from_the_arrivals() -> None:
    one, two = workload(max_batch=4), workload(max_batch=4, mix={"a": 1, "b": 1})
    assert [j.arrival for j in one] == [j.arrival for j in two]
    counts = Counter(job.model for job in one)
    assert 250 < counts["a"] < 350
    assert [j.model for j in one] == [j.model for j in workload(max_batch=4)]
    assert [j.arrival for j in one] != [j.arrival for j in workload(1, max_batch=4)]


def test_whole_models_are_prepared_at_every_batch() -> None:
    graphs = prepared(max_batch=4)
    model = graphs.models["b"]
    assert list(model.graphs) == [1, 2, 3, 4]
    assert all(len(graph) == 1 for graph in model.graphs.values())
    four, one = model.graphs[4], model.graphs[1]
    assert four.tensor_bytes[four.inputs[0]] == 4 * one.tensor_bytes[one.inputs[0]]
    assert four.weight_bytes == one.weight_bytes
    found = graphs.workload(config(max_batch=4), CLUSTER, 0)
    for job in found:
        assert found.batches[job.graph] == graphs.models[job.model].graphs


def test_operators_are_kept_where_they_are_asked_for() -> None:
    fine = prepared(max_batch=2, segments=None, sizes={1: 1.0})
    assert fine.models["a"].segments  # batches are served whole unless told otherwise
    assert not prepared(mix={"a": 1}).models["a"].segments


def test_sizes_sources_deadlines_and_sensitivities() -> None:
    jobs = workload(
        max_batch=4,
        sizes={1: 1, 4: 1},
        sources={"users": 1, "edge": 1},
        deadline={"a": "50ms"},
        sensitivity="uniform",
        least_accuracy=0.5,
    ).jobs
    assert {job.batch for job in jobs} == {1, 4}
    assert {job.origin for job in jobs} == {"users", "edge"}
    assert all(job.origin == job.destination for job in jobs)
    for job in jobs:
        expected = None if job.model == "b" else pytest.approx(job.arrival + 0.05)
        assert job.deadline == expected
        assert job.time_sensitivity + job.accuracy_sensitivity == 1
        assert job.least_accuracy == 0.5
    assert np.std([job.time_sensitivity for job in jobs]) == pytest.approx(12**-0.5, rel=0.1)


def test_streams_run_beside_each_other_in_order() -> None:
    streams = {
        "night": {"arrivals": "periodic", "period": "10ms", "jobs": 50, "sources": {"edge": 1}}
    }
    jobs = workload(max_batch=2, streams=streams).jobs
    assert len(jobs) == 450
    assert [j.arrival for j in jobs] == sorted(j.arrival for j in jobs)
    assert sum(job.origin == "edge" for job in jobs) == 50


def test_a_closed_loop_of_requests() -> None:
    found = workload(arrivals="closed", clients=3, think="10ms", jobs=30, rate=None, max_batch=2)
    assert isinstance(found, ClosedLoop)
    costs = CostTable({g: GraphCosts(np.full((len(g), 1), 0.001)) for g in found.graphs})
    trace = simulate(found, CLUSTER, costs, create("task_groups", max_batch=2), contention="fifo")
    assert len(trace.jobs["job"]) == 30


def test_a_recorded_stream(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "arrival_s,model,size,deadline_s,source\n0,a,1,0.5,edge\n0.25,b,2,,users\n0.5,,,,\n"
    )
    found = workload(
        arrivals="trace",
        file=str(file),
        jobs=None,
        max_batch=2,
        sizes={1: 1, 2: 1},
        sources={"users": 1, "edge": 1},
    ).jobs
    assert [(j.model, j.batch, j.deadline, j.origin) for j in found[:2]] == [
        ("a", 1, 0.5, "edge"),
        ("b", 2, None, "users"),
    ]
    file.write_text("arrival_s,model\n0,c\n")
    with pytest.raises(InvalidInput, match=r"line 2: model 'c' is not in workload.mix \(a, b\)"):
        workload(arrivals="trace", file=str(file), jobs=None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mix": {"a": -1}}, "shares are at least 0"),
        ({"max_batch": 0}, "max_batch=0"),
        ({"sizes": {8: 1}, "max_batch": 4}, "requests of 8 items, but"),
        ({"sources": {"moon": 1}}, "requests from 'moon', which is no memory space"),
        ({"deadline": "0s"}, "must be above 0 s after the arrival"),
        ({"deadline": {"c": "1s"}}, "a deadline for 'c', which is not in its mix"),
        ({"sensitivity": 2.0}, "share of time sensitivity"),
        ({"least_accuracy": 2.0}, "least_accuracy=2.0"),
        ({"variants": {"c": ["a"]}}, "variants of 'c', which is not in its mix"),
        ({"accuracies": {"a": 1.5}}, "accuracy 1.5 of 'a'"),
        ({"streams": {"s": {"mix": {}}}}, "key 'mix'; known"),
        ({"arrivals": "closed", "clients": 0}, "workload.clients=0"),
        ({"arrivals": "diurnal", "period": "1s"}, "workload.amplitude=None"),
    ],
)
def test_what_cannot_be_is_refused(given, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput, match=message):
        workload(**given)


def test_a_fixed_batch_cannot_be_batched() -> None:
    fixed = ModelConfig(
        "f", "torch.nn.Linear", arguments={"in_features": 3, "out_features": 4},
        inputs=[InputConfig([1, 3])],
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="has a fixed batch"):
        prepare_requests(config(mix={"f": 1}, max_batch=4), {"f": fixed}, fixed)


def test_a_diurnal_rate_is_a_sine() -> None:
    times = np.array(
        arrival_times(
            config(arrivals="diurnal", rate="1000/s", period="1s", amplitude=0.8, jobs=20_000), 0
        )
    )
    phase = times % 1.0
    up, down = ((phase > 0.15) & (phase < 0.35)).sum(), ((phase > 0.65) & (phase < 0.85)).sum()
    assert up / down == pytest.approx((1 + 0.8 * 0.935) / (1 - 0.8 * 0.935), rel=0.15)
    assert len(times) / times[-1] == pytest.approx(1000, rel=0.05)


# -- links that vary --------------------------------------------------------------------------


def varying(**given) -> tuple[ClusterConfig, Cluster]:  # type: ignore[no-untyped-def]
    cluster = ClusterConfig(
        "c",
        {"users": SpaceConfig(), "edge": SpaceConfig()},
        {"d": DeviceConfig("p", "edge")},
        {"way": LinkConfig(["users", "edge"], "1 MB/s", varies=BandwidthConfig(**given))},
    )
    return cluster, CLUSTER


def test_a_recorded_bandwidth_slows_what_is_under_way(tmp_path: Path) -> None:
    file = tmp_path / "b.csv"
    file.write_text("time_s,bandwidth\n0,1000000\n0.5,250000\n1.5,0\n2.5,1000000\n")
    faults = bandwidth_faults(*varying(file=str(file)), 0)
    assert [(f.what, f.start, f.end, f.factor) for f in faults] == [
        ("link_degradation", 0.5, 1.5, 0.25),
        ("link_outage", 1.5, 2.5, None),
    ]
    from simulator.engine.faults import Faults
    from simulator.model.workload import Workload
    from tests.simulator.serving.fleet import one

    graph = one("m", 1, into=1_000_000.0, out=0.0)
    trace = simulate(
        Workload([Job(graph, origin="users")]),
        CLUSTER,
        CostTable.of(graph, np.array([[0.1]])),
        create("fcfs"),
        contention="fifo",
        faults=Faults(faults),
    )
    # 0.001 s of latency and 0.499 MB by 0.5 s, 0.25 MB by 1.5 s, nothing until 2.5 s, then the rest.
    assert trace.executions["start"][0] == pytest.approx(2.5 + 0.251, abs=0.002)


def test_drawn_bandwidths_differ_by_link_and_seed() -> None:
    given = {"step": "100ms", "sigma": 0.5, "length": "10s"}
    one, two = (bandwidth_faults(*varying(**given), seed) for seed in (0, 1))
    assert one == bandwidth_faults(*varying(**given), 0)
    assert one != two
    shares = [f.factor for f in one]
    assert 0.3 < np.median([s for s in shares if s]) < 0.8


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "varies either by a file"),
        ({"step": "1s"}, "varies either by a file"),
        ({"file": "x.csv", "step": "1s", "sigma": 1.0, "length": "2s"}, "varies either by a file"),
        ({"step": "1s", "sigma": -1.0, "length": "2s"}, "sigma is at least 0"),
        ({"file": "/no/such.csv"}, "Cannot read the bandwidth"),
    ],
)
def test_impossible_bandwidths(given, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput, match=message):
        bandwidth_faults(*varying(**given), 0)


def test_more_than_the_links_own_bandwidth_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "b.csv"
    file.write_text("time_s,bandwidth\n0,2000000\n")
    with pytest.raises(InvalidInput, match=r"line 2.*no more than the link's own"):
        bandwidth_faults(*varying(file=str(file)), 0)


@pytest.mark.parametrize(
    "given",
    [
        {"arrivals": "poisson", "sizes": {1: 3, 2: 1}, "urgent": 0.3, "sensitivity": "uniform"},
        {"arrivals": "gamma", "cv": 2.0, "deadline": "10ms"},
        {"arrivals": "gamma", "cv": 0.0},
        {"arrivals": "periodic", "rate": None, "period": "7ms"},
        {"arrivals": "diurnal", "period": "1s", "amplitude": 0.5},
        {"arrivals": "mmpp", "rate": None, "rates": ["100/s", "5/s"], "sojourns": ["1s", "1s"]},
        {"streams": {"own": {"rate": "30/s", "sources": {"edge": 1}, "jobs": 70}}},
    ],
)
def test_a_stream_draws_what_the_workload_holds(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object]
) -> None:
    whole = workload(3, **given, max_batch=2)
    for block in (7, 400, 4096):
        for module in ("arrivals", "requests"):
            monkeypatch.setattr(f"scenarios.{module}.BLOCK", block)
        graphs = prepared(**given, max_batch=2)
        stream = graphs.stream(config(**given, max_batch=2), CLUSTER, 3)
        for run in range(2):
            drawn = list(stream)
            assert len(drawn) == len(whole)
            for mine, other in zip(drawn, whole, strict=True):
                assert (mine.graph.name, mine.graph.batch) == (other.graph.name, other.graph.batch)
                for key in ("arrival", "deadline", "priority", "model", "batch", "origin"):
                    assert getattr(mine, key) == getattr(other, key), (run, key)
                assert mine.time_sensitivity == other.time_sensitivity
        assert set(stream.graphs) == {g for m in graphs.models.values() for g in m.graphs.values()}
        assert isinstance(stream, Stream)


def test_requests_are_drawn_as_they_always_were() -> None:
    """By NumPy alone, column after column from one generator."""
    drawn = workload(5, sizes={1: 1, 2: 1}, sensitivity="uniform", max_batch=2)
    rng = np.random.default_rng([5, 2])
    models = [["a", "b"][i] for i in rng.choice(2, 400, p=[0.75, 0.25])]
    sizes = [[1, 2][i] for i in rng.choice(2, 400, p=[0.5, 0.5])]
    rng.choice(1, 400, p=[1.0])
    assert [job.model for job in drawn] == models
    assert [job.batch for job in drawn] == sizes
    assert [job.time_sensitivity for job in drawn] == rng.random(400).tolist()
    gaps = np.random.default_rng(5).exponential(1 / 100, 399)
    assert [job.arrival for job in drawn] == [0.0, *np.cumsum(gaps)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jobs": None}, "needs workload.jobs"),
        ({"jobs": 0}, "has 0 jobs"),
        ({"rate": None}, "needs workload.rate"),
        ({"arrivals": "gamma"}, "has workload.cv=None"),
        ({"arrivals": "poison"}, "unknown arrivals 'poison'"),
        ({"arrivals": "periodic"}, "needs workload.period"),
        ({"urgent": 2.0}, "workload.urgent=2.0"),
        ({"streams": {"own": {"sources": {"moon": 1}}}}, "requests from 'moon'"),
    ],
)
def test_streams_are_refused_before_they_run(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prepared(**given).stream(config(**given), CLUSTER, 0)
