"""The interface that all cost models share, and their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pandas as pd

from cost_models.table import Measurements
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from cost_models.roofline import Roofline

DEFAULT = "boosted"
"""What is fitted unless something else is asked for."""
OWN = "default"
"""Stands for the model that a profile itself prefers: the least wrong on what it had not seen."""
_CLASSES: Mapping[str, tuple[str, str]] = {
    "roofline": ("cost_models.roofline", "Roofline"),
    "polynomial": ("cost_models.polynomial", "Polynomial"),
    "boosted": ("cost_models.boosted", "Boosted"),
    "mlp": ("cost_models.mlp", "MLP"),
    "interpolated": ("cost_models.interpolated", "Interpolated"),
    "ensemble": ("cost_models.ensemble", "Ensemble"),
    "adapted": ("cost_models.adapted", "Adapted"),
    "across_devices": ("cost_models.across_devices", "OnDevice"),
}


@dataclass(frozen=True)
class Prediction:
    """What a cost model says of the rows of a table.

    Attributes:
        seconds: float64[rows].
        spread: float64[rows], how far the members of a model that is made of several disagree, as a
            standard deviation of log seconds; NaN where a model has no members. It ranks what to
            measure next and is no error: that comes from held-out rows.
        in_range: bool[rows], False where the model extrapolates.
    """

    seconds: np.ndarray
    spread: np.ndarray
    in_range: np.ndarray

    def at(self, rows: np.ndarray) -> Prediction:
        """Of some rows: bool[rows], or their positions."""
        return Prediction(self.seconds[rows], self.spread[rows], self.in_range[rows])


class CostModel(Protocol):
    """Predicts seconds of the rows of a measurement table."""

    @property
    def name(self) -> str:
        """As in :data:`names`."""
        ...

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        **options: Any,
    ) -> Self:
        """Fit to a valid table of one device.

        Args:
            measurements: at least one row (:func:`cost_models.table.load`).
            roofline: of the device; estimated from the rows unless given.
            seed: of whatever is drawn.
            only: fit no more than what pricing these kinds needs; None fits all.
            options: of the model.

        Raises:
            InvalidInput: no rows, or an unknown option.
        """
        ...

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds, from shapes and attributes alone."""
        ...

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """Seconds with the model's spread and whether it extrapolates."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The fitted model as a JSON object."""
        ...

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        ...


def names() -> tuple[str, ...]:
    """The cost models that there are."""
    return tuple(_CLASSES)


def model_class(name: str) -> type[CostModel]:
    """The class of a cost model.

    Raises:
        InvalidInput: there is none of that name.
    """
    if name not in _CLASSES:
        raise InvalidInput(f"No cost model '{name}'; known: {', '.join(_CLASSES)}")
    module, cls = _CLASSES[name]
    found: type[CostModel] = getattr(import_module(module), cls)
    return found


def rows_to_fit(measurements: pd.DataFrame) -> None:
    """Refuse an empty table.

    Raises:
        InvalidInput: there are no rows.
    """
    if not len(measurements):
        raise InvalidInput("There are no measurements to fit a cost model to")
