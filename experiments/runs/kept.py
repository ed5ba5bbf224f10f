"""Priced tables and bounds kept on disk: working them out takes longer than a simulation.

A file's name is a digest of all that decides its numbers, the code and the packages that compute them included.
So no file becomes stale; it is only no longer asked for. Times are stored with the digest of their graph, and serve
that graph alone. A damaged file is as good as none.

The files lie in ``$HETSIM_CACHE``, or in ``hetsim/kept`` in ``$XDG_CACHE_HOME`` (``~/.cache``), and may be removed at
any time. Those used last are kept, up to :data:`MOST_FILES` and :data:`MOST_BYTES` and what processes keep until they look.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs.provenance import code_digest, digest, versions
from scenarios.graph_cache import cache_folder
from simulator.errors import CannotWrite
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.support.atomic_io import replacing

MOST_FILES, MOST_BYTES = 1000, 200_000_000
"""A table of 100 operators on 4 devices takes 10 kB."""
EVERY = 50
"""Files that a process keeps before it looks again whether there are too many; it looks at the first."""
_kept = itertools.count()
_COLUMNS = ("seconds", "spread", "in_range", "cached")
_log = logging.getLogger(__name__)


class Kept:
    """Arrays that were worked out earlier, by name; none (and false) if they were not.

    Args:
        what: they are.
        decided_by: digests and settings that decide them, beside code and packages.
    """

    def __init__(self, what: str, decided_by: Any) -> None:
        name = digest([what, code_digest(), versions(), decided_by])
        self._path = cache_folder("kept") / f"{name[:32]}.npz"
        self.arrays = _read(self._path)

    def __bool__(self) -> bool:
        return bool(self.arrays)

    def keep(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store arrays; a folder that cannot be written to only costs the next run time."""
        try:
            with replacing(self._path) as temporary, temporary.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]  # of which none is called allow_pickle
        except CannotWrite as error:
            _log.warning("Cannot keep what was worked out: %s", error)
            return
        if next(_kept) % EVERY == 0:  # looking through the folder takes longer than keeping
            _remove_oldest(self._path.parent)


class KeptPrices(Kept):
    """The times that one world's graphs were given earlier; if there are any, predictors are sound.

    Args:
        decided_by: as :class:`Kept` has it.
    """

    def __init__(self, decided_by: Any) -> None:
        super().__init__("prices", decided_by)

    def table(self, graphs: Sequence[DataflowGraph]) -> CostTable | None:
        """The times of these graphs; None unless all of them are known."""
        entries = {}
        for graph in graphs:
            seconds = self.arrays.get(f"{graph.digest}.seconds")
            if seconds is None:
                return None
            others = (self.arrays.get(f"{graph.digest}.{name}") for name in _COLUMNS[1:])
            entries[graph] = GraphCosts(seconds, *others)
        return CostTable(entries)

    def keep_table(self, costs: CostTable) -> None:
        """Store the times of a table."""
        self.keep(
            {
                f"{graph.digest}.{name}": value
                for graph in costs
                for name in _COLUMNS
                if (value := getattr(costs[graph], name)) is not None
            }
        )


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            found = dict(stored)
        os.utime(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        _log.warning("Ignoring a damaged file in the cache: %s", error)
        return {}
    return found


def _remove_oldest(folder: Path) -> None:
    """Remove the files that were used longest ago, beyond what is kept."""
    with contextlib.suppress(OSError):  # another process may remove them, too
        files = [(path.stat(), path) for path in folder.glob("*.npz")]
        total = 0
        for number, (stat, path) in enumerate(sorted(files, key=lambda f: -f[0].st_mtime_ns)):
            total += stat.st_size
            if number >= MOST_FILES or total > MOST_BYTES:
                path.unlink(missing_ok=True)
