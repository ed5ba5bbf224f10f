"""What lay in which memory space when, worked out from a trace.

- An output occupies its space from its execution's start until the last of: that execution's finish,
  the finish of its last consumer there, the end of its last transfer from there.
- A copy occupies its destination from the start of its transfer until the last of: the transfer's
  end, the finish of its last consumer there.
- A result stays until its job has left: at the job's destination, or where it was written if the job
  has none.
- A job's input lies at its origin from the job's arrival on, or from when it found room there
  (``meta["inputs_waited"]``: ``[job, time]``, the time null if it never did), by the same rules. Inputs of
  jobs without an origin are everywhere and nobody's burden.
- Of jobs that were served together each has its own inputs and results, a share of the batch's by its items.
- A weight occupies a space from its first use there (or the start of its transfer to there) on, once for all graphs that share it (the same graph name, weight name and size). One that was
  evicted (``meta["evictions"]``: ``[time, space, job, tensor]``) is gone until it is loaded again.
- What a segment keeps for itself (``inner`` of a graph's record) lies there while it executes.

Intervals are half-open: what ends at an instant makes room for what starts then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.analysis.dependencies import Dependencies, latest
from simulator.model.graph_record import arrays_of
from simulator.model.trace import Table, Trace


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Bytes in a memory space as a step function.

    Attributes:
        time: float64[steps], seconds, ascending.
        bytes: float64[steps], from each time to the next; 0 before the first.
    """

    time: np.ndarray
    bytes: np.ndarray

    @property
    def peak(self) -> float:
        """The largest, bytes."""
        return float(self.bytes.max(initial=0.0))


def occupancy(trace: Trace, dependencies: Dependencies | None = None) -> list[Occupancy]:
    """The occupancy of every memory space.

    Args:
        trace: of a simulated or a measured run.
        dependencies: of this trace, where somebody has them already.
    """
    known = _apart(dependencies or Dependencies.of(trace))
    parts = [_activations(known), _weights(known), _inner(known)]
    space, size, start, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    result = []
    for number in range(known.spaces):
        here = space == number
        time = np.concatenate([end[here], start[here]])
        change = np.concatenate([-size[here], size[here]])
        order = np.argsort(time, kind="stable")
        time, total = time[order], np.cumsum(change[order])
        last = np.append(time[1:] != time[:-1], True)[: len(time)] & np.isfinite(time)
        result.append(Occupancy(time[last], np.maximum(total[last], 0.0)))
    return result


_Intervals = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Space, bytes, start and end of what lies somewhere."""


def _activations(known: Dependencies) -> _Intervals:
    """Outputs, copies and jobs' inputs."""
    trace, spaces = known.trace, known.spaces
    runs, jobs, moves = trace.executions, trace.jobs, known.crossings
    weight = _weight_tensors(known)
    moved = np.flatnonzero(~weight[moves["tensor"]])
    wrote = known.writes["execution"]
    given, owner = _inputs(known)
    # What begins to occupy a space: tensor, space, when, and until when at least.
    tensor = np.concatenate([known.writes["tensor"], moves["tensor"][moved], given])
    space = np.concatenate([known.space[wrote], moves["destination"][moved], jobs["origin"][owner]])
    came = jobs["arrival"].astype(np.float64)
    for job, moment in trace.meta.get("inputs_waited", ()):
        came[job] = np.inf if moment is None else moment
    arrival = came[owner]
    start = np.concatenate([runs["start"][wrote], moves["start"][moved], arrival])
    end = np.concatenate([runs["finish"][wrote], moves["finish"][moved], arrival])
    # Who uses it: from when, until when. A result is used by its job's departure.
    reading = ~known.reads["weight"]
    row = known.reads["execution"][reading]
    result, result_job = _results(known)
    left = np.minimum(jobs["finish"][result_job], trace.end)
    target = jobs["destination"][result_job].astype(np.int64)
    writer = known.writer(result, left)
    target = np.where(target < 0, np.append(known.space, -1)[writer], target)
    result, target, left = result[target >= 0], target[target >= 0], left[target >= 0]
    used_space = np.concatenate([known.space[row], moves["source"][moved]])
    used = np.concatenate([known.reads["tensor"][reading], moves["tensor"][moved]]) * spaces
    used_key = np.concatenate([used + used_space, result * spaces + target])
    used_from = np.concatenate([runs["start"][row], moves["start"][moved], left])
    used_until = np.concatenate([runs["finish"][row], moves["finish"][moved], left])
    found = latest(tensor * spaces + space, start, used_key, used_from)
    np.maximum.at(end, found[found >= 0], used_until[found >= 0])
    return space.astype(np.int64), known.size[tensor], start, np.maximum(end, start)


def _inner(known: Dependencies) -> _Intervals:
    """What executions keep for themselves."""
    runs = known.trace.executions
    size = np.zeros(len(runs["execution"]))
    graph = known.trace.jobs["graph"][runs["job"]]
    for number, record in enumerate(known.trace.meta["graphs"]):
        inner = arrays_of(record).inner
        if len(inner):
            mine = graph == number
            size[mine] = inner[runs["operator"][mine]]
    keeps = size > 0
    start, end = runs["start"][keeps], np.minimum(runs["finish"][keeps], known.trace.end)
    return known.space[keeps], size[keeps], start, np.maximum(start, end)


def _apart(known: Dependencies) -> Dependencies:
    """The same where each job of a batch reads its own inputs and gets its own results."""
    trace = known.trace
    jobs, runs, members = trace.jobs, trace.executions, trace.members
    if np.bincount(members["execution"], minlength=1).max() < 2:
        return known
    count = len(jobs["job"])
    leader = np.arange(count)
    leader[members["job"]] = runs["job"][members["execution"]]
    together = np.bincount(leader, minlength=count)
    graphs = [arrays_of(record) for record in trace.meta["graphs"]]
    own = [graph.result | ((graph.producer < 0) & ~graph.weight) for graph in graphs]
    of_jobs = [own[g] for g in jobs["graph"].tolist()]
    is_own, owner = np.concatenate(of_jobs), np.repeat(np.arange(count), list(map(len, of_jobs)))
    items = jobs["batch"].astype(np.float64)
    share = items / np.bincount(leader, items, count)[leader]
    order = np.argsort(leader, kind="stable")
    begin = np.searchsorted(leader[order], np.arange(count))

    def of_members(table: Table) -> Table:
        job, tensor = runs["job"][table["execution"]], table["tensor"]
        several = np.where(is_own[tensor], together[job], 1)
        row = np.repeat(np.arange(len(job)), several)
        number = np.arange(len(row)) - np.repeat(np.cumsum(several) - several, several)
        member = np.where(is_own[tensor[row]], order[begin[job[row]] + number], job[row])
        local = (tensor - known.first_tensor[job])[row]
        apart = {name: column[row] for name, column in table.items()}
        return apart | {"tensor": known.first_tensor[member] + local}

    return replace(
        known,
        reads=of_members(known.reads),
        writes=of_members(known.writes),
        size=np.where(is_own, known.size * share[owner], known.size),
    )


def _weights(known: Dependencies) -> _Intervals:
    trace, spaces, moves = known.trace, known.spaces, known.crossings
    runs = trace.executions
    identity = _weight_identity(known)
    reading = known.reads["weight"]
    row, tensor = known.reads["execution"][reading], known.reads["tensor"][reading]
    key = identity[tensor] * spaces + known.space[row]
    loaded = np.flatnonzero(identity[moves["tensor"]] >= 0)
    # What brings a weight to a space: its transfers, or else its first use there; and where
    # transfers come from it lies as well.
    moved, begun = identity[moves["tensor"][loaded]] * spaces, moves["start"][loaded]
    brought, stored = moved + moves["destination"][loaded], moved + moves["source"][loaded]
    used = runs["start"][row]
    first = _earliest(key, used)
    first = first[~np.isin(key[first], brought)]
    sent = _earliest(stored, begun)
    sent = sent[~np.isin(stored[sent], np.concatenate([brought, key[first]]))]
    keys = np.concatenate([brought, key[first], stored[sent]])
    start = np.concatenate([begun, used[first], begun[sent]])
    end = np.concatenate([moves["finish"][loaded], used[first], begun[sent]])
    sizes = [moves["tensor"][loaded], tensor[first], moves["tensor"][loaded[sent]]]
    size = known.size[np.concatenate(sizes)]
    found = latest(keys, start, key, used)
    np.maximum.at(end, found[found >= 0], runs["finish"][row][found >= 0])
    order = np.lexsort((start, keys))
    last = np.append(np.diff(keys[order]) != 0, True)[: len(order)]
    end[order[last]] = np.inf
    evicted = np.array(trace.meta.get("evictions", ()), dtype=np.float64).reshape(-1, 4)
    time, (place, job, local) = evicted[:, 0], evicted[:, 1:].astype(np.int64).T
    gone = identity[known.first_tensor[job] + local] * spaces + place
    found = latest(keys, start, gone, time)
    end[found[found >= 0]] = time[found >= 0]
    return keys % spaces, size, start, end


def _earliest(key: np.ndarray, time: np.ndarray) -> np.ndarray:
    """For each distinct key, ascending, the entry of the earliest time."""
    order = np.argsort(time, kind="stable")
    return np.asarray(order[np.unique(key[order], return_index=True)[1]])


def _weight_tensors(known: Dependencies) -> np.ndarray:
    """bool[tensors of all jobs]."""
    graphs = [arrays_of(record).weight for record in known.trace.meta["graphs"]]
    return np.concatenate([graphs[g] for g in known.trace.jobs["graph"].tolist()])


def _weight_identity(known: Dependencies) -> np.ndarray:
    """int64[tensors of all jobs]: a number for each distinct weight, -1 for other tensors."""
    numbers: dict[tuple[str, str, float], int] = {}
    graphs = []
    for record in known.trace.meta["graphs"]:
        arrays = arrays_of(record)
        identity = np.full(len(arrays.bytes), -1, dtype=np.int64)
        sizes = arrays.bytes[arrays.weight].tolist()
        identity[arrays.weight] = [
            numbers.setdefault((record["name"], name, size), len(numbers))
            for name, size in zip(arrays.weight_names, sizes, strict=True)
        ]
        graphs.append(identity)
    return np.concatenate([graphs[g] for g in known.trace.jobs["graph"].tolist()])


def _inputs(known: Dependencies) -> tuple[np.ndarray, np.ndarray]:
    """Tensors that jobs bring to their origin, and these jobs."""
    graphs = [arrays_of(record) for record in known.trace.meta["graphs"]]
    local = [np.flatnonzero((graph.producer < 0) & ~graph.weight) for graph in graphs]
    return _of_jobs(known, local, known.trace.jobs["origin"] >= 0)


def _results(known: Dependencies) -> tuple[np.ndarray, np.ndarray]:
    """Tensors that jobs deliver, and these jobs."""
    local = [np.flatnonzero(arrays_of(record).result) for record in known.trace.meta["graphs"]]
    return _of_jobs(known, local, np.ones(len(known.trace.jobs["job"]), dtype=bool))


def _of_jobs(
    known: Dependencies, local: list[np.ndarray], wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    graph = known.trace.jobs["graph"].tolist()
    jobs = np.flatnonzero(wanted)
    rows = [known.first_tensor[job] + local[graph[job]] for job in jobs.tolist()]
    owner = np.repeat(jobs, [len(row) for row in rows])
    return (np.concatenate(rows) if rows else np.zeros(0, np.int64)), owner
