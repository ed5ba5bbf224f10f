"""Selections of nodes by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import InvalidInput
from simulator.serving.node_selection import (
    DeadlineAware,
    EarliestFinish,
    Home,
    LeastLoaded,
    PowerOfTwo,
    RandomNode,
    RoundRobinNode,
    Selection,
)
from simulator.serving.two_stage import TwoStage
from simulator.support.options import construct


def make_selection(given: str | Mapping[str, Any]) -> Selection:
    """A selection by its name, or by a mapping of ``name`` and its options.

    Raises:
        InvalidInput: there is none of this name, or it does not take these options.
    """
    options = {"name": given} if isinstance(given, str) else dict(given)
    name = options.pop("name", None)
    kinds = selections()
    if name not in kinds:
        raise InvalidInput(f"There is no selection '{name}'; known: {', '.join(sorted(kinds))}")
    return construct(kinds[str(name)], f"Selection '{name}'", options)


def selections() -> dict[str, type[Selection]]:
    """Every selection by name."""
    kinds = (
        Home,
        RandomNode,
        RoundRobinNode,
        LeastLoaded,
        PowerOfTwo,
        EarliestFinish,
        DeadlineAware,
        TwoStage,
    )
    return {kind.name: kind for kind in kinds}
