"""Raw samples to a measurement table.

The 10th percentile over all rounds and processes repeats best between measurements, and unlike the
minimum it does not fall with their number; the minimum and the median are kept beside it. The same statistic over even and over odd processes gives the A/A error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from calibration.environment import throttled_by
from calibration.folder import (
    CORUN_FILE,
    REFERENCE,
    REUSE_FILE,
    plan_of,
    process_records,
    read_raw,
    read_record,
)
from calibration.reuse import taken
from calibration.samples import OperatorSample, read_samples
from cost_models.table import row_of
from simulator.errors import InvalidInput
from simulator.model.weight_hit_curve import ReuseCurve

if TYPE_CHECKING:
    from cost_models.context import Context

STATISTICS = {"minimum": 0.0, "p10": 0.1, "median": 0.5}
SOURCE = "hetsim.calibration"
DRIFT = 0.03
"""What the reference operator's time must differ by in a process before its samples are corrected for
it: below, the correction adds more noise than it takes off (A/A error 2.06 against 1.96%, of 7,951
operators in nine processes of a quiet night)."""
EQUALLY_LIKELY = 50
"""Values that stand for the calls of a kind: enough to hold one call in a hundred."""


def measurement_table(folder: str | Path, statistic: str = "p10") -> pd.DataFrame:
    """The measurement table (:mod:`cost_models.table`) of a folder of raw samples.

    Args:
        folder: what :func:`calibration.measure.measure` left.
        statistic: ``minimum``, ``p10`` or ``median``: what ``seconds`` holds.

    Raises:
        InvalidInput: no samples, or an unknown statistic.
    """
    if statistic not in STATISTICS:
        raise InvalidInput(f"No statistic '{statistic}'; known: {', '.join(STATISTICS)}")
    folder = Path(folder)
    plan = plan_of(folder)
    operators = read_samples(folder / "operators.json")
    raw = steady(read_raw(folder).to_pandas())
    raw = raw[raw["operator"] != REFERENCE]
    if not len(raw):
        raise InvalidInput(f"{folder} holds samples of the reference operator only; measure longer")
    raw["log"] = np.log(raw["seconds"])
    keys = ["operator", "cache"]
    groups = raw.groupby(keys, sort=True)
    quantile = STATISTICS[statistic]
    table = pd.DataFrame(
        {
            "seconds": groups["seconds"].quantile(quantile),
            "minimum_s": groups["seconds"].min(),
            "p10_s": groups["seconds"].quantile(0.1),
            "median_s": groups["seconds"].median(),
            # Half the distance of the 16th and the 84th percentile: a standard deviation that a
            # few interrupted calls do not decide.
            "spread": (groups["log"].quantile(0.84) - groups["log"].quantile(0.16)) / 2,
            "repeats": groups.size(),
            "host_seconds": groups["host_seconds"].quantile(quantile),
        }
    )
    for half, name in ((0, "half_a_s"), (1, "half_b_s")):
        part = raw[raw["process"] % 2 == half].groupby(keys)["seconds"].quantile(quantile)
        table[name] = part.reindex(table.index)
    table = table.reset_index()
    features = [_features(operators[index]) for index in table.pop("operator")]
    versions = [record["versions"] for record in process_records(folder)]
    constant: dict[str, str | int] = {
        "device": plan.name,
        "source": SOURCE,
        "statistic": statistic,
        "threads": plan.threads,
        "versions": json.dumps(versions[-1] if versions else {}, sort_keys=True),
    }
    joined = pd.concat([pd.DataFrame(features), table], axis=1)
    for column, value in constant.items():
        joined[column] = value
    return joined


def deviations(
    folder: str | Path, cache: str, statistic: str = "p10"
) -> dict[str, tuple[float, ...]]:
    """How single calls differ from what is taken for their operator's time.

    Returns:
        For each kind :data:`EQUALLY_LIKELY` values of log(call / its operator's statistic), each as
        likely as the others: quantiles over all calls of the kind. ``*`` is all kinds together.

    Raises:
        InvalidInput: no samples in that cache state, or an unknown statistic.
    """
    if statistic not in STATISTICS:
        raise InvalidInput(f"No statistic '{statistic}'; known: {', '.join(STATISTICS)}")
    folder = Path(folder)
    operators = read_samples(folder / "operators.json")
    raw = steady(read_raw(folder).to_pandas())
    raw = raw[(raw["operator"] != REFERENCE) & (raw["cache"] == cache)]
    if not len(raw):
        raise InvalidInput(f"{folder} holds no samples in cache state '{cache}'")
    logs = np.log(raw["seconds"])
    base = np.log(raw.groupby("operator")["seconds"].quantile(STATISTICS[statistic]))
    logs -= base.loc[raw["operator"]].to_numpy()
    kinds = raw["operator"].map({i: o.operator.kind for i, o in enumerate(operators)})
    at = (np.arange(EQUALLY_LIKELY) + 0.5) / EQUALLY_LIKELY
    groups = [("*", logs), *logs.groupby(kinds, sort=True)]
    return {
        str(kind): tuple(round(float(v), 4) for v in np.quantile(values, at))
        for kind, values in groups
    }


def _features(sample: OperatorSample) -> dict[str, Any]:
    row = {**row_of(sample.operator), "architectures": list(sample.architectures)}
    return {**row, "dtype": "tf32"} if sample.tf32 else row


def steady(raw: pd.DataFrame) -> pd.DataFrame:
    """Raw samples as if the machine had been equally fast in every process.

    Where the reference operator's 10th percentile in a process differs from the median process's by more
    than :data:`DRIFT`, all of that process's times are divided by the ratio.
    """
    slowness = _slowness(raw)
    ratio = raw["process"].map(slowness[(slowness - 1).abs() > DRIFT]).fillna(1.0)
    on_host = raw["host_seconds"] == raw["seconds"]  # a GPU's clock says nothing of its host
    return raw.assign(
        seconds=raw["seconds"] / ratio,
        host_seconds=(raw["host_seconds"] / ratio).where(on_host, raw["host_seconds"]),
    )


def _slowness(raw: pd.DataFrame) -> pd.Series:
    """By process, how slow the reference operator was in it; the median process has 1."""
    reference = raw[raw["operator"] == REFERENCE]
    states = reference["cache"]
    first = "graph" if (states == "graph").any() else states.min()
    seconds = reference[reference["cache"] == first].groupby("process")["seconds"].quantile(0.1)
    return seconds / seconds.median()


def reference_seconds(folder: str | Path, cache: str = "graph") -> float | None:
    """What the reference operator took in the median process (10th percentile), to be held against
    another day's; None where it was not measured in that cache state.
    """
    seconds = _references(folder, cache)
    return float(seconds.median()) if len(seconds) else None


def reference_spread(folder: str | Path, cache: str = "graph") -> float:
    """Standard deviation of log seconds of the reference operator (10th percentile) between processes:
    how much the machine's speed changes from one quarter of an hour to the next; 0 of one process.
    """
    seconds = _references(folder, cache)
    return round(float(np.log(seconds).std(ddof=1)), 4) if len(seconds) > 1 else 0.0


def _references(folder: str | Path, cache: str) -> pd.Series:
    """The reference operator's 10th percentile by process."""
    raw = read_raw(folder).to_pandas()
    reference = raw[(raw["operator"] == REFERENCE) & (raw["cache"] == cache)]
    return reference.groupby("process")["seconds"].quantile(0.1)


def drift(folder: str | Path) -> pd.DataFrame:
    """The reference operator over time: ``timestamp``, ``process``, ``cache``, ``seconds``."""
    raw = read_raw(folder).to_pandas()
    reference = raw[raw["operator"] == REFERENCE]
    return reference[["timestamp", "process", "cache", "seconds"]].reset_index(drop=True)


def throttling(folder: str | Path) -> pd.DataFrame:
    """When a GPU's clocks were held back, and the samples that were taken meanwhile.

    A reading speaks for the time until the next one.

    Returns:
        A row for each process and reason: ``process``, ``reason``, ``seconds``, ``samples`` (the
        reference operator's aside) and ``share`` of the process's samples.
    """
    raw = read_raw(folder).to_pandas()
    raw = raw[raw["operator"] != REFERENCE]
    rows = []
    for record in process_records(folder):
        readings = record.get("clocks", [])
        if not readings or not isinstance(readings, list):  # a CPU's; an older release's, of one
            continue
        stamps = raw.loc[raw["process"] == record["process"], "timestamp"].to_numpy()
        ends = [*(reading["timestamp"] for reading in readings[1:]), np.inf]
        held: dict[str, tuple[float, int]] = {}
        for reading, end in zip(readings, ends, strict=True):
            start = reading["timestamp"]
            inside = stamps[(stamps >= start) & (stamps < end)]
            last = end if np.isfinite(end) else max([start, *inside[-1:]])
            for reason in throttled_by(reading):
                seconds, samples = held.get(reason, (0.0, 0))
                held[reason] = seconds + last - start, samples + len(inside)
        rows += [
            (record["process"], reason, seconds, samples, samples / max(len(stamps), 1))
            for reason, (seconds, samples) in held.items()
        ]
    return pd.DataFrame(rows, columns=["process", "reason", "seconds", "samples", "share"])


def corun(folder: str | Path) -> dict[str, Any]:
    """The cost of co-running (:func:`calibration.interference.summary`); empty where it was not measured."""
    path = Path(folder) / CORUN_FILE
    found: dict[str, Any] = read_record(path) if path.exists() else {}
    return found


def reuse(folder: str | Path) -> ReuseCurve | None:
    """What the cache keeps between two uses of weights; None where it was not measured."""
    path = Path(folder) / REUSE_FILE
    found = read_record(path) if path.exists() else {}
    if not found:
        return None
    distances, kept = zip(*found["curve"], strict=True)
    # Anew from the uses: releases before told them not apart.
    return ReuseCurve(distances, kept, tuple(taken(np.array(found.get("uses", ())))))


def context(folder: str | Path, statistic: str) -> Context | None:
    """How much longer operators take in networks; None where nobody measured that (:mod:`calibration.networks`)."""
    found = [record["networks"] for record in process_records(folder) if "networks" in record]
    if not found:
        return None
    from calibration.networks import networks
    from cost_models.context import Context
    from cost_models.profile import row_keys

    graphs = [graph for graph in networks() if all(graph.name in one for one in found)]
    placed = [np.concatenate([one[graph.name]["placed"] for one in found]) for graph in graphs]
    quantile = STATISTICS[statistic]
    visited = [
        np.array(
            [
                np.quantile(
                    np.concatenate([one[graph.name]["visited"][i] for one in found]), quantile
                )
                for i in range(len(graph))
            ]
        )
        for graph in graphs
    ]
    return Context.fitted([row_keys(g.operators) for g in graphs], placed, visited, quantile)


def peaks(folder: str | Path) -> dict[str, Any]:
    """The best peaks that any process measured, and the fastest transfers and allocations.

    ``capacity_bytes`` and ``cache_bytes`` are the smallest that a process found, None if none looked.
    """
    records = [record for record in process_records(folder) if "peaks" in record]
    if not records:
        raise InvalidInput(f"{folder} holds no measured peaks; measure into it first")
    rates: dict[str, float] = {}
    transfers: dict[tuple[str, int], float] = {}
    allocation: dict[tuple[str, int], float] = {}
    for record in records:
        for dtype, rate in record["peaks"]["flops_per_s"].items():
            rates[dtype] = max(rates.get(dtype, 0.0), rate)
        for row in record.get("transfers", []):
            key = (row["way"], row["bytes"])
            transfers[key] = min(transfers.get(key, np.inf), row["seconds"])
        for row in record.get("allocation", []):
            key = (row["state"], row["bytes"])
            allocation[key] = min(allocation.get(key, np.inf), row["seconds"])
    smallest = {
        name: min((r[name] for r in records if name in r), default=None)
        for name in ("capacity_bytes", "cache_bytes")
    }
    return {
        "flops_per_s": rates,
        "bandwidth_bytes_per_s": max(r["peaks"]["bandwidth_bytes_per_s"] for r in records),
        "call_overhead_s": min(r["peaks"]["call_overhead_s"] for r in records),
        "transfers": [
            {"way": way, "bytes": size, "seconds": seconds}
            for (way, size), seconds in sorted(transfers.items())
        ],
        "allocation": [
            {"state": state, "bytes": size, "seconds": seconds}
            for (state, size), seconds in sorted(allocation.items())
        ],
        **smallest,
    }
