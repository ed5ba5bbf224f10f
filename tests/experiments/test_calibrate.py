import json
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.folder import REFERENCE, prepare_folder
from calibration.measure import Outcome
from calibration.plan import MeasurePlan
from calibration.process import run_process
from calibration.recorder import Recorder
from calibration.samples import OperatorSample, read_samples, write_samples
from cost_models.arithmetic import operator_bytes, operator_flops
from cost_models.boosted import PARAMETERS
from cost_models.profile import Profile
from cost_models.roofline import Roofline
from cost_models.table import load
from experiments.calibrate import main
from experiments.calibrating.few_shot import few_operators
from experiments.calibrating.measuring import measure_step, measuring_plan
from experiments.calibrating.operators import (
    VISITS,
    affordable,
    chosen_operators,
    more_operators,
    next_count,
    thinned,
    turns,
)
from experiments.calibrating.settings import CalibrateConfig
from scenarios.model_config import InputConfig, ModelConfig
from tests.calibration.conftest import linear, relu
from tests.cost_models.conftest import BANDWIDTH, OVERHEAD, PEAK, random_table

pytest.importorskip("torch")


def operators() -> list[OperatorSample]:
    rng = np.random.default_rng(0)
    found = []
    for number in range(60):
        m, k, n = (int(v) for v in np.exp(rng.uniform(np.log(8), np.log(512), 3)))
        nets = [["a"], ["b"], []][number % 3]
        found += [linear(m, k, n, architectures=nets), relu(m, k, architectures=nets)]
    return found


def measured_folder(root, samples):
    """A calibration's folder with samples of a machine of 10 GFLOP/s and 5 GB/s, noise of 1%."""
    raw = root / "box" / "raw"
    prepare_folder(raw, MeasurePlan("cpu", "box-1core", ("graph", "warm")), samples)
    rng = np.random.default_rng(1)
    for process in (0, 1):
        recorder = Recorder(raw, process)
        for index, sample in enumerate(samples):
            work, moved = operator_flops(sample.operator), operator_bytes(sample.operator)
            seconds = max(work / 1e10, moved / 5e9) + 3e-6
            for cache, factor in (("graph", 1.0), ("warm", 0.7)):
                noisy = seconds * factor * np.exp(0.01 * abs(rng.standard_normal(3)))
                for value in noisy:
                    recorder.add(index, 0, cache, value, value)
        recorder.add(REFERENCE, 0, "graph", 1e-3 * (1 + 0.02 * process), 1e-3)
        recorder.flush(force=True)
        record = {
            "started": time.time() - 60,
            "finished": time.time(),
            "versions": {"torch": "2.13.0"},
            "processor": "box",
            "peaks": {
                "flops_per_s": {"float32": 1e10},
                "bandwidth_bytes_per_s": 5e9,
                "call_overhead_s": 3e-6,
            },
            "transfers": [],
            "allocation": [{"state": "fresh", "bytes": 1 << 20, "seconds": 65e-5}],
            "capacity_bytes": 24 * 2.0**30,
            "cache_bytes": 2.0**25,
            "process": process,
            "clocks": [{"timestamp": 0.0, "clocks_event_reasons.active": "0x4"}] if process else [],
        }
        (raw / f"process-{process:04d}.json").write_text(json.dumps(record))
    slowdown = {"victim": "memory", "aggressor": "memory", "others": 1, "slowdown": 1.8}
    corun = {"of": "cores", "fraction": 0.031, "rows": [slowdown]}
    (raw / "corun.json").write_text(json.dumps(corun))
    return raw.parent


@pytest.fixture
def folder(tmp_path):
    return measured_folder(tmp_path, operators())


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.calibrating.fitting.BOOSTERS", 1)
        few = {**PARAMETERS, "rounds": 40, "learning_rate": 0.3}
        patch.setattr("cost_models.boosted.PARAMETERS", few)
        yield


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, few_trees):
    """The same after ``step=fit``; only read."""
    folder = measured_folder(tmp_path_factory.mktemp("fitted"), operators())
    assert main(["step=fit", f"out={folder}", "models=[boosted]"]) == 0
    return folder


@pytest.fixture
def no_figures(monkeypatch):
    """Drawing takes most of a small fit's time."""
    monkeypatch.setattr("experiments.calibrating.report._figures", lambda *_: [])


def test_fit_leaves_table_profile_and_report(fitted):
    folder = fitted
    table = load(folder / "measurements.parquet")
    assert len(table) == 240
    profile = Profile.load(folder / "profile")
    assert profile.name == "box-1core"
    assert profile.label == "measured"
    assert profile.provenance["processes"] == 2
    assert profile.provenance["minutes"] == pytest.approx(2, abs=0.1)
    # Calls are up to 1% times half a normal slower than the fastest tenth of six.
    assert set(profile.deviations) == {"*", "linear", "relu"}
    assert -0.02 < profile.deviations["relu"][0] < 0 < profile.deviations["relu"][25] < 0.02
    held = profile.held_out["boosted"]["architecture"]
    assert set(held) == {"all", "linear", "relu"}
    assert held["all"]["median"] < 0.1
    assert held["all"]["aa_median"] < 0.02
    # Of an honest roofline machine the roofline itself knows all but the noise.
    assert profile.held_out["roofline"]["fold"]["all"]["median"] < 0.02
    sample = linear(100, 100, 100)
    assert profile.price([sample.operator]).seconds[0] == pytest.approx(2.03e-4, rel=0.1)
    report = (folder / "report.html").read_text()
    assert profile.capacity_bytes == 24 * 2**30
    assert profile.cache_bytes == 2**25
    assert profile.corun["fraction"] == 0.031
    for told in (
        "24.0",
        "3.1% for each other that runs a model; memory beside 1 x memory 1.80",
        "allocating 1 MiB, fresh memory",
        "650.0 us",
        "power cap 49.9%",  # of all samples, those of the reference operator among them
    ):
        assert told in report
    assert "box-1core (measured)" in report
    for name in ("coverage", "errors", "distribution", "parity", "architectures", "drift"):
        for suffix in (".png", ".pdf", ".csv"):
            assert (folder / "report" / f"fig_{name}{suffix}").stat().st_size > 100
        assert f"report/fig_{name}.csv" in report
    assert report.count("data:image/png;base64,") == 6


@pytest.mark.usefixtures("no_figures")
def test_a_profile_is_fitted_anew_with_other_models(fitted, tmp_path, capsys, monkeypatch):
    before = Profile.load(fitted / "profile")
    words = [f"base={fitted / 'profile'}", f"out={tmp_path / 'again'}", "models=[polynomial]"]
    for here, told in (
        ({"torch": "2.14.0", "processor": "box"}, True),
        ({"torch": "2.13.0", "processor": "box"}, False),
        ({"torch": "2.14.0", "processor": "crate"}, False),  # another device: nothing to compare
    ):
        monkeypatch.setattr("calibration.environment.described", lambda device, here=here: here)
        assert main(["step=fit", *words]) == 0
        error = " ".join(capsys.readouterr().err.split())
        # The device has changed since.
        sentence = "profile 'box-1core' was measured with torch 2.13.0, here 2.14.0"
        assert (sentence in error) is told
        monkeypatch.setattr("experiments.calibrate.fit_step", lambda *_: before)  # once is enough
    after = Profile.load(tmp_path / "again" / "profile")
    assert set(after.models) == {"polynomial"}
    assert set(after.held_out) == {"polynomial", "roofline"}
    assert after.roofline == before.roofline
    assert after.deviations == before.deviations
    assert after.provenance == before.provenance
    assert after.measurements.equals(before.measurements)
    assert (tmp_path / "again" / "report.html").exists()


@pytest.mark.usefixtures("no_figures")
def test_another_devices_profile_is_a_start(tmp_path):
    folder = measured_folder(tmp_path, operators()[:64])
    # Whose thin matrices are slow.
    there = random_table(40).assign(device="other")
    roofline = Roofline({"float32": PEAK}, BANDWIDTH, OVERHEAD)
    Profile.fitted("other", there, roofline=roofline, models=["boosted"]).save(tmp_path / "other")
    words = ["step=fit", f"out={folder}", "models=[boosted]", f"start={tmp_path / 'other'}"]
    assert main(words) == 0
    profile = Profile.load(folder / "profile")
    assert set(profile.models) == {"boosted", "adapted"}
    assert set(profile.held_out) == {"boosted", "adapted", "roofline"}
    assert profile.default in ("boosted", "adapted")
    curve = pd.read_csv(folder / "report" / "fig_learning.csv").set_index(["model", "rows"])["mean"]
    assert list(curve["adapted"].index) == [0, 20, 50]
    assert list(curve["boosted"].index) == [20, 50]
    assert curve["adapted", 50] < curve["adapted", 0]
    assert curve["boosted", 50] < curve["boosted", 20]
    assert "other" in (folder / "report.html").read_text()


def test_few_operators_are_of_the_kinds_that_take_long_and_far_apart(tmp_path, monkeypatch):
    sheet = Profile("sheet", "datasheet", Roofline({"float32": 1e12}, 1e11))
    sheet.save(tmp_path / "sheet")
    samples = [*operators(), linear(4000, 4000, 4000)]
    chosen = few_operators(samples, sheet, 4)
    assert len(chosen) == 4
    assert samples[-1] in chosen  # the longest of all
    kinds = [sample.operator.kind for sample in chosen]
    assert kinds.count("linear") > kinds.count("relu")
    assert few_operators(samples, sheet, 4) == chosen
    assert few_operators(samples[:3], sheet, 4) == samples[:3]
    write_samples(tmp_path / "ops.json", samples)
    monkeypatch.setattr("calibration.measure.SHIPPED_OPERATORS", tmp_path / "ops.json")
    config = CalibrateConfig(start=str(tmp_path / "sheet"), operators_at_most=25, step="measure")
    found = chosen_operators(config, Path("nowhere"))
    assert [s.identity for s in found] == [
        s.identity for s in few_operators(read_samples(tmp_path / "ops.json"), sheet, 25)
    ]


@pytest.mark.usefixtures("no_figures")
def test_repeated_kernel_has_a_third_of_the_rates_and_statistic_and_name_are_taken(folder):
    path = folder / "raw" / "plan.json"
    plan = json.loads(path.read_text()) | {"repeat_kernel": 3, "name": "box-1core-3x"}
    path.write_text(json.dumps(plan))
    words = ["step=fit", f"out={folder / 'raw'}", "models=[polynomial]"]
    assert main([*words, "statistic=median", "name=mine"]) == 0
    profile = Profile.load(folder / "profile")
    assert (profile.name, profile.statistic) == ("mine", "median")
    roofline = profile.roofline
    assert roofline.flops_per_s["float32"] == pytest.approx(1e10 / 3)
    assert roofline.bandwidth == pytest.approx(5e9 / 3)
    assert roofline.overhead == pytest.approx(9e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["step=guess"], "There is no step=guess; known: measure, fit, all"),
        (["statistic=mean"], "There is no statistic=mean"),
        (["step=fit"], "step=fit needs out="),
        (["step=fit", "base=tesla-t4"], "'tesla-t4' comes without the measurements"),
        (
            ["step=fit", "base=nvidia-h200", "cache=awaited"],
            "'nvidia-h200' prices state 'graph' and is fitted again for that",
        ),
        (["only=true", "model=gpt2"], "only=true goes on with some operators of a folder"),
        (["models=[oracle]"], "No cost model 'oracle'"),
        (["models=[adapted]"], "needs start=<profile>"),
        (["start=nowhere"], "No profile 'nowhere'"),
        (["device=tpu", "budget=5s"], "No device 'tpu' here"),
        (["budget=5"], "5"),
        (["bugdet=5min"], "bugdet"),
        (["operators=missing.json", "budget=5s"], "Cannot read the operators file"),
        (["model=resnet5", "budget=5s"], "resnet50"),
        (["states=lukewarm", "budget=5s"], "No cache state 'lukewarm'"),
        (
            ["cache=cold", "budget=5s"],
            "cache=cold is none of the states that are measured, graph, warm",
        ),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, capsys, words, message):
    assert main([*words, f"output_dir={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not any(tmp_path.iterdir())


def test_a_profile_of_a_state_that_was_not_measured_is_refused(fitted, tmp_path, capsys):
    folder = shutil.copytree(fitted, tmp_path / "copy")
    shutil.rmtree(folder / "profile")
    assert main(["step=fit", f"out={folder}", "cache=awaited"]) == 2
    assert "cache=awaited is none of the states that are measured" in capsys.readouterr().err
    assert not (folder / "profile").exists()


def test_fit_of_an_empty_folder_is_refused(tmp_path, capsys):
    assert main(["step=fit", f"out={tmp_path}"]) == 2
    assert "no measuring plan" in capsys.readouterr().err


def test_thinning_keeps_every_kind_in_order():
    whole = [*operators(), relu(9, 9, 9)]
    some = thinned(whole, 30)
    assert 25 <= len(some) <= 35
    kinds = [sample.operator.kind for sample in some]
    assert min(kinds.count("linear"), kinds.count("relu")) >= 12
    positions = [whole.index(sample) for sample in some]
    assert positions == sorted(set(positions))
    assert thinned(whole, 1000) == whole
    assert len(thinned(whole, 1)) == 8  # four of each kind, whatever was asked


def test_budget_decides_how_many_operators(tmp_path):
    short, long = (
        len(chosen_operators(CalibrateConfig(budget=budget), tmp_path)) for budget in ("60s", "10h")
    )
    assert short < 700
    assert long == len(read_samples(command_operators()))


@pytest.mark.parametrize(
    ("repeat_kernel", "visits", "seconds"), [(1, 123_766, 2_120.5), (3, 27_140, 990.9)]
)
def test_a_visit_takes_what_it_took(repeat_kernel, visits, seconds):
    """Visits of processes of 4 minutes on a quiet core, and how long these lived in all."""
    config = CalibrateConfig(budget=f"{seconds}s", repeat_kernel=repeat_kernel)
    assert affordable(config) * VISITS == pytest.approx(visits, rel=0.02)


def command_operators():
    from calibration.measure import SHIPPED_OPERATORS

    return SHIPPED_OPERATORS


def test_turns_of_choosing_follow_from_the_budget():
    assert turns(CalibrateConfig(budget="5min")) == 0
    assert turns(CalibrateConfig(budget="15min")) == 1
    assert turns(CalibrateConfig(budget="40min")) == 4
    assert turns(CalibrateConfig(budget="40min", step="measure")) == 0
    assert turns(CalibrateConfig(budget="40min", operators="mine.json")) == 0
    assert turns(CalibrateConfig(budget="40min", active=False)) == 0
    assert turns(CalibrateConfig(budget="30s", active=True)) == 1


@pytest.mark.parametrize("budget", ["15min", "40min"])
def test_choices_leave_every_operator_the_same_share_of_the_budget(budget):
    config, operators = CalibrateConfig(budget=budget), 600  # in 60% of it
    for turn in range(turns(config) - 1, -1, -1):
        operators += next_count(config, operators, turn)
    assert operators == pytest.approx(1000, abs=4)


def test_what_is_measured_next_is_new_and_of_the_same_kinds(folder):
    begun = operators()
    config = CalibrateConfig(budget="15min")
    more = more_operators(config, folder, begun, 0, lambda line: None)
    assert len(more) == int(len(begun) * 0.4 / 0.6)
    assert not {s.identity for s in more} & {s.identity for s in begun}
    assert {s.operator.kind for s in more} <= {"linear", "relu"}
    again = more_operators(config, folder, begun, 0, lambda line: None)
    assert [s.identity for s in again] == [s.identity for s in more]


def test_some_operators_of_a_begun_folder_are_measured_on(folder, tmp_path):
    begun = read_samples(folder / "raw" / "operators.json")
    write_samples(tmp_path / "mine.json", [begun[3], relu(12345)])
    options = {"budget": "40min", "operators": str(tmp_path / "mine.json"), "out": str(folder)}
    config = CalibrateConfig(**options, only=True)
    config.check()
    found = chosen_operators(config, folder)
    assert [s.identity for s in found] == [begun[3].identity, relu(12345).identity]
    assert turns(config) == 0
    # The command that began a folder goes on with all of it.
    again = chosen_operators(CalibrateConfig(**options), folder)
    assert [s.identity for s in again] == [s.identity for s in begun]


def test_budget_is_spent_in_turns_between_choices(tmp_path, monkeypatch):
    begun, clock, spent = operators()[:10], [0.0], []

    def measure(folder, plan, chosen, budget, **options):
        spent.append((len(chosen), round(budget)))
        clock[0] += budget
        return Outcome(2, 3, {}, False)

    monkeypatch.setattr("calibration.measure.measure", measure)
    monkeypatch.setattr("experiments.calibrating.measuring.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(
        "experiments.calibrating.measuring.more_operators", lambda *given: [relu(given[3] + 1000)]
    )
    config = CalibrateConfig(budget="1200s", active=True)
    assert measure_step(config, measuring_plan(config), tmp_path, begun, lambda line: None)
    assert spent == [(10, 720), (11, 240), (12, 240)]


def test_begun_folder_keeps_its_operators(folder):
    kept = chosen_operators(CalibrateConfig(budget="10h"), folder)
    assert [s.identity for s in kept] == [s.identity for s in operators()]


def test_operators_of_training_are_measured_when_asked_for(tmp_path, folder):
    def chosen(place, **options):
        found = chosen_operators(CalibrateConfig(budget="10h", **options), place)
        return [sample.identity for sample in found]

    plain, training = chosen(tmp_path), chosen(tmp_path, operators="training")
    assert not set(plain) & set(training)
    assert chosen(tmp_path, training=True) == plain + training
    # A folder begun without them takes them in after its own.
    assert chosen(folder, training=True) == chosen(folder) + training


def test_operators_of_a_model_are_all_kept(tmp_path):
    model = ModelConfig(
        name="mine",
        target="torch.nn.Linear",
        arguments={"in_features": 7, "out_features": 5},
        inputs=[InputConfig(shape=["batch", 7])],
    )
    config = CalibrateConfig(model=model, batches=[2, 3], budget="60s")
    first, second, *_ = chosen_operators(config, tmp_path)
    for sample, batch in ((first, 2), (second, 3)):
        assert sample.architectures == ("mine",)
        assert sample.operator.kind == "linear"
        assert sample.operator.inputs[0].shape == (batch, 7)
        assert len(sample.weights) == 2


def test_interrupted_measuring_says_the_command_that_goes_on(tmp_path, monkeypatch, capsys):
    def interrupted(folder, plan, operators, budget, **options):
        return Outcome(2, 3, {}, True)

    monkeypatch.setattr("calibration.measure.measure", interrupted)
    write_samples(tmp_path / "ops.json", [relu(1234)])
    out = tmp_path / "begun"
    words = [f"operators={tmp_path / 'ops.json'}", "repeat_kernel=3", "budget=1min"]
    assert main([*words, f"out={out}"]) == 130
    command = f"python -m experiments.calibrate {' '.join(words)} out={out}"
    assert f"Go on: {command}" in capsys.readouterr().out.replace("\n", " ")
    # One line a command; the same again is none, and one that is refused neither.
    assert main([*words, f"out={out}"]) == 130
    assert main([f"operators={tmp_path / 'none.json'}", f"out={out}", "only=true"]) == 2
    assert (out / "command.txt").read_text().splitlines() == [command]
    assert main([*words, "budget=2min", f"out={out}"]) == 130
    assert len((out / "command.txt").read_text().splitlines()) == 2


@pytest.mark.usefixtures("no_figures")
def test_measure_and_fit_in_one_command(tmp_path, monkeypatch):
    """Measuring processes are of this one: :mod:`tests.calibration.test_measure` has others."""

    def child(folder, number, plan, deadline, cores, part_seconds, rounds):
        assert rounds == 1  # or it would take the budget
        messages = []
        run_process(folder, number, deadline, messages.append, part_seconds, rounds)
        return messages

    monkeypatch.setattr("calibration.measure._child", child)
    for name in ("steady_allocator", "raise_priority"):
        monkeypatch.setattr(f"calibration.process.environment.{name}", lambda: 0)
    peaks = {"bandwidth_bytes_per_s": 5e9, "call_overhead_s": 3e-6}
    peaks["flops_per_s"] = {"float32": 1e10}
    monkeypatch.setattr("calibration.peaks.measure", lambda *_: peaks)
    for name in ("transfers", "allocation"):
        monkeypatch.setattr(f"calibration.{name}.measure", lambda device: [])
    write_samples(tmp_path / "ops.json", operators()[:6])
    words = [f"operators={tmp_path / 'ops.json'}", "budget=89s", "rounds=1"]
    words += [f"output_dir={tmp_path}"]
    assert main([*words, "models=[polynomial]"]) == 0
    (profile,) = tmp_path.glob("calibration/*/*/profile/profile.json")
    found = Profile.load(profile.parent)
    assert set(found.kinds) == {"linear", "relu"}
    assert (profile.parent.parent / "command.txt").read_text().startswith("python -m experiments.")
    # The folder goes on with what was begun.
    out, begun = profile.parent.parent, []
    assert len(list((out / "raw").glob("process-*.json"))) == 2

    def measured(folder, plan, samples, budget, **options):
        begun.append((folder, [sample.identity for sample in samples]))
        return Outcome(2, 1, {}, False)

    monkeypatch.setattr("calibration.measure.measure", measured)
    assert main(["budget=89s", "rounds=1", f"out={out}", "step=measure"]) == 0
    assert begun == [(out / "raw", [sample.identity for sample in operators()[:6]])]
