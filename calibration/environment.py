"""The process that measures or executes: its core, threads, allocator, and what it runs on.

Measuring and the hardware runner prepare their processes with the same functions, so that an
operator costs the same in both.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import platform
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import InvalidInput

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_PROCESSORS = Path("/proc/cpuinfo")


def pin(cores: int | Sequence[int] | None) -> None:
    """Bind the calling thread, and those that it starts, to cores; None leaves it where it is.

    Raises:
        InvalidInput: a core is not one this process may use.
    """
    if cores is None:
        return
    wanted = {cores} if isinstance(cores, int) else set(cores)
    allowed = os.sched_getaffinity(0)
    for core in sorted(wanted):  # the system passes over those of several that are not there
        try:
            os.sched_setaffinity(0, {core})
        except OSError:
            os.sched_setaffinity(0, allowed)
            raise InvalidInput(
                f"Core {core} is not available; this process may use {sorted(allowed)}"
            ) from None
    os.sched_setaffinity(0, wanted)


@contextlib.contextmanager
def alone_on(core: int | None) -> Iterator[None]:
    """This thread on a core (None: where it runs) with one intra-op thread, as before afterwards."""
    import torch

    threads, allowed = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    try:
        pin(core)
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        torch.set_num_threads(threads)


def cores_for(threads: int, cores: Sequence[int] | None = None) -> list[int]:
    """A core for each intra-op thread: those given, else the highest that this process may use.

    The highest are the least likely to serve interrupts.

    Raises:
        InvalidInput: fewer or more cores than threads, or one that is not there.
    """
    allowed = sorted(os.sched_getaffinity(0))
    chosen = sorted(set(cores)) if cores is not None else allowed[-threads:]
    for core in chosen:
        if core not in allowed:
            raise InvalidInput(f"Core {core} is not available; this process may use {allowed}")
    if len(chosen) != threads:
        raise InvalidInput(
            f"{threads} threads need as many cores, got {chosen}; this process may use {allowed}"
        )
    return chosen


def thread_variables(threads: int) -> dict[str, str]:
    """Environment of a process whose kernels run on so many threads, each bound to its core."""
    found = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if threads > 1:
        # Unbound threads move between cores, and two of them share one for a while.
        found |= {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "OMP_DYNAMIC": "false"}
    return found


@contextlib.contextmanager
def matrix_precision(device: str, tf32: bool) -> Iterator[None]:
    """Let a GPU round the factors of float32 products to TF32, or forbid it; as before afterwards.

    Torch itself allows it for convolutions and forbids it for matrix products.
    """
    if device == "cpu":
        yield
        return
    import torch

    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = tf32
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value


def capacity(device: str) -> float:
    """Bytes of the memory that a device computes in."""
    if device == "cpu":
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    import torch

    return float(torch.cuda.get_device_properties(device).total_memory)


def cache(device: str) -> float:
    """Bytes of a device's last cache before that memory."""
    if device == "cpu":
        return float(last_level_cache())
    import torch

    return float(torch.cuda.get_device_properties(device).L2_cache_size)


def steady_allocator() -> bool:
    """Make glibc keep freed memory, so that outputs do not fault in fresh pages on every call.

    By default each output above 128 KiB may be mapped, zeroed page by page and unmapped again: at
    0.25-1 us a page that outweighs many kernels, and whether it happens depends on what was freed
    before. With this, memory comes from the heap after the first call, in measuring and in running
    alike. Call it once, early, before the memory is used.

    Returns:
        Whether the C library took the setting (False off glibc).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # One arena: threads' own heaps are capped at 64 MiB and would map every larger tensor.
    settings = ((_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, (1 << 31) - 1), (_M_ARENA_MAX, 1))
    accepted = [mallopt(name, value) == 1 for name, value in settings]  # all of them, in any case
    return all(accepted)


def flush_denormals() -> bool:
    """Let the calling thread, and those that it starts later, take denormal numbers for zero.

    Products with them take processors about a hundred cycles each: the activations of a deep network with
    random weights fade into them, and it then runs many times slower than its kernels on other numbers.

    Returns:
        Whether the processor can.
    """
    import torch

    return bool(torch.set_flush_denormal(True))


@contextlib.contextmanager
def denormals_flushed() -> Iterator[bool]:
    """The same of the calling thread for a while, as before afterwards; yields whether the processor can."""
    import torch

    before = sys.float_info.min / 2 == 0.0
    try:
        yield flush_denormals()
    finally:
        torch.set_flush_denormal(before)


def raise_priority(niceness: int = -10) -> int:
    """Ask to be preferred over other processes on this core; returns the niceness now in force."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(niceness, os.getpriority(os.PRIO_PROCESS, 0)))
    return os.getpriority(os.PRIO_PROCESS, 0)


def _cache_sizes() -> dict[int, int]:
    """Bytes of the first core's data caches by level; empty where the system does not say."""
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = {}
    for index in _CACHES.glob("index*"):
        if (index / "type").read_text().strip() != "Instruction":
            text = (index / "size").read_text().strip()
            number, unit = (text[:-1], units[text[-1]]) if text[-1] in units else (text, 1)
            sizes[int((index / "level").read_text())] = int(number) * unit
    return sizes


@functools.cache
def last_level_cache() -> int:
    """Bytes of the CPU's last-level cache that this process finds
    (:func:`calibration.cache_size.effective_cache`); 32 MiB where the system does not say.
    """
    from calibration.cache_size import effective_cache

    sizes = _cache_sizes()
    return effective_cache(sizes[max(sizes)] if sizes else 32 << 20)


def private_cache() -> int:
    """Bytes of the largest cache below the last level, one core's own; 1 MiB if not known."""
    sizes = _cache_sizes()
    return sizes[sorted(sizes)[-2]] if len(sizes) > 1 else 1 << 20


def cpu_model() -> str:
    """The processor's name as the system gives it, and how wide its vectors are: ``AMD EPYC 7B13 64-Core
    Processor (AVX2)``. Where the name says no model, as in many virtual machines, the numbers that do are
    there, too: ``AMD EPYC (family 25 model 1, AVX2)``.
    """
    try:
        text = _PROCESSORS.read_text()
    except OSError:
        text = ""
    first = [line.partition(":") for line in text.partition("\n\n")[0].splitlines()]
    says = {key.strip(): value.strip() for key, _, value in first}
    name = says.get("model name") or platform.processor() or platform.machine()
    more = []
    if not re.search(r"\d", name.partition("@")[0]) and "cpu family" in says:
        more.append(f"family {says['cpu family']} model {says.get('model', '?')}")
    flags = set(says.get("flags", "").split())
    more += next(([wide] for flag, wide in VECTORS.items() if flag in flags), [])
    return f"{name} ({', '.join(more)})" if more else name


VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX"}
"""What the system calls them, widest first: kernels that compute element by element take half the time with
those of twice the width."""


def slug(text: str) -> str:
    """A file-safe name: ``Intel(R) Xeon(R) CPU @ 2.20GHz`` gives ``intel-xeon``, ``AMD EPYC (family 25 model
    1, AVX2)`` gives ``amd-epyc-25-1``.
    """
    unsaid = r"\((r|tm|c)\)|@[^(]*|\b(cpu|processor|family|model|avx[-0-9]*)\b|\b\d+-core\b"
    text = re.sub(unsaid, " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def device_name(device: str, threads: int = 1, repeat_kernel: int = 1) -> str:
    """The profile name of a device of this machine: ``amd-epyc-25-1-1core``, ``nvidia-h200``.

    Raises:
        InvalidInput: the device is unknown or not there.
    """
    check_device(device)
    if device == "cpu":
        name = f"{slug(cpu_model())}-{threads}core"
    else:
        import torch

        name = slug(torch.cuda.get_device_name(device))
    return name if repeat_kernel == 1 else f"{name}-{repeat_kernel}x"


def check_device(device: str) -> None:
    """Refuse a device that this machine lacks.

    Raises:
        InvalidInput: says what there is.
    """
    if device == "cpu":
        return
    import torch

    count = torch.cuda.device_count()
    known = ["cpu", *(f"cuda:{i}" for i in range(count))]
    if device not in known:
        raise InvalidInput(f"No device '{device}' here; this machine has {', '.join(known)}")


def _torch_release() -> tuple[str, str | None]:
    """Torch's version and its CUDA's, read from the one file that says them: importing all of torch takes
    seconds, and who only asks what is installed needs nothing else of it.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    said = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    return str(said["__version__"]), said["cuda"]


def versions(device: str = "cpu") -> dict[str, str]:
    """What the times of a device depend on besides the hardware."""
    release, cuda = _torch_release()
    found = {"python": platform.python_version(), "torch": release}
    if cuda:
        found["cuda"] = cuda
    if device != "cpu" and (driver := gpu_clocks(device).get("driver_version")):
        found["driver"] = driver
    found["system"] = f"{sys.platform} {platform.release()}"
    return found


def described(device: str) -> dict[str, str]:
    """:func:`versions` and the processor's name: what a profile is held against where it is used."""
    if device == "cpu":
        return {**versions(device), "processor": cpu_model()}
    import torch

    return {**versions(device), "processor": torch.cuda.get_device_name(device)}


_CLOCKS = "clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw,driver_version"
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Newer and older drivers' name of the same field."""
THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""Bits of a reading that slow kernels down; others mean idleness, set clocks or synchronised boost.
NVML, ``nvmlClocksEventReasons``."""


def gpu_clocks(device: str) -> dict[str, str]:
    """Clocks, power, temperature and throttle reasons as ``nvidia-smi`` reports them.

    Only read: this program never changes a clock.

    Returns:
        The fields of ``nvidia-smi --query-gpu``, the reasons always as ``clocks_event_reasons.active``;
        empty without ``nvidia-smi``.
    """
    index = device.rpartition(":")[2] or "0"
    for reasons in _REASONS:
        fields = f"{_CLOCKS},{reasons}"
        command = ["nvidia-smi", f"--id={index}", f"--query-gpu={fields}", "--format=csv,noheader"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except subprocess.CalledProcessError:
            continue  # an older driver refuses the newer name
        except (OSError, subprocess.SubprocessError):
            return {}
        values = (value.strip() for value in answer.stdout.strip().split(","))
        return dict(zip([*_CLOCKS.split(","), _REASONS[0]], values, strict=False))
    return {}


def throttled_by(clocks: Mapping[str, str]) -> tuple[str, ...]:
    """What held the GPU's clocks back when :func:`gpu_clocks` was read; empty if nothing did."""
    try:
        bits = int(clocks.get(_REASONS[0], "0"), 16)
    except ValueError:  # "[N/A]"
        return ()
    return tuple(name for bit, name in THROTTLING.items() if bits & bit)
