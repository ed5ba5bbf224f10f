"""An addition is one file: parts of a user's own are registered by name, and every command honours them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import simulate as simulate_command
from simulator.context import SchedulingContext
from simulator.devices import effects
from simulator.devices.constant import ExecutionModel
from simulator.engine import faults
from simulator.engine.run import simulate
from simulator.engine.setting import EngineRun
from simulator.errors import InvalidInput, SchedulingError
from simulator.links import registry as links
from simulator.memory import registry as memory
from simulator.model import noise
from simulator.model.cluster import Cluster, Device, fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.schedulers import create


@contextmanager
def offered(part: Any, name: str, value: Any) -> Iterator[None]:
    """A part that is registered meanwhile."""
    part.register(name, value)
    try:
        with pytest.raises(InvalidInput, match="already"):
            part.register(name, value)
        yield
    finally:
        part.unregister(name)


def two() -> tuple[DataflowGraph, Cluster, CostTable]:
    """Two tasks on two devices, 10 bytes apart at 1 byte a second: 1 + 10 + 1 seconds."""
    graph = from_edges("two", 2, [(0, 1, 10.0)])
    return (
        graph,
        fully_connected("two", 2, 1.0),
        CostTable.of(graph, np.array([[1.0, 99.0], [99.0, 1.0]])),
    )


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(*settings: str) -> pd.DataFrame:
    """The executions of a run by the command."""
    assert simulate_command.main([*settings]) == 0
    return pd.read_parquet("outputs/latest/executions.parquet")


def heft(*settings: str) -> float:
    """The makespan of HEFT on the shipped example."""
    return float(command("instance=topcuoglu", "scheduler=heft", *settings)["finish"].max())


class Halved(links.Uncontended):
    """A link model: half of every bandwidth."""

    def book(self, route, size, now, free):  # type: ignore[no-untyped-def]
        """See :class:`links.LinkModel`."""
        return now, now + (route.latency + 2 * size / route.bandwidth)


def test_a_link_model() -> None:
    with offered(links, "halved", Halved):
        assert simulate(*two(), create("heft")).makespan == 12.0
        assert simulate(*two(), create("heft"), contention="halved").makespan == 22.0
        assert heft("simulation.contention=halved") > 80.0


@dataclass
class Throttled:
    """A device effect: every execution takes so many times as long."""

    inner: ExecutionModel
    factor: float
    final: bool = False

    def begin(self, task: int, seconds: float, start: float) -> None:
        """See :class:`ExecutionModel`."""
        self.inner.begin(task, self.factor * seconds, start)

    def goes_on(self, task: int, now: float) -> bool:
        """See :class:`ExecutionModel`."""
        return self.inner.goes_on(task, now)

    def end(self, task: int, now: float) -> None:
        """See :class:`ExecutionModel`."""
        self.inner.end(task, now)


def throttled(inner: ExecutionModel, device: Device, options: Any) -> ExecutionModel:
    """Makes the effect from a device's options."""
    return Throttled(inner, float(options["factor"]))


def test_a_device_effect() -> None:
    graph, cluster, costs = two()
    hot = [Device("d0", cluster.devices[0].space, effects={"throttled": {"factor": 3}})]
    cluster = Cluster("hot", cluster.spaces, [*hot, cluster.devices[1]], cluster.links)
    with offered(effects, "throttled", throttled):
        assert simulate(graph, cluster, costs, create("heft")).makespan == 14.0
    with pytest.raises(
        InvalidInput, match="'d0' names the effect 'throttled'; registered are none"
    ):
        simulate(graph, cluster, costs, create("heft"))


def test_a_device_effect_of_a_configured_cluster() -> None:
    words = ["model=alexnet", "cluster=cpu2", "scheduler=single_device"]
    spans = []
    for more in ((), ("+cluster.devices.cpu.effects={throttled: {factor: 3}}",)):
        with offered(effects, "throttled", throttled):
            rows = command(*words, *more)
        spans.append(float((rows["finish"] - rows["start"]).sum()))
    assert spans[1] > 2.5 * spans[0]


def stop_links(run: EngineRun, fault: faults.Fault, begins: bool) -> None:
    """A fault of a device that halves all links while it lasts."""
    for channel in range(len(run.cluster.channels)):
        run.links.set_capacity(channel, 0.5 if begins else 1.0)


def test_a_fault() -> None:
    with offered(faults, "storm", faults.FaultKind("device", apply=stop_links)):
        storm = faults.Faults([faults.Fault("storm", "P1", 1.0, 7.0)])
        trace = simulate(*two(), create("heft"), faults=storm)
        assert trace.makespan == 1.0 + 6.0 + 7.0 + 1.0  # 3 bytes in 6 s, the other 7 in 7 s
        with pytest.raises(InvalidInput, match=r"hit 'd9'"):
            simulate(
                *two(), create("heft"), faults=faults.Faults([faults.Fault("storm", "d9", 0.0)])
            )


def test_a_memory_policy() -> None:
    graph, cluster, costs = two()
    spaces = [type(space)(space.name, 12.0) for space in cluster.spaces]
    cluster = Cluster("small", spaces, cluster.devices, cluster.links)
    assert simulate(graph, cluster, costs, create("heft"), memory="limited").makespan == 12.0
    with (
        offered(memory, "half", lambda space: space.capacity / 2),
        pytest.raises((InvalidInput, SchedulingError), match=r"10 bytes.*has 6"),
    ):
        simulate(graph, cluster, costs, create("heft"), memory="half")


class Doubled:
    """A noise model: everything takes twice as long."""

    def realise(self, graph: Any, costs: Any, rng: Any, moment: float) -> np.ndarray:
        """See :class:`noise.NoiseModel`."""
        seconds: np.ndarray = 2 * costs.seconds
        return seconds


def test_a_noise_model() -> None:
    assert simulate(*two(), create("heft"), actual=Doubled()).makespan == 14.0
    make: Callable[[Any], noise.NoiseModel] = lambda devices: Doubled()  # noqa: E731
    with offered(noise, "doubled", make):
        assert heft("simulation.noise=doubled") > 100.0


def test_a_scheduler_needs_what_a_context_offers() -> None:
    """A verb is the context's, the engine's and the hardware runner's: whoever lacks it refuses before the run."""

    class Painter(type(create("heft"))):  # type: ignore[misc]
        needs = frozenset({"paint"})

        def decide(self, context: SchedulingContext) -> None:
            raise AssertionError

    with pytest.raises(SchedulingError, match="needs paint, which simulated runs do not offer"):
        simulate(*two(), Painter())
