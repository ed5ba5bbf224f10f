"""Task graphs in Graphviz' DOT language, as daggen (``--dot``) and SimGrid write and read them.

Read is ``[strict] digraph [name] { ... }`` with nodes, chains of edges, attribute lists, defaults
(``node [...]``, ``edge [...]``), ports, comments, and subgraphs that stand alone. Not read: undirected
graphs, subgraphs as ends of edges, HTML texts and texts joined by +.

A node's work is its ``size`` or else its ``weight``, an edge's data likewise; an edge of -1 is SimGrid's
for a dependency without data. Where others have sizes, a node that edges alone name has no work, such as
SimGrid's ``root`` and ``end``. What no node or no edge has is the same for all: work 1, data 0. Other
attributes, such as labels and daggen's ``alpha``, are not read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scenarios.graph_files.values import EQUAL_DATA, EQUAL_WORK, number_of, shown
from scenarios.random_graphs.shape import Shape, check_size
from simulator.errors import InvalidInput

WEIGHTS = ("size", "weight")
"""Attributes that are read, the first that an element has."""
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
    |(?P<mark>->|--|[{}\[\];,=:])
    |"(?P<text>(?:[^"\\]|\\.)*)"
    |(?P<word>-?(?:\.\d+|\d+(?:\.\d*)?)(?![\w.])|[^\W\d]\w*|\w[\w.]*)
    |(?P<bad>.)""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = ("graph", "node", "edge", "subgraph", "digraph", "strict")
Attributes = dict[str, str]


class _Token(NamedTuple):
    """A word, a quoted text or a mark, and where it begins."""

    text: str
    kind: str
    offset: int

    @property
    def keyword(self) -> str:
        """The keyword that it is, in lower case, else empty."""
        lower = self.text.lower()
        return lower if self.kind == "word" and lower in _KEYWORDS else ""

    def is_mark(self, *marks: str) -> bool:
        """Whether it is one of these marks."""
        return self.kind == "mark" and self.text in marks


def read_dot(text: str) -> Shape:
    """The graph of a file.

    Raises:
        InvalidInput: says what is wrong and on which line, or which element lacks its weight.
    """
    reader = _Reader(text)
    reader.read()
    check_size(len(reader.nodes), len(reader.edges))
    if not reader.nodes:
        raise InvalidInput("The DOT graph has no nodes")
    index = {name: number for number, name in enumerate(reader.nodes)}
    notes = []
    work = _weights({f"Node '{name}'": reader.nodes[name] for name in reader.stated})
    unsized = [name for name in reader.nodes if name not in reader.stated]
    if work is None:
        notes.append(f"no node has a {' or '.join(WEIGHTS)}: {EQUAL_WORK}")
    elif unsized:
        notes.append(f"{_some(unsized)}: named by edges alone, taken to have no work")
    data = _weights(
        {
            f"Edge '{a}' -> '{b}' ({number})": entry
            for number, (a, b, entry) in enumerate(reader.edges, 1)
        },
        control=True,
    )
    if data is None and reader.edges:
        notes.append(f"no edge has a {' or '.join(WEIGHTS)}: {EQUAL_DATA}")
    amounts = dict(zip(reader.stated, work or [], strict=True)) if work else {}
    return Shape.of(
        [(index[a], index[b]) for a, b, _ in reader.edges],
        [amounts.get(name, 0.0) if work else 1.0 for name in reader.nodes],
        data or [0.0] * len(reader.edges),
        tuple(reader.nodes),
        notes,
    )


def _weights(elements: Mapping[str, Attributes], control: bool = False) -> list[float] | None:
    """The weight of each element, or None where none has one.

    Args:
        elements: attributes by what messages call an element.
        control: -1 stands for none.
    """
    found: list[float] = []
    lacking = None
    for name, attributes in elements.items():
        key = next((key for key in WEIGHTS if key in attributes), None)
        if key is None:
            lacking = name
            continue
        text = attributes[key]
        absent = control and re.fullmatch(r"\s*-1(\.0*)?\s*", text)
        found.append(0.0 if absent else number_of(text, f"{name}: {key}"))
    if not found:
        return None
    if lacking is not None:
        raise InvalidInput(
            f"{shown(lacking)[1:-1]} has neither size nor weight, though others have; give all or none"
        )
    return found


def _some(names: Sequence[str]) -> str:
    """Names for a message, the first of them where they are many."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown(name) for name in names[:3]) + more


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "space":
            continue
        value = match[kind]
        if kind == "bad":
            rest = text[match.start() : match.start() + 20].split("\n")[0]
            line = text.count("\n", 0, match.start()) + 1
            raise InvalidInput(f"Line {line}: cannot read {shown(rest)} as DOT")
        if "\\" in value:
            value = value.replace('\\"', '"').replace("\\\n", "")
        yield _Token(value, kind, match.start())


class _Reader:
    """Nodes and edges of one graph, statement by statement.

    Attributes:
        nodes: attributes by name, in order of appearance.
        stated: the nodes that have a statement of their own or an attribute, as keys.
        edges: (from, to, attributes).
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self.nodes: dict[str, Attributes] = {}
        self.stated: dict[str, None] = {}
        self.edges: list[tuple[str, str, Attributes]] = []
        self._merged: dict[tuple[str, str], Attributes] = {}

    def read(self) -> None:
        """The whole file."""
        token = self._next("'digraph'")
        strict = token.keyword == "strict"
        if strict:
            token = self._next("'digraph'")
        if token.keyword != "digraph":
            what = "is undirected" if token.keyword == "graph" else f"has {shown(token.text)}"
            raise InvalidInput(
                f"Line {self._line(token)} {what}; a task graph begins with 'digraph'"
            )
        token = self._next("'{'")
        if not token.is_mark("{"):
            token = self._next("'{'")
        self._expect(token, "{")
        # Defaults of nodes and edges, one pair for each subgraph that is open.
        scopes: list[dict[str, Attributes]] = [{"node": {}, "edge": {}}]
        while scopes:
            token = self._next("'}'")
            if token.is_mark(";"):
                continue
            if token.is_mark("}"):
                scopes.pop()
                self._refuse_edge("a subgraph")
            elif token.is_mark("{") or token.keyword == "subgraph":
                while not token.is_mark("{"):
                    token = self._next("'{'")
                scopes.append({key: dict(value) for key, value in scopes[-1].items()})
            elif token.keyword in ("graph", "node", "edge"):
                scopes[-1].setdefault(token.keyword, {}).update(self._attributes())
            elif token.kind == "mark" or token.keyword:
                raise InvalidInput(
                    f"Line {self._line(token)}: {shown(token.text)} begins no statement"
                )
            else:
                self._statement(token, scopes[-1], strict)
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            raise InvalidInput(
                f"Line {self._line(token)}: {shown(token.text)} behind the graph's end"
            )

    def _statement(self, token: _Token, defaults: Mapping[str, Attributes], strict: bool) -> None:
        if self._peek("="):
            self._at += 1
            self._name(self._next("a value"))
            return
        chain = [self._end(token)]
        for name in chain:
            self._declare(name, defaults["node"])
        while self._peek("->", "--"):
            mark = self._next("'->'")
            self._expect(mark, "->")
            end = self._end(self._next("a node"))
            self._declare(end, defaults["node"])
            chain.append(end)
        attributes = self._attributes()
        if len(chain) == 1:
            self.nodes[chain[0]].update(attributes)
            self.stated[chain[0]] = None
        for pair in itertools.pairwise(chain):
            entry = {**defaults["edge"], **attributes}
            if strict and pair in self._merged:
                self._merged[pair].update(entry)
                continue
            self._merged[pair] = entry
            self.edges.append((*pair, entry))

    def _declare(self, name: str, defaults: Attributes) -> None:
        if name not in self.nodes:
            self.nodes[name] = dict(defaults)
            if any(key in defaults for key in WEIGHTS):
                self.stated[name] = None

    def _end(self, token: _Token) -> str:
        """A node's name; a port behind it has no meaning here."""
        if token.is_mark("{") or token.keyword == "subgraph":
            raise InvalidInput(
                f"Line {self._line(token)}: an edge ends at a subgraph; write one edge for each node of it"
            )
        name = self._name(token)
        while self._peek(":"):
            self._at += 1
            self._name(self._next("a port"))
        return name

    def _attributes(self) -> Attributes:
        found: Attributes = {}
        while self._peek("["):
            self._at += 1
            while not self._peek("]"):
                key = self._name(self._next("']'"))
                self._expect(self._next("'='"), "=")
                found[key] = self._name(self._next("a value"))
                if self._peek(",", ";"):
                    self._at += 1
            self._at += 1
        return found

    def _refuse_edge(self, what: str) -> None:
        if self._peek("->", "--"):
            line = self._line(self._tokens[self._at])
            raise InvalidInput(
                f"Line {line}: an edge begins at {what}; write one edge for each node of it"
            )

    def _line(self, token: _Token) -> int:
        return self._text.count("\n", 0, token.offset) + 1

    def _name(self, token: _Token) -> str:
        if token.kind == "mark" or token.keyword:
            raise InvalidInput(
                f"Line {self._line(token)}: {shown(token.text)} where a name is expected"
            )
        return token.text

    def _expect(self, token: _Token, mark: str) -> None:
        if not token.is_mark(mark):
            raise InvalidInput(
                f"Line {self._line(token)}: {shown(token.text)} where '{mark}' is expected"
            )

    def _peek(self, *marks: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].is_mark(*marks)

    def _next(self, wanted: str) -> _Token:
        if self._at == len(self._tokens):
            raise InvalidInput(f"The DOT text ends where {wanted} is expected; was it truncated?")
        self._at += 1
        return self._tokens[self._at - 1]
