"""Every scheduler explains what it does, task by task."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.instances import load_instance
from simulator.engine.run import simulate
from simulator.model.plan import Plan
from simulator.schedulers import available, create
from simulator.schedulers.planned import Planned
from tests.examples import examples
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick

A_JOB = {"single_device"}
"""Say one line for each job."""
SETTINGS = {"lru_eviction": {"memory": "limited", "weights": "on_demand"}}


@pytest.mark.parametrize("name", available())
def test_every_task_is_explained(name: str) -> None:
    graph, cluster, costs = load_instance("conf/instances/topcuoglu.json")
    lines: list[str] = []
    settings = SETTINGS.get(name, {})
    scheduler = create(name)
    if name == "planned":
        heft = simulate(graph, cluster, costs, create("heft"))
        scheduler = Planned(Plan.executed(heft, [graph]))
    simulate(graph, cluster, costs, scheduler, explain=lines.append, **settings)  # type: ignore[arg-type]
    if name in A_JOB:
        assert len(lines) == 1
        return
    assert len(lines) >= len(graph)
    for operator in graph.operators:
        assert any(operator.name in line.replace(",", " ").split() for line in lines), operator.name


FREE = tuple(name for name, kind in available().items() if not kind.needs | A_JOB & {name})
"""Schedulers that run anything."""


@settings(quick, max_examples=examples(200))
@given(cases(schedulers=("fcfs",)), st.sampled_from(FREE))
def test_listening_changes_nothing(case: Case, name: str) -> None:
    heard = case.run(create(name), explain=lambda line: None).executions
    for column, values in case.run(create(name)).executions.items():
        assert np.array_equal(heard[column], values)
