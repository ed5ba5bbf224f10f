"""Runs on this machine, kept as they are made: blocks of interleaved rounds of one model's cases.

``measured/<group>/<number>/`` of a validation's folder is a block: ``block.json`` (written last: without it
there is none) with every makespan, ``alone.parquet`` with the operators' times on each device alone,
``panel.parquet`` and ``gaps.parquet`` with those of the panel that tells the machine's speed, and all traces
(:mod:`experiments.validation.compact_traces`).
A case is known by its key, so that what was measured is kept when others are added.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.probes.cache_now import CacheRuns, caches_json, caches_of
from experiments.probes.handing_over import handover_seconds
from experiments.probes.input_distance import InputProbes
from experiments.probes.overhead import Overhead
from experiments.probes.panel import PanelRuns
from experiments.probes.runner_overhead import OverheadProbe
from experiments.runs import atomic
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles
from experiments.runs.provenance import code_digest
from experiments.runs.this_machine import busy_cores, differences_here
from experiments.validation.cases import durations
from experiments.validation.compact_traces import read_traces, write_traces
from experiments.validation.contestants import Contestant, Group
from experiments.validation.simulated_vs_measured import Hardware, Prediction
from simulator.context.scheduler import Scheduler
from simulator.errors import HetsimError, InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.schedulers import create

FORMAT = "hetsim.measured/3"
MOST_REPEATS = 200
LEAST_REPEATS = 2


@dataclass(frozen=True)
class Quota:
    """How much of a block is enough.

    Attributes:
        repeats: rounds at least.
        seconds: of each case at least; short ones are repeated more often.
        budget_s: rounds go on until so many seconds have passed since the first; None: until the other two
            are met.
    """

    repeats: int
    seconds: float
    budget_s: float | None = None

    def enough(self, rounds: int, shortest_s: float, since_s: float, round_s: float) -> bool:
        """Whether so many rounds are enough.

        Args:
            rounds: done.
            shortest_s: makespan of the shortest case.
            since_s: seconds since the first round began.
            round_s: seconds that a round takes.
        """
        if rounds >= MOST_REPEATS:
            return True
        if self.budget_s is not None:
            return rounds >= LEAST_REPEATS and since_s + round_s > self.budget_s
        return rounds >= self.rounds(shortest_s)

    def rounds(self, shortest_s: float) -> int:
        """Rounds of a block without a budget."""
        wanted = round(self.seconds / shortest_s) if shortest_s else 0
        return max(self.repeats, min(MOST_REPEATS, wanted))


@dataclass(frozen=True, eq=False)
class Block:
    """What came of one.

    Attributes:
        makespans_s: of each case by key, a run each.
        overheads: of the runner, of each case by key.
        believed: the overheads that schedulers were told of.
        traces: of each case by key, of each run.
        alone: float64[rounds, operators, devices] seconds, all operators of a job on that device.
        panel: :meth:`experiments.probes.panel.PanelRuns.seconds` among the rounds.
        gaps: of the same runs, :meth:`experiments.probes.panel.PanelRuns.gap_seconds`.
        caches: what caches kept of weights meanwhile, by memory space.
        busy: cores that other processes kept busy before; NaN where the system does not say.
        wall_s: seconds that it took.
        prepared_s: of these before its first round.
        differences: in what the profiles were measured with something else than there is here, and what
            denormal numbers do.
        machine: what it ran on.
        code: digest of the sources.
    """

    makespans_s: Mapping[str, Sequence[float]]
    overheads: Mapping[str, Overhead]
    believed: Mapping[str, Overhead]
    traces: Mapping[str, Sequence[Trace]]
    alone: np.ndarray
    panel: np.ndarray
    gaps: np.ndarray
    inputs: np.ndarray
    caches: Mapping[str, CacheRuns]
    busy: float
    wall_s: float
    prepared_s: float
    differences: tuple[str, ...]
    machine: Mapping[str, Any]
    code: str

    def save(self, folder: Path) -> None:
        """Write it; ``block.json`` comes last."""
        write_traces(
            folder,
            {
                f"{key} {number}": trace
                for key, traces in self.traces.items()
                for number, trace in enumerate(traces)
            },
        )
        _write_seconds(folder / "alone.parquet", self.alone, ("round", "operator", "device"))
        _write_seconds(
            folder / "panel.parquet", self.panel, ("together", "device", "run", "operator")
        )
        _write_seconds(folder / "gaps.parquet", self.gaps, ("device", "run", "operator"))
        _write_seconds(folder / "inputs.parquet", self.inputs, ("run", "row", "device", "operator"))
        document = {
            "format": FORMAT,
            "makespans_s": {key: list(values) for key, values in self.makespans_s.items()},
            "overheads": _overheads_json(self.overheads),
            "believed": _overheads_json(self.believed),
            "alone_shape": list(self.alone.shape),
            "panel_shape": list(self.panel.shape),
            "gaps_shape": list(self.gaps.shape),
            "inputs_shape": list(self.inputs.shape),
            "caches": caches_json(self.caches),
            "busy_cores_before": self.busy,
            "wall_s": self.wall_s,
            "prepared_s": self.prepared_s,
            "profile_differences": list(self.differences),
            "machine": dict(self.machine),
            "code": self.code,
        }
        atomic.write_json(folder / "block.json", document)


class MeasuredRuns:
    """The blocks of a validation's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "measured"

    def count(self, group: Group, key: str) -> int:
        """In how many blocks a case was measured."""
        return sum(key in document["makespans_s"] for document in self._documents(group))

    def repeats(self, group: Group, key: str) -> int:
        """How often a case was measured."""
        return sum(len(d["makespans_s"].get(key, ())) for d in self._documents(group))

    def believed(self, group: Group) -> dict[str, Overhead]:
        """What the schedulers of each case were told that the runner needs, the first time it ran."""
        found: dict[str, Overhead] = {}
        for document in self._documents(group):
            for key in document["makespans_s"]:
                found.setdefault(key, _believed(document, key))
        return found

    def spent_s(self, group: Group) -> float:
        """Seconds that the blocks of a group took."""
        return float(sum(document["wall_s"] for document in self._documents(group)))

    def add(self, group: Group, block: Block) -> None:
        """Keep a block."""
        numbers = [int(path.name) for path in self._paths(group)]
        folder = self._folder / group.key / str(max(numbers, default=-1) + 1)
        if folder.exists():  # of a process that was killed while it wrote
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        block.save(folder)

    def blocks(self, group: Group, graph: DataflowGraph) -> list[Block]:
        """All blocks of a group, the cases that the group still has.

        Raises:
            InvalidInput: a file is damaged.
        """
        wanted = {contestant.key: contestant.jobs for contestant in group.contestants}
        found = []
        for path in self._paths(group):
            document = self._read(path)
            makespans = {k: v for k, v in document["makespans_s"].items() if k in wanted}
            names = {key: [f"{key} {n}" for n in range(len(v))] for key, v in makespans.items()}
            traces = read_traces(
                path, {name: [graph] * wanted[key] for key in names for name in names[key]}
            )
            found.append(
                Block(
                    makespans,
                    {key: _overhead(document, key) for key in makespans},
                    {key: _believed(document, key) for key in makespans},
                    {key: [traces[name] for name in names[key]] for key in names},
                    _read_seconds(path / "alone.parquet", document["alone_shape"]),
                    _read_seconds(path / "panel.parquet", document["panel_shape"]),
                    _read_seconds(path / "gaps.parquet", document["gaps_shape"])
                    if "gaps_shape" in document
                    else np.empty((0, 0, 0)),  # were not looked at before
                    _read_seconds(path / "inputs.parquet", document["inputs_shape"])
                    if "inputs_shape" in document
                    else np.empty((0, 0, 0, 0)),  # nor were these
                    caches_of(document.get("caches", {})),  # was not looked at before
                    float("nan")
                    if document["busy_cores_before"] is None
                    else document["busy_cores_before"],
                    document["wall_s"],
                    document.get("prepared_s", 0.0),  # was not noted before
                    tuple(document["profile_differences"]),
                    document["machine"],
                    document["code"],
                )
            )
        return found

    def inputs(self, groups: Iterable[Group]) -> list[np.ndarray]:
        """What :class:`experiments.probes.input_distance.InputProbes` found in the blocks of some groups."""
        found = []
        for group in groups:
            for path in self._paths(group):
                shape = self._read(path).get("inputs_shape")
                if shape and all(shape):
                    found.append(_read_seconds(path / "inputs.parquet", shape))
        return found

    def machines(self, group: Group) -> list[Mapping[str, Any]]:
        """What the blocks of a group ran on."""
        return [document["machine"] for document in self._documents(group)]

    def codes(self, group: Group) -> set[str]:
        """Digests of the sources that the blocks of a group ran with."""
        return {document["code"] for document in self._documents(group)}

    def _paths(self, group: Group) -> list[Path]:
        paths = (self._folder / group.key).glob("*/block.json")
        return sorted((path.parent for path in paths), key=lambda path: int(path.name))

    def _documents(self, group: Group) -> list[dict[str, Any]]:
        return [self._read(path) for path in self._paths(group)]

    def _read(self, folder: Path) -> dict[str, Any]:
        path = folder / "block.json"
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InvalidInput(f"Cannot read {path}: {error}; remove {folder}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InvalidInput(f"{path} is no block of format '{FORMAT}'; remove {folder}")
        return document


def _write_seconds(path: Path, seconds: np.ndarray, axes: Sequence[str]) -> None:
    """A row for each value, with its place along each axis."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = np.indices(seconds.shape, dtype=np.int32).reshape(len(axes), -1)
    table = pa.table({**dict(zip(axes, places, strict=True)), "seconds": seconds.reshape(-1)})
    with atomic.replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _read_seconds(path: Path, shape: Sequence[int]) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        seconds = pq.read_table(path, columns=["seconds"])["seconds"].to_numpy()
        return np.array(seconds, dtype=np.float64).reshape(tuple(shape))
    except (OSError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise InvalidInput(f"Cannot read {path}: {error}; remove {path.parent}") from None


def profile_statistic(group: Group) -> str:
    """The statistic that the operator times of a group's profiles are.

    Raises:
        InvalidInput: they hold different ones.
    """
    scenario = group.scenario
    profiles = load_profiles(scenario.cluster, scenario.cost_model)
    statistics = {profile.statistic or "minimum" for profile in profiles.values()}
    if len(statistics) > 1:
        raise InvalidInput(
            f"The profiles of cluster '{scenario.cluster.name}' hold different statistics "
            f"({', '.join(sorted(statistics))}); fit them with the same one"
        )
    return statistics.pop()


def measure_block(
    group: Group,
    contestants: Sequence[Contestant],
    believed: Mapping[str, Overhead],
    quota: Quota,
    warmup: int,
    cores: Sequence[int] | None,
    limit: float,
    config_dirs: Sequence[Path],
    step: Callable[[int, int | None], None],
) -> tuple[Block | None, BaseException | None]:
    """Run contestants in turn, and everything on each device alone.

    Args:
        group: of the contestants.
        contestants: those to run.
        believed: what their schedulers are told that the runner needs, by key: what they were told before, lest
            they plan otherwise; of others it is what the runner needs now.
        quota: when to stop.
        warmup: rounds first that are not counted; with a budget of one case for each number of jobs.
        cores: of the workers.
        limit: seconds after which a run is given up.
        config_dirs: the user's configs.
        step: told how many rounds are done and how many there will be, if that is known.

    Returns:
        What was measured (None if that is less than two rounds), and what stopped it early, an
        interrupt or a run that failed.

    Raises:
        HetsimError: something cannot be run at all.
    """
    from calibration.environment import described
    from calibration.runner import Machine
    from calibration.workers import workers_for

    began = time.monotonic()
    scenario = group.scenario
    world = prepare(scenario, config_dirs)
    workers = workers_for(world.cluster, cores)
    profile_statistic(group)  # refused now, not once all has run
    prediction = Prediction(world)
    busy = busy_cores()
    devices = [device.name for device in world.cluster.devices]
    places = {d.profile: workers[d.name].device for d in world.cluster.devices if d.profile}
    profiles = load_profiles(scenario.cluster, scenario.cost_model)
    differences = differences_here(profiles, places)
    machine_document: dict[str, Any] = {
        **described(workers[devices[0]].device),
        "workers": {name: asdict(spec) for name, spec in workers.items()},
        "gpus": {s.device: described(s.device) for s in workers.values() if s.device != "cpu"},
    }
    stopped: BaseException | None = None
    rounds: list[list[Trace]] = []
    first = began
    with Machine(world.cluster, workers) as machine:
        probe = OverheadProbe(machine)
        handover = machine_document["handover_s"] = handover_seconds(machine, probe.model)
        overheads = runner_overheads(probe, contestants, handover)
        told = {**overheads, **{key: one for key, one in believed.items() if key in overheads}}
        plain = probe.overhead(lambda: create("single_device"), handover=handover)
        machine_document["overhead_s"] = plain.operator
        hardware = Hardware(machine, world, scenario, limit, config_dirs)
        machine_document["flush_denormal"] = machine.flushes_denormals
        if hardware.denormals is not None:
            differences = (*differences, hardware.denormals)
        panel = PanelRuns(machine)
        inputs = InputProbes(machine, probe.model)
        alone = [_alone(name) for name in devices]
        first_runs = contestants
        if quota.budget_s is not None:  # a round would be much of it: one for each number of jobs
            first_runs = list({one.jobs: one for one in contestants}.values())

        def round_of_runs(these: Sequence[Contestant]) -> list[Trace]:
            traces = []
            for contestant in these:
                simulation = contestant.scenario.simulation
                traces.append(
                    hardware.run(
                        world.workload(contestant.scenario),
                        contestant.make(),
                        prediction.believed(told[contestant.key]),
                        simulation.movement,
                        simulation.contention,
                    )
                )
            one = hardware.one_job()
            of_one = prediction.believed(plain)
            if panel.is_due(time.monotonic() - began):
                panel.run()
                inputs.run()
                hardware.run(one, alone[0](), of_one)  # what comes next finds its own caches
            return [*traces, *(hardware.run(one, make(), of_one) for make in alone)]

        shortest = 0.0
        try:
            for _ in range(warmup):
                step(0, None)
                shortest = min(trace.makespan for trace in round_of_runs(first_runs))
            panel.clear()
            inputs.clear()
            first = time.monotonic()
            while True:
                since = time.monotonic() - first
                each = since / max(1, len(rounds))
                if rounds and quota.enough(len(rounds), shortest, since, each):
                    break
                rounds.append(round_of_runs(contestants))
                shortest = shortest or min(trace.makespan for trace in rounds[0])
                total = quota.rounds(shortest) if quota.budget_s is None else None
                step(len(rounds), total)
        except (HetsimError, KeyboardInterrupt) as error:
            stopped = error  # whole rounds are kept
    if len(rounds) < LEAST_REPEATS:
        return None, stopped
    shape = (len(world.graph), len(devices))
    seconds = np.full((len(rounds), *shape), np.nan)
    for column in range(len(devices)):
        runs = [traces[len(contestants) + column] for traces in rounds]
        seconds[:, :, column] = durations(runs, *shape)[:, :, column]
    makespans, kept = {}, {}
    for position, contestant in enumerate(contestants):
        traces = [traces[position] for traces in rounds]
        makespans[contestant.key] = [trace.makespan for trace in traces]
        kept[contestant.key] = traces
    block = Block(
        makespans,
        overheads,
        told,
        kept,
        seconds,
        panel.seconds(),
        panel.gap_seconds(),
        inputs.seconds(),
        panel.caches.runs(),
        busy,
        time.monotonic() - began,
        first - began,
        differences,
        machine_document,
        code_digest(),
    )
    return block, stopped


def _overhead(document: Mapping[str, Any], key: str) -> Overhead:
    """That a block was measured with."""
    if "overheads" in document:
        return Overhead.of_json(document["overheads"][key])
    # Blocks of earlier releases have a column for each.
    columns = ("dispatch_s", "copying_s")
    return Overhead.of_json({c: document[c][key] for c in columns if c in document})


def _believed(document: Mapping[str, Any], key: str) -> Overhead:
    """That schedulers were told of; before that was noted it was what a block was measured with."""
    found = document.get("believed")
    return _overhead(document, key) if found is None else Overhead.of_json(found[key])


def _overheads_json(overheads: Mapping[str, Overhead]) -> dict[str, dict[str, float]]:
    return {key: one.to_json() for key, one in overheads.items()}


def runner_overheads(
    probe: OverheadProbe, contestants: Sequence[Contestant], handover: float | None
) -> dict[str, Overhead]:
    """The runner's overhead under each contestant's scheduler, by its key; ``handover`` of the interpreter.

    A plan is of its own model, and the probe runs another: HEFT, which plans before the run too, stands for it.
    """
    found: dict[tuple[str, int], Overhead] = {}
    for one in contestants:
        setting = one.label, one.jobs
        if setting not in found:
            planned = one.scenario.scheduler.name == "planned"
            make = partial(create, "heft") if planned else one.make
            found[setting] = probe.overhead(make, one.jobs, handover=handover)
    return {one.key: found[one.label, one.jobs] for one in contestants}


def _alone(device: str) -> Callable[[], Scheduler]:
    return lambda: create("single_device", device=device)
