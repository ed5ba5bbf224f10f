"""Schedulers of staged jobs: closed forms, Johnson's rule, and the optimum of small jobs by branching."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import Cluster, CostTable, DataflowGraph, Device, MemorySpace, from_edges, simulate
from simulator.analysis.bounds import lower_bound
from simulator.errors import InvalidInput
from simulator.model.trace import Trace
from simulator.planners.flow_shop import johnson, makespan
from simulator.schedulers import create
from simulator.schedulers._one_at_a_time import Stages
from simulator.schedulers._stage_policy import FEATURES, HEADER, StagePolicy, load_policy
from simulator.schedulers.learnt import Learnt
from tests.examples import examples
from tests.simulator.test_properties import quick

Edges = Sequence[tuple[int, int]]
METHODS = {
    **{
        rule: ("contention_free", {"rule": rule})
        for rule in ("johnson", "critical_path", "shortest_job", "fifo", "random")
    },
    "learnt": ("learnt", {}),
    "delay_stage": ("delay_stage", {}),
    "fair": ("olb", {}),
}


def shop(sharing: str, devices: int) -> Cluster:
    slots = 256 if sharing == "processor" else 1
    return Cluster(
        "shop",
        [MemorySpace("memory")],
        [Device(f"d{i}", "memory", slots=slots, sharing=sharing) for i in range(devices)],
    )


def staged(stages: Sequence[Sequence[float]], edges: Edges = ()) -> tuple[DataflowGraph, CostTable]:
    """A graph of stages with the seconds of each phase, and its edges from stage to stage."""
    names = [f"s{i}.{p}" for i, phases in enumerate(stages) for p in range(len(phases))]
    at = {name: number for number, name in enumerate(names)}
    inner = [(t, t + 1, 0.0) for t in range(len(names) - 1) if not names[t + 1].endswith(".0")]
    outer = [(at[f"s{a}.{len(stages[a]) - 1}"], at[f"s{b}.0"], 0.0) for a, b in edges]
    graph = from_edges("jobs", len(names), [*inner, *outer], names)
    seconds = np.full((len(names), max(map(len, stages))), math.inf)
    for row, operator in enumerate(graph.operators):
        stage, phase = map(int, operator.name[1:].split("."))
        seconds[row, phase] = stages[stage][phase]
    return graph, CostTable.of(graph, seconds)


def run(
    method: str, stages: Sequence[Sequence[float]], edges: Edges = (), sharing: str = "processor"
) -> Trace:
    graph, costs = staged(stages, edges)
    name, options = METHODS[method]
    return simulate(
        graph, shop(sharing, costs[graph].seconds.shape[1]), costs, create(name, **options)
    )


def order(trace: Trace, phase: int) -> list[int]:
    """The stages whose phase ran, in the order of their starts."""
    rows = trace.executions
    at = sorted(np.flatnonzero(rows["device"] == phase), key=lambda i: rows["start"][i])
    names = trace.meta["graphs"][0]["operators"]
    return [int(names[rows["operator"][i]][1:].split(".")[0]) for i in at]


def optimum(stages: Sequence[Sequence[float]], edges: Edges) -> float:
    """The least makespan of all schedules with one task at a time on each device.

    Branches over all active schedules (Giffler and Thompson, 1960), one of which is optimal.
    """
    parents: dict[int, list[int]] = {i: [] for i in range(len(stages))}
    for a, b in edges:
        parents[b].append(a)
    rest = [0.0] * len(stages)  # behind and with a stage
    for i in reversed(range(len(stages))):
        rest[i] = math.fsum(stages[i]) + max((rest[b] for a, b in edges if a == i), default=0.0)
    best = math.inf

    def branch(done: list[int], at: list[float], free: list[float]) -> None:
        nonlocal best
        for machine, since in enumerate(free):
            left = (s[machine] for s, d in zip(stages, done, strict=True) if d <= machine < len(s))
            if since + math.fsum(left) >= best - 1e-12:
                return
        open_ = []
        for i, phases in enumerate(stages):
            if done[i] < len(phases) and all(done[p] == len(stages[p]) for p in parents[i]):
                ready = max([at[i], *(at[p] for p in parents[i])])
                start = max(ready, free[done[i]])
                open_.append((start + phases[done[i]], start, i))
                if start + rest[i] - math.fsum(phases[: done[i]]) >= best - 1e-12:
                    return
        if not open_:
            best = min(best, max(at))
            return
        end, _, first = min(open_)
        machine = done[first]
        for finish, start, i in open_:
            if done[i] == machine and start < end:
                branch(
                    [d + (j == i) for j, d in enumerate(done)],
                    [finish if j == i else t for j, t in enumerate(at)],
                    [finish if m == machine else f for m, f in enumerate(free)],
                )

    branch([0] * len(stages), [0.0] * len(stages), [0.0] * max(map(len, stages)))
    return best


@pytest.mark.parametrize(("n", "a", "b"), [(2, 1.0, 1.0), (5, 2.0, 3.0), (4, 3.0, 1.0)])
def test_identical_stages(n: int, a: float, b: float) -> None:
    """Shared n (a + b); one at a time n max(a, b) + min(a, b): of two with a = b = 1, 4 and 3."""
    stages = [(a, b)] * n
    assert run("fair", stages).makespan == pytest.approx(n * (a + b))
    for method in ("johnson", "fifo", "learnt"):
        for sharing in ("processor", "slots"):
            alone = run(method, stages, sharing=sharing).makespan
            assert alone == pytest.approx(n * max(a, b) + min(a, b))
    graph, costs = staged(stages)
    for sharing in ("processor", "slots"):  # tasks that share a processor do no more in a second
        bound = lower_bound(graph, costs[graph].seconds, shop(sharing, 2)).bound_s
        assert bound == pytest.approx(n * max(a, b) + min(a, b))
    # Devices of one slot make anything contention-free.
    assert run("fair", stages, sharing="slots").makespan == pytest.approx(n * max(a, b) + min(a, b))


TIMES = st.integers(1, 9).map(float)


@settings(quick, max_examples=examples(60))
@given(
    st.integers(2, 3).flatmap(lambda m: st.lists(st.tuples(*[TIMES] * m), min_size=1, max_size=9))
)
def test_without_precedence_it_is_johnson(stages: list[tuple[float, ...]]) -> None:
    """Order, makespan and starts on every device; ties by rank, then by number."""
    trace = run("johnson", stages)
    totals = [math.fsum(phases) for phases in stages]
    by_rank = sorted(range(len(stages)), key=lambda i: -totals[i])
    expected = [by_rank[i] for i in johnson([stages[i] for i in by_rank])]
    for phase in range(len(stages[0])):
        assert order(trace, phase) == expected
    assert trace.makespan == pytest.approx(makespan(stages, expected))
    if len(stages[0]) == 2:
        assert trace.makespan == pytest.approx(makespan(stages, johnson(stages)))
    if len(stages[0]) == 2 and len(stages) <= 5:
        assert trace.makespan == pytest.approx(optimum(stages, ()))


def small_jobs(seed: int, count: int) -> tuple[list[tuple[float, ...]], list[tuple[int, int]]]:
    draws = np.random.default_rng(seed)
    phases = draws.integers(1, 10, size=(count, 2)).astype(float).tolist()
    edges = [(a, b) for b in range(count) for a in range(b) if draws.random() < 0.25]
    return [tuple(row) for row in phases], edges


def test_up_to_eight_stages_against_the_optimum() -> None:
    """Never below it; the rule's mean gap is a few percent, less than the baselines'."""
    gaps: dict[str, list[float]] = {}
    for seed in range(examples(120)):
        stages, edges = small_jobs(seed, 5 + seed % 4)
        least = optimum(stages, edges)
        for method in METHODS:
            found = run(method, stages, edges).makespan
            assert found >= least * (1 - 1e-9), method
            gaps.setdefault(method, []).append(found / least - 1)
    mean = {method: float(np.mean(values)) for method, values in gaps.items()}
    assert mean["johnson"] < 0.08
    assert mean["johnson"] < min(mean["fifo"], mean["random"], mean["fair"])


def test_the_optimum_by_hand() -> None:
    """Stage 2 waits for stage 0: fetches 0, 1, 2 leave the processor idle for 1 and 1."""
    assert optimum([(1, 2), (2, 2), (1, 3)], [(0, 2)]) == 8
    assert optimum([(4, 5), (4, 1), (30, 4), (6, 30), (2, 3)], []) == 47  # algorithms of Johnson
    assert optimum([(8, 2, 4), (5, 4, 5), (6, 1, 3), (7, 3, 2)], []) == 30


def test_a_stage_behind_which_more_waits_breaks_ties() -> None:
    """Both fetch for 1 and compute for 2; the second has a child of 5 s."""
    trace = run("johnson", [(1.0, 2.0), (1.0, 2.0), (2.0, 3.0)], [(1, 2)])
    assert order(trace, 0) == [1, 0, 2]


def test_staged_jobs_take_less_than_under_fair_sharing() -> None:
    """The sign of what theses and papers report; the bound of 50% holds for equal phases."""
    shares = []
    for seed in range(20):
        stages, edges = small_jobs(100 + seed, 16)
        fair = run("fair", stages, edges).makespan
        shares.append(1 - run("johnson", stages, edges).makespan / fair)
    assert 0.05 < np.mean(shares) < 0.4
    alike = [(1.0, 1.0)] * 200
    gain = 1 - run("johnson", alike).makespan / run("fair", alike).makespan
    assert gain == pytest.approx(0.5 - 1 / 400)


def test_delays_are_what_the_fluid_model_says() -> None:
    """Two stages a = b = 1: with the second a second later nothing is shared, 3 instead of 4; and a plan is never
    worse than none."""
    trace = run("delay_stage", [(1.0, 1.0), (1.0, 1.0)])
    assert trace.makespan == pytest.approx(3.0)
    for seed in range(5):
        stages, edges = small_jobs(seed, 10)
        planned = run("delay_stage", stages, edges).makespan
        assert planned <= run("fair", stages, edges).makespan * (1 + 1e-9)
    with pytest.raises(InvalidInput, match="steps 0"):
        create("delay_stage", steps=0)


def test_a_policy_of_one_feature_is_a_rule() -> None:
    """Weights that read one feature alone make the learnt scheduler that feature's rule."""

    def reading(name: str, sign: float) -> Learnt:
        weights = np.zeros((len(FEATURES), 1), dtype=np.float32)
        weights[FEATURES.index(name)] = sign
        return Learnt(policy=StagePolicy([weights], []))

    for seed in range(5):
        stages, edges = small_jobs(seed, 12)
        graph, costs = staged(stages, edges)
        for name, sign, rule in (("rank", 1.0, "critical_path"), ("age", -1.0, "fifo")):
            found = simulate(graph, shop("processor", 2), costs, reading(name, sign))
            assert found.makespan == run(rule, stages, edges).makespan


def test_features_by_hand() -> None:
    """At 1 s: stage 0 computes until 3 s, stages 1 and 2 wait for the network, all phases take 2 s in the mean."""
    seen: list[np.ndarray] = []

    class Looking(Learnt):
        def choose(self, context, waiting):  # type: ignore[no-untyped-def]
            seen.append(self.features(context, waiting))
            return waiting[0]

    policy = StagePolicy([np.zeros((len(FEATURES), 1), dtype=np.float32)], [])
    graph, costs = staged([(1.0, 2.0), (3.0, 1.0), (2.0, 3.0)], [(0, 2)])
    simulate(graph, shop("processor", 2), costs, Looking(policy=policy))
    first = dict(zip(FEATURES, seen[0].T.tolist(), strict=True))  # stages 0 and 1 at 0 s
    assert len(seen) == 1
    log = np.log1p
    assert first["own_seconds"] == pytest.approx([log(1 / 2), log(3 / 2)])
    assert first["next_seconds"] == pytest.approx([log(1), log(1 / 2)])
    assert first["rank"] == pytest.approx([1.0, 4 / 8])
    assert first["tail"] == pytest.approx([5 / 8, 0])
    assert first["feeds_next"] == [1, 0]
    assert first["own_backlog"] == pytest.approx([log(2)] * 2)
    assert first["next_backlog"] == [0, 0]
    assert first["children"] == [0.25, 0]
    assert first["unlocks"] == [1, 0]
    assert first["job_left"] == [1, 1]
    assert first["age"] == [0, 1]
    assert first["first_phase"] == [1, 1]
    assert first["last_phase"] == [0, 0]


def test_a_policy_of_other_features_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import json

    from safetensors.numpy import load_file, save_file

    shipped = "conf/predictors/staged_jobs.safetensors"
    tensors = load_file(shipped)
    description = {"format": 1, "features": [*FEATURES[:-1], "weather"], "notes": {}}
    other = tmp_path / "other.safetensors"
    save_file(tensors, other, {HEADER: json.dumps(description)})
    with pytest.raises(InvalidInput) as refused:
        create("learnt", file=str(other))
    text = str(refused.value)
    assert "other features" in text
    assert "last_phase, weather" in text
    assert text.count(". ") == 0
    description["features"] = list(FEATURES)
    for damaged in (
        {**tensors, "weights0": tensors["weights0"][1:]},
        {**tensors, "weights0": tensors["weights0"] * np.float32(math.nan)},
        {key: value for key, value in tensors.items() if key != "bias0"},
    ):
        save_file(damaged, other, {HEADER: json.dumps(description)})
        with pytest.raises(InvalidInput, match="damaged"):
            load_policy(other)
    save_file(tensors, other)
    with pytest.raises(InvalidInput, match="holds no policy"):
        load_policy(other)
    other.write_bytes(b"cut")
    with pytest.raises(InvalidInput, match="cut short"):
        load_policy(other)
    with pytest.raises(InvalidInput, match="Cannot read policy"):
        load_policy(tmp_path / "none")
    with pytest.raises(InvalidInput, match="no rule 'lifo'"):
        create("contention_free", rule="lifo")


def test_what_two_parents_feed_begins_a_stage() -> None:
    graph = from_edges("join", 3, [(0, 2, 0.0), (1, 2, 0.0)])
    stages = Stages(graph, np.array([[1.0, math.inf], [2.0, math.inf], [math.inf, 4.0]]))
    assert stages.is_first == [True, True, True]
    assert stages.phases == [(1.0,), (2.0,), (4.0,)]
    assert stages.rank == [5.0, 6.0, 4.0]
    assert stages.tail == [4.0, 4.0, 0.0]
