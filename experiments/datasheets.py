"""The datasheet profiles in ``calibration/data``: published peaks, and how far kernels stay from them.

``python -m experiments.datasheets NEUSIGHT.parquet`` writes them again. Peaks are not reached, so a
datasheet profile predicts the roofline of published dense peaks times the share of it that kernels of
a kind typically reach on six GPUs, measured by the public data of NeuSight (Lee et
al. 2025, https://doi.org/10.1145/3669940.3707265; sitar-lab/NeuSight, MIT). How far kernels scatter
around that prediction there becomes the profile's residuals, so that intervals say it. It knows no
launch overhead (nobody published one, so it is 0) and no shape that runs badly.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.profile import Profile
from cost_models.profile_files import SHIPPED
from cost_models.roofline import Roofline
from cost_models.table import load
from cost_models.uncertainty import Residuals, residuals_by_kind

FLOOR = 1e-4
"""Seconds: shorter kernels of the data set mostly show its launch overhead of 25-50 us."""

PUBLISHED: dict[str, tuple[dict[str, float], float, str]] = {
    # FP32 outside tensor cores, FP16 and BF16 dense on tensor cores; bytes/s
    "tesla-t4": (
        {"float32": 8.1e12, "float16": 65e12},
        320e9,
        "NVIDIA T4 Tensor Core GPU datasheet (2019)",
    ),
    "nvidia-a100-pcie-40gb": (
        {"float32": 19.5e12, "float16": 312e12, "bfloat16": 312e12},
        1555e9,
        "NVIDIA A100 Tensor Core GPU datasheet (2020)",
    ),
    "nvidia-h200-sxm": (
        {"float32": 67e12, "float16": 989e12, "bfloat16": 989e12},
        4.8e12,
        "NVIDIA H200 Tensor Core GPU datasheet (2023); tensor figures without sparsity",
    ),
    "jetson-orin-nano-8gb": (
        {"float32": 1.28e12},
        68e9,
        "NVIDIA Jetson Orin Nano Series data sheet DS-11105-001 (2023): 1024 CUDA cores at 625 MHz, "
        "two operations a cycle; 128-bit LPDDR5",
    ),
}

# Peak FLOP/s (float32) and bytes/s of the GPUs that NeuSight measured.
_MEASURED_GPUS = {
    "tesla-p4": (5.5e12, 192e9),
    "tesla-p100-pcie-16gb": (9.3e12, 732e9),
    "tesla-v100-pcie-32gb": (14e12, 900e9),
    "tesla-t4": (8.1e12, 320e9),
    "nvidia-a100-pcie-40gb": (19.5e12, 1555e9),
    "nvidia-a100-80gb-pcie": (19.5e12, 1935e9),
}


def roofline_residuals(measurements: pd.DataFrame) -> dict[str, Residuals]:
    """Residuals of the published roofline by kind, a GPU being a group."""
    parts = []
    for device, rows in measurements.groupby("device"):
        peak, bandwidth = _MEASURED_GPUS[str(device)]
        rows = rows[rows["seconds"] > FLOOR].reset_index(drop=True)
        if device == "tesla-p4":
            # Its large shapes disagree threefold with the same card's other measurements.
            rows = rows[rows["kind"] != "linear"].reset_index(drop=True)
        predicted = Roofline({"float32": peak}, bandwidth).of_rows(rows)
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
    for name, (rates, bandwidth, source) in PUBLISHED.items():
        profile = Profile(
            name,
            "datasheet",
            Roofline(rates, bandwidth, efficiency=shares),
            dtypes=tuple(sorted(rates)),
        )
        notes = {
            "source": source,
            "launch_overhead": "not published; 0",
            "efficiency": "share of the published roofline that kernels above 100 us reach, median of "
            "six GPUs in NeuSight's public data; not measured on this device",
            "residuals": "the same kernels around that share",
        }
        found.append(replace(profile, residuals={"roofline": residuals}, provenance=notes))
    return found


if __name__ == "__main__":
    known = roofline_residuals(load(Path(sys.argv[1])))
    for made in profiles(known):
        print(made.save(SHIPPED / made.name))
