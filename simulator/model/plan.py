"""Plans: the device of every task of every job, and the order in which devices take up their tasks.

A plan is what partitioners and searches return, what the scheduler ``planned`` executes in the simulator and on
hardware, and what a file keeps. It brings its graphs along, since a partition may have made them.

JSON form (``hetsim.plan/1``)::

    {"format": "hetsim.plan/1", "origin": str, "makespan_s": float | null, "planning_s": float,
     "devices": [str],            names of the cluster's devices, in its order
     "graphs": [graph document],  the distinct graphs (simulator.model.graph)
     "jobs": [int],               the graph of each job
     "device": [int],             of every task; tasks count through all jobs, in the order of the graphs' operators
     "order": [int],              every task once; a device runs its tasks in the order in which they stand here
     "notes": {str: any}?}        what the planner has to say, such as shares and cuts
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.family import read_json, write_json
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.model.workload import Job

FORMAT = "hetsim.plan/1"


@dataclass(frozen=True)
class Certificate:
    """What is proved about a job's plan, from its arrival on.

    Attributes:
        makespan_s: of the plan, under ``push`` without contention.
        bound_s: no plan, and no on-line schedule, whatever movement and contention, is shorter; of a
            job that is planned behind others, none behind them.
        status: ``optimal``; ``optimal up to rounding`` where the solver's times were rounded and the
            search was completed; ``feasible`` where the limit came first.
        exact: whether times were counted exactly; else the bound allows for rounding.
        tick_s: seconds of one tick of the solver.
    """

    makespan_s: float
    bound_s: float
    status: str
    exact: bool
    tick_s: float

    @property
    def gap(self) -> float:
        """``makespan / bound - 1``."""
        return self.makespan_s / self.bound_s - 1.0 if self.bound_s > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan for jobs on a cluster. See the module docstring.

    Attributes:
        origin: what made it, such as ``heft`` or ``all on gpu``.
        graphs: of each job, in order of arrival; jobs of one graph share the object.
        devices: names of the cluster's devices.
        device: int64[tasks], the device of every task.
        order: int64[tasks], every task once.
        makespan_s: what the planner believes, seconds; NaN where nobody evaluated it.
        planning_s: wall-clock seconds that planning took.
        notes: what the planner has to say, JSON-ready.
        certificate: what is proved about it.

    Raises:
        InvalidInput: no jobs, a task without a device of the cluster, or an order that is no permutation.
    """

    origin: str
    graphs: tuple[DataflowGraph, ...]
    devices: tuple[str, ...]
    device: np.ndarray
    order: np.ndarray
    makespan_s: float = math.nan
    planning_s: float = 0.0
    notes: Mapping[str, Any] = field(default_factory=dict)
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        tasks = sum(map(len, self.graphs))
        what = f"The plan '{self.origin}'"
        if not self.graphs:
            raise InvalidInput(f"{what} has no jobs")
        for name in ("device", "order"):
            column = np.array(getattr(self, name), dtype=np.int64)
            column.setflags(write=False)
            object.__setattr__(self, name, column)
            if column.shape != (tasks,):
                raise InvalidInput(
                    f"{what} has the {name} of {column.size} tasks; its jobs have {tasks} tasks"
                )
        wrong = np.flatnonzero((self.device < 0) | (self.device >= len(self.devices)))
        if len(wrong):
            raise InvalidInput(
                f"{what} puts task '{self._label(int(wrong[0]))}' on device {self.device[wrong[0]]}; there are "
                f"{len(self.devices)} devices"
            )
        if not np.array_equal(np.sort(self.order), np.arange(tasks)):
            raise InvalidInput(f"{what} has an order in which not every task stands once")

    @classmethod
    def single(cls, origin: str, jobs: Iterable[Job], cluster: Cluster, device: int) -> Plan:
        """Everything on one device, job by job, in the order of the graphs."""
        graphs = tuple(job.graph for job in jobs)
        tasks = sum(map(len, graphs))
        names = tuple(d.name for d in cluster.devices)
        return cls(origin, graphs, names, np.full(tasks, device), np.arange(tasks))

    @classmethod
    def executed(cls, trace: Trace, graphs: Sequence[DataflowGraph]) -> Plan:
        """What a run did: every task on its device, tasks in the order of their starts.

        Args:
            trace: of a run in which every task of every job finished by itself.
            graphs: of the jobs.

        Raises:
            InvalidInput: a task did not run, or jobs were served together.
        """
        rows = trace.executions
        kept = rows["status"] == "finished"
        job, operator = rows["job"][kept], rows["operator"][kept]
        first = np.array([0, *itertools.accumulate(map(len, graphs))])
        tasks = int(first[-1])
        task = first[job] + operator if len(job) and job.max() < len(graphs) else job[:0]
        if len(task) != tasks or len(np.unique(task)) != tasks or task.max(initial=0) >= tasks:
            raise InvalidInput(
                f"The run of '{trace.meta.get('scheduler', '?')}' is no plan of its jobs: tasks ran together, were "
                "lost, or did not run"
            )
        device = np.empty(tasks, dtype=np.int64)
        device[task] = rows["device"][kept]
        order = task[np.argsort(rows["start"][kept], kind="stable")]
        names = tuple(str(name) for name in trace.meta["devices"])
        origin = str(trace.meta.get("scheduler", "run"))
        return cls(origin, tuple(graphs), names, device, order, trace.makespan)

    @cached_property
    def first_task(self) -> list[int]:
        """The first task of each job, and behind the last job the number of tasks."""
        return [0, *itertools.accumulate(map(len, self.graphs))]

    def of_job(self, job: int) -> tuple[np.ndarray, np.ndarray]:
        """Device and rank (position in the order) of a job's operators, int64[operators] each."""
        first, end = self.first_task[job : job + 2]
        return self.device[first:end], self._rank[first:end]

    @cached_property
    def _rank(self) -> np.ndarray:
        rank = np.empty(len(self.order), dtype=np.int64)
        rank[self.order] = np.arange(len(self.order))
        return rank

    def check(self, jobs: Sequence[Job], cluster: Cluster) -> None:
        """Refuse a plan for other jobs or another cluster.

        Raises:
            InvalidInput: says where they differ.
        """
        self.check_devices(cluster)
        if len(jobs) != len(self.graphs):
            raise InvalidInput(
                f"The plan '{self.origin}' is for {len(self.graphs)} jobs, the workload has {len(jobs)}: plan anew "
                "for this workload"
            )
        for number, job in enumerate(jobs):
            self.check_job(number, job)

    def check_devices(self, cluster: Cluster) -> None:
        """Refuse a plan for another cluster.

        Raises:
            InvalidInput: names the devices of both.
        """
        names = tuple(device.name for device in cluster.devices)
        if names != self.devices:
            raise InvalidInput(
                f"The plan '{self.origin}' is for devices {', '.join(self.devices)}; cluster '{cluster.name}' has "
                f"{', '.join(names)}: plan anew for this cluster"
            )

    def check_job(self, number: int, job: Job) -> None:
        """Refuse a plan for other jobs.

        Args:
            number: the job's place in the workload.
            job: of the workload.

        Raises:
            InvalidInput: the plan has no such job, or has another graph there.
        """
        if number >= len(self.graphs):
            raise InvalidInput(
                f"The plan '{self.origin}' is for {len(self.graphs)} jobs, and job {number} came: plan anew for this "
                "workload"
            )
        graph = self.graphs[number]
        if job.graph is not graph and not _alike(job.graph, graph):
            raise InvalidInput(
                f"The plan '{self.origin}' is for another graph: job {number} of it is of '{graph.name}' "
                f"({len(graph)} operators, batch {graph.batch}), the workload's of '{job.graph.name}' "
                f"({len(job.graph)} operators, batch {job.graph.batch})"
            )

    def _label(self, task: int) -> str:
        job = int(np.searchsorted(self.first_task, task, side="right")) - 1
        return self.graphs[job].operators[task - self.first_task[job]].name

    # -- JSON -----------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        distinct = list(dict.fromkeys(self.graphs))
        number = {graph: position for position, graph in enumerate(distinct)}
        document: dict[str, Any] = {
            "format": FORMAT,
            "origin": self.origin,
            "makespan_s": self.makespan_s if math.isfinite(self.makespan_s) else None,
            "planning_s": self.planning_s,
            "devices": list(self.devices),
            "graphs": [graph.to_json() for graph in distinct],
            "jobs": [number[graph] for graph in self.graphs],
            "device": self.device.tolist(),
            "order": self.order.tolist(),
        }
        return document | ({"notes": dict(self.notes)} if self.notes else {})

    @classmethod
    def from_json(cls, document: Any) -> Plan:
        """Read the JSON form.

        Raises:
            InvalidInput: it is not of this form, or contradicts itself.
        """
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InvalidInput(f"Not a plan of format '{FORMAT}'")
        graphs, jobs = document.get("graphs"), document.get("jobs")
        devices = document.get("devices")
        if not isinstance(graphs, list) or not _integers(jobs, len(graphs)):
            raise InvalidInput("A plan has 'graphs', and for each of its 'jobs' the number of one")
        if not isinstance(devices, list) or not all(isinstance(name, str) for name in devices):
            raise InvalidInput("A plan has the names of its 'devices'")
        for key in ("device", "order"):
            if not _integers(document.get(key), None):
                raise InvalidInput(f"A plan has a list of integers '{key}'")
        read = [DataflowGraph.from_json(graph) for graph in graphs]
        notes = document.get("notes", {})
        seconds = [
            float(value) if isinstance(value, int | float) else math.nan
            for value in (document.get("makespan_s"), document.get("planning_s"))
        ]
        return cls(
            str(document.get("origin", "file")),
            tuple(read[job] for job in document["jobs"]),
            tuple(devices),
            np.array(document["device"], dtype=np.int64),
            np.array(document["order"], dtype=np.int64),
            seconds[0],
            seconds[1],
            notes if isinstance(notes, dict) else {},
        )

    def save(self, path: str | Path) -> None:
        """Write the JSON form whole or not at all; compressed if the name ends in ``.gz``."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a file of :meth:`save`.

        Raises:
            InvalidInput: the file is missing, truncated or no plan.
        """
        document = read_json(path)
        try:
            return cls.from_json(document)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None


def _integers(values: Any, below: int | None) -> bool:
    """Whether a JSON value is a list of integers from 0 to below a number."""
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < (2**62 if below is None else below) for value in values
    )


def _alike(one: DataflowGraph, other: DataflowGraph) -> bool:
    """Whether two graphs are the same in what a plan depends on: operators, tensors, and who reads and writes."""
    return (
        one.operator_names == other.operator_names
        and one.operator_kinds == other.operator_kinds
        and np.array_equal(one.tensor_bytes, other.tensor_bytes)
        and one.reads == other.reads
        and one.writes == other.writes
    )


__all__ = ["FORMAT", "Certificate", "Plan"]
