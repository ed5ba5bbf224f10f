"""How long an operator or a transfer takes: features, predictors and profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from cost_models.table import Measurements

__all__ = ["CostModel", "fit"]


class CostModel(Protocol):
    """Predicts seconds of the rows of a measurement table."""

    @property
    def name(self) -> str:
        """``boosted``, ``roofline``."""
        ...

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds, from shapes and attributes alone."""
        ...


def fit(measurements: Measurements, model: str = "boosted", **options: Any) -> CostModel:
    """Fit a cost model to a measurement table (:mod:`cost_models.table`).

    Args:
        measurements: a DataFrame or the path of a Parquet file, of one device.
        model: ``boosted`` or ``roofline``.
        options: ``roofline`` (measured peaks), and for ``boosted`` ``seed`` and XGBoost's parameters.

    Raises:
        InvalidInput: no such model or option, or the table is not valid.
    """
    from cost_models.boosted import Boosted
    from cost_models.roofline import Roofline
    from cost_models.table import load
    from simulator.errors import InvalidInput

    if model not in ("boosted", "roofline"):
        raise InvalidInput(f"No cost model '{model}'; known: boosted, roofline")
    table = load(measurements)
    devices = sorted(table["device"].unique())
    if len(devices) > 1:
        raise InvalidInput(
            f"The measurements are of {len(devices)} devices ({', '.join(devices[:3])}, ...); fit one "
            "model for each"
        )
    if model == "boosted":
        return Boosted.fitted(table, **options)
    if set(options) - {"roofline"}:
        raise InvalidInput(f"The roofline has no option '{min(set(options) - {'roofline'})}'")
    found: Roofline | None = options.get("roofline")
    return found or Roofline.fitted(table)
