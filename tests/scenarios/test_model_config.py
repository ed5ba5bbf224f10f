"""Models by configuration: a small network in a file outside the repository."""

import functools
import os
import subprocess
import sys

import pytest
import yaml

from scenarios.graph_cache import GraphCache
from scenarios.model_config import InputConfig, ModelConfig, family_of, graph_of, load_model
from simulator.errors import InvalidInput

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensor  # noqa: E402

import scenarios  # noqa: E402
from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402
from scenarios import model_config  # noqa: E402

SOURCE = """
import torch
from torch import nn
from blocks import Block  # a neighbour of this file

class Net(nn.Module):
    def __init__(self, width=8, quadratic=False):
        super().__init__()
        self.block = Block(width)
        self.quadratic = quadratic

    def forward(self, x, scale=None):
        if self.quadratic:
            return (x.flatten(1) @ x.flatten(1).t()).flatten().relu()
        y = self.block(x).flatten(1).softmax(-1)
        return y if scale is None else y * scale

class Fixed(nn.Module):
    def forward(self, x):
        assert x.shape[0] == 4, "made for batches of four"
        return x.relu()

def function():
    return 3

answer = 42
"""
BLOCK = """
from torch import nn

class Block(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
"""


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "blocks.py").write_text(BLOCK)
    path = folder / "net.py"
    path.write_text(SOURCE)
    yield path
    sys.modules.pop("blocks", None)


@pytest.fixture
def cache(tmp_path):
    return GraphCache(tmp_path / "cache")


def config(source, name="Net", **changes):
    values = {
        "name": "mine",
        "target": f"{source}:{name}",
        "arguments": {"width": 4},
        "parameters": {"size": 9},
        "inputs": [{"shape": ["batch", 3, "size", "size"]}],
        "batch": 2,
    }
    return ModelConfig(**(values | changes))


def plain(source, name, **changes):
    return config(source, name, arguments={}, **changes)


def test_a_users_file_is_traced_at_every_batch_and_runs(source, cache):
    mine = config(source)
    for batch in (2, 7):
        graph = graph_of(mine, batch, cache)
        assert [o.kind for o in graph.operators] == ["conv2d", "batch_norm", "relu", "softmax"]
        module, inputs = load_model(mine, batch, seed=3)
        assert inputs.args[0].shape == (batch, 3, 9, 9)
        with torch.no_grad():
            expected = module(*inputs.args)
        (actual,) = run_graph(graph, weights_of(module, graph), named_inputs(graph, inputs.args))
        torch.testing.assert_close(actual, expected)
    assert graph_of(mine, cache=cache).batch == 2
    assert graph_of(mine, 7, cache) is graph
    assert len(list(cache.folder.iterdir())) == 1


def test_a_training_step_is_traced_at_every_batch_and_runs(source, cache):
    mine = config(source, training=True, optimizer="sgd_momentum")
    inference = graph_of(config(source), 2, cache)
    for batch in (2, 7):
        graph = graph_of(mine, batch, cache)
        assert graph is not inference
        assert graph.name == "mine_sgd_momentum_step"
        assert "conv2d_backward" in [operator.kind for operator in graph.operators]
        module, inputs = load_model(mine, batch, seed=3)
        target = torch.zeros(batch, dtype=torch.int64)
        module.train()
        expected = torch.nn.functional.cross_entropy(module(*inputs.args), target)
        given = named_inputs(graph, [*inputs.args, target])
        (actual,) = run_graph(graph, weights_of(module, graph), given)
        torch.testing.assert_close(actual, expected.detach())
    # Optimizer and loss mean nothing to an inference and do not make it another graph.
    assert graph_of(config(source, optimizer="adam"), 2, cache) is inference
    with pytest.raises(InvalidInput, match="no loss 'hinge'"):
        graph_of(config(source, training=True, loss="hinge"), 2, cache)


def test_inputs_by_name_integers_and_their_bounds(source):
    mine = config(
        source,
        parameters={"size": 9, "classes": 5},
        inputs=[
            InputConfig(["batch", 3, "size", "size"]),
            {"shape": [1], "dtype": "int64", "high": "classes", "name": "scale"},
            {"shape": [1000], "dtype": "int32", "high": 3, "name": "third"},
            {"shape": ["width", "batch"], "dtype": "bool", "name": "fourth"},
        ],
    )
    _, inputs = load_model(mine, 2)
    assert inputs.kwargs["scale"].dtype == torch.int64
    assert set(inputs.kwargs["third"].tolist()) == {0, 1, 2}
    assert inputs.kwargs["fourth"].shape == (4, 2)
    _, again = load_model(mine, 2)
    assert torch.equal(inputs.args[0], again.args[0])
    named = config(source, parameters=mine.parameters, inputs=mine.inputs[:2])
    graph = graph_of(named, 2, GraphCache(source.parent / "cache"))
    assert [graph.tensors[i].name for i in graph.inputs] == ["x", "scale"]


def test_loading_leaves_torchs_generator_as_it_was(source):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    load_model(config(source), seed=1)
    assert torch.equal(before, torch.get_rng_state())


def test_a_cached_graph_needs_no_torch_and_is_the_same(source, cache, tmp_path):
    mine = config(source)
    digest = graph_of(mine, 6, cache).digest
    code = f"""
import sys
from scenarios import ModelConfig, graph_of
from scenarios.graph_cache import GraphCache
mine = ModelConfig({mine.name!r}, {mine.target!r}, arguments={mine.arguments!r},
    parameters={mine.parameters!r}, inputs=[{{"shape": ["batch", 3, "size", "size"]}}])
assert graph_of(mine, 6, GraphCache({str(cache.folder)!r})).digest == {digest!r}
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_change_to_the_model_or_its_neighbour_is_traced_anew(source, cache):
    """Of one batch alone, which is a trace instead of three; what keys a family has is compared."""
    mine = config(source, inputs=[{"shape": [2, 3, "size", "size"]}])
    families = [model_config._family_key(config(source))]

    def traced(changed=mine):
        families.append(model_config._family_key(config(source)))
        return graph_of(changed, cache=cache)

    assert traced().operators[2].kind == "relu"
    text = SOURCE.replace("softmax", "log_softmax")
    source.write_text(text)
    assert traced().operators[3].kind == "log_softmax"
    blocks = source.parent / "blocks.py"
    # Python takes what it compiled for a file of the same size and second as the file's.
    compiled = blocks.stat().st_mtime
    blocks.write_text(BLOCK.replace("nn.ReLU", "nn.SiLU"))
    os.utime(blocks, (compiled + 2, compiled + 2))
    sys.modules.pop("blocks")
    families.append(model_config._family_key(config(source)))
    source.write_text(text + "\n")  # modules are kept by content within a process
    assert traced().operators[2].kind == "silu"
    first, again, *changed = families
    assert again == first
    assert len({first, *changed}) == 1 + len(changed) == 4
    wider = config(source, arguments={"width": 5}, inputs=mine.inputs)
    assert traced(wider).operators[0].outputs[0].shape[1] == 5
    assert model_config._family_key(wider) != model_config._family_key(mine)


def test_a_damaged_entry_is_traced_anew(source, cache, monkeypatch):
    """From the same modules, which are really traced once."""
    asked = []

    @functools.cache
    def once(single, batch, check):
        return really(of_one_batch if single else config(source), batch, check)

    def traced(mine, batch, check=True):
        asked.append(batch)
        return once(mine is of_one_batch, batch, check)

    really = model_config._traced
    monkeypatch.setattr(model_config, "_traced", traced)
    of_one_batch = config(source, inputs=[{"shape": [2, 3, "size", "size"]}])
    for mine, damaged in ((config(source), [100]), (of_one_batch, [100, 0])):
        digest = graph_of(mine, 2, cache).digest
        (entry,) = cache.folder.iterdir()
        whole = entry.read_bytes()
        for length in damaged:
            before = len(asked)
            entry.write_bytes(whole[:length])
            monkeypatch.setattr(model_config, "_families", {})
            monkeypatch.setattr(model_config, "_graphs", {})
            assert graph_of(mine, 2, cache).digest == digest
            assert len(asked) > before
            assert entry.read_bytes() == whole
        entry.unlink()


def test_a_model_that_is_not_affine_is_traced_at_each_batch(source, cache):
    mine = config(source, arguments={"quadratic": True})
    with pytest.raises(InvalidInput, match="not affine in the batch"):
        family_of(mine, cache)
    graph = graph_of(mine, 4, cache)
    assert graph.operators[-1].outputs[0].shape == (16,)
    assert graph.batch == 4
    # The family is not tried a second time.
    with pytest.raises(InvalidInput, match="not affine in the batch"):
        family_of(mine, cache)
    assert len(list(cache.folder.iterdir())) == 2


def test_a_model_for_one_batch_alone(source, cache):
    fixed = plain(source, "Fixed")
    assert graph_of(fixed, 4, cache).operators[0].kind == "relu"
    with pytest.raises(InvalidInput, match="made for batches of four"):
        graph_of(fixed, 3, cache)


def test_inputs_without_a_batch(source, cache):
    fixed = plain(source, "Fixed", inputs=[{"shape": [4, 2]}])
    assert graph_of(fixed, 99, cache).batch is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "no_such_package.models.Net"}, "no module named 'no_such_package'"),
        ({"target": "torch.nn.NoSuchThing"}, "nothing called 'NoSuchThing'"),
        ({"target": "Net"}, "neither package.module.Name nor path/to/file.py:Name"),
        ({"target": "/no/such/file.py:Net"}, "there is no file /no/such/file.py"),
        (
            {"target": "{source}:Nothing"},
            r"nothing called 'Nothing' .*there is: Net, Fixed, function",
        ),
        ({"target": "{source}:answer"}, "nothing called 'answer' to call"),
        ({"target": "{source}:function", "arguments": {}}, "gives a int, not a torch.nn.Module"),
        ({"arguments": {"widht": 4}}, "TypeError.*widht"),
        (
            {"inputs": [{"shape": ["batch", "sise"]}]},
            "the length 'sise' is neither .*width, size, batch",
        ),
        ({"inputs": [{"shape": [2], "dtype": "float31"}]}, "unknown element type 'float31'"),
        ({"inputs": [{"shape": [2], "dtype": "int64", "high": "x"}]}, "the bound 'x'"),
    ],
)
def test_mistakes_are_named(source, changes, message):
    if "target" in changes:
        changes = changes | {"target": changes["target"].format(source=source)}
    with pytest.raises(InvalidInput, match=message):
        load_model(config(source, **changes))


READING = """
import torch
from torch import nn

class Stochastic(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, depth)]
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in self.rates)

    def forward(self, x):
        for rate, layer in zip(self.rates, self.layers):
            x = x + layer(x) * (1 - rate)
        return x

class Broken(Stochastic):
    def __init__(self):
        super().__init__()
        raise KeyError("the real reason")

class Plain(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
"""


def test_a_constructor_that_needs_data_is_called_for_real(tmp_path):
    source = tmp_path / "reading.py"
    source.write_text(READING)
    given = {"inputs": [InputConfig(["batch", 4])]}
    made = graph_of(ModelConfig("m", f"{source}:Stochastic", **given), 2, GraphCache(tmp_path))
    module, inputs = load_model(ModelConfig("m", f"{source}:Stochastic", **given), 2)
    traced = scenarios.trace_model(module, inputs.args, name="m", batch=2)
    assert made.to_json() == traced.to_json()
    with pytest.raises(InvalidInput, match="KeyError: 'the real reason'"):
        load_model(ModelConfig("m", f"{source}:Broken"), fake=True)


def test_a_constructor_that_needs_no_data_gets_none(tmp_path):
    source = tmp_path / "plain.py"
    source.write_text(READING)
    module, _ = load_model(ModelConfig("m", f"{source}:Plain"), fake=True)
    assert isinstance(module.weight, FakeTensor)


def test_unknown_keys_of_an_input_are_refused():
    with pytest.raises(InvalidInput, match="got shape, typ"):
        ModelConfig("m", "a.b", inputs=[{"shape": [1], "typ": "float32"}])


def test_errors_while_a_file_is_loaded_are_named(source):
    source.write_text("import torch\n1 / 0\n")
    with pytest.raises(InvalidInput, match="ZeroDivisionError: division by zero"):
        load_model(config(source))


def test_shipped_configurations_are_complete(pytestconfig):
    folder = pytestconfig.rootpath / "conf" / "model"
    names = set()
    for path in sorted(folder.glob("*.yaml")):
        values = yaml.safe_load(path.read_text())
        if "target" not in values:
            continue
        names.add(path.stem)
        if values["target"] == "???":
            assert {key for key, value in values.items() if value == "???"} == {
                "name",
                "target",
                "inputs",
            }
            continue
        described = ModelConfig(**values)
        assert described.name == path.stem
        assert described.description
        assert described.has_batch
    assert {"resnet50", "googlenet", "inception_v3", "bert_base", "gpt2", "lstm_cells"} <= names
    assert {"vit_b_16", "t5_small", "gru_cells", "wide_and_deep", "two_tower"} <= names
    assert {"two_tower_lstm"} <= names


def test_fusion_makes_the_compiled_models_kernels(source, cache):
    plain = graph_of(config(source), 3, cache)
    fused = graph_of(config(source, fusion="inductor"), 3, cache)
    kinds = [operator.kind for operator in fused.operators]
    assert kinds[:4] == ["copy", "copy", "conv2d", "fused"]
    assert fused.operators[3].attributes["members"][:2] == ["batch_norm", "relu"]
    assert fused.results == plain.results
    assert graph_of(config(source, fusion="inductor"), 3, cache) is fused
    with pytest.raises(InvalidInput, match="no fusion 'nvfuser'; known: none, inductor"):
        config(source, fusion="nvfuser")
    with pytest.raises(InvalidInput, match="of inferences, not of training steps"):
        config(source, fusion="inductor", training=True)


TIED = """
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.cells = nn.LSTM(6, 6, batch_first=True)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 11)
        self.head.weight = self.embedding.weight

    def forward(self, x, scale):
        y, _ = self.cells(self.embedding(x))
        return self.head(self.norm(y[:, -1]) * scale)
"""


@pytest.mark.parametrize("fake", [False, True])
def test_a_model_in_another_element_type_is_what_torch_makes_of_it(tmp_path, fake):
    (tmp_path / "tied.py").write_text(TIED)
    inputs = [InputConfig(["batch", 3], "int64", high=11), InputConfig(["batch", 1])]
    given = {"name": "tied", "target": f"{tmp_path}/tied.py:Tied", "inputs": inputs}
    module, (args, _) = load_model(ModelConfig(**given, dtype="bfloat16"), 2, fake=fake)
    plain, _ = load_model(ModelConfig(**given), 2)
    expected = plain.to(torch.bfloat16)
    assert module.head.weight is module.embedding.weight
    for (name, own), (other, tensor) in zip(
        module.state_dict().items(), expected.state_dict().items(), strict=True
    ):
        assert (name, own.dtype) == (other, tensor.dtype)
        assert fake or torch.equal(own, tensor)
    assert [tensor.dtype for tensor in args] == [torch.int64, torch.bfloat16]
    assert fake or torch.equal(module(*args), expected(*args))


def test_an_element_type_has_a_graph_of_its_own(source, cache):
    inputs = [{"shape": [2, 3, "size", "size"]}]  # of one batch alone: a trace instead of three
    plain = graph_of(config(source, inputs=inputs), 2, cache)
    assert {spec.dtype for op in plain.operators for spec in op.outputs} == {"float32"}
    for dtype in ("bfloat16", "float16"):
        mine = config(source, dtype=dtype, inputs=inputs)
        graph = graph_of(mine, 2, cache)
        assert {spec.dtype for op in graph.operators for spec in op.outputs} == {dtype}
        assert graph.digest != plain.digest
        # From the cache, too.
        model_config._graphs.clear()
        assert graph_of(mine, 2, cache).digest == graph.digest
    with pytest.raises(
        InvalidInput, match=r"no model\.dtype=half; known: float32, bfloat16, float16"
    ):
        config(source, dtype="half")
    with pytest.raises(InvalidInput, match=r"given times: model\.dtype=float16 cannot change them"):
        ModelConfig("layers", profile="somewhere", dtype="float16")
