import pytest

from calibration import timing
from calibration.timing import CpuTimer, Timing, default_states

torch = pytest.importorskip("torch")


class Recording(CpuTimer):
    """A timer on a false clock that notes what happens in which order."""

    def __init__(self, states, seconds):
        self.events = []
        self.states, self.repeats, self._seconds = states, 2, seconds
        outer = self

        class Buffer:
            def sum(self):
                outer.events.append("between")

        self._between = Buffer()

    def evict(self):
        self.events.append("evict")

    def _once(self, call, reads, cache):
        call(reads)
        return Timing(cache, self._seconds, self._seconds)


def visited(states, seconds, spare=("spare",)):
    timer = Recording(states, seconds)
    timings = timer.visit(lambda reads: timer.events.append(reads[0]), ["reads"], spare)
    return timer.events, [t.cache for t in timings]


def test_graph_state_is_evict_spare_between_reads():
    events, caches = visited(("graph",), 1e-3)
    assert events == ["evict", "spare", "between", "reads"]
    assert caches == ["graph"]


def test_without_weights_the_reads_themselves_are_used_before():
    events, _ = visited(("graph",), 1e-3, spare=None)
    assert events == ["evict", "reads", "between", "reads"]


@pytest.mark.parametrize(("seconds", "graph", "warm"), [(1e-5, 2, 6), (1e-3, 1, 2), (2e-2, 1, 1)])
def test_short_calls_are_repeated_more_often(seconds, graph, warm):
    _, caches = visited(("graph", "warm"), seconds)
    assert (caches.count("graph"), caches.count("warm")) == (graph, warm)


def test_warm_alone_warms_up_and_cold_comes_after_an_eviction():
    events, caches = visited(("warm", "cold"), 1e-3)
    assert events == ["reads", "reads", "reads", "evict", "reads"]
    assert caches == ["warm", "warm", "cold"]


def test_cpu_timer_times_what_a_call_takes():
    import time

    timer = CpuTimer(("graph", "warm", "cold"))
    found = timer.visit(lambda reads: time.sleep(0.003), [], None)
    assert {t.cache for t in found} == {"graph", "warm", "cold"}
    assert all(0.003 <= t.seconds < 0.1 for t in found)
    assert all(t.seconds == t.host_seconds for t in found)


def test_default_states():
    assert default_states("cpu") == ("graph", "warm")
    assert default_states("cuda:0") == timing.CACHE_STATES


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_timer_separates_host_and_device():
    timer = timing.timer("cuda:0")
    a = torch.randn(4096, 4096, device="cuda:0")
    found = timer.visit(lambda reads: reads[0] @ reads[0], [a], None)
    assert {t.cache for t in found} == set(timing.CACHE_STATES)
    # 137 GFLOP take a GPU longer than the host takes to enqueue them.
    assert all(0 < t.host_seconds < t.seconds < 1 for t in found)
