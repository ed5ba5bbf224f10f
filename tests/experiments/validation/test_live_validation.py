"""Both worlds on this machine's own two cores: loose bounds, figures printed (``pytest -s`` shows them).

The operator times are measured here and now, so that the bounds are of the simulator and the runner and
not of a profile of another machine.
"""

import os
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibration.runner import Machine  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from experiments.probes.overhead import Overhead, with_overhead  # noqa: E402
from experiments.runs.world import World  # noqa: E402
from experiments.validation.cases import durations  # noqa: E402
from experiments.validation.contestants import plan_grid  # noqa: E402
from experiments.validation.measured_runs import busy_cores  # noqa: E402
from experiments.validation.simulated_vs_measured import Hardware  # noqa: E402
from scenarios.model_config import graph_of  # noqa: E402
from scenarios.partition.partitioner import Problem  # noqa: E402
from scenarios.training.parallel_training import ParallelTraining  # noqa: E402
from simulator.engine.run import simulate  # noqa: E402
from simulator.model.cluster import Cluster, Device, Link, MemorySpace  # noqa: E402
from simulator.model.costs import CostTable, GraphCosts  # noqa: E402
from simulator.model.workload import Job, Workload  # noqa: E402
from simulator.schedulers import create  # noqa: E402
from simulator.schedulers.planned import Planned  # noqa: E402

FACTOR = 3.0
"""Between simulated and measured makespan."""
PATIENCE_S = 30.0
"""For a run that other processes leave alone."""
BUSY = 0.5
"""Cores that others keep busy, from which they may be what a run waits for."""
MODELS = ("squeezenet1_1 model.parameters.image_size=64", "gru_cells model.parameters.steps=8")
SCHEDULERS = ("heft", "mct", "fcfs")
CORES = sorted(os.sched_getaffinity(0))


@pytest.mark.skipif(len(CORES) < 2, reason="needs 2 cores that this process may use")
@pytest.mark.parametrize("words", MODELS)
def test_what_is_simulated_is_what_happens(words, home_as_others_see_it):
    home = home_as_others_see_it  # its probes are the commands' own
    name, size = words.split()
    plan = plan_grid([f"model={name}", size, "scheduler=heft", "cluster=here"], (home / "conf",))
    scenario = plan.groups[0].scenario
    graph = graph_of(scenario.model)
    cluster = Cluster(
        "two", [MemorySpace("ram")], [Device("one", "ram"), Device("three", "ram")], host="ram"
    )
    workers = {
        "one": WorkerSpec("cpu", (CORES[0],)),
        "three": WorkerSpec("cpu", (CORES[1],), repeat_kernel=3),
    }
    guess = CostTable.of(graph, np.tile([1e-4, 3e-4], (len(graph), 1)))
    with Machine(cluster, workers) as machine:
        world = World("live", graph, cluster, guess, [], None)
        hardware = Hardware(machine, world, scenario, limit=60.0)
        jobs = hardware.one_job()
        alone = np.full(guess[graph].seconds.shape, np.nan)
        gaps = []
        for column, device in enumerate(("one", "three")):
            runs = [
                hardware.run(jobs, create("single_device", device=device), cluster)
                for _ in range(6)
            ]
            times = durations(runs[1:], *alone.shape)
            alone[:, column] = times.min(axis=0)[:, column]
            rows = runs[-1].executions
            gaps.append(np.median(rows["start"][1:] - rows["finish"][:-1]))
        costs = hardware.costs = CostTable.of(graph, alone)
        believed = with_overhead(cluster, Overhead(float(np.mean(gaps))))
        print(f"\n{name}: {len(graph)} operators, {np.mean(gaps) * 1e6:.0f} us between two")
        for scheduler in SCHEDULERS:
            simulated = simulate(jobs, believed, costs, create(scheduler)).makespan
            # The shortest of some: what else the machine does only ever makes a run longer.
            measured, patience = np.inf, time.monotonic() + PATIENCE_S
            while measured == np.inf or not 1 / FACTOR < simulated / measured < FACTOR:
                if time.monotonic() > patience:
                    break
                run = [hardware.run(jobs, create(scheduler), believed).makespan for _ in range(5)]
                measured = min(measured, *run)
            print(
                f"  {scheduler}: simulated {simulated * 1e3:.2f} ms, measured {measured * 1e3:.2f} ms, "
                f"{simulated / measured - 1:+.0%}"
            )
            if simulated / measured <= 1 / FACTOR and busy_cores() > BUSY:
                pytest.skip("other processes keep the cores busy")
            assert 1 / FACTOR < simulated / measured < FACTOR


@pytest.mark.skipif(len(CORES) < 2, reason="needs 2 cores that this process may use")
def test_a_pipelined_training_step_runs_as_planned(home_as_others_see_it):
    """Two stages in two memories: the losses are those of the same graph executed in its own order."""
    home = home_as_others_see_it
    words = ["model=gru_cells", "model.parameters.steps=2", "model.training=true", "model.batch=4"]
    grid = plan_grid([*words, "scheduler=heft", "cluster=here"], (home / "conf",))
    scenario = grid.groups[0].scenario
    whole = graph_of(scenario.model)
    cluster = Cluster(
        "two",
        [MemorySpace("here"), MemorySpace("there")],
        [Device("one", "here"), Device("two", "there")],
        [Link("net", ("here", "there"), 1e9)],
        host="here",
    )
    guess = CostTable.of(whole, np.full((len(whole), 2), 1e-4))
    problem = Problem(
        Workload([Job(whole, origin="here", destination="here")]),
        cluster,
        guess,
        Alike(),
        at_batch=lambda batch: graph_of(scenario.model, batch),
    )
    plan = ParallelTraining(micro_batches=2).plan(problem)
    (graph,) = plan.graphs
    workers = {
        name: WorkerSpec("cpu", (core,))
        for name, core in zip(("one", "two"), CORES[:2], strict=True)
    }
    with Machine(cluster, workers) as machine:
        world = World("live", graph, cluster, problem.price([graph]), [], None)
        hardware = Hardware(machine, world, scenario, limit=60.0)
        rows = hardware.run(hardware.one_job(), Planned(plan), cluster).executions
    assert np.array_equal(rows["device"][np.argsort(rows["operator"])], plan.device)
    for device in range(2):
        mine = rows["device"] == device
        started = rows["operator"][mine][np.argsort(rows["start"][mine], kind="stable")]
        ranks = np.argsort(plan.order)[started]
        assert (np.diff(ranks) > 0).all()


class Alike:
    """Prices every operator alike."""

    def price(self, graphs):
        return CostTable({g: GraphCosts(np.full((len(g), 2), 1e-4)) for g in graphs})
