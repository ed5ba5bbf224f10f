"""SqueezeNet 1.1 (Iandola et al. 2016, https://arxiv.org/abs/1602.07360; version 1.1 is its authors'
own, with the accuracy of 1.0 for less than half the work).

Modules are named as in torchvision, whose weights therefore fit; 1,235,496 parameters.
"""

from __future__ import annotations

import torch
from torch import nn

from scenarios.models.convolutions import initialise


class Fire(nn.Module):
    """A 1x1 convolution, then 1x1 and 3x3 side by side, concatenated along the channels."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, 2 * expanded, h, w]."""
        x = self.squeeze_activation(self.squeeze(x))
        branches = [
            self.expand1x1_activation(self.expand1x1(x)),
            self.expand3x3_activation(self.expand3x3(x)),
        ]
        return torch.cat(branches, 1)


class SqueezeNet(nn.Module):
    """Eight fire modules; the classifier is a convolution."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            Fire(64, 16, 64),
            Fire(128, 16, 64),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            Fire(128, 32, 128),
            Fire(256, 32, 128),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            Fire(256, 48, 192),
            Fire(384, 48, 192),
            Fire(384, 64, 256),
            Fire(512, 64, 256),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Conv2d(512, classes, 1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w] to logits [batch, classes]."""
        return torch.flatten(self.classifier(self.features(x)), 1)


def build(classes: int = 1000) -> nn.Module:
    """SqueezeNet 1.1 with random weights."""
    return initialise(SqueezeNet(classes))
