"""What every memory space held over a run, worked out from its trace by the rules of docs/semantics.md.

Written apart from the engine, one tensor after another. For runs in which no task was withdrawn.
"""

from __future__ import annotations

import math
from collections import defaultdict

from simulator.model.cluster import Cluster
from simulator.model.trace import Trace
from simulator.model.workload import Workload

Interval = tuple[float, float, int]
"""From, until (not included), bytes."""


def intervals(
    trace: Trace, workload: Workload, cluster: Cluster, hindsight: bool
) -> list[list[Interval]]:
    """For each space what lay there.

    Args:
        trace: of the run.
        workload: its jobs.
        cluster: where it ran.
        hindsight: count only what was needed in the end: no longer than to the last use there, and
            inputs and weights from their first use on. Holds even if they had to wait for room.
    """
    space_of = {d: cluster.space_index[device.space] for d, device in enumerate(cluster.devices)}
    rows = trace.executions
    ran = {
        (int(j), int(o)): (space_of[int(d)], float(r), float(p), float(s), float(f))
        for j, o, d, r, p, s, f in zip(
            *(rows[k] for k in ("job", "operator", "device", "ready", "placed", "start", "finish")),
            strict=True,
        )
    }
    table = trace.transfers
    moved: dict[tuple[int, int], list[tuple[int, int, float, float]]] = defaultdict(list)
    for j, t, a, b, r, f in sorted(
        zip(
            *(
                table[k].tolist()
                for k in ("job", "tensor", "source", "destination", "requested", "finish")
            ),
            strict=True,
        )
    ):
        if (a, b, r, f) not in moved[j, t]:  # one row a link
            moved[j, t].append((a, b, r, f))
    on_demand = trace.meta["weights"] == "on_demand"
    found: list[list[Interval]] = [[] for _ in cluster.spaces]
    weights: dict[tuple[str, str, int, int], float] = {}
    for j, job in enumerate(workload):
        graph = job.graph
        done = float(trace.jobs["finish"][j])
        spaces = cluster.space_index
        target = None if job.destination is None else spaces[job.destination]
        for t, tensor in enumerate(graph.tensors):
            size = math.ceil(tensor.bytes)
            readers = [ran[j, o] for o in graph.consumers[t]]
            if tensor.role == "weight":
                asked = [(s, p, b) for s, _, p, b, _ in readers]
                if on_demand:
                    store = spaces[cluster.host or job.origin or ""]
                    asked = [(store, job.arrival, math.inf)]
                    asked += [(b, r, f) for _, b, r, f in moved[j, t]]
                for space, moment, used in asked:
                    key = (graph.name, tensor.name, size, space)
                    weights[key] = min(weights.get(key, math.inf), used if hindsight else moment)
                continue
            producer = graph.producer[t]
            if producer >= 0:
                home, _, _, begin, finish = ran[j, producer]
            elif job.origin is None:
                continue
            else:
                home, begin, finish = spaces[job.origin], job.arrival, job.arrival
                uses = [b for s, _, _, b, _ in readers if s == home]
                uses += [r for a, _, r, _ in moved[j, t] if a == home]
                if hindsight:
                    begin = finish = min(uses, default=math.inf)
            result = t in graph.outputs and producer >= 0
            here = [home, *(b for _, b, _, _ in moved[j, t])]
            for number, space in enumerate(here):
                stays = [f for a, _, _, f in moved[j, t] if a == space]
                stays += [f for s, _, _, _, f in readers if s == space]
                if result and (target == space or (target is None and number == 0)):
                    stays.append(done)
                heirs = graph.consumers[graph.updates[t]] if t in graph.updates else ()
                if not hindsight and not number:
                    stays += [ran[j, o][4] for o in heirs]
                if number:
                    _, _, begin, finish = moved[j, t][number - 1]
                    if not hindsight:
                        stays += [p for s, _, p, _, _ in readers if s != space]
                found[space].append((begin, max([finish, *stays]), size))
    for (*_, size, space), moment in weights.items():
        found[space].append((moment, math.inf, size))
    return found


def peak(rows: list[Interval]) -> int:
    """Most bytes at a time; what ends at an instant makes room for what starts then."""
    changes = sorted(
        [(begin, 1, size) for begin, end, size in rows if begin < end]
        + [(end, 0, -size) for begin, end, size in rows if begin < end]
    )
    most = total = 0
    for _, _, change in changes:
        total += change
        most = max(most, total)
    return most
