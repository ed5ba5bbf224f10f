"""What the benchmark makes of models and tables that are known."""

from collections import Counter

import pytest

from scenarios.model_config import InputConfig, ModelConfig, graph_of
from simulator.errors import InvalidInput
from tests.benchmarks import whole_models
from tests.benchmarks.whole_models import Case, main, measured, told, under_autocast

torch = pytest.importorskip("torch")


class Block(torch.nn.Module):
    """A convolution with its norm, then a layer that is used twice and a residual that stays in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(8, 8)
        self.ln = torch.nn.LayerNorm(8)
        self.position = torch.nn.Parameter(torch.zeros(8))

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))) + self.position
        return torch.softmax(x + self.fc(self.fc(self.ln(x))), -1)


def test_autocast_runs_and_casts_what_torch_says():
    """By the lists of torch's documentation; types are ``input of the kernel``, casts ``from > to``."""
    config = ModelConfig("block", f"{__name__}.Block", inputs=[InputConfig([2, 3, 8, 8])])
    found = [
        f"{o.attributes['from']} > {o.outputs[0].dtype}" if o.name.endswith("/cast") else f"{o.kind} {o.outputs[0].dtype}"
        for o in under_autocast(graph_of(config))
    ]  # fmt: skip
    low, full = "float16", "float32"
    assert found == [
        f"{full} > {low}", f"{full} > {low}", f"conv2d {low}",  # the input and the weight
        f"batch_norm {low}", f"relu {low}",
        f"add {full}",  # the position is in float32
        f"layer_norm {full}",
        f"{full} > {low}", f"{full} > {low}", f"{full} > {low}", f"linear {low}",  # input, weight, bias
        f"linear {low}",  # its weights are cast already
        f"add {full}", f"softmax {full}",
    ]  # fmt: skip


def test_lines_say_errors_and_ratios():
    def case(model: str, gpu: str, measured_s: float, predicted: float) -> Case:
        return Case(model, gpu, measured_s, predicted, 0.9 * predicted, 1.1 * predicted, 1.0, 0.2)

    lines = told(
        [case("a", "x", 1.0, 1.1), case("b", "x", 2.0, 1.6), case("a", "y", 2.0, 2.0), case("b", "y", 1.0, 1.0)]
    )  # fmt: skip
    assert "x: mean error 15.0%, median 15.0%, bias -5.0%, worst -20.0%; 1 of 2" in lines[0]
    assert lines[2].startswith("x / y: mean error of the ratio 15.0%, worst -20.0% (b)")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    folder = tmp_path / "whole_models"
    folder.mkdir()
    (folder / "timm_amp_rtx3090.csv").write_text(
        "model,infer_img_size,infer_step_time,infer_batch_size\nresnet50,224,318.1,1024\nresnet50,288,500,1024\n"
    )
    (folder / "timm_amp_rtx4090.csv").write_text("model,infer_img_size\nresnet50,224\n")
    (folder / "timm_amp_abacus.csv").write_text("model\nresnet50\n")
    monkeypatch.setenv("HETSIM_DATASETS", str(tmp_path))
    whole_models.table.cache_clear()
    yield tmp_path
    whole_models.table.cache_clear()


def test_a_model_has_the_size_that_is_shipped(tables):
    assert measured("resnet50", "rtx3090") == (1024, pytest.approx(0.3181))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--models", "poolformer_s12"], "No shipped model is timm's 'poolformer_s12'; known: resnet18"),
        (["--gpus", "abacus"], "No whole models of 'abacus' with a profile of it; known: rtx3090, rtx4090"),
        (["--gpus", "rtx4090"], "it lacks 'infer_step_time'"),
        (["--models", "vgg16", "--gpus", "rtx3090"], "has 0 rows of 'vgg16' at 224 pixels"),
    ],
)  # fmt: skip
def test_unknown_names_are_refused_in_a_sentence(tables, capsys, words, sentence):
    assert main(words) == 2
    said = capsys.readouterr().out.strip()
    assert sentence in said
    assert Counter(said)["\n"] == 0


def test_without_tables_it_says_so(monkeypatch):
    monkeypatch.delenv("HETSIM_DATASETS", raising=False)
    whole_models.table.cache_clear()
    with pytest.raises(InvalidInput, match="HETSIM_DATASETS does not name"):
        measured("resnet50", "rtx3090")
