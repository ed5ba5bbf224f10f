"""A stacked GRU (Cho et al. 2014, https://arxiv.org/abs/1406.1078) unrolled cell by cell.

As in :mod:`scenarios.models.lstm_cells`, up to min(layers, steps) cells can run at once, which a fused
GRU kernel hides.
"""

from __future__ import annotations

import torch
from torch import nn


class UnrolledGRU(nn.Module):
    """Layers of :class:`torch.nn.GRUCell` applied step by step from a zero state."""

    def __init__(self, layers: int, hidden: int, features: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cells = nn.ModuleList(
            nn.GRUCell(hidden if layer else features, hidden) for layer in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, steps, features] to the last layer's states [batch, steps, hidden]."""
        states = [x.new_zeros(x.shape[0], self.hidden)] * len(self.cells)
        outputs = []
        for step in x.unbind(1):
            for layer, cell in enumerate(self.cells):
                step = states[layer] = cell(step, states[layer])
            outputs.append(step)
        return torch.stack(outputs, 1)


def build(layers: int = 4, hidden: int = 512, features: int = 512) -> nn.Module:
    """The unrolled GRU with random weights; its steps are the length of its input.

    Args:
        layers: cells on top of one another.
        hidden: width of the state.
        features: width of the input.
    """
    return UnrolledGRU(layers, hidden, features)
