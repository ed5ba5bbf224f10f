"""Random graphs, clusters, times, workloads and schedulers for property tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.noise import LogNormalNoise, NoiseModel
from simulator.model.operator import UPDATED, Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.scripted import Erratic, RandomPacks, RandomPlan

# Whole numbers make events coincide, the others make sums round, zeros make rounds in one instant.
SECONDS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 0.1, 0.7, 3.3, 1e-3])
SIZES = st.sampled_from([0.0, 1.0, 2.0, 4.0, 0.3, 7.7, 12.0])


@st.composite
def graphs(draw: st.DrawFn, operators: int = 10, weights: int = 1) -> DataflowGraph:
    """A graph of up to ``operators`` operators that share tensors, read inputs and up to ``weights``
    weights, of which it changes some.
    """
    tensors: list[Tensor] = []
    for role, most in (("input", 2), ("weight", weights)):
        sizes = draw(st.lists(SIZES, max_size=most))
        tensors += [Tensor(f"{role}{i}", role, size) for i, size in enumerate(sizes)]  # type: ignore[arg-type]
    reads, writes, names = [], [], []
    for o in range(draw(st.integers(1, operators))):
        known = list(range(len(tensors)))
        reads.append(
            draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        )
        count = draw(st.integers(0, 2))
        writes.append(list(range(len(tensors), len(tensors) + count)))
        tensors += [Tensor(f"o{o}.{i}", "activation", draw(SIZES)) for i in range(count)]
        names.append(f"o{o}")
    written = [t for t, tensor in enumerate(tensors) if tensor.role == "activation"]
    for tensor in [tensor for tensor in tensors if tensor.role == "weight"] if written else []:
        if draw(st.booleans()):
            became = written.pop(draw(st.integers(0, len(written) - 1)))
            tensors[became] = replace(tensors[became], name=f"{tensor.name}{UPDATED}")
            if not written:
                break
    written = [t.name for t in tensors if t.role == "activation"]
    results = draw(st.lists(st.sampled_from(written), max_size=3, unique=True)) if written else []
    return DataflowGraph(
        "random",
        [Operator(name, "task") for name in names],
        tensors,
        reads,
        writes,
        [{"tensor": name, "views": []} for name in results],
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A connected cluster of up to 4 memory spaces, 4 devices and 6 links."""
    spaces = draw(st.integers(1, 4))
    names = [f"s{i}" for i in range(spaces)]
    # A tree joins all spaces; the rest are extra links. No two are equally wide: routes are unique.
    ends = [(draw(st.integers(0, i - 1)), i) for i in range(1, spaces)]
    if spaces > 1:
        pairs = st.tuples(st.integers(0, spaces - 1), st.integers(0, spaces - 1))
        ends += draw(st.lists(pairs.filter(lambda p: p[0] != p[1]), max_size=2))
    widths = draw(st.permutations([1.0, 2.0, 3.0, 0.7, 10.0, 1.9]))
    latency = st.sampled_from([0.0, 0.0, 1.0, 0.25])
    links = [
        Link(f"l{i}", (names[a], names[b]), widths[i], draw(latency), draw(st.booleans()))
        for i, (a, b) in enumerate(ends)
    ]
    devices = [
        Device(
            f"d{i}",
            draw(st.sampled_from(names)),
            slots=draw(st.sampled_from([1, 1, 2, 3])),
            launch_overhead=draw(st.sampled_from([0.0, 0.0, 0.5])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    host = draw(st.sampled_from([None, names[0]]))
    return Cluster("random", [MemorySpace(name) for name in names], devices, links, host)


@st.composite
def seconds_of(draw: st.DrawFn, graph: DataflowGraph, devices: int) -> np.ndarray:
    """Times [operators, devices], some of them ``inf``."""
    rows = []
    for _ in range(len(graph)):
        row = [draw(SECONDS) for _ in range(devices)]
        able = draw(st.integers(0, devices - 1))
        if draw(st.integers(0, 5)) == 0:
            row = [s if d == able else math.inf for d, s in enumerate(row)]
        rows.append(row)
    return np.array(rows)


@dataclass(repr=False)
class Case:
    """Everything that a run needs; ``scheduler()`` makes a fresh one."""

    workload: Workload
    cluster: Cluster
    costs: CostTable
    actual: CostTable | NoiseModel | None
    scheduler: Callable[[], Scheduler]
    movement: str
    contention: str
    seed: int
    scheduler_name: str

    def run(self, scheduler: Scheduler | None = None, **settings: Any) -> Trace:
        """Simulate it, with other ``settings`` than its own where they are given."""
        own = {
            "actual": self.actual,
            "movement": self.movement,
            "contention": self.contention,
            "seed": self.seed,
        }
        return simulate(
            self.workload,
            self.cluster,
            self.costs,
            scheduler or self.scheduler(),
            **(own | settings),
        )

    def __repr__(self) -> str:
        jobs = [
            f"{job.arrival} s {job.origin}->{job.destination}: reads {job.graph.reads}, writes "
            f"{job.graph.writes}, bytes {job.graph.tensor_bytes.tolist()}, believed "
            f"{self.costs[job.graph].seconds.tolist()}"
            for job in self.workload
        ]
        devices = [(d.space, d.slots, d.launch_overhead) for d in self.cluster.devices]
        links = [(*k.ends, k.bandwidth, k.latency, k.half_duplex) for k in self.cluster.links]
        lines = [
            f"{self.scheduler_name} {self.movement} {self.contention} seed {self.seed}",
            f"devices {devices}, links {links}",
            *jobs,
            f"actual {[seconds.tolist() for seconds in self.actual_seconds()]}",
        ]
        return "\n".join(lines)

    def actual_seconds(self) -> list[np.ndarray]:
        """For each job the seconds that happen, worked out apart from the engine."""
        rng = np.random.default_rng(self.seed)
        rows = []
        for job in self.workload:
            if self.actual is None:
                rows.append(self.costs[job.graph].seconds)
            elif isinstance(self.actual, CostTable):
                rows.append(self.actual[job.graph].seconds)
            else:
                believed = self.costs[job.graph]
                rows.append(self.actual.realise(job.graph, believed, rng, job.arrival))
        return rows


SCHEDULERS: dict[str, Callable[[int], Scheduler]] = {
    "erratic": lambda seed: Erratic(seed, only_ready=False),
    "erratic-ready": lambda seed: Erratic(seed, only_ready=True),
    "fcfs": lambda seed: create("fcfs"),
    "donf": lambda seed: create("donf", pricing="contention_aware"),
    "adon": lambda seed: create("adon", pricing="per_edge"),
    "sufferage": lambda seed: create("sufferage"),
    "sufferage-remap": lambda seed: create("sufferage", remap=True),
    "sufferage_one": lambda seed: create("sufferage_one", pricing="per_edge_aware"),
    "min_min": lambda seed: create("min_min"),
    "max_min-remap": lambda seed: create("max_min", remap=True),
    "duplex": lambda seed: create("duplex", pricing="contention_aware"),
    "mct": lambda seed: create("mct", pricing="per_edge_aware"),
    "met": lambda seed: create("met"),
    "cache_affinity": lambda seed: create("cache_affinity", pricing="contention_aware"),
    "olb": lambda seed: create("olb"),
    "sjf": lambda seed: create("sjf"),
    "sjf-at-once": lambda seed: create("sjf", hold=False),
    "round_robin": lambda seed: create("round_robin"),
    "random": lambda seed: create("random", seed=seed),
    "work_stealing": lambda seed: create("work_stealing", victim="random", seed=seed),
    "work_stealing-near": lambda seed: create(
        "work_stealing", home="data", victim="nearest", owner="oldest", gain=True
    ),
    "donf_light": lambda seed: create("donf_light"),
    "donf_memory": lambda seed: create("donf_memory", threshold=0.5),
}
LISTS: dict[str, Callable[[int], Scheduler]] = {
    "heft": lambda seed: create("heft"),
    "heft-append": lambda seed: create("heft", insertion=False),
    "cpop": lambda seed: create("cpop"),
    "peft": lambda seed: create("peft"),
    "pets": lambda seed: create("pets"),
    "hcpt-append": lambda seed: create("hcpt", insertion=False),
    "hsip": lambda seed: create("hsip"),
    "mcp-append": lambda seed: create("mcp", insertion=False),
    "lookahead": lambda seed: create("lookahead"),
    "etf": lambda seed: create("etf"),
    "etf-insertion": lambda seed: create("etf", insertion=True),
    "dls": lambda seed: create("dls"),
}
"""Planned list schedulers."""
READY_LISTS: dict[str, Callable[[int], Scheduler]] = {
    "dynamic_heft": lambda seed: create("dynamic_heft"),
    "dynamic_cpop": lambda seed: create("dynamic_cpop"),
    "dynamic_peft": lambda seed: create("dynamic_peft", pricing="contention_aware"),
    "dynamic_pets": lambda seed: create("dynamic_pets"),
    "dynamic_hcpt": lambda seed: create("dynamic_hcpt", pricing="per_edge"),
    "dynamic_hsip": lambda seed: create("dynamic_hsip"),
    "dynamic_mcp": lambda seed: create("dynamic_mcp"),
    "dynamic_lookahead": lambda seed: create("dynamic_lookahead"),
    "dynamic_etf": lambda seed: create("dynamic_etf", pricing="contention_aware"),
    "dynamic_dls": lambda seed: create("dynamic_dls"),
}
"""Their on-line forms."""
SCHEDULERS |= LISTS | READY_LISTS
STATIC: dict[str, Callable[[int], Scheduler]] = {"random-plan": RandomPlan, **LISTS}
PACKING: dict[str, Callable[[int], Scheduler]] = {
    "packed-donf": lambda seed: create("packed", scheduler="donf"),
    "packed-fcfs": lambda seed: create("packed", scheduler="fcfs"),
    "packed-heft": lambda seed: create("packed", scheduler="heft"),
    "packs-erratic": lambda seed: RandomPacks(Erratic(seed, only_ready=False), seed),
    "packs-erratic-ready": lambda seed: RandomPacks(Erratic(seed, only_ready=True), seed),
    "packs-plan": lambda seed: RandomPacks(RandomPlan(seed), seed),
}
ONLINE = (
    *("fcfs", "donf", "adon", "sufferage", "sufferage_one", "min_min", "mct", "met", "olb", "sjf"),
    *("sjf-at-once", "round_robin", "random", "donf_light", "donf_memory"),
    *READY_LISTS,
)
"""Schedulers that only append ready tasks to queues."""


@st.composite
def cases(
    draw: st.DrawFn,
    schedulers: tuple[str, ...] = tuple(SCHEDULERS),
    exact: bool = False,
    contentions: tuple[str, ...] = ("none", "fifo"),
    weights: int = 1,
    movements: tuple[str, ...] = ("push", "pull"),
    least: float = 0.0,
) -> Case:
    """A run; ``exact`` means that what happens is what is believed; no time is below ``least``."""
    cluster = draw(clusters())
    devices = len(cluster.devices)
    distinct = draw(st.lists(graphs(weights=weights), min_size=1, max_size=2))
    costs = CostTable(
        {g: GraphCosts(np.maximum(draw(seconds_of(g, devices)), least)) for g in distinct}
    )
    spaces = [None, *(space.name for space in cluster.spaces)]
    arrivals = draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5, 10.0]), min_size=1, max_size=3))
    workload = Workload(
        Job(
            draw(st.sampled_from(distinct)),
            arrival,
            origin=draw(st.sampled_from(spaces)),
            destination=draw(st.sampled_from(spaces)),
        )
        for arrival in sorted(arrivals)
    )
    actual: CostTable | NoiseModel | None = None
    kind = "same" if exact else draw(st.sampled_from(["same", "table", "noise"]))
    if kind == "table":
        actual = CostTable(
            {
                g: GraphCosts(
                    np.where(
                        np.isfinite(costs[g].seconds),
                        np.maximum(draw(seconds_of_finite(g, devices)), least),
                        np.inf,
                    )
                )
                for g in distinct
            }
        )
    elif kind == "noise":
        actual = LogNormalNoise(0.5)
    name = draw(st.sampled_from(schedulers))
    seed = draw(st.integers(0, 2**20))
    return Case(
        workload,
        cluster,
        costs,
        actual,
        lambda: (SCHEDULERS | STATIC | PACKING)[name](seed),
        draw(st.sampled_from(movements)),
        draw(st.sampled_from(contentions)),
        seed,
        name,
    )


@st.composite
def seconds_of_finite(draw: st.DrawFn, graph: DataflowGraph, devices: int) -> np.ndarray:
    """Times [operators, devices] without ``inf``."""
    return np.array([[draw(SECONDS) for _ in range(devices)] for _ in range(len(graph))])
