"""When a device is booked: the gaps that insertion-based planners use."""

from __future__ import annotations

from bisect import bisect_right


class Timeline:
    """Booked intervals of one slot of a device, without overlap; kept as the gaps between them."""

    def __init__(self) -> None:
        # Gaps in order of time; none is empty.
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._end = 0.0  # of the last interval; all that is later is free

    def earliest(self, ready: float, duration: float, insertion: bool = True) -> float:
        """Earliest start, not before ``ready``, of an interval of ``duration`` seconds.

        ``insertion`` allows gaps between booked intervals; otherwise only the end counts.
        """
        if ready >= self._end:
            return ready
        if insertion:
            starts, ends = self._starts, self._ends
            # An interval of no length does not squeeze in where another begins: a queue that runs
            # in the order of starts could not keep that. So gaps that end at `ready` are out, too.
            for i in range(bisect_right(ends, ready), len(ends)):
                begin = starts[i]
                if begin < ready:
                    begin = ready
                if begin + duration <= ends[i]:
                    return begin
        return self._end

    def book(self, start: float, duration: float) -> None:
        """Book an interval that :meth:`earliest` returned."""
        end = start + duration
        if start >= self._end:
            if start > self._end:
                self._starts.append(self._end)
                self._ends.append(start)
            self._end = end
            return
        starts, ends = self._starts, self._ends
        i = bisect_right(ends, start)
        rest = [(a, b) for a, b in ((starts[i], start), (end, ends[i])) if a < b]
        starts[i : i + 1] = [a for a, _ in rest]
        ends[i : i + 1] = [b for _, b in rest]
