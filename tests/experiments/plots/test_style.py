"""One look per scheduler, colours of kinds, units."""

from hypothesis import given
from hypothesis import strategies as st

from experiments.plots.style import (
    _SCHEDULERS,
    COLOURS,
    count_of,
    kind_colours,
    scheduler_styles,
    shorten,
    text_colour,
    time_unit,
    with_own_markers,
)


@given(st.sets(st.sampled_from(_SCHEDULERS)), st.sets(st.text(min_size=1, max_size=6), max_size=15))
def test_schedulers_of_one_plot_differ_in_colour_or_hatch(known, own):
    styles = scheduler_styles(known | own)
    assert len({(s.colour, s.hatch) for s in styles.values()}) == len(styles)
    for name in known:  # whatever else is in the plot
        assert styles[name] == scheduler_styles([name])[name]


def test_styles_are_stable():
    # These stand in published figures: a change of the table must be noticed.
    styles = scheduler_styles(["heft", "fcfs", "donf"])
    colours = {name: style.colour for name, style in styles.items()}
    assert colours == {"heft": "#0072B2", "fcfs": "#E69F00", "donf": "#009E73"}
    assert len({s.hatch for s in styles.values()}) == 3
    mine = scheduler_styles(["mine", "heft"])["mine"]
    assert mine == scheduler_styles(["fcfs", "mine"])["mine"]


def test_lines_of_one_figure_have_markers_of_their_own():
    served = ["fcfs", "sjf", "sufferage", "edf", "fcfs_batching", "dynamic_batching", "task_groups"]
    assert len({s.marker for s in scheduler_styles(served).values()}) < len(served)
    styles = scheduler_styles(served)
    apart = with_own_markers(styles)
    assert len({s.marker for s in apart.values()}) == len(served)
    assert [(s.colour, s.dash) for s in apart.values()] == [
        (s.colour, s.dash) for s in styles.values()
    ]
    many = with_own_markers(scheduler_styles(_SCHEDULERS))
    assert len({s.marker for s in many.values()}) == 14  # and then again


def test_longest_kinds_get_colours_and_the_rest_none():
    few = kind_colours({"a": 1.0, "b": 2.0})
    assert list(few) == ["b", "a"]
    assert few["b"] == COLOURS[0]
    many = kind_colours({f"k{i}": float(i) for i in range(12)})
    assert list(many) == [f"k{i}" for i in (11, 10, 9, 8, 7, 6, 5)]
    assert len(set(many.values())) == 7
    # Grey stands for "other" and for transfers, never for a kind.
    assert "k4" not in kind_colours({f"k{i}": float(i) for i in range(4, 12)})
    assert COLOURS[-1] not in many.values()


def test_units_and_texts():
    assert time_unit([0.0012, 0.5]) == (1e3, "ms")
    assert time_unit([2.0, 0.1]) == (1.0, "s")
    assert time_unit([3e-5, float("nan")]) == (1e6, "us")
    assert time_unit([]) == (1.0, "s")
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"
    assert [count_of(c, "seed") for c in ([1, 1], [30], [6, 8])] == [
        "1 seed",
        "30 seeds",
        "6 to 8 seeds",
    ]
    assert text_colour("#0072B2") == "white"
    assert text_colour("#F0E442") == "black"
