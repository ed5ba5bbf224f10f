"""Damaged documents for fuzz tests: valid ones, changed as people, editors and disks change them."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

from hypothesis import strategies as st

JUNK = st.sampled_from(
    [
        None,
        True,
        False,
        -1,
        0,
        1,
        2**31,
        2**63,
        10**400,
        -0.5,
        0.5,
        1e18,
        1e308,
        5e-324,
        math.nan,
        math.inf,
        -math.inf,
        "",
        "x",
        "\ud800",
        "NaN",
        "10",
        "-1 s",
        "1e999 s",
        "x" * 3000,
        [],
        [[]],
        [None],
        [0, 0, 0],
        {},
        {"x": 1},
        {"": {}},
    ]
)
"""Values that no schema expects where they come to stand."""


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value of a document but the document itself."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = []
    for key, entry in items:
        found += [(*path, key), *_places(entry, (*path, key))]
    return found


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@st.composite
def mutated(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """The document after 1 to ``most`` changes; the document itself is left as it is."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, most))):
        places = _places(changed)
        if not places:
            return changed
        path = draw(st.sampled_from(places))
        parent, key = _at(changed, path[:-1]), path[-1]
        kind = draw(st.sampled_from(["junk", "drop", "swap", "twice", "rename", "nested"]))
        if kind == "junk":
            parent[key] = copy.deepcopy(draw(JUNK))
        elif kind == "drop":
            del parent[key]
        elif kind == "swap":
            # A value from elsewhere: unknown references, duplicates, cycles, wrong types.
            parent[key] = copy.deepcopy(_at(changed, draw(st.sampled_from(places))))
        elif kind == "twice" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif kind == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from(["", "x", f"{key} ", str(key).upper()]))] = parent.pop(key)
        else:
            parent[key] = [parent[key]]
    return changed


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """A file cut off, with bytes changed, put in or taken out, or not UTF-8 at all."""
    kind = draw(st.sampled_from(["cut", "flip", "insert", "remove", "encode"]))
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    if kind == "cut":
        return data[:at]
    if kind == "flip":
        return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    if kind == "insert":
        return data[:at] + draw(st.binary(min_size=1, max_size=8)) + data[at:]
    if kind == "remove":
        return data[:at] + data[at + draw(st.integers(1, 16)) :]
    return b"\xff\xfe" + data


def text_of(document: Any) -> bytes:
    """JSON as Python writes it, NaN and Infinity included."""
    return json.dumps(document, default=str).encode("utf-8", errors="replace")


def check_refusal(error: Exception, *named: object) -> None:
    """A user can read it: one line, not too long for a screen, that names these things."""
    message = str(error)
    assert 10 < len(message) < 1000, message
    assert "\n" not in message, message
    for thing in named:
        assert str(thing) in message, message
