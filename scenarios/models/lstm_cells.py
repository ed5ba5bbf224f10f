"""A stacked LSTM (Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735)
unrolled cell by cell.

One operator per layer and step: cell (layer, step) needs (layer - 1, step) and (layer, step - 1), so
that up to min(layers, steps) cells can run at once, which a fused LSTM kernel hides.
"""

from __future__ import annotations

import torch
from torch import nn


class UnrolledLSTM(nn.Module):
    """Layers of :class:`torch.nn.LSTMCell` applied step by step from a zero state."""

    def __init__(self, layers: int, hidden: int, features: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cells = nn.ModuleList(
            nn.LSTMCell(hidden if layer else features, hidden) for layer in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, steps, features] to the last layer's states [batch, steps, hidden]."""
        zero = x.new_zeros(x.shape[0], self.hidden)
        states = [(zero, zero) for _ in self.cells]
        outputs = []
        for step in x.unbind(1):
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(step, states[layer])
                step = states[layer][0]
            outputs.append(step)
        return torch.stack(outputs, 1)


def build(layers: int = 4, hidden: int = 512, features: int = 512) -> nn.Module:
    """The unrolled LSTM with random weights; its steps are the length of its input.

    Args:
        layers: cells on top of one another.
        hidden: width of the state.
        features: width of the input.
    """
    return UnrolledLSTM(layers, hidden, features)
