"""How an on-line scheduler prices the way of a task's data to a device.

Source: the device pricing of DONF (Lin et al., JCST 34(5), 2019) as in its author's simulator.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.context import EVERYWHERE, InputTensor, SchedulingContext
from simulator.errors import InvalidInput

PRICINGS = ("per_edge", "per_link", "contention_aware")
"""``per_edge``: every tensor has its route alone; ``per_link``: tensors from one memory space are sent
together, spaces in parallel; ``contention_aware``: the same, behind what the links already carry."""


def check_pricing(pricing: str) -> str:
    """``pricing`` itself.

    Raises:
        InvalidInput: it is none of ``PRICINGS``.
    """
    if pricing not in PRICINGS:
        raise InvalidInput(f"Unknown pricing '{pricing}'; known: {', '.join(PRICINGS)}")
    return pricing


def data_ready(
    context: SchedulingContext, task: int, devices: Sequence[int], pricing: str
) -> list[float]:
    """When a ready task's data could be in each device's memory if it were placed there now, seconds."""
    inputs = [item for item in context.inputs(task) if item.space != EVERYWHERE]
    if not inputs:
        return [context.now for _ in devices]
    space_of = context.cluster.space_of
    arrivals: dict[int, float] = {}
    for space in {space_of[device] for device in devices}:
        arrivals[space] = _data_in(context, inputs, space, pricing)
    return [arrivals[space_of[device]] for device in devices]


def _data_in(
    context: SchedulingContext, inputs: list[InputTensor], space: int, pricing: str
) -> float:
    """When all inputs could be in a memory space."""
    now = latest = context.now
    sizes: dict[int, float] = {}
    for tensor, size, home, _ in inputs:
        if home == space:
            continue
        copy = context.copy_time(tensor, space)
        if copy is not None:
            if copy > latest:
                latest = copy
        elif pricing == "per_edge":
            latest = max(latest, now + context.transfer_seconds(size, home, space))
        else:
            sizes[home] = sizes.get(home, 0.0) + size
    for home, size in sizes.items():
        begin = context.link_free(home, space) if pricing == "contention_aware" else now
        end = begin + context.transfer_seconds(size, home, space)
        if end > latest:
            latest = end
    return latest


def estimated_finishes(
    context: SchedulingContext, task: int, devices: Sequence[int], pricing: str
) -> list[tuple[float, int]]:
    """(estimated finish in seconds, device) of a ready task if it were placed on each device now."""
    seconds = context.seconds(task)
    finishes = []
    for device, ready in zip(devices, data_ready(context, task, devices, pricing), strict=True):
        begin = context.available(device)
        finishes.append(((ready if ready > begin else begin) + seconds[device], device))
    return finishes
