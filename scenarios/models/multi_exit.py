"""A convolutional network that can stop early: a head after any block (BranchyNet, Teerapittayanon,
McDanel, Kung 2016, https://doi.org/10.1109/ICPR.2016.7900006).

Every block is a 3x3 convolution with batch normalisation and ReLU, some followed by a max pooling; a head
averages over a coarse grid and classifies by one linear layer. The last block's head is the final exit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from scenarios.models.convolutions import BasicConv2d, initialise
from simulator.errors import InvalidInput


class MultiExit(nn.Module):
    """See the module docstring.

    Args:
        widths: channels of each block.
        pools: blocks, counted from 1, that end in a pooling of 2.
        exits: blocks, counted from 1, that have a head; the last block always has one.
        channels: of the images.
        image_size: their height and width.
        grid: of a head's averages, smaller where the image is.
        classes: outputs of every head.
    """

    def __init__(
        self,
        widths: Sequence[int],
        pools: Sequence[int],
        exits: Sequence[int],
        channels: int,
        image_size: int,
        grid: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.exits = tuple(sorted({*exits, len(widths)}))
        blocks: list[nn.Module] = []
        sizes = []
        inputs, size = channels, image_size
        for number, width in enumerate(widths, 1):
            parts: list[nn.Module] = [BasicConv2d(inputs, width, kernel_size=3, padding=1)]
            if number in pools:
                parts.append(nn.MaxPool2d(2, stride=2))
                size //= 2
            blocks.append(nn.Sequential(*parts))
            inputs = width
            sizes.append(size)
        # Blocks are made before heads: networks that differ in their exits begin with equal blocks.
        self.blocks = nn.ModuleList(blocks)
        self.heads = nn.ModuleDict(
            {
                str(number): _head(widths[number - 1], min(grid, sizes[number - 1]), classes)
                for number in self.exits
            }
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Images [batch, channels, h, w] to the logits [batch, classes] of every exit, first to last."""
        logits = []
        for number, block in enumerate(self.blocks, 1):
            x = block(x)
            if str(number) in self.heads:
                logits.append(self.heads[str(number)](x))
        return tuple(logits)


def _head(width: int, grid: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(grid), nn.Flatten(), nn.Linear(width * grid * grid, classes)
    )


def build(
    widths: Sequence[int] = (64, 64, 128, 128, 256, 256, 512, 512),
    pools: Sequence[int] = (2, 4, 6, 8),
    exits: Sequence[int] | None = None,
    channels: int = 3,
    image_size: int = 224,
    grid: int = 4,
    classes: int = 10,
) -> nn.Module:
    """A multi-exit network with random weights; the defaults take 10.3 GMAC.

    Args:
        widths: channels of each block.
        pools: blocks, counted from 1, that end in a pooling of 2.
        exits: blocks that have a head; all unless given.
        channels: of the images.
        image_size: their height and width.
        grid: of a head's averages, smaller where the image is.
        classes: outputs of every head.

    Raises:
        InvalidInput: a block that does not exist, or an image too small for its poolings.
    """
    blocks = len(widths)
    heads = tuple(range(1, blocks + 1)) if exits is None else tuple(exits)
    for what, numbers in (("pools", pools), ("exits", heads)):
        wrong = [number for number in numbers if not 1 <= number <= blocks]
        if wrong:
            raise InvalidInput(
                f"A network of {blocks} blocks has none numbered {wrong[0]} ({what}); count from 1"
            )
    if image_size < 2 ** len(set(pools)):
        raise InvalidInput(
            f"Images of {image_size} x {image_size} are too small for {len(set(pools))} poolings of 2"
        )
    return initialise(MultiExit(widths, pools, heads, channels, image_size, grid, classes))
