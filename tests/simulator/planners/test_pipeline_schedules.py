"""Pipeline schedules: the papers' times by the engine, and orders that can always be executed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.training.parallelism import Layout, parallelised
from scenarios.training.step import Step
from simulator.errors import InvalidInput
from simulator.model.cluster import fully_connected
from simulator.planners.pipeline_schedules import noam, schedule
from tests.examples import examples
from tests.scenarios.training.chains import chain_step, pipelined, simulated


def run(stages, micro_batches, name, forward=1.0, backward=2.0, weights=0.0, chunks=1):
    """Makespan of equal stages without communication."""
    seconds = (forward, backward, weights)
    return pipelined(name, stages, micro_batches, seconds, chunks).makespan


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(
    ("stages", "micro_batches", "makespan", "bubble"),
    [(4, 4, 21, 0.4286), (4, 8, 33, 0.2727), (4, 16, 57, 0.1579), (8, 32, 117, 0.1795)],
)
def test_with_a_flush(name, stages, micro_batches, makespan, bubble):
    found = run(stages, micro_batches, name)
    assert found == makespan
    assert 1 - 3 * micro_batches / found == pytest.approx(bubble, abs=5e-5)


@pytest.mark.parametrize(("chunks", "stages", "micro_batches"), [(2, 4, 8), (4, 4, 8), (2, 3, 6)])
def test_interleaving_divides_the_bubble(chunks, stages, micro_batches):
    found = run(stages, micro_batches, "interleaved", 1 / chunks, 2 / chunks, chunks=chunks)
    ideal = 3 * micro_batches
    assert (found - ideal) / ideal == pytest.approx((stages - 1) / (chunks * micro_batches))


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 8), (4, 12), (8, 32)])
def test_zb_h1_has_a_third_of_the_bubble_where_all_passes_take_as_long(stages, micro_batches):
    bubble = run(stages, micro_batches, "zb_h1", 1, 1, 1) - 3 * micro_batches
    assert (
        bubble == (run(stages, micro_batches, "1f1b", 1, 2) - 3 * micro_batches) / 3 == stages - 1
    )


def test_pipedream_goes_on_at_the_rate_of_the_slowest_stage():
    assert run(4, 32, "pipedream") - run(4, 16, "pipedream") == 16 * 3
    assert [noam([1, 1, 1, 1], stage) for stage in range(4)] == [4, 3, 2, 1]
    assert noam([2, 1, 1], 0) == 2
    assert noam([3, 1], 0) == 2


def test_one_forward_one_backward_by_hand():
    worker_of = np.repeat(np.arange(3)[:, None], 4, axis=1)
    words = {
        stage: " ".join(f"{s.phase}{s.micro_batch}" for s in slots)
        for stage, slots in schedule("1f1b", worker_of).items()
    }
    assert words == {
        0: "F0 F1 F2 B0 F3 B1 B2 B3",
        1: "F0 F1 B0 F2 B1 F3 B2 B3",
        2: "F0 B0 F1 B1 F2 B2 F3 B3",
    }


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_every_schedule_can_be_executed(data):
    """Whatever replicas share the micro-batches: no device waits for one that waits for it."""
    stages, micro_batches = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 7))
    rows = [
        [10 * stage + data.draw(st.integers(0, 2)) for _ in range(micro_batches)]
        for stage in range(stages)
    ]
    name = data.draw(st.sampled_from(["gpipe", "1f1b", "zb_h1"]))
    numbers = {worker: n for n, worker in enumerate(sorted({w for row in rows for w in row}))}
    worker_of = np.array([[numbers[w] for w in row] for row in rows])
    slots = schedule(name, worker_of)
    step = Step.of(chain_step(stages, divided=True))
    part = step.stages(list(range(stages)))
    workers = [(d,) for d in range(len(numbers))]
    made = parallelised(step, Layout(part, worker_of, workers, slots))
    seconds = np.zeros((len(made.graph), len(numbers)))
    cluster = fully_connected("stages", len(numbers))
    assert simulated(made.graph, seconds, cluster, made.device, made.order).makespan == 0
    for worker, row in slots.items():
        passes = [(s.phase, s.micro_batch) for s in row]
        mine = [m for m in range(micro_batches) if worker in worker_of[:, m]]
        phases = "FBW" if name == "zb_h1" else "FB"
        assert sorted(passes) == sorted((phase, m) for phase in phases for m in mine)


def test_what_cannot_be_is_refused():
    two = np.array([[0, 0], [1, 1]])
    with pytest.raises(InvalidInput, match="no pipeline schedule 'chimera'; known: gpipe"):
        schedule("chimera", two)
    with pytest.raises(InvalidInput, match="two stages of a pipeline"):
        schedule("1f1b", np.array([[0, 0], [0, 1]]))
    with pytest.raises(InvalidInput, match="multiple of 2 micro-batches on 2 stages, not 3"):
        schedule("interleaved", np.array([[0] * 3, [1] * 3]), 2)
    with pytest.raises(InvalidInput, match="one device a stage"):
        schedule("interleaved", np.array([[0, 2], [1, 1]]), 2)
    with pytest.raises(InvalidInput, match="takes one chunk a stage, not 2; take interleaved"):
        schedule("1f1b", two, 2)
