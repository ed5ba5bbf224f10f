"""Two LSTM towers over text, unrolled cell by cell, whose last states are compared: a Siamese LSTM (Mueller and
Thyagarajan 2016, https://doi.org/10.1609/aaai.v30i1.10350) with towers of their own and a product as its score, as
in retrieval (Palangi et al. 2016, https://doi.org/10.1109/TASLP.2016.2520371).

One forward pass scores each query against the document beside it. The towers meet only in the last product, so that
they can run at once; within a tower cells run as in :mod:`scenarios.models.lstm_cells`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class TextTower(nn.Module):
    """An embedding and layers of :class:`torch.nn.LSTMCell`, to the last layer's last state, of length 1."""

    def __init__(self, vocabulary: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.words = nn.Embedding(vocabulary, hidden)
        self.cells = nn.ModuleList(nn.LSTMCell(hidden, hidden) for _ in range(layers))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Words [batch, steps] to [batch, hidden]."""
        x = self.words(text)
        zero = x.new_zeros(x.shape[0], self.hidden)
        states = [(zero, zero) for _ in self.cells]
        for step in x.unbind(1):
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(step, states[layer])
                step = states[layer][0]
        return functional.normalize(states[-1][0], dim=1)


class TwoTowerLSTM(nn.Module):
    """See the module docstring."""

    def __init__(self, vocabulary: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.query = TextTower(vocabulary, layers, hidden)
        self.document = TextTower(vocabulary, layers, hidden)

    def forward(self, query: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        """Words of queries [batch, steps] and of documents [batch, document_steps] to scores [batch]."""
        return (self.query(query) * self.document(document)).sum(1)


def build(vocabulary: int = 30_000, layers: int = 2, hidden: int = 512) -> nn.Module:
    """The two towers with random weights; their steps are the lengths of their inputs.

    Args:
        vocabulary: known words.
        layers: cells on top of one another, in each tower.
        hidden: width of the state and of a word's vector.
    """
    return TwoTowerLSTM(vocabulary, layers, hidden)
