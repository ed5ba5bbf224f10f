"""The arithmetic of operators in place, and their running where they stand."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.benchmarks.end_to_end import model_config  # noqa: E402
from tests.benchmarks.in_place import InPlace, lines  # noqa: E402


def test_a_kind_is_shown_if_it_takes_a_hundredth() -> None:
    placed = np.tile([1e-3, 2e-3, 1e-3, 1e-6], (3, 1))
    visited = placed * [1.1, 1.0, 1.1, 9.0]
    found = lines(["conv2d", "linear", "conv2d", "relu"], np.full(5, 4.5e-3), placed, visited)
    whole, *kinds = (line.split(" | ") for line in found)
    assert whole[:3] == ["all", "4", "4.50"]
    assert whole[3:6] == ["4.00", "4.21", "+5.2%"]
    assert [row[0] for row in kinds] == ["conv2d", "linear"]
    assert kinds[0][3:] == 2 * ["2.00", "2.20", "+10.0%"]
    assert kinds[1][5] == "+0.0%"


def test_operators_are_timed_where_they_stand() -> None:
    """Each once, in the graph's order, on what those before it have written."""
    model = InPlace(model_config("wide_and_deep"), 1)
    noted: list[tuple[int, float]] = []
    shapes = []

    def note(position: int, seconds: float, arguments: list[torch.Tensor]) -> None:
        noted.append((position, seconds))
        shapes.append([tuple(tensor.shape) for tensor in arguments])

    with torch.inference_mode():
        model.execute(note)
    assert [position for position, _ in noted] == list(range(len(model.graph)))
    assert all(seconds > 0 for _, seconds in noted)
    specs = [[model.graph.tensors[t].spec for t in row] for row in model.graph.reads]
    assert shapes == [[spec.shape for spec in row if spec is not None] for row in specs]
