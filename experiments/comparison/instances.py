"""Makespans by instance: one seed of one model in one setting, a column for each scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Instances:
    """Rows in the order of a sweep's cells; NaN where a scheduler has no result.

    Attributes:
        schedulers: names of the columns.
        makespans: float[instances, schedulers] seconds.
        planning: float[instances, schedulers] seconds that its decisions took; NaN where unknown.
        best_device_s: float[instances], NaN where unknown; likewise ``bound_s``.
        contest: int[instances]: the contest that each is a seed of.
        seed: int[instances]: equal where all seeds are.
        work: int[instances]: equal where model and batch are.
        facts: one row an instance, one column a factor that the scheduler does not decide.
        drawn: whether every seed draws a graph of its own (``family=``), so that each is an instance by itself.
    """

    schedulers: tuple[str, ...]
    makespans: np.ndarray
    planning: np.ndarray
    best_device_s: np.ndarray
    bound_s: np.ndarray
    contest: np.ndarray
    seed: np.ndarray
    work: np.ndarray
    facts: pd.DataFrame
    drawn: bool = False

    def __len__(self) -> int:
        return len(self.contest)

    @property
    def noun(self) -> str:
        """What an instance is, in words."""
        return "drawn graphs" if self.drawn else "instances (a seed of a model in a setting)"

    def with_best_device(self, name: str) -> Instances:
        """With everything on the best single device as one more scheduler, if known everywhere."""
        known = np.isfinite(self.best_device_s)
        if name in self.schedulers or not len(self) or not known.all():
            return self
        return replace(
            self,
            schedulers=(*self.schedulers, name),
            makespans=np.column_stack([self.makespans, self.best_device_s]),
            planning=np.column_stack([self.planning, np.full(len(self), np.nan)]),
        )

    def only(self, rows: np.ndarray) -> Instances:
        """Some of the instances.

        Args:
            rows: bool[instances], or their numbers.
        """
        return replace(
            self,
            makespans=self.makespans[rows],
            planning=self.planning[rows],
            best_device_s=self.best_device_s[rows],
            bound_s=self.bound_s[rows],
            contest=self.contest[rows],
            seed=self.seed[rows],
            work=self.work[rows],
            facts=self.facts.iloc[np.arange(len(self))[rows]],
        )

    def of(self, schedulers: Sequence[str]) -> Instances:
        """Some of the schedulers, in the given order."""
        columns = [self.schedulers.index(name) for name in schedulers]
        return replace(
            self,
            schedulers=tuple(schedulers),
            makespans=self.makespans[:, columns],
            planning=self.planning[:, columns],
        )

    @property
    def ratios(self) -> np.ndarray:
        """float[instances, schedulers]: makespan over the smallest of the instance."""
        return self.makespans / np.nanmin(self.makespans, axis=1, keepdims=True)

    def by_mean_ratio(self) -> list[int]:
        """Columns by geometric mean of the ratio to the best, those with results everywhere first."""
        ratios = self.ratios
        missing = np.isnan(ratios).sum(axis=0)
        with np.errstate(invalid="ignore"):
            means = np.array(
                [np.nanmean(np.log(c)) if np.isfinite(c).any() else np.inf for c in ratios.T]
            )
        order: list[int] = np.lexsort((np.array(self.schedulers), means, missing)).tolist()
        return order
