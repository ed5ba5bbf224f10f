import pytest

from simulator.errors import InvalidInput
from simulator.model.operator import Operator
from simulator.model.operator import TensorSpec as T

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from calibration.kernels import build, make_operator, resolve, spec_of  # noqa: E402
from calibration.random_tensors import random_reads  # noqa: E402


def operator(target, args, reads, kwargs=None):
    template = {"args": args, "kwargs": kwargs or {}}
    return Operator("op", "kind", target=target, template=template, reads=tuple(reads))


def leaf(r, *views):
    return {"read": r, "views": list(views)}


def test_a_kernel_calls_its_target_with_the_stored_tensors():
    x, w, b = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3), torch.randn(4)
    convolution = make_operator(
        "aten.conv2d.default", T((2, 3, 9, 9)), T((4, 3, 3, 3)), T((4,)), [2, 2], [1, 1]
    )
    (y,) = build(convolution)(x, w, b)
    torch.testing.assert_close(y, F.conv2d(x, w, b, stride=2, padding=1), rtol=0, atol=0)
    assert convolution.outputs == (spec_of(y),)


def test_views_are_applied_left_to_right_and_bound_kernels_have_them_applied():
    x = torch.arange(24.0).reshape(2, 12)
    split = ["aten.split.Tensor", [{"self": True}, 4, 1], {}]
    transpose = ["aten.transpose.int", [{"self": True}, 0, 1], {}]
    node = leaf(0, split, ["getitem", 2], transpose)
    kernel = build(
        operator("aten.add.Tensor", [node, leaf(0, split, ["getitem", 0], transpose)], [T((2, 12))])
    )
    expected = x[:, 8:].t() + x[:, :4].t()
    assert torch.equal(kernel(x)[0], expected)
    call = kernel.bind(x)
    assert torch.equal(call(), expected)
    x.zero_()
    assert torch.equal(call(), torch.zeros(4, 2))


def test_a_view_of_another_layout_than_was_traced_is_copied():
    flatten = ["aten.view.default", [{"self": True}, [2, 12]], {}]
    kernel = build(operator("aten.relu.default", [leaf(0, flatten)], [T((2, 3, 4))]))
    a = torch.randn(2, 4, 3).transpose(
        1, 2
    )  # as an attention kernel of another device may leave it
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        a.view(2, 12)
    assert torch.equal(kernel(a)[0], torch.relu(a.reshape(2, 12)))


def test_lists_constants_and_placeholders():
    x = torch.ones(2, 3)
    cat = build(operator("aten.cat.default", [[leaf(0), leaf(1), leaf(0)], 1], [T((2, 3))] * 2))
    assert cat(x, 2 * x)[0].sum() == 6 + 12 + 6
    full = build(
        operator(
            "aten.full.default",
            [[2, 3], {"float": "-inf"}],
            [],
            {
                "dtype": {"dtype": "float64"},
                "device": {"device": True},
                "layout": {"layout": "strided"},
            },
        )
    )
    (made,) = full()
    assert made.dtype == torch.float64
    assert made.device.type == "cpu"
    assert torch.isneginf(made).all()
    copy = build(
        operator(
            "aten.clone.default",
            [leaf(0)],
            [T((1, 2, 3, 4))],
            {"memory_format": {"memory_format": "channels_last"}},
        )
    )
    assert copy(torch.ones(1, 2, 3, 4))[0].stride() == (24, 1, 8, 2)


def test_several_results_keep_their_order():
    topk = build(make_operator("aten.topk.default", T((2, 9)), 3))
    values, indices = topk(torch.arange(18.0).reshape(2, 9))
    assert values.tolist() == [[8, 7, 6], [17, 16, 15]]
    assert indices.dtype == torch.int64


@pytest.mark.parametrize(
    ("kind", "states", "options", "make"),
    [
        ("sgd", 0, {"lr": 0.1, "weight_decay": 0.2}, torch.optim.SGD),
        ("sgd", 1, {"lr": 0.1, "momentum": 0.7, "weight_decay": 0.2}, torch.optim.SGD),
        ("adam", 3, {"lr": 0.1, "weight_decay": 0.2}, torch.optim.Adam),
        ("adam", 3, {"lr": 0.1, "decoupled_weight_decay": 0.2}, torch.optim.AdamW),
    ],
)
def test_optimizer_steps_are_torchs_and_change_nothing_given(kind, states, options, make):
    shapes = [T((3, 4)), T((3, 4)), T(())][:states]
    made = make_operator(f"optim.{kind}_step.default", T((3, 4)), T((3, 4)), *shapes, **options)
    assert made.kind == f"{kind}_step"
    assert [spec.shape for spec in made.outputs] == [(3, 4), *(spec.shape for spec in shapes)]
    param, grad = random_reads(made, seed=5)[:2]
    theirs = torch.nn.Parameter(param.clone())
    known = {("weight_decay" if "decay" in key else key): value for key, value in options.items()}
    optimizer = make([theirs], **known)
    reads = [param, grad, *(torch.zeros(spec.shape) for spec in shapes)]
    for _ in range(3):
        kept = [tensor.clone() for tensor in reads]
        written = build(made)(*reads)
        for before, after in zip(kept, reads, strict=True):
            assert torch.equal(before, after)
        theirs.grad = grad
        optimizer.step()
        torch.testing.assert_close(written[0], theirs.detach())
        reads = [written[0], grad, *written[1:]]


def test_adam_without_reading_the_step_is_the_same(monkeypatch):
    from calibration import optimizer_steps

    reads = [torch.rand(5) + 0.1 for _ in range(4)]
    step = torch.tensor(3.0)

    class Elsewhere(torch.Tensor):
        """Stands for a number on a device: to read it would wait."""

    plain = optimizer_steps.adam_step(*reads, step, lr=0.1)
    kept = optimizer_steps.adam_step(*reads, step.as_subclass(Elsewhere), lr=0.1)
    for a, b in zip(plain, kept, strict=True):
        torch.testing.assert_close(a, torch.Tensor(b).reshape(a.shape))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("aten.relu_.default", "changes its arguments"),
        ("aten.add.out", "changes its arguments"),
        ("aten.save.default", "gives no tensor"),  # it writes a file
        ("aten.manual_seed.default", "gives no tensor"),
        ("aten.nothing.default", "not an ATen operator"),
        ("aten.add.Nothing", "overloads of add"),
        ("aten.__class__.x", "not an ATen operator"),
        ("aten.from_file.default", "not an ATen operator"),
        ("os.system", "not an ATen operator"),
        ("aten.add.Tensor; import os", "not an ATen operator"),
        ("", "not an ATen operator"),
    ],
)
def test_other_targets_are_refused(target, message):
    with pytest.raises(InvalidInput, match=message):
        resolve(target)


@pytest.mark.parametrize(
    "node",
    [
        {"dtype": "Tensor"},
        {"dtype": "load"},
        {"memory_format": "float32"},
        {"float": "1.0"},
        {"nothing": 1},
        {"read": 0, "views": [["os.system", [{"self": True}], {}]]},
        {"read": 0, "views": [["aten.transpose.int", [0, 1], {}]]},
        {"read": 0, "views": [["aten.relu_.default", [{"self": True}], {}]]},
        {"read": "x"},
    ],
)
def test_malformed_templates_are_refused(node):
    with pytest.raises(InvalidInput, match="Operator 'op'"):
        build(operator("aten.relu.default", [node], [T((2,))]))


def test_an_operator_without_a_template_is_refused():
    with pytest.raises(InvalidInput, match="has no template"):
        build(Operator("t0", "task"))


def test_make_operator_gives_torchs_reason(capfd):
    with pytest.raises(InvalidInput, match=r"aten.linear.default refuses these arguments: .*15"):
        make_operator("aten.linear.default", T((2, 16)), T((4, 15)))
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_kernels_run_on_a_gpu():
    full = operator("aten.full.default", [[2, 3], 1.0], [], {"device": {"device": True}})
    assert build(full, "cuda:0")()[0].device.type == "cuda"
    linear = make_operator("aten.linear.default", T((8, 16)), T((4, 16)), T((4,)))
    reads = random_reads(linear, "cuda:0")
    (y,) = build(linear, "cuda:0")(*reads)
    torch.testing.assert_close(y.cpu(), F.linear(*(r.cpu() for r in reads)), rtol=1e-3, atol=1e-3)
