"""ViT-B/16 (Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929).

Modules are named as in torchvision, whose weights therefore fit; 86,567,656 parameters for images of
224 x 224.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional

from simulator.errors import InvalidInput


class SelfAttention(nn.Module):
    """Multi-head self-attention with the weights of :class:`torch.nn.MultiheadAttention`."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * hidden))
        self.out_proj = nn.Linear(hidden, hidden)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, hidden] to the same shape."""
        projected = functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in projected.chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        return self.out_proj(attended.transpose(1, 2).flatten(2))


class MLP(nn.Sequential):
    """Two linear layers, four times as wide between them."""

    def __init__(self, hidden: int) -> None:
        super().__init__(
            nn.Linear(hidden, 4 * hidden),
            nn.GELU(),
            nn.Dropout(0.0),
            nn.Linear(4 * hidden, hidden),
            nn.Dropout(0.0),
        )


class EncoderBlock(nn.Module):
    """Attention and MLP, each after layer normalisation and around a shortcut."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden, eps=1e-6)
        self.self_attention = SelfAttention(hidden, heads)
        self.ln_2 = nn.LayerNorm(hidden, eps=1e-6)
        self.mlp = MLP(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, hidden] to the same shape."""
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Position embedding, blocks, layer normalisation."""

    def __init__(self, tokens: int, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, hidden).normal_(std=0.02))
        self.layers = nn.Sequential(
            OrderedDict(
                (f"encoder_layer_{layer}", EncoderBlock(hidden, heads)) for layer in range(layers)
            )
        )
        self.ln = nn.LayerNorm(hidden, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, hidden] to the same shape."""
        return self.ln(self.layers(x + self.pos_embedding))


class VisionTransformer(nn.Module):
    """Patches of an image and a class token through a transformer encoder."""

    def __init__(
        self, image_size: int, patch_size: int, layers: int, hidden: int, heads: int, classes: int
    ) -> None:
        super().__init__()
        tokens = (image_size // patch_size) ** 2 + 1
        self.conv_proj = nn.Conv2d(3, hidden, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.encoder = Encoder(tokens, layers, hidden, heads)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(hidden, classes)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [batch, 3, image_size, image_size] to logits [batch, classes]."""
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(x.shape[0], -1, -1)
        x = self.encoder(torch.cat([token, patches], 1))
        return self.heads(x[:, 0])


def build(
    image_size: int = 224,
    patch_size: int = 16,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    classes: int = 1000,
) -> nn.Module:
    """ViT with random weights.

    Args:
        image_size: side of an image, a multiple of ``patch_size``.
        patch_size: side of a patch.
        layers: encoder layers.
        hidden: width; the MLPs are four times as wide between their layers.
        heads: attention heads, a divisor of ``hidden``.
        classes: outputs of the classifier.

    Raises:
        InvalidInput: the patches do not fill the image, or the heads the width.
    """
    for what, number, part, of in (
        ("image_size", image_size, "patch_size", patch_size),
        ("hidden", hidden, "heads", heads),
    ):
        if of < 1 or number < of or number % of:
            raise InvalidInput(f"vit_b_16: {what} {number} is no multiple of {part} {of}")
    return VisionTransformer(image_size, patch_size, layers, hidden, heads, classes)
