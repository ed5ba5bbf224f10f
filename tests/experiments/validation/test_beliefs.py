"""What schedulers were told of the runner in the measured runs, they are told in the simulated ones."""

import pytest

from experiments.probes.overhead import Overhead
from experiments.runs.prepare import prepare
from experiments.validation.contestants import plan_grid
from experiments.validation.simulated_vs_measured import Prediction

FREE, DEAR = Overhead(), Overhead(operator=1e-5, copy=0.05)
"""With a copy that takes as long as the model, a planner leaves all of it on one device."""


def contestant_of(scheduler):
    words = ["model=squeezenet1_1", f"scheduler={scheduler}", "cluster=rome2_apart"]
    group = plan_grid([*words, "simulation.draws=3", "simulation.discrepancy=0"], ()).groups[0]
    return Prediction(prepare(group.scenario, ())), group.contestants[0]


def devices(trace):
    return set(trace.tasks["device"].tolist())


@pytest.mark.parametrize("scheduler", ["heft", "annealing"])
def test_a_plan_is_of_what_was_believed_and_takes_what_it_takes(scheduler):
    prediction, one = contestant_of(scheduler)
    assert devices(prediction.run(one, FREE)) == {0, 1}
    dear = prediction.run(one, DEAR)
    assert len(devices(dear)) == 1
    planned = prediction.run(one, FREE, believed=DEAR)
    assert devices(planned) == devices(dear)
    # The operators of that plan, one behind the other, without the overhead that was believed.
    assert planned.makespan == pytest.approx(serial(prediction, planned))
    unplanned = prediction.run(one, DEAR, believed=FREE)
    assert devices(unplanned) == {0, 1}
    assert unplanned.makespan > dear.makespan + 2 * DEAR.copy
    assert prediction.run(one, FREE, believed=FREE).makespan == prediction.run(one, FREE).makespan


def test_draws_are_of_the_same_plan():
    prediction, one = contestant_of("heft")
    run = prediction.run(one, FREE, believed=DEAR)
    prediction = Prediction(replaced_draws(prediction.world))
    assert prediction.draws(one, FREE, run, DEAR) == pytest.approx([run.makespan] * 3)
    assert prediction.draws(one, FREE, run)[0] < run.makespan


def serial(prediction, trace):
    """Of operators on one device, the seconds of all."""
    (device,) = devices(trace)
    return prediction.world.costs[prediction.world.graph].seconds[:, device].sum()


def replaced_draws(world):
    world.draws = lambda scenario: [None] * scenario.simulation.draws
    return world


def test_who_decides_as_it_goes_believes_it_too():
    prediction, one = contestant_of("mct")
    assert devices(prediction.run(one, FREE)) == {0, 1}
    told = prediction.run(one, FREE, believed=DEAR)
    assert len(devices(told)) == 1
    assert told.makespan == pytest.approx(serial(prediction, told))
