"""The table of all sealed predictions, those that missed and those nobody measured included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.runs import atomic
from experiments.runs.results import read_document
from experiments.validation.sealing import check_paths, read_sealed, sealed_names
from simulator.errors import InvalidInput

BEGIN, END = "<!-- sealed -->", "<!-- /sealed -->"
_HEAD = (
    "| name | sealed | cases | measured | mean error | worst | in the interval | right winner | "
    "regret | since then |\n"
    "|---|---|---|---|--:|--:|--:|--:|--:|---|"
)


def renew_table(document: Path, folder: Path) -> str:
    """Write the table between its marks in a document; returns what was done.

    Raises:
        InvalidInput: the document cannot be read or lacks the marks, or a file was changed after it was
            sealed.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"Cannot read {document}: {error.strerror}") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InvalidInput(
            f"{document} has no lines {BEGIN} and {END} for the table to stand between"
        )
    table = sealed_table(folder)
    atomic.write_text(document, f"{before}{BEGIN}\n{table}\n{END}{after}")
    return f"{len(sealed_names(folder))} sealed predictions in {document}"


def sealed_table(folder: Path) -> str:
    """The table in Markdown: a row for each check, and one for a prediction without any.

    Raises:
        InvalidInput: a file was changed after it was sealed, or a score is not of the prediction beside it.
    """
    rows = [row for name in sealed_names(folder) for row in _rows(folder, name)]
    return "\n".join([_HEAD, *rows]) if rows else "None has been made yet."


def _rows(folder: Path, name: str) -> list[str]:
    sealed = read_sealed(folder, name)
    models = ", ".join(dict.fromkeys(str(case["model"]) for case in sealed["cases"]))
    head = f"{name} | {_day(sealed['sealed'])} | {len(sealed['cases'])} of {models}"
    checks = check_paths(folder, name)
    if not checks:
        return [f"| {head} | not yet | | | | | | |"]
    return [f"| {head} | {_score(path, sealed)} |" for path in checks]


def _score(path: Path, sealed: dict[str, Any]) -> str:
    document = read_document(path)
    if document.get("sha256") != sealed["sha256"]:
        raise InvalidInput(f"{path} scores another prediction than the one that is sealed")
    score = document["score"]
    cells = [
        f"{_day(document['checked'])}, {document['machine']['processor']}",
        f"{score['mean_absolute_error']:.1%}",
        f"{score['worst_absolute_error']:.1%}",
        f"{score['covered']} of {score['intervals']}",
        f"{score['separate_pairs_in_the_same_order']} of {score['separate_pairs']}",
        f"{score['mean_regret']:.1%}",
        "; ".join(document["changes"]) or "nothing changed",
    ]
    return " | ".join(cells)


def _day(moment: str) -> str:
    return moment.partition("T")[0]
