"""How an on-line scheduler prices the way of a task's data to a device.

Source: the device pricing of DONF (Lin et al., JCST 34(5), 2019) as in its author's simulator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.context import EVERYWHERE, InputTensor, SchedulingContext
from simulator.errors import InvalidInput

PRICINGS = ("per_edge", "per_link", "contention_aware", "per_edge_aware")
"""``per_edge``: every tensor has its route alone; ``per_link``: tensors from one memory space are sent
together, spaces in parallel; ``contention_aware``: the same, behind what the links already carry;
``per_edge_aware``: every tensor alone, behind what the links already carry."""
ALONE = frozenset({"per_edge", "per_edge_aware"})
"""Those that price every tensor alone."""
AWARE = frozenset({"contention_aware", "per_edge_aware"})
"""Those that know what links carry."""


def check_pricing(pricing: str) -> str:
    """``pricing`` itself.

    Raises:
        InvalidInput: it is none of ``PRICINGS``.
    """
    if pricing not in PRICINGS:
        raise InvalidInput(f"Unknown pricing '{pricing}'; known: {', '.join(PRICINGS)}")
    return pricing


def prices_edges(pricing: str) -> bool:
    """Whether every tensor is priced alone."""
    return pricing in ALONE


def sees_links(pricing: str) -> bool:
    """Whether a price depends on what links carry already."""
    return pricing in AWARE


def data_ready(
    context: SchedulingContext, task: int, devices: Sequence[int], pricing: str
) -> list[float]:
    """When a ready task's data could be in each device's memory if it were placed there now, seconds."""
    parcels, shared = parcels_of(context, task, pricing)
    space_of = context.cluster.space_of
    arrivals: dict[int, float] = {}
    for device in devices:
        space = space_of[device]
        if space not in arrivals:
            arrivals[space] = data_in(context, parcels, shared, space, pricing)
    return [arrivals[space_of[device]] for device in devices]


Parcel = tuple[int, float]
"""Where it lies, and bytes."""


def parcels_of(
    context: SchedulingContext, task: int, pricing: str
) -> tuple[list[Parcel], list[InputTensor]]:
    """What must come to a task, as it is priced, and which of its inputs may have copies: if there are
    any, the parcels differ from space to space and are left to :func:`data_in`.
    """
    job = context.task_job[task]
    index = context.job_index[job]
    first = context.first_tensor[job]
    home_of = context.tensor_home
    returned = context.returned
    sizes: dict[int, float] = {}
    each: list[Parcel] = []
    for tensor in index.reads[task - context.first_task[job]]:
        home = home_of[first + tensor]
        if home == EVERYWHERE:
            continue
        # What had one reader may have a copy where that was placed before.
        if returned or index.shared[tensor]:
            inputs = [item for item in context.inputs(task) if item.space != EVERYWHERE]
            return [], inputs
        size = index.bytes[tensor]
        each.append((home, size))
        sizes[home] = sizes.get(home, 0.0) + size
    return (each if prices_edges(pricing) else list(sizes.items())), []


def data_in(
    context: SchedulingContext,
    parcels: list[Parcel],
    shared: list[InputTensor],
    space: int,
    pricing: str,
) -> float:
    """When all inputs could be in a memory space."""
    now = latest = context.now
    if shared:
        sizes: dict[int, float] = {}
        parcels = []
        for tensor, size, home, _ in shared:
            if home == space:
                continue
            copy = context.copy_time(tensor, space)
            if copy is not None:
                if copy > latest:
                    latest = copy
            elif prices_edges(pricing):
                parcels.append((home, size))
            else:
                sizes[home] = sizes.get(home, 0.0) + size
        parcels += sizes.items()
    wires, free = context.wires, context.channel_free
    aware = sees_links(pricing)
    for home, size in parcels:
        if home == space:
            continue
        if aware and context.contention == "fair":
            end = context.transfer_end(size, home, space)
        else:
            _, latency, bandwidth, channels = wires[home][space] or context.lay_wire(home, space)
            begin = now
            if aware:
                for channel in channels:
                    if free[channel] > begin:
                        begin = free[channel]
            end = begin + (latency + size / bandwidth)
        if end > latest:
            latest = end
    return latest


def estimated_finishes(
    context: SchedulingContext, task: int, devices: Sequence[int], pricing: str
) -> list[tuple[float, int]]:
    """(estimated finish in seconds, device) of a ready task if it were placed on each device now."""
    seconds = context.seconds(task)
    ready = data_ready(context, task, devices, pricing)
    begin = context.availabilities(devices)
    return [
        ((a if a > b else b) + seconds[device], device)
        for device, a, b in zip(devices, ready, begin, strict=True)
    ]


def best_device(context: SchedulingContext, task: int, devices: Sequence[int], pricing: str) -> int:
    """The device of the least of :func:`estimated_finishes`: ties go to the smaller one, also where
    none of them is known to finish ever (all are down).

    Devices that could not win if the data were there already are not priced.
    """
    seconds = context.seconds(task)
    space_of, now = context.cluster.space_of, context.now
    parcels, shared = parcels_of(context, task, pricing)
    aware = sees_links(pricing)
    by_event = bool(shared) or (aware and context.contention == "fair")
    wires, free = context.wires, context.channel_free
    best, chosen = math.inf, devices[0]
    for device, begin in zip(devices, context.availabilities(devices), strict=True):
        least = seconds[device]
        if begin + least >= best:
            continue
        space = space_of[device]
        if by_event:
            ready = data_in(context, parcels, shared, space, pricing)
        else:  # the same, written out: this is where on-line schedulers spend their time
            ready = now
            for home, size in parcels:
                if home != space:
                    _, latency, bandwidth, channels = wires[home][space] or context.lay_wire(
                        home, space
                    )
                    start = now
                    if aware:
                        for channel in channels:
                            if free[channel] > start:
                                start = free[channel]
                    end = start + (latency + size / bandwidth)
                    if end > ready:
                        ready = end
        finish = (ready if ready > begin else begin) + least
        if finish < best:
            best, chosen = finish, device
    return chosen
