"""Threads that execute operators, and how they wait.

A worker is one slot of a device: a thread bound to a core, or one that feeds a CUDA stream. Torch
releases the interpreter lock inside kernels, so workers compute at the same time; everything between
two kernels runs under that lock and is kept short.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from calibration.environment import check_device, device_name, flush_denormals, pin
from calibration.timing import AWAITED
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class WorkerSpec:
    """What a device of a cluster is on this machine.

    Attributes:
        device: ``cpu`` or ``cuda:<index>``.
        cores: for each slot in turn the cores that its threads are bound to, ``threads`` of them;
            empty leaves the threads free. A GPU's slots have a thread each, which launches.
        repeat_kernel: kernel executions for one operator; 3 makes an honest device of a third the
            speed. Measure its profile with the same number.
        threads: intra-op threads.
    """

    device: str = "cpu"
    cores: tuple[int, ...] = ()
    repeat_kernel: int = 1
    threads: int = 1

    def __post_init__(self) -> None:
        if self.repeat_kernel < 1 or self.threads < 1:
            raise InvalidInput("A worker needs repeat_kernel >= 1 and threads >= 1")

    @property
    def kind(self) -> tuple[str, int]:
        """What its kernels are made for: the torch device, and ``repeat_kernel``."""
        return self.device, self.repeat_kernel


class Bell(Protocol):
    """Lets one thread wait until another rings; each ring ends one wait."""

    def wait(self) -> None:
        """Return after the next ring, or at once if it has come already."""
        ...

    def ring(self) -> None:
        """End the other thread's wait."""
        ...


class SleepingBell:
    """The waiting thread sleeps; waking it takes the system some 10-50 us."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self) -> None:
        """See :class:`Bell`."""
        self._lock.acquire()

    def ring(self) -> None:
        """See :class:`Bell`."""
        self._lock.release()


class SpinningBell:
    """The waiting thread keeps its core busy, outside the interpreter, and notices at once.

    For threads with a core of their own. A C library spin lock does what no Python loop can: it
    waits without the interpreter lock. That another thread unlocks it is how glibc and musl work
    (a store), not something POSIX promises.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._word = ctypes.c_int(0)
        self._address = ctypes.byref(self._word)
        self._lock = library.pthread_spin_lock
        self._unlock = library.pthread_spin_unlock
        library.pthread_spin_init(self._address, 0)
        self._lock(self._address)

    def wait(self) -> None:
        """See :class:`Bell`."""
        self._lock(self._address)

    def ring(self) -> None:
        """See :class:`Bell`."""
        self._unlock(self._address)

    @staticmethod
    def available() -> bool:
        """Whether the C library has spin locks."""
        return hasattr(ctypes.CDLL(None), "pthread_spin_lock")


def may_spin(specs: Sequence[WorkerSpec]) -> bool:
    """Whether every worker has a core of its own, so that waiting may keep it busy."""
    cores = [core for spec in specs for core in spec.cores]
    alone = len(set(cores)) == len(cores) and all(spec.cores for spec in specs)
    return alone and SpinningBell.available()


class Session(Protocol):
    """What workers take part in; see :mod:`calibration.hardware_run`."""

    def serve(self, worker: Worker) -> None:
        """Execute tasks on the calling thread until the session ends; never raises."""
        ...


class Worker:
    """One slot of a device and its thread.

    Attributes:
        device: index in the cluster.
        slot: index in the device.
        task: what it was given to execute next; -1 for nothing.
        stream: of a GPU, on which its thread launches; None where a kernel has ended when its call returns.
        flushes_denormals: whether its kernels on the processor take denormal numbers for zero.
    """

    def __init__(self, device: int, slot: int, name: str, spec: WorkerSpec, bell: Bell) -> None:
        self.device = device
        self.slot = slot
        self.name = name
        self.spec = spec
        self.bell = bell
        self.task = -1
        self.stream: torch.cuda.Stream | None = None
        self.flushes_denormals = False
        self._inbox: queue.SimpleQueue[Session | None] = queue.SimpleQueue()
        self._prepared: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread and wait until it is bound and ready.

        Raises:
            InvalidInput: its core or device is not there.
        """
        self._thread.start()
        error = self._prepared.get()
        if error is not None:
            raise error

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def join(self, session: Session) -> None:
        """Have the thread serve a session."""
        self._inbox.put(session)

    def close(self) -> None:
        """Let the thread end; it may be inside a kernel for a while yet."""
        self._inbox.put(None)

    def await_end(self, seconds: float) -> None:
        """Return once the thread has ended, or after so many seconds."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        import torch

        with contextlib.ExitStack() as stack:
            try:
                if self.spec.cores:
                    # Intra-op threads inherit what this thread is bound to.
                    first = self.slot * self.spec.threads
                    pin(self.spec.cores[first : first + self.spec.threads])
                # Before it has intra-op threads, which inherit it.
                self.flushes_denormals = flush_denormals()
                torch.set_num_threads(self.spec.threads)
                stack.enter_context(torch.inference_mode())
                if self.spec.device != "cpu":
                    check_device(self.spec.device)
                    torch.cuda.set_device(self.spec.device)
                    self.stream = torch.cuda.Stream()
                    stack.enter_context(torch.cuda.stream(self.stream))
            except Exception as error:  # handed to the thread that waits in start()
                self._prepared.put(error)
                return
            self._prepared.put(None)
            while (session := self._inbox.get()) is not None:
                session.serve(self)


def workers_for(cluster: Cluster, cores: Sequence[int] | None = None) -> dict[str, WorkerSpec]:
    """What each device of a cluster is on this machine, from the profile that it names.

    ``amd-epyc-25-17-1core`` is a core of a machine whose CPU has that name, with one intra-op thread;
    ``amd-epyc-25-17-1core-3x`` is one that runs every kernel three times; ``tesla-t4`` is a GPU so named, and
    ``tesla-t4-awaited`` the same, priced with what its launches cost. GPUs are given out in order. A thread that
    launches on one has a core of its own as long as there are cores for all of them.

    Args:
        cluster: its devices name profiles.
        cores: one for each intra-op thread of each slot of a CPU device, in their order; None takes
            the lowest that this process may use.

    Raises:
        InvalidInput: a device's profile is not of this machine, or there are too few cores or GPUs.
    """
    import torch

    count = torch.cuda.device_count()
    gpus = {f"cuda:{i}": device_name(f"cuda:{i}") for i in range(count)}
    free = list(sorted(os.sched_getaffinity(0)) if cores is None else cores)
    specs = {}
    for device in cluster.devices:
        profile = device.profile or ""
        base, repeat = profile, 1
        if match := re.fullmatch(r"(.+)-(\d+)x", profile):
            base, repeat = match[1], int(match[2])
        base = base.removesuffix(f"-{AWAITED}")
        threads = int(match[1]) if (match := re.search(r"-(\d+)core$", base)) else 1
        gpu = next((place for place, name in gpus.items() if name == base), None)
        if gpu is not None:
            del gpus[gpu]
            specs[device.name] = WorkerSpec(gpu, (), repeat)
        elif base == device_name("cpu", threads):
            needed = device.slots * threads
            if len(free) < needed:
                raise InvalidInput(
                    f"Device '{device.name}' needs {needed} cores of its own, {len(free)} are "
                    "left; this process may use "
                    f"{', '.join(map(str, sorted(os.sched_getaffinity(0))))}"
                )
            specs[device.name] = WorkerSpec("cpu", tuple(free[:needed]), repeat, threads)
            del free[:needed]
        else:
            raise InvalidInput(
                f"Device '{device.name}' has profile '{profile}', which is not of this machine "
                f"({', '.join([device_name('cpu'), *gpus.values()])}); take a cluster of its devices, "
                "or measure it: python -m experiments.calibrate device=cpu"
            )
    slots = {device.name: device.slots for device in cluster.devices}
    launching = [name for name, spec in specs.items() if spec.device != "cpu"]
    if sum(slots[name] for name in launching) <= len(free):
        for name in launching:
            specs[name] = replace(specs[name], cores=tuple(free[: slots[name]]))
            del free[: slots[name]]
    return specs
