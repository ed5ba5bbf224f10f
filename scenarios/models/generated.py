"""Small networks put together at random: what operators cost in a network beyond their own times is measured on them.

Chains of the layers that networks are made of, of widths and sizes drawn by a seed: convolutions with norms,
activations, gates and residuals over images; attention or mixing and dense layers over tokens; convolutions over
sequences. They are no architectures, and nobody's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

SORTS = ("image", "tokens", "sequence")
NETS: Sequence[tuple[str, int]] = (
    *(("image", seed) for seed in range(6)),
    *(("tokens", seed) for seed in range(5)),
    *(("sequence", seed) for seed in range(3)),
)
"""Those that are measured: sort and seed."""
_ACTIVATIONS = (nn.ReLU, nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.ReLU6)


class Block(nn.Module):
    """Layers, whose result is added to what they got, gated by its mean, or joined to it."""

    def __init__(self, layers: Sequence[nn.Module], ending: str, gate: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.ending, self.gate = ending, gate

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same size, or smaller images."""
        y: Tensor = self.layers(x)
        if self.gate is not None:
            y = y * torch.sigmoid(self.gate(y.mean(tuple(range(2, y.dim())), keepdim=True)))
        if self.ending == "add":
            return x + y
        return torch.cat([x, y], 1) if self.ending == "cat" else y


class Attention(nn.Module):
    """Heads over tokens, by torch's kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens mixed."""
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, n, c))


class Tokens(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int, hidden: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads)
        self.dense = nn.Sequential(nn.Linear(width, hidden), act(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of the same width."""
        x = x + self.attention(self.norms[0](x))
        return x + self.dense(self.norms[1](x))


def _convolutions(rng: random.Random, rank: int, blocks: int) -> tuple[nn.Module, int]:
    """A network over images or sequences, and its input's channels."""
    conv = nn.Conv2d if rank == 2 else nn.Conv1d
    norm = nn.BatchNorm2d if rank == 2 else nn.BatchNorm1d
    pool = nn.MaxPool2d if rank == 2 else nn.MaxPool1d
    width = rng.choice([12, 16, 24, 32, 40, 64])
    layers: list[nn.Module] = [conv(3, width, 3, 2, 1), norm(width), nn.ReLU()]
    for _ in range(blocks):
        act = rng.choice(_ACTIVATIONS)
        form = rng.choice(["full", "full", "bottleneck", "depthwise", "depthwise", "grouped"])
        out, k = width, rng.choice([3, 3, 5])
        ending = rng.choice(["add", "add", "next", "cat"])
        if ending == "next":
            out = round(width * rng.choice([1.5, 2]) / 4) * 4
        elif ending == "cat":
            out = rng.choice([12, 16, 32])
        if form == "full":
            parts = [conv(width, out, k, padding=k // 2, bias=False), norm(out), act()]
        else:
            inner = (
                width * rng.choice([1, 2, 4]) if form == "depthwise" else max(8, width // 16 * 8)
            )
            groups = {"bottleneck": 1, "depthwise": inner, "grouped": 4}[form]
            parts = [conv(width, inner, 1, bias=False), norm(inner), act(),
                     conv(inner, inner, k, padding=k // 2, groups=groups, bias=False), norm(inner), act(),
                     conv(inner, out, 1, bias=False), norm(out)]  # fmt: skip
        gate = conv(out, out, 1) if rng.random() < 0.25 else None
        layers.append(Block(parts, ending, gate))
        width = width + out if ending == "cat" else out
        if ending == "next":
            layers.append(pool(2))
    return nn.Sequential(*layers), 3


def build(sort: str, seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A network and the shape of its input.

    Args:
        sort: of :data:`SORTS`.
        seed: decides everything.
    """
    rng = random.Random(f"{sort} {seed}")
    batch = rng.choice([1, 1, 2, 3])
    if sort == "tokens":
        heads, each = rng.choice([2, 4, 6, 8]), rng.choice([32, 48, 64])
        width = heads * each
        layers = [
            Tokens(width, heads, rng.choice([2, 3, 4]) * width, rng.choice([nn.GELU, nn.ReLU, nn.SiLU]))
            for _ in range(rng.choice([2, 3]))
        ]  # fmt: skip
        return nn.Sequential(*layers), (batch, rng.randint(24, 160), width)
    rank = 2 if sort == "image" else 1
    module, inputs = _convolutions(rng, rank, rng.randint(4, 6))
    side = rng.randint(72, 176) if rank == 2 else rng.randint(300, 3000)
    return module, (batch, inputs, *[side] * rank)
