"""A GPU that is at least as good as another in all that data sheets say is not surely slower."""

import itertools
import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost_models.device_spec import spec_of_measured
from cost_models.profile import Profile
from cost_models.profile_files import available
from cost_models.table import identities, rows_of
from cost_models.uncertainty import draw_factors
from experiments.runs import catalog
from scenarios.model_config import graph_of
from tests.benchmarks.end_to_end import model_config

pytest.importorskip("torch")

THOROUGH = bool(os.environ.get("HETSIM_THOROUGH"))
BATCHES = (1, 32)
DRAWS = 200 if THOROUGH else 50
DTYPES = ("float32", "float16", "bfloat16")
FEWEST = {"float32": 100, "float16": 25, "bfloat16": 40}
"""Pairs, one of which is as good as the other in all that data sheets say."""
MOST_SLOWER = 2.5 if THOROUGH else 1.5
"""Of the time as believed: intervals alone would let most inversions by a factor of 3 pass. Seen: 1.33 in the two cases by
default (the H200 of two sources), 2.12 in BERT at batch 1 in float32 (a V100's data sheet against another's public times).
"""
AWAITED = "nvidia-h200-awaited"
"""Prices calls that are launched and awaited, not kernels."""


@cache
def loaded() -> dict[str, Profile]:
    """Shipped profiles of GPUs that price kernels, by name."""
    names = [n for n in available() if spec_of_measured(n) is not None and n != AWAITED]
    return {name: Profile.load(name) for name in names}


def gpus(dtype: str) -> dict[str, Profile]:
    """Those that have an element type."""
    return {name: profile for name, profile in loaded().items() if dtype in profile.dtypes}


def cases() -> list[tuple[str, int]]:
    """Models whose layers are traced, and batches; a few where not all are asked for."""
    if not THOROUGH:
        return [("mobilenet_v2", 1), ("resnet18", 32)]
    entries = catalog.entries("model")
    traced = [e.name for e in entries if e.content.get("target") and e.content.get("inputs")]
    return list(itertools.product(traced, BATCHES))


def dominates(one: str, other: str, dtype: str) -> bool:
    """Whether a GPU's published peak for an element type, bandwidth and cache are each at least another's."""
    a, b = spec_of_measured(one), spec_of_measured(other)
    return (
        a.peak(dtype) >= b.peak(dtype)
        and a.bandwidth >= b.bandwidth
        and (a.l2_bytes or 0) >= (b.l2_bytes or 0)
    )


def drawn(profile: Profile, number: int, operators) -> tuple[float, np.ndarray]:
    """Seconds of the operators one after the other, launches included: as believed, and float64[draws]."""
    seconds = profile.price(operators).seconds
    kinds, identity = [o.kind for o in operators], identities(rows_of(operators))
    known, launches = profile.residuals_for(), len(operators) * profile.launch_overhead_s
    sums = [
        seconds @ draw_factors(known, kinds, identity, np.random.default_rng([i, number]))
        for i in range(DRAWS)
    ]
    return float(seconds.sum()) + launches, np.array(sums) + launches


def test_launches_are_of_one_rule():
    """Every profile of kernels has the launch of the one host that was measured."""
    launches = {name: profile.launch_overhead_s for name, profile in gpus("float32").items()}
    assert len(launches) >= 15
    assert set(launches.values()) == {loaded()["nvidia-h200"].launch_overhead_s}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("model", "batch"), cases())
def test_what_is_better_in_everything_is_not_surely_slower(model, batch, dtype):
    profiles = gpus(dtype)
    pairs = [pair for pair in itertools.permutations(profiles, 2) if dominates(*pair, dtype)]
    assert len(pairs) > FEWEST[dtype]
    operators = graph_of(replace(model_config(model), dtype=dtype), batch).operators
    sums = {
        name: drawn(profile, number, operators)
        for number, (name, profile) in enumerate(profiles.items())
    }
    low = {(a, b): float(np.quantile(sums[a][1] / sums[b][1], 0.025)) for a, b in pairs}
    assert not {pair: round(value, 2) for pair, value in low.items() if value > 1}
    point = {(a, b): sums[a][0] / sums[b][0] for a, b in pairs}
    worst = max(point, key=lambda pair: point[pair])
    told = (
        f"{worst[0]} takes {point[worst]:.3f} of {worst[1]}'s time, the most of {len(pairs)} pairs"
    )
    assert point[worst] <= MOST_SLOWER, told
