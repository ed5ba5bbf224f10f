"""Which of a profile's cost models prices unless another is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

WORTH_ALL = 0.02
"""Of the smallest mean error of a single model, by which an ensemble must be better to be preferred."""


def preferred_model(
    held_out: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | None]]]],
    models: Sequence[str],
) -> str:
    """Of the models asked for the one with the smallest mean error; empty where none is known.

    An ensemble, which asks all of its members for every price, must be better than each by :data:`WORTH_ALL`.
    """
    means: dict[str, float] = {}
    for name in models:
        if name == "roofline":
            continue
        ways = held_out.get(name, {})
        summary = ways.get("architecture") or ways.get("fold") or {}
        mean = summary.get("all", {}).get("mean")
        if mean is not None:
            means[name] = mean
    single = {name: mean for name, mean in means.items() if name != "ensemble"}
    best = min(single, key=lambda name: single[name], default="")
    if "ensemble" in means and means["ensemble"] < (1 - WORTH_ALL) * single.get(best, math.inf):
        return "ensemble"
    return best
