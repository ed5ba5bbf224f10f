"""The fast Fourier transform."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import Shape, check_number, check_size
from simulator.errors import InvalidInput


@dataclass(frozen=True)
class FFT:
    """Recursive calls and butterflies of Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002, section 5.3.2.

    A binary tree of calls, whose leaves feed log2(m) rows of m butterfly tasks; task i of a row reads
    tasks i and i + or - 2^row of the row before.

    Attributes:
        m: points, a power of two, at least 2; 2 m - 1 + m log2(m) tasks.
    """

    m: int

    def __post_init__(self) -> None:
        check_number("m", self.m, 2, 2**17)
        if self.m & (self.m - 1):
            raise InvalidInput(f"family.m={self.m} must be a power of two, e.g. 16")
        rows = self.m.bit_length() - 1
        check_size(2 * self.m - 1 + self.m * rows, 2 * self.m * (1 + rows))

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        calls = 2 * self.m - 1
        edges = [(call, 2 * call + side) for call in range(self.m - 1) for side in (1, 2)]
        names = [f"call{call}" for call in range(calls)]
        before = calls - self.m
        for row in range(self.m.bit_length() - 1):
            for point in range(self.m):
                task = len(names)
                names.append(f"b{row},{point}")
                edges += [(before + other, task) for other in sorted((point, point ^ (1 << row)))]
            before = len(names) - self.m
        return Shape.of(edges, np.ones(len(names)), names=names)
