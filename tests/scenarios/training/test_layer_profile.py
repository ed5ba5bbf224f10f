"""Layer profiles in the forms of others, read as training steps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cost_models.optimizer_steps import UPDATED
from scenarios.training.layer_profile import read_layer_profile
from simulator import schedulers, simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace

MSR = Path(__file__).parents[2] / "oracles" / "msr_fiddle"
# In the form, and with numbers of the size, of PipeDream's profiler: a residual block.
PIPEDREAM = """\
node3 -- ReLU(inplace) -- forward_compute_time=4.000, backward_compute_time=5.000, activation_size=16.000, parameter_size=0.000
node1 -- Input0 -- forward_compute_time=1.000, backward_compute_time=0.000, activation_size=6.0, parameter_size=0.000
node2 -- Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1)) -- forward_compute_time=22.000, backward_compute_time=24.000, activation_size=16.000, parameter_size=7.000
node4 -- Linear(in_features=4, out_features=2, bias=True) -- forward_compute_time=2.000, backward_compute_time=3.500, activation_size=[8.0; 1.0], parameter_size=40.000 -- stage_id=1
\tnode2 -- node3
\tnode1 -- node2
\tnode3 -- node4
\tnode2 -- node4
"""


def cluster_of(*types):
    spaces = [MemorySpace(f"m{i}") for i in range(len(types))]
    devices = [Device(f"d{i}", f"m{i}", kind) for i, kind in enumerate(types)]
    links = [Link(f"l{i}", ("m0", f"m{i}"), 1e9) for i in range(1, len(types))]
    return Cluster("c", spaces, devices, links, "m0")


def written(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def rows(graph):
    names = [tensor.name for tensor in graph.tensors]
    return {
        operator.name: ([names[t] for t in reads], [names[t] for t in writes])
        for operator, reads, writes in zip(graph.operators, graph.reads, graph.writes, strict=True)
    }


def test_pipedreams_form_is_a_training_step(tmp_path):
    profile = read_layer_profile(written(tmp_path / "net" / "graph.txt", PIPEDREAM))
    assert profile.name == "net"
    assert profile.types == ("",)
    graph, costs = profile.instance(cluster_of("V100", "V100"), batch=8)
    assert graph.batch == 8
    assert rows(graph) == {
        "node1/forward": ([], ["node1/forward:out"]),
        "node2/forward": (["node1/forward:out", "node2.weight"], ["node2/forward:out"]),
        "node3/forward": (["node2/forward:out"], ["node3/forward:out"]),
        "node4/forward": (
            ["node2/forward:out", "node3/forward:out", "node4.weight"],
            ["node4/forward:out", "node4/forward:loss"],
        ),
        "node4/backward": (
            ["node4/forward:loss", "node2/forward:out", "node3/forward:out", "node4.weight"],
            ["node4/backward:node2", "node4/backward:node3", "node4/backward:weight"],
        ),
        "node3/backward": (["node4/backward:node3", "node2/forward:out"], ["node3/backward:node2"]),
        # The input needs no gradient: neither an operator nor a tensor.
        "node2/backward": (
            ["node4/backward:node2", "node3/backward:node2", "node1/forward:out", "node2.weight"],
            ["node2/backward:weight"],
        ),
        "node4.weight/sgd_step": (
            ["node4.weight", "node4/backward:weight"],
            ["node4.weight:updated"],
        ),
        "node2.weight/sgd_step": (
            ["node2.weight", "node2/backward:weight"],
            ["node2.weight:updated"],
        ),
    }
    size = {tensor.name: tensor.bytes for tensor in graph.tensors}
    assert (
        size["node4.weight"]
        == size[f"node4.weight{UPDATED}"]
        == size["node4/backward:weight"]
        == 40
    )
    assert size["node4/forward:out"] == 9
    assert size["node4/backward:node3"] == size["node3/forward:out"] == 16
    assert [operator.kind for operator in graph.operators][:3] == ["input0", "conv2d", "relu"]
    assert graph.operators[-1].target == "optim.sgd_step.default"
    assert [graph.tensors[t].name for t in graph.outputs] == ["node4/forward:loss"]
    seconds = dict(zip(graph.operator_names, costs[graph].seconds.tolist(), strict=True))
    assert seconds["node2/forward"] == pytest.approx([0.022] * 2)
    assert seconds["node4/backward"] == pytest.approx([0.0035] * 2)
    assert seconds["node2.weight/sgd_step"] == [0, 0]


def test_a_step_on_one_device_takes_the_sum(tmp_path):
    profile = read_layer_profile(written(tmp_path / "net.txt", PIPEDREAM))
    cluster = cluster_of("V100")
    graph, costs = profile.instance(cluster)
    assert profile.name == "net"
    assert simulate(graph, cluster, costs, schedulers.create("heft")).makespan == pytest.approx(
        0.0615
    )


def test_a_folder_has_a_column_for_each_type(tmp_path):
    written(tmp_path / "net" / "V100.txt", PIPEDREAM)
    written(tmp_path / "net" / "T4.txt", PIPEDREAM.replace("time=22.000", "time=44.000"))
    profile = read_layer_profile(tmp_path / "net")
    assert profile.types == ("T4", "V100")
    graph, costs = profile.instance(cluster_of("V100", "T4", "V100"))
    row = graph.operator_names.index("node2/forward")
    assert costs[graph].seconds[row] == pytest.approx([0.022, 0.044, 0.022])
    with pytest.raises(
        InvalidInput,
        match="has no times of device type 'A100', which cluster 'c' has; it has T4, V100",
    ):
        profile.instance(cluster_of("V100", "A100"))
    single = read_layer_profile(tmp_path / "net" / "T4.txt")
    with pytest.raises(InvalidInput, match="one type of device, and cluster 'c' has V100, T4"):
        single.instance(cluster_of("V100", "T4"))
    written(tmp_path / "net" / "K80.txt", PIPEDREAM.replace("node1", "node0"))
    with pytest.raises(InvalidInput, match="has other layers than"):
        read_layer_profile(tmp_path / "net")


@pytest.mark.parametrize(
    ("name", "layers", "forward_ms", "backward_ms", "weights"),
    [
        # ResNet-50 has 25,557,032 parameters; the form has no output for the last layer, whose 128 x 1000 scores count.
        ("resnet50_training", 177, 201.450, 260.931, 4 * 25_557_032 + 128 * 1000 * 4),
        ("bert24_inference", 32, 92.406, 0.0, None),
    ],
)
def test_the_published_placement_form(name, layers, forward_ms, backward_ms, weights):
    profile = read_layer_profile(MSR / f"{name}.json")
    document = json.loads((MSR / f"{name}.json").read_text())
    graph, costs = profile.instance(cluster_of("cpu", "fpga"))
    assert len(profile.layers) == layers
    assert profile.training is (backward_ms > 0)
    kind = np.array([operator.kind for operator in graph.operators])
    seconds = costs[graph].seconds
    assert seconds[kind == "layer", 1].sum() * 1e3 == pytest.approx(forward_ms, abs=1e-3)
    assert seconds[kind == "layer_backward", 1].sum() * 1e3 == pytest.approx(backward_ms, abs=1e-3)
    total = sum(node["cpuLatency"] for node in document["nodes"])
    assert seconds[:, 0].sum() * 1e3 == pytest.approx(total)
    if weights is not None:
        assert graph.weight_bytes == weights


def test_sailors_form(tmp_path):
    times = {"0": [0.001, 0.002, 0.0005], "1": [0.003, 0.004, 0.0005]}
    file = written(tmp_path / "A100-40" / "profile.json", {"1": {"1": times, "2": {}}})
    with pytest.raises(InvalidInput, match=r"say nothing of bytes; write .*sizes.json"):
        read_layer_profile(file)
    written(tmp_path / "A100-40" / "sizes.json", {"0": [100, 10], "1": [200, 20]})
    profile = read_layer_profile(file)
    assert profile.name == "A100-40"
    graph, costs = profile.instance(cluster_of("A100-40"))
    seconds = dict(zip(graph.operator_names, costs[graph].seconds[:, 0].tolist(), strict=True))
    assert seconds == pytest.approx(
        {
            "0/forward": 0.001,
            "1/forward": 0.003,
            "1/backward": 0.004,
            "0/backward": 0.002,
            "1.weight/sgd_step": 0.0005,
            "0.weight/sgd_step": 0.0005,
        }
    )
    assert graph.weight_bytes == 300
    with pytest.raises(InvalidInput, match=r"no times of micro-batch 4 .* it has micro-batches 1"):
        read_layer_profile(file, batch=4)
    # Types in a folder: the file's name says which.
    file.rename(file.with_name("A100-40.json"))
    written(tmp_path / "A100-40" / "V100-16.json", {"1": {"1": {"0": [1, 2, 3], "1": [1, 2, 3]}}})
    assert read_layer_profile(tmp_path / "A100-40").types == ("A100-40", "V100-16")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "It has no layers"),
        ("node1 -- x\n", "Line 1, 'node1 -- x', is neither a layer nor an edge"),
        (PIPEDREAM.replace("node2 --", "node3 --", 1), "two layers of one name|edge"),
        (
            PIPEDREAM + "\tnode4 -- node9\n",
            r"edge \('node4', 'node9'\) between layers that it does not have",
        ),
        (PIPEDREAM + "\tnode4 -- node2\n", "cycle"),
        (PIPEDREAM.replace("=24.000", "=1e99"), "A number of layer 'node2' is '1e99'"),
        (PIPEDREAM.replace("=24.000", "=-1"), "is '-1', not a number from 0"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path, text, message):
    with pytest.raises(InvalidInput, match=message):
        read_layer_profile(written(tmp_path / "x.txt", text))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "no layer profile"),
        ({"nodes": [{"id": 1}], "edges": []}, "lists of objects, with id, cpuLatency"),
        ({"nodes": [], "edges": []}, "It has no layers"),
        ({"8": {"1": {}}}, "micro-batch 1"),
    ],
)
def test_json_that_is_no_profile_is_refused(tmp_path, document, message):
    with pytest.raises(InvalidInput, match=message):
        read_layer_profile(written(tmp_path / "x.json", document))


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="There is no layer profile"):
        read_layer_profile(tmp_path / "x.txt")
    with pytest.raises(InvalidInput, match="holds no layer profile"):
        read_layer_profile(tmp_path)
