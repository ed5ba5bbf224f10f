"""One measuring process: shuffled rounds over the operators that are due, until its time is up.

Long operators are visited less often: the number of visits falls with the square root of what a visit takes. Where the
logarithms of all times scatter alike, that gives the least variance for the time spent (Neyman's allocation with costs,
Cochran, Sampling Techniques, 3rd edition, 5.5). Operators that are equally due are shuffled, so any sequence of short
processes covers all of them evenly.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration import environment
from calibration.folder import REFERENCE, plan_of, visited, visits, write_json
from calibration.plan import MeasurePlan
from calibration.recorder import PART_SECONDS, Recorder
from calibration.reference import reference_operator
from calibration.samples import DTYPES, OperatorSample, read_samples
from calibration.timing import Call, CpuTimer, Timer, timer
from simulator.errors import ExecutionError, InvalidInput

REFERENCE_SECONDS, CLOCKS_SECONDS = 5.0, 15.0
"""Between two visits to the reference operator, and two readings of a GPU's clocks, which take up to a second."""
VISIT_SECONDS, CALLS = 0.01, 6
"""A visit takes so many seconds besides the operator's own calls, and makes about so many calls."""
_LOST = ("CUDA error", "cuda runtime error", "CUDA-capable device", "CUDA driver")
"""In messages of torch after which a GPU executes nothing more in this process."""


def _repeated(kernel: Callable[..., Any], times: int) -> Call:
    if times == 1:
        return lambda reads: kernel(*reads)

    def call(reads: Sequence[Any]) -> Any:
        for _ in range(times - 1):
            kernel(*reads)
        return kernel(*reads)

    return call


class Visitor:
    """Builds an operator, gives it data and has it timed."""

    def __init__(self, plan: MeasurePlan, clock: Timer) -> None:
        self.plan = plan
        self.clock = clock

    def visit(self, sample: OperatorSample, seed: int) -> list[tuple[str, float, float]]:
        """(cache, seconds, host seconds) of every call of one visit."""
        from calibration.kernels import build
        from calibration.random_tensors import random_reads

        operator = sample.operator
        kernel = build(operator, self.plan.device)
        reads = random_reads(operator, self.plan.device, seed)
        call = _repeated(kernel, self.plan.repeat_kernel)
        with environment.matrix_precision(self.plan.device, sample.tf32):
            timings = self.clock.visit(call, reads, sample.weights)
        return [(t.cache, t.seconds, t.host_seconds) for t in timings]


def order_of_visits(count: np.ndarray, seconds: np.ndarray, seed: int) -> list[int]:
    """The operators of a round: those that are due, least visited for their cost first, equal ones shuffled.

    Args:
        count: int64[operators], visits so far.
        seconds: float64[operators], of one call; 0 where it is not known.
        seed: of the order.
    """
    spent = count * np.sqrt(1 + CALLS * seconds / VISIT_SECONDS)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(spent < spent.min() + 1))
    return [int(i) for i in order[np.argsort(spent[order], kind="stable")]]


class Process:
    """What one process does, and what it writes about itself.

    Args:
        folder: of the run.
        number: of the process.
        report: called with messages for the parent.
        part_seconds: how often samples are written.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        report: Callable[[dict[str, Any]], None],
        part_seconds: float = PART_SECONDS,
    ) -> None:
        cores = sorted(os.sched_getaffinity(0))  # before OpenMP binds this thread to one of them
        import torch

        self.folder = folder
        self.report = report
        self.plan = plan_of(folder)
        on_cpu = self.plan.device == "cpu"
        steady = environment.steady_allocator() if on_cpu else False
        niceness = environment.raise_priority() if on_cpu else 0
        torch.set_num_threads(self.plan.threads)
        self.operators = read_samples(folder / "operators.json")
        self.recorder = Recorder(folder, number, part_seconds)
        self.record: dict[str, Any] = {
            "process": number,
            "started": time.time(),
            "versions": environment.versions(self.plan.device),
            "cores": cores,
            "threads": torch.get_num_threads(),
            "steady_allocator": steady,
            "niceness": niceness,
            "processor": environment.cpu_model(),
            "capacity_bytes": environment.capacity(self.plan.device),
            "cache_bytes": environment.cache(self.plan.device),
        }
        if not on_cpu:
            self.record["gpu"] = torch.cuda.get_device_name(self.plan.device)
            self.record["clocks"] = []

    def write_record(self) -> None:
        """Write ``process-<number>.json`` as it stands."""
        write_json(self.folder / f"process-{self.recorder.process:04d}.json", self.record)

    def read_clocks(self) -> None:
        """Note a GPU's clocks and what holds them back."""
        if self.plan.device != "cpu":
            now = {"timestamp": time.time(), **environment.gpu_clocks(self.plan.device)}
            self.record["clocks"].append(now)

    def measure_device(self, deadline: float) -> None:
        """Rates, transfers, allocation: a small part of the process's life.

        All but the rates only in every fourth process that is long enough.
        """
        from calibration import allocation, peaks, transfers

        left = deadline - time.monotonic()
        found = {sample.dtype for sample in self.operators}
        dtypes = [dtype for dtype in DTYPES if dtype in found | {"float32"}]
        self.record["peaks"] = peaks.measure(self.plan.device, min(0.5, left / 100), dtypes)
        if self.recorder.process % 4 == 0 and left > 12:
            self.record["transfers"] = transfers.measure(self.plan.device)
            self.record["allocation"] = allocation.measure(self.plan.device)

    def run(self, deadline: float, rounds: int | None = None) -> None:
        """Measure until the deadline (of ``time.monotonic``, one clock for all processes), or for so many rounds if that is sooner."""
        import torch

        from calibration import networks

        # Before there are intra-op threads, which inherit it.
        with environment.denormals_flushed() as flushed, torch.inference_mode():
            self.record["flush_denormal"] = flushed
            self.measure_device(deadline)
            if self.plan.device == "cpu" and deadline - time.monotonic() >= networks.LEAST_SECONDS:
                clock = CpuTimer(self.plan.states)
                self.record["networks"] = networks.measure(
                    clock, self.plan.repeat_kernel, seed=self.recorder.process
                )
            self.read_clocks()
            self.write_record()
            try:
                self._rounds(deadline, rounds)
            except KeyboardInterrupt:
                # The terminal interrupts this process and its parent, which passes it on: once is
                # enough.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                self.report({"stopped": True})
            finally:
                self.recorder.flush(force=True)
        self.read_clocks()
        self.record["finished"] = time.time()
        self.write_record()

    def _rounds(self, deadline: float, rounds: int | None) -> None:
        plan, recorder = self.plan, self.recorder
        visitor = Visitor(plan, timer(plan.device, plan.states))
        reference = reference_operator()
        count, seconds_of = visits(self.folder, len(self.operators))
        mine = visited(self.folder, len(self.operators))
        round_, since_reference, since_clocks = 0, float("-inf"), time.monotonic()
        while rounds is None or round_ < rounds:
            seed = plan.seed * 1_000_003 + recorder.process * 1009 + round_
            if rounds is None:
                due = order_of_visits(count[mine], seconds_of[mine], seed)
            else:  # visits to every operator were asked for
                due = order_of_visits(np.zeros_like(mine), seconds_of[mine], seed)
            for done, position in enumerate(due):
                index = int(mine[position])
                if time.monotonic() >= deadline and recorder.taken:
                    return
                if time.monotonic() - since_reference > REFERENCE_SECONDS:
                    for cache, seconds, host in visitor.visit(reference, 0):
                        recorder.add(REFERENCE, round_, cache, seconds, host)
                    since_reference = time.monotonic()
                    if since_reference - since_clocks > CLOCKS_SECONDS:
                        self.read_clocks()
                        since_clocks = time.monotonic()
                count[index] += 1
                timings = self._visited(visitor, index)
                for cache, seconds, host in timings:
                    recorder.add(index, round_, cache, seconds, host)
                if timings:
                    seconds_of[index] = np.mean([seconds for _, seconds, _ in timings])
                if timings and recorder.flush():
                    if plan.device != "cpu":
                        self.write_record()
                    least = int(count[mine].min())
                    self.report({"round": least, "done": done + 1, "of": len(due)})
            round_ += 1

    def _visited(self, visitor: Visitor, index: int) -> list[tuple[str, float, float]]:
        """The timings of one operator; none where this device cannot run it.

        Raises:
            ExecutionError: the device executes nothing more.
        """
        try:
            return visitor.visit(self.operators[index], index)
        except (RuntimeError, NotImplementedError, InvalidInput) as error:
            why = str(error).strip().splitlines()[0][:300] if str(error).strip() else repr(error)
            if any(sign in str(error) for sign in _LOST):
                raise ExecutionError(
                    f"{self.plan.device} stopped executing at operator "
                    f"'{self.operators[index].operator.name}' ({why})"
                ) from None
            # One operator that this device cannot run must not cost the others their times.
            self.report({"failed": index, "why": why})
            return []


def run_process(
    folder: Path,
    process: int,
    deadline: float,
    report: Callable[[dict[str, Any]], None],
    part_seconds: float = PART_SECONDS,
    rounds: int | None = None,
) -> None:
    """Measure in this process; the samples end up in ``folder``.

    Args:
        folder: prepared by :func:`calibration.folder.prepare_folder`.
        process: its number.
        deadline: of ``time.monotonic``, which no clock that is set moves.
        report: called with messages for the parent.
        part_seconds: how often samples are written.
        rounds: visits to every operator; None fills the time.

    Raises:
        ExecutionError: the device executes nothing more; what was measured is written.
        HetsimError: the folder cannot be written.
    """
    Process(folder, process, report, part_seconds).run(deadline, rounds)
