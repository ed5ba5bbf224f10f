"""Serial end-to-end time of whole models on this CPU: predicted without the model, and measured.

    python -m tests.benchmarks.end_to_end [--again] [cost=boosted,...] [model ...]

For each model (at batch 1 and 4): what the cost models of this processor's profile say once every operator of that
architecture is taken out of the training data, summed over the graph, what the cache keeps of weights that are read
again taken off as the simulator takes it, with the 90% interval of the profile's residuals; and the module itself,
run by PyTorch on one pinned core in fresh processes, the same statistic (the profile's) on both sides. Each process
also executes the panel of operators before and after: what each sort of them takes longer than the profile says,
the model's are predicted to take longer (``now``: all of them together). A command that was interrupted goes on where
it stopped; ``--again`` takes the times that were measured last; ``cost=`` fits these cost models alone (networks
take most of the time). Prints a row a model and batch, then mean and worst errors of each cost model, with that
correction, without it, and with cold code not told apart in it, and the share of intervals that hold the measured time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.runs.atomic import write_json
from experiments.runs.results import read_document
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from experiments.probes.machine_speed import MachineSpeed
    from simulator.model.cluster import Cluster
    from simulator.model.costs import GraphCosts
    from simulator.model.graph import DataflowGraph
    from simulator.model.weight_hit_curve import ReuseCurve

MODELS = (
    "resnet18", "resnet50", "mobilenet_v2", "googlenet", "inception_v3", "densenet121",
    "squeezenet1_1", "alexnet", "vgg16", "vit_b_16", "bert_base", "gpt2", "t5_small",
    "lstm_cells", "gru_cells", "wide_and_deep", "two_tower",
)  # fmt: skip
BATCHES = (1, 4)
COST_MODELS = ("boosted", "mlp", "polynomial", "ensemble", "roofline")
PROCESSES, SECONDS, PANEL_RUNS = 4, 1.5, 3
DRAWS = 1000
MEASURED = Path("outputs/benchmarks/end_to_end.json")


def profile_here() -> str:
    """The shipped profile of a core of this machine's processor, or of the first one where there is none."""
    from calibration.environment import device_name
    from cost_models.profile_files import available

    own = device_name("cpu")
    return own if own in available() else "amd-epyc-25-17-1core"


PROFILE = profile_here()


class Predicted(NamedTuple):
    """What a cost model says of a whole model, seconds.

    Attributes:
        total: at the machine's speed.
        low, high: its 90% interval; NaN where the profile keeps no residuals of this cost model.
        plain: at the profile's speed.
        alike: at the machine's speed, cold code not told apart.
        outside: share of the time that is extrapolated.
    """

    total: float
    low: float
    high: float
    plain: float
    alike: float
    outside: float


def model_config(name: str) -> Any:
    """The shipped configuration of a model."""
    from experiments import sweep
    from experiments.runs.command import Invocation

    words = (f"model={name}", "cluster=cpu2", "name=end_to_end")
    task = sweep.plan_sweep(Invocation("experiments.sweep", words, ())).todo[0]
    return task.scenario.model


def refuse_unknown(names: Sequence[str]) -> None:
    """End with a sentence that names a model which is not shipped, before anything is measured."""
    from experiments.runs import catalog

    for name in names:
        if catalog.entry("model", name) is None:
            raise SystemExit(str(catalog.unknown("model", name)))


def one_core(cache: ReuseCurve | None = None, profile: str | None = None) -> Cluster:
    """A cluster of the core alone; ``cache`` is what its cache keeps of weights, ``profile`` this processor's unless
    another is named.
    """
    from simulator.model.cluster import Cluster, Device, MemorySpace

    space = MemorySpace("ram", cache=cache)
    return Cluster("core", [space], [Device("core", "ram", profile or PROFILE)], host="ram")


def prepare_process() -> None:
    """This process computes on one core as those do that calibrate it."""
    from calibration import environment

    environment.steady_allocator()
    environment.raise_priority()
    environment.flush_denormals()
    import torch

    torch.set_num_threads(1)


def timed_calls(module: Any, inputs: Any) -> list[float]:
    """Seconds of every call of a module, for :data:`SECONDS`."""
    from scenarios.outputs import eagerly

    found: list[float] = []
    with eagerly():
        for _ in range(3):
            module(*inputs.args, **inputs.kwargs)
        end = time.perf_counter() + SECONDS
        while len(found) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            module(*inputs.args, **inputs.kwargs)
            found.append(time.perf_counter() - start)
    return found


def measured_here(name: str, batch: int) -> dict[str, Any]:
    """Seconds of every call of the module in this process, and of the panel's operators in each run."""
    from calibration.runner import Machine
    from calibration.workers import workers_for
    from cost_models.profile import Profile
    from experiments.probes.cache_now import caches_json
    from experiments.probes.panel import PanelRuns
    from scenarios.model_config import load_model

    prepare_process()
    module, inputs = load_model(model_config(name), batch)
    cluster = one_core(Profile.load(PROFILE).reuse)
    # The worker has this core, too: it must not spin there.
    with Machine(cluster, workers_for(cluster), spin=False) as machine:
        panel = PanelRuns(machine)
        for _ in range(PANEL_RUNS):
            panel.run()
        calls = timed_calls(module, inputs)
        for _ in range(PANEL_RUNS):
            panel.run()
        return {
            "calls": calls,
            "panel": [run.tolist() for run in panel.alone[0]],
            "caches": caches_json(panel.caches.runs()),
        }


def measured(name: str, batch: int, core: int) -> dict[str, Any]:
    """What a fresh process bound to a core measures."""
    words = ("--measure", name, str(batch))
    found: dict[str, Any] = in_process("tests.benchmarks.end_to_end", words, core)
    return found


def in_process(benchmark: str, words: Sequence[str], core: int) -> Any:
    """What a fresh process of a benchmark, bound to a core, prints last, as JSON.

    Raises:
        SystemExit: it failed.
    """
    command = ["taskset", "-c", str(core), sys.executable, "-m", benchmark, *words]
    answer = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    if answer.returncode:
        raise SystemExit(
            f"The process {' '.join(words)} ended with {answer.returncode} and said:\n{answer.stderr}"
            "What was measured before is kept; the same command goes on from there."
        )
    return json.loads(answer.stdout.splitlines()[-1])


def left_by_the_cache(
    graph: DataflowGraph, costs: GraphCosts, curve: ReuseCurve | None
) -> np.ndarray:
    """float64[operators]: the part of each time that an operator takes in a graph that is executed again and
    again: of weights that were used a short while ago, some are still in the cache.
    """
    from simulator.devices.weight_cache import WeightCaches

    caches = WeightCaches(one_core(curve))
    executions = [
        [caches.execute(costs, graph, position, 0) for position in range(len(graph))]
        for _ in range(20)  # a use leaves only a part of what it did not find
    ]
    return np.array(executions[-1])


def predicted(
    name: str, speeds: Mapping[int, MachineSpeed], cost_models: Sequence[str]
) -> dict[int, dict[str, Predicted]]:
    """By batch and cost model, without the model."""
    from cost_models.pricing import price_graphs
    from cost_models.profile import Profile, row_keys
    from cost_models.uncertainty import draw_factors
    from scenarios.model_config import graph_of

    profile = Profile.load(PROFILE)
    graphs = {batch: graph_of(model_config(name), batch) for batch in BATCHES}
    kinds = {o.kind for graph in graphs.values() for o in graph.operators}
    unseen = profile.without(name, models=cost_models, only=kinds, seed=0)
    found: dict[int, dict[str, Predicted]] = {}
    for batch, graph in graphs.items():
        keys = row_keys(graph.operators)
        order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        identity = np.array([order[key] for key in keys])
        labels = [operator.kind for operator in graph.operators]
        for model in cost_models:
            priced = price_graphs(
                [graph], [unseen.name], {unseen.name: unseen}, model=model, cached=True
            )[graph]
            inside = np.ones(len(graph), bool) if priced.in_range is None else priced.in_range[:, 0]
            curves = speeds[batch].reuse.get("ram", (profile.reuse,))
            kept = [left_by_the_cache(graph, priced, curve) for curve in curves]
            times = priced.seconds[:, 0] * left_by_the_cache(graph, priced, profile.reuse)
            slowed, alike = (
                priced.seconds[:, 0] * speed.factors(graph, [profile], priced.seconds)[:, 0]
                for speed in (speeds[batch], speeds[batch].without_cold())
            )
            totals = [
                float(
                    (slowed * kept[number % len(kept)])
                    @ draw_factors(
                        profile.residuals[model],
                        labels,
                        identity,
                        np.random.default_rng([0, number]),
                    )
                )
                for number in range(DRAWS if profile.residuals.get(model) else 0)
            ]
            low, high = np.percentile(totals, [5, 95]) if totals else (np.nan, np.nan)
            found.setdefault(batch, {})[model] = Predicted(
                float(slowed @ kept[0]),
                float(low),
                float(high),
                float(times.sum()),
                float(alike @ kept[0]),
                float(times[~inside].sum() / times.sum()),
            )
    return found


def measured_before() -> list[dict[str, Any]]:
    """What processes of the last command measured with this profile, interrupted or not.

    Raises:
        SystemExit: the file of them is damaged.
    """
    if not MEASURED.is_file():
        return []
    try:
        document = read_document(MEASURED)
    except InvalidInput as error:
        raise SystemExit(f"{error}; delete it, and the models are measured anew") from None
    processes: list[dict[str, Any]] = document["processes"]
    return processes if document["profile"] == PROFILE else []


def measure_all(names: Sequence[str], core: int) -> list[dict[str, Any]]:
    """What every process measured; all of them before anything is fitted, which keeps a machine busy.

    A command that was interrupted is gone on with; one that ended is begun anew.
    """
    # Round by round: a host that is slow for a while is slow for all.
    cases = [(name, batch) for _ in range(PROCESSES) for name in names for batch in BATCHES]
    found = measured_before()
    done = [(entry["model"], entry["batch"]) for entry in found]
    if done == cases or done != cases[: len(done)]:
        found = []
    for number, (name, batch) in enumerate(cases[len(found) :], len(found) + 1):
        print(f"process {number} of {len(cases)}: {name} x{batch}", file=sys.stderr, flush=True)
        found.append({"model": name, "batch": batch, **measured(name, batch, core)})
        write_json(MEASURED, {"profile": PROFILE, "processes": found})
    return found


def summarised(
    found: Sequence[dict[str, Any]], quantile: float
) -> dict[tuple[str, int], tuple[float, MachineSpeed]]:
    """By model and batch: seconds as measured, and how fast the machine was."""
    from cost_models.profile import Profile
    from experiments.probes.cache_now import all_runs, caches_of
    from experiments.probes.machine_speed import PanelTimes
    from experiments.runs.configs import CostModelConfig

    times = PanelTimes(one_core(), {PROFILE: Profile.load(PROFILE)}, CostModelConfig("boosted"))
    cases: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for entry in found:
        cases.setdefault((entry["model"], entry["batch"]), []).append(entry)

    def statistic(seconds: np.ndarray) -> float:
        return float(np.quantile(seconds, quantile))

    return {
        case: (
            statistic(np.concatenate([entry["calls"] for entry in entries])),
            times.speed(
                [[np.array(r) for e in entries for r in e["panel"]]],
                [],
                statistic,
                caches=all_runs([caches_of(e.get("caches", {})) for e in entries]),
            ),
        )
        for case, entries in cases.items()
    }


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    if arguments[:1] == ["--measure"]:
        print(json.dumps(measured_here(arguments[1], int(arguments[2]))))
        return 0
    from calibration.environment import cores_for
    from calibration.summary import STATISTICS
    from cost_models.profile import Profile

    (core,) = cores_for(1)
    profile = Profile.load(PROFILE)
    quantile = STATISTICS[profile.statistic or "minimum"]
    asked = [
        word.removeprefix("cost=").split(",") for word in arguments if word.startswith("cost=")
    ]
    cost_models = asked[-1] if asked else list(COST_MODELS)
    if wrong := [model for model in cost_models if model not in COST_MODELS]:
        raise SystemExit(f"No cost model '{wrong[0]}' here; there are {', '.join(COST_MODELS)}")
    options = ("--again", "cost=")
    names = [word for word in arguments if not word.startswith(options)] or list(MODELS)
    refuse_unknown(names)
    if "--again" in arguments:
        found = [entry for entry in measured_before() if entry["model"] in names]
        there = {(entry["model"], entry["batch"]) for entry in found}
        names = [name for name in names if all((name, batch) in there for batch in BATCHES)]
        if not names:
            raise SystemExit(f"Nothing was measured with {PROFILE} yet: leave --again out")
    else:
        found = measure_all(names, core)
    took = summarised(found, quantile)
    print(f"{PROFILE}: predicted / measured - 1; interval: {cost_models[0]}, 90%; core {core}")
    heads = ["model", "batch", "measured ms", "now", *cost_models, "interval ms", "extrapolated"]
    print(f"| {' | '.join(heads)} |")
    print(f"|{'---|' * len(heads)}")
    errors: dict[str, list[float]] = {model: [] for model in cost_models}
    uncorrected: dict[str, list[float]] = {model: [] for model in cost_models}
    alike: dict[str, list[float]] = {model: [] for model in cost_models}
    inside: dict[str, list[bool]] = {model: [] for model in cost_models}
    for name in names:
        by_batch = predicted(name, {batch: took[name, batch][1] for batch in BATCHES}, cost_models)
        for batch, by_model in by_batch.items():
            seconds, _ = took[name, batch]
            cells = []
            for model, one in by_model.items():
                errors[model].append(one.total / seconds - 1)
                uncorrected[model].append(one.plain / seconds - 1)
                alike[model].append(one.alike / seconds - 1)
                if not np.isnan(one.low):
                    inside[model].append(one.low <= seconds <= one.high)
                cells.append(f"{one.total / seconds - 1:+.1%}")
            one = by_model[cost_models[0]]
            print(
                f"| {name} | {batch} | {seconds * 1e3:.2f} | {one.total / one.plain:.3f} | "
                f"{' | '.join(cells)} | {one.low * 1e3:.2f}-{one.high * 1e3:.2f} | {one.outside:.0%} |",
                flush=True,
            )
    for model in cost_models:
        off = np.abs(errors[model])
        held = f"holds {np.mean(inside[model]):.0%} of {len(off)}" if inside[model] else "unknown"
        print(
            f"{model}: mean {off.mean():.1%}, median {np.median(off):.1%}, worst {off.max():.1%}, bias "
            f"{np.mean(errors[model]):+.1%}; 90% interval {held}; uncorrected mean "
            f"{np.abs(uncorrected[model]).mean():.1%}, cold code not told apart "
            f"{np.abs(alike[model]).mean():.1%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
