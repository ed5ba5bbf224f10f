"""Operators that keep a measured time: those of a recorded trace of whose kind no cost model knows the work.

On a device such an operator takes its measured time, times what the graph's other operators are predicted to take there
over what they took when they were recorded. It counts as extrapolated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph

KIND = "measured"
_log = logging.getLogger(__name__)
_told: set[tuple[DataflowGraph, str | None]] = set()


def attributes(seconds: float, priced_s: float) -> dict[str, Any]:
    """Attributes of an operator of :data:`KIND`.

    Args:
        seconds: that it took.
        priced_s: that the operators of known kinds of the same graph took, together.
    """
    return {"seconds": seconds, "priced_s": priced_s}


def keep_measured(
    graph: DataflowGraph, seconds: np.ndarray, inside: np.ndarray, devices: Sequence[str]
) -> None:
    """Put the scaled measured times into a graph's predicted ones, and say how much of the time that is.

    Args:
        graph: any; without operators of :data:`KIND` nothing changes.
        seconds: float64[operators, devices], changed in place.
        inside: bool[operators, devices], False where a time is extrapolated; changed in place.
        devices: names of their profiles.

    Raises:
        InvalidInput: such an operator, as a file may have it, has no times.
    """
    rows = [row for row, kind in enumerate(graph.operator_kinds) if kind == KIND]
    if not rows:
        return
    given = []
    for row in rows:
        operator = graph.operators[row]
        pair: list[Any] = [operator.attributes.get(key) for key in ("seconds", "priced_s")]
        if not all(isinstance(value, int | float) and 0 <= value < 1e12 for value in pair):
            raise InvalidInput(
                f"Operator '{operator.name}' of kind '{KIND}' needs attributes 'seconds' and 'priced_s', numbers of seconds"
            )
        given.append(pair)
    kept, priced_s = np.array(given)[:, 0], float(given[0][1])
    others = np.delete(seconds, rows, axis=0).sum(axis=0)
    factors = others / priced_s if priced_s > 0 else np.ones(len(devices))
    seconds[rows] = kept[:, None] * factors
    inside[rows] = False
    say_measured(graph, seconds, devices)


def say_measured(graph: DataflowGraph, seconds: np.ndarray, devices: Sequence[str | None]) -> None:
    """Say, once for a graph and a profile, how much of its time its operators of :data:`KIND` took when recorded.

    Args:
        graph: any.
        seconds: float64[operators, devices], priced.
        devices: names of their profiles.
    """
    rows = [row for row, kind in enumerate(graph.operator_kinds) if kind == KIND]
    if not rows:
        return
    kept = np.array([graph.operators[row].attributes["seconds"] for row in rows])
    priced_s = graph.operators[rows[0]].attributes["priced_s"]
    factors = seconds[rows].sum(axis=0) / max(kept.sum(), 1e-300)
    share = kept.sum() / max(kept.sum() + priced_s, 1e-300)
    names = list(dict.fromkeys(graph.operators[row].name.rpartition("#")[0] for row in rows))
    listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    for name, factor in zip(devices, factors, strict=True):
        if (graph, name) not in _told:
            _told.add((graph, name))
            _log.warning(
                "%.1f%% of the recorded time of '%s' is of operators that no cost model knows (%s): on %s they keep it, "
                "times %.3g as the others",
                *(100 * share, graph.name, listed, name, factor),
            )
