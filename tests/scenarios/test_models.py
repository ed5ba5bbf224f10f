"""The shipped models: published sizes, torch's own FLOP count, and their outputs."""

from functools import cache

import pytest
import yaml

from cost_models.arithmetic import operator_flops
from scenarios.model_config import ModelConfig, load_model
from simulator.family import GraphFamily
from simulator.graph import DataflowGraph

torch = pytest.importorskip("torch")

from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402
from scenarios import trace_family, trace_model  # noqa: E402

# Parameters (torchvision's and transformers' own figures), GFLOP at batch 1, operators by kind.
PUBLISHED = {
    "resnet50": (25_557_032, 8.178, {"conv2d": 53, "batch_norm": 53, "add": 16, "linear": 1}),
    "googlenet": (6_624_904, 2.997, {"conv2d": 57, "cat": 9, "max_pool2d": 13}),
    "inception_v3": (23_834_568, 11.426, {"conv2d": 94, "cat": 15, "avg_pool2d": 9}),
    "bert_base": (109_482_240, 22.348, {"linear": 73, "scaled_dot_product_attention": 12}),
    "gpt2": (124_439_808, 32.228, {"addmm": 48, "scaled_dot_product_attention": 12, "linear": 1}),
    "lstm_cells": (8_404_992, 0.537, {"lstm_cell": 128, "stack": 1}),
}
MODELS = list(PUBLISHED)
TRANSFORMERS = ("bert_base", "gpt2")


def config(name, root, **changes):
    if name in TRANSFORMERS:
        pytest.importorskip("transformers")
    values = yaml.safe_load((root / "conf" / "model" / f"{name}.yaml").read_text())
    for key, value in changes.items():
        values[key] |= value
    return ModelConfig(**values)


@cache
def real(name, root):
    """The module with data, its inputs at batch 1, and the graph traced from it."""
    module, inputs = load_model(config(name, root), 1)
    graph = trace_model(module, inputs.args, kwargs=inputs.kwargs, name=name, batch=1)
    return module, inputs.args, DataflowGraph.from_json(graph.to_json())


def flops_of(graph):
    return sum(map(operator_flops, graph.operators))


def check_outputs(graph, module, inputs):
    with torch.inference_mode():
        expected = pytree.tree_leaves(module(*inputs))
    actual = run_graph(graph, weights_of(module, graph), named_inputs(graph, inputs))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_published_number(name, pytestconfig):
    module, _, graph = real(name, pytestconfig.rootpath)
    published = PUBLISHED[name][0]
    assert sum(parameter.numel() for parameter in module.parameters()) == published
    parameters = dict(module.named_parameters())
    weights = {graph.tensors[i].name: graph.tensors[i].spec.elements for i in graph.weights}
    assert set(parameters) <= set(weights)
    assert sum(weights[parameter] for parameter in parameters) == published


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_what_torch_counts_on_meta_tensors(name, pytestconfig):
    _, _, graph = real(name, pytestconfig.rootpath)
    described = config(name, pytestconfig.rootpath)
    with torch.device("meta"):
        module, inputs = load_model(described, 1)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs.args)
    assert flops_of(graph) == counter.get_total_flops()
    assert flops_of(graph) / 1e9 == pytest.approx(PUBLISHED[name][1], abs=5e-4)


@pytest.mark.parametrize("name", MODELS)
def test_kinds(name, pytestconfig):
    _, _, graph = real(name, pytestconfig.rootpath)
    found = [operator.kind for operator in graph.operators]
    expected = PUBLISHED[name][2]
    assert {kind: found.count(kind) for kind in expected} == expected
    # Nothing is left of what costs nothing.
    assert not {"copy", "view", "transpose", "dropout", "getitem", "split", "mask"} & set(found)


@pytest.mark.parametrize("name", MODELS)
def test_run_operator_by_operator_gives_the_modules_output(name, pytestconfig):
    module, inputs, graph = real(name, pytestconfig.rootpath)
    check_outputs(graph, module, inputs)


def test_gpt2_counts_its_tied_embedding_once(pytestconfig):
    _, _, graph = real("gpt2", pytestconfig.rootpath)
    names = [graph.tensors[i].name for i in graph.weights]
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names
    assert graph.weight_bytes == 4 * PUBLISHED["gpt2"][0]
    tied = names.index("transformer.wte.weight")
    assert len(graph.consumers[graph.weights[tied]]) == 2
    attention = next(o for o in graph.operators if o.kind == "scaled_dot_product_attention")
    assert attention.attributes["is_causal"] is True


def test_lstm_cells_form_a_grid(pytestconfig):
    _, _, graph = real("lstm_cells", pytestconfig.rootpath)
    cells = [i for i, operator in enumerate(graph.operators) if operator.kind == "lstm_cell"]
    depth = dict.fromkeys(range(len(graph)), 0)
    for i in cells:
        depth[i] = 1 + max((depth[p] for p in graph.predecessors[i]), default=0)
    # The longest chain of 4 layers by 32 steps.
    assert max(depth.values()) == 4 + 32 - 1


SMALL = {
    "bert_base": {"arguments": {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 99}},
    "gpt2": {"arguments": {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 99}},
    "lstm_cells": {
        "arguments": {"layers": 2, "hidden": 8, "features": 6},
        "parameters": {"steps": 3},
    },
}
FULL = [pytest.param(name, {}, marks=pytest.mark.slow) for name in MODELS]


@pytest.mark.parametrize(("name", "changes"), [*SMALL.items(), *FULL])
def test_the_family_has_the_graph_of_every_batch(name, changes, pytestconfig):
    described = config(name, pytestconfig.rootpath, **changes)
    family = trace_family(lambda batch: load_model(described, batch, fake=True), name)
    family = GraphFamily.from_json(family.to_json())
    for batch in (1, 4) if changes else (1,):
        module, inputs = load_model(described, batch)
        graph = family.at(batch)
        check_outputs(graph, module, inputs.args)
        if batch == 1:
            traced = trace_model(module, inputs.args, name=name, batch=1)
            assert flops_of(graph) == flops_of(traced)
            for part in ("kind", "inputs", "outputs", "attributes"):
                assert [getattr(o, part) for o in graph.operators] == [
                    getattr(o, part) for o in traced.operators
                ]
