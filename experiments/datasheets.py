"""The datasheet profiles in ``calibration/data``, and the fit across devices that they price with.

``python -m experiments.datasheets FOLDER`` writes them again from the public tables in ``FOLDER``
(:mod:`calibration.public` makes them) and from the measurements of ``nvidia-h200``. ``across_devices.json.gz`` holds what the six
families of GPUs that somebody measured have in common (:mod:`cost_models.across_devices`), times of kernels without launches
(:mod:`calibration.launches`); a datasheet profile asks it about its own data sheet. Kinds that no public set has (pools, batch
normalisation, depthwise convolutions, ...) come from the H200 alone.

Residuals are those of GPUs that were left out of the fit, a whole family at a time, so that intervals say how far such a
fit carries. The roofline of published peaks times the share that kernels of a kind typically reach on NeuSight's GPUs stands beside it
(``cost_model=roofline``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from calibration.drift import without_drift
from calibration.launches import MEASURED, host_launch, kernel_times
from cost_models.across_devices import AcrossDevices, OnDevice, shipped
from cost_models.device_spec import spec_of
from cost_models.evaluation import relative_errors, summary
from cost_models.profile import STAND_IN, Profile, rounded
from cost_models.profile_files import SHIPPED
from cost_models.roofline import Roofline
from cost_models.table import load
from cost_models.uncertainty import Residuals, residuals_by_kind
from simulator.errors import InvalidInput

FLOOR = 1e-4
"""Seconds: shorter kernels of the data set mostly show its launch overhead of 25-50 us."""
NEUSIGHT, GEMM, ATTENTION = "neusight_gpus", "gemm_bf16_gpus", "attention_bf16_gpus"
ROWS: Mapping[str, int] = {NEUSIGHT: 1_000, GEMM: 2_000, ATTENTION: 1_500}
"""Rows of a kind on a device, drawn by chance, that the fit sees: more make it larger and no better."""
BAD = (("tesla-p4", "linear"), ("nvidia-h200-sxm", "scaled_dot_product_attention"))
"""Devices and kinds whose public measurements contradict the others or the device's peak."""
OURS = "nvidia-h200-sxm"
"""The data sheet of the GPU that this project measured."""
SEEN = 25e-6
"""Seconds: no table but that of the H200 tells of shorter kernels, so that a fit without it cannot be held against them."""
FLOATING = ("float32", "float16", "bfloat16")
FAMILIES: tuple[tuple[str, ...], ...] = (
    ("tesla-p4",),
    ("tesla-p100-pcie-16gb",),
    ("tesla-v100-pcie-32gb",),
    ("tesla-t4",),
    ("nvidia-a100-pcie-40gb", "nvidia-a100-80gb-pcie", "nvidia-a100-sxm"),
    ("nvidia-h100-sxm", "nvidia-h200-sxm"),
)
"""Devices that are left out together, being the same chip."""
SEED = 0

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
    "geforce-rtx-5090",
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


def measured(folder: Path) -> pd.DataFrame:
    """Times of kernels of all GPUs that somebody measured, what the fit across devices sees of them.

    Raises:
        InvalidInput: a table is missing.
    """
    parts = []
    for name, most in ROWS.items():
        rows, _ = without_drift(load(folder / f"{name}.parquet"))
        rows = kernel_times(rows)
        bad = [pair in BAD for pair in zip(rows["device"], rows["kind"], strict=True)]
        rows = rows[~np.array(bad)].sample(frac=1.0, random_state=SEED)
        rank = rows.groupby(["device", "kind"]).cumcount()
        parts.append(rows[rank < most].sort_index())
    own = Profile.load(MEASURED)
    table = own.measurements
    assert table is not None  # it comes with the project
    chosen = (table["cache"] == own.cache) & table["dtype"].isin(FLOATING)
    parts.append(table[chosen].assign(device=OURS))
    columns = ["device", "kind", "dtype", "inputs", "outputs", "attributes", "seconds", "source"]
    return pd.concat([part[columns] for part in parts], ignore_index=True)


def left_out(
    table: pd.DataFrame, show: Callable[[str], None] = lambda line: None
) -> Iterator[pd.DataFrame]:
    """Errors on each family of GPUs, predicted by a fit to the others.

    Args:
        table: of :func:`measured`.
        show: called with a line of progress.
    """
    for family in FAMILIES:
        own = table["device"].isin(family).to_numpy()
        if not own.any() or own.all():
            continue
        across = AcrossDevices.fitted(table[~own].reset_index(drop=True), seed=SEED)
        for device in family:
            told = (table["source"] != "hetsim.calibration") | (table["seconds"] > SEEN)
            at = np.flatnonzero((table["device"] == device) & told)
            if len(at):
                rows = table.iloc[at].reset_index(drop=True)
                predicted = across.of(spec_of(device)).predict(
                    rows.drop(columns=["device", "seconds", "source"])
                )
                found = pd.DataFrame({"row": at, "group": device, "predicted": predicted})
                errors = relative_errors(table, found)
                show(
                    f"{device} left out: mean error {errors['error'].mean():.1%} of {len(at)} kernels"
                )
                yield errors


def profiles(
    bare: Mapping[str, Residuals], errors: pd.DataFrame, table: pd.DataFrame, fit: AcrossDevices
) -> list[Profile]:
    """The profiles, all with the same shares and residuals.

    Args:
        bare: residuals of the published roofline itself.
        errors: of :func:`left_out`.
        table: of :func:`measured`.
        fit: to all of it.
    """
    found = []
    shares = typical_shares(dict(bare))
    around = {
        kind: replace(
            known,
            biases=tuple(round(bias + float(np.log(shares[kind])), 5) for bias in known.biases),
        )
        for kind, known in bare.items()
    }
    # A kind that fewer families have has the residuals of all kinds.
    across = residuals_by_kind(errors, errors[:0])
    known = errors[errors["kind"].isin(list(across))]
    residuals = {STAND_IN: across, "roofline": around}
    held_out = {STAND_IN: {"device": rounded(summary(table, known))}}
    launch = host_launch()
    for name in PUBLISHED:
        spec = spec_of(name)
        notes = {
            "source": spec.source,
            "launch_overhead": f"of the host of {MEASURED}, the one that was measured",
            "models": "fitted to six families of other GPUs: NeuSight's float32 kernels, aiconfigurator's bfloat16 "
            f"products and attention, and {MEASURED}; not measured on this device",
            "residuals": "of families of GPUs left out of that fit",
            "efficiency": "of the roofline: the share of published rates that kernels above 100 us reach, median of "
            "six GPUs in NeuSight's public data, convolutions without their drift",
        }
        found.append(
            Profile(
                name,
                "datasheet",
                replace(Roofline.published(spec), efficiency=shares),
                models={STAND_IN: OnDevice(fit, spec)},
                default=STAND_IN,
                held_out=held_out,
                residuals=residuals,
                launch_overhead_s=launch,
                capacity_bytes=spec.memory_bytes,
                dtypes=tuple(sorted(spec.flops_per_s)),
                provenance=notes,
            )
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0, or 2 where a table is missing."""
    parser = argparse.ArgumentParser(prog="python -m experiments.datasheets")
    parser.add_argument("folder", type=Path, help="of the public measurement tables")
    folder = parser.parse_args(arguments).folder
    try:
        bare = roofline_residuals(load(folder / f"{NEUSIGHT}.parquet"))
        table = measured(folder)
        parts = left_out(table, lambda line: print(line, file=sys.stderr, flush=True))
        errors = pd.concat(list(parts), ignore_index=True)
        fit = AcrossDevices.fitted(table, seed=SEED)
        print(fit.save())
        shipped.cache_clear()
        for made in profiles(bare, errors, table, fit):
            print(made.save(SHIPPED / made.name))
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
