"""Modified Critical Path.

Source: Wu, Gajski, "Hypertool: A Programming Aid for Message-Passing Systems", IEEE TPDS 1(3):330-343,
1990, doi:10.1109/71.80160.

The paper has equal processors. Here latest start times come from mean times, and a task goes to the
device of earliest finish.
"""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import ClassVar

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.list_planner import OrderedPlanner
from simulator.planners.ranking import Ranking, places
from simulator.planners.ranks import upward_ranks
from simulator.schedulers._dynamic_list import RankedReadyList


class LatestStarts(Ranking):
    """Operators by the ascending list of their own latest start and those of all their descendants.

    A latest start is the longest path less the upward rank. Of two lists of which one begins with the
    other the longer comes first, so that no operator is before its predecessor.
    """

    def __init__(
        self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication
    ) -> None:
        self._rank = upward_ranks(graph, seconds, communication)
        self._longest = max(self._rank)
        order = sorted(range(len(graph)), key=lambda i: (-self._rank[i], i))
        tied = [self._rank[a] == self._rank[b] for a, b in pairwise(order)]
        if any(tied):
            order = self._untied(graph, order, tied)
        super().__init__(order, places(order))

    def _untied(self, graph: DataflowGraph, order: list[int], tied: list[bool]) -> list[int]:
        """Put equal latest starts into the order of the whole lists."""
        # Sets of operators as integers: the bit of an operator counts from the end of the order, so
        # that the first of a list is the highest bit, and late operators have small sets.
        count = len(order)
        bit = [0] * count
        edge = [0] * count  # the lowest bit of those that start as late
        for place in range(count - 1, -1, -1):
            operator = order[place]
            bit[operator] = count - 1 - place
            same = place + 1 < count and tied[place]
            edge[bit[operator]] = edge[bit[operator] - 1] if same else bit[operator]
        wanted = [False] * count
        for place, same in enumerate(tied):
            if same:
                wanted[order[place]] = wanted[order[place + 1]] = True
        successors = graph.successors
        for operator in range(count):
            if wanted[operator]:
                for successor in successors[operator]:
                    wanted[successor] = True
        descendants = [0] * count
        for operator in range(count - 1, -1, -1):
            if wanted[operator]:
                found = 1 << bit[operator]
                for successor in successors[operator]:
                    found |= descendants[successor]
                descendants[operator] = found

        def compare(a: int, b: int) -> int:
            one, two = descendants[a], descendants[b]
            while different := one ^ two:
                # All that start as late as the first that only one of them has.
                low = edge[different.bit_length() - 1]
                more = (two >> low).bit_count() - (one >> low).bit_count()
                if more:
                    return more
                mask = (1 << low) - 1
                one, two = one & mask, two & mask
            return 0  # a group is in the order of ids, and sorting keeps it

        result: list[int] = []
        begin = 0
        for end in range(1, count + 1):
            if end == count or not tied[end - 1]:
                group = order[begin:end]
                result += sorted(group, key=cmp_to_key(compare)) if end - begin > 1 else group
                begin = end
        return result

    def why(self, operator: int) -> str:
        """See :class:`Ranking`."""
        return f"latest start {self._longest - self._rank[operator]:.6g}"


class Mcp(OrderedPlanner):
    """Tasks by increasing latest start (ties: the latest starts of their descendants, then smaller id),
    each on the device of earliest finish (ties: smaller id), in gaps where it fits. Planned when a job
    arrives.
    """

    name: ClassVar[str] = "mcp"
    rank = LatestStarts


class DynamicMcp(RankedReadyList[LatestStarts]):
    """Ready tasks in the order of MCP, each at once to the device of least estimated finish."""

    name: ClassVar[str] = "dynamic_mcp"
    rank = LatestStarts
