"""Measure a device and fit its profile: ``python -m experiments.calibrate device=cpu budget=5min``.

Leaves ``outputs/calibration/<device>/<time>/`` with ``raw/`` (every sample), ``measurements.parquet``,
``profile/`` and ``report.html``. A run that was stopped, or that should become more exact, goes on
with ``out=<that folder>``. Where the device has neither Hydra nor XGBoost, measure there with
``python -m calibration.measure`` and fit here with ``step=fit out=<folder>``. With ``settle=<sweep>``
it measures just what a verdict depends on (:mod:`experiments.settling.settled`).
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("calibrate"):
    raise SystemExit

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from experiments.calibrating.fitting import fit_step, measured_by
from experiments.calibrating.measuring import measure_step, measuring_plan
from experiments.calibrating.operators import chosen_operators
from experiments.calibrating.settings import CalibrateConfig
from experiments.runs import atomic
from experiments.runs.command import Invocation, command_line, hydra_command
from experiments.runs.console import make_console
from experiments.runs.file_name import folder_name
from experiments.runs.this_machine import busy_cores, busy_text, calibration_conditions

if TYPE_CHECKING:
    from cost_models.profile import Profile


def calibrate(config: CalibrateConfig, invocation: Invocation) -> None:
    """The command."""
    config.check()
    if config.settle is not None:
        from experiments.settling.settled import settle_command

        settle_command(config, invocation)
        return
    console = Console(stderr=True)
    folder = _folder(config)
    # What is refused is so before anything is written.
    plan, operators, measured = None, [], None
    if config.step == "fit":
        measured = measured_by(config, folder)
    else:
        plan = measuring_plan(config)
        operators = chosen_operators(config, folder)
    _note_command(folder, invocation)
    seen = [
        f"{text}: measure all of it again, without base and start" for text in same_device(config)
    ]
    if plan is not None and (busy := busy_text(busy_cores())):
        seen.append(busy)
    if seen:
        console.print(f"this host: {'; '.join(seen)}", style="yellow", markup=False, soft_wrap=True)
    finished = True
    with console.status("", spinner="dots") as status:

        def show(line: str) -> None:
            status.update(line)
            if not console.is_terminal:
                console.print(line, highlight=False, soft_wrap=True)

        if plan is not None:
            finished = measure_step(config, plan, folder, operators, show)
        profile = None
        if finished and config.step != "measure":
            measured = measured or measured_by(config, folder)
            profile = fit_step(config, folder, measured, show)
    out = make_console()
    if not finished:
        out.print(
            f"stopped; everything measured is kept. Go on: {_again(invocation, folder)}",
            soft_wrap=True,
        )
        raise KeyboardInterrupt
    if profile is None:
        out.print(f"wrote {folder}/raw; next: step=fit out={folder}", soft_wrap=True)
        return
    print_summary(profile, out)
    out.print(f"wrote {folder}/report.html and {folder}/profile", soft_wrap=True)
    out.print(
        f"to simulate with it: HETSIM_PROFILES={folder} and profile: {profile.name} in a cluster",
        soft_wrap=True,
    )


def same_device(config: CalibrateConfig) -> list[str]:
    """In what ``base`` and ``start``, where they are of this device, were measured with something else."""
    from cost_models.profile import Profile
    from experiments.runs.this_machine import same_device_differences

    names = [name for name in (config.base, config.start) if name is not None]
    return [
        text
        for name in names
        for text in same_device_differences(Profile.load(name), config.device)
    ]


def print_summary(profile: Profile, out: Console) -> None:
    """The errors of the kinds with most operators, and of every model over all of them."""
    from experiments.calibrating.report import main_model

    model = profile.default or main_model(profile.held_out)
    held = profile.held_out.get(model, {})
    way = "architecture" if held.get("architecture") else "fold"
    title = f"{profile.name}: error of times predicted by {model}, {way}s held out"
    table = Table(title=title, box=None)
    for column in ("kind", "operators", "median", "mean", "p90", "A/A median"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, row in list(held.get(way, {}).items())[:12]:
        cells = [_percent(row[key]) for key in ("median", "mean", "p90", "aa_median")]
        table.add_row(kind, f"{row['rows'] or 0:.0f}", *cells)
    out.print(table)
    overall = {name: ways.get(way, {}).get("all") for name, ways in profile.held_out.items()}
    told = [
        f"{name} {_percent(row['median'])} / {_percent(row['mean'])}"
        for name, row in overall.items()
        if row
    ]
    out.print(f"median / mean over all: {', '.join(told)}", soft_wrap=True)
    everything = held.get(way, {}).get("all", {})
    if seen := calibration_conditions(profile.provenance, everything.get("aa_median")):
        out.print(
            f"while it was measured: {'; '.join(seen)}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _folder(config: CalibrateConfig) -> Path:
    if config.out is not None:
        folder = Path(config.out)
        return folder.parent if folder.name == "raw" else folder
    from calibration import environment

    name = config.name or (
        Path(config.base).name
        if config.base
        else environment.device_name(config.device, config.threads, config.repeat_kernel)
    )
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    return Path(config.output_dir) / "calibration" / folder_name("name", name) / stamp


def _note_command(folder: Path, invocation: Invocation) -> None:
    """A line of ``command.txt`` for each command that went on in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "command.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    if lines[-1:] != [invocation.command]:
        atomic.write_text(path, "\n".join([*lines, invocation.command]) + "\n")


def _again(invocation: Invocation, folder: Path) -> str:
    words = [word for word in invocation.overrides if not word.startswith("out=")]
    return command_line(invocation.module, [*words, f"out={folder}"], invocation.config_dirs)


def _as_list(word: str) -> str:
    """``pair=heft,donf`` as the list that Hydra would otherwise take for several runs."""
    names = word.removeprefix("pair=")
    if names == word or names.startswith("["):
        return word
    # Commas within a label's parentheses part its options.
    labels = [label.replace('"', "") for label in re.split(r",(?![^(]*\))", names)]
    return "pair=[" + ",".join(f'"{label.strip()}"' for label in labels) + "]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return hydra_command(
        calibrate,
        CalibrateConfig,
        "experiments.calibrate",
        [_as_list(word) for word in words],
        config_name="calibrate",
        schema_name="calibrate_schema",
    )


if __name__ == "__main__":
    sys.exit(main())
