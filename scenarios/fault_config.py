"""Faults as configs describe them: a list of mappings, with units.

``{what: device_failure, where: gpu, start: 10ms, end: 30ms}`` happens once;
``{what: device_failure, mtbf: 2s, mttr: 50ms}`` happens at random times, here to every device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.engine.faults import Fault, Faults, RandomFaults
from simulator.errors import InvalidInput
from simulator.model.units import parse_seconds


@dataclass
class FaultConfig:
    """One fault, or one source of random faults; see :mod:`simulator.engine.faults`.

    Attributes:
        what: ``device_failure``, ``device_slowdown``, ``link_outage`` or ``link_degradation``.
        where: name of the device or link; of random faults every one unless given.
        start, end: like ``10ms``; without an end it is never mended.
        mtbf, mttr: of random faults the mean times to the next fault and to its end, like ``2s``.
        factor: what is left of the rate or the bandwidth; for slowdown and degradation.
        memory_lost: whether a device's failure takes what lies in its memory; by default if the
            device is alone in a memory that is not the host's.
    """

    what: str
    where: str | None = None
    start: str | None = None
    end: str | None = None
    mtbf: str | None = None
    mttr: str | None = None
    factor: float | None = None
    memory_lost: bool | None = None


def build_faults(configs: Sequence[FaultConfig], max_attempts: int | None = 4) -> Faults:
    """The faults that a config describes.

    Raises:
        InvalidInput: an ambiguous quantity, or neither or both of a time and a mean time.
    """
    events, random = [], []
    for number, config in enumerate(configs):
        what = f"simulation.faults[{number}] ({config.what})"
        once = config.start is not None or config.end is not None
        recurs = config.mtbf is not None or config.mttr is not None
        if once == recurs:
            raise InvalidInput(f"{what} needs either start (and end), or mtbf and mttr")
        if config.start is not None:
            if config.where is None:
                raise InvalidInput(f"{what} needs where: the device or link that it hits")
            start = parse_seconds(config.start, f"start of {what}")
            end = math.inf if config.end is None else parse_seconds(config.end, f"end of {what}")
            events.append(
                Fault(config.what, config.where, start, end, config.factor, config.memory_lost)
            )
        elif config.mtbf is not None and config.mttr is not None:
            mtbf = parse_seconds(config.mtbf, f"mtbf of {what}")
            mttr = parse_seconds(config.mttr, f"mttr of {what}")
            random.append(
                RandomFaults(
                    config.what, mtbf, mttr, config.where, config.factor, config.memory_lost
                )
            )
        else:
            lacks = "start" if once else "mttr" if config.mttr is None else "mtbf"
            raise InvalidInput(f"{what} lacks {lacks}")
    return Faults(tuple(events), tuple(random), max_attempts)
