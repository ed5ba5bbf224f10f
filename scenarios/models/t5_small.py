"""T5 (Raffel et al. 2019, https://arxiv.org/abs/1910.10683): the encoder reads a text and the decoder
predicts every token of another at once, each from the true ones before it (teacher forcing).

The definition is `transformers`'; with the default arguments it is T5-small, 60,506,624 parameters,
the head's weight being the token embedding of both sides. Sequences carry no padding and no cache is
kept.
"""

from __future__ import annotations

from torch import nn

from scenarios.models.transformer import ATTENTION, library
from simulator.errors import InvalidInput


def build(
    layers: int = 6,
    hidden: int = 512,
    heads: int = 8,
    vocabulary: int = 32128,
) -> nn.Module:
    """T5 with random weights.

    Args:
        layers: layers of the encoder, and of the decoder.
        hidden: width; the feed-forward layers are four times as wide.
        heads: attention heads, a divisor of ``hidden``.
        vocabulary: tokens.

    Raises:
        InvalidInput: the heads do not fill the width, or `transformers` is not installed.
    """
    if heads < 1 or hidden % heads:
        raise InvalidInput(f"t5_small: hidden {hidden} is no multiple of heads {heads}")
    transformers = library("t5_small")
    config = transformers.T5Config(
        num_layers=layers,
        num_decoder_layers=layers,
        d_model=hidden,
        d_kv=hidden // heads,
        d_ff=4 * hidden,
        num_heads=heads,
        vocab_size=vocabulary,
        use_cache=False,
        attn_implementation=ATTENTION,
    )
    model: nn.Module = transformers.T5ForConditionalGeneration(config)
    return model
