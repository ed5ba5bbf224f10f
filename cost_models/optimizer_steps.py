"""Optimiser steps as operators: one for each parameter, and what it reads and writes.

A step's ``target`` is no ATen operator: ``optim.<kind>.default``. It takes the parameter, its gradient
and the optimiser's state tensors, in this order, and gives the new parameter and the new state. What
runs is the loop over single tensors that ``torch.optim`` runs on CPUs unless told otherwise
(``foreach=False, fused=False``; :mod:`calibration.optimizer_steps`). Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.errors import InvalidInput
from simulator.model.operator import UPDATED

STATE = ":"
"""Joins a parameter's name and that of a state tensor: ``fc.weight:exp_avg``."""


@dataclass(frozen=True)
class Optimizer:
    """An optimiser of ``torch.optim`` with its default settings.

    Attributes:
        target: of its step.
        states: names of the state tensors that each parameter has, as ``torch.optim`` has them;
            ``step`` is a float32 scalar, the others have the parameter's shape. All begin as zeros.
        constants: numbers that the step is called with.
    """

    target: str
    states: tuple[str, ...]
    constants: Mapping[str, float]


_SGD = "optim.sgd_step.default"
_ADAM = "optim.adam_step.default"
_ADAM_STATES = ("exp_avg", "exp_avg_sq", "step")

OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer(_SGD, (), {"lr": 1e-3}),
    "sgd_momentum": Optimizer(_SGD, ("momentum_buffer",), {"lr": 1e-3, "momentum": 0.9}),
    "adam": Optimizer(_ADAM, _ADAM_STATES, {"lr": 1e-3}),
    "adamw": Optimizer(_ADAM, _ADAM_STATES, {"lr": 1e-3, "decoupled_weight_decay": 1e-2}),
}

SCHEMAS: Mapping[str, tuple[tuple[str, float | None], ...]] = {
    _SGD: (
        ("param", None),
        ("grad", None),
        ("momentum_buffer", None),
        ("lr", 1e-3),
        ("momentum", 0.0),
        ("weight_decay", 0.0),
    ),
    _ADAM: (
        ("param", None),
        ("grad", None),
        ("exp_avg", None),
        ("exp_avg_sq", None),
        ("step", None),
        ("lr", 1e-3),
        ("beta1", 0.9),
        ("beta2", 0.999),
        ("eps", 1e-8),
        ("weight_decay", 0.0),
        ("decoupled_weight_decay", 0.0),
    ),
}
"""Of each target the arguments in order, with defaults; the tensors have none."""


def optimizer_of(name: str) -> Optimizer:
    """The optimiser of that name.

    Raises:
        InvalidInput: there is none.
    """
    if name not in OPTIMIZERS:
        raise InvalidInput(f"There is no optimizer '{name}'; known: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


__all__ = ["OPTIMIZERS", "SCHEMAS", "STATE", "UPDATED", "Optimizer", "optimizer_of"]
