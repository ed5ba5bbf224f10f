"""Max-min fair rates of flows over shared channels, kept up to date as flows come and go.

Rates are max-min fair when no flow can get more without taking from one that has no more than it.
Progressive filling finds them: all rates grow together until a channel is full; its flows are fixed at
that rate, and the others grow on (Bertsekas and Gallager, *Data Networks*, 2nd ed., section 6.5.2).

A change reaches only the flows that are joined to it by a chain of shared channels. Only those are
worked out again, once for all changes between two calls of :meth:`MaxMin.update`. The rates are the
same to the last bit as those of a computation from scratch, in whatever order the changes came: the
channel that fills next is chosen by (rate, number), and the flows that it fixes all take the same
amount from their other channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from itertools import permutations
from math import inf
from typing import Generic, Protocol, TypeVar


class Sharer(Protocol):
    """What the solver needs of a flow; ``mark`` and ``share`` belong to the solver while it is in.

    Attributes:
        channels: the channels it crosses, each once, at least one.
        share: its rate as of the last update, in the unit of the capacities; -1 before the first.
        mark: the solver's own, at least 0 from :meth:`MaxMin.add` on.
    """

    channels: tuple[int, ...]
    share: float
    mark: int


S = TypeVar("S", bound=Sharer)


class MaxMin(Generic[S]):
    """The flows on a set of channels and their rates.

    ``capacities``: of each channel, at least 0, may be infinite.
    """

    def __init__(self, capacities: Sequence[float]) -> None:
        self._capacity = list(capacities)
        self._even = len(set(capacities)) == 1  # all channels are equally wide
        # Dictionaries for their order: flows are found in the order in which they came.
        self._members: list[dict[S, None]] = [{} for _ in self._capacity]
        # For each channel those that flows cross as well, with the number of these flows.
        self._beside: list[dict[int, int]] = [{} for _ in self._capacity]
        self._touched: list[int] = []
        self._update = 0
        self._seen = [0] * len(self._capacity)  # the update that last looked at a channel
        self._left = [0.0] * len(self._capacity)
        self._open = [0] * len(self._capacity)  # flows of a channel whose rate is not fixed yet

    def add(self, flow: S) -> None:
        """A flow begins to share its channels."""
        flow.share = -1.0
        flow.mark = 0
        members = self._members
        channels = flow.channels
        self._touched.append(channels[0])  # the others are reached from it
        for channel in channels:
            members[channel][flow] = None
        for channel, other in permutations(channels, 2):
            beside = self._beside[channel]
            beside[other] = beside.get(other, 0) + 1

    def remove(self, flow: S) -> None:
        """A flow leaves its channels."""
        members = self._members
        channels = flow.channels
        for channel in channels:
            group = members[channel]
            del group[flow]
            if group:
                self._touched.append(channel)
        for channel, other in permutations(channels, 2):
            beside = self._beside[channel]
            if beside[other] == 1:
                del beside[other]
            else:
                beside[other] -= 1

    def set_capacity(self, channel: int, capacity: float) -> None:
        """A channel's capacity changes."""
        self._capacity[channel] = capacity
        self._even = len(set(self._capacity)) == 1
        self._touched.append(channel)

    def prospect(self, channels: Sequence[int]) -> float:
        """The rate of one flow more if each channel were shared equally: a guess that is never above
        what max-min sharing would give it.
        """
        return min(self._capacity[c] / (len(self._members[c]) + 1) for c in channels)

    def update(self) -> list[S]:
        """Work out the rates anew; returns the flows whose ``share`` is now another."""
        changed: list[S] = []
        if not self._touched:
            return changed
        update = self._update = self._update + 1
        seen, members, beside, even = self._seen, self._members, self._beside, self._even
        for first in self._touched:
            group = members[first]
            if seen[first] == update or not group:
                continue
            # The channels of the connected component that may be full. One that carries a single
            # flow is left out if this flow crosses another that is no wider.
            seen[first] = update
            channels = [first]
            for channel in channels:  # grows while it is walked
                for other in beside[channel]:
                    if seen[other] != update:
                        seen[other] = update
                        if len(members[other]) > 1 or not (even or self._is_idle(other)):
                            channels.append(other)
            if len(channels) > 1 and len(group) == 1 and (even or self._is_idle(first)):
                del channels[0]
            if len(channels) > 1:
                self._fill(channels, changed)
                continue
            group = members[channels[0]]
            share = self._capacity[channels[0]] / len(group)
            for flow in group:
                if flow.share != share:
                    flow.share = share
                    changed.append(flow)
        self._touched.clear()
        return changed

    def _is_idle(self, channel: int) -> bool:
        """Whether a channel with a single flow cannot limit it: another on its way is narrower, or
        as wide and shared, or as wide and of a smaller number.
        """
        capacity, members = self._capacity, self._members
        width = capacity[channel]
        (flow,) = members[channel]
        for other in flow.channels:
            if capacity[other] < width or (
                capacity[other] == width and (len(members[other]) > 1 or other < channel)
            ):
                return True
        return False

    def _fill(self, channels: list[int], changed: list[S]) -> None:
        """Progressive filling of one connected component; fixed flows are marked by the update."""
        left, unfixed, members = self._left, self._open, self._members
        update = self._update
        heap = []
        for channel in channels:
            capacity = left[channel] = self._capacity[channel]
            count = unfixed[channel] = len(members[channel])
            heap.append((capacity / count, channel))
        heapify(heap)
        while heap:
            share, channel = heap[0]
            count = unfixed[channel]
            if not count:
                heappop(heap)
                continue
            # Shares never sink while channels fill, so a stale entry is only ever too small.
            if share != inf:
                current = left[channel] / count
                if current > share:
                    heapreplace(heap, (current, channel))
                    continue
                share = current
            heappop(heap)
            for flow in members[channel]:
                if flow.mark != update:
                    flow.mark = update
                    if flow.share != share:
                        flow.share = share
                        changed.append(flow)
                    for other in flow.channels:
                        left[other] -= share
                        unfixed[other] -= 1
