"""The main table's text, at most 100 columns wide, and its files."""

import io
import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from experiments.comparison import answers, markup, rounding, tables, terminal
from experiments.comparison.leaderboard import standings
from simulator.errors import InvalidInput
from tests.experiments.comparison.test_leaderboard import row

RNG = np.random.default_rng(7)
TRUTH = RNG.normal(1.0, 0.05, 200)


def shown(lines):
    console = Console(file=io.StringIO(), width=100, highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True)
    return console.file.getvalue().splitlines()


def small():
    """heft and donf close together, fcfs behind; a chain; a failure."""
    facts = {
        "profiles": "2x amd-epyc-25-17-1core (measured), 1x tesla-t4 (datasheet, fp32)",
        "cluster": "cpu2_gpu1",
        "bound_s": 0.040,
        "critical_path_s": 0.030,
        "best_device_s": 0.0568,
        "extrapolated_share": 0.05,
    }
    chain = facts | {"model": "bert_base", "critical_path_s": 0.055, "bound_s": 0.055}
    wiggle = np.where(np.arange(200) < 110, 1.01, 0.99)
    return standings(
        pd.DataFrame(
            [
                row("fcfs", 0.0520, 0.0520 * TRUTH, model="inception_v3", **facts),
                row("heft", 0.0412, 0.0412 * TRUTH, model="inception_v3", **facts),
                row("donf", 0.0414, 0.0412 * TRUTH * wiggle, model="inception_v3", **facts),
                row("single_device", 0.0568, 0.0568 * TRUTH, model="inception_v3", **facts),
                row("fcfs", 0.0570, 0.057 * TRUTH, **chain),
                row("heft", 0.0569, 0.057 * TRUTH, **chain),
                row("donf", np.nan, status="failed", error="no profile", **chain),
            ]
        )
    )


def test_a_setting_says_what_decisions_cost():
    text = "wall clock, not reproducible"
    rows = [row(name, 1.0, decision_cost=text) for name in ("heft", "fcfs")]
    (setting,) = standings(pd.DataFrame(rows)).settings
    assert answers.rules(setting) == f"push, fifo, decisions cost {text}"


def test_terminal_table_golden():
    lines = shown(
        terminal.terminal_table(small(), None, 1.93, "s/failures.csv", "again rerun=failed")
    )
    low, high = np.percentile(TRUTH, [2.5, 97.5])
    heft = f"[{41.2 * low:.1f}, {41.2 * high:.1f}]"
    wiggled = np.percentile(41.2 * TRUTH * np.where(np.arange(200) < 110, 1.01, 0.99), [2.5, 97.5])
    donf = f"[{wiggled[0]:.1f}, {wiggled[1]:.1f}]"
    fcfs = f"[{52.0 * low:.1f}, {52.0 * high:.1f}]"
    alone = f"[{56.8 * low:.1f}, {56.8 * high:.1f}]"
    assert lines == [
        "inception_v3: heft beats fcfs by 21% [21, 21], P(win) > .99; heft and donf not separable",
        "Cluster cpu2_gpu1: 2x amd-epyc-25-17-1core (measured), 1x tesla-t4 (datasheet: uncalibrated, fp32)",
        "  push, fifo",
        "",
        "model         scheduler         makespan ms  [95%]         vs best     gap  util  P(best)",
        f"inception_v3  heft                     41.2  {heft}    1.38x   <= 3%   50%      .55",
        f"              donf                     41.4  {donf}    1.37x   <= 4%   50%      .45 ~",
        f"              fcfs                     52.0  {fcfs}    1.09x  <= 30%   50%      .00",
        f"              best device gpu0         56.8  {alone}    1.00x       -     -      .00",
        "bert_base     2 schedulers within 0.2% of 56.9 ms: a chain, scheduling cannot help",
        "  (critical path 97% of gpu0)",
        "",
        "~ not separable from the best     time in measured range 95%, extrapolated 5%",
        "interval: predictor error (correlated by kind) + noise, 200 draws     7 cells, 1 failed, 1.9 s",
        "times are of the profiled devices, not of this machine; to profile this one:",
        "  python -m experiments.calibrate device=cpu",
        "failed 1x: no profile (first: bert_base cpu2_gpu1 donf seeds 0,0,0)",
        "all failed cells: s/failures.csv",
        "run them again: again rerun=failed",
    ]


def test_baseline_and_unknown_baseline():
    table = small()
    (sentence,) = answers.answers(table, "donf")
    assert sentence.startswith(
        "inception_v3: heft is 0.5% [-1, 1] ahead of donf, not separable (P(win) .55)"
    )
    (sentence,) = answers.answers(table, "heft")  # the best itself: against the next
    assert "ahead of donf" in sentence
    with pytest.raises(InvalidInput, match=r"No scheduler 'hefty'.*donf, fcfs, heft"):
        answers.check_baseline(table, "hefty")


def test_the_headline_is_not_against_the_worst():
    """Without a baseline the best is held against the next, and of two that no draws tell apart nobody beats."""
    rows = [row(name, base, base * TRUTH) for name, base in (("a", 1.0), ("b", 1.2), ("c", 9.0))]
    assert answers.answers(standings(pd.DataFrame(rows)))[0].startswith("m: a beats b by 17%")
    shares = np.where(np.arange(200) < 190, 0.9, 1.1)  # 95% of the draws, which is not enough
    rows = [row("a", 0.9, shares), row("b", 1.0, np.ones(200))]
    (sentence,) = answers.answers(standings(pd.DataFrame(rows)))
    assert sentence == "m: a is 10% [-10, 10] ahead of b, not separable (P(win) .95)"
    # Draws that are off to one side turn who is ahead, and the sentence with it.
    rows = [row("a", 0.99, np.full(200, 1.2)), row("b", 1.0, np.ones(200))]
    (sentence,) = answers.answers(standings(pd.DataFrame(rows)))
    assert sentence.startswith("m: b beats a by 17% [17, 17]")


def test_given_times_need_no_interval():
    rows = [row(name, base, cost_model="given") for name, base in (("a", 1.0), ("b", 2.0))]
    assert answers.answers(standings(pd.DataFrame(rows)))[0].startswith("m: a beats b by 50%")
    noisy = [r | {"noise": "lognormal(sigma=0.1)"} for r in rows]
    assert "cannot tell" in answers.answers(standings(pd.DataFrame(noisy)))[0]


def test_answers_without_differences_or_competitors():
    rows = [row("a", 2.0), row("b", 2.0)]
    assert answers.answers(standings(pd.DataFrame(rows))) == [
        "no scheduler stands out: all are within 1% of one another on every model"
    ]
    assert answers.answers(standings(pd.DataFrame(rows[:1]))) == [
        "one scheduler: nothing to compare; add others with scheduler=a,b"
    ]


def test_several_seeds_are_said_and_bootstrapped():
    rows = [
        row(name, base * (1 + 0.01 * seed), base * (1 + 0.01 * seed) * TRUTH, seed)
        for name, base in (("a", 1.0), ("fcfs", 2.0))
        for seed in range(6)
    ]
    table = standings(pd.DataFrame(rows))
    (sentence,) = answers.answers(table)
    assert sentence == "m: a beats fcfs by 50% [50, 50], P(win) > .99, mean of 6 seeds [50, 50]"
    text = "\n".join(shown(terminal.terminal_table(table)))
    assert "1200 draws pooled over 6 seeds" in text
    assert "1.5 s of computing" not in text or "12 cells" in text


def test_without_draws_nothing_is_claimed():
    table = standings(pd.DataFrame([row("a", 1.0), row("fcfs", 2.0)]))
    lines = shown(terminal.terminal_table(table))
    assert lines[0] == "m: a is 50% ahead of fcfs, no interval: cannot tell"
    assert any("no interval: no draws" in line for line in lines)
    assert not any("~" in line for line in lines)


def test_never_wider_than_100_columns_with_long_names_many_schedulers_and_settings():
    rows = [
        row(
            f"sufferage(pricing=per_edge, remap=True, weight={i})",
            1.0 + 0.1 * i,
            (1.0 + 0.1 * i) * TRUTH,
            model=f"a_model_with_quite_a_long_name_{m}",
            cluster=f"rack_with_many_devices_{c}",
            workload="poisson_heavy",
            profiles=", ".join(
                f"{n}x some-accelerator-{n}-96gb (datasheet, bf16)" for n in range(5)
            ),
            interval_without="some-accelerator-1-96gb",
        )
        for i in range(20)
        for m in range(2)
        for c in range(2)
    ]
    table = standings(pd.DataFrame(rows))
    lines = shown(
        terminal.terminal_table(table, "sufferage(pricing=per_edge, remap=True, weight=17)")
    )
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "datasheet: uncalibrated" in text
    assert "... 8 more in table_main.csv" in text
    assert "weight=17)" in text  # the baseline is shown although it is far behind
    assert "leaves out the unknown error of some-accelerator-1-96gb" in text


def test_files_hold_every_scheduler(tmp_path):
    table = small()
    frame = tables.main_frame(table)
    heft = frame[(frame["model"] == "inception_v3") & (frame["scheduler"] == "heft")].iloc[0]
    assert heft["makespan_s"] == 0.0412
    assert heft["shorter_than_reference"] == pytest.approx(1 - 412 / 520)
    assert len(frame) == 6
    text = markup.markdown(replace(tables.main_table(table), caption="A caption."))
    assert text.startswith("A caption.\n\n| model | scheduler | makespan ms |")
    assert "| inception\\_v3 | heft | 41.2 |" in text
    assert "&lt;= 30%" in text
    latex = markup.latex(replace(tables.main_table(table), caption="50% & more_or_less"))
    assert r"\caption{50\% \& more\_or\_less}" in latex
    assert latex.count("\\midrule") == 2
    assert r"inception\_v3 & heft & 41.2 &" in latex
    assert r"$\le$ 30\%" in latex
    widths = {line.count(" & ") for line in latex.splitlines() if line.endswith(r"\\")}
    assert widths == {7}


def test_a_biased_prediction_is_said_and_the_answer_stays_in_its_interval():
    # A data sheet's times are too short: every draw is two to four times as long.
    longer = np.linspace(2.0, 4.0, 100)
    rows = [
        row("heft", 0.1, longer * 0.9, best_device_s=0.1),
        row("fcfs", 1.0, longer, best_device_s=0.1),
    ]
    table = standings(pd.DataFrame(rows))
    (sentence,) = answers.answers(table)
    assert sentence == (
        "m: heft beats fcfs by 10% [10, 10], P(win) > .99; none is faster than gpu0 alone"
    )
    (caution,) = answers.cautions(table)
    assert caution.startswith("makespan outside its own interval (m)")


def test_bare_instances_share_a_table_and_have_no_profiles():
    rows = [
        row(name, 80.0, model=model, cluster=model, cost_model="given", contention="none")
        for model in ("topcuoglu", "peft")
        for name in ("heft", "fcfs")
    ]
    lines = shown(terminal.terminal_table(standings(pd.DataFrame(rows))))
    assert lines.count("Instances with given times   push, no contention") == 1
    assert not any("profiled devices" in line or "Cluster" in line for line in lines)
    assert sum("2 schedulers all take 80.0 s" in line for line in lines) == 2
    assert not any(a == b == "" for a, b in itertools.pairwise(lines))


def test_numbers():
    assert rounding.time_unit([0.04, 0.05, 200.0]) == (1e3, "ms")
    assert rounding.time_unit([300.0]) == (1.0, "s")
    assert rounding.time_unit([3e-5]) == (1e6, "us")
    assert [rounding.figure(v) for v in (1234.5, 123.45, 12.345, 1.2345, 0.12345)] == [
        "1234",
        "123.5",
        "12.3",
        "1.23",
        "0.123",
    ]
    assert [rounding.probability(p) for p in (1.0, 0.991, 0.99, 0.5, 0.001, 0.0)] == [
        ">.99",
        ">.99",
        ".99",
        ".50",
        ".00",
        ".00",
    ]
    assert [rounding.number(s) for s in (0.214, 0.034, -0.0003, 0.01)] == ["21", "3.4", "0", "1"]
    assert [rounding.gap(g) for g in (0.0, 0.002, 0.094, float("nan"))] == [
        "optimal",
        "<= 1%",
        "<= 10%",
        "-",
    ]
