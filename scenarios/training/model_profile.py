"""A model's layers by closed forms: parameters, buffers, outputs, multiply-adds, FLOPs of training and bytes.

The module runs once in training mode on tensors without data, and every call of a function that has a closed form
(:mod:`scenarios.training.closed_forms`) counts for the module that makes it. Nothing here knows of traced graphs, which
have the same figures.

Training takes three times the forward FLOPs, with these exceptions. An input that needs no gradient (the first layer's)
gets none. Layers that the loss, of the model's first output, does not reach have no backward pass. The backward pass of
fused attention takes two and a half times its forward FLOPs, since it computes its scores again. Attention with dropout, with
a mask that has a gradient, or that returns its weights is two products with two gradients each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from scenarios.outputs import leaves_of
from scenarios.refusals import reason_of
from scenarios.training.closed_forms import FORMS, Call, Product
from scenarios.training_graph import faked, mode_of, without_data
from simulator.errors import InvalidInput
from simulator.support.atomic_io import replacing

if TYPE_CHECKING:
    import pandas as pd

Tensor = torch.Tensor


@dataclass
class Layer:
    """One layer. Counts are of all its calls together.

    Attributes:
        path: of the module that makes the calls.
        kind: of function; ``held`` of what a module holds and no known function takes.
        calls: how often it runs.
        parameters: elements; what several layers share counts at the first.
        statistics: elements of running means and variances.
        counters: elements of integer buffers: batch counters, positions.
        constants: elements of all other buffers.
        outputs: elements of what it makes.
        macs: multiply-adds of the forward pass.
        training_flops: of forward and backward pass.
        parameter_bytes, output_bytes: of parameters and outputs.
    """

    path: str
    kind: str
    calls: int = 0
    parameters: int = 0
    statistics: int = 0
    counters: int = 0
    constants: int = 0
    outputs: int = 0
    macs: int = 0
    training_flops: float = 0.0
    parameter_bytes: int = 0
    output_bytes: int = 0

    @property
    def flops(self) -> int:
        """Of the forward pass: a multiply-add counts as two."""
        return 2 * self.macs


def profile_model(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[Layer]:
    """The layers of a module, in the order in which they first run, and what is held beside them.

    Args:
        module: with or without data; it stays as it is.
        args: inputs of ``forward`` by position.
        kwargs: by name.

    Raises:
        InvalidInput: the module cannot run so.
    """
    counting = _Counting()
    mode = mode_of(module, (args, kwargs))
    try:
        with mode, torch.enable_grad():
            copied = without_data(module, mode).train()
            args, kwargs = faked(mode, (args, dict(kwargs or {})))
            with counting.paths(copied), counting:
                output = copied(*args, **kwargs)
    except Exception as error:  # user code, and torch's refusals
        raise InvalidInput(
            f"Model '{type(module).__name__}' cannot be profiled: it does not run in training mode on tensors without "
            f"data: {reason_of(error)}"
        ) from error
    counting.train(next((t for t in leaves_of(output) if isinstance(t, Tensor)), None))
    for name, tensor in [*copied.named_parameters(), *copied.named_buffers()]:
        counting.hold(name, tensor)
    return list(counting.layers.values())


class _Counting(TorchFunctionMode):
    """Counts calls by the path of the module that makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: dict[tuple[str, str], Layer] = {}
        self._counted: dict[int, Tensor] = {}
        self._calls: list[tuple[Layer, Sequence[Product], list[Any]]] = []
        self._path = [""]

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        if name not in FORMS:
            return func(*args, **kwargs)
        call = FORMS[name](*args, **kwargs)
        result = func(*args, **kwargs)
        self._count(name, call, result)
        return result

    def _layer(self, path: str, kind: str) -> Layer:
        return self.layers.setdefault((path, kind), Layer(path, kind))

    def _count(self, kind: str, call: Call, result: Any) -> None:
        layer = self._layer(self._path[-1], kind)
        layer.calls += 1
        layer.outputs += call.outputs
        made = list(_tensors([result]))
        layer.output_bytes += call.outputs * made[0].element_size()
        layer.macs += sum(macs for macs, _ in call.products)
        if call.products:
            self._calls.append((layer, call.products, [t.grad_fn for t in made]))
        for tensor, elements in call.parameters:
            if tensor is not None and self._is_new(tensor):
                layer.parameters += elements
                layer.parameter_bytes += elements * tensor.element_size()
        for tensor, elements in call.statistics:
            if tensor is not None and self._is_new(tensor):
                layer.statistics += elements

    def _is_new(self, tensor: Tensor) -> bool:
        new = id(tensor) not in self._counted
        self._counted[id(tensor)] = tensor  # kept, so that no id is given twice
        return new

    def train(self, output: Tensor | None) -> None:
        """Count what training takes if the loss is of one output."""
        reached, waiting = set(), [None if output is None else output.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in reached:
                reached.add(node)
                waiting += [after for after, _ in node.next_functions]
        for layer, products, nodes in self._calls:
            is_reached = any(node in reached for node in nodes)
            layer.training_flops += sum(
                2 * macs * (1 + back * is_reached) for macs, back in products
            )

    def hold(self, name: str, tensor: Tensor) -> None:
        """Count a parameter or buffer that no call took."""
        if not self._is_new(tensor):
            return
        path = name.rpartition(".")[0]
        own = [layer for layer in self.layers.values() if layer.path == path]
        layer = own[0] if own else self._layer(path, "held")
        if isinstance(tensor, torch.nn.Parameter):
            layer.parameters += tensor.numel()
            layer.parameter_bytes += tensor.numel() * tensor.element_size()
        elif tensor.is_floating_point():
            layer.constants += tensor.numel()
        else:
            layer.counters += tensor.numel()

    @contextmanager
    def paths(self, module: torch.nn.Module) -> Iterator[None]:
        """Know which module runs."""
        handles = []
        for path, part in module.named_modules():
            before = part.register_forward_pre_hook(lambda *_, path=path: self._path.append(path))
            after = part.register_forward_hook(lambda *_: self._left(), always_call=True)
            handles += [before, after]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _left(self) -> None:
        self._path.pop()


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def save_profile(layers: Sequence[Layer], path: str | Path) -> pd.DataFrame:
    """Write layers as Parquet, or as CSV if the name ends so, whole or not at all, and give them.

    Columns: those of :class:`Layer`, and ``flops``.

    Raises:
        InvalidInput: the name ends otherwise.
        CannotWrite: the disk is full, say.
    """
    import pandas as pd

    path = Path(path).expanduser()
    if path.suffix not in (".parquet", ".csv"):
        raise InvalidInput(f"A profile is written as .parquet or .csv, not '{path}'")
    table = pd.DataFrame([asdict(layer) | {"flops": layer.flops} for layer in layers])
    with replacing(path) as temporary:
        if path.suffix == ".csv":
            table.to_csv(temporary, index=False)
        else:
            table.to_parquet(temporary, index=False)
    return table


__all__ = ["Layer", "profile_model", "save_profile"]
