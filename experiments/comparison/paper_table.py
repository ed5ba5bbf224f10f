"""The main table in LaTeX for one column of a two-column page (3.33 inches), with booktabs alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.comparison.contests import Contest, Standing, Standings
from experiments.comparison.markup import PAGE, escaped
from experiments.comparison.names import proper
from experiments.comparison.rounding import decimals, fit, probability, time_unit

_NAME = 17
"""Characters of a scheduler's name."""
_GROUP = 46
"""Characters of a model with its setting, which has a line of its own."""


def main_latex(standings: Standings, own: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """``table_main.tex``: schedulers in rows, a group for each model and setting.

    A column that nothing is known for is left out; a long table goes on in a second one, since a column has no page
    breaks.

    Args:
        standings: what to show.
        own: the user's own schedulers, set in bold.
        notes: what the figures rest on, kept as comments.
    """
    factor, unit = time_unit([contest.best.makespan_s for contest in standings.contests])
    everyone = [standing for contest in standings.contests for standing in contest.standings]
    has_interval = any(standing.span for standing in everyone)
    has_speedup = any(math.isfinite(contest.best_device_s) for contest in standings.contests)
    has_chance = any(standing.best_share is not None for standing in everyone)
    shown = (has_interval, has_speedup, has_chance)
    makespan = f"Makespan [{_unit(unit)}]"
    if has_interval:
        makespan = f"\\multicolumn{{2}}{{c}}{{{makespan}, 95\\%}}"
    headings = ["Scheduler", makespan]
    headings += [
        text for text, there in zip(("Speed-up", "$P$(best)"), shown[1:], strict=True) if there
    ]
    columns = len(headings) + has_interval
    parts: list[list[str]] = [[]]
    for contest in standings.contests:
        digits = decimals(contest.best.makespan_s * factor)
        title = escaped(fit(proper(standings.label(contest, True)), _GROUP))
        group = [f"\\multicolumn{{{columns}}}{{@{{}}l}}{{\\emph{{{title}}}}} \\\\"]
        group += [
            _row(contest, standing, factor, digits, shown, standing.scheduler in own)
            for standing in contest.standings
        ]
        if parts[-1] and len(parts[-1]) + len(group) > PAGE:
            parts.append([])
        parts[-1] += [*(["\\addlinespace"] if parts[-1] else []), *group]
    lines = ["% needs \\usepackage{booktabs}; 3.33 in wide at \\footnotesize"]
    lines += [f"% {' '.join(note.split())}" for note in notes]
    for number, body in enumerate(parts):
        caption = _caption(standings, shown) if not number else "Continued."
        lines += [
            "\\begin{table}",
            "\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}\\setlength{\\belowcaptionskip}{4pt}",
            f"\\caption{{{caption}}}",
            f"\\begin{{tabular}}{{@{{}}l{'r' * (columns - 1)}@{{}}}}",
            "\\toprule",
            " & ".join(headings) + r" \\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
        ]
    return "\n".join(lines) + "\n"


def _unit(unit: str) -> str:
    return "$\\mu$s" if unit == "us" else unit


def _row(
    contest: Contest,
    standing: Standing,
    factor: float,
    digits: int,
    shown: tuple[bool, bool, bool],
    own: bool,
) -> str:
    name = escaped(fit(proper(standing.scheduler), _NAME))
    marks = "".join(
        sign
        for sign, there in (
            ("$^{\\sim}$", standing.separable is False),
            ("*", standing.stale),
            ("!", standing.unvalidated),
        )
        if there
    )
    cells = [f"\\textbf{{{name}}}{marks}" if own else name + marks]
    cells.append(_number(standing.makespan_s * factor, digits))
    span = standing.span
    speedup = contest.speedup(standing)
    optional = (
        f"[{_number(span.low * factor, digits)}, {_number(span.high * factor, digits)}]" if span else "",
        "" if math.isnan(speedup) else f"{speedup:.2f}",
        "" if standing.best_share is None else escaped(probability(standing.best_share)),
    )  # fmt: skip
    cells += [text for text, there in zip(optional, shown, strict=True) if there]
    return " & ".join(cells) + r" \\"


def _number(value: float, digits: int) -> str:
    """A number as the SI brochure has it: thin spaces between groups of three digits from five digits on."""
    text = f"{value:.{digits}f}"
    return f"{value:,.{digits}f}".replace(",", "\\,") if abs(value) >= 10_000 else text


def _caption(standings: Standings, shown: tuple[bool, bool, bool]) -> str:
    seeds = {contest.seeds for contest in standings.contests}
    draws = any(contest.draws for contest in standings.contests)
    n = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    what = "drawn graphs" if standings.instances.drawn else "seeds"
    text = f"Simulated makespan, mean of $n = {n}$ {what if seeds != {1} else what.rstrip('s')}"
    if shown[0]:
        over = "draws of the predictor's error" if draws else "means over the seeds (BCa bootstrap)"
        text += (
            f" with the middle 95\\% of the {over}"
            if draws
            else f" with the 95\\% interval of {over}"
        )
    text += "."
    if shown[1]:
        text += " Speed-up: over the best single device."
    if shown[2]:
        text += " $P$(best): share of the draws in which it is the shortest."
    everyone = [standing for contest in standings.contests for standing in contest.standings]
    for sign, words, there in (
        ("$\\sim$", "not separable from the best", any(s.separable is False for s in everyone)),
        ("*", "stale", any(s.stale for s in everyone)),
        ("!", "devices not validated together", any(s.unvalidated for s in everyone)),
    ):
        text += f" {sign}: {words}." if there else ""
    return text
