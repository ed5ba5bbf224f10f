"""Files of the Standard Task Graph Set (https://www.kasahara.cs.waseda.ac.jp/schedule/format_e.html).

The first line has the number of tasks n; then n + 2 lines ``task time predecessors p1 p2 ...`` follow,
the first and the last of a dummy entry and exit of time 0. In files with communication costs each
predecessor stands on a line of its own behind that, ``p cost``. Lines that begin with # say more about
the graph and are not read.
"""

from __future__ import annotations

from scenarios.graph_files.values import EQUAL_DATA, number_of, shown
from scenarios.random_graphs.shape import Shape, check_size
from simulator.errors import InvalidInput


def read_stg(text: str) -> Shape:
    """The graph of a file, without its dummy tasks; also of files that have none.

    Work is the processing time; data the communication cost, 0 in files without.

    Raises:
        InvalidInput: says what is wrong and on which line.
    """
    lines = [
        (number, line.split())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise InvalidInput(
            "It holds no task graph; the first line of an .stg has the number of tasks"
        )
    first, header = lines[0]
    if len(header) != 1:
        raise InvalidInput(
            f"Line {first} must be the number of tasks alone, not {shown(' '.join(header))}"
        )
    count = _whole(header[0], first, "a number of tasks")
    check_size(count, 0)
    times: list[float] = []
    edges: list[tuple[int, int]] = []
    costs: list[float] = []
    costed = False
    at = 1
    while at < len(lines):
        number, words = lines[at]
        at += 1
        task = len(times)
        if len(words) < 3:
            raise InvalidInput(
                f"Line {number} must be 'task time predecessors ...', it has {words}"
            )
        if _whole(words[0], number, "a task") != task:
            raise InvalidInput(f"Line {number} is of task {shown(words[0])}, task {task} is next")
        times.append(number_of(words[1], f"Line {number}: the time"))
        parents = _whole(words[2], number, "a number of predecessors")
        rows: list[tuple[int, list[str]]] = [(number, [word, "0"]) for word in words[3:]]
        if parents and not rows:
            rows = lines[at : at + parents]
            at += parents
            costed = True
        if len(rows) != parents or any(len(row) != 2 for _, row in rows):
            raise InvalidInput(
                f"Line {number}: task {task} is to have {parents} predecessors; was it truncated?"
            )
        for line, (word, cost) in rows:
            edges.append((_whole(word, line, "a predecessor"), task))
            costs.append(number_of(cost, f"Line {line}: the communication cost"))
    if len(times) not in (count, count + 2) or not times:
        raise InvalidInput(
            f"It is to have {count} tasks and two dummies but has {len(times)} lines of tasks; was it "
            "truncated?"
        )
    for parent, task in edges:
        if parent >= len(times):
            raise InvalidInput(f"Task {task} has predecessor {parent}, which is not in the file")
    kept = range(len(times))
    if len(times) == count + 2 and count and times[0] == times[-1] == 0:
        kept = range(1, len(times) - 1)
    rows_kept = [
        (parent - kept.start, task - kept.start, cost)
        for (parent, task), cost in zip(edges, costs, strict=True)
        if parent in kept and task in kept
    ]
    return Shape.of(
        [(parent, task) for parent, task, _ in rows_kept],
        [times[task] for task in kept],
        [cost for _, _, cost in rows_kept],
        [f"t{task}" for task in kept],
        [] if costed or not rows_kept else [f"no edge has a communication cost: {EQUAL_DATA}"],
    )


def _whole(word: str, line: int, what: str) -> int:
    # int() alone takes underscores, signs and digits of other scripts.
    if not (word.isascii() and word.isdigit() and len(word) < 12):
        raise InvalidInput(f"Line {line} has {shown(word)} where {what} is expected")
    return int(word)
