"""A two-tower retrieval model (Yi et al. 2019, https://doi.org/10.1145/3298689.3346996): users and
items are embedded by networks of their own, and a score is the product of the two embeddings.

One forward pass scores every user of the batch against the same candidates. The towers meet only in
the last product. A user is the items last watched and some other fields, an item its number and some
other fields; both towers share the table of items.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Tower(nn.Module):
    """Three layers to an embedding of length 1.

    Args:
        inputs: width of what it reads.
        embedding: width of what it gives.
    """

    def __init__(self, inputs: int, embedding: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 1024),
            nn.ReLU(inplace=True),
            nn.Linear(1024, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, embedding),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, inputs] to [rows, embedding]."""
        return functional.normalize(self.layers(x), dim=1)


class TwoTower(nn.Module):
    """See the module docstring.

    Args:
        items: known items.
        values: values that a field may have.
        user_fields: categorical fields of a user.
        item_fields: categorical fields of an item.
        width: of every looked-up vector.
        embedding: of what the towers give.
    """

    def __init__(
        self,
        items: int,
        values: int,
        user_fields: int,
        item_fields: int,
        width: int,
        embedding: int,
    ) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.user_fields = nn.ModuleList(nn.Embedding(values, width) for _ in range(user_fields))
        self.item_fields = nn.ModuleList(nn.Embedding(values, width) for _ in range(item_fields))
        self.user = Tower((1 + user_fields) * width, embedding)
        self.item = Tower((1 + item_fields) * width, embedding)
        self.temperature = 0.05

    def forward(
        self,
        history: torch.Tensor,
        user: torch.Tensor,
        candidates: torch.Tensor,
        item: torch.Tensor,
    ) -> torch.Tensor:
        """Items watched [batch, length], fields of the users [batch, user_fields], numbers of the
        candidates [candidates] and their fields [candidates, item_fields] to scores
        [batch, candidates].
        """
        watched = self.items(history).mean(1)
        users = self.user(_looked_up(watched, self.user_fields, user))
        items = self.item(_looked_up(self.items(candidates), self.item_fields, item))
        return users @ items.T / self.temperature


def _looked_up(first: torch.Tensor, tables: nn.ModuleList, fields: torch.Tensor) -> torch.Tensor:
    """What a tower reads: ``first`` [rows, width] beside the embeddings of the fields [rows, n]."""
    columns = zip(tables, fields.unbind(1), strict=True)
    return torch.cat([first, *(table(column) for table, column in columns)], 1)


def build(
    items: int = 50_000,
    values: int = 1_000,
    user_fields: int = 8,
    item_fields: int = 4,
    width: int = 64,
    embedding: int = 128,
) -> nn.Module:
    """The two towers with random weights.

    Args:
        items: known items.
        values: values that a field may have.
        user_fields: categorical fields of a user.
        item_fields: categorical fields of an item.
        width: of every looked-up vector.
        embedding: of what the towers give.
    """
    return TwoTower(items, values, user_fields, item_fields, width, embedding)
