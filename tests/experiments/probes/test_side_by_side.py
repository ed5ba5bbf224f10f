"""Equal devices begin apart; each operator counts once, while all devices are busy."""

import numpy as np
import pytest

from calibration.one_by_one import OneByOne
from experiments.probes.side_by_side import SideBySide
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor

pytest.importorskip("torch")  # of the scheduler

SECONDS = (3.0, 1.0, 2.0, 2.0)


def chain():
    tensors = [Tensor(f"t{i}", "input" if not i else "activation", 0.0) for i in range(5)]
    operators = [Operator(f"o{i}", "relu") for i in range(4)]
    reads, writes = [[i] for i in range(4)], [[i + 1] for i in range(4)]
    return DataflowGraph("chain", operators, tensors, reads, writes)


def cluster(*profiles):
    devices = [Device(f"d{i}", "ram", profile) for i, profile in enumerate(profiles)]
    return Cluster("here", [MemorySpace("ram")], devices, host="ram")


def executed(graph, here, together, factors):
    costs = CostTable.of(graph, np.outer(SECONDS, factors))
    return simulate(together.jobs, here, costs, OneByOne(together.devices))


def test_different_devices_begin_together_and_execute_it_once():
    graph, here = chain(), cluster("fast", "slow")
    together = SideBySide.of(graph, here, [8.0, 24.0])
    assert together.begins == (0.0, 0.0)
    assert together.devices == (0, 1)
    assert together.length([8.0, 24.0]) == 24.0
    trace = executed(graph, here, together, (1.0, 3.0))
    rows = together.rows(trace)
    assert trace.executions["device"][rows].tolist() == [[0] * 4, [1] * 4]
    assert trace.executions["operator"][rows].tolist() == [[0, 1, 2, 3]] * 2
    assert together.spans(trace, 1).tolist() == [9.0, 3.0, 6.0, 6.0]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_equal_devices_begin_apart_and_each_operator_counts_while_all_are_busy(count):
    graph, here = chain(), cluster(*["fast"] * count, "slow")
    together = SideBySide.of(graph, here, [8.0] * count + [24.0])
    assert together.begins[:-1] == tuple(8.0 * i / count for i in range(count))
    assert together.length([8.0] * count + [24.0]) == max(24.0, 16.0 + 8.0 * (count - 1) / count)
    trace = executed(graph, here, together, (*[1.0] * count, 3.0))
    rows, table = together.rows(trace), trace.executions
    for device, chosen in enumerate(rows[:-1]):
        assert set(table["device"][chosen]) == {device}
        assert table["operator"][chosen].tolist() == [0, 1, 2, 3]
        assert table["start"][chosen].min() >= max(together.begins)
        # before the first of the others is through with its second execution, or as it ends
        assert table["finish"][chosen].max() <= 16.0 + max(SECONDS)
        assert together.spans(trace, device) == pytest.approx(SECONDS)
    first = table["start"][rows[count - 1]]
    assert first - together.begins[count - 1] == pytest.approx([0.0, 3.0, 4.0, 6.0])


@pytest.mark.parametrize(
    ("slower", "executions"), [(50.0, 1), (3.0, 1), (1.5, 2), (1.05, 2), (1.0, 2)]
)
def test_what_counts_is_behind_other_executions_while_slower_devices_are_busy(slower, executions):
    graph, here = chain(), cluster("fast", "slow")
    together = SideBySide.of(graph, here, [8.0, 8.0 * slower], before=1)
    assert together.devices == (0, 0, *[1] * executions)
    trace = executed(graph, here, together, (1.0, slower))
    rows, table = together.rows(trace), trace.executions
    assert set(table["job"][rows[0]]) == {1}
    assert table["start"][rows[0]].min() == 8.0
    assert table["finish"][table["device"] == 1].max() >= table["finish"][rows[0]].max()


def test_of_equal_devices_too():
    graph, here = chain(), cluster("fast", "fast")
    together = SideBySide.of(graph, here, [8.0, 8.5], before=1)
    assert together.devices == (0, 0, 0, 1, 1, 1)
    trace = executed(graph, here, together, (1.0, 1.0))
    rows, table = together.rows(trace), trace.executions
    for device, other in ((0, 1), (1, 0)):
        assert table["start"][rows[device]].min() >= 8.0 + together.begins[device]
        assert (
            table["finish"][rows[device]].max() <= table["finish"][table["device"] == other].max()
        )
