"""Traced graphs kept on disk, found by the content that they depend on.

An entry's name is a hash of everything that can change the graph (the caller says what), so entries
never become stale: they are only no longer asked for. A damaged entry is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from simulator.errors import InvalidInput
from simulator.model.family import read_json, write_json

_log = logging.getLogger(__name__)


def cache_folder(kind: str = "graphs") -> Path:
    """``$HETSIM_CACHE``, or ``hetsim/graphs`` (or another kind) in ``$XDG_CACHE_HOME`` (``~/.cache``)."""
    chosen = os.environ.get("HETSIM_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hetsim" / kind


def content_key(description: Any, files: Iterable[Path] = ()) -> str:
    """The hash of a JSON-like description and of the contents of files (order does not matter)."""
    digest = hashlib.sha256(json.dumps(description, sort_keys=True, default=str).encode())
    for part in sorted(hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files):
        digest.update(part.encode())
    return digest.hexdigest()[:32]


class GraphCache:
    """A folder of JSON documents.

    Args:
        folder: where; :func:`cache_folder` unless given. It is made when first written to.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = cache_folder() if folder is None else Path(folder)

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.folder / f"{key}.json.gz"

    def load(self, key: str) -> Any:
        """The document stored under a key, or None if there is none or it cannot be read."""
        path = self.path(key)
        if not path.exists():
            return None
        try:
            return read_json(path)
        except InvalidInput as error:
            _log.warning("Ignoring a damaged graph in the cache: %s", error)
            return None

    def store(self, key: str, document: Any) -> None:
        """Store a document; a folder that cannot be written to only costs the next run time."""
        try:
            write_json(self.path(key), document)
        except OSError as error:
            _log.warning("Cannot keep a graph in %s: %s", self.folder, error.strerror)
