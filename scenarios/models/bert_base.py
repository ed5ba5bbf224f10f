"""BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805), the encoder with its pooler.

The definition is `transformers`'; with the default arguments it is BERT-base uncased, 109,482,240
parameters. Sequences carry no padding.
"""

from __future__ import annotations

from torch import nn

from scenarios.models.transformer import ATTENTION, library


def build(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    positions: int = 512,
) -> nn.Module:
    """BERT with random weights.

    Args:
        layers: encoder layers.
        hidden: width; the feed-forward layers are four times as wide.
        heads: attention heads.
        vocabulary: tokens.
        positions: the longest sequence.
    """
    transformers = library("bert_base")
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        vocab_size=vocabulary,
        max_position_embeddings=positions,
        attn_implementation=ATTENTION,
    )
    model: nn.Module = transformers.BertModel(config)
    return model
