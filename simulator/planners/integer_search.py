"""Searches for the best vector of small integers: a particle swarm, and annealing to hold it against.

J. Kennedy and R. Eberhart, *Particle swarm optimization*, ICNN 1995, with the constriction of M. Clerc and J. Kennedy, IEEE
TEC 6(1), 2002; S. Kirkpatrick, C. Gelatt and M. Vecchi, *Optimization by simulated annealing*, Science 220, 1983.

Both start from given vectors and never return a worse one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

INERTIA, PULL = 0.7298, 1.49618
"""Of a particle's velocity, and of its own best place and the swarm's."""

Fitness = Callable[[np.ndarray], np.ndarray]
"""int64[vectors, length] to float64[vectors]; the least is best, ``inf`` cannot be."""


class Found(NamedTuple):
    """What a search found.

    Attributes:
        vectors: int64[kept, length], distinct ones, the best first.
        fitness: float64[kept].
        evaluations: how many vectors were evaluated, given ones included.
    """

    vectors: np.ndarray
    fitness: np.ndarray
    evaluations: int


def particle_swarm(
    fitness: Fitness,
    levels: int,
    given: Sequence[Sequence[int]],
    seed: int = 0,
    particles: int = 30,
    iterations: int = 200,
    patience: int = 40,
) -> Found:
    """A swarm over reals whose floors are the vectors; then single entries of the best one change for as long as that helps.

    The descent is an addition to the published swarm, which stops early on vectors of unlike entries.

    Args:
        fitness: of vectors.
        levels: entries are from 0 to below it; they should be in an order in which neighbours are alike.
        given: vectors that the first particles begin at.
        seed: of the random numbers.
        particles: how many, at least as many as given ones.
        iterations: at most.
        patience: iterations without gain after which it stops.
    """
    rng = np.random.default_rng(seed)
    starts = np.array(given, dtype=np.int64)
    count, length = max(particles, len(starts)), starts.shape[1]
    place = rng.uniform(0.0, levels, (count, length))
    place[: len(starts)] = starts + 0.5
    velocity = rng.uniform(-levels / 2, levels / 2, (count, length))
    vectors = place.astype(np.int64)
    own, own_fitness = vectors.copy(), fitness(vectors)
    own_place, evaluations = place.copy(), count
    leader, waited = int(np.argmin(own_fitness)), 0
    for _ in range(iterations):
        to_own, to_best = rng.random((2, count, length))
        velocity *= INERTIA
        velocity += PULL * to_own * (own_place - place)
        velocity += PULL * to_best * (own_place[leader] - place)
        np.clip(velocity, -levels / 2, levels / 2, out=velocity)
        place = np.clip(place + velocity, 0.0, np.nextafter(levels, 0.0))
        vectors = place.astype(np.int64)
        now = fitness(vectors)
        evaluations += count
        better = now < own_fitness
        own[better], own_place[better] = vectors[better], place[better]
        least = own_fitness[leader]
        own_fitness[better] = now[better]
        leader = int(np.argmin(own_fitness))
        waited = 0 if own_fitness[leader] < least else waited + 1
        if waited >= patience:
            break
    best, more = _descended(fitness, levels, own[leader], float(own_fitness[leader]))
    # Given vectors that no particle is at any more are kept, too.
    return _ranked(np.vstack([best[None], own, starts]), fitness, evaluations + more)


def annealing(
    fitness: Fitness,
    levels: int,
    given: Sequence[Sequence[int]],
    seed: int = 0,
    budget: int = 6030,
    hot: float = 0.05,
    cold: float = 1e-4,
) -> Found:
    """From the best given vector on: a run of entries gets another level; worse by d is kept with probability exp(-d/T).

    Args:
        fitness: of vectors.
        levels: entries are from 0 to below it.
        given: vectors to start from.
        seed: of the random numbers.
        budget: vectors to evaluate, given ones included.
        hot: first temperature, as a share of the best given vector's fitness; it falls geometrically.
        cold: last temperature.
    """
    rng = np.random.default_rng(seed)
    starts = np.array(given, dtype=np.int64)
    values = fitness(starts)
    current, at = starts[np.argmin(values)].copy(), float(values.min())
    best, steps, length = current.copy(), budget - len(starts), starts.shape[1]
    least, scale = at, at if math.isfinite(at) else 1.0
    for step in range(steps):
        temperature = scale * hot * (cold / hot) ** (step / max(steps - 1, 1))
        first, run = int(rng.integers(length)), 1 + int(rng.random() ** 2 * length)
        other = current.copy()
        other[first : first + run] = rng.integers(levels)
        now = float(fitness(other[None])[0])
        if now <= at or rng.random() < math.exp((at - now) / temperature):
            current, at = other, now
            if now < least:
                best, least = other.copy(), now
    return _ranked(np.vstack([best[None], starts]), fitness, max(budget, len(starts)))


def _descended(
    fitness: Fitness, levels: int, vector: np.ndarray, value: float
) -> tuple[np.ndarray, int]:
    """Where changes of single entries, the best one first, lead to, and how many vectors that took."""
    entries = np.repeat(np.arange(len(vector)), levels)
    evaluations = 0
    while True:
        others = np.repeat(vector[None], len(entries), axis=0)
        others[np.arange(len(entries)), entries] = np.tile(np.arange(levels), len(vector))
        values = fitness(others)
        evaluations += len(others)
        best = int(np.argmin(values))
        if not values[best] < value:
            return vector, evaluations
        vector, value = others[best], float(values[best])


def _ranked(vectors: np.ndarray, fitness: Fitness, evaluations: int) -> Found:
    distinct = np.array(list(dict.fromkeys(map(tuple, vectors.tolist()))), dtype=np.int64)
    values = fitness(distinct)
    order = np.argsort(values, kind="stable")
    return Found(distinct[order], values[order], evaluations)


__all__ = ["Fitness", "Found", "annealing", "particle_swarm"]
