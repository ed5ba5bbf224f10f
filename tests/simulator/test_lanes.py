"""The general way and the direct way of simulating give the same trace."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from simulator.engine import simulate
from simulator.trace import COLUMNS, Trace
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick


def run(case: Case, general: bool) -> Trace:
    return simulate(
        case.workload,
        case.cluster,
        case.costs,
        case.scheduler(),
        actual=case.actual,
        movement=case.movement,
        contention=case.contention,
        seed=case.seed,
        general=general,
    )


@settings(quick, max_examples=300)
@given(cases())
def test_both_ways_give_the_same_trace(case: Case) -> None:
    direct, general = run(case, general=False), run(case, general=True)
    for table, columns in COLUMNS.items():
        for column in columns:
            if column == "slot":  # taken when a task leaves its queue, which is earlier directly
                continue
            found, expected = getattr(general, table)[column], getattr(direct, table)[column]
            assert np.array_equal(found, expected), (table, column, found, expected)
    assert direct.meta == general.meta
    assert direct.wallclock["decisions"] == general.wallclock["decisions"]
