"""What arrives: jobs, each one execution of a graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph


@dataclass(frozen=True, slots=True)
class Job:
    """One execution of a graph.

    Attributes:
        arrival: seconds.
        deadline: seconds, absolute; None for none.
        priority: larger is more urgent.
        origin: memory space where the job's inputs lie; None: everywhere already.
        destination: memory space where its outputs must arrive; None: wherever they are written.
        time_sensitivity, accuracy_sensitivity: how much its sender minds waiting and mistakes, 0 to 1.
        least_accuracy: of a model's variant that may serve it, 0 to 1.
    """

    graph: DataflowGraph
    arrival: float = 0.0
    deadline: float | None = None
    priority: int = 0
    model: str = ""
    batch: int | None = None
    origin: str | None = None
    destination: str | None = None
    time_sensitivity: float = 0.5
    accuracy_sensitivity: float = 0.5
    least_accuracy: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.arrival) and self.arrival >= 0):
            raise InvalidInput(f"A job of '{self.graph.name}' arrives at {self.arrival} s")
        if self.deadline is not None and not self.deadline >= self.arrival:
            raise InvalidInput(
                f"A job of '{self.graph.name}' arrives at {self.arrival} s, after its deadline "
                f"of {self.deadline} s"
            )


Kind = tuple[DataflowGraph, str | None, str | None]
"""What a job needs of a cluster: its graph, origin and destination."""


class Workload:
    """A stream of jobs in order of arrival; a job's number is its position.

    Attributes:
        batches: for graphs of jobs that may be served together the graphs of larger batches, by batch.
        variants: for graphs of jobs the other models' graphs that may serve them.
        accuracies: of graphs, 0 to 1, where they are known.
        reacts: whether jobs follow on others that are done (:meth:`follow`).

    Raises:
        InvalidInput: no jobs, or arrivals out of order.
    """

    reacts: ClassVar[bool] = False
    known: ClassVar[bool] = True
    """Whether all jobs are known before the run, but for those that follow on others."""

    def __init__(
        self,
        jobs: Iterable[Job],
        batches: Mapping[DataflowGraph, Mapping[int, DataflowGraph]] | None = None,
        variants: Mapping[DataflowGraph, Sequence[DataflowGraph]] | None = None,
        accuracies: Mapping[DataflowGraph, float] | None = None,
    ) -> None:
        self.jobs = tuple(jobs)
        self.batches = dict(batches or {})
        self.variants = dict(variants or {})
        self.accuracies = dict(accuracies or {})
        if not self.jobs:
            raise InvalidInput("The workload has no jobs")
        for number, (before, after) in enumerate(itertools.pairwise(self.jobs)):
            if after.arrival < before.arrival:
                raise InvalidInput(
                    f"Job {number + 1} arrives at {after.arrival} s, before job {number} at "
                    f"{before.arrival} s; sort the jobs by arrival"
                )

    def begin(self) -> None:
        """A run of it begins."""

    def follow(self, job: Job, finish: float) -> Job | None:
        """The job that follows on one whose outputs have all arrived at ``finish``, if one does."""
        return None

    def sample(self, most: int) -> list[Job]:
        """The first jobs, at most so many; of a closed loop those of the first clients."""
        return list(itertools.islice(self, most))

    def kinds(self, until: float = math.inf) -> dict[Kind, int]:
        """Graph, origin and destination of the jobs that arrive up to a moment, and the first of each."""
        found: dict[Kind, int] = {}
        for number, job in enumerate(self):
            if job.arrival > until:
                break
            found.setdefault((job.graph, job.origin, job.destination), number)
        return found

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def asked(self) -> tuple[DataflowGraph, ...]:
        """The distinct graphs of jobs, in order of first use."""
        return tuple(dict.fromkeys(job.graph for job in self.jobs))

    @property
    def graphs(self) -> tuple[DataflowGraph, ...]:
        """The distinct graphs that may run: of the jobs, in order of first use, then of batches and of
        variants.
        """
        return self._with_others(self.asked)

    def _with_others(self, own: Iterable[DataflowGraph]) -> tuple[DataflowGraph, ...]:
        """The distinct graphs of jobs, then those of batches and of variants."""
        found = dict.fromkeys(own)
        for batches in self.batches.values():
            found |= dict.fromkeys(batches.values())
        for variants in self.variants.values():
            found |= dict.fromkeys(variants)
        return tuple(found)


class Stream(Workload):
    """Jobs in order of arrival, made anew for each run as they are needed.

    Runs that keep a trace keep every job: give them a :class:`Workload`.

    Args:
        draw: called when a run begins; its jobs, the same each time.
        graphs: of all jobs that may come.
        batches, variants, accuracies: see :class:`Workload`.
    """

    known = False

    def __init__(
        self,
        draw: Callable[[], Iterable[Job]],
        graphs: Iterable[DataflowGraph],
        batches: Mapping[DataflowGraph, Mapping[int, DataflowGraph]] | None = None,
        variants: Mapping[DataflowGraph, Sequence[DataflowGraph]] | None = None,
        accuracies: Mapping[DataflowGraph, float] | None = None,
    ) -> None:
        self._draw = draw
        self._given = tuple(graphs)
        self.batches = dict(batches or {})
        self.variants = dict(variants or {})
        self.accuracies = dict(accuracies or {})

    @property
    def jobs(self) -> tuple[Job, ...]:  # type: ignore[override]
        """See :class:`Workload`.

        Raises:
            InvalidInput: always: they are not known before they arrive.
        """
        raise InvalidInput(
            "The requests of a stream are not known before they arrive; whoever needs all of them takes "
            "a run that keeps its whole trace"
        )

    def __iter__(self) -> Iterator[Job]:
        return iter(self._draw())

    def __len__(self) -> int:
        raise TypeError("nobody knows the length of a stream")

    @property
    def asked(self) -> tuple[DataflowGraph, ...]:
        """See :class:`Workload`."""
        return tuple(dict.fromkeys(self._given))
