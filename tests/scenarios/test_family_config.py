"""Families as configs name them: every shipped one, pinned byte for byte; what is refused."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios import FamilyConfig, draw_instance, load_instance, save_instance
from scenarios.instances import instance_from_json, instance_to_json
from scenarios.random_graphs import FAMILIES
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import create

CONF = Path(__file__).parents[2] / "conf" / "family"
SHIPPED = sorted(path.stem for path in CONF.glob("*.yaml"))


def shipped(name, **changes):
    return FamilyConfig(**(yaml.safe_load((CONF / f"{name}.yaml").read_text()) | changes))


def bare(name, **changes):
    """As the form of instances can say it: dedicated devices share a memory."""
    config = shipped(name, **changes)
    return (
        replace(config, heterogeneity="unrelated")
        if config.heterogeneity == "dedicated"
        else config
    )


def text_of(instance):
    return json.dumps(instance_to_json(*instance))


DIGESTS = {
    "cholesky": "ddce8dd743a4ddb1",
    "daggen": "5fffeb904fc77e54",
    "erdos_renyi": "77937ce81dcc55b2",
    "fft": "3d8610698e62cd84",
    "fork_join": "47487e130cdd4459",
    "gaussian_elimination": "fcdc310b28a7822d",
    "in_tree": "07f3a6828841bb64",
    "layered": "f5b0040fe75a4f3a",
    "out_tree": "2abc3f4e38645fd1",
    "series_parallel": "a3d7090cff84659a",
    "staged_jobs": "e4348929d70eaaa4",
    "stencil_1d": "8b4a00d21e2c3563",
    "stencil_2d": "396c099521cfd473",
}
"""sha256 of the instance that seed 7 draws, first 16 characters."""


def test_every_generator_is_shipped():
    generators = {shipped(name).generator for name in SHIPPED}
    assert generators == {*FAMILIES, "parameter_server", "file", None}
    assert DIGESTS.keys() == set(FAMILIES)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_same_seed_gives_the_same_bytes_everywhere(name):
    text = text_of(draw_instance(bare(name), 7))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[name]
    assert text == text_of(draw_instance(bare(name), 7))
    assert text != text_of(draw_instance(bare(name), 8))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_shipped_family_can_be_simulated(name):
    config = shipped(name, heterogeneity="both", devices=4)
    graph, cluster, costs = draw_instance(config, 1)
    trace = simulate(graph, cluster, costs, create("donf"), contention="fifo")
    assert trace.jobs["status"].tolist() == ["finished"]


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 10**6), st.booleans())
def test_saved_instances_come_back(tmp_path_factory, name, seed, half_duplex):
    path = tmp_path_factory.mktemp("saved") / "folder" / "a.json"
    drawn = draw_instance(bare(name, half_duplex=half_duplex, ccr=0.3), seed)
    save_instance(path, *drawn)
    read = load_instance(path)
    assert instance_to_json(*read) == instance_to_json(*drawn)
    assert read[0].operator_names == drawn[0].operator_names
    assert all(link.half_duplex == half_duplex for link in read[1].links)
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]
    first = simulate(*drawn, create("heft"))
    assert simulate(*read, create("heft")).makespan == first.makespan


def test_an_instance_keeps_what_cannot_run_and_how_it_was_given():
    document = {"name": "x", "cost": [[1, None], [2, 3.5], [1, 1]], "edges": [[2, 0, 1.5]]}
    graph, cluster, costs = instance_from_json(document)
    again = instance_from_json(instance_to_json(graph, cluster, costs))
    # The graph has its tasks in another order than the file; names tell.
    assert again[0].operator_names == graph.operator_names
    assert np.array_equal(again[2][again[0]].seconds, costs[graph].seconds)
    assert [None, 1.0] not in instance_to_json(graph, cluster, costs)["cost"]
    assert [1.0, None] in instance_to_json(graph, cluster, costs)["cost"]


def test_what_the_form_cannot_say_is_refused(tmp_path):
    graph = from_edges("g", 2, [(0, 1, 1.0)])
    costs = CostTable.of(graph, np.ones((2, 2)))
    devices = [Device("a", "m"), Device("b", "m")]
    shared = Cluster("shared", [MemorySpace("m")], devices)
    with pytest.raises(InvalidInput, match="'shared' is no bare instance's"):
        save_instance(tmp_path / "a.json", graph, shared, costs)
    spaces = [MemorySpace("m"), MemorySpace("n")]
    late = Cluster(
        "late", spaces, [Device("a", "m"), Device("b", "n")], [Link("l", ("m", "n"), 1.0, 0.5)]
    )
    with pytest.raises(InvalidInput, match=r"'late' is no bare instance: .* without latency"):
        save_instance(tmp_path / "a.json", graph, late, costs)
    slots = Cluster("slots", spaces, [Device("a", "m", slots=2), Device("b", "n")], late.links)
    with pytest.raises(InvalidInput, match="'slots' is no bare instance's"):
        save_instance(tmp_path / "a.json", graph, slots, costs)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="Cannot write"):
        save_instance(Path("/proc/none/a.json"), graph, fully_connected("c", 2), costs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generator": "dagen"}, r"unknown generator 'dagen'. Nearest: daggen. Known: cholesky"),
        ({"m": 4}, "family.m has no meaning for 'daggen', which takes n, fat, density"),
        ({"fat": None}, "Family 'daggen' needs family.fat"),
        ({"fat": 0.0}, "family.fat=0.0 must be above 0"),
        ({"heterogeneity": "odd"}, "There is no family.heterogeneity=odd"),
        ({"heterogeneity": "related", "speeds": None}, "needs family.speeds"),
        ({"beta": None}, "family.heterogeneity=unrelated needs family.beta"),
        ({"task_time": "5"}, "task time of family 'daggen' '5' has no unit"),
        ({"ccr": None, "bandwidth": "fast"}, "bandwidth of family 'daggen'"),
        ({"bandwidth": "1 GB/s"}, "family.ccr=1 scales what edges take"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(InvalidInput, match=message):
        shipped("daggen", **changes).check()


def test_only_what_has_a_meaning_is_recorded():
    document = shipped("daggen").document()
    assert document["fat"] == 0.5
    assert document["beta"] == 1.0
    assert not {"speeds", "m", "description", "bandwidth"} & document.keys()
    assert "beta" not in shipped("daggen", heterogeneity="related").document()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a"]}, "1 names were given for 2 operators"),
        ({"names": ["a", "a"]}, "two operators have the name 'a'"),
        ({"names": "ab"}, "'names' must be a list of texts"),
        ({"half_duplex": 1}, "'half_duplex' is true or false, not 1"),
    ],
)
def test_names_and_half_duplex_of_a_file(change, message):
    document = {"cost": [[1], [2]], "edges": [[0, 1, 1]]}
    instance_from_json(document | {"names": ["a", "b"], "half_duplex": True})
    with pytest.raises(InvalidInput, match=message):
        instance_from_json(document | change)
