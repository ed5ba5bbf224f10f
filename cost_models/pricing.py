"""Cost tables from profiles: one batch prediction per profile over all graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cost_models.model import OWN
from cost_models.profile import Priced, Profile, row_keys
from simulator.costs import CostTable, GraphCosts
from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph


def price_graphs(
    graphs: Iterable[DataflowGraph],
    devices: Sequence[str | None],
    profiles: Mapping[str, Profile],
    *,
    model: str = OWN,
    cache: str | None = None,
    lookup: bool = False,
) -> CostTable:
    """Times of every operator of every graph on every device.

    Args:
        graphs: what will run.
        devices: for each device of the cluster, in order, the name of its profile.
        profiles: by name.
        model: a name of :func:`cost_models.model.names`.
        cache: cache state; None takes each profile's own.
        lookup: take measured times of operators that were measured (:meth:`Profile.price`).

    Raises:
        InvalidInput: a device without a profile, or a profile that is not there.
    """
    graphs = list(dict.fromkeys(graphs))
    keys = row_keys([operator for graph in graphs for operator in graph.operators])
    priced: dict[str, Priced] = {}
    for position, name in enumerate(devices):
        if name is None or name not in profiles:
            raise InvalidInput(
                f"Device {position} of the cluster "
                + ("names no profile" if name is None else f"names profile '{name}', not loaded")
            )
        if name not in priced:
            priced[name] = profiles[name].price_rows(keys, model=model, cache=cache, lookup=lookup)
    columns = [priced[str(name)] for name in devices]
    seconds = np.stack([column.seconds for column in columns], axis=1)
    inside = np.stack([column.in_range for column in columns], axis=1)
    # Where no spread was measured nothing is known of the noise, and none is added.
    spread = np.nan_to_num(np.stack([column.spread for column in columns], axis=1), nan=0.0)
    entries, start = {}, 0
    for graph in graphs:
        part = slice(start, start + len(graph))
        start += len(graph)
        entries[graph] = GraphCosts(seconds[part], spread[part], inside[part])
    return CostTable(entries)
