"""Where to split a multi-exit network and let samples leave, against the bandwidth of the first link.

    python -m experiments.early_exit experiment=serving/early_exit
    python -m experiments.early_exit model=multi_exit cluster=tiers workload=poisson workload.rate=5/s

For every bandwidth: the positions and the threshold that a greedy search finds, by how much the best of all
costs less, cuts and exits searched apart, and everything on one tier; latencies in closed form, and simulated
request by request, alone and at the workload's load. Leaves ``result.json``, ``table.md`` and
``fig_early_exit`` in ``outputs/early_exit/...``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from experiments.comparison.statistics import FEWEST_DRAWS, Interval, interval
from experiments.runs import atomic
from experiments.runs.command import Invocation, hydra_command
from experiments.runs.configs import Preset
from experiments.runs.file_name import file_name
from experiments.runs.prepare import prepare
from experiments.runs.world import World
from scenarios.arrivals import arrival_times
from scenarios.networks import link_bandwidth
from scenarios.serving.exit_graphs import ExitGraph
from scenarios.serving.exit_positions import Found, Placement, PositionSearch, Weights, gap
from scenarios.serving.exit_requests import exit_requests
from scenarios.serving.exit_table import DIGITS, ExitTable
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.units import format_seconds, parse_bytes
from simulator.schedulers import create

SINGLE = ("terminal", "edge", "cloud")
SEARCHES = (
    "greedy",
    "one_start",
    "every_threshold",
    "exhaustive",
    "greedy_joint",
    "every_threshold_joint",
    "joint",
)


@dataclass
class EarlyExitConfig(Preset):
    """``python -m experiments.early_exit``.

    Attributes:
        tiers: memory spaces of terminal, edge and cloud.
        link: the entry of the cluster's links whose bandwidth varies.
        bandwidths: of it, like ``100 Mbit/s`` or ``4g``.
        table: a table of exits, see :mod:`scenarios.serving.exit_table`; None: the shipped one.
        way: of training: ``separate``, ``joint`` or ``joint_depth``.
        threshold: of confidence; None: it is searched, too.
        weights: of the cost, see :class:`scenarios.serving.exit_positions.Weights`.
        search: whose find is simulated: ``greedy`` (from four starts), ``one_start``, ``every_threshold``
            (from four starts at each), ``exhaustive``, and with cuts and exits apart ``greedy_joint``,
            ``every_threshold_joint`` and ``joint`` (the best of all).
        report: bytes that the terminal sends for every sample, whatever exit it takes.
        requests: simulated alone, for each bandwidth and placement.
    """

    tiers: list[str] = field(default_factory=lambda: ["terminal", "edge", "cloud"])
    link: str = "wifi"
    bandwidths: list[str] = field(
        default_factory=lambda: [
            *("1.1 Mbit/s", "5.85 Mbit/s", "18.88 Mbit/s", "100 Mbit/s", "1000 Mbit/s")
        ]
    )
    table: str | None = None
    way: str = "separate"
    threshold: float | None = None
    weights: Weights = field(default_factory=Weights)
    search: str = "greedy"
    report: str = "0 B"
    requests: int = 400


@dataclass(frozen=True)
class Simulated:
    """Delays of the requests of one run, seconds.

    Attributes:
        expected: what the closed form says of the exits that were drawn; of an idle system.
    """

    mean: float
    p50: float
    p99: float
    expected: float


@dataclass(frozen=True)
class AtBandwidth:
    """What was found at one bandwidth.

    Attributes:
        bytes_per_s: the bandwidth.
        found: by name: those of :data:`SEARCHES`, ``chosen`` (one of them), ``terminal``, ``edge`` and
            ``cloud``.
        latency: by name, 95% of the draws of the predictors' errors; empty without draws.
        faster: share of the draws in which ``chosen`` is faster than every single tier; None without.
        accuracy: of ``chosen``, least and most of the seeds that the network was trained with.
        alone: by name, simulated on an idle system.
        loaded: by name, simulated at the workload's load; empty where the workload is a single job.
    """

    text: str
    bytes_per_s: float
    found: dict[str, Found]
    latency: dict[str, Interval]
    faster: float | None
    accuracy: tuple[float, float]
    alone: dict[str, Simulated]
    loaded: dict[str, Simulated]


class EarlyExit:
    """The experiment.

    Args:
        config: settled.
        config_dirs: the user's folders of configs.

    Raises:
        InvalidInput: a bandwidth, a threshold, a weight, a tier, a link or a table that cannot be.
    """

    def __init__(self, config: EarlyExitConfig, config_dirs: Sequence[Path] = ()) -> None:
        self.config, self._config_dirs = config, tuple(config_dirs)
        if config.bare:
            raise InvalidInput("Early exit is of models; leave out instance and family")
        if config.link not in config.cluster.links:
            raise InvalidInput(
                f"Cluster '{config.cluster.name}' has no link '{config.link}'; it has "
                f"{', '.join(config.cluster.links) or 'none'}; take cluster=tiers"
            )
        if config.search not in SEARCHES:
            raise InvalidInput(f"There is no search={config.search}; known: {', '.join(SEARCHES)}")
        if not config.bandwidths or not 1 <= config.requests <= 100_000:
            raise InvalidInput("Give one bandwidth at least, and requests from 1 to 100000")
        if config.workload.serves:
            raise InvalidInput(
                f"Workload '{config.workload.name}' asks for models of its own; take workload=poisson, "
                "whose arrivals are used here"
            )
        self.bandwidths = [
            (text, link_bandwidth(text, f"bandwidths of link '{config.link}'"))
            for text in config.bandwidths
        ]
        self.report_bytes = parse_bytes(config.report, "report")
        self.table = ExitTable.load(DIGITS if config.table is None else Path(config.table))
        self.arrivals: list[float] = []
        if config.workload.arrivals != "single":
            self.arrivals = arrival_times(config.workload, config.seed.workload)
        self.world: World | None = None

    def run(self) -> list[AtBandwidth]:
        """Every bandwidth, ascending as given."""
        return [self._at(text, value) for text, value in self.bandwidths]

    def _at(self, text: str, value: float) -> AtBandwidth:
        config = self.config
        links = dict(config.cluster.links)
        links[config.link] = replace(links[config.link], bandwidth=text)
        scenario = replace(config, cluster=replace(config.cluster, links=links))
        self.world = world = prepare(scenario, self._config_dirs)
        graph = ExitGraph(world.graph)
        search = self._search(graph, world)
        found = {
            "greedy": search.greedy(),
            "one_start": search.greedy(restarts=False),
            "every_threshold": search.every_threshold(),
            "exhaustive": search.exhaustive(),
            "greedy_joint": search.greedy_joint(),
            "every_threshold_joint": search.every_threshold_joint(),
            "joint": search.exhaustive_joint(),
            **dict(zip(SINGLE, search.single_tier(), strict=True)),
        }
        chosen = found["chosen"] = found[config.search]
        latency, faster = self._draws(graph, world, search, found)
        accuracies = [
            search.network.evaluate(
                chosen.placement,
                self.table.shares(config.way, chosen.threshold, chosen.placement.exits, seed),
            ).accuracy
            for seed in self.table.seeds
        ]
        alone, loaded = {}, {}
        for name in ("chosen", *SINGLE):
            one = found[name]
            longest = self._longest(search, one)
            spaced = [number * 2 * longest for number in range(config.requests)]
            alone[name] = self._simulate(graph, world, search, one, spaced)
            if self.arrivals:
                loaded[name] = self._simulate(graph, world, search, one, self.arrivals)
        bounds = (min(accuracies), max(accuracies))
        return AtBandwidth(text, value, found, latency, faster, bounds, alone, loaded)

    def _search(self, graph: ExitGraph, world: World) -> PositionSearch:
        config = self.config
        thresholds = () if config.threshold is None else (config.threshold,)
        costs = world.costs[world.graph]
        network = graph.network(costs, world.cluster, config.tiers, self.report_bytes)
        return PositionSearch(network, self.table, config.way, config.weights, thresholds)

    def _draws(
        self, graph: ExitGraph, world: World, search: PositionSearch, found: dict[str, Found]
    ) -> tuple[dict[str, Interval], float | None]:
        """Latencies under the predictors' errors, which all placements of a draw share."""
        count = self.config.simulation.draws
        if world.pricer is None or count < FEWEST_DRAWS:
            return {}, None
        rows: dict[str, list[float]] = {name: [] for name in ("chosen", *SINGLE)}
        for table in world.pricer.draws(world.costs, count, self.config.seed.noise):
            network = graph.network(table[world.graph], world.cluster, self.config.tiers)
            for name, values in rows.items():
                one = found[name]
                shares = search.shares(one.placement.exits, one.threshold)
                values.append(network.evaluate(one.placement, shares).latency_s)
        columns = {name: np.array(values) for name, values in rows.items()}
        single = np.min([columns[name] for name in SINGLE], axis=0)
        faster = float(np.mean(columns["chosen"] < single * (1 - 1e-9)))
        return {name: interval(values) for name, values in columns.items()}, faster

    def _expected(self, search: PositionSearch, one: Found, leaves: Sequence[int]) -> float:
        """The closed form's mean for samples that leave there."""
        return float(np.mean([self._latency_of(search, one, end) for end in leaves]))

    def _latency_of(self, search: PositionSearch, one: Found, end: int) -> float:
        exits = one.placement.exits
        shares = search.shares(exits, one.threshold)
        certain = replace(shares, leave=tuple(float(e == end) for e in exits))
        return search.network.evaluate(one.placement, certain).latency_s

    def _longest(self, search: PositionSearch, one: Found) -> float:
        ends = (*one.placement.exits, search.network.layers)
        return max(self._latency_of(search, one, end) for end in ends)

    def _simulate(
        self,
        graph: ExitGraph,
        world: World,
        search: PositionSearch,
        one: Found,
        arrivals: Sequence[float],
    ) -> Simulated:
        config = self.config
        requests = exit_requests(
            graph,
            world.costs[world.graph],
            world.cluster,
            config.tiers,
            one.placement,
            one.evaluation.leaving,
            arrivals,
            config.seed.workload,
        )
        trace = simulate(
            requests.workload,
            world.cluster,
            requests.costs,
            create("tier_placement", spaces=requests.spaces),
            movement=config.simulation.movement,
            contention=config.simulation.contention,
        )
        delays = trace.jobs["finish"] - trace.jobs["arrival"]
        p50, p99 = np.percentile(delays, [50, 99]).tolist()
        expected = self._expected(search, one, requests.leaves)
        return Simulated(float(delays.mean()), p50, p99, expected)


def tables(rows: Sequence[AtBandwidth], layers: int) -> list[str]:
    """Markdown: what was found, and what was simulated."""
    lines = [
        "| bandwidth | i, j, threshold | latency | accuracy | gap (one start; every threshold) | "
        "all on terminal | edge | cloud | cuts and exits apart: the best (gap of greedy; every threshold) |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        chosen, joint, best = (row.found[name] for name in ("chosen", "joint", "exhaustive"))
        singles = [f"{format_seconds(row.found[name].evaluation.latency_s)}" for name in SINGLE]
        spread = row.latency.get("chosen")
        latency = format_seconds(chosen.evaluation.latency_s)
        if spread is not None:
            latency += f" [{format_seconds(spread.low)}, {format_seconds(spread.high)}]"
        every = gap(row.found["every_threshold_joint"], joint)
        apart = (
            f"{_joint_text(joint)}: {format_seconds(joint.evaluation.latency_s)}, "
            f"{joint.evaluation.accuracy:.2%}, cost {gap(joint, best):+.1%} "
            f"({gap(row.found['greedy_joint'], joint):.1%}; {every:.1%})"
        )
        low, high = row.accuracy
        lines.append(
            f"| {row.text} | {_text(chosen, layers)} | {latency} | "
            f"{chosen.evaluation.accuracy:.2%} [{low:.1%}, {high:.1%}] | "
            f"{gap(chosen, best):.1%} ({gap(row.found['one_start'], best):.1%}; "
            f"{gap(row.found['every_threshold'], best):.1%}) | "
            f"{' | '.join(singles)} | {apart} |"
        )
    lines += [
        "",
        "| bandwidth | simulated alone (closed form) | "
        + " | ".join(f"at load: {name}, mean; p99" for name in ("found", *SINGLE))
        + " |",
        "|" + "---|" * 6,
    ]
    for row in rows:
        alone = row.alone["chosen"]
        loaded = [
            f"{format_seconds(row.loaded[name].mean)}; {format_seconds(row.loaded[name].p99)}"
            if name in row.loaded
            else "-"
            for name in ("chosen", *SINGLE)
        ]
        lines.append(
            f"| {row.text} | {format_seconds(alone.mean)} ({format_seconds(alone.expected)}) | "
            f"{' | '.join(loaded)} |"
        )
    return lines


def _text(found: Found, layers: int) -> str:
    i, j = found.placement.cuts
    if found.placement not in (Placement((i, j)), Placement.at(i, j, layers)):
        return _joint_text(found)
    if not found.placement.exits:
        return f"{i}, {j}, no exit"
    return f"{i}, {j}, {found.threshold:g}"


def _joint_text(found: Found) -> str:
    i, j = found.placement.cuts
    exits = found.placement.exits
    if not exits:
        return f"cuts {i}, {j}, no exit"
    return f"cuts {i}, {j}, exits {', '.join(map(str, exits))} at {found.threshold:g}"


def early_exit_command(config: EarlyExitConfig, invocation: Invocation) -> None:
    """See the module docstring."""
    from experiments.studies.early_exit.plot import draw_early_exit

    console = Console(highlight=False)
    settled = config.settled()
    experiment = EarlyExit(settled, invocation.config_dirs)
    rows = experiment.run()
    world = experiment.world
    assert world is not None
    layers = experiment.table.layers
    share = max(row.found["chosen"].evaluation.extrapolated_share for row in rows)
    labels = (
        f"{settled.model.name} of {layers} layers, exits trained on digits ({settled.way}); "
        f"{world.profile_text}; up to {share:.0%} of the computing time is extrapolated; validity: "
        f"{world.validity().line}"
    )
    unknown = () if world.pricer is None else world.pricer.without_error
    if unknown and settled.simulation.draws:
        labels += f"; intervals leave out errors of {', '.join(unknown)}: nobody has measured them"
    wins = [
        row
        for row in rows
        if row.found["chosen"].evaluation.latency_s
        < min(row.found[name].evaluation.latency_s for name in SINGLE) * (1 - 1e-9)
    ]
    worst = max(gap(row.found["chosen"], row.found["exhaustive"]) for row in rows)
    lines = [
        f"{settled.model.name} on {settled.cluster.name}: faster than every single tier at {len(wins)} of "
        f"{len(rows)} bandwidths; search {settled.search} costs at most {worst:+.1%} against the best of all "
        "positions",
        "",
        *tables(rows, layers),
        "",
        labels,
    ]
    if rows[0].faster is not None:
        text = ", ".join(f"{row.text} {row.faster:.2f}" for row in rows)
        lines.append(f"P(faster than every single tier): {text}")
    names = [file_name(name) for name in (settled.model.name, settled.cluster.name)]
    stem = "-".join([time.strftime("%Y%m%d_%H%M%S"), *names])
    folder = Path(settled.output_dir) / "early_exit" / stem
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_json(folder / "result.json", _document(rows, settled))
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    atomic.write_text(folder / "table.md", "\n".join(lines) + "\n")
    draw_early_exit(rows, settled.search, labels, folder / "fig_early_exit")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"wrote {folder}/", style="dim", soft_wrap=True, markup=False)


def _document(rows: Sequence[AtBandwidth], config: EarlyExitConfig) -> dict[str, Any]:
    def found(one: Found) -> dict[str, Any]:
        return {
            "cuts": list(one.placement.cuts),
            "exits": list(one.placement.exits),
            "threshold": one.threshold if one.placement.exits else None,
            "cost": one.cost,
            "evaluated": one.evaluated,
            **vars(one.evaluation),
        }

    return {
        "format": "hetsim.early_exit/1",
        "bandwidths": [
            {
                "bandwidth": row.text,
                "bytes_per_s": row.bytes_per_s,
                "found": {name: found(one) for name, one in row.found.items()},
                "latency_95": {name: [i.low, i.high] for name, i in row.latency.items()},
                "p_faster_than_single_tiers": row.faster,
                "accuracy_of_seeds": list(row.accuracy),
                "simulated_alone": {name: vars(one) for name, one in row.alone.items()},
                "simulated_at_load": {name: vars(one) for name, one in row.loaded.items()},
            }
            for row in rows
        ],
        "config": json.loads(json.dumps(config.document(), default=str)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return hydra_command(
        early_exit_command,
        EarlyExitConfig,
        "experiments.early_exit",
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
