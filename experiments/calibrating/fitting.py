"""The fitting step of a calibration: what was measured becomes a table, a profile and a report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from experiments.calibrating.settings import CalibrateConfig
from experiments.runs.pool import available_cores
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from cost_models.profile import Profile
    from cost_models.roofline import Roofline

BOOSTERS = 3
"""Boosters that are averaged: somewhat fewer large errors than of one, for three times the bytes."""

FEW_ROWS = 1000
"""Of a table whose models are fitted before other processes would have started."""


def roofline_of(raw: Path) -> Roofline:
    """The measured peaks of a folder."""
    from calibration import summary
    from calibration.folder import plan_of
    from cost_models.roofline import Roofline

    # A call that runs its kernel three times reaches a third of the rates of this machine.
    times = plan_of(raw).repeat_kernel
    peaks = summary.peaks(raw)
    rates = {dtype: rate / times for dtype, rate in peaks["flops_per_s"].items()}
    bandwidth = peaks["bandwidth_bytes_per_s"] / times
    return Roofline(rates, bandwidth, peaks["call_overhead_s"] * times)


@dataclass(frozen=True)
class Measured:
    """What a profile is fitted to, and what else was measured.

    Attributes:
        table: the measurement table.
        drift: the reference operator over time; no rows where that was not kept.
        described: fields of :class:`Profile` that are no fit: roofline, transfers, versions, ...
    """

    table: pd.DataFrame
    drift: pd.DataFrame
    described: Mapping[str, Any]


def priced_state(asked: str | None, measured: Sequence[str]) -> str:
    """The state of the caches that a profile of these prices.

    Raises:
        InvalidInput: it was not measured.
    """
    if asked is None:
        return "graph" if "graph" in measured else measured[0]
    if asked not in measured:
        raise InvalidInput(
            f"cache={asked} is none of the states that are measured, {', '.join(measured)}; measure it in a new "
            f"folder: 'states=\"{','.join([*measured, asked])}\"'"
        )
    return asked


def measured_in(config: CalibrateConfig, folder: Path) -> Measured:
    """The samples of a folder.

    Raises:
        InvalidInput: the folder holds no samples, or none in the state that is asked for.
    """
    from calibration import summary
    from calibration.folder import plan_of
    from calibration.timing import AWAITED
    from cost_models import table as tables

    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    plan = plan_of(raw)
    table = tables.load(summary.measurement_table(raw, config.statistic))
    peaks = summary.peaks(raw)
    roofline = roofline_of(raw)
    cache = priced_state(config.cache, plan.states)
    # What is awaited has its launch in it.
    launches = [row["seconds"] for row in peaks["transfers"] if row["way"] == "launch"]
    if cache == AWAITED:
        launches = []
    described = {
        "name": config.name or plan.name,
        "roofline": roofline,
        "cache": cache,
        "transfers": peaks["transfers"],
        "allocation": peaks["allocation"],
        "corun": summary.corun(raw),
        "reuse": summary.reuse(raw),
        "context": summary.context(raw, config.statistic) if cache == "graph" else None,
        "capacity_bytes": peaks["capacity_bytes"],
        "cache_bytes": peaks["cache_bytes"],
        "launch_overhead_s": launches[0] if launches else 0.0,
        "deviations": summary.deviations(raw, cache, config.statistic),
        "versions": json.loads(table["versions"].iloc[0]),
        "provenance": provenance(raw),
    }
    return Measured(table, summary.drift(raw), described)


def measured_for(base: str, name: str | None, cache: str | None = None) -> Measured:
    """The measurements of a profile that is there already.

    Raises:
        InvalidInput: there is no such profile, it comes without them, or it prices another state than ``cache``.
    """
    from cost_models.profile import Profile

    profile = Profile.load(base)
    table = profile.measurements
    if table is None:
        raise InvalidInput(
            f"Profile '{profile.name}' comes without the measurements that it was fitted to, so it "
            "cannot be fitted again"
        )
    own = profile.cache or "graph"
    if cache not in (None, own):
        raise InvalidInput(
            f"Profile '{profile.name}' prices state '{own}' and is fitted again for that; one of '{cache}' is "
            "made from the folder of its samples: step=fit out=FOLDER"
        )
    kept = ["label", "roofline", "transfers", "launch_overhead_s", "deviations", "allocation"]
    kept += ["corun", "reuse", "context", "capacity_bytes", "cache_bytes", "versions", "provenance"]
    described = {key: getattr(profile, key) for key in kept}
    described |= {"name": name or profile.name, "cache": own}
    return Measured(table, pd.DataFrame(), described)


def measured_by(config: CalibrateConfig, folder: Path) -> Measured:
    """What a profile is to be fitted to: of ``config.base`` where one is named, else the samples of ``folder``.

    Raises:
        InvalidInput: they are not there, or not of the state that is asked for.
    """
    if config.base is not None:
        return measured_for(config.base, config.name, config.cache)
    return measured_in(config, folder)


def fit_step(
    config: CalibrateConfig, folder: Path, measured: Measured, show: Callable[[str], None]
) -> Profile:
    """Fit and evaluate the profile of what was measured; leaves table, profile and report in ``folder``."""
    from cost_models import table as tables
    from cost_models.evaluation import cross_validate
    from cost_models.profile import Profile
    from experiments.calibrating.report import write_report

    table, described = measured.table, dict(measured.described)
    folder.mkdir(parents=True, exist_ok=True)
    tables.write(table, folder / "measurements.parquet")
    models = list(config.models)
    options: dict[str, dict[str, Any]] = {"boosted": {"members": BOOSTERS}}
    if config.start is not None:
        models = list(dict.fromkeys(["adapted", *models]))
        options["adapted"] = {"base": config.start}
    show(f"fitting {len(table)} rows, holding out architectures and folds")
    errors = cross_validate(
        table,
        described["roofline"],
        described["cache"] if "cache" in table else None,
        models,
        seed=config.seed,
        options=options,
        workers=available_cores() if len(table) > FEW_ROWS else 1,
        show=show,
    )
    profile = Profile.fitted(
        described.pop("name"),
        table,
        errors=errors,
        models=models,
        seed=config.seed,
        options=options,
        show=show,
        **described,
    )
    profile.save(folder / "profile")
    learning = None
    if config.start is not None:
        learning = learned(config, profile, show)
    write_report(folder, profile, errors, measured.drift, learning)
    return profile


def throttled(raw: Path) -> str:
    """What held a GPU's clocks back, and the share of samples taken meanwhile: ``power cap 3.1%``."""
    from calibration import summary
    from calibration.folder import read_raw

    rows = summary.throttling(raw)
    samples = read_raw(raw).num_rows
    shares = (rows.groupby("reason")["samples"].sum() / max(samples, 1)).sort_values(
        ascending=False
    )
    return ", ".join(f"{reason} {share:.1%}" for reason, share in shares.items()) or "never"


def learned(config: CalibrateConfig, profile: Profile, show: Callable[[str], None]) -> pd.DataFrame:
    """How the error falls with the number of measurements, from ``config.start`` and from nothing."""
    from cost_models.learning_curve import learning_curve
    from cost_models.profile import Profile

    table = profile.measurements
    assert table is not None
    if profile.cache is not None:
        table = table[table["cache"] == profile.cache].reset_index(drop=True)
    start = Profile.load(str(config.start))
    return learning_curve(table, start, profile.roofline, seed=config.seed, show=show)


def provenance(raw: Path) -> dict[str, Any]:
    """Where, when and how long was measured."""
    from calibration.folder import plan_of, process_records, read_raw
    from calibration.summary import reference_seconds, reference_spread

    records = process_records(raw)
    plan = plan_of(raw)
    timed = [r["finished"] - r["started"] for r in records if "finished" in r]
    return {
        "processor": records[0].get("gpu", records[0]["processor"]) if records else "",
        "date": time.strftime("%Y-%m-%d", time.gmtime(records[0]["started"])) if records else "",
        "minutes": round(sum(timed) / 60, 1),
        "processes": len(records),
        "samples": len(read_raw(raw)),
        "reference_s": reference_seconds(raw),
        "reference_spread": reference_spread(raw),
        "threads": plan.threads,
        "repeat_kernel": plan.repeat_kernel,
        "states": list(plan.states),
        "protocol": plan.protocol,
        "throttled": throttled(raw),
        "steady_allocator": all(r.get("steady_allocator", False) for r in records),
        "flush_denormal": all(r.get("flush_denormal", False) for r in records),
    }
