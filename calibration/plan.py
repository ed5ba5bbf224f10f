"""What a folder of samples is measured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from calibration.timing import AWAITED, CACHE_STATES, PROTOCOL
from simulator.errors import InvalidInput


@dataclass(frozen=True)
class MeasurePlan:
    """What must stay the same for the samples of one folder to be comparable.

    Attributes:
        device: ``cpu`` or ``cuda:<index>``.
        name: profile name of the device.
        threads: intra-op threads, each on a core of its own.
        states: cache states, of :data:`calibration.timing.CACHE_STATES`.
        repeat_kernel: kernel executions in one call; 3 makes an honest device of a third the speed.
        seed: of the shuffles and of the operators' data.
        protocol: how a visit times (:data:`calibration.timing.PROTOCOL`).
    """

    device: str
    name: str
    states: tuple[str, ...]
    threads: int = 1
    repeat_kernel: int = 1
    seed: int = 0
    protocol: int = PROTOCOL

    def __post_init__(self) -> None:
        for state in self.states:
            if state not in CACHE_STATES:
                known = ", ".join(CACHE_STATES)
                raise InvalidInput(f"No cache state '{state}'; known: {known}")
        if self.device == "cpu" and AWAITED in self.states:
            raise InvalidInput(
                f"State '{AWAITED}' is of CUDA devices: on a CPU an operator has ended when its call returns"
            )
        if self.repeat_kernel < 1 or self.threads < 1:
            raise InvalidInput("threads and repeat_kernel are at least 1")

    def to_json(self) -> dict[str, Any]:
        """``plan.json``."""
        return {**asdict(self), "states": list(self.states)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MeasurePlan:
        """Read :meth:`to_json`; a plan without ``protocol`` is of the first.

        Raises:
            InvalidInput: it is incomplete, or says what this release does not know.
        """
        known = [field.name for field in fields(cls)]
        for key in document:
            if key not in known:
                raise InvalidInput(f"it says '{key}', which this release does not know")
        try:
            return cls(**{"protocol": 1, **document, "states": tuple(document["states"])})
        except (KeyError, TypeError) as error:
            raise InvalidInput(f"it is incomplete ({error})") from None
