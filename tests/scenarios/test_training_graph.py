"""Training steps run operator by operator against autograd and torch.optim."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

from calibration.sequential import named_inputs, run_tensors, view, weights_of  # noqa: E402
from cost_models.arithmetic import operator_flops  # noqa: E402
from cost_models.optimizer_steps import OPTIMIZERS  # noqa: E402
from scenarios import trace_model, trace_training, training_graph  # noqa: E402
from scenarios.training_graph import LOSSES, trace_training_family  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402
from tests.examples import examples  # noqa: E402

STEPS = ("sgd_step", "adam_step")


def kinds(graph):
    return [operator.kind for operator in graph.operators]


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, stride=2),
            nn.ReLU6(inplace=True),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(torch.flatten(self.features(x), 1))


class Perceptron(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(10, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5))


class Attention(nn.Module):
    """Tokens, tied embedding and head, one block."""

    def __init__(self, causal=True):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.causal = causal

    def forward(self, tokens):
        x = self.embedding(tokens)
        b, s, _ = x.shape
        q, k, v = (
            t.view(b, s, 4, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.head(x + F.silu(self.out(y.transpose(1, 2).reshape(b, s, 16))))


def images(batch=3):
    return torch.randn(batch, 3, 17, 17, generator=torch.Generator().manual_seed(1))


def rows(batch=6):
    return torch.randn(batch, 10, generator=torch.Generator().manual_seed(2))


def tokens(batch=2):
    return torch.randint(0, 11, (batch, 7), generator=torch.Generator().manual_seed(3))


MODELS = {"convnet": (ConvNet, images), "mlp": (Perceptron, rows), "attention": (Attention, tokens)}


def optimizer_for(name, module):
    return {
        "sgd": lambda p: torch.optim.SGD(p),
        "sgd_momentum": lambda p: torch.optim.SGD(p, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p),
        "adamw": lambda p: torch.optim.AdamW(p),
    }[name](module.parameters())


def target_for(graph, high):
    (spec,) = (graph.tensors[i].spec for i in graph.inputs if graph.tensors[i].name == "target")
    generator = torch.Generator().manual_seed(4)
    if spec.dtype == "int64":
        return torch.randint(0, high, spec.shape, generator=generator)
    return torch.rand(spec.shape, generator=generator)


def step_and_compare(module, given, loss="cross_entropy", optimizer="sgd", steps=2):
    """Two steps of the graph and of torch; gradients, parameters, states and buffers must agree."""
    module.train()
    graph = trace_training(module, given, loss=loss, optimizer=optimizer)
    graph = DataflowGraph.from_json(graph.to_json())
    target = target_for(graph, 5)
    inputs = named_inputs(graph, [given, target])
    weights = {name: value.clone() for name, value in weights_of(module, graph).items()}
    updates = [t.name for t in graph.tensors if t.name.endswith(":updated")]
    gradients = {
        o.name.rpartition("/")[0]: (graph.tensors[reads[1]].name, o.template["args"][1]["views"])
        for o, reads in zip(graph.operators, graph.reads, strict=True)
        if o.kind in STEPS
    }
    chosen = optimizer_for(optimizer, module)
    names = {id(p): name for name, p in module.named_parameters()}
    assert set(gradients) == set(names.values())
    for _ in range(steps):
        chosen.zero_grad()
        expected = LOSSES[loss](module(given), target)
        expected.backward()
        found = run_tensors(
            graph, weights, inputs, [*updates, *(name for name, _ in gradients.values())]
        )
        (result,) = graph.results
        torch.testing.assert_close(found[result["tensor"]], expected.detach())
        for name, parameter in module.named_parameters():
            stored, views = gradients[name]
            torch.testing.assert_close(view(found[stored], views), parameter.grad)
        chosen.step()
        weights |= {name.removesuffix(":updated"): found[name] for name in updates}
    for parameter, states in chosen.state.items():
        for state, value in states.items():
            if value is not None:
                torch.testing.assert_close(weights[f"{names[id(parameter)]}:{state}"], value)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(weights[name], parameter.detach())
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(weights[name], buffer)
    return graph


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_two_steps_equal_autograd_and_torch_optim(model, optimizer):
    make, inputs = MODELS[model]
    torch.manual_seed(0)
    step_and_compare(make(), inputs(), optimizer=optimizer)


@pytest.mark.parametrize("loss", ["mse", "binary_cross_entropy"])
def test_losses_with_a_target_like_the_output(loss):
    torch.manual_seed(0)
    graph = step_and_compare(Perceptron(), rows(), loss=loss)
    (spec,) = (graph.tensors[i].spec for i in graph.inputs if graph.tensors[i].name == "target")
    assert spec.shape == (6, 5)


def test_a_loss_of_ones_own_and_a_frozen_parameter():
    torch.manual_seed(0)
    module = Perceptron()
    module[0].weight.requires_grad_(False)
    target = torch.rand(6, 5)
    graph = trace_training(
        module, rows(), loss=lambda output, wanted: (output - wanted).abs().sum(), target=target
    )
    assert "0.weight:updated" not in [tensor.name for tensor in graph.tensors]
    assert sum(kind == "sgd_step" for kind in kinds(graph)) == 5
    inputs = named_inputs(graph, [rows(), target])
    found = run_tensors(graph, weights_of(module, graph), inputs, ["3.bias:updated"])
    (module(rows()) - target).abs().sum().backward()
    expected = module[3].bias.detach() - 1e-3 * module[3].bias.grad
    torch.testing.assert_close(found["3.bias:updated"], expected)
    without = trace_training(module, rows(), loss=lambda output: output.square().mean())
    assert [without.tensors[i].name for i in without.inputs] == ["input"]


def test_operators_are_named_by_module_and_saved_activations_have_their_reader():
    graph = trace_training(ConvNet(), images())
    names = [operator.name for operator in graph.operators]
    assert names[0] == "features.0/conv2d"
    # In eager order: the backward kernels of a module after all forward ones, steps at the end.
    backward = names.index("features.0/conv2d_backward")
    assert names.index("features.1/batch_norm_backward") < backward
    assert all(kind == "sgd_step" for kind in kinds(graph)[backward + 1 :])
    of = {tensor.name: index for index, tensor in enumerate(graph.tensors)}
    saved = of["features.0/conv2d:out"]
    assert names.index("features.1/batch_norm_backward") in graph.consumers[saved]
    # The input's gradient is asked for by nobody.
    (first,) = (o for o in graph.operators if o.name == "features.0/conv2d_backward")
    assert first.attributes["output_mask"] == [False, True, False]
    assert {graph.tensors[i].name for i in graph.weights} >= {"features.1.running_mean"}
    assert "features.1.running_mean:updated" in of


def test_the_module_stays_as_it_was_and_needs_no_data():
    module = ConvNet().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    graph = trace_training(module, images())
    assert not any(part.training for part in module.modules())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert not module._forward_hooks
    with FakeTensorMode(allow_non_fake_inputs=True):
        empty, given = ConvNet(), torch.randn(3, 3, 17, 17)
    assert trace_training(empty, given).to_json() == graph.to_json()


@pytest.mark.parametrize("model", MODELS)
def test_a_family_of_steps_is_the_step_at_every_batch(model):
    make, inputs = MODELS[model]

    def at(batch):
        return make(), ((inputs(batch),), {})

    family = trace_training_family(at, optimizer="adamw")
    traced = trace_training(make(), inputs(4), optimizer="adamw", batch=4)
    assert family.at(4).to_json() == traced.to_json()
    assert len(family.at(1)) == len(traced)


# -- FLOPs ------------------------------------------------------------------------------------


def flops_of(graph, *parts):
    return sum(
        operator_flops(o) for o in graph.operators if not parts or any(p in o.kind for p in parts)
    )


def step(module, given, target):
    module.train()
    LOSSES["cross_entropy"](module(given), target).backward()


def fits(drawn):
    """Whether an image of 23 x 23 is left anything of by every convolution."""
    length = 23 + 2 * drawn["padding"]
    for _ in drawn["channels"]:
        if length < drawn["kernel"]:
            return False
        length = (length - drawn["kernel"]) // drawn["stride"] + 1 + 2 * drawn["padding"]
    return True


convolutions = st.fixed_dictionaries(
    {
        "channels": st.lists(st.integers(1, 6), min_size=2, max_size=4),
        "kernel": st.sampled_from([1, 2, 3]),
        "stride": st.integers(1, 2),
        "padding": st.integers(0, 1),
        "bias": st.booleans(),
        "batch": st.integers(1, 3),
    }
).filter(fits)


@settings(max_examples=examples(15), deadline=None)
@given(convolutions)
def test_backward_flops_are_twice_the_forwards_but_for_the_first_layers_input(drawn):
    sizes = [2, *drawn["channels"]]
    options = {key: drawn[key] for key in ("stride", "padding", "bias")}
    module = nn.Sequential(
        *(nn.Conv2d(a, b, drawn["kernel"], **options) for a, b in itertools.pairwise(sizes)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(sizes[-1], 7),
    )
    x = torch.randn(drawn["batch"], 2, 23, 23)
    forward = trace_model(module, x)
    graph = trace_training(module, x)
    first = operator_flops(forward.operators[0])
    assert flops_of(graph) == 3 * flops_of(forward) - first
    with FlopCounterMode(display=False) as counter:
        step(module, x, torch.zeros(drawn["batch"], dtype=torch.int64))
    assert flops_of(graph) == counter.get_total_flops()


@pytest.mark.parametrize("causal", [True, False])
def test_flops_of_attention_are_torchs_with_five_products_backward(causal):
    module = Attention(causal)
    graph = trace_training(module, tokens())
    with FlopCounterMode(display=False) as counter:
        step(module, tokens(), torch.zeros(2, 7, dtype=torch.int64))
    # torch counts the flash kernels of GPUs, not the CPU's; 2 sequences, 4 heads, 7 tokens, 4 wide
    product = 2 * 2 * 4 * 7 * 7 * 4
    assert flops_of(graph, "scaled_dot_product_attention") == (2 + 5) * product
    assert flops_of(graph) == counter.get_total_flops() + 7 * product
    shape = torch.Size((2, 4, 7, 4))
    formula = flop_registry[torch.ops.aten._scaled_dot_product_flash_attention_backward]
    spec = torch.empty(shape, device="meta")
    assert formula(spec, spec, spec, spec, out_val=spec) == 5 * product


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_flops_of_grouped_and_transposed_convolutions(groups):
    x = torch.randn(2, 6, 9, 9)
    for layer in (
        nn.Conv2d(6, 12, 3, groups=groups, stride=2),
        nn.ConvTranspose2d(6, 12, 3, groups=groups, stride=2),
    ):
        module = nn.Sequential(nn.Conv2d(6, 6, 1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        forward, graph = trace_model(module, x), trace_training(module, x)
        assert flops_of(graph) == 3 * flops_of(forward) - operator_flops(forward.operators[0])


# -- what is refused --------------------------------------------------------------------------


def test_the_private_interface_is_there():
    """The one place where this torch's joint graph is asked for; see TESTED_TORCH."""
    graph = training_graph._joint_graph(
        training_graph._Step(nn.Linear(3, 2), lambda y: y.sum()), ((torch.randn(4, 3),), {}, None)
    )
    targets = [str(n.target) for n in graph.nodes if n.op == "call_function"]
    assert "aten.addmm.default" in targets
    assert torch.__version__.startswith(training_graph.TESTED_TORCH)


@pytest.mark.parametrize("change", ["absent", "renamed", "signature", "undescribed", "no graph"])
def test_another_torch_is_named(change, monkeypatch):
    from torch._functorch import aot_autograd
    from torch._functorch._aot_autograd import descriptors

    name = "aot_export_joint_with_descriptors"
    original = getattr(aot_autograd, name)
    if change == "absent":
        monkeypatch.delattr(aot_autograd, name)
    elif change == "renamed":
        monkeypatch.delattr(descriptors, "TangentAOTInput")
    elif change == "signature":
        monkeypatch.setattr(aot_autograd, name, lambda module, inputs: None)
    elif change == "no graph":
        monkeypatch.setattr(aot_autograd, name, lambda stack, mod, args: None)
    else:

        def stripped(stack, mod, args):
            joint = original(stack, mod, args)
            for node in joint.graph_module.graph.nodes:
                node.meta.pop("desc", None)
            return joint

        monkeypatch.setattr(aot_autograd, name, stripped)
    with pytest.raises(InvalidInput, match=rf"torch {re.escape(torch.__version__)} .*tested with"):
        trace_training(Perceptron(), rows())


class Refusing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        if bool((x * self.weight).sum() > 0):
            return x
        return -x


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (nn.ReLU(), {}, "no parameter that asks for a gradient"),
        (nn.Linear(10, 3), {"optimizer": "lion"}, "no optimizer 'lion'; known: sgd, sgd_mom"),
        (nn.Linear(10, 3), {"loss": "hinge"}, "no loss 'hinge'; known: cross_entropy"),
        (nn.Linear(10, 3), {"loss": lambda y: y}, "loss has the shape"),
        (nn.Linear(9, 3), {}, "cannot be trained: RuntimeError: a and b must have same"),
        (Refusing(), {}, "cannot be trained"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(module, options, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        trace_training(module, torch.randn(6, 10), **options)
    assert "\n" not in str(caught.value)
