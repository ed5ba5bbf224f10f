"""One digest for each of many random runs, over every column of their traces.

    python -m tests.benchmarks.trace_digests write digests.txt        # 10,000 runs, some minutes
    python -m tests.benchmarks.trace_digests compare digests.txt      # after a change: which runs differ

Runs are those of :mod:`tests.simulator.seeded`, by number: irregular graphs, 2 to 8 devices, 1 to 3 slots, several
jobs, late clocks, routes, limited memory, faults, every movement and contention, schedulers on line and static. A
run that is refused counts by the sentence that refuses it. The file has a line for each run, in their order.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from simulator.errors import InvalidInput, SchedulingError
from simulator.model.trace import COLUMNS
from tests.simulator.seeded import rich_case

DIGITS = 12


def digest(number: int) -> str:
    """The digest of a run: hexadecimal digits."""
    found = hashlib.sha256()
    try:
        trace = rich_case(number).run()
    except (InvalidInput, SchedulingError) as error:
        found.update(f"{type(error).__name__}: {error}".encode())
        return found.hexdigest()[:DIGITS]
    for table, columns in COLUMNS.items():
        for column, kind in columns.items():
            values = getattr(trace, table)[column]
            found.update(f"{table}.{column} {len(values)}:".encode())
            text = kind == "U"
            found.update(
                "\0".join(values.tolist()).encode() if text else values.astype(kind).tobytes()
            )
    return found.hexdigest()[:DIGITS]


def main(words: list[str] | None = None) -> int:
    """Write digests, or say which runs have others now; returns 1 if any has."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("do", choices=["write", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=10_000, help="runs to write")
    given = parser.parse_args(words)
    if given.do == "write":
        lines = [digest(number) for number in range(given.count)]
        given.file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(f"wrote {given.count} digests to {given.file}")
        return 0
    expected = given.file.read_text(encoding="utf-8").split()
    different = [number for number, line in enumerate(expected) if digest(number) != line]
    few = ", ".join(map(str, different[:20])) + (", ..." if len(different) > 20 else "")
    print(f"{len(different)} of {len(expected)} runs differ{': ' + few if different else ''}")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
