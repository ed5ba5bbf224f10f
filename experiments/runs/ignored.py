"""Refusals of settings that would change nothing, before anything runs.

Seeds that nothing is drawn by give equal runs, which are no mean of several; a value that the chosen arrivals or
devices do not read is one that was meant for others.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override

from experiments.runs import catalog
from experiments.runs.configs import Scenario
from scenarios.arrivals import DRAWN, READ
from simulator import schedulers
from simulator.errors import InvalidInput

_WAYS = {
    "workload": "with one job at a time that is known before, nothing is drawn by it; take workload=poisson or "
    "family=layered, or leave it out",
    "noise": "without noise every run takes the same time; add simulation.noise=measured or "
    "simulation.noise=lognormal simulation.sigma=0.05, or leave it out",
    "search": "none of these schedulers draws anything; leave it out",
}


UNREAD_SPEEDS = {"speeds": ("related", "both"), "beta": ("unrelated", "both")}
"""Which heterogeneities read a value of a family."""


def refuse_unread(overrides: Sequence[Override], scenarios: Sequence[Scenario]) -> None:
    """Refuse values of the command line that no scenario reads.

    Raises:
        InvalidInput: names the value, and what would read it.
    """
    for override in overrides:
        group, _, key = override.key_or_group.partition(".")
        if override.is_delete() or override.value() is None:
            continue
        if group == "workload" and key in READ:
            kinds, what = READ[key], "arrivals"
            found = {s.workload.arrivals for s in scenarios if s.workload.streams is None}
            if len(found) == 0:
                continue
        elif group == "family" and key in UNREAD_SPEEDS:
            # A command that repeats a run names what its family's config says, too.
            if any(_shipped(s.family.name, key) == override.value() for s in scenarios):
                continue
            kinds, what = UNREAD_SPEEDS[key], "heterogeneity"
            found = {s.family.heterogeneity for s in scenarios}
        else:
            continue
        if not found & {*kinds}:
            raise InvalidInput(
                f"'{override.input_line}' has no meaning with {what} {', '.join(sorted(found))}; it is for "
                f"{', '.join(kinds)}"
            )


def _shipped(family: str, key: str) -> object:
    """The value of a family's shipped config; None where there is none."""
    entry = catalog.entry("family", family)
    return None if entry is None else entry.content.get(key)


def refuse_idle_seeds(
    cells: Sequence[tuple[Mapping[str, str], Scenario]], config_dirs: Sequence[Path] = ()
) -> None:
    """Refuse an axis of seeds where, in some setting, no scheduler's run depends on it.

    Args:
        cells: value of every axis, and what is simulated.
        config_dirs: the user's folders of configs.

    Raises:
        InvalidInput: names the axis and what it would change.
    """
    for name, way in _WAYS.items():
        axis = f"seed.{name}"
        settings: dict[tuple[str, ...], list[tuple[str, Scenario]]] = {}
        for choices, scenario in cells:
            if axis in choices:
                rest = (
                    f"{key}={value}"
                    for key, value in choices.items()
                    if key != axis and not key.startswith(("scheduler", "partition"))
                )
                settings.setdefault(tuple(rest), []).append((choices[axis], scenario))
        for setting, found in settings.items():
            several = len({seed for seed, _ in found}) > 1
            if several and not any(depends(one, name, config_dirs) for _, one in found):
                where = f" with {' '.join(setting)}" if setting else ""
                raise InvalidInput(f"{axis}= changes nothing{where}: {way}")


def depends(scenario: Scenario, seed: str, config_dirs: Sequence[Path] = ()) -> bool:
    """Whether a run's times may depend on a seed.

    Args:
        scenario: settled.
        seed: ``workload``, ``noise`` or ``search``.
        config_dirs: the user's folders of configs.
    """
    simulation, workload = scenario.simulation, scenario.workload
    if seed == "noise":
        return bool(simulation.noises) or any(fault.mtbf for fault in simulation.faults)
    if seed == "search":
        options = scenario.scheduler.options
        path = scenario.scheduler.class_path or scenario.scheduler.name
        kind = schedulers.resolve(catalog.resolve_class_path(path, config_dirs))
        # What a scheduler wraps, or chooses nodes by, may draw as well.
        nested = {"scheduler", "select"} & options.keys()
        takes = "seed" in inspect.signature(kind).parameters and "seed" not in options
        return takes or bool(nested)
    links = () if scenario.bare else scenario.cluster.links.values()
    return (
        scenario.family.drawn
        or workload.arrivals in DRAWN
        or workload.serves
        or workload.urgent > 0
        or any(link.varies is not None for link in links)
    )
