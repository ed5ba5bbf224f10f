"""Everything that is worked out from a sweep's contests before any of it is written or drawn."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.comparison.contests import Standings
from experiments.comparison.effects import Effects, effects
from experiments.comparison.overall import Overall, overall
from experiments.comparison.pairs import PairTests, Unit, compare_pairs
from experiments.comparison.robustness import Robustness, error_factor, robustness
from experiments.comparison.winners import WinnerMap, choose_map, winner_map
from simulator.errors import InvalidInput

UNITS: tuple[Unit, ...] = ("contest", "seed")


@dataclass(frozen=True)
class Options:
    """What a comparison is asked for.

    Attributes:
        baseline: the scheduler that all others are compared with.
        map: the two factors of the map of winners.
        unit: what tests pair: ``contest`` (a model in a setting, seeds averaged) or ``seed``.
        error: the factor that is the error of the estimates.
    """

    baseline: str | None = None
    map: tuple[str, str] | None = None
    unit: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Analysis:
    """A sweep's comparison; None for what the sweep has no data for.

    Attributes:
        baseline: the scheduler that all others are tested against; None where all pairs are.
        why_not: for each question without an answer, why.
    """

    standings: Standings
    baseline: str | None
    overall: Overall | None
    pairs: PairTests | None
    effects: Effects
    winners: WinnerMap | None
    robustness: Robustness | None
    why_not: dict[str, str]


def analyse(standings: Standings, options: Options | None = None) -> Analysis:
    """Work out the statistics of a comparison.

    Raises:
        InvalidInput: a factor is named that does not vary, or an unknown unit.
    """
    options = options or Options()
    unit = next((name for name in UNITS if name == options.unit), None)
    if options.unit is not None and unit is None:
        raise InvalidInput(f"There is no unit={options.unit}; known: {', '.join(UNITS)}")
    instances = standings.instances
    axes = choose_map(standings.factors, options.map)
    error = error_factor(standings.factors, options.error)
    several = len(standings.schedulers) > 1
    why_not: dict[str, str] = {}
    found = effects(standings)
    if not found.effects:
        why_not["paired differences"] = "nothing but model and scheduler varies"
    winners = winner_map(instances, *axes) if axes and several else None
    if winners is not None and not len(winners.frame):
        winners = None
    if winners is None:
        why_not["map of winners"] = (
            "needs several schedulers" if axes else "fewer than two numeric factors vary (map=x,y)"
        )
    regrets = robustness(instances, error) if error and several else None
    if regrets is None:
        why_not["robustness"] = (
            "needs several schedulers" if error else "no systematic error of the estimates varies"
        )
    baseline = options.baseline if options.baseline in instances.schedulers else None
    return Analysis(
        standings,
        baseline,
        overall(instances, unit) if several else None,
        compare_pairs(instances, baseline, unit) if several else None,
        found,
        winners,
        regrets,
        why_not,
    )
