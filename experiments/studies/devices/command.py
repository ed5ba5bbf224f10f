"""Which device? ``python -m experiments.devices model=googlenet profile=tesla-t4,nvidia-l4 batch=1,16``.

Prints a table for each model and batch, and leaves ``fig_devices`` with its CSV in ``outputs/devices/...``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.comparison.rounding import figure, fit, listed, time_unit
from experiments.comparison.terminal import wrapped
from experiments.runs import atomic
from experiments.runs.command import Invocation, sweeping_main
from experiments.runs.console import make_console
from experiments.runs.file_name import file_name
from experiments.runs.own_settings import key_of, read_own
from experiments.studies.devices.table import DeviceTimes, compare_devices
from simulator.errors import InvalidInput
from simulator.model.units import format_energy

NAME_WIDTH = 26


@dataclass
class DevicesSettings:
    """What stands on the command line beside a model's own values.

    Attributes:
        profile: names of devices, separated by commas; None: all that have the model's element type.
        batch: sizes of a batch, separated by commas; None: the model's own.
        price: of an hour by device, ``{tesla-t4: 0.35/h}``.
        power: by device, ``{tesla-t4: 70 W}``.
    """

    profile: str | None = None
    batch: str | None = None
    price: Any = None
    power: Any = None


def devices_command(invocation: Invocation) -> int:
    """Compare, print, draw."""
    console = make_console()
    settings, words = read_own(DevicesSettings, invocation.overrides)
    found = compare_devices(
        words,
        _split(settings.profile),
        _batches(settings.batch),
        _mapping(settings.price, "price", "0.35/h"),
        _mapping(settings.power, "power", "70 W"),
        invocation.config_dirs,
    )
    for number, one in enumerate(found):
        if number:
            console.print()
        print_devices(one, console)
    for line in _footnotes(found):
        console.print(line)
    output_dir = next(
        (word.partition("=")[2] for word in reversed(words) if key_of(word) == "output_dir"),
        "outputs",
    )
    folder = _write(found, Path(output_dir), invocation)
    console.print(f"wrote {folder}/", style="dim", soft_wrap=True, markup=False)
    return 0


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name]


def _batches(text: str | None) -> list[int] | None:
    if text is None:
        return None
    if not all(part.isdigit() and int(part) > 0 for part in text.split(",")):
        raise InvalidInput(f"batch={text} is no list of sizes; write batch=1,16")
    return [int(part) for part in text.split(",")]


def _mapping(given: Any, key: str, example: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{key}={given} is no mapping; write '{key}={{tesla-t4: {example}}}'")
    return {str(name): str(value) for name, value in given.items()}


def print_devices(one: DeviceTimes, console: Console) -> None:
    """The answer, what it rests on, then a row for each device."""
    frame = one.frame
    for line in wrapped(
        f"different labels are compared: {one.compared}" if one.compared else "", "yellow"
    ):
        if line:
            console.print(line)
    for line in wrapped(answer(one), "bold"):
        console.print(line)
    for said in one.validity:
        style = "dim" if said.validated else "yellow"
        for line in wrapped(f"validity of {listed(said.names)}: {said.line}", style):
            console.print(line)
    factor, unit = time_unit(frame["time_s"])
    known = [key for key in ("energy_j", "cost_per_million") if frame[key].notna().any()]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("device", "label"):
        table.add_column(heading, no_wrap=True)
    headings = [f"time {unit}", "[95%]", "ratio", "[95%]", "extrap."]
    headings += [{"energy_j": "energy", "cost_per_million": "cost/1e6"}[key] for key in known]
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="left" if heading == "[95%]" else "right")
    for number, row in enumerate(frame.to_dict("records")):
        mark = "" if row["validated"] else " !"
        same = row["ratio_low"] <= 1
        table.add_row(
            fit(str(row["device"]), NAME_WIDTH) + mark,
            str(row["label"]),
            figure(row["time_s"] * factor),
            _range(row["low_s"] * factor, row["high_s"] * factor),
            f"{row['ratio']:.2f}x",
            _range(row["ratio_low"], row["ratio_high"]) + (" ~" if same else ""),
            f"{row['extrapolated_share']:.0%}",
            *(_known(row[key], key) for key in known),
            style=None if number else "bold",
        )
    console.print(table, markup=False)
    for name, reason in one.refused.items():
        for line in wrapped(f"{name}: refused. {reason}", "red"):
            console.print(line)


def answer(one: DeviceTimes) -> str:
    """Which device is fastest, and from which it cannot be told apart."""
    frame = one.frame
    best = frame.iloc[0]
    what = f"{one.model}, batch {one.batch}"
    if len(frame) == 1:
        return f"{what}: {best['device']} is the only one that can run it"
    same = frame[frame["ratio_low"] <= 1]["device"].tolist()
    if same:
        return f"{what}: {best['device']} is the fastest, not separable from {listed(same)}"
    second = frame.iloc[1]
    if math.isnan(second["ratio_low"]):
        return f"{what}: {best['device']} is the fastest as believed; nobody knows how sure that is"
    ends = _range(second["ratio_low"], second["ratio_high"])
    return f"{what}: {best['device']} beats {second['device']}, which takes {second['ratio']:.2f}x {ends} as long"


def _range(low: float, high: float) -> str:
    """``[11.2, 13.4]``; ``-`` where nobody knows."""
    return "-" if math.isnan(low) else f"[{figure(low)}, {figure(high)}]"


def _known(value: float, key: str) -> str:
    if math.isnan(value):
        return "-"
    return format_energy(value) if key == "energy_j" else f"{value:.3g}"


def _footnotes(found: Sequence[DeviceTimes]) -> list[Any]:
    """What signs and columns mean."""
    frames = [one.frame for one in found]
    notes = []
    if any((frame["ratio_low"] <= 1).any() for frame in frames):
        notes.append("~ not separable from the fastest")
    if any(not frame["validated"].all() for frame in frames):
        notes.append("! not validated")
    draws = max(one.draws for one in found)
    if draws:
        notes.append(
            f"intervals: predictor error and noise, {draws} draws, the same for all devices"
        )
    notes.append("a job begins and ends in the device's memory")
    lines = wrapped("; ".join(notes), "dim")
    if any(frame["energy_j"].notna().any() for frame in frames):
        lines += wrapped(
            "energy: at most, the board's power by its data sheet (or power=) times the time", "dim"
        )
    if any(frame["cost_per_million"].notna().any() for frame in frames):
        text = "cost/1e6: of a million items, by the prices that clusters of conf/cluster assume (or price=)"
        lines += wrapped(text, "dim")
    return lines


def _write(found: Sequence[DeviceTimes], output_dir: Path, invocation: Invocation) -> Path:
    from experiments.studies.devices.plot import draw_devices

    models = file_name("-".join(dict.fromkeys(one.model for one in found)))
    folder = output_dir / "devices" / f"{time.strftime('%Y%m%d_%H%M%S')}-{models}"
    folder.mkdir(parents=True, exist_ok=True)
    draw_devices(found, folder / "fig_devices")
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.devices",
        devices_command,
        arguments,
    )
