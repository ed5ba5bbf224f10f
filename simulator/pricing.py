"""How an on-line scheduler prices the way of a task's data to a device.

Source: the device pricing of DONF (Lin et al., JCST 34(5), 2019) as in its author's simulator.
"""

from __future__ import annotations

from simulator.context import EVERYWHERE, SchedulingContext
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


def data_ready(context: SchedulingContext, task: int, device: int, pricing: str) -> float:
    """When a ready task's data could be in a device's memory if it were placed there now, seconds."""
    now = context.now
    space = context.cluster.space_of[device]
    latest = now
    sizes: dict[int, float] = {}
    for tensor, size, home, _ in context.inputs(task):
        if home in (space, EVERYWHERE):
            continue
        copy = context.copy_time(tensor, space)
        if copy is not None:
            latest = max(latest, copy)
        elif pricing == "per_edge":
            latest = max(latest, now + context.transfer_seconds(size, home, space))
        else:
            sizes[home] = sizes.get(home, 0.0) + size
    for home, size in sizes.items():
        begin = context.link_free(home, space) if pricing == "contention_aware" else now
        latest = max(latest, begin + context.transfer_seconds(size, home, space))
    return latest


def estimated_finish(context: SchedulingContext, task: int, device: int, pricing: str) -> float:
    """Estimated finish of a ready task if it were placed on a device now, seconds."""
    begin = max(context.available(device), data_ready(context, task, device, pricing))
    return begin + context.seconds(task)[device]
