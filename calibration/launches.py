"""How much of a measured time is the launch, and times of kernels without it.

NeuSight's times are of calls that were launched and awaited one by one. What a call costs besides its kernel
is the host's doing: it differs by kind, as PyTorch does more before some kernels than before others, and by host,
and the GPU's data sheet does not say it. The shortest calls of a kind show it: their kernels take what the roofline says
and what the shortest kernel takes (:data:`cost_models.profile.SHORTEST_KERNEL`); the rest is the launch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from cost_models.device_spec import spec_of
from cost_models.profile import SHORTEST_KERNEL, Profile
from cost_models.roofline import Roofline

LAUNCHED = ("neusight",)
"""Sources whose times have the launch in them."""
MEASURED = "nvidia-h200"
"""The profile of the GPU that this project measured: kernels apart from their launch."""
SHORTEST = 20
"""Calls of a kind on a device that tell its launch."""
TELLING = 0.5
"""A call whose kernel takes less than so many launches at published rates says more of the launch than of the kernel."""


def launches(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Seconds of a launch by device and kind.

    Args:
        table: a valid measurement table; only rows of :data:`LAUNCHED` have a launch in them.
    """
    found: dict[str, dict[str, float]] = {}
    chosen = table[table["source"].isin(LAUNCHED)]
    for (device, kind), rows in chosen.groupby(["device", "kind"]):
        shortest = rows.nsmallest(SHORTEST, "seconds")
        kernels = Roofline.published(spec_of(str(device)), SHORTEST_KERNEL).of_rows(shortest)
        launch = float(np.median(shortest["seconds"].to_numpy() - kernels))
        found.setdefault(str(device), {})[str(kind)] = round(max(launch, 0.0), 8)
    return found


def kernel_times(
    table: pd.DataFrame, known: Mapping[str, Mapping[str, float]] | None = None
) -> pd.DataFrame:
    """A table without launches, and without calls that tell of little else (:data:`TELLING`).

    Which calls those are is decided by their work, not by their times: of small ones only the slow would be left.

    Args:
        table: valid.
        known: launches by device and kind; those of the table itself unless given.
    """
    known = launches(table) if known is None else known
    seconds = table["seconds"].to_numpy(copy=True)
    tells = np.ones(len(table), dtype=bool)
    chosen = table["source"].isin(LAUNCHED).to_numpy()
    for device in table["device"][chosen].unique():
        at = np.flatnonzero(chosen & (table["device"] == device).to_numpy())
        rows = table.iloc[at]
        launch = rows["kind"].map(known.get(device, {})).fillna(0.0).to_numpy()
        tells[at] = Roofline.published(spec_of(device)).of_rows(rows) > TELLING * launch
        seconds[at] = np.maximum(seconds[at] - launch, SHORTEST_KERNEL)
    return table.assign(seconds=seconds)[tells].reset_index(drop=True)


def host_launch() -> float:
    """Seconds of the one launch that this project has measured, which every profile of a GPU has.

    A launch is the host's doing: a cluster's ``launch_overhead`` says another host's.
    """
    return Profile.load(MEASURED).launch_overhead_s
