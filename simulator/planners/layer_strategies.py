"""Data, model or hybrid parallelism for each layer of a training step, and what a choice takes by closed forms.

Each layer divides ``N`` equal devices into ``d`` data groups of ``m`` model shards, ``d m = N``. Layer ``l`` takes ``F_l``
forward and ``G_l`` backward on one device; it has ``P_l`` bytes of parameters, ``O_l`` of output and ``I_l`` of input, both of
the whole batch. A device sends and receives ``B`` bytes/s::

    comp_l    = (F_l + G_l) / N
    grad_l    = 2 (d-1)/d P_l/m / B                                   a ring over the replicas of a shard
    act_l     = (m-1)/m O_l/d / B  +  2 (m-1)/m I_l/d / B             output gathered, gradient of the input summed
    redist_l  = 2 (what a device lacks of the next layer's input, or of this one's output gradient) / B
    fitness   = sum comp + act + redist + exposed grad + update_l/m + 1e6 (bytes that do not fit)

``exposed grad`` is ``grad_l``; where sums overlap the backward pass, it is ``grad_l`` less the backward time of all earlier
layers, at least 0. A layer has at most as many shards as channels (or attention heads); its groups divide the batch.

All but the memory is a sum over layers and over pairs of neighbours: the optimum is a shortest path (Viterbi). After thesis
000, reconstructed; the simplest hybrid is A. Krizhevsky, *One weird trick for parallelizing convolutional neural networks*, 2014.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.errors import InvalidInput

OVERFLOW = 1e6
"""Seconds for each byte that does not fit."""
ROUNDED = 1 + 1e-12
"""Of a memory; bytes are sums of floats."""


@dataclass(frozen=True, eq=False)
class StrategyProblem:
    """Layers of a training step in a row, and equal devices.

    Attributes:
        forward: float[layers], seconds of the batch, whole, on one device.
        backward: float[layers].
        weights: float[layers], bytes of parameters.
        outputs: float[layers], bytes of what each layer makes.
        inputs: float[layers], bytes of what each one reads of earlier layers; 0 where it needs no gradient.
        crossing: float[layers], bytes that later layers read of this and earlier ones: of a chain, its outputs.
        channels: int[layers], shards that a layer can have at most.
        dense: bool[layers], layers that "one weird trick" splits into shards.
        batch: samples.
        devices: how many.
        bandwidth: bytes/s that a device sends and receives with.
        update: float[layers], seconds of the optimiser's step on one device.
        kept: float[layers], bytes that stay from the forward to the backward pass.
        states: float[layers], bytes of the optimiser's states.
        memory: bytes that a device holds.
        overlap: gradients are summed beside the backward pass.
        names: of layers.
    """

    forward: np.ndarray
    backward: np.ndarray
    weights: np.ndarray
    outputs: np.ndarray
    inputs: np.ndarray
    crossing: np.ndarray
    channels: np.ndarray
    dense: np.ndarray
    batch: int
    devices: int
    bandwidth: float
    update: np.ndarray | float = 0.0
    kept: np.ndarray | float = 0.0
    states: np.ndarray | float = 0.0
    memory: float = math.inf
    overlap: bool = True
    names: Sequence[str] = ()

    @cached_property
    def shards(self) -> np.ndarray:
        """int[strategies]: the divisors of the number of devices, ascending: strategy ``s`` has so many model shards."""
        return np.array([m for m in range(1, self.devices + 1) if self.devices % m == 0])

    @property
    def groups(self) -> np.ndarray:
        """int[strategies]: data groups of each strategy."""
        return self.devices // self.shards

    @cached_property
    def feasible(self) -> np.ndarray:
        """bool[layers, strategies].

        Raises:
            InvalidInput: a layer has no strategy.
        """
        found: np.ndarray = self.shards <= np.asarray(self.channels)[:, None]
        found = found & (self.batch % self.groups == 0)
        for layer in np.flatnonzero(~found.any(axis=1)).tolist():
            raise InvalidInput(
                f"Layer '{self.names[layer] if self.names else layer}' has {self.channels[layer]} channels and the batch "
                f"{self.batch} samples, which {self.devices} devices cannot share as groups times shards; take fewer "
                "devices, or a batch that their number divides"
            )
        return found

    @cached_property
    def layer_seconds(self) -> np.ndarray:
        """float[layers, strategies]: computation, sums and gathers of each layer; ``inf`` where it cannot be."""
        d, m, b = self.groups, self.shards, self.bandwidth
        computed = (self.forward + self.backward) / self.devices
        before = (np.cumsum(self.backward) - self.backward) / self.devices
        gradient = 2 * (d - 1) / d * (self.weights[:, None] / m) / b
        if self.overlap:
            gradient = np.maximum(0.0, gradient - before[:, None])
        gathered = (m - 1) / m * (self.outputs[:, None] / d) / b
        summed = 2 * (m - 1) / m * (self.inputs[:, None] / d) / b
        update = np.broadcast_to(self.update, self.weights.shape)[:, None] / m
        seconds = computed[:, None] + gradient + gathered + summed + update
        return np.where(self.feasible, seconds, np.inf)

    @cached_property
    def lacking(self) -> np.ndarray:
        """float[strategies, strategies]: the largest share of the batch that a device lacks of one layout in the other."""
        device = np.arange(self.devices)
        first = (device // self.shards[:, None]) / self.groups[:, None]
        last = first + 1 / self.groups[:, None]
        both = np.minimum(last[:, None], last[None]) - np.maximum(first[:, None], first[None])
        both = np.maximum(both, 0.0)
        lacks = np.maximum(last[None] - first[None], last[:, None] - first[:, None]) - both
        lacks = lacks.max(axis=-1)
        return np.where(np.eye(len(lacks), dtype=bool) | (lacks < 1e-12), 0.0, lacks)

    def redistribution(self, layer: int) -> np.ndarray:
        """float[strategies, strategies]: seconds between a layer of one strategy and the next of another."""
        return 2 * self.lacking * self.crossing[layer] / self.bandwidth

    @cached_property
    def held(self) -> np.ndarray:
        """float[layers, strategies]: bytes of each layer on a device: parameters, gradients, states, what is kept."""
        parameters = np.asarray(2 * self.weights + self.states)[:, None] / self.shards
        kept = np.broadcast_to(self.kept, self.weights.shape)[:, None] / self.groups
        return parameters + kept

    def fitness(self, choices: np.ndarray) -> np.ndarray:
        """float[choices]: seconds of strategies, int[choices, layers]."""
        rows = np.arange(len(self.weights))
        total = self.layer_seconds[rows, choices].sum(axis=1)
        moved = self.lacking[choices[:, :-1], choices[:, 1:]] * self.crossing[:-1]
        total = total + 2 * moved.sum(axis=1) / self.bandwidth
        if math.isfinite(self.memory):
            total = total + OVERFLOW * np.maximum(
                0.0, self.bytes_held(choices) - self.memory * ROUNDED
            )
        return np.asarray(total)

    def bytes_held(self, choices: np.ndarray) -> np.ndarray:
        """float[choices]: bytes on a device."""
        return np.asarray(self.held[np.arange(len(self.weights)), choices].sum(axis=1))

    # -- baselines ------------------------------------------------------------------------------

    @property
    def all_data(self) -> np.ndarray:
        """int[layers]: as few shards as can be."""
        return np.argmax(self.feasible, axis=1)

    @property
    def all_model(self) -> np.ndarray:
        """int[layers]: as many shards as can be."""
        return self.feasible.shape[1] - 1 - np.argmax(self.feasible[:, ::-1], axis=1)

    @property
    def one_weird_trick(self) -> np.ndarray:
        """int[layers]: dense layers as shards, all others as data."""
        return np.where(self.dense, self.all_model, self.all_data)


def viterbi(problem: StrategyProblem) -> np.ndarray:
    """int[layers]: the strategies of least fitness.

    Where memory is limited, each state keeps all pairs of bytes and seconds that no other pair beats in both. A price of
    memory gives a good choice first; its seconds are a bound, and pairs that cannot come below it are dropped.
    """
    best = _priced(problem, 0.0)
    if problem.bytes_held(best[None])[0] <= problem.memory:
        return best
    least = problem.held.min(axis=1, where=problem.feasible, initial=np.inf).sum()
    if least > problem.memory:  # every choice overflows: a sum over layers, too
        return _priced(problem, OVERFLOW)
    return _within_memory(problem)


def _behind(problem: StrategyProblem, own: np.ndarray) -> np.ndarray:
    """float[layers, strategies]: the least seconds behind a layer of each strategy."""
    total = np.zeros_like(own)
    for layer in range(len(own) - 2, -1, -1):
        after = own[layer + 1] + total[layer + 1]
        total[layer] = (problem.redistribution(layer) + after).min(axis=1)
    return total


def _priced(problem: StrategyProblem, price: float) -> np.ndarray:
    """The best strategies where a byte that is held costs so many seconds."""
    own = problem.layer_seconds + price * problem.held
    total = own + _behind(problem, own)
    found = [int(np.argmin(total[0]))]
    for layer in range(1, len(total)):
        moved = problem.redistribution(layer - 1)[found[-1]]
        found.append(int(np.argmin(moved + total[layer])))
    return np.array(found)


def _within_memory(problem: StrategyProblem) -> np.ndarray:
    layers, strategies = problem.held.shape
    low, high = 0.0, OVERFLOW
    best = _priced(problem, high)
    for _ in range(60):  # the smallest price that makes it fit gives a good choice
        price = math.sqrt(low * high) if low else high * 1e-6
        choice = _priced(problem, price)
        low, high = (
            (low, price) if problem.bytes_held(choice[None])[0] <= problem.memory else (price, high)
        )
        best = min(best, choice, key=lambda one: float(problem.fitness(one[None])[0]))
    bound = float(problem.fitness(best[None])[0]) * (1 + 1e-12)
    held = np.where(problem.feasible, problem.held, np.nan)
    rest_least = np.append(np.cumsum(np.nanmin(held, axis=1)[::-1])[::-1], 0.0)[1:]
    rest_most = np.append(np.cumsum(np.nanmax(held, axis=1)[::-1])[::-1], 0.0)[1:]
    behind = _behind(problem, problem.layer_seconds)
    # Of each layer and strategy: bytes, seconds, and which label of which strategy each came from.
    labels: list[list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]] = []
    for layer in range(layers):
        row = []
        for strategy in range(strategies):
            own_bytes, own_seconds = (
                problem.held[layer, strategy],
                problem.layer_seconds[layer, strategy],
            )
            if layer == 0:
                before = [(np.zeros(1), np.zeros(1), 0)]
            else:
                moved = problem.redistribution(layer - 1)[:, strategy]
                before = [
                    (labels[-1][s][0], labels[-1][s][1] + moved[s], s) for s in range(strategies)
                ]
            size = np.concatenate([b + own_bytes for b, _, _ in before])
            seconds = np.concatenate([t + own_seconds for _, t, _ in before])
            source = np.concatenate([np.full(len(b), s) for b, _, s in before])
            number = np.concatenate([np.arange(len(b)) for b, _, _ in before])
            # What fits whatever follows is as good as what just does.
            size = np.maximum(size, problem.memory - rest_most[layer])
            over = np.maximum(0.0, size + rest_least[layer] - problem.memory * ROUNDED)
            kept = np.flatnonzero(seconds + behind[layer, strategy] + OVERFLOW * over <= bound)
            kept = kept[np.lexsort((seconds[kept], size[kept]))]
            falling = seconds[kept] < np.minimum.accumulate(np.append(np.inf, seconds[kept]))[:-1]
            kept = kept[falling]
            row.append((size[kept], seconds[kept], source[kept], number[kept]))
        labels.append(row)
    ends = [
        (float(t + OVERFLOW * max(0.0, b - problem.memory * ROUNDED)), s, n)
        for s, (sizes, times, _, _) in enumerate(labels[-1])
        for n, (b, t) in enumerate(zip(sizes.tolist(), times.tolist(), strict=True))
    ]
    if not ends:
        return best
    _, chosen, place = min(ends)
    found = [chosen]
    for layer in range(layers - 1, 0, -1):
        _, _, source, numbers = labels[layer][chosen]
        chosen, place = int(source[place]), int(numbers[place])
        found.append(chosen)
    return np.array(found[::-1])


__all__ = ["OVERFLOW", "StrategyProblem", "viterbi"]
