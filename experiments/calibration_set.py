"""The operators that this project's calibrations measure, as files in ``calibration/data``.

``python -m experiments.calibration_set [PATH]`` makes ``operators.json.gz`` again. It holds every operator of the
shipped models at several batches (and sequence lengths), those of further architectures and of language
models' output layers, whose shapes are what an unseen model of that family brings, and shapes drawn for every kind
(:mod:`calibration.sampling`). ``python -m experiments.calibration_set training [PATH]`` makes
``training_operators.json.gz``: what training steps of some architectures have besides, and shapes drawn
for the kinds that only training has. Both need ``transformers``.

``python -m experiments.calibration_set extend [PATH]`` leaves what a set holds as it is and adds operators
of the shipped models, and draws, that it lacks: what was measured of it can be continued.

``python -m experiments.calibration_set networks [PATH]`` makes ``networks.json.gz``: the graphs of
:mod:`scenarios.models.generated`.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from calibration import networks
from calibration.samples import OperatorSample, distinct, read_samples, write_samples
from calibration.sampling import (
    model_operators,
    sampled_operators,
    sampled_training_operators,
)
from cost_models.table import row_of
from simulator.model.graph import DataflowGraph
from simulator.support.atomic_io import replacing

DATA = Path(__file__).resolve().parent.parent / "calibration" / "data"
PATH = DATA / "operators.json.gz"
TRAINING_PATH = DATA / "training_operators.json.gz"

Input = tuple[tuple[int, ...], str]
"""Shape and element type."""
Case = tuple[str, Callable[[], Any], list[Mapping[str, Input]]]
"""Architecture, what builds it, and its inputs by name in each case; one input needs no name ("")."""


def _images(side: int, *batches: int) -> list[Mapping[str, Input]]:
    return [{"": ((batch, 3, side, side), "float32")} for batch in batches]


def _tokens(length: int, *batches: int) -> list[Mapping[str, Input]]:
    return [{"": ((batch, length), "int64")} for batch in batches]


def _steps(*batches: int) -> list[Mapping[str, Input]]:
    return _sequences(32, *batches)


def _sequences(length: int, *batches: int) -> list[Mapping[str, Input]]:
    return [{"": ((batch, length, 512), "float32")} for batch in batches]


def _pairs(length: int, *batches: int) -> list[Mapping[str, Input]]:
    tokens = [((batch, length), "int64") for batch in batches]
    return [{"input_ids": pair, "decoder_input_ids": pair} for pair in tokens]


def shipped() -> list[Case]:
    """The models of ``conf/model``."""
    from scenarios.models import (
        alexnet,
        bert_base,
        densenet121,
        googlenet,
        gpt2,
        gru_cells,
        inception_v3,
        lstm_cells,
        mobilenet_v2,
        multi_exit,
        resnet,
        squeezenet1_1,
        t5_small,
        two_tower,
        vgg16,
        vit_b_16,
        wide_and_deep,
    )

    def fields(batch: int) -> Mapping[str, Input]:
        return {
            "crossed": ((batch, 16), "int64"),
            "categories": ((batch, 26), "int64"),
            "dense": ((batch, 13), "float32"),
        }

    def retrieval(batch: int) -> Mapping[str, Input]:
        return {
            "history": ((batch, 50), "int64"),
            "user": ((batch, 8), "int64"),
            "candidates": ((500,), "int64"),
            "item": ((500, 4), "int64"),
        }

    return [
        ("resnet50", resnet.build, _images(224, 1, 2, 4, 8)),
        ("googlenet", googlenet.build, _images(224, 1, 2, 4, 8)),
        ("inception_v3", inception_v3.build, _images(299, 1, 2, 4, 8)),
        ("bert_base", bert_base.build, _tokens(128, 1, 2, 4, 8) + _tokens(32, 1, 4)),
        ("gpt2", gpt2.build, _tokens(128, 1, 2, 4, 8) + _tokens(32, 1, 4)),
        ("lstm_cells", lstm_cells.build, _steps(1, 2, 4, 8)),
        ("alexnet", alexnet.build, _images(224, 1, 4)),
        ("vgg16", vgg16.build, _images(224, 1, 4)),
        ("squeezenet1_1", squeezenet1_1.build, _images(224, 1, 4)),
        ("resnet18", partial(resnet.build, 18), _images(224, 1, 4)),
        ("resnet34", partial(resnet.build, 34), _images(224, 1, 4)),
        ("densenet121", densenet121.build, _images(224, 1, 4)),
        ("mobilenet_v2", mobilenet_v2.build, _images(224, 1, 4)),
        ("vit_b_16", vit_b_16.build, _images(224, 1, 4)),
        ("t5_small", t5_small.build, _pairs(128, 1, 4) + _pairs(32, 1, 4)),
        ("gru_cells", gru_cells.build, _steps(1, 2, 4, 8)),
        ("wide_and_deep", wide_and_deep.build, [fields(batch) for batch in (1, 8, 64)]),
        ("two_tower", two_tower.build, [retrieval(batch) for batch in (1, 8, 64)]),
        ("multi_exit", multi_exit.build, _images(224, 1, 2, 4, 8)),
    ]


def further() -> list[Case]:
    """Definitions that are measured, not shipped: transformers' own.

    Those of architectures that are shipped as well carry the same name, so that both are left out
    together where an architecture is held out.
    """
    from scenarios.models.transformer import ATTENTION, library

    t = library("calibration")

    def text(**options: Any) -> Any:
        return t.DistilBertModel(t.DistilBertConfig(attn_implementation=ATTENTION, **options))

    efficient = {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}
    basic = {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"}
    vit = {"attn_implementation": ATTENTION}
    narrow = {"dim": 512, "n_heads": 8, "hidden_dim": 2048, "n_layers": 4}
    return [
        ("mobilenet_v2", lambda: t.MobileNetV2Model(t.MobileNetV2Config()), _images(224, 1, 4)),
        ("regnet_y_040", lambda: t.RegNetModel(t.RegNetConfig()), _images(224, 1, 4)),
        ("resnet18", lambda: t.ResNetModel(t.ResNetConfig(**basic)), _images(224, 1, 4)),
        ("convnext_tiny", lambda: t.ConvNextModel(t.ConvNextConfig()), _images(224, 1, 4)),
        (
            "efficientnet_b0",
            lambda: t.EfficientNetModel(t.EfficientNetConfig(**efficient)),
            _images(224, 1, 4),
        ),
        ("vit_b_16", lambda: t.ViTModel(t.ViTConfig(**vit)), _images(224, 1, 4)),
        ("distilbert_narrow", lambda: text(**narrow), _tokens(64, 1, 4)),
    ]


def heads() -> list[Case]:
    """Output layers of language models, at 128 tokens and one by one: their matrices are wider than any
    other layer's, and one model says little of another's.
    """
    from torch import nn

    def tokens(width: int) -> list[Mapping[str, Input]]:
        shapes = ((1, 128), (4, 128), (1, 1), (8, 1))
        return [{"": ((batch, length, width), "float32")} for batch, length in shapes]

    sizes = {
        "bert_base_head": (768, 30522),
        "roberta_base_head": (768, 50265),
        "tinyllama_head": (2048, 32000),
        "qwen2_0_5b_head": (896, 151936),
    }
    return [
        (name, partial(nn.Linear, width, words, bias=False), tokens(width))
        for name, (width, words) in sizes.items()
    ]


def graphs(cases: list[Case]) -> Iterator[tuple[str, DataflowGraph]]:
    """(architecture, graph) of every case."""
    import torch

    from scenarios import trace_model

    for architecture, build, inputs in cases:
        module = build().eval()
        for given in inputs:
            tensors = {
                name: torch.zeros(shape, dtype=getattr(torch, dtype))
                for name, (shape, dtype) in given.items()
            }
            example: Any = (tensors[""],) if "" in tensors else tensors
            yield architecture, trace_model(module, example, name=architecture)


def trained() -> list[tuple[Case, str]]:
    """Architectures whose training steps are measured, each with its usual optimiser."""
    from scenarios.models import bert_base, gpt2, lstm_cells, mobilenet_v2, resnet, vit_b_16

    return [
        (("resnet18", partial(resnet.build, 18), _images(224, 1, 2, 4, 8)), "sgd_momentum"),
        (("resnet50", resnet.build, _images(224, 1, 4, 8)), "sgd_momentum"),
        (("mobilenet_v2", mobilenet_v2.build, _images(224, 1, 4, 8)), "sgd_momentum"),
        (("vit_b_16", vit_b_16.build, _images(224, 1, 4)), "adamw"),
        (("bert_base", bert_base.build, _tokens(128, 1, 2, 4, 8) + _tokens(32, 4)), "adamw"),
        (("gpt2", gpt2.build, _tokens(128, 1, 2, 4, 8) + _tokens(32, 4)), "adamw"),
        (("lstm_cells", lstm_cells.build, _sequences(8, 1, 2, 4, 8)), "adam"),
    ]


def training_graphs() -> Iterator[tuple[str, DataflowGraph]]:
    """(architecture, graph of a training step) of every case.

    Traced without data: a model and its optimiser's states would fill the memory.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from scenarios import trace_training

    for (architecture, build, inputs), optimizer in trained():
        for given in inputs:
            with FakeTensorMode(allow_non_fake_inputs=True):
                module = build()
                tensors = {
                    name: torch.zeros(shape, dtype=getattr(torch, dtype))
                    for name, (shape, dtype) in given.items()
                }
            example: Any = (tensors[""],) if "" in tensors else tensors
            yield (
                architecture,
                trace_training(module, example, optimizer=optimizer, name=architecture),
            )


def training_operators(seed: int = 0) -> list[OperatorSample]:
    """What training has besides the operators of :data:`PATH`, models first; deterministic.

    An operator that no cost model can tell from one of those is left out: the convolutions of forward
    kernels are called by another name when autograd watches.
    """

    def row(sample: OperatorSample) -> tuple[Any, ...]:
        return tuple(row_of(sample.operator).values())

    inferred = set(map(row, read_samples(PATH)))
    models = model_operators(training_graphs())
    both = distinct([*models, *sampled_training_operators(seed=seed)])
    return [sample for sample in both if row(sample) not in inferred]


def calibration_operators(seed: int = 0) -> list[OperatorSample]:
    """All of them, models first; deterministic."""
    models = model_operators(graphs(shipped() + further() + heads()))
    return distinct([*models, *sampled_operators(seed=seed)])


def extended(operators: list[OperatorSample]) -> list[OperatorSample]:
    """A set with the shipped models' operators and the draws that it lacks behind its own, which know these models."""
    cases = shipped() + heads()
    models = {sample.identity: sample for sample in model_operators(graphs(cases))}
    kept = [
        replace(
            sample,
            architectures=tuple(
                sorted({*sample.architectures, *models[sample.identity].architectures})
            ),
        )
        if sample.identity in models
        else sample
        for sample in operators
    ]
    return distinct([*kept, *models.values(), *sampled_operators()])


def write_networks(path: Path) -> int:
    """Write the graphs of the generated networks; returns how many."""
    import torch

    from scenarios import trace_model
    from scenarios.models.generated import NETS, build

    graphs = []
    for sort, seed in NETS:
        module, shape = build(sort, seed)
        traced = trace_model(module.eval(), (torch.zeros(shape),), name=f"{sort}_{seed}")
        graphs.append(traced.to_json())
    document = json.dumps({"format": networks.FORMAT, "graphs": graphs}, separators=(",", ":"))
    with replacing(path) as temporary:
        temporary.write_bytes(gzip.compress(document.encode(), mtime=0))
    return len(graphs)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    what = arguments.pop(0) if arguments[:1] in (["training"], ["extend"], ["networks"]) else ""
    if what == "networks":
        target = Path(arguments[0]) if arguments else networks.PATH
        print(f"{write_networks(target)} networks in {target}")
        sys.exit()
    target = Path(arguments[0]) if arguments else TRAINING_PATH if what == "training" else PATH
    if what == "training":
        operators = training_operators()
    elif what == "extend":
        operators = extended(read_samples(target))
    else:
        operators = calibration_operators()
    write_samples(target, operators)
    print(f"{len(operators)} operators in {target}")
