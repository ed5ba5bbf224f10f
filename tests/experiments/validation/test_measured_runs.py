"""What is measured is kept: interrupted, resumed, extended, and spread over a budget."""

import csv
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibration.environment import cpu_model  # noqa: E402
from experiments.probes.input_distance import JOBS, reading_curves  # noqa: E402
from experiments.probes.overhead import Overhead  # noqa: E402
from experiments.probes.probed_model import PROBED  # noqa: E402
from experiments.validation import measured_runs  # noqa: E402
from experiments.validation import run as validation_run  # noqa: E402
from experiments.validation.contestants import plan_grid  # noqa: E402
from experiments.validation.measured_runs import MOST_REPEATS, Block, MeasuredRuns, Quota  # noqa: E402
from experiments.validation.run import PREPARING_S, _share  # noqa: E402
from experiments.validation.settings import read_settings  # noqa: E402
from experiments.validation.simulated_vs_measured import Hardware  # noqa: E402
from scenarios.model_config import graph_of  # noqa: E402
from tests.experiments.own_machine import command  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_figures")
WORDS = ("model=tiny", "cluster=here", "simulation.draws=0", "name=mine", "warmup=0", "seconds=0")


@pytest.fixture(autouse=True)
def _known_overheads(monkeypatch):
    """Stands in for the probes of the runner, which have tests of their own."""
    monkeypatch.setattr(measured_runs.OverheadProbe, "overhead", lambda *_, **__: Overhead(2e-5))
    monkeypatch.setattr(measured_runs, "handover_seconds", lambda *_: 0.0)


def blocks(home):
    paths = sorted((home / "validation" / "mine" / "measured").glob("*/*/block.json"))
    return [json.loads(path.read_text()) for path in paths]


def cases(home):
    with (home / "validation" / "mine" / "cases.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_cases_that_are_there_are_kept_and_others_added_by_the_same_machine(home, capsys):
    assert command(home, *WORDS, "scheduler=fcfs", "repeats=3") == 0
    (first,) = blocks(home)
    capsys.readouterr()
    assert command(home, *WORDS, "scheduler=fcfs,heft", "repeats=3") == 0
    assert "1 of 2 cases are there and are kept" in capsys.readouterr().out
    one, two = blocks(home)
    assert one == first
    assert not one["makespans_s"].keys() & two["makespans_s"].keys()
    assert [(row["scheduler"], row["repeats"]) for row in cases(home)] == [
        ("fcfs", "3"),
        ("heft", "3"),
    ]
    assert command(home, *WORDS, "scheduler=fcfs,heft", "repeats=3") == 0
    assert len(blocks(home)) == 2  # nothing was left to measure
    path = sorted((home / "validation" / "mine" / "measured").glob("*/*/block.json"))[0]
    first["machine"]["processor"] = "Imaginary 9000"
    path.write_text(json.dumps(first))
    assert command(home, *WORDS, "scheduler=fcfs,heft", "repeats=4") == 2
    assert "was measured on Imaginary 9000" in capsys.readouterr().err


def test_an_interrupt_keeps_whole_rounds_and_the_same_command_goes_on(home, monkeypatch, capsys):
    real, calls = Hardware.run, []

    def interrupted(self, *arguments):
        calls.append(1)
        # A round is two schedulers, a run behind the panel (twice: the first that counts is behind one, too)
        # and two devices; the fourth is not whole.
        if len(calls) == 16:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Hardware, "run", interrupted)
    words = [*WORDS, "warmup=1", "scheduler=fcfs,heft", "repeats=3"]
    assert command(home, *words) == 130
    assert "the same command goes on" in capsys.readouterr().out
    assert [row["repeats"] for row in cases(home)] == ["2", "2"]  # one round was the warm-up
    assert command(home, *words) == 0
    assert [row["repeats"] for row in cases(home)] == ["5", "5"]


def test_in_later_visits_schedulers_are_told_what_they_were_told_first(home, monkeypatch):
    """Else they would plan otherwise there, and the makespans be of several plans."""
    found = iter([Overhead(5e-5), Overhead(2e-5)])

    def needed(probe, contestants, handover):
        return dict.fromkeys((one.key for one in contestants), next(found))

    real, told = Hardware.run, []

    def run(self, workload, scheduler, believed, *others):
        told.append((scheduler.name, believed.devices[0].launch_overhead))
        return real(self, workload, scheduler, believed, *others)

    monkeypatch.setattr(measured_runs, "runner_overheads", needed)
    monkeypatch.setattr(Hardware, "run", run)
    assert command(home, *WORDS, "scheduler=heft", "repeats=2") == 0
    assert command(home, *WORDS, "scheduler=heft", "repeats=4") == 0
    one, two = blocks(home)
    assert one["overheads"] == one["believed"] == two["believed"]
    assert [row["dispatch_s"] for row in two["overheads"].values()] == [2e-5]
    assert {overhead for scheduler, overhead in told if scheduler == "heft"} == {5e-5}
    saved = json.loads((home / "validation" / "mine" / "validation.json").read_text())
    (row,) = saved["models"][0]["contestants"]
    assert row["believed"]["dispatch_s"] == 5e-5
    assert row["dispatch_s"] == 2e-5  # what counts is of the visit in which it needed less


def test_several_jobs_at_once(home, monkeypatch):
    # How an overhead cools is measured, and noise.
    monkeypatch.setattr(measured_runs.OverheadProbe, "overhead", lambda *_, **__: Overhead())
    words = [*WORDS, "scheduler=fcfs,heft", "workload=single,concurrent", "budget=1s", "visits=1"]
    assert command(home, *words, "speed=profile") == 0
    (block,) = blocks(home)
    (repeats,) = {len(makespans) for makespans in block["makespans_s"].values()}
    assert 2 <= repeats <= MOST_REPEATS
    assert [(row["jobs"], row["scheduler"]) for row in cases(home)] == [
        ("1", "fcfs"),
        ("1", "heft"),
        ("4", "fcfs"),
        ("4", "heft"),
    ]
    # By the profiles, in which what else the machine does is no part, four jobs take longer than one.
    for one, four in zip(cases(home)[:2], cases(home)[2:], strict=True):
        assert float(four["simulated_s"]) > 1.5 * float(one["simulated_s"])
    report = (home / "validation" / "mine" / "report.md").read_text()
    assert "| tiny x4 | [heft](gantt-tiny-heft-x4.png) |" in report


def empty_block(contestants, wall_s, inputs=None):
    """Two runs of each in which nothing was looked at but ``inputs``."""
    return Block(
        {one.key: [1.0, 1.0] for one in contestants},
        *[dict.fromkeys((one.key for one in contestants), Overhead())] * 2,
        {},
        np.zeros((2, 1, 1)),
        np.zeros((1, 1, 2, 1)),
        np.zeros((1, 2, 1)),
        np.zeros((0, 0, 0, 0)) if inputs is None else inputs,
        {},
        0.0,
        wall_s,
        PREPARING_S,
        (),
        {"processor": cpu_model(), "workers": {}},
        "",
    )


def test_a_budget_is_spread_over_visits_of_all_models(home, monkeypatch):
    """With a clock that only the runs advance: each group as long as it is told."""
    words = ["model=tiny", "model.batch=4,64", "cluster=here", "scheduler=fcfs,heft"]
    plan = plan_grid(words, (home / "conf",))
    now, told = [0.0], []

    def pretend(group, contestants, believed, quota, warmup, *_):
        told.append((group.model, len(contestants), quota.budget_s, warmup))
        now[0] += PREPARING_S + quota.budget_s
        block = empty_block(contestants, PREPARING_S + quota.budget_s)
        return block, None

    monkeypatch.setattr(validation_run, "measure_block", pretend)
    monkeypatch.setattr(validation_run.time, "monotonic", lambda: now[0])
    settings, _ = read_settings(["budget=200s", "visits=3", "warmup=3", "cluster=here"])
    measured = MeasuredRuns(home)
    nothing = lambda *_: None  # noqa: E731
    said = []
    step = lambda *what: said.append(what)  # noqa: E731
    assert validation_run.measure(plan, settings, measured, (home / "conf",), step) is None
    # Tracing a preset's models takes minutes before anything runs.
    assert said == [("planning", done, 2) for done in range(3)]
    assert [name for name, *_ in told] == ["tiny, batch 4", "tiny, batch 64"] * 3
    assert now[0] == pytest.approx(200.0)
    assert sum(seconds for _, _, seconds, _ in told) == pytest.approx(200.0 - 6 * PREPARING_S)
    shares = [seconds for _, _, seconds, _ in told]
    assert shares[:2] * 3 == pytest.approx(shares)
    assert shares[1] > shares[0]  # the larger batch takes longer
    assert {(cases, warmup) for _, cases, _, warmup in told} == {(2, 1)}
    # Nothing is left for a second call, and everything for one with more time.
    told.clear()
    assert validation_run.measure(plan, settings, measured, (home / "conf",), nothing) is None
    assert told == []


def test_what_inputs_cost_is_of_the_runs_of_all_models(home):
    plan = plan_grid(
        ["model=tiny", "model.batch=4,64", "cluster=here", "scheduler=fcfs"], (home / "conf",)
    )
    keys = [group.key for group in plan.groups]
    measured = MeasuredRuns(home)
    assert validation_run.readings(plan, measured) == dict.fromkeys(keys, ())
    rows = (3, 2 + JOBS, 2, len(graph_of(PROBED)))
    inputs = np.random.default_rng(2).uniform(1e-5, 1e-3, rows)
    for group, mine in zip(plan.groups, (inputs[:1], inputs[1:]), strict=True):
        measured.add(group, empty_block(group.contestants, 1.0, mine))
        measured.add(group, empty_block(group.contestants, 1.0))  # of an earlier release
    assert validation_run.readings(plan, measured) == dict.fromkeys(keys, reading_curves(inputs))


def test_shares_of_the_time_left_add_up():
    """Groups that keep to their shares have used all of it at the end of the last visit."""
    weights = [3.0, 1.0, 6.0]
    left, used = 100.0, [0.0, 0.0, 0.0]
    for visit in range(4):
        for position in range(3):
            mine = _share(weights, position, 4 - visit) * left
            left -= mine
            used[position] += mine
    assert left == pytest.approx(0.0)
    assert used == pytest.approx([30.0, 10.0, 60.0])


def test_when_a_block_is_enough():
    plain = Quota(repeats=5, seconds=1.0)
    assert plain.rounds(0.1) == 10
    assert plain.rounds(10.0) == 5
    assert plain.rounds(1e-6) == MOST_REPEATS
    assert not plain.enough(9, 0.1, 1e9, 1.0)
    assert plain.enough(10, 0.1, 0.0, 1.0)
    timed = Quota(repeats=5, seconds=1.0, budget_s=10.0)
    assert not timed.enough(1, 0.1, 99.0, 1.0)  # two rounds at least
    assert not timed.enough(2, 0.1, 8.9, 1.0)
    assert timed.enough(2, 0.1, 9.1, 1.0)  # another would not fit
