"""Grouping cells into contests: seeds in common, paired draws, the best device, verdicts."""

import numpy as np
import pandas as pd
import pytest

from experiments.comparison.answers import label_lines, validity_lines
from experiments.comparison.leaderboard import standings
from experiments.comparison.tables import main_caption, mark
from simulator.errors import InvalidInput


def row(scheduler, makespan, draws=None, seed=0, **more):
    return {
        "cell": f"{scheduler}{seed}{more.get('model', 'm')}",
        "status": "done",
        "error": "",
        "model": "m",
        "batch": 1,
        "cluster": "c",
        "scheduler": scheduler,
        "workload": "single",
        "movement": "push",
        "contention": "fifo",
        "seed_workload": seed,
        "seed_noise": 0,
        "seed_search": 0,
        "makespan_s": makespan,
        "makespan_low_s": np.nan,
        "makespan_high_s": np.nan,
        "bound_s": 1.0,
        "critical_path_s": 1.0,
        "best_device": "gpu0",
        "best_device_s": 4.0,
        "utilisation": 0.5,
        "extrapolated_share": 0.1,
        "profiles": "1x x (measured)",
        "wall_s": 0.25,
        "draws": None if draws is None else list(draws),
        **more,
    }


def of(*rows):
    return standings(pd.DataFrame(rows))


def test_one_contest_by_hand():
    low, high = np.linspace(1.9, 2.1, 41), np.linspace(2.9, 3.1, 41)
    # b is shorter than a in the last of 41 draws.
    b = np.where(np.arange(41) < 40, high, 1.0)
    result = of(row("b", 3.0, b), row("a", 2.0, low), row("single_device", 4.0, high + 1.0))
    (contest,) = result.contests
    assert [s.scheduler for s in contest.standings] == ["a", "b"]
    assert contest.alone.scheduler == "single_device"
    assert contest.best.interval.low == pytest.approx(1.905)
    assert contest.best.best_share == pytest.approx(40 / 41)
    assert contest.standings[1].best_share == pytest.approx(1 / 41)
    assert contest.alone.best_share == 0.0
    assert contest.best.separable is None
    assert contest.standings[1].separable is True  # 40 / 41 > 0.975
    assert contest.speedup(contest.best) == 2.0
    assert contest.gap(contest.best) == 1.0
    assert result.wall_s == 0.75
    assert contest.verdict is None


def test_seeds_are_pooled_and_only_common_ones_count():
    draws = np.ones(20)
    rows = [row("a", 1.0 + seed, draws * (1 + seed), seed) for seed in range(3)]
    rows += [row("b", 2.0 + seed, draws * (2 + seed), seed) for seed in (0, 2)]
    rows += [row("b", np.nan, None, 1, status="failed", error="it broke\nfor a reason")]
    result = of(*rows)
    (contest,) = result.contests
    assert contest.seeds == 2
    assert contest.seeds_left_out == 1
    assert contest.best.makespans.tolist() == [1.0, 3.0]
    assert contest.best.draws.tolist() == [1.0] * 20 + [3.0] * 20
    assert contest.draws == 40
    assert result.failures[0].error == "it broke"
    assert "m c b" in result.failures[0].what
    assert result.cells == 6


def test_a_scheduler_without_a_common_seed_is_named_not_compared():
    rows = [
        row("a", 1.0, seed=0),
        row("a", 1.5, seed=1),
        row("b", 2.0, seed=0),
        row("c", 3.0, seed=9),
    ]
    (contest,) = of(*rows).contests
    assert [s.scheduler for s in contest.standings] == ["a", "b"]
    assert contest.absent == ("c",)


def test_draws_that_are_not_paired_give_no_probability():
    rows = [
        row("a", 1.0, np.ones(40)),
        row("b", 2.0, None, makespan_low_s=1.5, makespan_high_s=2.5),
    ]
    (contest,) = of(*rows).contests
    assert contest.best.best_share is None
    assert contest.standings[1].separable is None
    assert contest.standings[1].interval.low == 1.5
    (few,) = of(row("a", 1.0, np.ones(19)), row("b", 2.0, np.ones(19))).contests
    assert few.best.best_share is None
    bad = np.ones(40)
    bad[3] = np.inf
    (clean,) = of(row("a", 1.0, np.ones(40)), row("b", 2.0, bad)).contests
    assert clean.draws == 39


@pytest.mark.parametrize(
    ("makespan", "facts", "verdict"),
    [
        (
            3.97,
            {"critical_path_s": 3.9},
            "a chain, scheduling cannot help (critical path 98% of gpu0)",
        ),
        (
            3.97,
            {"critical_path_s": 2.0},
            "none is faster than gpu0 alone (critical path 50% of it)",
        ),
        (
            3.97,
            {"critical_path_s": 2.0, "graph_width": 1.0},
            "a chain, scheduling cannot help (width 1, critical path 50% of gpu0)",
        ),
        (
            2.0,
            {"critical_path_s": 2.0, "graph_width": 1.0},
            "a chain, scheduling cannot help (width 1, critical path 50% of gpu0)",
        ),
        (
            1.01,
            {"graph_width": 3.0},
            "at the lower bound, scheduling cannot help (the critical path is 99% of the makespan)",
        ),
        (
            1.01,
            {"critical_path_s": 0.6},
            "at the lower bound, scheduling cannot help (the load is 99% of the makespan)",
        ),
        (2.0, {}, "the choice among them does not matter"),
    ],
)
def test_verdicts(makespan, facts, verdict):
    (contest,) = of(row("a", makespan, **facts), row("b", makespan * 1.009, **facts)).contests
    assert contest.verdict == verdict
    (apart,) = of(row("a", makespan, **facts), row("b", makespan * 1.011, **facts)).contests
    assert apart.verdict is None


def test_contests_are_told_apart_by_setting_model_and_batch():
    rows = [
        row("a", 1.0),
        row("a", 1.0, model="n"),
        row("a", 1.0, batch=8),
        row("a", 1.0, contention="none"),
        row("a", 1.0, cluster="d"),
    ]
    result = of(*rows)
    assert len(result.contests) == 5
    assert len(result.settings) == 3
    labels = [result.label(contest, True) for contest in result.contests]
    assert labels == [
        "m x1, c fifo",
        "n x1, c fifo",
        "m x8, c fifo",
        "m x1, c none",
        "m x1, d fifo",
    ]


def test_a_sweep_of_single_devices_compares_them():
    rows = [row("single_device(device=cpu0)", 8.0), row("single_device(device=gpu0)", 4.0)]
    (contest,) = of(*rows).contests
    assert contest.best.scheduler == "single_device(device=gpu0)"
    (contest,) = of(row("heft", 2.0), *rows).contests
    assert [s.scheduler for s in contest.standings] == ["heft", "single_device(device=cpu0)"]
    assert contest.alone.scheduler == "single_device(device=gpu0)"


def test_old_results_without_optional_columns_are_read():
    table = pd.DataFrame([row("a", 1.0)])[
        ["cell", "status", "model", "cluster", "scheduler", "makespan_s"]
    ]
    (contest,) = standings(table).contests
    assert contest.verdict is None
    assert np.isnan(contest.gap(contest.best))


def test_refusals():
    with pytest.raises(InvalidInput, match="lack column makespan_s"):
        standings(pd.DataFrame([row("a", 1.0)]).drop(columns="makespan_s"))
    with pytest.raises(InvalidInput, match="damaged"):
        of(row("a", np.nan))


def test_a_run_of_which_jobs_failed_wins_nothing():
    result = of(row("a", 1.0, jobs_failed=2.0), row("b", 3.0, jobs_failed=0.0), row("c", 4.0))
    (contest,) = result.contests
    assert [s.scheduler for s in contest.standings] == ["b", "c"]
    (failure,) = result.failures
    assert failure.error == "2 of its jobs failed"


def test_what_was_not_validated_is_marked_and_graphs_of_partitions_have_bounds_of_their_own():
    line = "CPU and GPU together: one run, 24.7% off"
    split = row("split", 1.5, partition="tensor_split", unvalidated=True, validity=line) | {
        "bound_s": 0.4
    }
    result = of(row("heft", 2.0, partition="none", unvalidated=False), split)
    (contest,) = result.contests
    assert contest.bound_s == 0.4  # what holds for an operator does not hold for its parts
    assert {s.scheduler: mark(s) for s in contest.standings} == {"split": "!", "heft": ""}
    assert validity_lines(result) == [f"validity: {line}"]
    assert "!: not validated" in main_caption(result)
    alone = of(
        row("split", 1.5, partition="split", unvalidated=False),
        row("heft", 2.0, partition="none", unvalidated=None),
    )
    assert not any(s.unvalidated for s in alone.contests[0].standings)


def test_devices_of_different_labels_are_named_with_the_interval_of_their_ratio():
    draws = np.linspace(0.9, 1.1, 41)
    inside = "orin (datasheet) against core (measured): 0.12 [0.1, 0.3] of its time"
    mixed = "1x core (measured), 1x orin (datasheet)"
    rows = [
        row("heft", 1.0, draws, compared=inside, profiles=mixed, cluster="mixed", model="a"),
        row("heft", 2.0, draws, compared=inside, profiles=mixed, cluster="mixed", model="b"),
        row(
            "heft", 4.0, 4 * draws[::-1], profiles="1x core (measured)", cluster="cores", model="a"
        ),
    ]
    (line,) = label_lines(of(*rows))
    # The ratio of two clusters is of the draws as they are paired: 4 x 1.1 / 0.9 at most.
    low, high = np.percentile(4 * draws[::-1] / draws, [2.5, 97.5])
    assert line == (
        f"different labels are compared: {inside} on a; cores (measured) against mixed (datasheet and measured): "
        f"4 [{low:.2g}, {high:.2g}] of its time on a"
    )
    alike = of(*(r | {"compared": "", "profiles": "1x core (measured)"} for r in rows))
    assert label_lines(alike) == []
    unknown = of(*(r | {"interval_without": "orin"} for r in rows))
    assert "4 (nobody knows the error of orin) of its time" in label_lines(unknown)[0]
