"""Random runs by number: irregular graphs, 2 to 8 devices, 1 to 3 slots, several jobs, late clocks.

Wider than :mod:`tests.simulator.strategies` and quick to draw: nothing is shrunk. A run is drawn from its number
alone, with ``random.Random``, whose draws are the same in every version of Python.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.context.scheduler import Scheduler
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.faults import Fault, Faults, RandomFaults
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.noise import LogNormalNoise
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from simulator.schedulers._pricing import PRICINGS
from tests.simulator.strategies import PACKING, SCHEDULERS, STATIC, Case

PRICED = ("fcfs", "donf", "adon", "mct", "sufferage", "sjf", "dynamic_heft", "dynamic_peft")
"""Schedulers that are drawn with any pricing."""


@dataclasses.dataclass(repr=False)
class SeededCase(Case):
    """A run, and the settings of :func:`simulator.simulate` that it has beside those of every run."""

    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    def run(self, scheduler: Scheduler | None = None, **settings: Any) -> Any:
        """See :class:`Case`."""
        return super().run(scheduler, **(self.settings | settings))


def _graph(pick: random.Random, number: int, scale: float) -> DataflowGraph:
    """An irregular graph: operators of none to five inputs and outputs, of which any may be results."""
    size = lambda: pick.choice([0.0, 1.0, 2.0, 4.0, 7.7, pick.uniform(0, 40)]) * scale  # noqa: E731
    tensors = [Tensor(f"in{i}", "input", size()) for i in range(pick.randint(0, 2))]
    tensors += [Tensor(f"w{i}", "weight", size()) for i in range(pick.randint(0, 2))]
    reads, writes = [], []
    for operator in range(pick.randint(1, 24)):
        near = range(max(0, len(tensors) - pick.choice([3, 10, 100])), len(tensors))
        reads.append(sorted(pick.sample(near, min(len(near), pick.choice([0, 1, 1, 2, 3, 5])))))
        count = pick.choice([0, 1, 1, 1, 2, 3])
        writes.append(list(range(len(tensors), len(tensors) + count)))
        tensors += [Tensor(f"o{operator}.{i}", "activation", size()) for i in range(count)]
    written = [t.name for t in tensors if t.role == "activation"]
    results = pick.sample(written, min(len(written), pick.randint(0, 3)))
    return DataflowGraph(
        f"irregular{number}",
        [Operator(f"t{o}", "task") for o in range(len(reads))],
        tensors,
        reads,
        writes,
        [{"tensor": name, "views": []} for name in results],
    )


def _cluster(pick: random.Random, scale: float, routed: bool) -> Cluster:
    """Spaces joined two by two, or by a tree over which routes lead; no two links are equally wide."""
    devices = pick.randint(2, 8)
    spaces = [f"s{i}" for i in range(pick.randint(1, min(5, devices)))]
    pairs = [(a, b) for b in range(len(spaces)) for a in range(b)]
    if routed:
        pairs = [(pick.randrange(b), b) for b in range(1, len(spaces))]
    widths = pick.sample([1.0, 2.0, 3.0, 0.7, 10.0, 1.9, 0.5, 4.0, 6.5, 1.3], len(pairs))
    links = [
        Link(
            f"l{i}",
            (spaces[a], spaces[b]),
            widths[i],
            pick.choice([0.0, 0.0, 1.0, 0.25]) * scale,
            pick.random() < 0.3,
        )
        for i, (a, b) in enumerate(pairs)
    ]
    most = pick.choice([1, 3])
    parts = [
        Device(
            f"d{i}",
            spaces[i] if i < len(spaces) else pick.choice(spaces),
            slots=pick.randint(1, most),
            launch_overhead=pick.choice([0.0, 0.0, 0.5]) * scale,
        )
        for i in range(devices)
    ]
    return Cluster(
        "drawn", [MemorySpace(s) for s in spaces], parts, links, pick.choice([None, "s0"])
    )


def _seconds(
    pick: random.Random, graph: DataflowGraph, devices: int, scale: float, tiny: bool
) -> np.ndarray:
    """Times [operators, devices]: whole numbers that make events coincide, and any; some ``inf``."""
    values = [1.0, 2.0, 3.0, 5.0, 0.1, 0.7]
    if tiny:
        values += pick.choice([[0.0], [1e-8, 1e-8, 1e-8]])
    rows = []
    for _ in range(len(graph)):
        row = [
            pick.choice(values) if pick.random() < 0.7 else pick.uniform(0.01, 9)
            for _ in range(devices)
        ]
        able = pick.sample(range(devices), pick.randint(1, devices))
        if pick.random() < 0.2:
            row = [s if d in able else math.inf for d, s in enumerate(row)]
        rows.append([s * scale for s in row])
    return np.array(rows)


def _scheduler(pick: random.Random, static: bool) -> tuple[str, Callable[[int], Scheduler]]:
    kinds = STATIC if static else SCHEDULERS
    name = pick.choice(sorted(kinds))
    if static:
        return name, kinds[name]
    if pick.random() < 0.3:
        name, pricing = pick.choice(PRICED), pick.choice(PRICINGS)
        return f"{name}({pricing})", lambda seed: create(name, pricing=pricing)
    return name, kinds[name]


def seeded_case(
    number: int,
    contentions: tuple[str, ...] = ("none", "fifo", "fair"),
    static: bool | None = None,
    tiny: bool = True,
) -> SeededCase:
    """The plain run of this number: without what makes transfers and executions disturb each other.

    Args:
        number: from which everything is drawn.
        contentions: of which one is drawn.
        static: whether its scheduler plans ahead; None: any.
        tiny: whether there are times of 0, or too short to move a late clock.
    """
    pick = random.Random(f"run {number}")
    scale = pick.choice([1.0, 1.0, 1e-3])
    cluster = _cluster(pick, scale, routed=pick.random() < 0.3)
    graphs = [_graph(pick, i, scale) for i in range(pick.randint(1, 3))]
    devices = len(cluster.devices)
    costs = CostTable({g: GraphCosts(_seconds(pick, g, devices, scale, tiny)) for g in graphs})
    late = pick.choice([0.0, 0.0, 0.1, 1e5 + 0.1, 1.7e9])
    gaps = [0.0, 0.0, 1.0, 0.3, 10.0]
    arrivals, moment = [], late
    for _ in range(pick.randint(1, 4)):
        arrivals.append(moment)
        moment += pick.choice(gaps) * scale
    spaces = [None, *(space.name for space in cluster.spaces)]
    workload = Workload(
        Job(
            pick.choice(graphs),
            arrival,
            priority=pick.randint(0, 1),
            origin=pick.choice(spaces),
            destination=pick.choice(spaces),
        )
        for arrival in arrivals
    )
    kind = pick.choice(["same", "same", "table", "noise"])
    actual: Any = LogNormalNoise(0.5) if kind == "noise" else None
    if kind == "table":
        actual = CostTable(
            {
                g: GraphCosts(
                    costs[g].seconds
                    * np.array([pick.choice([0.5, 1.0, 1.7]) for _ in g.operators])[:, None]
                )
                for g in graphs
            }
        )
    name, make = _scheduler(pick, pick.random() < 0.3 if static is None else static)
    seed = pick.randrange(2**20)
    return SeededCase(
        workload,
        cluster,
        costs,
        actual,
        lambda: make(seed),
        pick.choice(["push", "pull"]),
        pick.choice(contentions),
        seed,
        name,
    )


def rich_case(number: int) -> SeededCase:
    """The run of this number with more that may happen in it: tight memory, faults, submission ahead, shared rates,
    packing, a horizon, decisions that take time; some of it, or nothing.
    """
    case = seeded_case(number)
    pick = random.Random(f"rich run {number}")
    first = case.workload.jobs[0].arrival
    times = np.concatenate([costs.seconds.ravel() for costs in case.costs.values()])
    scale = float(np.median(times[np.isfinite(times)]))  # most times are some of these
    kind = pick.choice(["plain", "memory", "faults", "devices", "packs", "horizon", "decisions"])
    if kind == "memory":
        total = sum(job.graph.tensor_bytes.sum() for job in case.workload)
        spaces = [
            dataclasses.replace(space, capacity=max(1.0, total * pick.choice([0.3, 0.6, 1.0, 2.0])))
            for space in case.cluster.spaces
        ]
        case.cluster = dataclasses.replace(case.cluster, spaces=spaces)
        case.settings["memory"] = "limited"
        if case.cluster.host is not None:
            case.settings["weights"] = pick.choice(["resident", "on_demand"])
    elif kind == "faults":
        case.settings["faults"] = _faults(pick, case.cluster, first, scale)
    elif kind == "devices":
        devices = [
            dataclasses.replace(
                device,
                completion_latency=pick.choice([0.0, 0.7]) * scale,
                issue_depth=pick.randint(1, 3),
                sharing=pick.choice(["slots", "processor"]),
            )
            for device in case.cluster.devices
        ]
        spaces = [
            dataclasses.replace(space, corun_slowdown=pick.choice([0.0, 0.1]))
            for space in case.cluster.spaces
        ]
        case.cluster = dataclasses.replace(case.cluster, devices=devices, spaces=spaces)
    elif kind == "packs":
        case.scheduler_name = name = pick.choice(sorted(PACKING))
        case.scheduler = lambda: PACKING[name](case.seed)
    elif kind == "horizon":
        case.settings["horizon"] = first + pick.uniform(1, 40) * scale
    elif kind == "decisions":
        each, task, pair = (pick.choice([0.0, 0.3]) * scale for _ in range(3))
        case.settings["decision_cost"] = DecisionCost(each, task, pair)
        if pick.random() < 0.3:
            case.settings["faults"] = _faults(pick, case.cluster, first, scale)
    return case


def _faults(pick: random.Random, cluster: Cluster, first: float, scale: float) -> Faults:
    """Up to four given faults and perhaps random ones."""
    whats = ["device_failure", "device_failure", "device_slowdown"]
    whats += ["link_outage", "link_degradation"] if cluster.links else []
    events: dict[tuple[str, str], Fault] = {}
    for _ in range(pick.randint(1, 4)):
        what = pick.choice(whats)
        things = cluster.devices if what.startswith("device") else cluster.links
        name = pick.choice([thing.name for thing in things])
        start = first + pick.choice([0.0, 0.5, 1.0, 3.3, 7.0, 11.0, 30.0]) * scale
        end = start + pick.choice([0.25 * scale, scale, 4 * scale, 20 * scale, math.inf])
        factor = (
            pick.choice([0.1, 0.5]) if what in ("device_slowdown", "link_degradation") else None
        )
        lost = pick.choice([None, True, False]) if what == "device_failure" else None
        if end > start:
            events[what, name] = Fault(what, name, start, end, factor, lost)
    randoms = []
    if first < 1.0 and pick.random() < 0.4:  # they begin at 0: a late run would see nothing else
        randoms = [RandomFaults("device_failure", pick.choice([5.0, 20.0]) * scale, scale)]
    return Faults(tuple(events.values()), tuple(randoms), pick.choice([1, 2, 4]))


def composed_case(number: int) -> SeededCase:
    """The run of this number with everything in it that may be: some of it, or all."""
    case = seeded_case(number)
    pick = random.Random(f"composed run {number}")
    first = case.workload.jobs[0].arrival
    times = np.concatenate([costs.seconds.ravel() for costs in case.costs.values()])
    scale = max(1e-4, float(np.median(times[np.isfinite(times)])))
    settings = case.settings
    if pick.random() < 0.3:
        # A plan that is made once does not know of what is lost.
        case.scheduler_name = name = pick.choice(sorted(PACKING.keys() - {"packs-plan"}))
        case.scheduler = lambda: PACKING[name](case.seed)
    if pick.random() < 0.8:
        settings["memory"] = "limited"
        need = max(
            sum(math.ceil(g.tensors[t].bytes) for t in (*g.reads[o], *g.writes[o]))
            for g in case.workload.graphs
            for o in range(len(g))
        )
        spaces = [
            dataclasses.replace(space, capacity=max(1.0, need * pick.choice([1.2, 2, 4, math.inf])))
            for space in case.cluster.spaces
        ]
        case.cluster = dataclasses.replace(case.cluster, spaces=spaces)
    if pick.random() < 0.5:
        settings["weights"] = "on_demand"
        host, *others = case.cluster.spaces
        spaces = [dataclasses.replace(host, capacity=math.inf), *others]
        case.cluster = dataclasses.replace(case.cluster, spaces=spaces, host=host.name)
    if pick.random() < 0.3:
        devices = [
            dataclasses.replace(
                device, completion_latency=pick.choice([0.0, 0.7]) * scale, issue_depth=2
            )
            for device in case.cluster.devices
        ]
        case.cluster = dataclasses.replace(case.cluster, devices=devices)
    if pick.random() < 0.9:
        settings["faults"] = _faults(pick, case.cluster, first, scale)
    if pick.random() < 0.4 and "erratic" not in case.scheduler_name:
        settings["decision_cost"] = DecisionCost(pick.choice([0.0, 0.3]) * scale, 0.1 * scale)
    if pick.random() < 0.2:
        settings["horizon"] = first + pick.uniform(1, 40) * scale
    return case
