"""VGG-16 (Simonyan and Zisserman 2014, https://arxiv.org/abs/1409.1556), without batch normalisation.

Modules are named as in torchvision, whose weights therefore fit; 138,357,544 parameters.
"""

from __future__ import annotations

import torch
from torch import nn

from scenarios.models.convolutions import initialise

# Channels of the 3x3 convolutions of each stage; a stage ends in a max pooling.
_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(nn.Module):
    """Thirteen convolutions and three linear layers, one after the other."""

    def __init__(self, classes: int, hidden: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for stage in _STAGES:
            for outputs in stage:
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w], at least 32 x 32, to logits [batch, classes]."""
        x = self.avgpool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


def build(classes: int = 1000, hidden: int = 4096) -> nn.Module:
    """VGG-16 with random weights.

    Args:
        classes: outputs of the classifier.
        hidden: width of the two linear layers before it.
    """
    return initialise(VGG16(classes, hidden))
