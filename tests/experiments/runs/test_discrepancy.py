"""What schedules are off by beyond their operators' times."""

import numpy as np
import pytest

from experiments.comparison.statistics import probability_shorter
from experiments.runs.cell import Runs
from experiments.runs.discrepancy import discrepancies
from experiments.runs.grid import compose_grid
from experiments.runs.prepare import prepare
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import create

WORDS = ("model=squeezenet1_1", "cluster=cpu_1x_3x", "simulation.draws=40")


def scenario(*words):
    (cell,) = compose_grid([*WORDS, "scheduler=heft", *words], ()).cells
    return cell.scenario.settled()


def trace(first, second=5.0):
    """Of one task, on the faster of two devices."""
    cluster = Cluster(
        "two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram"
    )
    graph = from_edges("one", 1, [])
    return simulate(
        graph, cluster, CostTable.of(graph, np.array([[first, second]])), create("heft")
    )


def test_they_are_of_the_stated_size_and_favour_nobody():
    found = np.log(discrepancies(0.02, trace(1.0), 400, 3))
    assert found.mean() == pytest.approx(0.0, abs=1e-12)
    assert found.std() == pytest.approx(0.02, rel=0.02)
    assert (discrepancies(0.0, trace(1.0), 400, 3) == 1).all()


def test_schedules_are_off_each_by_its_own_and_the_same_alike():
    one = discrepancies(0.02, trace(1.0), 400, 3)
    assert (discrepancies(0.02, trace(1.0 + 1e-13), 400, 3) == one).all()
    others = (
        discrepancies(0.02, trace(1.1), 400, 3),
        discrepancies(0.02, trace(5.0, 1.0), 400, 3),  # equally long, on the other device
        discrepancies(0.02, trace(1.0), 400, 4),
    )
    for other in others:
        assert abs(np.corrcoef(np.log(one), np.log(other))[0, 1]) < 0.2
    # A lead of 2% is of sqrt(2) x 2% of doubt: a normal distribution gives .760.
    assert probability_shorter(one, 1.02 * others[0]) == pytest.approx(0.760, abs=0.05)


def test_draws_of_predictors_errors_have_them_and_others_have_not():
    def ratios(*words):
        off, exact = (
            np.array([*Runs(one, prepare(one)).draws()])
            for one in (scenario(*words, f"simulation.discrepancy={sigma}") for sigma in (0.1, 0.0))
        )
        return np.log(off / exact)

    assert ratios().std() == pytest.approx(0.1, rel=0.1)
    systematic = ("simulation.noise=systematic", "simulation.systematic.sigma=0.1")
    assert not ratios(*systematic).any()


def test_what_is_no_standard_deviation_is_refused():
    with pytest.raises(InvalidInput, match=r"simulation.discrepancy=-0.1 is a standard deviation"):
        scenario("simulation.discrepancy=-0.1")
