"""What the benchmark makes of calls and panels whose times are known."""

import numpy as np
import pytest

from cost_models.profile import Profile
from experiments.probes.panel import PANEL
from scenarios.model_config import graph_of
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.weight_hit_curve import ReuseCurve
from tests.benchmarks import end_to_end
from tests.benchmarks.end_to_end import PROFILE, left_by_the_cache, refuse_unknown, summarised

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


def test_weights_that_are_read_again_are_taken_from_the_cache():
    """Two steps of one cell of 1 MB and a layer of 3 MB."""
    tensors = [
        Tensor("x", "input", 0.0),
        Tensor("cell", "weight", 1e6),
        Tensor("layer", "weight", 3e6),
        *(Tensor(f"y{i}", "activation", 0.0) for i in range(3)),
    ]
    operators = [Operator(f"o{i}", "linear") for i in range(3)]
    graph = DataflowGraph("cells", operators, tensors, [[0, 1], [3, 1], [4, 2]], [[3], [4], [5]])
    costs = GraphCosts(np.ones((3, 1)), cached=np.full((3, 1), 0.25))
    # A use is as far as what was used since, its own weights in it: 4, 1 and 4 MB when repeated.
    curve = ReuseCurve((1e6, 3e6), (1.0, 0.0))
    assert left_by_the_cache(graph, costs, curve).tolist() == [1.0, 0.25, 1.0]
    larger = ReuseCurve((4e6, 6e6), (1.0, 0.0))
    assert left_by_the_cache(graph, costs, larger).tolist() == [0.25, 0.25, 0.25]
    halfway = ReuseCurve((3e6, 5e6), (1.0, 0.0))
    assert left_by_the_cache(graph, costs, halfway).tolist() == [0.625, 0.25, 0.625]
    assert left_by_the_cache(graph, costs, None).tolist() == [1.0, 1.0, 1.0]


def test_a_model_that_is_not_shipped_is_named_before_anything_is_measured():
    refuse_unknown(["resnet18"])
    with pytest.raises(SystemExit, match=r"^No model 'resnet19'\. Nearest: resnet18"):
        refuse_unknown(["resnet18", "resnet19"])


def test_a_command_that_was_interrupted_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(end_to_end, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(end_to_end, "PROCESSES", 2)
    ran: list[tuple[str, int]] = []

    def measured(name, batch, core):
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append((name, batch))
        return {"calls": [float(len(ran))]}

    monkeypatch.setattr(end_to_end, "measured", measured)
    with pytest.raises(KeyboardInterrupt):
        end_to_end.measure_all(["a"], 0)
    assert ran == [("a", 1), ("a", 4), ("a", 1)]
    ran.pop()  # lets one more run
    found = end_to_end.measure_all(["a"], 0)
    assert [(entry["model"], entry["batch"]) for entry in found] == [("a", 1), ("a", 4)] * 2
    assert [entry["calls"] for entry in found] == [[1.0], [2.0], [3.0], [3.0]]
    # One that ended is begun anew, and so is one of other models or of another profile.
    for change in ({}, {"PROFILE": "another"}):
        for name, value in change.items():
            monkeypatch.setattr(end_to_end, name, value)
        ran.clear()
        with pytest.raises(KeyboardInterrupt):
            end_to_end.measure_all(["a"], 0)
        assert ran == [("a", 1), ("a", 4), ("a", 1)]
    ran.clear()
    with pytest.raises(KeyboardInterrupt):
        end_to_end.measure_all(["b"], 0)
    assert ran == [("b", 1), ("b", 4), ("b", 1)]


def test_there_is_nothing_to_predict_again_where_nothing_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(end_to_end, "MEASURED", tmp_path / "measured.json")
    with pytest.raises(SystemExit, match=r"Nothing was measured with .* leave --again out"):
        end_to_end.main(["--again"])


def test_a_damaged_file_is_named_and_kept(tmp_path, monkeypatch):
    path = tmp_path / "measured.json"
    monkeypatch.setattr(end_to_end, "MEASURED", path)
    for text, why in (('{"profile": ', "is damaged: "), ("[]", "it holds no object")):
        path.write_text(text)
        for words in (["--again"], ["resnet18"]):
            with pytest.raises(SystemExit, match=rf"measured\.json .*{why}.*; delete it"):
                end_to_end.main(words)
        assert path.read_text() == text


def test_a_cost_model_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(end_to_end, "MEASURED", tmp_path / "measured.json")
    with pytest.raises(SystemExit, match="No cost model 'trees' here; there are boosted, mlp"):
        end_to_end.main(["cost=boosted,trees", "resnet18"])
    with pytest.raises(SystemExit, match="Nothing was measured"):
        end_to_end.main(["--again", "cost=boosted", "resnet18"])
