"""Duplex: the better of Min-Min and Max-Min.

Source: Braun et al., "A Comparison of Eleven Static Heuristics for Mapping a Class of Independent Tasks
onto Heterogeneous Distributed Computing Systems", JPDC 61(6):810-837, 2001,
doi:10.1006/jpdc.2000.1714.
"""

from __future__ import annotations

from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.schedulers._batch_mapping import BatchMode, Commit, completions, explain_commit


class Duplex(BatchMode):
    """Maps a batch as ``min_min`` and as ``max_min`` do, and stays with what is believed to be done
    first as a whole (ties: as ``min_min``).

    Both are tried on the queues as they are: a batch is placed, taken back and placed again.
    """

    name: ClassVar[str] = "duplex"

    def map(self, context: SchedulingContext, tasks: list[int]) -> None:
        """See :class:`BatchMode`."""
        tried: list[tuple[float, str, list[Commit]]] = []
        for name in ("min_min", "max_min"):
            times, commits = completions(context, tasks, self.pricing), []
            while len(times):
                row = times.smallest() if name == "min_min" else times.largest()
                commits.append(times.commit(row))
            tried.append((max(finish for _, _, finish in commits), name, commits))
            for task in tasks:
                context.withdraw(task)
        (span, name, commits), (other, _, _) = sorted(tried, key=lambda trial: trial[0])
        for task, device, finish in commits:
            explain_commit(
                context, task, device, finish, f"{name}: all by {span:.6g} <= {other:.6g}"
            )
            context.place(task, device)
