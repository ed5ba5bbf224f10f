"""What choosing what to measure next is worth: ``python -m tests.benchmarks.active_learning [PROFILE]``.

A shipped CPU table is the world: measuring an operator is reading its rows. Of each fold in turn the
shapes are held out, the operators of the project's set in the other four may be measured, as many as
``calibrate`` takes for a budget: all at once, evenly from each kind (``active=false``), or a part of them,
then those that :mod:`experiments.calibrating.active` names. The table's times are of many visits whatever the budget,
so what is shown is what the choice of operators does, not what the noise of short measuring adds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from calibration.measure import SHIPPED_OPERATORS
from calibration.samples import OperatorSample, read_samples
from cost_models.fitting import fitted_models
from cost_models.folds import FOLDS, folds_of
from cost_models.profile import Profile, row_keys
from cost_models.table import FEATURES
from experiments.calibrating.active import next_operators
from experiments.calibrating.fitting import BOOSTERS
from experiments.calibrating.operators import BEGUN, affordable, next_count, thinned, turns
from experiments.calibrating.settings import CalibrateConfig

MODEL = "boosted"
BUDGETS = ("1min", "2min", "5min", "15min", "40min")
SEED = 0


class World:
    """A measured table, one fold of its shapes held out.

    Args:
        profile: with its measurements.
        fold: which.
    """

    def __init__(self, profile: Profile, fold: int) -> None:
        table = profile.measurements
        assert table is not None
        self.profile = profile
        self.table = table
        self.keys = list(zip(*(table[column] for column in FEATURES), strict=True))
        fold_of = dict(zip(self.keys, folds_of(table).tolist(), strict=True))
        priced = table["cache"] == profile.cache
        held = np.array([fold_of[key] == fold for key in self.keys])
        self.test = table[held & priced].reset_index(drop=True)
        samples = read_samples(SHIPPED_OPERATORS)
        names = row_keys([sample.operator for sample in samples])
        self.key_of = dict(zip((s.identity for s in samples), names, strict=True))
        # One of each that a cost model can tell from the others.
        self.pool = list(
            {
                name: sample
                for sample, name in zip(samples, names, strict=True)
                if fold_of.get(name, fold) != fold
            }.values()
        )
        self._errors: dict[frozenset[str], np.ndarray] = {}

    def measured(self, samples: Sequence[OperatorSample]) -> pd.DataFrame:
        """The rows of operators, in all cache states."""
        wanted = {self.key_of[sample.identity] for sample in samples}
        return self.table[[key in wanted for key in self.keys]].reset_index(drop=True)

    def error(self, samples: Sequence[OperatorSample]) -> np.ndarray:
        """float64[held-out rows]: relative error of what is fitted to these operators alone."""
        which = frozenset(sample.identity for sample in samples)
        if which not in self._errors:
            self._errors[which] = self._error(samples)
        return self._errors[which]

    def _error(self, samples: Sequence[OperatorSample]) -> np.ndarray:
        model = fitted_models(
            self.measured(samples),
            self.profile.roofline,
            (MODEL,),
            seed=SEED,
            only=set(self.test["kind"]),
            options={MODEL: {"members": BOOSTERS}},
        )[MODEL]
        found: np.ndarray = np.abs(model.predict(self.test) / self.test["seconds"].to_numpy() - 1)
        return found


def all_at_once(world: World, config: CalibrateConfig) -> list[OperatorSample]:
    """What ``calibrate active=false`` measures within the budget."""
    return thinned(world.pool, affordable(config))


def chosen(world: World, config: CalibrateConfig) -> list[OperatorSample]:
    """What ``calibrate active=true`` measures within the budget."""
    operators = thinned(world.pool, int(affordable(config) * BEGUN))
    for turn in range(turns(config) - 1, -1, -1):
        known = {sample.identity for sample in operators}
        rest = [sample for sample in world.pool if sample.identity not in known]
        table = world.measured(operators)
        table = table[table["cache"] == world.profile.cache].reset_index(drop=True)
        operators += next_operators(
            table,
            world.profile.roofline,
            rest,
            next_count(config, len(operators), turn),
            SEED + turn,
        )
    return operators


WAYS: dict[str, Callable[[World, CalibrateConfig], list[OperatorSample]]] = {
    "all at once": all_at_once,
    "chosen": chosen,
}


def main(name: str) -> None:
    """A line for each budget and way, and by how much they differ."""
    profile = Profile.load(name)
    worlds = [World(profile, fold) for fold in range(FOLDS)]
    print(f"{name}, {MODEL}, a fifth of the shapes held out, {FOLDS} times")
    print("budget  way          operators  median    mean     p90   in models: median    mean")
    for budget in BUDGETS:
        by_way: dict[str, np.ndarray] = {}
        for way, choose in WAYS.items():
            config = CalibrateConfig(budget=budget, active=way == "chosen")
            counts, errors, used = [], [], []
            for world in worlds:
                samples = choose(world, config)
                counts.append(len(samples))
                errors.append(world.error(samples))
                used.append(np.array([len(names) > 0 for names in world.test["architectures"]]))
            every, inside = np.concatenate(errors), np.concatenate(used)
            by_way[way] = np.array([error.mean() for error in errors])
            print(
                f"{budget:7} {way:11} {np.mean(counts):10.0f}  {np.median(every):6.2%}  "
                f"{every.mean():6.2%}  {np.quantile(every, 0.9):6.2%}  {np.median(every[inside]):18.2%}  "
                f"{every[inside].mean():6.2%}",
                flush=True,
            )
        told = ", ".join(f"{one:+.1%}" for one in by_way["chosen"] / by_way["all at once"] - 1)
        print(f"{budget:7} mean error of the chosen relative to all at once, by fold: {told}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amd-epyc-25-17-1core")
