"""What the convolutional models share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class BasicConv2d(nn.Module):
    """Convolution without bias, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, **convolution: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, bias=False, **convolution)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, outputs, h', w']."""
        return functional.relu(self.bn(self.conv(x)), inplace=True)


def initialise(module: nn.Module) -> nn.Module:
    """Kaiming-normal convolutions: activations keep their scale through many layers.

    With torch's default they shrink by each layer, and arithmetic on numbers that are almost zero
    takes another time than the real model's.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    return module
