"""DenseNet-121 (Huang, Liu, van der Maaten, Weinberger 2016, https://arxiv.org/abs/1608.06993).

Modules are named as in torchvision, whose weights therefore fit; 7,978,856 parameters. Every layer
reads the outputs of all layers before it in its block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from scenarios.models.convolutions import initialise

_GROWTH = 32


class DenseLayer(nn.Module):
    """1x1 and 3x3 convolutions, each after batch normalisation and ReLU."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, 4 * _GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * _GROWTH)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4 * _GROWTH, _GROWTH, 3, padding=1, bias=False)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        """Feature maps [batch, *, h, w] to one more, [batch, 32, h, w]."""
        x = self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu2(self.norm2(x)))


class DenseBlock(nn.Module):
    """Layers that each read all feature maps so far."""

    def __init__(self, layers: int, inputs: int) -> None:
        super().__init__()
        for layer in range(layers):
            self.add_module(f"denselayer{layer + 1}", DenseLayer(inputs + layer * _GROWTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, inputs + 32 * layers, h, w]."""
        features = [x]
        for layer in self.children():
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    """Halves the channels and the grid."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)
        self.pool = nn.AvgPool2d(2, stride=2)


class DenseNet(nn.Module):
    """Dense blocks behind a convolutional stem.

    Args:
        layers: of each block.
        classes: outputs of the classifier.
    """

    def __init__(self, layers: Sequence[int], classes: int) -> None:
        super().__init__()
        features: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            norm0=nn.BatchNorm2d(64),
            relu0=nn.ReLU(inplace=True),
            pool0=nn.MaxPool2d(3, stride=2, padding=1),
        )
        channels = 64
        for position, count in enumerate(layers, start=1):
            features[f"denseblock{position}"] = DenseBlock(count, channels)
            channels += count * _GROWTH
            if position < len(layers):
                features[f"transition{position}"] = Transition(channels)
                channels //= 2
        features["norm5"] = nn.BatchNorm2d(channels)
        self.features = nn.Sequential(features)
        self.relu = nn.ReLU(inplace=True)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w] to logits [batch, classes]."""
        x = self.avgpool(self.relu(self.features(x)))
        return self.classifier(torch.flatten(x, 1))


def build(layers: Sequence[int] = (6, 12, 24, 16), classes: int = 1000) -> nn.Module:
    """DenseNet with random weights.

    Args:
        layers: of each block.
        classes: outputs of the classifier.
    """
    return initialise(DenseNet(layers, classes), "fan_in")
