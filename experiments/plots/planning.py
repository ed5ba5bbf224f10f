"""Is better quality worth its planning time? Ratio to the best against seconds of deciding."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.comparison.bootstrap import METHOD, intervals_of_means
from experiments.comparison.instances import Instances
from experiments.plots.looks import USUAL, Look, grey_note, scheduler_handle, told_apart
from experiments.plots.style import (
    OTHER,
    caption,
    figure_style,
    legend_below,
    log_ratio_axis,
    new_figure,
    save_figure,
)

_MOST = 30
"""Points in colour; more markers cannot be told apart."""


def draw_planning(instances: Instances, stem: Path, look: Look = USUAL) -> list[Path] | None:
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
        seconds, ratio = np.log(instances.planning[both, column]), np.log(ratios[both, column])
        (fast, slow), (low, high) = np.exp(intervals_of_means([seconds, ratio]))
        rows.append(
            {
                "scheduler": name,
                "n": int(both.sum()),
                "decision_s": float(np.exp(seconds.mean())),
                "decision_low_s": fast,
                "decision_high_s": slow,
                "ratio_to_best": float(np.exp(ratio.mean())),
                "ratio_low": low,
                "ratio_high": high,
            }
        )
    if len(rows) < 2:
        return None
    data = pd.DataFrame(rows).sort_values("decision_s", ignore_index=True)
    data["efficient"] = data["ratio_to_best"] < data["ratio_to_best"].cummin().shift(
        fill_value=np.inf
    )
    styles = look.styles(data["scheduler"])
    ranked = data.sort_values("ratio_to_best")["scheduler"].tolist()
    efficient = data.loc[data["efficient"], "scheduler"].tolist()
    shown, grey = told_apart(ranked, efficient, max(_MOST, len(efficient)))
    with figure_style():
        columns = 2 if look.narrow else 5
        figure = new_figure(look.width(), 2.5 + 0.15 * -(-len(shown) // columns))
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
            across = own[["decision_low_s", "decision_high_s"]].to_numpy(dtype=np.float64)
            along = own[["ratio_low", "ratio_high"]].to_numpy(dtype=np.float64)
            axes.plot(across, [y, y], color=style.colour, linewidth=0.9)
            axes.plot([x, x], along, color=style.colour, linewidth=0.9)
            axes.plot(
                x, y, linestyle="", marker=style.marker, markersize=5 * style.weight,
                color=style.colour, markeredgecolor="black", markeredgewidth=0.3, zorder=3, clip_on=False,
            )  # fmt: skip
        reach = data[["decision_low_s", "decision_s", "decision_high_s"]].to_numpy()
        axes.set_xlim(np.nanmin(reach) / 1.4, np.nanmax(reach) * 1.4)
        axes.set_xscale("log")
        axes.set_yscale("log")
        last = float(np.nanmax(data[["ratio_to_best", "ratio_high"]].to_numpy()))
        axes.set_ylim(0.98, max(last, 1.02) * 1.02)
        log_ratio_axis(axes.yaxis, last)
        seconds = data["decision_s"]
        if seconds.min() == seconds.max():
            axes.set_xlim(seconds.min() / 2, seconds.max() * 2)
        far = seconds.max() / seconds.min() > (10 if look.narrow else 100)
        subs = (1.0,) if far else (1.0, 2.0, 5.0)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: format_seconds(value).replace("us", "µs"))
        )
        axes.grid(color="#DDDDDD", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel("decision time of a run, log scale")
        axes.set_ylabel("makespan / best, log scale")
        legend_below(figure, [scheduler_handle(n, styles[n], line=False) for n in shown], columns)
        text = caption(
            "Makespan over the best of the instance against the time that a run's decisions took",
            f"{len(instances)} {instances.noun}",
            f"Geometric means; lines: 95% intervals ({METHOD})",
            "Dotted: nobody is both faster and better.",
            "Time by the clock of the machine that simulated.",
            grey_note(grey),
        )
        return save_figure(figure, stem, data, text)
