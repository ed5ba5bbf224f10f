"""Tiled Cholesky factorisation."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import Shape, check_number, check_size


@dataclass(frozen=True)
class Cholesky:
    """The right-looking algorithm on tiles (Buttari et al., Parallel Computing 35(1), 2009).

    Tasks by the operations of b x b tiles: ``potrf`` 1/3, ``trsm`` 1, ``syrk`` 1, ``gemm`` 2 (times
    b^3). Every edge moves a tile.

    Attributes:
        tiles: along a side of the matrix, t; t (t + 1) (t + 2) / 6 tasks.
    """

    tiles: int

    def __post_init__(self) -> None:
        check_number("tiles", self.tiles, 1, 10_000)
        tasks = self.tiles * (self.tiles + 1) * (self.tiles + 2) // 6
        check_size(tasks, 3 * tasks)

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        names: list[str] = []
        work: list[float] = []
        edges: list[tuple[int, int]] = []
        # The task that last wrote each tile.
        writer: dict[tuple[int, int], int] = {}

        def add(
            name: str, operations: float, tile: tuple[int, int], *reads: tuple[int, int]
        ) -> None:
            task = len(names)
            names.append(name)
            work.append(operations)
            edges.extend((parent, task) for parent in sorted({writer[r] for r in reads}))
            if tile in writer:
                edges.append((writer[tile], task))
            writer[tile] = task

        for k in range(self.tiles):
            add(f"potrf{k}", 1 / 3, (k, k))
            for i in range(k + 1, self.tiles):
                add(f"trsm{i},{k}", 1.0, (i, k), (k, k))
            for i in range(k + 1, self.tiles):
                for j in range(k + 1, i):
                    add(f"gemm{i},{j},{k}", 2.0, (i, j), (i, k), (j, k))
                add(f"syrk{i},{k}", 1.0, (i, i), (i, k))
        return Shape.of(edges, work, names=names)
