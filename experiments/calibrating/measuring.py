"""The measuring step of a calibration, with its turns of choosing what to measure next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.calibrating.fitting import priced_state
from experiments.calibrating.operators import BEGUN, more_operators, turns
from experiments.calibrating.settings import CalibrateConfig
from simulator.model.units import parse_seconds

if TYPE_CHECKING:
    from calibration.plan import MeasurePlan
    from calibration.samples import OperatorSample


def measuring_plan(config: CalibrateConfig) -> MeasurePlan:
    """What is measured of the device, by these settings.

    Raises:
        InvalidInput: there is no such state of the caches, or the one to be priced is not measured.
    """
    from calibration import environment
    from calibration.plan import MeasurePlan
    from calibration.timing import default_states

    states = tuple(config.states.split(",")) if config.states else default_states(config.device)
    priced_state(config.cache, states)  # refused now, not once all is measured
    name = config.name or environment.device_name(
        config.device, config.threads, config.repeat_kernel
    )
    return MeasurePlan(
        config.device, name, states, config.threads, config.repeat_kernel, config.seed
    )


def measure_step(
    config: CalibrateConfig,
    plan: MeasurePlan,
    folder: Path,
    operators: Sequence[OperatorSample],
    show: Callable[[str], None],
) -> bool:
    """Measure these and what turns of choosing add into ``folder/raw``; returns False if it was interrupted."""
    from calibration.measure import measure
    from calibration.samples import read_samples

    show(f"{len(operators)} operators on {plan.name} for {config.budget}, into {folder}")
    end = time.monotonic() + parse_seconds(config.budget, "budget")
    for turn in range(turns(config), -1, -1):
        left = end - time.monotonic()
        first = turn == turns(config)
        if not first:
            operators = [*operators, *more_operators(config, folder, operators, turn, show)]
            left = max(end - time.monotonic(), 1.0)
        outcome = measure(
            folder / "raw",
            plan,
            operators,
            left * BEGUN if first and turn else left / (turn + 1),
            cores=config.cores,
            rounds=config.rounds,
            show=show,
        )
        if outcome.interrupted:
            break
    for index, why in list(outcome.failed.items())[:5]:
        name = read_samples(folder / "raw" / "operators.json")[index].operator.name
        show(f"not measured: {name}: {why}")
    if outcome.complete_rounds < 2:
        show(
            "fewer than two complete rounds: times and A/A error are rough; go on with out=<folder>"
        )
    return not outcome.interrupted
