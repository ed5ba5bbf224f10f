"""Which operators to measure: those of the models at several batches, and shapes drawn around them.

A predictor asked about an unseen model meets shapes between and beside the measured ones, so every
kind is also sampled over the range that such models use: of a few log-uniform draws the one farthest
from those taken before (best-candidate sampling, Mitchell 1991, https://doi.org/10.1145/127719.122736),
which leaves neither clusters nor gaps. Draws are reproducible: each kind has its own random stream, so
asking for more of one kind changes no other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from calibration.broad_constructors import BROAD
from calibration.constructors import KINDS, VARIANTS, Drawn
from calibration.samples import OperatorSample, distinct, samples_of
from calibration.training_constructors import TRAINING
from cost_models.arithmetic import operator_bytes, operator_priced_flops
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph

OTHERS = {**VARIANTS, **BROAD}
"""Forms of kinds, and kinds, besides :data:`KINDS`."""
DRAWN = tuple(dict.fromkeys([*KINDS, *(kind for kind, _, _ in OTHERS.values())]))
"""Kinds that can be drawn."""
CANDIDATES = 4
"""Draws of which the one farthest from the others is taken."""
MAX_FLOPS = 4e9
MAX_BYTES = 96e6
"""Sampled operators stay below both: tens of milliseconds on one core."""


def draw(
    label: str, count: int, seed: int = 0, candidates: int = CANDIDATES
) -> list[OperatorSample]:
    """Distinct operators of one kind or variant; the first ``n`` do not depend on ``count``.

    Args:
        label: of :data:`KINDS` or :data:`OTHERS`.
        count: how many.
        seed: of the stream.
        candidates: draws for each; 1 takes them as they come.

    Raises:
        InvalidInput: the kind has no constructor here.
    """
    if label in KINDS:
        constructor = KINDS[label][1]
    elif label in OTHERS:
        constructor = OTHERS[label][2]
    elif label in TRAINING:
        constructor = TRAINING[label][2]
    else:
        raise InvalidInput(
            f"No way to sample kind '{label}'; known: {', '.join([*KINDS, *OTHERS])}"
        )
    rng = np.random.default_rng([seed, zlib.crc32(label.encode())])
    found: dict[str, OperatorSample] = {}
    places = np.empty((0, _PLACE))
    for _ in range(60 * count + 100):
        if len(found) == count:
            break
        drawn = (_drawn(constructor, rng) for _ in range(candidates))
        fresh = [sample for sample in drawn if sample and sample.identity not in found]
        if not fresh:
            continue
        at = np.array([place(sample) for sample in fresh])
        chosen = 0
        if len(places):
            gaps = np.linalg.norm(at[:, None, :] - places[None, :, :], axis=2)
            chosen = int(gaps.min(axis=1).argmax())
        found[fresh[chosen].identity] = fresh[chosen]
        places = np.vstack([places, at[chosen]])
    if len(found) < count:
        raise InvalidInput(f"Only {len(found)} of {count} distinct operators of '{label}' found")
    return list(found.values())


def _drawn(
    constructor: Callable[[np.random.Generator], Drawn], rng: np.random.Generator
) -> OperatorSample | None:
    try:
        operator, weights = constructor(rng)
    except InvalidInput:
        return None  # such as a kernel larger than its padded image
    if operator_priced_flops(operator) > MAX_FLOPS or operator_bytes(operator) > MAX_BYTES:
        return None
    return OperatorSample(operator, weights)


_PLACE = 26


def place(sample: OperatorSample) -> np.ndarray:
    """float64[26]: where an operator lies among those of its kind: log2 of work, bytes and dimensions."""
    operator = sample.operator
    sizes = [n for spec in (*operator.inputs, *operator.outputs) for n in spec.shape]
    values = [operator_priced_flops(operator), operator_bytes(operator), *sizes[: _PLACE - 2]]
    found = np.zeros(_PLACE)
    found[: len(values)] = np.log2(1.0 + np.array(values))
    return found


def sampled_operators(
    scale: float = 1.0, kinds: Sequence[str] = DRAWN, seed: int = 0
) -> list[OperatorSample]:
    """Drawn operators of every kind, ``scale`` times the usual number of each (at least 8)."""
    counts = {kind: KINDS[kind][0] for kind in kinds if kind in KINDS}
    counts |= {label: count for label, (kind, count, _) in OTHERS.items() if kind in kinds}
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
        if operator_priced_flops(sample.operator) <= max_flops
        and operator_bytes(sample.operator) <= max_bytes
    ]
