"""CSV as every file of the program is written: no cell is a formula to a spreadsheet that opens it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

_END = "\r\n"
_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV, lines ended by a line feed; None and NaN leave their cells empty.

    A text that a spreadsheet would take for a formula gets an apostrophe in front. Numbers stay as they are,
    and so do texts that are numbers, such as ``-1.5``.

    Args:
        header: names of the columns; of a DataFrame its ``columns``.
        rows: of a DataFrame its ``itertuples(index=False)``.
    """
    return "".join(_line(row) for row in (header, *rows))


def _line(row: Iterable[Any]) -> str:
    text = io.StringIO(newline="")
    # With this end the writer quotes a carriage return, which readers would take for the end of a line.
    csv.writer(text, lineterminator=_END).writerow(map(_cell, row))
    return text.getvalue().removesuffix(_END) + "\n"


def _cell(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, str) and value.startswith(_BEGINS_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()
