"""What there is: ``python -m experiments.list models|clusters|families|schedulers|profiles|...``.

One line each: name, description, source; profiles with their label, element types, kinds, held-out
error beside the error of a repeated measurement (A/A). ``--config-dir`` adds the user's own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.runs import catalog
from experiments.runs.command import report_errors, user_folders
from experiments.runs.presets import command_of
from simulator.schedulers import available

GROUPS = {
    "models": "model",
    "clusters": "cluster",
    "families": "family",
    "schedulers": "scheduler",
    "partitions": "partition",
    "workloads": "workload",
    "cost_models": "cost_model",
    "experiments": "experiment",
}
WHAT = (*GROUPS, "profiles", "instances")


def list_entries(group: str, config_dirs: Sequence[Path], console: Console) -> None:
    """One line for each entry of a config group."""
    found = catalog.entries(group, config_dirs)
    sourced = any(entry.source for entry in found)
    presets = group == "experiment"
    table = _table(
        "name", *(["command"] if presets else []), "description", *(["source"] if sourced else [])
    )
    for entry in found:
        own = any(entry.path and entry.path.is_relative_to(folder) for folder in config_dirs)
        cells = [entry.description, *([entry.source] if sourced else [])]
        if presets:
            cells.insert(0, command_of(entry.content) or "any")
        table.add_row(entry.name + (" (yours)" if own else ""), *cells)
    console.print(table)
    if group == "scheduler":
        without = sorted(set(available()) - {str(e.content.get("name", e.name)) for e in found})
        if without:
            console.print(f"without an entry in conf/scheduler: {', '.join(without)}", style="dim")


def list_instances(config_dirs: Sequence[Path], console: Console) -> None:
    """One line for each bare instance."""
    table = _table("name", "description", "source")
    for name, path in catalog.instances(config_dirs).items():
        content = catalog.read(path)
        table.add_row(name, str(content.get("description", "")), str(content.get("source", "")))
    console.print(table)


def list_profiles(console: Console) -> None:
    """One line for each profile, with how wrong it was on what it had not seen."""
    from cost_models.profile_files import available

    table = _table("name", "label", "dtypes", right=("kinds", "held-out error", "A/A"))
    for name, entry in sorted(available().items()):
        document = entry.document
        held_out, floor = held_out_error(document)
        table.add_row(
            name,
            entry.label,
            ", ".join(document.get("dtypes", [])),
            str(len(document.get("spread", {})) or "all"),
            "unknown" if held_out is None else f"{held_out:.1%}",
            "unknown" if floor is None else f"{floor:.1%}",
        )
    console.print(table)
    console.print(
        "held-out error: median over operators of architectures left out of the fit; A/A: the same "
        "between two measurements of one operator",
        style="dim",
    )


def held_out_error(document: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Median relative error on architectures left out, and of a repeated measurement.

    Args:
        document: a profile's ``profile.json``.
    """
    held_out = document.get("held_out", {})
    by_way = held_out.get(document.get("default") or "boosted", {})
    summary = by_way.get("architecture") or by_way.get("fold") or {}
    everything = summary.get("all", {})
    return everything.get("median"), everything.get("aa_median")


def _table(*headings: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _console() -> Console:
    """A console that keeps one line each: cut at a terminal's width, whole in a file or a pipe."""
    console = Console(highlight=False, markup=False)  # names may hold brackets
    if not console.is_terminal:
        console.width = 400
    return console


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m experiments.list", description=__doc__)
    parser.add_argument("what", choices=WHAT, metavar=f"{{{','.join(WHAT)}}}")
    parser.add_argument("--config-dir", "-cd", metavar="FOLDER", help="your own configs")
    what = parser.parse_args(words).what
    folders = user_folders(words)
    console = _console()

    def run() -> None:
        if what == "profiles":
            list_profiles(console)
        elif what == "instances":
            list_instances(folders, console)
        else:
            list_entries(GROUPS[what], folders, console)

    return report_errors(run, folders)


if __name__ == "__main__":
    sys.exit(main())
