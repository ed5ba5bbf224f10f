"""Profiles on disk: a folder ``<name>/`` with

* ``profile.json``: name, label, roofline, names of its models, held-out errors, residuals, transfers,
  versions, coverage;
* ``<model>.json.gz``: a fitted cost model (an ensemble is made of its members; of ``across_devices`` the data sheet,
  its trees are one file for all profiles);
* ``measurements.parquet``: the measurement table it was fitted to (a datasheet has none);
* ``residuals.parquet``: held-out residuals of its operators (:mod:`cost_models.correlation`; a datasheet
  has none).

Found by name in the folders of ``HETSIM_PROFILES`` (separated as in ``PATH``), then among those that
come with the project, ``calibration/data``. Models and measurements are read when they are asked for.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.context import Context
from cost_models.correlation import rows_digest, write_rows
from cost_models.ensemble import Ensemble, members_among
from cost_models.measured_range import Reach
from cost_models.model import CostModel, model_class
from cost_models.profile import LABELS, Profile
from cost_models.roofline import Roofline
from cost_models.table import write
from cost_models.uncertainty import Residuals
from simulator.errors import InvalidInput
from simulator.model.weight_hit_curve import ReuseCurve
from simulator.support.atomic_io import write_whole

FORMAT = "hetsim.profile/2"
ROWS = "residuals.parquet"
SHIPPED = Path(__file__).resolve().parent.parent / "calibration" / "data"


class StoredModels(Mapping[str, CostModel]):
    """The models of a folder, each read when it is first asked for."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = tuple(names)
        self._read: dict[str, CostModel] = {}

    def __getitem__(self, name: str) -> CostModel:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            if name == "ensemble":
                self._read[name] = Ensemble(
                    {member: self[member] for member in members_among(self._names)}
                )
            else:
                self._read[name] = _model(self._folder, name)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # nothing is read for that

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def document_of(profile: Profile) -> dict[str, Any]:
    """``profile.json``."""
    document = {
        "format": FORMAT,
        "name": profile.name,
        "label": profile.label,
        "roofline": profile.roofline.to_json(),
        "models": list(profile.models),
        "default": profile.default,
        "cache": profile.cache,
        "statistic": profile.statistic,
        "dtypes": list(profile.dtypes),
        "launch_overhead_s": profile.launch_overhead_s,
        "transfers": [dict(row) for row in profile.transfers],
        "spread": {k: None if np.isnan(v) else v for k, v in profile.spread.items()},
        "held_out": profile.held_out,
        "residuals": {
            model: {kind: entry.to_json() for kind, entry in kinds.items()}
            for model, kinds in profile.residuals.items()
        },
        "versions": dict(profile.versions),
        "provenance": dict(profile.provenance),
    }
    measured = {
        "launch_in_times": dict(profile.launch_in_times),
        "deviations": {kind: list(values) for kind, values in profile.deviations.items()},
        "allocation": [dict(row) for row in profile.allocation],
        "corun": dict(profile.corun),
        "reuse": profile.reuse and profile.reuse.to_json(),
        "stretch": {model: list(times) for model, times in profile.stretch.items()},
        "reach": profile.reach and profile.reach.to_json(),
        "context": profile.context and profile.context.to_json(),
        "capacity_bytes": profile.capacity_bytes,
        "cache_bytes": profile.cache_bytes,
        # Not all that draws rest on stands here, but all of it is named: the digest is of this file.
        "residual_rows": None
        if profile.residual_rows is None
        else rows_digest(profile.residual_rows),
    }
    return document | {key: value for key, value in measured.items() if value}


def save(profile: Profile, folder: str | Path) -> Path:
    """Write a profile into a folder; ``profile.json`` comes last, so a torn folder has none."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if profile.measurements is not None:
        write(profile.measurements, folder / "measurements.parquet")
    if profile.residual_rows is not None:
        write_rows(profile.residual_rows, folder / ROWS)
    else:
        (folder / ROWS).unlink(missing_ok=True)  # of a profile that was here before
    for name, model in profile.models.items():
        if name != "ensemble":
            text = json.dumps(model.to_json(), separators=(",", ":"))
            write_whole(folder / f"{name}.json.gz", gzip.compress(text.encode(), mtime=0))
    # A line for each entry: residuals alone are tens of thousands of numbers.
    lines = (
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}"
        for key, value in sorted(document_of(profile).items())
    )
    write_whole(folder / "profile.json", ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return folder


def load_profile(name_or_path: str | Path) -> Profile:
    """Read a profile by name or from its folder.

    Raises:
        InvalidInput: there is none (the nearest names are given), or it is damaged.
    """
    folder = folder_of(name_or_path)
    document = _document(folder)
    table, rows = folder / "measurements.parquet", folder / ROWS
    try:
        spread = {
            kind: np.nan if value is None else float(value)
            for kind, value in document.get("spread", {}).items()
        }
        residuals = {
            model: {kind: Residuals.from_json(entry) for kind, entry in kinds.items()}
            for model, kinds in document.get("residuals", {}).items()
        }
        return Profile(
            name=document["name"],
            label=document["label"],
            roofline=Roofline.from_json(document["roofline"]),
            models=StoredModels(folder, document.get("models", [])),
            default=document.get("default", ""),
            cache=document.get("cache"),
            statistic=document.get("statistic"),
            held_out=document.get("held_out", {}),
            residuals=residuals,
            held_out_rows=rows if rows.exists() else None,
            spread=spread,
            deviations={
                kind: _finite(values) for kind, values in document.get("deviations", {}).items()
            },
            launch_overhead_s=float(document.get("launch_overhead_s", 0.0)),
            launch_in_times={
                str(kind): float(value)
                for kind, value in document.get("launch_in_times", {}).items()
            },
            transfers=document.get("transfers", []),
            allocation=document.get("allocation", []),
            corun=document.get("corun", {}),
            reuse=ReuseCurve.from_json(reuse) if (reuse := document.get("reuse")) else None,
            stretch={model: _finite(times) for model, times in document.get("stretch", {}).items()},
            reach=Reach.from_json(reach) if (reach := document.get("reach")) else None,
            context=Context.from_json(context) if (context := document.get("context")) else None,
            capacity_bytes=document.get("capacity_bytes"),
            cache_bytes=document.get("cache_bytes"),
            dtypes=tuple(document.get("dtypes", ["float32"])),
            versions=document.get("versions", {}),
            provenance=document.get("provenance", {}),
            table=table if table.exists() else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{folder / 'profile.json'} is incomplete ({error!r})") from None


def digest(name_or_path: str | Path) -> str:
    """sha256 of a profile's files: its identity in results."""
    folder = folder_of(name_or_path)
    total = hashlib.sha256()
    for pattern in ("profile.json", "*.json.gz", "measurements.parquet"):
        for path in sorted(folder.glob(pattern)):
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


@dataclass(frozen=True)
class Entry:
    """What can be said of a profile without loading its predictor."""

    name: str
    label: str
    folder: Path
    document: Mapping[str, Any]


def available() -> dict[str, Entry]:
    """Every profile that can be named; a user's own hides a shipped one of the same name."""
    found: dict[str, Entry] = {}
    for root in search_path():
        for name, entry in _profiles_in(root).items():
            found.setdefault(name, entry)
    return found


def _profiles_in(root: Path) -> dict[str, Entry]:
    """The profiles of one folder by name."""
    found: dict[str, Entry] = {}
    for path in sorted(root.glob("*/profile.json")):
        document = _document(path.parent)
        name = str(document.get("name", path.parent.name))
        found.setdefault(name, Entry(name, document["label"], path.parent, document))
    return found


def search_path() -> list[Path]:
    """Folders that are searched, in order."""
    own = os.environ.get("HETSIM_PROFILES", "")
    return [*(Path(part).expanduser() for part in own.split(os.pathsep) if part), SHIPPED]


def folder_of(name_or_path: str | Path) -> Path:
    """The folder of a profile, given its name or the folder itself.

    Raises:
        InvalidInput: there is none; says which are nearest and how to get it.
    """
    path = Path(name_or_path).expanduser()
    if (path / "profile.json").exists():
        return path
    name = str(name_or_path)
    for root in search_path():
        # A shipped profile lies in a folder of its name: nothing else has to be read.
        named = root / name
        if root == SHIPPED and (named / "profile.json").exists():
            return named
        if name in (found := _profiles_in(root)):
            return found[name].folder
    known = available()
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.3) or sorted(known)[:3]
    nearest = ", ".join(f"{other} ({known[other].label})" for other in near) or "none"
    device = "cuda:0" if any(w in name for w in ("nvidia", "tesla", "geforce", "rtx")) else "cpu"
    raise InvalidInput(
        f"No profile '{name}'. Nearest: {nearest}. Measure it on that device: "
        f"python -m experiments.calibrate device={device} budget=15min, then point HETSIM_PROFILES at "
        "the folder it leaves"
    )


def _document(folder: Path) -> dict[str, Any]:
    path = folder / "profile.json"
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON ({error}); was it truncated?") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        older = isinstance(found, str) and found.startswith("hetsim.profile/")
        raise InvalidInput(
            f"{path} is of format '{found}', this release reads '{FORMAT}'; fit it again: "
            "python -m experiments.calibrate step=fit out=<folder of its measuring run>"
            if older
            else f"{path} is not a profile of format '{FORMAT}'"
        )
    if document.get("label") not in LABELS:
        raise InvalidInput(
            f"{path} has label {document.get('label')!r}; known: {', '.join(LABELS)}"
        )
    return document


def _model(folder: Path, name: str) -> CostModel:
    path = folder / f"{name}.json.gz"
    try:
        document = json.loads(gzip.decompress(path.read_bytes()))
    except FileNotFoundError:
        raise InvalidInput(f"{path} is missing; fit the profile again") from None
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{path} is damaged ({error}); fit the profile again") from None
    return model_class(name).from_json(document)


def _finite(values: Sequence[Any]) -> tuple[float, ...]:
    numbers = tuple(map(float, values))
    if not numbers or not np.isfinite(numbers).all():
        raise ValueError("deviations and stretches are lists of finite numbers")
    return numbers
