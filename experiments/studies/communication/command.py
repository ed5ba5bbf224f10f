"""Bytes over links and makespans of a sweep's schedulers or partitions, each against a baseline's.

    python -m experiments.communication outputs/sweeps/NAME [baseline=NAME]

A cell is compared with the baseline's cell of the same setting and seed. The ratio of bytes is that of the sums over all
seeds, because the baseline may move nothing with one seed; the ratio of makespans is the geometric mean over the seeds.
Writes ``communication.txt`` and ``fig_communication`` into the sweep's folder.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from experiments.comparison.answers import as_sentences, validity_by_cluster
from experiments.plots.looks import scheduler_handle, scheduler_styles
from experiments.plots.style import (
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    shorten,
)
from experiments.runs import atomic
from experiments.runs.command import key_values, report_errors
from experiments.runs.help import answered
from experiments.runs.results import FAMILY_COLUMNS, load_results
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

SETTING = ("model", "batch", "cluster", "workload", "movement", "contention", *FAMILY_COLUMNS)
"""Columns that make a setting; of a drawn graph those of the family say what its names do."""
MOST_SETTINGS = 40
"""More do not fit into a figure."""


def ratios(results: pd.DataFrame, baseline: str | None = None) -> tuple[pd.DataFrame, str]:
    """Bytes and seconds of each setting and scheduler, and their ratios to the baseline's.

    Args:
        results: of :func:`experiments.load_results`.
        baseline: a scheduler's name; that which moves most in all unless given.

    Returns:
        A row for each setting and scheduler (``setting``, ``scheduler``, ``seeds``, ``bytes``, ``makespan_s``,
        ``bytes_ratio``, ``makespan_ratio``; the first NaN where the baseline moves nothing), and the baseline.

    Raises:
        InvalidInput: no run is done, there is no such scheduler, or it lacks a setting.
    """
    import pandas as pd

    done = results[(results["status"] == "done") & results["transferred_bytes"].notna()].copy()
    if not len(done):
        raise InvalidInput("There are no finished runs of jobs with transfers to compare")
    names = done.groupby("scheduler")["transferred_bytes"].sum()
    baseline = str(names.idxmax()) if baseline is None else baseline
    if baseline not in names:
        raise InvalidInput(
            f"There is no scheduler '{baseline}'; there are {', '.join(names.index)}"
        )
    columns = [c for c in SETTING if c in done and done[c].astype(str).nunique() > 1]
    if any(c.startswith("family_") for c in columns):
        columns = [c for c in columns if c not in ("model", "cluster")]
    done["setting"] = ["all"] * len(done)
    if columns:
        done["setting"] = [", ".join(map(_runs, row)) for row in done[columns].to_numpy()]
    rows = []
    for setting, own in done.groupby("setting", sort=False):
        seeds = ["seed_workload", "seed_noise", "seed_search"]
        index = own.set_index(seeds)
        base = index[index["scheduler"] == baseline]
        if not len(base):
            raise InvalidInput(f"The baseline '{baseline}' has no run of {setting}; name another")
        for scheduler, mine in index.groupby("scheduler", sort=False):
            both = mine.merge(base, left_index=True, right_index=True, suffixes=("", "_base"))
            moved, reference = both["transferred_bytes"].sum(), both["transferred_bytes_base"].sum()
            logs = np.log(both["makespan_s"] / both["makespan_s_base"])
            rows.append(
                {
                    "setting": setting,
                    "scheduler": scheduler,
                    "seeds": len(both),
                    "bytes": moved / max(len(both), 1),
                    "makespan_s": mine["makespan_s"].mean(),
                    "bytes_ratio": moved / reference if reference else np.nan,
                    "makespan_ratio": float(np.exp(logs.mean())),
                }
            )
    return pd.DataFrame(rows), baseline


def _runs(value: object) -> str:
    """A value as text; of a list, such as 4.0:4.0:2.0, each entry once with its number: 2x 4:2."""
    entries = [part.removesuffix(".0") for part in str(value).split(":")]
    runs = [(len(list(group)), entry) for entry, group in itertools.groupby(entries)]
    return ":".join(entry if count == 1 else f"{count}x {entry}" for count, entry in runs)


def draw_communication(
    found: pd.DataFrame, baseline: str, stem: Path, validity: Sequence[str] = ()
) -> list[Path]:
    """A row for each setting, a marker for each scheduler: bytes on the left, makespans on the right."""
    settings = list(dict.fromkeys(found["setting"]))[:MOST_SETTINGS]
    names = list(dict.fromkeys(found["scheduler"]))
    styles = scheduler_styles(names)
    place = {setting: row for row, setting in enumerate(settings)}
    with figure_style():
        figure = new_figure(TWO_COLUMNS, min(1.2 + 0.2 * len(settings), 9.0))
        panels = figure.subplots(1, 2, sharey=True)
        for panel, column, label in zip(
            panels, ("bytes_ratio", "makespan_ratio"), ("bytes moved", "makespan"), strict=True
        ):
            for name in names:
                own = found[(found["scheduler"] == name) & found["setting"].isin(settings)]
                panel.plot(
                    own[column], own["setting"].map(place), linestyle="none", markersize=5,
                    marker=styles[name].marker, color=styles[name].colour, markeredgecolor="black",
                    markeredgewidth=0.3, clip_on=False, zorder=3,
                )  # fmt: skip
            panel.axvline(1.0, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
            panel.set_xlim(left=0.0)
            panel.grid(axis="y", color="#DDDDDD", linewidth=0.5)
            panel.set_axisbelow(True)
            panel.set_xlabel(f"{label} (baseline: 1)")
        panels[0].set_yticks(range(len(settings)), [shorten(text, 60) for text in settings])
        panels[0].set_ylim(len(settings) - 0.4, -0.6)
        options = [name.partition("(")[2].removesuffix(")") for name in names]
        one = len({name.partition("(")[0] for name in names}) == 1
        short = [(one and option) or name for name, option in zip(names, options, strict=True)]
        handles = [scheduler_handle(name, styles[name], False) for name in names]
        for handle, name, text in zip(handles, names, short, strict=True):
            handle.set_label(f"{shorten(text, 40)}{' (baseline)' if name == baseline else ''}")
        legend_below(figure, handles, 4)
        counts = sorted(set(found["seeds"]))
        caption = (
            f"Bytes over links (ratio of sums over seeds) and makespans (geometric mean of ratios) against {baseline}; "
            f"{'-'.join(map(str, counts[:: max(len(counts) - 1, 1)]))} seeds. No marker: the baseline moves nothing."
        )
        return save_figure(figure, stem, found, " ".join([caption, *as_sentences(validity)]))


def analyse(
    folder: Path, baseline: str | None = None, console: Console | None = None
) -> list[Path]:
    """Print, write and draw what the module docstring says; returns the paths of the figure.

    Raises:
        InvalidInput: see :func:`ratios`.
    """
    console = console or Console()
    results = load_results(folder)
    found, baseline = ratios(results, baseline)
    done = results[results["status"] == "done"].fillna({"cluster": "", "validity": ""})
    longest = done.groupby("cluster")["validity"]
    validity = validity_by_cluster((str(name), max(own, key=len)) for name, own in longest)
    lines = [f"against {baseline}: bytes moved, makespan", *validity]
    for setting, own in found.groupby("setting", sort=False):
        lines.append(str(setting))
        columns = ["scheduler", "bytes", "bytes_ratio", "makespan_s", "makespan_ratio"]
        lines += [
            f"  {name}: {moved / 1e6:.4g} MB ({less:.3f}), {seconds:.4g} s ({shorter:.3f})"
            for name, moved, less, seconds, shorter in own[columns].to_numpy().tolist()
        ]
    atomic.write_text(folder / "communication.txt", "\n".join(lines) + "\n")
    drawn = draw_communication(found, baseline, folder / "fig_communication", validity)
    for line in [*lines, f"wrote {', '.join(map(str, drawn))}"]:
        console.print(line, markup=False, soft_wrap=True)
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    if answered("communication", arguments):
        return 0
    parser = argparse.ArgumentParser(prog="python -m experiments.communication", add_help=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("options", nargs="*", metavar="baseline=NAME")
    parsed = parser.parse_args(arguments)

    def run() -> None:
        given = key_values("communication", parsed.options, ("baseline",))
        analyse(parsed.folder, given.get("baseline"))

    return report_errors(run)


if __name__ == "__main__":
    sys.exit(main())
