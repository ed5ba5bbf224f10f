"""Whether the residuals of some architectures cover another one: ``python -m tests.benchmarks.coverage``.

For each architecture of a shipped table: the sum of its operators' measured times against draws around
times predicted without it, the draws being of the residuals of the other architectures alone. In
thirteen architectures the share inside a 90% interval is itself only known within about 8%.

``between`` instead asks for what decides between two devices, the shipped cores: of the operators that both
have measured, the ratio of the sums, and the difference between two placements, each operator on the one or the
other core by chance, one after the other. Once with errors drawn for each profile by itself and once together
(:mod:`cost_models.correlation`), from the same random numbers.

``gpus MODEL ...`` says what drawing public profiles together does where nothing was measured that could cover it:
for two GPUs the interval of the ratio of a model's summed operator times, and of differences between placements.

``validation`` asks the same of the committed runs on hardware, one job each: are the measured makespans, and their
differences between two schedulers, in the intervals of draws of today's profiles?
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models import correlation, evaluation
from cost_models.fitting import fitted_models
from cost_models.pricing import price_graphs
from cost_models.profile import Profile
from cost_models.table import identities
from cost_models.uncertainty import draw_factors, draw_together, draws, residuals_by_kind
from experiments.runs import world
from experiments.runs.pricing import Pricer
from experiments.validation.cases import ModelValidation
from experiments.validation.saved import load_validation, present_contestant
from experiments.validation.simulated_vs_measured import Prediction
from scenarios.model_config import graph_of
from tests.benchmarks.end_to_end import model_config

CORES = ("amd-epyc-25-17-1core", "amd-epyc-25-17-1core-3x")
GPUS = ("tesla-p100-pcie-16gb", "tesla-t4", "tesla-v100-pcie-32gb", "nvidia-a100-pcie-40gb")
FEWEST = 10
"""Operators of an architecture that both cores have measured."""
PLACEMENTS = 200
MODEL = "boosted"
DRAWS = 2000
BETWEEN_DRAWS = 500
VALIDATION_DRAWS = 40
LEVEL = 0.9


def main(name: str) -> None:
    """One line for each architecture, and the share inside the interval."""
    profile = Profile.load(name)
    table = profile.measurements
    assert table is not None
    table = table[table["cache"] == profile.cache].reset_index(drop=True)

    def fit(rows, kinds):  # type: ignore[no-untyped-def]
        return fitted_models(rows, profile.roofline, (MODEL,), only=kinds)[MODEL]

    errors = evaluation.relative_errors(table, evaluation.by_architecture(table, fit))
    same = identities(table)
    inside, total = 0, 0
    logs = []
    print("architecture        operators  measured ms  predicted   5% to 95% of draws")
    for group, rows in errors.groupby("group"):
        others = errors[errors["group"] != group]
        # Kinds that few architectures have borrow from all kinds, as where folds are at hand.
        residuals = residuals_by_kind(others, others)
        predicted, kinds = rows["predicted"].to_numpy(), rows["kind"].tolist()
        identity = same[rows["row"].to_numpy()]
        sums = np.array(
            [
                predicted @ draw_factors(residuals, kinds, identity, np.random.default_rng([0, i]))
                for i in range(DRAWS)
            ]
        )
        measured = float(rows["seconds"].sum())
        low, high = np.quantile(sums, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        inside += low <= measured <= high
        total += 1
        logs.append(np.log(measured / np.median(sums)))
        mark = "" if low <= measured <= high else "  outside"
        print(
            f"{group!s:20}{len(rows):9}  {1e3 * measured:11.2f}  {1e3 * predicted.sum():9.2f}   "
            f"{1e3 * low:.2f} to {1e3 * high:.2f}{mark}",
            flush=True,
        )
    print(
        f"{inside} of {total} inside the {LEVEL:.0%} interval ({inside / total:.0%}); measured over the "
        f"draws' median: mean {np.mean(logs):+.1%}, standard deviation {np.std(logs):.1%}"
    )


def common_rows() -> pd.DataFrame:
    """Operators that both cores have held out: ``measured_i`` and ``predicted_i`` of either, seconds."""
    parts = []
    for number, name in enumerate(CORES):
        profile = Profile.load(name)
        rows, table = profile.residual_rows, profile.measurements
        assert rows is not None
        assert table is not None
        table = table[table["cache"] == profile.cache]
        features = (table[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes"))
        times = pd.DataFrame(
            {
                "operator": [correlation.signature(row) for row in zip(*features, strict=True)],
                f"measured_{number}": table["seconds"].to_numpy(),
            }
        )
        # A few operators are there twice, from two models that differ in what is a weight.
        keys = ["operator", "kind", "group"]
        logs = rows.groupby(keys, as_index=False)[MODEL].mean()
        found = logs.merge(times.groupby("operator", as_index=False).mean(), on="operator")
        found[f"predicted_{number}"] = found[f"measured_{number}"] / np.exp(found.pop(MODEL))
        parts.append(found)
    return parts[0].merge(parts[1], on=keys)


def drawn_without(
    group: str, rows: pd.DataFrame, together: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Draws of the operators' times on both cores, from what the other architectures show."""
    kept = {}
    for name in CORES:
        found = Profile.load(name).residual_rows
        assert found is not None
        kept[name] = found[found["group"] != group]
    logs = {name: frame.rename(columns={MODEL: "log_residual"}) for name, frame in kept.items()}
    residuals = {name: residuals_by_kind(frame, frame) for name, frame in logs.items()}
    known = correlation.Correlations()
    if together:
        known = correlation.measured(kept, dict.fromkeys(CORES, MODEL))
    kinds, identity = rows["kind"].tolist(), rows["operator"].to_numpy()
    predicted = [rows[f"predicted_{number}"].to_numpy() for number in (0, 1)]
    for i in range(BETWEEN_DRAWS):
        rngs = {name: np.random.default_rng([0, i, n]) for n, name in enumerate(CORES)}
        factors = draw_together(residuals, kinds, identity, rngs, known, {})
        yield predicted[0] * factors[CORES[0]], predicted[1] * factors[CORES[1]]


def between() -> None:
    """Coverage of ratios and of differences, drawn apart and together."""
    every = common_rows()
    known = correlation.measured(
        {name: Profile.load(name).residual_rows for name in CORES},  # type: ignore[misc]
        dict.fromkeys(CORES, MODEL),
    )
    for kind, entry in known.pairs[CORES].items():
        print(
            f"{kind:30} shared {entry.shared:5.2f} of {entry.means:4} pairs, own {entry.own:5.2f} of {entry.rows}"
        )
    rng = np.random.default_rng(0)
    quantiles = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    inside: dict[bool, list[bool]] = {False: [], True: []}
    widths: dict[bool, list[float]] = {False: [], True: []}
    pairs: dict[bool, list[np.ndarray]] = {False: [], True: []}
    print("architecture        operators  ratio of the cores  drawn apart     drawn together")
    for group, rows in every.groupby("group"):
        if len(rows) < FEWEST:
            continue
        measured = rows[["measured_0", "measured_1"]].to_numpy()
        ratio = float(np.log(measured[:, 1].sum() / measured[:, 0].sum()))
        first, second = rng.integers(0, 2, (2, PLACEMENTS, len(rows)))
        # One operator's time counts for the core on which it is.
        weights = np.stack([second == core for core in (0, 1)]) * 1.0
        weights -= np.stack([first == core for core in (0, 1)])
        truth = np.einsum("cpo,oc->p", weights, measured)
        line = f"{group!s:20}{len(rows):9}  {np.exp(ratio):18.3f}"
        for together in (False, True):
            times = np.array(
                list(drawn_without(str(group), rows, together))
            )  # [draw, core, operator]
            sums = times.sum(axis=2)
            low, high = np.quantile(np.log(sums[:, 1] / sums[:, 0]), quantiles)
            inside[together].append(bool(low <= ratio <= high))
            widths[together].append(high - low)
            differences = np.einsum("cpo,dco->dp", weights, times)
            lows, highs = np.quantile(differences, quantiles, axis=0)
            wins = (differences > 0).mean(axis=0)
            pairs[together].append(
                np.stack(
                    [
                        (lows <= truth) & (truth <= highs),
                        (highs - lows) / measured.sum() * 2,
                        np.maximum(wins, 1 - wins),
                        (wins > 0.5) == (truth > 0),
                        (wins - (truth > 0)) ** 2,
                    ]
                )
            )
            mark = " " if low <= ratio <= high else "*"
            line += f"  {np.exp(low):5.3f}-{np.exp(high):5.3f}{mark}"
        print(line, flush=True)
    for together in (False, True):
        covered, width, certain, right, brier = np.mean(pairs[together], axis=(0, 2))
        print(
            f"{'together' if together else 'apart':9} ratios: {sum(inside[together])} of "
            f"{len(inside[together])} inside, mean width {np.mean(widths[together]):.3f}; differences: "
            f"{covered:.1%} inside, mean width {width:.2%} of a makespan, P(win) says {certain:.1%} and "
            f"{right:.1%} are right, mean square {brier:.4f}"
        )


def gpus(models: list[str]) -> None:
    """A line for each model and two GPUs: widths of intervals, drawn apart and then together."""
    profiles = {name: Profile.load(name) for name in GPUS}
    quantiles = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    print(
        "of each way: the second's time over the first's, the widths of its log and of placements"
    )
    for model in models:
        graph = graph_of(model_config(model), 1)
        for names in itertools.combinations(GPUS, 2):
            rows = {name: profiles[name].residual_rows for name in names}
            known = correlation.measured(rows, dict.fromkeys(names, MODEL))  # type: ignore[arg-type]
            costs = price_graphs([graph], names, profiles, model=MODEL)
            residuals = [(name, profiles[name].residuals_for(MODEL)) for name in names]
            first, second = np.random.default_rng(0).integers(0, 2, (2, PLACEMENTS, len(graph)))
            weights = np.stack([(second == gpu) * 1.0 - (first == gpu) for gpu in (0, 1)])
            line = f"{model:13} {names[0]:22} {names[1]:22}"
            for correlations in (None, known):
                tables = draws(costs, residuals, BETWEEN_DRAWS, correlations=correlations)
                times = np.array([table[graph].seconds for table in tables])
                sums = times.sum(axis=1)
                low, high = np.quantile(np.log(sums[:, 1] / sums[:, 0]), quantiles)
                lows, highs = np.quantile(
                    np.einsum("gpo,dog->dp", weights, times), quantiles, axis=0
                )
                width = np.mean(highs - lows) / sums.mean()
                line += f"  {np.exp((low + high) / 2):5.2f}x {high - low:5.3f} {width:6.2%}"
            print(line, flush=True)


def makespans(model: ModelValidation) -> list[tuple[float, np.ndarray]]:
    """Of each scheduler on one job the measured makespan and the draws', seconds; the draws are paired."""
    found = []
    for saved, case in zip(model.contestants, model.cases, strict=True):
        if case.jobs != 1:
            continue
        drawn = replace(saved.scenario.simulation, draws=VALIDATION_DRAWS)
        contestant = present_contestant(
            replace(saved, scenario=replace(saved.scenario, simulation=drawn)), []
        )
        assert not isinstance(contestant, str), contestant
        scenario = contestant.scenario
        prediction = Prediction(
            world.unpartitioned(scenario, []),
            model.slowed,
            model.handover,
            model.corun,
            reuse=model.reuse,
            cooling=model.cooling,
        )
        times = [
            prediction.run(
                contestant, case.overhead, actual, scenario.seed.noise + number + 1
            ).makespan
            for number, actual in enumerate(prediction.world.draws(scenario))
        ]
        found.append((case.measured_s, np.array(times)))
    return found


def validation() -> None:
    """A line for all models so far after each, drawn apart and together."""
    saved, _ = load_validation(Path("docs/validation"), [])
    measured = Pricer.correlations
    ways = {"apart": property(lambda pricer: correlation.Correlations()), "together": measured}
    quantiles = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    cases: dict[str, list[tuple[bool, float]]] = {way: [] for way in ways}
    pairs: dict[str, list[tuple[bool, float, float]]] = {way: [] for way in ways}
    for model in saved.models:
        for way, correlations in ways.items():
            world.worlds.clear()  # which keep draws
            Pricer.correlations = correlations  # type: ignore[assignment, method-assign]
            found = makespans(model)
            for seconds, drawn in found:
                low, high = np.quantile(drawn, quantiles)
                cases[way].append((bool(low <= seconds <= high), (high - low) / seconds))
            for (one, first), (other, second) in itertools.combinations(found, 2):
                if np.allclose(first, second, rtol=1e-6):
                    continue  # the same schedule
                low, high = np.quantile(first - second, quantiles)
                wins = float((first < second).mean())
                pairs[way].append(
                    (
                        bool(low <= one - other <= high),
                        (high - low) / one,
                        (wins - (one < other)) ** 2,
                    )
                )
            inside, width = np.mean(cases[way], axis=0)
            covered, wide, brier = np.mean(pairs[way], axis=0)
            print(
                f"{model.model:16} {way:9} makespans {inside:.1%} of {len(cases[way])} inside, mean width "
                f"{width:.1%}; differences {covered:.1%} of {len(pairs[way])}, {wide:.1%}, mean square "
                f"{brier:.4f}",
                flush=True,
            )
    Pricer.correlations = measured  # type: ignore[method-assign]


if __name__ == "__main__":
    if "validation" in sys.argv[1:]:
        validation()
        sys.exit()
    if "gpus" in sys.argv[1:]:
        gpus(sys.argv[2:])
        sys.exit()
    if "between" in sys.argv[1:]:
        between()
        sys.exit()
    main(sys.argv[1] if len(sys.argv) > 1 else "amd-epyc-25-17-1core")
