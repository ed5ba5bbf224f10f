"""How wrong a profile is by element type: its held-out residuals, whole architectures left out of the fit.

``python -m tests.benchmarks.element_types nvidia-h200 nvidia-h200-awaited`` prints median, mean and 90th percentile of the
error of the model that each profile prefers (``--model mlp``: of another), for each type that operators compute in, and of the
kinds that have most of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd

from cost_models.correlation import signature
from cost_models.model import OWN
from cost_models.profile import Profile
from cost_models.profile_files import folder_of
from cost_models.table import FEATURES, load
from simulator.errors import InvalidInput

KINDS = 6
"""With most operators."""


def errors(name: str, model: str = OWN) -> pd.DataFrame:
    """``dtype``, ``kind`` and ``error`` (predicted over measured, minus one, absolute) of each held-out operator.

    Args:
        name: of the profile.
        model: of its cost models; ``default`` for the one that it prefers.

    Raises:
        InvalidInput: the profile has no table, or no residuals of that model.
    """
    folder = folder_of(name)
    if not (folder / "measurements.parquet").is_file():
        raise InvalidInput(f"Profile '{name}' has no table of measurements")
    table = load(folder / "measurements.parquet")
    numbers = [signature(row) for row in zip(*(table[c] for c in FEATURES), strict=True)]
    dtypes = dict(zip(numbers, table["dtype"], strict=True))
    rows = pd.read_parquet(folder / "residuals.parquet")
    model = Profile.load(name).model_name(model)
    if model not in rows:
        raise InvalidInput(f"Profile '{name}' keeps no residuals of '{model}'")
    return pd.DataFrame(
        {
            "dtype": rows["operator"].map(dtypes),
            "kind": rows["kind"],
            "error": np.abs(np.exp(-rows[model]) - 1),
        }
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.element_types")
    parser.add_argument("profiles", nargs="+")
    parser.add_argument("--model", default=OWN)
    chosen = parser.parse_args(arguments)
    for name in chosen.profiles:
        try:
            found = errors(name, chosen.model)
        except InvalidInput as error:
            raise SystemExit(str(error)) from None
        kinds = found["kind"].value_counts().index[:KINDS].tolist()
        print(f"\n{name}: median / mean / p90 of the error, architectures held out")
        print(f"{'dtype':10} {'operators':>9}  " + "".join(f"{k:>24}" for k in ["all", *kinds]))
        for dtype, rows in found.groupby("dtype"):
            parts = [rows, *(rows[rows["kind"] == kind] for kind in kinds)]
            print(
                f"{dtype:10} {len(rows):9}  " + "".join(f"{_cell(p['error']):>24}" for p in parts)
            )


def _cell(error: pd.Series) -> str:
    if error.empty:
        return "-"
    return f"{error.median():.1%} / {error.mean():.1%} / {error.quantile(0.9):.1%}"


if __name__ == "__main__":
    main()
