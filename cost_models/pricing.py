"""Cost tables from profiles: one batch prediction per profile over all graphs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from cost_models.arithmetic import is_known, operator_flops
from cost_models.cached_graphs import cache_state, has_warm, weight_shares
from cost_models.measured import KIND, keep_measured
from cost_models.model import OWN
from cost_models.profile import Priced, Profile, RowKey, is_gpu, row_keys
from cost_models.profile_files import available
from cost_models.table import dtype_of, row_of
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator

_log = logging.getLogger(__name__)
_warned: set[str] = set()


def price_graphs(
    graphs: Iterable[DataflowGraph],
    devices: Sequence[str | None],
    profiles: Mapping[str, Profile],
    *,
    model: str = OWN,
    cache: str | None = None,
    lookup: bool = False,
    cached: bool = False,
) -> CostTable:
    """Times of every operator of every graph on every device.

    Args:
        graphs: what will run.
        devices: for each device of the cluster, in order, the name of its profile.
        profiles: by name.
        model: a name of :func:`cost_models.model.names`.
        cache: cache state; None takes each profile's own, or ``warm`` for a graph that stays in the
            device's cache (:mod:`cost_models.cached_graphs`).
        lookup: take measured times of operators that were measured (:meth:`Profile.price`).
        cached: also what is left of each time when its weights lie in the cache
            (:attr:`simulator.model.costs.GraphCosts.cached`); all of it where a profile has no state ``warm``.

    Raises:
        InvalidInput: a device without a profile, a profile that is not there, or one that does not have a graph's
            element type.
    """
    graphs = list(dict.fromkeys(graphs))
    for graph in graphs:
        for name in dict.fromkeys(devices):
            if name is not None and name in profiles:
                refuse_foreign_type(graph, profiles[name])
    warn_of_unknown_work(graphs)
    keys = row_keys([operator for graph in graphs for operator in graph.operators])
    priced: dict[str, Priced] = {}
    for position, name in enumerate(devices):
        if name is None or name not in profiles:
            raise InvalidInput(
                f"Device {position} of the cluster "
                + ("names no profile" if name is None else f"names profile '{name}', not loaded")
            )
        if name not in priced:
            states = [cache or cache_state(graph, profiles[name]) for graph in graphs]
            state = [s for s, graph in zip(states, graphs, strict=True) for _ in graph.operators]
            priced[name] = _priced(profiles[name], keys, state, model, lookup)
    columns = [priced[str(name)] for name in devices]
    seconds = np.stack([column.seconds for column in columns], axis=1)
    inside = np.stack([column.in_range for column in columns], axis=1)
    # Where no spread was measured nothing is known of the noise, and none is added.
    spread = np.nan_to_num(np.stack([column.spread for column in columns], axis=1), nan=0.0)
    left = None
    if cached:
        parts = {
            name: _cached(profiles[name], graphs, keys, column.seconds, model, lookup)
            for name, column in priced.items()
        }
        left = np.stack([parts[str(name)] for name in devices], axis=1)
    entries, start = {}, 0
    for graph in graphs:
        part = slice(start, start + len(graph))
        start += len(graph)
        keep_measured(graph, seconds[part], inside[part], [str(name) for name in devices])
        entries[graph] = GraphCosts(
            seconds[part], spread[part], inside[part], None if left is None else left[part]
        )
    return CostTable(entries)


def element_type(graph: DataflowGraph) -> str | None:
    """The floating-point type of most of a graph's arithmetic; None where it has none.

    A model in bfloat16 may compute a norm in float32 in between.
    """
    work: defaultdict[str, float] = defaultdict(float)
    for operator in graph.operators:
        if operator.kind != KIND and "float" in (dtype := dtype_of(operator)):
            work[dtype] += operator_flops(operator)
    return max(work, key=lambda dtype: work[dtype], default=None)


def refuse_foreign_type(graph: DataflowGraph, profile: Profile) -> None:
    """Refuse a profile that was neither measured in a graph's element type nor has a peak of it.

    Raises:
        InvalidInput: names the nearest profile that has the type.
    """
    dtype = element_type(graph)
    if dtype is None or dtype in profile.dtypes:
        return
    entries = {
        name: entry
        for name, entry in available().items()
        if dtype in entry.document.get("dtypes", ())
        and is_gpu(name, entry.document) == profile.is_gpu
    }
    near = get_close_matches(profile.name, entries, n=1, cutoff=0.0)
    way = (
        f"take {near[0]} ({entries[near[0]].label})"
        if near
        else "no profile of such a device has it"
    )
    own = [other for other in profile.dtypes if "float" in other]
    raise InvalidInput(
        f"Profile '{profile.name}' ({profile.label}) has {', '.join(own) or 'no floating-point type'} and not {dtype}, "
        f"in which '{graph.name}' computes: {way}" + (f", or model.dtype={own[0]}" if own else "")
    )


def nearest_measured(operator: Operator, profile: Profile) -> str:
    """The measured operator of a kind and element type whose sizes are nearest, in words.

    The distance is the sum over dimensions of the logarithm of their ratio; of another form (more tensors or
    dimensions) it is that of the numbers of elements, and farther.
    """
    table = profile.measurements
    asked = row_of(operator)
    rows = None if table is None else table[table["kind"] == operator.kind]
    if rows is None or not len(rows):
        return f"the profile holds no measurement of kind {operator.kind}"
    same = rows[rows["dtype"] == asked["dtype"]]
    rows = same if len(same) else rows

    def distance(shapes: tuple[Any, ...]) -> float:
        mine, theirs = (
            [np.array([n for shape in side for n in shape], dtype=float) for side in pair]
            for pair in ((asked["inputs"], asked["outputs"]), shapes)
        )
        a, b = np.concatenate(mine), np.concatenate(theirs)
        if len(a) == len(b):
            return float(np.abs(np.log2(a + 1) - np.log2(b + 1)).sum())
        return 1e3 + float(abs(np.log2(a + 1).sum() - np.log2(b + 1).sum()))

    shapes = [*zip(rows["inputs"], rows["outputs"], strict=True)]
    near = min(range(len(shapes)), key=lambda i: distance(shapes[i]))
    return f"the nearest measured is {shapes_text(*shapes[near])} in {rows['dtype'].iloc[near]}"


def shapes_text(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> str:
    """``1x64x56x56, 64x64x1x1 -> 1x64x56x56``."""

    def text(shapes: Sequence[Sequence[int]]) -> str:
        return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)

    return f"{text(inputs)} -> {text(outputs)}"


def warn_of_unknown_work(graphs: Sequence[DataflowGraph]) -> None:
    """Name in a warning, once in a process, kinds of which no work is known: their times are stand-ins."""
    kinds = {kind for graph in graphs for kind in graph.operator_kinds if not is_known(kind)}
    if new := sorted(kinds - _warned - {KIND}):
        _warned.update(new)
        _log.warning(
            "Nothing is known of the work of operators of kind %s: they are priced as products of matrices of their "
            "size, as extrapolated and with an interval ten times as wide either way",
            ", ".join(new),
        )


def _cached(
    profile: Profile,
    graphs: Sequence[DataflowGraph],
    keys: Sequence[RowKey],
    seconds: np.ndarray,
    model: str,
    lookup: bool,
) -> np.ndarray:
    """float64[operators]: what is left of times when weights lie in the cache.

    State ``warm`` has all of an operator's data there; of what it saves the weights get their share of the
    bytes that the operator touches.
    """
    if not has_warm(profile):
        return np.ones(len(seconds))
    warm = profile.price_rows(keys, model=model, cache="warm", lookup=lookup).seconds
    shares = np.concatenate([weight_shares(graph) for graph in graphs])
    with np.errstate(invalid="ignore", divide="ignore"):
        saved = np.clip(np.nan_to_num((seconds - warm) / seconds), 0.0, 1.0)
    left: np.ndarray = 1.0 - shares * saved
    return left


def _priced(
    profile: Profile,
    keys: Sequence[RowKey],
    states: Sequence[str | None],
    model: str,
    lookup: bool,
) -> Priced:
    """Times of rows, each in its own cache state."""
    seconds, spread = np.empty(len(keys)), np.empty(len(keys))
    inside = np.empty(len(keys), dtype=bool)
    for state in dict.fromkeys(states):
        at = [i for i, s in enumerate(states) if s == state]
        part = profile.price_rows([keys[i] for i in at], model=model, cache=state, lookup=lookup)
        seconds[at], spread[at], inside[at] = part.seconds, part.spread, part.in_range
    return Priced(seconds, spread, inside)
