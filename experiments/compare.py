"""Comparing what runs left: ``python -m experiments.compare outputs/sweeps/paper1 baseline=heft``.

One sweep gives the main table and a report; two runs give what differs between them.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.command import report_errors
from experiments.results import load_results, read_document
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

HELP = """\
examples:
  outputs/sweeps/paper1                      table and report of a sweep
  outputs/sweeps/paper1 baseline=heft        relative to heft
  outputs/runs/A outputs/runs/B              two runs: config, metrics, operators that differ
"""


def compare_sweep(
    folder: str | Path, baseline: str | None = None, console: Console | None = None
) -> Path:
    """Print a sweep's main table and write its ``report/``.

    Args:
        folder: the sweep's folder.
        baseline: the scheduler that answers compare with; ``fcfs`` or the slowest unless given.
        console: where to print; standard output at 100 columns unless given.

    Returns:
        The path of the report's ``index.html``.

    Raises:
        InvalidInput: no sweep's folder, damaged results, no finished cell, or an unknown baseline.
    """
    from experiments.report import write_report
    from experiments.standings import standings
    from experiments.tables import check_baseline, terminal_table

    folder = Path(folder)
    console = console or _console()
    table = standings(_read(folder))
    if not table.contests:
        first = f" The first: {table.failures[0].error}." if table.failures else ""
        raise InvalidInput(
            f"All {table.cells} cells of {folder} failed.{first} All of them: "
            f"{folder / 'failures.csv'}"
        )
    check_baseline(table, baseline)
    path = folder / "manifest.json"
    manifest = read_document(path) if path.is_file() else {}
    seconds = manifest.get("wall_s")
    # A sweep that found everything done took no time worth telling.
    took = float(seconds) if manifest.get("simulated") and seconds is not None else None
    command = manifest.get("command")
    for line in terminal_table(
        table,
        baseline,
        took,
        str(folder / "failures.csv"),
        f"{command} rerun=failed" if command else None,
    ):
        console.print(line, soft_wrap=True)
    title = f"Sweep {manifest.get('name') or folder.name}"
    index = write_report(table, folder / "report", folder / "cells", baseline, manifest, title)
    console.print(f"wrote {index}", style="dim", soft_wrap=True, markup=False)
    return index


def _read(folder: Path) -> pd.DataFrame:
    if not folder.is_dir():
        raise InvalidInput(f"There is no folder {folder}.{_others(folder)}")
    if not (folder / "results.parquet").is_file():
        if (folder / "cells").is_dir() or (folder / "grid.yaml").is_file():
            raise InvalidInput(
                f"{folder} has no results.parquet yet: the sweep was interrupted; the command that "
                f"began it goes on where it stopped"
            )
        raise InvalidInput(
            f"{folder} is neither a sweep's folder (results.parquet) nor a run's (result.json)."
            f"{_others(folder)}"
        )
    return load_results(folder)


def _others(folder: Path) -> str:
    """What lies beside a folder that is missing or the wrong one."""
    beside = folder if folder.is_dir() else folder.parent
    if not beside.is_dir():
        return ""
    names = sorted(
        child.name
        for child in beside.iterdir()
        if child.is_dir()
        and ((child / "results.parquet").is_file() or (child / "result.json").is_file())
    )
    if not names:
        return ""
    near = get_close_matches(folder.name, names, n=3) or names[:3]
    return f" There: {', '.join(str(beside / name) for name in near)}"


def compare(paths: Sequence[Path], baseline: str | None, console: Console | None = None) -> None:
    """Compare one sweep's schedulers, or two runs.

    Raises:
        InvalidInput: neither one sweep nor two runs.
    """
    if not paths:
        raise InvalidInput(
            "Name a sweep's folder or two runs' folders, e.g. python -m experiments.compare "
            "outputs/sweeps/demo"
        )
    runs = [path for path in paths if (path / "result.json").is_file()]
    if len(paths) == 2 and len(runs) == 2:
        from experiments.differences import compare_runs

        if baseline is not None:
            raise InvalidInput("baseline= is for sweeps; of two runs the first is the baseline")
        for line in compare_runs(paths[0], paths[1]):
            (console or _console()).print(line, soft_wrap=True)
        return
    if len(paths) == 1 and not runs:
        compare_sweep(paths[0], baseline, console)
        return
    for path in paths:
        if path not in runs:
            _read(path)
    raise InvalidInput(
        f"compare takes one sweep or two runs; got {len(runs)} runs and {len(paths) - len(runs)} sweeps"
    )


def _console() -> Console:
    from experiments.tables import WIDTH

    console = Console(highlight=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    return console


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.compare",
        description="Compare the schedulers of a sweep, or two runs.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="FOLDER | baseline=scheduler")
    words = parser.parse_args(arguments).words

    def run() -> None:
        paths, baseline = [], None
        for word in words:
            key, separator, value = word.partition("=")
            if not separator or Path(word).exists():
                paths.append(Path(word).expanduser())
            elif key == "baseline":
                baseline = value
            elif "/" in key:
                raise InvalidInput(f"There is no folder {shlex.quote(word)}.{_others(Path(word))}")
            else:
                raise InvalidInput(f"compare has no option '{key}'; known: baseline")
        compare(paths, baseline)

    return report_errors(run)


if __name__ == "__main__":
    sys.exit(main())
