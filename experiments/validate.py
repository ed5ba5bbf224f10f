"""Simulation held against this machine: ``python -m experiments.validate model=gpt2 scheduler=heft,fcfs``.

Every model runs under every scheduler twice: simulated, from the profiles that the cluster names, and
for real, by the same scheduler on this machine's devices. Leaves ``outputs/validation/<name or time>/`` with
``report.md``, figures, tables and both traces of every case, and prints the answer. ``recheck=FOLDER`` works
a saved validation out again without hardware; ``seal=NAME`` writes a prediction down before it is measured,
``check=NAME`` measures and scores it, ``table=FILE`` lists all of them.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("validate"):
    raise SystemExit

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.runs import atomic
from experiments.runs.command import Invocation, sweeping_main
from experiments.runs.console import make_console
from experiments.runs.file_name import folder_name
from experiments.validation.cases import Validation
from experiments.validation.contestants import Plan, plan_grid, plan_sweep_best
from experiments.validation.run import validate_plan
from experiments.validation.settings import ValidateSettings, read_settings
from simulator.errors import HetsimError
from simulator.model.units import format_seconds


def make_plan(
    settings: ValidateSettings, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> Plan:
    """What is to be run.

    Raises:
        InvalidInput: a name that is unknown, or a scenario that cannot be run on hardware.
    """
    if settings.sweep is not None:
        return plan_sweep_best(settings.sweep, settings.top, overrides, config_dirs, settings.trust)
    return plan_grid(overrides, config_dirs)


def validate_command(invocation: Invocation) -> int:
    """Do what is asked for; returns the exit code."""
    # Read when the libraries load: one intra-op thread for whatever is not a worker, too.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    console = make_console()
    settings, overrides = read_settings(invocation.overrides)
    config_dirs = invocation.config_dirs
    if settings.recheck is not None:
        from experiments.validation.recheck import recheck

        found = recheck(Path(settings.recheck), config_dirs, console, settings.trust)
        return 0 if found else 1
    if settings.table is not None:
        from experiments.validation.sealed_table import renew_table

        console.print(renew_table(Path(settings.table), Path(settings.sealed_dir)), soft_wrap=True)
        return 0
    if settings.check is not None:
        from experiments.validation.sealed_check import check_sealed

        check_sealed(settings, overrides, config_dirs, console)
        return 0
    plan = make_plan(settings, overrides, config_dirs)
    if settings.seal is not None:
        from experiments.validation.sealing import seal

        seal(plan, settings, invocation, console)
        return 0
    return _measure_and_report(plan, settings, invocation, console)


def _measure_and_report(
    plan: Plan, settings: ValidateSettings, invocation: Invocation, console: Console
) -> int:
    folder = validation_folder(plan)
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    began = time.monotonic()
    try:
        validation, stopped = validate_plan(plan, settings, folder, invocation.config_dirs, console)
    except HetsimError:
        # Refused before anything ran: nothing is left behind.
        if [path.name for path in folder.iterdir()] == ["command.txt"]:
            shutil.rmtree(folder)
        raise
    write_and_print(validation, folder, invocation.command, console)
    console.print(f"took {format_seconds(time.monotonic() - began)}", style="dim")
    if stopped is not None:
        if plan.name is not None:
            console.print("stopped early: the same command goes on", style="dim")
        raise stopped
    return 0


def write_and_print(validation: Validation, folder: Path, command: str, console: Console) -> None:
    """The report of what is there, in its folder and on the console."""
    from experiments.validation.report import write_report
    from experiments.validation.text import print_report

    if validation.models:
        write_report(validation, folder, command)
        atomic.point_to(folder.parent / "latest", folder)
        print_report(validation, folder, console)


def validation_folder(plan: Plan) -> Path:
    """The folder of a plan: that of its name, which may be there already, or a new one."""
    parent = plan.output_dir / "validation"
    if plan.name is not None:
        folder = parent / folder_name("name", plan.name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    stem = time.strftime("%Y%m%d_%H%M%S")
    for number in range(10_000):
        folder = parent / (stem if not number else f"{stem}.{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise RuntimeError(f"cannot make a new folder in {parent}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.validate",
        validate_command,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
