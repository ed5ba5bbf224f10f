"""The roofline: an operator takes as long as its arithmetic or its memory traffic, at peak rates.

Williams, Waterman, Patterson 2009, https://doi.org/10.1145/1498765.1498785, with a constant added for
what every call costs. It is a cost model by itself, and what boosted trees take ratios to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cost_models.device_spec import DeviceSpec
from cost_models.features import known_work
from cost_models.model import Prediction
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput


@dataclass(frozen=True)
class Roofline:
    """Rates of a device.

    Attributes:
        flops_per_s: peak by element type; a type that is not there takes float32's.
        bandwidth: bytes per second.
        overhead: seconds added to every call.
        efficiency: share of these rates that operators of a kind reach, ``*`` for the other kinds;
            1 unless stated.
    """

    flops_per_s: Mapping[str, float]
    bandwidth: float
    overhead: float = 0.0
    efficiency: Mapping[str, float] = field(default_factory=dict)
    name: str = field(default="roofline", init=False)

    def __post_init__(self) -> None:
        rates = [*self.flops_per_s.values(), self.bandwidth]
        if "float32" not in self.flops_per_s:
            raise InvalidInput("A roofline needs a peak for float32")
        if not all(np.isfinite(rate) and rate > 0 for rate in rates):
            raise InvalidInput(f"A roofline's rates are finite and above zero, got {rates}")
        if not all(0 < share <= 1 for share in self.efficiency.values()):
            raise InvalidInput(f"Shares of a roofline lie in (0, 1], got {dict(self.efficiency)}")
        if not (np.isfinite(self.overhead) and self.overhead >= 0):
            raise InvalidInput(f"A roofline's overhead is at least 0 s, got {self.overhead}")

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.of_rows(load(measurements, timed=False))

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """As :meth:`predict`; rates alone know neither a range nor a spread."""
        seconds = self.predict(measurements)
        return Prediction(seconds, np.full(len(seconds), np.nan), np.ones(len(seconds), dtype=bool))

    def of_rows(self, rows: pd.DataFrame) -> np.ndarray:
        """As :meth:`predict`, for a table that is known to be valid."""
        seconds = np.empty(len(rows))
        columns = (rows[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes"))
        for position, key in enumerate(zip(*columns, strict=True)):
            kind, dtype = key[:2]
            operations, moved = known_work(*key)
            peak = self.flops_per_s.get(dtype, self.flops_per_s["float32"])
            share = self.efficiency.get(kind, self.efficiency.get("*", 1.0))
            seconds[position] = (
                max(operations / peak, moved / self.bandwidth) / share + self.overhead
            )
        return seconds

    def to_json(self) -> dict[str, Any]:
        """Rates as a JSON object."""
        document = {
            "flops_per_s": dict(self.flops_per_s),
            "bandwidth_bytes_per_s": self.bandwidth,
            "overhead_s": self.overhead,
        }
        return document | ({"efficiency": dict(self.efficiency)} if self.efficiency else {})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Roofline:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: a rate is missing or not above zero.
        """
        try:
            return cls(
                {str(k): float(v) for k, v in document["flops_per_s"].items()},
                float(document["bandwidth_bytes_per_s"]),
                float(document.get("overhead_s", 0.0)),
                {str(k): float(v) for k, v in document.get("efficiency", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"A roofline lacks or misstates {error}") from None

    @classmethod
    def published(cls, device: DeviceSpec, overhead: float = 0.0) -> Roofline:
        """The rates that a data sheet states; ``overhead`` in seconds, which no data sheet states."""
        return cls(dict(device.flops_per_s), device.bandwidth, overhead)

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        **options: Any,
    ) -> Roofline:
        """The rates that the fastest rows reached: for tables that come without measured peaks.

        The peak and the bandwidth are the highest rates of any row, the overhead is the shortest
        time.

        Args:
            measurements: a valid table of one device, with at least one row.
            roofline: measured rates: there is nothing left to fit.
            seed: nothing is drawn.
            only: rates are of all kinds.
            options: there are none.

        Raises:
            InvalidInput: an option.
        """
        if options:
            raise InvalidInput(f"The roofline has no option '{min(options)}'")
        if roofline is not None:
            return roofline
        rates: dict[str, float] = {}
        bandwidth = 0.0
        columns = ("kind", "dtype", "inputs", "outputs", "attributes", "seconds")
        for *key, seconds in zip(*(measurements[c] for c in columns), strict=True):
            dtype = key[1]
            operations, moved = known_work(*key)
            rates[dtype] = max(rates.get(dtype, 0.0), operations / seconds)
            # Large enough that neither a cache nor the call's own cost decides.
            if moved > 1 << 20:
                bandwidth = max(bandwidth, moved / seconds)
        overhead = float(measurements["seconds"].min())
        rates = {dtype: rate for dtype, rate in rates.items() if rate > 0}
        bandwidth = bandwidth or 1e9
        rates.setdefault("float32", max(rates.values(), default=bandwidth))
        return cls(rates, bandwidth, overhead)
