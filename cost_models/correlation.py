"""How far the errors of two profiles go together.

Two profiles of one machine, or two of GPUs of one maker, are wrong about the same operators in the same
direction: the models have the same features and have not seen the same architectures. What two schedulers
differ by often depends on the ratio of two devices' times, and of that a common error takes nothing away.

Profiles keep their held-out residuals (:func:`residual_rows`). Of operators that two profiles have both
held out, in the same architecture, two correlations are measured: of the architectures' mean residuals
(what :class:`cost_models.uncertainty.Residuals` calls biases) and of the residuals around these means. They
are those of ranks, turned into the correlation of the normal numbers that give such ranks (Pearson 1907:
``r = 2 sin(pi s / 6)``), since a few residuals are many times as large as the others.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cost_models.evaluation import Errors
from cost_models.table import FEATURES
from cost_models.uncertainty import ENOUGH_ROWS, POOLED
from simulator.errors import InvalidInput
from simulator.model.noise import mixing
from simulator.support.atomic_io import replacing

ENOUGH_MEANS = 10
"""Architectures, and :data:`ENOUGH_ROWS` operators, of a kind that count as much as those of all kinds."""
CHANCE = 2.0
"""Standard errors of no correlation; what all kinds show counts as none if it is nearer to 0."""
_KEYS = ("operator", "kind", "group")


@dataclass(frozen=True)
class Correlation:
    """Of the errors of two profiles in the operators of one kind.

    Attributes:
        shared: of what the operators of a kind are wrong by together.
        own: of what each operator is wrong by besides.
        means, rows: how many pairs these rest on.
    """

    shared: float
    own: float
    means: int
    rows: int


NONE = Correlation(0.0, 0.0, 0, 0)


@dataclass(frozen=True)
class Correlations:
    """Of the errors of several profiles.

    Attributes:
        pairs: for two names, the lesser first, the correlation by kind, with
            :data:`cost_models.uncertainty.POOLED` for the others; a pair without an entry has none.
    """

    pairs: Mapping[tuple[str, str], Mapping[str, Correlation]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Profiles that correlate with another one, sorted."""
        return tuple(sorted({name for pair in self.pairs for name in pair}))

    def of(self, one: str, other: str, kind: str) -> Correlation:
        """Of two different profiles."""
        known = self.pairs.get((min(one, other), max(one, other)), {})
        return known.get(kind) or known.get(POOLED) or NONE

    def mixing(self, names: Sequence[str], kind: str) -> tuple[np.ndarray, np.ndarray]:
        """What makes independent normal numbers of profiles correlate (:func:`joint_normals.mixing`).

        Returns:
            float64[names, names] of the shared parts, and of the operators' own.
        """
        found = np.array([np.eye(len(names))] * 2)
        for i, j in itertools.combinations(range(len(names)), 2):
            entry = self.of(names[i], names[j], kind)
            found[:, i, j] = found[:, j, i] = entry.shared, entry.own
        return mixing(found[0]), mixing(found[1])


def measured(rows: Mapping[str, pd.DataFrame], models: Mapping[str, str]) -> Correlations:
    """How the errors of profiles go together.

    Args:
        rows: by profile its held-out residuals (:func:`residual_rows`); those of which nothing is kept
            are left out.
        models: by profile the model that prices.
    """
    known = {
        name: frame[[*_KEYS, models[name]]].rename(columns={models[name]: "log"})
        for name, frame in rows.items()
        if models[name] in frame
    }
    pairs = {
        (one, other): found
        for one, other in itertools.combinations(sorted(known), 2)
        if (found := _of_pair(known[one], known[other]))
    }
    return Correlations(pairs)


def _of_pair(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, Correlation]:
    """By kind; empty where nothing correlates."""
    keys = list(_KEYS)
    # What was measured by two sources counts once.
    one, other = (f.groupby(keys)[["log"]].mean().reset_index() for f in (one, other))
    both = one.merge(other, on=keys, suffixes=("_one", "_other")).dropna()
    if not len(both):
        return {}
    columns = ["log_one", "log_other"]
    means = both.groupby(["kind", "group"])[columns].mean().reset_index()
    # The only one of its architecture is its mean.
    several = both[both.groupby(["kind", "group"])["log_one"].transform("size") > 1]
    centres = several.groupby(["kind", "group"])[columns].transform("mean")
    around = several[["kind"]].join(several[columns] - centres)
    pooled = Correlation(
        _told_from_none(of_ranks(means), len(means)),
        _told_from_none(of_ranks(around), len(around)),
        len(means),
        len(around),
    )
    if not pooled.shared and not pooled.own:
        return {}
    found = {POOLED: pooled}
    for kind in sorted(set(both["kind"])):
        m, a = means[means["kind"] == kind], around[around["kind"] == kind]
        found[kind] = Correlation(
            _with_all(of_ranks(m), len(m), pooled.shared, ENOUGH_MEANS),
            _with_all(of_ranks(a), len(a), pooled.own, ENOUGH_ROWS),
            len(m),
            len(a),
        )
    return found


def _told_from_none(correlation: float, pairs: int) -> float:
    return correlation if abs(correlation) * math.sqrt(max(pairs - 1, 0)) > CHANCE else 0.0


def _with_all(correlation: float, pairs: int, pooled: float, enough: int) -> float:
    """Of a kind: that of a few pairs is mostly chance, and all kinds' stands in for what is missing."""
    if not pooled:
        return 0.0
    return round((pairs * correlation + enough * pooled) / (pairs + enough), 9)


def of_ranks(pairs: pd.DataFrame) -> float:
    """Correlation of the normal numbers that have the ranks of ``log_one`` and ``log_other``.

    0 of fewer than three, or where one side is always the same.
    """
    ranks = pairs[["log_one", "log_other"]].rank().to_numpy()
    if len(ranks) < 3 or (ranks.std(axis=0) == 0).any():
        return 0.0
    of = float(np.corrcoef(ranks.T)[0, 1])
    return round(2.0 * math.sin(math.pi / 6.0 * of), 9)  # 1, not nearly, where all ranks are alike


# -- what a profile keeps -----------------------------------------------------------------------------


def signature(row: Iterable[object]) -> int:
    """A number for a row of :data:`cost_models.table.FEATURES`, the same on every machine."""
    text = json.dumps(list(row), separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def residual_rows(table: pd.DataFrame, errors: Errors) -> pd.DataFrame:
    """The held-out residuals that a profile keeps: of architectures, or of folds where it has none.

    Args:
        table: the measurement table.
        errors: of it (:func:`cost_models.evaluation.cross_validate`).

    Returns:
        ``operator`` (:func:`signature`), ``kind``, ``group``, and for each model the log residuals,
        float32.
    """
    numbers = [signature(row) for row in zip(*(table[c] for c in FEATURES), strict=True)]
    operators = np.array(numbers, dtype=np.int64)
    columns: dict[str, pd.Series] = {}
    for model, ways in errors.items():
        rows = ways["architecture"] if len(ways["architecture"]) else ways["fold"]
        index = pd.MultiIndex.from_arrays([rows["row"], rows["group"]], names=["row", "group"])
        columns[model] = pd.Series(rows["log_residual"].to_numpy(np.float32), index)
    found = pd.DataFrame(columns).sort_index().reset_index()
    at = found.pop("row").to_numpy(dtype=np.int64)
    found.insert(0, "operator", operators[at])
    found.insert(1, "kind", table["kind"].to_numpy()[at])
    return found


def few_of_each_kind(rows: pd.DataFrame, at_most: int) -> pd.DataFrame:
    """Of each kind the ``at_most`` operators with the smallest numbers, in the order in which they were.

    Numbers are hashes, so that these are drawn by chance; and of two profiles that measured the same
    operators they are the same ones (bottom-k sketches, Cohen and Kaplan 2007,
    https://doi.org/10.1145/1281100.1281133).

    Args:
        rows: as :func:`residual_rows` gives them.
        at_most: operators of a kind; each with all its rows.
    """
    place = rows.groupby("kind")["operator"].rank(method="dense")
    return rows[place <= at_most].reset_index(drop=True)


def rows_digest(rows: pd.DataFrame) -> str:
    """sha256 of what :func:`residual_rows` gives, however it is stored."""
    found = hashlib.sha256(json.dumps(list(rows)).encode())
    for name, column in rows.items():
        values = column.to_list() if name in ("kind", "group") else column.to_numpy()
        found.update(json.dumps(values).encode() if isinstance(values, list) else values.tobytes())
    return found.hexdigest()


def write_rows(rows: pd.DataFrame, path: str | Path) -> None:
    """Write :func:`residual_rows` as Parquet, whole or not at all."""
    with replacing(path) as temporary:
        table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
        pq.write_table(table, temporary, compression="zstd")


def read_rows(path: str | Path) -> pd.DataFrame:
    """Read :func:`write_rows`' file.

    Raises:
        InvalidInput: it is damaged or something else.
    """
    try:
        found = pq.read_table(path).to_pandas()
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput(
            f"{path} cannot be read as Parquet ({str(error).splitlines()[0]}); fit the profile again"
        ) from None
    numbers = found.drop(columns=list(_KEYS), errors="ignore")
    if not {*_KEYS} <= {*found} or not all(t.kind == "f" for t in numbers.dtypes):
        raise InvalidInput(f"{path} holds no residuals of operators; fit the profile again")
    return found
