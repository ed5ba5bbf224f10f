"""A GPU that is at least as good as another in all that data sheets say is not surely slower."""

import itertools
import os

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
DRAWS = 200 if THOROUGH else 100
DTYPE = "float32"
AWAITED = "nvidia-h200-awaited"
"""Prices calls that are launched and awaited, not kernels."""


def gpus() -> dict[str, Profile]:
    """Shipped profiles of GPUs that price kernels of :data:`DTYPE`, by name."""
    found = {}
    for name in available():
        if spec_of_measured(name) is not None and name != AWAITED:
            profile = Profile.load(name)
            if DTYPE in profile.dtypes:
                found[name] = profile
    return found


def cases() -> list[tuple[str, int]]:
    """Models whose layers are traced, and batches; a few where not all are asked for."""
    if not THOROUGH:
        return [("mobilenet_v2", 1), ("resnet18", 32)]
    entries = catalog.entries("model")
    traced = [e.name for e in entries if e.content.get("target") and e.content.get("inputs")]
    return list(itertools.product(traced, BATCHES))


def dominates(one: str, other: str) -> bool:
    """Whether a GPU's published peak, bandwidth and cache are each at least another's."""
    a, b = spec_of_measured(one), spec_of_measured(other)
    return (
        a.peak(DTYPE) >= b.peak(DTYPE)
        and a.bandwidth >= b.bandwidth
        and (a.l2_bytes or 0) >= (b.l2_bytes or 0)
    )


def drawn(profile: Profile, number: int, operators) -> np.ndarray:
    """float64[draws]: seconds of the operators one after the other, launches included."""
    seconds = profile.price(operators).seconds
    kinds, identity = [o.kind for o in operators], identities(rows_of(operators))
    known = profile.residuals_for()
    sums = [
        seconds @ draw_factors(known, kinds, identity, np.random.default_rng([i, number]))
        for i in range(DRAWS)
    ]
    return np.array(sums) + len(operators) * profile.launch_overhead_s


def test_launches_are_of_one_rule():
    """Every profile of kernels has the launch of the one host that was measured."""
    launches = {name: profile.launch_overhead_s for name, profile in gpus().items()}
    assert len(launches) >= 15
    assert set(launches.values()) == {Profile.load("nvidia-h200").launch_overhead_s}


@pytest.mark.parametrize(("model", "batch"), cases())
def test_what_is_better_in_everything_is_not_surely_slower(model, batch):
    profiles = gpus()
    pairs = [pair for pair in itertools.permutations(profiles, 2) if dominates(*pair)]
    assert len(pairs) > 30
    operators = graph_of(model_config(model), batch).operators
    sums = {
        name: drawn(profile, number, operators)
        for number, (name, profile) in enumerate(profiles.items())
    }
    low = {(a, b): float(np.quantile(sums[a] / sums[b], 0.025)) for a, b in pairs}
    assert not {pair: round(value, 2) for pair, value in low.items() if value > 1}
