"""What a cluster's profiles say of its devices, times apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster

if TYPE_CHECKING:
    from cost_models.profile import Profile


def profiles_of(cluster: Cluster, why: str) -> Sequence[Profile]:
    """The profile of each device.

    Args:
        cluster: its devices name profiles.
        why: what needs them, for people.

    Raises:
        InvalidInput: a device has none.
    """
    from cost_models.profile_files import load_profile

    found: dict[str, Profile] = {}
    for device in cluster.devices:
        if device.profile is None:
            raise InvalidInput(
                f"{why} needs to know what device '{device.name}' is, which names no profile; take a model on a "
                "cluster whose devices have profiles"
            )
        if device.profile not in found:
            found[device.profile] = load_profile(device.profile)
    return [found[str(device.profile)] for device in cluster.devices]
