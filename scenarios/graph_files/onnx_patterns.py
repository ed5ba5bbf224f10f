"""Several ONNX operators that exporters write for one of PyTorch's.

A ``MatMul`` by a constant matrix with an ``Add`` of a vector behind it is a linear layer; ``0.5 * x * (1 + erf(x /
sqrt(2)))`` around an ``Erf``, its two products in any order, is a ``gelu``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from scenarios.graph_files.onnx_kinds import Node, is_linear
from simulator.model.operator import TensorSpec


class Rewritten(Node, Protocol):
    """A node whose operator, inputs and outputs may be put in others' place."""

    op_type: str
    inputs: list[str]
    outputs: list[str]


def join_patterns(
    nodes: Sequence[Rewritten],
    constants: Collection[str],
    results: Collection[str],
    types: Mapping[str, TensorSpec | None],
) -> set[int]:
    """Make one node of those of a pattern; returns the positions of those that then are nothing.

    Args:
        nodes: in topological order; changed in place.
        constants: names of values that are.
        results: names of the model's outputs, which no pattern swallows.
        types: of values by name.
    """
    found = _Joined(nodes, constants, results)
    for number, node in enumerate(nodes):
        if len(node.inputs) == 2 and types.get(node.inputs[1]) and is_linear(node):
            found.linear(number, types)
        elif node.op_type == "Erf" and node.inputs:
            found.gelu(number)
    return found.skipped


class _Joined:
    def __init__(
        self, nodes: Sequence[Rewritten], constants: Collection[str], results: Collection[str]
    ) -> None:
        self.nodes = nodes
        self.constants = constants
        self.results = results
        self.skipped: set[int] = set()
        self._readers: dict[str, list[int]] = {}
        self._writer: dict[str, int] = {}
        for number, node in enumerate(nodes):
            for name in node.inputs:
                self._readers.setdefault(name, []).append(number)
            self._writer.update(dict.fromkeys(node.outputs, number))

    def _only_reader(self, number: int, kind: str) -> int | None:
        """The node that alone reads what a node writes, if it is of a kind."""
        (name,) = self.nodes[number].outputs[:1] or [""]
        found = self._readers.get(name, [])
        right = len(found) == 1 and self.nodes[found[0]].op_type == kind
        return found[0] if right and name not in self.results else None

    def _other(self, number: int, name: str) -> str:
        """What a node reads beside a value."""
        return next((other for other in self.nodes[number].inputs if other != name), "")

    def linear(self, number: int, types: Mapping[str, TensorSpec | None]) -> None:
        """Take in the bias that is added to a product."""
        node = self.nodes[number]
        added = self._only_reader(number, "Add")
        if added is None:
            return
        bias = self._other(added, node.outputs[0])
        spec = types.get(bias)
        if bias in self.constants and spec is not None and spec.shape == node.spec(1).shape[1:]:
            node.inputs.append(bias)
            node.outputs = self.nodes[added].outputs
            self.skipped.add(added)

    def gelu(self, number: int) -> None:
        """Put a ``Gelu`` in place of the last of the operators around an ``Erf``."""
        nodes = self.nodes
        scaled = self._writer.get(nodes[number].inputs[0])
        added = self._only_reader(number, "Add")
        product = None if added is None else self._only_reader(added, "Mul")
        if scaled is None or added is None or product is None:
            return
        if nodes[scaled].op_type not in ("Div", "Mul"):
            return
        source = next((name for name in nodes[scaled].inputs if name not in self.constants), "")
        other = self._other(product, nodes[added].outputs[0])
        parts = [scaled, number, added]
        if other == source:  # (x * (1 + erf)) * 0.5
            last = self._only_reader(product, "Mul")
            parts.append(product)
            if last is None or not any(name in self.constants for name in nodes[last].inputs):
                return
        else:  # (x * 0.5) * (1 + erf)
            last, half = product, self._writer.get(other)
            if half is None or nodes[half].op_type != "Mul" or source not in nodes[half].inputs:
                return
            parts.append(half)
        if source:
            nodes[last].op_type, nodes[last].inputs = "Gelu", [source]
            self.skipped.update(parts)
