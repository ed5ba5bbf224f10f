"""Many runs: ``python -m experiments.sweep scheduler=heft,donf model=resnet50,bert_base``.

Takes Hydra's comma and ``range()`` syntax and presets (``experiment=demo``), works through the grid in
processes, goes on where an earlier call ended, and prints the comparison.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("sweep"):
    raise SystemExit

import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from rich.console import Console
from rich.markup import escape

from experiments.runs import atomic
from experiments.runs.cell import check_method, label_of
from experiments.runs.cell_folder import (
    CellTask,
    State,
    cell_files,
    has_graph,
    keep_files,
    run_cell,
    state_of,
    task_of,
    trace_graph,
)
from experiments.runs.clusters import Cluster
from experiments.runs.command import Invocation, sweeping_main
from experiments.runs.configs import SWEEP_ONLY, contents
from experiments.runs.console import make_console
from experiments.runs.file_name import folder_name
from experiments.runs.grid import Grid, compose_grid
from experiments.runs.ignored import refuse_idle_seeds
from experiments.runs.own_settings import key_of
from experiments.runs.pool import Pool, WorkerDiedError, available_cores, work_through
from experiments.runs.progress import progress_bar
from experiments.runs.provenance import code_digest, digest, revision, versions
from experiments.runs.results import row_of, told_apart, write_results
from experiments.runs.sweep_folder import choices_of, label_named, read_grid
from simulator.errors import InvalidInput
from simulator.support.csv_text import csv_text

RERUNS: dict[str, tuple[State, ...]] = {
    "stale": ("missing", "stale"),
    "failed": ("missing", "stale", "failed"),
    "all": ("missing", "stale", "failed", "done"),
    "none": ("missing",),
}
"""Values of ``rerun``, and the states of the cells that are simulated then."""
FORMAT = "hetsim.sweep/1"
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass
class Plan:
    """What a sweep will do.

    Attributes:
        states: of every cell, before anything is done.
        documents: of the cells that have one.
        todo: cells to simulate.
        changed: which digests stale cells were made with and are different now.
        stale: the same of each stale cell, as tables say it; a cell that is simulated leaves it.
        note: how the grid differs from the one that the folder holds.
        killed: cells whose process ended without an answer; they are still to do.
    """

    name: str
    folder: Path
    grid: Grid
    tasks: list[CellTask]
    states: dict[str, State]
    documents: dict[str, dict[str, Any]]
    todo: list[CellTask]
    changed: tuple[str, ...]
    stale: dict[str, str]
    note: str
    workers: int | Cluster
    killed: list[CellTask] = field(default_factory=list)


def plan_sweep(invocation: Invocation) -> Plan:
    """Compose the grid and look at what is there; refuses what could only fail later.

    Raises:
        InvalidInput: a name, an option or a profile that does not exist.
    """
    grid = compose_grid(invocation.overrides, invocation.config_dirs)
    settings = replace(grid.settings, baseline=_baseline(grid, invocation))
    grid = replace(grid, settings=settings)
    refuse_idle_seeds([(c.choices, c.scenario) for c in grid.cells], invocation.config_dirs)
    if settings.rerun not in RERUNS:
        raise InvalidInput(f"There is no rerun={settings.rerun}; known: {', '.join(RERUNS)}")
    asked = available_cores() if settings.workers is None else settings.workers
    workers = Cluster.of(asked) if isinstance(asked, str) else asked
    if isinstance(workers, int) and workers < 1:
        raise InvalidInput(f"workers={workers}: at least one process is needed")
    name = settings.name or f"sweep-{digest([cell.hash for cell in grid.cells])[:8]}"
    sweeps = Path(settings.output_dir) / "sweeps"
    name, note = _place(sweeps, folder_name("name", name), grid, invocation)
    folder = sweeps / name
    tasks = [
        task_of(cell, folder / "cells", invocation.config_dirs, settings.traces)
        for cell in grid.cells
    ]
    checked = set()
    for task in tasks:
        methods = (task.scenario.scheduler, task.scenario.partition)
        key = digest([[m.name, m.class_path, m.options] for m in methods])
        if key not in checked:
            checked.add(key)
            check_method(task.scenario, invocation.config_dirs)
    states: dict[str, State] = {}
    documents: dict[str, dict[str, Any]] = {}
    changed: set[str] = set()
    stale: dict[str, str] = {}
    for task in tasks:
        states[task.hash], document, differences = state_of(task)
        changed.update(differences)
        if differences:
            stale[task.hash] = _changes(differences)
        if document is not None:
            documents[task.hash] = document
    todo = [task for task in tasks if states[task.hash] in RERUNS[settings.rerun]]
    return Plan(
        name, folder, grid, tasks, states, documents, todo, tuple(sorted(changed)), stale, note, workers
    )  # fmt: skip


def _changes(digests: Iterable[str]) -> str:
    """``code changed, toy-core changed``."""
    return ", ".join(f"{name} changed" for name in digests)


def _place(sweeps: Path, name: str, grid: Grid, invocation: Invocation) -> tuple[str, str]:
    """The name of a sweep's folder, and how its grid differs from the one that is there.

    A grid that holds all cells of the earlier one extends it. The same command gives other cells once the
    configs that it names were edited; the earlier ones are left out then. Any other grid takes another
    folder: one of its own where the name is a preset's, and one that the user names where the name was typed.

    Raises:
        InvalidInput: the name was typed, and its folder holds another grid.
    """
    folder = sweeps / name
    held = read_grid(folder)
    before = set(choices_of(folder))
    cells = {cell.hash for cell in grid.cells}
    lost = len(before - cells)
    if not before or before == cells:
        return name, ""
    if not lost:
        return name, f"extends {folder}: {len(cells - before)} cells beside the {len(before)} there"
    if _asked(str(held.get("command", ""))) == _asked(invocation.command):
        return (
            name,
            f"the configs changed: {lost} cells of {folder} are not of this grid, and left out",
        )
    others = f"{folder} holds another sweep: {lost} of its {len(before)} cells are not in this grid"
    if any(key_of(word) == "name" for word in invocation.overrides):
        raise InvalidInput(
            f"{others}. Take another name=, ask for its cells too (then they are kept), or remove the folder"
        )
    own = f"{name}-{digest(sorted(cells))[:8]}"
    return own, f"{others}; this one is {sweeps / own}"


def _asked(command: str) -> set[str]:
    """Words of a command that decide its grid."""
    about = {*SWEEP_ONLY} - {"sweep", "exclude"}
    return {word for word in shlex.split(command) if key_of(word) not in about}


def _baseline(grid: Grid, invocation: Invocation) -> str | None:
    """The label of the baseline; None where a preset's is not among schedulers that the command line chose.

    Raises:
        InvalidInput: the command line names nobody, or a preset nobody of its own schedulers.
    """
    wanted = grid.settings.baseline
    if wanted is None:
        return None
    if wanted == "single_device" and any(c.scenario.scheduler.name != wanted for c in grid.cells):
        raise InvalidInput(
            f"baseline={wanted} names what every scheduler is compared with anyway, the best device alone; "
            "name another one or leave it out"
        )
    cells = told_apart(
        {
            "labels": {"scheduler": label_of(c.scenario, invocation.config_dirs)},
            "choices": c.choices,
        }
        for c in grid.cells
    )  # as tables name them
    labels = {c.hash: d["labels"]["scheduler"] for c, d in zip(grid.cells, cells, strict=True)}
    label = label_named(wanted, labels, {c.hash: c.choices for c in grid.cells})
    if label in labels.values():
        return label
    given = {key_of(word) for word in invocation.overrides}
    chosen = {key.removeprefix("sweep.").partition(".")[0] for key in given - {"sweep.baseline"}}
    if "baseline" in given or not chosen & {"scheduler", "partition", "exclude", "sweep"}:
        raise InvalidInput(
            f"baseline={wanted} names nobody; this sweep has: {', '.join(dict.fromkeys(labels.values()))}"
        )
    return None


def print_plan(plan: Plan, console: Console) -> None:
    """Say what a sweep consists of and what of it is done already."""
    axes = " x ".join(f"{axis.key} ({len(axis.values)})" for axis in plan.grid.axes)
    cells = len(plan.tasks)
    console.print(f"[bold]{plan.name}[/bold]: {cells} cells" + (f" of {axes}" if axes else ""))
    left_out = [
        f"{count} {what}"
        for count, what in (
            (plan.grid.excluded, "excluded"),
            (plan.grid.repeated, "the same as another"),
        )
        if count
    ]
    if left_out:
        console.print(f"left out: {', '.join(left_out)}")
    if plan.note:
        console.print(plan.note, soft_wrap=True, markup=False)
    if count := _not_reproducible(plan):
        console.print(
            f"{count} cells charge the wall clock for decisions: another run gives other results, and "
            "processes side by side slow each other (workers=1); what is done is kept"
        )
    counts = Counter(plan.states.values())
    if counts["missing"] < cells:
        rerun = plan.grid.settings.rerun
        told = [f"{counts['done']} done", f"{counts['stale']} stale", f"{counts['failed']} failed"]
        states: tuple[State, ...] = ("stale", "failed")
        for number, state in enumerate(states, start=1):
            if counts[state]:
                why = f" ({_changes(plan.changed)})" if state == "stale" else ""
                kept = (
                    "run again"
                    if state in RERUNS[rerun]
                    else f"kept, rerun={state} runs them again"
                )
                told[number] += f"{why}: {kept}"
        console.print(", ".join(told), soft_wrap=True)


def _not_reproducible(plan: Plan) -> int:
    """How many cells charge for decisions what they take on this machine."""
    return sum(task.scenario.simulation.decision_cost.charge == "wallclock" for task in plan.tasks)


def print_estimate(plan: Plan, console: Console) -> None:
    """Minutes and megabytes of what is to do."""
    processes = plan.workers if isinstance(plan.workers, int) else 1
    minutes, basis = _estimate_minutes(plan, processes)
    megabytes = len(plan.todo) * _cell_bytes(plan) / 1e6
    console.print(
        f"to do: {len(plan.todo)} cells, about {minutes:.2g} min with {processes} processes "
        f"({basis}), {megabytes:.2g} MB in {plan.folder}"
    )


def _estimate_minutes(plan: Plan, processes: int) -> tuple[float, str]:
    known = [row_of(d).get("wall_s") for d in plan.documents.values() if d["status"] == "done"]
    times = [seconds for seconds in known if seconds is not None]
    if times:
        each, basis = sum(times) / len(times), f"from {len(times)} cells done"
    else:
        # Some 150 operators a model at some 20,000 simulated operators a second, a run and draws;
        # how many jobs a file brings is not known here.
        runs = [
            (task.scenario.workload.jobs or 1000) * (task.scenario.simulation.draws + 4)
            for task in plan.todo
        ]
        each = sum(runs) / max(1, len(runs)) * 150 / 20_000
        basis = "a rough guess"
    start = 5.0 if plan.todo else 0.0  # processes and models load first
    return (start + each * len(plan.todo) / processes) / 60, basis


def _cell_bytes(plan: Plan) -> float:
    sizes = [
        sum(file.stat().st_size for file in task.folder.iterdir())
        for task in plan.tasks
        if task.hash in plan.documents
    ]
    if sizes:
        return sum(sizes) / len(sizes)
    draws = [task.scenario.simulation.draws for task in plan.todo]
    return 8_000 + 25 * sum(draws) / max(1, len(draws)) + 30_000 * plan.grid.settings.traces


def run_sweep(plan: Plan, invocation: Invocation, console: Console) -> bool:
    """Simulate what is to do and write the sweep's files; returns False if it was interrupted."""
    began = time.perf_counter()
    # Children inherit these: each process computes on one core.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    pool: int | Pool
    if isinstance(plan.workers, int):
        pool = min(plan.workers, max(1, len(plan.todo)))
    else:
        pool = plan.workers.connect(plan.folder) if plan.todo else 1
    plan.folder.mkdir(parents=True, exist_ok=True)
    _write_grid(plan, invocation)
    interrupted = False
    try:
        _work(plan, pool, console)
    except KeyboardInterrupt:
        interrupted = True
    rows = [row_of(d, plan.stale.get(d["hash"], "")) for d in told_apart(_documents(plan))]
    if rows:
        write_results(plan.folder, rows)
    _write_failures(plan)
    counts = Counter(row["status"] for row in rows)
    atomic.write_json(
        plan.folder / "manifest.json",
        {
            "format": FORMAT,
            "name": plan.name,
            "description": plan.grid.settings.description,
            "command": invocation.command,
            "baseline": plan.grid.settings.baseline,
            "axes": {axis.key: list(axis.values) for axis in plan.grid.axes},
            "cells": len(plan.tasks),
            "done": counts["done"],
            "failed": counts["failed"],
            "stale": len(plan.stale),
            "simulated": sum(1 for task in plan.todo if task.hash in plan.documents),
            "wall_s": time.perf_counter() - began,
            "workers": workers if isinstance(workers := plan.workers, int) else workers.text,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": versions(),
            "revision": revision(),
            "code": code_digest(),
        },
    )
    return not interrupted


def _work(plan: Plan, pool: int | Pool, console: Console) -> None:
    with progress_bar(console) as progress:
        asked: dict[str, CellTask] = {}
        for task in plan.todo:
            if not task.scenario.bare and task.scenario.model.profile is None:
                asked.setdefault(digest(contents(task.scenario.model)), task)
        models = {key: task for key, task in asked.items() if not has_graph(task)}
        # Each model once, before two workers could both need it; what fails here fails in its cell.
        if isinstance(pool, int) and len(models) > 1 and pool > 1:
            bar = progress.add_task("models to graphs", total=len(models))
            for _ in work_through(list(models.items()), trace_graph, pool):
                progress.advance(bar)
            progress.remove_task(bar)
        bar = progress.add_task("simulating", total=len(plan.todo))
        failed = 0
        tasks = [(_world_of(task), task) for task in plan.todo]
        # Where the folder of a cell is not seen by the worker, this process writes it.
        function: Callable[[CellTask], Any] = run_cell if isinstance(pool, int) else cell_files
        for task, answer in work_through(tasks, function, pool):
            if isinstance(answer, WorkerDiedError):
                plan.killed.append(task)
            else:
                document = answer if isinstance(pool, int) else keep_files(task, answer)
                plan.documents[task.hash] = document
                plan.stale.pop(task.hash, None)
                failed += document["status"] == "failed"
            progress.update(
                bar,
                advance=1,
                description="simulating" + (f", {failed} failed" if failed else ""),
            )


def _world_of(task: CellTask) -> str:
    scenario = task.scenario
    parts: list[Any] = [scenario.instance]
    if scenario.family.drawn:
        parts += [scenario.family.document(), scenario.seed.workload]
    if not scenario.bare:
        parts += map(contents, (scenario.model, scenario.cluster, scenario.cost_model))
    return digest(parts)


def _write_grid(plan: Plan, invocation: Invocation) -> None:
    settings = plan.grid.settings
    document = {
        "name": plan.name,
        "command": invocation.command,
        "axes": {axis.key: list(axis.values) for axis in plan.grid.axes},
        "exclude": settings.exclude,
        "cells": {task.hash: dict(task.choices) for task in plan.tasks},
    }
    text = yaml.dump(document, Dumper=_DUMPER, sort_keys=False, width=100)
    atomic.write_text(plan.folder / "grid.yaml", text)


def _write_failures(plan: Plan) -> None:
    """``failures.csv``: what failed, why, and the command that repeats it alone."""
    path = plan.folder / "failures.csv"
    failed = [
        task for task in plan.tasks if plan.documents.get(task.hash, {}).get("status") == "failed"
    ]
    if not failed:
        path.unlink(missing_ok=True)
        return
    axes = [axis.key for axis in plan.grid.axes]
    rows = [
        [
            task.hash,
            *(task.choices[axis] for axis in axes),
            plan.documents[task.hash]["error"],
            task.command,
        ]
        for task in failed
    ]
    atomic.write_text(path, csv_text(["cell", *axes, "error", "command"], rows))


def sweep_command(invocation: Invocation) -> int:
    """Plan, simulate, compare; returns the exit code: 1 if a cell failed, 130 if interrupted."""
    console = make_console()
    plan = plan_sweep(invocation)
    print_plan(plan, console)
    if plan.grid.settings.dry_run:
        print_estimate(plan, console)
        console.print("dry run: nothing was written", style="dim")
        return 0
    finished = run_sweep(plan, invocation, console)
    if not finished:
        done = sum(task.hash in plan.documents for task in plan.tasks)
        console.print(
            f"interrupted: {done} of {len(plan.tasks)} cells are there; the same command goes on"
        )
        return 130
    if plan.documents:
        _report(plan, console)
    if plan.killed:
        console.print(
            f"[red]{len(plan.killed)} of {len(plan.tasks)} cells are still to do[/red]: their process was killed; "
            f"was there enough memory? The same command goes on, perhaps with workers=1. The first: "
            f"{escape(plan.killed[0].command)}",
            soft_wrap=True,
        )
    failed = any(document["status"] == "failed" for document in _documents(plan))
    return 1 if failed or plan.killed else 0


def _documents(plan: Plan) -> list[dict[str, Any]]:
    return [plan.documents[task.hash] for task in plan.tasks if task.hash in plan.documents]


def _report(plan: Plan, console: Console) -> None:
    from experiments.compare import compare_sweep

    documents = _documents(plan)
    for note in dict.fromkeys(note for document in documents for note in document.get("notes", [])):
        console.print(note, markup=False, soft_wrap=True)
    failed = [document for document in documents if document["status"] == "failed"]
    # Where some are done, the comparison says which failed.
    if len(failed) == len(documents):
        error = failed[0]["error"]
        console.print(
            f"[red]{len(failed)} of {len(plan.tasks)} cells failed[/red], the first: {error}\n"
            f"all of them, with commands that repeat them: {plan.folder / 'failures.csv'}",
            soft_wrap=True,
        )
    else:
        settings = plan.grid.settings
        compare_sweep(plan.folder, settings.baseline, console, style=settings.style)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.sweep",
        sweep_command,
        arguments,
        {"--multirun -m": {"action": "store_true", "help": "has no effect: it always is"}},
    )


if __name__ == "__main__":
    sys.exit(main())
