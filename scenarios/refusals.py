"""Why a module cannot be exported, in one sentence that names the reason and the way out."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from scenarios.outputs import leaves_of
from simulator.errors import InvalidInput

_ROOT = Path(__file__).resolve().parent
_OWN = frozenset(
    str(_ROOT / name)
    for name in ("kernel_graph.py", "outputs.py", "refusals.py", "tracing.py", "training_graph.py")
)
_TORCH = f"{Path(torch.__file__).parent}/"
_FOREIGN = (_TORCH, f"{sysconfig.get_paths()['stdlib']}/", "<")
_INSTALLED = f"{sysconfig.get_paths()['purelib']}/"

DATA_DEPENDENT = (
    "a branch, a loop or a Python number there depends on the values of a tensor, and such a model has no "
    "single graph; compute it with tensors (torch.where), or decide it before the model is called"
)
ONLY_ATEN = (
    "is no ATen operator, and only those can be measured and run; give the model an implementation in "
    "plain PyTorch"
)
ONLY_DENSE = (
    "only dense tensors (strided, of plain element types) can be priced and run; make it dense (to_dense(), "
    "to_padded_tensor(), dequantize()), or leave that part out of the model"
)
_WAYS_OUT = {
    "grouped_mm": "; for a mixture of experts of transformers, "
    'model.set_experts_implementation("batched_mm") is one',
    "flex_attention": '; for a model of transformers, model.set_attn_implementation("sdpa") is one',
}
"""By a part of an operator's name what avoids it."""

_REASONS: tuple[tuple[str, str], ...] = (
    (r"GuardOnDataDependent|DataDependentOutput|DynamicOutputShape", DATA_DEPENDENT),
    (
        r"\.numpy\(\) is not supported|Cannot convert .*numpy",
        "it leaves torch for NumPy, whose computations cannot be traced; write them in torch",
    ),
    (
        r"no fake impl registered for <?(?:CustomOpDef\()?(?P<name>[\w:]+)",
        f"'{{name}}' {ONLY_ATEN}",
    ),
    (r"UnsupportedOperatorException: (?P<name>(?!aten)[\w.]+)", f"'{{name}}' {ONLY_ATEN}"),
    (
        r"exported program constant's list|view functorch tensor|in_kernel_invocation|expected _export_root",
        "part of its computation is hidden from tracing: gradients that `forward` itself takes "
        "(torch.autograd, torch.func), or another thread; trace the module without that part",
    ),
    (
        r"Higher Order Operator: torch\.ops\.higher_order\.(?P<name>flex_attention)",
        f"'{{name}}' {ONLY_ATEN}{_WAYS_OUT['flex_attention']}",
    ),
    (
        r"HigherOrderOp|Higher Order Operator",
        "it has control flow over submodules (torch.cond, while_loop and the like), which has no single graph "
        "of kernels",
    ),
    (
        r"__torch__\.torch\.classes|Exporting a ScriptModule",
        "it holds a packed or scripted part (as quantize_dynamic and torch.jit make); trace the module that "
        "this was made from",
    ),
    (
        r"Unsupported input type <class '(?P<name>[^']+)'>",
        "an input holds a {name}; inputs are tensors, numbers, strings and None, and lists, tuples, dicts "
        "and NamedTuples of these: give the model a forward that takes them, and makes the {name} itself",
    ),
)
"""What torch says (its error's type and message), and what that means."""
_CONTROL_FLOW = ("cond", "while_loop", "map_impl", "scan", "associative_scan", "switch")
_LAYOUTS = r"sparse|nested|mkldnn|quantiz|Opaque|jagged"


def reason_of(error: Exception) -> str:
    """Why torch refuses a module, with the line of the model's code that it concerns.

    Torch's own first paragraph is quoted where nothing plainer is known.
    """
    if isinstance(error, InvalidInput):
        return str(error)
    kind = type(error).__name__
    lines = str(error).strip().splitlines()
    paragraph = itertools.takewhile(str.strip, lines)
    reason = " ".join(line.strip() for line in paragraph) or "no message"
    if len(reason) > 600:
        reason = reason[:597] + "..."
    for pattern, meaning in _REASONS:
        if match := re.search(pattern, f"{kind}: {reason}"):
            reason = meaning.format(**match.groupdict())
            break
    return f"{kind}{_place_of(error)}: {reason}"


def _place_of(error: BaseException) -> str:
    """The last line of the model's code that led to an error."""
    place = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        line = linecache.getline(file, number).strip()
        if line and _of_model(file):
            place = f" in `{line}` ({file}:{number})"
    return place


def place_of_node(node: torch.fx.Node) -> str:
    """The line of the model's code that made a node, where the node has it."""
    places = re.findall(r'File "(.+?)", line (\d+), in .*\n\s*(.+)', node.stack_trace or "")
    mine = [(file, line, code) for file, line, code in places if _of_model(file)]
    return " in `{2}` ({0}:{1})".format(*mine[-1]) if mine else ""


def _of_model(file: str) -> bool:
    """Whether a file is neither torch's nor Python's nor one of those that trace."""
    if file in _OWN or file.startswith(_TORCH):
        return False
    # Packages may lie below the folder of the standard library.
    return file.startswith(_INSTALLED) or not file.startswith(_FOREIGN)


def no_aten_call(node: torch.fx.Node) -> str | None:
    """Why the target of a ``call_function`` node is no kernel of a graph; None if it is one, or makes no tensor."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return None
    name = str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        name = target.name()
        if name in _CONTROL_FLOW:
            return (
                f"it has control flow over submodules ('{name}'){place_of_node(node)}, which has no single "
                "graph of kernels"
            )
        # An operator that writes into its arguments is the first argument of another that wraps it.
        name = str(node.args[0]) if isinstance(node.args[0], torch._ops.OpOverload) else name
    elif not isinstance(target, torch._ops.OpOverload):
        tensors = pytree.tree_leaves(node.meta.get("val"))
        if not any(isinstance(tensor, torch.Tensor) for tensor in tensors):
            return None
    avoided = (way for part, way in _WAYS_OUT.items() if part in name)
    return f"it uses '{name}'{place_of_node(node)}, which {ONLY_ATEN}{next(avoided, '')}"


def check_module(module: Any, inputs: Any, name: str) -> None:
    """Refuse what no export takes, before torch is asked.

    Args:
        module: to be exported.
        inputs: its inputs, nested.
        name: what the refusal calls the module.

    Raises:
        InvalidInput: it is no module, is scripted or not initialised yet, or a tensor is not dense.
    """
    if why := _not_exportable(module, inputs):
        raise InvalidInput(f"Model '{name}' cannot be exported: {why}")


def _not_exportable(module: Any, inputs: Any) -> str | None:
    if not isinstance(module, torch.nn.Module):
        return f"it is a {type(module).__name__}, not a torch.nn.Module"
    for path, part in module.named_modules():
        name = f"its part '{path}'" if path else "it"
        for key, tensor in _tensors_of(part):
            if why := not_dense(tensor):
                where = ".".join(filter(None, (path, key)))
                return f"its tensor '{where}' {why}"
        if isinstance(part, torch.jit.ScriptModule):
            return f"{name} is a TorchScript module; trace the Python module that it was made from"
    for leaf in pytree.tree_leaves(inputs):
        if not isinstance(leaf, torch.Tensor):
            continue
        if why := not_dense(leaf):
            return f"one of its inputs {why}"
        if not isinstance(leaf, FakeTensor) and (
            type(leaf).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        ):
            return f"one of its inputs is a {type(leaf).__name__}; {ONLY_DENSE}"
    return None


def _tensors_of(part: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from part.named_parameters(recurse=False)
    yield from part.named_buffers(recurse=False)
    for key, value in vars(part).items():
        if isinstance(value, torch.Tensor):
            yield key, value


def not_dense(tensor: torch.Tensor) -> str | None:
    """What keeps a tensor out of a graph; None if nothing does."""
    if torch.nn.parameter.is_lazy(tensor):
        return "is not initialised yet (a lazy module); call the model once on its inputs first"
    kind = None
    if tensor.is_nested:
        kind = "nested tensor"
    elif tensor.layout != torch.strided:
        kind = f"{str(tensor.layout).removeprefix('torch.').removeprefix('_').split('_')[0]} tensor"
    elif re.search(
        r"torch\.q(u?int)", str(tensor.dtype)
    ):  # tensors without data do not say is_quantized
        kind = "quantised tensor"
    return None if kind is None else f"is a {kind}; {ONLY_DENSE}"


class _Watch(TorchFunctionMode):
    """Sees every call of torch that a module makes while it is exported.

    Gradient modes are switched without a note in the program: nothing is differentiated, and torch
    cannot export every way of switching.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """See :class:`torch.overrides.TorchFunctionMode`."""
        kwargs = kwargs or {}
        if func is torch._C._set_grad_enabled:
            with torch._C.DisableTorchFunction():
                return func(*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        if name == "_pack_padded_sequence":
            raise InvalidInput(
                f"it packs sequences{_caller()}, whose lengths are data; call the recurrent layer with the "
                "padded batch"
            )
        if name.startswith(
            "quantize_per"
        ):  # its result without data does not say that it is quantised
            raise InvalidInput(f"it calls '{name}'{_caller()}, but {ONLY_DENSE}")
        try:
            result = func(*args, **kwargs)
        except InvalidInput:
            raise
        except Exception as error:
            if re.search(_LAYOUTS, f"{name} {error}"):
                raise InvalidInput(
                    f"it calls '{name}', but {ONLY_DENSE}{_place_of(error)}"
                ) from error
            raise
        with torch._C.DisableTorchFunction():
            for tensor in result if isinstance(result, list | tuple) else (result,):
                if isinstance(tensor, torch.Tensor) and (why := not_dense(tensor)):
                    raise InvalidInput(f"what '{name}' gives{_caller()} {why}")
        return result


def _caller() -> str:
    """The line of the model's code that is running."""
    for frame in inspect.stack(context=0)[1:]:
        file = frame.filename
        if _of_model(file):
            return f" in `{linecache.getline(file, frame.lineno).strip()}` ({file}:{frame.lineno})"
    return ""


@contextlib.contextmanager
def watched(module: torch.nn.Module) -> Iterator[None]:
    """Watch what a module calls, and flatten its output (:func:`scenarios.outputs.leaves_of`)."""
    entered: list[_Watch] = []

    def before(*_: Any) -> None:
        watch = _Watch()
        watch.__enter__()
        entered.append(watch)

    def after(_: Any, __: Any, output: Any) -> Any:
        entered.pop().__exit__(None, None, None)
        return output if entered else leaves_of(output)

    handles = [
        module.register_forward_pre_hook(before, prepend=True),
        module.register_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        while entered:  # torch does not call the hook of every forward that fails
            entered.pop().__exit__(None, None, None)
