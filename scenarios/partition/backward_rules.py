"""What operators of training steps may be split along: backward kernels, those that keep statistics, optimiser steps.

===========================================  ===========================================================================
kinds                                        dimensions
===========================================  ===========================================================================
conv1d_backward, ... (without groups)        of images: batch (the weight's gradient is a sum), channels; the layer's
                                             output channels (the images' gradient is a sum)
batch_norm_training, batch_norm_backward     channels
scaled_dot_product_attention_backward        batch, heads
softmax_backward, log_softmax_backward       those that are not normalised together
pools' backward kernels                      batch, channels
optimiser steps                              all of the parameter's; of the scalar ``step`` each part has its own
element-wise kernels' backward kernels       all
===========================================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scenarios.partition.part_rules import (
    INNER,
    PartRule,
    Rule,
    Rules,
    all_but_one,
    broadcast,
    cutting,
    leading,
    with_changed,
)
from simulator.model.operator import Operator

ELEMENTWISE = [
    "dropout",
    "dropout_backward",
    "elu_backward",
    "gelu_backward",
    "hardsigmoid_backward",
    "hardswish_backward",
    "hardtanh_backward",
    "leaky_relu_backward",
    "mish_backward",
    "sigmoid_backward",
    "silu_backward",
    "softplus_backward",
    "tanh_backward",
    "threshold_backward",
]
"""Kinds of which every element that is written depends on those in the same place."""


def _outs(operator: Operator, *dims: int | None) -> tuple[int | None, ...]:
    """Of a kernel that writes what its mask asks for."""
    mask = operator.attributes["output_mask"]
    return tuple(dim for dim, wanted in zip(dims, mask, strict=True) if wanted)


def _convolution(operator: Operator) -> Rules:
    """Reads the output's gradient, images and weight; writes gradients of images, weight and bias."""
    gradient, images, weight = (spec.shape for spec in operator.inputs[:3])
    if operator.attributes["groups"] != 1:
        return {}

    def by_output_channels(begin: int, end: int) -> PartRule:
        needs = cutting(operator, {0: 1, 2: 0})(begin, end).needs
        return PartRule(needs, with_changed(operator, {3: [end - begin]}))

    rules = [
        Rule(images[0], 1, cutting(operator, {0: 0, 1: 0}), _outs(operator, 0, INNER, INNER)),
        Rule(images[1], 1, cutting(operator, {1: 1, 2: 1}), _outs(operator, 1, 1, None)),
        Rule(weight[0], 1, by_output_channels, _outs(operator, INNER, 0, 0)),
    ]
    plain = len(gradient) == len(weight) and rules[0].outs and rules[0].outs[0] is not None
    return {
        rule.outs[0]: rule for rule in rules if plain and rule.outs and rule.outs[0] is not None
    }


def _batch_norm(operator: Operator) -> Rules:
    """Along channels: statistics are of each by itself."""
    forward = operator.kind == "batch_norm_training"
    outs = (1, *(0 for _ in operator.outputs[1:])) if forward else _outs(operator, 1, 0, 0)
    images = 1 if forward else 2
    leaves = {leaf: 1 if leaf < images else 0 for leaf in range(len(operator.inputs))}
    channels = operator.inputs[0].shape[1]
    key = outs[0]
    assert key is not None
    return {key: Rule(channels, 1, cutting(operator, leaves), outs)}


def _attention(operator: Operator) -> Rules:
    """Along batch and heads. Reads the output's gradient, queries, keys, values, output, sums, and perhaps a mask."""
    rank, count = len(operator.outputs[0].shape), len(operator.inputs)
    found: Rules = {}
    if "flash" not in operator.target:  # others read something else
        return found
    for dim in range(rank - 2):
        leaves = {leaf: dim for leaf in range(6) if operator.inputs[leaf].shape[dim] > 1}
        for leaf in range(6, count):
            shape = operator.inputs[leaf].shape
            place = dim - rank + len(shape)
            if place >= 0 and shape[place] > 1:
                leaves[leaf] = place
        length = operator.outputs[0].shape[dim]
        found[dim] = Rule(length, 1, cutting(operator, leaves))
    return found


def _optimizer(operator: Operator) -> Rules:
    found = {}
    for dim in range(len(operator.outputs[0].shape)):
        rule = broadcast(operator, dim, range(len(operator.inputs)))
        outs = tuple(dim if spec.shape else None for spec in operator.outputs)
        found[dim] = rule._replace(outs=outs)
    return found


RULES: Mapping[str, Callable[[Operator], Rules]] = {
    **{f"conv{n}d_backward": _convolution for n in (1, 2, 3)},
    **dict.fromkeys(["batch_norm_training", "batch_norm_backward"], _batch_norm),
    **dict.fromkeys(["softmax_backward", "log_softmax_backward"], all_but_one),
    **{f"{k}_pool{n}d_backward": leading(-n, 3) for n in (1, 2, 3) for k in ("max", "avg")},
    **{
        f"adaptive_{k}_pool{n}d_backward": leading(-n, 3) for n in (1, 2, 3) for k in ("max", "avg")
    },
    "scaled_dot_product_attention_backward": _attention,
    **dict.fromkeys(["sgd_step", "adam_step"], _optimizer),
}
