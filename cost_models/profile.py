"""Profiles: what a cluster names to say how long operators take on a device.

A folder ``<name>/`` with

* ``profile.json``: name, label, roofline, held-out errors, residuals, transfers, versions, coverage;
* ``predictor.json.gz``: the boosted trees (a datasheet has none);
* ``measurements.parquet``: the measurement table it was fitted to (a datasheet has none).

Found by name in the folders of ``HETSIM_PROFILES`` (separated as in ``PATH``), then among those that
come with the project, ``calibration/data``.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cost_models import evaluation
from cost_models.boosted import Boosted
from cost_models.roofline import Roofline
from cost_models.table import FEATURES, identities, load, rows_of, write
from cost_models.uncertainty import Residuals, residuals_by_kind
from simulator.errors import InvalidInput
from simulator.graph import Operator

FORMAT = "hetsim.profile/1"
LABELS = ("measured", "public", "datasheet")
SHIPPED = Path(__file__).resolve().parent.parent / "calibration" / "data"
DEFAULT_CACHE = "graph"


@dataclass(frozen=True)
class Priced:
    """Times of a list of operators.

    Attributes:
        seconds: float64[operators].
        spread: float64[operators], run-to-run standard deviation of log seconds (NaN: not measured).
        in_range: bool[operators], False where the prediction extrapolates.
    """

    seconds: np.ndarray
    spread: np.ndarray
    in_range: np.ndarray


@dataclass(frozen=True)
class Profile:
    """See the module docstring.

    Attributes:
        name: what clusters call it.
        label: ``measured``, ``public`` or ``datasheet``.
        roofline: measured or published rates.
        boosted: the trees; None for a datasheet.
        cache: the cache state that is priced.
        statistic: of the samples behind a measured time.
        held_out: for each model (``boosted``, ``roofline``) and way of holding out (``architecture``,
            ``fold``) the error by kind, as :func:`cost_models.evaluation.summary` gives it.
        residuals: for each model the residuals by kind.
        spread: for each kind the median run-to-run spread of log seconds.
        deviations: for each kind equally likely values of log(one call / the statistic of its
            operator), ``*`` of all kinds together; empty where single calls were not kept.
        launch_overhead_s: host seconds of a kernel launch; 0 where none was measured.
        transfers: measured transfers, rows of ``way``, ``bytes``, ``seconds``.
        allocation: measured allocations of outputs, rows of ``state``, ``bytes``, ``seconds``.
        corun: what co-running tasks cost each other, as :func:`calibration.corun.summary` gives it.
        capacity_bytes: of the memory that the device computes in; None where it was not read.
        dtypes: element types it was measured with.
        versions: software it was measured with.
        provenance: sources, dates, minutes, samples: whatever explains the figures.
        measurements: the table behind it, or None.
    """

    name: str
    label: str
    roofline: Roofline
    boosted: Boosted | None = None
    cache: str | None = None
    statistic: str | None = None
    held_out: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | None]]]] = field(
        default_factory=dict
    )
    residuals: Mapping[str, Mapping[str, Residuals]] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    deviations: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    launch_overhead_s: float = 0.0
    transfers: Sequence[Mapping[str, Any]] = ()
    allocation: Sequence[Mapping[str, Any]] = ()
    corun: Mapping[str, Any] = field(default_factory=dict)
    capacity_bytes: float | None = None
    dtypes: tuple[str, ...] = ("float32",)
    versions: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    measurements: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        if self.label not in LABELS:
            raise InvalidInput(
                f"Profile '{self.name}' has label '{self.label}'; known: {', '.join(LABELS)}"
            )

    # -- pricing ------------------------------------------------------------------------------------

    def model_name(self, model: str = "boosted") -> str:
        """The model that prices when ``model`` is asked for: a datasheet only has its roofline.

        Raises:
            InvalidInput: there is no such model.
        """
        if model not in ("boosted", "roofline"):
            raise InvalidInput(f"No cost model '{model}'; known: boosted, roofline")
        return "roofline" if self.boosted is None else model

    def price(
        self,
        operators: Sequence[Operator],
        *,
        model: str = "boosted",
        cache: str | None = None,
        lookup: bool = False,
    ) -> Priced:
        """Times of operators on this device, from one batch prediction over the distinct ones.

        Args:
            operators: in any number; equal ones are predicted once.
            model: ``boosted`` or ``roofline``.
            cache: the cache state; None takes the profile's own.
            lookup: take the measured time of an operator that was itself measured. Off by default,
                so that what a model's held-out error says of unseen operators is not mixed with
                times that were looked up.
        """
        rows = rows_of(operators)
        state = cache or self.cache
        if state is not None:
            rows["cache"] = state
        keys = list(zip(*(rows[c] for c in FEATURES), strict=True))
        order = dict.fromkeys(keys)
        first = {key: position for position, key in reversed(list(enumerate(keys)))}
        distinct = rows.iloc[[first[key] for key in order]].reset_index(drop=True)
        if self.model_name(model) == "boosted":
            assert self.boosted is not None
            predicted = self.boosted.predict_in_full(distinct)
            seconds, inside = predicted.seconds, predicted.in_range
        else:
            seconds = self.roofline.predict(distinct)
            inside = np.full(len(distinct), self.label != "datasheet")
            if self.spread:
                inside &= distinct["kind"].isin(list(self.spread)).to_numpy()
        spread = np.array([self.spread.get(kind, np.nan) for kind in distinct["kind"]])
        if lookup:
            for position, key in enumerate(order):
                found = self._measured.get((*key, state))
                if found is not None:
                    seconds[position], spread[position] = found
                    inside[position] = True
        index = {key: position for position, key in enumerate(order)}
        chosen = np.array([index[key] for key in keys], dtype=np.int64)
        return Priced(seconds[chosen], spread[chosen], inside[chosen])

    @cached_property
    def _measured(self) -> dict[tuple[Any, ...], tuple[float, float]]:
        if self.measurements is None:
            return {}
        table = self.measurements
        columns = [table[c] for c in (*FEATURES, "cache", "seconds", "spread")]
        rows = sorted(zip(*columns, strict=True), key=lambda row: -row[-2])  # the fastest stays
        return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows}

    def residuals_for(self, model: str = "boosted") -> Mapping[str, Residuals]:
        """Held-out residuals by kind of the model that prices; empty where none are known."""
        return self.residuals.get(self.model_name(model), {})

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that were measured."""
        return tuple(sorted(self.spread))

    # -- fitting ------------------------------------------------------------------------------------

    @classmethod
    def fitted(
        cls,
        name: str,
        measurements: pd.DataFrame,
        *,
        roofline: Roofline | None = None,
        label: str = "measured",
        cache: str = DEFAULT_CACHE,
        errors: evaluation.Errors | None = None,
        show: Callable[[str], None] | None = None,
        options: Mapping[str, Any] | None = None,
        **described: Any,
    ) -> Profile:
        """Fit a profile to a measurement table.

        Args:
            name: its name.
            measurements: valid or not yet checked.
            roofline: measured peaks; estimated from the rows unless given.
            label: ``measured`` or ``public``.
            cache: the state to be priced, where the table has the column.
            errors: held-out errors of the same table (:func:`evaluation.cross_validate`); without
                them the profile states no error and its times have no interval.
            show: called with a line of progress.
            options: of :class:`Boosted`.
            described: ``transfers``, ``allocation``, ``corun``, ``capacity_bytes``, ``versions``,
                ``provenance``, ``launch_overhead_s``, ``deviations``.

        Raises:
            InvalidInput: no valid table, or no rows in that cache state.
        """
        table = load(measurements)
        roofline = roofline or Roofline.fitted(table)
        priced = np.ones(len(table), dtype=bool)
        if "cache" in table:
            priced = (table["cache"] == cache).to_numpy()
            if not priced.any():
                states = ", ".join(sorted(table["cache"].dropna().unique()))
                raise InvalidInput(
                    f"No measurements in cache state '{cache}'; the table has: {states}"
                )

        if show:
            show(f"fitting {len(table)} rows")
        boosted = Boosted.fitted(table, roofline=roofline, **(options or {}))
        held_out = {
            model: {way: _rounded(evaluation.summary(table, rows)) for way, rows in ways.items()}
            for model, ways in (errors or {}).items()
        }
        residuals = {
            model: residuals_by_kind(ways["architecture"], ways["fold"])
            for model, ways in (errors or {}).items()
        }
        spread: dict[str, float] = {}
        if "spread" in table:
            medians = table[priced].groupby("kind")["spread"].median()
            spread = {str(kind): round(float(value), 4) for kind, value in medians.items()}
        else:
            spread = dict.fromkeys(sorted(table["kind"].unique()), float("nan"))
        return cls(
            name=name,
            label=label,
            roofline=roofline,
            boosted=boosted,
            cache=cache if "cache" in table else None,
            statistic=str(table["statistic"].iloc[0]) if "statistic" in table else None,
            held_out=held_out,
            residuals=residuals,
            spread=spread,
            dtypes=tuple(sorted(table["dtype"].unique())),
            measurements=table,
            **described,
        )

    def without(self, architecture: str, **options: Any) -> Profile:
        """This profile as it would be if the architecture had never been measured.

        For an honest comparison with real runs of a model whose operators were measured.

        Raises:
            InvalidInput: the profile has no measurements, or none of that architecture.
        """
        table = self.measurements
        if table is None or "architectures" not in table:
            raise InvalidInput(
                f"Profile '{self.name}' does not say which architectures it measured"
            )
        held = np.array(
            [names is not None and architecture in names for names in table["architectures"]]
        )
        if not held.any():
            known = sorted(
                {n for names in table["architectures"] if names is not None for n in names}
            )
            raise InvalidInput(
                f"Profile '{self.name}' has no operators of '{architecture}'; it has those of "
                f"{', '.join(known)}"
            )
        same = identities(table)
        rows = table[~np.isin(same, same[held])].reset_index(drop=True)
        boosted = Boosted.fitted(rows, roofline=self.roofline, **options)
        return replace(
            self, name=f"{self.name}-without-{architecture}", boosted=boosted, measurements=rows
        )

    # -- files --------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """``profile.json``."""
        return {
            "format": FORMAT,
            "name": self.name,
            "label": self.label,
            "roofline": self.roofline.to_json(),
            "cache": self.cache,
            "statistic": self.statistic,
            "dtypes": list(self.dtypes),
            "launch_overhead_s": self.launch_overhead_s,
            "transfers": [dict(row) for row in self.transfers],
            "spread": {k: None if np.isnan(v) else v for k, v in self.spread.items()},
            "held_out": self.held_out,
            "residuals": {
                model: {kind: entry.to_json() for kind, entry in kinds.items()}
                for model, kinds in self.residuals.items()
            },
            **(
                {"deviations": {kind: list(values) for kind, values in self.deviations.items()}}
                if self.deviations
                else {}
            ),
            **({"allocation": [dict(row) for row in self.allocation]} if self.allocation else {}),
            **({"corun": dict(self.corun)} if self.corun else {}),
            **({} if self.capacity_bytes is None else {"capacity_bytes": self.capacity_bytes}),
            "versions": dict(self.versions),
            "provenance": dict(self.provenance),
        }

    def save(self, folder: str | Path) -> Path:
        """Write the profile into a folder; ``profile.json`` comes last, so a torn folder has none."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self.measurements is not None:
            write(self.measurements, folder / "measurements.parquet")
        if self.boosted is not None:
            text = json.dumps(self.boosted.to_json(), separators=(",", ":"))
            _replace(folder / "predictor.json.gz", gzip.compress(text.encode(), mtime=0))
        document = json.dumps(self.to_json(), indent=1, sort_keys=True)
        _replace(folder / "profile.json", f"{document}\n".encode())
        return folder

    @classmethod
    def load(cls, name_or_path: str | Path) -> Profile:
        """Read a profile by name or from its folder.

        Raises:
            InvalidInput: there is none (the nearest names are given), or it is damaged.
        """
        folder = folder_of(name_or_path)
        document = _document(folder)
        try:
            spread = {
                kind: np.nan if value is None else float(value)
                for kind, value in document.get("spread", {}).items()
            }
            residuals = {
                model: {kind: Residuals.from_json(entry) for kind, entry in kinds.items()}
                for model, kinds in document.get("residuals", {}).items()
            }
            profile = cls(
                name=document["name"],
                label=document["label"],
                roofline=Roofline.from_json(document["roofline"]),
                boosted=_predictor(folder),
                cache=document.get("cache"),
                statistic=document.get("statistic"),
                held_out=document.get("held_out", {}),
                residuals=residuals,
                spread=spread,
                deviations={
                    kind: _finite(values) for kind, values in document.get("deviations", {}).items()
                },
                launch_overhead_s=float(document.get("launch_overhead_s", 0.0)),
                transfers=document.get("transfers", []),
                allocation=document.get("allocation", []),
                corun=document.get("corun", {}),
                capacity_bytes=document.get("capacity_bytes"),
                dtypes=tuple(document.get("dtypes", ["float32"])),
                versions=document.get("versions", {}),
                provenance=document.get("provenance", {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"{folder / 'profile.json'} is incomplete ({error!r})") from None
        table = folder / "measurements.parquet"
        return replace(profile, measurements=load(table)) if table.exists() else profile


def digest(name_or_path: str | Path) -> str:
    """sha256 of a profile's files: its identity in results."""
    folder = folder_of(name_or_path)
    total = hashlib.sha256()
    for name in ("profile.json", "predictor.json.gz", "measurements.parquet"):
        path = folder / name
        if path.exists():
            total.update(name.encode() + path.read_bytes())
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
    known = available()
    if name in known:
        return known[name].folder
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
        raise InvalidInput(f"{path} is not a profile of format '{FORMAT}'")
    if document.get("label") not in LABELS:
        raise InvalidInput(
            f"{path} has label {document.get('label')!r}; known: {', '.join(LABELS)}"
        )
    return document


def _predictor(folder: Path) -> Boosted | None:
    path = folder / "predictor.json.gz"
    if not path.exists():
        return None
    try:
        document = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{path} is damaged ({error}); fit the profile again") from None
    return Boosted.from_json(document)


def _finite(values: Sequence[Any]) -> tuple[float, ...]:
    numbers = tuple(map(float, values))
    if not numbers or not np.isfinite(numbers).all():
        raise ValueError("deviations are lists of finite numbers")
    return numbers


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def _rounded(table: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    return {
        str(kind): {
            str(column): None if pd.isna(value) else round(float(value), 4)
            for column, value in row.items()
        }
        for kind, row in table.iterrows()
    }
