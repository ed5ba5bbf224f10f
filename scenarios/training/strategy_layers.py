"""Layers of a traced training step as choices between data and model parallelism have them.

A layer begins at each forward operator that multiplies by a trained weight or looks up rows of one. It has all operators up
to the next such one: activation, normalisation, pooling; attention belongs to the last projection before it. Backward
operators belong to the layer that they undo, updates to the layer that they change (:mod:`scenarios.training.step`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cost_models.arithmetic import operator_flops
from cost_models.optimizer_steps import STATE
from scenarios.partition.partitioner import Problem
from scenarios.training.step import FORWARD, UPDATE, Step
from simulator.errors import InvalidInput
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.segments import Segments
from simulator.planners.layer_strategies import StrategyProblem
from simulator.planners.stages import Devices

NO_LIMIT = 1 << 30
"""Channels of a layer whose shapes are not known."""


@dataclass(frozen=True, eq=False)
class StrategyLayers:
    """A training step's layers.

    Attributes:
        graph: of the step.
        names: of each layer: what it begins with.
        layer: int64[operators], the layer of each operator.
        costs: times of 3 parts of each layer, whole: row ``3 l + phase``.
        launches: float64[3 layers, devices], seconds of submitting each part's operators but one, whatever their size.
        weights: float[layers], bytes of parameters.
        states: float[layers], bytes of the optimiser's states.
        outputs: float[layers], bytes of what the next layers read of each; of the last one what it begins with writes.
        inputs: float[layers], bytes of what each reads of earlier ones with a gradient.
        crossing: float[layers], bytes made up to each layer and read behind it.
        kept: float[layers], bytes that its backward pass reads of its forward pass.
        channels: int[layers].
        dense: bool[layers], no convolution.
    """

    graph: DataflowGraph
    names: tuple[str, ...]
    layer: np.ndarray
    costs: GraphCosts
    launches: np.ndarray
    weights: np.ndarray
    states: np.ndarray
    outputs: np.ndarray
    inputs: np.ndarray
    crossing: np.ndarray
    kept: np.ndarray
    channels: np.ndarray
    dense: np.ndarray

    @classmethod
    def of(cls, problem: Problem) -> StrategyLayers:
        """Those of the step that a problem has.

        Raises:
            InvalidInput: it has no training step, or one without a layer.
        """
        graph = problem.graph
        step = Step.of(graph)
        leads = _leads(step)
        if not leads:
            raise InvalidInput(f"'{graph.name}' has no layer with weights that could be shared")
        starts = [0, *(step.forward.index(lead) for lead in leads[1:])]
        layer = step.stages(np.array(step.forward)[starts])
        count, sizes = len(starts), graph.tensor_bytes
        weights, states, inputs, kept = np.zeros((4, count))
        change = np.zeros(count + 1)
        outputs = np.zeros(count)
        for operator in np.flatnonzero(step.phase == UPDATE).tolist():
            for tensor in graph.reads[operator]:
                if tensor in step.updates:
                    held = states if STATE in graph.tensors[tensor].name else weights
                    held[layer[operator]] += sizes[tensor]
        for operator in step.forward:
            for tensor in graph.writes[operator]:
                own, readers = int(layer[operator]), graph.consumers[tensor]
                kept[own] += sizes[tensor] * any(step.phase[r] != FORWARD for r in readers)
                later = {int(layer[r]) for r in readers if step.phase[r] == FORWARD} - {own}
                if later:
                    outputs[own] += sizes[tensor]
                    change[own] += sizes[tensor]
                    change[max(later)] -= sizes[tensor]
                    spec = graph.tensors[tensor].spec
                    if spec is None or "float" in spec.dtype:
                        inputs[list(later)] += sizes[tensor]
        outputs[-1] = sum(sizes[t] for t in graph.writes[leads[-1]])
        costs, launches = _part_costs(problem, layer * 3 + step.phase, 3 * count)
        return cls(
            *(graph, tuple(graph.operators[lead].name for lead in leads), layer, costs, launches),
            *(weights, states, outputs, inputs, np.cumsum(change)[:-1], kept),
            np.array([_channels(step, layer, n, lead) for n, lead in enumerate(leads)]),
            np.array([not graph.operators[lead].kind.startswith("conv") for lead in leads]),
        )

    def problem(self, asked: Problem, devices: list[int], overlap: bool) -> StrategyProblem:
        """Equal devices as slow as the slowest one of each layer, and joined as badly as the worst joined two.

        Raises:
            InvalidInput: two devices have no route between them.
        """
        count, known = len(devices), Devices.of(asked.cluster)
        between = known.bandwidth[np.ix_(devices, devices)]
        for a, b in np.argwhere(between == 0).tolist():
            raise InvalidInput(
                f"Devices '{known.names[devices[a]]}' and '{known.names[devices[b]]}' have no route between them; add a "
                "link, or name others in partition.options.devices"
            )
        # What does not shrink with the work is as much on each device.
        times = np.where(np.arange(len(self.launches)) % 3 == UPDATE, 1, count)[:, None]
        seconds = self.costs.seconds[:, devices] + times * self.launches[:, devices]
        forward, backward, update = seconds.max(axis=1).reshape(-1, 3).T
        return StrategyProblem(
            *(forward, backward, self.weights, self.outputs, self.inputs, self.crossing),
            channels=self.channels,
            dense=self.dense,
            batch=self.graph.batch or count,
            devices=count,
            bandwidth=float(between.min()),
            update=update,
            kept=self.kept,
            states=self.states,
            memory=float(known.memory[devices].min()) if asked.memory == "limited" else math.inf,
            overlap=overlap,
            names=self.names,
        )


def _leads(step: Step) -> list[int]:
    """Forward operators that layers begin with."""
    graph = step.graph
    trained = {t for t in step.updates if STATE not in graph.tensors[t].name}
    return [
        operator
        for operator in step.forward
        if trained.intersection(graph.reads[operator])
        and (
            graph.operators[operator].kind == "embedding"
            or operator_flops(graph.operators[operator]) != 0  # unknown work, too
        )
    ]


def _channels(step: Step, layer: np.ndarray, number: int, lead: int) -> int:
    """Output channels of a layer, or its attention's heads if they are fewer."""
    graph = step.graph
    outputs = graph.operators[lead].outputs
    if not outputs:
        return NO_LIMIT
    shape = outputs[0].shape
    found = shape[1] if graph.operators[lead].kind.startswith("conv") else shape[-1]
    weights = set(graph.weights)
    for operator in step.forward:
        row = graph.operators[operator]
        if layer[operator] != number or not operator_flops(row) or not row.outputs:
            continue
        heads, rest = divmod(math.prod(row.outputs[0].shape[:-2]), graph.batch or 1)
        if not weights.intersection(graph.reads[operator]) and heads > 1 and not rest:
            found = min(found, heads)
    return int(found)


def _part_costs(problem: Problem, parts: np.ndarray, count: int) -> tuple[GraphCosts, np.ndarray]:
    """Times of parts of a graph, 0 of parts without operators, and what submitting all but one operator takes."""
    graph, fine = problem.graph, problem.costs[problem.graph]
    numbers, dense = np.unique(parts, return_inverse=True)
    segments = Segments(graph, from_edges("parts", len(numbers), []), dense)
    own = segments.costs(fine)
    overhead = np.array([device.launch_overhead for device in problem.cluster.devices])
    row_of = np.full(count, -1)
    row_of[numbers] = np.arange(len(numbers))

    def column(values: np.ndarray | None, blank: float) -> np.ndarray | None:
        if values is None:
            return None
        found: np.ndarray = values[row_of]
        found[row_of < 0] = blank
        return found

    seconds = column(own.seconds, 0.0)
    launches = column((segments.members.lengths - 1)[:, None] * overhead, 0.0)
    assert seconds is not None
    assert launches is not None
    costs = GraphCosts(
        seconds, column(own.spread, 0.0), column(own.in_range, True), column(own.cached, 1.0)
    )
    return costs, launches


__all__ = ["StrategyLayers"]
