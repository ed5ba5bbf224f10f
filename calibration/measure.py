"""Measuring operators: shuffled rounds in fresh processes, every sample kept.

``python -m calibration.measure --device cuda:0 --budget 9min --operators FILE.json --out FOLDER``
needs torch, numpy and pyarrow only. Called again with the same folder it goes on where it stopped.

The folder::

    operators.json           what is measured (see calibration.samples)
    plan.json                device, states, threads, repeat_kernel: must agree between calls
    process-0003.json        one per process: versions, core, clocks, allocator, peaks, transfers
    part-0003-0012.parquet   samples in the order in which they were taken:
        operator int32       position in operators.json; -1 is the reference operator
        process, round int32
        cache string         graph, warm, cold
        seconds, host_seconds double
        timestamp double     Unix time

A process takes the least visited operators first and shuffles those that are equal, so any sequence of
short calls covers all of them evenly. Parts are written every few seconds and appear whole.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibration import environment
from calibration.samples import OperatorSample, distinct, read_samples, write_samples
from calibration.timing import CACHE_STATES, Call, Timer, default_states, timer
from simulator.errors import HetsimError, InvalidInput
from simulator.graph import Operator, TensorSpec
from simulator.units import parse_seconds

REFERENCE = -1
PART_SECONDS = 10.0
"""At most this much measuring is lost when a process is killed."""
RAW_SCHEMA = pa.schema(
    [
        ("operator", pa.int32()),
        ("process", pa.int32()),
        ("round", pa.int32()),
        ("cache", pa.string()),
        ("seconds", pa.float64()),
        ("host_seconds", pa.float64()),
        ("timestamp", pa.float64()),
    ]
)
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet")
SHIPPED_OPERATORS = Path(__file__).resolve().parent / "data" / "operators.json.gz"
"""What is measured unless other operators are given."""


@dataclass(frozen=True)
class MeasurePlan:
    """What must stay the same for the samples of one folder to be comparable.

    Attributes:
        device: ``cpu`` or ``cuda:<index>``.
        name: profile name of the device.
        threads: intra-op threads.
        states: cache states, of :data:`calibration.timing.CACHE_STATES`.
        repeat_kernel: kernel executions in one call; 3 makes an honest device of a third the speed.
        seed: of the shuffles and of the operators' data.
    """

    device: str
    name: str
    states: tuple[str, ...]
    threads: int = 1
    repeat_kernel: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for state in self.states:
            if state not in CACHE_STATES:
                known = ", ".join(CACHE_STATES)
                raise InvalidInput(f"No cache state '{state}'; known: {known}")
        if self.repeat_kernel < 1 or self.threads < 1:
            raise InvalidInput("threads and repeat_kernel are at least 1")

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MeasurePlan:
        """Read what :func:`prepare_folder` wrote."""
        return cls(**{**document, "states": tuple(document["states"])})


def reference_operator() -> OperatorSample:
    """The operator that every round repeats: a matrix product of 0.27 GFLOP, neither tiny nor long."""
    x, weight = TensorSpec((256, 512)), TensorSpec((1024, 512))
    reads = (x, weight)
    operator = Operator(
        "reference",
        "linear",
        inputs=reads,
        outputs=(TensorSpec((256, 1024)),),
        target="aten.linear.default",
        template={"args": [{"read": 0, "views": []}, {"read": 1, "views": []}], "kwargs": {}},
        reads=reads,
    )
    return OperatorSample(operator, weights=(1,))


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def prepare_folder(
    folder: Path, plan: MeasurePlan, operators: Sequence[OperatorSample]
) -> list[OperatorSample]:
    """Create the folder, or check that it was made for the same plan; returns what it now measures.

    Operators that the folder has not yet are appended to its own: positions keep their meaning.

    Raises:
        InvalidInput: it was measured with another plan, or holds operators that are not wanted now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plan.json"
    document = json.loads(json.dumps(asdict(plan)))
    operators = distinct(operators)
    if not path.exists():
        write_samples(folder / "operators.json", operators)
        write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
        return operators
    old = json.loads(path.read_text())
    for key, value in document.items():
        if old.get(key) != value:
            raise InvalidInput(
                f"{folder} was measured with {key}={old.get(key)!r}, not {value!r}; choose another "
                "folder"
            )
    begun = read_samples(folder / "operators.json")
    known = {sample.identity for sample in begun}
    if known - {sample.identity for sample in operators}:
        raise InvalidInput(f"{folder} was measured with other operators; choose another folder")
    more = [sample for sample in operators if sample.identity not in known]
    if more:
        write_samples(folder / "operators.json", [*begun, *more])
    return [*begun, *more]


def read_raw(folder: str | Path) -> pa.Table:
    """All samples of a folder, in order of process and part.

    Raises:
        InvalidInput: no samples, or a part that cannot be read.
    """
    folder = Path(folder)
    parts = sorted(path for path in folder.glob("part-*.parquet") if _PART.fullmatch(path.name))
    if not parts:
        raise InvalidInput(f"{folder} holds no samples; run the measuring step into it first")
    tables = []
    for path in parts:
        try:
            tables.append(pq.read_table(path, schema=RAW_SCHEMA))
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(
                f"{path} cannot be read ({error}); delete it and measure again"
            ) from None
    return pa.concat_tables(tables)


def visits(folder: Path, operators: int) -> np.ndarray:
    """int64[operators]: in how many (process, round) pairs each operator was measured."""
    count = np.zeros(operators, dtype=np.int64)
    with contextlib.suppress(InvalidInput):
        raw = read_raw(folder)
        keys = np.stack([raw[c].to_numpy() for c in ("operator", "process", "round")], axis=1)
        keys = np.unique(keys[keys[:, 0] >= 0], axis=0)
        count += np.bincount(keys[:, 0], minlength=operators)
    return count


# -- one process ------------------------------------------------------------------------------------


class Recorder:
    """Collects samples and writes them as parts, at most ``interval`` seconds apart."""

    def __init__(self, folder: Path, process: int, interval: float = PART_SECONDS) -> None:
        self.folder = folder
        self.process = process
        self.interval = interval
        self.rows: list[tuple[int, int, int, str, float, float, float]] = []
        self.parts = 0
        self.taken = 0
        self._written = time.monotonic()

    def add(self, operator: int, round_: int, cache: str, seconds: float, host: float) -> None:
        """Keep one sample."""
        self.taken += 1
        self.rows.append((operator, self.process, round_, cache, seconds, host, time.time()))

    def flush(self, force: bool = False) -> bool:
        """Write a part if one is due; returns whether it did."""
        if not self.rows or not (force or time.monotonic() - self._written > self.interval):
            return False
        columns = [list(column) for column in zip(*self.rows, strict=True)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, schema=RAW_SCHEMA), sink, compression="zstd")
        path = self.folder / f"part-{self.process:04d}-{self.parts:04d}.parquet"
        write_atomically(path, sink.getvalue().to_pybytes())
        self.rows.clear()
        self.parts += 1
        self._written = time.monotonic()
        return True


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
        from calibration.kernels import build, random_reads

        operator = sample.operator
        kernel = build(operator, self.plan.device)
        reads = random_reads(operator, self.plan.device, seed)
        spare = None
        if sample.weights and "graph" in self.plan.states:
            spare = [t.clone() if i in sample.weights else t for i, t in enumerate(reads)]
        call = _repeated(kernel, self.plan.repeat_kernel)
        timings = self.clock.visit(call, reads, spare)
        return [(t.cache, t.seconds, t.host_seconds) for t in timings]


def order_of_visits(count: np.ndarray, seed: int) -> list[int]:
    """Least visited first, those that are equal shuffled."""
    order = list(range(len(count)))
    random.Random(seed).shuffle(order)
    return sorted(order, key=lambda i: int(count[i]))


def run_process(
    folder: Path,
    process: int,
    deadline: float,
    report: Callable[[dict], None],
    part_seconds: float = PART_SECONDS,
) -> None:
    """Measure until the deadline (Unix time) in this process; the samples end up in ``folder``."""
    import torch

    plan = MeasurePlan.from_json(json.loads((folder / "plan.json").read_text()))
    on_cpu = plan.device == "cpu"
    steady = environment.steady_allocator() if on_cpu else False
    niceness = environment.raise_priority() if on_cpu else 0
    torch.set_num_threads(plan.threads)
    from calibration import peaks, transfers

    operators = read_samples(folder / "operators.json")
    record: dict[str, Any] = {
        "process": process,
        "started": time.time(),
        "versions": environment.versions(),
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "steady_allocator": steady,
        "niceness": niceness,
        "processor": environment.cpu_model(),
    }
    with torch.inference_mode():
        # A small part of a process's life; transfers only in every fourth that is long enough.
        left = deadline - time.time()
        record["peaks"] = peaks.measure(plan.device, min(0.5, left / 100))
        if process % 4 == 0 and left > 12:
            record["transfers"] = transfers.measure(plan.device)
        if plan.device != "cpu":
            record["gpu"] = torch.cuda.get_device_name(plan.device)
            record["clocks"] = environment.gpu_clocks(plan.device)
        path = folder / f"process-{process:04d}.json"
        write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
        recorder = Recorder(folder, process, part_seconds)
        try:
            _rounds(plan, operators, folder, recorder, deadline, report)
        except KeyboardInterrupt:
            # The terminal interrupts this process and its parent, which passes it on: once is enough.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            report({"stopped": True})
        finally:
            recorder.flush(force=True)
    if plan.device != "cpu":
        record["clocks_at_end"] = environment.gpu_clocks(plan.device)
    record["finished"] = time.time()
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())


def _rounds(
    plan: MeasurePlan,
    operators: Sequence[OperatorSample],
    folder: Path,
    recorder: Recorder,
    deadline: float,
    report: Callable[[dict], None],
) -> None:
    visitor = Visitor(plan, timer(plan.device, plan.states))
    reference = reference_operator()
    count = visits(folder, len(operators))
    round_, since_reference = 0, float("-inf")
    while True:
        seed = plan.seed * 1_000_003 + recorder.process * 1009 + round_
        for done, index in enumerate(order_of_visits(count, seed)):
            if time.time() >= deadline and recorder.taken:
                return
            if time.monotonic() - since_reference > 5.0:
                for cache, seconds, host in visitor.visit(reference, 0):
                    recorder.add(REFERENCE, round_, cache, seconds, host)
                since_reference = time.monotonic()
            try:
                timings = visitor.visit(operators[index], index)
            except (RuntimeError, NotImplementedError, InvalidInput) as error:
                # One operator that this device cannot run must not cost the others their times.
                report({"failed": index, "why": str(error).splitlines()[0][:300]})
                count[index] += 1
                continue
            for cache, seconds, host in timings:
                recorder.add(index, round_, cache, seconds, host)
            count[index] += 1
            if recorder.flush():
                report({"round": int(count.min()), "done": done + 1, "of": len(operators)})
        round_ += 1


# -- the whole run ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How a call of :func:`measure` ended."""

    processes: int
    complete_rounds: int
    failed: Mapping[int, str]
    interrupted: bool


def measure(
    folder: str | Path,
    plan: MeasurePlan,
    operators: Sequence[OperatorSample],
    budget: float,
    *,
    core: int | None = None,
    process_seconds: float = 240.0,
    part_seconds: float = PART_SECONDS,
    show: Callable[[str], None] | None = None,
) -> Outcome:
    """Measure for ``budget`` seconds, in fresh processes of about ``process_seconds`` each.

    Args:
        folder: where samples go; an earlier call's are kept and continued.
        plan: device, states, threads.
        operators: what to measure.
        budget: seconds; at least two processes share it.
        core: the core that CPU measuring is bound to; None is the last one.
        process_seconds: about how long each process lives.
        part_seconds: how often samples are written.
        show: called with a line of progress, time left included.

    Raises:
        InvalidInput: the device is not here, or the folder holds something else.
    """
    folder = Path(folder)
    environment.check_device(plan.device)
    if not operators:
        raise InvalidInput("There are no operators to measure")
    if not budget > 0:
        raise InvalidInput(f"A budget of {budget} s measures nothing")
    operators = prepare_folder(folder, plan, operators)
    for leftover in folder.glob(".part-*"):
        leftover.unlink()
    if core is None and plan.device == "cpu":
        core = environment.last_core()
    end = time.time() + budget
    number = max([int(p.stem[8:]) for p in folder.glob("process-*.json")], default=-1) + 1
    processes, failed, interrupted = 0, {}, False
    # At least two processes in a call, so that one call already has an A/A error.
    slices = max(2, round(budget / process_seconds))
    for position in range(slices):
        left = end - time.time()
        if left <= 0 or interrupted:
            break
        deadline = time.time() + left / (slices - position)
        for message in _child(folder, number, deadline, core, plan.threads, part_seconds):
            if "failed" in message:
                failed[int(message["failed"])] = message["why"]
            interrupted |= "stopped" in message
            if show and "round" in message:
                minutes, seconds = divmod(max(0, int(end - time.time())), 60)
                share = message["done"] / message["of"]
                show(
                    f"process {number}, round {message['round'] + 1}: {share:4.0%} of "
                    f"{message['of']} operators, {minutes}:{seconds:02d} left"
                )
        number += 1
        processes += 1
    count = visits(folder, len(operators))
    measured = [int(n) for i, n in enumerate(count) if i not in failed]
    return Outcome(processes, min(measured, default=0), failed, interrupted)


def _child(
    folder: Path,
    number: int,
    deadline: float,
    core: int | None,
    threads: int,
    part_seconds: float,
) -> Iterator[dict[str, Any]]:
    """Run one measuring process and yield its messages."""
    command = [sys.executable, "-m", "calibration.measure", "--child", str(number)]
    command += ["--out", str(folder), "--deadline", repr(deadline)]
    command += ["--part-seconds", repr(part_seconds)]
    if core is not None:
        # Bound before Python starts, so that every thread of every library inherits it.
        command += ["--core", str(core)]
    root = Path(__file__).resolve().parent.parent
    search = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables, "PYTHONPATH": search},
    )
    assert process.stdout is not None
    stopped = False
    while True:
        try:
            line = process.stdout.readline()
        except KeyboardInterrupt:
            # The terminal sent it to the child as well, which now saves what it has.
            stopped = True
            process.send_signal(signal.SIGINT)
            continue
        if not line:
            break
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)
    code = process.wait()
    if stopped:
        yield {"stopped": True}
    elif code:
        raise HetsimError(
            f"Measuring process {number} ended with status {code}; what it measured is kept, the same "
            "command goes on"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m calibration.measure", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", default="cpu", help="cpu or cuda:<index>")
    parser.add_argument("--budget", default="5min", help="how long, such as 9min")
    parser.add_argument("--out", required=True, type=Path, help="folder of the samples")
    parser.add_argument(
        "--operators",
        type=Path,
        help="operators file (JSON, may be gzipped; default: the folder's own, then the project's)",
    )
    parser.add_argument("--core", type=int, help="core to bind to (CPU; default: the last)")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads")
    parser.add_argument("--states", help=f"cache states, of {','.join(CACHE_STATES)}")
    parser.add_argument("--repeat-kernel", type=int, default=1, help="kernel runs in one call")
    parser.add_argument("--name", help="profile name (default: made from the device)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--process-seconds", type=float, default=240.0, help="life of a process")
    parser.add_argument(
        "--part-seconds", type=float, default=PART_SECONDS, help="how often samples are written"
    )
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        if options.child is not None:
            environment.pin(options.core)
            run_process(
                options.out,
                options.child,
                options.deadline,
                lambda message: print(json.dumps(message), flush=True),
                options.part_seconds,
            )
            return 0
        return _command(options)
    except HetsimError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # A measuring process that had not begun, or was about to end: there is nothing to save.
        return 130


def _command(options: argparse.Namespace) -> int:
    begun = options.out / "operators.json"
    operators = read_samples(options.operators or (begun if begun.exists() else SHIPPED_OPERATORS))
    states = default_states(options.device)
    if options.states:
        states = tuple(options.states.split(","))
    name = options.name or environment.device_name(
        options.device, options.threads, options.repeat_kernel
    )
    plan = MeasurePlan(
        options.device,
        name,
        states,
        options.threads,
        options.repeat_kernel,
        options.seed,
    )
    terminal = sys.stderr.isatty()
    outcome = measure(
        options.out,
        plan,
        operators,
        parse_seconds(options.budget, "budget"),
        core=options.core,
        process_seconds=options.process_seconds,
        part_seconds=options.part_seconds,
        show=lambda line: print(line, file=sys.stderr, flush=True, end="\r" if terminal else "\n"),
    )
    for index, why in outcome.failed.items():
        print(f"not measured: {operators[index].operator.name}: {why}", file=sys.stderr)
    state = "stopped" if outcome.interrupted else "finished"
    print(
        f"{state}: {outcome.complete_rounds} complete rounds over {len(operators)} operators in "
        f"{options.out}; the same command adds more"
    )
    return 130 if outcome.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
