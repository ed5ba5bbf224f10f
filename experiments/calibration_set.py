"""The operators that this project's calibrations measure, as ``calibration/data/operators.json.gz``.

``python -m experiments.calibration_set [PATH]`` makes the file again. It holds every operator of the
shipped models at several batches (and sequence lengths), those of further architectures, whose shapes
are what an unseen model of that family brings, and shapes drawn for every kind
(:mod:`calibration.sampling`). Needs ``transformers``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from calibration.samples import OperatorSample, distinct, write_samples
from calibration.sampling import model_operators, sampled_operators
from simulator.graph import DataflowGraph

PATH = Path(__file__).resolve().parent.parent / "calibration" / "data" / "operators.json.gz"

Case = tuple[str, Callable[[], Any], list[tuple[tuple[int, ...], str]]]
"""Architecture, what builds it, and (shape, element type) of its input in each case."""


def _images(side: int, *batches: int) -> list[tuple[tuple[int, ...], str]]:
    return [((batch, 3, side, side), "float32") for batch in batches]


def _tokens(length: int, *batches: int) -> list[tuple[tuple[int, ...], str]]:
    return [((batch, length), "int64") for batch in batches]


def shipped() -> list[Case]:
    """The models of ``conf/model``."""
    from scenarios.models import bert_base, googlenet, gpt2, inception_v3, lstm_cells, resnet

    steps: list[tuple[tuple[int, ...], str]] = [((b, 32, 512), "float32") for b in (1, 2, 4, 8)]
    return [
        ("resnet50", resnet.build, _images(224, 1, 2, 4, 8)),
        ("googlenet", googlenet.build, _images(224, 1, 2, 4, 8)),
        ("inception_v3", inception_v3.build, _images(299, 1, 2, 4, 8)),
        ("bert_base", bert_base.build, _tokens(128, 1, 2, 4, 8) + _tokens(32, 1, 4)),
        ("gpt2", gpt2.build, _tokens(128, 1, 2, 4, 8) + _tokens(32, 1, 4)),
        ("lstm_cells", lstm_cells.build, steps),
    ]


def further() -> list[Case]:
    """Architectures that are measured, not shipped: transformers' own definitions."""
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


def graphs(cases: list[Case]) -> Iterator[tuple[str, DataflowGraph]]:
    """(architecture, graph) of every case."""
    import torch

    from scenarios import trace_model

    for architecture, build, inputs in cases:
        module = build().eval()
        for shape, dtype in inputs:
            example = torch.zeros(shape, dtype=getattr(torch, dtype))
            yield architecture, trace_model(module, (example,), name=architecture)


def calibration_operators(seed: int = 0) -> list[OperatorSample]:
    """All of them, models first; deterministic."""
    models = model_operators(graphs(shipped() + further()))
    return distinct([*models, *sampled_operators(seed=seed)])


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PATH
    operators = calibration_operators()
    write_samples(target, operators)
    print(f"{len(operators)} operators in {target}")
