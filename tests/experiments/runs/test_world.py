"""What a run starts from."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.runs import world
from experiments.runs.grid import compose_grid
from experiments.runs.prepare import prepare
from simulator.engine.run import simulate
from simulator.schedulers import create


@pytest.mark.parametrize(("heterogeneity", "runs"), [("related", 2), ("unrelated", 6)])
def test_the_best_device_alone_is_looked_for_among_those_that_differ(
    heterogeneity: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["family=layered", "family.n=12", "family.devices=6"]
    words += ["family.speeds=[1,3]"] if heterogeneity == "related" else []
    (cell,) = compose_grid([*words, f"family.heterogeneity={heterogeneity}"]).cells
    made = prepare(cell.scenario)
    alone = {
        device.name: simulate(
            made.graph, made.cluster, made.costs, create("single_device", device=device.name)
        ).makespan
        for device in made.cluster.devices
    }
    asked = []

    def count(*arguments: Any, **settings: Any) -> Any:
        asked.append(arguments)
        return simulate(*arguments, **settings)

    monkeypatch.setattr(world, "simulate", count)
    assert made.best_device(cell.scenario) == min(
        alone.items(), key=lambda entry: (entry[1], list(alone).index(entry[0]))
    )
    assert len(asked) == runs
