"""What a model is and where its time goes: ``python -m experiments.describe model=... cluster=...``.

Structure (operators, depth, width, FLOPs, bytes, weights; of bare instances and drawn graphs the
communication to computation ratio), the time of every kind of operator on every
kind of device, and how much any schedule could gain at most; of requests every model of the mix, and how many
of them a device can serve at most. ``features=FILE.parquet`` keeps the features of all operators, ``advise=true`` says by
features alone where each phase should run, ``profile=FILE.parquet`` (or ``.csv``) keeps layers by closed forms.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("describe"):
    raise SystemExit

import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.runs import catalog
from experiments.runs.command import Invocation, hydra_command
from experiments.runs.configs import DescribeConfig
from experiments.runs.console import OWN_UNIT, make_console, print_validity, time_text
from experiments.runs.prepare import partitioned, prepare
from experiments.runs.structure import Structure
from experiments.runs.world import World
from scenarios.model_config import ModelConfig, load_model
from scenarios.partition.advise import Advise, advise
from scenarios.partition.device_profiles import profiles_of
from scenarios.partition.subgraphs import phases
from scenarios.requests import RequestGraphs
from simulator.analysis.bounds import critical_path
from simulator.analysis.lp_bound import MOST_ENTRIES
from simulator.analysis.unloaded import SAMPLE, unloaded_seconds
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.units import format_bytes, format_seconds

_KINDS = 12  # rows of the table; what is left is summed up


def parallelism(graph: DataflowGraph, seconds: np.ndarray) -> float:
    """Work over longest path on one device: how many equal devices could be kept busy on average.

    Args:
        graph: the graph.
        seconds: float64[operators] on that device.
    """
    path = critical_path(graph, seconds.tolist())
    return float(seconds.sum()) / path if path else 1.0


def communication_ratio(world: World) -> float:
    """Mean time of an edge between two devices over mean time of a task on a device (CCR).

    Of bare instances, in which every edge takes its time between any two devices.
    """
    sizes, seconds = world.graph.tensor_bytes, world.costs[world.graph].seconds
    mean = float(seconds[np.isfinite(seconds)].mean())
    return float(sizes.mean()) / mean if len(sizes) and mean > 0 else 0.0


def describe_command(config: DescribeConfig, invocation: Invocation) -> None:
    """Print the description."""
    config = config.settled()
    if config.workload.serves and (config.features or config.advise or config.profile):
        raise InvalidInput(
            "features, advise and profile are of one model; take jobs of it, such as workload=single"
        )
    if config.profile is not None and config.bare:
        raise InvalidInput(
            "A profile is of a model's layers; take a model, not an instance or a family"
        )
    world = prepare(config, invocation.config_dirs)
    console = make_console()
    if world.requests is not None:
        print_requests(config, world, world.requests, invocation.config_dirs, console)
        return
    described = config.family if config.bare else config.model
    about = "" if config.instance is not None else described.description
    print_structure(world.graph, about, world if config.bare else None, console)
    for note in world.notes:
        console.print(note, markup=False, soft_wrap=True)
    console.print()
    if config.instance is not None:
        console.print(OWN_UNIT, style="dim")
    print_times(config, world, world.graph, world.costs[world.graph], console)
    print_submission(world.cluster, console)
    console.print()
    print_gain(config, world, console)
    print_validity(world.validity().line, console)
    if config.features is not None:
        console.print()
        print_features(world.graph, config.features, console)
    if config.profile is not None:
        console.print()
        target = catalog.resolve_class_path(config.model.target, invocation.config_dirs)
        model = dataclasses.replace(config.model, target=target)
        print_profile(model, world.graph, config.profile, console)
    if config.advise:
        console.print()
        print_advice(config, world, console)


def print_features(graph: DataflowGraph, file: str, console: Console) -> None:
    """Keep the features of a graph and say how many operators are key ones, and how its phases alternate."""
    from cost_models.graph_features import computes, save_features

    features = save_features(graph, file)
    found = phases(graph)
    branches = [len(phase.runs) for phase in found if phase.parallel]
    console.print(
        f"{int(features['key'].sum())} key operators: {int(computes(graph).sum())} that compute, "
        f"{int((features['out_degree'] > 1).sum())} forks, {int((features['in_degree'] > 1).sum())} joins; "
        f"{len(found)} phases, {len(branches)} of them multi-path"
        + (f" (up to {max(branches)} runs)" if branches else "")
    )
    console.print(f"features of {len(features)} operators: {file}", soft_wrap=True)


def print_profile(model: ModelConfig, graph: DataflowGraph, file: str, console: Console) -> None:
    """Keep the layers by closed forms and say what they add up to, and whether the traced graph agrees."""
    from scenarios.training.model_profile import profile_model, save_profile

    module, inputs = load_model(model, fake=True)
    layers = profile_model(module, inputs.args, inputs.kwargs)
    rows = save_profile(layers, file)
    headings = ("parameters", "statistics", "outputs", "macs", "training_flops")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("layer", overflow="fold")
    table.add_column("kind", overflow="fold")
    for heading in headings:
        table.add_column(heading.replace("_", " "), justify="right")
    for layer in layers:
        cells = [f"{getattr(layer, heading):,.0f}" for heading in headings]
        table.add_row(layer.path or "(model)", layer.kind, *cells)
    console.print(table)
    total = rows.sum(numeric_only=True)
    console.print(
        f"{total.parameters:,.0f} parameters; buffers: {total.statistics:,.0f} running means and variances, "
        f"{total.counters:,.0f} counters and positions, {total.constants:,.0f} others"
    )
    console.print(
        f"{total.macs / 1e9:.4g} GMAC forward, {total.training_flops / 1e9:.4g} GFLOP forward and backward, of batch "
        f"{model.batch}"
    )
    what = "training_flops" if model.training else "flops"
    traced, own = Structure.of(graph).flops, total[what] * model.steps
    console.print(
        "the traced graph has as many"
        if traced == own
        else f"[bold]the traced graph has {traced / 1e9:.6g} GFLOP, these layers {own / 1e9:.6g}[/bold]: it leaves out "
        "what no result needs, or a function has no closed form"
    )
    console.print(f"{len(layers)} layers: {file}", soft_wrap=True)


def print_advice(config: DescribeConfig, world: World, console: Console) -> None:
    """Where each phase should run by features alone, and what that comes to by believed times."""
    graph, devices = world.graph, world.cluster.devices
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("advised phase from", "operators", "branches", "devices (by their branches)"):
        table.add_column(heading, justify="left" if heading.startswith(("adv", "dev")) else "right")
    for advice in advise(graph, world.cluster):
        first = graph.operators[int(advice.phase.runs[0][0])].name
        counts = Counter(devices[place].name for place in advice.devices)
        shown = ", ".join(f"{name} {n}" if len(counts) > 1 else name for name, n in counts.items())
        runs = advice.phase.runs
        branches = str(len(runs)) if advice.phase.parallel else ""
        table.add_row(first, str(sum(map(len, runs))), branches, shown)
    console.print(table)
    makespans = dict(partitioned(Advise(), world, config).makespans)
    advised = makespans.pop(Advise.name)
    best = min(makespans, key=makespans.__getitem__)
    gpus = any(p.is_gpu for p in profiles_of(world.cluster, "Advice"))
    console.print(
        f"as advised {format_seconds(advised)}, {best} {format_seconds(makespans[best])}, by believed times"
        + ("; not validated on a GPU" if gpus else "")
    )


def print_requests(
    config: DescribeConfig,
    world: World,
    requests: RequestGraphs,
    config_dirs: Sequence[Path],
    console: Console,
) -> None:
    """Every model that requests ask for or that may serve them, then what devices can serve."""
    for name, model in requests.models.items():
        graph = model.fine[0]
        entry = catalog.entry("model", name, config_dirs)
        about = "" if entry is None else str(entry.content.get("description") or "")
        print_structure(graph, about, None, console)
        console.print()
        print_times(config, world, graph, world.operator_costs[graph], console)
        console.print()
    print_submission(world.cluster, console)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in requests.shares.items())
    console.print(f"[bold]requests[/bold]: {shares}")
    jobs = world.workload(config).sample(SAMPLE)
    alone = unloaded_seconds(jobs, world.cluster, world.costs)
    console.print(
        "alone on the idle cluster, ways included: "
        + ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in alone.items())
    )
    devices = {d.profile or d.name: number for number, d in enumerate(world.cluster.devices)}
    for name, device in devices.items():
        rates = served_at_most(requests, world, device)
        if rates:
            shown = ", ".join(f"{rate:.4g}/s at batch {batch}" for batch, rate in rates.items())
            console.print(f"one {name} serves at most {shown}")
    print_validity(world.validity().line, console)


def served_at_most(requests: RequestGraphs, world: World, device: int) -> dict[int, float]:
    """Items a second that a device serves of the mix, by batch, the smallest and the largest one; those
    alone that it can run.
    """
    batches = sorted(next(iter(requests.models.values())).graphs)
    found = {}
    for batch in dict.fromkeys((batches[0], batches[-1])):
        seconds = sum(
            share * float(world.costs[requests.models[name].graphs[batch]].seconds[:, device].sum())
            for name, share in requests.shares.items()
        )
        if 0 < seconds < np.inf:
            found[batch] = batch / seconds
    return found


def print_structure(graph: DataflowGraph, about: str, bare: World | None, console: Console) -> None:
    """Operators, depth, width, FLOPs, bytes, weights; ``bare``: the world of a graph without tensors."""
    structure = Structure.of(graph)
    batch = f", batch {graph.batch}" if graph.batch else ""
    about = f": {about}" if about else ""
    console.print(f"[bold]{graph.name}{batch}[/bold]{about}")
    console.print(
        f"{structure.operators} operators, {structure.edges} edges; longest path "
        f"{structure.depth} operators, widest level {structure.width}"
    )
    if bare is not None:
        console.print(f"communication to computation ratio {communication_ratio(bare):.4g}")
        return
    ends = [
        format_bytes(sum(graph.tensors[i].bytes for i in tensors))
        for tensors in (graph.inputs, graph.outputs)
    ]
    console.print(
        f"{structure.flops / 1e9:.4g} GFLOP, {format_bytes(structure.bytes)} read and written by "
        f"operators; weights {format_bytes(structure.weight_bytes)}"
    )
    if structure.unknown:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(structure.unknown.items()))
        console.print(
            f"[bold]unknown work[/bold]: {kinds}; not in the GFLOP above, and priced as products of matrices of "
            "their size"
        )
    console.print(f"a job brings {ends[0]} and takes {ends[1]} away")
    if graph.unchecked is not None:
        console.print(f"the graph was not held against the module: {graph.unchecked}")


def print_times(
    config: DescribeConfig, world: World, graph: DataflowGraph, costs: GraphCosts, console: Console
) -> None:
    """Seconds by kind on each kind of device, the largest first."""
    show = time_text(config)
    cluster = world.cluster
    # Devices of one profile have one column.
    columns: dict[str, list[int]] = {}
    for number, device in enumerate(cluster.devices):
        columns.setdefault(device.profile or device.name, []).append(number)
    kinds: dict[str, list[int]] = {}
    for number, operator in enumerate(graph.operators):
        kinds.setdefault(operator.kind, []).append(number)
    totals = {name: float(costs.seconds[:, ds[0]].sum()) for name, ds in columns.items()}
    # By share, so that a slow device does not decide the order alone.
    share = {
        kind: sum(
            costs.seconds[rows, ds[0]].sum() / totals[name]
            for name, ds in columns.items()
            if 0 < totals[name] < np.inf
        )
        for kind, rows in kinds.items()
    }
    order = sorted(kinds, key=lambda kind: -share[kind])
    shown = [(kind, kinds[kind]) for kind in order[:_KINDS]]
    rest = [row for kind in order[_KINDS:] for row in kinds[kind]]
    if rest:
        shown.append((f"{len(order) - _KINDS} other kinds", rest))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("time on")
    table.add_column("operators", justify="right")
    for name, devices in columns.items():
        label = cluster.labels.get(name)
        heading = f"{len(devices)}x {name}" + (f"\n({label})" if label else "")
        table.add_column(heading, justify="right")
        table.add_column("", justify="right")
    for kind, rows in (*shown, ("all", list(range(len(graph))))):
        cells = []
        for name, devices in columns.items():
            seconds = float(costs.seconds[rows, devices[0]].sum())
            cells += [show(seconds), f"{seconds / totals[name]:.0%}" if totals[name] else ""]
        table.add_row(kind, str(len(rows)), *cells, style="bold" if kind == "all" else None)
    console.print(table)
    if costs.in_range is not None and not costs.in_range.all():
        parts = [
            f"{float(costs.seconds[~costs.in_range[:, ds[0]], ds[0]].sum()) / totals[name]:.0%} "
            f"on {name}"
            for name, ds in columns.items()
            if not costs.in_range[:, ds[0]].all()
        ]
        console.print(f"extrapolated share of these times: {', '.join(parts)}")


def print_submission(cluster: Cluster, console: Console) -> None:
    """How far ahead operators are submitted to devices whose ends are learnt of late."""
    late: dict[tuple[float, int, int, float], list[str]] = {}
    for device in cluster.devices:
        if device.completion_latency:
            key = (
                device.completion_latency,
                device.issue_depth,
                device.slots,
                device.issue_overhead,
            )
            late.setdefault(key, []).append(device.name)
    for (latency, depth, slots, issue), names in late.items():
        window = depth * slots
        ahead = f"up to {window} operators at once" if window > 1 else "one operator at a time"
        each = f", which takes it {format_seconds(issue)} each" if issue else ""
        console.print(
            f"{', '.join(names)}: the host knows of an end {format_seconds(latency)} later and submits "
            f"{ahead}{each}"
        )


def print_gain(config: DescribeConfig, world: World, console: Console) -> None:
    """What a schedule could gain over the best device alone, at most."""
    graph, cluster = world.graph, world.cluster
    single = world.best_device(config)
    bounds = world.bounds(config)
    show = time_text(config)
    seen: dict[str, float] = {}
    for number, device in enumerate(cluster.devices):
        seconds = world.costs[graph].seconds[:, number]
        if np.isfinite(seconds).all():
            seen.setdefault(device.profile or device.name, parallelism(graph, seconds))
    figures = ", ".join(f"{value:.2f} on {name}" for name, value in seen.items())
    console.print(f"parallelism (work over longest path): {figures}")
    assert bounds is not None  # jobs that are no requests have them
    both = (
        f"not both together: more than {MOST_ENTRIES} operators x different devices"
        if bounds.path_load_s is None
        else f"both together {show(bounds.path_load_s)}"
    )
    console.print(
        f"no schedule beats {show(bounds.bound_s)} (longest path on the fastest devices "
        f"{show(bounds.critical_path_s)}, shared load {show(bounds.load_s)}, {both})"
    )
    if single is None:
        console.print("no single device can run all operators")
        return
    best, alone = single
    gain = alone / bounds.bound_s
    console.print(
        f"best device alone: {best}, {show(alone)}; any schedule gains at most "
        f"[bold]{gain:.2f}x[/bold]"
    )
    widest = max(seen.values(), default=1.0)
    if widest < 1.05 and len(cluster.devices) > 1:
        console.print(
            "[bold]a chain:[/bold] operators run one after the other, so scheduling cannot help"
            + ("" if gain < 1.05 else " but by choosing a device for each")
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return hydra_command(
        describe_command,
        DescribeConfig,
        "experiments.describe",
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
