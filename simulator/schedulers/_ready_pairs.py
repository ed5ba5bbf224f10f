"""What on-line schedulers share that choose task and device together."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.model.graph import DataflowGraph
from simulator.planners.pairs import PairRule, Pairs
from simulator.schedulers._pricing import check_pricing, data_ready, sees_links


class ReadyPairs(Scheduler):
    """Of all ready tasks and all devices, the most urgent pair is placed next, until none is left.

    A placement changes when its device is available, and what it sends changes the price of data for
    those who read the same tensor there, or, where the pricing knows what links carry, for all. Only
    that is priced again.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
    """

    rule: ClassVar[PairRule]

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._aware = sees_links(pricing)
        self._levels: dict[DataflowGraph, np.ndarray] = {}

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        tasks = context.placeable
        if not tasks:
            return
        space_of = context.cluster.space_of
        devices = range(len(space_of))
        pairs = Pairs(len(devices), self.rule)
        free = np.array(context.availabilities(devices))
        readers: dict[int, list[int]] = {}  # by tensor that lies somewhere
        for task in tasks:
            for item in context.inputs(task):
                if item.space != EVERYWHERE:
                    readers.setdefault(item.tensor, []).append(task)
            seconds = np.array(context.seconds(task))
            level = self._levels_of(context, task)[context.operator_of(task)]
            row = pairs.add(task, seconds, level, self._data(context, task))
            pairs.set_starts(row, slice(None), np.maximum(pairs.data[row], free))
        while pairs.count:
            row, device = pairs.next()
            task = int(pairs.task[row])
            if context.explain:
                name = context.cluster.devices[device].name
                text = self.rule.compared(device, pairs.urgency(row))
                level = f"level {pairs.level[row, device]:.6g}"
                context.explain(f"{context.label(task)} ({level}) -> {name}: {text}")
            space = space_of[device]
            sent = [
                item.tensor
                for item in context.inputs(task)
                if item.space != EVERYWHERE and context.copy_time(item.tensor, space) is None
            ]
            context.place(task, device)
            pairs.remove(row)
            if not pairs.count:
                return
            free[device] = context.available(device)
            others = {reader for tensor in sent for reader in readers[tensor]}
            if len(others) > 1 or (sent and self._aware):
                self._price_again(context, pairs, others, free)
            rows = slice(pairs.count)
            pairs.set_starts(rows, device, np.maximum(pairs.data[rows, device], free[device]))

    def _price_again(
        self, context: SchedulingContext, pairs: Pairs, others: set[int], free: np.ndarray
    ) -> None:
        """After something was sent that ``others`` read, too."""
        for row in range(pairs.count):
            if not self._aware and int(pairs.task[row]) not in others:
                continue
            pairs.data[row] = self._data(context, int(pairs.task[row]))
            pairs.set_starts(row, slice(None), np.maximum(pairs.data[row], free))

    def _data(self, context: SchedulingContext, task: int) -> np.ndarray:
        """float64[devices]: when a task's data could be there; 0 where it cannot run."""
        able = context.able(task)
        found = np.zeros(len(context.cluster.devices))
        found[list(able)] = data_ready(context, task, able, self.pricing)
        return found

    def _levels_of(self, context: SchedulingContext, task: int) -> np.ndarray:
        job = context.job_of(task)
        graph = context.jobs[job].graph
        if graph not in self._levels:
            self._levels[graph] = self.rule.levels(graph, context.cost_matrix(job))
        return self._levels[graph]
