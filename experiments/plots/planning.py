"""Is better quality worth its planning time? Ratio to the best against seconds of deciding."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.comparison.instances import Instances
from experiments.plots.style import (
    OTHER,
    TWO_COLUMNS,
    figure_style,
    grey_note,
    legend_below,
    log_ratio_axis,
    new_figure,
    save_figure,
    scheduler_handle,
    scheduler_styles,
    told_apart,
)

_MOST = 30
"""Points in colour; more markers cannot be told apart."""


def draw_planning(instances: Instances, stem: Path) -> list[Path] | None:
    """Schedulers by mean decision time and ratio to the best; None where no time is known."""
    import pandas as pd
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from simulator.model.units import format_seconds

    names = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    instances = instances.of(names)
    ratios = instances.ratios
    rows = []
    for column, name in enumerate(names):
        both = np.isfinite(ratios[:, column]) & (instances.planning[:, column] > 0)
        if not both.any():
            continue
        seconds, ratio = instances.planning[both, column], ratios[both, column]
        rows.append(
            {
                "scheduler": name,
                "n": int(both.sum()),
                "decision_s": float(np.exp(np.log(seconds).mean())),
                "decision_q1_s": float(np.quantile(seconds, 0.25)),
                "decision_q3_s": float(np.quantile(seconds, 0.75)),
                "ratio_to_best": float(np.exp(np.log(ratio).mean())),
                "ratio_q1": float(np.quantile(ratio, 0.25)),
                "ratio_q3": float(np.quantile(ratio, 0.75)),
            }
        )
    if len(rows) < 2:
        return None
    data = pd.DataFrame(rows).sort_values("decision_s", ignore_index=True)
    data["efficient"] = data["ratio_to_best"] < data["ratio_to_best"].cummin().shift(
        fill_value=np.inf
    )
    styles = scheduler_styles(data["scheduler"])
    ranked = data.sort_values("ratio_to_best")["scheduler"].tolist()
    efficient = data.loc[data["efficient"], "scheduler"].tolist()
    shown, grey = told_apart(ranked, efficient, max(_MOST, len(efficient)))
    with figure_style():
        figure = new_figure(TWO_COLUMNS, 2.5 + 0.15 * -(-len(shown) // 5))
        axes = figure.subplots()
        front = data[data["efficient"]]
        axes.step(
            front["decision_s"], front["ratio_to_best"], where="post", color="#666666",
            linewidth=0.8, linestyle=(0, (1, 1.2)), zorder=1,
        )  # fmt: skip
        for label, own in data.set_index("scheduler").iterrows():
            style = styles[str(label)]
            x, y = float(own["decision_s"]), float(own["ratio_to_best"])
            if label in grey:
                axes.plot(x, y, ".", color=OTHER, markersize=4, zorder=1)
                continue
            across = own[["decision_q1_s", "decision_q3_s"]].to_numpy(dtype=np.float64)
            along = own[["ratio_q1", "ratio_q3"]].to_numpy(dtype=np.float64)
            axes.plot(across, [y, y], color=style.colour, linewidth=0.7)
            axes.plot([x, x], along, color=style.colour, linewidth=0.7)
            axes.plot(
                x, y, linestyle="", marker=style.marker, markersize=5,
                color=style.colour, markeredgecolor="black", markeredgewidth=0.3, zorder=3,
            )  # fmt: skip
        axes.set_xlim(data["decision_q1_s"].min() / 1.4, data["decision_q3_s"].max() * 1.4)
        axes.set_xscale("log")
        axes.set_yscale("log")
        last = float(data[["ratio_to_best", "ratio_q3"]].to_numpy().max())
        axes.set_ylim(0.995, max(last, 1.02) * 1.02)
        log_ratio_axis(axes.yaxis, last)
        seconds = data["decision_s"]
        if seconds.min() == seconds.max():
            axes.set_xlim(seconds.min() / 2, seconds.max() * 2)
        subs = (1.0,) if seconds.max() / seconds.min() > 100 else (1.0, 2.0, 5.0)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
        axes.grid(color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel("time that all decisions of a run took, log scale")
        axes.set_ylabel("makespan / best, log scale")
        legend_below(figure, [scheduler_handle(n, styles[n], line=False) for n in shown], 5)
        caption = (
            f"Quality against planning time over n = {len(instances)} instances (one seed of one model "
            "in one setting each): geometric means of the time that a scheduler's decisions of one run "
            "took, by the clock of the machine that simulated, and of its makespan over the smallest of "
            "the instance; lines: quartiles. Dotted: no scheduler is both faster and better. Lower left "
            "is better." + grey_note(grey)
        )
        return save_figure(figure, stem, data, caption)
