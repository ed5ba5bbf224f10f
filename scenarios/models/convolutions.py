"""What the convolutional models share."""

from __future__ import annotations

from typing import Any, Literal

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


def initialise(module: nn.Module, mode: Literal["fan_out", "fan_in"] = "fan_out") -> nn.Module:
    """Kaiming-normal convolutions: activations keep their scale through many layers.

    With torch's default they shrink by each layer, and arithmetic on numbers that are almost zero
    takes another time than the real model's.

    Args:
        module: changed in place.
        mode: ``fan_in`` where most convolutions narrow what they read, so that the other would let
            it grow.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode=mode, nonlinearity="relu")
    return module
