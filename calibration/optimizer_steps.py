"""Optimiser steps made runnable: the kernels of ``torch.optim``'s single-tensor implementations.

``torch.optim`` changes its tensors in place; a kernel here may be called again on the same tensors, so
the first operation on each makes a new one, and the others go on in place there. The operations are the
same ones in the same order (``torch/optim/sgd.py``, ``torch/optim/adam.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def sgd_step(
    param: Tensor,
    grad: Tensor,
    momentum_buffer: Tensor | None = None,
    *,
    lr: float = 1e-3,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> tuple[Tensor, ...]:
    """The new parameter and, with momentum, the new buffer."""
    if weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    if momentum_buffer is None:
        return (param.add(grad, alpha=-lr),)
    buffer = momentum_buffer.mul(momentum).add_(grad, alpha=1)
    return param.add(buffer, alpha=-lr), buffer


def adam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: Tensor,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled_weight_decay: float = 0.0,
) -> tuple[Tensor, ...]:
    """The new parameter, moments and number of the step.

    Where reading the step's number would wait for the device, or there is none to read, it stays a
    tensor, as with ``capturable=True``.
    """
    step = step + 1
    new = param
    if decoupled_weight_decay != 0:
        new = param.mul(1 - lr * decoupled_weight_decay)
    elif weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    exp_avg = exp_avg.lerp(grad, 1 - beta1)
    exp_avg_sq = exp_avg_sq.mul(beta2).addcmul_(grad, grad, value=1 - beta2)
    if type(step) is Tensor and step.device.type == "cpu":
        number = step.item()
        scale = (1 - beta2**number) ** 0.5
        denominator = (exp_avg_sq.sqrt() / scale).add_(eps)
        value = -lr / (1 - beta1**number)
        new = (
            param.addcdiv(exp_avg, denominator, value=value)
            if new is param
            else new.addcdiv_(exp_avg, denominator, value=value)
        )
    else:
        negative = (lr / (1 - beta1**step)).neg()
        scale_tensor = (1 - beta2**step).sqrt() * negative
        denominator = (exp_avg_sq.sqrt() / scale_tensor).add_(eps / negative)
        new = torch.addcdiv(new, exp_avg, denominator)
    return new, exp_avg, exp_avg_sq, step


STEPS: Mapping[str, Callable[..., tuple[Tensor, ...]]] = {
    "optim.sgd_step.default": sgd_step,
    "optim.adam_step.default": adam_step,
}
"""By target (:mod:`cost_models.optimizer_steps`)."""
