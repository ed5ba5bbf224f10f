"""One look per scheduler in all figures of a sweep."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.plots.looks import (
    MORE_MARKERS,
    OWN_COLOUR,
    SCHEDULERS,
    WIDTHS,
    Look,
    scheduler_styles,
)
from experiments.plots.style import COLOURS, MARKERS, ONE_COLUMN, TWO_COLUMNS
from simulator.errors import InvalidInput
from tests.examples import examples

NAMES = st.sets(st.text("abcd_", min_size=1, max_size=4), max_size=15)


@settings(max_examples=examples(60))
@given(st.sets(st.sampled_from(SCHEDULERS)), NAMES, st.integers(0, 3))
def test_schedulers_of_one_sweep_differ_in_all_that_there_is_enough_of(known, others, count):
    names = known | others
    own = sorted(others)[:count]
    styles = scheduler_styles(names, own)
    assert set(styles) == names
    assert len({(s.colour, s.hatch) for s in styles.values()}) == len(names)
    assert len({s.colour for s in styles.values()}) >= min(len(names), 16)
    assert len({s.marker for s in styles.values()}) == min(len(names), 15)
    assert {name for name, style in styles.items() if style.own} == set(own)
    # The first eight of the library look the same, whoever else is there.
    for name in known & set(SCHEDULERS[:8]):
        assert (styles[name].colour, styles[name].hatch) == (
            scheduler_styles([name])[name].colour,
            scheduler_styles([name])[name].hatch,
        )


def test_styles_are_stable():
    # These stand in published figures: a change of the table must be noticed.
    styles = scheduler_styles(["heft", "fcfs", "donf"])
    colours = {name: style.colour for name, style in styles.items()}
    assert colours == {"heft": "#0072B2", "fcfs": "#E69F00", "donf": "#009E73"}
    assert [styles[name].marker for name in ("heft", "fcfs", "donf")] == ["o", "s", "D"]
    first = scheduler_styles(SCHEDULERS[:16])
    assert len({s.colour for s in first.values()}) == 16
    assert all(first[name] == scheduler_styles([name])[name] for name in SCHEDULERS[:8])
    assert len(MARKERS + MORE_MARKERS) == len(set(MARKERS + MORE_MARKERS)) == 15


def test_two_that_share_a_colour_by_themselves_do_not_in_one_sweep():
    # Number 0 and number 16 of the table.
    assert scheduler_styles(["heft"])["heft"].colour == scheduler_styles(["sjf"])["sjf"].colour
    styles = scheduler_styles(["heft", "sjf"])
    assert styles["heft"].colour == COLOURS[0] != styles["sjf"].colour


def test_a_users_own_scheduler_stands_out():
    styles = scheduler_styles(["heft", "mine", "fcfs"], ["mine"])
    mine = styles["mine"]
    assert (mine.colour, mine.own, mine.dash) == (OWN_COLOUR, True, "-")
    assert mine.weight > styles["heft"].weight == 1.0
    assert OWN_COLOUR not in {s.colour for s in scheduler_styles(SCHEDULERS).values()}


def test_a_look_is_of_the_whole_sweep():
    look = Look.of("column", ["heft", "sjf", "mine"], ["mine"])
    assert look.styles(["sjf"])["sjf"] == look.styles(["sjf", "heft"])["sjf"]
    assert look.width() == look.width(TWO_COLUMNS) == WIDTHS["column"] == ONE_COLUMN == 3.33
    assert look.narrow
    usual = Look.of(None, [])
    assert (usual.width(), usual.width(ONE_COLUMN), usual.narrow) == (7.0, 3.33, False)
    assert Look.of("page", []).width(ONE_COLUMN) == 7.0
    with pytest.raises(
        InvalidInput, match=r"no style=poster; known: column \(3.33 in\), page \(7 in\)"
    ):
        Look.of("poster", [])
