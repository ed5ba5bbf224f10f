"""One iteration of a trace of PyTorch's profiler (Kineto's Chrome JSON, ``export_chrome_trace``).

Read are complete events (``"ph": "X"``) of the categories ``cpu_op``, ``user_annotation``, ``cuda_runtime``,
``cuda_driver``, ``cuda_sync``, ``kernel``, ``gpu_memcpy`` and ``gpu_memset``, under the names that Kineto has given
them since 2021. Timestamps and durations are microseconds there and seconds from the iteration's begin here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.graph_files.values import shown
from simulator.errors import InvalidInput

STEP = "ProfilerStep#"
TOLERANCE = 2e-9
"""Seconds; 64-bit floats hold microseconds since the machine's start to a nanosecond."""
_CATEGORIES = {  # older names
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_READ = ("cpu_op", "user_annotation", "cuda_sync", *_LAUNCHES, *_ON_GPU)
_OPERATOR = re.compile(r"(?!autograd::)\w+::\w[\w.]*")
"""Wrappers (``autograd::engine::...``, ``AddmmBackward0``) are none: the operators within them are."""


@dataclass(frozen=True)
class Event:
    """Something that a trace has a time of.

    Attributes:
        name, category: as in the trace, the category by its newest name.
        lane: a CPU thread, or a stream of a GPU.
        begin, end: seconds from the iteration's begin.
        arguments: as in the trace.
        inner: names of the operators that it calls.
    """

    name: str
    category: str
    lane: str
    begin: float
    end: float
    arguments: Mapping[str, Any]
    inner: tuple[str, ...] = ()

    @property
    def correlation(self) -> Any:
        """The number that a launch and its kernels share, or None."""
        return self.arguments.get("correlation")


@dataclass(frozen=True)
class Iteration:
    """What happened in one iteration.

    Attributes:
        name: of the range: a step of the profiler, a ``record_function``, or ``trace`` for all of it.
        thread: the lane of the range.
        seconds: from its begin to its end, or to that of the last kernel that was launched within it.
        range_s: to its end.
        operators: those that no other operator calls, by begin; those of one lane do not overlap.
        calls: of the CUDA runtime and driver, by begin.
        kernels: kernels and copies on GPUs that these launched, by begin.
        waits: Kineto's records of synchronisation.
    """

    name: str
    thread: str
    seconds: float
    range_s: float
    operators: tuple[Event, ...]
    calls: tuple[Event, ...]
    kernels: tuple[Event, ...]
    waits: tuple[Event, ...]


def is_kineto(document: Any) -> bool:
    """Whether a JSON document is meant as a Chrome trace."""
    return isinstance(document, Mapping) and "traceEvents" in document


def read_kineto(document: Mapping[str, Any], selection: str | None = None) -> Iteration:
    """One iteration of a trace.

    Args:
        document: as JSON gave it.
        selection: number of a ``ProfilerStep#``, or name of a ``record_function``, the last of that name; None: the
            last ``ProfilerStep#``, or the whole trace where there is none.

    Raises:
        InvalidInput: it is no trace of PyTorch's profiler, of another version, or does not have that range.
    """
    version = document.get("schemaVersion", 1)
    if version != 1:
        raise InvalidInput(f"Kineto's schemaVersion {shown(version)} is not read, 1 is")
    rows = document["traceEvents"]
    if not isinstance(rows, list):
        raise InvalidInput(f"'traceEvents' must be a list, not {shown(rows)}")
    # Durations stay exact when times are counted from nearby instead of from the machine's start.
    first = min((row["ts"] for row in rows if _is_timed(row)), default=0)
    events = [event for row in rows if (event := _event(row, first)) is not None]
    if not any(event.category == "cpu_op" for event in events):
        raise InvalidInput(
            "It is a Chrome trace without operators of PyTorch (category cpu_op); record it by torch.profiler with "
            "ProfilerActivity.CPU"
        )
    events.sort(key=lambda event: (event.begin, -event.end))
    window = _window(events, selection)
    origin = window.begin
    on_cpu = [e for e in events if window.begin <= e.begin < window.end]
    operators = _outermost([e for e in on_cpu if e.category == "cpu_op"])
    if not operators:
        raise InvalidInput(f"There is no operator within '{window.name}'")
    calls = [e for e in on_cpu if e.category in _LAUNCHES]
    launched = {call.correlation for call in calls} - {None}
    kernels = [e for e in events if e.category in _ON_GPU and e.correlation in launched]
    end = max([window.end, *(e.end for e in kernels)])
    waits = [e for e in events if e.category == "cuda_sync" and window.begin <= e.begin < end]
    parts = (
        tuple(_moved(event, origin) for event in part)
        for part in (operators, calls, kernels, waits)
    )
    return Iteration(window.name, window.lane, end - origin, window.end - origin, *parts)


def _is_timed(row: Any) -> bool:
    time = row.get("ts") if isinstance(row, Mapping) and row.get("ph") == "X" else None
    return isinstance(time, int | float) and abs(time) < 2**63


def _event(row: Any, first: float) -> Event | None:
    """An event in seconds from ``first`` microseconds; None of a kind that is not read."""
    if not isinstance(row, Mapping) or row.get("ph") != "X":
        return None
    category = str(row.get("cat", "")).lower()
    category = _CATEGORIES.get(category, category)
    if category not in _READ:
        return None
    name: Any = row.get("name")
    begin: Any = row.get("ts")
    duration: Any = row.get("dur")
    arguments = row.get("args", {})
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise InvalidInput(f"Event {shown(row)} needs a text 'name' and an object 'args'")
    for key, value in (("ts", begin), ("dur", duration)):
        right = isinstance(value, int | float) and not isinstance(value, bool)
        least = -(2**63) if key == "ts" else 0
        if not (right and least <= value < 2**63):
            raise InvalidInput(f"Event {shown(name)} has {key} {shown(value)}, not microseconds")
    if isinstance(arguments.get("correlation"), list | dict):
        raise InvalidInput(f"Event {shown(name)} has a correlation that is no number")
    lane = f"thread {row.get('tid')}"
    if category in (*_ON_GPU, "cuda_sync"):
        device = arguments.get("device", row.get("pid"))
        lane = f"gpu {device} stream {arguments.get('stream', row.get('tid'))}"
    since = (begin - first) * 1e-6
    return Event(name, category, lane, since, since + duration * 1e-6, arguments)


def _window(events: Sequence[Event], selection: str | None) -> Event:
    """The range that is read, in the trace's own time."""
    ranges = [event for event in events if event.category == "user_annotation"]
    wanted = selection
    if selection is None and not any(event.name.startswith(STEP) for event in ranges):
        first = next(event for event in events if event.category == "cpu_op")
        ours = [e for e in events if e.category != "user_annotation" and e.category != "cuda_sync"]
        end = max(e.end for e in ours)
        return Event("trace", "", first.lane, min(e.begin for e in ours), end, {})
    if selection is not None and selection.isdecimal():
        wanted = f"{STEP}{selection}"
    found = [e for e in ranges if (e.name.startswith(STEP) if wanted is None else e.name == wanted)]
    if not found:
        names = list(dict.fromkeys(event.name for event in ranges))
        known = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise InvalidInput(f"There is no range {shown(wanted)}; it has {known or 'none'}")
    return found[-1]


def _outermost(events: Sequence[Event]) -> list[Event]:
    """The operators that no other operator of their thread calls, each with the names of those that it calls."""
    found: list[Event] = []
    inner: list[list[str]] = []
    last: dict[str, int] = {}
    for event in events:
        at = last.get(event.lane)
        if at is not None and event.begin < found[at].end - TOLERANCE:
            inner[at].append(event.name)
        elif _OPERATOR.fullmatch(event.name):
            begin = event.begin if at is None else max(event.begin, found[at].end)
            last[event.lane] = len(found)
            found.append(_at(event, begin, max(event.end, begin)))
            inner.append([])
    return [
        Event(e.name, e.category, e.lane, e.begin, e.end, e.arguments, tuple(names))
        for e, names in zip(found, inner, strict=True)
    ]


def _at(event: Event, begin: float, end: float) -> Event:
    return Event(event.name, event.category, event.lane, begin, end, event.arguments, event.inner)


def _moved(event: Event, origin: float) -> Event:
    return _at(event, event.begin - origin, event.end - origin)
