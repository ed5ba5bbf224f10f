"""Several cost models at once: the median of what they say, of two their geometric mean.

Trees are exact on shapes like those measured, networks between them, polynomials beyond; each is now
and then far off where the others are not, and a median does not follow it. Nothing is tuned, so there
is nothing that a small table could mislead. The distance between the members is the spread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cost_models.model import CostModel, Prediction, model_class, rows_to_fit
from cost_models.roofline import Roofline
from cost_models.table import Measurements, load
from simulator.errors import InvalidInput

MEMBERS = ("boosted", "mlp", "polynomial")
"""Where no others are asked for."""


def members_among(models: Collection[str]) -> tuple[str, ...]:
    """The members of an ensemble that stands beside these models: those of :data:`MEMBERS` that are there, if they are two or more.

    Args:
        models: names; an ensemble alone brings all its members along.
    """
    found = tuple(name for name in MEMBERS if name in models)
    return found if len(found) > 1 else MEMBERS


@dataclass
class Ensemble:
    """See the module docstring. Made by :meth:`fitted` or :meth:`from_json`."""

    members: Mapping[str, CostModel]
    name: str = field(default="ensemble", init=False)

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        seed: int = 0,
        only: Collection[str] | None = None,
        members: Sequence[str] = MEMBERS,
        **options: Any,
    ) -> Ensemble:
        """See :meth:`cost_models.model.CostModel.fitted`.

        Args:
            measurements: at least one row.
            roofline: of the device; estimated from the rows unless given.
            seed: of every member.
            only: as every member takes it.
            members: names of at least two other models.
            options: a mapping of options for each member that should have any, by its name.

        Raises:
            InvalidInput: no rows, fewer than two members, or options of what is no member.
        """
        rows_to_fit(measurements)
        names = list(dict.fromkeys(members))
        if len(names) < 2 or "ensemble" in names:
            raise InvalidInput(f"An ensemble has at least two other models, not {list(members)}")
        for name in options:
            if name not in names:
                raise InvalidInput(
                    f"The ensemble has no option '{name}'; known: seed, members, "
                    + ", ".join(f"{known} (its options)" for known in names)
                )
        roofline = roofline or Roofline.fitted(measurements)
        return cls(
            {
                name: model_class(name).fitted(
                    measurements, roofline=roofline, seed=seed, only=only, **options.get(name, {})
                )
                for name in names
            }
        )

    def predict(self, measurements: Measurements) -> np.ndarray:
        """float64[rows]: seconds of every row of a table (``seconds`` is not looked at)."""
        return self.predict_in_full(measurements).seconds

    def predict_in_full(self, measurements: Measurements) -> Prediction:
        """The median of the members; in range where most of them are."""
        rows = load(measurements, timed=False)
        found = [model.predict_in_full(rows) for model in self.members.values()]
        logs = np.log(np.stack([part.seconds for part in found]))
        inside = np.stack([part.in_range for part in found])
        return Prediction(
            np.exp(np.median(logs, axis=0)),
            logs.std(axis=0, ddof=1),
            inside.sum(axis=0) * 2 > len(found),
        )

    def to_json(self) -> dict[str, Any]:
        """Every member's JSON object by its name."""
        return {"members": {name: model.to_json() for name, model in self.members.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Ensemble:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is incomplete or damaged.
        """
        members = document.get("members")
        if not isinstance(members, Mapping) or len(members) < 2:
            raise InvalidInput("The ensemble model is incomplete or damaged (it lacks its members)")
        return cls({name: model_class(name).from_json(part) for name, part in members.items()})
