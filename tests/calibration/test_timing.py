import time

import pytest

from calibration import timing
from calibration.plan import MeasurePlan
from calibration.timing import CpuTimer, Timing, default_states
from simulator.errors import InvalidInput

torch = pytest.importorskip("torch")


class Recording(CpuTimer):
    """A timer on a false clock that notes what happens in which order."""

    def __init__(self, states, seconds, written=0):
        self.events = []
        self.states, self.repeats, self._seconds, self._written = states, 2, seconds, written

    def first(self, call, reads):
        return self._seconds, self._written

    def evict(self):
        self.events.append("evict")

    def read_others(self, size):
        self.events.append(f"others {size}")

    def produce(self, tensor):
        self.events.append(f"made {tensor}")

    def once(self, call, reads, cache):
        call(reads)
        return Timing(cache, self._seconds, self._seconds)


class Weight:
    def __init__(self, nbytes=4):
        self.nbytes = nbytes
        self.copies = 0

    def clone(self):
        self.copies += 1
        return f"copy{self.copies}"

    def __str__(self):
        return "w"


class Activation(str):
    nbytes = 100


X, Y = Activation("x"), Activation("y")


def visited(states, seconds, reads=None, weights=(1,), written=50):
    timer = Recording(states, seconds, written)
    reads = reads or (X, Weight())

    def call(reads):
        timer.events.append("call " + " ".join(map(str, reads)))

    timings = timer.visit(call, list(reads), weights)
    return timer.events, [t.cache for t in timings]


def test_graph_state_is_other_weights_then_distance_then_a_fresh_activation():
    events, caches = visited(("graph",), 2e-2)
    assert events == ["evict", "call x copy1", "others 150", "made x", "call x w"]
    assert caches == ["graph"]


def test_weights_may_come_first_and_be_all_that_is_read():
    events, _ = visited(("graph",), 2e-2, (Weight(), X), (0,))
    assert events[-2:] == ["made x", "call w x"]
    events, _ = visited(("graph",), 2e-2, (Weight(),), (0,))
    assert events == ["evict", "call copy1", "others 50", "call w"]


@pytest.mark.parametrize(("seconds", "timings"), [(1e-5, 4), (1e-3, 2)])
def test_each_timing_finds_weights_that_nobody_read(seconds, timings):
    events, caches = visited(("graph",), seconds)
    again = ["call x copy1", "others 150", "made x"]
    timed = ["call x w", "call x copy2", "call x copy3", "call x copy4"][:timings]
    assert events == ["evict", *(event for last in timed for event in (*again, last))]
    assert caches == ["graph"] * (timings - 1)  # the first is not kept


def test_of_large_weights_there_are_fewer_copies():
    _, caches = visited(("graph",), 1e-5, (X, Weight(timing.COPIED // 2)))
    assert caches == ["graph"] * 2
    events, caches = visited(("graph",), 1e-5, (X, Weight(timing.COPIED + 1)))
    assert events == ["evict", "call x copy1", "others 150", "made x", "call x w"]
    assert caches == ["graph"]


def test_of_several_activations_only_the_first_is_new():
    events, caches = visited(("graph",), 1e-5, (X, Y), ())
    assert events == ["evict", *["call x y", "others 250", "made x", "call x y"] * 4]
    assert caches == ["graph"] * 3


def test_what_lies_between_is_a_few_times_the_private_cache_at_most():
    cache = timing.private_cache()
    assert f"others {8 * cache}" in visited(("graph",), 1e-3, written=9 * cache)[0]
    assert f"others {12 * cache}" in visited(("graph",), 1e-3, (X, Y), (), 13 * cache)[0]


def test_the_first_calls_say_how_long_it_takes_and_what_it_writes():
    calls = []

    def call(reads):
        calls.append(reads)
        time.sleep(0.5 if len(calls) == 1 else 0.002)  # compiles
        return torch.zeros(8), torch.zeros(2, dtype=torch.float64)

    seconds, written = CpuTimer.first(call, ["x"])
    assert calls == [["x"]] * 2
    assert 0.002 <= seconds < 0.5
    assert written == 48
    assert CpuTimer.first(lambda reads: None, [])[1] == 0


def test_what_is_read_in_between_was_not_read_lately():
    timer = CpuTimer(("graph",))
    whole = len(timer._buffer)
    read = []

    class Buffer:
        def __len__(self):
            return whole

        def __getitem__(self, part):
            read.append((part.start, part.stop))
            return torch.zeros(1)

    timer._buffer = Buffer()
    for _ in range(5):
        timer.read_others(whole)  # more than a quarter of the buffer is never read
    quarter = whole // 4
    assert read == [(i * quarter, (i + 1) * quarter) for i in (0, 1, 2, 3, 0)]


@pytest.mark.parametrize(("seconds", "graph", "warm"), [(1e-5, 3, 6), (1e-3, 1, 2), (2e-2, 1, 1)])
def test_short_calls_are_repeated_more_often(seconds, graph, warm):
    _, caches = visited(("graph", "warm"), seconds)
    assert (caches.count("graph"), caches.count("warm")) == (graph, warm)


def test_warm_alone_warms_up_and_cold_comes_after_an_eviction():
    events, caches = visited(("warm", "cold"), 1e-3)
    assert events == ["call x w", "call x w", "evict", "call x w"]
    assert caches == ["warm", "warm", "cold"]


@pytest.mark.parametrize(
    ("megabytes", "seconds", "calls"),
    [
        (1, 1e-5, 0),  # fits in the private cache
        (2, 1e-5, 64),  # reads four last-level caches
        (8, 1e-4, 16),
        (8, 1e-3, 8),  # 8 ms at most
        (8, 1e-2, 0),
    ],
)
def test_what_the_last_cache_keeps_is_there_before_warm_is_timed(
    monkeypatch, megabytes, seconds, calls
):
    monkeypatch.setattr(timing, "private_cache", lambda: (1 << 20) + 100)
    monkeypatch.setattr(timing, "last_level_cache", lambda: 32 << 20)
    events, caches = visited(("warm",), seconds, (X, Weight((megabytes << 20) - X.nbytes)))
    assert len(events) - len(caches) == calls
    assert set(events) == {"call x w"}


def test_cpu_timer_times_what_a_call_takes():
    timer = CpuTimer(("graph", "warm", "cold"))
    found = timer.visit(lambda reads: time.sleep(0.003), [])
    assert {t.cache for t in found} == {"graph", "warm", "cold"}
    assert all(0.003 <= t.seconds < 0.1 for t in found)
    assert all(t.seconds == t.host_seconds for t in found)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(5, 7).expand(3, 5, 7),
        torch.tensor([True, False]),
        torch.arange(4),
        torch.tensor([float("nan"), -0.0, 1e-40]),
        torch.randn(4, 6)[:, ::2],
        torch.ones(3, dtype=torch.bfloat16),
        torch.empty(0),
    ],
)
def test_producing_leaves_a_tensor_as_it_is(tensor):
    before = tensor.clone()
    with torch.inference_mode():
        CpuTimer.produce(tensor)
    assert torch.equal(tensor.nan_to_num(7), before.nan_to_num(7))
    assert tensor.stride() == before.stride() or not tensor.is_contiguous()


def test_default_states():
    assert default_states("cpu") == ("graph", "warm")
    assert default_states("cuda:0") == ("graph", "warm", "awaited")


class FalseCuda(timing.CudaTimer):
    """A GPU on which a flush takes 30 us, a call 5 us by the kernel and 12 us by events."""

    def __init__(self, states, kernel=5e-6, captures=True):
        self.states, self.repeats, self.device = states, 3, None
        self.kernel, self.captures, self.elapsed = kernel, captures, 0.0

        class Torch:
            class cuda:
                synchronize = staticmethod(lambda device: None)

        self._torch = Torch

    def evict(self):
        self.elapsed += 30e-6

    def call(self, reads):
        self.elapsed += self.kernel

    def once(self, call, reads, cache):
        return Timing(cache, self.kernel + 7e-6, 1e-5)

    def _replays(self, body):
        if not self.captures:
            raise RuntimeError("operation not permitted when stream is capturing")
        begin = self.elapsed
        for _ in range(timing.CAPTURED):
            body()
        return [self.elapsed - begin] * self.repeats


def test_short_kernels_are_timed_in_graphs_without_what_prepares_them():
    timer = FalseCuda(timing.KERNEL_STATES)
    found = timer.visit(timer.call, [])
    assert [t.cache for t in found] == [state for state in timing.KERNEL_STATES for _ in range(3)]
    assert [t.seconds for t in found] == pytest.approx([5e-6] * 9)
    assert {t.host_seconds for t in found} == {1e-5}


@pytest.mark.parametrize("options", [{"captures": False}, {"kernel": 1e-4}])
def test_what_cannot_be_captured_or_is_long_is_timed_by_events(options):
    timer = FalseCuda(timing.KERNEL_STATES, **options)
    found = timer.visit(timer.call, [])
    assert [t.seconds for t in found] == pytest.approx([timer.kernel + 7e-6] * 9)


def test_what_is_awaited_keeps_the_time_by_the_hosts_clock():
    timer = FalseCuda(("graph", "awaited"))
    found = timer.visit(timer.call, [])
    seconds = {state: [t.seconds for t in found if t.cache == state] for state in timer.states}
    assert seconds["graph"] == pytest.approx([5e-6] * 3)
    assert seconds["awaited"] == pytest.approx([12e-6] * 3)


def test_operators_of_a_cpu_are_not_awaited():
    with pytest.raises(InvalidInput, match="'awaited' is of CUDA devices"):
        MeasurePlan("cpu", "x", ("graph", "awaited"))
    assert MeasurePlan("cuda:0", "x", ("graph", "awaited")).states == ("graph", "awaited")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_awaited_operator_takes_its_kernel_and_more():
    timer = timing.timer("cuda:0", ("graph", "awaited"))
    a = torch.randn(4096, 4096, device="cuda:0")
    found = timer.visit(lambda reads: reads[0] @ reads[0], [a])
    least = {s: min(t.seconds for t in found if t.cache == s) for s in timer.states}
    assert least["graph"] < least["awaited"] < 3 * least["graph"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_operator_that_cannot_be_captured_leaves_the_gpu_usable():
    timer = timing.timer("cuda:0", ("graph",))
    a = torch.randn(64, device="cuda:0")
    assert timer.visit(lambda reads: reads[0].nonzero(), [a])  # waits for the GPU
    a = torch.randn(64, device="cuda:0")  # its generator does not believe that it is captured
    found = timer.visit(lambda reads: torch.relu(reads[0]), [a])
    assert all(0 < t.seconds < 1e-5 for t in found)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_short_kernels_on_a_gpu_are_shorter_than_their_launch():
    timer = timing.timer("cuda:0")
    a = torch.randn(64, device="cuda:0")
    found = timer.visit(lambda reads: torch.relu(reads[0]), [a])
    assert all(0 < t.seconds < 1e-5 for t in found if t.cache == "warm")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_timer_separates_host_and_device():
    timer = timing.timer("cuda:0")
    a = torch.randn(4096, 4096, device="cuda:0")
    found = timer.visit(lambda reads: reads[0] @ reads[0], [a])
    assert {t.cache for t in found} == set(timing.KERNEL_STATES)
    # 137 GFLOP take a GPU longer than the host takes to enqueue them.
    assert all(0 < t.host_seconds < t.seconds < 1 for t in found)
