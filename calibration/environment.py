"""The process that measures or executes: its core, threads, allocator, and what it runs on.

Measuring and the hardware runner prepare their processes with the same functions, so that an
operator costs the same in both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from simulator.errors import InvalidInput

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def pin(core: int | None) -> None:
    """Bind the calling thread to one core; None leaves it where it is.

    Raises:
        InvalidInput: the core is not one this process may use.
    """
    if core is None:
        return
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        raise InvalidInput(
            f"Core {core} is not available; this process may use {allowed}"
        ) from None


def last_core() -> int:
    """The highest core this process may use: the least likely to serve interrupts."""
    return max(os.sched_getaffinity(0))


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


def last_level_cache() -> int:
    """Bytes of the CPU's last-level cache; 32 MiB where the system does not say."""
    sizes = _cache_sizes()
    return sizes[max(sizes)] if sizes else 32 << 20


def private_cache() -> int:
    """Bytes of the largest cache below the last level, one core's own; 1 MiB if not known."""
    sizes = _cache_sizes()
    return sizes[sorted(sizes)[-2]] if len(sizes) > 1 else 1 << 20


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def slug(text: str) -> str:
    """A file-safe name: ``Intel(R) Xeon(R) CPU @ 2.20GHz`` gives ``intel-xeon``."""
    text = re.sub(r"\((r|tm|c)\)|@.*$|\b(cpu|processor)\b|\b\d+-core\b", " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def device_name(device: str, threads: int = 1, repeat_kernel: int = 1) -> str:
    """The profile name of a device of this machine: ``amd-epyc-1core``, ``nvidia-h200``.

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
    import torch

    if device == "cpu":
        return
    count = torch.cuda.device_count()
    known = ["cpu", *(f"cuda:{i}" for i in range(count))]
    if device not in known:
        raise InvalidInput(f"No device '{device}' here; this machine has {', '.join(known)}")


def versions() -> dict[str, str]:
    """What the times depend on besides the hardware."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    found["system"] = f"{sys.platform} {platform.release()}"
    return found


def gpu_clocks(device: str) -> dict[str, str]:
    """Clocks, power and temperature as ``nvidia-smi`` reports them; empty without it.

    Only read: this program never changes a clock.
    """
    fields = "clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw,driver_version"
    index = device.rpartition(":")[2] or "0"
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = (value.strip() for value in answer.stdout.strip().split(","))
    return dict(zip(fields.split(","), values, strict=False))
