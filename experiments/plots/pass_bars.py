"""Bars of a pipeline as papers draw it: one for each pass of a micro-batch, coloured by phase, its number inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator.analysis.passes import passes
from simulator.model.pass_tags import PHASES
from simulator.model.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

LOOKS = {
    "forward": ("#56B4E9", ""),
    "backward": ("#0072B2", ""),
    "weight gradient": ("#F0E442", ""),
    "recomputation": ("#A8D8F3", "/////"),
    "update": ("#222222", ""),
    "communication": ("#CC79A7", "....."),
}
"""Colour and hatch of each phase; where a grey print shows two alike, one of them is hatched."""


def pass_bars(trace: Trace, table: pd.DataFrame) -> pd.DataFrame:
    """The bars of a Gantt with passes in place of their operators.

    Args:
        trace: simulated or measured.
        table: its bars (:func:`experiments.plots.gantt.bars`).

    Returns:
        The same columns, and ``label``: the micro-batch's number, empty for what serves all of them. A pass is on the
        critical path where its first operator there is. Where operators have no tags, ``table`` itself.
    """
    import pandas as pd

    found = passes(trace)
    if found is None:
        return table
    count, first = len(found.of), np.unique(found.of, return_index=True)[1]
    names = list(PHASES.values())
    critical = np.full(len(first), len(table) + 1)
    place = table["critical"].to_numpy()[:count]
    np.minimum.at(critical, found.of, np.where(place > 0, place, len(table) + 1))
    kinds = [names[phase] for phase in found.phase.tolist()]
    labels = ["" if number < 0 else str(number) for number in found.micro_batch.tolist()]
    boxes = table.iloc[first].assign(
        finish_s=found.finish,
        kind=kinds,
        operator=[f"{kind} {label}".strip() for kind, label in zip(kinds, labels, strict=True)],
        critical=np.where(critical > len(table), 0, critical),
        label=labels,
    )
    made = pd.concat([boxes, table.iloc[count:].assign(label="")], ignore_index=True)
    made.attrs["rows"] = table.attrs["rows"]
    return made


__all__ = ["LOOKS", "pass_bars"]
