"""A genetic algorithm over whole plans.

Source: Wang, Siegel, Roychowdhury, Maciejewski, "Task Matching and Scheduling in Heterogeneous Computing
Environments Using a Genetic-Algorithm-Based Approach", J. Parallel Distrib. Comput. 47(1):8-22, 1997,
doi:10.1006/jpdc.1997.1392.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.plan import Plan
from simulator.schedulers._search import Problem, SearchPlanner


class Genetic(SearchPlanner):
    """Chromosomes are a device for every task and a topological order. A child takes the order of one
    parent up to a random place and goes on in that of the other, which keeps it topological, and the
    devices likewise; then it is changed a little. Parents are drawn by rank. Of plans of one makespan
    one is kept, and of a full population the better half.

    After the source, with these differences: the first generation is made of the seeds and of changed
    copies of them instead of random plans, every child is changed, and a change may move a run of
    tasks that follow one another to one device.

    Args:
        budget: plans to evaluate for each job, seeds included.
        seed: of the search.
        population: plans in a generation.
        crossover: probability that a child has two parents.
    """

    name: ClassVar[str] = "genetic"

    def __init__(
        self, budget: int = 10_000, seed: int = 0, population: int = 40, crossover: float = 0.6
    ) -> None:
        super().__init__(budget, seed)
        if isinstance(population, bool) or not isinstance(population, int) or population < 2:
            raise InvalidInput(
                f"Scheduler 'genetic' has population {population!r}; give an integer of at least 2"
            )
        if not 0 <= crossover <= 1:
            raise InvalidInput(
                f"Scheduler 'genetic' has crossover {crossover}; give a probability from 0 to 1"
            )
        self.population, self.crossover = population, crossover

    def search(self, problem: Problem, rng: np.random.Generator) -> Plan:
        """See :class:`SearchPlanner`."""
        from simulator.planners import moves

        able, graph, evaluate = problem.able, problem.graph, problem.evaluator.evaluate
        before, after = graph.predecessors_csr, graph.successors_csr
        rows = [part for csr in (able, before, after) for part in (csr.offsets, csr.values)]
        tasks = len(graph)
        position = np.empty(tasks, dtype=np.int64)
        seen = np.empty(tasks, dtype=np.bool_)
        undo = np.empty(moves.ROOM, dtype=np.int64)
        plans = [
            (seed.makespan_s, seed.device.copy(), seed.order.copy())
            for seed in problem.seeds[: self.population]
        ]
        left = self.budget - len(problem.seeds)
        survivors = self.population // 2
        # Rank k of n is drawn with a weight of n - k.
        weights = np.arange(self.population, 0, -1, dtype=np.float64)
        while left > 0:
            parents = plans
            share = weights[-len(parents) :].cumsum()
            share /= share[-1]
            count = min(left, max(self.population - min(len(parents), survivors), 1))
            if len(parents) < self.population:
                count = min(left, self.population - len(parents))
            picks = np.minimum(
                np.searchsorted(share, rng.random((count, 2)), side="right"), len(parents) - 1
            )
            both = rng.random(count) < self.crossover
            draws = rng.random((count, 5, moves.DRAWS))
            changes = np.minimum(rng.geometric(0.5, count), 4)
            children = []
            for k in range(count):
                one, two = (parents[pick] for pick in picks[k])
                device, order = one[1].copy(), one[2].copy()
                if both[k] and two is not one:
                    moves.cross(
                        draws[k, 4],
                        *one[1:],
                        *two[1:],
                        device,
                        order,
                        position,
                        seen,
                    )
                else:
                    position[order] = np.arange(tasks)
                for n in range(changes[k]):
                    moves.change(draws[k, n], device, order, position, *rows, undo)
                children.append((evaluate(device, order), device, order))
            left -= count
            if len(parents) >= self.population:
                parents = parents[:survivors]
            # The sort is stable: of equal plans the older one stays ahead. Of those of one makespan
            # one is enough, or all would soon be relatives.
            plans = []
            for plan in sorted(parents + children, key=lambda plan: plan[0]):
                if not plans or plan[0] > plans[-1][0]:
                    plans.append(plan)
        makespan, device, order = plans[0]
        return problem.evaluator.plan(self.name, device, order, makespan)
