"""The tables of a comparison: unrounded for CSV, rounded for Markdown, LaTeX and the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.comparison import paired_tests
from experiments.comparison.answers import DEFAULT_BASELINE, interval_note
from experiments.comparison.bootstrap import METHOD
from experiments.comparison.contests import BEST_DEVICE, Contest, Standing, Standings
from experiments.comparison.effects import Effects
from experiments.comparison.markup import TextTable, latex, markdown
from experiments.comparison.overall import Overall
from experiments.comparison.pairs import PairTests
from experiments.comparison.rounding import (
    decimals,
    figure,
    gap,
    probability,
    ratio,
    time_unit,
)
from experiments.comparison.statistics import SAME
from experiments.runs.atomic import write_text
from simulator.support.csv_text import csv_text

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("makespan", "[95%]", "vs best device", "gap to bound", "util", "P(best)")


def write_table(
    folder: Path, name: str, frame: pd.DataFrame, table: TextTable, tex: str | None = None
) -> None:
    """Write ``name``.csv (unrounded), .md and .tex: the same table unless LaTeX of its own is given."""
    write_text(folder / f"{name}.csv", csv_text(frame.columns, frame.itertuples(index=False)))
    write_text(folder / f"{name}.md", markdown(table))
    write_text(folder / f"{name}.tex", tex or latex(table))


# -- every scheduler on every model -------------------------------------------------------------


def main_frame(standings: Standings, baseline: str | None = None) -> pd.DataFrame:
    """Every scheduler of every contest, the best device included, unrounded."""
    import pandas as pd

    rows = []
    for contest in standings.contests:
        everyone = [*contest.standings, *([contest.alone] if contest.alone is not None else [])]
        reference = contest.find(baseline or DEFAULT_BASELINE) or contest.best
        for rank, standing in enumerate(everyone, start=1):
            relative = contest.against(standing, reference)
            span = standing.span
            rows.append(
                {
                    **{key: getattr(contest.setting, key) for key in vars(contest.setting)},
                    "model": contest.model,
                    "batch": contest.batch,
                    "scheduler": standing.scheduler,
                    "rank": rank,
                    "makespan_s": standing.makespan_s,
                    "makespan_low_s": span.low if span else None,
                    "makespan_high_s": span.high if span else None,
                    "best_device": contest.best_device,
                    "best_device_s": contest.best_device_s,
                    "vs_best_device": contest.speedup(standing),
                    "bound_s": contest.bound_s,
                    "gap_to_bound": contest.gap(standing),
                    "utilisation": standing.utilisation,
                    "p_best": standing.best_share,
                    "stale": standing.stale,
                    "best_beats_it": contest.beaten(standing),
                    "separable_from_best": standing.separable,
                    "reference": reference.scheduler,
                    "shorter_than_reference": relative.reduction,
                    "shorter_low": relative.interval.low if relative.interval else None,
                    "shorter_high": relative.interval.high if relative.interval else None,
                    "p_beats_reference": relative.probability,
                    "seeds_low": relative.seeds_interval.low if relative.seeds_interval else None,
                    "seeds_high": relative.seeds_interval.high if relative.seeds_interval else None,
                    "seeds": contest.seeds,
                    "draws": len(standing.draws),
                    "extrapolated_share": contest.extrapolated_share,
                }
            )
    return pd.DataFrame(rows)


def main_table(standings: Standings) -> TextTable:
    """The main table, rounded; one time unit throughout."""
    factor, unit = time_unit([c.best.makespan_s for c in standings.contests])
    several = len(standings.settings) > 1
    headings = ["model", *(["setting"] if several else []), "scheduler", f"makespan {unit}"]
    headings += list(COLUMNS[1:])
    rows = []
    for contest in standings.contests:
        front = [standings.label(contest)]
        front += [standings.setting_label(contest.setting)] if several else []
        for standing in contest.standings:
            cells = standing_cells(contest, standing, factor)
            rows.append([*front, *cells[:-1], f"{cells[-1]} {mark(standing)}".rstrip()])
        last = best_device_cells(contest, factor)
        if len(last) > 1:
            rows.append([*front, *last])
    left = headings.index("scheduler")
    return TextTable(headings, rows, left + 1, left, main_caption(standings))


def standing_cells(contest: Contest, standing: Standing, factor: float) -> tuple[str, ...]:
    """Scheduler, makespan, interval, speedup, gap, utilisation, P(best)."""
    makespan = standing.makespan_s * factor
    share = "-" if standing.best_share is None else probability(standing.best_share)
    return (
        standing.scheduler,
        figure(makespan),
        interval_text(standing, makespan, factor),
        ratio(contest.speedup(standing)),
        gap(contest.gap(standing)),
        "-" if math.isnan(standing.utilisation) else f"{standing.utilisation:.0%}",
        share,
    )


def best_device_cells(contest: Contest, factor: float) -> tuple[str, ...]:
    """The same for everything on the best device; a single cell where none can run all of it."""
    if math.isnan(contest.best_device_s):
        return (f"{BEST_DEVICE}: none can run all of it alone",)
    makespan = contest.best_device_s * factor
    alone = contest.alone
    share = alone.best_share if alone is not None else None
    return (
        f"{BEST_DEVICE} {contest.best_device}".strip(),
        figure(makespan),
        interval_text(alone, makespan, factor) if alone is not None else "",
        "1.00x",
        "-",
        "-",
        "-" if share is None else probability(share),
    )


def mark(standing: Standing) -> str:
    """``~`` behind what is not separable from the best, ``*`` behind what is stale, ``!`` behind what ran on devices that
    were not validated together.
    """
    marks = (
        ("~", standing.separable is False),
        ("*", standing.stale),
        ("!", standing.unvalidated),
    )
    return "".join(sign for sign, holds in marks if holds)


def interval_text(standing: Standing, makespan: float, factor: float) -> str:
    """``[38.9, 44.0]``, as many decimals as the makespan has."""
    span = standing.span
    if span is None:
        return ""
    digits = decimals(makespan)
    low, high = span.low * factor, span.high * factor
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def main_caption(standings: Standings) -> str:
    """What the figures of the main table are and rest on."""
    profiles = "; ".join(
        dict.fromkeys(f"{s.cluster}: {s.profiles}" for s in standings.settings if s.profiles)
    )
    note = interval_note(standings)
    middle = " (2.5 to 97.5%)" if any(contest.draws for contest in standings.contests) else ""
    text = (
        f"Makespan at predicted operator times of {len(standings.contests)} "
        f"{'model' if len(standings.contests) == 1 else 'models and settings'} under "
        f"{len(standings.schedulers)} schedulers. {note[:1].upper()}{note[1:]}{middle}. "
        "P(best): share of the paired draws in which it is the shortest; ~: not separable from the "
        "best (the 95% interval of the difference over them holds 0"
    )
    if any(c.seeds > 1 and not c.draws for c in standings.contests):
        text += f"; without draws: the 95% interval of the mean over seeds, {METHOD}, holds 0"
    text += (
        "). vs best device: time of everything on the best single device over the makespan. gap to "
        "bound: makespan over the lower bound, minus 1."
    )
    if any(standing.stale for contest in standings.contests for standing in contest.standings):
        text += " *: stale, made with code or profiles that have changed since."
    if any(s.unvalidated for contest in standings.contests for s in contest.standings):
        text += " !: not validated."
    return text + (f" Devices: {profiles}." if profiles else "")


# -- over all of them ---------------------------------------------------------------------------


def overall_table(overall: Overall) -> TextTable:
    """Every scheduler over all instances, the best first."""
    headings = ["scheduler", "n", "ratio to best", "[95%]", "best in", "worst", "to bound"]
    headings.append("decisions")
    rows = [
        [
            row["scheduler"],
            f"{row['n']}",
            f"{row['ratio_to_best']:.3f}",
            _range(row["ratio_low"], row["ratio_high"]),
            f"{row['share_best']:.0%}",
            f"{row['worst_ratio']:.2f}x",
            ratio(row["ratio_to_bound"]),
            seconds_text(row["decision_s"]),
        ]
        for row in overall.frame.to_dict("records")
    ]
    caption = (
        f"Over {overall.instances} instances (one seed of one model in one setting each; "
        f"{overall.contests} models and settings). n: how many a scheduler finished. Ratio to best: "
        "geometric mean of the makespan over the smallest of the instance; its 95% interval "
        f"({METHOD}) is over n = {overall.units} {overall.unit_text}. Best in: share of the "
        f"instances on which it is within {SAME:.0%} of the best. Worst: largest ratio. To bound: "
        "geometric mean of the makespan over the lower bound. Decisions: median over the n instances of the time "
        "that all decisions of a run took on the machine that simulated."
    )
    return TextTable(headings, rows, 1, 0, caption)


def pairs_table(pairs: PairTests, baseline: str | None = None) -> TextTable:
    """Every pair, effect sizes before p-values."""
    headings = ["scheduler", "against", "n", "ratio", "[95%]", "rank-biserial", "w/t/l", "worst"]
    headings += ["p", "verdict"]
    rows = [
        [
            row["scheduler"],
            row["against"],
            f"{row['n']}",
            f"{row['ratio']:.3f}",
            _range(row["ratio_low"], row["ratio_high"]),
            f"{row['rank_biserial']:+.2f}",
            f"{row['wins']}/{row['ties']}/{row['losses']}",
            f"{row['worst_ratio']:.2f}",
            p_text(row["p"]),
            row["verdict"],
        ]
        for row in pairs.frame.to_dict("records")
    ]
    against = f"every scheduler with {baseline}" if baseline else "every two schedulers"
    caption = (
        f"Pairs: {against}, {len(rows)} tests. Ratio: geometric mean of the first's makespan over the "
        f"second's, n = {pairs.units} {pairs.unit_text}, with 95% interval. "
        "Rank-biserial correlation: 1 where the first is always the shorter. w/t/l: instances on which "
        f"the first is shorter, within {SAME:.0%}, longer. Worst: largest ratio. p, two-sided, is of "
        f"the same draws as the interval ({paired_tests.METHOD}), both {paired_tests.CORRECTION} corrected over "
        f"all pairs; 'shorter' where the interval leaves 1 out. With fewer than {pairs.needed} pairs of "
        "makespans nothing could be significant: 'too few'."
    )
    caption = f"{caption} {pairs.caution}".rstrip()
    return TextTable(headings, rows, 2, 0, caption)


def effects_table(effects: Effects) -> TextTable:
    """What each value of each factor changes, paired over everything else."""
    headings = ["factor", "value", "against", "n", "ratio", "[95%]", "p", "verdict"]
    rows = [
        [
            row["factor"],
            row["value"],
            row["against"],
            f"{row['n']}",
            f"{row['ratio']:.3f}",
            _range(row["ratio_low"], row["ratio_high"]),
            p_text(row["p"]),
            row["verdict"],
        ]
        for row in effects.frame.to_dict("records")
    ]
    caption = (
        "What a factor changes. Ratio: geometric mean of the makespan with the value over that with "
        "the other, n pairs of runs that agree in everything else, seeds and scheduler included; 95% "
        f"interval and two-sided p: {paired_tests.METHOD}, {paired_tests.CORRECTION} corrected over "
        f"the {len(rows)} rows. Pairs of one model count singly, so the result speaks of what the "
        "sweep holds."
    )
    return TextTable(headings, rows, 3, 1, caption)


def by_factor_table(frame: pd.DataFrame, schedulers: Sequence[str], more: int) -> TextTable:
    """Mean ratio to the best at each value of each factor, a column for each scheduler."""
    headings = ["factor", "value", "n", "best", *schedulers]
    rows = [
        [
            row["factor"],
            row["value"],
            f"{row['n']}",
            row["best"],
            *("-" if math.isnan(row[name]) else f"{row[name]:.3f}" for name in schedulers),
        ]
        for row in frame.to_dict("records")
    ]
    caption = (
        "Geometric mean of the makespan over the smallest of the instance, over the n instances with "
        "the value (one seed of one model in one setting each). Best: the smallest mean."
    )
    if more:
        caption += f" The {len(schedulers)} best schedulers overall; {more} more in the CSV file."
    return TextTable(headings, rows, 2, 1, caption)


def _range(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"[{low:.3f}, {high:.3f}]"


def p_text(p: float) -> str:
    """``.012``, ``<.001``; ``-`` where nothing was tested."""
    if math.isnan(p):
        return "-"
    if p < 0.001:
        return "<.001"
    return f"{p:.3f}".removeprefix("0")


def seconds_text(seconds: float) -> str:
    """``1.2 ms``; ``-`` where unknown."""
    from simulator.model.units import format_seconds

    return "-" if math.isnan(seconds) else format_seconds(seconds)
