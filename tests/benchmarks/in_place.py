"""What the measured state ``graph`` is worth: operators timed inside the running model, and by visits.

    python -m tests.benchmarks.in_place [model[:batch] ...] [--rounds N]

In one process on one core, in turns: the model's graph operator by operator, each timed where it stands, and
each distinct operator by a visit in state ``graph``, as calibrating times it. Prints the 10th percentiles and
the medians of both, summed over the model and by kind, and the module's own. Nothing but the state of the
caches differs between the two; a host that is slow for a while is slow for both.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calibration.networks import Network

if TYPE_CHECKING:
    import numpy as np

    from scenarios.model_config import ModelConfig

MODELS = ("mobilenet_v2", "mobilenet_v2:4", "resnet50", "googlenet", "squeezenet1_1", "bert_base")
ROUNDS, EXECUTIONS, UNCOUNTED = 8, 4, 2
LEAST_SHARE = 0.01
"""Of a model's time in place, that a kind has to be shown."""


class InPlace(Network):
    """A model and its graph, executed operator by operator.

    Args:
        config: of the model.
        batch: of its inputs; the configuration's unless given.
    """

    def __init__(self, config: ModelConfig, batch: int | None = None) -> None:
        from calibration.sequential import named_inputs, weights_of
        from scenarios.model_config import graph_of, load_model

        self.module, self.inputs = load_model(config, batch)
        graph = graph_of(config, batch)
        given = [*self.inputs.args, *self.inputs.kwargs.values()]
        by_name = weights_of(self.module, graph) | named_inputs(graph, given)
        tensors = (*graph.weights, *graph.inputs)
        super().__init__(graph, {t: by_name[graph.tensors[t].name] for t in tensors})

    def call(self) -> float:
        """Seconds of the module."""
        start = time.perf_counter()
        self.module(*self.inputs.args, **self.inputs.kwargs)
        return time.perf_counter() - start


def measure(model: InPlace, rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64[calls] seconds of the module, and float64[executions, operators] in place and by visits."""
    import numpy as np

    from calibration.timing import CpuTimer
    from cost_models.profile import row_keys

    timer = CpuTimer(("graph",))
    count = len(model.graph)
    reads: list[Sequence[Any]] = [()] * count

    def keep(position: int, seconds: float, arguments: Sequence[Any]) -> None:
        reads[position] = arguments

    model.execute(keep)
    keys = row_keys(model.graph.operators)
    first = {key: position for position, key in reversed([*enumerate(keys)])}
    calls, placed, visited = [], [], []
    for _ in range(rounds):
        for number in range(EXECUTIONS + UNCOUNTED):
            seconds = model.call()
            if number >= UNCOUNTED:
                calls.append(seconds)
        for _ in range(EXECUTIONS):
            row = np.empty(count)
            model.execute(lambda position, seconds, _, row=row: row.__setitem__(position, seconds))
            placed.append(row)
        by_key = {}
        for key in random.sample(list(first), len(first)):
            at = first[key]
            kernel = model.kernels[at]
            timings = timer.visit(
                lambda given, kernel=kernel: kernel(*given), reads[at], model.weights[at]
            )
            by_key[key] = float(np.mean([timing.seconds for timing in timings]))
        visited.append(np.array([by_key[key] for key in keys]))
    return np.array(calls), np.array(placed), np.array(visited)


def lines(
    kinds: Sequence[str], calls: np.ndarray, placed: np.ndarray, visited: np.ndarray
) -> list[str]:
    """Rows of the table: in all, then the kinds that take most."""
    import numpy as np

    found = []
    low = np.percentile(placed, 10, axis=0)
    took = {kind: sum(low[[kind == other for other in kinds]]) for kind in dict.fromkeys(kinds)}
    most_first = sorted(took, key=lambda kind: -took[kind])
    shown = [kind for kind in most_first if took[kind] >= LEAST_SHARE * low.sum()]
    for kind in ("all", *shown):
        mine = np.array([kind in ("all", other) for other in kinds])
        cells = []
        for quantile in (10, 50):
            here, there = (
                np.percentile(x[:, mine], quantile, axis=0).sum() for x in (placed, visited)
            )
            cells += [f"{here * 1e3:.2f}", f"{there * 1e3:.2f}", f"{there / here - 1:+.1%}"]
        module = f"{np.percentile(calls, 10) * 1e3:.2f}" if kind == "all" else ""
        found.append(f"{kind} | {mine.sum()} | {module} | {' | '.join(cells)}")
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    models = [(word, *word.partition(":")[::2]) for word in arguments.models]
    from tests.benchmarks.end_to_end import model_config, refuse_unknown

    refuse_unknown([name for _, name, _ in models])
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    from calibration import environment

    environment.pin(environment.cores_for(1))
    environment.steady_allocator()
    environment.raise_priority()
    import torch

    torch.set_num_threads(1)
    print(
        "| model | kind | operators | module, p10 ms | in place, p10 ms | visits | error | median ms | visits | "
        "error |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    with torch.inference_mode():
        for word, name, batch in models:
            model = InPlace(model_config(name), int(batch or 1))
            kinds = [operator.kind for operator in model.graph.operators]
            for line in lines(kinds, *measure(model, arguments.rounds)):
                print(f"| {word} | {line} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
