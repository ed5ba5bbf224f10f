"""The yardsticks of the accuracy benchmark are what they are called."""

import numpy as np
import pytest

from cost_models.reached_rates import terms_of
from cost_models.roofline import Roofline
from cost_models.table import load
from tests.benchmarks.cost_models import _has_group, log_time
from tests.cost_models.conftest import random_table

ROOFLINE = Roofline({"float32": 1e9}, 1e9)


@pytest.fixture
def table():
    return load(random_table(120)).assign(device="nvidia-h100-sxm")


def test_trees_on_log_time_know_no_rates(table):
    model = log_time(table)
    terms = terms_of(table, model.roofline)
    for group in model.groups.values():
        believed = group.rates.bare(terms)
        assert np.ptp(believed) < 1e-9 * believed.min()
    # Times that are all ten times as long are found ten times as long.
    slower = log_time(table.assign(seconds=10 * table["seconds"]))
    assert slower.predict(table) == pytest.approx(10 * model.predict(table), rel=1e-3)


def test_a_group_is_left_out_only_where_there_is_one(table):
    assert _has_group(table, "tiles and waves")
    assert _has_group(table, "cache fit")
    unknown = table.assign(device="box")  # no data sheet
    assert not _has_group(unknown, "tiles and waves")
    assert _has_group(unknown, "alignment")
