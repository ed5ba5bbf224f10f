"""What a calibration measures: as many operators as the budget allows, then those that were chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.calibrating.fitting import priced_state, roofline_of
from experiments.calibrating.settings import CalibrateConfig
from simulator.model.units import parse_seconds

if TYPE_CHECKING:
    from calibration.samples import OperatorSample

VISITS = 5
"""Visits that a short operator should get, long ones fewer (:func:`calibration.process.order_of_visits`); the budget
decides how many operators that leaves."""
CLEARING_SECONDS = {"cpu": 0.0075, "cuda": 0.01}
KERNEL_SECONDS = {"cpu": 0.0097, "cuda": 0.01}
"""Mean over an operator's visits of what comes before the calls and of the calls themselves, which ``repeat_kernel``
multiplies: 17.1 ms a visit on an EPYC core and 36.5 ms on one that runs each kernel three times. A GPU's have not been
measured."""
ACTIVE_SECONDS, ACTIVE_TURNS = 240.0, 4
"""Of the budget for each choice of what to measure next, and the most choices."""
BEGUN = 0.6
"""Of operators and budget, measured before anything is chosen."""
LEAST_POOL, POOL = 3, 0.25
"""Operators to choose one from; if the project's set has fewer left, so many are drawn besides, times
its usual number of each kind."""
NEARLY_ALL = 0.85
"""Of what is to be chosen: if the project's set has so much left and no more, all of it is taken."""


def thinned(operators: Sequence[OperatorSample], count: int) -> list[OperatorSample]:
    """About ``count`` operators, four of each kind and evenly from larger kinds; order kept."""
    if len(operators) <= count:
        return list(operators)
    kinds: dict[str, list[int]] = {}
    for position, sample in enumerate(operators):
        kinds.setdefault(sample.operator.kind, []).append(position)
    sizes = np.array([len(positions) for positions in kinds.values()])
    least, rate = np.minimum(sizes, 4), count / len(operators)
    for _ in kinds:  # what kinds at their least take the others have not
        more = sizes * rate > least
        rate = max(0.0, count - least[~more].sum()) / max(1, sizes[more].sum())
    shares = np.maximum(least, np.rint(sizes * rate).astype(int)).tolist()
    kept: set[int] = set()
    for positions, share in zip(kinds.values(), shares, strict=True):
        kept.update(positions[i * len(positions) // share] for i in range(share))
    return [operators[position] for position in sorted(kept)]


def affordable(config: CalibrateConfig) -> int:
    """How many operators can be visited :data:`VISITS` times each within the budget."""
    if config.operators_at_most is not None:
        return config.operators_at_most
    sort = config.device.partition(":")[0]
    visit = CLEARING_SECONDS[sort] + config.repeat_kernel * KERNEL_SECONDS[sort]
    return max(100, int(parse_seconds(config.budget, "budget") / (VISITS * visit)))


def chosen_operators(config: CalibrateConfig, folder: Path) -> list[OperatorSample]:
    """What to measure: a begun folder's own operators, else the file's or the project's set.

    Operators of ``config.model`` are all kept; the others are thinned to what the budget allows. With
    ``config.only`` nothing else is measured, and nothing thinned.
    """
    from calibration.measure import SHIPPED_OPERATORS
    from calibration.samples import distinct, in_dtypes, read_samples

    begun = folder / "raw" / "operators.json"
    if config.only:
        return distinct(
            in_dtypes([*_model_operators(config), *_named_operators(config)], config.dtypes)
        )
    if begun.exists():
        training = _training_operators() if config.training else []
        return distinct([*read_samples(begun), *in_dtypes(training, config.dtypes)])
    asked = in_dtypes(_model_operators(config), config.dtypes)
    operators = _named_operators(config) if config.operators else read_samples(SHIPPED_OPERATORS)
    if config.operators != "training":
        operators += _training_operators() if config.training else []
    operators = in_dtypes(operators, config.dtypes)
    count = affordable(config)
    if turns(config):
        count = int(count * BEGUN)
    if config.start is not None:
        from cost_models.profile import Profile
        from experiments.calibrating.few_shot import few_operators

        chosen = few_operators(operators, Profile.load(config.start), max(count - len(asked), 1))
        return distinct([*asked, *chosen])
    return distinct([*asked, *thinned(operators, max(count - len(asked), 1))])


def _training_operators() -> list[OperatorSample]:
    from calibration.measure import SHIPPED_OPERATORS
    from calibration.samples import read_samples

    return read_samples(SHIPPED_OPERATORS.with_name("training_operators.json.gz"))


def _named_operators(config: CalibrateConfig) -> list[OperatorSample]:
    """Of ``config.operators``; none where that is null."""
    from calibration.samples import read_samples

    if config.operators == "training":
        return _training_operators()
    return read_samples(config.operators) if config.operators else []


def _model_operators(config: CalibrateConfig) -> list[OperatorSample]:
    from calibration.sampling import model_operators
    from scenarios.model_config import graph_of

    model = config.model
    if model is None:
        return []
    return model_operators((model.name, graph_of(model, batch)) for batch in config.batches)


def turns(config: CalibrateConfig) -> int:
    """How often what to measure next is chosen."""
    if config.only:
        return 0
    seconds = parse_seconds(config.budget, "budget")
    found = min(ACTIVE_TURNS, int(seconds * (1 - BEGUN) / ACTIVE_SECONDS))
    if config.active is None:
        usual = config.step == "all" and config.operators is None and config.rounds is None
        return found if usual and seconds > 2 * ACTIVE_SECONDS else 0
    return max(found, 1) if config.active else 0


def next_count(config: CalibrateConfig, operators: int, turn: int) -> int:
    """How many to choose, so that time and number of operators grow alike.

    Args:
        config: of the run.
        operators: of the run so far.
        turn: choices that are still to come.
    """
    share = (1 - BEGUN) / turns(config)
    return max(int(operators * share / (1 - share * (turn + 1))), 1)


def more_operators(
    config: CalibrateConfig,
    folder: Path,
    operators: Sequence[OperatorSample],
    turn: int,
    show: Callable[[str], None],
) -> list[OperatorSample]:
    """What to measure next, of the project's set or of new draws; with a model, of its kinds only.

    Args:
        config: of the run.
        folder: of the run, measured before.
        operators: those of the run so far.
        turn: choices that are still to come.
        show: called with a line of progress.
    """
    from calibration import summary
    from calibration.folder import plan_of
    from calibration.measure import SHIPPED_OPERATORS
    from calibration.samples import distinct, in_dtypes, read_samples
    from calibration.sampling import DRAWN, sampled_operators
    from cost_models import table as tables
    from experiments.calibrating.active import next_operators

    raw = folder / "raw"
    table = tables.load(summary.measurement_table(raw, config.statistic))
    state = priced_state(config.cache, plan_of(raw).states)
    table = table[table["cache"] == state].reset_index(drop=True)
    asked = _model_operators(config) if config.model else operators
    kinds = {sample.operator.kind for sample in asked}
    show(f"choosing what to measure next, after {len(operators)} operators")
    measured = {sample.identity for sample in operators}

    def unmeasured(samples: Sequence[OperatorSample]) -> list[OperatorSample]:
        found = distinct(in_dtypes(samples, config.dtypes))
        return [s for s in found if s.identity not in measured and s.operator.kind in kinds]

    count = next_count(config, len(operators), turn)
    pool = unmeasured(read_samples(SHIPPED_OPERATORS))
    if NEARLY_ALL * count <= len(pool) <= count:
        return pool
    if len(pool) < LEAST_POOL * count:  # drawing takes longer than choosing
        drawn = sampled_operators(POOL, [k for k in DRAWN if k in kinds], config.seed + 101 + turn)
        pool = distinct([*pool, *unmeasured(drawn)])
    return next_operators(table, roofline_of(raw), pool, count, config.seed + turn)
