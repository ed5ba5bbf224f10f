"""What a call cost because of when it was measured: estimated from a table's order and taken off.

Every convolution of NeuSight's costs more than the one before it, on all five GPUs: a call of the last rows
takes 0.3 to 0.7 ms longer than one of the same work among the first, however short it is. The shapes come in
random order, no other kind does so, and hosts differ more than GPUs, so it is time of the host that grows with
the number of different convolutions seen; why, the data do not say. No shape tells it, and a model for shapes
that were not measured then must not learn it.

The time of row i is taken for ``g(shape) + c(i)``, ``c`` rising from nothing in :data:`PIECES` straight pieces.
In turn, small trees learn ``g`` from half of the rows without ``c`` and predict the other half, and ``c`` is
fitted to what those leave, by non-negative least squares on relative errors. Backfitting: Buja, Hastie and
Tibshirani, "Linear smoothers and additive models", 1989, https://doi.org/10.1214/aos/1176347115
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cost_models.boosted import Boosted
from cost_models.device_spec import spec_of_measured
from cost_models.roofline import Roofline

DRIFTING: Mapping[str, tuple[str, ...]] = {"neusight": ("conv2d",)}
"""Kinds whose times grow with their place in the table, by source."""
LEAST = 1_000
"""Rows from which a drift is estimated; of fewer none is taken off."""
PIECES = 5
TURNS = 3
TREES: Mapping[str, Any] = {"max_depth": 5, "learning_rate": 0.2, "rounds": 80}


@dataclass(frozen=True)
class Drift:
    """Seconds that the place in a table adds.

    Attributes:
        rows: of the device and kind.
        seconds: added at places that share the rows out evenly, from the first to the end; the first
            adds nothing.
    """

    rows: int
    seconds: tuple[float, ...]

    def at(self, places: np.ndarray) -> np.ndarray:
        """float64[places]: seconds added at a place, 0 being the first row."""
        return np.interp(places, np.linspace(0, self.rows, len(self.seconds)), self.seconds)

    @classmethod
    def fitted(cls, rows: pd.DataFrame, *, seed: int = 0) -> Drift:
        """Estimated from all rows of a kind on a device, in the order in which they were measured."""
        from scipy.optimize import nnls

        places, measured = np.arange(len(rows)), rows["seconds"].to_numpy()
        knots = np.linspace(0, len(rows), PIECES + 1)
        steps = knots[1]
        rising = np.column_stack([np.clip((places - k) / steps, 0, 1) for k in knots[:-1]])
        half = np.random.default_rng(seed).integers(0, 2, len(rows))
        found = cls(len(rows), (0.0,) * (PIECES + 1))
        for _ in range(TURNS):
            shapes = np.empty(len(rows))
            kept = taken_off(rows, found)
            for other in (0, 1):
                model = _trees(kept[half != other].reset_index(drop=True), seed)
                shapes[half == other] = model.predict(kept[half == other])
            # What is left may be off by a constant of either sign, which is no drift.
            columns = np.column_stack([rising, np.ones(len(rows)), -np.ones(len(rows))])
            weights = 1 / (shapes + found.at(places))
            scale = float(np.median(measured))
            factors, _ = nnls(columns * scale * weights[:, None], (measured - shapes) * weights)
            added = np.cumsum(factors[:PIECES]) * scale
            found = cls(len(rows), (0.0, *(float(s) for s in added)))
        return found


def _trees(rows: pd.DataFrame, seed: int) -> Boosted:
    spec = spec_of_measured(str(rows["device"].iloc[0]))
    fastest = float(rows["seconds"].min())
    roofline = Roofline.fitted(rows) if spec is None else Roofline.published(spec, fastest)
    return Boosted.fitted(rows, roofline=roofline, seed=seed, **TREES)


def taken_off(rows: pd.DataFrame, drift: Drift) -> pd.DataFrame:
    """A copy of a kind's rows on a device without its drift; none is faster than the fastest measured."""
    seconds = rows["seconds"].to_numpy()
    left = seconds - drift.at(np.arange(len(rows)))
    return rows.assign(seconds=np.maximum(left, seconds.min()))


def without_drift(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[tuple[str, str], Drift]]:
    """A table without the drifts of :data:`DRIFTING`, and those by device and kind.

    Args:
        table: valid, the rows of a device and kind whole and in the order of measuring; it is not
            changed.
    """
    seconds = table["seconds"].to_numpy(copy=True)
    found = {}
    for source, kinds in DRIFTING.items():
        chosen = (table["source"] == source) & table["kind"].isin(kinds)
        for (device, kind), rows in table[chosen].groupby(["device", "kind"], sort=False):
            if len(rows) >= LEAST:
                drift = Drift.fitted(rows)
                at = table.index.get_indexer(rows.index)
                seconds[at] = taken_off(rows, drift)["seconds"].to_numpy()
                found[str(device), str(kind)] = drift
    return table.assign(seconds=seconds), found
