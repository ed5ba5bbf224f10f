"""The graph of a model at any batch size, from its graphs at a few.

Every integer of a graph document (shapes, strides, sizes inside argument templates) is taken to be
an affine function of the batch: two graphs determine it and a third one checks it. Batches of at
least 2 should be traced, since at batch 1 tracing takes shortcuts that hold there alone.

A model may do something else at any one batch. A family that knows how to trace (``family.trace``) traces
every batch once when it is first asked for; where that graph is not the family's, it is the one that
:meth:`GraphFamily.at` gives, with a warning.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import MOST_BYTES, TensorSpec
from simulator.support.atomic_io import replacing

FORMAT = "hetsim.family/1"
Trace = Callable[[int], DataflowGraph]
"""Traces a model at a batch size."""
_log = logging.getLogger(__name__)


class GraphFamily:
    """A model's graphs by batch size. Make it with :meth:`from_graphs` or :meth:`load`.

    JSON form (``hetsim.family/1``): ``{"format": ..., "graphs": [document, document], "own": {batch:
    reason}, "unchecked": str?}``: two graph documents (:mod:`simulator.model.graph`) at different batches, for
    each batch that was traced by itself why its graph is none of the family (null: it is), and why the
    graphs were not held against the model.

    Attributes:
        trace: how to trace the model at a batch that is asked for; None takes the family's word.
        own: what was found at the batches that were traced by themselves, as in the JSON form.
        unchecked: why its graphs were not held against the model, where they were not.
    """

    def __init__(
        self,
        lower: Mapping[str, Any],
        upper: Mapping[str, Any],
        own: Mapping[int, str | None] | None = None,
        unchecked: str | None = None,
    ) -> None:
        """Take two graph documents that are known to belong together.

        Raises:
            InvalidInput: they differ in more than integers, or in a way that no affine function
                with an integer slope explains.
        """
        self._lower, self._upper = lower, upper
        self.trace: Trace | None = None
        self.own: dict[int, str | None] = dict(own or {})
        self.unchecked = unchecked
        b0, b1 = (_batch(document) for document in (lower, upper))
        if b0 == b1:
            raise InvalidInput(f"A graph family needs two different batches, got {b0} twice")
        self.own |= {b0: None, b1: None}
        self.name = str(lower.get("name"))
        self._base = b0
        self._slopes = _slopes(lower, upper, b1 - b0, self.name, ())
        self._graphs: dict[int, DataflowGraph] = {}

    @classmethod
    def from_graphs(
        cls, first: DataflowGraph, second: DataflowGraph, check: DataflowGraph
    ) -> GraphFamily:
        """The family of three graphs of one model at different batches.

        Raises:
            InvalidInput: the structure changes with the batch, or a dimension is not affine in it;
                the message names the operator or tensor.
        """
        family = cls(_plain(first), _plain(second), unchecked=first.unchecked)
        expected = _plain(check)
        batch = _batch(expected)
        if batch in (first.batch, second.batch):
            raise InvalidInput(f"Batch {batch} cannot check itself; trace a third one")
        difference = _difference(family._document(batch), expected, ())
        if difference is not None:
            raise _unlike(difference, family.name)
        family.own[batch] = None
        return family

    def at(self, batch: int) -> DataflowGraph:
        """The graph at a batch size; the same object every time.

        Raises:
            InvalidInput: the batch is no positive integer, too small for the model, or cannot be traced.
        """
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise InvalidInput(f"Model '{self.name}': a batch is an integer >= 1, got {batch!r}")
        graph = self._graphs.get(batch)
        if graph is None:
            graph = self._graphs[batch] = self._made(batch)
        return graph

    def _made(self, batch: int) -> DataflowGraph:
        graph = DataflowGraph.from_json(self._document(batch))
        graph.unchecked = self.unchecked
        if self.own.get(batch, self.trace) is None:
            return graph
        if self.trace is None:
            raise InvalidInput(
                f"Model '{self.name}' has a graph of its own at batch {batch} ({self.own[batch]}), which "
                "the family has not"
            )
        traced = self.trace(batch)
        found, expected = _plain(graph), _plain(traced)
        kernels = _difference(_kernels(found), _kernels(expected), ("operators",))
        self.own[batch] = kernels or _difference(found, expected, ())
        if self.own[batch] is None:
            return graph
        if kernels is not None:  # else a view is idle at this batch
            _log.warning(
                "Model '%s' does something else at batch %d than at others: at %s; the graph that was "
                "traced at that batch is used",
                *(self.name, batch, kernels),
            )
        return traced

    def _document(self, batch: int) -> dict[str, Any]:
        document: dict[str, Any] = _shifted(self._lower, self._slopes, batch - self._base)
        if batch == 1:
            # A dimension of length 1 has no stride: some inputs are contiguous here alone.
            rows = [_at_one(row) for row in document.get("operators", ())]
            document = {**document, "operators": rows}
        return document

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        document = {
            "format": FORMAT,
            "graphs": [self._lower, self._upper],
            "own": {str(batch): reason for batch, reason in self.own.items()},
        }
        return document if self.unchecked is None else document | {"unchecked": self.unchecked}

    @classmethod
    def from_json(cls, document: Any) -> GraphFamily:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is not of this form, or its graphs do not belong together.
        """
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InvalidInput(f"Not a graph family of format '{FORMAT}'")
        graphs = document.get("graphs")
        if not isinstance(graphs, list) or len(graphs) != 2:
            raise InvalidInput("A graph family has two graphs")
        own, unchecked = document.get("own", {}), document.get("unchecked")
        known = isinstance(own, dict) and all(
            batch.isdecimal() and isinstance(reason, str | None) for batch, reason in own.items()
        )
        if not known or not isinstance(unchecked, str | None):
            raise InvalidInput("What a graph family says of batches of their own is malformed")
        family = cls(
            graphs[0], graphs[1], {int(batch): reason for batch, reason in own.items()}, unchecked
        )
        family.at(_batch(graphs[0]))  # validates the document
        return family

    def save(self, path: str | Path) -> None:
        """Write the JSON form whole or not at all; compressed if the name ends in ``.gz``."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> GraphFamily:
        """Read a file of :meth:`save`.

        Raises:
            InvalidInput: the file is missing, truncated or not a graph family.
        """
        document = read_json(path)
        try:
            return cls.from_json(document)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None


def write_json(path: str | Path, document: Any) -> None:
    """Write a JSON file whole or not at all; gzip-compressed if the name ends in ``.gz``."""
    path = Path(path)
    data = json.dumps(document, separators=(",", ":")).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def read_json(path: str | Path) -> Any:
    """Read a file of :func:`write_json`.

    Raises:
        InvalidInput: the file is missing, truncated or not JSON.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON ({error}); was it truncated?") from None
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None


# -- affine documents -----------------------------------------------------------------------------
# A tree of slopes has the shape of the document, without the parts that do not change.


def _slopes(lower: Any, upper: Any, span: int, name: str, path: tuple[Any, ...]) -> Any:
    if isinstance(lower, dict) and isinstance(upper, dict) and lower.keys() == upper.keys():
        pairs: Any = lower.items()
    elif isinstance(lower, list) and isinstance(upper, list) and len(lower) == len(upper):
        pairs = enumerate(lower)
    else:
        if type(lower) is type(upper) and lower == upper:
            return None
        number = (int, float) if path and path[-1] == "bytes" else (int,)
        if type(lower) in number and type(upper) in number:
            try:
                slope, rest = divmod(upper - lower, span)
            except OverflowError:  # an integer that no float holds
                rest = math.nan
            # Not so for what is not finite, either.
            if rest == 0 and abs(slope) < MOST_BYTES:
                return int(slope)
        change = f"{_shown(lower)} becomes {_shown(upper)} when it grows by {span}"
        raise _unlike(_at(path, change), name)
    found = {}
    for key, value in pairs:
        slope = _slopes(value, upper[key], span, name, (*path, _label(lower, key)))
        if slope is not None:
            found[key] = slope
    return found or None


def _shifted(value: Any, slopes: Any, distance: int) -> Any:
    if slopes is None:
        return value
    if isinstance(slopes, int):
        return value + slopes * distance
    if isinstance(value, dict):
        return value | {key: _shifted(value[key], s, distance) for key, s in slopes.items()}
    changed = list(value)
    for key, slope in slopes.items():
        changed[key] = _shifted(value[key], slope, distance)
    return changed


def _difference(found: Any, expected: Any, path: tuple[Any, ...]) -> str | None:
    """The first place where two documents differ, in words."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        keys: Any = found
    elif isinstance(found, list) and isinstance(expected, list):
        keys = range(min(len(found), len(expected)))
    elif type(found) is type(expected) and found == expected:
        return None
    else:
        return _at(path, f"{_shown(found)} is expected but {_shown(expected)} found")
    for key in keys:
        part = _difference(found[key], expected[key], (*path, _label(found, key)))
        if part is not None:
            return part
    if len(found) != len(expected):
        return _at(path, f"{len(found)} entries are expected but {len(expected)} found")
    return None


def _at_one(row: dict[str, Any]) -> dict[str, Any]:
    """An operator of batch 1 with its attribute ``strided`` (cost_models.canonical) counted anew."""
    if "strided" not in row.get("attributes", ()):
        return row
    attributes = dict(row["attributes"])
    specs = map(TensorSpec.from_json, row["inputs"])
    attributes["strided"] = [i for i, spec in enumerate(specs) if spec.strides is not None]
    if not attributes["strided"]:
        del attributes["strided"]
    return row | {"attributes": attributes}


def _label(parent: Any, key: Any) -> Any:
    """A step of a path that a reader understands: an item's name rather than its position."""
    if isinstance(parent, list) and isinstance(parent[key], dict):
        return parent[key].get("name", key)
    return key


def _at(path: tuple[Any, ...], what: str) -> str:
    return f"{' / '.join(str(step) for step in path) or 'the document'} {what}"


def _unlike(difference: str, name: str) -> InvalidInput:
    return InvalidInput(
        f"Model '{name}' is not affine in the batch: at {difference}; give it a fixed batch instead"
    )


def _kernels(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A graph's operators without how they call their kernels."""
    return [{k: v for k, v in row.items() if k != "template"} for row in document["operators"]]


def _plain(graph: DataflowGraph) -> dict[str, Any]:
    """A graph's document without what is not of the graph; templates as JSON has them."""
    document: dict[str, Any] = json.loads(json.dumps(graph.to_json()))
    document.pop("unchecked", None)
    return document


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def _batch(document: Mapping[str, Any]) -> int:
    batch = document.get("batch") if isinstance(document, Mapping) else None
    if isinstance(batch, bool) or not isinstance(batch, int):
        raise InvalidInput("A graph of a family must say its batch")
    return batch
