"""What the searches of ``partition=strategy`` come to, whether or not a device alone is faster.

    python -m experiments.strategies outputs/sweeps/NAME

A sweep's tables have the better of a partition and a device alone. Here are the partition's own iterations, by the engine, by
the number of devices and the bandwidth of the slowest link. Writes ``strategies.csv``, ``strategies.txt`` and
``fig_strategies`` into the sweep's folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.plots.style import (
    COLOURS,
    DASHES,
    MARKERS,
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
)
from experiments.runs import atomic
from experiments.runs.command import report_errors
from experiments.runs.results import load_results, read_document
from scenarios.networks import link_bandwidth
from scenarios.training.strategy import BASELINES, SEARCHES
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

SETTING = ["model", "devices", "gbit_per_s"]


def read_strategies(folder: Path) -> pd.DataFrame:
    """A row for each finished run of ``partition=strategy`` in a sweep.

    Columns: ``model``, ``devices``, ``gbit_per_s`` (of the slowest link), ``search``, ``iteration_s`` (of the partition's own plan, by
    the engine), ``best_device_s``, ``closed_form_s`` (of what the search found, before anything was simulated), ``optimum_s``
    (by the closed form), ``evaluations``, ``hybrid`` (share of layers that are neither data nor model alone),
    ``data`` (share of layers that are data alone).

    Raises:
        InvalidInput: there is none, or a file is damaged.
    """
    import pandas as pd

    results = load_results(folder)
    rows = []
    for row in results[results["partition"] == "strategy"].itertuples():
        cell = Path(row.folder) / "cells" / row.cell / "result.json"
        document = read_document(cell if cell.is_file() else Path(row.folder) / "result.json")
        if document.get("status") != "done":
            continue
        cluster, plan = document["config"]["cluster"], document["plan"]
        links = cluster["links"].items()
        slowest = min(link_bandwidth(link["bandwidth"], name) for name, link in links)
        own = plan.get("not_taken", plan)
        alone = [s for name, s in plan["makespans_s"].items() if name != "strategy"]
        shares = list(own["groups_and_shards"].values())
        rows.append(
            {
                "model": row.model,
                "devices": max(d * m for d, m in shares),
                "gbit_per_s": slowest * 8 / 1e9,
                "search": own["search"],
                "iteration_s": plan["makespans_s"]["strategy"],
                "best_device_s": min(alone),
                "closed_form_s": own["closed_form_s"][own["search"]],
                "optimum_s": own["optimum_s"],
                "evaluations": own["evaluations"],
                "hybrid": sum(d > 1 < m for d, m in shares) / len(shares),
                "data": sum(m == 1 for _, m in shares) / len(shares),
            }
        )
    if not rows:
        raise InvalidInput(f"{folder} has no finished run of partition=strategy")
    return pd.DataFrame(rows).sort_values([*SETTING, "search"], ignore_index=True)


def lines_of(found: pd.DataFrame) -> list[str]:
    """For each setting the iteration of each search and how much shorter the first one's is than the best baseline's."""
    lines = ["seconds of an iteration; % of the best baseline saved by the first search"]
    for setting, own in found.groupby(SETTING, sort=False):
        model, devices, speed = setting
        seconds = dict(zip(own["search"], own["iteration_s"], strict=True))
        searches = [name for name in SEARCHES if name in seconds]
        text = ", ".join(f"{name} {seconds[name]:.4g}" for name in searches)
        known = [seconds[name] for name in BASELINES if name in seconds]
        saved = f" ({100 * (1 - seconds[searches[0]] / min(known)):.1f}%)" if known else ""
        alone = own["best_device_s"].min()
        lines.append(
            f"{model}, {devices} devices, {speed:g} Gbit/s: {text}{saved}; alone {alone:.4g}"
        )
    return lines


def draw_strategies(found: pd.DataFrame, stem: Path) -> list[Path]:
    """A panel for each model and number of devices: iterations over bandwidth, of each search and of a device alone."""
    models = list(dict.fromkeys(found["model"]))
    counts = sorted(set(found["devices"]))
    searches = [name for name in SEARCHES if name in set(found["search"])]
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 0.9 + 1.45 * len(counts))
        panels = figure.subplots(len(counts), len(models), sharex=True, squeeze=False)
        for line, count in enumerate(counts):
            for column, model in enumerate(models):
                panel = panels[line][column]
                here = found[(found["model"] == model) & (found["devices"] == count)]
                for number, name in enumerate(searches):
                    own = here[here["search"] == name]
                    panel.plot(
                        own["gbit_per_s"], own["iteration_s"], label=name, color=COLOURS[number],
                        linestyle=DASHES[number % len(DASHES)], marker=MARKERS[number], markersize=4,
                        linewidth=1.0, zorder=9 - number,
                    )  # fmt: skip
                alone = here.groupby("gbit_per_s")["best_device_s"].min()
                panel.plot(
                    alone.index, alone, color="#555555", linewidth=0.8, label="a device alone"
                )
                panel.set_xscale("log")
                panel.set_yscale("log")
                panel.grid(color="#DDDDDD", linewidth=0.5)
                if line == 0:
                    panel.set_title(model, fontsize=8)
                if column == 0:
                    panel.set_ylabel(f"{count} devices\niteration, s")
                if line == len(counts) - 1:
                    panel.set_xlabel("link, Gbit/s")
        handles, _ = panels[0][0].get_legend_handles_labels()
        legend_below(figure, handles, 4)
        caption = (
            "Iterations of a training step by what the search of partition=strategy chose, simulated with contention; "
            "a device alone for comparison."
        )
        return save_figure(figure, stem, found, caption)


def analyse(folder: Path, console: Console | None = None) -> list[Path]:
    """Print, write and draw what the module docstring says; returns the paths of the figure.

    Raises:
        InvalidInput: see :func:`read_strategies`.
    """
    console = console or Console()
    found = read_strategies(folder)
    lines = lines_of(found)
    atomic.write_text(folder / "strategies.txt", "\n".join(lines) + "\n")
    atomic.write_text(folder / "strategies.csv", found.to_csv(index=False))
    drawn = draw_strategies(found, folder / "fig_strategies")
    for line in [*lines, f"wrote {', '.join(map(str, drawn))}"]:
        console.print(line, markup=False, soft_wrap=True)
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.strategies",
        description="What the searches of partition=strategy come to in a sweep.",
    )
    parser.add_argument("folder", type=Path)
    parsed = parser.parse_args(arguments)

    def run() -> None:
        analyse(parsed.folder)

    return report_errors(run)


if __name__ == "__main__":
    sys.exit(main())
