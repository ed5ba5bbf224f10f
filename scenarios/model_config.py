"""Models described by configuration: the shipped ones and a user's own, by the same few values.

Importing this module, and getting a graph that is in the cache, imports no torch.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scenarios.graph_cache import GraphCache, content_key
from simulator.errors import HetsimError, InvalidInput
from simulator.model.family import GraphFamily
from simulator.model.graph import DataflowGraph
from simulator.model.operator import ITEM_BYTES
from simulator.support import own_code

if TYPE_CHECKING:
    import torch

_ROOT = Path(__file__).resolve().parent.parent
# Whatever decides what a traced graph looks like.
_SOURCES = (
    "scenarios/tracing.py",
    "scenarios/kernel_graph.py",
    "scenarios/outputs.py",
    "scenarios/refusals.py",
    "scenarios/training_graph.py",
    "scenarios/in_place.py",
    "scenarios/verification.py",
    "scenarios/model_config.py",
    "calibration/kernels.py",
    "calibration/sequential.py",
    "cost_models/canonical.py",
    "cost_models/optimizer_steps.py",
    "simulator/model/graph.py",
    "simulator/model/family.py",
)
FUSIONS = ("none", "inductor")
DTYPES = ("float32", "bfloat16", "float16")
# Marks a model that has to be traced at every batch anew.
_NOT_A_FAMILY = "hetsim.not_a_family/1"
# Bytes of parameters up to which a model is made with data, to be executed beside its trace.
_LARGEST_REAL = 2 * 2**30
_log = logging.getLogger(__name__)


@dataclass
class InputConfig:
    """One input of a model.

    Attributes:
        shape: lengths: integers, ``"batch"``, or names of parameters or arguments.
        dtype: element type, e.g. ``float32``, ``int64``, ``bool``.
        high: integers are drawn from ``0 .. high - 1``: a number, or the name of a parameter or
            argument. 2 unless given.
        name: pass it to ``forward`` by this name instead of by position.
    """

    shape: list[Any]
    dtype: str = "float32"
    high: Any = None
    name: str | None = None


@dataclass
class ModelConfig:
    """A model: how to make it and what to feed it.

    Attributes:
        name: what tables and plots call it.
        target: class or function that gives the module: ``package.module.Name``, or
            ``path/to/file.py:Name`` for a file that is not importable (relative to the current
            folder).
        description: one line.
        arguments: what the target is called with.
        parameters: numbers that shapes may name (image_size, sequence_length, ...).
        inputs: inputs of ``forward`` in order.
        batch: batch size of a job.
        training: one training step of it instead of an inference.
        optimizer: of that step: ``sgd``, ``sgd_momentum``, ``adam`` or ``adamw``.
        loss: of that step: ``cross_entropy``, ``binary_cross_entropy`` or ``mse``.
        steps: training steps in a row, each with inputs of its own.
        fusion: ``none``, operators as eager PyTorch runs them, or ``inductor``, kernels as
            ``torch.compile`` makes them on CPUs (:mod:`cost_models.fusion`).
        profile: a file or folder that gives the model's layers and their times on types of devices, instead
            of a ``target`` (:mod:`scenarios.training.layer_profile`); ``batch`` is the one that was profiled.
        graph: a file of a graph (``graph.json`` of a run, ``.onnx``, a profiler's trace; :mod:`scenarios.graph_files.recorded`)
            instead of a ``target``; its batch is its own.
        dtype: element type that its weights and floating-point inputs are converted to, of :data:`DTYPES`; None: as the
            module is made.
    """

    name: str
    target: str = ""
    description: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    inputs: list[InputConfig] = field(default_factory=list)
    batch: int = 1
    training: bool = False
    optimizer: str = "sgd"
    loss: str = "cross_entropy"
    steps: int = 1
    fusion: str = "none"
    profile: str | None = None
    graph: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        given = [key for key in ("target", "profile", "graph") if getattr(self, key)]
        if len(given) != 1:
            raise InvalidInput(
                f"Model '{self.name}' has {' and '.join(f'a model.{key}' for key in given) or 'no model.target'}; give "
                "one of model.target, model.profile and model.graph"
            )
        if self.graph is not None and (self.training or self.dtype is not None or self.steps > 1):
            raise InvalidInput(
                f"Model '{self.name}' is a graph that was traced: model.training, model.steps and model.dtype cannot "
                "change it; trace it so, or leave them out"
            )
        if self.dtype is not None and (self.dtype not in DTYPES or self.profile is not None):
            raise InvalidInput(
                f"Model '{self.name}': there is no model.dtype={self.dtype}; known: {', '.join(DTYPES)}"
                if self.profile is None
                else f"Model '{self.name}' has given times: model.dtype={self.dtype} cannot change them; leave it out"
            )
        if self.fusion not in FUSIONS:
            raise InvalidInput(
                f"Model '{self.name}': there is no fusion '{self.fusion}'; known: "
                f"{', '.join(FUSIONS)}"
            )
        if self.fusion != "none" and self.training:
            raise InvalidInput(
                f"Model '{self.name}': fusion={self.fusion} is of inferences, not of training steps"
            )
        if self.steps < 1 or (self.steps > 1 and not self.training):
            raise InvalidInput(
                f"Model '{self.name}' has steps={self.steps}; give 1 or more, and model.training=true with more than 1"
            )
        # Configuration files give plain mappings.
        known = set(InputConfig.__dataclass_fields__)
        inputs = []
        for given in list[Any](self.inputs):
            if isinstance(given, InputConfig):
                inputs.append(given)
                continue
            unknown = set(given) - known
            if unknown or "shape" not in given:
                raise InvalidInput(
                    f"Model '{self.name}': an input has the keys {', '.join(sorted(known))} (shape is "
                    f"required), got {', '.join(map(str, given))}"
                )
            inputs.append(InputConfig(**given))
        self.inputs = inputs

    @property
    def has_batch(self) -> bool:
        """Whether some input's shape names the batch."""
        return any("batch" in given.shape for given in self.inputs)


def graph_of(
    config: ModelConfig, batch: int | None = None, cache: GraphCache | None = None
) -> DataflowGraph:
    """A model's graph at a batch size, from the cache or traced now.

    The same configuration and batch give the same object within a process.

    Args:
        config: the model.
        batch: batch size; the configuration's unless given. Without meaning for a model whose
            inputs name no batch.
        cache: where traced graphs are kept; the user's cache folder unless given.

    Raises:
        InvalidInput: the model cannot be made, exported, or run at this batch.
    """
    graph = _unfused(config, batch, cache or GraphCache())
    if graph.unchecked is not None and graph not in _told:
        _told.add(graph)
        _log.warning(
            "The graph of model '%s' was not held against the module: %s",
            config.name,
            graph.unchecked,
        )
    if config.steps > 1:
        if (graph, config.steps) not in _repeated:
            from scenarios.training.steps import unrolled

            _repeated[graph, config.steps] = unrolled(graph, config.steps)
        return _repeated[graph, config.steps]
    if config.fusion == "none":
        return graph
    if graph not in _fused:
        from cost_models.fusion import fuse

        _fused[graph] = fuse(graph)
    return _fused[graph]


def _unfused(config: ModelConfig, batch: int | None, cache: GraphCache) -> DataflowGraph:
    if config.graph is not None:
        return _given(config.graph)
    batch = config.batch if batch is None else batch
    if not config.has_batch:
        return _single(config, None, cache)
    try:
        family = family_of(config, cache)
    except InvalidInput as error:
        # Not affine in the batch, or made for one batch only: this batch may still be traced. If it
        # cannot be, that error is the one to show.
        graph = _single(config, batch, cache)
        cache.store(_family_key(config), {"format": _NOT_A_FAMILY, "reason": str(error)})
        return graph
    known = batch in family.own
    graph = family.at(batch)
    if not known:
        cache.store(_family_key(config), family.to_json())
        if family.own[batch] is not None:
            cache.store(_single_key(config, batch), graph.to_json())
    return graph


def _given(file: str) -> DataflowGraph:
    """The graph of a file; the same object while the file stays as it is."""
    from scenarios.graph_files.recorded import files_of, read_graph_file

    path, *beside = files_of(file)
    try:
        stats = [found.stat() for found in (path, *beside)]
    except OSError as error:
        raise InvalidInput(f"Cannot read the graph {path}: {error.strerror}") from None
    key = (Path(file).absolute(), " ".join(f"{s.st_mtime_ns} {s.st_size}" for s in stats))
    if key not in _graphs:
        _graphs[key] = read_graph_file(Path(file).expanduser())
    return _graphs[key]


def is_kept(config: ModelConfig, cache: GraphCache | None = None) -> bool:
    """Whether a model's graphs are in the cache, so that getting one takes no torch."""
    if config.graph is not None:
        return True
    key = _family_key(config) if config.has_batch else _single_key(config, None)
    return (cache or GraphCache()).path(key).exists()


def family_of(config: ModelConfig, cache: GraphCache | None = None) -> GraphFamily:
    """A model's graphs at all batch sizes.

    Raises:
        InvalidInput: the model cannot be made or exported, or its graph is not affine in the batch.
    """
    cache = cache or GraphCache()
    key = _family_key(config)
    held = _families.get((cache.folder, key))
    if held is not None:
        return held
    document = cache.load(key)
    if isinstance(document, dict) and document.get("format") == _NOT_A_FAMILY:
        raise InvalidInput(str(document.get("reason")))
    family = None
    if document is not None:
        # A file that decompresses but holds something else is damaged too.
        with contextlib.suppress(InvalidInput):
            family = GraphFamily.from_json(document)
    if family is None:
        family = _traced_family(config)
        cache.store(key, family.to_json())
    family.trace = lambda batch: _single(config, batch, cache, keep=False)
    _families[cache.folder, key] = family
    return family


def _traced_family(config: ModelConfig) -> GraphFamily:
    from scenarios.tracing import family_of as family_of_traced

    return family_of_traced(lambda batch, check: _traced(config, batch, check))


def _graph_name(config: ModelConfig) -> str:
    return f"{config.name}_{config.optimizer}_step" if config.training else config.name


_repeated: dict[tuple[DataflowGraph, int], DataflowGraph] = {}
_families: dict[tuple[Path, str], GraphFamily] = {}
_graphs: dict[tuple[Path, str], DataflowGraph] = {}
_fused: dict[DataflowGraph, DataflowGraph] = {}
_told: set[DataflowGraph] = set()


def _single_key(config: ModelConfig, batch: int | None) -> str:
    return content_key(["graph", batch, _content(config)], _sources(config))


def _single(
    config: ModelConfig, batch: int | None, cache: GraphCache, keep: bool = True
) -> DataflowGraph:
    key = _single_key(config, batch)
    held = _graphs.get((cache.folder, key))
    if held is not None:
        return held
    document, graph = cache.load(key), None
    if document is not None:
        with contextlib.suppress(InvalidInput):
            graph = DataflowGraph.from_json(document)
    if graph is None:
        graph = _traced(config, batch)
        if keep:
            cache.store(key, graph.to_json())
    _graphs[cache.folder, key] = graph
    return graph


def _traced(config: ModelConfig, batch: int | None, check: bool = True) -> DataflowGraph:
    # CPUs take minutes for products in float16: the same module in float32 is what was checked.
    check = check and config.dtype != "float16"
    module, (args, kwargs) = load_model(config, batch, fake=True)
    if check and sum(p.numel() * p.element_size() for p in module.parameters()) <= _LARGEST_REAL:
        # Buffers have the values that the constructor gives them.
        module, (args, kwargs) = load_model(config, batch)
    if config.training:
        from scenarios.training_graph import trace_training

        return trace_training(
            module,
            args,
            kwargs=kwargs,
            loss=config.loss,
            optimizer=config.optimizer,
            name=_graph_name(config),
            batch=batch,
            check=check,
        )
    from scenarios.tracing import trace_model

    return trace_model(module, args, kwargs=kwargs, name=config.name, batch=batch, check=check)


def load_model(
    config: ModelConfig, batch: int | None = None, *, fake: bool = False, seed: int = 0
) -> tuple[torch.nn.Module, ExampleInputs]:
    """Make the module, in evaluation mode, and inputs for it.

    Args:
        config: the model.
        batch: batch size of the inputs; the configuration's unless given.
        fake: make both without data, for tracing: no memory, little time.
        seed: of the random weights and inputs; torch's own generator is left as it was.

    Returns:
        The module, and its inputs as (positional, by name): ``module(*args, **kwargs)``.

    Raises:
        InvalidInput: the target is not found or does not make a module, an input is malformed, or there is a graph alone.
    """
    if config.graph is not None:
        raise InvalidInput(
            f"Model '{config.name}' is a graph without a module (model.graph={config.graph}), which hardware cannot "
            "run; give its model.target"
        )
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    batch = config.batch if batch is None else batch
    shapes = [_shape(config, given, batch) for given in config.inputs]
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        target = own_code.load(config.target, f"model '{config.name}': target '{config.target}'")
        module = None
        if fake:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            # A constructor that reads values, as drop rates are made, or files cannot do without data.
            with contextlib.suppress(Exception), mode:
                module = target(**config.arguments)
                stack.enter_context(mode)
        if module is None:
            torch.manual_seed(seed)
            module = _called(config, target)
        if not isinstance(module, torch.nn.Module):
            raise InvalidInput(
                f"Model '{config.name}': {config.target} gives a {type(module).__name__}, not a "
                "torch.nn.Module"
            )
        floating = None if config.dtype is None else getattr(torch, config.dtype)
        if floating is not None:
            _convert(module, floating)
        args: list[torch.Tensor] = []
        kwargs: dict[str, torch.Tensor] = {}
        for given, shape in zip(config.inputs, shapes, strict=True):
            tensor = _tensor(config, given, shape)
            if floating is not None and tensor.is_floating_point():
                tensor = tensor.to(floating)
            if given.name is None:
                args.append(tensor)
            else:
                kwargs[given.name] = tensor
    return module.eval(), ExampleInputs(tuple(args), kwargs)


def _convert(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Do what ``module.to(dtype)`` does, also without data; weights that were shared stay so."""
    import torch

    made: dict[torch.Tensor, torch.Tensor] = {}
    for part in module.modules():
        for name, tensor in [
            *part.named_parameters(recurse=False),
            *part.named_buffers(recurse=False),
        ]:
            if not tensor.is_floating_point():
                continue
            if tensor not in made:
                made[tensor] = tensor.detach().to(dtype)
                if isinstance(tensor, torch.nn.Parameter):
                    made[tensor] = torch.nn.Parameter(made[tensor], tensor.requires_grad)
            setattr(part, name, made[tensor])


def _called(config: ModelConfig, target: Any) -> Any:
    """What a target gives.

    Raises:
        InvalidInput: it raises.
    """
    try:
        return target(**config.arguments)
    except HetsimError:
        raise
    except Exception as error:  # user code
        raise InvalidInput(
            f"Model '{config.name}': {config.target} cannot be called with "
            f"{config.arguments or 'no arguments'}: {type(error).__name__}: {error}"
        ) from error


class ExampleInputs(NamedTuple):
    """Inputs of a module's ``forward``."""

    args: tuple[torch.Tensor, ...]
    kwargs: dict[str, torch.Tensor]


# -- inputs -----------------------------------------------------------------------------------


def _number(config: ModelConfig, value: Any, batch: int | None, what: str) -> int:
    known = {**config.arguments, **config.parameters}
    if batch is not None:
        known["batch"] = batch
    number = known.get(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        names = ", ".join(name for name, v in known.items() if isinstance(v, int))
        raise InvalidInput(
            f"Model '{config.name}': {what} {value!r} is neither a number nor the name of one "
            f"({names})"
        )
    return number


def _shape(config: ModelConfig, given: InputConfig, batch: int | None) -> list[int]:
    if given.dtype not in ITEM_BYTES:
        raise InvalidInput(
            f"Model '{config.name}': unknown element type '{given.dtype}'. Known: "
            f"{', '.join(ITEM_BYTES)}"
        )
    return [_number(config, length, batch, "the length") for length in given.shape]


def _tensor(config: ModelConfig, given: InputConfig, shape: list[int]) -> torch.Tensor:
    import torch

    dtype: torch.dtype = getattr(torch, given.dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else None).to(dtype)
    high = 2 if given.high is None else _number(config, given.high, None, "the bound")
    return torch.randint(0, max(high, 1), shape).to(dtype)


# -- what a graph depends on ------------------------------------------------------------------


def _content(config: ModelConfig) -> dict[str, Any]:
    """What of a configuration, and of the installed packages, decides the graph."""
    content = asdict(config)
    for key in ("description", "batch", "fusion", "steps", "profile", "graph"):
        del content[key]
    if config.dtype is None:
        del content["dtype"]
    if not config.training:
        del content["training"], content["optimizer"], content["loss"]
    packages = {"torch", "transformers"}
    path = own_code.parse(config.target)
    if path is not None and path.module:
        packages.add(path.module.partition(".")[0])
    versions = {}
    for package in sorted(packages):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return content | {"versions": versions}


def _family_key(config: ModelConfig) -> str:
    return content_key(["family", _content(config)], _sources(config))


def _sources(config: ModelConfig) -> list[Path]:
    """Files whose content decides the graph: the tracer's, the model's and those that it imports."""
    files = [_ROOT / name for name in _SOURCES]
    own = own_code.sources(config.target)
    if not own and (file := own_code.origin(config.target)) is not None:
        own = sorted(file.parent.glob("*.py"))  # a shipped one's neighbours
    return files + own
