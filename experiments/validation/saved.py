"""Validations in files small enough to be committed, from which every figure can be worked out again.

``validation.json``
    the command, versions, machine, digests of profiles, for each model its cluster and for each case its
    scenario, prediction and interval, and the figures of the report;
``graphs.parquet``
    a model a row: its graph as JSON;
``times.parquet``
    an operator on a device a row: seconds as predicted and as measured alone;
``repeats.parquet``
    a measured run a row: its makespan;
``draws.parquet``
    a draw of a case a row: its makespan; not in folders of releases that did not keep them;
``traces.parquet``, ``runs.parquet``
    of every case the simulated run and the measured one (:mod:`experiments.validation.compact_traces`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.probes.cache_now import curves_json, curves_of
from experiments.probes.machine_speed import cooling_of, reading_of
from experiments.probes.overhead import Overhead, with_overhead
from experiments.runs import atomic
from experiments.runs.configs import Scenario
from experiments.runs.provenance import code_digest, revision, versions
from experiments.runs.results import read_document
from experiments.runs.trust import admit
from experiments.validation.cases import Case, ModelValidation, Validation, statistic_of
from experiments.validation.compact_traces import TICK, read_traces, write_traces
from experiments.validation.contestants import Contestant, contestant
from experiments.validation.waterfall import ErrorSteps, error_steps
from scenarios.arrivals import build_workload
from simulator.errors import HetsimError, InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.trace import Trace
from simulator.model.weight_hit_curve import ReuseCurve, shares_taken

FORMAT = "hetsim.validation/2"
DRAWS = "draws.parquet"


def save_validation(
    validation: Validation, folder: Path, command: str, figures: Mapping[str, Any]
) -> None:
    """Write the files, ``validation.json`` last.

    Args:
        validation: with at least one case.
        folder: made if it is not there.
        command: that repeats it.
        figures: of its report, as :mod:`experiments.validation.report` has them.
    """
    models = validation.models
    traces, repeats, draws = {}, [], []
    for model in models:
        for one, case in zip(model.contestants, model.cases, strict=True):
            traces[f"{one.key} simulated"] = case.simulated
            traces[f"{one.key} measured"] = case.measured
            repeats += [(one.key, makespan) for makespan in case.repeats_s.tolist()]
            draws += [(one.key, makespan) for makespan in case.draws_s.tolist()]
    graphs = [
        {"model": model.key, "graph": json.dumps(model.graph.to_json(), sort_keys=True)}
        for model in models
    ]
    times = [
        (
            model.key,
            operator,
            device,
            model.costs.seconds[operator, device],
            None if model.costs.cached is None else model.costs.cached[operator, device],
            model.alone[operator, device],
            slowness[operator, device],
            slowed[operator, device],
        )
        for model in models
        for slowness, slowed in [
            [np.broadcast_to(f, model.alone.shape) for f in (model.slowness, model.slowed)]
        ]
        for operator in range(len(model.graph))
        for device in range(len(model.devices))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "graphs.parquet", ("model", "graph"), [tuple(row.values()) for row in graphs])
    columns = (
        "model",
        "operator",
        "device",
        "predicted_s",
        "cached",
        "alone_s",
        "slowness",
        "slowed",
    )
    _write(folder / "times.parquet", columns, times)
    _write(folder / "repeats.parquet", ("case", "makespan_s"), repeats)
    if draws:
        _write(folder / DRAWS, ("case", "makespan_s"), draws)
    else:
        (folder / DRAWS).unlink(missing_ok=True)
    write_traces(folder, traces)
    atomic.write_json(folder / "validation.json", _document(validation, command, figures))


def _document(validation: Validation, command: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "command": command,
        "versions": versions(),
        "revision": revision(),
        "code": code_digest(),
        "cores": len(os.sched_getaffinity(0)),
        **figures,
        "models": [
            {
                "model": model.model,
                "key": model.key,
                "graph": model.graph.digest,
                "operators": len(model.graph),
                "cluster": cluster_document(model.cluster),
                "profiles": model.profiles,
                "profile_digests": dict(model.profile_digests),
                "profile_differences": list(model.differences),
                "statistic": model.statistic,
                "repeats": model.repeats,
                "busy_cores_before": model.busy,
                "machine": dict(model.machine),
                "corun": model.corun,
                "noise": model.noise,
                "reuse": curves_json(model.reuse),
                "scenario": _common(model),
                "contestants": [
                    {
                        "key": one.key,
                        "scheduler": case.scheduler,
                        "jobs": case.jobs,
                        "scenario": {
                            key: value
                            for key, value in one.scenario.document().items()
                            if key not in _common(model)
                        },
                        "simulated_s": case.simulated_s,
                        "low_s": case.low_s,
                        "high_s": case.high_s,
                        "unseen_s": case.unseen_s,
                        **case.overhead.to_json(),
                        "believed": case.believed and case.believed.to_json(),
                    }
                    for one, case in zip(model.contestants, model.cases, strict=True)
                ],
            }
            for model in validation.models
        ],
    }


def _common(model: ModelValidation) -> dict[str, Any]:
    """What the scenarios of all contestants of a model say alike."""
    first, *others = (one.scenario.document() for one in model.contestants)
    return {
        key: value
        for key, value in first.items()
        if all(other.get(key) == value for other in others)
    }


def load_validation(
    folder: Path, config_dirs: Sequence[Path] = (), trust: bool = False
) -> tuple[Validation, dict[str, Any]]:
    """What :func:`save_validation` wrote, everything that can be worked out anew worked out anew.

    Args:
        folder: of the files.
        config_dirs: the user's configs, where its schedulers or models are of them.
        trust: whether code that the folder alone names may run.

    Returns:
        The validation, and ``validation.json``.

    Raises:
        InvalidInput: a file is missing, damaged, or does not fit the others; or they name code.
    """
    document = read_document(folder / "validation.json")
    if document.get("format") != FORMAT:
        raise InvalidInput(
            f"{folder / 'validation.json'} is of format {document.get('format')!r}, not '{FORMAT}': it "
            "has no traces to check; validate again"
        )
    try:
        files = _Files.read(folder, document["models"])
        models = [_model(entry, files, config_dirs) for entry in document["models"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{folder / 'validation.json'} is damaged: {type(error).__name__} {error}"
        ) from None
    contestants = (one for model in models for one in model.contestants)
    admit((one.scenario for one in contestants), folder, config_dirs, trust)
    return Validation(models), document


@dataclass(frozen=True)
class _Files:
    """What stands beside ``validation.json``, read once for all models.

    Attributes:
        graphs, times: by the model's key.
        repeats, draws: measured and drawn makespans by the case's key.
        traces: by the case's key and the world.
    """

    folder: Path
    graphs: Mapping[str, DataflowGraph]
    times: Mapping[str, Sequence[Mapping[str, Any]]]
    repeats: Mapping[str, Sequence[float]]
    draws: Mapping[str, Sequence[float]]
    traces: Mapping[str, Trace]

    @classmethod
    def read(cls, folder: Path, models: Sequence[Mapping[str, Any]]) -> _Files:
        """Read them; the models are those of the document."""
        texts: dict[str, list[str]] = {}
        for row in _read(folder / "graphs.parquet"):
            texts.setdefault(row["model"], []).append(row["graph"])
        times: dict[str, list[Mapping[str, Any]]] = {}
        for row in _read(folder / "times.parquet"):
            times.setdefault(row["model"], []).append(row)
        repeats = _makespans(folder / "repeats.parquet")
        draws = _makespans(folder / DRAWS) if (folder / DRAWS).exists() else {}
        graphs = {entry["key"]: _graph(entry, texts, folder) for entry in models}
        traces = read_traces(
            folder,
            {
                f"{row['key']} {world}": [graphs[entry["key"]]] * row["jobs"]
                for entry in models
                for row in entry["contestants"]
                for world in ("simulated", "measured")
            },
        )
        return cls(folder, graphs, times, repeats, draws, traces)


def _makespans(path: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in _read(path):
        found.setdefault(row["case"], []).append(row["makespan_s"])
    return found


def _graph(
    entry: Mapping[str, Any], texts: Mapping[str, Sequence[str]], folder: Path
) -> DataflowGraph:
    found = texts.get(entry["key"], ())
    if len(found) != 1:
        raise InvalidInput(
            f"{folder / 'graphs.parquet'} has {len(found)} graphs of '{entry['key']}', not one"
        )
    graph = DataflowGraph.from_json(json.loads(found[0]))
    if graph.digest != entry["graph"]:
        raise InvalidInput(f"The graph of '{entry['model']}' in {folder} is not the one that ran")
    return graph


def _model(entry: Mapping[str, Any], files: _Files, config_dirs: Sequence[Path]) -> ModelValidation:
    key = entry["key"]
    graph = files.graphs[key]
    cluster = cluster_of(entry["cluster"])
    shape = (len(graph), len(cluster.devices))
    predicted, cached, alone = (np.full(shape, np.nan) for _ in range(3))
    # Before there was a panel of operators, one was timed on each device.
    slowness = np.broadcast_to(entry["machine"].get("slowness", np.nan), shape).copy()
    slowed = np.broadcast_to(np.array(entry.get("slowed") or 1.0), shape).copy()
    for row in files.times.get(key, ()):
        at = row["operator"], row["device"]
        predicted[at], alone[at] = row["predicted_s"], row["alone_s"]
        cached[at] = _number(row.get("cached"))
        if "slowed" in row:
            slowness[at], slowed[at] = _number(row["slowness"]), row["slowed"]
    costs = GraphCosts(predicted, cached=None if np.isnan(cached).all() else cached)
    corun, reuse = entry.get("corun"), curves_of(entry.get("reuse", {}))
    actual = CostTable({graph: costs}).scaled(slowed)
    contestants, cases = [], []
    for row in entry["contestants"]:
        scenario = scenario_of({**entry["scenario"], **row["scenario"]})
        repeats_s = np.array(files.repeats[row["key"]])
        measured_s = float(statistic_of(repeats_s, entry["statistic"]))
        simulated, measured = (files.traces[f"{row['key']} {w}"] for w in ("simulated", "measured"))
        if abs(simulated.makespan - row["simulated_s"]) > TICK:
            raise InvalidInput(
                f"The simulated trace of '{row['scheduler']}' on '{entry['model']}' in {files.folder} "
                f"does not end at {row['simulated_s']} s but at {simulated.makespan} s"
            )
        contestants.append(_saved_contestant(row["key"], scenario, config_dirs))
        overhead = Overhead.of_json(row)
        cases.append(
            Case(
                entry["model"],
                row["scheduler"],
                simulated,
                measured,
                row["simulated_s"],
                _number(row["low_s"]),
                _number(row["high_s"]),
                _number(row["unseen_s"]),
                repeats_s,
                measured_s,
                ErrorSteps(
                    partial(
                        error_steps,
                        build_workload(
                            scenario.workload, graph, cluster.host, scenario.seed.workload
                        ),
                        with_overhead(
                            cluster,
                            overhead,
                            entry["machine"].get("handover_s"),
                            corun,
                            {space: curves[0] for space, curves in reuse.items()},
                            cooling_of(entry["machine"].get("speed") or {}),
                            reading_of(entry["machine"].get("speed") or {}),
                        ),
                        actual,
                        row["simulated_s"],
                        measured,
                        measured_s,
                        {graph: alone},
                        scenario.simulation.movement,
                        scenario.simulation.contention,
                    )
                ),
                row["jobs"],
                overhead,
                np.array(files.draws.get(row["key"], ()), dtype=np.float64),
                Overhead.of_json(row["believed"]) if row.get("believed") else None,
            )
        )
    return ModelValidation(
        entry["model"],
        key,
        graph,
        cluster,
        tuple(contestants),
        tuple(cases),
        costs,
        alone,
        entry["statistic"],
        entry["profiles"],
        entry["profile_digests"],
        _number(entry["busy_cores_before"]),
        tuple(entry["profile_differences"]),
        entry["machine"],
        slowness,
        slowed,
        corun,
        entry.get("noise", 0.0),
        reuse,
    )


def _saved_contestant(key: str, scenario: Scenario, config_dirs: Sequence[Path]) -> Contestant:
    """The contestant with the key that it had: profiles may have changed since."""
    from experiments.runs.cell import label_of, scheduler_of

    return Contestant(
        label_of(scenario, config_dirs),
        scenario,
        lambda: scheduler_of(scenario, config_dirs),
        key,
    )


def present_contestant(saved: Contestant, config_dirs: Sequence[Path]) -> Contestant | str:
    """The same contestant as it would run today, or why it would not."""
    try:
        return contestant(saved.scenario, config_dirs)
    except HetsimError as error:
        return str(error)


def scenario_of(document: Mapping[str, Any]) -> Scenario:
    """A scenario from its document (:meth:`Scenario.document`).

    Scenarios share the sections that their documents have alike.

    Raises:
        InvalidInput: it does not fit what a scenario holds today.
    """
    try:
        return Scenario(**{key: _section(key, json.dumps(document[key])) for key in document})
    except (OmegaConfBaseException, TypeError) as error:
        raise InvalidInput(
            f"The scenario is not of the present form: {' '.join(str(error).split())}"
        ) from None


@lru_cache(maxsize=512)
def _section(key: str, text: str) -> Any:
    """What a scenario holds under a key, from its JSON; checking it takes OmegaConf milliseconds."""
    merged = OmegaConf.merge(OmegaConf.structured(Scenario), {key: json.loads(text)})
    assert isinstance(merged, DictConfig)
    section = merged[key]
    return OmegaConf.to_object(section) if OmegaConf.is_config(section) else section


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """A cluster as JSON; infinities become null."""
    return {
        "name": cluster.name,
        "host": cluster.host,
        "labels": dict(cluster.labels),
        "spaces": [asdict(space) for space in cluster.spaces],
        "devices": [asdict(device) for device in cluster.devices],
        "links": [asdict(link) for link in cluster.links],
    }


def cluster_of(document: Mapping[str, Any]) -> Cluster:
    """The cluster of :func:`cluster_document`'s form."""
    spaces = [
        MemorySpace(
            **{
                **row,
                "capacity": np.inf if row["capacity"] is None else row["capacity"],
                "cache": None if row.get("cache") is None else _curve(row["cache"]),
            }
        )
        for row in document["spaces"]
    ]
    links = [
        Link(
            **{
                **row,
                "ends": tuple(row["ends"]),
                "bandwidth": np.inf if row["bandwidth"] is None else row["bandwidth"],
            }
        )
        for row in document["links"]
    ]
    devices = [
        Device(
            **{
                **row,
                "launch_cooling": _cooling(row.get("launch_cooling")),
                "far_inputs": _reading(row.get("far_inputs")),
            }
        )
        for row in document["devices"]
    ]
    return Cluster(document["name"], spaces, devices, links, document["host"], document["labels"])


def _cooling(document: Mapping[str, Any] | None) -> CoolingCurve | None:
    if document is None:
        return None
    return CoolingCurve(tuple(document["after"]), tuple(document["factors"]))


def _reading(document: Mapping[str, Any] | None) -> ReadingCurve | None:
    return None if document is None else ReadingCurve.from_json(document)


def _curve(document: Mapping[str, Any]) -> ReuseCurve:
    taken = shares_taken(document.get("taken", 1.0))  # saved before there was any
    return ReuseCurve(tuple(document["distances"]), tuple(document["kept"]), taken)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _write(path: Path, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    with atomic.replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=19)


def _read(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidInput(f"Cannot read {path}: {error}; was it truncated?") from None
    return rows
