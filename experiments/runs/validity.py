"""One line of validity: in which world the devices of a result were validated, how far off, and how often the
interval held.

The figures are those of the shipped validations (``docs/validation``), which ``validated.csv`` beside this file sums up:
``python -m tests.benchmarks.validity`` makes it from their reports.
A *world* is what was run together: CPU cores of one memory, CPU cores of several, CPU and GPU.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cost_models.profile import Profile
    from simulator.model.cluster import Cluster

SUMMARY = Path(__file__).with_name("validated.csv")
COLUMNS = (
    *("report", "world", "profiles", "models", "cases", "mean_error", "covered"),
    *("settings", "alone", "promised"),
)
"""``alone``: in how many settings (a model, one job or several) one device alone was measured to be the fastest or within
2% of it; ``promised``: by which factor the best schedule was simulated to beat it, in the mean."""
MEAN_ERROR, LEAST_COVERED = 0.06, 0.85
"""What a validation is to reach; its intervals hold 90%."""
FEWEST_MODELS = 6
"""With fewer a validation says nothing of other models."""
CORES, APART, BOTH, GPUS = (
    *("CPU cores", "CPU cores with memories apart"),
    *("CPU and GPU together", "GPUs without a CPU core"),
)


@dataclass(frozen=True)
class Run:
    """One shipped validation: its profiles, world, mean error, the share of its 90% intervals that held, and what
    splitting came to (:data:`COLUMNS`).
    """

    profiles: frozenset[str]
    world: str
    mean_error: float
    covered: float
    settings: int
    alone: int
    promised: float


@dataclass(frozen=True)
class Validity:
    """What is known of how right a result's times are.

    Attributes:
        line: for people, one line; empty where times are given and nobody predicted anything.
        validated: whether devices like these were validated together and came out as they were to.
    """

    line: str
    validated: bool


@dataclass(frozen=True)
class Apart:
    """What is known of devices that run alone: ``names`` of their profiles, and as of :class:`Validity`."""

    names: tuple[str, ...]
    line: str
    validated: bool


_LABELS = ("measured", "public", "datasheet")
"""The best known first."""
GIVEN_TIMES = Validity("", True)


def validity(profiles: Collection[Profile], memories: int, planned: bool = False) -> Validity:
    """What the shipped validations say of a cluster.

    Args:
        profiles: of its devices.
        memories: how many memory spaces have devices.
        planned: whether a plan decided in advance what runs on which device.
    """
    gpus = {profile.is_gpu for profile in profiles}
    world = world_of(gpus, memories)
    runs = [run for run in _runs() if run.world == world]
    names = {profile.name for profile in profiles}
    own = [run for run in runs if names <= run.profiles]
    line, validated = _described(world, own or runs, "" if own else " on other devices")
    line += _never(profiles)
    split = [run for run in own or runs if run.settings and planned and world == BOTH]
    for run in split:
        line += (
            f"; where schedules over both promised {run.promised:.2f}x, all on the GPU was as fast "
            f"in {run.alone} of {run.settings} settings"
        )
    return Validity(line, validated and bool(own))


def apart(profiles: Collection[Profile]) -> tuple[Apart, ...]:
    """What the shipped validations say of devices that each run alone, together where it is the same."""
    found: dict[tuple[str, bool], tuple[list[Profile], dict[Run, None]]] = {}
    for profile in profiles:
        world = world_of({profile.is_gpu}, 1)
        runs = [run for run in _runs() if run.world == world]
        own = [run for run in runs if profile.name in run.profiles]
        together, known = found.setdefault((world, bool(own)), ([], {}))
        together.append(profile)
        known |= dict.fromkeys(own or runs)
    said = []
    for (world, there), (together, known) in found.items():
        line, validated = _described(world, list(known), "" if there else " on other devices")
        names = tuple(profile.name for profile in together)
        said.append(Apart(names, line + _never(together), validated and there))
    return tuple(said)


def labels_compared(cluster: Cluster, totals: np.ndarray, without_error: Collection[str]) -> str:
    """How devices of different labels compare: the first of each label relative to the best known one.

    Args:
        cluster: its devices have profiles with labels.
        totals: float64[1 + draws, devices] seconds of all operators on each device alone, as believed and in each draw.
        without_error: profiles of which nobody knows how wrong they are.

    Returns:
        Parts like ``orin (datasheet) against core (measured): 0.12 [0.11, 0.36] of its time``; empty with one label.
    """
    first: dict[str, int] = {}
    for number, device in enumerate(cluster.devices):
        first.setdefault(cluster.labels.get(device.profile or "", ""), number)
    base, *others = (label for label in (*_LABELS, "") if label in first)
    names = {label: str(cluster.devices[first[label]].profile) for label in first}
    parts = []
    for label in others:
        mine, theirs = totals[:, first[label]], totals[:, first[base]]
        if not np.isfinite(mine + theirs).all():
            continue  # one cannot run all of it
        unknown = [name for name in (names[base], names[label]) if name in without_error]
        ends = f"(nobody knows the error of {', '.join(unknown)})" if unknown else "(no draws)"
        if len(totals) > 1 and not unknown:
            low, high = np.percentile(mine[1:] / theirs[1:], [2.5, 97.5])
            ends = f"[{low:.2g}, {high:.2g}]"
        ratio = mine[0] / theirs[0]
        parts.append(
            f"{names[label]} ({label}) against {names[base]} ({base}): {ratio:.2g} {ends} of its time"
        )
    return "; ".join(parts)


def world_of(gpus: Collection[bool], memories: int) -> str:
    """The world of devices that are GPUs or not, in so many memories."""
    if True in gpus:
        return BOTH if False in gpus else GPUS
    return APART if memories > 1 else CORES


def _never(profiles: Collection[Profile]) -> str:
    """Those whose times nobody measured here."""
    text = ""
    for label, what in (("public", "public data"), ("datasheet", "data sheet")):
        if never := sorted(profile.name for profile in profiles if profile.label == label):
            text += f"; {what}, never: {', '.join(never)}"
    return text


def _described(world: str, runs: list[Run], where: str) -> tuple[str, bool]:
    """What runs of a world came to, and whether that is what they were to reach."""
    if not runs:
        return f"{world}: never validated", False
    errors = _range([run.mean_error for run in runs])
    covered = _range([run.covered for run in runs], 0)
    count = f"{len(runs)} runs" if len(runs) > 1 else "one run"
    figures = f"{count}, {errors} off, {covered} in the 90% interval"
    good = all(r.mean_error <= MEAN_ERROR and r.covered >= LEAST_COVERED for r in runs)
    if good:
        return f"{world}: validated{where}, {figures}", True
    return f"{world}: {figures}{where}; not validated since", False


def _range(shares: list[float], digits: int = 1) -> str:
    low, high = (f"{100 * share:.{digits}f}" for share in (min(shares), max(shares)))
    return f"{low}%" if low == high else f"{low} to {high}%"


@cache
def _runs() -> tuple[Run, ...]:
    """The shipped validations of enough models."""
    with SUMMARY.open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["models"]) >= FEWEST_MODELS]
    return tuple(
        Run(
            frozenset(r["profiles"].split()),
            r["world"],
            float(r["mean_error"]),
            float(r["covered"]),
            int(r["settings"]),
            int(r["alone"]),
            float(r["promised"]),
        )
        for r in rows
    )
