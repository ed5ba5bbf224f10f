"""Segments where a map puts them: the pipeline's closed form, order of service, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

TIERS = Cluster(
    "tiers",
    [MemorySpace(name) for name in ("terminal", "edge", "cloud", "spare")],
    [Device("t", "terminal"), Device("e0", "edge"), Device("e1", "edge"), Device("c", "cloud")],
    [
        Link("wifi", ("terminal", "edge"), 100.0, 0.5),
        Link("internet", ("edge", "cloud"), 1000.0, 1.0),
        Link("other", ("cloud", "spare"), 1000.0, 1.0),
    ],
    host="terminal",
)


def chain(name="chain", segments=3):
    """Input of 300 bytes, 100 bytes between segments, an answer of 10."""
    tensors = [Tensor("x", "input", 300.0)]
    tensors += [Tensor(f"d{k}", "activation", 100.0) for k in range(segments - 1)]
    tensors += [Tensor("y", "activation", 10.0)]
    operators = [Operator(f"segment{k}", "segment") for k in range(segments)]
    reads, writes = [[k] for k in range(segments)], [[k + 1] for k in range(segments)]
    return DataflowGraph(name, operators, tensors, reads, writes, [{"tensor": "y"}])


def run(graphs, spaces, arrivals=None, **rest):
    table = {}
    for graph in dict.fromkeys(graphs):
        seconds = np.full((len(graph), 1), [4.0]) / np.array([[1.0, 2.0, 2.0, 4.0]])
        table |= CostTable.of(graph, seconds)
    arrivals = arrivals or [0.0] * len(graphs)
    jobs = [
        Job(graph, time, origin="terminal", destination="terminal")
        for graph, time in zip(graphs, arrivals, strict=True)
    ]
    scheduler = create("tier_placement", spaces=spaces)
    return simulate(Workload(jobs), TIERS, CostTable(table), scheduler, **rest)


@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
@pytest.mark.parametrize("movement", ["push", "pull"])
def test_one_job_takes_the_sum_of_its_way(contention: str, movement: str) -> None:
    trace = run([chain()], ["terminal", "edge", "cloud"], contention=contention, movement=movement)
    up = (0.5 + 100 / 100) + (1.0 + 100 / 1000)
    back = 1.5 + 10 / 100
    assert trace.makespan == pytest.approx(4 + 2 + 1 + up + back)
    assert trace.tasks["device"].tolist() == [0, 1, 3]


def test_the_last_name_is_for_all_that_follows_and_none_is_where_the_job_arises() -> None:
    assert run([chain()], ["edge"]).tasks["device"].tolist() == [1, 1, 1]
    assert run([chain()], None).tasks["device"].tolist() == [0, 0, 0]


def test_each_graph_has_its_own_list() -> None:
    short, long = chain("short", 1), chain("long", 2)
    trace = run([short, long], {"short": ["cloud"], "long": ["terminal", "cloud"]})
    assert trace.tasks["device"].tolist() == [3, 0, 3]


def test_devices_of_a_tier_take_turns_when_they_are_busy() -> None:
    trace = run([chain(segments=1)] * 3, ["edge"])
    assert trace.tasks["device"].tolist() == [1, 2, 1]


def test_a_tier_serves_in_the_order_in_which_tasks_become_ready() -> None:
    """The first job's second segment is ready at 4, the second job's only one at 1."""
    slow, quick = chain("slow", 2), chain("quick", 1)
    trace = run([slow, quick], {"slow": ["terminal", "cloud"], "quick": ["cloud"]}, [0.0, 1.0])
    assert trace.tasks["start"][2] < trace.tasks["start"][1]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'moon', but cluster 'tiers' has devices in terminal, "):
        run([chain()], ["moon"])
    with pytest.raises(InvalidInput, match="'spare', but cluster"):
        run([chain()], {"chain": ["terminal", "spare"]})
    with pytest.raises(InvalidInput, match="no memory spaces for graph 'chain'; it has them for a"):
        run([chain()], {"a": ["edge"]})
    for spaces in ([], {"a": []}, {"a": "edge"}):
        with pytest.raises(InvalidInput, match=r"takes spaces=\[terminal, edge, cloud\]"):
            create("tier_placement", spaces=spaces)
