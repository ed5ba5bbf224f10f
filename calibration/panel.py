"""A panel of operators whose times say how fast this machine is now, beside what its profiles say.

One operator cannot: what a host's other guests do to its caches and to its memory slows light operators,
those that read weights from memory, convolutions and large products by different factors, and not by the same
ones from one hour to the next. The panel is a small model with operators of all these sorts, most of shapes
that ResNet-18, ViT-B/16, AlexNet and Wide & Deep have, so that profiles hold measured times of them. It is
executed by whatever executes the models in question.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Panel(nn.Module):
    """Blocks of convolutional, transformer and recommendation models beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)
        )
        self.early = _Block(64)
        self.middle = _Block(256)
        self.late = _Block(512)
        self.narrow = nn.Sequential(*(_Separable(48) for _ in range(3)))
        self.attention_norm = nn.LayerNorm(768)
        self.projection = nn.Linear(768, 768)
        self.norm = nn.LayerNorm(768)
        self.wide = nn.Linear(9216, 4096)
        self.scores = nn.Linear(4096, 1000)
        self.deep = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(
        self,
        image: torch.Tensor,
        early: torch.Tensor,
        middle: torch.Tensor,
        late: torch.Tensor,
        small: torch.Tensor,
        tokens: torch.Tensor,
        features: torch.Tensor,
        crossed: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """An image, others of 64, 256, 512 and 48 channels, a sequence, and two vectors of features."""
        heads = self.attention_norm(tokens).view(1, 197, 12, 64).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(heads, heads, heads)
        tokens = tokens + self.projection(mixed.transpose(1, 2).reshape(1, 197, 768))
        return (
            self.stem(image),
            self.early(early),
            self.middle(middle),
            self.narrow(small),
            functional.gelu(self.norm(tokens)),
            torch.sigmoid(self.deep(crossed)),
            self.late(late),
            torch.tanh(self.scores(functional.relu(self.wide(features)))),
        )


class _Block(nn.Module):
    """Of ResNet-18."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two convolutions and a shortcut."""
        found = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(found)) + x)


class _Separable(nn.Module):
    """An inverted residual: a depthwise convolution of four times the channels between two products."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.layers = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The shortcut added."""
        return x + self.layers(x)
