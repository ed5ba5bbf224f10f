"""Cells of every CSV: no text is a formula to a spreadsheet, and numbers stay numbers."""

import csv
import io

import pytest

from simulator.support.csv_text import csv_text


def read(text):
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]
)
def test_a_text_that_begins_a_formula_is_marked_as_text(text):
    assert read(csv_text([text], [[text]])) == [[f"'{text}"]] * 2


@pytest.mark.parametrize("value", [-1.5, -3, "-1.5", "+2", "a=b", "x-y", "", "1-2"])
def test_numbers_and_other_texts_stay_as_they_are(value):
    assert read(csv_text(["x", "y"], [[value, 1]]))[1] == [str(value), "1"]


def test_what_is_unknown_is_empty():
    assert csv_text(["a", "b", "c"], [[None, float("nan"), True]]) == "a,b,c\n,,True\n"
