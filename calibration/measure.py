"""Measuring operators: shuffled rounds in fresh processes, every sample kept.

``python -m calibration.measure --device cuda:0 --budget 9min --operators FILE.json --out FOLDER``
needs torch, numpy and pyarrow only. Called again with the same folder it goes on where it stopped.
What the folder holds: :mod:`calibration.folder`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from calibration import environment, interference, reuse
from calibration.folder import (
    CORUN_FILE,
    REUSE_FILE,
    prepare_folder,
    refuse_another_machine,
    visits,
    write_json,
    write_visited,
)
from calibration.plan import MeasurePlan
from calibration.process import run_process
from calibration.recorder import PART_SECONDS
from calibration.samples import DTYPES, OperatorSample, in_dtypes, read_samples
from calibration.timing import CACHE_STATES, default_states
from simulator.errors import HetsimError, InvalidInput
from simulator.model.units import parse_seconds
from simulator.support.exit_with_parent import end_with

SHIPPED_OPERATORS = Path(__file__).resolve().parent / "data" / "operators.json.gz"
"""What is measured unless other operators are given."""
PROCESS_SECONDS = 240.0
"""About how long a process lives."""
LAST_WORDS = 5.0
"""Seconds in which a process whose parent was killed saves what it has; a kernel may be running."""
BESIDES_BUDGET = 200.0
"""Seconds; a call with at least as many measures co-running and what the cache keeps as well, where the
folder lacks them."""


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
    cores: Sequence[int] | None = None,
    rounds: int | None = None,
    process_seconds: float = PROCESS_SECONDS,
    part_seconds: float = PART_SECONDS,
    show: Callable[[str], None] | None = None,
) -> Outcome:
    """Measure for ``budget`` seconds, in fresh processes of about ``process_seconds`` each.

    Args:
        folder: where samples go; an earlier call's are kept and continued.
        plan: device, states, threads.
        operators: what to measure; others that the folder has are kept and not visited.
        budget: seconds; at least two processes share it.
        cores: the cores that CPU measuring is bound to, one a thread; None is the last ones.
        rounds: visits of each process to every operator, if the budget is not used up before; None
            fills the budget.
        process_seconds: about how long each process lives.
        part_seconds: how often samples are written.
        show: called with a line of progress, time left included.

    Raises:
        InvalidInput: the device is not here, the folder holds something else, or it was measured on another
            machine or with other software.
        HetsimError: a process ended early, or the folder cannot be written; what was measured is kept.
    """
    folder = Path(folder)
    environment.check_device(plan.device)
    refuse_another_machine(folder, environment.described(plan.device))
    if not operators:
        raise InvalidInput("There are no operators to measure")
    if not budget > 0:
        raise InvalidInput(f"A budget of {budget} s measures nothing")
    if rounds is not None and rounds < 1:
        raise InvalidInput("rounds is at least 1")
    if plan.device == "cpu":
        cores = environment.cores_for(plan.threads, cores)
    asked = {sample.identity for sample in operators}
    operators = prepare_folder(folder, plan, operators)
    wanted = [i for i, sample in enumerate(operators) if sample.identity in asked]
    write_visited(folder, wanted if len(wanted) < len(operators) else None)
    for leftover in folder.glob(".part-*"):
        leftover.unlink()
    visits(folder, len(operators))  # refuses damaged parts before anything is measured
    if plan.device == "cpu" and any(sample.tf32 for sample in operators):
        raise InvalidInput("tf32 is an element type of CUDA devices; a CPU has none")
    end = time.monotonic() + budget
    if budget >= BESIDES_BUDGET:
        _measure_besides(folder, plan, cores, show)
    number = max([int(p.stem[8:]) for p in folder.glob("process-*.json")], default=-1) + 1
    processes, failed, interrupted = 0, {}, False
    # At least two processes in a call, so that one call already has an A/A error.
    slices = max(2, round(budget / process_seconds))
    for position in range(slices):
        left = end - time.monotonic()
        if left <= 0 or interrupted:
            break
        deadline = time.monotonic() + left / (slices - position)
        for message in _child(folder, number, plan, deadline, cores, part_seconds, rounds):
            if "failed" in message:
                failed[int(message["failed"])] = message["why"]
            interrupted |= "stopped" in message
            if show and "round" in message:
                minutes, seconds = divmod(max(0, int(end - time.monotonic())), 60)
                share = message["done"] / message["of"]
                show(
                    f"process {position + 1} of {slices}, round {message['round'] + 1}: {share:4.0%} "
                    f"of {message['of']} operators, {minutes}:{seconds:02d} left"
                )
        number += 1
        processes += 1
    count, _ = visits(folder, len(operators))
    measured = [int(count[i]) for i in wanted if i not in failed]
    return Outcome(processes, min(measured, default=0), failed, interrupted)


def _measure_besides(
    folder: Path,
    plan: MeasurePlan,
    cores: Sequence[int] | None,
    show: Callable[[str], None] | None,
) -> None:
    """Measure what a folder lacks apart from its operators."""
    if not (folder / CORUN_FILE).exists():
        if show:
            show("what runners cost each other")
        if found := interference.measure(plan.device, plan.threads):
            write_json(folder / CORUN_FILE, found)
    if not (folder / REUSE_FILE).exists():
        if show:
            show("what the cache keeps between two uses")
        core = cores[-1] if cores and plan.device == "cpu" else None
        if found := reuse.measure(plan.device, core=core):
            write_json(folder / REUSE_FILE, found)


def _child(
    folder: Path,
    number: int,
    plan: MeasurePlan,
    deadline: float,
    cores: Sequence[int] | None,
    part_seconds: float,
    rounds: int | None,
) -> Iterator[dict[str, Any]]:
    """Run one measuring process and yield its messages."""
    command = [sys.executable, "-m", "calibration.measure", "--child", str(number)]
    command += ["--out", str(folder), "--deadline", repr(deadline)]
    command += ["--part-seconds", repr(part_seconds)]
    if rounds is not None:
        command += ["--rounds", str(rounds)]
    if cores is not None:
        # Bound before Python starts, so that every thread of every library inherits it.
        command += ["--cores", ",".join(map(str, cores))]
    root = Path(__file__).resolve().parent.parent
    search = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # nothing is written: it closes when this process ends
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment.thread_variables(plan.threads), "PYTHONPATH": search},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stopped, error = False, ""
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
            message = json.loads(line)
            if "error" in message:
                error = message["error"]
            else:
                yield message
    code = process.wait()
    process.stdin.close()
    process.stdout.close()
    if stopped:
        yield {"stopped": True}
    elif error:
        raise HetsimError(
            f"{error}. What was measured is kept in {folder}; the same command goes on"
        )
    elif code:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        raise HetsimError(
            f"Measuring process {number} {how}; what it measured is kept in {folder}, the same command "
            "goes on"
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
        help="operators to visit (JSON, may be gzipped; default: the folder's own, then the project's); "
        "others that the folder has are kept",
    )
    parser.add_argument(
        "--cores", help="cores to bind to (CPU, such as 1 or 0,1; default: the last)"
    )
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads")
    parser.add_argument(
        "--dtypes", help=f"element types to measure float32 operators in, of {','.join(DTYPES)}"
    )
    parser.add_argument("--states", help=f"cache states, of {','.join(CACHE_STATES)}")
    parser.add_argument("--repeat-kernel", type=int, default=1, help="kernel runs in one call")
    parser.add_argument("--name", help="profile name (default: made from the device)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, help="visits of each process to every operator")
    parser.add_argument(
        "--process-seconds", type=float, default=PROCESS_SECONDS, help="life of a process"
    )
    parser.add_argument(
        "--part-seconds", type=float, default=PART_SECONDS, help="how often samples are written"
    )
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        return _measuring_process(options)
    try:
        return _command(options)
    except HetsimError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # A measuring process that had not begun, or was about to end: there is nothing to save.
        return 130


def _measuring_process(options: argparse.Namespace) -> int:
    def report(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody is there to be told
            print(json.dumps(message), flush=True)

    # As on Ctrl-C: what was measured is saved.
    end_with(
        Connection(sys.stdin.fileno(), writable=False),
        lambda: os.kill(os.getpid(), signal.SIGINT),
        LAST_WORDS,
    )
    try:
        environment.pin(_cores(options))
        run_process(
            options.out,
            options.child,
            options.deadline,
            report,
            options.part_seconds,
            options.rounds,
        )
    except HetsimError as error:
        report({"error": str(error).rstrip(".")})
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _cores(options: argparse.Namespace) -> list[int] | None:
    if options.cores is None:
        return None
    try:
        return [int(core) for core in options.cores.split(",")]
    except ValueError:
        raise InvalidInput(f"'{options.cores}' are no cores; say 1 or 0,1") from None


def _command(options: argparse.Namespace) -> int:
    begun = options.out / "operators.json"
    operators = read_samples(options.operators or (begun if begun.exists() else SHIPPED_OPERATORS))
    if options.dtypes:
        operators = in_dtypes(operators, options.dtypes.split(","))
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
        cores=_cores(options),
        rounds=options.rounds,
        process_seconds=options.process_seconds,
        part_seconds=options.part_seconds,
        show=lambda line: print(line, file=sys.stderr, flush=True, end="\r" if terminal else "\n"),
    )
    measured = read_samples(begun)
    for index, why in outcome.failed.items():
        print(f"not measured: {measured[index].operator.name}: {why}", file=sys.stderr)
    state = "stopped" if outcome.interrupted else "finished"
    print(
        f"{state}: {outcome.complete_rounds} complete rounds over {len(measured)} operators in "
        f"{options.out}; the same command adds more"
    )
    return 130 if outcome.interrupted else 0


class _WithoutPandas:
    """A finder that finds no pandas.

    Pyarrow imports it, where it is there, to look whether it was given one of its frames, and that would
    cost each measuring process two seconds. Torch asks whether it is there, so that an error is no answer.
    """

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        """See :class:`importlib.abc.MetaPathFinder`."""
        return None if fullname == "pandas" else self._finder.find_spec(fullname, path, target)


if __name__ == "__main__":
    sys.meta_path[:] = [_WithoutPandas(finder) for finder in sys.meta_path]
    sys.exit(main())
