import numpy as np
import pandas as pd
import pytest

from calibration.samples import in_dtype
from cost_models.arithmetic import operator_bytes, operator_flops
from cost_models.boosted import Boosted
from cost_models.roofline import Roofline
from cost_models.table import load, rows_of
from experiments.calibrating.active import Score, choose, next_operators, scores
from tests.calibration.conftest import linear, relu

ROOFLINE = Roofline({"float32": 1e10}, 5e9, 3e-6)


def samples(count, seed):
    rng = np.random.default_rng(seed)
    found = {}
    while len(found) < count:
        m, k, n = (int(v) for v in np.exp(rng.uniform(np.log(8), np.log(512), 3)))
        for sample in (linear(m, k, n), relu(m, k)):
            found.setdefault(sample.identity, sample)
    return list(found.values())[:count]


def law(operators):
    """A machine whose element-wise kernels are plain and whose products have a step and a wave."""
    seconds = []
    for sample in operators:
        operator = sample.operator
        work, moved = operator_flops(operator), operator_bytes(operator)
        time = max(work / 1e10, moved / 5e9) + 3e-6
        if operator.kind == "linear":
            k = operator.inputs[0].shape[1]
            time *= (3.0 if k < 40 else 1.0) * (1 + 0.5 * np.sin(3 * np.log(k)))
        seconds.append(time)
    return np.array(seconds)


def table_of(operators):
    rows = rows_of([sample.operator for sample in operators])
    return load(rows.assign(device="box", source="law", seconds=law(operators)))


def error(operators, unseen):
    model = Boosted.fitted(table_of(operators), roofline=ROOFLINE, rounds=100)
    found = model.predict(rows_of([sample.operator for sample in unseen]))
    return float(np.abs(np.log(found / law(unseen))).mean())


def test_choice_by_disagreement_teaches_more_than_chance():
    unseen = samples(400, 99)
    gains = []
    for seed in range(3):
        pool = samples(600, seed)
        begun, pool = pool[:60], pool[60:]
        taught, lucky = list(begun), list(begun)
        left = list(pool)
        for turn in range(2):
            chosen = next_operators(table_of(taught), ROOFLINE, left, 40, seed + turn)
            taught += chosen
            left = [sample for sample in left if sample not in chosen]
        rng = np.random.default_rng(seed)
        lucky += [pool[i] for i in rng.choice(len(pool), 80, replace=False)]
        assert len(taught) == len(lucky)
        gains.append(error(taught, unseen) / error(lucky, unseen))
    assert np.mean(gains) < 0.9
    assert max(gains) < 1.0


def test_what_is_uncertain_scores_higher_and_what_is_long_lower():
    pool = samples(300, 1)
    known, rest = pool[:120], pool[120:]
    found = scores(table_of(known), ROOFLINE, rows_of([s.operator for s in rest]))
    kinds = np.array([sample.operator.kind for sample in rest])
    assert np.median(found.error[kinds == "linear"]) > 2 * np.median(found.error[kinds == "relu"])
    assert found.value == pytest.approx(found.error**2 / (0.01 + 6 * found.seconds))


def test_a_kind_that_was_never_measured_is_the_most_uncertain():
    known = [sample for sample in samples(80, 2) if sample.operator.kind == "relu"]
    rest = samples(40, 3)
    found = scores(table_of(known), ROOFLINE, rows_of([s.operator for s in rest]))
    kinds = np.array([sample.operator.kind for sample in rest])
    assert found.error[kinds == "linear"].min() > found.error[kinds == "relu"].max()


def test_chances_are_proportional_to_scores():
    score = Score(np.array([1.0, 3.0, 0.0]), np.ones(3), np.ones(3))
    drawn = [choose(score, 1, seed)[0] for seed in range(2000)]
    assert np.bincount(drawn, minlength=3) / 2000 == pytest.approx([0.25, 0.75, 0], abs=0.04)
    assert choose(score, 2) == [0, 1]
    assert choose(score, 2, 7) == choose(score, 2, 7)


def test_a_small_pool_is_taken_whole_and_types_are_told_apart():
    known = samples(60, 4)
    assert next_operators(table_of(known), ROOFLINE, known[:5], 9) == known[:5]
    pool = [in_dtype(sample, "bfloat16") for sample in samples(30, 5)]
    chosen = next_operators(table_of(known), ROOFLINE, pool, 10)
    assert len(chosen) == 10
    assert all(sample in pool for sample in chosen)
    assert isinstance(table_of(known), pd.DataFrame)
