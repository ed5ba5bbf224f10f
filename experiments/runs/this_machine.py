"""Whether a profile was measured with what there is here: torch, CUDA, driver and processor.

Asked only where a profile is put beside this machine; to simulate another machine needs no warning. Which
shipped cluster this machine is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from experiments.runs import catalog
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


def cluster_here(names: Sequence[str]) -> str:
    """The first of some shipped clusters whose devices are all cores of this machine's processor.

    Args:
        names: of clusters; the first of them is taken where none is this machine, for the command to refuse
            it by name.
    """
    from calibration.environment import cpu_model, slug

    own = re.compile(rf"{re.escape(slug(cpu_model()))}-\d+core(-\d+x)?")
    for name in names:
        entry = catalog.entry("cluster", name)
        devices = {} if entry is None else entry.content["devices"]
        if devices and all(own.fullmatch(str(d.get("profile"))) for d in devices.values()):
            return name
    return names[0]
