import os

import pytest

from calibration import interference
from calibration.interference import CLASSES, slowdowns, summary
from simulator.devices.shared_rate import SlowdownPerSlot
from simulator.errors import ExecutionError

pytest.importorskip("torch")

COST = {"compute": 0.0, "memory": 0.3, "model": 0.05}
ALONE = {"compute": 2.0, "memory": 5.0, "model": 3.0}


def together(classes):
    """A machine on which each other runner costs a share of the time that only its class decides."""
    return [
        ALONE[victim] * (1 + sum(COST[a] for j, a in enumerate(classes) if j != i))
        for i, victim in enumerate(classes)
    ]


def test_known_slowdowns_are_found():
    found = slowdowns(together, [1, 3])
    assert set(found) == {(v, a, k) for v in CLASSES for a in CLASSES for k in (1, 3)}
    for (_, aggressor, count), slowdown in found.items():
        assert slowdown == pytest.approx(1 + COST[aggressor] * count)


def test_disturbed_runs_do_not_count():
    calls = []

    def disturbed(classes):
        calls.append(classes)
        return [t * (10 if len(calls) % 7 == 3 else 1) for t in together(classes)]

    assert slowdowns(disturbed, [1]) == pytest.approx(slowdowns(together, [1]))


def test_fraction_is_what_the_simulator_divides_rates_by():
    found = summary(slowdowns(together, [1, 3]), "cores")
    assert (found["of"], found["fraction"]) == ("cores", 0.05)
    # Four runners of models: each takes 1.15 times as long in the simulation as well.
    rates = SlowdownPerSlot({0: found["fraction"]}).rates([1.0] * 4, [0.0] * 4, [0] * 4)
    assert [1 / rate for rate in rates] == pytest.approx([1.15] * 4)
    row = {"victim": "compute", "aggressor": "memory", "others": 3, "slowdown": 1.9}
    assert row in found["rows"]
    assert len(found["rows"]) == 18


def test_faster_beside_others_is_no_negative_slowdown():
    assert summary({("model", "model", 1): 0.98}, "cores")["fraction"] == 0.0


@pytest.mark.parametrize(
    ("most", "numbers"), [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (9, [1, 2, 4, 8, 9])]
)
def test_numbers_of_others_double(most, numbers):
    assert interference._numbers(most) == numbers


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_runs(name):
    assert interference._repeated(interference.work(name), 0.01) > 0


def test_one_core_has_nothing_to_measure(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert interference.measure("cpu") == {}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert interference.measure("cpu", threads=2) == {}


def test_a_runner_is_a_process_that_answers():
    (core,) = list(os.sched_getaffinity(0))[:1]
    with interference._runner([core], 1) as process:
        (seconds,) = interference._together([process], ["compute"], 0.05)
        assert 0 < seconds < 5
        process.kill()
        process.wait()
        with pytest.raises(ExecutionError, match="ended early"):
            interference._together([process], ["compute"], 0.05)


@pytest.mark.gpu
@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="no CUDA device")
def test_streams_of_a_gpu():
    found = interference.measure("cuda:0")
    assert found["of"] == "streams"
    assert all(0.5 < row["slowdown"] < 50 for row in found["rows"])
