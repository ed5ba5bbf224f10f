"""Compressed rows against plain lists."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.model.csr import CSR, entries_of, python_integers

ROWS = st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=8)


@given(ROWS, st.randoms(use_true_random=False))
def test_entries_in_another_order_of_rows(rows: list[list[int]], random: Random) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)
    counts = np.array([len(row) for row in rows], dtype=np.int64)
    found = entries_of(np.array(order, dtype=np.int64), counts)
    flat = [value for row in rows for value in row]
    assert [flat[at] for at in found] == [value for number in order for value in rows[number]]


@given(ROWS)
def test_rows_come_back(rows: list[list[int]]) -> None:
    csr = CSR.from_rows(rows)
    expected = tuple(map(tuple, rows))
    assert len(csr) == len(rows)
    assert csr.rows() == csr.rows(python_integers(8)) == expected
    assert csr.rows_of_few(python_integers(8)) == expected
    assert csr.lengths.tolist() == [len(row) for row in rows]
    assert csr.row_of.tolist() == [i for i, row in enumerate(rows) for _ in row]
    assert csr.distinct().rows() == tuple(tuple(sorted(set(row))) for row in rows)
    assert csr.transposed(8).rows() == tuple(
        tuple(i for i, row in enumerate(rows) for value in row if value == column)
        for column in range(8)
    )


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=20))
def test_grouping_keeps_the_order_within_a_row(pairs: list[tuple[int, int]]) -> None:
    row, value = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    csr = CSR.group(row, value, 6)
    assert csr.rows() == tuple(tuple(v for r, v in pairs if r == i) for i in range(6))
    assert (csr.offsets.dtype, csr.values.dtype) == (np.int64, np.int32)


def test_equal_single_rows_are_one_object_and_integers_are_shared() -> None:
    csr = CSR.from_rows([[1000], [1000], [7, 1000], [], [1000]])
    integers = python_integers(1001)
    few = csr.rows_of_few(integers)
    assert few[0] is few[1] is few[4]
    rows = csr.rows(integers)
    assert rows[0][0] is rows[2][1] is few[0][0]


def test_what_is_no_index_stays_none() -> None:
    assert CSR.from_rows([[-5, 2**40]]).rows() == ((-1, 2**31 - 1),)
    with pytest.raises(ValueError, match="read-only"):
        CSR.from_rows([[1]]).values[0] = 2
