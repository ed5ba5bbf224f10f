"""When a device is booked: the gaps that insertion-based planners use."""

from __future__ import annotations

from bisect import bisect_right


class Timeline:
    """Booked intervals of one slot of a device, without overlap, in order of time."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def earliest(self, ready: float, duration: float, insertion: bool = True) -> float:
        """Earliest start, not before ``ready``, of an interval of ``duration`` seconds.

        ``insertion`` allows gaps between booked intervals; otherwise only the end counts.
        """
        ends = self._ends
        if not ends or ready >= ends[-1]:
            return ready
        if not insertion:
            return ends[-1]
        starts = self._starts
        # Gaps that end before `ready` cannot hold it: begin with the interval running then.
        i = bisect_right(ends, ready)
        begin = ready
        while i < len(starts):
            # An interval of no length does not squeeze in where another begins: a queue that runs
            # in the order of starts could not keep that.
            if begin + duration <= starts[i] and begin < starts[i]:
                return begin
            begin = max(begin, ends[i])
            i += 1
        return begin

    def book(self, start: float, duration: float) -> None:
        """Book an interval that :meth:`earliest` returned."""
        i = bisect_right(self._starts, start)
        self._starts.insert(i, start)
        self._ends.insert(i, start + duration)
