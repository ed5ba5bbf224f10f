"""Predictions written down before anything is measured: ``<name>.json`` with a sha256 of its own content.

The file has for each case its scenario in full, the simulated makespan, its interval and the runner's
overhead that the simulation had, and for all of them the settings of the runs to come, the digests of the
profiles, versions and revision. The runner's overhead is measured on a model of the panel, never on
the models, or stated (``dispatch=``). Measured, predictions are for the speed that a panel of operators
says the devices have at that moment (``speed=now``), else for that of the profiles.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.probes.handing_over import handover_seconds
from experiments.probes.input_distance import InputProbes, reading_curves
from experiments.probes.machine_speed import MachineSpeed, PanelTimes, profiles_of
from experiments.probes.overhead import Overhead
from experiments.probes.panel import PanelRuns
from experiments.probes.runner_overhead import OverheadProbe
from experiments.runs import atomic
from experiments.runs.command import Invocation
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles, profile_digests
from experiments.runs.provenance import code_digest, digest, revision, versions
from experiments.runs.results import read_document
from experiments.runs.world import World
from experiments.validation.cases import statistic_of
from experiments.validation.contestants import Group, Plan
from experiments.validation.measured_runs import profile_statistic, runner_overheads
from experiments.validation.settings import ValidateSettings
from experiments.validation.simulated_vs_measured import INTERVAL, Prediction, interval_of
from simulator.errors import InvalidInput
from simulator.schedulers import create

FORMAT = "hetsim.sealed/1"
PANEL_RUNS = 12
"""Of the panel that says how fast the machine is when a prediction of it is sealed."""
RUN_SETTINGS = ("warmup", "repeats", "seconds", "budget", "visits", "limit")
"""Settings of the runs that a seal holds to."""


def seal(plan: Plan, settings: ValidateSettings, invocation: Invocation, console: Console) -> Path:
    """Write a sealed prediction; returns its path.

    Raises:
        InvalidInput: there is one of that name, or the devices are not of this machine and no
            ``dispatch`` is stated.
    """
    path = sealed_path(Path(settings.sealed_dir), str(settings.seal))
    if path.exists():
        raise InvalidInput(
            f"{path} is sealed already; a sealed prediction stays: take another name"
        )
    cases = []
    for group in plan.groups:
        world = prepare(group.scenario, invocation.config_dirs)
        overheads, speed, handover = _of_machine(group, world, settings)
        prediction = _prediction(group, world, speed, handover)
        for contestant in group.contestants:
            overhead = overheads[contestant.key]
            simulated = prediction.run(contestant, overhead)
            low, high = interval_of(prediction.draws(contestant, overhead, simulated))
            cases.append(
                {
                    "model": group.model,
                    "jobs": contestant.jobs,
                    "scheduler": contestant.label,
                    "scenario": contestant.scenario.document(),
                    "graph": world.graph.digest,
                    "profiles": profile_digests(contestant.scenario.cluster),
                    "statistic": profile_statistic(group),
                    **overhead.to_json(),
                    "speed": None if speed is None else speed.to_json(),
                    "handover_s": handover,
                    "simulated_s": simulated.makespan,
                    "low_s": low,
                    "high_s": high,
                }
            )
    document = {
        "format": FORMAT,
        "name": settings.seal,
        "sealed": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": invocation.command,
        "interval": INTERVAL,
        "dispatch": "measured on EfficientNet-B0, a part of the panel"
        if settings.dispatch is None
        else f"stated: {settings.dispatch}",
        "speed": "the machine's when it was sealed"
        if settings.dispatch is None and settings.speed == "now"
        else "the profiles'",
        "settings": {name: getattr(settings, name) for name in RUN_SETTINGS},
        "versions": versions(),
        "revision": revision(),
        "code": code_digest(),
        "cases": cases,
    }
    document = atomic.finite(document)
    atomic.write_json(path, {**document, "sha256": digest(document)})
    console.print(f"sealed {len(cases)} predictions, sha256 {digest(document)[:16]}...")
    console.print(f"wrote {path}; measure it: check={settings.seal}", style="dim", soft_wrap=True)
    return path


def read_sealed(folder: Path, name: str) -> dict[str, Any]:
    """A sealed prediction.

    Raises:
        InvalidInput: there is none, or its content is not what was sealed.
    """
    path = sealed_path(folder, name)
    if not path.is_file():
        known = ", ".join(sealed_names(folder)) or "none"
        raise InvalidInput(f"There is no sealed prediction {path}; known: {known}")
    document = read_document(path)
    if document.get("format") != FORMAT:
        raise InvalidInput(
            f"{path} is of format {document.get('format')!r}, not '{FORMAT}': no sealed prediction"
        )
    given = document.pop("sha256", None)
    if digest(document) != given:
        raise InvalidInput(
            f"{path} was changed after it was sealed: its sha256 is {digest(document)[:16]}..., sealed "
            f"was {str(given)[:16]}...; it is not scored"
        )
    return {**document, "sha256": given}


def sealed_path(folder: Path, name: str) -> Path:
    """The file of a sealed prediction.

    Raises:
        InvalidInput: the name is none for a file.
    """
    if not re.fullmatch(r"[\w=+-]+", name):
        raise InvalidInput(f"'{name}' names a file: letters, digits and _ - = + only")
    return folder / f"{name}.json"


def sealed_names(folder: Path) -> list[str]:
    """Names of all sealed predictions of a folder."""
    return sorted(path.stem for path in folder.glob("*.json") if "." not in path.stem)


def check_paths(folder: Path, name: str) -> list[Path]:
    """Files of the checks of a sealed prediction, in their order."""
    found = {
        int(match[1]): path
        for path in folder.glob(f"{name}.check-*.json")
        if (match := re.fullmatch(r".+\.check-(\d+)\.json", path.name))
    }
    return [found[number] for number in sorted(found)]


def _prediction(
    group: Group, world: World, speed: MachineSpeed | None, handover: float | None
) -> Prediction:
    if speed is None:
        return Prediction(world, 1.0, handover)
    profiles = load_profiles(group.scenario.cluster, group.scenario.cost_model)
    slowness = speed.factors(
        world.graph, profiles_of(world.cluster, profiles), world.costs[world.graph].seconds
    )
    return Prediction(
        world,
        slowness,
        handover,
        speed.corun,
        speed.noise,
        speed.reuse,
        speed.cooling,
        speed.reading,
    )


def _of_machine(
    group: Group, world: World, settings: ValidateSettings
) -> tuple[Mapping[str, Overhead], MachineSpeed | None, float | None]:
    """The runner's overhead by contestant, how slow the machine is (None for the profiles' speed), and
    what its interpreter's handing over takes.
    """
    if settings.dispatch_s is not None:
        stated = Overhead(settings.dispatch_s)
        return {one.key: stated for one in group.contestants}, None, None
    from calibration.runner import Machine
    from calibration.workers import workers_for

    try:
        workers = workers_for(world.cluster, settings.cores)
    except InvalidInput as error:
        raise InvalidInput(
            f"{error}. To seal a prediction for another machine state the runner's overhead: "
            "dispatch=25us"
        ) from None
    scenario = group.scenario
    profiles = load_profiles(scenario.cluster, scenario.cost_model)
    statistic = profile_statistic(group)
    speed = None
    with Machine(world.cluster, workers) as machine:
        probe = OverheadProbe(machine)
        handover = handover_seconds(machine, probe.model)
        overheads = runner_overheads(probe, group.contestants, handover)
        if settings.speed == "now":
            plain = probe.overhead(lambda: create("single_device"), handover=handover)
            panel = PanelRuns(machine)
            inputs = InputProbes(machine, probe.model)
            for number in range(PANEL_RUNS + 1):
                panel.run()
                inputs.run()
                if not number:
                    panel.clear()
                    inputs.clear()
            speed = PanelTimes(world.cluster, profiles, scenario.cost_model).speed(
                panel.alone,
                panel.beside,
                lambda seconds: float(statistic_of(seconds, statistic)),
                plain.operator,
                handover,
                panel.caches.runs(),
                panel.gap_seconds(),
            )
            speed = replace(speed, reading=reading_curves(inputs.seconds()))
    return overheads, speed, handover


def changes_since(sealed: Mapping[str, Any], present: Sequence[Mapping[str, Any]]) -> list[str]:
    """In what the cases of a sealed prediction are not what they were.

    Args:
        sealed: the prediction.
        present: of each of its cases the digest of its ``graph`` and those of its ``profiles`` today.
    """
    found = []
    for then, now in zip(sealed["cases"], present, strict=True):
        if then["graph"] != now["graph"]:
            found.append(f"the graph of '{then['model']}' is another one")
        found += [
            f"profile '{name}' is another one"
            for name, value in then["profiles"].items()
            if now["profiles"].get(name) != value
        ]
    if sealed["code"] != code_digest():
        found.append("the code is another one")
    return list(dict.fromkeys(found))
