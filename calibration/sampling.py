"""Which operators to measure: those of the models at several batches, and shapes drawn around them.

A predictor asked about an unseen model meets shapes between and beside the measured ones, so every
kind is also sampled log-uniformly over the range that such models use. Draws are reproducible: each
kind has its own random stream, so asking for more of one kind changes no other.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from calibration.constructors import KINDS, VARIANTS
from calibration.samples import OperatorSample, distinct, samples_of
from calibration.training_constructors import TRAINING
from cost_models.arithmetic import operator_bytes, operator_flops
from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph

MAX_FLOPS = 4e9
MAX_BYTES = 96e6
"""Sampled operators stay below both: tens of milliseconds on one core."""


def draw(label: str, count: int, seed: int = 0) -> list[OperatorSample]:
    """Distinct operators of one kind or variant; the first ``n`` do not depend on ``count``.

    Raises:
        InvalidInput: the kind has no constructor here.
    """
    if label in KINDS:
        constructor = KINDS[label][1]
    elif label in VARIANTS:
        constructor = VARIANTS[label][2]
    elif label in TRAINING:
        constructor = TRAINING[label][2]
    else:
        raise InvalidInput(f"No way to sample kind '{label}'; known: {', '.join(KINDS)}")
    rng = np.random.default_rng([seed, zlib.crc32(label.encode())])
    found: dict[str, OperatorSample] = {}
    for _ in range(60 * count + 100):
        if len(found) == count:
            break
        try:
            operator, weights = constructor(rng)
        except InvalidInput:
            continue  # such as a kernel larger than its padded image: draw again
        if operator_flops(operator) <= MAX_FLOPS and operator_bytes(operator) <= MAX_BYTES:
            sample = OperatorSample(operator, weights)
            found.setdefault(sample.identity, sample)
    if len(found) < count:
        raise InvalidInput(f"Only {len(found)} of {count} distinct operators of '{label}' found")
    return list(found.values())


def sampled_operators(
    scale: float = 1.0, kinds: Sequence[str] = tuple(KINDS), seed: int = 0
) -> list[OperatorSample]:
    """Drawn operators of every kind, ``scale`` times the usual number of each (at least 8)."""
    counts = {kind: KINDS[kind][0] for kind in kinds}
    counts |= {label: count for label, (kind, count, _) in VARIANTS.items() if kind in kinds}
    return distinct(
        sample
        for label, count in counts.items()
        for sample in draw(label, max(8, round(count * scale)), seed)
    )


def sampled_training_operators(scale: float = 1.0, seed: int = 0) -> list[OperatorSample]:
    """Drawn operators of training steps, ``scale`` times the usual number of each (at least 8)."""
    return distinct(
        sample
        for label, (_, count, _) in TRAINING.items()
        for sample in draw(label, max(8, round(count * scale)), seed)
    )


def model_operators(
    graphs: Iterable[tuple[str, DataflowGraph]], max_flops: float = 2e10, max_bytes: float = 1e9
) -> list[OperatorSample]:
    """The distinct operators of models' graphs, given with their architectures' names.

    Operators above ``max_flops`` or ``max_bytes`` are left out: one of them would cost a round as
    much as hundreds of others.
    """
    samples = distinct(s for name, graph in graphs for s in samples_of(graph, name))
    return [
        sample
        for sample in samples
        if operator_flops(sample.operator) <= max_flops
        and operator_bytes(sample.operator) <= max_bytes
    ]
