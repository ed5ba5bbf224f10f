"""The shipped models: published sizes, torch's own FLOP count, and their outputs."""

import hashlib
import re
from functools import cache
from itertools import pairwise

import pytest
import yaml

from cost_models.arithmetic import operator_flops
from scenarios.model_config import ModelConfig, load_model
from simulator.errors import InvalidInput
from simulator.model.family import GraphFamily
from simulator.model.graph import DataflowGraph
from tests.examples import only_thoroughly

torch = pytest.importorskip("torch")

from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402
from scenarios import trace_model, trace_training  # noqa: E402
from scenarios.tracing import family_of  # noqa: E402
from scenarios.training.model_profile import profile_model  # noqa: E402

# Fields of wide_and_deep, of a user and of an item, each with a table of its own.
WIDE_FIELDS, USER_FIELDS, ITEM_FIELDS = 26, 8, 4
EXIT_WIDTHS = (64, 64, 128, 128, 256, 256, 512, 512)


def dense(*widths):
    """Parameters of linear layers with biases, one after the other."""
    return sum((n + 1) * m for n, m in pairwise(widths))


# Parameters (torchvision's and transformers' own figures, or what the layers' formulas add up to),
# GFLOP at batch 1, operators by kind.
PUBLISHED = {
    "resnet50": (25_557_032, 8.178, {"conv2d": 53, "batch_norm": 53, "add": 16, "linear": 1}),
    "googlenet": (6_624_904, 2.997, {"conv2d": 57, "cat": 9, "max_pool2d": 13}),
    "inception_v3": (23_834_568, 11.426, {"conv2d": 94, "cat": 15, "avg_pool2d": 9}),
    "bert_base": (109_482_240, 22.348, {"linear": 73, "scaled_dot_product_attention": 12}),
    "gpt2": (124_439_808, 32.228, {"addmm": 48, "scaled_dot_product_attention": 12, "linear": 1}),
    "lstm_cells": (8_404_992, 0.537, {"lstm_cell": 128, "stack": 1}),
    # Twice the published .714 and 15.470 GMAC.
    "alexnet": (61_100_840, 1.428, {"conv2d": 5, "linear": 3, "max_pool2d": 3}),
    "vgg16": (138_357_544, 30.941, {"conv2d": 13, "linear": 3, "max_pool2d": 5}),
    "squeezenet1_1": (1_235_496, 0.698, {"conv2d": 26, "cat": 8, "max_pool2d": 3}),
    "mobilenet_v2": (3_504_872, 0.602, {"conv2d": 52, "hardtanh": 35, "add": 10}),
    "resnet18": (11_689_512, 3.628, {"conv2d": 20, "batch_norm": 20, "add": 8}),
    "resnet34": (21_797_672, 7.328, {"conv2d": 36, "batch_norm": 36, "add": 16}),
    "densenet121": (7_978_856, 5.668, {"conv2d": 120, "cat": 58 + 4, "avg_pool2d": 3}),
    "vit_b_16": (86_567_656, 35.128, {"linear": 49, "scaled_dot_product_attention": 12}),
    "t5_small": (60_506_624, 16.089, {"linear": 97, "scaled_dot_product_attention": 18}),
    "gru_cells": (4 * (3 * 512 * (512 + 512) + 6 * 512), 0.403, {"gru_cell": 128, "stack": 1}),
    "multi_exit": (
        9 * sum(n * m for n, m in pairwise((3, *EXIT_WIDTHS)))
        + 2 * sum(EXIT_WIDTHS)
        + sum(dense(16 * width, 10) for width in EXIT_WIDTHS),
        20.521,
        {"conv2d": 8, "batch_norm": 8, "relu": 8, "adaptive_avg_pool2d": 8, "linear": 8},
    ),
    "wide_and_deep": (
        1_000_000 + WIDE_FIELDS * 10_000 * 32 + dense(WIDE_FIELDS * 32 + 13, 1024, 512, 256, 1),
        0.003,
        {"embedding": 1 + WIDE_FIELDS, "linear": 4, "cat": 1, "sum": 1},
    ),
    "two_tower": (
        (50_000 + (USER_FIELDS + ITEM_FIELDS) * 1_000) * 64
        + dense((1 + USER_FIELDS) * 64, 1024, 512, 128)
        + dense((1 + ITEM_FIELDS) * 64, 1024, 512, 128),
        0.920,
        {"embedding": 2 + USER_FIELDS + ITEM_FIELDS, "linear": 6, "cat": 2, "matmul": 1},
    ),
    "two_tower_lstm": (
        2 * (30_000 * 512 + 2 * (4 * 512 * (512 + 512) + 8 * 512)),
        0.403,
        {"embedding": 2, "lstm_cell": 2 * (16 + 32), "sum": 1},
    ),
}
# These have the kinds and joins of the others, and take longest to trace.
DEEP = ("resnet34", "resnet50", "inception_v3", "densenet121")
MODELS = [name for name in PUBLISHED if name not in DEEP or only_thoroughly(name)]
TRANSFORMERS = ("bert_base", "gpt2", "t5_small")
# Run at full size; the others are traced without data, and run small in the test of families.
RUN_IN_FULL = (
    "resnet50",
    "googlenet",
    "inception_v3",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "squeezenet1_1",
)
# sha256 (the first 16 digits) of the lines "name [shape]" of the state_dict of torchvision 0.29.1.
TORCHVISION = {
    "alexnet": "23c3b8d4a3e86dc8",
    "vgg16": "8a41c838cadbc3e0",
    "squeezenet1_1": "65606c58925d8fe7",
    "mobilenet_v2": "a18c560d82f6d01d",
    "densenet121": "08ed4bd108558638",
    "resnet18": "66b04efc1dfd4b80",
    "resnet34": "4aa3e2bbbdc5e2fd",
    "resnet50": "614cd53ddf849669",
    "vit_b_16": "a83b288843a9372e",
}


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
    return _traced(name, root, fake=False)


@cache
def described(name, root):
    """The same, without data where the model is run at another size."""
    return real(name, root) if name in RUN_IN_FULL else _traced(name, root, fake=True)


def _traced(name, root, fake):
    module, inputs = load_model(config(name, root), 1, fake=fake)
    # Those with data are held against their graphs by the tests below, with tighter bounds.
    graph = trace_model(module, inputs.args, kwargs=inputs.kwargs, name=name, batch=1, check=False)
    return module, inputs, DataflowGraph.from_json(graph.to_json())


def flops_of(graph):
    return sum(map(operator_flops, graph.operators))


def check_outputs(graph, module, inputs):
    with torch.inference_mode():
        expected = pytree.tree_leaves(module(*inputs.args, **inputs.kwargs))
    given = inputs.kwargs or inputs.args
    actual = run_graph(graph, weights_of(module, graph), named_inputs(graph, given))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_published_number(name, pytestconfig):
    module, _, graph = described(name, pytestconfig.rootpath)
    published = PUBLISHED[name][0]
    assert sum(parameter.numel() for parameter in module.parameters()) == published
    parameters = dict(module.named_parameters())
    weights = {graph.tensors[i].name: graph.tensors[i].spec.elements for i in graph.weights}
    assert set(parameters) <= set(weights)
    assert sum(weights[parameter] for parameter in parameters) == published


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_what_torch_and_closed_forms_count(name, pytestconfig):
    described_module, given, graph = described(name, pytestconfig.rootpath)
    check_closed_forms(name, described_module, given, graph)
    with torch.device("meta"):
        module, inputs = load_model(config(name, pytestconfig.rootpath), 1)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs.args, **inputs.kwargs)
    assert flops_of(graph) == counter.get_total_flops()
    assert flops_of(graph) / 1e9 == pytest.approx(PUBLISHED[name][1], abs=5e-4)


@pytest.mark.parametrize("name", MODELS)
def test_kinds(name, pytestconfig):
    _, _, graph = described(name, pytestconfig.rootpath)
    found = [operator.kind for operator in graph.operators]
    expected = PUBLISHED[name][2]
    assert {kind: found.count(kind) for kind in expected} == expected
    # Nothing is left of what costs nothing.
    absent = {"view", "transpose", "dropout", "getitem", "split", "mask"}
    if name != "t5_small":  # which puts its position bias in order for every attention
        absent.add("copy")
    assert not absent & set(found)


@pytest.mark.parametrize("name", TORCHVISION)
def test_weights_are_named_and_shaped_as_in_torchvision(name, pytestconfig):
    with torch.device("meta"):
        module, _ = load_model(config(name, pytestconfig.rootpath), 1)
    lines = [f"{key} {list(value.shape)}" for key, value in module.state_dict().items()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest[:16] == TORCHVISION[name]


@pytest.mark.parametrize("name", [name for name in RUN_IN_FULL if name in MODELS])
def test_run_operator_by_operator_gives_the_modules_output(name, pytestconfig):
    module, inputs, graph = real(name, pytestconfig.rootpath)
    check_outputs(graph, module, inputs)


def test_gpt2_counts_its_tied_embedding_once(pytestconfig):
    _, _, graph = described("gpt2", pytestconfig.rootpath)
    names = [graph.tensors[i].name for i in graph.weights]
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names
    assert graph.weight_bytes == 4 * PUBLISHED["gpt2"][0]
    tied = names.index("transformer.wte.weight")
    assert len(graph.consumers[graph.weights[tied]]) == 2
    attention = next(o for o in graph.operators if o.kind == "scaled_dot_product_attention")
    assert attention.attributes["is_causal"] is True


def test_t5_counts_its_tied_embedding_once(pytestconfig):
    _, _, graph = described("t5_small", pytestconfig.rootpath)
    # Read by the encoder, the decoder and the head.
    tied = next(i for i in graph.weights if graph.tensors[i].name == "shared.weight")
    assert len(graph.consumers[tied]) == 3
    assert graph.weight_bytes == 4 * PUBLISHED["t5_small"][0]


def test_towers_meet_only_in_the_last_product(pytestconfig):
    _, _, graph = described("two_tower", pytestconfig.rootpath)
    product = next(i for i, o in enumerate(graph.operators) if o.kind == "matmul")
    above = []
    for start in graph.predecessors[product]:
        found, waiting = {start}, [start]
        while waiting:
            new = {*graph.predecessors[waiting.pop()]} - found
            found |= new
            waiting += new
        above.append(found)
    assert len(above) == 2
    assert not above[0] & above[1]
    # What remains is the division by the temperature.
    assert sum(map(len, above)) == len(graph) - 2


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_cells_form_a_grid(kind, pytestconfig):
    _, _, graph = described(f"{kind}_cells", pytestconfig.rootpath)
    cells = [i for i, operator in enumerate(graph.operators) if operator.kind == f"{kind}_cell"]
    depth = dict.fromkeys(range(len(graph)), 0)
    for i in cells:
        depth[i] = 1 + max((depth[p] for p in graph.predecessors[i]), default=0)
    # The longest chain of 4 layers by 32 steps.
    assert max(depth.values()) == 4 + 32 - 1


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("resnet18", {"depth": 19}, "No ResNet of 19 layers; known: 18, 34, 50"),
        ("vit_b_16", {"image_size": 225}, "image_size 225 is no multiple of patch_size 16"),
        ("vit_b_16", {"heads": 7}, "hidden 768 is no multiple of heads 7"),
        ("t5_small", {"heads": 7}, "hidden 512 is no multiple of heads 7"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name, arguments, message, pytestconfig):
    with pytest.raises(InvalidInput, match=message):
        load_model(config(name, pytestconfig.rootpath, arguments=arguments), 1, fake=True)


IMAGE = {"parameters": {"image_size": 64}}
SMALL = {
    "bert_base": {"arguments": {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 99}},
    "gpt2": {"arguments": {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 99}},
    "lstm_cells": {
        "arguments": {"layers": 2, "hidden": 8, "features": 6},
        "parameters": {"steps": 3},
    },
    "alexnet": {"arguments": {"hidden": 32}} | IMAGE,
    "vgg16": {"arguments": {"hidden": 32}} | IMAGE,
    "densenet121": {"arguments": {"layers": [1, 1]}} | IMAGE,
    "vit_b_16": {"arguments": {"image_size": 64, "layers": 1, "hidden": 32, "heads": 4}},
    "t5_small": {
        "arguments": {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 99},
        "parameters": {"sequence_length": 24, "target_length": 7},
    },
    "gru_cells": {
        "arguments": {"layers": 2, "hidden": 8, "features": 6},
        "parameters": {"steps": 3},
    },
    "multi_exit": {
        "arguments": {"widths": [4, 8, 8], "pools": [1, 2], "image_size": 16, "classes": 5}
    },
    "wide_and_deep": {"arguments": {"fields": 3, "vocabulary": 50, "products": 99}},
    "two_tower": {
        "arguments": {"items": 99, "values": 9, "user_fields": 2},
        "parameters": {"candidates": 11},
    },
    "two_tower_lstm": {
        "arguments": {"vocabulary": 99, "layers": 2, "hidden": 8},
        "parameters": {"steps": 2, "document_steps": 3},
    },
}
# Three more traces of a network at full size show what those of small ones show: nothing but convolutions, normalisations,
# branches that are joined and sums of two, which densenet121 and the transformers have as well.
LARGE = only_thoroughly(
    *(
        pytest.param(name, {}, marks=pytest.mark.slow)
        for name in ("resnet18", "resnet50", "squeezenet1_1", "googlenet")
    )
)


@pytest.mark.parametrize(("name", "changes"), [*LARGE, *SMALL.items()])
def test_the_family_has_the_graph_of_every_batch(name, changes, pytestconfig):
    model = config(name, pytestconfig.rootpath, **changes)

    def trace(batch, _=False, fake=True):
        module, inputs = load_model(model, batch, fake=fake)
        # What tracing compares by itself is compared below, at other batches.
        return trace_model(
            module, inputs.args, kwargs=inputs.kwargs, name=name, batch=batch, check=False
        )

    family = GraphFamily.from_json(family_of(trace).to_json())
    if changes:
        module, inputs = load_model(model, 1)
        traced = trace(1, fake=False)
        check_outputs(family.at(4), *load_model(model, 4))
    else:
        module, inputs, traced = real(name, pytestconfig.rootpath)
    graph = family.at(1)
    check_outputs(graph, module, inputs)
    assert flops_of(graph) == flops_of(traced)
    for part in ("kind", "inputs", "outputs", "attributes"):
        assert [getattr(o, part) for o in graph.operators] == [
            getattr(o, part) for o in traced.operators
        ]


# -- closed forms (scenarios.training.model_profile) against the traced graphs ----------------


def check_closed_forms(name, module, inputs, graph):
    layers = profile_model(module, inputs.args, inputs.kwargs)
    assert sum(layer.parameters for layer in layers) == PUBLISHED[name][0]
    buffers = sum(layer.statistics + layer.counters + layer.constants for layer in layers)
    assert buffers == sum(buffer.numel() for buffer in module.buffers())
    found = {(la.path, la.kind): (la.calls, la.outputs, la.macs) for la in layers if la.calls}
    traced = dict.fromkeys(found, (0, 0, 0.0))
    for operator in graph.operators:
        path, _, call = operator.name.rpartition("/")
        key = path, re.sub(r"_\d+$", "", call)
        calls, outputs, macs = traced.get(key, (0, 0, 0.0))
        macs += operator_flops(operator) / 2
        if key in found or operator_flops(operator):
            traced[key] = calls + 1, outputs + operator.outputs[0].elements, macs
    assert found == traced


TRAINED = {  # the others have the same layers
    name: changes
    for name, changes in SMALL.items()
    if only_thoroughly(name)
    or name in ("alexnet", "densenet121", "bert_base", "vit_b_16", "gru_cells", "multi_exit")
}


@pytest.mark.parametrize(("name", "changes"), [*LARGE, *TRAINED.items()])
def test_training_flops_are_those_of_the_traced_step(name, changes, pytestconfig):
    module, inputs = load_model(config(name, pytestconfig.rootpath, **changes), 2, fake=True)
    layers = profile_model(module, inputs.args, inputs.kwargs)
    loss = "binary_cross_entropy" if name == "wide_and_deep" else "cross_entropy"
    step = trace_training(module, inputs.args, kwargs=inputs.kwargs, loss=loss, check=False)
    # What neither the loss nor a statistic needs is not in the step: a pooler, exits behind the first.
    kept = {operator.name.rpartition("/")[0] for operator in step.operators}
    assert sum(la.training_flops for la in layers if la.path in kept) == flops_of(step)
    assert all(la.training_flops == la.flops for la in layers if la.path not in kept)


def test_buffers_of_batch_normalisation_are_counted_apart(pytestconfig):
    module, inputs, _ = described("resnet18", pytestconfig.rootpath)
    layers = profile_model(module, inputs.args)
    parameters, statistics = (
        sum(getattr(layer, what) for layer in layers) for what in ("parameters", "statistics")
    )
    assert (parameters, parameters + statistics) == (11_689_512, 11_699_112)
    assert sum(layer.counters for layer in layers) == 20
