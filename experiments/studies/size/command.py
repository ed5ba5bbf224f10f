r"""How many devices, and which: the cheapest fleet that meets an objective.

    python -m experiments.size experiment=serving/sizing
    python -m experiments.size workload=serving workload.rate=150/s scheduler=task_groups \
        cluster=edge_t4_cpu slo.p99=200ms 'vary={t4:0..4,cpu:0..8}' minimise=cost
    python -m experiments.size model=resnet50 workload=poisson workload.rate=20/s scheduler=fcfs_batching ...

Requests are for the models of ``workload.mix``, or for the model that the command line names.

Counts of entries of the cluster vary; every fleet is simulated with the same requests, several seeds of them.
A fleet meets the objective if the upper end of the 95% interval of the mean over the seeds does. Fleets are
tried from the cheapest on; one that has no more of any device than one that failed is left out, since it
has less of everything. Goes on until the cheapest fleet is certain, then tries dearer ones for the frontier.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from experiments.comparison.statistics import bootstrap_mean
from experiments.runs import atomic
from experiments.runs.cell import Runs, make_scheduler
from experiments.runs.command import Invocation, hydra_command
from experiments.runs.configs import Preset
from experiments.runs.console import print_validity
from experiments.runs.file_name import file_name
from experiments.runs.own_settings import key_of
from experiments.runs.prepare import prepare
from experiments.runs.progress import progress_bar
from experiments.runs.world import World
from simulator.analysis.metrics import metrics
from simulator.analysis.serving_metrics import serving_metrics
from simulator.errors import HetsimError, InvalidInput
from simulator.model.trace import Trace
from simulator.model.units import format_seconds, parse_seconds

DELAYS = ("mean", "p50", "p95", "p99")
MINIMISE = ("cost", "devices", "power")
MOST_FLEETS = 2000
UNSERVED = 0.01
"""Share of requests that may be unserved or refused when a run ends, for its delays to count."""


@dataclass
class Objective:
    """What must hold of the requests.

    Attributes:
        mean, p50, p95, p99: delay at most, like ``80ms``.
        success: the least share of requests that are answered within their deadline.
    """

    mean: str | None = None
    p50: str | None = None
    p95: str | None = None
    p99: str | None = None
    success: float | None = None


@dataclass
class SizeConfig(Preset):
    """``python -m experiments.size``.

    Attributes:
        slo: what must hold.
        vary: entries of the cluster's devices and how many of each: ``{l4: 2..12, cpu: 0..8}``.
        minimise: ``cost`` (the prices of the cluster, per hour), ``devices`` or ``power`` (busy).
        seeds: arrivals that every fleet is tried with.
        more: dearer fleets to try, for the frontier.
    """

    slo: Objective = field(default_factory=Objective)
    vary: Any = None
    minimise: str = "cost"
    seeds: int = 5
    more: int = 8


@dataclass(frozen=True)
class Fleet:
    """A fleet that was simulated.

    Attributes:
        counts: by entry of the cluster.
        price: what is minimised.
        figures: by objective the value of every seed.
        stops: what its run spent its time on, in words.
        validity: in which world its devices were validated, one line.
    """

    counts: Mapping[str, int]
    price: float
    figures: Mapping[str, tuple[float, ...]]
    stops: str
    validity: str = ""

    def upper(self, objective: str) -> float:
        """The end of the 95% interval of the mean that counts against it."""
        values = np.array(self.figures[objective])
        if len(values) == 1 or not np.isfinite(values).all():
            return float(values.max() if objective != "success" else values.min())
        spread = bootstrap_mean(values)
        return spread.low if objective == "success" else spread.high

    def meets(self, slo: Mapping[str, float]) -> bool:
        """Whether every objective holds."""
        return all(
            self.upper(name) >= limit if name == "success" else self.upper(name) <= limit
            for name, limit in slo.items()
        )


class Sizing:
    """The search for the cheapest fleet.

    Args:
        config: see :class:`SizeConfig`.
        config_dirs: the user's folders of configs.

    Raises:
        InvalidInput: an objective, a range or a price is missing or cannot be.
    """

    def __init__(self, config: SizeConfig, config_dirs: Sequence[Path] = ()) -> None:
        self.config, self._config_dirs = config, tuple(config_dirs)
        self.slo = _objectives(config.slo)
        given = config.vary or {}
        if not isinstance(given, Mapping):
            raise InvalidInput(f"vary={given} is no mapping; write it like 'vary={{gpu: 1..8}}'")
        self.ranges = {name: _range(name, text) for name, text in given.items()}
        self._check()
        combinations = list(itertools.product(*self.ranges.values()))
        fleets = [dict(zip(self.ranges, row, strict=True)) for row in combinations]
        self.candidates = sorted(
            (fleet for fleet in fleets if self._total(fleet)),
            key=lambda fleet: (self.price(fleet), sum(fleet.values()), tuple(fleet.values())),
        )
        self.tried: list[Fleet] = []

    def price(self, counts: Mapping[str, int]) -> float:
        """What is minimised, of a fleet."""
        total = 0.0
        for name, device in self.config.cluster.devices.items():
            count = counts.get(name, device.count)
            if self.config.minimise == "devices":
                total += count
            else:
                text = device.price if self.config.minimise == "cost" else device.power_busy
                total += count * _quantity(text)
        return total

    def run(self, console: Console) -> Fleet | None:
        """The cheapest fleet that meets the objective, None if none of the candidates does."""
        best: Fleet | None = None
        extra = 0
        with progress_bar(console) as progress:
            task = progress.add_task("fleets", total=len(self.candidates))
            for counts in self.candidates:
                if best is None:
                    if self._is_hopeless(counts):
                        progress.advance(task)
                        continue
                elif extra >= self.config.more:
                    break
                else:
                    extra += 1
                fleet = self._simulate(counts)
                self.tried.append(fleet)
                progress.update(
                    task, advance=1, description=f"{_text(counts)}: {self._verdict(fleet)}"
                )
                if best is None and fleet.meets(self.slo):
                    best = fleet
        return best

    @property
    def frontier(self) -> list[Fleet]:
        """Fleets of those tried that no cheaper one beats in the first objective."""
        name = next(iter(self.slo))
        sign = -1.0 if name == "success" else 1.0
        found: list[Fleet] = []
        for fleet in sorted(self.tried, key=lambda f: (f.price, sign * f.upper(name))):
            if not found or sign * fleet.upper(name) < sign * found[-1].upper(name):
                found.append(fleet)
        return found

    def _verdict(self, fleet: Fleet) -> str:
        name = next(iter(self.slo))
        return f"{name} {_shown(name, fleet.upper(name))}"

    def _is_hopeless(self, counts: Mapping[str, int]) -> bool:
        """Whether a fleet that has failed has no less of any device."""
        return any(
            all(counts[name] <= fleet.counts[name] for name in counts)
            for fleet in self.tried
            if not fleet.meets(self.slo)
        )

    def _total(self, counts: Mapping[str, int]) -> int:
        return sum(
            counts.get(name, device.count) for name, device in self.config.cluster.devices.items()
        )

    def _simulate(self, counts: Mapping[str, int]) -> Fleet:
        devices = {
            name: replace(device, count=counts.get(name, device.count))
            for name, device in self.config.cluster.devices.items()
        }
        cluster = replace(self.config.cluster, devices=devices)
        scenario = replace(self.config, cluster=cluster)
        rows: dict[str, list[float]] = {name: [] for name in self.slo}
        stops = validity = ""
        for number in range(self.config.seeds):
            seed = replace(scenario.seed, workload=scenario.seed.workload + number)
            one = replace(scenario, seed=seed)
            try:
                world = prepare(one, self._config_dirs)
                trace = Runs(one, world, self._config_dirs).nominal()
            except HetsimError as error:
                # A fleet without the device that a model needs, say: it serves nobody.
                for name, values in rows.items():
                    values.append(0.0 if name == "success" else float("inf"))
                stops = str(error)
                continue
            figures: dict[str, Any] = {**serving_metrics(trace, one.workload.warm_up_s)}
            unserved = figures["waiting"] + figures["rejected"]
            for name, values in rows.items():
                if name == "success":
                    values.append(float(figures["success_rate"]))
                elif unserved > UNSERVED * figures["requests"]:
                    values.append(float("inf"))
                else:
                    values.append(float(figures[f"{name}_delay_s"] or 0.0))
            if not number:
                stops, validity = what_stops(trace, world), world.validity().line
        return Fleet(
            dict(counts),
            self.price(counts),
            {name: tuple(values) for name, values in rows.items()},
            stops,
            validity,
        )

    def _check(self) -> None:
        config = self.config
        if config.bare or not config.workload.serves:
            raise InvalidInput(
                "Sizing is for requests: give a workload with a mix, batches or deadlines, such as "
                "workload=serving workload.rate=20/s; with model=... they are for that model"
            )
        if not self.slo:
            raise InvalidInput("There is no objective; give one such as slo.p99=80ms")
        if not self.ranges:
            raise InvalidInput("Nothing varies; say what may: 'vary={gpu:1..8}'")
        for name in self.ranges:
            if name not in config.cluster.devices:
                raise InvalidInput(
                    f"vary names '{name}', which is no entry of cluster '{config.cluster.name}'; it has "
                    f"{', '.join(config.cluster.devices)}"
                )
        if config.minimise not in MINIMISE:
            raise InvalidInput(
                f"There is no minimise={config.minimise}; known: {', '.join(MINIMISE)}"
            )
        key = {"cost": "price", "power": "power_busy"}.get(config.minimise)
        for name, device in config.cluster.devices.items():
            if key is not None and getattr(device, key) is None:
                raise InvalidInput(
                    f"minimise={config.minimise} needs the {key} of every device; give "
                    f"cluster.devices.{name}.{key}"
                )
        count = int(np.prod([len(values) for values in self.ranges.values()]))
        if count > MOST_FLEETS:
            raise InvalidInput(
                f"{count} fleets are more than {MOST_FLEETS}; narrow the ranges of vary"
            )
        if config.seeds < 1 or config.more < 0:
            raise InvalidInput("seeds is at least 1, and more at least 0")


def what_stops(trace: Trace, world: World) -> str:
    """What a run spends its time on: the busiest device and link, the model and its operators."""
    figures = metrics(trace)
    device, used = max(figures["devices"].items(), key=lambda item: item[1]["utilisation"])
    parts = [f"device {device} busy {used['utilisation']:.0%}"]
    if figures["channels"]:
        link, carried = max(figures["channels"].items(), key=lambda item: item[1]["utilisation"])
        parts.append(f"link {link} {carried['utilisation']:.0%}")
    runs = trace.executions
    seconds = runs["finish"] - runs["start"]
    graph = trace.jobs["graph"][runs["job"]]
    spent: dict[str, float] = {}
    for number, record in enumerate(trace.meta["graphs"]):
        name = record["name"]
        spent[name] = spent.get(name, 0.0) + float(seconds[graph == number].sum())
    model, most = max(spent.items(), key=lambda item: item[1])
    parts.append(f"{most / max(sum(spent.values()), 1e-30):.0%} of the work is {model}")
    kinds = world.kinds_of(model)
    if kinds:
        kind, share = max(kinds.items(), key=lambda item: item[1])
        parts.append(f"{share / sum(kinds.values()):.0%} of that {kind}")
    return ", ".join(parts)


def _objectives(given: Objective) -> dict[str, float]:
    found = {
        name: parse_seconds(value, f"slo.{name}")
        for name in DELAYS
        if (value := getattr(given, name)) is not None
    }
    if given.success is not None:
        if not 0 <= given.success <= 1:
            raise InvalidInput(f"slo.success={given.success} is a share, 0 to 1")
        found["success"] = given.success
    return found


def _range(name: str, given: Any) -> range:
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", str(given).strip())
    if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
        raise InvalidInput(f"vary.{name}={given} is no range; write it like 2..12")
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def _quantity(text: str | None) -> float:
    from simulator.model.units import parse_power, parse_price

    if text is None:
        return 0.0
    return parse_price(text) if "/" in text else parse_power(text)


def _text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _shown(objective: str, value: float) -> str:
    if objective == "success":
        return f"{value:.1%}"
    return "not served" if value == float("inf") else format_seconds(value)


def asking_for_own_model(config: SizeConfig, overrides: Sequence[str]) -> SizeConfig:
    """The config whose stream of requests is for the model that a command line names, unless it gives a mix."""
    named = {key_of(word).partition(".")[0] for word in overrides}
    mixed = any(key_of(word).startswith("workload.mix") for word in overrides)
    if "model" not in named or mixed or config.workload.arrivals in ("single", "concurrent"):
        return config
    return replace(config, workload=replace(config.workload, mix={config.model.name: 1.0}))


def size_command(config: SizeConfig, invocation: Invocation) -> None:
    """See the module docstring."""
    from experiments.studies.size.plot import draw_sizing

    console = Console()
    settled = asking_for_own_model(config, invocation.overrides).settled()
    if settled.workload is not config.workload:
        console.print(f"requests are for {settled.model.name}; workload.mix=... names others")
    make_scheduler(settled.scheduler, settled.seed.search, invocation.config_dirs)
    sizing = Sizing(settled, invocation.config_dirs)
    best = sizing.run(console)
    first = next(iter(sizing.slo))
    wanted = ", ".join(
        f"{name} {'>=' if name == 'success' else '<='} {_shown(name, limit)}"
        for name, limit in sizing.slo.items()
    )
    unit = {"cost": "per hour", "devices": "devices", "power": "W"}[settled.minimise]
    if best is None:
        console.print(f"[bold]no fleet of {len(sizing.candidates)} meets {wanted}[/bold]")
    else:
        spread = best.figures[first]
        console.print(
            f"[bold]{_text(best.counts)}: {best.price:.4g} {unit} meets {wanted}[/bold]: {first} "
            f"{_shown(first, float(np.mean(spread)))}, upper end of the 95% interval "
            f"{_shown(first, best.upper(first))} ({settled.seeds} seeds)"
        )
        print_validity(best.validity, console)
        console.print(f"there: {best.stops}", markup=False, soft_wrap=True)
    cheaper = [f for f in sizing.tried if best is None or f.price < best.price]
    if cheaper:
        last = max(cheaper, key=lambda f: f.price)
        console.print(
            f"not enough: {_text(last.counts)} ({last.price:.4g} {unit}), {sizing._verdict(last)}: "
            f"{last.stops}",
            markup=False,
            soft_wrap=True,
        )
    lines = [f"| fleet | {unit} | {first} (upper end) | meets |", "|---|---|---|---|"]
    lines += [
        f"| {_text(f.counts)} | {f.price:.4g} | {_shown(first, f.upper(first))} | "
        f"{'yes' if f.meets(sizing.slo) else 'no'} |"
        for f in sizing.frontier
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    skipped = len(sizing.candidates) - len(sizing.tried)
    console.print(
        f"{len(sizing.tried)} fleets simulated, {skipped} left out: smaller than one that failed, or "
        "dearer than needed"
    )
    names = [file_name(name) for name in (settled.cluster.name, settled.scheduler.name)]
    stem = "-".join([time.strftime("%Y%m%d_%H%M%S"), *names])
    folder = Path(settled.output_dir) / "sizing" / stem
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_json(
        folder / "result.json",
        {
            "format": "hetsim.sizing/1",
            "objective": sizing.slo,
            "minimise": settled.minimise,
            "best": None if best is None else dict(best.counts),
            "fleets": [
                {
                    "counts": dict(f.counts),
                    "price": f.price,
                    "figures": {k: list(v) for k, v in f.figures.items()},
                    "upper": {k: f.upper(k) for k in f.figures},
                    "meets": f.meets(sizing.slo),
                    "stops": f.stops,
                    "validity": f.validity,
                }
                for f in sizing.tried
            ],
            "config": json.loads(json.dumps(settled.document(), default=str)),
        },
    )
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    draw_sizing(
        sizing.tried, sizing.frontier, first, sizing.slo[first], unit, folder / "fig_sizing"
    )
    console.print(f"wrote {folder}/", style="dim", soft_wrap=True, markup=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return hydra_command(
        size_command,
        SizeConfig,
        "experiments.size",
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
