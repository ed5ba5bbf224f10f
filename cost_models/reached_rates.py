"""The rates that kernels of a kind reach: a constant, arithmetic and traffic, fitted to their times.

A kernel takes about ``overhead + flops / (share * peak) + bytes / (share * bandwidth)``. The three are
fitted by non-negative least squares on relative errors, so short calls decide the overhead as much as
long ones the rates. Unlike a maximum this has no kink, so what is learnt about ratios to it carries
over between the points that were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cost_models.features import known_work

if TYPE_CHECKING:
    from cost_models.roofline import Roofline

LEAST = 20
"""Rows that a fit needs; with fewer the roofline's own rates are taken."""


@dataclass(frozen=True)
class ReachedRates:
    """Factors of a roofline's terms.

    Attributes:
        arithmetic: of flops / peak; 2 is half the peak.
        traffic: of bytes / bandwidth.
        overhead: seconds of every call.
    """

    arithmetic: float
    traffic: float
    overhead: float

    @classmethod
    def fitted(cls, terms: np.ndarray, seconds: np.ndarray, overhead: float) -> ReachedRates:
        """Fitted to measured times.

        Args:
            terms: float64[rows, 2] of :func:`terms_of`.
            seconds: float64[rows].
            overhead: of the roofline, kept with its rates where rows are few or nothing fits. So is
                its peak where no row has arithmetic.
        """
        from scipy.optimize import nnls

        own = cls(1.0, 1.0, overhead)
        if len(seconds) < LEAST:
            return own
        columns = np.column_stack([terms, np.ones(len(seconds))]) / seconds[:, None]
        scale = columns.max(axis=0)
        scale[scale == 0] = 1.0
        factors, _ = nnls(columns / scale, np.ones(len(seconds)))
        factors = np.where([*(terms == 0).all(axis=0), False], 1.0, factors / scale)
        found = cls(*(float(v) for v in factors))
        # A term that got nothing would leave some shape without a time.
        return found if (found.bare(terms) > 0).all() else own

    def bare(self, terms: np.ndarray) -> np.ndarray:
        """float64[rows]: seconds from :func:`terms_of`."""
        return terms @ np.array([self.arithmetic, self.traffic]) + self.overhead

    def to_json(self) -> list[float]:
        """Three numbers."""
        return [self.arithmetic, self.traffic, self.overhead]

    @classmethod
    def from_json(cls, numbers: Sequence[float]) -> ReachedRates:
        """Read :meth:`to_json`'s form; raises TypeError or ValueError on damage."""
        arithmetic, traffic, overhead = (float(v) for v in numbers)
        if not all(np.isfinite(v) and v >= 0 for v in (arithmetic, traffic, overhead)):
            raise ValueError("rates are finite and not negative")
        return cls(arithmetic, traffic, overhead)


def terms_of(rows: pd.DataFrame, roofline: Roofline) -> np.ndarray:
    """float64[rows, 2]: seconds of arithmetic and of traffic at a roofline's rates."""
    columns = (rows[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes"))
    found = np.empty((len(rows), 2))
    for position, key in enumerate(zip(*columns, strict=True)):
        operations, moved = known_work(*key)
        peak = roofline.flops_per_s.get(key[1], roofline.flops_per_s["float32"])
        found[position] = operations / peak, moved / roofline.bandwidth
    return found
