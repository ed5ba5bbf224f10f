"""One run: ``python -m experiments.simulate model=inception_v3 cluster=cpu2_gpu1 scheduler=heft``.

Leaves a folder ``outputs/runs/<time>-<model>-<cluster>-<scheduler>-<hash>/`` and prints the answer.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("simulate"):
    raise SystemExit

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table

from experiments.runs import atomic
from experiments.runs.cell import Outcome, label_of, run_scenario
from experiments.runs.command import Invocation, hydra_command
from experiments.runs.configs import Scenario, SimulateConfig
from experiments.runs.console import OWN_UNIT, WIDTH, make_console, print_validity, time_text
from experiments.runs.file_name import file_name
from experiments.runs.prepare import prepare
from experiments.runs.provenance import config_digest
from experiments.runs.world import speed_text
from scenarios.graph_files.export import check_export, export_run
from scenarios.instances import save_instance
from scenarios.partition.partitioner import Partition
from simulator.errors import InvalidInput
from simulator.model.plan import Plan
from simulator.model.trace import Trace
from simulator.model.units import format_bytes, format_energy


def simulate_command(config: SimulateConfig, invocation: Invocation) -> None:
    """Simulate, write the run's folder, print the answer."""
    console = make_console()
    if config.export is not None:
        check_export(config.export)
    if config.save_instance is not None:
        if not config.bare:
            raise InvalidInput(
                "save_instance writes a graph with given times; a traced model's are predicted. "
                "Draw one: family=daggen"
            )
        world = prepare(config, invocation.config_dirs)
        save_instance(config.save_instance, world.graph, world.cluster, world.costs)
        console.print(f"wrote {config.save_instance}", style="dim", soft_wrap=True)
    if config.explain:
        # Graph and times first, so that what they print does not come between the decisions.
        prepare(config, invocation.config_dirs)
        console.print(f"[bold]Decisions of {label_of(config, invocation.config_dirs)}[/]")
    explain = (lambda line: console.print(line, markup=False)) if config.explain else None
    outcome = run_scenario(config, invocation.config_dirs, explain)
    folder = write_run(outcome, Path(config.output_dir), invocation)
    print_answer(outcome, folder, console)
    if config.export is not None:
        _export(outcome, config.export)
        console.print(f"wrote {config.export}", style="dim", soft_wrap=True)


def _export(outcome: Outcome, path: str) -> None:
    """Write what ran for another tool."""
    if outcome.trace is None:
        raise InvalidInput(
            "export writes what ran when, which keep=figures forgets; leave one of both out"
        )
    jobs = outcome.world.workload(outcome.scenario).jobs
    export_run(path, outcome.trace, jobs[0].graph, outcome.world.cluster)


def write_run(outcome: Outcome, output_dir: Path, invocation: Invocation) -> Path:
    """Write everything a run leaves, ``result.json`` last; returns the folder.

    ``config.yaml`` (all values), ``command.txt`` (repeats the run), the trace's tables and
    ``trace.json``, ``plan.json``, ``graph.json``, ``gantt.pdf`` and ``.png``, ``trace.perfetto.json``,
    ``result.json``; without a trace none of its files and pictures. ``outputs/latest`` points to it.
    """
    folder = _new_folder(outcome, output_dir / "runs")
    result = outcome.result()
    atomic.write_text(
        folder / "config.yaml", yaml.safe_dump(result["config"], sort_keys=False, width=WIDTH)
    )
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    atomic.write_text(folder / "graph.json", json.dumps(outcome.world.graph.to_json()))
    if outcome.trace is not None:
        _write_trace(outcome, outcome.trace, folder)
    atomic.write_json(folder / "result.json", result)
    atomic.point_to(output_dir / "latest", folder)
    return folder


def _write_trace(outcome: Outcome, trace: Trace, folder: Path) -> None:
    from experiments.plots.gantt import describe, draw_gantt
    from experiments.runs.perfetto import write_perfetto

    trace.save(folder)
    write_plan(outcome, trace, folder)
    write_perfetto(trace, folder / "trace.perfetto.json")
    bounds = outcome.world.bounds(outcome.scenario)
    lines: dict[str, float | None] = {}
    if bounds is not None:
        lines = {
            "critical-path bound": bounds.critical_path_s,
            "load bound": bounds.load_s,
            "path-and-load bound": bounds.path_load_s,
        }
    shown = {name: value for name, value in lines.items() if value is not None}
    line = outcome.validity.line
    caption = f"{describe(trace)}. Validity: {line}." if line else None
    draw_gantt(trace, folder / "gantt", bounds=shown, caption=caption)


def write_plan(outcome: Outcome, trace: Trace, folder: Path) -> None:
    """Write ``plan.json``, which ``scheduler=planned scheduler.options.file=...`` executes again: the partition's, or
    what the scheduler did; nothing where jobs were served together or not all tasks ran.
    """
    made = outcome.world.partition
    if made is not None and outcome.scenario.scheduler.name == "planned":
        made.plan.save(folder / "plan.json")
        return
    with contextlib.suppress(InvalidInput):
        graphs = [job.graph for job in outcome.world.workload(outcome.scenario).jobs]
        Plan.executed(trace, graphs).save(folder / "plan.json")


def _new_folder(outcome: Outcome, runs: Path) -> Path:
    """A folder of a run's own, however many start within the same second."""
    world, scenario = outcome.world, outcome.scenario
    names = [world.graph.name, world.cluster.name, outcome.label]
    # A bare instance is graph and cluster in one.
    names = list(dict.fromkeys(names)) if scenario.bare else names
    parts = [file_name(name) for name in names]
    stem = "-".join(
        [time.strftime("%Y%m%d_%H%M%S"), *parts, config_digest(scenario.document())[:8]]
    )
    for number in range(10_000):
        folder = runs / (stem if not number else f"{stem}.{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise RuntimeError(f"cannot make a new folder beside {runs / stem}")


def print_answer(outcome: Outcome, folder: Path, console: Console) -> None:
    """The makespan first, then how good it is, what it rests on, and where everything lies."""
    figures, world, scenario = outcome.figures, outcome.world, outcome.scenario
    simulation = scenario.simulation
    makespan = figures["makespan_s"]
    bare = scenario.bare

    show = time_text(scenario)
    interval = ""
    if figures["makespan_low_s"] is not None:
        low, high = show(figures["makespan_low_s"]), show(figures["makespan_high_s"])
        interval = f"  [dim][95%: {low} to {high}, {len(outcome.draws)} draws][/dim]"
    trace = outcome.trace
    reasons = [] if trace is None else trace.jobs["reason"].tolist()
    failed = [reason for reason in reasons if reason]
    answer = f"makespan {show(makespan)}"
    if len(failed) == figures["jobs"]:
        answer, interval = "all jobs failed", ""
    name, notes = world.graph.name, []
    if world.requests is not None:
        name = f"requests for {', '.join(world.requests.shares)}"
        notes.append(answer)
        answer, interval = _delays(figures, show), ""
    if compared := world.compared(scenario):
        console.print(
            f"different labels are compared: {compared}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )
    console.print(
        f"[bold]{name} on {world.cluster.name} with {outcome.label}: {answer}[/bold]{interval}"
    )
    if scenario.instance is not None:
        console.print(OWN_UNIT, style="dim")
    style = "dim" if outcome.validity.validated else "yellow"
    print_validity(outcome.validity.line, console, style)
    for note in world.notes:
        console.print(note, markup=False, soft_wrap=True)
    if figures.get("intervals"):
        console.print(f"[dim]{_delay_intervals(figures, show)}, {len(outcome.draws)} draws[/dim]")
    if simulation.horizon_s is not None:
        notes.append(
            f"ended at its horizon of {show(simulation.horizon_s)}: {figures['jobs_finished']} of "
            f"{figures['jobs']} jobs finished"
        )
    if figures["bound_s"] is not None and not failed:
        notes.append(
            f"at most {makespan / figures['bound_s'] - 1:.0%} above the lower bound ({figures['binding_bound']})"
        )
    if figures["best_device_s"] is not None and not failed:
        ratio = figures["best_device_s"] / makespan
        notes.append(f"{ratio:.2f}x the best device alone ({figures['best_device']})")
    notes.append(f"utilisation {figures['utilisation']:.0%}")
    if world.partition is not None:
        notes.append(_partition(world.partition, show))
    console.print("; ".join(notes))
    table = Table(box=None, pad_edge=False)
    devices = list(figures["devices"].values())
    metered = any(d[k] is not None for d in devices for k in ("energy_busy_j", "energy_idle_j"))
    texts = ("device", "profile", "idle time")
    numbers = ("tasks", "busy", "utilisation", *(("energy",) if metered else ()))
    # What devices waited for is read off the trace.
    headings = (*texts[:2], *numbers, *(texts[2:] if trace is not None else ()))
    for heading in headings:
        table.add_column(heading, justify="left" if heading in texts else "right")
    for device in world.cluster.devices:
        figure = figures["devices"][device.name]
        label = world.cluster.labels.get(device.profile or "", "")
        table.add_row(
            device.name,
            f"{device.profile} ({label}{speed_text(device)})" if device.profile else "given times",
            str(figure["tasks"]),
            show(figure["busy_s"]),
            f"{figure['utilisation']:.0%}",
            *([_energy(figure)] if metered else []),
            # Of a busy device what little is left says nothing.
            *(
                []
                if trace is None
                else [_idle(figure["idle_s"] if figure["utilisation"] < 0.995 else {})]
            ),
        )
    console.print(table)
    if figures["jobs"] > 1:
        console.print(_queueing(figures, show))
    memory = [
        f"{name} {format_bytes(space['peak_bytes'])}"
        + (f" of {format_bytes(space['capacity_bytes'])}" if space["capacity_bytes"] else "")
        for name, space in figures.get("spaces", {}).items()
        if space["peak_bytes"]
    ]
    if memory and not bare:
        console.print(f"most memory in use: {', '.join(memory)}")
    if "iteration_s" in figures:
        console.print(_training(figures, show), soft_wrap=True)
    faults = [] if trace is None else trace.meta.get("faults", [])
    if faults:
        lost = figures["tasks_lost"]
        console.print(
            f"{len(faults)} {'fault' if len(faults) == 1 else 'faults'}; "
            f"{lost} {'execution' if lost == 1 else 'executions'} lost, "
            f"{show(figures['lost_s'])} of work"
        )
    if failed:
        console.print(
            f"{len(failed)} of {figures['jobs']} jobs failed, the first: {failed[0]}", markup=False
        )
    moved = figures["transferred_bytes"]
    console.print(
        f"{figures['transfers']} transfers"
        + ("" if bare else f", {format_bytes(moved)}")
        + f"; {simulation.movement}, contention {simulation.contention}, noise {simulation.noise_text}"
        + ("" if simulation.memory_text == "unlimited" else f", memory {simulation.memory_text}")
        + _decisions(scenario, figures, show)
        + ("" if bare else f"; {figures['extrapolated_share']:.0%} of the time is extrapolated")
    )
    if figures["interval_without"]:
        names = ", ".join(figures["interval_without"])
        console.print(f"the interval leaves out errors of {names}: nobody has measured them")
    console.print(f"wrote {folder}/", style="dim", soft_wrap=True)
    if trace is not None:
        console.print(
            "look at gantt.png, or open trace.perfetto.json in ui.perfetto.dev", style="dim"
        )


def _partition(made: Partition, show: Callable[[float], str]) -> str:
    """Which of the plans it was, and what planning took."""
    others = [f"{name} {show(seconds)}" for name, seconds in made.makespans.items()]
    return (
        f"plan '{made.plan.origin}' of {', '.join(others)}; planned in {made.plan.planning_s:.2g} s"
    )


def _decisions(scenario: Scenario, figures: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """What decisions cost, if they cost anything."""
    text = scenario.simulation.decision_cost_text
    if text == "none":
        return ""
    return f", decisions {show(figures['decisions_charged_s'])} ({text})"


def _energy(figure: Mapping[str, Any]) -> str:
    """A device's energy, or what of it is unknown."""
    busy, idle = figure["energy_busy_j"], figure["energy_idle_j"]
    if busy is not None and idle is not None:
        return format_energy(busy + idle)
    if busy is None and idle is None:
        return "unknown"
    # At least what its known power takes.
    return f">= {format_energy(busy if idle is None else idle)}"


IDLE = {
    "no_work": "for lack of ready work",
    "decision": "for ready work to be placed",
    "link": "for inputs queued at a link",
    "memory": "for room in memory",
    "data": "for inputs on their way",
    "overhead": "for launches",
    "down": "as it was down",
}
"""What a slot was idle for, in words, by the causes of :mod:`simulator.analysis.idle`."""


def _idle(seconds: Mapping[str, float]) -> str:
    """What a device's slots were idle for longest, with its share of their idle time."""
    total = sum(seconds.values())
    if total <= 0:
        return "none"
    cause = max(seconds, key=lambda name: seconds[name])
    return f"{seconds[cause] / total:.0%} {IDLE[cause]}"


def _delays(figures: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """What requests met: delays, and how many were answered in time."""
    if figures["mean_delay_s"] is None:
        return "no request was served"
    return (
        f"mean delay {show(figures['mean_delay_s'])}, p99 {show(figures['p99_delay_s'])}, "
        f"{figures['success_rate']:.1%} in time, {figures['goodput_per_s']:.4g}/s"
    )


def _delay_intervals(figures: Mapping[str, Any], show: Callable[[float], str]) -> str:
    ends = figures["intervals"]
    parts = [
        f"{what} {show(ends[key][0])} to {show(ends[key][1])}"
        for key, what in (("mean_delay_s", "mean delay"), ("p99_delay_s", "p99"))
        if key in ends
    ]
    if "success_rate" in ends:
        low, high = ends["success_rate"]
        parts.append(f"{low:.1%} to {high:.1%} in time")
    return f"95%: {', '.join(parts)}"


def _training(figures: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """One line on training steps."""
    parts = [f"iteration {show(figures['iteration_s'])}"]
    if figures["update_interval_s"] is not None:
        parts.append(f"an update every {show(figures['update_interval_s'])}")
    rates = [("samples_per_s", "samples"), ("micro_batches_per_s", "micro-batches")]
    for key, what in rates[: 2 if figures["micro_batches"] > 1 else 1]:
        if figures[key] is not None:
            parts.append(f"{figures[key]:.4g} {what}/s")
    parts.append(f"bubble {figures['bubble']:.1%}")
    exposed, total = figures["exposed_communication_s"], figures["communication_s"]
    parts.append(f"communication {show(total)}, devices wait for it {show(exposed)} on average")
    stashed = [d["stashed_micro_batches"] for d in figures["training_devices"].values()]
    if None not in stashed:
        parts.append(f"micro-batches stashed {', '.join(map(str, stashed))}")
    return "; ".join(parts)


def _queueing(figures: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """One line on a stream of jobs, its warm-up left out."""
    steady = figures["steady_state"]
    parts = [f"{figures['jobs_finished']} of {figures['jobs']} jobs finished"]
    parts += [
        f"{figures[key]} {what}"
        for key, what in (("jobs_failed", "failed"), ("jobs_queued", "left"), ("jobs_late", "late"))
        if figures[key]
    ]
    parts.append(f"{steady['arrival_rate_per_s']:.3g} arrivals/s")
    parts.append(f"{steady['mean_in_system']:.3g} in the system on average")
    if steady["p50_flow_s"] is not None:
        shown = [show(steady[f"{p}_flow_s"]) for p in ("p50", "p95", "p99")]
        parts.append(f"flow time p50 {shown[0]}, p95 {shown[1]}, p99 {shown[2]}")
    after = f" (from {show(steady['from_s'])} on)" if steady["from_s"] else ""
    return "; ".join(parts) + after


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return hydra_command(
        simulate_command,
        SimulateConfig,
        "experiments.simulate",
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
