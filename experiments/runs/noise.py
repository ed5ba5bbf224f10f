"""The noise that a simulation's config asks for, with what the cluster's profiles know of it."""

from __future__ import annotations

import numpy as np

from experiments.runs.configs import SimulationConfig
from experiments.runs.pricing import Pricer
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.noise import (
    Compose,
    EmpiricalNoise,
    LogNormalNoise,
    NoiseModel,
    RandomDrift,
    SteadyDrift,
    Stragglers,
    SystematicError,
    registered,
)
from simulator.model.units import parse_seconds


def noise_model(
    simulation: SimulationConfig, cluster: Cluster, pricer: Pricer | None
) -> NoiseModel | None:
    """The noise of a simulation; None for none.

    Devices of one profile are wrong together, and so are profiles as far as they were seen to be; each device
    drifts on its own. A systematic error of a given size is each profile's own.

    Args:
        simulation: checked.
        cluster: where it runs.
        pricer: knows the profiles; None for bare instances, whose times are given.

    Raises:
        InvalidInput: a quantity is out of range, or no profile of the cluster knows what is asked.
    """
    models: list[NoiseModel] = []
    for name in simulation.noises:
        if name == "lognormal":
            models.append(LogNormalNoise(simulation.sigma))
        elif name == "measured":
            models.append(LogNormalNoise())
        elif name == "empirical":
            models.append(_empirical(cluster, pricer))
        elif name == "systematic":
            models.append(_systematic(simulation.systematic.sigma, cluster, pricer))
        elif name == "stragglers":
            given = simulation.stragglers
            assert given.probability is not None
            assert given.factor is not None
            models.append(Stragglers(given.probability, given.factor, given.shape))
        elif name in registered():
            models.append(registered()[name]([device.name for device in cluster.devices]))
        else:
            models += _drifts(simulation, cluster)
    if len(models) < 2:
        return models[0] if models else None
    return Compose(models)


def _groups(cluster: Cluster) -> list[str]:
    return [device.profile or device.name for device in cluster.devices]


def _profiles(cluster: Cluster) -> list[str]:
    return sorted({device.profile for device in cluster.devices if device.profile is not None})


def _empirical(cluster: Cluster, pricer: Pricer | None) -> NoiseModel:
    samples = {}
    for profile in _profiles(cluster) if pricer is not None else []:
        assert pricer is not None
        for kind, values in pricer.deviations(profile).items():
            samples[profile, kind] = np.array(values)
    if not samples:
        raise InvalidInput(
            "simulation.noise=empirical needs measured calls, and no profile of "
            f"{_of(cluster, pricer)} holds any (experiments.calibrate keeps them); or take "
            "simulation.noise=measured, or lognormal with simulation.sigma"
        )
    return EmpiricalNoise(samples, _groups(cluster))


def _systematic(sigma: float | None, cluster: Cluster, pricer: Pricer | None) -> NoiseModel:
    if sigma is not None:
        return SystematicError(_groups(cluster), sigma)
    sigmas = {}
    for profile in _profiles(cluster) if pricer is not None else []:
        assert pricer is not None
        for kind, residuals in pricer.residuals(profile).items():
            sigmas[profile, kind] = residuals.systematic
    if not sigmas:
        raise InvalidInput(
            "simulation.noise=systematic takes the held-out errors of profiles, and no profile of "
            f"{_of(cluster, pricer)} has any; give a simulation.systematic.sigma, e.g. 0.1"
        )
    assert pricer is not None
    correlation = {
        (*pair, kind): entry.shared
        for pair, kinds in pricer.correlations.pairs.items()
        for kind, entry in kinds.items()
    }
    return SystematicError(_groups(cluster), sigmas, correlation=correlation)


def _drifts(simulation: SimulationConfig, cluster: Cluster) -> list[NoiseModel]:
    given = simulation.drift
    models: list[NoiseModel] = []
    if given.per_hour is not None:
        models.append(SteadyDrift(given.per_hour))
    if given.sigma is not None:
        assert given.time_constant is not None
        seconds = parse_seconds(given.time_constant, "simulation.drift.time_constant")
        names = [device.name for device in cluster.devices]
        models.append(RandomDrift(names, given.sigma, seconds))
    return models


def _of(cluster: Cluster, pricer: Pricer | None) -> str:
    return f"cluster '{cluster.name}'" if pricer is not None else "a bare instance"
