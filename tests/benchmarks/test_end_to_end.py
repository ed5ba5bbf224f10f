"""What the benchmark makes of calls and panels whose times are known."""

import pytest

from cost_models.profile import Profile
from experiments.machine_speed import PANEL
from scenarios.model_config import graph_of
from tests.benchmarks.end_to_end import PROFILE, refuse_unknown, summarised

pytest.importorskip("torch")


def test_processes_are_one_sample_and_the_panel_tells_how_slow_they_were():
    graph = graph_of(PANEL)
    profile = Profile.load(PROFILE)
    said = profile.price(graph.operators, lookup=True).seconds
    found = [
        {"model": "m", "batch": 1, "calls": [1.0, 2.0], "panel": [(2 * said).tolist()]},
        {"model": "m", "batch": 1, "calls": [3.0, 0.5], "panel": [(1.5 * said).tolist()]},
        {"model": "m", "batch": 4, "calls": [4.0], "panel": [said.tolist()]},
    ]
    took = summarised(found, 0.0)
    assert {case: seconds for case, (seconds, _) in took.items()} == {("m", 1): 0.5, ("m", 4): 4.0}
    for case, slowness in ((("m", 1), 1.5), (("m", 4), 1.0)):
        (by_sort,) = took[case][1].slowness
        assert list(by_sort.values()) == pytest.approx([slowness] * len(by_sort))


def test_a_model_that_is_not_shipped_is_named_before_anything_is_measured():
    refuse_unknown(["resnet18"])
    with pytest.raises(SystemExit, match=r"^No model 'resnet19'\. Nearest: resnet18"):
        refuse_unknown(["resnet18", "resnet19"])
