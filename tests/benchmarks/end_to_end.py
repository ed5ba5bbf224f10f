"""Serial end-to-end time of whole models on this CPU: predicted without the model, and measured.

    python -m tests.benchmarks.end_to_end [--again] [model ...]

For each model (at batch 1 and 4): what the profile's cost models say once every operator of that
architecture is taken out of the training data, summed over the graph, with the 90% interval of the
profile's residuals; and the module itself, run by PyTorch on one pinned core in fresh processes, the
same statistic (the profile's) on both sides. ``--again`` takes the times that were measured last. Prints a row a model and batch, then mean and worst errors
of each cost model and the share of intervals that hold the measured time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

PROFILE = "amd-epyc-1core"
MODELS = (
    "resnet18", "resnet50", "mobilenet_v2", "googlenet", "inception_v3", "densenet121",
    "squeezenet1_1", "alexnet", "vgg16", "vit_b_16", "bert_base", "gpt2", "t5_small",
    "lstm_cells", "gru_cells", "wide_and_deep", "two_tower",
)  # fmt: skip
BATCHES = (1, 4)
COST_MODELS = ("boosted", "mlp", "polynomial", "ensemble", "roofline")
PROCESSES, SECONDS = 4, 1.5
DRAWS = 1000
MEASURED = Path("outputs/benchmarks/end_to_end.json")


def model_config(name: str) -> Any:
    """The shipped configuration of a model."""
    from experiments import sweep
    from experiments.command import Invocation

    words = (f"model={name}", "cluster=cpu2", "name=end_to_end")
    task = sweep.plan_sweep(Invocation("experiments.sweep", words, ())).todo[0]
    return task.scenario.model


def measured_here(name: str, batch: int) -> list[float]:
    """Seconds of every call of the module, in this process."""
    from calibration import environment
    from scenarios.model_config import load_model

    environment.steady_allocator()
    environment.raise_priority()
    import torch

    torch.set_num_threads(1)
    module, inputs = load_model(model_config(name), batch)
    found: list[float] = []
    with torch.inference_mode():
        for _ in range(3):
            module(*inputs.args, **inputs.kwargs)
        end = time.perf_counter() + SECONDS
        while len(found) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            module(*inputs.args, **inputs.kwargs)
            found.append(time.perf_counter() - start)
    return found


def measured(name: str, batch: int, core: int) -> list[float]:
    """Seconds of all calls in a fresh process bound to a core."""
    command = ["taskset", "-c", str(core), sys.executable, "-m", "tests.benchmarks.end_to_end"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    answer = subprocess.run(
        [*command, "--measure", name, str(batch)],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    calls: list[float] = json.loads(answer.stdout.splitlines()[-1])
    return calls


def predicted(name: str) -> dict[int, dict[str, tuple[float, float, float, float]]]:
    """Total seconds, 90% interval and extrapolated share by batch and cost model, without the model."""
    from cost_models.profile import Profile, row_keys
    from cost_models.uncertainty import draw_factors
    from scenarios.model_config import graph_of

    profile = Profile.load(PROFILE)
    graphs = {batch: graph_of(model_config(name), batch) for batch in BATCHES}
    kinds = {o.kind for graph in graphs.values() for o in graph.operators}
    unseen = profile.without(name, models=COST_MODELS, only=kinds, seed=0)
    found: dict[int, dict[str, tuple[float, float, float, float]]] = {}
    for batch, graph in graphs.items():
        keys = row_keys(graph.operators)
        order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        identity = np.array([order[key] for key in keys])
        labels = [operator.kind for operator in graph.operators]
        for model in COST_MODELS:
            priced = unseen.price(graph.operators, model=model)
            totals = [
                float(
                    priced.seconds
                    @ draw_factors(
                        profile.residuals.get(model, {}),
                        labels,
                        identity,
                        np.random.default_rng([0, number]),
                    )
                )
                for number in range(DRAWS)
            ]
            total = float(priced.seconds.sum())
            low, high = np.percentile(totals, [5, 95])
            outside = float(priced.seconds[~priced.in_range].sum()) / total
            found.setdefault(batch, {})[model] = (total, float(low), float(high), outside)
    return found


def measure_all(names: Sequence[str], core: int, quantile: float) -> dict[tuple[str, int], float]:
    """Seconds by model and batch; all of them before anything is fitted, which keeps a machine busy.

    They are kept, for predictions of other profiles (``--again``).
    """
    calls: dict[tuple[str, int], list[float]] = {}
    # Round by round: a host that is slow for a while is slow for all.
    for _ in range(PROCESSES):
        for name in names:
            for batch in BATCHES:
                calls.setdefault((name, batch), []).extend(measured(name, batch, core))
    took = {case: float(np.quantile(seconds, quantile)) for case, seconds in calls.items()}
    MEASURED.parent.mkdir(parents=True, exist_ok=True)
    MEASURED.write_text(json.dumps([[*case, seconds] for case, seconds in took.items()]))
    return took


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    if arguments[:1] == ["--measure"]:
        print(json.dumps(measured_here(arguments[1], int(arguments[2]))))
        return 0
    from calibration.environment import cores_for
    from calibration.summary import STATISTICS
    from cost_models.profile import Profile

    (core,) = cores_for(1)
    print(f"predicted / measured - 1; interval: {COST_MODELS[0]}, 90%; core {core}")
    print(
        f"| model | batch | measured ms | {' | '.join(COST_MODELS)} | interval ms | extrapolated |"
    )
    print(f"|{'---|' * (5 + len(COST_MODELS))}")
    quantile = STATISTICS[Profile.load(PROFILE).statistic or "minimum"]
    names = [name for name in arguments if name != "--again"] or list(MODELS)
    if "--again" in arguments:
        rows = json.loads(MEASURED.read_text())
        took = {(name, batch): seconds for name, batch, seconds in rows if name in names}
        names = list(dict.fromkeys(name for name, _ in took))
    else:
        took = measure_all(names, core, quantile)
    errors: dict[str, list[float]] = {model: [] for model in COST_MODELS}
    inside: dict[str, list[bool]] = {model: [] for model in COST_MODELS}
    for name in names:
        by_batch = predicted(name)
        for batch, by_model in by_batch.items():
            seconds = took[name, batch]
            cells = []
            for model, (total, low, high, _) in by_model.items():
                errors[model].append(total / seconds - 1)
                inside[model].append(low <= seconds <= high)
                cells.append(f"{total / seconds - 1:+.1%}")
            _, low, high, outside = by_model[COST_MODELS[0]]
            print(
                f"| {name} | {batch} | {seconds * 1e3:.2f} | {' | '.join(cells)} | "
                f"{low * 1e3:.2f}-{high * 1e3:.2f} | {outside:.0%} |",
                flush=True,
            )
    for model in COST_MODELS:
        off = np.abs(errors[model])
        print(
            f"{model}: mean {off.mean():.1%}, median {np.median(off):.1%}, worst {off.max():.1%}, bias "
            f"{np.mean(errors[model]):+.1%}; 90% interval holds {np.mean(inside[model]):.0%} of {len(off)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
