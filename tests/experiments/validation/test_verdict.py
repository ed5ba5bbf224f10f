"""The verdict on cases whose figures are known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.validation.cases import Case, Validation, against_itself
from experiments.validation.verdict import verdict

nan = float("nan")


def case(model, scheduler, simulated, measured, low=nan, high=nan, jobs=1):
    repeats = np.array([measured, measured])
    return Case(
        model, scheduler, None, None, simulated, low, high, nan, repeats, measured, {}, jobs
    )


def lines(cases):
    return {line.what: (line.reached, line.holds) for line in verdict(cases)}


def test_each_figure_beside_its_target():
    cases = [
        case("m", "a", 1.0, 1.0, 0.9, 1.1),
        case("m", "b", 1.1, 1.2, 1.0, 1.15),  # the right loser, not in its interval
        case("n", "a", 1.02, 1.0, 0.9, 1.1),
        case("n", "b", 1.0, 1.1, 0.9, 1.2),  # chosen by simulation: 10% lost
    ]
    found = lines(cases)
    assert found["mean error"] == ("4.9%", True)  # 0, 8.3, 2.0, 9.1
    assert found["worst error"] == ("9.1%", True)
    assert found["pairs that differ by more than 5%"] == ("2 of 2 models", False)
    assert found["right winner among them"] == ("1 of 2, 50.0%", False)
    assert found["mean regret"] == ("5.0%", False)
    assert found["measured in the 90% interval"] == ("3 of 4, 75.0%", False)


def test_enough_pairs_of_enough_models():
    def of(models):
        return [
            case(f"m{m}", f"s{s}", 1.0 + 0.1 * s, 1.0 + 0.1 * s)
            for m in range(models)
            for s in range(5)
        ]

    # Ten pairs each, all of them apart by more than 5%.
    assert lines(of(6))["pairs that differ by more than 5%"] == ("60 of 6 models", True)
    assert lines(of(5))["pairs that differ by more than 5%"] == ("50 of 5 models", False)
    assert lines(of(6))["right winner among them"] == ("60 of 60, 100.0%", True)


def test_models_are_counted_once_however_many_jobs_run():
    cases = [
        case("m", scheduler, seconds * jobs, seconds * jobs, jobs=jobs)
        for jobs in (1, 4)
        for scheduler, seconds in (("a", 1.0), ("b", 2.0))
    ]
    assert lines(cases)["pairs that differ by more than 5%"] == ("2 of 1 models", False)


def test_what_cannot_be_counted_is_not_judged():
    found = lines([case("m", "a", 1.0, 1.3)])
    assert found["mean error"] == ("23.1%", False)
    assert found["right winner among them"] == ("0 of 0", None)
    assert found["mean regret"] == ("nothing to choose", None)
    assert found["measured in the 90% interval"] == ("0 of 0", None)


@pytest.mark.parametrize(("covered", "holds"), [(84, False), (85, True), (95, True), (96, False)])
def test_intervals_may_be_too_wide(covered, holds):
    cases = [case(f"m{i}", "a", 1.0, 1.0, 0.9, 1.1 if i < covered else 0.95) for i in range(100)]
    assert lines(cases)["measured in the 90% interval"][1] is holds


def repeated(scheduler, *repeats):
    return replace(case("m", scheduler, 1.0, min(repeats)), repeats_s=np.array(repeats))


def itself(*cases):
    return against_itself(Validation([SimpleNamespace(cases=cases, statistic="minimum")]))


def test_the_machine_against_itself():
    """Even repeats say a 1, b 2, c 1.08; odd ones a 1.1, b 2, c 1: of three pairs one is named wrongly."""
    cases = [
        repeated("a", 1.0, 1.1, 1.3),
        repeated("b", 2.5, 2.0, 2.0, 2.2),
        repeated("c", 1.08, 1.2, 1.3, 1.0),
    ]
    found = {line.what: line.itself for line in verdict(cases, itself(*cases))}
    assert found["mean error"] == "5.7%"  # 1 / 1.1, 2 / 2, 1.08 / 1
    assert found["worst error"] == "9.1%"
    assert found["right winner among them"] == "2 of 3, 66.7%"
    assert found["mean regret"] == "10.0%"
    assert found["measured in the 90% interval"] == ""


def test_one_run_says_nothing_of_itself():
    assert itself(repeated("a", 1.0, 1.1), repeated("b", 1.0)) == []
    assert {line.itself for line in verdict([repeated("a", 1.0)], itself(repeated("a", 1.0)))} == {
        ""
    }


def test_winners_by_the_draws_where_all_cases_have_some():
    """The one run says a, the draws say b, as it was; the machine itself has no draws."""
    drawn = [
        replace(case("m", "a", 1.0, 2.0), draws_s=np.array([1.0, 4.0])),
        replace(case("m", "b", 1.5, 1.5), draws_s=np.array([1.5, 1.5])),
    ]
    found = lines(drawn)
    assert found["right winner among them"] == ("0 of 1, 0.0%", False)
    assert found["right winner by the draws' mean"] == ("1 of 1, 100.0%", True)
    assert found["mean regret by the draws' mean"] == ("0.0%", True)
    assert [line.itself for line in verdict(drawn, itself(*drawn))][-3:] == ["", "", ""]
    assert "right winner by the draws' mean" not in lines([drawn[0], case("m", "b", 1.5, 1.5)])
