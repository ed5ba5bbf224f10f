"""One model of several devices, to be asked about one that was not measured.

What is learnt is how far a kernel stays from the roofline of its device's data sheet, from features
that a data sheet makes comparable: times at the peak rates, waves of tiles over the device's units, the
working set against its cache. Given the data sheet of another device, the same trees price it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from cost_models.boosted import Boosted, fit_groups
from cost_models.device_spec import SPECS, DeviceSpec
from cost_models.features import Values, feature_rows
from cost_models.kind_groups import OWN_MODEL
from cost_models.reached_rates import terms_of
from cost_models.roofline import Roofline
from simulator.errors import InvalidInput

FLOOR = 0.01
"""The quantile of a device's times that is taken for what every call costs."""
PARAMETERS: Mapping[str, Any] = {"max_depth": 6, "rounds": 200, "colsample_bytree": 0.5}


class AcrossDevices:
    """Trees fitted to several devices. Made by :meth:`fitted`; :meth:`of` is what predicts."""

    def __init__(self, boosted: Boosted, overhead: float) -> None:
        self._boosted = boosted
        self.overhead = overhead

    @classmethod
    def fitted(
        cls,
        measurements: pd.DataFrame,
        *,
        specs: Mapping[str, DeviceSpec] = SPECS,
        seed: int = 0,
        only: Collection[str] | None = None,
        own_model: int = OWN_MODEL,
        **parameters: Any,
    ) -> AcrossDevices:
        """Fit to a valid measurement table of two devices or more.

        Args:
            measurements: rows of all of them.
            specs: data sheets by device.
            seed: of row and column sampling.
            only: fit no more than what pricing these kinds needs.
            own_model: rows that a kind needs for trees of its own.
            parameters: of XGBoost, and ``rounds``; defaults :data:`PARAMETERS`.

        Raises:
            InvalidInput: fewer than two devices, or one without a data sheet.
        """
        devices = sorted(measurements["device"].unique())
        if len(devices) < 2:
            raise InvalidInput("A model across devices needs measurements of at least 2")
        for name in devices:
            if name not in specs:
                raise InvalidInput(f"Device '{name}' has no data sheet; known: {', '.join(specs)}")
        values: list[Values] = [{}] * len(measurements)
        terms = np.empty((len(measurements), 2))
        labels = measurements["device"].to_numpy()
        seconds = measurements["seconds"].to_numpy()
        # What a call costs is the host's doing and on no data sheet: that of the median device.
        overhead = float(
            np.median([np.quantile(seconds[labels == name], FLOOR) for name in devices])
        )
        for name in devices:
            chosen = np.flatnonzero(labels == name)
            rows = measurements.iloc[chosen]
            roofline = Roofline.published(specs[name], overhead)
            terms[chosen] = terms_of(rows, roofline)
            found = feature_rows(rows, specs[name], relative=True)
            for position, row in zip(chosen.tolist(), found, strict=True):
                values[position] = row
        groups = fit_groups(
            measurements["kind"].to_numpy(),
            measurements["dtype"].to_numpy(),
            values,
            terms,
            seconds,
            overhead=overhead,
            seed=seed,
            only=only,
            own_model=own_model,
            members=1,
            without=("absolute",),
            parameters={**PARAMETERS, **parameters},
        )
        first = specs[devices[0]]
        return cls(Boosted(Roofline.published(first, overhead), groups, first, True), overhead)

    def of(self, device: DeviceSpec) -> Boosted:
        """The model of a device, from its data sheet alone. Shares the trees."""
        roofline = Roofline.published(device, self.overhead)
        return Boosted(roofline, self._boosted.groups, device, relative=True)
