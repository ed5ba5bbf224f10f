"""What runners that compute at once in one memory cost each other.

On a CPU the runners are processes, each bound to cores of its own; on a GPU they are streams. Each
repeats a kernel of one class:

``compute``
    a matrix product that stays in its private cache;
``memory``
    an activation of several times the last-level cache;
``model``
    convolution, normalisation, activation, sum and linear layer in turn, as in a network.

The slowdown of a victim is the time of its calls beside ``k`` aggressors over that alone: of each the
fastest of a few runs, taken in turns, and of a run the median call.

``python -m calibration.interference`` is one runner: it reads lines ``{"class": ..., "seconds": ...}`` and
answers each with the seconds of its calls.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration import environment
from simulator.errors import ExecutionError
from simulator.model.operator import TensorSpec

CLASSES = ("compute", "memory", "model")
RUN_SECONDS = 0.4
"""Of one run; its first quarter, in which not all runners may have begun, does not count."""
REPEATS = 3
STREAMS = (1, 2, 4)
"""Numbers of other streams on a GPU."""

Measured = Mapping[tuple[str, str, int], float]
"""Slowdown by (victim, aggressor, number of aggressors)."""


def work(name: str, device: str = "cpu") -> Callable[[], Any]:
    """One call of a class, ready to be repeated."""
    from calibration.kernels import build, make_operator
    from calibration.random_tensors import random_reads

    on_cpu = device == "cpu"
    if name == "compute":
        side = 192 if on_cpu else 2048
        x = TensorSpec((side, side))
        operators = [make_operator("aten.mm.default", x, x)]
    elif name == "memory":
        numbers = environment.last_level_cache() if on_cpu else 1 << 27
        operators = [make_operator("aten.relu.default", TensorSpec((numbers,)))]
    else:
        image = TensorSpec((1 if on_cpu else 32, 64, 56, 56))
        each = TensorSpec((64,))
        tokens, weight = TensorSpec((128 if on_cpu else 4096, 768)), TensorSpec((768, 768))
        operators = [
            make_operator(
                "aten.conv2d.default", image, TensorSpec((64, 64, 3, 3)), None, [1, 1], [1, 1]
            ),
            make_operator(
                "aten.batch_norm.default", image, each, each, each, each, False, 0.1, 1e-5, False
            ),
            make_operator("aten.relu.default", image),
            make_operator("aten.add.Tensor", image, image),
            make_operator("aten.linear.default", tokens, weight),
        ]
    kernels = [(build(o, device), random_reads(o, device, i)) for i, o in enumerate(operators)]

    def call() -> None:
        for kernel, reads in kernels:
            kernel(*reads)

    return call


def summary(measured: Measured, of: str) -> dict[str, Any]:
    """What a profile keeps.

    Returns:
        ``of`` (``cores`` or ``streams``); ``rows`` of ``victim``, ``aggressor``, ``others`` and
        ``slowdown``; and ``fraction``: the part of its time that each other runner costs one that
        runs a model, the least-squares line through slowdown 1 for models beside models, not below
        0. It is what ``corun_slowdown`` of a memory space takes.
    """
    points = [(k, s - 1) for (v, a, k), s in measured.items() if v == a == "model"]
    weight = sum(k * k for k, _ in points)
    fraction = sum(k * s for k, s in points) / weight if weight else 0.0
    return {
        "of": of,
        "fraction": round(max(0.0, fraction), 4),
        "rows": [
            {"victim": v, "aggressor": a, "others": k, "slowdown": round(slowdown, 4)}
            for (v, a, k), slowdown in sorted(measured.items())
        ],
    }


def measure(device: str, threads: int = 1, run_seconds: float = RUN_SECONDS) -> dict[str, Any]:
    """The slowdowns of a device's runners, as :func:`summary` gives them; empty with one runner.

    Args:
        device: ``cpu`` or ``cuda:<index>``.
        threads: cores of one runner on a CPU.
        run_seconds: of each of the ``3 (1 + 6 n)`` runs on a CPU, ``n`` numbers of others.

    Raises:
        ExecutionError: a runner ended.
    """
    if device != "cpu":
        return summary(_on_gpu(device), "streams")
    cores = sorted(os.sched_getaffinity(0), reverse=True)
    groups = [cores[i : i + threads] for i in range(0, len(cores) - threads + 1, threads)]
    others = _numbers(len(groups) - 1)
    if not others:
        return {}
    with contextlib.ExitStack() as stack:
        runners = [
            stack.enter_context(_runner(group, threads)) for group in groups[: others[-1] + 1]
        ]
        return summary(
            slowdowns(lambda classes: _together(runners, classes, run_seconds), others), "cores"
        )


def _numbers(most: int) -> list[int]:
    """1, 2, 4, ... and the most there can be."""
    found = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return [*found, most] if most > 0 else []


def slowdowns(
    together: Callable[[Sequence[str]], Sequence[float]],
    others: Sequence[int],
    repeats: int = REPEATS,
) -> Measured:
    """Slowdown of every class beside so many of every class.

    Args:
        together: runs these classes at once and gives the seconds of a call of each.
        others: numbers of aggressors.
        repeats: of everything; the fastest counts, which the rest of the machine disturbed least.
    """
    alone: dict[str, float] = {}
    beside: dict[tuple[str, str, int], float] = {}
    for _ in range(repeats):
        for victim in CLASSES:
            alone[victim] = min(alone.get(victim, math.inf), together([victim])[0])
            for aggressor in CLASSES:
                for count in others:
                    key = victim, aggressor, count
                    seconds = together([victim, *[aggressor] * count])[0]
                    beside[key] = min(beside.get(key, math.inf), seconds)
    return {key: seconds / alone[key[0]] for key, seconds in beside.items()}


# -- processes on cores -------------------------------------------------------------------------------


@contextlib.contextmanager
def _runner(cores: Sequence[int], threads: int) -> Iterator[subprocess.Popen[str]]:
    root = str(Path(__file__).resolve().parent.parent)
    search = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [
        sys.executable,
        "-m",
        "calibration.interference",
        json.dumps(list(cores)),
        str(threads),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment.thread_variables(threads), "PYTHONPATH": search},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _together(
    runners: Sequence[subprocess.Popen[str]], classes: Sequence[str], seconds: float
) -> list[float]:
    at_work = runners[: len(classes)]
    for step in ("prepare", "run"):
        # All are ready before any begins.
        for process, name in zip(at_work, classes, strict=True):
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps({step: name, "seconds": seconds}) + "\n")
                process.stdin.flush()
        answers = []
        for process in at_work:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise ExecutionError("A process that measures co-running ended early")
            answers.append(float(json.loads(line)))
    return answers


def _serve() -> None:
    import torch

    cores, threads = json.loads(sys.argv[1]), int(sys.argv[2])
    environment.pin(cores)
    environment.steady_allocator()
    environment.flush_denormals()
    torch.set_num_threads(threads)
    calls: dict[str, Callable[[], Any]] = {}
    with torch.inference_mode():
        for line in sys.stdin:
            order = json.loads(line)
            name = order.get("prepare") or order["run"]
            if name not in calls:
                calls[name] = work(name)
                calls[name]()
            print(_repeated(calls[name], order["seconds"]) if "run" in order else 0.0, flush=True)


def _repeated(call: Callable[[], Any], seconds: float) -> float:
    """Median seconds of the calls of so long a time without its first and its last quarter."""
    begin = time.perf_counter()
    found: list[tuple[float, float]] = []
    while (start := time.perf_counter()) - begin < seconds or len(found) < 2:
        call()
        found.append((start - begin, time.perf_counter() - start))
    inner = [length for at, length in found if seconds / 4 <= at < 3 * seconds / 4]
    return statistics.median(inner or [length for _, length in found])


# -- streams of a GPU ---------------------------------------------------------------------------------


def _on_gpu(device: str, calls: int = 20) -> Measured:
    import torch

    with torch.inference_mode(), torch.cuda.device(device):
        kinds = {name: work(name, device) for name in CLASSES}
        streams = [torch.cuda.Stream() for _ in range(STREAMS[-1] + 1)]
        lengths = {name: _on_streams(streams, [kinds[name]], [calls]) for name in CLASSES}

        def together(classes: Sequence[str]) -> list[float]:
            # The aggressors' work outlasts the victim's, were it three times as slow.
            whole = 3 * lengths[classes[0]]
            counts = [calls, *(max(1, round(calls * whole / lengths[c])) for c in classes[1:])]
            return [_on_streams(streams, [kinds[c] for c in classes], counts)]

        return slowdowns(together, STREAMS)


def _on_streams(
    streams: Sequence[Any], works: Sequence[Callable[[], Any]], counts: Sequence[int]
) -> float:
    """Seconds of a call of the first, while the others run on streams of their own."""
    import torch

    gate, start, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[0]):
        torch.cuda._sleep(50_000_000)  # all streams wait until everything is enqueued
        gate.record()
    for stream, call, count in list(zip(streams, works, counts, strict=False))[1:]:
        with torch.cuda.stream(stream):
            stream.wait_event(gate)
            for _ in range(count):
                call()
    with torch.cuda.stream(streams[0]):
        start.record()
        for _ in range(counts[0]):
            works[0]()
        end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3 / counts[0]


if __name__ == "__main__":
    _serve()
