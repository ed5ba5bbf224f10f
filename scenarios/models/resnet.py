"""Residual networks (He, Zhang, Ren, Sun 2015, https://arxiv.org/abs/1512.03385) of 18, 34 and 50
layers; the last is the "v1.5" of torchvision.

Modules are named as in torchvision, whose weights therefore fit; 11,689,512, 21,797,672 and 25,557,032
parameters.
"""

from __future__ import annotations

import torch
from torch import nn

from scenarios.models.convolutions import initialise
from simulator.errors import InvalidInput


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """A projection where the block changes the shape."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions (the first with the stride) around a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, width, h / stride, w / stride]."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 convolutions around a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, 4 * width, h / stride, w / stride]."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """Four stages of residual blocks behind a convolutional stem.

    Args:
        block: what the stages are made of.
        blocks: blocks in each of the four stages.
        classes: outputs of the classifier.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        classes: int,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            layers = []
            for position in range(count):
                layers.append(block(channels, width, 2 if stage and not position else 1))
                channels = block.expansion * width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w] to logits [batch, classes]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


_DEPTHS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def build(depth: int = 50, classes: int = 1000) -> nn.Module:
    """A ResNet with random weights.

    Args:
        depth: 18, 34 or 50 layers.
        classes: outputs of the classifier.

    Raises:
        InvalidInput: another depth.
    """
    if depth not in _DEPTHS:
        raise InvalidInput(f"No ResNet of {depth!r} layers; known: {', '.join(map(str, _DEPTHS))}")
    return initialise(ResNet(*_DEPTHS[depth], classes))
