"""Workloads whose jobs are drawn while they run, and not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job, Workload


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
