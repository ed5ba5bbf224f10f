"""Collectives: bytes and seconds of the closed forms by the engine, and sums by torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibration.sequential import run_tensors
from scenarios.training.assembly import Assembly
from scenarios.training.collectives import Ranks, all_reduce_seconds, half_seconds
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.operator import Operator, Tensor, TensorSpec
from tests.scenarios.training.chains import simulated, switched

SIZE, RANKS, BANDWIDTH = 400e6, 8, 12.5e9


def built(call, ranks=RANKS, size=SIZE):
    """A graph in which each rank has a buffer, ``call`` adds to it, and each rank reads what it gives."""
    parts = Assembly()
    buffers = []
    for rank in range(ranks):
        written = [Tensor(f"g{rank}", "activation", size)]
        buffers += parts.operator(Operator(f"g{rank}", "task"), [], written, rank, (0, rank))
    for rank, tensor in enumerate(call(parts, buffers) or ()):
        read = [Tensor(f"u{rank}", "activation", 0.0)]
        parts.operator(Operator(f"use{rank}", "task"), [tensor], read, rank, (9,))
    return parts


def run(cluster, call, ranks=RANKS, size=SIZE, seconds=None):
    parts = built(call, ranks, size)
    graph = parts.graph("collective", [], None)
    table = np.zeros((len(graph), len(cluster.devices)))
    for kind, row in (seconds or {}).items():
        table[[o.kind == kind for o in graph.operators]] = row
    return simulated(graph, table, cluster, np.array(parts.device), np.arange(len(graph)))


def ranks_of(parts, count=RANKS):
    return Ranks(parts, range(count), "x", (1,))


@pytest.mark.parametrize("algorithm", ["ring", "tree", "hierarchical"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_all_reduce_takes_its_closed_form_where_nothing_contends(algorithm, ranks):
    cluster = switched(ranks, BANDWIDTH)
    trace = run(
        cluster, lambda p, b: ranks_of(p, ranks).all_reduce(b, algorithm, ranks // 2), ranks
    )
    node = (ranks // 2, BANDWIDTH) if algorithm == "hierarchical" else ()
    expected = all_reduce_seconds(SIZE, ranks, BANDWIDTH, 0.0, algorithm, *node)
    assert trace.makespan == pytest.approx(expected)
    per_hop = trace.transfers["bytes"].sum() / 2  # into the switch and out of it
    assert per_hop == pytest.approx(2 * (ranks - 1) * SIZE)  # whatever the algorithm


def test_known_times():
    """400 MB on 8 devices at 12.5 GB/s: 56 ms by a ring; 512 ms by a server of its own, push then pull."""
    ring = run(switched(8, BANDWIDTH), lambda p, b: ranks_of(p).all_reduce(b))
    assert ring.makespan == pytest.approx(0.056)
    assert all_reduce_seconds(SIZE, 8, BANDWIDTH) == pytest.approx(0.056)

    def serve(parts, buffers):
        total = ranks_of(parts).push(buffers, 8)
        apply, weight = Operator("apply", "task"), Tensor("w", "activation", SIZE)
        (updated,) = parts.operator(apply, [total], [weight], 8, (2,))
        for rank in range(RANKS):
            reader = Operator(f"next{rank}", "task")
            parts.operator(reader, [updated], [Tensor(f"n{rank}", "activation", 0.0)], rank, (3,))

    server = run(switched(8, BANDWIDTH, extra=("server",)), serve)
    assert server.makespan == pytest.approx(0.512)


@pytest.mark.parametrize("call", ["reduce_scatter", "all_gather", "all_to_all"])
def test_halves_take_their_closed_form(call):
    def add(parts, buffers):
        ranks = ranks_of(parts)
        if call == "all_gather":  # of chunks that come from a scatter that takes nothing
            for rank, row in enumerate(ranks.all_gather(buffers)):
                ranks._join(row, rank)
        else:
            getattr(ranks, call)(buffers)

    size = SIZE / RANKS if call == "all_gather" else SIZE
    trace = run(switched(8, BANDWIDTH), add, size=size)
    assert trace.makespan == pytest.approx(half_seconds(SIZE, RANKS, BANDWIDTH))


def test_hierarchies_use_the_fast_links_within_nodes():
    """Four ranks in two nodes; each pair of equal places has a slow link of its own."""
    spaces = [MemorySpace(f"m{i}") for i in range(4)]
    devices = [Device(f"d{i}", f"m{i}") for i in range(4)]
    links = [
        Link("a", ("m0", "m1"), 10.0),
        Link("b", ("m2", "m3"), 10.0),
        Link("c", ("m0", "m2"), 1.0),
        Link("d", ("m1", "m3"), 1.0),
    ]
    cluster = Cluster("nodes", spaces, devices, links)
    trace = run(cluster, lambda p, b: ranks_of(p, 4).all_reduce(b, "hierarchical", 2), 4, 100.0)
    expected = all_reduce_seconds(100.0, 4, 1.0, 0.0, "hierarchical", 2, 10.0)
    assert trace.makespan == pytest.approx(expected) == pytest.approx(10.0 + 50.0)


def test_one_operator_takes_as_long():
    """A communicator is a device that all reach in no time."""
    cluster = switched(RANKS, np.inf, extra=("net",))
    seconds = np.full(RANKS + 1, np.inf)
    seconds[RANKS] = all_reduce_seconds(SIZE, RANKS, BANDWIDTH)
    trace = run(
        cluster, lambda p, b: ranks_of(p).at_once(b, RANKS), seconds={"all_reduce": seconds}
    )
    assert trace.makespan == pytest.approx(0.056)


@pytest.mark.parametrize(("algorithm", "node"), [("ring", 1), ("tree", 1), ("hierarchical", 2)])
@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
def test_every_rank_has_the_sum(algorithm, node, ranks):
    if ranks % node:
        with pytest.raises(InvalidInput, match="cannot have nodes of 2"):
            built(lambda p, b: ranks_of(p, ranks).all_reduce(b, algorithm, node), ranks)
        return
    parts = Assembly()
    spec = TensorSpec((7,))  # chunks are unequal, one may be empty
    buffers = [parts.tensor(Tensor(f"g{r}", "input", 28.0, spec)) for r in range(ranks)]
    reduced = ranks_of(parts, ranks).all_reduce(buffers, algorithm, node)
    held = {f"g{r}": torch.randn(7) for r in range(ranks)}
    names = [parts.tensors[t].name for t in reduced]
    found = run_tensors(parts.graph("sum", [], None), {}, held, names)
    for rank, name in enumerate(names):
        torch.testing.assert_close(found[name], sum(held.values()), msg=f"rank {rank}")


def test_all_to_all_transposes():
    parts = Assembly()
    buffers = [parts.tensor(Tensor(f"g{r}", "input", 24.0, TensorSpec((6,)))) for r in range(3)]
    made = ranks_of(parts, 3).all_to_all(buffers)
    held = {f"g{r}": torch.arange(6.0) + 10 * r for r in range(3)}
    names = [parts.tensors[t].name for t in made]
    found = run_tensors(parts.graph("all", [], None), {}, held, names)
    for rank, name in enumerate(names):
        expected = torch.cat([held[f"g{s}"][2 * rank : 2 * rank + 2] for s in range(3)])
        torch.testing.assert_close(found[name], expected)


def test_an_unknown_algorithm_and_unreachable_ranks_are_refused():
    with pytest.raises(InvalidInput, match="no all-reduce 'star'"):
        built(lambda p, b: ranks_of(p).all_reduce(b, "star"))
    spaces, devices = [MemorySpace("a"), MemorySpace("b")], [Device("x", "a"), Device("y", "b")]
    with pytest.raises(InvalidInput, match="no route"):
        run(Cluster("apart", spaces, devices), lambda p, b: ranks_of(p, 2).all_reduce(b), 2)
