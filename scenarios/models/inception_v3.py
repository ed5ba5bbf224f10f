"""Inception-v3 (Szegedy et al. 2015, https://arxiv.org/abs/1512.00567).

Modules are named as in torchvision, without the auxiliary classifier; 23,834,568 parameters. Made
for images of 299 x 299; 75 x 75 is the smallest.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from scenarios.models.convolutions import BasicConv2d, initialise


class InceptionA(nn.Module):
    """1x1, 5x5 and two 3x3 convolutions and a pooled branch."""

    def __init__(self, inputs: int, pool_features: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(inputs, 64, kernel_size=1)
        self.branch5x5_1 = BasicConv2d(inputs, 48, kernel_size=1)
        self.branch5x5_2 = BasicConv2d(48, 64, kernel_size=5, padding=2)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 64, kernel_size=1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, kernel_size=3, padding=1)
        self.branch_pool = BasicConv2d(inputs, pool_features, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, 224 + pool_features, h, w]."""
        branches = [
            self.branch1x1(x),
            self.branch5x5_2(self.branch5x5_1(x)),
            self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x))),
            self.branch_pool(functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1)),
        ]
        return torch.cat(branches, 1)


class InceptionB(nn.Module):
    """Halves the grid: strided convolutions beside a max pooling."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = BasicConv2d(inputs, 384, kernel_size=3, stride=2)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 64, kernel_size=1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, kernel_size=3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, 480 + inputs, h / 2, w / 2]."""
        branches = [
            self.branch3x3(x),
            self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x))),
            functional.max_pool2d(x, kernel_size=3, stride=2),
        ]
        return torch.cat(branches, 1)


class InceptionC(nn.Module):
    """7x7 convolutions factorised into 1x7 and 7x1."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        row, column = {"padding": (0, 3)}, {"padding": (3, 0)}
        self.branch1x1 = BasicConv2d(inputs, 192, kernel_size=1)
        self.branch7x7_1 = BasicConv2d(inputs, width, kernel_size=1)
        self.branch7x7_2 = BasicConv2d(width, width, kernel_size=(1, 7), **row)
        self.branch7x7_3 = BasicConv2d(width, 192, kernel_size=(7, 1), **column)
        self.branch7x7dbl_1 = BasicConv2d(inputs, width, kernel_size=1)
        self.branch7x7dbl_2 = BasicConv2d(width, width, kernel_size=(7, 1), **column)
        self.branch7x7dbl_3 = BasicConv2d(width, width, kernel_size=(1, 7), **row)
        self.branch7x7dbl_4 = BasicConv2d(width, width, kernel_size=(7, 1), **column)
        self.branch7x7dbl_5 = BasicConv2d(width, 192, kernel_size=(1, 7), **row)
        self.branch_pool = BasicConv2d(inputs, 192, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, 768, h, w]."""
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        branches = [
            self.branch1x1(x),
            self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x))),
            self.branch7x7dbl_5(self.branch7x7dbl_4(double)),
            self.branch_pool(functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1)),
        ]
        return torch.cat(branches, 1)


class InceptionD(nn.Module):
    """Halves the grid a second time."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1 = BasicConv2d(inputs, 192, kernel_size=1)
        self.branch3x3_2 = BasicConv2d(192, 320, kernel_size=3, stride=2)
        self.branch7x7x3_1 = BasicConv2d(inputs, 192, kernel_size=1)
        self.branch7x7x3_2 = BasicConv2d(192, 192, kernel_size=(1, 7), padding=(0, 3))
        self.branch7x7x3_3 = BasicConv2d(192, 192, kernel_size=(7, 1), padding=(3, 0))
        self.branch7x7x3_4 = BasicConv2d(192, 192, kernel_size=3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, 512 + inputs, h / 2, w / 2]."""
        factorised = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        branches = [
            self.branch3x3_2(self.branch3x3_1(x)),
            self.branch7x7x3_4(factorised),
            functional.max_pool2d(x, kernel_size=3, stride=2),
        ]
        return torch.cat(branches, 1)


class InceptionE(nn.Module):
    """3x3 convolutions split into 1x3 and 3x1 side by side."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        row, column = {"padding": (0, 1)}, {"padding": (1, 0)}
        self.branch1x1 = BasicConv2d(inputs, 320, kernel_size=1)
        self.branch3x3_1 = BasicConv2d(inputs, 384, kernel_size=1)
        self.branch3x3_2a = BasicConv2d(384, 384, kernel_size=(1, 3), **row)
        self.branch3x3_2b = BasicConv2d(384, 384, kernel_size=(3, 1), **column)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 448, kernel_size=1)
        self.branch3x3dbl_2 = BasicConv2d(448, 384, kernel_size=3, padding=1)
        self.branch3x3dbl_3a = BasicConv2d(384, 384, kernel_size=(1, 3), **row)
        self.branch3x3dbl_3b = BasicConv2d(384, 384, kernel_size=(3, 1), **column)
        self.branch_pool = BasicConv2d(inputs, 192, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, 2048, h, w]."""
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        branches = [
            self.branch1x1(x),
            torch.cat([self.branch3x3_2a(single), self.branch3x3_2b(single)], 1),
            torch.cat([self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)], 1),
            self.branch_pool(functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1)),
        ]
        return torch.cat(branches, 1)


class InceptionV3(nn.Module):
    """Eleven inception modules behind a convolutional stem."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv2d(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = BasicConv2d(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b = InceptionA(192, pool_features=32)
        self.Mixed_5c = InceptionA(256, pool_features=64)
        self.Mixed_5d = InceptionA(288, pool_features=64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b = InceptionC(768, width=128)
        self.Mixed_6c = InceptionC(768, width=160)
        self.Mixed_6d = InceptionC(768, width=160)
        self.Mixed_6e = InceptionC(768, width=192)
        self.Mixed_7a = InceptionD(768)
        self.Mixed_7b = InceptionE(1280)
        self.Mixed_7c = InceptionE(2048)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout()
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w] to logits [batch, classes]."""
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))
        x = self.Mixed_6b(self.Mixed_6a(x))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(x)))
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        return self.fc(torch.flatten(self.dropout(self.avgpool(x)), 1))


def build(classes: int = 1000) -> nn.Module:
    """Inception-v3 with random weights."""
    return initialise(InceptionV3(classes))
