"""Layer profiles: seconds and bytes of a model's layers on types of devices, as others' profilers write them.

A profile is read as a training step with given times, so that a published plan can be simulated without its model. A
file is of one of these forms:

* PipeDream's ``graph.txt`` (milliseconds; one type of device, which it does not name)::

    node5 -- Conv2d(3, 64, ...) -- forward_compute_time=1.2, backward_compute_time=2.3, activation_size=4e6, parameter_size=7e3
    <tab>node4 -- node5

* JSON of msr-fiddle's device placement (milliseconds; types ``cpu`` and ``fpga``; memory of a layer, which is that of its
  parameters and its output; without ``isBackwardNode`` layers it is an inference);
* Sailor's ``profile.json`` (seconds of forward, backward and update of a chain, by micro-batch, degree of tensor
  parallelism and layer; one type, which it does not name). Bytes stand in a file ``sizes.json`` beside it:
  ``{"layer": [bytes of parameters, bytes of output]}``.

A folder holds a file for each type of device, named after it (``V100-16.txt``, ``A100-40.json``), of the same layers.

The step has one forward and one backward operator for each layer, named ``node5/forward`` and ``node5/backward``, and
``node5.weight/sgd_step`` for each layer with parameters. A layer has a backward operator where a gradient is needed there: it
or a layer before it has parameters, or the profile says how long it takes. It reads the gradients of its output, its
weight, and the layer's inputs, which are kept for it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.optimizer_steps import UPDATED, optimizer_of
from scenarios.graph_files.values import file_bytes, number_of, parse_json, shown
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.topological_order import sorted_topologically

UNNAMED = ""
"""The type of device of a profile that does not name it."""
_SIZES = "sizes.json"
_FORMS = "PipeDream's graph.txt, msr-fiddle's or Sailor's JSON, or a folder of them with a file TYPE.txt or TYPE.json a type"
_NUMBER = r"[0-9.eE+-]+"
_LAYER = re.compile(
    rf"forward_compute_time=({_NUMBER}), *backward_compute_time=({_NUMBER}), *"
    rf"activation_size=(\[[^\]]*\]|{_NUMBER}), *parameter_size=({_NUMBER})"
)


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        name: unique in the profile.
        kind: what it is, such as ``conv2d``.
        seconds: of forward, backward and update on each type of device; ``inf`` where that cannot run it.
        parameters, output: bytes.
    """

    name: str
    kind: str
    seconds: Mapping[str, tuple[float, float, float]]
    parameters: float
    output: float


@dataclass(frozen=True)
class LayerProfile:
    """Layers with what they read of each other.

    Attributes:
        name: the model's.
        layers: in topological order.
        edges: (layer, reader), positions of both.
        training: whether there are backward passes.
    """

    name: str
    layers: Sequence[Layer]
    edges: Sequence[tuple[int, int]]
    training: bool = True

    @property
    def types(self) -> tuple[str, ...]:
        """Types of devices that it has times of."""
        return tuple(self.layers[0].seconds)

    def instance(
        self, cluster: Cluster, batch: int | None = None
    ) -> tuple[DataflowGraph, CostTable]:
        """The step as a graph, with a column of times for each device of a cluster.

        Args:
            cluster: its devices' ``profile`` names their type. A profile that names no type is of the only one there.
            batch: size of the batch that was profiled, for the graph's label.

        Raises:
            InvalidInput: the profile has no times of a device's type; names it and those that it has.
        """
        wanted = list(dict.fromkeys(str(device.profile) for device in cluster.devices))
        if self.types == (UNNAMED,):
            if len(wanted) > 1:
                raise InvalidInput(
                    f"Layer profile '{self.name}' is of one type of device, and cluster '{cluster.name}' has "
                    f"{', '.join(wanted)}; give a folder with a file for each: {wanted[0]}.txt, ..."
                )
            wanted = [UNNAMED]
        for kind in wanted:
            if kind not in self.types:
                raise InvalidInput(
                    f"Layer profile '{self.name}' has no times of device type '{kind}', which cluster '{cluster.name}' "
                    f"has; it has {', '.join(self.types)}"
                )
        made = _Step(self, batch)
        column = [UNNAMED if wanted == [UNNAMED] else str(d.profile) for d in cluster.devices]
        seconds = [
            [self.layers[layer].seconds[kind][part] for kind in column] for layer, part in made.of
        ]
        return made.graph, CostTable.of(made.graph, np.array(seconds))


class _Step:
    """The graph of a profile; ``of`` says of each operator its layer and whether it is forward (0), backward (1) or update (2)."""

    def __init__(self, profile: LayerProfile, batch: int | None) -> None:
        self._tensors: list[Tensor] = []
        layers = profile.layers
        before: list[list[int]] = [[] for _ in layers]
        behind: list[list[int]] = [[] for _ in layers]
        for source, reader in profile.edges:
            before[reader].append(source)
            behind[source].append(reader)
        output = [self._tensor(f"{one.name}/forward:out", one.output) for one in layers]
        weight = {
            at: self._tensor(f"{one.name}.weight", one.parameters, weight=True)
            for at, one in enumerate(layers)
            if one.parameters
        }
        ends = [at for at in range(len(layers)) if not behind[at]]
        loss = {}
        if profile.training:
            loss = {at: self._tensor(f"{layers[at].name}/forward:loss", 4.0) for at in ends}
        rows: list[tuple[Operator, list[int], list[int]]] = []
        self.of: list[tuple[int, int]] = []
        for at, one in enumerate(layers):
            reads = [output[source] for source in before[at]]
            reads += [weight[at]] if at in weight else []
            writes = [output[at], *([loss[at]] if at in loss else [])]
            rows.append((Operator(f"{one.name}/forward", one.kind), reads, writes))
            self.of.append((at, 0))
        needed = [False] * len(layers)
        for at, one in enumerate(layers):
            timed = any(0 < times[1] < math.inf for times in one.seconds.values())
            needed[at] = timed or at in weight or any(needed[source] for source in before[at])
        gradients: list[list[int]] = [[] for _ in layers]
        steps = []
        for at in reversed(range(len(layers)) if profile.training else ()):
            if not needed[at]:
                continue
            one = layers[at]
            reads = gradients[at] + ([loss[at]] if at in loss else [])
            reads += [output[source] for source in before[at]]
            reads += [weight[at]] if at in weight else []
            writes = []
            for source in before[at]:
                if needed[source]:
                    name = f"{one.name}/backward:{layers[source].name}"
                    writes.append(self._tensor(name, layers[source].output))
                    gradients[source].append(writes[-1])
            if at in weight:
                writes.append(self._tensor(f"{one.name}/backward:weight", one.parameters))
                steps.append((at, writes[-1]))
            rows.append((Operator(f"{one.name}/backward", f"{one.kind}_backward"), reads, writes))
            self.of.append((at, 1))
        target = optimizer_of("sgd").target
        for at, gradient in steps:
            name = self._tensors[weight[at]].name
            updated = self._tensor(f"{name}{UPDATED}", layers[at].parameters)
            step = Operator(f"{name}/sgd_step", "sgd_step", target=target)
            rows.append((step, [weight[at], gradient], [updated]))
            self.of.append((at, 2))
        operators, reads_of, writes_of = zip(*rows, strict=True)
        results = [loss[at] for at in ends] if profile.training else [output[at] for at in ends]
        self.graph = DataflowGraph(
            profile.name,
            operators,
            self._tensors,
            reads_of,
            writes_of,
            [{"tensor": self._tensors[tensor].name, "views": []} for tensor in results],
            batch,
        )

    def _tensor(self, name: str, size: float, weight: bool = False) -> int:
        self._tensors.append(Tensor(name, "weight" if weight else "activation", size))
        return len(self._tensors) - 1


def read_layer_profile(path: str | Path, batch: int = 1) -> LayerProfile:
    """Read a layer profile, see the module docstring.

    Args:
        path: a file, or a folder with one for each type of device.
        batch: the micro-batch that is asked of a Sailor profile, which has several.

    Raises:
        InvalidInput: the file cannot be read or is of none of these forms; or files of a folder differ in layers.
    """
    path, files = Path(path), [file for file in files_of(path) if file.name != _SIZES]
    if not path.is_dir():
        return _read(path, batch)
    if not files:
        raise InvalidInput(f"{path} holds no layer profile; give {_FORMS}")
    found = [_read(file, batch) for file in files]
    for file, other in zip(files, found, strict=True):
        if other.types != (UNNAMED,):
            raise InvalidInput(
                f"{file} names types of devices itself ({', '.join(other.types)}); give it alone, not in a folder"
            )
        if [one.name for one in other.layers] != [one.name for one in found[0].layers]:
            raise InvalidInput(
                f"{file} has other layers than {files[0]}; give profiles of one model"
            )
    layers = [
        replace(
            alike[0],
            seconds={
                file.stem: one.seconds[UNNAMED] for file, one in zip(files, alike, strict=True)
            },
        )
        for alike in zip(*(other.layers for other in found), strict=True)
    ]
    return LayerProfile(path.resolve().name, layers, found[0].edges)


def files_of(path: str | Path) -> list[Path]:
    """The files that a layer profile consists of.

    Raises:
        InvalidInput: there is no such file or folder.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidInput(f"There is no layer profile {path}; give {_FORMS}")
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in (".txt", ".json"))
    return [file for file in (path, path.parent / _SIZES) if file.is_file()]


def _read(path: Path, batch: int) -> LayerProfile:
    data = file_bytes(path)
    try:
        if path.suffix != ".json":
            return _pipedream(path, data.decode("utf-8-sig"))
        document = parse_json(data)
        if isinstance(document, dict) and {"nodes", "edges"} <= document.keys():
            return _placement(path.stem, document)
        if isinstance(document, dict) and all(isinstance(v, dict) for v in document.values()):
            return _sailor(path, document, batch)
        raise InvalidInput(f"It is no layer profile; give {_FORMS}")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not text in UTF-8; was it damaged?") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _profile(
    name: str, layers: Sequence[Layer], edges: Iterable[tuple[Any, Any]], training: bool = True
) -> LayerProfile:
    """A profile of layers in any order and edges by names."""
    index = {one.name: at for at, one in enumerate(layers)}
    if not layers or len(index) < len(layers):
        raise InvalidInput("It has no layers" if not layers else "It has two layers of one name")
    pairs = []
    for edge in dict.fromkeys(edges):
        if not set(edge) <= index.keys():
            raise InvalidInput(f"It has an edge {shown(edge)} between layers that it does not have")
        pairs.append((index[edge[0]], index[edge[1]]))
    source, target = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    order = sorted_topologically([one.name for one in layers], source, target)
    place = {at: new for new, at in enumerate(order)}
    return LayerProfile(
        name, [layers[at] for at in order], sorted((place[a], place[b]) for a, b in pairs), training
    )


def _pipedream(path: Path, text: str) -> LayerProfile:
    layers, edges = [], []
    for number, line in enumerate(text.splitlines(), 1):
        parts = [part.strip() for part in line.split(" -- ")]
        if not line.strip():
            continue
        if line.startswith("\t") and len(parts) == 2:
            edges.append((parts[0], parts[1]))
            continue
        found = _LAYER.search(parts[2]) if len(parts) >= 3 else None
        if found is None:
            raise InvalidInput(
                f"Line {number}, {shown(line)}, is neither a layer nor an edge of PipeDream's"
            )
        what = f"A number of layer '{parts[0]}'"
        forward, backward, parameters = (number_of(found[at], what) for at in (1, 2, 4))
        # Several outputs are written as [a; b].
        output = math.fsum(number_of(s, what) for s in re.split(r"[;,]", found[3].strip("[]")))
        kind = re.split(r"\W", parts[1], maxsplit=1)[0].lower()
        seconds = {UNNAMED: (forward / 1e3, backward / 1e3, 0.0)}
        layers.append(Layer(parts[0], kind or "layer", seconds, parameters, output))
    name = path.resolve().parent.name if path.stem == "graph" else path.stem
    return _profile(name, layers, edges)


def _placement(name: str, document: Mapping[str, Any]) -> LayerProfile:
    nodes, edges = document["nodes"], document["edges"]
    keys = ("id", "cpuLatency", "fpgaLatency", "size", "colorClass")
    for rows, needed in ((nodes, keys), (edges, ("sourceId", "destId"))):
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and row.keys() >= set(needed) for row in rows
        ):
            raise InvalidInput(
                f"'nodes' and 'edges' are lists of objects, with {', '.join(needed)}"
            )
    size: dict[Any, float] = {}
    for edge in edges:
        moved = number_of(edge.get("size", 0.0), "The size of an edge")
        size[edge["sourceId"]] = max(size.get(edge["sourceId"], 0.0), moved)
    backward = {node["colorClass"]: node for node in nodes if node.get("isBackwardNode")}
    layers, names = [], {}
    for node in nodes:
        if node.get("isBackwardNode"):
            continue
        names[node["id"]] = label = str(node.get("name", node["id"]))
        passes = (node, backward.get(node["colorClass"], {}))
        seconds = {}
        for kind in ("cpu", "fpga"):
            able = kind == "cpu" or node.get("supportedOnFpga", 1)
            what = f"{kind}Latency of layer '{label}'"
            times = [number_of(one.get(f"{kind}Latency", 0.0), what) / 1e3 for one in passes]
            seconds[kind] = (times[0], times[1], 0.0) if able else (math.inf,) * 3
        output = size.get(node["id"], 0.0)
        held = number_of(node["size"], f"The size of layer '{label}'")
        layers.append(Layer(label, "layer", seconds, max(held - output, 0.0), output))
    ends = [(edge["sourceId"], edge["destId"]) for edge in edges]
    inner = [(names[a], names[b]) for a, b in ends if a in names and b in names]
    return _profile(name, layers, inner, training=bool(backward))


def _sailor(path: Path, document: Mapping[str, Any], batch: int) -> LayerProfile:
    times = document.get(str(batch), {}).get("1")
    if not isinstance(times, dict):
        raise InvalidInput(
            f"It has no times of micro-batch {batch} without tensor parallelism; it has micro-batches {', '.join(document)}: "
            "give one as model.batch"
        )
    sizes_file = path.parent / _SIZES
    if not sizes_file.is_file():
        raise InvalidInput(
            f'Sailor\'s profiles say nothing of bytes; write {sizes_file}: {{"layer": [bytes of parameters, bytes of output]}}'
        )
    sizes = parse_json(file_bytes(sizes_file))
    layers = []
    for label, row in sorted(times.items(), key=lambda item: int(item[0])):
        size = sizes.get(label) if isinstance(sizes, dict) else None
        if not (
            isinstance(row, list) and len(row) == 3 and isinstance(size, list) and len(size) == 2
        ):
            raise InvalidInput(
                f"Layer '{label}' needs [forward, backward, update] here and [parameters, output] in {_SIZES}"
            )
        what = f"A number of layer '{label}'"
        forward, backward, update, parameters, output = (number_of(v, what) for v in (*row, *size))
        seconds = {UNNAMED: (forward, backward, update)}
        layers.append(Layer(label, "layer", seconds, parameters, output))
    chain = [(a.name, b.name) for a, b in itertools.pairwise(layers)]
    return _profile(
        path.resolve().parent.name if path.stem == "profile" else path.stem, layers, chain
    )


__all__ = ["Layer", "LayerProfile", "files_of", "read_layer_profile"]
