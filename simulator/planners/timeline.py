"""When a device is booked: the gaps that insertion-based planners use."""

from __future__ import annotations

from bisect import bisect_right

Undo = tuple[int, int, float, float]
"""What a booking replaced: the first gap, how many gaps stand there now, and its start and end; or -1,
how many gaps it added at the end, and the end of the last interval before.
"""


class Timeline:
    """Booked intervals of one slot of a device, without overlap; kept as the gaps between them."""

    def __init__(self) -> None:
        # Gaps in order of time; none is empty.
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._end = 0.0

    @property
    def end(self) -> float:
        """End of the last interval; all that is later is free."""
        return self._end

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """Free intervals before :attr:`end`, in order of time."""
        return list(zip(self._starts, self._ends, strict=True))

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

    def book(self, start: float, duration: float) -> Undo:
        """Book an interval that :meth:`earliest` returned. What it returns is for :meth:`undo`."""
        end = start + duration
        last = self._end
        if start >= last:
            self._end = end
            if start > last:
                self._starts.append(last)
                self._ends.append(start)
                return -1, 1, last, last
            return -1, 0, last, last
        starts, ends = self._starts, self._ends
        i = bisect_right(ends, start)
        first, last = starts[i], ends[i]
        rest = [(a, b) for a, b in ((first, start), (end, last)) if a < b]
        starts[i : i + 1] = [a for a, _ in rest]
        ends[i : i + 1] = [b for _, b in rest]
        return i, len(rest), first, last

    def undo(self, booking: Undo) -> None:
        """Take back the last booking that has not been taken back yet."""
        i, gaps, first, last = booking
        if i < 0:
            self._end = first
            if gaps:
                self._starts.pop()
                self._ends.pop()
        else:
            self._starts[i : i + gaps] = [first]
            self._ends[i : i + gaps] = [last]
