"""A panel of operators whose times say how fast a machine is now, beside what its profiles say.

One operator cannot: what a host's other guests do to its caches and to its memory slows light operators,
those that read weights from memory, convolutions and products of matrices by different factors, and not by the same
ones from one hour to the next. Nor can operators picked from models: a convolution behind one of another
shape, whose memory it cannot use again, takes 5 to 25% longer than behind one of its own, and a panel of blocks
of which no two are alike would find a machine slower than models do. So the panel is models beside each other, whose
operators are in what profiles are measured from: ResNet-18, EfficientNet-B0, ViT-B/16 with one of its twelve
layers, AlexNet, and the dense layers of Wide & Deep.

Only where ResNet-18 and AlexNet pool for the first time, what they pool is an input. The time of a maximal pooling
is decided by how well the processor guesses which of two neighbours is larger, and behind one convolution of
noise it guesses worse than behind the many of a network, and than in a profile
(:mod:`calibration.random_tensors`): that would say nothing of the machine.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional

from scenarios.models import alexnet, resnet, vit_b_16
from scenarios.models.convolutions import initialise


class Panel(nn.Module):
    """Models beside each other, each with an input of its own.

    Args:
        blocks: of each stage of the ResNet.
        stages: of the EfficientNet that are there, from the first on.
        hidden: features between AlexNet's dense layers.
    """

    def __init__(self, blocks: int = 2, stages: int = 7, hidden: int = 4096) -> None:
        super().__init__()
        self.resnet = resnet.ResNet(resnet.BasicBlock, (blocks,) * 4, 1000)
        self.efficientnet = EfficientNet(stages)
        self.vit = vit_b_16.build(layers=1)
        self.alexnet = alexnet.AlexNet(1000, hidden)
        self.deep = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        for convolutional in (self.resnet, self.efficientnet, self.alexnet):
            initialise(convolutional)

    def forward(
        self,
        image: torch.Tensor,
        stem: torch.Tensor,
        another: torch.Tensor,
        third: torch.Tensor,
        fourth: torch.Tensor,
        edges: torch.Tensor,
        crossed: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Images [1, 3, 224, 224], what is pooled behind the first [1, 64, 112, 112] and behind the fourth
        [1, 64, 55, 55], and features [1, 1024], to what each part makes of them.
        """
        residual, early = self.resnet, self.alexnet.features
        found = residual.relu(residual.bn1(residual.conv1(image)))
        deepest = residual.maxpool(stem)
        for stage in range(1, 5):
            deepest = residual.get_submodule(f"layer{stage}")(deepest)
        deepest = residual.avgpool(deepest)
        late = self.alexnet.avgpool(early[2:](edges)).flatten(1)
        return (
            found,
            residual.fc(deepest.flatten(1)),
            self.efficientnet(another),
            self.vit(third),
            torch.sigmoid(self.deep(crossed)),
            early[:2](fourth),
            torch.tanh(self.alexnet.classifier(late)),
        )


class EfficientNet(nn.Module):
    """EfficientNet-B0 without its classifier (Tan and Le 2019, https://arxiv.org/abs/1905.11946); where it strides
    it pads as the original does, one pixel more at the end. Of its stages those up to number ``stages``.
    """

    STAGES = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
              (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))  # fmt: skip
    """Of each the expansion, the kernel, the stride of its first block, channels and blocks."""

    def __init__(self, stages: int = 7) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 32, 3, 2), nn.SiLU()]
        inputs = 32
        for expansion, kernel, stride, outputs, blocks in self.STAGES[:stages]:
            for position in range(blocks):
                layers.append(
                    _Inverted(inputs, outputs, expansion, kernel, 1 if position else stride)
                )
                inputs = outputs
        layers += [*_convolution(inputs, 1280, 1, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, h, w] to features [batch, 1280, 1, 1]."""
        found: torch.Tensor = self.layers(x)
        return found


class _Inverted(nn.Module):
    """A depthwise convolution and an excitation of its channels between two products."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = expansion * inputs
        expand = [*_convolution(inputs, wide, 1, 1), nn.SiLU()] if expansion > 1 else []
        self.found = nn.Sequential(
            *expand, *_convolution(wide, wide, kernel, stride, wide), nn.SiLU()
        )
        self.excitation = nn.Sequential(
            OrderedDict(
                squeeze=nn.AdaptiveAvgPool2d(1),
                reduce=nn.Conv2d(wide, max(1, inputs // 4), 1),
                act_reduce=nn.SiLU(),
                expand=nn.Conv2d(max(1, inputs // 4), wide, 1),
                act_expand=nn.Sigmoid(),
            )
        )
        self.projection = nn.Sequential(*_convolution(wide, outputs, 1, 1))
        self.stays = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, inputs, h, w] to [batch, outputs, h / stride, w / stride]."""
        found = self.found(x)
        found = self.projection(found * self.excitation(found))
        return found + x if self.stays else found


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1
) -> list[nn.Module]:
    """With batch normalisation behind it."""
    layers: list[nn.Module] = []
    padding = kernel // 2
    if stride > 1:
        layers.append(_Pad(kernel - stride))
        padding = 0
    layers.append(nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False))
    return [*layers, nn.BatchNorm2d(outputs)]


class _Pad(nn.Module):
    """So many pixels in all each way, the odd one at the end."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.before = pixels // 2
        self.after = pixels - pixels // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., h, w] to [..., h + pixels, w + pixels]."""
        return functional.pad(x, (self.before, self.after, self.before, self.after))
