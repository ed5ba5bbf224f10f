"""What a validation is to run: schedulers on models, from a grid or from the best of a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from experiments.probes.overhead import Overhead
from experiments.runs.cell import check_method, label_of, scheduler_of
from experiments.runs.configs import Scenario
from experiments.runs.grid import compose_grid
from experiments.runs.own_settings import key_of
from experiments.runs.prepare import partitioner_of
from experiments.runs.provenance import config_digest, digest
from experiments.runs.results import read_document
from experiments.runs.trust import admit
from experiments.runs.world import source_digests
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput


@dataclass(frozen=True)
class Contestant:
    """A scheduler on a model, before it is run.

    Attributes:
        label: what tables call the scheduler.
        scenario: settled.
        make: gives a fresh scheduler.
        key: 16 characters; the same for the same scenario with the same profiles.
        own_graph: whether a partition made the graph that it runs.
    """

    label: str
    scenario: Scenario
    make: Callable[[], Scheduler]
    key: str
    own_graph: bool = False

    @property
    def jobs(self) -> int:
        """How many jobs run at once."""
        return self.scenario.workload.jobs or 1


@dataclass(frozen=True)
class Group:
    """Contestants of one model on one cluster with one cost model.

    Attributes:
        model: what tables call it: with its batch or cluster where another group differs in these alone.
        key: 8 characters.
    """

    model: str
    key: str
    contestants: tuple[Contestant, ...]

    @property
    def scenario(self) -> Scenario:
        """Of the first contestant."""
        return self.contestants[0].scenario


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes:
        name: of the folder that keeps it; None: a new one.
        output_dir: where folders of results are.
        believed: what schedulers are told that the runner needs, by contestant, where that is known before.
    """

    groups: tuple[Group, ...]
    name: str | None
    output_dir: Path
    believed: Mapping[str, Overhead] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        """How many schedulers on models there are."""
        return sum(len(group.contestants) for group in self.groups)


def plan_grid(overrides: Sequence[str], config_dirs: Sequence[Path]) -> Plan:
    """The contestants of a grid.

    Raises:
        InvalidInput: a name that is unknown, or a scenario that cannot be run on hardware.
    """
    grid = compose_grid(overrides, config_dirs, _TAKEN)
    found = [contestant(cell.scenario, config_dirs) for cell in grid.cells]
    output_dir = Path(grid.cells[0].scenario.output_dir)
    return Plan(grouped(found), grid.settings.name, output_dir)


def plan_sweep_best(
    sweep: str,
    top: int,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    trust: bool = False,
) -> Plan:
    """The best schedulers of every setting of a sweep.

    A setting is what a sweep's cells have in common but for the scheduler, its options and the seeds;
    schedulers are ordered by their mean makespan over the seeds.

    Args:
        sweep: name in ``outputs/sweeps``, or a folder.
        top: schedulers of each setting.
        overrides: further values for all of them.
        config_dirs: the user's configs.
        trust: whether code that the sweep alone names may run.

    Raises:
        InvalidInput: no such sweep, nothing of it is done, or it names code of its own.
    """
    base = compose_grid([*overrides, "scheduler=single_device"], config_dirs, _TAKEN)
    output_dir = Path(base.cells[0].scenario.output_dir)
    folder = Path(sweep) if Path(sweep, "cells").is_dir() else output_dir / "sweeps" / sweep
    documents = [read_document(path) for path in (folder / "cells").glob("*/result.json")]
    documents.sort(key=lambda cell: (*map(str, cell["labels"].values()), cell["hash"]))
    if not documents:
        known = sorted(path.parent.name for path in (output_dir / "sweeps").glob("*/cells"))
        raise InvalidInput(
            f"There is no sweep with cells in {folder}; known: {', '.join(known) or 'none'}. Make it: "
            f"python -m experiments.sweep name={folder.name} ..."
        )
    settings: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for document in documents:
        if document["status"] == "done":
            schedulers = settings.setdefault(digest(_setting(document["config"])), {})
            schedulers.setdefault(document["labels"]["scheduler"], []).append(document)
    if not settings:
        raise InvalidInput(f"No cell of the sweep in {folder} is done; see its failures.csv")
    chosen = {}
    for schedulers in settings.values():
        means = {
            label: sum(cell["metrics"]["makespan_s"] for cell in cells) / len(cells)
            for label, cells in schedulers.items()
        }
        for label in sorted(means, key=lambda label: (means[label], label))[:top]:
            cell = min(schedulers[label], key=lambda cell: sorted(cell["seeds"].items()))
            chosen[cell["hash"]] = cell
    found: dict[str, Contestant] = {}
    for cell in chosen.values():
        words = [word for word in shlex.split(cell["command"])[3:] if "=" in word]
        if foreign := [
            word for word in words if key_of(word).partition("/")[0].startswith("hydra")
        ]:
            raise InvalidInput(
                f"A command in {folder} sets {foreign[0]}, which no cell of a sweep does; it is not followed"
            )
        if "--config-dir" in shlex.split(cell["command"]) and not config_dirs:
            raise InvalidInput(
                f"The sweep in {folder} was made with configs of your own; give them: --config-dir"
            )
        cells = compose_grid([*words, *overrides], config_dirs).cells
        admit((entry.scenario for entry in cells), folder, config_dirs, trust, overrides)
        for entry in cells:
            one = contestant(entry.scenario, config_dirs)
            found.setdefault(one.key, one)
    return Plan(grouped(list(found.values())), base.settings.name, output_dir)


def _setting(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in config.items() if key not in ("scheduler", "partition", "seed")
    }


def contestant(scenario: Scenario, config_dirs: Sequence[Path]) -> Contestant:
    """A scenario as a contestant.

    Raises:
        InvalidInput: it cannot be run on hardware, or its scheduler does not take its options.
    """
    if scenario.bare:
        raise InvalidInput(
            "Instances and drawn graphs have no kernels to run; validate takes models"
        )
    if scenario.workload.arrivals not in ("single", "concurrent") or scenario.workload.serves:
        raise InvalidInput(
            "Validation runs one job at a time, or several that are all there at the start; leave "
            "workload at single, or take workload=concurrent"
        )
    simulation = scenario.simulation
    if simulation.noise != "none":
        raise InvalidInput("Validation holds predictions against runs; leave noise at none")

    # A contestant travels between processes, which a function made here could not.
    make = partial(scheduler_of, scenario, tuple(config_dirs))
    check_method(scenario, config_dirs)  # a misspelt option should not have to wait for a model
    document = scenario.document()
    # How the prediction is drawn does not change what is run.
    document["simulation"] = {
        k: v for k, v in document["simulation"].items() if k not in ("draws", "discrepancy")
    }
    sources = source_digests(scenario, config_dirs)
    key = digest([config_digest(document), sources])[:16]
    own_graph = scenario.partition.partitions and partitioner_of(scenario, config_dirs).makes_graphs
    return Contestant(label_of(scenario, config_dirs), scenario, make, key, own_graph)


def grouped(contestants: Sequence[Contestant]) -> tuple[Group, ...]:
    """Contestants by model, cluster and cost model, each group with a name of its own."""
    groups: dict[str, list[Contestant]] = {}
    for one in contestants:
        scenario = one.scenario
        parts = [asdict(part) for part in (scenario.model, scenario.cluster, scenario.cost_model)]
        if one.own_graph:
            parts += [
                asdict(part)
                for part in (scenario.partition, scenario.workload, scenario.simulation)
            ]
        groups.setdefault(digest(parts)[:8], []).append(one)
    scenarios = [group[0].scenario for group in groups.values()]
    several = {
        what: len({text(scenario) for scenario in scenarios}) > 1 for what, text in _TOLD.items()
    }
    names = [
        ", ".join([s.model.name, *(text(s) for what, text in _TOLD.items() if several[what])])
        for s in scenarios
    ]
    for name, group in zip(names, groups.values(), strict=True):
        seen: set[tuple[str, int]] = set()
        for one in group:
            if (one.label, one.jobs) in seen:
                raise InvalidInput(
                    f"'{one.label}' on '{name}' stands twice, with other settings of simulation or "
                    "workload; validate one value of them at a time"
                )
            seen.add((one.label, one.jobs))
    names = [
        f"{n} {key}" if names.count(n) > 1 else n for n, key in zip(names, groups, strict=True)
    ]
    return tuple(
        Group(name, key, tuple(sorted(found, key=lambda one: one.jobs)))
        for name, (key, found) in zip(names, groups.items(), strict=True)
    )


_TAKEN = ("name", "output_dir", "sweep", "exclude")
"""Settings of a sweep that a validation heeds."""
_TOLD: Mapping[str, Callable[[Scenario], str]] = {
    "batch": lambda scenario: f"batch {scenario.model.batch}",
    "cluster": lambda scenario: scenario.cluster.name,
    "cost_model": lambda scenario: scenario.cost_model.name,
    "partition": lambda scenario: scenario.partition.name,
}
"""What tells groups of one model apart, where it is not the same for all."""
