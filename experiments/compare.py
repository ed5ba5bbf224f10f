"""Comparing what runs left: ``python -m experiments.compare outputs/sweeps/paper1 baseline=heft``.

One sweep gives the main table and a report, of requests by their delays; two runs give what differs between
them.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("compare"):
    raise SystemExit

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments.runs.command import report_errors
from experiments.runs.console import make_console
from experiments.runs.results import read_document
from experiments.runs.sweep_folder import choices_of, label_named, others_beside, read_sweep
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from experiments.comparison.analysis import Options
    from experiments.comparison.contests import Standings
    from experiments.comparison.methods import Recorded

KEYS = ("baseline", "map", "unit", "error", "style")


def compare_sweep(
    folder: str | Path,
    baseline: str | None = None,
    console: Console | None = None,
    options: Options | None = None,
    style: str | None = None,
) -> Path:
    """Print a sweep's main table and write its ``report/``.

    Args:
        folder: the sweep's folder.
        baseline: the scheduler that answers compare with; unless given the sweep's own baseline, then the user's
            own scheduler, then ``fcfs``, then the next best (of requests the slowest).
        console: where to print; standard output at 100 columns unless given.
        options: what else is asked for; its baseline is not used.
        style: width of the figures: ``column`` (3.33 inches) or ``page`` (7); each its usual one unless given.

    Returns:
        The path of the report's ``index.html``.

    Raises:
        InvalidInput: no sweep's folder, damaged results, no finished cell, an unknown baseline or style, or an
            option that names nothing that varies.
    """
    from dataclasses import replace

    from experiments.comparison.analysis import Options, analyse
    from experiments.comparison.answers import check_baseline
    from experiments.comparison.contests import BEST_DEVICE
    from experiments.comparison.leaderboard import standings
    from experiments.comparison.methods import methods, read_cells
    from experiments.comparison.report import write_report
    from experiments.comparison.terminal import terminal_table, wrapped
    from experiments.plots.looks import Look

    folder = Path(folder)
    console = console or make_console()
    Look.of(style, ())
    results = read_sweep(folder)
    choices = choices_of(folder)
    table = standings(results, choices)
    manifest, took, rerun = _recorded(folder)
    labels = dict(zip(results["cell"], results["scheduler"], strict=True))
    if baseline is not None:
        baseline = label_named(baseline, labels, choices)
    if not table.contests:
        first = f" The first: {table.failures[0].error}." if table.failures else ""
        raise InvalidInput(
            f"All {table.cells} cells of {folder} failed.{first} All of them: "
            f"{folder / 'failures.csv'}"
        )
    if serves_requests(folder, results["cell"]):
        if options is not None:
            raise InvalidInput(
                "map=, unit= and error= are for makespans; these runs serve requests, which are compared by "
                "their delays"
            )
        return _compare_requests(folder, results, table, baseline, console, style)
    check_baseline(table, baseline)
    recorded = read_cells(folder / "cells", results["cell"])
    own = own_schedulers(recorded, table.schedulers)
    if baseline is None:
        usual = manifest.get("baseline")
        named = None if usual is None else label_named(usual, labels, choices)
        candidates = [named, *own]
        baseline = next((label for label in candidates if label in table.schedulers), None)
    analysis = analyse(table, replace(options or Options(), baseline=baseline))
    for line in terminal_table(
        table,
        baseline,
        took,
        str(folder / "failures.csv"),
        rerun,
        (analysis.overall, analysis.pairs) if analysis.overall and analysis.pairs else None,
    ):
        console.print(line, soft_wrap=True)
    title = f"Sweep {manifest.get('name') or folder.name}"
    for text in settling(table, folder):
        console.print(text, style="dim", soft_wrap=True, markup=False)
    paragraph = methods(recorded, table, analysis.pairs, analysis.baseline)
    index, left_out = write_report(
        analysis, folder / "report", folder / "cells", baseline, manifest, title, paragraph,
        Look.of(style, [*table.schedulers, BEST_DEVICE], own), results,
    )  # fmt: skip
    if analysis.winners is not None and analysis.winners.warning:
        for line in wrapped(analysis.winners.warning, "yellow"):
            console.print(line, soft_wrap=True)
    if left_out:
        for line in wrapped(f"not drawn: {'; '.join(left_out)}", "dim"):
            console.print(line, soft_wrap=True)
    console.print(f"wrote {index}", style="dim", soft_wrap=True, markup=False)
    return index


def own_schedulers(recorded: Recorded, labels: Sequence[str]) -> list[str]:
    """Labels of the schedulers that a user wrote: given by a class path that is none of this project's."""
    paths = {str(e["name"]): str(e.get("class_path") or "") for e in recorded.groups("scheduler")}
    own = {name for name, path in paths.items() if path and not path.startswith("simulator.")}
    return [label for label in labels if label.partition("(")[0] in own]


def _recorded(folder: Path) -> tuple[dict[str, Any], float | None, str | None]:
    """A sweep's manifest, the seconds that it took, and the command that runs failed cells again."""
    path = folder / "manifest.json"
    manifest = read_document(path) if path.is_file() else {}
    seconds = manifest.get("wall_s")
    # A sweep that found everything done took no time worth telling.
    took = float(seconds) if manifest.get("simulated") and seconds is not None else None
    command = manifest.get("command")
    words = [word for word in shlex.split(command or "") if not word.startswith("rerun=")]
    return manifest, took, shlex.join([*words, "rerun=failed"]) if command else None


def _compare_requests(
    folder: Path,
    results: pd.DataFrame,
    table: Standings,
    baseline: str | None,
    console: Console,
    style: str | None,
) -> Path:
    """What :func:`compare_sweep` does with runs of requests, whose makespan says when the last one came."""
    from experiments.comparison.methods import methods, read_cells
    from experiments.comparison.request_comparison import compare_requests
    from experiments.comparison.request_report import (
        request_lines,
        request_methods,
        write_request_report,
    )
    from experiments.comparison.terminal import wrapped
    from experiments.plots.looks import Look
    from experiments.plots.serving import draw_serving
    from experiments.serving import read_runs, summary

    manifest, took, rerun = _recorded(folder)
    cells = results["cell"].tolist()
    usual = manifest.get("baseline")
    choices, stale = choices_of(folder), stale_cells(results)
    recorded = read_cells(folder / "cells", cells)
    found = compare_requests(folder / "cells", cells, choices, baseline, usual, stale)
    for line in request_lines(found, table, str(folder / "failures.csv"), rerun, took):
        console.print(line, soft_wrap=True)
    (folder / "report").mkdir(exist_ok=True)
    figures, left_out = [folder / "report" / "fig_serving"], []
    try:
        runs = read_runs(folder)
        own = own_schedulers(recorded, runs.schedulers)
        look = Look.of(style, runs.schedulers, own)
        draw_serving(runs, summary(runs), figures[0], look=look)
    except InvalidInput as error:
        figures, left_out = [], [f"delays against what varies ({error})"]
        for line in wrapped(f"not drawn: {left_out[0]}", "dim"):
            console.print(line, soft_wrap=True)
    title = f"Sweep {manifest.get('name') or folder.name}"
    paragraph = methods(recorded, table, None) + request_methods(found)
    index = write_request_report(
        found, table, folder / "report", manifest, title, paragraph, figures, left_out, results
    )
    command = shlex.join(["python", "-m", "experiments.serving", str(folder), "slo=200ms"])
    for line in wrapped(f"against the load, with an objective: {command}", "dim"):
        console.print(line, soft_wrap=True)
    console.print(f"wrote {index}", style="dim", soft_wrap=True, markup=False)
    return index


def stale_cells(results: pd.DataFrame) -> set[str]:
    """Hashes of the cells that were made with code or profiles that have changed since."""
    if "stale" not in results.columns:  # written by an earlier release
        return set()
    return set(results.loc[results["stale"].fillna("") != "", "cell"])


def serves_requests(folder: Path, cells: Iterable[str]) -> bool:
    """Whether the finished cells of a sweep, at least one, are all of requests."""
    found = False
    for cell in cells:
        path = folder / "cells" / cell / "result.json"
        document = read_document(path) if path.is_file() else {}
        if document.get("status") == "done":
            found = "success_rate" in document.get("metrics", {})
            if not found:
                return False
    return found


def settling(table: Standings, folder: Path) -> list[str]:
    """What says which measurements would settle the first open verdict; empty where none is open."""
    for contest in table.contests:
        if contest.open_pair is not None:
            first, second = contest.open_pair
            words = ["python", "-m", "experiments.calibrate", f"settle={folder}", "step=plan"]
            return [
                f"to settle {first} against {second} on {table.label(contest, True)}, measure what this "
                f"names:",
                f"  {shlex.join(words)}",
            ]
    return []


def compare(
    paths: Sequence[Path],
    baseline: str | None,
    console: Console | None = None,
    options: Options | None = None,
    style: str | None = None,
) -> None:
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
        from experiments.comparison.differences import compare_runs

        if baseline is not None:
            raise InvalidInput("baseline= is for sweeps; of two runs the first is the baseline")
        if options is not None or style is not None:
            raise InvalidInput("map=, unit=, error= and style= are for sweeps")
        for line in compare_runs(paths[0], paths[1]):
            (console or make_console()).print(line, soft_wrap=True)
        return
    if len(paths) == 1 and not runs:
        compare_sweep(paths[0], baseline, console, options, style)
        return
    for path in paths:
        if path not in runs:
            read_sweep(path)
    raise InvalidInput(
        f"compare takes one sweep or two runs; got {len(runs)} runs and {len(paths) - len(runs)} sweeps"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    if answered("compare", arguments):
        return 0
    parser = argparse.ArgumentParser(prog="python -m experiments.compare", add_help=False)
    parser.add_argument("words", nargs="*", metavar="FOLDER | KEY=VALUE")
    words = parser.parse_args(arguments).words

    def run() -> None:
        from experiments.comparison.analysis import Options

        paths: list[Path] = []
        given: dict[str, str] = {}
        for word in words:
            key, separator, value = word.partition("=")
            if not separator or Path(word).exists():
                paths.append(Path(word).expanduser())
            elif key in KEYS:
                given[key] = value
            elif "/" in key:
                raise InvalidInput(
                    f"There is no folder {shlex.quote(word)}.{others_beside(Path(word))}"
                )
            else:
                raise InvalidInput(f"compare has no option '{key}'; known: {', '.join(KEYS)}")
        axes = tuple(given["map"].split(",")) if "map" in given else None
        if axes is not None and len(axes) != 2:
            raise InvalidInput(f"map={given['map']}: a map has two factors, e.g. map=ccr,fat")
        baseline, style = given.pop("baseline", None), given.pop("style", None)
        options = Options(None, axes, given.get("unit"), given.get("error")) if given else None
        compare(paths, baseline, options=options, style=style)

    return report_errors(run)


if __name__ == "__main__":
    sys.exit(main())
