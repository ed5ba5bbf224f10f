"""Requests: jobs of several models, sizes and sources, and the graphs by which they can be served."""

from __future__ import annotations

import heapq
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from scenarios.arrivals import (
    BLOCK,
    WorkloadConfig,
    arrival_blocks,
    arrival_times,
    priority_draws,
    recorded_requests,
)
from scenarios.graph_cache import GraphCache
from scenarios.model_config import ModelConfig, graph_of
from simulator.errors import InvalidInput
from simulator.model.closed_loop import ClosedLoop
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.segments import Segments, coarsen
from simulator.model.units import parse_seconds
from simulator.model.workload import Job, Stream, Workload

MOST_BATCH = 1024


@dataclass(frozen=True)
class ServedModel:
    """A model that requests ask for, or that may serve them.

    Attributes:
        graphs: by batch, as jobs run them.
        segments: of those of them that are coarse.
    """

    name: str
    graphs: Mapping[int, DataflowGraph]
    segments: Mapping[DataflowGraph, Segments]

    @property
    def fine(self) -> list[DataflowGraph]:
        """The graphs of all operators."""
        return [
            self.segments[graph].fine if graph in self.segments else graph
            for graph in self.graphs.values()
        ]


@dataclass(frozen=True)
class RequestGraphs:
    """Every graph that may run for a stream of requests, as :func:`prepare_requests` makes them.

    Attributes:
        models: by name; those of the mix first.
        shares: of the mix, by name; they sum to 1.
        sizes: items of a request and their shares.
        variants: by name the names of the models that may serve in its place.
    """

    models: Mapping[str, ServedModel]
    shares: Mapping[str, float]
    sizes: Mapping[int, float]
    variants: Mapping[str, tuple[str, ...]]

    @property
    def fine(self) -> list[DataflowGraph]:
        """The graphs of all operators, of all models and batches."""
        return list(dict.fromkeys(graph for model in self.models.values() for graph in model.fine))

    @cached_property
    def _segments(self) -> dict[DataflowGraph, Segments]:
        return {g: s for model in self.models.values() for g, s in model.segments.items()}

    def costs(self, fine: CostTable, cluster: Cluster) -> CostTable:
        """Times of the graphs that run on a cluster's devices from those of all operators."""
        overhead = np.array([device.launch_overhead for device in cluster.devices])
        entries: dict[DataflowGraph, GraphCosts] = {}
        for model in self.models.values():
            for graph in model.graphs.values():
                segments = self._segments.get(graph)
                entries[graph] = (
                    fine[graph]
                    if segments is None
                    else segments.costs(fine[segments.fine], overhead)
                )
        return CostTable(entries)

    def workload(self, config: WorkloadConfig, cluster: Cluster, seed: int) -> Workload:
        """The requests of a run.

        Raises:
            InvalidInput: a source is no memory space of the cluster, or a value is out of range.
        """
        return _Drawn(self, config, cluster, seed).workload()

    def stream(self, config: WorkloadConfig, cluster: Cluster, seed: int) -> Workload:
        """The same requests, made as they arrive; those of a closed loop are made at once.

        Raises:
            InvalidInput: see :meth:`workload`.
        """
        return _Drawn(self, config, cluster, seed).workload(streamed=True)


def prepare_requests(
    config: WorkloadConfig,
    models: Mapping[str, ModelConfig],
    own: ModelConfig,
    cache: GraphCache | None = None,
) -> RequestGraphs:
    """The graphs of a mix.

    Args:
        config: the workload.
        models: configurations of the models that it names.
        own: the scenario's model, where it names none.
        cache: of traced graphs.

    Raises:
        InvalidInput: a share, a size or a number of segments that cannot be; a model of a fixed batch
            that is to be served in batches.
    """
    shares = _shares(config, "mix", mix_of(config) or {own.name: 1.0})
    sizes = {int(size): share for size, share in (config.sizes or {}).items()} or {own.batch: 1.0}
    if config.mix and not config.sizes:
        sizes = {1: 1.0}
    sizes = _shares(config, "sizes", sizes)
    if not 1 <= config.max_batch <= MOST_BATCH:
        raise InvalidInput(
            f"Workload '{config.name}' has workload.max_batch={config.max_batch}; give 1 to {MOST_BATCH}"
        )
    if min(sizes) < 1:
        raise InvalidInput(f"Workload '{config.name}' has requests of {min(sizes)} items")
    if config.max_batch > 1 and max(sizes) > config.max_batch:
        raise InvalidInput(
            f"Workload '{config.name}' has requests of {max(sizes)} items, but "
            f"workload.max_batch={config.max_batch}"
        )
    batches = sorted({*sizes, *(range(1, config.max_batch + 1) if config.max_batch > 1 else ())})
    variants = {name: tuple(names) for name, names in (config.variants or {}).items()}
    unknown = [name for name in variants if name not in shares]
    if unknown:
        raise InvalidInput(
            f"Workload '{config.name}' has variants of '{unknown[0]}', which is not in its mix "
            f"({', '.join(shares)})"
        )
    # A variant takes the place of a model: both are whole then, unless told otherwise.
    whole = config.max_batch > 1 or bool(variants)
    segments = config.segments if config.segments is not None else (1 if whole else None)
    names = dict.fromkeys([*shares, *(v for names in variants.values() for v in names)])
    served = {}
    for name in names:
        model = models.get(name, own)
        served[name] = _serve(model, name, batches, segments, cache)
    return RequestGraphs(served, shares, sizes, variants)


def _serve(
    config: ModelConfig,
    name: str,
    batches: Sequence[int],
    segments: int | None,
    cache: GraphCache | None,
) -> ServedModel:
    if not config.has_batch and len(batches) > 1:
        raise InvalidInput(
            f"Model '{name}' has a fixed batch: no input of it names the batch, so that its requests "
            "cannot be served together; leave workload.max_batch at 1"
        )
    fine = {batch: graph_of(config, batch, cache) for batch in batches}
    if segments is None:
        return ServedModel(name, fine, {})
    coarse = {batch: coarsen(graph, min(segments, len(graph))) for batch, graph in fine.items()}
    graphs = {batch: found.graph for batch, found in coarse.items()}
    return ServedModel(name, graphs, {found.graph: found for found in coarse.values()})


class _Row(NamedTuple):
    """What a request asks for."""

    model: str
    size: int
    source: str | None
    sensitivity: float
    priority: int
    deadline: float | None


class _Drawn:
    """The requests of one run: what each asks for is drawn apart from when it arrives."""

    def __init__(
        self, graphs: RequestGraphs, config: WorkloadConfig, cluster: Cluster, seed: int
    ) -> None:
        self._graphs, self._config, self._seed = graphs, config, seed
        self._cluster = cluster
        sources = config.sources
        if sources is None:
            self._sources: dict[str | None, float] = {cluster.host: 1.0}
        else:
            self._sources = {**_shares(config, "sources", sources)}
            for name in self._sources:
                if name not in cluster.space_index:
                    raise InvalidInput(
                        f"Workload '{config.name}' has requests from '{name}', which is no memory "
                        f"space of cluster '{cluster.name}'; it has {', '.join(cluster.space_index)}"
                    )
        self._deadlines = _deadlines(config, graphs.shares)
        if not 0 <= config.least_accuracy <= 1:
            raise InvalidInput(
                f"Workload '{config.name}' has workload.least_accuracy={config.least_accuracy}; it is "
                "from 0 to 1"
            )

    def workload(self, streamed: bool = False) -> Workload:
        config = self._config
        batches = {
            graph: self._graphs.models[name].graphs
            for name in self._graphs.models
            for graph in self._graphs.models[name].graphs.values()
        }
        variants = {
            self._graphs.models[name].graphs[size]: [
                self._graphs.models[other].graphs[size] for other in others
            ]
            for name, others in self._graphs.variants.items()
            for size in self._graphs.sizes
        }
        if config.arrivals == "closed":
            return ClosedLoop(self._clients(), batches, variants, self._accuracies())
        if streamed:
            self._check()
            asked = (
                self._graphs.models[name].graphs[size]
                for name in self._graphs.shares
                for size in self._graphs.sizes
            )
            return Stream(self.jobs, asked, batches, variants, self._accuracies())
        return Workload(list(self.jobs()), batches, variants, self._accuracies())

    def jobs(self) -> Iterator[Job]:
        """The requests of all streams, in order of arrival, made as they are asked for."""
        others = [drawn._own_jobs() for drawn in self._others()]
        # Of one instant this stream's own requests come first.
        return heapq.merge(self._own_jobs(), *others, key=_arrival) if others else self._own_jobs()

    def _others(self) -> list[_Drawn]:
        """The streams beside this one."""
        return [
            _Drawn(self._graphs, stream, self._cluster, zlib.crc32(f"{self._seed} {name}".encode()))
            for name, stream in stream_configs(self._config).items()
        ]

    def _check(self) -> None:
        """Refuse what cannot be drawn before anybody asks for it."""
        for drawn in (self, *self._others()):
            next(drawn._own_jobs())

    def _own_jobs(self) -> Iterator[Job]:
        times = itertools.chain.from_iterable(arrival_blocks(self._config, self._seed))
        rows = self._columns(self._count())
        return (self._job(time, row) for time, row in zip(times, rows, strict=True))

    def _choices(self, count: int) -> list[tuple[list[Any], Callable[[int], np.ndarray]]]:
        """Models, sizes and sources of so many requests: what there is, and what draws their numbers."""
        graphs = self._graphs
        shares: tuple[Mapping[Any, float], ...] = (graphs.shares, graphs.sizes, self._sources)
        found: list[tuple[list[Any], Callable[[int], np.ndarray]]] = []
        for number, each in enumerate(shares):
            # Each column has the numbers that it would have if the ones before it were drawn first.
            rng = _generator([self._seed, 2], number * count)
            names, odds = list(each), list(each.values())
            found.append((names, partial(_choose, rng, odds)))
        return found

    def _count(self) -> int:
        config = self._config
        if config.arrivals == "trace":
            return len(arrival_times(config, self._seed))
        assert config.jobs is not None
        return config.jobs

    def _accuracies(self) -> dict[DataflowGraph, float]:
        given = self._config.accuracies or {}
        for name, value in given.items():
            if name not in self._graphs.models or not 0 <= value <= 1:
                raise InvalidInput(
                    f"Workload '{self._config.name}' has the accuracy {value} of '{name}'; give 0 to 1 "
                    f"for {', '.join(self._graphs.models)}"
                )
        return {
            graph: given[name]
            for name, model in self._graphs.models.items()
            if name in given
            for graph in model.graphs.values()
        }

    def _clients(self) -> list[list[Job]]:
        config = self._config
        first = arrival_times(config, self._seed)
        total, count = config.jobs or len(first), len(first)
        rows = list(self._columns(total))
        think = parse_seconds(config.think or "0s", f"think of workload '{config.name}'")
        rng = np.random.default_rng([self._seed, 4])
        pauses = rng.exponential(think, total) if think else np.zeros(total)
        found = []
        for client in range(count):
            mine = range(client, total, count)
            found.append(
                [
                    self._job(first[client] if i == client else float(pauses[i]), rows[i], True)
                    for i in mine
                ]
            )
        return found

    def _columns(self, count: int) -> Iterator[_Row]:
        """What each of so many requests asks for; drawn block by block, the same as at once."""
        config = self._config
        given: Mapping[str, Sequence[Any]] = {}
        if config.arrivals == "trace":
            given = recorded_requests(config)
            self._check_recorded(given)
        choices = self._choices(count)
        sensitivity = _sensitivities(config, _generator([self._seed, 2], len(choices) * count))
        closed = config.arrivals == "closed"
        priorities = (lambda count: [0] * count) if closed else priority_draws(config, self._seed)
        for begin in range(0, count, BLOCK):
            size = min(BLOCK, count - begin)
            columns: list[list[Any]] = [
                [names[i] for i in draw(size).tolist()] for names, draw in choices
            ]
            columns += [sensitivity(size), priorities(size), [None] * size]
            for number, key in enumerate(_Row._fields):
                if key in given:
                    recorded = given[key][begin : begin + size]
                    columns[number] = [
                        value if value is not None else drawn
                        for value, drawn in zip(recorded, columns[number], strict=True)
                    ]
            yield from map(_Row._make, zip(*columns, strict=True))

    def _check_recorded(self, columns: Mapping[str, Sequence[Any]]) -> None:
        known: dict[str, tuple[str, Sequence[Any]]] = {
            "model": ("mix", list(self._graphs.shares)),
            "size": ("sizes", list(self._graphs.sizes)),
            "source": ("sources", list(self._sources)),
        }
        for key, (option, names) in known.items():
            for line, value in enumerate(columns[key], 2):
                if value is not None and value not in names:
                    raise InvalidInput(
                        f"{self._config.file}, line {line}: {key} '{value}' is not in "
                        f"workload.{option} ({', '.join(map(str, names))})"
                    )

    def _job(self, arrival: float, row: _Row, relative: bool = False) -> Job:
        model, size, source, sensitivity, priority, deadline = row
        after = deadline if deadline is not None else self._deadlines.get(model)
        start = 0.0 if relative else arrival
        return Job(
            self._graphs.models[model].graphs[size],
            arrival,
            deadline=None if after is None else start + after,
            priority=priority,
            model=model,
            batch=size,
            origin=source,
            destination=source,
            time_sensitivity=sensitivity,
            accuracy_sensitivity=1 - sensitivity,
            least_accuracy=self._config.least_accuracy,
        )


def stream_configs(config: WorkloadConfig) -> dict[str, WorkloadConfig]:
    """The streams beside a workload, each as a workload of its own.

    Raises:
        InvalidInput: one has a key that a stream has not, or streams of its own.
    """
    found = {}
    shared = ("mix", "sizes", "max_batch", "segments", "variants", "accuracies", "streams")
    known = [key for key in WorkloadConfig.__dataclass_fields__ if key not in (*shared, "name")]
    for name, given in (config.streams or {}).items():
        unknown = [key for key in given if key not in known]
        if unknown:
            raise InvalidInput(
                f"Stream '{name}' of workload '{config.name}' has the key '{unknown[0]}'; known: "
                f"{', '.join(known)}"
            )
        found[name] = replace(config, streams=None, **given, name=name)
        if found[name].arrivals == "closed" or config.arrivals == "closed":
            raise InvalidInput(
                f"Workload '{config.name}' has a closed loop beside another stream; run them apart"
            )
    return found


def _shares(config: WorkloadConfig, key: str, given: Mapping[Any, float]) -> dict[Any, float]:
    total = sum(given.values())
    if not given or min(given.values()) < 0 or not 0 < total < math.inf:
        raise InvalidInput(
            f"Workload '{config.name}' has workload.{key}={dict(given)}; shares are at least 0, and one "
            "is above"
        )
    return {name: share / total for name, share in given.items()}


def _deadlines(config: WorkloadConfig, models: Mapping[str, float]) -> dict[str, float]:
    given = config.deadline
    if given is None:
        return {}
    each = dict(given) if isinstance(given, Mapping) else dict.fromkeys(models, given)
    found = {}
    for name, text in each.items():
        if name not in models:
            raise InvalidInput(
                f"Workload '{config.name}' has a deadline for '{name}', which is not in its mix "
                f"({', '.join(models)})"
            )
        found[name] = parse_seconds(text, f"deadline of workload '{config.name}'")
        if not 0 < found[name] < math.inf:
            raise InvalidInput(
                f"Workload '{config.name}' has the deadline {text} for '{name}'; it must be above 0 s "
                "after the arrival"
            )
    return found


def _sensitivities(
    config: WorkloadConfig, rng: np.random.Generator
) -> Callable[[int], list[float]]:
    given = config.sensitivity
    if given == "uniform":
        return lambda count: rng.random(count).tolist()
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise InvalidInput(
            f"Workload '{config.name}' has workload.sensitivity={given}; give a share of time "
            "sensitivity from 0 to 1, or 'uniform'"
        )
    return lambda count: [float(given)] * count


def _generator(seed: Sequence[int], ahead: int) -> np.random.Generator:
    """A generator of which so many numbers between 0 and 1 are drawn already."""
    bits = np.random.PCG64(seed)
    return np.random.Generator(bits.advance(ahead))


def _choose(rng: np.random.Generator, odds: Sequence[float], count: int) -> np.ndarray:
    """So many numbers, drawn with these odds."""
    return rng.choice(len(odds), count, p=odds)


def _arrival(job: Job) -> float:
    return job.arrival


def mix_of(config: WorkloadConfig) -> dict[str, float]:
    """The models of a mix and their shares as written; empty where there is none.

    Raises:
        InvalidInput: neither a text of ``model:share`` nor a mapping of names to numbers.
    """
    if config.mix is None:
        return {}
    try:
        if isinstance(config.mix, str):
            parts = [part.partition(":") for part in config.mix.replace(",", " ").split()]
            return {name: float(share or 1) for name, _, share in parts}
        return {str(name): float(share) for name, share in config.mix.items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(
            f"Workload '{config.name}' has workload.mix={config.mix}; write it like "
            '"resnet18:4 googlenet:1"'
        ) from None


def asked_for(config: WorkloadConfig, own: str) -> str:
    """What tables call the models of a workload: ``resnet18``, ``resnet18:4 googlenet:1``.

    Args:
        config: the workload.
        own: name of the scenario's model, which jobs are of where there is no mix.

    Raises:
        InvalidInput: see :func:`mix_of`.
    """
    mix = mix_of(config) or {own: 1.0}
    if len(mix) == 1:
        return next(iter(mix))
    return " ".join(f"{name}:{share:g}" for name, share in mix.items())


def named_models(config: WorkloadConfig) -> list[str]:
    """Names of all models that a workload speaks of."""
    names = dict.fromkeys(mix_of(config))
    for variants in (config.variants or {}).values():
        names |= dict.fromkeys(variants)
    return list(names)
