"""The hand-over of an interpreter is found in the ends of kernels of two workers that share one."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.probes.handing_over import handover, handover_seconds


def run_of(rng, hand_over, count=1500, gap=5e-5):
    """Two workers with one interpreter, which each needs for ``gap`` between two kernels; who finds it taken goes on
    ``hand_over`` after it is free.
    """
    rows = {"device": [], "start": [], "finish": []}
    begun = [0.0, 2e-5]  # of the kernels under way
    until = [start + rng.exponential(4e-4) for start in begun]
    free = 0.0
    for _ in range(count):
        worker = int(until[1] < until[0])
        end = until[worker] if until[worker] >= free else free + rng.uniform(0.5, 1.5) * hand_over
        rows["device"].append(worker)
        rows["start"].append(begun[worker])
        rows["finish"].append(end)
        begun[worker] = free = end + gap
        until[worker] = begun[worker] + rng.exponential(4e-4)
    return SimpleNamespace(executions={key: np.array(column) for key, column in rows.items()})


@pytest.mark.parametrize("hand_over", [1e-5, 2.5e-5, 5e-5])
def test_it_is_found(hand_over):
    rng = np.random.default_rng(3)
    found = handover([run_of(rng, hand_over) for _ in range(12)])
    assert found == pytest.approx(hand_over, rel=0.25, abs=3e-6)


def test_none_where_nobody_waits():
    rng = np.random.default_rng(4)
    runs = []
    for _ in range(12):
        start = np.cumsum(rng.exponential(4e-4, (2, 700)) + 5e-5, axis=1)
        finish = np.concatenate([start[:, 1:] - 5e-5, start[:, -1:] + 1e-4], axis=1)
        columns = {
            "device": np.repeat([0, 1], 700),
            "start": start.ravel(),
            "finish": finish.ravel(),
        }
        runs.append(SimpleNamespace(executions=columns))
    assert handover(runs) == 0.0
    assert handover([]) == 0.0


@pytest.mark.parametrize(
    ("devices", "places"),
    [
        (["cpu", "cpu"], {0, 1}),
        (["cuda:0", "cpu", "cpu", "cpu"], {1, 2}),
        (["cpu", "cuda:0", "cpu"], {0, 2}),
        (["cpu", "cuda:0"], None),
        (["cuda:0", "cuda:1"], None),
    ],
)
def test_two_cpu_workers_are_asked_wherever_the_cluster_has_them(devices, places, monkeypatch):
    monkeypatch.setattr(
        "calibration.one_by_one.OneByOne", lambda devices: SimpleNamespace(places=devices)
    )
    machine = SimpleNamespace(specs=[SimpleNamespace(device=device) for device in devices])
    rng = np.random.default_rng(5)
    asked = set()

    def trace(arrivals, scheduler):
        asked.update(scheduler.places)
        run = run_of(rng, 2.5e-5)
        of = np.array(sorted(set(scheduler.places)))
        return SimpleNamespace(executions=run.executions | {"device": of[run.executions["device"]]})

    found = handover_seconds(machine, SimpleNamespace(trace=trace))
    if places is None:
        assert (found, asked) == (None, set())
    else:
        assert asked == places
        assert found == pytest.approx(2.5e-5, rel=0.25, abs=3e-6)
