"""Tables of exits: counts against a loop over samples, the file, the shipped one."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.serving.exit_table import DIGITS, ExitTable, count_exits
from simulator.errors import InvalidInput


def random_table(
    seed: int, samples: int = 40, exits: int = 4
) -> tuple[ExitTable, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence, correct = rng.random((samples, exits)), rng.random((samples, exits)) < 0.8
    counts = count_exits(confidence, correct, (0.3, 0.7))
    return ExitTable({("w", 0, *key): c for key, c in counts.items()}), confidence, correct


@given(st.integers(0, 10**6))
def test_shares_are_those_of_walking_every_sample_through(seed: int) -> None:
    table, confidence, correct = random_table(seed)
    for threshold, number in itertools.product((0.3, 0.7), range(3)):
        for exits in itertools.combinations(range(1, 4), number):
            left = dict.fromkeys((*exits, 4), 0)
            right = dict(left)
            for sure, is_right in zip(confidence.tolist(), correct.tolist(), strict=True):
                end = next((e for e in exits if sure[e - 1] >= threshold), 4)
                left[end] += 1
                right[end] += is_right[end - 1]
            found = table.shares("w", threshold, exits)
            arrive = 40
            for number_, e in enumerate(exits):
                assert found.leave[number_] == (left[e] / arrive if arrive else 0.0)
                assert found.accuracy[number_] == (right[e] / left[e] if left[e] else 1.0)
                arrive -= left[e]
            assert found.last == (right[4] / left[4] if left[4] else 1.0)


def test_counts_of_seeds_add_up() -> None:
    rows = {}
    for seed in range(2):
        table, _, _ = random_table(seed)
        rows |= {
            ("w", seed, t, a, b): table.counts("w", t, [e for e in (a, b) if e])
            for t in (0.3, 0.7)
            for a, b in [(0, 0), *itertools.combinations(range(4), 2)]
        }
    both = ExitTable(rows)
    total = both.counts("w", 0.3, (1, 3))
    each = [both.counts("w", 0.3, (1, 3), seed) for seed in both.seeds]
    assert total == each[0] + each[1]
    assert total.samples == 80
    assert total.left[1] == each[0].left[1] + each[1].left[1]


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    table, _, _ = random_table(0)
    path = tmp_path / "t.csv"
    path.write_text(table.text("how it was made\nand what it is"))
    assert path.read_text().startswith("# how it was made\n# and what it is\nway,seed,")
    again = ExitTable.load(path)
    assert again.text() == table.text()
    assert again.layers == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "is no table of exits"),
        (lambda lines: lines[:-1], r"lacks the exits \(0, 0\)"),
        (lambda lines: [*lines, "w,0,0.3,1,2,x,1,1,1,1,1"], "line 16: w,0,0.3,1,2,x"),
        (lambda lines: [*lines, "w,0,0.3,1,2,40,1,1,1,1"], "line 16.*cannot be"),
        (lambda lines: [*lines, "w,0,0.3,1,2,40,39,9,2,1,1"], "line 16.*cannot be"),
    ],
)
def test_damaged_files_are_refused(change, message: str, tmp_path: Path) -> None:
    table, _, _ = random_table(0)
    path = tmp_path / "t.csv"
    path.write_text("\n".join(change(table.text().splitlines())))
    with pytest.raises(InvalidInput, match=message):
        ExitTable.load(path)


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"python -m experiments\.train_exits"):
        ExitTable.load(tmp_path / "none.csv")


def test_the_shipped_table_is_of_real_exits() -> None:
    table = ExitTable.load(DIGITS)
    assert table.layers == 8
    assert len(table.seeds) == 5
    for way in table.ways:
        final = table.shares(way, 0.9, ()).last
        assert 0.95 < final < 1
        # A higher threshold never lets more samples leave.
        shares = [table.shares(way, t, (4,)).leave[0] for t in table.thresholds]
        assert shares == sorted(shares, reverse=True)
        # Those who are surer are more often right than all together.
        everybody = table.shares(way, table.thresholds[0], (1,))
        surest = table.shares(way, table.thresholds[-1], (1,))
        assert surest.accuracy[0] >= everybody.accuracy[0]
