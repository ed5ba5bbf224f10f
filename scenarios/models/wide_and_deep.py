"""Wide & Deep learning for recommender systems (Cheng et al. 2016,
https://doi.org/10.1145/2988450.2988454).

The wide part is a linear model of crossed features, given as the numbers of the (hashed) products that
are present; the deep part embeds every categorical field in a table of its own and reads all of them
and the dense features through three layers.
"""

from __future__ import annotations

import torch
from torch import nn


class WideAndDeep(nn.Module):
    """See the module docstring.

    Args:
        fields: categorical fields.
        vocabulary: values of a field.
        width: of a field's embedding.
        dense: dense features.
        products: values of a hashed cross product.
    """

    def __init__(self, fields: int, vocabulary: int, width: int, dense: int, products: int) -> None:
        super().__init__()
        self.wide = nn.Embedding(products, 1)
        self.embeddings = nn.ModuleList(nn.Embedding(vocabulary, width) for _ in range(fields))
        self.deep = nn.Sequential(
            nn.Linear(fields * width + dense, 1024),
            nn.ReLU(inplace=True),
            nn.Linear(1024, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, 256),
            nn.ReLU(inplace=True),
            nn.Linear(256, 1),
        )

    def forward(
        self, crossed: torch.Tensor, categories: torch.Tensor, dense: torch.Tensor
    ) -> torch.Tensor:
        """Crossed [batch, crossings] and categories [batch, fields] (numbers) and dense features
        [batch, dense] to probabilities [batch, 1].
        """
        fields = zip(self.embeddings, categories.unbind(1), strict=True)
        embedded = [table(column) for table, column in fields]
        deep = self.deep(torch.cat([*embedded, dense], 1))
        return torch.sigmoid(self.wide(crossed).sum(1) + deep)


def build(
    fields: int = 26,
    vocabulary: int = 10_000,
    width: int = 32,
    dense: int = 13,
    products: int = 1_000_000,
) -> nn.Module:
    """Wide & Deep with random weights; the defaults have the fields of the Criteo data sets and the
    paper's layers.

    Args:
        fields: categorical fields.
        vocabulary: values of a field.
        width: of a field's embedding.
        dense: dense features.
        products: values of a hashed cross product.
    """
    return WideAndDeep(fields, vocabulary, width, dense, products)
