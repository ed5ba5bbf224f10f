import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models import fit
from cost_models.roofline import Roofline
from simulator.errors import InvalidInput
from tests.cost_models.conftest import linear_row, random_table, relu_row


def test_known_answers():
    roofline = Roofline({"float32": 1e9, "float16": 4e9}, bandwidth=1e8, overhead=1e-3)
    rows = pd.DataFrame(
        [
            linear_row(100, 200, 300),  # 12 MFLOP: 12 ms; 440 kB: 4.4 ms
            linear_row(100, 200, 300) | {"dtype": "float16"},  # 3 ms; 220 kB: 2.2 ms
            linear_row(100, 200, 300) | {"dtype": "bfloat16"},  # no peak of its own: float32's
            relu_row(25_000),  # 200 kB: 2 ms
        ]
    )
    assert roofline.predict(rows) == pytest.approx([13e-3, 4e-3, 13e-3, 3e-3])


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_more_work_never_takes_less(m, k, n):
    roofline = Roofline({"float32": 1e9}, 1e9)
    small, large = roofline.predict(pd.DataFrame([linear_row(m, k, n), linear_row(m + 1, k, n)]))
    assert small <= large


@pytest.mark.parametrize(
    ("rates", "bandwidth", "overhead"),
    [({"float32": 0.0}, 1.0, 0.0), ({"float16": 1.0}, 1.0, 0.0), ({"float32": 1.0}, -1.0, 0.0),
     ({"float32": float("nan")}, 1.0, 0.0), ({"float32": 1.0}, 1.0, -1.0)],
)  # fmt: skip
def test_impossible_rates_are_refused(rates, bandwidth, overhead):
    with pytest.raises(InvalidInput):
        Roofline(rates, bandwidth, overhead)


def test_json_round_trip_and_refusal():
    roofline = Roofline({"float32": 1e9}, 1e8, 1e-6)
    assert Roofline.from_json(roofline.to_json()) == roofline
    with pytest.raises(InvalidInput, match="bandwidth_bytes_per_s"):
        Roofline.from_json({"flops_per_s": {"float32": 1.0}})


def test_fitted_rates_are_reached_by_no_row():
    table = random_table(100)
    roofline = Roofline.fitted(table)
    peaks = table["seconds"].to_numpy() + roofline.overhead
    assert (roofline.predict(table) <= peaks * 1.0000001).all()


def test_fit_gives_a_roofline():
    assert fit(random_table(10), model="roofline").name == "roofline"
    given = Roofline({"float32": 1.0}, 1.0)
    assert fit(random_table(10), model="roofline", roofline=given) is given
    with pytest.raises(InvalidInput, match="no option 'depth'"):
        fit(random_table(10), model="roofline", depth=3)


def test_a_share_of_the_rates_lengthens_the_work_but_not_the_overhead():
    rows = pd.DataFrame(
        {
            "kind": ["relu", "add"],
            "dtype": ["float32"] * 2,
            "inputs": [((1000,),), ((1000,), (1000,))],
            "outputs": [((1000,),)] * 2,
            "attributes": ["{}"] * 2,
        }
    )
    shares = {"relu": 0.5, "*": 0.25}
    model = Roofline({"float32": 1e9}, 1e6, 1e-3, shares)
    # relu moves 8,000 bytes at half of 1 MB/s, add 12,000 bytes at a quarter of it.
    assert model.of_rows(rows) == pytest.approx([0.016 + 1e-3, 0.048 + 1e-3])
    assert Roofline.from_json(model.to_json()) == model
    with pytest.raises(InvalidInput, match=r"\(0, 1\]"):
        Roofline({"float32": 1e9}, 1e6, efficiency={"relu": 1.5})
