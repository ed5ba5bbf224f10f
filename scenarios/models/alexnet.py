"""AlexNet as in "One weird trick" (Krizhevsky 2014, https://arxiv.org/abs/1404.5997): one tower.

Modules are named as in torchvision, whose weights therefore fit; 61,100,840 parameters, 96% of them in
the linear layers.
"""

from __future__ import annotations

import torch
from torch import nn

from scenarios.models.convolutions import initialise


class AlexNet(nn.Module):
    """Five convolutions and three linear layers, one after the other."""

    def __init__(self, classes: int, hidden: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(256 * 6 * 6, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w], at least 63 x 63, to logits [batch, classes]."""
        x = self.avgpool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


def build(classes: int = 1000, hidden: int = 4096) -> nn.Module:
    """AlexNet with random weights.

    Args:
        classes: outputs of the classifier.
        hidden: width of the two linear layers before it.
    """
    return initialise(AlexNet(classes, hidden))
