"""Times of operators on a cluster's devices, from the profiles that the cluster names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.runs.configs import CostModelConfig
from experiments.runs.validity import Validity, validity
from scenarios.cluster_config import ClusterConfig
from simulator.devices.weight_cache import caches_weights
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator

# Profiles bring pandas and XGBoost along, which a simulation of a bare instance does not need.
if TYPE_CHECKING:
    from cost_models.correlation import Correlations
    from cost_models.profile import Profile
    from cost_models.uncertainty import LookedUp, Residuals


def load_profiles(
    cluster: ClusterConfig, cost_model: CostModelConfig, read_models: bool = True
) -> dict[str, Profile]:
    """Every profile that a cluster's devices name.

    Args:
        cluster: its devices name profiles.
        cost_model: the fit that prices.
        read_models: refuse a damaged fit now; without it a fit is read when it prices.

    Raises:
        InvalidInput: there is no such profile (the nearest are named), it is a data sheet and the
            cluster does not allow those, or there is no such cost model.
    """
    found = {}
    for device in cluster.devices.values():
        if device.count == 0:
            continue
        profile = _load(*_version(device.profile))
        if profile.label == "datasheet" and not cluster.allow_datasheet:
            raise InvalidInput(
                f"Nobody has measured '{profile.name}': its profile is its data sheet and what other GPUs have in common. "
                "To take it all the same: cluster.allow_datasheet=true"
            )
        # Refuses an unknown model and a damaged one before any work is done.
        model = profile.model_name(cost_model.name)
        if read_models:
            profile.models.get(model)
        found[device.profile] = profile
    return found


def profile_digests(cluster: ClusterConfig) -> dict[str, str]:
    """The digest of every profile that a cluster's devices name.

    Raises:
        InvalidInput: there is no such profile.
    """
    names = {device.profile for device in cluster.devices.values() if device.count > 0}
    return {name: _digest(*_version(name)) for name in sorted(names)}


def _version(name: str) -> tuple[Path, int]:
    """Where a profile lies and when it was written: one that is replaced is read anew."""
    from cost_models.profile_files import search_path

    folder = _folder(name, tuple(search_path()))
    return folder, (folder / "profile.json").stat().st_mtime_ns  # written last


@cache
def _folder(name: str, search_path: tuple[Path, ...]) -> Path:
    from cost_models.profile_files import folder_of

    return folder_of(name)


@cache
def _load(folder: Path, written: int) -> Profile:
    from cost_models.profile import Profile

    return Profile.load(folder)


@cache
def _digest(folder: Path, written: int) -> str:
    from cost_models.profile_files import digest

    return digest(folder)


class Pricer:
    """Prices graphs on a cluster, and draws how wrong those prices may be.

    Args:
        cluster: its devices name profiles.
        profiles: by name.
        cost_model: which fit of a profile is used.
    """

    def __init__(
        self, cluster: Cluster, profiles: Mapping[str, Profile], cost_model: CostModelConfig
    ) -> None:
        self._cluster = cluster
        self._profiles = profiles
        self._model = cost_model.name
        self._lookup = cost_model.lookup

    @property
    def without_error(self) -> tuple[str, ...]:
        """Profiles of which nobody knows how wrong they are: draws leave their times as they are."""
        names = (name for name, p in self._profiles.items() if not p.residuals_for(self._model))
        return tuple(sorted(names))

    def validity(self, planned: bool) -> Validity:
        """In which world these devices were validated, see :func:`experiments.runs.validity.validity`."""
        memories = {device.space for device in self._cluster.devices}
        return validity(self._profiles.values(), len(memories), planned)

    def nearest_measured(self, operator: Operator, device: Device) -> str:
        """An operator's shapes, and what its device's profile measured nearest to it."""
        from cost_models.pricing import nearest_measured, shapes_text

        specs = ([spec.shape for spec in side] for side in (operator.inputs, operator.outputs))
        near = nearest_measured(operator, self._profiles[str(device.profile)])
        return f", {shapes_text(*specs)}: {near}"

    def residuals(self, profile: str) -> Mapping[str, Residuals]:
        """Held-out residuals of a profile by kind, of the fit that prices; empty where unknown."""
        return self._profiles[profile].residuals_for(self._model)

    @cached_property
    def correlations(self) -> Correlations:
        """How the errors of the profiles go together, of the fits that price."""
        from cost_models.correlation import Correlations, measured

        if len(self._profiles) < 2:
            return Correlations()
        kept = {name: profile.residual_rows for name, profile in self._profiles.items()}
        rows = {name: frame for name, frame in kept.items() if frame is not None}
        return measured(rows, {n: self._profiles[n].model_name(self._model) for n in rows})

    def deviations(self, profile: str) -> Mapping[str, tuple[float, ...]]:
        """Measured deviations of a profile by kind (:attr:`Profile.deviations`)."""
        return self._profiles[profile].deviations

    def price(self, graphs: Sequence[DataflowGraph]) -> CostTable:
        """Believed seconds of every operator, from one batch prediction a profile."""
        from cost_models.pricing import price_graphs

        names = [device.profile for device in self._cluster.devices]
        table = price_graphs(
            graphs,
            names,
            self._profiles,
            model=self._model,
            lookup=self._lookup,
            cached=caches_weights(self._cluster),
        )
        speeds = np.array([device.speed for device in self._cluster.devices])
        if (speeds == 1.0).all():
            return table
        return CostTable({g: replace(c, seconds=c.seconds / speeds) for g, c in table.items()})

    def draws(self, costs: CostTable, count: int, seed: int) -> Iterator[CostTable]:
        """``count`` possible tables of actual seconds, errors correlated as they were seen to be."""
        from cost_models.uncertainty import draws

        residuals = [
            (str(device.profile), self._profiles[str(device.profile)].residuals_for(self._model))
            for device in self._cluster.devices
        ]
        drift = {name: profile.drift for name, profile in self._profiles.items()}
        looked_up = self._looked_up(costs)
        stretch = self._stretched(costs)
        return draws(costs, residuals, count, seed, looked_up, drift, self.correlations, stretch)

    def _stretched(self, costs: CostTable) -> dict[str, np.ndarray]:
        """By profile, for the operators of all graphs, how many times as far off as others of its kind each may be."""
        from cost_models.profile import row_keys

        keys = row_keys([operator for graph in costs for operator in graph.operators])
        found = {}
        for position, device in enumerate(self._cluster.devices):
            name = str(device.profile)
            inside = [
                np.ones(len(graph), bool) if one.in_range is None else one.in_range[:, position]
                for graph, one in costs.items()
            ]
            times = self._profiles[name].stretched(keys, np.concatenate(inside), self._model)
            if times is not None:
                found[name] = times
        return found

    def _looked_up(self, costs: CostTable) -> dict[str, LookedUp]:
        from cost_models.cached_graphs import cache_state
        from cost_models.profile import row_keys
        from cost_models.uncertainty import LookedUp

        if not self._lookup:
            return {}
        keys = [row_keys(graph.operators) for graph in costs]
        found = {}
        for name, profile in self._profiles.items():
            known = [
                profile.is_measured(rows, cache_state(graph, profile))
                for rows, graph in zip(keys, costs, strict=True)
            ]
            found[name] = LookedUp(np.concatenate(known), profile.repeat_error)
        return found
