"""One job of a model alone on each of several devices: time, interval, ratio to the fastest.

All devices are priced together and share the draws of the predictors' errors, so that a ratio's interval counts an
error that both devices have once. Each run begins and ends in the device's own memory: no link is passed. A GPU is fed
as eager PyTorch feeds it: the host launches ahead, and short kernels wait for their launch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.runs import catalog
from experiments.runs.cell import Runs, extrapolated_share
from experiments.runs.configs import Scenario
from experiments.runs.discrepancy import discrepancies
from experiments.runs.grid import compose_grid, value_text
from experiments.runs.own_settings import key_of
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles
from experiments.runs.validity import Apart, apart, labels_compared
from experiments.runs.world import World
from scenarios.cluster_config import ClusterConfig, DeviceConfig, SpaceConfig
from scenarios.model_config import graph_of
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.units import parse_power, parse_price

if TYPE_CHECKING:
    import pandas as pd

    from cost_models.profile import Profile

COMPLETION = "10us"
"""From a GPU's last operator to the host's knowing of it."""
FIXED = ("cluster", "scheduler", "partition", "workload", "family", "instance", "experiment")
"""Keys that a comparison of devices sets itself."""


@dataclass(frozen=True)
class DeviceTimes:
    """A model at a batch on several devices.

    Attributes:
        model, batch: of the job.
        frame: a row a device, the fastest first: ``device``, ``label``, ``validated``, ``time_s`` with its 95% interval
            ``low_s`` and ``high_s``, ``ratio`` to the first row with ``ratio_low`` and ``ratio_high`` (NaN where nobody
            knows an error), ``extrapolated_share``, ``items_per_s``, ``power_w``, ``energy_j``, ``price_per_hour``
            and ``cost_per_million`` items (NaN where unknown).
        refused: devices that cannot run it, each with the reason.
        compared: how devices of different labels compare; empty where all have one.
        validity: what the shipped validations say of them.
        draws: behind each interval.
    """

    model: str
    batch: int
    frame: pd.DataFrame
    refused: Mapping[str, str]
    compared: str
    validity: tuple[Apart, ...]
    draws: int


def devices_table(
    model: str,
    profiles: Sequence[str] | None = None,
    batches: Sequence[int] | None = None,
    *,
    prices: Mapping[str, str] | None = None,
    powers: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    config_dirs: Sequence[str | Path] = (),
) -> pd.DataFrame:
    """Compare devices on a model.

    Args:
        model: a shipped model's name, or one of ``config_dirs``.
        profiles: names of devices; None: all whose profile has the model's element type.
        batches: sizes of a batch; None: the model's own.
        prices: like ``{"tesla-t4": "0.35/h"}``; None: where the clusters of ``conf/cluster`` agree on one.
        powers: like ``{"tesla-t4": "70 W"}``; None: the board's power by its data sheet.
        settings: values of the command line by key: ``{"model.dtype": "float16", "simulation.draws": 100}``.
        config_dirs: folders of your own configs.

    Returns:
        The rows of :attr:`DeviceTimes.frame` with ``model`` and ``batch`` before them, and ``refused``: empty, or why a
        device cannot run the model.

    Raises:
        InvalidInput: a name is unknown, a value cannot be, or no device can run the model.

    Example:
        >>> from experiments.devices import devices_table
        >>> found = devices_table("googlenet", ["tesla-t4", "amd-epyc-25-17-1core"])
        >>> list(found["device"])
        ['tesla-t4', 'amd-epyc-25-17-1core']
    """
    words = [f"model={model}"]
    words += [f"{key}={value_text(value)}" for key, value in (settings or {}).items()]
    folders = tuple(Path(folder).expanduser().resolve() for folder in config_dirs)
    found = compare_devices(words, profiles, batches, prices or {}, powers or {}, folders)
    return frame_of(found)


def frame_of(found: Sequence[DeviceTimes]) -> pd.DataFrame:
    """One table of all of them; see :func:`devices_table`."""
    import pandas as pd

    parts = []
    for one in found:
        part = one.frame.assign(refused="")
        lacking = pd.DataFrame({"device": [*one.refused], "refused": [*one.refused.values()]})
        part = pd.concat([part, lacking.reindex(columns=part.columns)]) if len(lacking) else part
        part.insert(0, "model", one.model)
        part.insert(1, "batch", one.batch)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def compare_devices(
    words: Sequence[str],
    names: Sequence[str] | None = None,
    batches: Sequence[int] | None = None,
    prices: Mapping[str, str] | None = None,
    powers: Mapping[str, str] | None = None,
    config_dirs: Sequence[Path] = (),
) -> list[DeviceTimes]:
    """Compare devices on every model and batch that a command line asks for.

    Args:
        words: overrides; ``model=a,b`` gives several models.
        names: of devices, see :func:`devices_table`.
        batches: sizes of a batch.
        prices: of an hour, by device.
        powers: by device.
        config_dirs: the user's folders, absolute.

    Raises:
        InvalidInput: see :func:`devices_table`.
    """
    for word in words:
        if key_of(word).partition(".")[0] in FIXED:
            raise InvalidInput(
                f"'{word}' has no meaning here: one job of the model runs alone on each device; name devices by "
                "profile=tesla-t4,nvidia-l4, or simulate a cluster: python -m experiments.simulate"
            )
    axis = [f"model.batch={','.join(map(str, batches))}"] if batches else []
    grid = compose_grid([*words, *axis, "scheduler=single_device"], config_dirs, ("output_dir",))
    hourly = _quantities(prices or {}, parse_price, "price")
    watts = _quantities(powers or {}, parse_power, "power")
    chosen = _known(names)
    for what, values in (("price", hourly), ("power", watts)):
        for name in values.keys() - set(chosen):
            raise InvalidInput(
                f"{what} names '{name}', which is none of the devices: {', '.join(chosen)}"
            )
    return [
        _compared(cell.scenario.settled(), chosen, names is None, hourly, watts, config_dirs)
        for cell in grid.cells
    ]


def _known(names: Sequence[str] | None) -> list[str]:
    if names is None:
        from cost_models.profile_files import available

        return sorted(available())
    if not names:
        raise InvalidInput("profile= names no device; see python -m experiments.list profiles")
    return list(dict.fromkeys(names))


def _quantities(texts: Mapping[str, str], parse: Any, what: str) -> dict[str, float]:
    return {name: parse(text, f"{what} of '{name}'") for name, text in texts.items()}


def _compared(
    scenario: Scenario,
    names: Sequence[str],
    unasked: bool,
    prices: Mapping[str, float],
    powers: Mapping[str, float],
    config_dirs: Sequence[Path],
) -> DeviceTimes:
    import pandas as pd

    target = catalog.resolve_class_path(scenario.model.target, config_dirs)
    graph = graph_of(dataclasses.replace(scenario.model, target=target))
    profiles = load_profiles(_cluster(names), scenario.cost_model, read_models=False)
    refused = _refused(graph, profiles)
    able = [name for name in names if name not in refused]
    if not able:
        raise InvalidInput(next(iter(refused.values())))
    launched = {name for name in able if profiles[name].launch_overhead_s > 0}
    scenario = dataclasses.replace(scenario, cluster=_cluster(able, launched, len(graph)))
    world = prepare(scenario, config_dirs)
    totals, shares = _times(world, scenario, config_dirs)
    order = np.argsort(totals[0], kind="stable")
    totals = totals[:, order]
    assert world.pricer is not None  # its times are of profiles
    unknown = world.pricer.without_error
    validity = apart([profiles[name] for name in able])
    validated = {name for said in validity if said.validated for name in said.names}
    batch = graph.batch or 1
    rows = []
    for column, position in enumerate(order.tolist()):
        name = able[position]
        time = float(totals[0, column])
        power = powers.get(name, _board_power(name))
        price = prices.get(name, _price(name, config_dirs))
        certain = name not in unknown
        low, high = _interval(totals[1:, column] if certain else totals[1:1, column])
        both = column > 0 and certain and able[order[0]] not in unknown
        ratios = totals[1:, column] / totals[1:, 0] if both else totals[1:1, 0]
        least, most = _interval(ratios)
        rows.append(
            {
                "device": name,
                "label": profiles[name].label,
                "validated": name in validated,
                "time_s": time,
                "low_s": low,
                "high_s": high,
                "ratio": time / float(totals[0, 0]),
                "ratio_low": least,
                "ratio_high": most,
                "extrapolated_share": shares[position],
                "items_per_s": batch / time,
                "power_w": power,
                "energy_j": power * time,
                "price_per_hour": price,
                "cost_per_million": price / 3600 * time / batch * 1e6,
            }
        )
    sorted_cluster = dataclasses.replace(
        world.cluster, devices=tuple(world.cluster.devices[position] for position in order)
    )
    return DeviceTimes(
        scenario.model.name,
        batch,
        pd.DataFrame(rows),
        # Who asked for nobody in particular is not told of everybody else.
        {} if unasked else refused,
        labels_compared(sorted_cluster, totals, unknown),
        validity,
        len(totals) - 1,
    )


def _refused(graph: Any, profiles: Mapping[str, Profile]) -> dict[str, str]:
    from cost_models.pricing import refuse_foreign_type

    found = {}
    for name, profile in profiles.items():
        try:
            refuse_foreign_type(graph, profile)
        except InvalidInput as error:
            found[name] = str(error)
    return found


def _cluster(
    names: Sequence[str], launched: Sequence[str] | set[str] = (), ahead: int = 1
) -> ClusterConfig:
    """Devices that have nothing to do with one another, each with its launches ahead of it where it has any."""
    queue: dict[str, Any] = {
        "issue_depth": ahead,
        "completion_latency": COMPLETION,
        "issue_overhead": "profile",
    }
    return ClusterConfig(
        "devices",
        {"memory": SpaceConfig()},
        {
            name: DeviceConfig(name, "memory", **(queue if name in launched else {}))
            for name in names
        },
        host="memory",
        allow_datasheet=True,
    )


def _times(
    world: World, scenario: Scenario, config_dirs: Sequence[Path]
) -> tuple[np.ndarray, list[float]]:
    """float64[1 + draws, devices] seconds, as believed and in each draw; by device the extrapolated share."""
    simulation, devices = scenario.simulation, world.cluster.devices
    found = np.empty((1 + simulation.draws, len(devices)))
    factors, shares, runs = [], [], None
    for number, device in enumerate(devices):
        scheduler = dataclasses.replace(scenario.scheduler, options={"device": device.name})
        runs = Runs(dataclasses.replace(scenario, scheduler=scheduler), world, config_dirs)
        trace = runs.nominal()
        found[0, number] = trace.makespan
        shares.append(extrapolated_share(world, trace))
        sigma = 0.0 if simulation.replaces_predictor_error else simulation.discrepancy
        factors.append(discrepancies(sigma, trace, simulation.draws, scenario.seed.noise))
    submit = np.array([d.issue_overhead if d.completion_latency else 0.0 for d in devices])
    latency = np.array([device.completion_latency for device in devices])
    believed, draw = world.costs[world.graph], 0
    for draw, actual in enumerate(world.draws(scenario), start=1):
        if isinstance(actual, CostTable):
            seconds = actual[world.graph].seconds
        else:
            assert runs is not None  # there is a device
            rng = np.random.default_rng(runs.seed_of_draw(draw - 1))
            seconds = actual.realise(world.graph, believed, rng)
        found[draw] = alone_seconds(seconds, submit, latency)
    found[1:] *= np.array(factors).T.reshape(found[1:].shape)
    return found[: 1 + draw], shares


def alone_seconds(seconds: np.ndarray, submit: np.ndarray, latency: np.ndarray) -> np.ndarray:
    """When each device has done all operators, one after the other.

    Args:
        seconds: float64[operators, devices], in the order of execution.
        submit: float64[devices], what the host takes to launch each; it launches ahead. 0: nothing waits for it.
        latency: float64[devices], from the last end to the host's knowing of it.

    Returns:
        float64[devices]. The last launch that the device had to wait for came when the host had launched so many; from then on it was
        busy without a break: the largest, over all operators, of the launches up to one and the times from it on.
    """
    left = np.cumsum(seconds[::-1], axis=0)[::-1]
    launched = np.arange(1, len(seconds) + 1)[:, None] * submit
    makespan: np.ndarray = (left + launched).max(axis=0) + latency
    return makespan


def _interval(values: np.ndarray) -> tuple[float, float]:
    """The middle 95%; NaN where there are none."""
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.percentile(values, [2.5, 97.5]).tolist()
    return low, high


def _board_power(name: str) -> float:
    from cost_models.device_spec import spec_of_measured

    spec = spec_of_measured(name)
    return float("nan") if spec is None or spec.power_w is None else spec.power_w


def _price(name: str, config_dirs: Sequence[Path]) -> float:
    """The price of an hour, where all clusters that state one agree; else NaN."""
    stated = {
        str(device["price"])
        for entry in catalog.entries("cluster", config_dirs)
        for device in (entry.content.get("devices") or {}).values()
        if device.get("profile") == name and device.get("price") is not None
    }
    return parse_price(*stated) if len(stated) == 1 else float("nan")
