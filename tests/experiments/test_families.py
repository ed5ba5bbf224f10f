"""Drawn graphs in the commands: named, swept over, described, saved, refused."""

import json
import shlex
from pathlib import Path

import pytest

from experiments import describe, simulate, sweep
from experiments.runs.command import Invocation
from experiments.runs.grid import compose_grid
from experiments.runs.results import COLUMNS, load_results
from experiments.studies.communication import command as communication
from scenarios import load_instance
from tests.scenarios.graph_files.kineto_samples import OBSERVED, WITH_SHAPES, on_gpu
from tests.scenarios.graph_files.samples import DAGGEN, STG, wfformat

SWEEP = Path("outputs/sweeps/study")


@pytest.fixture(autouse=True)
def _no_plots(folder, monkeypatch):
    monkeypatch.setattr("experiments.plots.gantt.draw_gantt", lambda *_, **__: [])
    monkeypatch.setattr(sweep, "_report", lambda *_: None)


def result(output="outputs"):
    return json.loads(Path(f"{output}/latest/result.json").read_text())


def test_a_run_records_what_draws_it_again(capsys):
    words = ["family=daggen", "family.n=30", "seed.workload=4"]
    assert simulate.main(words) == 0
    assert "daggen on 3 unrelated devices with heft: makespan" in capsys.readouterr().out
    first = result()
    assert first["config"]["family"]["n"] == 30
    assert not {"model", "cluster", "cost_model"} & first["config"].keys()
    assert first["config"]["simulation"]["contention"] == "none"
    assert first["profiles"][0]["label"] == "given"
    assert simulate.main([*words, "scheduler=donf"]) == 0
    # All schedulers meet the same graph, another seed's is another.
    assert result()["graph"]["digest"] == first["graph"]["digest"]
    assert simulate.main(["family=daggen", "family.n=30", "seed.workload=5"]) == 0
    assert result()["graph"]["digest"] != first["graph"]["digest"]
    assert simulate.main([*words, "simulation.contention=fifo"]) == 0
    assert result()["config"]["simulation"]["contention"] == "fifo"


def test_a_drawn_graph_can_be_saved_and_run_from_its_file(capsys):
    words = ["family=cholesky", "family.tiles=3", "family.half_duplex=true"]
    more = ["simulation.contention=fifo", "scheduler=donf"]
    assert simulate.main([*words, *more, "save_instance=mine/c3.json"]) == 0
    drawn = result()["metrics"]["makespan_s"]
    graph, cluster, _ = load_instance("mine/c3.json")
    assert graph.operators[0].name == "potrf0"
    assert cluster.links[0].half_duplex
    assert simulate.main(["instance=mine/c3.json", *more]) == 0
    assert result()["metrics"]["makespan_s"] == drawn


def test_a_sweep_has_the_factors_as_columns():
    words = ["family=layered", "family.n=20", "family.ccr=0.5,4", "seed.workload=range(0,2)"]
    assert sweep.main([*words, "scheduler=heft,donf", "name=study", "workers=1"]) == 0
    frame = load_results(SWEEP)
    assert len(frame) == 8
    assert set(frame["status"]) == {"done"}
    assert set(frame["model"]) == {"layered(ccr=0.5)", "layered(ccr=4)"}
    assert set(frame["family"]) == {"layered"}
    assert set(frame["family_ccr"]) == {0.5, 4.0}
    assert set(frame["family_n"]) == {20}
    assert set(frame["seed_workload"]) == {0, 1}
    # Those of other families and of other ways are left out.
    assert not {"family_fat", "family_speeds", "family_description"} & set(frame.columns)
    # The ratio changes the edges, not the tasks: the longest path of tasks alone stays.
    paths = frame.groupby("seed_workload")["critical_path_s"].nunique()
    assert paths.tolist() == [1, 1]
    assert sweep.main(["instance=peft", "scheduler=heft", "name=other", "workers=1"]) == 0
    other = load_results("outputs/sweeps/other")
    assert list(other.columns) == [*COLUMNS, "folder"]


def test_speeds_of_related_devices_are_a_column():
    words = ["family=fft", "family.m=4", "family.heterogeneity=related"]
    axis = "family.speeds=[1,4],[1,10]"
    assert sweep.main([*words, axis, "name=study", "workers=1"]) == 0
    frame = load_results(SWEEP)
    assert frame["family_speeds"].tolist() == ["1.0:4.0", "1.0:10.0"]
    assert "family_beta" not in frame.columns


def test_several_families_in_one_sweep():
    words = ["family=fft,in_tree", "family.ccr=1,2", "name=study", "workers=1"]
    assert sweep.main(words) == 0
    frame = load_results(SWEEP)
    assert sorted(frame["model"]) == [
        "fft(ccr=1)",
        "fft(ccr=2)",
        "in_tree(ccr=1)",
        "in_tree(ccr=2)",
    ]


def test_a_preset_may_name_a_family(folder):
    (folder / "experiment").mkdir()
    (folder / "experiment" / "drawn.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /family: fft\n"
        "name: study\nsweep: {family.m: [4, 8]}\nfamily: {ccr: 0.5}\n"
    )
    folders = ["--config-dir", str(folder)]
    assert sweep.main([*folders, "experiment=drawn", "workers=1"]) == 0
    frame = load_results(SWEEP)
    assert set(frame["family_ccr"]) == {0.5}
    for cell in (SWEEP / "cells").iterdir():
        document = json.loads((cell / "result.json").read_text())
        words = shlex.split(document["command"])[3:]
        assert simulate.main(words) == 0
        assert result()["hash"] == document["hash"]


def test_no_family_leaves_models_to_be_swept():
    grid = compose_grid(["family=none", "model=gpt2,bert_base"])
    assert [cell.scenario.model.name for cell in grid.cells] == ["gpt2", "bert_base"]


def test_describe_shows_structure_and_ratio(capsys):
    assert describe.main(["family=gaussian_elimination", "family.m=5", "family.ccr=2.5"]) == 0
    out = capsys.readouterr().out
    assert "gaussian_elimination: elimination of a matrix by columns" in out
    assert "14 operators, 19 edges; longest path 8 operators, widest level 4" in out
    assert "communication to computation ratio 2.5" in out
    assert "parallelism (work over longest path)" in out


def test_describe_of_an_instance_has_its_ratio(capsys):
    assert describe.main(["instance=topcuoglu"]) == 0
    # 15 edges of 241 together, 30 times of 400.
    assert f"ratio {241 / 15 / (400 / 30):.4g}" in capsys.readouterr().out


def test_graph_files_run_on_the_devices_given(folder, capsys):
    Path("a.stg").write_text(STG)
    Path("b.dot").write_text(DAGGEN)
    (folder / "c.json").write_text(json.dumps(wfformat()))
    folders = ["--config-dir", str(folder)]
    words = ["family=file", "family.ccr=1,2", "instance=a.stg,b.dot,c.json"]
    assert sweep.main([*folders, *words, "scheduler=heft,donf", "name=study", "workers=1"]) == 0
    frame = load_results(SWEEP)
    assert set(frame["status"]) == {"done"}
    assert len(frame) == 12
    assert set(frame["model"]) == {f"{name}(ccr={ccr})" for name in "abc" for ccr in (1, 2)}
    assert set(frame["family"]) == {"file"}
    capsys.readouterr()
    words = ["instance=b.dot", "family=file", "family.heterogeneity=related", "family.ccr=1.5"]
    assert describe.main([*words, "family.speeds=[1,1]", "family.devices=2"]) == 0
    out = capsys.readouterr().out
    assert "4 operators, 4 edges; longest path 3 operators, widest level 2" in out
    assert "communication to computation ratio 1.5" in out
    # 35 of work, 32 on the longest path.
    assert "parallelism (work over longest path): 1.09 on P1" in out
    assert simulate.main([*words, "save_instance=b.json"]) == 0
    assert simulate.main(["instance=b.json"]) == 0


def test_a_changed_graph_file_makes_cells_stale():
    Path("a.stg").write_text(STG)
    words = ["family=file", "instance=a.stg", "name=study", "workers=1"]
    assert sweep.main(words) == 0
    Path("a.stg").write_text(STG.replace("20", "21"))
    plan = sweep.plan_sweep(Invocation("experiments.sweep", tuple(words), ()))
    assert list(plan.states.values()) == ["stale"]
    assert plan.changed == ("instance",)


def test_a_trace_is_replayed_and_what_ran_is_exported(capsys):
    Path("gpu.json").write_text(json.dumps(on_gpu()))
    assert simulate.main(["instance=gpu.json@4", "scheduler=heft", "export=ran.et"]) == 0
    assert result()["metrics"]["makespan_s"] == pytest.approx(100e-6, rel=1e-4)
    out = capsys.readouterr().out
    assert "gpu.json: 'ProfilerStep#4' took 0.0001 s when it was recorded" in out
    assert "wrote ran.et" in out
    assert simulate.main(["instance=ran.et", "scheduler=fcfs"]) == 0
    assert result()["metrics"]["makespan_s"] == pytest.approx(100e-6, rel=1e-4)
    assert simulate.main(["instance=topcuoglu", "scheduler=heft", "export=ran.json"]) == 0
    words = ["instance=ran.json", "family=file", "family.ccr=1", "family.beta=1"]
    assert simulate.main(words) == 0


def test_a_traces_part_and_what_lies_beside_it_decide_the_cell():
    Path("net.json").write_text(json.dumps(WITH_SHAPES))
    words = ["family=file", "family.ccr=1", "scheduler=heft", "name=study", "workers=1"]
    assert sweep.main([*words, "instance=net.json"]) == 0
    Path("net.et.json").write_text(json.dumps(OBSERVED))
    plan = sweep.plan_sweep(Invocation("experiments.sweep", (*words, "instance=net.json"), ()))
    assert list(plan.states.values()) == ["stale"]
    words[3] = "name=other"
    assert sweep.main([*words, "instance=net.json@mine"]) == 1
    assert "There is no range 'mine'" in Path("outputs/sweeps/other/failures.csv").read_text()


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (simulate, ["family=dagen"], "No family 'dagen'. Nearest: daggen"),
        (simulate, ["family=daggen", "family.fat=1.5"], "family.fat=1.5 must be above 0"),
        (simulate, ["family=daggen", "family.m=3"], "family.m has no meaning for 'daggen'"),
        (simulate, ["family=daggen", "family.fta=1"], "There is no key 'family.fta'. Nearest"),
        (simulate, ["family=daggen", "instance=peft"], "each say which graph runs; leave one"),
        (simulate, ["family=file", "instance=peft"], "brings devices and times along; leave out"),
        (simulate, ["family=file"], "gives devices to the graph of a file; name it: instance="),
        (simulate, ["family=file", "instance=none.stg"], "No instance 'none.stg'"),
        (simulate, ["family=daggen", "seed.workload=-1"], "seed.workload=-1 draws the graph"),
        (
            simulate,
            ["instance=topcuoglu", "export=a.txt"],
            "an .et is Chakra's, a .json WfFormat's",
        ),
        (simulate, ["save_instance=a.json"], "a traced model's are predicted. Draw one"),
        (sweep, ["family=fft", "model=gpt2,bert_base"], "'family=fft' takes the place of model"),
        (sweep, ["family=daggen,fft", "family.n=10,20"], "family.n has no meaning for 'fft'"),
    ],
)
def test_refusals(command, words, message, capsys):
    assert command.main(words) == 2
    assert message in capsys.readouterr().err
    assert not Path("outputs").exists()


def test_a_layer_profile_runs_on_the_types_of_a_cluster(folder, capsys):
    profile = Path(__file__).parents[1] / "oracles" / "msr_fiddle" / "bert24_training.json"
    (folder / "cluster" / "typed.yaml").write_text(
        "{name: typed, host: m, spaces: {m: {}, n: {}}, devices: {slow: {profile: cpu, space: m}, fast: "
        "{profile: fpga, space: n}}, links: {l: {ends: [m, n], bandwidth: 1 GB/s}}}"
    )
    words = ["--config-dir", str(folder), "model=layer_profile", f"model.profile={profile}"]
    alone = ["scheduler=single_device", "scheduler.options.device=fast"]
    assert simulate.main([*words, "cluster=typed", *alone]) == 0
    first = result()
    assert first["graph"]["name"] == "bert24_training"
    assert {entry["label"] for entry in first["profiles"]} == {"given"}
    assert first["config"]["simulation"]["contention"] == "fifo"
    seconds = sum(node["fpgaLatency"] for node in json.loads(profile.read_text())["nodes"]) / 1e3
    assert first["metrics"]["makespan_s"] == pytest.approx(seconds, rel=1e-6)
    capsys.readouterr()
    for wrong, message in (
        (["cluster=typed", "cluster.devices.fast.profile=V100"], "no times of device type 'V100'"),
        (["cluster=typed", "workload=serving"], "has the times of one batch"),
        (["cluster=typed", "model.profile=none.txt"], "There is no layer profile none.txt"),
        (["cluster=typed", "model.target=a.B"], "has a model.target and a model.profile"),
    ):
        assert simulate.main([*words, *wrong]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


def test_what_partitions_move_is_drawn_against_one_of_them(folder, capsys):
    words = [
        "family=parameter_server",
        "family.samples=40",
        "family.parameters=30",
        "family.degree=4",
    ]
    words += ["family.devices=3", "partition=parameter_server", "simulation.contention=fair"]
    for policy in ("two_step", "hash"):
        assert simulate.main([*words, f"partition.options.policy={policy}", "output_dir=runs"]) == 0
        assert result("runs")["plan"]["policy"] == policy
    baseline = "parameter_server(policy=hash)"
    assert communication.main(["runs", f"baseline={baseline}"]) == 0
    found, _ = communication.ratios(load_results("runs"), baseline)
    assert list(found["setting"]) == ["all", "all"]
    ratio = found.set_index("scheduler")["bytes_ratio"]
    assert ratio[baseline] == 1
    assert ratio["parameter_server"] < 1
    for name in ("communication.txt", "fig_communication.png", "fig_communication.csv"):
        assert (Path("runs") / name).stat().st_size > 0
    assert "validity:" not in capsys.readouterr().out
    assert communication.main(["runs", "baseline=heft"]) == 2
    assert "There is no scheduler 'heft'" in " ".join(capsys.readouterr().err.split())


def test_what_models_move_is_told_with_its_validity(folder, capsys):
    words = ["--config-dir", str(folder), "model=branches", "cluster=box", "output_dir=runs"]
    for name in ("heft", "min_min"):
        assert simulate.main([*words, f"scheduler={name}"]) == 0
    capsys.readouterr()
    assert communication.main(["runs"]) == 0
    line = "validity: CPU cores with memories apart: one run, 4.8% off"
    assert capsys.readouterr().out.splitlines()[1].startswith(line)
    assert line in Path("runs/communication.txt").read_text()
    assert f"V{line[1:]}" in Path("runs/fig_communication.txt").read_text()
