"""Traced graphs held against their modules: both are executed on small real inputs and compared.

A graph that computes something else than its module is refused. Where the two cannot be compared, the
reason is a sentence that stays with the graph (``DataflowGraph.unchecked``).

Values are drawn twice. The first draw puts the elements of every given input in another order, which keeps
masks, indices and lengths legal, and moves weights that are constant (the zeros and ones of a new module
hide what they multiply). The second one takes inputs and weights as they are. Tensors without data are
drawn: indices below what they index, booleans mostly true, weights so that activations stay finite. A draw
that the module itself fails on, or that gives nothing finite, shows nothing and is left out.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

from calibration.kernels import resolve, view
from calibration.random_tensors import index_bounds
from calibration.sequential import results_of, run_tensors, weights_of
from cost_models.arithmetic import operator_flops
from cost_models.optimizer_steps import SCHEMAS, STATE, UPDATED
from scenarios.outputs import leaves_of, without_fast_path
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph

MOST_FLOPS = 1e11
"""Of an execution: a few seconds of one core."""
MOST_BYTES = 4 * 2**30
"""Of a graph's tensors together, and of a module's."""
_FLOPS_OF_ONE_DRAW = 1e10  # above, the first draw that shows something is the last
_HIDDEN = 0.2  # share of a drawn mask that is false

Values = Mapping[str, Any]
Reference = Callable[[torch.nn.Module, Any], Values]
Candidate = Callable[[Mapping[str, torch.Tensor], Sequence[Any]], Values]


class Useless(Exception):
    """A draw that shows nothing; the message says why."""


def set_aside(module: torch.nn.Module) -> torch.nn.Module | str:
    """A copy of a module to be executed later, before tracing runs its code; or why there is none."""
    tensors = _named_tensors(module).values()
    held = {id(tensor): tensor for tensor in tensors if not _empty(tensor)}
    elsewhere = next((t.device for t in held.values() if t.device.type != "cpu"), None)
    if elsewhere is not None:
        return f"its tensors lie on {elsewhere}"
    if (size := sum(t.numel() * t.element_size() for t in held.values())) > MOST_BYTES:
        return f"its tensors are too large to be copied ({size / 2**30:.1f} GiB)"
    try:
        # Copies of tensors without data crash torch 2.13 when they are collected.
        return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors if _empty(tensor)})
    except Exception as error:  # user code
        return f"the module cannot be copied ({_short(error)})"


def check_inference(
    graph: DataflowGraph,
    module: torch.nn.Module | str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    changed: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """Compare the outputs of a graph and of its module, and what becomes of the module's buffers.

    Args:
        graph: as traced.
        module: what :func:`set_aside` gave, in the mode in which it was traced.
        args: positional inputs, with or without data.
        kwargs: inputs by name.
        changed: by the names of buffers and inputs that the module changes what becomes of them, in
            the form of ``graph.results``.

    Returns:
        Why they could not be compared, None if they were and agree.

    Raises:
        InvalidInput: they differ; the first output that does is named.
    """
    tensors = [result["tensor"] for result in changed.values() if "tensor" in result]

    def reference(subject: torch.nn.Module, inputs: Any) -> Values:
        given, named = inputs
        with torch.no_grad(), without_fast_path():
            outputs = leaves_of(subject(*given, **named))
        found = {f"output {number}": value for number, value in enumerate(outputs)}
        held = _named_tensors(subject) | _labelled(graph, inputs)
        return found | {name: held[name].detach() for name in changed}

    def candidate(weights: Mapping[str, torch.Tensor], inputs: Any) -> Values:
        values = run_tensors(graph, weights, _labelled(graph, inputs), tensors)
        outputs = results_of(graph, values)
        found = {f"output {number}": value for number, value in enumerate(outputs)}
        for name, result in changed.items():
            written = "tensor" in result
            found[name] = (
                view(values[result["tensor"]], result["views"]) if written else result["value"]
            )
        return found

    return _check(graph, module, (args, dict(kwargs)), reference, candidate)


def check_training(
    graph: DataflowGraph,
    module: torch.nn.Module | str,
    loss: Callable[[torch.nn.Module], torch.nn.Module],
    inputs: tuple[Any, ...],
) -> str | None:
    """Compare the loss, the gradients and the buffers of a training step's graph with autograd's.

    Args:
        graph: as traced.
        module: what :func:`set_aside` gave, in training mode.
        loss: makes of a module the one that gives the loss.
        inputs: of that one.

    Returns:
        Why they could not be compared, None if they were and agree.

    Raises:
        InvalidInput: they differ; the first value that does is named.
    """
    gradients: dict[str, Any] = {}
    for operator, reads in zip(graph.operators, graph.reads, strict=True):
        if operator.target in SCHEMAS and operator.template is not None:
            parameter, gradient = operator.template["args"][:2]
            name = graph.tensors[reads[parameter["read"]]].name
            tensor = graph.tensors[reads[gradient["read"]]].name
            gradients[name] = {"tensor": tensor, "views": gradient["views"]}
    states = {f"{name}{UPDATED}" for name in gradients}
    changed = [
        t.name
        for t in graph.tensors
        if t.name.endswith(UPDATED) and STATE not in t.name.removesuffix(UPDATED)
        if t.name not in states
    ]

    def reference(subject: torch.nn.Module, given: Any) -> Values:
        with torch.enable_grad():
            value = loss(subject)(*given)
            value.backward()
        found = {"the loss": value.detach()}
        for name, tensor in _named_tensors(subject).items():
            if name in gradients and tensor.grad is not None:
                found[f"the gradient of '{name}'"] = tensor.grad
            if f"{name}{UPDATED}" in changed:
                found[f"{name}{UPDATED}"] = tensor.detach()
        return found

    def candidate(weights: Mapping[str, torch.Tensor], given: Any) -> Values:
        wanted = [*changed, *(result["tensor"] for result in gradients.values())]
        values = run_tensors(graph, weights, _labelled(graph, given), wanted)
        found = {"the loss": results_of(graph, values)[0]}
        for name, result in gradients.items():
            found[f"the gradient of '{name}'"] = view(values[result["tensor"]], result["views"])
        return found | {name: values[name] for name in changed}

    return _check(graph, module, inputs, reference, candidate)


def _check(
    graph: DataflowGraph,
    module: torch.nn.Module | str,
    inputs: Any,
    reference: Reference,
    candidate: Candidate,
) -> str | None:
    flops = sum(map(operator_flops, graph.operators))
    if flops > MOST_FLOPS:
        return f"it is too large to be executed beside its trace ({flops / 1e9:.0f} GFLOP)"
    if (size := float(graph.tensor_bytes.sum())) > MOST_BYTES:
        return (
            f"it is too large to be executed beside its trace ({size / 2**30:.1f} GiB of tensors)"
        )
    if isinstance(module, str):
        return module
    reason = None
    shown = 0
    with unset_fake_temporarily(), _silent(), torch.random.fork_rng(devices=[]):
        for draw in (_Draw(graph, module, inputs, anew=True), _Draw(graph, module, inputs)):
            try:
                draw.compare(reference, candidate)
            except Useless as useless:
                reason = str(useless)
                if draw.final:
                    return reason
                continue
            shown += 1
            if flops > _FLOPS_OF_ONE_DRAW:
                break
    return None if shown else reason


class _Draw:
    """Values for one execution of a graph and of its module.

    Args:
        graph: as traced.
        module: is copied for every execution.
        inputs: a tree of them.
        anew: draw inputs and constant weights, instead of taking them as they are.
    """

    def __init__(
        self, graph: DataflowGraph, module: torch.nn.Module, inputs: Any, anew: bool = False
    ) -> None:
        self._graph, self._module, self._given, self._anew = graph, module, inputs, anew
        self._bounds = _bounds(graph)
        self.final = False
        """Whether no other draw would show more."""

    def compare(self, reference: Reference, candidate: Candidate) -> None:
        """Execute both and compare.

        Raises:
            Useless: nothing can be said.
            InvalidInput: they differ.
        """
        graph = self._graph
        try:
            subject, inputs = self._subject(), self._inputs()
            weights = weights_of(subject, graph)
        except Exception as error:  # user code, and tensors that are not plain ones
            raise Useless(f"no values could be drawn for it ({_short(error)})") from error
        failure: Exception | None = None
        found: Values = {}
        torch.manual_seed(0)
        try:
            found = _kept(candidate(weights, _cloned(inputs)))
        except Exception as error:  # dozens of types
            failure = error
        torch.manual_seed(0)
        expected = _reference(reference, subject, inputs)
        if failure is not None:
            where = "; ".join(getattr(failure, "__notes__", ()))
            if isinstance(failure, NotImplementedError | InvalidInput):
                self.final = True
                raise Useless(f"no kernel for an operator ({_short(failure)})") from failure
            raise InvalidInput(
                f"its graph cannot be executed, though the module can: {where or 'an operator'} fails "
                f"({_short(failure)})"
            ) from failure
        difference = _difference(graph, found, expected)
        if difference is None:
            if not any(map(_finite, expected.values())):
                raise Useless("its outputs are not finite on the values drawn for it")
            return
        random = next((o.name for o in graph.operators if _is_random(o.target)), None)
        if random is not None:
            self.final = True
            raise Useless(f"'{random}' draws random numbers")
        torch.manual_seed(1)
        again = _reference(reference, self._subject(), inputs)
        if _difference(graph, again, expected) is not None:
            self.final = True
            raise Useless("the module gives other values every time")
        raise InvalidInput(f"its graph computes something else than the module: {difference}")

    def _subject(self) -> torch.nn.Module:
        """The module with data."""
        generator = torch.Generator().manual_seed(1)
        replaced: dict[int, Any] = {}
        for name, tensor in _named_tensors(self._module).items():
            if _empty(tensor):
                value = self._weight(name, tensor, generator)
                if isinstance(tensor, torch.nn.Parameter):
                    value = torch.nn.Parameter(value, requires_grad=tensor.requires_grad)
                replaced[id(tensor)] = value
        subject: torch.nn.Module = copy.deepcopy(self._module, replaced)
        if self._anew:
            for tensor in (*subject.parameters(), *subject.buffers()):
                _move_constant(tensor.detach(), generator)
        return subject

    def _weight(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Data for a weight that has none."""
        if not tensor.is_floating_point():
            return self._drawn(name, tensor, generator)
        made = torch.empty(tensor.shape, dtype=torch.float32)
        if tensor.dim() < 2:
            made.uniform_(0.5, 1.5, generator=generator)
        else:
            made.normal_(0.0, 1 / math.sqrt(max(tensor[0].numel(), 1)), generator=generator)
        return _laid_out(made.to(tensor.dtype), tensor)

    def _inputs(self) -> Any:
        """The inputs with data."""
        generator = torch.Generator().manual_seed(2)
        names = {id(value): name for name, value in _labelled(self._graph, self._given).items()}

        def drawn(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if _empty(leaf):
                return self._drawn(names.get(id(leaf), ""), leaf, generator)
            value = leaf.detach().clone(memory_format=torch.preserve_format)
            return _shuffled(value, generator) if self._anew else value

        return pytree.tree_map(drawn, self._given)

    def _drawn(self, name: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        shape = list(like.shape)
        if like.dtype == torch.bool:
            hidden = _HIDDEN if self._anew else -1.0
            made = torch.rand(shape, generator=generator) > hidden
        elif like.is_floating_point() or like.is_complex():
            kind = torch.complex64 if like.is_complex() else torch.float32
            made = torch.randn(shape, dtype=kind, generator=generator).to(like.dtype)
        else:
            high = self._bounds.get(name, 2) if self._anew else 1
            made = torch.randint(0, max(high, 1), shape, generator=generator).to(like.dtype)
        return _laid_out(made, like)


# -- tensors --------------------------------------------------------------------------------------


def _empty(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data."""
    return isinstance(tensor, FakeTensor) or tensor.is_meta


def _named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers and plain tensor attributes by their paths."""
    found: dict[str, torch.Tensor] = {}
    found.update(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    for path, part in module.named_modules(remove_duplicate=False):
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                found[f"{path}.{name}" if path else name] = value
    return found


def _labelled(graph: DataflowGraph, inputs: Any) -> dict[str, torch.Tensor]:
    """A graph's inputs by name: those given by a name that the graph has, the others in order."""
    names = [graph.tensors[index].name for index in graph.inputs]
    args, kwargs, *more = inputs
    found = {
        name: value
        for name, value in kwargs.items()
        if name in names and isinstance(value, torch.Tensor)
    }
    others = {name: value for name, value in kwargs.items() if name not in found}
    leaves = pytree.tree_leaves((args, others, more))
    free = [name for name in names if name not in found]
    return found | dict(
        zip(free, (leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), strict=True)
    )


def _bounds(graph: DataflowGraph) -> dict[str, int]:
    """For tensors that operators take for indices how many rows they may name."""
    bounds: dict[str, int] = {}
    for operator, reads in zip(graph.operators, graph.reads, strict=True):
        for read, rows in index_bounds(operator).items():
            name = graph.tensors[reads[read]].name
            bounds[name] = min(rows, bounds.get(name, rows))
    return bounds


def _shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The elements of a tensor in another order; normal numbers for floats that are all the same."""
    if not tensor.numel() or 0 in tensor.stride():
        return tensor
    flat = tensor.reshape(-1)
    if tensor.is_floating_point() and bool((flat == flat[0]).all()):
        drawn = torch.randn(tensor.shape, generator=generator)
        return tensor.copy_(tensor + drawn.to(tensor.dtype))
    order = torch.randperm(tensor.numel(), generator=generator)
    return tensor.copy_(flat[order].reshape(tensor.shape))


def _move_constant(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Move the elements of a weight apart in place if they are all the same number."""
    if not tensor.is_floating_point() or not tensor.numel() or 0 in tensor.stride():
        return
    first = tensor.reshape(-1)[0]
    if not bool(first.isfinite()) or not bool((tensor == first).all()):
        return
    drawn = torch.randn(tensor.shape, generator=generator) * 0.1
    tensor.add_((drawn * (first.abs().float() or 1.0)).to(tensor.dtype))


def _laid_out(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Elements in the layout of another tensor."""
    if made.stride() == like.stride():
        return made
    length = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True))
    if not made.numel() or length < 1:
        return made
    storage = torch.zeros(length, dtype=made.dtype)
    placed = storage.as_strided(like.shape, like.stride())
    if 0 in like.stride():  # elements that share memory
        storage.copy_(made.reshape(-1)[:1].expand(length))
        return placed
    return placed.copy_(made)


def _cloned(inputs: Any) -> Any:
    return pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, inputs)


def _kept(values: Values) -> Values:
    """Values that no later execution changes."""
    return {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in values.items()}


def _reference(reference: Reference, subject: torch.nn.Module, inputs: Any) -> Values:
    try:
        return _kept(reference(subject, _cloned(inputs)))
    except Exception as error:  # user code
        raise Useless(f"the module fails on values drawn for it ({_short(error)})") from error


# -- comparing ------------------------------------------------------------------------------------


def _difference(graph: DataflowGraph, found: Values, expected: Values) -> str | None:
    """The first value that differs, in words."""
    if len(found) != len(expected):
        return f"it has {len(found)} values where the module has {len(expected)}"
    for name, value in expected.items():
        what = _unlike(found.get(name), value)
        if what is not None:
            return f"{_writer(graph, name)} {what}"
    return None


def _writer(graph: DataflowGraph, name: str) -> str:
    """A compared value, with the operator that makes it."""
    tensor = name if name.endswith(UPDATED) else f"{name}{UPDATED}"
    if name.startswith("output "):
        tensor = graph.results[int(name.split()[1])].get("tensor", "")
    for operator, writes in zip(graph.operators, graph.writes, strict=True):
        if tensor in (graph.tensors[index].name for index in writes):
            return f"{name.removesuffix(UPDATED)} (of operator '{operator.name}')"
    return name.removesuffix(UPDATED)


def _unlike(found: Any, expected: Any) -> str | None:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        if type(found) is type(expected) and (
            found == expected or (found != found and expected != expected)
        ):
            return None
        return f"is {_shown(found)}, the module's is {_shown(expected)}"
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"is {_shown(found)}, the module's is {_shown(expected)}"
    if not expected.numel():
        return None
    if not (expected.is_floating_point() or expected.is_complex()):
        wrong = int((found != expected).sum())
        return f"differs in {wrong} of {expected.numel()} elements" if wrong else None
    tolerance = 1e-3 if torch.finfo(expected.dtype).bits >= 32 else 2e-2
    wide = torch.complex128 if expected.is_complex() else torch.float64
    found, expected = found.to(wide).reshape(-1), expected.to(wide).reshape(-1)
    size = expected.abs()
    some = size[:: max(1, len(size) // 10_000)]
    some = some[some.isfinite() & (some > 0)]
    # Not the largest element: masks put -1e9 beside what matters.
    scale = float(some.quantile(0.25)) if len(some) else 1.0
    close = torch.isclose(found, expected, tolerance, tolerance * scale, equal_nan=True)
    if bool(close.all()):
        return None
    wrong = int((~close).sum())
    worst = float((found - expected)[~close].abs().nan_to_num(math.inf).max())
    return f"differs in {wrong} of {len(size)} elements, by up to {worst:.3g}"


def _finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or bool(value.isfinite().any())


def _is_random(target: str) -> bool:
    return target not in SCHEMAS and torch.Tag.nondeterministic_seeded in resolve(target).tags


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)[:60]


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    text = lines[0] if len(lines[0]) <= 200 else lines[0][:197] + "..."
    return text if isinstance(error, InvalidInput) else f"{type(error).__name__}: {text}"


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what the module prints and warns of: tracing has run its code once already."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
