"""Which device: a model alone on each of several devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.studies.devices.table import devices_table

__all__ = ["devices_table"]


def __getattr__(name: str) -> Any:
    if name == "devices_table":
        from experiments.studies.devices.table import devices_table

        return devices_table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
