"""How far a verdict is from its opposite: ``python -m experiments.flip model=inception_v3
cluster=cpu2_gpu1 scheduler=heft,donf,fcfs``.

For every link, every device and every kind of operator: by how much its bandwidth, its speed or its
predicted time must change, alone, before another scheduler wins. Leaves ``outputs/flips/<hash>/`` with a
table and a figure, and prints the nearest.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from experiments.comparison.answers import verdict_text
from experiments.comparison.statistics import Comparison, compare
from experiments.runs import atomic
from experiments.runs.cell import Runs, label_of, make_scheduler
from experiments.runs.command import Invocation, sweeping_main
from experiments.runs.configs import PartitionConfig, Scenario
from experiments.runs.console import make_console, print_validity
from experiments.runs.grid import compose_grid
from experiments.runs.ignored import refuse_idle_seeds
from experiments.runs.own_settings import read_own
from experiments.runs.prepare import partitioned, partitioner_of, prepare
from experiments.runs.progress import progress_bar
from experiments.runs.provenance import digest, revision, versions
from experiments.runs.world import World
from scenarios.partition.partitioner import jobs_of
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.units import format_seconds

FORMAT = "hetsim.flip/1"
MOST_LINKS = 16
"""More of them change together."""
LEVEL = 1e-9
"""Makespans no further apart, relative, are the same."""


@dataclass
class FlipSettings:
    """What the command takes beside a sweep's overrides.

    Attributes:
        limit: the largest factor that is tried, up and down.
        step: the factor between two that are tried; a change of winner narrower than it may be missed.
        precision: relative, of the factor at which the winner changes.
        least_share: kinds of operators that take less of the winner's time are left out.
    """

    limit: float = 8.0
    step: float = 1.189207115002721  # four to the double
    precision: float = 0.005
    least_share: float = 0.01

    def check(self) -> None:
        """Refuse numbers that make no search.

        Raises:
            InvalidInput: names the key.
        """
        if not 1 < self.step <= self.limit < math.inf:
            raise InvalidInput(
                f"step={self.step}, limit={self.limit}: factors above 1, the step no larger than the "
                "limit"
            )
        if not 0 < self.precision < 1 or not 0 <= self.least_share < 1:
            raise InvalidInput(
                f"precision={self.precision}, least_share={self.least_share}: give shares below 1, the "
                "first above 0"
            )


Change = Callable[[CostTable], CostTable]
Changed = tuple[Cluster, Change]
"""A cluster, and what is believed instead of given times, of whichever graphs."""


@dataclass(frozen=True)
class Factor:
    """One thing that may be other than believed.

    Attributes:
        what: ``bandwidth``, ``speed`` or ``time``.
        of: the link, device or kind.
        change: cluster, and what becomes of times, with it multiplied by a number.
    """

    what: str
    of: str
    change: Callable[[float], Changed]


@dataclass(frozen=True)
class Flip:
    """Where the winner changes first.

    Attributes:
        down, up: the factors nearest to 1 below and above it at which another wins; None where none
            does within the limit.
        winner_down, winner_up: who wins there.
    """

    factor: Factor
    down: float | None
    winner_down: str | None
    up: float | None
    winner_up: str | None

    @property
    def distance(self) -> float:
        """The smaller change of the two as a factor above 1; ``inf`` if there is none."""
        return min((max(x, 1 / x) for x in (self.down, self.up) if x is not None), default=math.inf)

    @property
    def nearest(self) -> tuple[float, str] | None:
        """The factor of the smaller change, and who wins there."""
        options = [(self.down, self.winner_down), (self.up, self.winner_up)]
        found = [(x, winner) for x, winner in options if x is not None and winner is not None]
        return min(found, key=lambda entry: abs(math.log(entry[0])), default=None)


class Contest:
    """Schedulers on one world, whatever is changed in it."""

    def __init__(
        self, scenarios: Sequence[Scenario], labels: Sequence[str], config_dirs: Sequence[Path]
    ) -> None:
        self.scenarios = tuple(scenarios)
        self.labels = tuple(labels)
        self._config_dirs = tuple(config_dirs)
        plain = dataclasses.replace(scenarios[0], partition=PartitionConfig())
        self.world: World = prepare(plain, config_dirs)
        self.workload = self.world.workload(scenarios[0])
        self._faults = self.world.faults(scenarios[0])
        self._faults.check(self.world.cluster)
        self.runs = 0

    def makespans(self, changed: Changed) -> list[float]:
        """Of every scheduler, each believing what is changed."""
        cluster, change = changed
        found = []
        for scenario in self.scenarios:
            simulation = scenario.simulation
            self.runs += 1
            workload, costs, plan = self.workload, change(self.world.costs), None
            if scenario.partition.partitions:
                # It plans anew, too.
                made = partitioner_of(scenario, self._config_dirs)
                found_plan = partitioned(made, self.world, scenario, cluster, change)
                plan, costs = found_plan.plan, found_plan.costs
                workload = jobs_of(plan, workload)
            trace = simulate(
                workload,
                cluster,
                costs,
                make_scheduler(scenario.scheduler, scenario.seed.search, self._config_dirs, plan),
                movement=simulation.movement,
                contention=simulation.contention,
                memory=simulation.memory,
                weights=simulation.weights,
                seed=scenario.seed.noise,
                faults=self._faults,
                decision_cost=simulation.decision_cost.build(),
                engine=simulation.engine,
            )
            if not np.all(trace.jobs["status"] == "finished"):
                found.append(math.inf)
            else:
                found.append(trace.makespan)
        return found

    def compare(self, first: int, second: int, makespans: Sequence[float]) -> Comparison:
        """Two of the schedulers, as believed and over the draws of what may happen instead."""
        draws = []
        for number in (first, second):
            scenario = self.scenarios[number]
            runs = Runs(scenario, prepare(scenario, self._config_dirs), self._config_dirs)
            draws.append(np.array(list(runs.draws())))
        a, b = draws
        exact = self.world.pricer is None
        return compare([makespans[first]], [makespans[second]], a, b, exact)

    def factors(self, least_share: float) -> list[Factor]:
        """All that may change: links, devices, and the kinds of operators that take time."""
        cluster = self.world.cluster

        def links(numbers: Sequence[int]) -> Callable[[float], Changed]:
            def change(x: float) -> Changed:
                changed = [
                    dataclasses.replace(link, bandwidth=link.bandwidth * x)
                    if number in numbers
                    else link
                    for number, link in enumerate(cluster.links)
                ]
                return dataclasses.replace(cluster, links=changed), unchanged

            return change

        def scaled(rows: Callable[[Any], np.ndarray], columns: Sequence[int], power: float) -> Any:
            def change(x: float) -> Changed:
                def changed(costs: CostTable) -> CostTable:
                    entries = {}
                    for graph, entry in costs.items():
                        seconds = entry.seconds.copy()
                        part = np.ix_(np.flatnonzero(rows(graph)), np.array(columns))
                        seconds[part] *= x**power
                        entries[graph] = dataclasses.replace(entry, seconds=seconds)
                    return CostTable(entries)

                return cluster, changed

            return change

        found = []
        if len(cluster.links) <= MOST_LINKS:
            found += [
                Factor("bandwidth", link.name, links([number]))
                for number, link in enumerate(cluster.links)
            ]
        if len(cluster.links) > 1:
            every = range(len(cluster.links))
            found.append(Factor("bandwidth", "all links", links(every)))
        for number, device in enumerate(cluster.devices):
            everything = scaled(lambda graph: np.ones(len(graph), bool), [number], -1.0)
            found.append(Factor("speed", device.name, everything))
        profiles: dict[str, list[int]] = {}
        for number, device in enumerate(cluster.devices):
            profiles.setdefault(device.profile or "all devices", []).append(number)
        for kind in self._kinds(least_share):
            for profile, columns in profiles.items():

                def of_kind(graph: Any, kind: str = kind) -> np.ndarray:
                    return np.array([operator.kind == kind for operator in graph.operators])

                name = f"{kind} on {profile}" if len(profiles) > 1 else kind
                found.append(Factor("time", name, scaled(of_kind, columns, 1.0)))
        return found

    def _kinds(self, least_share: float) -> list[str]:
        """Kinds by their share of the time, each operator on its fastest device."""
        seconds: Counter[str] = Counter()
        for job in self.workload:
            fastest = self.world.costs[job.graph].seconds.min(axis=1).tolist()
            for operator, time in zip(job.graph.operators, fastest, strict=True):
                seconds[operator.kind] += time
        total = sum(seconds.values())
        return [kind for kind, time in seconds.most_common() if time >= least_share * total > 0]


def unchanged(costs: CostTable) -> CostTable:
    """Times as they are."""
    return costs


def winner_of(makespans: Sequence[float], reigning: int | None = None) -> int:
    """The number of the smallest; ties go to the reigning winner, else to the first named."""
    best = min(makespans)
    level = [n for n, makespan in enumerate(makespans) if makespan <= best * (1 + LEVEL)]
    return reigning if reigning in level else level[0]


def flip_of(
    factor: Factor,
    makespans: Callable[[Changed], Sequence[float]],
    winner: int,
    labels: Sequence[str],
    settings: FlipSettings,
) -> Flip:
    """Step outwards from 1 until another wins, then halve the last step."""

    def wins(x: float) -> int:
        return winner_of(makespans(factor.change(x)), winner)

    ends: list[tuple[float | None, str | None]] = []
    for sign in (-1, 1):
        inside, outside, other = 0.0, None, winner
        steps = math.ceil(math.log(settings.limit) / math.log(settings.step) - 1e-9)
        for number in range(1, steps + 1):
            exponent = min(number * math.log(settings.step), math.log(settings.limit))
            found = wins(math.exp(sign * exponent))
            if found != winner:
                outside, other = exponent, found
                break
            inside = exponent
        if outside is None:
            ends.append((None, None))
            continue
        while outside - inside > settings.precision:
            middle = (inside + outside) / 2
            found = wins(math.exp(sign * middle))
            if found != winner:
                outside, other = middle, found
            else:
                inside = middle
        ends.append((math.exp(sign * outside), labels[other]))
    (down, winner_down), (up, winner_up) = ends
    return Flip(factor, down, winner_down, up, winner_up)


def flip(invocation: Invocation) -> int:
    """The command: every factor of every world, nearest first."""
    console = make_console()
    settings, overrides = read_own(FlipSettings, invocation.overrides)
    settings.check()
    groups: dict[str, list[Scenario]] = {}
    cells = compose_grid(overrides, invocation.config_dirs, takes=("output_dir",)).cells
    refuse_idle_seeds([(cell.choices, cell.scenario) for cell in cells], invocation.config_dirs)
    for cell in cells:
        scenario = cell.scenario
        if scenario.simulation.noise != "none":
            raise InvalidInput(
                f"All schedulers run as believed here: simulation.noise={scenario.simulation.noise} would be "
                "ignored; leave it at none"
            )
        if scenario.simulation.horizon is not None:
            raise InvalidInput(
                "A run that is ended has no makespan to compare; leave the horizon out"
            )
        document = {
            k: v for k, v in scenario.document().items() if k not in ("scheduler", "partition")
        }
        groups.setdefault(digest(document), []).append(scenario)
    if any(len(scenarios) < 2 for scenarios in groups.values()):
        raise InvalidInput(
            "A verdict is between schedulers; name two or more: scheduler=heft,donf,fcfs"
        )
    for scenarios in groups.values():
        labels = [label_of(s, invocation.config_dirs) for s in scenarios]
        contest = Contest(scenarios, labels, invocation.config_dirs)
        folder = (
            Path(scenarios[0].output_dir)
            / "flips"
            / digest([FORMAT, [s.document() for s in scenarios], dataclasses.asdict(settings)])[:12]
        )
        _flip_one(contest, settings, folder, invocation, console)
    return 0


def _flip_one(
    contest: Contest, settings: FlipSettings, folder: Path, invocation: Invocation, console: Any
) -> None:
    world, labels = contest.world, contest.labels
    makespans = contest.makespans((world.cluster, unchanged))
    winner = winner_of(makespans)
    factors = contest.factors(settings.least_share)
    with progress_bar(console) as progress:
        found = [
            flip_of(factor, contest.makespans, winner, labels, settings)
            for factor in progress.track(factors, description=world.graph.name)
        ]
    found.sort(key=lambda entry: entry.distance)
    scenario = contest.scenarios[0]

    def show(seconds: float) -> str:
        return f"{seconds:.6g}" if scenario.bare else format_seconds(seconds)

    order = sorted(range(len(labels)), key=lambda n: makespans[n])
    second = next((n for n in order if n != winner), winner)
    said = verdict_text(labels[winner], labels[second], contest.compare(winner, second, makespans))
    console.print(
        f"{world.graph.name} on {world.cluster.name}: as believed {labels[winner]} takes "
        f"{show(makespans[winner])}; {said}",
        style="bold", markup=False, soft_wrap=True,
    )  # fmt: skip
    planned = any(scenario.partition.partitions for scenario in contest.scenarios)
    print_validity(world.validity(planned).line, console)
    nearest = found[0].nearest if found else None
    if nearest is None:
        console.print(
            f"no single change by a factor of up to {settings.limit:g} changes the winner"
        )
    else:
        factor = found[0].factor
        console.print(
            f"the nearest change: {factor.what} of {factor.of} x{nearest[0]:.3g}, then {nearest[1]} wins"
        )
    table = Table(box=None, pad_edge=False)
    for heading in ("what", "of", "less", "then wins", "more", "then wins"):
        right = heading in ("less", "more")
        table.add_column(heading, justify="right" if right else "left")
    rows = [entry for entry in found if entry.distance < math.inf]
    for entry in rows:
        table.add_row(
            entry.factor.what,
            entry.factor.of,
            "-" if entry.down is None else f"x{entry.down:.3g}",
            entry.winner_down or "",
            "-" if entry.up is None else f"x{entry.up:.3g}",
            entry.winner_up or "",
        )
    if rows:
        console.print(table)
    untouched = len(found) - len(rows)
    console.print(
        f"{untouched} of {len(found)} factors change nothing within x{1 / settings.limit:.3g} to "
        f"x{settings.limit:g}, in steps of {settings.step:.3g}; one at a time, as believed by all; "
        f"{contest.runs} runs",
        style="dim",
    )
    _write(folder, contest, makespans, winner, said, found, settings, invocation)
    console.print(f"wrote {folder}/", style="dim", soft_wrap=True)


def _write(
    folder: Path,
    contest: Contest,
    makespans: Sequence[float],
    winner: int,
    said: str,
    found: Sequence[Flip],
    settings: FlipSettings,
    invocation: Invocation,
) -> None:
    from experiments.studies.flip.plot import draw_flips

    world, labels = contest.world, contest.labels
    rows = [
        {
            "what": entry.factor.what,
            "of": entry.factor.of,
            "down": entry.down,
            "winner_down": entry.winner_down,
            "up": entry.up,
            "winner_up": entry.winner_up,
        }
        for entry in found
    ]
    draw_flips(
        rows, labels, labels[winner], settings.limit, folder / "flips",
        f"{world.graph.name} on {world.cluster.name}",
    )  # fmt: skip
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    atomic.write_json(
        folder / "result.json",
        {
            "format": FORMAT,
            "winner": labels[winner],
            "verdict": said,
            "makespans_s": dict(zip(labels, makespans, strict=True)),
            "flips": rows,
            "settings": dataclasses.asdict(settings),
            "profiles": world.profile_text,
            "validity": world.validity().line,
            "config": [scenario.document() for scenario in contest.scenarios],
            "command": invocation.command,
            "versions": versions(),
            "revision": revision(),
        },
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.flip",
        flip,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
