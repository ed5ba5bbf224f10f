"""The public profiles in ``calibration/data``: trees fitted to what others measured and published.

``python -m experiments.public_profiles FOLDER [--only NAME ...]`` writes them again from the measurement
tables of :mod:`calibration.public` in ``FOLDER``. A profile holds the trees, their held-out error and
residuals, those of some operators one by one (:data:`RESIDUALS`), and where the data come from; the rows
stay where they are. What the data do not cover (a kind, an element type) is priced by the fit across devices
(:mod:`cost_models.across_devices`), with its residuals, and counts as extrapolated. What the place in a table added to its times
(:mod:`calibration.drift`) is taken off before anything is fitted or held out; launches (:mod:`calibration.launches`) are in
what is fitted, as they were measured, and taken off prices.

``python -m experiments.datasheets`` comes first; ``--keep-fits`` then only completes the shipped trees with its fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calibration.drift import Drift, without_drift
from calibration.launches import host_launch, launches
from cost_models.across_devices import OnDevice, shipped
from cost_models.correlation import few_of_each_kind
from cost_models.device_spec import spec_of
from cost_models.evaluation import cross_validate
from cost_models.model import DEFAULT
from cost_models.profile import STAND_IN, Profile
from cost_models.profile_files import SHIPPED
from cost_models.roofline import Roofline
from cost_models.table import load
from cost_models.uncertainty import POOLED
from experiments.datasheets import (
    ATTENTION,
    GEMM,
    NEUSIGHT,
    PUBLISHED,
    roofline_residuals,
    typical_shares,
)
from simulator.errors import InvalidInput

OPTIONS: Mapping[str, Any] = {"max_depth": 7, "rounds": 300}
"""Smaller trees than those of a full fit, so that a profile stays near 1.5 MB."""
RESIDUALS = 10_000
"""Operators whose residuals are kept, as many of every kind: enough to know how far the errors of two GPUs
go together within 0.04, in 210 kB."""
SEED = 0
SOURCES: Mapping[str, tuple[str, str, str]] = {
    NEUSIGHT: (
        "sitar-lab/NeuSight @6945927, scripts/asplos/data/dataset/train/collect "
        "(Lee et al. 2025, https://doi.org/10.1145/3669940.3707265)",
        "MIT",
        "mean of the fastest 5 of 25 calls, launch overhead included",
    ),
    GEMM: (
        "ai-dynamo/aiconfigurator @095f58a, systems/data/*/gemm",
        "Apache-2.0",
        "as aiconfigurator's collector takes it",
    ),
    ATTENTION: (
        "ai-dynamo/aiconfigurator @095f58a, systems/data/*/attention",
        "Apache-2.0",
        "as aiconfigurator's collector takes it",
    ),
}
"""By file: source and commit, licence, statistic."""


@dataclass(frozen=True)
class Public:
    """What a profile is fitted to.

    Attributes:
        tables: files, and for each the device's name in it.
        versions: software of the measurements.
        note: what was left out, and why.
    """

    tables: Mapping[str, str]
    versions: Mapping[str, str]
    note: str = ""


_TORCH = {"torch": "2.1.0", "cuda": "12.1", "cudnn": "8902"}
_H200 = (
    "Attention is left out: the H200's rows of shared key heads are faster than its peak allows, and "
    "its others three times slower than the H100's."
)
PROFILES: Mapping[str, Public] = {
    "tesla-t4": Public({NEUSIGHT: "tesla-t4"}, _TORCH),
    "tesla-v100-pcie-32gb": Public({NEUSIGHT: "tesla-v100-pcie-32gb"}, _TORCH),
    "tesla-p100-pcie-16gb": Public({NEUSIGHT: "tesla-p100-pcie-16gb"}, _TORCH),
    "nvidia-a100-pcie-40gb": Public(
        {NEUSIGHT: "nvidia-a100-pcie-40gb"}, _TORCH, "Convolutions were measured on the 80 GB card only."
    ),
    "nvidia-h100-sxm": Public(
        {GEMM: "nvidia-h100-sxm", ATTENTION: "nvidia-h100-sxm"}, {"vllm": "0.19.0"}
    ),
    "nvidia-h200-sxm": Public({GEMM: "nvidia-h200-sxm"}, {"tensorrt-llm": "1.3.0rc20"}, _H200),
    "nvidia-a100-sxm": Public({GEMM: "nvidia-a100-sxm"}, {"vllm": "0.14.0"}),
}  # fmt: skip


def table_of(folder: Path, public: Public) -> pd.DataFrame:
    """Rows that a profile is fitted to.

    Raises:
        InvalidInput: a table is missing or has no rows of the device.
    """
    parts = []
    for name, device in public.tables.items():
        table = load(folder / f"{name}.parquet")
        rows = table[table["device"] == device]
        if not len(rows):
            raise InvalidInput(f"{folder / f'{name}.parquet'} has no rows of '{device}'")
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)


def _told(drifts: Mapping[tuple[str, str], Drift]) -> str:
    """How much was taken off."""
    return "; ".join(
        f"{kind}: taken off what the place in the table added, at the start, every fifth and the end "
        f"{', '.join(f'{1e6 * s:.0f}' for s in drift.seconds)} us"
        for (_, kind), drift in drifts.items()
    )


def made(name: str, folder: Path, shares: Mapping[str, float]) -> Profile:
    """One of :data:`PROFILES`.

    Args:
        name: of the profile.
        folder: of the measurement tables.
        shares: of a published roofline that kinds typically reach, for what was not measured.
    """
    public, spec = PROFILES[name], spec_of(name)
    rows, drifts = without_drift(table_of(folder, public))
    overhead = float(rows["seconds"].min())
    roofline = replace(Roofline.published(spec, overhead), efficiency=dict(shares))
    options = {DEFAULT: {**OPTIONS, "device": spec}}
    errors = cross_validate(
        rows,
        roofline,
        None,
        seed=SEED,
        options=options,
        show=lambda line: print(f"{name}: {line}", file=sys.stderr),
    )
    sources, licences, statistics = zip(*(SOURCES[t] for t in public.tables), strict=True)
    profile = Profile.fitted(
        name,
        rows,
        roofline=roofline,
        label="public",
        errors=errors,
        seed=SEED,
        options=options,
        versions=dict(public.versions),
        capacity_bytes=spec.memory_bytes,
        provenance={
            "source": "; ".join(sources),
            "licence": ", ".join(sorted(set(licences))),
            "peaks": spec.source,
            "rows": len(rows),
            "kinds": {str(k): int(n) for k, n in rows["kind"].value_counts().items()},
            "dtypes": sorted(rows["dtype"].unique()),
            "held_out": "folds of whole shapes: (n, k) of a matrix product, the length of attention",
            **({"note": public.note} if public.note else {}),
            **({"drift": _told(drifts)} if drifts else {}),
        },
    )
    residuals = profile.residual_rows
    assert residuals is not None  # held out above
    few = few_of_each_kind(residuals, RESIDUALS // rows["kind"].nunique())
    return replace(
        profile, table=None, held_out_rows=few, statistic=" / ".join(sorted(set(statistics)))
    )


def completed(profile: Profile, launch: Mapping[str, float]) -> Profile:
    """A profile with its launches, and with the fit across devices for what was not measured.

    Args:
        profile: of :data:`PROFILES`.
        launch: by kind, the seconds that are in its times.
    """
    residuals = {k: r for k, r in profile.residuals[DEFAULT].items() if k in profile.spread}
    unseen = Profile.load(PUBLISHED[0]).residuals[STAND_IN]
    # Of a kind that was measured too little its own common error counts, of one that was not the fit's.
    own = {**unseen, **dict.fromkeys(profile.spread, profile.residuals[DEFAULT][POOLED])}
    return replace(
        profile,
        models={
            DEFAULT: profile.models[DEFAULT],
            STAND_IN: OnDevice(shipped()[0], spec_of(profile.name)),
        },
        residuals={**profile.residuals, DEFAULT: {**own, **residuals}, STAND_IN: unseen},
        launch_overhead_s=host_launch(),
        launch_in_times=launch,
        provenance={
            **profile.provenance,
            "not_covered": "another kind or element type takes the fit across devices and counts as extrapolated",
            "launch": "the profile's prices are of kernels: launches are taken off, and a cluster adds those of one "
            "host to every operator",
        },
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0, or 2 where a table is missing."""
    parser = argparse.ArgumentParser(prog="python -m experiments.public_profiles")
    parser.add_argument("folder", type=Path, help="of the measurement tables")
    parser.add_argument("--only", nargs="+", choices=list(PROFILES), default=list(PROFILES))
    parser.add_argument("--keep-fits", action="store_true", help="of the shipped profiles")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="default: calibration/data")
    chosen = parser.parse_args(arguments)
    try:
        neusight = load(chosen.folder / f"{NEUSIGHT}.parquet")
        shares = typical_shares(roofline_residuals(neusight))
        launch = launches(without_drift(neusight)[0])
        for name in chosen.only:
            profile = Profile.load(name) if chosen.keep_fits else made(name, chosen.folder, shares)
            profile = completed(profile, launch.get(name, {}))
            for kind, error in profile.held_out[DEFAULT]["fold"].items():
                figures = (error["median"], error["mean"], error["p90"])
                text = " / ".join(f"{100 * (v or np.nan):.1f}" for v in figures)
                print(f"{name:24} {kind:30} {int(error['rows'] or 0):6} {text}%")
            print(profile.save(chosen.out / name), flush=True)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
