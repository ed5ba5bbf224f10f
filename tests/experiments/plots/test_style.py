"""Colours of kinds, units, captions, legends."""

import itertools

from matplotlib.patches import Patch

from experiments.plots.style import (
    COLOURS,
    ONE_COLUMN,
    TWO_COLUMNS,
    caption,
    count_of,
    figure_style,
    kind_colours,
    legend_below,
    new_figure,
    shorten,
    text_colour,
    time_unit,
)


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


def test_captions_say_what_n_and_the_statistic():
    assert caption("Makespan", "3 seeds", "Mean", "", "Dotted: bound.") == (
        "Makespan. n = 3 seeds. Mean. Dotted: bound."
    )
    assert caption("Schedules", "1 run", "") == "Schedules. n = 1 run."


def test_legends_stay_on_the_page():
    """Columns are as Matplotlib fills them, which is not always the longest first."""
    words = (
        "linear",
        "scaled_dot_product_attention",
        "path-and-load bound 9.37 ms",
        "idle: no work",
        "cat",
    )
    with figure_style():
        for width, count in itertools.product((ONE_COLUMN, TWO_COLUMNS), (1, 5, 8, 14)):
            handles = [Patch(label=words[n * n % len(words)]) for n in range(count)]
            figure = new_figure(width, 3.0)
            figure.subplots()
            legend_below(figure, handles, 6)
            figure.draw_without_rendering()
            box = figure.legends[0].get_window_extent()
            assert -1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1, count
