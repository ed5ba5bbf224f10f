"""The instance on which one scheduler loses most to another: ``python -m experiments.adversary
scheduler=heft,donf family=layered family.n=8 family.devices=3``.

Simulated annealing over small instances, started from the graph that is drawn or given, once for each
start and each ordered pair of schedulers. Leaves ``outputs/adversaries/<hash>/`` with an instance a pair,
both Gantt charts, a table and a figure, and prints the ratios.

Source: Coleman, Krishnamachari, "PISA: An Adversarial Approach To Comparing Task Graph Scheduling
Algorithms", 2024, https://arxiv.org/abs/2403.07120.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from experiments.runs import atomic
from experiments.runs.cell import label_of, make_scheduler
from experiments.runs.command import Invocation, sweeping_main
from experiments.runs.configs import Scenario
from experiments.runs.console import make_console
from experiments.runs.file_name import file_name
from experiments.runs.grid import Cell, compose_grid
from experiments.runs.own_settings import read_own
from experiments.runs.pool import WorkerDiedError, work_through
from experiments.runs.prepare import prepare
from experiments.runs.progress import progress_bar
from experiments.runs.provenance import digest, revision, versions
from scenarios.instances import instance_from_json, instance_to_json, save_instance
from scenarios.perturbation import Instance, Range, perturbed
from simulator.analysis.bounds import lower_bound
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.trace import Trace

FORMAT = "hetsim.adversary/1"
MOST_TASKS = 200
"""The search simulates thousands of instances; on larger ones it would take hours to get nowhere."""


@dataclass
class AdversarySettings:
    """What the command takes beside a sweep's overrides.

    Attributes:
        iterations: instances that each search looks at.
        restarts: searches for each pair; where the graph is drawn, each starts from one of its own
            (``seed.workload`` and the next ones).
        hottest, coldest: temperatures at the first and the last step, in units of the ratio.
        graph: whether edges may come and go.
        workers: processes; as many as there are cores unless given.
    """

    iterations: int = 1000
    restarts: int = 5
    hottest: float = 0.2
    coldest: float = 0.002
    graph: bool = True
    workers: int | None = None

    def check(self) -> None:
        """Refuse numbers that make no search.

        Raises:
            InvalidInput: names the key.
        """
        if self.iterations < 1 or self.restarts < 1:
            raise InvalidInput(
                f"iterations={self.iterations}, restarts={self.restarts}: give 1 or more of each"
            )
        if not 0 < self.coldest <= self.hottest < math.inf:
            raise InvalidInput(
                f"hottest={self.hottest}, coldest={self.coldest}: temperatures are above 0, the "
                "first no lower than the last"
            )


@dataclass(frozen=True)
class Duel:
    """A search: where ``loser`` does worst beside ``winner``, from one start.

    Attributes:
        loser, winner: scenarios that differ in their scheduler alone.
        start: document of the first instance.
    """

    loser: Scenario
    winner: Scenario
    start: dict[str, Any]
    restart: int
    settings: AdversarySettings
    config_dirs: tuple[Path, ...]


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        ratio: the loser's makespan over the winner's.
        start_ratio: that of the first instance.
        instance: its document.
    """

    ratio: float
    start_ratio: float
    instance: dict[str, Any]


def run_on(scenario: Scenario, instance: dict[str, Any], config_dirs: Sequence[Path]) -> Trace:
    """One run of a scenario's scheduler on an instance, as believed."""
    graph, cluster, costs = instance_from_json(instance)
    scheduler = make_scheduler(scenario.scheduler, scenario.seed.search, config_dirs)
    simulation = scenario.simulation
    return simulate(
        graph,
        cluster,
        costs,
        scheduler,
        movement=simulation.movement,
        contention=simulation.contention,
        decision_cost=simulation.decision_cost.build(),
        engine=simulation.engine,
    )


def search(duel: Duel) -> Found:
    """Simulated annealing from one start; the best instance that it saw, its first one included."""
    settings = duel.settings
    rng = np.random.default_rng([duel.loser.seed.search, duel.restart])

    def ratio_on(instance: Instance) -> float:
        document = instance.to_json()
        lost = run_on(duel.loser, document, duel.config_dirs).makespan
        won = run_on(duel.winner, document, duel.config_dirs).makespan
        return lost / won if won > 0 else 1.0

    instance = Instance.from_json(duel.start)
    limits = Range.of(instance, settings.graph)
    ratio = first = ratio_on(instance)
    best, most = instance, ratio
    cooling = (settings.coldest / settings.hottest) ** (1 / max(1, settings.iterations - 1))
    temperature = settings.hottest
    for _ in range(settings.iterations):
        other = perturbed(instance, limits, rng)
        found = ratio_on(other)
        if found >= ratio or rng.random() < math.exp((found - ratio) / temperature):
            instance, ratio = other, found
        if found > most:
            best, most = other, found
        temperature *= cooling
    return Found(most, first, best.to_json())


def _starts(
    cell: Cell, settings: AdversarySettings, config_dirs: Sequence[Path]
) -> list[dict[str, Any]]:
    """The documents of the instances that the searches of every pair start from."""
    scenario = cell.scenario
    if not scenario.bare:
        raise InvalidInput(
            "A traced model's times are predicted, not free to be changed; start from a drawn graph or "
            "an instance: family=layered family.n=8, or instance=topcuoglu"
        )
    if scenario.workload.arrivals != "single" or scenario.workload.jobs != 1:
        raise InvalidInput("The search is for one job; leave workload at single")
    for key, value, plain in (
        ("noise", scenario.simulation.noise, "none"),
        ("memory", scenario.simulation.memory, "unlimited"),
        ("weights", scenario.simulation.weights, "resident"),
    ):
        if value != plain:
            raise InvalidInput(
                f"The search takes simulation.{key}={plain}, not {value}: an instance has no more than "
                "times"
            )
    if scenario.simulation.faults or scenario.simulation.horizon is not None:
        raise InvalidInput("The search knows neither faults nor a horizon; leave them out")
    drawn = scenario.family.drawn and not scenario.family.of_file
    found = []
    for restart in range(settings.restarts if drawn else 1):
        seed = dataclasses.replace(
            scenario.seed, workload=scenario.seed.workload + (restart if drawn else 0)
        )
        world = prepare(dataclasses.replace(scenario, seed=seed), config_dirs)
        if len(world.graph) > MOST_TASKS:
            raise InvalidInput(
                f"'{world.graph.name}' has {len(world.graph)} tasks; the search is for small "
                f"instances, of at most {MOST_TASKS}"
            )
        found.append(instance_to_json(world.graph, world.cluster, world.costs))
    return [found[restart % len(found)] for restart in range(settings.restarts)]


def adversary(invocation: Invocation) -> int:
    """The command: search every pair, write what was found, print the ratios."""
    console = make_console()
    settings, overrides = read_own(AdversarySettings, invocation.overrides)
    settings.check()
    cells = compose_grid(overrides, invocation.config_dirs, takes=("output_dir",)).cells
    labels = [label_of(cell.scenario, invocation.config_dirs) for cell in cells]
    for cell in cells:
        if cell.scenario.partition.partitions:
            raise InvalidInput(
                f"The search changes instances under schedulers, and partition={cell.scenario.partition.name} would "
                "plan each of them anew; compare schedulers here, and partitions by experiments.flip"
            )
    others = {
        digest({k: v for k, v in cell.scenario.document().items() if k != "scheduler"})
        for cell in cells
    }
    if len(others) > 1 or len(cells) < 2:
        raise InvalidInput(
            "The search compares schedulers on one kind of instance: name two or more, and nothing else "
            "that varies, e.g. scheduler=heft,donf family=layered family.n=8"
        )
    starts = _starts(cells[0], settings, invocation.config_dirs)
    document = [cell.scenario.document() for cell in cells] + [dataclasses.asdict(settings), starts]
    output_dir = Path(cells[0].scenario.output_dir)
    folder = output_dir / "adversaries" / digest([FORMAT, document])[:12]
    pairs = [
        (a, b, folder / _name(labels[a], labels[b]))
        for a, b in itertools.permutations(range(len(cells)), 2)
    ]
    duels = [
        (
            f"{a}-{b}",
            Duel(
                cells[a].scenario,
                cells[b].scenario,
                start,
                restart,
                settings,
                invocation.config_dirs,
            ),
        )
        for a, b, place in pairs
        if not (place / "result.json").is_file()
        for restart, start in enumerate(starts)
    ]
    done = len(pairs) - len({key for key, _ in duels})
    if done:
        console.print(f"{done} of {len(pairs)} pairs done before", style="dim")
    answers: dict[tuple[int, int], list[Found]] = {}
    place_of = {(a, b): place for a, b, place in pairs}
    number = {id(cell.scenario): index for index, cell in enumerate(cells)}
    with progress_bar(console) as progress:
        bar = progress.add_task("searches", total=len(duels))
        workers = settings.workers or os.cpu_count() or 1
        for duel, found in work_through(duels, search, workers):
            if isinstance(found, WorkerDiedError):
                raise InvalidInput(f"A search ended without an answer: {found}")
            key = (number[id(duel.loser)], number[id(duel.winner)])
            answers.setdefault(key, []).append(found)
            progress.advance(bar)
            if len(answers[key]) == settings.restarts:
                a, b = key
                best = max(answers[key], key=lambda entry: entry.ratio)
                _write(place_of[key], (labels[a], labels[b]), duel, best, answers[key], invocation)
    results = [
        json.loads((place / "result.json").read_text(encoding="utf-8")) for _, _, place in pairs
    ]
    _summarise(folder, results, labels, invocation, console.print)
    return 0


def _name(loser: str, winner: str) -> str:
    return f"{file_name(loser)}-loses-to-{file_name(winner)}"


def _write(
    folder: Path,
    names: tuple[str, str],
    duel: Duel,
    best: Found,
    found: Sequence[Found],
    invocation: Invocation,
) -> None:
    """What a pair leaves: the instance, both Gantt charts, ``result.json`` last."""
    from experiments.plots.gantt import draw_gantt

    instance = {**best.instance, "name": folder.name}
    graph, cluster, costs = instance_from_json(instance)
    save_instance(folder / "instance.json", graph, cluster, costs)
    makespans = {}
    for label, scenario in zip(names, (duel.loser, duel.winner), strict=True):
        trace = run_on(scenario, instance, duel.config_dirs)
        makespans[label] = trace.makespan
        draw_gantt(trace, folder / f"gantt-{file_name(label)}")
    atomic.write_json(
        folder / "result.json",
        {
            "format": FORMAT,
            "loser": names[0],
            "winner": names[1],
            "ratio": best.ratio,
            "start_ratios": [entry.start_ratio for entry in found],
            "ratios": [entry.ratio for entry in found],
            "makespans_s": makespans,
            "bound_s": lower_bound(graph, costs[graph].seconds, cluster).bound_s,
            "tasks": len(graph),
            "devices": len(cluster.devices),
            "simulation": dataclasses.asdict(duel.loser.simulation),
            "settings": dataclasses.asdict(duel.settings),
            "command": invocation.command,
            "versions": versions(),
            "revision": revision(),
        },
    )


def _summarise(
    folder: Path,
    results: Sequence[dict[str, Any]],
    labels: Sequence[str],
    invocation: Invocation,
    say: Callable[..., None],
) -> None:
    from experiments.studies.adversary.plot import draw_adversary

    draw_adversary(results, labels, folder / "ratios")
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    worst = max(results, key=lambda result: result["ratio"])
    first = results[0]
    say(
        f"[bold]{worst['loser']} takes {worst['ratio']:.2f}x the time of {worst['winner']} on the worst "
        "instance found[/bold]"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("loses", "to", "by", "at the start", "makespans", "gap to bound"):
        table.add_column(heading, justify="left" if heading in ("loses", "to") else "right")
    for result in sorted(results, key=lambda entry: -entry["ratio"]):
        lost, won = (result["makespans_s"][result[who]] for who in ("loser", "winner"))
        table.add_row(
            result["loser"],
            result["winner"],
            f"{result['ratio']:.3f}x",
            f"{max(result['start_ratios']):.3f}x",
            f"{lost:.4g} / {won:.4g}",
            f"<= {lost / result['bound_s'] - 1:.0%} / {won / result['bound_s'] - 1:.0%}",
        )
    say(table)
    settings = first["settings"]
    say(
        f"{first['tasks']} tasks on {first['devices']} devices; {settings['restarts']} searches a pair of "
        f"{settings['iterations']} instances; {first['simulation']['movement']}, contention "
        f"{first['simulation']['contention']}; a ratio is a lower bound on the worst case",
        style="dim",
    )
    say(
        f"wrote {folder}/; to look at one: python -m experiments.simulate "
        f"instance={folder}/{_name(worst['loser'], worst['winner'])}/instance.json "
        f"scheduler={worst['loser']} explain=true",
        style="dim",
        soft_wrap=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.adversary",
        adversary,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
