"""Tables as Markdown and LaTeX: escapes, groups, long tables."""

import csv
import io

import pandas as pd
import pytest

from experiments.comparison.markup import PAGE, TextTable, latex, markdown
from experiments.comparison.tables import p_text, write_table

AWKWARD = r"a_b & 50% $x$ #1 {y} ~ ^ \z <c> | d"


def table(rows, groups=1):
    return TextTable(("model_name", "p < 5%", "n"), rows, 2, groups, "Caption: 100% of a_b.")


def test_latex_escapes_everything():
    text = latex(table([[AWKWARD, "<= 3%", "1"]]))
    assert (
        r"a\_b \& 50\% \$x\$ \#1 \{y\} $\sim$ \textasciicircum{} \textbackslash{}z $<$c$>$ | d"
        in text
    )
    assert r"$\le$ 3\%" in text
    assert r"\caption{Caption: 100\% of a\_b.}" in text
    assert r"\begin{tabular}{llr}" in text
    assert text.count("\\toprule") == text.count("\\bottomrule") == 1


def test_latex_groups_are_named_once_and_ruled_off():
    text = latex(table([["a", "x", "1"], ["a", "y", "2"], ["b", "x", "3"]]))
    body = text.splitlines()
    assert "a & x & 1 \\\\" in body
    assert " & y & 2 \\\\" in body
    assert text.count("\\midrule") == 2
    without = latex(table([["a", "x", "1"], ["a", "y", "2"]], groups=0))
    assert without.count("\\midrule") == 1
    assert "a & y & 2 \\\\" in without


def test_long_tables_run_over_pages():
    rows = [[f"m{i}", "x", str(i)] for i in range(PAGE + 1)]
    assert "\\begin{longtable}{llr}" in latex(table(rows))
    assert "tabular" not in latex(table(rows))
    assert "longtable" not in latex(table(rows[:-1]))


def test_markdown_escapes_and_aligns():
    lines = markdown(table([[AWKWARD, "<= 3%", "1"]])).splitlines()
    assert lines[0] == "Caption: 100% of a_b."
    assert lines[3] == "| --- | --- | ---: |"
    assert lines[4].count(" | ") == 2
    assert r"\| d" in lines[4]
    assert "&lt;= 3%" in lines[4]


def test_every_table_leaves_three_files(tmp_path):
    frame = pd.DataFrame({"a, b": ['quoted "text"'], "n": [1 / 3]})
    write_table(tmp_path, "table_x", frame, table([["a", "b", "1"]]))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "table_x.csv",
        "table_x.md",
        "table_x.tex",
    ]
    rows = list(csv.reader(io.StringIO((tmp_path / "table_x.csv").read_text())))
    assert rows == [["a, b", "n"], ['quoted "text"', str(1 / 3)]]


@pytest.mark.parametrize(
    ("p", "text"), [(float("nan"), "-"), (0.0004, "<.001"), (0.0123, ".012"), (1.0, "1.000")]
)
def test_p_values(p, text):
    assert p_text(p) == text
