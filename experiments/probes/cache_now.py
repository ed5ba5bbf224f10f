"""What a machine's caches keep of weights now, beside what its profiles say.

How much of a last-level cache is left to a program is what the others on its host leave. On a virtual machine with
32 MiB the share that was kept of weights of 4 MiB at a distance of 16 MiB was .4 in one second and .9 in another,
and an unrolled GRU whose weights are 24 MiB took a fifth longer or less. So the probe that profiles
are measured with (:mod:`calibration.reuse`) runs before each of the panel's runs
(:class:`experiments.probes.panel.PanelRuns`), and predictions take the curve that it finds for the profile's.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from simulator.model.weight_hit_curve import ReuseCurve

if TYPE_CHECKING:
    from calibration.reuse import Round
    from calibration.runner import Machine

WEIGHTS = (1 / 8,)
"""Of the last cache: weights of the probe's operators; more sizes take longer and say the same."""

Reuse: TypeAlias = Mapping[str, tuple[ReuseCurve, ...]]
"""Of a memory space the curve that was found, and others that might have been."""

DRAWN = 20
"""Curves that might have been found, of as many of the runs drawn with replacement."""


@dataclass(frozen=True, eq=False)
class CacheRuns:
    """What the probe's runs took in a memory space.

    Attributes:
        pairs: of :class:`calibration.reuse.Probe`.
        seconds: float64[runs, pairs].
        uses: float64[runs, uses], of weights that had been driven out, one use after the other and settled; no columns
            where that was not looked at.
    """

    pairs: tuple[tuple[float, int], ...]
    seconds: np.ndarray
    uses: np.ndarray

    def curves(self) -> tuple[ReuseCurve, ...]:
        """The curve, and :data:`DRAWN` that might have been found in its place; none where weights in the cache
        save nothing.
        """
        rng = np.random.default_rng(0)
        runs = len(self.seconds)
        picks = [np.arange(runs), *rng.integers(runs, size=(DRAWN, runs))]
        found = [self._curve(pick) for pick in picks if runs]
        if not found or found[0] is None:
            return ()
        return tuple(curve or found[0] for curve in found)

    def _curve(self, pick: np.ndarray) -> ReuseCurve | None:
        from calibration.reuse import summary

        times = dict(zip(self.pairs, self.seconds[pick].T.tolist(), strict=True))
        said = summary(times, self.uses[pick])
        if not said:
            return None
        distances, kept = zip(*said["curve"], strict=True)
        return ReuseCurve(distances, kept, tuple(said["taken"]))


class CacheProbes:
    """The probe of each memory space of a machine that has a cache for weights.

    Args:
        machine: the first device of a space is where its probe runs, while the machine does nothing else.
    """

    def __init__(self, machine: Machine) -> None:
        from calibration.reuse import Probe

        cluster = machine.cluster
        self._order = random.Random(0)
        self._probes: dict[str, tuple[Probe, int | None]] = {}
        for space in cluster.spaces:
            mine = [i for i, d in enumerate(cluster.devices) if d.space == space.name]
            if space.cache is not None and mine:
                spec = machine.specs[mine[0]]
                core = spec.cores[0] if spec.cores else None
                self._probes[space.name] = Probe(spec.device, WEIGHTS), core
        self.clear()

    def clear(self) -> None:
        """Forget the runs so far."""
        self._rounds: dict[str, list[Round]] = {name: [] for name in self._probes}

    def run(self) -> None:
        """Each once."""
        from calibration.environment import alone_on

        for name, (probe, core) in self._probes.items():
            with alone_on(core):
                self._rounds[name].append(probe.round(self._order))

    def runs(self) -> dict[str, CacheRuns]:
        """By memory space."""
        return {
            name: CacheRuns(
                tuple(probe.pairs),
                _table([one.seconds for one in self._rounds[name]], len(probe.pairs)),
                _table([one.uses for one in self._rounds[name]]),
            )
            for name, (probe, _) in self._probes.items()
        }


def all_runs(several: Iterable[Mapping[str, CacheRuns]]) -> dict[str, CacheRuns]:
    """The runs of several times on one machine, by memory space."""
    found: dict[str, CacheRuns] = {}
    for caches in several:
        for space, runs in caches.items():
            before = found.setdefault(space, runs)
            if before is runs or not len(runs.seconds):
                continue
            if not len(before.seconds):
                found[space] = runs
                continue
            seconds = np.concatenate([before.seconds, runs.seconds])
            # Runs that looked at less say nothing together.
            width = min(before.uses.shape[1], runs.uses.shape[1])
            uses = np.concatenate([before.uses[:, :width], runs.uses[:, :width]])
            found[space] = CacheRuns(runs.pairs, seconds, uses)
    return found


def _table(rows: Sequence[Sequence[float]], columns: int | None = None) -> np.ndarray:
    """float64[rows, columns], also without rows; as many columns as the first has unless given."""
    width = len(rows[0]) if columns is None and rows else columns or 0
    return np.array(rows, dtype=float).reshape(len(rows), width)


def caches_json(caches: Mapping[str, CacheRuns]) -> dict[str, Any]:
    """Runs by memory space as a JSON object."""
    return {
        space: {
            "pairs": [list(pair) for pair in runs.pairs],
            "seconds": runs.seconds.tolist(),
            "uses": runs.uses.tolist(),
        }
        for space, runs in caches.items()
    }


def caches_of(document: Mapping[str, Any]) -> dict[str, CacheRuns]:
    """Read :func:`caches_json`'s form."""
    return {
        space: CacheRuns(
            tuple((float(weights), int(count)) for weights, count in runs["pairs"]),
            _table(runs["seconds"], len(runs["pairs"])),
            _table(runs.get("uses", [[]] * len(runs["seconds"]))),  # once not looked at
        )
        for space, runs in document.items()
    }


def curves_json(reuse: Reuse) -> dict[str, Any]:
    """Curves by memory space as a JSON object."""
    return {space: [curve.to_json() for curve in curves] for space, curves in reuse.items()}


def curves_of(document: Mapping[str, Any]) -> dict[str, tuple[ReuseCurve, ...]]:
    """Read :func:`curves_json`'s form.

    Raises:
        InvalidInput: what is no curve.
    """
    return {
        space: tuple(ReuseCurve.from_json(curve) for curve in curves)
        for space, curves in document.items()
    }
