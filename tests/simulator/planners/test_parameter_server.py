"""Parameter servers against definitions, all allocations of small problems, and known answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.planners.parameter_server import (
    POLICIES,
    PRICES,
    Allocation,
    ServerProblem,
    greedy_samples,
    owners,
    refined,
    two_step,
)
from simulator.planners.parameter_server import _State as State
from tests.examples import examples


@st.composite
def problems(draw, most_samples=12, most_parameters=8, most_machines=4):
    samples, parameters = draw(st.integers(1, most_samples)), draw(st.integers(1, most_parameters))
    machines = draw(st.integers(1, most_machines))

    def numbers(count, low, high):
        return np.array(
            draw(st.lists(st.integers(low, high), min_size=count, max_size=count)), float
        )

    touches = numbers(samples * parameters, 0, 1).reshape(samples, parameters) > 0
    touches[np.arange(samples), numbers(samples, 0, parameters - 1).astype(int)] = True
    return ServerProblem(
        touches,
        np.tile(numbers(machines, 1, 9), (samples, 1)),
        numbers(parameters, 1, 5),
        numbers(machines, 1, 9),
        draw(st.sampled_from([0.0, 0.05, 1.0])),
    )


def by_definition(problem, allocation):
    """T of every machine, and how many parameters are pulled, by sets."""
    machines = range(problem.machines)
    samples = [np.flatnonzero(allocation.worker == i).tolist() for i in machines]
    used = [{v for u in mine for v in np.flatnonzero(problem.touches[u])} for mine in samples]
    owned = [set(np.flatnonzero(allocation.owner == i).tolist()) for i in machines]

    def size(parameters):
        return sum(problem.size[v] for v in parameters)

    times = []
    for i in machines:
        serve = sum(size(owned[i] & used[j]) for j in machines if j != i)
        times.append(
            sum(problem.seconds[u, i] for u in samples[i])
            + 2 * (size(used[i] - owned[i]) + serve) / problem.bandwidth[i]
        )
    return times, sum(len(used[i] - owned[i]) for i in machines), used


@st.composite
def allocated(draw):
    problem = draw(problems())
    worker, owner = (
        draw(st.lists(st.integers(0, problem.machines - 1), min_size=n, max_size=n))
        for n in problem.touches.shape
    )
    return problem, Allocation(np.array(worker), np.array(owner))


@settings(max_examples=examples(150), deadline=None)
@given(allocated())
def test_times_and_transfers_are_their_definitions(found):
    problem, allocation = found
    times, pulled, used = by_definition(problem, allocation)
    assert allocation.seconds(problem) == pytest.approx(times)
    assert allocation.transfers(problem) == pulled
    users = [sum(v in mine for mine in used) for v in range(len(problem.size))]
    fewest = sum(max(0, count - 1) for count in users)
    assert allocation.fewest_transfers(problem) == fewest
    owned_by_users = all(v in used[allocation.owner[v]] for v, count in enumerate(users) if count)
    assert pulled >= fewest
    assert (pulled == fewest) is owned_by_users


@settings(max_examples=examples(150), deadline=None)
@given(allocated())
def test_what_a_move_promises_is_what_it_gives(found):
    problem, allocation = found
    state = State(problem, allocation)
    now = state.seconds()
    slow = int(now.argmax())
    for kind, best in enumerate((state.best_sample, state.best_parameter)):
        least, moved, target = best(slow, now)
        if moved < 0:
            continue
        worker, owner = allocation.worker.copy(), allocation.owner.copy()
        (worker, owner)[kind][moved] = target
        assert max(by_definition(problem, Allocation(worker, owner))[0]) == pytest.approx(least)
    better = refined(problem, allocation)
    assert max(by_definition(problem, better)[0]) <= max(now) * (1 + 1e-9)


@settings(max_examples=examples(40), deadline=None)
@given(problems())
def test_both_steps_keep_to_their_shares_and_owners_are_users(problem):
    for price in PRICES:
        worker = greedy_samples(problem, price)
        assert (np.bincount(worker, minlength=problem.machines) <= problem.most_samples).all()
        first = Allocation(worker, owners(problem, worker))
        assert first.transfers(problem) == first.fewest_transfers(problem)
        assert two_step(problem).seconds(problem).max() <= first.seconds(problem).max() * (1 + 1e-9)


@settings(max_examples=examples(30), deadline=None)
@given(problems(4, 3, 2))
def test_no_allocation_of_a_small_problem_is_better_than_the_best(problem):
    samples, parameters = problem.touches.shape
    best = min(
        max(by_definition(problem, Allocation(np.array(worker), np.array(owner)))[0])
        for worker in itertools.product(range(problem.machines), repeat=samples)
        for owner in itertools.product(range(problem.machines), repeat=parameters)
    )
    for policy in POLICIES.values():
        assert policy(problem, 0).seconds(problem).max() >= best * (1 - 1e-9)


def test_an_example_by_hand():
    # Two samples of one parameter each and one of both; the machines are equal, and all that moves is one parameter.
    touches = np.array([[1, 0], [0, 1], [1, 1], [1, 1]], bool)
    problem = ServerProblem(touches, np.full((4, 2), 1.0), np.ones(2), np.full(2, 4.0))
    found = Allocation(np.array([0, 1, 0, 1]), np.array([0, 1]))
    # 2 samples, and both parameters cross: one pulled, one served, both ways.
    assert found.seconds(problem).tolist() == [3.0, 3.0]
    assert found.transfers(problem) == found.fewest_transfers(problem) == 2
    elsewhere = Allocation(np.array([0, 0, 0, 0]), np.array([1, 1]))
    assert elsewhere.transfers(problem) == 2
    assert elsewhere.fewest_transfers(problem) == 0
    assert elsewhere.seconds(problem).tolist() == [5.0, 1.0]


@pytest.mark.parametrize("speeds", [[1, 1, 1, 1], [4, 3, 2, 1]])
@pytest.mark.parametrize("links", [[1, 1, 1, 1], [1, 10, 10, 1]])
def test_block_diagonal_data_move_nothing(speeds, links):
    speeds = np.array(speeds, float)
    rng = np.random.default_rng(3)
    block = np.repeat(np.arange(4), (20 * speeds / speeds.sum() * 4).astype(int))
    touches = np.zeros((80, 40), bool)
    for sample, own in enumerate(rng.permutation(block)):
        touches[sample, own * 10 + rng.choice(10, 4, replace=False)] = True
    problem = ServerProblem(
        touches[:, rng.permutation(40)],
        np.tile(1 / speeds, (80, 1)),
        np.ones(40),
        np.array(links, float),
    )
    found = two_step(problem)
    assert found.transfers(problem) == 0
    assert found.seconds(problem) == pytest.approx(80 / speeds.sum())


def test_owners_of_dense_data_do_not_matter():
    problem = ServerProblem(
        np.ones((24, 10), bool), np.ones((24, 4)), np.ones(10), np.full(4, 5.0), slack=0.0
    )
    found = [policy(problem, 0) for policy in POLICIES.values()]
    assert {one.transfers(problem) for one in found} == {10 * 3}
    # All time but the balance of what is served is the same.
    assert {float(one.seconds(problem).sum()) for one in found} == {24 + 2 * 2 * 30 / 5}


def test_parsa_takes_what_brings_least():
    # Two groups of samples: each machine fills up with one of them.
    touches = np.kron(np.eye(2), np.ones((3, 4))).astype(bool)
    problem = ServerProblem(touches, np.ones((6, 2)), np.ones(8), np.ones(2))
    found = POLICIES["parsa"](problem, 0)
    assert found.worker.tolist() in ([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1])
    assert (
        POLICIES["hash"](problem, 1).worker.tolist() != POLICIES["hash"](problem, 2).worker.tolist()
    )
    assert POLICIES["contiguous"](problem, 0).owner.tolist() == [0] * 4 + [1] * 4
