"""Whether a profile was measured with what there is here: torch, CUDA, driver and processor.

Asked only where a profile is put beside this machine; to simulate another machine needs no warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from cost_models.profile import Profile


def differences_here(profiles: Mapping[str, Profile], places: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each profile that was measured with something else than there is here.

    Args:
        profiles: by name.
        places: by name of a profile, the device that is taken for it: ``cpu`` or ``cuda:<index>``.
    """
    from calibration.environment import described

    found = []
    for name, place in sorted(places.items()):
        if texts := profiles[name].differences(described(place)):
            found.append(f"profile '{name}' was measured with {'; '.join(texts)}")
    return tuple(found)


def same_device_differences(profile: Profile, device: str) -> tuple[str, ...]:
    """The same of one profile, where it is of this very device; nothing where it is of another one.

    Args:
        profile: to start from or to fit again.
        device: ``cpu`` or ``cuda:<index>``, which need not be here.
    """
    from calibration.environment import check_device, described

    try:
        check_device(device)
    except InvalidInput:
        return ()
    if profile.provenance.get("processor") != described(device)["processor"]:
        return ()
    return differences_here({profile.name: profile}, {profile.name: device})
