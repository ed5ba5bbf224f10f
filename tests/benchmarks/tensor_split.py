"""Split plans on two cores of this machine that count as two memories, in turns with all on one core.

``python -m tests.benchmarks.tensor_split model=bert_base cluster=rome2_apart [--runs N]`` prints medians and quartiles of
measured makespans beside those simulated at the profiles' speed. In turns, so that a host that is slow for a while is
slow for all; the first run of each is not counted.
"""

from __future__ import annotations

import argparse

import numpy as np

from experiments.runs.grid import compose_grid
from experiments.runs.prepare import partitioned, partitioner_of
from experiments.runs.world import unpartitioned
from simulator.model.plan import Plan
from simulator.schedulers.planned import Planned


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="+")
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()

    import torch

    from calibration.runner import Machine
    from calibration.sequential import named_inputs, results_of, weights_of
    from calibration.workers import workers_for
    from scenarios.model_config import load_model

    plans: dict[str, Plan] = {}
    simulated, costs = {}, {}
    for name in ("tensor_split", "eop"):
        (cell,) = compose_grid([*given.words, f"partition={name}", "scheduler=planned"]).cells
        world = unpartitioned(cell.scenario)
        made = partitioned(partitioner_of(cell.scenario), world, cell.scenario)
        plans[name], simulated[name], costs[name] = made.plan, made.plan.makespan_s, made.costs
        simulated |= {k: v for k, v in made.makespans.items() if k != name}
    jobs = tuple(world.workload(cell.scenario))
    plans["one core"] = Plan.single("one core", jobs, world.cluster, 0)
    first = world.cluster.devices[0].name
    simulated["one core"], costs["one core"] = simulated[f"all on {first}"], world.costs
    module, inputs = load_model(cell.scenario.model, jobs[0].batch)
    module.eval()
    found: dict[str, list[float]] = {name: [] for name in plans}
    expected = None
    with Machine(world.cluster, workers_for(world.cluster)) as machine:
        for plan in plans.values():
            machine.load(plan.graphs[0], weights_of(module, plan.graphs[0]))
        for _ in range(given.runs + 1):
            for name in ("one core", "tensor_split", "eop"):
                graph = plans[name].graphs[0]
                tensors = named_inputs(graph, [*inputs.args, *inputs.kwargs.values()])
                run = machine.run(graph, costs[name], Planned(plans[name]), {graph: tensors})
                results = results_of(graph, run.outputs[0])
                expected = expected or results
                for one, other in zip(results, expected, strict=True):
                    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
                found[name].append(run.trace.makespan)
    base = np.array(found["one core"][1:])
    for name, seconds in found.items():
        low, middle, high = np.quantile(seconds[1:], (0.25, 0.5, 0.75)) * 1e3
        ratio = float(np.median(base / np.array(seconds[1:])))
        print(
            f"{name:14} measured {middle:7.1f} ms ({low:.1f} to {high:.1f}), {ratio:.2f}x; simulated "
            f"{simulated[name] * 1e3:7.1f} ms, {simulated['one core'] / simulated[name]:.2f}x"
        )


if __name__ == "__main__":
    main()
