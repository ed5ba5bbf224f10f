"""The datasheet profiles in ``calibration/data``: published peaks, and how far kernels stay from them.

``python -m experiments.datasheets NEUSIGHT.parquet`` writes them again. Peaks are not reached, so a
datasheet profile predicts the roofline of published dense peaks times the share of it that kernels of
a kind typically reach on six GPUs, measured by the public data of NeuSight (Lee et
al. 2025, https://doi.org/10.1145/3669940.3707265; sitar-lab/NeuSight, MIT), without what the place in
its table added to a time (:mod:`calibration.drift`). How far kernels scatter around that prediction
there becomes the profile's residuals, so that intervals say it. It knows no launch overhead (nobody
published one, so it is 0) and no shape that runs badly.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.drift import without_drift
from cost_models.device_spec import spec_of
from cost_models.profile import Profile
from cost_models.profile_files import SHIPPED
from cost_models.roofline import Roofline
from cost_models.table import load
from cost_models.uncertainty import Residuals, residuals_by_kind

FLOOR = 1e-4
"""Seconds: shorter kernels of the data set mostly show its launch overhead of 25-50 us."""

PUBLISHED = (
    "tesla-p4",
    "tesla-v100-sxm2-32gb",
    "nvidia-a100-80gb-pcie",
    "nvidia-h100-pcie",
    "nvidia-l4",
    "nvidia-l40s",
    "nvidia-a10",
    "rtx-a6000",
    "geforce-rtx-3090",
    "geforce-rtx-4090",
    "jetson-orin-nano-8gb",
    "jetson-agx-orin-64gb",
)
"""Devices of :data:`cost_models.device_spec.SPECS` of which there is no better profile."""


def roofline_residuals(measurements: pd.DataFrame) -> dict[str, Residuals]:
    """Residuals of the published roofline by kind, a GPU being a group.

    Args:
        measurements: a valid table as published; what the place in it added to times is taken off
            here (:mod:`calibration.drift`).
    """
    measurements, _ = without_drift(measurements)
    parts = []
    for device, rows in measurements.groupby("device"):
        spec = spec_of(str(device))
        rows = rows[rows["seconds"] > FLOOR].reset_index(drop=True)
        if device == "tesla-p4":
            # Its large shapes disagree threefold with the same card's other measurements.
            rows = rows[rows["kind"] != "linear"].reset_index(drop=True)
        predicted = Roofline.published(spec).of_rows(rows)
        parts.append(
            pd.DataFrame(
                {
                    "kind": rows["kind"],
                    "group": str(device),
                    "log_residual": np.log(rows["seconds"] / predicted),
                }
            )
        )
    errors = pd.concat(parts, ignore_index=True)
    return residuals_by_kind(errors, errors)


def typical_shares(residuals: dict[str, Residuals]) -> dict[str, float]:
    """By kind the share of the published roofline that the median GPU's kernels reach, at most 1."""
    return {
        kind: round(min(1.0, float(np.exp(-np.median(known.biases)))), 3)
        for kind, known in residuals.items()
    }


def profiles(bare: dict[str, Residuals]) -> list[Profile]:
    """The profiles, all with the same shares and residuals.

    Args:
        bare: residuals of the published roofline itself.
    """
    found = []
    shares = typical_shares(bare)
    residuals = {
        kind: replace(
            known,
            biases=tuple(round(bias + float(np.log(shares[kind])), 5) for bias in known.biases),
        )
        for kind, known in bare.items()
    }
    for name in PUBLISHED:
        spec = spec_of(name)
        profile = Profile(
            name,
            "datasheet",
            replace(Roofline.published(spec), efficiency=shares),
            capacity_bytes=spec.memory_bytes,
            dtypes=tuple(sorted(spec.flops_per_s)),
        )
        notes = {
            "source": spec.source,
            "launch_overhead": "not published; 0",
            "efficiency": "share of the published roofline that kernels above 100 us reach, median of "
            "six GPUs in NeuSight's public data, convolutions without their drift; not measured on "
            "this device",
            "residuals": "the same kernels around that share",
        }
        found.append(replace(profile, residuals={"roofline": residuals}, provenance=notes))
    return found


if __name__ == "__main__":
    known = roofline_residuals(load(Path(sys.argv[1])))
    for made in profiles(known):
        print(made.save(SHIPPED / made.name))
