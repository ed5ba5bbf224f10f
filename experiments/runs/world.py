"""What a run starts from: graph, cluster, believed times, and draws of the actual ones.

Cells of a sweep share most of it, so each process keeps what it has made: tracing and pricing happen
once for a model on a cluster, the draws once for all schedulers compared on them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cost_models.measured import say_measured
from experiments.runs import catalog
from experiments.runs.configs import (
    PartitionConfig,
    Scenario,
    SchedulerConfig,
    SimulationConfig,
    contents,
)
from experiments.runs.kept import Kept, KeptPrices
from experiments.runs.noise import noise_model
from experiments.runs.pricing import Pricer, load_profiles, profile_digests
from experiments.runs.provenance import config_digest, digest, digest_files
from experiments.runs.validity import GIVEN_TIMES, Validity, labels_compared
from scenarios.arrivals import build_workload
from scenarios.bandwidth import bandwidth_faults
from scenarios.cluster_config import build_cluster
from scenarios.family_config import draw_instance
from scenarios.fault_config import build_faults
from scenarios.graph_files.recorded import files_of as recorded_files
from scenarios.graph_files.recorded import split_part
from scenarios.instances import load_instance
from scenarios.model_config import ModelConfig, graph_of
from scenarios.partition.partitioner import Partition
from scenarios.requests import RequestGraphs, named_models, prepare_requests
from scenarios.training.layer_profile import files_of, read_layer_profile
from simulator.analysis.bounds import Bounds, workload_bound
from simulator.devices.weight_cache import shortest
from simulator.engine.faults import Faults
from simulator.engine.run import simulate
from simulator.errors import HetsimError, InvalidInput
from simulator.model.cluster import Cluster, Device
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.noise import LogNormalNoise, NoiseModel
from simulator.model.workload import Workload
from simulator.schedulers import create
from simulator.support import own_code
from simulator.support.shipped import find_file

V = TypeVar("V")
MOST_DRAWN = 2_000_000
"""Bytes of drawn times that are kept from one command to the next; 200 draws of 600 operators on two devices."""
_KEEP = 32  # worlds a process remembers; a graph and its tables take a few MB


class _Memory(OrderedDict[str, Any]):
    """The values that were used last."""

    def get_or_make(self, key: str, make: Callable[[], V]) -> V:
        if key in self:
            self.move_to_end(key)
        else:
            self[key] = make()
            while len(self) > _KEEP:
                self.popitem(last=False)
        value: V = self[key]
        return value


worlds = _Memory()


@dataclass(frozen=True)
class ProfileIdentity:
    """Which times a result rests on, as ``result.json`` records it."""

    name: str
    label: str
    digest: str
    dtypes: tuple[str, ...] = ()


class World:
    """A graph on a cluster with believed times.

    Attributes:
        graph, cluster, costs: what the simulator takes.
        profiles: what the times rest on.
        pricer: draws actual times around the believed ones; None for bare instances and drawn graphs,
            whose times are given and have no error.
        requests: the graphs of a stream of requests, of which ``graph`` is the first; None: all jobs
            are of ``graph``.
        notes: for people: what files did not say, and what was taken instead.
        at_batch: gives the graph at another batch; None where it is there at one alone.
        partition: what a partitioner made; None without one.
    """

    partition: Partition | None = None

    def __init__(
        self,
        key: str,
        graph: DataflowGraph,
        cluster: Cluster,
        costs: CostTable,
        profiles: Sequence[ProfileIdentity],
        pricer: Pricer | None,
        requests: RequestGraphs | None = None,
        fine_costs: CostTable | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.requests = requests
        self.notes = tuple(notes)
        self._fine_costs = costs if fine_costs is None else fine_costs
        self.key = key
        self.graph = graph
        self.cluster = cluster
        self.costs = costs
        self.profiles = tuple(profiles)
        self.pricer = pricer
        self.at_batch: Callable[[int], DataflowGraph] | None = None
        self._kept = _Memory()

    @property
    def operator_graphs(self) -> list[DataflowGraph]:
        """The graphs of all operators: of requests those of every model and batch."""
        return [self.graph] if self.requests is None else self.requests.fine

    @property
    def operator_costs(self) -> CostTable:
        """Times of all operators of :attr:`operator_graphs`."""
        return self._fine_costs

    @cached_property
    def profile_text(self) -> str:
        """``2x amd-epyc-25-17-1core (measured), 1x tesla-t4 (datasheet)``."""
        labels = self.cluster.labels
        counts = Counter(
            f"{d.profile} ({labels.get(d.profile, 'unknown')}{speed_text(d)})"
            for d in self.cluster.devices
            if d.profile is not None
        )
        return ", ".join(f"{n}x {text}" for text, n in counts.items())

    def validity(self, planned: bool = False) -> Validity:
        """In which world its devices were validated; nothing to say where times are given.

        Args:
            planned: whether a plan decided in advance what runs where.
        """
        return GIVEN_TIMES if self.pricer is None else self.pricer.validity(planned)

    def compared(self, scenario: Scenario) -> str:
        """How devices of different labels compare: each relative to the first, the graph alone on either.

        ``jetson-orin-nano-8gb (datasheet) against amd-epyc-25-17-1core (measured): 0.12 [0.11, 0.36] of its time``;
        empty where all are of one label, or times are given.
        """
        if self.pricer is None:
            return ""
        simulation = scenario.simulation
        drawn: list[CostTable] = []
        if simulation.draws and not simulation.replaces_predictor_error:
            drawn = self._drawn(self.pricer, simulation.draws, scenario.seed.noise)
        totals = np.array([t[self.graph].seconds.sum(axis=0) for t in (self.costs, *drawn)])
        return labels_compared(self.cluster, totals, self.pricer.without_error)

    def workload(self, scenario: Scenario) -> Workload:
        """The jobs of a scenario."""
        if self.requests is not None:
            draw = self.requests.workload if scenario.keep is None else self.requests.stream
            return draw(scenario.workload, self.cluster, scenario.seed.workload)
        return build_workload(
            scenario.workload, self.graph, self.cluster.host, scenario.seed.workload
        )

    def faults(self, scenario: Scenario) -> Faults:
        """What goes wrong in a run, and how the bandwidth of links varies."""
        simulation = scenario.simulation
        faults = build_faults(simulation.faults, simulation.max_attempts)
        if not scenario.bare:
            varying = bandwidth_faults(scenario.cluster, self.cluster, scenario.seed.workload)
            faults = dataclasses.replace(faults, events=(*faults.events, *varying))
        return faults

    def bounds(self, scenario: Scenario) -> Bounds | None:
        """Lower bounds on the makespan, from the believed times, weights that are read again in the cache
        where there is one; None for requests, which may be
        served together or by another model.
        """
        if self.requests is not None:
            return None
        key = digest(["bounds", contents(scenario.workload), scenario.seed.workload])
        return self._kept.get_or_make(key, lambda: self._bounds(self.workload(scenario)))

    def _bounds(self, workload: Workload) -> Bounds:
        costs = shortest(self.costs, workload, self.cluster)
        jobs = [(job.graph.digest, job.arrival) for job in workload]
        times = [
            hashlib.sha256(costs[graph].seconds.tobytes()).hexdigest() for graph in workload.graphs
        ]
        kept = Kept("bounds", [jobs, times, repr(self.cluster.devices)])
        if not kept:
            bounds = workload_bound(workload, costs, self.cluster)
            known = {k: v for k, v in dataclasses.asdict(bounds).items() if v is not None}
            kept.keep({name: np.array(seconds) for name, seconds in known.items()})
            return bounds
        return Bounds(**{name: float(seconds) for name, seconds in kept.arrays.items()})

    def best_device(self, scenario: Scenario) -> tuple[str, float] | None:
        """The device on which everything alone is done first, and when; simulated like the rest.

        None where no device can run every operator, or has the memory for it, and for requests.
        """
        if self.requests is not None:
            return None
        key = digest(
            [
                "best_device",
                contents(scenario.workload),
                contents(scenario.simulation),
                contents(scenario.seed),
            ]
        )
        return self._kept.get_or_make(key, lambda: self._best_device(scenario))

    def _best_device(self, scenario: Scenario) -> tuple[str, float] | None:
        workload = self.workload(scenario)
        simulation = scenario.simulation
        seen, results = set(), []
        ends = {space for job in workload for space in (job.origin, job.destination)}
        for number, device in enumerate(self.cluster.devices):
            seconds = self.costs[self.graph].seconds[:, number]
            if not np.isfinite(seconds).all():
                continue
            kind = self.cluster.kind_of(number, ends), seconds.tobytes()
            if kind in seen:  # one of them is enough
                continue
            seen.add(kind)
            options = {"device": device.name}
            if simulation.weights == "on_demand":
                alone = create("lru_eviction", scheduler="single_device", options=options)
            else:
                alone = create("single_device", **options)
            try:
                trace = simulate(
                    workload,
                    self.cluster,
                    self.costs,
                    alone,
                    actual=self.actual(simulation),
                    movement=simulation.movement,
                    contention=simulation.contention,
                    memory=simulation.memory,
                    weights=simulation.weights,
                    seed=scenario.seed.noise,
                    faults=self.faults(scenario),
                )
            except HetsimError:
                if simulation.memory == "limited":  # it has not enough for everything
                    continue
                raise
            if np.all(trace.jobs["status"] == "finished"):
                results.append((trace.makespan, number))
        if not results:
            return None
        makespan, number = min(results)
        return self.cluster.devices[number].name, makespan

    def actual(self, simulation: SimulationConfig) -> NoiseModel | None:
        """What makes the actual times of a run differ from the believed ones."""
        return noise_model(simulation, self.cluster, self.pricer)

    def noise_of_draws(self, simulation: SimulationConfig) -> NoiseModel | None:
        """The noise in draws: the simulation's own, or else the spread that was measured."""
        noise = self.actual(simulation)
        if noise is not None or self.pricer is None or self.costs[self.graph].spread is None:
            return noise
        return LogNormalNoise()

    def draws(self, scenario: Scenario) -> Iterator[CostTable | NoiseModel]:
        """``simulation.draws`` drawn actual times: predictor error first, noise on top of it.

        The noise is the simulation's own, or else the spread that was measured; a systematic error
        among it takes the place of the predictors'. The draws depend on the seed and on this world
        alone: all schedulers meet the same ones. There are none where the times are certain.
        """
        simulation = scenario.simulation
        if not simulation.draws:
            return
        noise = self.noise_of_draws(simulation)
        if self.pricer is None or simulation.replaces_predictor_error:
            if noise is not None:
                for _ in range(simulation.draws):
                    yield noise
            return
        pricer, count, seed = self.pricer, simulation.draws, scenario.seed.noise
        for table in self._drawn(pricer, count, seed):
            yield table if noise is None else NoisyTable(table, noise)

    def _drawn(self, pricer: Pricer, count: int, seed: int) -> list[CostTable]:
        """The drawn tables, which all schedulers share."""
        return self._kept.get_or_make(
            digest(["draws", count, seed]), lambda: self._operators_drawn(pricer, count, seed)
        )

    def _operators_drawn(self, pricer: Pricer, count: int, seed: int) -> list[CostTable]:
        """Drawn now, or kept from an earlier run where they are few bytes."""
        # Errors are of operators, also where these are joined.
        fine = self._fine_costs
        if self.requests is not None:
            drawn = pricer.draws(fine, count, seed)
            return [self.requests.costs(table, self.cluster) for table in drawn]
        if count * sum(costs.seconds.nbytes for costs in fine.values()) > MOST_DRAWN:
            return list(pricer.draws(fine, count, seed))
        times = [hashlib.sha256(fine[graph].seconds.tobytes()).hexdigest() for graph in fine]
        kept = Kept("draws", [self.key, times, count, seed])
        if not kept:
            tables = list(pricer.draws(fine, count, seed))
            kept.keep(
                {
                    str(number): np.array([table[graph].seconds for table in tables])
                    for number, graph in enumerate(fine)
                }
            )
            return tables
        return [
            CostTable(
                {
                    graph: dataclasses.replace(fine[graph], seconds=kept.arrays[str(number)][draw])
                    for number, graph in enumerate(fine)
                }
            )
            for draw in range(count)
        ]

    def kinds_of(self, model: str) -> dict[str, float]:
        """Seconds of a request's operators by kind, each on its fastest device."""
        found: dict[str, float] = {}
        if self.requests is not None and model in self.requests.models:
            graph = self.requests.models[model].fine[0]
            fastest = self._fine_costs[graph].seconds.min(axis=1)
            for operator, seconds in zip(graph.operators, fastest.tolist(), strict=True):
                found[operator.kind] = found.get(operator.kind, 0.0) + seconds
        return found

    def extrapolated(self, model: str, batch: int) -> np.ndarray | None:
        """float64[operators, devices]: share of the time of each operator of a model at a batch that is
        extrapolated; None: unknown.
        """
        graph, costs = self.graph, self.costs
        if self.requests is not None and model in self.requests.models:
            served = self.requests.models[model]
            graph = served.graphs.get(batch, graph)
            if graph in served.segments:
                segments = served.segments[graph]
                return segments.share_outside(self._fine_costs[segments.fine])
        in_range = costs[graph].in_range
        return None if in_range is None else 1.0 - in_range


@dataclass(frozen=True)
class NoisyTable:
    """Noise around drawn times instead of around the believed ones."""

    table: CostTable
    noise: NoiseModel

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`simulator.model.noise.NoiseModel`."""
        drawn = self.table[graph]
        around = dataclasses.replace(costs, seconds=drawn.seconds)
        return self.noise.realise(graph, around, rng, arrival)


def source_digests(scenario: Scenario, config_dirs: Sequence[Path] = ()) -> dict[str, str]:
    """Digests of what a scenario names and does not contain: profiles, files, models of requests, and the
    user's own code, the modules that it imports included.

    Raises:
        InvalidInput: one of them does not exist.
    """
    found: dict[str, str] = {}
    if scenario.instance is not None:
        path = catalog.find_instance(scenario.instance, config_dirs)
        found["instance"] = digest_files(recorded_files(path))
        if part := split_part(path)[1]:
            found["instance"] = digest([found["instance"], part])
    elif scenario.model.profile is not None and not scenario.family.drawn:
        layers = files_of(catalog.find_path(scenario.model.profile, config_dirs))
        found["layers"] = digest([[file.name for file in layers], digest_files(layers)])
    elif not scenario.family.drawn:
        found |= profile_digests(scenario.cluster)
        if scenario.model.graph is not None:
            path = split_part(scenario.model.graph)[0]
            if path.is_file():  # if not, the model itself says so
                found["graph"] = digest_files(recorded_files(scenario.model.graph))
    if scenario.workload.file is not None:
        path = Path(scenario.workload.file).expanduser()
        if path.is_file():  # if not, the workload itself says so
            found["arrivals"] = digest_files([path])
    links = {} if scenario.bare else scenario.cluster.links
    varying = [
        str(link.varies.get("file") or "")
        for link in links.values()
        if isinstance(link.varies, Mapping)
    ]
    if files := [path for file in varying if (path := Path(file).expanduser()).is_file()]:
        found["bandwidth"] = digest_files(files)
    if file := scenario.scheduler.options.get("file"):
        path = find_file(str(file))
        if path.is_file():  # if not, the scheduler itself says so
            found["plan" if scenario.scheduler.name == "planned" else "policy"] = digest_files(
                [path]
            )
    select = scenario.scheduler.options.get("select")
    if isinstance(select, Mapping):
        path = find_file(str((select.get("predictor_options") or {}).get("file") or ""))
        if path.is_file():
            found["predictor"] = digest_files([path])
    targets = [] if scenario.bare else list(filter(None, [scenario.model.target]))
    if scenario.workload.serves and not scenario.bare:
        found["requests"] = config_digest(_request_document(scenario, config_dirs))
        targets += [model.target for model in models_of(scenario, config_dirs).values()]
    for what, paths in (
        ("scheduler", class_paths(scenario.scheduler)),
        ("partition", class_paths(scenario.partition)),
        ("model", dict.fromkeys(targets)),
    ):
        files = [
            file
            for path in paths
            for file in own_code.sources(catalog.resolve_class_path(path, config_dirs))
        ]
        if files:
            found[what] = digest_files(dict.fromkeys(files))
    return found


def class_paths(config: SchedulerConfig | PartitionConfig) -> list[str]:
    """The texts of a scheduler's or a partition's configuration that may name code: its class path, and those in its
    options.
    """
    given = [config.class_path or config.name, *texts(config.options)]
    return [text for text in given if own_code.parse(text) is not None]


def texts(value: Any) -> Iterator[str]:
    """Every text within mappings and lists, the keys of mappings left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from texts(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from texts(entry)


def unpartitioned(scenario: Scenario, config_dirs: Sequence[Path] = ()) -> World:
    """The world of a scenario whose graphs stay as they are, made now or kept from an earlier one of this process.

    Raises:
        InvalidInput: a name is unknown, a quantity ambiguous, a profile missing, or (``strict``) a
            prediction extrapolates.
    """
    parts = source_digests(scenario, config_dirs)
    for what in ("partition", "plan"):  # they come after graphs and times
        parts.pop(what, None)
    if scenario.family.drawn:
        parts["family"] = digest([scenario.family.document(), scenario.seed.workload])
    if not scenario.bare:
        parts["model_config"] = digest(contents(scenario.model))
        parts["cluster"] = digest(contents(scenario.cluster))
        parts["cost_model"] = digest(contents(scenario.cost_model))
    key = digest(parts)
    world = worlds.get_or_make(key, lambda: _make(key, scenario, parts, config_dirs))
    if scenario.strict:
        refuse_extrapolation(world)
    return world


def _make(
    key: str, scenario: Scenario, parts: Mapping[str, str], config_dirs: Sequence[Path]
) -> World:
    notes: list[str] = []
    if scenario.instance is not None:
        path = catalog.find_instance(scenario.instance, config_dirs)
        if not scenario.family.drawn:
            graph, cluster, costs = load_instance(path, say=notes.append)
        else:
            graph, cluster, costs = draw_instance(
                scenario.family, scenario.seed.workload, path, notes.append
            )
        identity = ProfileIdentity(f"instance {graph.name}", "given", parts["instance"])
        return World(key, graph, cluster, costs, [identity], None, notes=notes)
    if scenario.family.drawn:
        graph, cluster, costs = draw_instance(scenario.family, scenario.seed.workload)
        identity = ProfileIdentity(f"family {graph.name}", "given", parts["family"])
        return World(key, graph, cluster, costs, [identity], None)
    if scenario.model.profile is not None:
        return _of_layer_profile(key, scenario, parts, config_dirs)
    # Whatever can be refused at once is refused before a model is traced.
    kept = KeptPrices(parts)
    profiles = load_profiles(scenario.cluster, scenario.cost_model, read_models=not kept)
    labels = {name: profile.label for name, profile in profiles.items()}
    overheads = {name: profile.launch_overhead_s for name, profile in profiles.items()}
    corun = {name: profile.corun for name, profile in profiles.items()}
    slowdowns = {name: float(found["fraction"]) for name, found in corun.items() if found}
    curves = {name: profile.reuse for name, profile in profiles.items() if profile.reuse}
    cluster = build_cluster(scenario.cluster, labels, overheads, slowdowns, curves)
    cluster.check_connected()
    target = catalog.resolve_class_path(scenario.model.target, config_dirs)
    own = dataclasses.replace(scenario.model, target=target)
    pricer = Pricer(cluster, profiles, scenario.cost_model)
    requests = fine_costs = None
    if scenario.workload.serves:
        requests = prepare_requests(scenario.workload, models_of(scenario, config_dirs), own)
        fine_costs = _priced(requests.fine, pricer, kept)
        costs = requests.costs(fine_costs, cluster)
        graph = next(iter(next(iter(requests.models.values())).graphs.values()))
    else:
        graph = graph_of(own)
        costs = _priced([graph], pricer, kept)
        say_measured(graph, costs[graph].seconds, [device.profile for device in cluster.devices])
    identities = [
        ProfileIdentity(name, profile.label, parts[name], tuple(profile.dtypes))
        for name, profile in profiles.items()
    ]
    world = World(key, graph, cluster, costs, identities, pricer, requests, fine_costs)
    if requests is None:
        world.at_batch = partial(graph_of, own)
    return world


def speed_text(device: Device) -> str:
    """The words behind a device's profile where a speed is assumed; empty where the profile's own is taken."""
    return "" if device.speed == 1.0 else f", assumed {device.speed:g} times as fast"


def _of_layer_profile(
    key: str, scenario: Scenario, parts: Mapping[str, str], config_dirs: Sequence[Path]
) -> World:
    """The world of a model whose layers and times a file gives."""
    model = scenario.model
    if scenario.workload.serves:
        raise InvalidInput(
            f"Model '{model.name}' has the times of one batch, and requests are served at several; take jobs of it, "
            "such as workload=concurrent"
        )
    path = catalog.find_path(str(model.profile), config_dirs)
    profile = read_layer_profile(path, model.batch)
    types = dict.fromkeys(device.profile for device in scenario.cluster.devices.values())
    cluster = build_cluster(scenario.cluster, dict.fromkeys(types, "given"))
    cluster.check_connected()
    graph, costs = profile.instance(cluster, model.batch)
    identities = [
        ProfileIdentity(name, "given", parts["layers"])
        for name in dict.fromkeys(str(device.profile) for device in cluster.devices)
    ]
    return World(key, graph, cluster, costs, identities, None)


def _priced(graphs: Sequence[DataflowGraph], pricer: Pricer, kept: KeptPrices) -> CostTable:
    """Times of graphs, predicted now or earlier."""
    from cost_models.pricing import warn_of_unknown_work

    costs = kept.table(graphs)
    if costs is None:
        costs = pricer.price(graphs)
        kept.keep_table(costs)
    else:
        warn_of_unknown_work(graphs)
    return costs


def models_of(scenario: Scenario, config_dirs: Sequence[Path]) -> dict[str, ModelConfig]:
    """The models that a workload names, at the batch of its requests."""
    found = {}
    for name in named_models(scenario.workload):
        if name == scenario.model.name:
            content = dataclasses.asdict(scenario.model)
        else:
            entry = catalog.entry("model", name, config_dirs)
            if entry is None:
                raise catalog.unknown("model", name, config_dirs)
            known = ModelConfig.__dataclass_fields__
            content = {key: value for key, value in entry.content.items() if key in known}
        content["target"] = catalog.resolve_class_path(content["target"], config_dirs)
        found[name] = ModelConfig(**content)
    return found


def _request_document(scenario: Scenario, config_dirs: Sequence[Path]) -> dict[str, Any]:
    """What decides the graphs of requests, wherever the files of the models lie."""
    workload = scenario.workload
    keys = ("mix", "sizes", "max_batch", "segments", "variants")
    models = models_of(scenario, config_dirs)
    return {key: getattr(workload, key) for key in keys} | {
        "models": {
            name: dataclasses.asdict(model) | {"target": model.target.rpartition("/")[2]}
            for name, model in models.items()
        }
    }


def refuse_extrapolation(world: World) -> None:
    """Refuse a world with times outside the measured range.

    Raises:
        InvalidInput: names the first such operator, its shapes and what was measured nearest to it.
    """
    for graph in world.operator_graphs:
        in_range = world.operator_costs[graph].in_range
        if in_range is None or in_range.all():
            continue
        row, column = np.argwhere(~in_range)[0].tolist()
        operator, device = graph.operators[row], world.cluster.devices[column]
        near = "" if world.pricer is None else world.pricer.nearest_measured(operator, device)
        share = float((~in_range).mean())
        batch, way = "", ""
        if world.requests is not None:
            batch, way = (
                f" at batch {graph.batch}",
                "prepare smaller batches (workload.max_batch), ",
            )
        raise InvalidInput(
            f"strict=true: {share:.1%} of the predictions for '{graph.name}'{batch} extrapolate, the first "
            f"is '{operator.name}' (kind {operator.kind}) on '{device.name}' ({device.profile}){near}; measure "
            f"more shapes of this kind, {way}or leave strict out"
        )
