"""GPT-2 (Radford et al. 2019) with its language-modelling head, reading a whole prompt at once.

The definition is `transformers`'; with the default arguments it is the smallest GPT-2, 124,439,808
parameters, the head's weight being the token embedding. Sequences carry no padding and no cache is
kept.
"""

from __future__ import annotations

from torch import nn

from scenarios.models.transformer import ATTENTION, library


def build(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    positions: int = 1024,
) -> nn.Module:
    """GPT-2 with random weights.

    Args:
        layers: decoder layers.
        hidden: width; the feed-forward layers are four times as wide.
        heads: attention heads.
        vocabulary: tokens.
        positions: the longest sequence.
    """
    transformers = library("gpt2")
    config = transformers.GPT2Config(
        n_layer=layers,
        n_embd=hidden,
        n_head=heads,
        vocab_size=vocabulary,
        n_positions=positions,
        use_cache=False,
        attn_implementation=ATTENTION,
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model
