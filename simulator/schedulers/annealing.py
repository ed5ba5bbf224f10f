"""Simulated annealing of a whole plan.

Source: Kirkpatrick, Gelatt, Vecchi, "Optimization by Simulated Annealing", Science 220(4598):671-680,
1983, doi:10.1126/science.220.4598.671.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.plan import Plan
from simulator.schedulers._search import Problem, SearchPlanner


class Annealing(SearchPlanner):
    """From the best seed on: change devices or the order a little, keep what is better, and what is
    worse by d with probability exp(-d / T); T falls from ``hot`` to ``cold`` geometrically, both in
    units of the best seed's makespan over the number of tasks. The best plan ever seen is the result.

    Args:
        budget: plans to evaluate for each job, seeds included.
        seed: of the search.
        hot: first temperature.
        cold: last temperature.
    """

    name: ClassVar[str] = "annealing"

    def __init__(
        self, budget: int = 10_000, seed: int = 0, hot: float = 0.3, cold: float = 0.01
    ) -> None:
        super().__init__(budget, seed)
        if not 0 < cold <= hot < math.inf:
            raise InvalidInput(
                f"Scheduler 'annealing' has temperatures hot {hot} and cold {cold}; they must be "
                "positive, and cold at most hot"
            )
        self.hot, self.cold = hot, cold

    def search(self, problem: Problem, rng: np.random.Generator) -> Plan:
        """See :class:`SearchPlanner`."""
        from simulator.planners import moves

        best = problem.seeds[0]
        steps = self.budget - len(problem.seeds)
        scale = (best.makespan_s - problem.job.arrival) / len(problem.graph)
        if steps <= 0 or scale <= 0:
            return best
        able, graph, evaluate = problem.able, problem.graph, problem.evaluator.evaluate
        before, after = graph.predecessors_csr, graph.successors_csr
        rows = [part for csr in (able, before, after) for part in (csr.offsets, csr.values)]
        device, order = best.device.copy(), best.order.copy()
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        undo = np.empty(moves.ROOM, dtype=np.int64)
        current = found = best.makespan_s
        kept = best.device, best.order
        cooling = (self.cold / self.hot) ** (1 / steps)
        temperature = self.hot * scale
        block = 1024
        for step in range(steps):
            if step % block == 0:
                draws = rng.random((block, moves.DRAWS))
                # exp(-d / T) > u is d < -T log u.
                thresholds = -np.log1p(-rng.random(block))
            moves.change(draws[step % block], device, order, position, *rows, undo)
            makespan = evaluate(device, order)
            if makespan - current <= temperature * thresholds[step % block]:
                current = makespan
                if makespan < found:
                    found, kept = makespan, (device.copy(), order.copy())
            else:
                moves.take_back(device, order, position, undo)
            temperature *= cooling
        if found == best.makespan_s:
            return best
        return problem.evaluator.plan(self.name, *kept, found)
