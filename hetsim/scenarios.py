"""Scenarios from Python objects: a module, a graph, a class of a scheduler where commands take names and files."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments.runs.configs import Scenario
from scenarios.cluster_config import ClusterConfig
from scenarios.graph_files import holds_graph, read_graph_file
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph

SchedulerLike = str | type[Scheduler] | tuple[str | type[Scheduler], Mapping[str, Any]]
"""A name, a class path, a class, or one of these with its options: ``("donf", {"pricing": "per_edge"})``."""
_YOURS = "hetsim.yours"
"""The module in which classes given as objects are found by name."""


def load_cluster(path: str | Path) -> ClusterConfig:
    """Read a cluster from a YAML file of the form of ``conf/cluster``.

    Args:
        path: of the file.

    Returns:
        The cluster, to be given as ``cluster=``; its values can be changed: ``cluster.devices["gpu"].count = 4``.

    Raises:
        InvalidInput: the file cannot be read, or holds a key or a type that no cluster has.

    Example:
        >>> import hetsim
        >>> hetsim.load_cluster("conf/cluster/cpu2.yaml").name
        'cpu2'
    """
    from experiments.runs import catalog

    path = Path(path).expanduser()
    return _cluster_of(catalog.read(path), str(path))


def _cluster_of(content: Mapping[str, Any], what: str) -> ClusterConfig:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from experiments.runs.command import readable

    try:
        merged = OmegaConf.merge(
            OmegaConf.structured(ClusterConfig), OmegaConf.create(dict(content))
        )
        cluster = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise InvalidInput(f"{what} is no cluster: {readable(error)}") from None
    assert isinstance(cluster, ClusterConfig)
    return cluster


def scenarios_of(
    model: Any,
    cluster: str | Path | Mapping[str, Any] | ClusterConfig | None,
    schedulers: Sequence[SchedulerLike],
    inputs: Any = None,
    settings: Mapping[str, Any] | None = None,
    config_dirs: Sequence[str | Path] = (),
) -> tuple[list[Scenario], tuple[Path, ...]]:
    """One scenario for each scheduler, alike in everything else.

    Args:
        model: a shipped model's name, a graph's or an instance's file, a module (with ``inputs``), or a graph.
        cluster: a name of ``conf/cluster``, a YAML file, or what :func:`load_cluster` gives; None: the default.
        schedulers: see :data:`SchedulerLike`.
        inputs: example inputs of a module: a tensor, a list of them, or a mapping of keyword arguments.
        settings: values of the command line by key: ``{"model.batch": 8, "workload": "poisson", "seed.noise": 1}``.
        config_dirs: folders of your own configs, as ``--config-dir`` takes them.

    Returns:
        The scenarios, and the folders, absolute.

    Raises:
        InvalidInput: one of these cannot be used; one sentence says which and what can.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from experiments.runs.command import readable
    from experiments.runs.grid import compose_grid, value_text

    folders = tuple(Path(folder).expanduser().resolve() for folder in config_dirs)
    if not schedulers:
        raise InvalidInput("schedulers=[] names none; see hetsim.schedulers()")
    settings = settings or {}
    for key in ("model", "cluster", "scheduler"):
        if key in settings:
            raise InvalidInput(f"{key} is an argument of its own: {key}=..., not in settings")
    words = _model_words(model, inputs)
    if len(words) > 1:
        _refuse_settings(settings, "model", "its graph is given: trace it as it should be")
    words += [f"{key}={value_text(value)}" for key, value in settings.items()]
    if isinstance(cluster, str) and not cluster.endswith((".yaml", ".yml")):
        words.append(f"cluster={cluster}")
        cluster = None
    elif isinstance(cluster, str | Path):
        cluster = load_cluster(cluster)
    elif isinstance(cluster, Mapping):
        cluster = _cluster_of(cluster, "cluster=")
    if cluster is not None:
        _refuse_settings(settings, "cluster", "change what hetsim.load_cluster(...) gives")
    found = []
    try:
        for scheduler in schedulers:
            name, options = scheduler if isinstance(scheduler, tuple) else (scheduler, {})
            path = _class_path(name)
            own = [f"scheduler={path}"]
            own += [f"++scheduler.options.{k}={value_text(v)}" for k, v in options.items()]
            cells = compose_grid([*words, *own], folders).cells
            if len(cells) != 1:
                raise InvalidInput(
                    f"These settings are of {len(cells)} runs; give single values, or sweep them: python -m "
                    "experiments.sweep"
                )
            found.append(cells[0].scenario)
    except (HydraException, OmegaConfBaseException) as error:
        raise InvalidInput(readable(error, folders)) from None
    if isinstance(cluster, ClusterConfig):
        found = [dataclasses.replace(one, cluster=cluster) for one in found]
    return found, folders


def _refuse_settings(settings: Mapping[str, Any], group: str, way_out: str) -> None:
    for key in settings:
        if key.startswith(f"{group}."):
            raise InvalidInput(
                f"settings cannot change {key}, since the {group} is an object; {way_out}"
            )


def _model_words(model: Any, inputs: Any) -> list[str]:
    """The words of the command line that choose a model; a graph is kept as a file, found by its digest."""
    if isinstance(model, DataflowGraph):
        return _graph_words(model)
    if isinstance(model, Path) or (isinstance(model, str) and Path(model).suffix):
        path = Path(model).expanduser()
        if not path.exists():
            raise InvalidInput(f"There is no file {path}; names of models: hetsim.models()")
        return _graph_words(read_graph_file(path)) if holds_graph(path) else [f"instance={path}"]
    if isinstance(model, str):
        if inputs is not None:
            raise InvalidInput(f"inputs= is of a module; model '{model}' brings its own")
        return [f"model={model}"]
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        return _graph_words(_traced(model, inputs))
    raise InvalidInput(
        f"A model is a name of hetsim.models(), a file, a torch.nn.Module with inputs=, or a DataflowGraph; not a "
        f"{type(model).__name__}"
    )


def _traced(module: Any, inputs: Any) -> DataflowGraph:
    from scenarios.tracing import trace_model

    name = type(module).__name__
    if inputs is None:
        raise InvalidInput(f"{name} is a module: give example inputs, inputs=[tensor, ...]")
    if isinstance(inputs, Mapping):
        return trace_model(module, (), kwargs=dict(inputs), name=name)
    args = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
    return trace_model(module, args, name=name)


def _graph_words(graph: DataflowGraph) -> list[str]:
    from experiments.runs.grid import value_text
    from scenarios.graph_cache import GraphCache

    cache, key = GraphCache(), f"given-{graph.digest}"
    if not cache.path(key).exists():
        cache.store(key, graph.to_json())
    name, file = value_text(graph.name), value_text(str(cache.path(key)))
    return ["model=from_graph", f"model.name={name}", f"model.graph={file}"]


def _class_path(scheduler: str | type[Scheduler]) -> str:
    """What stands behind ``scheduler=`` for a name or a class."""
    if isinstance(scheduler, str):
        return scheduler
    given: Any = scheduler
    if not (isinstance(given, type) and issubclass(given, Scheduler)):
        what = given.__name__ if isinstance(given, type) else type(given).__name__
        raise InvalidInput(
            f"A scheduler is a name of hetsim.schedulers() or a subclass of hetsim.Scheduler, and {what} is neither"
        )
    if scheduler.name and scheduler.__module__.startswith("simulator.schedulers."):
        return scheduler.name
    # A class of a notebook or a session lies in no file that could be imported again.
    yours = sys.modules.setdefault(
        _YOURS, ModuleType(_YOURS, "Classes that were given as objects.")
    )
    # Two classes of one name are two schedulers.
    name = f"{scheduler.__name__}_{id(scheduler):x}"
    setattr(yours, name, scheduler)
    return f"{_YOURS}.{name}"


def class_of(scheduler: str | type[Scheduler]) -> type[Scheduler]:
    """The class of a name or a class path; a class is its own.

    Raises:
        InvalidInput: there is no such scheduler.
    """
    from simulator.schedulers import resolve

    return resolve(scheduler) if isinstance(scheduler, str) else scheduler


__all__ = ["class_of", "load_cluster", "scenarios_of"]
