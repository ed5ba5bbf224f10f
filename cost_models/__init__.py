"""How long an operator or a transfer takes: features, predictors and profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cost_models.model import CostModel
    from cost_models.table import Measurements

__all__ = ["fit"]


def fit(measurements: Measurements, model: str = "boosted", **options: Any) -> CostModel:
    """Fit a cost model to a measurement table (:mod:`cost_models.table`).

    Args:
        measurements: a DataFrame or the path of a Parquet file, of one device.
        model: one of :func:`cost_models.model.names`.
        options: ``roofline`` (measured peaks), ``seed``, and what the model has of its own.

    Raises:
        InvalidInput: no such model or option, or the table is not valid.
    """
    from cost_models.model import model_class
    from cost_models.table import load
    from simulator.errors import InvalidInput

    cls = model_class(model)
    table = load(measurements)
    devices = sorted(table["device"].unique())
    if len(devices) > 1:
        raise InvalidInput(
            f"The measurements are of {len(devices)} devices ({', '.join(devices[:3])}, ...); fit one "
            "model for each"
        )
    return cls.fitted(table, **options)
