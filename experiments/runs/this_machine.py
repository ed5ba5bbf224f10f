"""Whether a profile was measured with what there is here (torch, CUDA, driver, processor), and what disturbs here.

Asked only where a profile is put beside this machine; to simulate another machine needs no warning. Which
shipped cluster this machine is.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.runs import catalog
from experiments.runs.pool import available_cores
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from cost_models.profile import Profile

EQUAL_CORES = "cpu2"
"""The shipped cluster of equal cores, whose profile another machine's can take the place of."""


QUIET = 0.1
"""Cores that other processes may keep busy."""
STEADY = 0.05
"""By how much a machine's speed, or a repeated time, may change."""


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


def cluster_here(names: Sequence[str]) -> list[str]:
    """Overrides that choose a cluster of this machine's cores.

    The first of some shipped clusters whose devices are all cores of this machine's processor; else the first of
    them, or two equal cores, with the profiles that were measured here in place of its own.

    Args:
        names: of clusters.

    Raises:
        InvalidInput: no profile is of this machine's cores; says how to measure one.
    """
    from calibration.environment import cpu_model, slug
    from cost_models.profile_files import available
    from experiments.runs.grid import value_text

    # Names tell the hardware runner, too, what a device is.
    own = re.compile(rf"{re.escape(slug(cpu_model()))}-1core(?:-(\d+)x)?")
    for name in names:
        entry = catalog.entry("cluster", name)
        devices = {} if entry is None else entry.content["devices"]
        if devices and all(own.fullmatch(str(d.get("profile"))) for d in devices.values()):
            return [f"cluster={name}"]
    profiles = {
        int(match[1] or 1): entry
        for name, entry in available().items()
        if (match := own.fullmatch(name))
    }
    if 1 not in profiles:
        raise InvalidInput(
            f"No profile is of this machine's cores, {cpu_model()}. Measure one: python -m experiments.calibrate "
            "device=cpu budget=15min; then set HETSIM_PROFILES to the folder that it leaves and give the same "
            "command again"
        )
    for name in (names[0], EQUAL_CORES):
        entry = catalog.entry("cluster", name)
        assert entry is not None
        devices = entry.content["devices"]
        if all(device.get("launches", 1) in profiles for device in devices.values()):
            break
    words = [f"cluster={name}", f"cluster.name={value_text(slug(cpu_model()) + '_cores')}"]
    for key, device in devices.items():
        profile = profiles[device.get("launches", 1)]
        words.append(f"cluster.devices.{key}.profile={value_text(profile.name)}")
        if device.get("count", 1) > available_cores():
            words.append(f"cluster.devices.{key}.count={available_cores()}")
        # What was not measured with a profile cannot be taken from it.
        space = f"cluster.spaces.{device['space']}"
        if not profile.document.get("corun"):
            words.append(f"{space}.corun_slowdown=0")
        if not profile.document.get("reuse"):
            words.append(f"{space}.cache=null")
    return list(dict.fromkeys(words))


def busy_cores(seconds: float = 0.5) -> float:
    """How many cores others keep busy while this process sleeps; NaN where ``/proc/stat`` is not."""
    try:
        before = _processor_ticks()
        time.sleep(seconds)
        after = _processor_ticks()
    except (OSError, ValueError, IndexError):
        return float("nan")
    spent = [b - a for a, b in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]  # idle, and waiting for input or output
    return (1 - idle / sum(spent)) * (os.cpu_count() or 1) if sum(spent) else 0.0


def _processor_ticks() -> list[int]:
    # user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user's.
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def busy_text(cores: float) -> str:
    """What to do about other processes; empty where the host is quiet or does not say."""
    if not cores > QUIET:
        return ""
    return (
        f"other processes kept {cores:.1f} cores of this machine busy: repeat this when it is quiet"
    )


def drift_text(share: float) -> str:
    """What to do about a speed that changes; empty where it changes by less than :data:`STEADY`."""
    if not share > STEADY:
        return ""
    return (
        f"this machine's speed changed by {share:.0%} meanwhile, by turbo, heat or neighbours: fix its clock "
        "(cpupower frequency-set, nvidia-smi --lock-gpu-clocks) or repeat this when it is quiet"
    )


def calibration_conditions(
    provenance: Mapping[str, Any], repeats_within: float | None
) -> list[str]:
    """What was not as it should be while a profile was measured, each with what to do.

    Args:
        provenance: of the profile.
        repeats_within: median difference of the same operators measured twice; None: unknown.
    """
    found = []
    if provenance.get("flush_denormal") is False:
        found.append(
            "denormal numbers were not taken for zero, which this processor cannot: models that make many run "
            "slower than simulated; take trained weights"
        )
    found.append(drift_text(float(provenance.get("reference_spread", 0.0))))
    if repeats_within is not None and repeats_within > STEADY:
        found.append(
            f"the same operators repeat within {repeats_within:.0%} only, as on a busy host: measure again when it "
            "is quiet"
        )
    if (held := provenance.get("throttled", "never")) != "never":
        found.append(f"the GPU's clocks were held back ({held}): cool it or raise its power limit")
    return [text for text in found if text]
