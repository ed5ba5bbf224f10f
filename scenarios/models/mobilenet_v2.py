"""MobileNetV2 (Sandler et al. 2018, https://arxiv.org/abs/1801.04381) of width 1.

Modules are named as in torchvision, whose weights therefore fit; 3,504,872 parameters.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from scenarios.models.convolutions import initialise

# Expansion of the channels, outputs, blocks, stride of the first block.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _normalised(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution without bias, batch normalisation, ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expanding 1x1, depthwise 3x3 (with the stride) and projecting 1x1 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = expansion * inputs
        layers: list[nn.Module] = [_normalised(inputs, width, 1)] if expansion != 1 else []
        layers += [
            _normalised(width, width, 3, stride, groups=width),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, outputs, h / stride, w / stride]."""
        y: torch.Tensor = self.conv(x)
        return x + y if self.shortcut else y


class MobileNetV2(nn.Module):
    """Seventeen inverted residual blocks, nearly a chain."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        features: list[nn.Module] = [_normalised(3, 32, 3, stride=2)]
        inputs = 32
        for expansion, outputs, count, stride in _STAGES:
            for block in range(count):
                features.append(
                    InvertedResidual(inputs, outputs, 1 if block else stride, expansion)
                )
                inputs = outputs
        features.append(_normalised(inputs, 1280, 1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w] to logits [batch, classes]."""
        x = functional.adaptive_avg_pool2d(self.features(x), 1)
        return self.classifier(torch.flatten(x, 1))


def build(classes: int = 1000) -> nn.Module:
    """MobileNetV2 with random weights."""
    return initialise(MobileNetV2(classes))
