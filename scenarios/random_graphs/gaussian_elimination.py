"""Gaussian elimination by columns."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import Shape, check_number, check_size


@dataclass(frozen=True)
class GaussianElimination:
    """The graph of Cosnard et al., as in Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002, section 5.3.1.

    Step k finds the pivot of column k and scales it (task ``Tk,k``, m - k operations), then updates
    each column j behind it (``Tk,j``, 2 (m - k) operations). Every edge moves what is left of a
    column, m - k elements.

    Attributes:
        m: columns of the matrix, at least 2; (m^2 + m - 2) / 2 tasks, m (m - 1) - 1 edges.
    """

    m: int

    def __post_init__(self) -> None:
        check_number("m", self.m, 2, 100_000)
        check_size((self.m**2 + self.m - 2) // 2, self.m**2)

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        names: list[str] = []
        work: list[float] = []
        edges: list[tuple[int, int]] = []
        data: list[float] = []
        # The task that last wrote each column.
        writer: dict[int, int] = {}
        for k in range(1, self.m):
            pivot = len(names)
            for j in range(k, self.m + 1):
                task = len(names)
                names.append(f"T{k},{j}")
                work.append(float((self.m - k) * (1 if j == k else 2)))
                reads = {writer[j]} if j in writer else set()
                if j > k:
                    reads.add(pivot)
                edges += [(parent, task) for parent in sorted(reads)]
                data += [float(self.m - k)] * len(reads)
                writer[j] = task
        return Shape.of(edges, work, data, names)
