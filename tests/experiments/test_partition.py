"""Partitions by configuration: every command takes one, and none changes what it does not concern."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from experiments import simulate, sweep
from experiments.runs.grid import compose_grid
from experiments.runs.results import load_results
from experiments.runs.world import source_digests
from experiments.studies.flip import command as flip
from scenarios.partition.partitioner import Partitioner, Problem, partition
from simulator import Cluster, Device, Link, MemorySpace
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.plan import Plan
from simulator.model.workload import Job, Workload
from tests.experiments.own_machine import command, newest

OWN = """
import numpy as np

from scenarios.partition.partitioner import Partitioner
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan


class Turns(Partitioner):
    '''So many operators on one device, then as many on the next.'''

    name = "turns"

    def __init__(self, step: int = 1):
        self.step = step

    def plan(self, problem):
        tasks = sum(len(job.graph) for job in problem.jobs)
        devices = np.arange(tasks) // self.step % len(problem.cluster.devices)
        return problem.evaluator().plan(self.name, devices, np.arange(tasks))


class First(Partitioner):
    '''The first operator alone, which is another graph.'''

    name = "first"
    makes_graphs = True

    def plan(self, problem):
        whole = problem.graph
        kept = sorted({*whole.reads[0], *whole.writes[0]})
        tensors = [whole.tensors[t] for t in kept]
        place = {t: n for n, t in enumerate(kept)}
        rows = [[place[t] for t in row] for row in (whole.reads[0], whole.writes[0])]
        graph = DataflowGraph("first", whole.operators[:1], tensors, rows[:1], rows[1:])
        costs = problem.price([graph])
        jobs = [graph for _ in problem.jobs]
        devices = tuple(device.name for device in problem.cluster.devices)
        fastest = int(costs[graph].seconds[0].argmin())
        return Plan(self.name, tuple(jobs), devices, np.full(len(jobs), fastest), np.arange(len(jobs)))
"""
CONFIG = """
defaults:
  - override /scheduler@_global_.scheduler: planned
  - _self_
name: {name}
class_path: own.py:{kind}
options: {options}
description: a test's
"""
MODEL = ("model=branches", "cluster=box", "simulation.draws=3")


@pytest.fixture
def own(folder: Path, monkeypatch) -> list[str]:
    """The user's folder with two partitions, as words of a command line."""
    monkeypatch.setattr("experiments.plots.gantt.draw_gantt", lambda *_, **__: [])
    (folder / "own.py").write_text(OWN)
    (folder / "partition").mkdir()
    for name, kind, options in (("turns", "Turns", "{step: 1}"), ("first", "First", "{}")):
        text = CONFIG.format(name=name, kind=kind, options=options)
        (folder / "partition" / f"{name}.yaml").write_text(text)
    return ["--config-dir", str(folder)]


def result() -> dict:
    return json.loads(Path("outputs/latest/result.json").read_text())


def test_a_plan_is_made_executed_and_kept(own, capsys):
    assert simulate.main([*own, *MODEL, "partition=turns"]) == 0
    said, first = capsys.readouterr().out, result()
    assert first["labels"]["scheduler"] == "turns"
    made = first["plan"]["makespans_s"]
    assert set(made) == {"turns", "all on cpu0", "all on gpu"}
    assert first["metrics"]["makespan_s"] == min(made.values()) == first["plan"]["makespan_s"]
    assert f"plan '{first['plan']['origin']}' of turns" in said
    assert len(first["draws"]) == 3
    file = Path("outputs/latest/plan.json").resolve()
    again = [*own, *MODEL, "scheduler=planned", f"scheduler.options.file={file}"]
    assert simulate.main(again) == 0
    assert result()["metrics"]["makespan_s"] == first["metrics"]["makespan_s"]
    assert result()["draws"] == first["draws"]


def test_a_scheduler_runs_what_a_partition_made(own):
    assert simulate.main([*own, *MODEL, "partition=first", "scheduler=heft"]) == 0
    found = result()
    assert found["labels"]["scheduler"] == "heft on first"
    assert found["graph"]["name"] == "first"
    # Each device alone runs the whole model.
    assert found["metrics"]["best_device_s"] == found["plan"]["makespans_s"]["all on cpu0"]


def test_a_sweep_compares_partitions_with_schedulers(own, capsys):
    words = [
        "partition=none,turns",
        "workload=concurrent",
        "workload.jobs=2",
        "name=both",
        "workers=1",
    ]
    assert sweep.main([*own, *MODEL, *words]) == 0
    frame = load_results("outputs/sweeps/both")
    assert sorted(frame["scheduler"]) == ["heft", "turns"]
    assert frame["best_device_s"].nunique() == 1
    assert "heft" in capsys.readouterr().out
    assert (
        sweep.main(
            [*own, *MODEL, "partition=turns", "partition.options.step=1,2", "name=o", "workers=1"]
        )
        == 0
    )
    assert sorted(load_results("outputs/sweeps/o")["scheduler"]) == ["turns", "turns(step=2)"]


def test_a_partition_is_planned_anew_where_times_change(own, tmp_path, capsys):
    file = tmp_path / "two.json"
    file.write_text(json.dumps({"cost": [[1.0, 50.0], [10.0, 4.0]], "edges": [[0, 1, 9.0]]}))
    # One task each: 1 + 9 + 4; everything on P1: 11, which is the plan, and HEFT's, until the link is 9 / 6 as fast.
    # With the plan of the link as it is HEFT, which comes second where both are level, would win from there on.
    words = [f"instance={file}", "partition=turns,none", f"output_dir={tmp_path}"]
    assert flip.main([*own, *words, "scheduler=single_device"]) != 0
    assert "scheduler=planned executes it" in capsys.readouterr().err
    assert flip.main([*own, *words]) == 0
    (path,) = (tmp_path / "flips").glob("*/result.json")
    document = json.loads(path.read_text())
    assert document["winner"] == "turns"
    assert all(
        row["up"] is None and row["down"] is None
        for row in document["flips"]
        if row["what"] == "bandwidth"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["partition=turn"], "No partition 'turn'. Nearest: turns"),
        (["partition=turns", "scheduler=heft"], "heft would decide anew"),
        (["partition=turns", "partition.options.step=a"], "option step that is a whole number"),
        (["partition=turns", "partition.class_path=own.py:Nobody"], "Nobody"),
        (["partition=turns", "partition.class_path=mine.py:Mine"], "is no partitioner"),
        (["partition=turns", "workload=closed_loop"], "plans jobs that are all known"),
        (["partition=turns", "scheduler.options.file=a.json"], "names another"),
        (["partition=first", "workload=serving"], "makes new graphs"),
        (["scheduler=planned"], "has no plan"),
    ],
)
def test_a_wrong_partition_is_refused(own, capsys, words, message):
    assert simulate.main([*own, *MODEL, *words]) != 0
    assert message in capsys.readouterr().err
    assert not Path("outputs").exists()


def test_a_plan_is_validated_on_hardware(home, no_figures, capsys):
    """The cluster's devices share a memory here; memories of their own: tests of the runner."""
    pytest.importorskip("torch")
    (home / "conf" / "own.py").write_text(OWN)
    (home / "conf" / "partition").mkdir()
    text = CONFIG.format(name="turns", kind="Turns", options="{}")
    (home / "conf" / "partition" / "turns.yaml").write_text(text)
    words = ["model=tiny", "cluster=here", "simulation.draws=3"]
    runs = ["repeats=3", "warmup=0", "seconds=0"]
    assert command(home, *words, *runs, "partition=none,turns") == 0
    assert "2 cases of 1 models" in capsys.readouterr().out
    rows = list(csv.DictReader((newest(home) / "cases.csv").open()))
    assert [row["scheduler"] for row in rows] == ["heft", "turns"]
    assert all(0 < float(row["measured_s"]) < 10 for row in rows)


def test_what_decides_a_result_is_in_the_key(own, folder):
    """The partition's own code, and the file of a plan."""
    assert simulate.main([*own, *MODEL, "partition=turns"]) == 0
    file = folder / "plan.json"
    file.write_bytes(Path("outputs/latest/plan.json").read_bytes())
    planned = ["scheduler=planned", f"scheduler.options.file={file}"]
    for words, changed in ((["partition=turns"], folder / "own.py"), (planned, file)):
        scenario = compose_grid([*MODEL, *words], [folder]).cells[0].scenario
        before = source_digests(scenario, [folder])
        changed.write_text(changed.read_text() + "\n")
        assert source_digests(scenario, [folder]) != before


def test_strict_refuses_parts_outside_the_measured_range(own, capsys, monkeypatch):
    """What a partition made is looked at, not only what it was made of."""
    seen = []
    monkeypatch.setattr("experiments.runs.prepare.refuse_extrapolation", seen.append)
    assert simulate.main([*own, *MODEL, "partition=first", "strict=true"]) == 0
    assert [world.graph.name for world in seen][:1] == ["first"]


def test_a_device_alone_says_nothing_of_the_plan_that_it_replaces():
    class Noted(All):
        """With something to say."""

        def plan(self, problem: Problem) -> Plan:
            """See the base."""
            return dataclasses.replace(super().plan(problem), notes={"split": 3})

    graph = from_edges("two", 2, [(0, 1, 8.0)])
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [2.0, 3.0]]))
    problem = Problem(Workload([Job(graph)]), two(99.0), costs)
    assert partition(Noted(0), problem).plan.notes["split"] == 3
    assert "split" not in partition(Noted(1), problem).plan.notes


class All(Partitioner):
    """All on one device."""

    name = "all"

    def __init__(self, device: int) -> None:
        self.device = device

    def plan(self, problem: Problem) -> Plan:
        """See the base."""
        return Plan.single(self.name, problem.jobs, problem.cluster, self.device)


def weighty() -> DataflowGraph:
    tensors = [Tensor("w", "weight", 30.0), Tensor("x", "activation", 1.0)]
    return DataflowGraph("weighty", [Operator("t", "task")], tensors, [[0]], [[1]])


def two(capacity: float) -> Cluster:
    spaces = (MemorySpace("m"), MemorySpace("n", capacity))
    link = Link("l", ("m", "n"), 1.0)
    return Cluster("two", spaces, (Device("a", "m"), Device("b", "n")), (link,))


def test_a_part_over_its_memory_is_refused():
    graph = weighty()
    costs = CostTable.of(graph, np.array([[2.0, 1.0]]))
    problem = Problem(Workload([Job(graph)]), two(20.0), costs, memory="limited")
    with pytest.raises(
        InvalidInput, match="puts 30 B of weights into memory 'n', which holds 20 B"
    ):
        partition(All(1), problem)
    assert partition(All(0), problem).makespans == {"all": 2.0, "all on a": 2.0}


def test_the_best_device_takes_the_place_of_a_plan_that_is_worse():
    graph = from_edges("two", 2, [(0, 1, 8.0)])
    costs = CostTable.of(graph, np.array([[2.0, 1.0], [2.0, 3.0]]))
    found = partition(All(1), Problem(Workload([Job(graph)] * 2), two(99.0), costs))
    assert found.makespans == {"all": 8.0, "all on a": 8.0, "all on b": 8.0}
    assert found.plan.origin == "all"  # a tie stays with the plan
    slower = CostTable.of(graph, np.array([[1.0, 1.0], [2.0, 3.0]]))
    found = partition(All(1), Problem(Workload([Job(graph)] * 2), two(99.0), slower))
    assert found.plan.origin == "all on a"
    assert found.plan.makespan_s == 6.0
    assert found.plan.planning_s > 0
