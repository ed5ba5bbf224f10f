"""Closed-loop clients: each sends its next request some time after the answer to the last one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job, Kind, Workload


class ClosedLoop(Workload):
    """Requests of clients that wait for their answers.

    Args:
        clients: for each client its requests in order. The first arrives when its ``arrival`` says;
            of the others ``arrival`` is the time that the client thinks after the answer before.
            ``deadline`` is seconds after the arrival.
        batches, variants, accuracies: see :class:`Workload`.

    Raises:
        InvalidInput: a client has no request.
    """

    reacts = True

    def __init__(
        self,
        clients: Sequence[Sequence[Job]],
        batches: Mapping[DataflowGraph, Mapping[int, DataflowGraph]] | None = None,
        variants: Mapping[DataflowGraph, Sequence[DataflowGraph]] | None = None,
        accuracies: Mapping[DataflowGraph, float] | None = None,
    ) -> None:
        if not all(clients):
            raise InvalidInput("A client of a closed loop sends no request")
        self._clients = [tuple(requests) for requests in clients]
        first = sorted(
            ((_at(jobs[0], jobs[0].arrival), client) for client, jobs in enumerate(clients)),
            key=lambda pair: (pair[0].arrival, pair[1]),
        )
        super().__init__([job for job, _ in first], batches, variants, accuracies)
        self._begun = {id(job): (client, 0) for job, client in first}
        self._sent: dict[int, tuple[int, int]] = {}  # by id of a job under way: client and number
        self._kept: list[Job] = []  # so that no id is used twice

    def begin(self) -> None:
        """See :class:`Workload`."""
        self._sent = dict(self._begun)
        self._kept = []

    def follow(self, job: Job, finish: float) -> Job | None:
        """See :class:`Workload`."""
        client, number = self._sent.pop(id(job))
        requests = self._clients[client]
        if number + 1 == len(requests):
            return None
        given = requests[number + 1]
        following = _at(given, finish + given.arrival)
        self._sent[id(following)] = (client, number + 1)
        self._kept.append(following)
        return following

    def sample(self, most: int) -> list[Job]:
        """See :class:`Workload`."""
        return list(itertools.islice((job for jobs in self._clients for job in jobs), most))

    def kinds(self, until: float = math.inf) -> dict[Kind, int]:
        """See :class:`Workload`; nobody knows when later requests arrive."""
        found = super().kinds()
        for number, job in enumerate(self.sample(sum(map(len, self._clients)))):
            found.setdefault((job.graph, job.origin, job.destination), number)
        return found

    @property
    def asked(self) -> tuple[DataflowGraph, ...]:
        """See :class:`Workload`."""
        later = (job.graph for requests in self._clients for job in requests)
        return tuple(dict.fromkeys((*super().asked, *later)))


def _at(job: Job, arrival: float) -> Job:
    deadline = None if job.deadline is None else arrival + job.deadline
    return replace(job, arrival=arrival, deadline=deadline)
