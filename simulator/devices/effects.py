"""What else a device does to its executions: effects by name, each a wrapper round the device's execution model.

A device names effects with their options (``Device.effects``, or ``effects`` of a device in a cluster's
configuration); :func:`register` offers another one to every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simulator.devices.constant import ExecutionModel
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device

DeviceEffect = Callable[[ExecutionModel, Device, Any], ExecutionModel]
"""Makes an execution model from the one that it wraps, the device and the options that the device gives."""
_EFFECTS: dict[str, DeviceEffect] = {}


def register(name: str, effect: DeviceEffect) -> None:
    """Offer a device effect.

    Raises:
        InvalidInput: the name is taken.
    """
    if name in _EFFECTS:
        raise InvalidInput(f"There is a device effect '{name}' already; choose another name")
    _EFFECTS[name] = effect


def unregister(name: str) -> None:
    """Offer a device effect no more."""
    del _EFFECTS[name]


def affected(cluster: Cluster, models: Sequence[ExecutionModel]) -> list[ExecutionModel]:
    """The execution models of a cluster's devices behind the effects that these name.

    Raises:
        InvalidInput: there is no such effect.
    """
    found = list(models)
    for number, device in enumerate(cluster.devices):
        for name, options in (device.effects or {}).items():
            if name not in _EFFECTS:
                raise InvalidInput(
                    f"Device '{device.name}' names the effect '{name}'; registered are "
                    f"{', '.join(_EFFECTS) or 'none'}"
                )
            found[number] = _EFFECTS[name](found[number], device, options)
    return found
