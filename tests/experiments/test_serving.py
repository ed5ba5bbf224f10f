"""Sweeps of serving runs and sizing, from the command line to what they leave."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from experiments import serving, simulate, sweep
from experiments.studies.size import command as size

pytest.importorskip("torch")

WORDS = [
    "workload=serving",
    "workload.mix={wide_and_deep: 1, two_tower: 3}",
    "workload.jobs=60",
    "workload.max_batch=4",
    "workload.deadline=30ms",
    "cluster=cpu2",
    "simulation.draws=0",
]


def test_a_run_of_requests_says_how_they_were_served(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    assert simulate.main([*WORDS, "workload.rate=100/s", "scheduler=task_groups"]) == 0
    result = json.loads(next(Path("outputs/runs").glob("*/result.json")).read_text())
    figures = result["metrics"]
    assert figures["requests"] == 60
    assert set(figures["by_model"]) == {"wide_and_deep", "two_tower"}
    assert 0 < figures["success_rate"] <= 1
    assert figures["bound_s"] is None
    assert "60 of 60 jobs finished" in capsys.readouterr().out


def test_a_run_that_keeps_figures_says_what_the_trace_says(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    words = [*WORDS, "workload.rate=100/s", "scheduler=task_groups", "workload.warm_up=100ms"]
    for folder_name, keep in (("whole", "null"), ("some", "figures")):
        assert simulate.main([*words, f"keep={keep}", f"output_dir={folder_name}"]) == 0
    out = capsys.readouterr().out
    assert out.count("60 of 60 jobs finished") == 2
    whole, some = (
        json.loads(next(Path(name, "runs").glob("*/result.json")).read_text())["metrics"]
        for name in ("whole", "some")
    )
    assert some["by_model"].keys() == whole["by_model"].keys()
    for name in serving.FIGURES:
        if whole[name] is None:
            assert some[name] is None
        else:
            tolerance = 0.0051 if name[:2] in ("p5", "p9") else 1e-9
            assert some[name] == pytest.approx(whole[name], rel=tolerance), name
    kept = {path.name for path in next(Path("some", "runs").iterdir()).iterdir()}
    assert kept == {"config.yaml", "command.txt", "graph.json", "result.json"}


@pytest.mark.parametrize(
    "words",
    [
        ["simulation.memory=limited"],
        ["simulation.decision_cost.per_task=1us"],
        [
            "simulation.faults=[{what: device_slowdown, where: cpu0, start: 0s, end: 1s, factor: 0.5}]"
        ],
    ],
)
def test_figures_are_kept_of_every_run(folder, capsys, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    found = []
    for keep in ("null", "figures"):
        assert simulate.main([*WORDS, "scheduler=fcfs_batching", *words, f"keep={keep}"]) == 0
        result = json.loads(Path("outputs/latest/result.json").read_text())["metrics"]
        found.append([result[key] for key in ("requests", "success_rate", "makespan_s")])
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_a_sweep_that_keeps_figures_is_read_like_any_other(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    words = [*WORDS, "workload.rate=100/s,400/s", "scheduler=fcfs_batching", "workers=1"]
    tables = []
    for name, keep in (("whole", "null"), ("some", "figures")):
        assert sweep.main([*words, f"keep={keep}", f"name={name}"]) == 0
        capsys.readouterr()
        assert serving.main([f"outputs/sweeps/{name}", "slo=100ms"]) == 0
        tables.append([line for line in capsys.readouterr().out.splitlines() if line[:3] == "| 4"])
    whole, some = (table[0].split(" | ") for table in tables)
    assert some[:5] == whole[:5]  # load, scheduler, served, goodput, success


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["keep=everything"], "There is no keep=everything; known: figures"),
        (["keep=figures", "workload=poisson"], "whose jobs are no requests"),
        (["keep=figures", "simulation.engine=evaluator"], "with simulation.engine=evaluator"),
    ],
)
def test_keeping_figures_is_refused(folder, capsys, words: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    given = WORDS if "workload=poisson" not in words else ["cluster=cpu2", "model=two_tower"]
    assert simulate.main([*given, "scheduler=fcfs_batching", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_sweep_is_drawn_against_the_load(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    words = [
        *WORDS,
        "workload.rate=100/s,400/s",
        "scheduler=fcfs_batching,task_groups",
        "seed.workload=0,1",
        "name=loads",
        "workers=1",
    ]
    assert sweep.main(words) == 0
    capsys.readouterr()
    assert serving.main(["outputs/sweeps/loads", "slo=100ms", "baseline=fcfs_batching"]) == 0
    out = capsys.readouterr().out
    assert "| 400 | task_groups |" in out
    assert "against fcfs_batching: task_groups goodput" in out
    assert "p99 within 100 ms up to workload.rate" in out
    assert "8 runs; 2x amd-epyc-25-17-1core (measured)" in out
    assert Path("outputs/sweeps/loads/fig_serving.png").stat().st_size > 10_000
    assert serving.main(["outputs/sweeps/loads", "schedulers=task_groups"]) == 0
    out = capsys.readouterr().out
    assert "4 runs" in out
    assert "fcfs_batching" not in out
    assert serving.main(["outputs/sweeps/loads", "schedulers=task_groups,sjf"]) == 2
    assert "no scheduler 'sjf'; known: fcfs_batching, task_groups" in capsys.readouterr().err


def test_what_is_no_sweep_of_requests_is_refused(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    assert serving.main(["outputs/sweeps/none"]) == 2
    assert "holds no finished runs of requests" in capsys.readouterr().err
    assert serving.main(["x", "colour=red"]) == 2
    assert "known: x, slo, baseline" in capsys.readouterr().err


def test_the_cheapest_fleet_meets_the_objective_and_the_next_smaller_does_not(
    folder, capsys
) -> None:  # type: ignore[no-untyped-def]
    words = [
        *WORDS,
        "workload.rate=150/s",
        "scheduler=fcfs_batching",
        "slo.p99=18ms",
        "vary={cpu: 1..4}",
        "minimise=devices",
        "seeds=2",
        "more=1",
    ]
    assert size.main(words) == 0
    out = capsys.readouterr().out
    assert "devices meets p99 <= 18.0 ms" in out
    result = json.loads(next(Path("outputs/sizing").glob("*/result.json")).read_text())
    fleets = {f["counts"]["cpu"]: f for f in result["fleets"]}
    best = result["best"]["cpu"]
    assert fleets[best]["meets"]
    assert all(not fleet["meets"] for count, fleet in fleets.items() if count < best)
    assert "of the work is two_tower" in fleets[best]["stops"]
    assert next(Path("outputs/sizing").glob("*/fig_sizing.png")).is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vary={cpu: 1..2}"], "There is no objective"),
        (["slo.p99=1s"], "Nothing varies"),
        (["slo.p98=1s", "vary={cpu: 1..2}"], "There is no key 'slo.p98'"),
        (["slo.p99=1s", "vary={gpu: 1..2}"], "no entry of cluster 'cpu2'"),
        (["slo.p99=1s", "vary={cpu: 2..1}"], "is no range"),
        (["slo.p99=1s", "vary={cpu: 1..2}"], "needs the price of every device"),
        (["slo.success=2", "vary={cpu: 1..2}"], "is a share"),
        (["slo.p99=1s", "vary={cpu: 1..2}", "workload=poisson"], "Sizing is for requests"),
    ],
)
def test_sizing_refuses(folder, capsys, words: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    given = WORDS if "workload=poisson" not in words else ["cluster=cpu2"]
    assert size.main([*given, "scheduler=fcfs_batching", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_link_is_a_network_that_varies_on_the_command_line(folder, capsys) -> None:  # type: ignore[no-untyped-def]
    (folder / "model").mkdir(exist_ok=True)
    for name in ("small", "smaller"):
        (folder / "model" / f"{name}.yaml").write_text(
            f"name: {name}\ntarget: torch.nn.Linear\narguments: {{in_features: 2000, out_features: {len(name)}}}\n"
            "inputs: [{shape: [batch, 2000], dtype: float32}]\nbatch: 1\n"
        )
    words = [f"--config-dir={folder}", "workload=serving", "workload.mix={small: 1, smaller: 3}"]
    words += ["workload.jobs=40", "workload.rate=5/s", "workload.max_batch=1", "cluster=edge_cloud"]
    words += ["scheduler=fcfs_batching", "simulation.draws=0"]
    varying = "cluster.links.wifi.varies={step: 100ms, sigma: 0.8, length: 60s}"
    assert simulate.main([*words, "cluster.links.wifi.bandwidth=3g", varying, "output_dir=v"]) == 0
    words += ["name=nets", "workers=1"]
    assert sweep.main([*words, "cluster.links.wifi.bandwidth=3g,4g,wifi"]) == 0
    runs = serving.read_runs(Path("outputs/sweeps/nets")).frame
    assert runs["x"].tolist() == pytest.approx([1.1, 5.85, 18.88])
    delays = runs["mean_delay_s"].tolist()
    assert delays[0] > delays[1] > delays[2]
    varied = json.loads(next(Path("v/runs").glob("*/result.json")).read_text())
    assert varied["metrics"]["mean_delay_s"] > delays[0]
    assert varied["labels"]["model"] == "small:1 smaller:3"
    capsys.readouterr()
    assert simulate.main([*words[:-2], "cluster.links.wifi.varies={sigm: 1}"]) == 2
    assert "has varies.sigm, which there is not" in capsys.readouterr().err


@pytest.mark.parametrize("workload", ["serving", "poisson"])
def test_sizing_takes_a_model_of_ones_own(folder, capsys, workload: str) -> None:  # type: ignore[no-untyped-def]
    """A model that the command line names is what requests ask for."""
    Path("net.py").write_text("import torch\nNet = lambda: torch.nn.Linear(8, 8)\n")
    words = [
        *(
            "model=from_class",
            "model.name=mine",
            "model.target=net.py:Net",
            f"workload={workload}",
            "workload.max_batch=1",
        ),
        *(
            "model.inputs=[{shape: [batch, 8], dtype: float32}]",
            "workload.jobs=20",
            "workload.rate=9/s",
        ),
        *("cluster=cpu2", "scheduler=fcfs_batching", "minimise=devices", "seeds=1", "more=0"),
    ]
    assert size.main([*words, "slo.p99=100ms", "vary={cpu: 1..2}"]) == 0
    out = capsys.readouterr().out
    assert "requests are for mine" in out
    assert "100% of the work is mine" in " ".join(out.split())


def test_help_shows_what_sizing_needs(capsys) -> None:  # type: ignore[no-untyped-def]
    with contextlib.suppress(SystemExit):
        size.main(["--help"])
    out = capsys.readouterr().out
    assert "slo.p99=100ms" in out
    assert "vary={" in out
