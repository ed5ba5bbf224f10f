"""Chakra execution traces of MLCommons, ``.et`` (https://github.com/mlcommons/chakra, schema 0.0.4).

A file is a row of protobuf messages, each behind its length as a varint: a ``GlobalMetadata``, then ``Node`` s. Read of
a node are its id, name, type, ``ctrl_deps`` and ``data_deps``, ``duration_micros`` and the attributes ``is_cpu_op``,
``comm_size`` (bytes), and two that this project writes: ``duration_s``, exact, and ``device``. A node begins when all
that it depends on have ended.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scenarios.graph_files.values import shown
from scenarios.random_graphs.shape import Shape, check_size
from simulator.errors import InvalidInput
from simulator.model.cluster import MOST_SLOTS, Cluster, Device, MemorySpace
from simulator.model.costs import MOST_SECONDS, CostTable
from simulator.model.graph import DataflowGraph, from_edges

VERSION = "0.0.4"
COMPUTE, SEND = 4, 5
COMMUNICATION = (5, 6, 7)
"""Numbers of node types: COMP_NODE, COMM_SEND_NODE, and all that communicate."""
NETWORK = "network"
_BOOL, _DOUBLE, _TEXT, _UINT64 = 27, 3, 29, 13
_NUMBERS = {7: "<i", 9: "<q", 11: "<I", 13: "<Q"}
_MOST_MESSAGE = 2**26


@dataclass(frozen=True)
class Node:
    """One node of a trace.

    Attributes:
        number: its id.
        seconds: that it took; 0 where the file does not say.
        begin_s: when it began, to a microsecond; 0 where the file does not say.
        attributes: numbers, truth values and texts by name.
    """

    number: int
    name: str
    type: int = COMPUTE
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    begin_s: float = 0.0
    seconds: float = 0.0
    attributes: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def communicates(self) -> bool:
        """Whether it sends, receives or is a collective."""
        return self.type in COMMUNICATION

    @property
    def device(self) -> str:
        """What runs it: the device that the file names, ``network``, ``cpu`` or ``npu``."""
        if self.communicates:
            return NETWORK
        named = self.attributes.get("device")
        if isinstance(named, str) and named:
            return named
        return "cpu" if self.attributes.get("is_cpu_op") else "npu"


# -- reading ------------------------------------------------------------------------------------


def read_chakra(data: bytes) -> list[Node]:
    """The nodes of a file, in its order.

    Raises:
        InvalidInput: it is none, truncated, or of another version.
    """
    messages = _messages(data)
    version = ""
    for number, _, value in _fields(next(messages, b"")):
        if number == 1 and isinstance(value, bytes):
            version = _string(value)
    if version != VERSION:
        raise InvalidInput(
            f"It is no Chakra trace of version {VERSION}: it says {shown(version)}"
            if version
            else f"It is no Chakra trace: it does not begin with the metadata of version {VERSION}"
        )
    nodes: list[Node] = []
    for message in messages:
        nodes.append(_node(message))
        check_size(len(nodes), 0)
    if not nodes:
        raise InvalidInput("The trace has no nodes")
    return nodes


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length, at = _varint(data, at)
        if length > _MOST_MESSAGE or at + length > len(data):
            raise InvalidInput(
                "It is no Chakra trace, or was truncated: a message ends behind the file's end"
            )
        yield data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise InvalidInput(
                "It is no Chakra trace, or was truncated: a number ends behind the file's end"
            )
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise InvalidInput("It is no Chakra trace: a number has more than ten bytes")


def _fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of every field of a message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, wire, value
            continue
        if wire == 2:
            length, at = _varint(message, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise InvalidInput(f"It is no Chakra trace: a field has wire type {wire}")
        if at + length > len(message):
            raise InvalidInput(
                "It is no Chakra trace, or was truncated: a field ends behind its message's end"
            )
        yield number, wire, message[at : at + length]
        at += length


def _node(message: bytes) -> Node:
    found: dict[int, Any] = {1: 0, 2: b"", 3: 0, 6: 0, 7: 0}
    wires = {1: 0, 2: 2, 3: 0, 6: 0, 7: 0}
    lists: dict[int, list[int]] = {4: [], 5: []}
    attributes: dict[str, bool | int | float | str] = {}
    for number, wire, value in _fields(message):
        if number in lists:
            if isinstance(value, int):
                lists[number].append(value)
            elif wire == 2:
                at = 0
                while at < len(value):
                    entry, at = _varint(value, at)
                    lists[number].append(entry)
        elif number == 10 and isinstance(value, bytes):
            name, entry_value = _attribute(value)
            if entry_value is not None:
                attributes[name] = entry_value
        elif number in found:
            if wire != wires[number]:
                raise InvalidInput(
                    f"It is no Chakra trace: field {number} of a node has wire type {wire}"
                )
            found[number] = value
    seconds = found[7] * 1e-6
    exact = attributes.get("duration_s")
    if isinstance(exact, float):
        seconds = exact
    if not 0 <= seconds <= MOST_SECONDS:
        raise InvalidInput(f"Node {found[1]} takes {seconds:g} s, not 0 to {MOST_SECONDS:g} s")
    return Node(
        *(found[1], _string(found[2]), found[3], tuple(lists[4]), tuple(lists[5])),
        *(found[6] * 1e-6, seconds, attributes),
    )


def _attribute(message: bytes) -> tuple[str, bool | int | float | str | None]:
    name = ""
    found: bool | int | float | str | None = None
    for number, wire, value in _fields(message):
        if number == 1 and isinstance(value, bytes):
            name = _string(value)
        elif number == _TEXT and isinstance(value, bytes):
            found = _string(value)
        elif number == _DOUBLE and wire == 1 and isinstance(value, bytes):
            found = float(struct.unpack("<d", value)[0])
        elif isinstance(value, int) and number == _BOOL:
            found = bool(value)
        elif isinstance(value, int) and number in _NUMBERS:
            bits = struct.pack("<Q", value)
            found = struct.unpack_from(_NUMBERS[number], bits)[0]
    return name, found


def _string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidInput("It is no Chakra trace: a text is not UTF-8") from None


def _edges(nodes: Sequence[Node]) -> tuple[list[tuple[int, int]], list[str]]:
    """Edges by position, and unique names."""
    index: dict[int, int] = {}
    for position, node in enumerate(nodes):
        if index.setdefault(node.number, position) != position:
            raise InvalidInput(f"Two nodes have the id {node.number}")
    edges: dict[tuple[int, int], None] = {}
    for position, node in enumerate(nodes):
        for other in (*node.data_deps, *node.ctrl_deps):
            if other not in index:
                raise InvalidInput(
                    f"Node {node.number} depends on {other}, which is no node of the file"
                )
            edges[index[other], position] = None
    check_size(len(nodes), len(edges))
    names = [node.name for node in nodes]
    if len(set(names)) < len(names) or "" in names:
        names = [f"{node.name or 'node'}#{node.number}" for node in nodes]
    return list(edges), names


def _untimed(nodes: Sequence[Node]) -> list[str]:
    """A line on nodes without a duration, or nothing."""
    lacking = sum(node.seconds == 0 and node.type >= COMPUTE for node in nodes)
    if not lacking:
        return []
    return [f"{lacking} of {len(nodes)} nodes have no duration and take no time"]


def chakra_shape(nodes: Sequence[Node]) -> Shape:
    """Tasks whose work is their seconds, communication among them; edges move nothing."""
    edges, names = _edges(nodes)
    return Shape.of(edges, [n.seconds for n in nodes], [0.0] * len(edges), names, _untimed(nodes))


def chakra_instance(
    nodes: Sequence[Node], name: str, say: Callable[[str], None]
) -> tuple[DataflowGraph, Cluster, CostTable]:
    """Nodes on the devices that ran them; any number of messages at once are on the network.

    Raises:
        InvalidInput: an id twice, a dependency on no node, or a cycle.
    """
    edges, names = _edges(nodes)
    for line in _untimed(nodes):
        say(line)
    graph = from_edges(name, len(nodes), [(a, b, 0.0) for a, b in edges], names)
    devices = list(dict.fromkeys(node.device for node in nodes))
    if len(devices) * len(nodes) > 2**28:
        raise InvalidInput(f"{len(nodes):,} nodes on {len(devices):,} devices are too many")
    column = {device: number for number, device in enumerate(devices)}
    seconds = np.full((len(nodes), len(devices)), math.inf)
    seconds[range(len(nodes)), [column[n.device] for n in nodes]] = [n.seconds for n in nodes]
    row_of = {label: row for row, label in enumerate(names)}
    order = [row_of[label] for label in graph.operator_names]
    slots = min(max(sum(node.communicates for node in nodes), 1), MOST_SLOTS)
    cluster = Cluster(
        name,
        [MemorySpace("memory")],
        [Device(d, "memory", slots=slots if d == NETWORK else 1) for d in devices],
    )
    return graph, cluster, CostTable.of(graph, seconds[order])


# -- writing ------------------------------------------------------------------------------------


def chakra_bytes(nodes: Sequence[Node]) -> bytes:
    """A file of nodes, as :func:`read_chakra` reads it."""
    parts = [_sized(_text_field(1, VERSION))]
    for node in nodes:
        attributes = {**node.attributes, "duration_s": float(node.seconds)}
        body = (
            _number_field(1, node.number) + _text_field(2, node.name) + _number_field(3, node.type)
        )
        for number, values in ((4, node.ctrl_deps), (5, node.data_deps)):
            if values:
                body += _bytes_field(number, b"".join(map(_encoded, values)))
        body += _number_field(6, round(node.begin_s * 1e6)) + _number_field(
            7, round(node.seconds * 1e6)
        )
        body += b"".join(_bytes_field(10, _encoded_attribute(*row)) for row in attributes.items())
        parts.append(_sized(body))
    return b"".join(parts)


def _encoded_attribute(name: str, value: bool | int | float | str) -> bytes:
    body = _text_field(1, name)
    if isinstance(value, bool):
        return body + _encoded(_BOOL << 3) + _encoded(int(value))
    if isinstance(value, int):
        return body + _encoded(_UINT64 << 3) + _encoded(value)
    if isinstance(value, float):
        return body + _encoded(_DOUBLE << 3 | 1) + struct.pack("<d", value)
    return body + _text_field(_TEXT, value)


def _encoded(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _sized(body: bytes) -> bytes:
    return _encoded(len(body)) + body


def _bytes_field(number: int, body: bytes) -> bytes:
    return _encoded(number << 3 | 2) + _sized(body)


def _text_field(number: int, text: str) -> bytes:
    return _bytes_field(number, text.encode())


def _number_field(number: int, value: int) -> bytes:
    return _encoded(number << 3) + _encoded(value)
