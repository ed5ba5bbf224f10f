"""Tables of text as Markdown and as LaTeX (booktabs)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAGE = 45
"""Rows that fit on one page."""

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"$\sim$", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$",
    "β": r"$\beta$", "α": r"$\alpha$", "σ": r"$\sigma$", "…": r"\ldots{}",
}  # fmt: skip


@dataclass(frozen=True)
class TextTable:
    """Rounded cells of a table.

    Attributes:
        left: how many columns stand to the left; the others are numbers.
        groups: how many columns name a group of rows; they are shown once a group where a row is
            easily found by eye, and LaTeX draws a rule between groups.
        caption: what it shows, n and the statistic.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    groups: int
    caption: str


def markdown(table: TextTable) -> str:
    """The table in Markdown."""
    rule = ["---" if i < table.left else "---:" for i in range(len(table.headings))]
    lines = [table.caption, "", _piped([_markdown(cell) for cell in table.headings]), _piped(rule)]
    lines += [_piped([_markdown(cell) for cell in row]) for row in table.rows]
    return "\n".join(lines) + "\n"


def latex(table: TextTable) -> str:
    """The table in LaTeX with booktabs; of several pages where it is long."""
    columns = "".join("l" if i < table.left else "r" for i in range(len(table.headings)))
    heading = " & ".join(escaped(heading) for heading in table.headings) + r" \\"
    body: list[str] = []
    previous = None
    for row in table.rows:
        group = list(row[: table.groups])
        if group != previous and (table.groups or previous is None):
            body.append("\\midrule")
        shown = row if group != previous else ["" for _ in group] + list(row[table.groups :])
        previous = group
        body.append(" & ".join(escaped(cell) for cell in shown) + r" \\")
    caption = f"\\caption{{{escaped(table.caption)}}}"
    if len(table.rows) > PAGE:
        lines = [
            "% needs \\usepackage{booktabs} and \\usepackage{longtable}",
            f"\\begin{{longtable}}{{{columns}}}",
            caption + r" \\",
            "\\toprule",
            heading,
            "\\endhead",
            *body,
            "\\bottomrule",
            "\\end{longtable}",
        ]
    else:
        lines = [
            "% needs \\usepackage{booktabs}",
            "\\begin{table*}",
            "\\centering\\setlength{\\belowcaptionskip}{4pt}",
            caption,
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            heading,
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("~", "\\~").replace("_", "\\_").replace("<", "&lt;")


def escaped(text: str) -> str:
    """Text for LaTeX."""
    text = text.replace("<= ", "\0")
    return "".join(_LATEX.get(character, character) for character in text).replace("\0", r"$\le$ ")
