"""Cases of a validation: predictions held against what was measured of the same contestants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.probes.cache_now import all_runs, curves_json
from experiments.probes.machine_speed import MachineSpeed, PanelTimes, profiles_of
from experiments.probes.overhead import Overhead
from experiments.runs import atomic
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles, profile_digests
from experiments.runs.provenance import code_digest, digest
from experiments.runs.world import World
from experiments.validation.cases import (
    Case,
    ModelValidation,
    mean_factor,
    nearest,
    statistic_of,
)
from experiments.validation.contestants import Contestant, Group
from experiments.validation.measured_runs import (
    LEAST_REPEATS,
    Block,
    MeasuredRuns,
    profile_statistic,
)
from experiments.validation.simulated_vs_measured import Prediction, interval_of, unseen_costs
from experiments.validation.waterfall import error_steps
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.trace import Trace


class Draws:
    """Draws of a model's makespans by what decides them, kept in a file: drawing takes longest."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, list[float]] = {}
        if path is not None and path.is_file():
            try:
                content = json.loads(path.read_text())
            except (OSError, ValueError):
                content = {}  # they are drawn anew
            self._known = content if isinstance(content, dict) else {}

    def get(
        self,
        prediction: Prediction,
        contestant: Contestant,
        overhead: Overhead,
        simulated: Trace,
        believed: Overhead | None,
    ) -> np.ndarray:
        """:meth:`Prediction.draws`, drawn unless they are known."""
        simulation = contestant.scenario.simulation
        key = digest(
            [
                contestant.key,
                asdict(overhead),
                believed and asdict(believed),
                prediction.slowness.tolist(),
                prediction.handover,
                prediction.corun,
                prediction.noise,
                curves_json(prediction.reuse),
                [curve and curve.to_json() for curve in prediction.cooling],
                [curve and curve.to_json() for curve in prediction.reading],
                simulation.draws,
                simulation.discrepancy,
                code_digest(),
            ]
        )
        if key not in self._known:
            found = prediction.draws(contestant, overhead, simulated, believed)
            self._known[key] = found.tolist()
            if self._path is not None:
                atomic.write_json(self._path, self._known)
        return np.array(self._known[key])


def model_validation(
    group: Group,
    measured: MeasuredRuns,
    draws: Draws,
    held_out: bool,
    at_speed: bool,
    config_dirs: Sequence[Path],
    reading: Sequence[ReadingCurve] = (),
) -> ModelValidation | None:
    """What came of a group so far; None if no case of it was measured.

    Args:
        group: of contestants.
        measured: the runs.
        draws: of its contestants, as far as they are known.
        held_out: whether to predict from profiles that never saw the model as well.
        at_speed: whether to predict for a machine as slow as the panel of operators was on it among
            the runs; else for one as fast as when the profiles were measured.
        config_dirs: the user's configs.
        reading: of each device, what inputs cost that are not at hand.

    Raises:
        HetsimError: a profile or a file of the runs cannot be used.
    """
    if not any(measured.count(group, one.key) for one in group.contestants):
        return None
    world = prepare(group.scenario, config_dirs)
    statistic = profile_statistic(group)
    blocks = measured.blocks(group, world.graph)
    profiles = load_profiles(group.scenario.cluster, group.scenario.cost_model)
    said = PanelTimes(world.cluster, profiles, group.scenario.cost_model)
    machine = _machine(group.model, blocks, said, statistic, reading)
    speed = MachineSpeed.from_json(machine["speed"])
    seconds = world.costs[world.graph].seconds
    devices = profiles_of(world.cluster, profiles)
    slowness = speed.factors(world.graph, devices, seconds)
    machine["without_cold"] = mean_factor(
        seconds, speed.without_cold().factors(world.graph, devices, seconds)
    )
    prediction = Prediction(
        world,
        slowness if at_speed else 1.0,
        machine["handover_s"],
        speed.corun if at_speed else None,
        speed.noise if at_speed else 0.0,
        speed.reuse if at_speed else None,
        speed.cooling,
        speed.reading,
    )
    unseen = unseen_costs(world, group.scenario) if held_out else None
    alone = statistic_of(np.concatenate([block.alone for block in blocks]), statistic)
    contestants, cases = [], []
    for contestant in group.contestants:
        mine = [block for block in blocks if contestant.key in block.makespans_s]
        if sum(len(block.makespans_s[contestant.key]) for block in mine) < LEAST_REPEATS:
            continue
        contestants.append(contestant)
        cases.append(
            _case(
                group.model,
                contestant,
                mine,
                world,
                prediction,
                draws,
                unseen,
                alone,
                statistic,
            )
        )
    if not cases:
        return None
    return ModelValidation(
        group.model,
        group.key,
        world.graph,
        world.cluster,
        tuple(contestants),
        tuple(cases),
        world.costs[world.graph],
        alone,
        statistic,
        world.profile_text,
        profile_digests(group.scenario.cluster),
        float(np.max([block.busy for block in blocks])),
        tuple(dict.fromkeys(text for block in blocks for text in block.differences)),
        machine,
        slowness,
        prediction.slowness,
        prediction.corun,
        prediction.noise,
        prediction.reuse,
    )


def _machine(
    model: str,
    blocks: Sequence[Block],
    said: PanelTimes,
    statistic: str,
    reading: Sequence[ReadingCurve] = (),
) -> dict[str, Any]:
    """What the blocks ran on, what its runner needs, and how slow it was.

    The panel's runs in all blocks are one sample, as the makespans are: of a block in which the machine was
    slow a low quantile of either has next to nothing.
    """
    if {block.panel.shape[-1] for block in blocks} != {said.operators}:
        raise InvalidInput(
            f"The runs of {model} were made beside another panel of operators than there is now; "
            "measure under another name"
        )
    rounds = [len(block.alone) for block in blocks]
    handovers = [block.machine["handover_s"] for block in blocks]
    handover = None if None in handovers else _of_visits(handovers, rounds, statistic)
    runs = np.concatenate([block.panel for block in blocks], axis=2)
    speed = said.speed(
        runs[0],
        runs[1] if len(runs) > 1 else (),
        lambda seconds: float(statistic_of(seconds, statistic)),
        _of_visits([block.machine["overhead_s"] for block in blocks], rounds, statistic),
        handover,
        all_runs(block.caches for block in blocks),
        np.concatenate([block.gaps for block in blocks], axis=1)
        if all(block.gaps.size for block in blocks)
        else None,
    )
    speed = replace(speed, reading=tuple(reading))
    return {**blocks[-1].machine, "handover_s": handover, "speed": speed.to_json()}


def _of_visits(seconds: Sequence[float], runs: Sequence[int], statistic: str) -> float:
    """What was measured once in each visit, as a makespan is taken of all their runs: as if each run had
    had its own of what its visit had.

    In one visit the runner may need twice as long for an operator as in another, and a low quantile of makespans
    is of the visit in which it needed less.
    """
    return float(statistic_of(np.repeat(seconds, runs), statistic))


def _case(
    model: str,
    contestant: Contestant,
    blocks: Sequence[Block],
    world: World,
    prediction: Prediction,
    draws: Draws,
    unseen: CostTable | None,
    alone: np.ndarray,
    statistic: str,
) -> Case:
    key = contestant.key
    simulation: Any = contestant.scenario.simulation
    makespans = [block.makespans_s[key] for block in blocks]
    repeats, repeats_s = list(map(len, makespans)), np.concatenate(makespans)
    measured_s = float(statistic_of(repeats_s, statistic))
    # One run is taken apart for all.
    measured = nearest([trace for block in blocks for trace in block.traces[key]], measured_s)
    documents = [block.overheads[key].to_json() for block in blocks]
    overhead = Overhead.of_json(
        {
            name: _of_visits([document[name] for document in documents], repeats, statistic)
            for name in documents[0]
        }
    )
    told = [block.believed[key] for block in blocks]
    believed = told[0] if all(one == told[0] for one in told) else None
    simulated = prediction.run(contestant, overhead, believed=believed)
    draws_s = draws.get(prediction, contestant, overhead, simulated, believed)
    steps = error_steps(
        world.workload(contestant.scenario),
        prediction.cluster(overhead),
        prediction.costs,
        simulated.makespan,
        measured,
        measured_s,
        {world.graph: alone},
        simulation.movement,
        simulation.contention,
    )
    return Case(
        model,
        contestant.label,
        simulated,
        measured,
        simulated.makespan,
        *interval_of(draws_s),
        # The same scheduler with the same beliefs; only what happens is predicted anew.
        float("nan")
        if unseen is None
        else prediction.run(contestant, overhead, unseen, believed).makespan,
        repeats_s,
        measured_s,
        steps,
        contestant.jobs,
        overhead,
        draws_s,
        believed,
    )
