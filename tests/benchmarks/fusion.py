"""Fused graphs against ``torch.compile``: the kernels that inductor makes, and how much faster they are.

    python -m tests.benchmarks.fusion kernels [model ...]
    python -m tests.benchmarks.fusion speed [model ...] [rounds=N] [profile=NAME] [core=N]

``kernels`` lets inductor schedule each shipped model at batch 1 and stops it before it compiles:
kernels, and how many of them write the same tensors in both. A kernel is named by the stored values that
others read, each by the module and the operator that made it. Inductor's parts of one concatenation count
as one.

``speed`` runs each model eagerly and compiled on one pinned core, in turns, and takes the least processor
time of each (what else runs on the core does not count, what it does to the caches does), beside what the
profile predicts for both graphs. The first compilation of a model takes up to some minutes and needs a C++ compiler.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import yaml

from calibration.environment import steady_allocator
from cost_models.canonical import kind_of
from cost_models.profile import Profile
from scenarios.model_config import ModelConfig, graph_of, load_model
from simulator.model.graph import DataflowGraph

MODELS = (
    *("resnet18", "mobilenet_v2", "squeezenet1_1", "googlenet", "densenet121", "alexnet"),
    *("bert_base", "gpt2", "vit_b_16", "t5_small", "two_tower", "wide_and_deep"),
)
TIMED = (
    *("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "googlenet"),
    *("bert_base", "gpt2", "vit_b_16"),
)
_SAME = {"linear": "matmul", "addmm": "matmul", "bmm": "matmul", "adaptive_avg_pool2d": "mean"}
_LIBRARY = ("scaled_dot_product_attention", "matmul", "conv2d")
_OWN = "?"  # stored by inductor alone, such as a copy to another layout

Kernel = tuple[str, ...]
"""Names of the stored values that others read, sorted."""


class _Scheduled(Exception):
    """Ends a compilation as soon as the kernels are known."""


def config_of(name: str) -> ModelConfig:
    """A shipped model's configuration."""
    with open(f"conf/model/{name}.yaml") as file:
        return ModelConfig(**yaml.safe_load(file))


def _label(path: str, kind: str) -> str:
    return f"{path}/{_SAME.get(kind, kind)}"


# -- inductor's kernels ---------------------------------------------------------------------------


@contextlib.contextmanager
def _stopped(found: list[Kernel]) -> Iterator[None]:
    from torch._inductor import config

    def seen(nodes: Sequence[Any]) -> Any:
        found[:] = _kernels(nodes)
        raise _Scheduled

    with config.patch(_post_fusion_custom_pass=seen, force_disable_caches=True):
        yield


def inductor_kernels(module: torch.nn.Module, args: Sequence[Any], kwargs: Any) -> list[Kernel]:
    """What ``torch.compile`` would run for a module, by its scheduler."""
    found: list[Kernel] = []
    torch._dynamo.reset()
    with _stopped(found), torch.no_grad(), contextlib.suppress(Exception):
        # Dynamo wraps what the pass raises in errors of its own.
        torch.compile(module)(*args, **kwargs)
    if not found:
        raise RuntimeError("inductor scheduled nothing")
    return found


def _kernels(nodes: Sequence[Any]) -> list[Kernel]:
    joins = {
        read: node
        for node in nodes
        if type(node).__name__ == "NopKernelSchedulerNode"
        for read in {dependency.name for dependency in node.read_writes.reads}
    }
    found: list[Kernel] = []
    joined: set[Any] = set()
    for node in nodes:
        parts = node.get_nodes()
        kind = type(node).__name__
        if kind == "NopKernelSchedulerNode" or type(parts[0].node).__name__ == "MultiOutput":
            continue
        join = next(
            (joins[part.node.get_name()] for part in parts if part.node.get_name() in joins), None
        )
        if join is not None:
            if join not in joined:
                joined.add(join)
                found.append((_named(join.node, ()),))
            continue
        inside = {part.get_name() for part in parts}
        names = []
        for part in parts:
            users = [user.node.get_name() for out in part.get_outputs() for user in out.users]
            if not users or not inside.issuperset(users):
                names.append(_named(part.node, _LIBRARY if kind.startswith("Extern") else ()))
        known = [name for name in names if name != _OWN]
        found.append(tuple(sorted(set(known or names))))
    return found


def _named(buffer: Any, library: Sequence[str]) -> str:
    origin = getattr(buffer, "origin_node", None)
    if origin is not None:
        return _node_label(origin)
    labels = sorted(map(_node_label, buffer.get_origins()))
    for label in labels:
        if label.rpartition("/")[2] in library:
            return label
    return _OWN


def _node_label(node: torch.fx.Node) -> str:
    path = ""
    for place, _ in (node.meta.get("nn_module_stack") or {}).values():
        path = place
    path = re.sub(r"L\['[^']*'\]\.?", "", path).split("@")[0]
    return _label(path, kind_of(str(node.meta.get("original_aten", node.target)), 2))


# -- the fused graph's kernels --------------------------------------------------------------------


def fused_kernels(eager: DataflowGraph, fused: DataflowGraph) -> list[Kernel]:
    """The same of a fused graph."""
    made_by = {
        eager.tensors[tensor].name: operator
        for operator, writes in zip(eager.operators, eager.writes, strict=True)
        for tensor in writes
    }
    found = []
    for writes in fused.writes:
        names = set()
        for tensor in writes:
            operator = made_by.get(fused.tensors[tensor].name)
            names.add(
                _OWN
                if operator is None
                else _label(operator.name.rpartition("/")[0], operator.kind)
            )
        known = {name for name in names if name != _OWN}
        found.append(tuple(sorted(known or names)))
    return found


class Agreement(NamedTuple):
    """Kernels of one model."""

    eager: int
    inductor: int
    fused: int
    same: int


def agreement(name: str) -> Agreement:
    """How a shipped model's fused graph compares with inductor's kernels."""
    config = config_of(name)
    module, (args, kwargs) = load_model(config)
    theirs = inductor_kernels(module, args, kwargs)
    eager = graph_of(config)
    config.fusion = "inductor"
    mine = fused_kernels(eager, graph_of(config))
    same = sum((Counter(theirs) & Counter(mine)).values())
    return Agreement(len(eager), len(theirs), len(mine), same)


# -- speed ----------------------------------------------------------------------------------------


def fastest(calls: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The fewest seconds of processor time of each call, run in turns by this thread."""
    best = [math.inf] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            start = time.thread_time()
            call()
            best[index] = min(best[index], time.thread_time() - start)
    return best


class Speed(NamedTuple):
    """Eager time over compiled time, measured and predicted."""

    eager_ms: float
    compiled_ms: float
    predicted_eager_ms: float
    predicted_ms: float
    extrapolated: float

    @property
    def measured(self) -> float:
        return self.eager_ms / self.compiled_ms

    @property
    def predicted(self) -> float:
        return self.predicted_eager_ms / self.predicted_ms


def speed(name: str, rounds: int, profile: Profile) -> Speed:
    """One model, run and priced."""
    config = config_of(name)
    module, (args, kwargs) = load_model(config)
    torch._dynamo.reset()
    compiled = torch.compile(module)
    with torch.no_grad():
        for call in (module, compiled):
            call(*args, **kwargs)
        steady_allocator()
        eager_s, compiled_s = fastest(
            [lambda: module(*args, **kwargs), lambda: compiled(*args, **kwargs)], rounds
        )
    eager = profile.price(list(graph_of(config).operators))
    config.fusion = "inductor"
    fused = profile.price(list(graph_of(config).operators))
    return Speed(
        1e3 * eager_s,
        1e3 * compiled_s,
        1e3 * float(eager.seconds.sum()),
        1e3 * float(fused.seconds.sum()),
        float(fused.seconds[~fused.in_range].sum() / fused.seconds.sum()),
    )


def main(arguments: Sequence[str]) -> None:
    """Print the table asked for."""
    what, *rest = arguments or ["kernels"]
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    names = [word for word in rest if "=" not in word]
    if what == "kernels":
        print(f"{'model':16}{'operators':>10}{'inductor':>10}{'fused':>8}{'the same':>10}")
        for name in names or MODELS:
            row = agreement(name)
            print(f"{name:16}{row.eager:10}{row.inductor:10}{row.fused:8}{row.same:10}", flush=True)
        return
    torch.set_num_threads(1)
    core = int(options.get("core", max(os.sched_getaffinity(0))))
    os.sched_setaffinity(0, {core})
    profile = Profile.load(options.get("profile", "amd-epyc-25-17-1core"))
    print(
        f"{'model':16}{'eager ms':>10}{'compiled':>10}{'ratio':>7}{'predicted':>11}{'fused':>8}"
        f"{'ratio':>7}{'extrapolated':>14}"
    )
    for name in names or TIMED:
        found = speed(name, int(options.get("rounds", 30)), profile)
        print(
            f"{name:16}{found.eager_ms:10.1f}{found.compiled_ms:10.1f}{found.measured:7.2f}"
            f"{found.predicted_eager_ms:11.1f}{found.predicted_ms:8.1f}{found.predicted:7.2f}"
            f"{found.extrapolated:14.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
