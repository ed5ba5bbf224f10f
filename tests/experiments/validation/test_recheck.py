"""Saved validations worked out again: nothing changed, something changed, something damaged."""

import itertools
import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

torch = pytest.importorskip("torch")

from calibration.runner import Machine  # noqa: E402
from experiments.validation.cases import Validation  # noqa: E402
from experiments.validation.contestants import plan_grid  # noqa: E402
from experiments.validation.recheck import (  # noqa: E402
    Resimulated,
    _say_caches,
    figure_differences,
    same_beliefs_s,
)
from experiments.validation.saved import (  # noqa: E402
    cluster_document,
    cluster_of,
    load_validation,
    scenario_of,
)
from experiments.validation.simulated_vs_measured import interval_of  # noqa: E402
from experiments.validation.text import markdown  # noqa: E402
from experiments.validation.waterfall import STEPS  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.cluster import Cluster, Device, Link, MemorySpace  # noqa: E402
from simulator.model.weight_hit_curve import ReuseCurve  # noqa: E402
from tests.examples import one_in  # noqa: E402
from tests.experiments.own_machine import command, newest  # noqa: E402

ROOT = Path(__file__).parents[3]
FEW, MANY = 20, 100
"""Cases of a validation."""
COMMITTED = sorted(
    path.parent
    for parent in (ROOT / "docs" / "validation", Path(__file__).parent / "saved_validation")
    for path in parent.rglob("validation.json")
)


@pytest.fixture(scope="module")
def _validation():
    """Where the validation of the first test that asks for one lies."""
    return []


@pytest.fixture
def saved(home, no_figures, tmp_path_factory, _validation):
    """A small validation, saved; a copy of one that was run once."""
    if not _validation:
        words = ["model=tiny", "scheduler=fcfs,heft", "cluster=here", "simulation.draws=5"]
        words += ["workload=single,concurrent", "repeats=3", "warmup=1", "seconds=0"]
        assert command(home, *words) == 0
        _validation.append(tmp_path_factory.mktemp("saved") / "validation")
        shutil.copytree(newest(home), _validation[0])
    return shutil.copytree(_validation[0], home / "saved")


@pytest.mark.slow
@pytest.mark.parametrize("folder", COMMITTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_committed_follows_from_its_traces_and_is_simulated_as_then(folder):
    """By the present code with its operator times, not those of today's profiles: a change of these
    makespans is a change of semantics. Of a preset's 336 cases one of each model is simulated, and its error taken
    apart, every scheduler's in some folder; elsewhere it is every fourth; and all with ``HETSIM_THOROUGH``.
    """
    validation, document = load_validation(folder)
    count = len(validation.cases)
    rows, checked, models = iter(document["cases"]), [], []
    for number, model in enumerate(validation.models, 12 * COMMITTED.index(folder)):
        cases = [
            *zip(
                model.contestants,
                model.cases,
                itertools.islice(rows, len(model.cases)),
                strict=True,
            )
        ]
        step = len(cases) if count > MANY else 4 if count > FEW else 1
        chosen = one_in(step, range(len(cases)), number)
        checked += [(model, *cases[i][:2]) for i in chosen]
        taken_apart = [
            case if i in chosen else replace(case, steps=steps_of(row, case))
            for i, (_, case, row) in enumerate(cases)
        ]
        models.append(replace(model, cases=tuple(taken_apart)))
    assert list(figure_differences(Validation(models), document)) == []
    for model, contestant, case in checked:
        again = Resimulated(case, same_beliefs_s(model, contestant, case), present=None)
        assert not again.code_changed, f"{case.setting} under {case.scheduler}"


def steps_of(row, case):
    """Signed seconds of the steps of a case, as its row in the report says."""
    return {s: row[f"{s.replace('-', '_')}_share"] * case.measured_s for s in STEPS}


@pytest.mark.slow
def test_what_probing_the_caches_is_worth(tmp_path, capsys):
    """The committed run's recurrent cells read weights again that caches keep more or less of. One job of GoogLeNet does
    not, several hardly do: where two devices are equally good, a trifle decides otherwise and changes a case by more.
    """
    validation, _ = load_validation(ROOT / "docs" / "validation")
    cells, without = (
        replace(model, contestants=model.contestants[::4], cases=model.cases[::4])
        for name in ("gru_cells", "googlenet")
        for model in validation.models
        if model.model == name
    )
    assert cells.caches
    changes = {
        (model.model, case.jobs, case.scheduler): abs(
            same_beliefs_s(model, contestant, case, profiled_caches=True) / case.simulated_s - 1
        )
        for model in (cells, without)
        for contestant, case in zip(model.contestants, model.cases, strict=True)
    }
    of_cells = [change for (model, *_), change in changes.items() if model == "gru_cells"]
    assert max(of_cells) > 0.02
    assert np.mean(of_cells) > 0.02
    assert (
        max(c for (model, jobs, _), c in changes.items() if (model, jobs) == ("googlenet", 1))
        < 1e-9
    )
    assert np.mean([c for (model, *_), c in changes.items() if model == "googlenet"]) < 0.001
    _say_caches([cells], Console(width=1000))
    printed = capsys.readouterr().out
    found = re.findall(r"mean error ([\d.]+)%", printed)
    assert len(found) == 2
    errors = np.abs([case.error for case in cells.cases])
    assert float(found[1]) == pytest.approx(100 * errors.mean(), abs=0.051)


def test_something_is_committed():
    assert COMMITTED


def test_what_inputs_cost_is_probed_saved_and_simulated(home, saved):
    validation, _ = load_validation(saved, (home / "conf",))
    (model,) = validation.models
    assert len(model.reading) == 2
    assert all(curve.costs[0] == 0.0 for curve in model.reading)
    lines = markdown(validation, "command", [])
    assert "Microseconds that a megabyte of inputs takes longer" in lines
    assert list(saved.glob("measured/*/*/inputs.parquet"))


@pytest.mark.slow
def test_what_submitting_ahead_leaves_is_printed():
    validation, _ = load_validation(ROOT / "docs" / "validation" / "ahead")
    # Of one model: every error of a report is taken apart.
    lines = markdown(Validation(validation.models[:1]), "command", [])
    assert "per operator that was submitted behind another, found in the same runs" in lines
    assert "until the host acts on an end" in lines
    assert "to launch an operator on a stream" not in lines  # of GPUs


def test_what_copies_take_is_measured_simulated_and_saved(home, no_figures, capsys, monkeypatch):
    """Between memories whose link is said to take no time."""
    here = (home / "conf" / "cluster" / "here.yaml").read_text()
    (home / "conf" / "cluster" / "apart.yaml").write_text(
        here.replace(
            "name: here\nhost: ram\nspaces: {ram: {}}",
            "name: apart\nhost: ram\nspaces: {ram: {}, far: {}}",
        ).replace("-3x, space: ram", "-3x, space: far")
        + "links: {between: {ends: [ram, far], bandwidth: 1000 GB/s, latency: 0s}}\n"
    )
    monkeypatch.setattr(Machine, "spare_cores", 1)  # else copies wait for cores
    words = ["model=tiny", "scheduler=olb", "cluster=apart", "simulation.draws=5"]
    words += ["workload=concurrent", "repeats=2", "warmup=0", "seconds=0"]
    assert command(home, *words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"per copy beyond .*, as the latency that schedulers are told of, us: olb [1-9]", printed
    )
    assert re.search(r"of the interpreter before a copy goes, .* links, us: olb [1-9]", printed)
    validation, _ = load_validation(newest(home), (home / "conf",))
    (case,) = validation.cases
    assert case.overhead.copy > 0
    moved = case.simulated.transfers
    assert len(moved["start"])
    assert case.overhead.copy_launch > 0
    assert case.believed == case.overhead
    least = 2 * 0.999 * case.overhead.copy_launch
    assert (moved["finish"] - moved["start"] >= least).all()
    assert command(home, f"recheck={newest(home)}") == 0
    assert "the present code simulates the saved times as then, 1 cases" in capsys.readouterr().out


def test_nothing_changed(home, saved, capsys):
    capsys.readouterr()
    validation, _ = load_validation(saved, (home / "conf",))
    for case in validation.cases:
        assert len(case.draws_s) == 5
        assert interval_of(case.draws_s) == (case.low_s, case.high_s)
    assert command(home, f"recheck={saved}") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "figures of the report follow from the saved traces" in printed
    assert "the present code simulates the saved times as then, 4 cases" in printed
    assert "the profiles are the same" in printed
    assert "the present prediction is the saved one" in printed


def test_it_needs_no_runs_and_no_measured_blocks(home, saved, monkeypatch):
    from calibration.runner import Machine

    def refuse(*_, **__):
        raise AssertionError("a check touches no hardware")

    monkeypatch.setattr(Machine, "__init__", refuse)
    kept = {"validation.json", *(path.name for path in saved.glob("*.parquet"))}
    assert len(kept) == 7
    small = home / "small"
    small.mkdir()
    for name in kept:
        shutil.copy(saved / name, small / name)
    assert command(home, f"recheck={small}") == 0
    assert sum(path.stat().st_size for path in small.iterdir()) < 100_000


def test_a_figure_that_does_not_follow_is_named(home, saved, capsys):
    path = saved / "validation.json"
    document = json.loads(path.read_text())
    document["summary"]["mean_absolute_error"] *= 0.9
    path.write_text(json.dumps(document))
    capsys.readouterr()
    assert command(home, f"recheck={saved}") == 1
    printed = capsys.readouterr().out
    assert "1 of" in printed
    assert "summary.mean_absolute_error" in printed


def test_another_profile_changes_the_prediction_and_not_the_figures(
    home, saved, capsys, monkeypatch
):
    from cost_models.profile_files import SHIPPED

    document = json.loads((saved / "validation.json").read_text())
    (model,) = document["models"]
    for name in model["profile_digests"]:
        folder = home / "others" / name
        shutil.copytree(SHIPPED / "jetson-agx-orin-64gb", folder)
        mine = json.loads((folder / "profile.json").read_text())
        (folder / "profile.json").write_text(json.dumps(mine | {"name": name, "label": "measured"}))
    monkeypatch.setenv("HETSIM_PROFILES", str(home / "others"))
    from experiments.runs import world

    world.worlds.clear()
    capsys.readouterr()
    assert command(home, f"recheck={saved}") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "figures of the report follow from the saved traces" in printed
    assert "the present code simulates the saved times as then, 4 cases" in printed
    for name in model["profile_digests"]:
        assert f"profile '{name}' is another one" in printed
    assert "the present prediction is another one in 4 of 4 cases" in printed
    assert "against the saved measurements: mean error" in printed


def test_what_is_damaged_is_named(home, saved, capsys):
    capsys.readouterr()
    for name, what in (
        ("graphs.parquet", "Cannot read .*graphs.parquet"),
        ("times.parquet", "Cannot read .*times.parquet"),
        ("repeats.parquet", "Cannot read .*repeats.parquet"),
        ("runs.parquet", "Cannot read the traces"),
        ("traces.parquet", "Cannot read the traces"),
    ):
        whole = (saved / name).read_bytes()
        (saved / name).write_bytes(whole[:-7])
        with pytest.raises(InvalidInput, match=what):
            load_validation(saved, (home / "conf",))
        (saved / name).write_bytes(whole)
    path = saved / "validation.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"format": "hetsim.validation/1"}))
    with pytest.raises(InvalidInput, match="has no traces to check; validate again"):
        load_validation(saved, (home / "conf",))
    document["models"][0]["contestants"][0]["simulated_s"] *= 2
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="does not end at"):
        load_validation(saved, (home / "conf",))


def test_clusters_and_scenarios_come_back():
    cluster = Cluster(
        "c",
        [
            MemorySpace("ram", corun_slowdown=0.1, cache=ReuseCurve((1e6, 2e6), (1.0, 0.5))),
            MemorySpace("v", 8e9, 1e9),
        ],
        [Device("a", "ram", "p", 2, 1e-6), Device("b", "v", "q", completion_latency=1e-5)],
        [Link("l", ("ram", "v"), 1e9, 1e-6, True)],
        "ram",
        {"p": "measured"},
    )
    again = cluster_of(
        json.loads(json.dumps(cluster_document(cluster)).replace("Infinity", "null"))
    )
    assert asdict(again) == asdict(cluster)
    plan = plan_grid(["experiment=validation", "model=gpt2", "workload=concurrent"], ())
    for one in plan.groups[0].contestants:
        document = json.loads(json.dumps(one.scenario.document()))
        assert scenario_of(document).document() == one.scenario.document()
    with pytest.raises(InvalidInput, match="not of the present form"):
        scenario_of({**document, "colour": "red"})
