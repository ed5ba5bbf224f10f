"""The main table for one column: it fits, and says no more than it knows."""

import re

import numpy as np
import pandas as pd
import pytest

from experiments.comparison.leaderboard import standings
from experiments.comparison.markup import PAGE
from experiments.comparison.paper_table import main_latex
from tests.experiments.comparison.test_leaderboard import row
from tests.experiments.synthetic_sweep import grid_rows

COLUMN = 3.33 * 72.27
"""Points of TeX."""
TRUTH = np.random.default_rng(7).normal(1.0, 0.05, 200)


def one_model(**facts):
    rows = [
        row("heft", 0.1342, 0.1342 * TRUTH, model="inception_v3", best_device_s=0.154, **facts),
        row(
            "mine", 0.1384, 0.1384 * TRUTH[::-1], model="inception_v3", best_device_s=0.154, **facts
        ),
    ]
    return standings(pd.DataFrame(rows))


def test_a_table_by_hand():
    low, high = np.percentile(134.2 * TRUTH, [2.5, 97.5])
    lines = main_latex(one_model(), ["mine"], ["validity: never"]).splitlines()
    assert lines[1] == "% validity: never"
    assert r"\begin{tabular}{@{}lrrrr@{}}" in lines
    assert lines.count(r"\toprule") == lines.count(r"\midrule") == lines.count(r"\bottomrule") == 1
    assert r"Scheduler & \multicolumn{2}{c}{Makespan [ms], 95\%} & Speed-up & $P$(best) \\" in lines
    assert r"\multicolumn{5}{@{}l}{\emph{Inception-v3}} \\" in lines
    (heft,) = [line for line in lines if line.startswith("HEFT")]
    assert heft.startswith(f"HEFT & 134.2 & [{low:.1f}, {high:.1f}] & 1.15 & .")
    assert any(line.startswith(r"\textbf{mine}$^{\sim}$ & 138.4") for line in lines)


def test_columns_of_nothing_are_left_out():
    rows = [
        row(name, 12345.6 * k, None, makespan_low_s=np.nan)
        for k, name in ((1, "heft"), (2, "fcfs"))
    ]
    table = standings(pd.DataFrame(rows).drop(columns=["best_device_s"], errors="ignore"))
    text = main_latex(table)
    assert "95" not in text
    assert "$P$(best)" not in text
    # Thin spaces between groups of three digits.
    assert r"12\,346" in text


def test_a_long_table_goes_on_in_a_second_one():
    axes = {"scheduler": [f"s{i}" for i in range(9)], "model.ccr": list(range(1, 9))}
    table = standings(*grid_rows(lambda name, ccr, seed: ccr + int(name[1:]) + seed, axes))
    text = main_latex(table)
    assert text.count(r"\begin{table}") == text.count(r"\end{tabular}") == 2
    assert text.count("Continued.") == 1
    parts = text.split(r"\begin{table}")[1:]
    assert max(part.count(r" \\") for part in parts) <= PAGE + 1


def width(text):
    """Points that text takes at 8 points of Computer Modern, which Matplotlib brings along."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    plain = re.sub(r"\\(emph|textbf)\{(.*)\}", r"\2", text)
    plain = plain.replace(r"$^{\sim}$", "x").replace(r"\,", "i").replace("\\", "").replace("$", "")
    if not plain.strip():
        return 0.0
    return TextPath((0, 0), plain, size=8, prop=FontProperties(family="cmr10")).get_extents().width


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_it_fits_one_column(scale):
    long = "deadline_accuracy_admission_of_mine(pricing=per_edge)"
    facts = {"best_device_s": 0.154 * scale, "unvalidated": True}
    rows = [
        row(name, k * scale, k * scale * TRUTH, model="squeezenet1_1", **facts)
        for k, name in ((0.9876, "task_groups_upload_packing"), (0.99, long))
    ]
    lines = main_latex(standings(pd.DataFrame(rows)), [long]).splitlines()
    heading, *body = [line.removesuffix(r" \\").split(" & ") for line in lines if " & " in line]
    two = re.fullmatch(r"\\multicolumn\{2\}\{c\}\{(.*)\}", heading[1])
    body.append([heading[0], "", "", *heading[2:]])
    columns = [max(width(cells[i]) for cells in body) for i in range(len(body[0]))]
    columns[2] = max(columns[2], width(two[1]) - columns[1] - 6)
    assert sum(columns) + 2 * 3 * (len(columns) - 1) <= COLUMN
    (group,) = [line for line in lines if line.startswith(r"\multicolumn")]
    assert width(group.split("}{", 2)[2]) <= COLUMN
