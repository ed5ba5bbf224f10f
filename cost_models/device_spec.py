"""A device by its data sheet: peak rates, memory, units, clock, cache, power.

Three things need its rates and sizes: a roofline where nobody measured one, features that count a device's units
(waves of tiles, working sets against its cache), and models fitted across devices, which are asked about one
that they have not seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.errors import InvalidInput


@dataclass(frozen=True)
class DeviceSpec:
    """Published facts of a device.

    Attributes:
        name: of its profile.
        flops_per_s: peak by element type, dense, without sparsity; float32 outside tensor cores.
        bandwidth: of its memory, bytes per second.
        memory_bytes: capacity of that memory.
        units: multiprocessors (a GPU) or cores (a CPU).
        clock_hz: boost clock; None where nobody states one.
        l2_bytes: of the last cache before memory; None where nobody states it.
        power_w: the most that the board takes, watts; None where nobody states it. No model reads it.
        source: where this stands.
    """

    name: str
    flops_per_s: Mapping[str, float]
    bandwidth: float
    memory_bytes: float
    units: int
    clock_hz: float | None = None
    l2_bytes: float | None = None
    source: str = field(default="", compare=False)
    power_w: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        optional = [value for value in (self.clock_hz, self.l2_bytes) if value is not None]
        numbers = [*self.flops_per_s.values(), self.bandwidth, self.memory_bytes, self.units]
        if "float32" not in self.flops_per_s:
            raise InvalidInput(f"Device '{self.name}' needs a peak for float32")
        if not all(math.isfinite(v) and v > 0 for v in (*numbers, *optional)):
            raise InvalidInput(f"Rates and sizes of device '{self.name}' are finite and above zero")

    def __hash__(self) -> int:
        return hash((self.name, self.bandwidth, self.units))

    def peak(self, dtype: str) -> float:
        """FLOP/s of an element type; one that is not stated takes float32's."""
        return self.flops_per_s.get(dtype, self.flops_per_s["float32"])

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; quantities carry their unit."""
        return {
            "name": self.name,
            "flops_per_s": dict(self.flops_per_s),
            "bandwidth_bytes_per_s": self.bandwidth,
            "memory_bytes": self.memory_bytes,
            "units": self.units,
            "clock_hz": self.clock_hz,
            "l2_bytes": self.l2_bytes,
            "source": self.source,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DeviceSpec:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: a fact is missing or no number above zero.
        """
        try:
            clock, cache = document.get("clock_hz"), document.get("l2_bytes")
            return cls(
                str(document["name"]),
                {str(k): float(v) for k, v in document["flops_per_s"].items()},
                float(document["bandwidth_bytes_per_s"]),
                float(document["memory_bytes"]),
                int(document["units"]),
                None if clock is None else float(clock),
                None if cache is None else float(cache),
                str(document.get("source", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"A device's specification lacks or misstates {error}") from None


_GIB = float(1 << 30)
_MIB = float(1 << 20)


def _gpu(
    name: str,
    tera: Mapping[str, float],
    gb_per_s: float,
    gib: float,
    units: int,
    mhz: float,
    l2_mib: float,
    watts: float,
    source: str,
) -> DeviceSpec:
    """From the units that data sheets use: TFLOP/s, GB/s, GiB, MHz, MiB, W."""
    rates = {dtype: float(round(rate * 1e12)) for dtype, rate in tera.items()}
    return DeviceSpec(
        name, rates, gb_per_s * 1e9, gib * _GIB, units, mhz * 1e6, l2_mib * _MIB, source, watts
    )


def _half(rate: float) -> dict[str, float]:
    return {"float16": rate, "bfloat16": rate}


SPECS: Mapping[str, DeviceSpec] = {
    spec.name: spec
    for spec in (
        _gpu("tesla-p4", {"float32": 5.5}, 192, 8, 20, 1113, 2, 75,
             "NVIDIA Tesla P4 datasheet (2016)"),
        _gpu("tesla-p100-pcie-16gb", {"float32": 9.3, "float16": 18.7}, 732, 16, 56, 1303, 4, 250,
             "NVIDIA Tesla P100 PCIe datasheet (2016)"),
        _gpu("tesla-v100-pcie-32gb", {"float32": 14.0, "float16": 112.0}, 900, 32, 80, 1380, 6, 250,
             "NVIDIA V100 datasheet (2018), PCIe"),
        _gpu("tesla-v100-sxm2-32gb", {"float32": 15.7, "float16": 125.0}, 900, 32, 80, 1530, 6, 300,
             "NVIDIA V100 datasheet (2018), SXM2"),
        _gpu("tesla-t4", {"float32": 8.1, "float16": 65.0}, 320, 16, 40, 1590, 4, 70,
             "NVIDIA T4 Tensor Core GPU datasheet (2019)"),
        _gpu("nvidia-a100-pcie-40gb", {"float32": 19.5, **_half(312)}, 1555, 40, 108, 1410, 40, 250,
             "NVIDIA A100 Tensor Core GPU datasheet (2020)"),
        _gpu("nvidia-a100-80gb-pcie", {"float32": 19.5, **_half(312)}, 1935, 80, 108, 1410, 40, 300,
             "NVIDIA A100 80GB PCIe datasheet (2021)"),
        _gpu("nvidia-a100-sxm", {"float32": 19.5, **_half(312)}, 2039, 80, 108, 1410, 40, 400,
             "NVIDIA A100 Tensor Core GPU datasheet (2021), 80 GB SXM"),
        _gpu("nvidia-h100-sxm", {"float32": 67.0, **_half(989)}, 3350, 80, 132, 1980, 50, 700,
             "NVIDIA H100 Tensor Core GPU datasheet (2023), SXM; tensor figures without sparsity"),
        _gpu("nvidia-h100-pcie", {"float32": 51.2, **_half(756)}, 2000, 80, 114, 1755, 50, 350,
             "NVIDIA H100 Tensor Core GPU datasheet (2022), PCIe; tensor figures without sparsity"),
        _gpu("nvidia-h200-sxm", {"float32": 67.0, **_half(989)}, 4800, 141, 132, 1980, 50, 700,
             "NVIDIA H200 Tensor Core GPU datasheet (2023); tensor figures without sparsity"),
        _gpu("nvidia-l4", {"float32": 30.3, **_half(121)}, 300, 24, 58, 2040, 48, 72,
             "NVIDIA L4 Tensor Core GPU datasheet (2023); tensor figures without sparsity"),
        _gpu("nvidia-l40s", {"float32": 91.6, **_half(362)}, 864, 48, 142, 2520, 96, 350,
             "NVIDIA L40S datasheet (2023); tensor figures without sparsity"),
        _gpu("nvidia-a10", {"float32": 31.2, **_half(125)}, 600, 24, 72, 1695, 6, 150,
             "NVIDIA A10 Tensor Core GPU datasheet (2021); tensor figures without sparsity"),
        _gpu("rtx-a6000", {"float32": 38.7, **_half(154.8)}, 768, 48, 84, 1800, 6, 300,
             "NVIDIA RTX A6000 datasheet (2020); tensor figures without sparsity"),
        _gpu("geforce-rtx-3090", {"float32": 35.6, **_half(71)}, 936, 24, 82, 1695, 6, 350,
             "NVIDIA Ampere GA102 GPU Architecture whitepaper (2020), FP32 accumulation"),
        _gpu("geforce-rtx-4090", {"float32": 82.6, **_half(165.2)}, 1008, 24, 128, 2520, 72, 450,
             "NVIDIA Ada GPU Architecture whitepaper (2022), FP32 accumulation"),
        _gpu("geforce-rtx-5090", {"float32": 104.8, **_half(209.5)}, 1792, 32, 170, 2407, 96, 575,
             "NVIDIA RTX Blackwell GPU Architecture whitepaper (2025), FP32 accumulation"),
        _gpu("jetson-orin-nano-8gb", {"float32": 1.28}, 68, 8, 8, 625, 2, 15,
             "NVIDIA Jetson Orin Nano Series data sheet DS-11105-001 (2023): 1024 CUDA cores at "
             "625 MHz, two operations a cycle; 128-bit LPDDR5"),
        _gpu("jetson-agx-orin-64gb", {"float32": 5.3}, 204.8, 64, 16, 1301, 4, 60,
             "NVIDIA Jetson AGX Orin Series technical brief (2022): 2048 CUDA cores at 1.3 GHz"),
    )
}  # fmt: skip
"""Common devices by profile name."""


REPORTED: Mapping[str, str] = {
    "nvidia-a100-sxm4-80gb": "nvidia-a100-sxm",
    "nvidia-geforce-rtx-3090": "geforce-rtx-3090",
    "nvidia-geforce-rtx-4090": "geforce-rtx-4090",
    "nvidia-geforce-rtx-5090": "geforce-rtx-5090",
    "nvidia-h100-80gb-hbm3": "nvidia-h100-sxm",
    "nvidia-h200": "nvidia-h200-sxm",
    "nvidia-rtx-a6000": "rtx-a6000",
}
"""What drivers call devices of :data:`SPECS` that have another name there."""


def spec_of_measured(name: str) -> DeviceSpec | None:
    """The published facts of a device that was measured, by its profile's name; None where nothing is known of it."""
    base = name.removesuffix("-awaited")
    return SPECS.get(REPORTED.get(base, base))


def spec_of(name: str) -> DeviceSpec:
    """The published facts of a device.

    Raises:
        InvalidInput: it is not among :data:`SPECS`.
    """
    if name not in SPECS:
        raise InvalidInput(f"No specification of '{name}'; known: {', '.join(SPECS)}")
    return SPECS[name]
