"""Who waited for whom, from a trace alone: which execution wrote a tensor, which transfer brought it.

A tensor may be written or moved several times where a fault has lost it: whoever uses it uses the
latest that was there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simulator.model.graph_record import GraphArrays, arrays_of
from simulator.model.trace import Table, Trace


def latest(
    key: np.ndarray, time: np.ndarray, asked_key: np.ndarray, asked_time: np.ndarray
) -> np.ndarray:
    """For each question the entry of the same key with the greatest time that is not after it.

    Args:
        key: int[entries].
        time: float[entries].
        asked_key: int[questions].
        asked_time: float[questions].

    Returns:
        int64[questions], indices of entries; -1 where there is none. Of equal times the last entry.
    """
    entries = len(key)
    keys = np.concatenate([key, asked_key])
    question = np.arange(len(keys)) >= entries
    order = np.lexsort((question, np.concatenate([time, asked_time]), keys))
    position = np.where(question[order], -1, np.arange(len(order)))
    before = np.maximum.accumulate(position)
    asked = np.flatnonzero(question[order])
    found = before[asked]
    entry = np.where(found >= 0, order[found], 0)
    same = (found >= 0) & (keys[entry] == keys[order[asked]])
    result = np.full(len(asked_key), -1, dtype=np.int64)
    result[order[asked] - entries] = np.where(same, entry, -1)
    return result


@dataclass(frozen=True, eq=False)
class Dependencies:
    """The executions' reads and writes, and the transfers as crossings. Use :meth:`of`.

    Rows of ``reads`` and ``writes`` are ``execution`` (row of the trace's table), ``tensor`` (counted
    through all jobs) and ``weight`` (bool). A crossing is a tensor's way to another memory space,
    over however many links; its columns are those of the transfers without the link, and ``row``,
    one of its rows there. ``tensor`` counts through all jobs, too.
    """

    trace: Trace
    reads: Table
    writes: Table
    crossings: Table
    crossing_of_row: np.ndarray
    """int64[rows of the transfers]: the crossing that each belongs to."""
    size: np.ndarray
    """float64[tensors of all jobs]: bytes."""

    @classmethod
    def of(cls, trace: Trace) -> Dependencies:
        """Work them out."""
        graphs = [arrays_of(record) for record in trace.meta["graphs"]]
        jobs = trace.jobs
        count = np.array([len(graph.bytes) for graph in graphs], dtype=np.int64)[jobs["graph"]]
        first = np.cumsum(count) - count
        runs = trace.executions
        graph_of = jobs["graph"][runs["job"]]
        sides = []
        for operator_of, tensor_of in (
            (lambda g: g.read_operator, lambda g: g.read_tensor),
            (lambda g: g.write_operator, lambda g: g.write_tensor),
        ):
            row, tensor, weight = _expand(
                graphs, graph_of, runs["operator"], trace.meta["graphs"], operator_of, tensor_of
            )
            sides.append(
                {
                    "execution": row,
                    "tensor": first[runs["job"][row]] + tensor,
                    "weight": weight,
                }
            )
        moves = trace.transfers
        tensor = first[moves["job"]] + moves["tensor"]
        order = np.lexsort((moves["start"], moves["destination"], tensor))
        changed = np.zeros(len(order), dtype=bool)
        for column in (tensor, moves["destination"], moves["start"]):
            changed[1:] |= np.diff(column[order]) != 0
        changed[:1] = True
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.cumsum(changed) - 1
        row = order[changed]
        crossings = {name: column[row] for name, column in moves.items() if name != "link"}
        crossings |= {"row": row, "tensor": tensor[row]}
        sizes = [graphs[g].bytes for g in jobs["graph"].tolist()]
        size = np.concatenate(sizes) if sizes else np.zeros(0)
        return cls(trace, sides[0], sides[1], crossings, number, size)

    @cached_property
    def first_tensor(self) -> np.ndarray:
        """int64[jobs]: number of each job's first tensor."""
        graphs = self.trace.meta["graphs"]
        count = np.array([len(arrays_of(g).bytes) for g in graphs], dtype=np.int64)
        count = count[self.trace.jobs["graph"]]
        return np.asarray(np.cumsum(count) - count)

    @property
    def spaces(self) -> int:
        """How many memory spaces there are."""
        return len(self.trace.meta["spaces"])

    @cached_property
    def space(self) -> np.ndarray:
        """int64[executions]: the memory space of each execution's device."""
        return np.array(self.trace.meta["space_of"], dtype=np.int64)[
            self.trace.executions["device"]
        ]

    @cached_property
    def read_crossing(self) -> np.ndarray:
        """int64[reads]: the crossing that brought what is read, -1 where it was there."""
        moves, runs = self.crossings, self.trace.executions
        row = self.reads["execution"]
        return latest(
            moves["tensor"] * self.spaces + moves["destination"],
            moves["start"],
            self.reads["tensor"] * self.spaces + self.space[row],
            runs["start"][row],
        )

    @cached_property
    def read_producer(self) -> np.ndarray:
        """int64[reads]: the execution that wrote what is read, -1 for inputs and weights."""
        return self.writer(
            self.reads["tensor"], self.trace.executions["start"][self.reads["execution"]]
        )

    @cached_property
    def crossing_producer(self) -> np.ndarray:
        """int64[crossings]: the execution that wrote what crossed, -1 for inputs and weights."""
        return self.writer(self.crossings["tensor"], self.crossings["start"])

    def writer(self, tensor: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The execution that had written each tensor (of all jobs) at a time, -1 for none."""
        runs, row = self.trace.executions, self.writes["execution"]
        kept = runs["status"][row] == "finished"
        written, row = self.writes["tensor"][kept], row[kept]
        found = latest(written, runs["finish"][row], tensor, time)
        return np.append(row, -1)[found]  # the entry appended is the last: index -1


def _expand(
    graphs: Sequence[GraphArrays],
    graph_of: np.ndarray,
    operator: np.ndarray,
    records: Sequence[Mapping[str, Any]],
    operator_of: Callable[[GraphArrays], np.ndarray],
    tensor_of: Callable[[GraphArrays], np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Execution, tensor in its graph, and whether it is a weight, of every read (or write)."""
    operators = [len(record["operators"]) for record in records]
    base = np.cumsum([0, *operators])
    counts = [
        np.bincount(operator_of(g), minlength=n) for g, n in zip(graphs, operators, strict=True)
    ]
    count = np.concatenate(counts) if counts else np.zeros(0, np.int64)
    begin = np.cumsum(count) - count
    tensors = np.concatenate([tensor_of(g) for g in graphs]) if graphs else np.zeros(0, np.int64)
    weights = [g.weight[tensor_of(g)] for g in graphs]
    weight = np.concatenate(weights) if weights else np.zeros(0, bool)
    position = base[graph_of] + operator
    number = count[position]
    row = np.repeat(np.arange(len(operator)), number)
    entry = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    entry += begin[position][row]
    return row, tensors[entry].astype(np.int64), weight[entry]
