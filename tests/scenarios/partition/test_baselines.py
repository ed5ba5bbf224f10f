"""Advice, fused kernels and signs of gains, on small networks with the shipped profiles."""

import functools

import pytest

from cost_models.pricing import price_graphs
from cost_models.profile_files import load_profile
from scenarios.partition.advise import Advise, advise, at_peak
from scenarios.partition.cpu_gpu import CpuGpu
from scenarios.partition.fused import Fused
from scenarios.partition.partitioner import Problem, partition
from simulator import Cluster, Device, Link, MemorySpace
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor, TensorSpec
from simulator.model.workload import Job, Workload

CPU, GPU = "amd-epyc-25-17-1core", "tesla-t4"
LAUNCH = load_profile(GPU).launch_overhead_s
"""Which clusters take from the profile: its times are of kernels."""
BOX = Cluster(
    "box",
    [MemorySpace("ram"), MemorySpace("vram")],
    [
        Device("cpu", "ram", profile=CPU),
        Device("gpu", "vram", profile=GPU, launch_overhead=LAUNCH),
    ],
    [Link("pcie", ("ram", "vram"), 12e9, 1e-5)],
    host="ram",
)
ATTRIBUTES = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}


class Prices:
    """The shipped profiles' times."""

    profiles = functools.cached_property(lambda self: {n: load_profile(n) for n in (CPU, GPU)})

    def price(self, graphs):
        return price_graphs(graphs, [CPU, GPU], self.profiles)


PRICES = Prices()


def convolutions(parents, batch, channels=32, size=14):
    """Convolutions of images, then relu; several parents are added up."""
    image, weight = (
        TensorSpec((batch, channels, size, size)),
        TensorSpec((channels, channels, 3, 3)),
    )
    tensors = [Tensor("x", "input", image.bytes, image)]
    operators, reads, writes, ends = [], [], [], []

    def add(name, kind, read, inputs, attributes=()):
        operators.append(Operator(name, kind, inputs, (image,), dict(attributes)))
        reads.append(read)
        writes.append([len(tensors)])
        tensors.append(Tensor(name, "activation", image.bytes, image))
        return len(tensors) - 1

    for number, row in enumerate(parents):
        source = 0 if not row else ends[row[0]]
        for other in row[1:]:
            source = add(f"a{number}.{other}", "add", [source, ends[other]], (image, image))
        tensors.append(Tensor(f"w{number}", "weight", weight.bytes, weight))
        made = add(f"c{number}", "conv2d", [source, len(tensors) - 1], (image, weight), ATTRIBUTES)
        ends.append(add(f"r{number}", "relu", [made], (image,)))
    return DataflowGraph(
        "net", operators, tensors, reads, writes, [{"tensor": f"r{number}"}], batch
    )


BRANCHES = [[], [0], [0], [0], [0], [1, 2, 3, 4], [5], [5], [5], [5], [6, 7, 8, 9]]
CHAIN = [[], *([n] for n in range(7))]


def problem(graph, prices=PRICES):
    workload = Workload([Job(graph, origin="ram", destination="ram")])
    return Problem(workload, BOX, PRICES.price([graph]), prices)


def gain(parents, batch, **shape):
    found = partition(CpuGpu(), problem(convolutions(parents, batch, **shape)))
    alone = min(s for name, s in found.makespans.items() if name != "cpu_gpu")
    return alone / found.plan.makespan_s


def test_gains_are_where_branches_are_and_shrink_as_the_batch_grows():
    gains = [gain(BRANCHES, batch) for batch in (1, 8, 64)]
    assert gains[0] > 1.05
    assert gains[0] > gains[1] >= gains[2]
    assert gains[2] < 1.02
    assert gain(CHAIN, 64) == pytest.approx(1.0, abs=0.01)


def test_fused_kernels_of_the_best_device():
    graph = convolutions(BRANCHES, 8)
    found = partition(Fused(), problem(graph))
    # On the GPU every relu and every sum ends a convolution's kernel, of which there are eleven.
    assert found.plan.origin == "all on gpu, fused"
    assert [len(g) for g in found.plan.graphs] == [11]
    assert found.makespans["fused"] < found.makespans["all on gpu"]
    with pytest.raises(InvalidInput, match="so no part of an operator can be priced"):
        Fused().plan(problem(graph, prices=None))


def test_advice_is_by_peak_rates():
    graph = convolutions(BRANCHES, 1)
    seconds = at_peak(graph, BOX)
    core, card = (load_profile(name).roofline for name in (CPU, GPU))
    # Arithmetic binds a convolution, traffic a relu.
    flops, size = 2 * 14 * 14 * 32 * 32 * 9, 2 * 32 * 14 * 14 * 4
    assert seconds[0] == pytest.approx([flops / r.flops_per_s["float32"] for r in (core, card)])
    assert seconds[1] == pytest.approx([size / r.bandwidth for r in (core, card)])
    plan = Advise().plan(problem(graph))
    assert (plan.device == seconds.sum(axis=0).argmin()).all()
    slow = Cluster("slow", BOX.spaces, [BOX.devices[0], Device("other", "ram", profile=CPU)])
    found = [advice.devices for advice in advise(graph, slow)]
    # Two equal cores of one memory share four equal branches, and two sums of them; what is sequential stays.
    regions = [devices for devices in found if len(devices) > 1]
    assert [sorted(devices) for devices in regions] == [[0, 0, 0, 1, 1, 1]] * 2
    assert {devices for devices in found if len(devices) == 1} == {(0,)}


def test_advice_needs_shapes_and_profiles():
    with pytest.raises(InvalidInput, match="no shapes"):
        advise(from_edges("bare", 1, []), BOX)
    bare = Cluster("bare", [MemorySpace("m")], [Device("d", "m")])
    with pytest.raises(InvalidInput, match="device 'd' is, which names no profile"):
        advise(convolutions(CHAIN, 1), bare)
