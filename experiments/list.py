"""What there is: ``python -m experiments.list models|clusters|families|schedulers|profiles|...``.

Name and description in groups, at most 100 columns wide; ``--wide`` has one line each, and the sources.
Profiles have element types, kinds, and the held-out error beside the error of a repeated measurement (A/A).
``--config-dir`` adds the user's own.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("list"):
    raise SystemExit

import argparse
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.runs import catalog
from experiments.runs.command import report_errors, user_folders
from experiments.runs.console import WIDTH
from experiments.runs.groups import domain_of, family_of
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


def list_entries(group: str, config_dirs: Sequence[Path], wide: bool) -> None:
    """One line for each entry of a config group."""
    found = catalog.entries(group, config_dirs)

    rows = []
    for entry in found:
        own = any(entry.path and entry.path.is_relative_to(folder) for folder in config_dirs)
        name, heading = entry.name, "yours" if own else ""
        if group == "experiment":  # whoever's it is, a command must be known
            name += " (yours)" if own else ""
            heading = f"python -m {command_of(entry.content) or 'COMMAND'}"
        elif group == "scheduler" and not own:
            heading = family_of(str(entry.content.get("class_path") or entry.content.get("name")))
        elif group == "model" and not own:
            heading = domain_of(entry.description)
        rows.append((heading, name, entry.description, entry.source))
    _print_lines(rows, wide)
    if group == "scheduler":
        without = sorted(set(available()) - {str(e.content.get("name", e.name)) for e in found})
        if without:
            print(f"without an entry in conf/scheduler: {', '.join(without)}")


def list_instances(config_dirs: Sequence[Path], wide: bool) -> None:
    """One line for each bare instance."""
    rows = []
    for name, path in catalog.instances(config_dirs).items():
        content = catalog.read(path)
        rows.append(("", name, str(content.get("description", "")), str(content.get("source", ""))))
    _print_lines(rows, wide)


def _print_lines(rows: Iterable[tuple[str, str, str, str]], wide: bool) -> None:
    """Lines of name, description and source under their headings, sorted by heading; without one they come first."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for heading, *line in sorted(rows, key=lambda row: (row[0] == "yours", row[0])):
        groups.setdefault(heading, []).append((line[0], line[1], line[2]))
    for number, (heading, lines) in enumerate(groups.items()):
        if heading:
            print(("\n" if number else "") + f"{heading}:")
        indent = "  " if heading else ""
        width = max(len(name) for name, _, _ in lines)
        for name, description, source in lines:
            text = f"{indent}{name:{width}}  {description}"
            if wide:
                print(text + (f"  [{source}]" if source else ""))
            else:
                inner = " " * (len(indent) + width + 2)
                print(textwrap.fill(text, WIDTH, subsequent_indent=inner, **_BETWEEN_WORDS))
    if not wide:
        print("\none line each, with sources: --wide")


_BETWEEN_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def list_profiles() -> None:
    """One line for each profile, with how wrong it was on what it had not seen."""
    from cost_models.profile_files import available

    print(f"{'name':31}  {'dtypes':32}  kinds  held-out error      A/A")
    entries = available()
    for label in dict.fromkeys(entry.label for _, entry in sorted(entries.items(), key=_by_label)):
        print(f"{label}{LABELS.get(label, '')}:")
        for name, entry in sorted(entries.items()):
            if entry.label != label:
                continue
            document = entry.document
            kinds = str(len(document.get("spread", {})) or "all")
            held_out, floor = (
                "unknown" if error is None else f"{error:.1%}" for error in held_out_error(document)
            )
            dtypes = ", ".join(t for t in document.get("dtypes", []) if "float" in t or t == "tf32")
            print(f"  {name:29}  {dtypes:32}  {kinds:>5}  {held_out:>14}  {floor:>7}")
    print(
        "held-out error: median over operators of architectures left out of the fit; A/A: the same\n"
        "between two measurements of one operator"
    )


LABELS = {
    "measured": " by this project's calibrator",
    "public": ", fitted to public measurements",
    "datasheet": " alone, uncalibrated",
}


def _by_label(item: tuple[str, Any]) -> int:
    return [*LABELS, item[1].label].index(item[1].label)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if answered("list", arguments):
        return 0
    parser = argparse.ArgumentParser(prog="python -m experiments.list", add_help=False)
    parser.add_argument("what", choices=WHAT, metavar=f"{{{','.join(WHAT)}}}")
    parser.add_argument("--config-dir", "-cd", metavar="FOLDER", help="your own configs")
    parser.add_argument("--wide", action="store_true", help="whole descriptions, and sources")
    parsed = parser.parse_args(words)
    what, wide = parsed.what, parsed.wide
    folders = user_folders(words)

    def run() -> None:
        if what == "profiles":
            list_profiles()
        elif what == "instances":
            list_instances(folders, wide)
        else:
            list_entries(GROUPS[what], folders, wide)

    return report_errors(run, folders)


if __name__ == "__main__":
    sys.exit(main())
