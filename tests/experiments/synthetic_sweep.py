"""Random layered models on two cores and a card, really simulated: what a sweep would have left."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simulator import schedulers
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload

KINDS = ("conv2d", "batch_norm", "relu", "add", "linear", "cat", "max_pool2d", "softmax", "mul")
SCHEDULERS = ("fcfs", "donf", "heft", "sufferage", "single_device")


def layered_graph(name: str, layers: int, width: int, seed: int) -> DataflowGraph:
    """Layers of up to ``width`` operators; each reads one or two of the layer before."""
    rng = np.random.default_rng(seed)
    widths = [1, *rng.integers(1, width + 1, layers - 2).tolist(), 1]
    first = np.concatenate([[0], np.cumsum(widths)]).tolist()
    edges = []
    for layer in range(1, layers):
        before = range(first[layer - 1], first[layer])
        read = set()
        for task in range(first[layer], first[layer + 1]):
            for parent in rng.choice(before, min(len(before), 2), replace=False).tolist():
                edges.append((parent, task, float(rng.uniform(1e5, 4e6))))
                read.add(parent)
        # Whatever nobody reads goes to the layer's first operator, so that the graph has one exit.
        edges += [(parent, first[layer], 1e5) for parent in before if parent not in read]
    graph = from_edges(name, first[-1], edges)
    kinds = rng.choice(KINDS, len(graph), p=np.array([6, 4, 4, 2, 1, 1, 1, 0.5, 0.5]) / 20)
    operators = [
        replace(operator, kind=str(kind), name=f"{kind}_{index}")
        for index, (operator, kind) in enumerate(zip(graph.operators, kinds, strict=True))
    ]
    return DataflowGraph(name, operators, graph.tensors, graph.reads, graph.writes)


def core_and_card_cluster(name: str = "cpu2_gpu1", bandwidth: float = 12e9) -> Cluster:
    """Two cores of one memory and a card behind PCIe."""
    return Cluster(
        name,
        [MemorySpace("ram"), MemorySpace("vram")],
        [
            Device("cpu0", "ram", "amd-epyc-25-17-1core"),
            Device("cpu1", "ram", "amd-epyc-25-17-1core"),
            Device("gpu0", "vram", "tesla-t4"),
        ],
        [Link("pcie", ("ram", "vram"), bandwidth, 1e-5)],
        host="ram",
        labels={"amd-epyc-25-17-1core": "measured", "tesla-t4": "datasheet"},
    )


def random_costs(graph: DataflowGraph, cluster: Cluster, seed: int) -> np.ndarray:
    """Seconds [operators, devices]: equal cores, a card about three times as fast."""
    rng = np.random.default_rng(seed)
    core = rng.lognormal(np.log(1e-3), 0.7, len(graph))
    card = core / rng.lognormal(np.log(2.5), 0.8, len(graph))
    return np.stack([card if d.name.startswith("gpu") else core for d in cluster.devices], axis=1)


def correlated_draws(
    graph: DataflowGraph, seconds: np.ndarray, cluster: Cluster, count: int, seed: int
) -> Iterator[np.ndarray]:
    """Actual seconds: one error for each (profile, kind), and noise for each operator."""
    rng = np.random.default_rng(seed)
    kinds = sorted({operator.kind for operator in graph.operators})
    kind = np.array([kinds.index(operator.kind) for operator in graph.operators])
    profiles = sorted({str(device.profile) for device in cluster.devices})
    profile = np.array([profiles.index(str(device.profile)) for device in cluster.devices])
    for _ in range(count):
        error = rng.normal(0, 0.12, (len(kinds), len(profiles)))
        noise = rng.normal(0, 0.03, seconds.shape)
        yield seconds * np.exp(error[kind][:, profile] + noise)


def run(graph: DataflowGraph, cluster: Cluster, seconds: np.ndarray, name: str, **kw: Any) -> Trace:
    """One simulated run of a scheduler of the library."""
    return simulate(
        graph,
        cluster,
        CostTable.of(graph, seconds),
        schedulers.create(name),
        contention="fifo",
        **kw,
    )


def two_job_trace(
    seed: int = 0, contention: str = "none", layers: int = 6, width: int = 4
) -> Trace:
    """Two jobs of one layered graph, the second arriving while the first runs."""
    graph, cluster = layered_graph("layered", layers, width, seed), core_and_card_cluster()
    table = CostTable.of(graph, random_costs(graph, cluster, seed))
    jobs = [
        Job(graph, arrival=arrival, origin="ram", destination="ram") for arrival in (0.0, 0.002)
    ]
    return simulate(
        Workload(jobs), cluster, table, schedulers.create("donf"), contention=contention
    )


def sweep_rows(
    models: Sequence[tuple[str, int, int]] = (
        ("branches", 20, 6),
        ("narrow", 25, 2),
        ("chain", 20, 1),
    ),
    names: Sequence[str] = SCHEDULERS,
    seeds: Sequence[int] = (0,),
    draws: int = 50,
    cells: Path | None = None,
    cluster: Cluster | None = None,
) -> pd.DataFrame:
    """One row a cell in the columns of a sweep's results; traces go to ``cells``/<cell>."""
    cluster = cluster or core_and_card_cluster()
    rows = []
    for number, (model, layers, width) in enumerate(models):
        for seed in seeds:
            graph = layered_graph(model, layers, width, seed)
            seconds = random_costs(graph, cluster, 100 * number + seed)
            fastest = seconds.min(axis=1)
            end = np.zeros(len(graph))
            for task, before in enumerate(graph.predecessors):
                end[task] = fastest[task] + max((end[i] for i in before), default=0.0)
            alone = run(graph, cluster, seconds, "single_device")
            actual = list(correlated_draws(graph, seconds, cluster, draws, seed))
            for name in names:
                trace = run(graph, cluster, seconds, name)
                sample = [
                    run(graph, cluster, seconds, name, actual=CostTable.of(graph, a)).makespan
                    for a in actual
                ]
                low, high = np.percentile(sample, [2.5, 97.5]) if sample else (np.nan, np.nan)
                cell = f"{model}-{name}-{seed}"
                busy = (trace.executions["finish"] - trace.executions["start"]).sum()
                rows.append(
                    {
                        "cell": cell,
                        "status": "done",
                        "error": "",
                        "model": model,
                        "batch": 1,
                        "cluster": cluster.name,
                        "scheduler": name,
                        "workload": "single",
                        "movement": "push",
                        "contention": "fifo",
                        "seed_workload": seed,
                        "seed_noise": 0,
                        "seed_search": 0,
                        "makespan_s": trace.makespan,
                        "makespan_low_s": low,
                        "makespan_high_s": high,
                        "bound_s": end.max(),
                        "critical_path_s": end.max(),
                        "best_device": trace.devices[alone.executions["device"][0]],
                        "best_device_s": alone.makespan,
                        "utilisation": busy / trace.makespan / len(cluster.devices),
                        "extrapolated_share": 0.02 * number,
                        "profiles": "2x amd-epyc-25-17-1core (measured), 1x tesla-t4 (datasheet)",
                        "decision_s": 0.001,
                        "wall_s": 0.01,
                        "draws": sample or None,
                    }
                )
                if cells is not None:
                    trace.save(cells / cell)
    return pd.DataFrame(rows)


def grid_rows(
    makespan: Callable[..., float],
    axes: Mapping[str, Sequence[Any]],
    seeds: Sequence[int] = range(3),
    **facts: Any,
) -> tuple[pd.DataFrame, dict[str, dict[str, str]]]:
    """A sweep over a grid, nothing simulated: makespans by a formula of the axes and the seed.

    Args:
        makespan: takes the values of all axes in their order, then the seed; seconds.
        axes: keys as in a sweep -> values. Options of models and schedulers show in labels, as in
            real sweeps; whatever else has no column of its own shows in the choices alone.
        seeds: ``seed.workload``.
        facts: columns that are the same in every row.

    Returns:
        The rows, and the choices of ``grid.yaml``.
    """
    rows, choices = [], {}
    for *values, seed in itertools.product(*axes.values(), seeds):
        chosen = dict(zip(axes, values, strict=True))
        labels = {"model": "daggen", "cluster": "c", "scheduler": "donf", "workload": "single"}
        for group in labels:
            labels[group] = chosen.get(group, labels[group])
            prefix = f"{group}.options." if group == "scheduler" else f"{group}."
            own = [
                f"{axis.removeprefix(prefix)}={value}"
                for axis, value in chosen.items()
                if axis.startswith(prefix) and value != "default"
            ]
            labels[group] += f"({', '.join(own)})" if own else ""
        cell = f"{len(rows):012x}"
        seconds = makespan(*values, seed)
        rows.append(
            {
                "cell": cell,
                "status": "done",
                "batch": 1,
                **labels,
                "movement": "push",
                "contention": chosen.get("simulation.contention", "fifo"),
                "noise": chosen.get("simulation.noise", "none"),
                "cost_model": "boosted",
                "seed_workload": seed,
                "makespan_s": seconds,
                "bound_s": 0.5,
                "critical_path_s": 0.4,
                "best_device": "gpu0",
                "best_device_s": 4.0,
                "utilisation": 0.5,
                "extrapolated_share": 0.0,
                "profiles": "2x amd-epyc-25-17-1core (measured)",
                "decision_s": 1e-4 * len(labels["scheduler"]),
                "wall_s": 0.01,
                **facts,
            }
        )
        choices[cell] = {axis: str(value) for axis, value in chosen.items()}
        choices[cell]["seed.workload"] = str(seed)
    return pd.DataFrame(rows), choices


def write_sweep(folder: Path, rows: pd.DataFrame, **manifest: Any) -> Path:
    """A sweep's folder with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(folder / "results.parquet")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
