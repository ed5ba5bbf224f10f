"""Several cost models fitted to the same rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from cost_models.ensemble import Ensemble, members_among
from cost_models.model import CostModel, model_class, names
from cost_models.roofline import Roofline


def fitted_models(
    rows: pd.DataFrame,
    roofline: Roofline,
    models: Sequence[str],
    *,
    seed: int = 0,
    only: Collection[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    show: Callable[[str], None] | None = None,
) -> dict[str, CostModel]:
    """Cost models fitted to the same rows, each once: an ensemble is made of those beside it
    (:func:`cost_models.ensemble.members_among`).

    Args:
        rows: a valid table of one device.
        roofline: of the device.
        models: their names; ``roofline`` needs no fit and is left out.
        seed: of each.
        only: kinds that will be asked for; None for all.
        options: of models, by their names.
        show: called with a line of progress.

    Raises:
        InvalidInput: an unknown model or option, or no rows.
    """
    for name in models:
        model_class(name)  # refuses an unknown one
    wanted = list(
        dict.fromkeys([*models, *(members_among(models) if "ensemble" in models else ())])
    )
    found: dict[str, CostModel] = {}
    for name in names():
        if name in wanted and name not in ("roofline", "ensemble"):
            if show:
                show(f"fitting {name} to {len(rows)} rows")
            found[name] = model_class(name).fitted(
                rows, roofline=roofline, seed=seed, only=only, **(options or {}).get(name, {})
            )
    if "ensemble" in models:
        found["ensemble"] = Ensemble({name: found[name] for name in members_among(found)})
    return found
