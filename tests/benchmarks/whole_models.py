"""Whole models on GPUs that nobody here has: profiles against latencies that strangers measured.

``python -m tests.benchmarks.whole_models [--models NAME ...] [--gpus NAME ...] [--cost-model NAME]`` holds profiles against
timm's tables (``whole_models/timm_amp_*.csv`` in the folder that ``HETSIM_DATASETS`` names): inference of whole models
under autocast to float16, the largest batch that fitted, tensors in the usual layout (NCHW). What is predicted is the sum of the
kernels of the shipped model's graph at that batch, with the casts that autocast makes: at such batches launches run ahead of
the GPU. No fit has seen any of these GPUs, or a time of a whole model.

Prints the error of each model and GPU with the 90% interval of the profile's residuals, and of each GPU the mean, the bias, what the
interval covers, and what the same residuals say of single operators; then the error of the ratios between GPUs.
``docs/cost_models.md`` says how to read it.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.model import OWN
from cost_models.profile import Profile
from cost_models.table import identities, rows_of
from cost_models.uncertainty import draw_factors
from scenarios.model_config import graph_of
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, TensorSpec
from tests.benchmarks.cost_models import VARIABLE
from tests.benchmarks.end_to_end import model_config

MODELS: Mapping[str, str] = {
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "vgg16": "vgg16",
    "densenet121": "densenet121",
    "mobilenetv2_100": "mobilenet_v2",
    "inception_v3": "inception_v3",
    "vit_base_patch16_224": "vit_b_16",
}
"""timm's names of models that are shipped here, at the image size of the shipped configuration."""
GPUS: Mapping[str, str] = {
    "rtx3090": "geforce-rtx-3090",
    "rtx4090": "geforce-rtx-4090",
    "rtx5090": "geforce-rtx-5090",
}
"""The tables' names of GPUs, and their profiles."""
COLUMNS = ("model", "infer_img_size", "infer_step_time", "infer_batch_size")
LOW = "float16"
LOWERED = frozenset(
    [
        *("bmm", "baddbmm", "addmm", "matmul", "linear", "conv1d", "conv2d", "conv3d"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        "scaled_dot_product_attention",
    ]
)
RAISED = frozenset(
    [
        *("layer_norm", "group_norm", "rms_norm", "softmax", "log_softmax", "exp", "log", "pow"),
        *("rsqrt", "sum", "prod", "cumsum", "cumprod", "norm", "softplus"),
    ]
)
"""Kinds that autocast runs in the low type and in float32; others run in the widest type of their inputs
(https://docs.pytorch.org/docs/stable/amp.html, "CUDA Op-Specific Behavior")."""
DRAWS, LEVEL = 500, 0.9


@dataclass(frozen=True)
class Case:
    """A model on a GPU.

    Attributes:
        model, gpu: as the table names them.
        measured: seconds of a step.
        predicted: sum of its kernels, seconds.
        low, high: the interval of that sum.
        outside: share of the predicted time that is extrapolated.
        operators: mean error of single operators by the profile's residuals, each weighing as its time.
    """

    model: str
    gpu: str
    measured: float
    predicted: float
    low: float
    high: float
    outside: float
    operators: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1

    @property
    def covered(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low <= self.measured <= self.high


def under_autocast(graph: DataflowGraph, low: str = LOW) -> list[Operator]:
    """The operators of a float32 model as autocast runs them, with its casts (kind ``copy``).

    A weight is cast once a step, an activation for each operator that wants it in another type.
    """
    types = {i: t.spec.dtype for i, t in enumerate(graph.tensors) if t.spec is not None}
    weights = set(graph.weights)
    cast_once: set[int] = set()
    found = []
    for operator, reads, writes in zip(graph.operators, graph.reads, graph.writes, strict=True):
        floating = [t for t in reads if "float" in types.get(t, "")]
        if operator.kind in LOWERED:
            own = low
        elif operator.kind in RAISED:
            own = "float32"
        elif operator.kind == "batch_norm":
            own = types[floating[0]]  # its weights stay in float32 whatever runs through it
        else:
            own = "float32" if any(types[t] == "float32" for t in floating) else low
        for tensor in floating if operator.kind in LOWERED | RAISED else ():
            is_weight = tensor in weights
            # The weights of a norm are float32 already.
            if types[tensor] != own and tensor not in cast_once:
                spec = graph.tensors[tensor].spec
                assert spec is not None  # it has an element type
                found.append(_cast(f"{operator.name}/cast", spec, types[tensor], own))
                if is_weight:
                    cast_once.add(tensor)
        found.append(
            replace(
                operator,
                template=None,
                inputs=tuple(_in(spec, own) for spec in operator.inputs),
                outputs=tuple(_in(spec, own) for spec in operator.outputs),
            )
        )
        types.update(dict.fromkeys(writes, own))
    return found


def _in(spec: TensorSpec, dtype: str) -> TensorSpec:
    return replace(spec, dtype=dtype) if "float" in spec.dtype else spec


def _cast(name: str, spec: TensorSpec, of: str, to: str) -> Operator:
    attributes = {"from": of, "order": list(range(len(spec.shape)))}
    source, made = TensorSpec(spec.shape, of), TensorSpec(spec.shape, to)
    return Operator(name, "copy", attributes=attributes, inputs=(source,), outputs=(made,))


@cache
def table(gpu: str) -> pd.DataFrame:
    """What was measured on a GPU.

    Raises:
        InvalidInput: no such table is here, or it is another kind of table.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise InvalidInput(f"{VARIABLE} does not name the folder of the public measurement tables")
    path = Path(folder) / "whole_models" / f"timm_amp_{gpu}.csv"
    if gpu not in GPUS or not path.is_file():
        known = sorted(p.stem.removeprefix("timm_amp_") for p in path.parent.glob("timm_amp_*.csv"))
        both = ", ".join(name for name in known if name in GPUS) or "none"
        raise InvalidInput(f"No whole models of '{gpu}' with a profile of it; known: {both}")
    found = pd.read_csv(path)
    for column in COLUMNS:
        if column not in found:
            raise InvalidInput(f"{path} is no table of whole models: it lacks '{column}'")
    return found


def measured(model: str, gpu: str) -> tuple[int, float]:
    """Batch and seconds of a model on a GPU.

    Raises:
        InvalidInput: the model is not shipped under this name, or was not measured there.
    """
    if model not in MODELS:
        raise InvalidInput(f"No shipped model is timm's '{model}'; known: {', '.join(MODELS)}")
    config = model_config(MODELS[model])
    size = {**config.parameters, **config.arguments}["image_size"]
    rows = table(gpu)
    rows = rows[(rows["model"] == model) & (rows["infer_img_size"] == size)]
    if len(rows) != 1:
        raise InvalidInput(
            f"The table of '{gpu}' has {len(rows)} rows of '{model}' at {size} pixels"
        )
    (row,) = rows.itertuples()
    return int(row.infer_batch_size), float(row.infer_step_time) / 1e3


@cache
def operators_of(model: str, batch: int) -> tuple[Operator, ...]:
    """A model's operators at a batch, as autocast runs them."""
    return tuple(under_autocast(graph_of(model_config(MODELS[model]), batch)))


def case_of(model: str, gpu: str, profile: Profile, cost_model: str = OWN) -> Case:
    """A model on a GPU, predicted and measured."""
    batch, seconds = measured(model, gpu)
    operators = operators_of(model, batch)
    priced = profile.price(operators, model=cost_model)
    kinds, identity = [o.kind for o in operators], identities(rows_of(operators))
    residuals = profile.residuals_for(cost_model)
    factors = np.array(
        [
            draw_factors(residuals, kinds, identity, np.random.default_rng([0, i]))
            for i in range(DRAWS)
        ]
    )
    low, high = np.quantile(factors @ priced.seconds, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    total = float(priced.seconds.sum())
    # A residual is log(measured / predicted); an error is relative to what was measured.
    single = np.abs(1 / factors - 1).mean(axis=0) @ priced.seconds / total
    outside = float(priced.seconds[~priced.in_range].sum()) / total
    return Case(model, gpu, seconds, total, float(low), float(high), outside, float(single))


def told(cases: Sequence[Case]) -> list[str]:
    """Lines of each GPU, and of the ratios between them."""
    lines = []
    for gpu in dict.fromkeys(case.gpu for case in cases):
        own = [case for case in cases if case.gpu == gpu]
        errors = np.array([case.error for case in own])
        lines.append(
            f"{gpu}: mean error {np.abs(errors).mean():.1%}, median {np.median(np.abs(errors)):.1%}, bias "
            f"{errors.mean():+.1%}, worst {errors[np.abs(errors).argmax()]:+.1%}; {sum(c.covered for c in own)} of "
            f"{len(own)} in the {LEVEL:.0%} interval; operators {np.mean([c.operators for c in own]):.1%}"
        )
    by = {(case.model, case.gpu): case for case in cases}
    for one, other in itertools.combinations(dict.fromkeys(case.gpu for case in cases), 2):
        ratios = {
            model: by[model, one].predicted / by[model, other].predicted
            / (by[model, one].measured / by[model, other].measured) - 1
            for model in dict.fromkeys(case.model for case in cases)
        }  # fmt: skip
        worst = max(ratios, key=lambda model: abs(ratios[model]))
        lines.append(
            f"{one} / {other}: mean error of the ratio {np.mean(np.abs(list(ratios.values()))):.1%}, worst "
            f"{ratios[worst]:+.1%} ({worst})"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0, or 2 where a name or the data are missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.whole_models")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="timm's names")
    parser.add_argument("--gpus", nargs="+", default=list(GPUS), help="as the tables name them")
    parser.add_argument("--cost-model", default=OWN)
    chosen = parser.parse_args(arguments)
    try:
        for model, gpu in itertools.product(chosen.models, chosen.gpus):
            measured(model, gpu)  # whatever is wrong is said before anything is traced
        profiles = {gpu: Profile.load(GPUS[gpu]) for gpu in chosen.gpus}
        found = []
        print(
            "model                 gpu      batch   measured  predicted  error   90% interval      extrapolated"
        )
        for gpu, profile in profiles.items():
            for model in chosen.models:
                case = case_of(model, gpu, profile, chosen.cost_model)
                found.append(case)
                print(
                    f"{model:21} {gpu:8} {measured(model, gpu)[0]:5} {1e3 * case.measured:7.1f} ms "
                    f"{1e3 * case.predicted:7.1f} ms {case.error:+7.1%}  {1e3 * case.low:6.1f} to {1e3 * case.high:6.1f}"
                    f"{' ' if case.covered else '*'}  {case.outside:.0%}",
                    flush=True,
                )  # fmt: skip
    except InvalidInput as error:
        print(error)
        return 2
    print(*told(found), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
