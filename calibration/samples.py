"""The operators to be measured, as a file that carries them to another machine.

JSON form ``hetsim.operators/1``::

    {"format": "hetsim.operators/1",
     "operators": [{"name", "kind", "target", "template", "attributes",
                    "inputs": [spec], "outputs": [spec], "reads": [spec],
                    "weights": [index into reads], "architectures": [str], "tf32": true}]}

Template and specs are those of :mod:`simulator.model.graph`. ``architectures`` names the models in which
the operator occurs; it is empty for a sampled one. ``tf32`` is there only where it is true.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, TensorSpec
from simulator.support.atomic_io import replacing

FORMAT = "hetsim.operators/1"
DTYPES = ("float32", "tf32", "float16", "bfloat16")
"""Element types that operators of float32 are measured in. ``tf32``, of CUDA devices, is float32 in
memory; products of matrices and convolutions round it."""


@dataclass(frozen=True)
class OperatorSample:
    """An operator to measure.

    Attributes:
        weights: which of ``operator.reads`` are weights; these lie in memory in state ``graph``.
        architectures: the models it occurs in, sorted; empty for a sampled shape.
        tf32: whether products may round float32 to TF32.
    """

    operator: Operator
    weights: tuple[int, ...] = ()
    architectures: tuple[str, ...] = ()
    tf32: bool = False

    @property
    def dtype(self) -> str:
        """What it computes in: ``tf32``, or the element type of its first floating-point tensor."""
        if self.tf32:
            return "tf32"
        specs = (*self.operator.outputs, *self.operator.inputs)
        return next((spec.dtype for spec in specs if "float" in spec.dtype), specs[0].dtype)

    @cached_property
    def identity(self) -> str:
        """16 hex digits of everything that decides its time.

        Neither the name does, nor which part of a larger tensor a view picks: what the kernel sees
        (``inputs``) counts, not what is stored behind it.
        """
        document = sample_to_json(self)
        for key in ("name", "architectures", "reads"):
            del document[key]
        document["template"] = _without_views(document["template"])
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_views(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_views(part) for part in node]
    if isinstance(node, Mapping):
        return {k: _without_views(v) for k, v in node.items() if k != "views"}
    return node


def sample_to_json(sample: OperatorSample) -> dict[str, Any]:
    """One entry of the file."""
    operator = sample.operator
    return {
        "name": operator.name,
        "kind": operator.kind,
        "target": operator.target,
        "template": operator.template,
        "attributes": dict(operator.attributes),
        "inputs": [spec.to_json() for spec in operator.inputs],
        "outputs": [spec.to_json() for spec in operator.outputs],
        "reads": [spec.to_json() for spec in operator.reads],
        "weights": list(sample.weights),
        "architectures": list(sample.architectures),
        **({"tf32": True} if sample.tf32 else {}),
    }


def sample_from_json(document: Mapping[str, Any]) -> OperatorSample:
    """Read one entry.

    Raises:
        InvalidInput: a key is missing or a spec is not one.
    """
    try:
        specs = {
            key: tuple(map(TensorSpec.from_json, document[key]))
            for key in ("inputs", "outputs", "reads")
        }
        operator = Operator(
            name=document["name"],
            kind=document["kind"],
            attributes=document["attributes"],
            target=document["target"],
            template=document["template"],
            **specs,
        )
        sample = OperatorSample(
            operator,
            tuple(document["weights"]),
            tuple(document["architectures"]),
            bool(document.get("tf32", False)),
        )
    except KeyError as error:
        raise InvalidInput(f"An operator of the file lacks the key {error}") from None
    if any(index >= len(operator.reads) for index in sample.weights):
        raise InvalidInput(f"Operator '{operator.name}' names a weight that it does not read")
    return sample


def distinct(samples: Iterable[OperatorSample]) -> list[OperatorSample]:
    """Each identity once, in order of first appearance, with the union of its architectures."""
    found: dict[str, OperatorSample] = {}
    for sample in samples:
        known = found.get(sample.identity)
        if known is None:
            found[sample.identity] = sample
        else:
            union = tuple(sorted({*known.architectures, *sample.architectures}))
            found[sample.identity] = replace(known, architectures=union)
    return list(found.values())


def in_dtype(sample: OperatorSample, dtype: str) -> OperatorSample:
    """An operator of float32 in another element type; one of anything else as it is.

    Every float32 tensor and every float32 that its arguments name becomes ``dtype``; shapes,
    strides and integers stay.

    Raises:
        InvalidInput: the type is not one of :data:`DTYPES`.
    """
    if dtype not in DTYPES:
        raise InvalidInput(f"No element type '{dtype}' to measure in; known: {', '.join(DTYPES)}")
    operator = sample.operator
    specs = (*operator.outputs, *operator.inputs)
    floats = {spec.dtype for spec in specs if "float" in spec.dtype}
    if dtype == "float32" or floats != {"float32"}:
        return sample
    if dtype == "tf32":
        return replace(sample, tf32=True)
    changed: dict[str, Any] = {
        key: tuple(
            replace(spec, dtype=dtype) if spec.dtype == "float32" else spec
            for spec in getattr(operator, key)
        )
        for key in ("inputs", "outputs", "reads")
    }
    changed["template"] = _retyped(operator.template, dtype)
    return replace(sample, operator=replace(operator, **changed))


def _retyped(node: Any, dtype: str) -> Any:
    if isinstance(node, list):
        return [_retyped(part, dtype) for part in node]
    if isinstance(node, Mapping):
        return {
            k: dtype if k == "dtype" and v == "float32" else _retyped(v, dtype)
            for k, v in node.items()
        }
    return node


def in_dtypes(samples: Sequence[OperatorSample], dtypes: Sequence[str]) -> list[OperatorSample]:
    """Every operator in each of the element types, as :func:`in_dtype` changes them.

    Raises:
        InvalidInput: no types, or one that is unknown.
    """
    if not dtypes:
        raise InvalidInput(f"Give at least one element type, of {', '.join(DTYPES)}")
    return distinct(in_dtype(sample, dtype) for dtype in dtypes for sample in samples)


def samples_of(graph: DataflowGraph, architecture: str) -> list[OperatorSample]:
    """The distinct operators of a model's graph; those without a template cannot be run."""
    samples = []
    for operator, reads in zip(graph.operators, graph.reads, strict=True):
        if operator.template is None:
            raise InvalidInput(
                f"Operator '{operator.name}' of graph '{graph.name}' has no argument template; only "
                "graphs traced from a model can be measured"
            )
        weights = tuple(i for i, t in enumerate(reads) if graph.tensors[t].role == "weight")
        samples.append(OperatorSample(operator, weights, (architecture,)))
    return distinct(samples)


def write_samples(path: str | Path, samples: Sequence[OperatorSample]) -> None:
    """Write the file, whole or not at all; a name that ends in ``.gz`` is compressed."""
    path = Path(path)
    rows = ",\n".join(
        json.dumps(sample_to_json(sample), separators=(",", ":")) for sample in samples
    )
    data = f'{{"format": "{FORMAT}", "operators": [\n{rows}\n]}}\n'.encode()
    with replacing(path) as temporary:
        temporary.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def read_samples(path: str | Path) -> list[OperatorSample]:
    """Read the file.

    Raises:
        InvalidInput: it is missing, truncated, of another format, or an entry is incomplete.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"Cannot read the operators file {path}: {reason}") from None
    return list(_parsed(data, path))


@lru_cache(maxsize=4)
def _parsed(data: bytes, path: Path) -> tuple[OperatorSample, ...]:
    """What a file of this content holds; the shipped ones take a second."""
    try:
        document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(
            f"{path} is not an operators file ({error}); was it truncated?"
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInput(f"{path} is not an operators file of format '{FORMAT}'")
    return tuple(sample_from_json(entry) for entry in document["operators"])
