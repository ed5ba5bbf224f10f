"""A panel of operators whose times say how fast this machine is now, beside what its profiles say.

One operator cannot: what a host's other guests do to its caches and to its memory slows light operators,
those that read weights from memory, convolutions over neighbours and products of matrices by different factors,
and not by the same ones from one hour to the next. The panel is a small model with operators of all these sorts,
of shapes that ResNet-18, EfficientNet-B0, ViT-B/16, AlexNet and Wide & Deep have, so that profiles hold
measured times of most of them. It is executed by whatever executes the models in question.
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
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.pool = nn.MaxPool2d(3, stride=1, ceil_mode=True)
        self.early = _Residual(64)
        self.narrowing = _Strided(64, 128)
        self.middle = _Residual(256)
        self.halving = _Strided(256, 512)
        self.late = _Residual(512)
        self.shortcuts = nn.Sequential(*(_shortcut(*channels) for channels in SHORTCUTS))
        self.inverted = nn.ModuleList(_Inverted(channels, wide) for channels, wide in INVERTED)
        self.attention_norm = nn.LayerNorm(768)
        self.projection = nn.Linear(768, 768)
        self.norm = nn.LayerNorm(768)
        self.contraction = nn.Linear(3072, 768)
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
        high: torch.Tensor,
        half: torch.Tensor,
        small: torch.Tensor,
        square: torch.Tensor,
        tokens: torch.Tensor,
        expanded: torch.Tensor,
        features: torch.Tensor,
        crossed: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """An image; others of 64, 256, 512, 40, 112, 192 and 96 channels; a sequence, one of four times the
        width, and two vectors of features.
        """
        heads = self.attention_norm(tokens).view(1, 197, 12, 64).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(heads, heads, heads)
        tokens = tokens + self.projection(mixed.transpose(1, 2).reshape(1, 197, 768))
        found = self.early(early)
        coarse = self.middle(middle)
        return (
            self.stem(image),
            self.narrowing(found),
            self.shortcuts(early),
            *(layer(x) for layer, x in zip(self.inverted, (high, half, small), strict=True)),
            self.halving(coarse),
            self.pool(square),
            self.norm(tokens) + self.contraction(functional.gelu(expanded)),
            torch.sigmoid(self.deep(crossed)),
            self.late(late),
            torch.tanh(self.scores(functional.relu(self.wide(features)))),
        )


SHORTCUTS = ((64, 128), (128, 256), (256, 512))
"""Channels of ResNet-18's shortcuts, here one behind the other: short operators among short ones."""

INVERTED = ((40, 240), (112, 672), (192, 1152))
"""Channels outside and inside of EfficientNet-B0's blocks that stay as they are."""


class _Residual(nn.Module):
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


class _Strided(nn.Module):
    """What ResNet-18 halves its images with."""

    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.found = nn.Conv2d(channels, wide, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(wide)
        self.shortcut = nn.Conv2d(channels, wide, 1, stride=2, bias=False)
        self.shortcut_norm = nn.BatchNorm2d(wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A convolution, and a shortcut that is one, too."""
        return functional.relu(self.norm(self.found(x))) + self.shortcut_norm(self.shortcut(x))


def _shortcut(channels: int, wide: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, wide, 1, stride=2, bias=False), nn.BatchNorm2d(wide), nn.ReLU()
    )


class _Inverted(nn.Module):
    """An inverted residual: a depthwise convolution between two products."""

    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(),
            nn.Conv2d(wide, wide, 5, padding=2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.SiLU(),
            nn.Conv2d(wide, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The shortcut added."""
        return x + self.layers(x)
