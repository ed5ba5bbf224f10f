"""A training step whose layers each choose between data, model and hybrid parallelism, as a partition.

A search ranks choices by a closed form (:mod:`simulator.planners.layer_strategies`). The best few and the baselines become
graphs (:mod:`scenarios.training.strategy_graph`), which are simulated with contention; the fastest is taken. After thesis
000, reconstructed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.training.parallel_costs import costs_of
from scenarios.training.parallel_training import (
    check_peaks,
    order_between_kernels,
    spare_devices,
)
from scenarios.training.step import UPDATE
from scenarios.training.strategy_graph import divided_step
from scenarios.training.strategy_layers import StrategyLayers
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.plan import Plan
from simulator.model.units import format_bytes
from simulator.planners.integer_search import annealing, particle_swarm
from simulator.planners.layer_strategies import StrategyProblem, viterbi

BASELINES = ("all_data", "all_model", "one_weird_trick")
SEARCHES = ("pso", "viterbi", "annealing", *BASELINES)


class Strategy(Partitioner):
    """Divides each layer into data groups and model shards. See the module docstring.

    Args:
        search: ``pso``: a particle swarm that starts from the baselines; ``viterbi``: the closed form's optimum;
            ``annealing``; or a baseline: ``all_data``, ``all_model``, ``one_weird_trick`` (convolutions as data, the rest
            as shards).
        candidates: how many of the best choices that a search found are simulated, beside its baselines.
        overlap: gradients are summed beside the backward pass, on a spare device of the same memory where there is one
            (a stream, a thread), else between a device's own layers; false: behind the backward pass.
        particles: of the swarm.
        iterations: of the swarm, at most.
        budget: evaluations of annealing; None: as many as the swarm takes.
        seed: of swarm and annealing.
        devices: those that take part; all that can run everything unless given.
        alone: the whole step on one device is an answer, too, and is taken where it is faster.

    Raises:
        InvalidInput: an unknown search, or a number below one.
    """

    name: ClassVar[str] = "strategy"
    makes_graphs: ClassVar[bool] = True

    def __init__(
        self,
        search: str = "pso",
        candidates: int = 3,
        overlap: bool = True,
        particles: int = 30,
        iterations: int = 200,
        budget: int | None = None,
        seed: int = 0,
        devices: Sequence[str] | None = None,
        alone: bool = True,
    ) -> None:
        if search not in SEARCHES:
            raise InvalidInput(
                f"Partition 'strategy' has search={search}; known: {', '.join(SEARCHES)}"
            )
        for what, count in (
            ("candidates", candidates),
            ("particles", particles),
            ("iterations", iterations),
            ("budget", budget),
        ):
            if count is not None and count < 1:
                raise InvalidInput(f"Partition 'strategy' has {what}={count}; give 1 or more")
        self.search, self.candidates, self.overlap = search, candidates, overlap
        self.particles, self.iterations, self.budget = particles, iterations, budget
        self.seed, self.devices, self.beside_devices = seed, devices, alone

    def plan(self, problem: Problem) -> Plan:
        """See :class:`scenarios.partition.partitioner.Partitioner`.

        Raises:
            InvalidInput: several jobs, no training step, devices without a route between them, a layer that the devices
                cannot share, or memories that no choice fits into.
        """
        if len(problem.jobs) > 1:
            raise InvalidInput(
                f"Partition 'strategy' plans one job, a training step, and the workload has {len(problem.jobs)}; take "
                "workload=single"
            )
        devices = self._devices(problem)
        layers = StrategyLayers.of(problem)
        asked = layers.problem(problem, devices, self.overlap)
        chosen, evaluations = self._choices(asked)
        values = asked.fitness(np.array(list(chosen.values())))
        self._check_memory(asked, chosen)
        best: tuple[float, str, Plan] | None = None
        simulated = {}
        seen: dict[tuple[int, ...], float] = {}
        for name, choice in chosen.items():
            key = tuple(choice.tolist())
            if key not in seen:
                plan, seen[key] = self._simulated(problem, layers, devices, asked.shards[choice])
                if best is None or seen[key] < best[0]:
                    best = seen[key], name, plan
            simulated[name] = seen[key]
        assert best is not None
        _, name, plan = best
        shards = asked.shards[chosen[name]].tolist()
        closed = dict(zip(chosen, values.tolist(), strict=True))
        notes = {
            "search": self.search,
            "chosen": name,
            "groups_and_shards": {
                layer: [asked.devices // m, m]
                for layer, m in zip(layers.names, shards, strict=True)
            },
            "closed_form_s": closed,
            "optimum_s": float(asked.fitness(viterbi(asked)[None])[0]),
            "simulated_s": simulated,
            "evaluations": evaluations,
        }
        plan = dataclasses.replace(plan, notes=notes)
        if problem.memory == "limited":
            check_peaks(plan, problem)
        return plan

    def _devices(self, problem: Problem) -> list[int]:
        index, able = problem.cluster.device_index, problem.able()
        for name in self.devices or ():
            if name not in index:
                raise InvalidInput(
                    f"Partition 'strategy' names device '{name}', which cluster '{problem.cluster.name}' lacks; it has "
                    f"{', '.join(index)}"
                )
            if index[name] not in able:
                raise InvalidInput(
                    f"Device '{name}' cannot run every operator of the step; leave it out of partition.options.devices"
                )
        return able if self.devices is None else [index[name] for name in self.devices]

    def _choices(self, asked: StrategyProblem) -> tuple[dict[str, np.ndarray], int]:
        """Strategies by name, those of the search first, and how many evaluations it took."""
        given = {name: np.asarray(getattr(asked, name)) for name in BASELINES}
        if self.search in BASELINES:
            return {self.search: given[self.search]}, 1
        starts, levels = [row.tolist() for row in given.values()], len(asked.shards)
        if self.search == "viterbi":
            return {"viterbi": viterbi(asked), **given}, 1
        if self.search == "pso" or self.budget is None:
            found = particle_swarm(
                asked.fitness, levels, starts, self.seed, self.particles, self.iterations
            )
        if self.search == "annealing":
            budget = self.budget or found.evaluations
            found = annealing(asked.fitness, levels, starts, self.seed, budget)
        rows = zip(found.vectors, found.fitness.tolist(), strict=True)
        kept = [row for row, value in rows if np.isfinite(value)][: self.candidates]
        names = [self.search, *(f"{self.search} {n}" for n in range(2, len(kept) + 1))]
        return {**dict(zip(names, kept, strict=True)), **given}, found.evaluations

    def _check_memory(self, asked: StrategyProblem, chosen: dict[str, np.ndarray]) -> None:
        least = min(float(asked.bytes_held(choice[None])[0]) for choice in chosen.values())
        if least > asked.memory:
            raise InvalidInput(
                f"No choice of search={self.search} fits: the least takes {format_bytes(least)} on a device, for parameters, "
                f"gradients, states and activations, and the smallest holds {format_bytes(asked.memory)}; take more "
                "devices, a smaller batch or search=viterbi"
            )

    def _simulated(
        self, problem: Problem, layers: StrategyLayers, devices: list[int], shards: np.ndarray
    ) -> tuple[Plan, float]:
        """The plan of a choice and its makespan."""
        beside = spare_devices(problem.cluster, devices) if self.overlap else {}
        made = divided_step(
            *(layers, shards.tolist(), devices, beside, self.overlap),
            priced=problem.prices is not None,
        )
        priced = costs_of(made, _shared(layers, shards, len(devices)), problem, None)
        problem.know(made.graph, priced)
        order = order_between_kernels(problem, made, priced) if self.overlap else made.order
        names = tuple(device.name for device in problem.cluster.devices)
        plan = Plan(self.name, (made.graph,), names, made.device, order)
        (job,) = problem.jobs
        evaluator = problem.evaluator(
            dataclasses.replace(job, graph=made.graph), CostTable({made.graph: priced})
        )
        return plan, float(evaluator.evaluate(made.device, order))


def _shared(layers: StrategyLayers, shards: np.ndarray, count: int) -> GraphCosts:
    """Times of a device's share of each part: passes by all devices, updates by the layer's shards."""
    share = np.full(len(layers.costs.seconds), float(count))
    share[UPDATE::3] = shards
    seconds = layers.costs.seconds / share[:, None] + layers.launches
    return dataclasses.replace(layers.costs, seconds=seconds)


__all__ = ["BASELINES", "SEARCHES", "Strategy"]
