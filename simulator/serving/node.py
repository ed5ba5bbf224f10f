"""Nodes, where requests wait and are served, and what may be asked about them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from simulator.context.serving import BatchingContext
from simulator.model.graph import DataflowGraph


@dataclass
class Group:
    """The waiting requests of one model at one node, oldest first.

    Attributes:
        graph: of its requests.
        sizes: prepared batches, ascending.
        seconds: believed, by size and device.
        each: items of a request; 0 where they differ.
    """

    graph: DataflowGraph
    sizes: Sequence[int]
    seconds: dict[int, list[float]]
    queue: deque[int] = field(default_factory=deque)
    each: int = 0
    _counts: dict[int, list[int]] = field(default_factory=dict)
    _largest: dict[tuple[int, int], int] = field(default_factory=dict)

    def largest(self, most: int, devices: Sequence[int]) -> int:
        """The largest prepared batch of at most ``most`` items that one of some devices can run, which
        limited memory may prevent; the smallest prepared one if there is none.
        """
        key = (most, devices[0] if len(devices) == 1 else -1)
        found = self._largest.get(key)
        if found is None:
            possible = (
                size
                for size in reversed(self.sizes)
                if size <= most and min(self.seconds[size][d] for d in devices) < math.inf
            )
            found = self._largest[key] = next(possible, self.sizes[0])
        return found

    def runs_on(self, context: BatchingContext, device: int) -> bool:
        """Whether a device can serve the oldest request alone."""
        items = self.each or context.jobs[self.queue[0]].batch or 1
        seconds = self.seconds.get(items) or self.seconds[self.sizes[0]]
        return seconds[device] < math.inf

    def items(self, context: BatchingContext, count: int) -> int:
        """Of the oldest ``count`` requests."""
        if self.each:
            return self.each * count
        jobs = context.jobs
        return sum(jobs[job].batch or 1 for job in islice(self.queue, count))

    def count_within(self, most: int) -> int:
        """The most of its requests, all of ``each`` items, that are a prepared batch of at most ``most``
        items, or one request; 0 if none is.
        """
        waiting = len(self.queue)
        counts = self._counts.get(most)
        if counts is None:
            # By the number of requests that wait, up to what an execution can take.
            counts = [0]
            for count in range(1, max(1, most // self.each) + 1):
                counts.append(count if count * self.each in self.seconds else counts[-1])
            self._counts[most] = counts
        return counts[waiting] if waiting < len(counts) else counts[-1]


@dataclass
class Node:
    """A memory space, the devices in it and what waits there.

    Attributes:
        slots: executions that its devices run at once.
    """

    space: int
    devices: list[int]
    slots: int = 0
    groups: dict[DataflowGraph, Group] = field(default_factory=dict)

    @property
    def any_waits(self) -> bool:
        """Whether a request waits."""
        return any(group.queue for group in self.groups.values())

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return sum(len(group.queue) for group in self.groups.values())


class Nodes(Protocol):
    """The nodes of a dispatcher, as a selection of nodes sees them."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """By memory space."""
        ...

    def backlog_seconds(self, context: BatchingContext, node: Node) -> float:
        """Believed seconds until a node has served all that waits and runs there, its slots sharing
        the work evenly.
        """
        ...

    def coming_seconds(self, space: int) -> float:
        """Believed seconds of work that is on its way to a node, its slots sharing it evenly."""
        ...
