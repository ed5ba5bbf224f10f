"""Who gets which samples and owns which parameters, where every machine is a worker and a parameter server.

In one iteration machine ``i`` pulls the parameters that its samples ``U_i`` touch and others own, computes, and pushes
their gradients back; its link carries what it pulls and what it serves, both ways ::

    pull_i  = N(U_i) without V_i      serve_i = sum over j != i of |V_i and N(U_j)|
    T_i     = time of U_i + 2 (|pull_i| + serve_i) / B_i         objective: min max_i T_i

where sizes are bytes. The two steps, reconstructed after Duan, Wang and Wu (reducing data communication in training): samples
by decreasing number of parameters, each to where it costs least; then parameters by decreasing number of users, each to the user
with the least time; then single samples and parameters move while the slowest machine gets faster. Parsa: M. Li, D. Andersen,
A. Smola, *Graph partitioning via parallel submodular approximation to accelerate distributed machine learning*, 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.planners.shares import whole_units

LEAST_GAIN = 1e-9
"""Relative gain below which nothing moves."""
PRICES = (0.0, 0.1, 1.0)
"""Of a second of samples, in seconds of a link, that the first step is tried with."""


@dataclass(frozen=True, eq=False)
class ServerProblem:
    """Samples, parameters and machines.

    Attributes:
        touches: bool[samples, parameters], which sample reads which parameter.
        seconds: float[samples, machines], of each sample on each machine.
        size: float[parameters], bytes.
        bandwidth: float[machines], bytes per second of each machine's link, both directions together.
        slack: by which a machine may have more samples, or parameters, than its share.
    """

    touches: np.ndarray
    seconds: np.ndarray
    size: np.ndarray
    bandwidth: np.ndarray
    slack: float = 0.05

    @property
    def machines(self) -> int:
        """How many there are."""
        return len(self.bandwidth)

    @cached_property
    def real(self) -> np.ndarray:
        """``touches`` as float32, for products."""
        return self.touches.astype(np.float32)

    @cached_property
    def speed(self) -> np.ndarray:
        """float[machines]: shares of all samples in proportion to speed."""
        rate = 1.0 / self.seconds.sum(axis=0)
        return np.asarray(rate / rate.sum())

    @cached_property
    def most_samples(self) -> np.ndarray:
        """int64[machines]: more are not given to a machine."""
        return _most(self.speed, len(self.touches), self.slack)

    @cached_property
    def most_parameters(self) -> np.ndarray:
        """int64[machines]: more are not given to a machine whose share is that of its link."""
        return _most(self.bandwidth / self.bandwidth.sum(), len(self.size), self.slack)


class Allocation(NamedTuple):
    """Machines of everything.

    Attributes:
        worker: int64[samples].
        owner: int64[parameters].
    """

    worker: np.ndarray
    owner: np.ndarray

    def moved(self, problem: ServerProblem) -> np.ndarray:
        """bool[parameters, machines]: which machine pulls which parameter, and pushes its gradient."""
        found = users(problem, self.worker) > 0
        found[np.arange(len(self.owner)), self.owner] = False
        return found

    def seconds(self, problem: ServerProblem) -> np.ndarray:
        """float[machines]: ``T_i``."""
        return _State(problem, self).seconds()

    def transfers(self, problem: ServerProblem) -> int:
        """Parameters that are pulled, each once by each machine; as many gradients are pushed."""
        return int(self.moved(problem).sum())

    def fewest_transfers(self, problem: ServerProblem) -> int:
        """What no owners can fall below: each machine that uses a parameter but one pulls it."""
        return int(np.maximum((users(problem, self.worker) > 0).sum(axis=1) - 1, 0).sum())


def users(problem: ServerProblem, worker: np.ndarray) -> np.ndarray:
    """float32[parameters, machines]: how many samples of each machine touch each parameter."""
    there = np.eye(problem.machines, dtype=np.float32)[worker]
    return np.asarray(problem.real.T @ there)


def two_step(problem: ServerProblem, seed: int = 0) -> Allocation:
    """The two-step heuristic with its local moves; the best of samples weighed by several prices of their time."""
    found = [
        refined(problem, Allocation(worker, owners(problem, worker)))
        for worker in (greedy_samples(problem, price) for price in PRICES)
    ]
    return min(found, key=lambda one: float(one.seconds(problem).max()))


def greedy_samples(problem: ServerProblem, price: float = 1.0) -> np.ndarray:
    """Step 1: int64[samples], each where new parameters and the machine's time take least.

    Samples of one connected part of the data follow each other, large parts first, so that parts are not mixed.

    Args:
        problem: the samples and machines.
        price: of a second of a machine's samples, in seconds of its link; 0: new bytes alone count, whatever the link,
            and of equal ones the time.
    """
    touches, size = problem.touches, problem.size
    mean = problem.seconds.mean(axis=0)
    link = 2.0 / problem.bandwidth if price else np.ones(problem.machines)
    price = price or 1e-9 * float(size.min()) / float((len(touches) + 1) * mean.max())
    # Bytes that each sample would bring to each machine anew; a parameter counts until the machine has it.
    held = np.zeros((problem.machines, len(size)), dtype=bool)
    count = np.zeros(problem.machines, dtype=np.int64)
    worker = np.zeros(len(touches), dtype=np.int64)
    from scipy.sparse import bmat, csr_matrix
    from scipy.sparse.csgraph import connected_components

    edges = csr_matrix(touches)
    part = connected_components(bmat([[None, edges], [edges.T, None]]))[1][: len(touches)]
    order = np.lexsort((-(problem.real @ size), part, -np.bincount(part)[part]))
    # Of machines with nothing in common with a sample one that has others of its part comes first.
    home = np.zeros((problem.machines, part.max() + 1))
    for sample in order.tolist():
        needed = touches[sample]
        new = (~held[:, needed]) @ size[needed] - 1e-6 * size.min() * home[:, part[sample]]
        cost = link * new + price * (count + 1) * mean
        cost[count >= problem.most_samples] = np.inf
        chosen = int(cost.argmin())
        worker[sample] = chosen
        held[chosen] |= needed
        home[chosen, part[sample]] = 1.0
        count[chosen] += 1
    return worker


def owners(problem: ServerProblem, worker: np.ndarray) -> np.ndarray:
    """Step 2: int64[parameters], each at the user with the least time so far; unused ones where there is room."""
    used = users(problem, worker) > 0
    number = used.sum(axis=1)
    busy = np.bincount(worker, problem.seconds[np.arange(len(worker)), worker], problem.machines)
    link = 2.0 / problem.bandwidth
    room = problem.most_parameters.copy()
    owner = np.zeros(len(used), dtype=np.int64)
    for parameter in np.argsort(-number, kind="stable").tolist():
        able = np.flatnonzero(used[parameter])
        if not len(able):
            owner[parameter] = int(room.argmax())
            room[owner[parameter]] -= 1
            continue
        free = able[room[able] > 0]
        able = free if len(free) else able
        chosen = int(able[busy[able].argmin()])
        bytes_ = problem.size[parameter]
        busy += np.where(used[parameter], link * bytes_, 0.0)
        busy[chosen] += link[chosen] * bytes_ * (number[parameter] - 2)
        owner[parameter] = chosen
        room[chosen] -= 1
    return owner


class _State:
    """An allocation with the counts that local moves change."""

    def __init__(self, problem: ServerProblem, allocation: Allocation) -> None:
        self.problem = problem
        self.worker, self.owner = allocation.worker.copy(), allocation.owner.copy()
        self.count = users(problem, self.worker)
        self.samples = np.bincount(self.worker, minlength=problem.machines)
        self.parameters = np.bincount(self.owner, minlength=problem.machines)

    def seconds(self) -> np.ndarray:
        """float[machines]: ``T_i``."""
        problem, every = self.problem, np.arange(len(self.owner))
        moved = self.count > 0
        moved[every, self.owner] = False
        pulled = problem.size @ moved
        served = np.bincount(self.owner, problem.size * moved.sum(axis=1), problem.machines)
        rows = np.arange(len(self.worker))
        computed = np.bincount(self.worker, problem.seconds[rows, self.worker], problem.machines)
        return np.asarray(computed + 2.0 * (pulled + served) / problem.bandwidth)

    def best_sample(self, slow: int, now: np.ndarray) -> tuple[float, int, int]:
        """The slowest time after the best move of a sample away from a machine, the sample and where it goes."""
        problem, machines = self.problem, self.problem.machines
        mine = np.flatnonzero(self.worker == slow)
        owned = np.eye(machines)[self.owner] * problem.size[:, None]
        touched = problem.real[mine]
        best = np.inf, -1, -1
        if not len(mine):  # it serves alone
            return best
        # Bytes of parameters, by owner, that the machine no longer needs, and that another one then needs.
        freed = touched @ (owned * (self.count[:, slow, None] == 1))
        freed[:, slow] = 0.0
        for target in range(machines):
            if target == slow or self.samples[target] >= problem.most_samples[target]:
                continue
            needed = touched @ (owned * (self.count[:, target, None] == 0))
            needed[:, target] = 0.0
            link = needed - freed  # served by the owners
            link[:, slow] -= freed.sum(axis=1)
            link[:, target] += needed.sum(axis=1)
            times = now + 2.0 * link / problem.bandwidth
            times[:, slow] -= problem.seconds[mine, slow]
            times[:, target] += problem.seconds[mine, target]
            slowest = times.max(axis=1)
            at = int(slowest.argmin())
            if slowest[at] < best[0]:
                best = float(slowest[at]), int(mine[at]), target
        return best

    def best_parameter(self, slow: int, now: np.ndarray) -> tuple[float, int, int]:
        """The same of a parameter that the machine owns or pulls, and its new owner among its users."""
        problem = self.problem
        used = self.count > 0
        own = self.owner == slow
        some = np.flatnonzero((own & used.any(axis=1)) | used[:, slow])
        size, owner, mine = problem.size[some], self.owner[some], used[some]
        number, rows = mine.sum(axis=1), np.arange(len(some))
        best = np.inf, -1, -1
        for target in range(problem.machines):
            able = mine[:, target] & (owner != target)
            if self.parameters[target] >= problem.most_parameters[target] or not able.any():
                continue
            link = np.zeros((len(some), problem.machines))
            # The old owner served every other user and pulls now if it is one; the new one the other way round.
            was = mine[rows, owner]
            link[rows, owner] += size * (was - (number - was.astype(int)))
            link[:, target] += size * (number - 2)
            slowest = (now + 2.0 * link / problem.bandwidth).max(axis=1)
            slowest[~able] = np.inf
            at = int(slowest.argmin())
            if slowest[at] < best[0]:
                best = float(slowest[at]), int(some[at]), target
        return best


def refined(problem: ServerProblem, start: Allocation, most: int = 2000) -> Allocation:
    """Move single samples and parameters of the slowest machine while the slowest time falls, at most so often."""
    state = _State(problem, start)
    for _ in range(most):
        now = state.seconds()
        slow = int(now.argmax())
        by_parameter = state.best_parameter(slow, now)
        by_sample = state.best_sample(slow, now)
        least, moved, target = min(by_parameter, by_sample)
        if not least < now[slow] * (1 - LEAST_GAIN):
            break
        if by_parameter <= by_sample:
            state.parameters[[state.owner[moved], target]] += (-1, 1)
            state.owner[moved] = target
        else:
            state.count[:, [slow, target]] += problem.real[moved][:, None] * np.array([-1, 1], "f")
            state.samples[[slow, target]] += (-1, 1)
            state.worker[moved] = target
    return Allocation(state.worker, state.owner)


# -- baselines --------------------------------------------------------------------------------


def hashed(problem: ServerProblem, seed: int = 0) -> Allocation:
    """Samples and parameters at random, as many samples as a machine is fast."""
    rng = np.random.default_rng(seed)
    return Allocation(
        rng.permutation(_ranges(problem.speed, len(problem.touches))),
        rng.integers(problem.machines, size=len(problem.size)),
    )


def contiguous_ranges(problem: ServerProblem, seed: int = 0) -> Allocation:
    """Ranges of both by number: of samples as long as a machine is fast, of parameters equally long."""
    equal = np.full(problem.machines, 1.0 / problem.machines)
    return Allocation(
        _ranges(problem.speed, len(problem.touches)), _ranges(equal, len(problem.size))
    )


def parsa(problem: ServerProblem, seed: int = 0) -> Allocation:
    """Parsa for equal machines: the one with fewest samples takes that which brings it the fewest new parameters;
    then each parameter goes to the user that moves the least so far.
    """
    samples, machines = len(problem.touches), problem.machines
    new = np.repeat((problem.real @ problem.size)[:, None], machines, axis=1)
    held = np.zeros((machines, len(problem.size)), dtype=bool)
    worker = np.full(samples, -1, dtype=np.int64)
    for taken in range(samples):
        chosen = taken % machines
        free = np.flatnonzero(worker < 0)
        sample = int(free[new[free, chosen].argmin()])
        worker[sample] = chosen
        fresh = problem.touches[sample] & ~held[chosen]
        held[chosen] |= fresh
        new[:, chosen] -= problem.real[:, fresh] @ problem.size[fresh]
    moved = np.zeros(machines)
    owner = np.zeros(len(problem.size), dtype=np.int64)
    for parameter in range(len(owner)):
        able = np.flatnonzero(held[:, parameter])
        if not len(able):
            owner[parameter] = parameter % machines
            continue
        owner[parameter] = able[moved[able].argmin()]
        moved[able] += problem.size[parameter]
        moved[owner[parameter]] += problem.size[parameter] * (len(able) - 2)
    return Allocation(worker, owner)


def _ranges(shares: np.ndarray, count: int) -> np.ndarray:
    return np.repeat(np.arange(len(shares)), whole_units(shares, count))


def _most(shares: np.ndarray, count: int, slack: float) -> np.ndarray:
    return np.ceil((1 + slack) * count * shares - 1e-9).astype(np.int64)


POLICIES: Mapping[str, Callable[[ServerProblem, int], Allocation]] = {
    "two_step": two_step,
    "hash": hashed,
    "contiguous": contiguous_ranges,
    "parsa": parsa,
}
"""By name: the heuristic and its baselines, of a problem and a seed."""

__all__ = ["POLICIES", "Allocation", "ServerProblem", "users"]
