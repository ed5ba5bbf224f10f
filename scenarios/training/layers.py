"""Layers of a training step: runs of forward operators between places where little crosses, and what each one takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cost_models.optimizer_steps import STATE
from scenarios.partition.partitioner import Problem
from scenarios.training.step import FORWARD, UPDATE, Step
from simulator.planners.stages import Devices, StageProblem, from_the_end

MOST_LAYERS = 64
"""Layers that stages are made of."""


def layer_starts(step: Step, seconds: np.ndarray) -> list[int]:
    """Forward operators, by position, that layers begin with: in each stretch of equal time the one that least crosses.

    Args:
        step: of a micro-batch.
        seconds: float[operators, devices].
    """
    if len(step.forward) <= MOST_LAYERS:
        return list(range(len(step.forward)))
    spent = step.by_anchor(seconds).mean(axis=1)
    stretch = (np.cumsum(spent) - spent) / max(spent.sum(), 1e-30) * MOST_LAYERS
    crossing = crossing_bytes(step)
    found = {0: 0}
    for position in range(1, len(spent)):
        number = int(stretch[position])
        if number and (number not in found or crossing[position] < crossing[found[number]]):
            found[number] = position
    return sorted(found.values())


def crossing_bytes(step: Step) -> np.ndarray:
    """float[forward operators]: bytes that cross a cut before each one, forward and backward.

    A tensor crosses from the anchor of its producer to those of its consumers once.
    """
    graph, place = step.graph, np.searchsorted(step.forward, step.anchor)
    change = np.zeros(len(step.forward) + 1)
    for tensor, readers in enumerate(graph.consumers):
        producer = graph.producer[tensor]
        if producer < 0 or not readers:
            continue
        ends = [place[producer], *(place[reader] for reader in readers)]
        change[min(ends) + 1] += graph.tensor_bytes[tensor]
        change[max(ends) + 1 if max(ends) + 1 <= len(step.forward) else -1] -= graph.tensor_bytes[
            tensor
        ]
    return np.cumsum(change)[:-1]


def stage_problem(
    problem: Problem,
    step: Step,
    seconds: np.ndarray,
    workers: Sequence[Sequence[int]],
    micro_batches: int,
    firsts: list[int],
    schedule: str,
    recomputes: bool,
) -> StageProblem:
    """Layers and devices as the planner of stages has them; several shards of a worker are one device.

    Args:
        problem: its cluster and memory.
        step: of a micro-batch.
        seconds: float[operators, workers].
        workers: the devices of each.
        micro_batches: how many there are.
        firsts: of :func:`layer_starts`.
        schedule: decides how many micro-batches' activations a stage holds.
        recomputes: hardly any activations are kept.
    """
    graph, sizes = step.graph, step.graph.tensor_bytes
    once = (step.phase == UPDATE)[:, None]  # not with every micro-batch
    seconds = np.where(once, seconds / micro_batches, seconds)
    held = np.zeros((len(graph), 3))  # weights, states and stashed bytes by operator
    for operator in np.flatnonzero(step.phase == UPDATE).tolist():
        own = [t for t in graph.reads[operator] if t in step.updates]
        is_state = [STATE in graph.tensors[t].name for t in own]
        for tensor, state in zip(own, is_state, strict=True):
            held[operator, int(state)] += sizes[tensor]
    for operator in () if recomputes else step.forward:
        for tensor in graph.writes[operator]:
            if any(step.phase[reader] != FORWARD for reader in graph.consumers[tensor]):
                held[operator, 2] += sizes[tensor]
    table = np.add.reduceat(step.by_anchor(np.hstack([seconds, held])), firsts, axis=0)
    weights, states, stashed = table[:, len(workers) :].T
    crossing = crossing_bytes(step)[firsts] / 2  # each way
    known = Devices.of(problem.cluster)
    room = np.full(len(workers), np.inf)
    if problem.memory == "limited":
        room = np.array([known.memory[list(worker)].sum() for worker in workers])
    firstly = [worker[0] for worker in workers]
    between = known.bandwidth[np.ix_(firstly, firstly)]
    flying = {
        "gpipe": lambda stage, stages: micro_batches,
        "zb_h1": lambda stage, stages: stages,
    }.get(schedule, from_the_end)
    return StageProblem(
        table[:, : len(workers)],
        weights,
        stashed,
        [(layer, layer + 1, crossing[layer + 1]) for layer in range(len(firsts) - 1)],
        Devices(tuple(known.names[d] for d in firstly), between, room),
        micro_batches=micro_batches,
        states=round(states.sum() / weights.sum()) if weights.sum() else 0,
        in_flight=flying,
        stash_weights=schedule == "pipedream",
        names=[graph.operators[step.forward[first]].name for first in firsts],
    )


__all__ = ["MOST_LAYERS", "crossing_bytes", "layer_starts", "stage_problem"]
