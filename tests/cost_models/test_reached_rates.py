import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.reached_rates import LEAST, ReachedRates, terms_of
from cost_models.roofline import Roofline
from tests.cost_models.conftest import linear_row

ROOFLINE = Roofline({"float32": 1e12, "bfloat16": 8e12}, 1e11, 3e-6)


def products(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(4), np.log(4096), (rows, 3))).astype(int)
    return pd.DataFrame([linear_row(*map(int, size)) for size in sizes])


def test_terms_are_the_two_sides_of_the_roofline():
    rows = pd.DataFrame([linear_row(2, 3, 5), linear_row(2, 3, 5, dtype="bfloat16")])
    flops = 2 * 2 * 3 * 5
    elements = 2 * 3 + 5 * 3 + 2 * 5
    expected = [[flops / 1e12, 4 * elements / 1e11], [flops / 8e12, 2 * elements / 1e11]]
    assert terms_of(rows, ROOFLINE) == pytest.approx(np.array(expected))


@settings(max_examples=20, deadline=None)
@given(st.floats(1, 10), st.floats(1, 10), st.floats(1e-6, 1e-4))
def test_known_rates_are_found_again(arithmetic, traffic, overhead):
    terms = terms_of(products(60), ROOFLINE)
    true = ReachedRates(arithmetic, traffic, overhead)
    found = ReachedRates.fitted(terms, true.bare(terms), ROOFLINE.overhead)
    assert found.to_json() == pytest.approx(true.to_json(), rel=1e-3)


def test_few_rows_take_the_roofline_s_own_rates():
    terms = terms_of(products(LEAST - 1), ROOFLINE)
    assert ReachedRates.fitted(terms, np.full(LEAST - 1, 1.0), 3e-6) == ReachedRates(1, 1, 3e-6)


def test_a_fit_never_leaves_a_row_without_a_time():
    terms = terms_of(products(50), ROOFLINE)
    # The larger the product, the shorter: nothing that the three terms could say.
    found = ReachedRates.fitted(terms, 1e-9 / terms.sum(axis=1), ROOFLINE.overhead)
    assert (found.bare(terms) > 0).all()


@pytest.mark.parametrize("numbers", [[1, 2], [1, 2, -1], [1, 2, float("nan")], "abc", None])
def test_damage_is_refused(numbers):
    with pytest.raises((TypeError, ValueError)):
        ReachedRates.from_json(numbers)
