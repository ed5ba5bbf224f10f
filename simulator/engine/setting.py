"""What decides a run, and the run as the engine's own parts see it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from simulator.context.scheduler import Scheduler
from simulator.context.simulated import Request, SimulatedRun
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.faults import Faults
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.noise import NoiseModel
from simulator.model.workload import Job, Workload

if TYPE_CHECKING:
    from simulator.devices.constant import ExecutionModel
    from simulator.devices.shared_rate import SharedRates
    from simulator.devices.submission import Submission
    from simulator.links.flows import Flow, FlowModel
    from simulator.memory.memory import Memory


@dataclass(frozen=True)
class Setting:
    """All that decides a run; see :func:`simulator.engine.run.simulate`."""

    workload: Workload
    cluster: Cluster
    costs: CostTable
    scheduler: Scheduler
    actual: CostTable | NoiseModel | None = None
    movement: str = "push"
    contention: str = "none"
    seed: int = 0
    memory: str = "unlimited"
    weights: str = "resident"
    horizon: float = math.inf
    faults: Faults = field(default_factory=Faults)
    decision_cost: DecisionCost | None = None
    believed: Cluster | None = None


class Recorder(Protocol):
    """What the engine tells while a run goes on.

    Attributes:
        forgets: whether it drops the state of jobs that have left, and wants to be told of settled instants.
    """

    forgets: bool

    def arrived(self, job: Job) -> None:
        """A job has arrived."""

    def execution(self, task: int, device: int, finish: float, status: str) -> None:
        """An execution is over, ``FINISHED`` or ``LOST`` at ``finish``, seconds."""

    def booked(self, requests: Sequence[Request]) -> None:
        """Transfers were sent at this instant whose starts and ends are final."""

    def sent(self, flow: Flow) -> None:
        """A flow was asked for."""

    def delivered(self, flow: Flow) -> None:
        """A flow has ended, or was called off after it had started."""

    def left(self, jobs: Iterable[int]) -> None:
        """All tasks of jobs are done, or they were refused."""

    def settled(self) -> None:
        """An instant is settled."""

    def result(self) -> Any:
        """The run is over: what is kept of it."""
        ...


class Part(Protocol):
    """What the engine is composed of where a run asks for it."""

    keeps_jobs: bool
    """Whether it needs what the run knows of jobs that have left."""

    def report(self) -> dict[str, Any]:
        """What a trace's description says of it."""
        ...


class EngineRun(SimulatedRun):
    """A simulated run with its parts.

    Attributes:
        setting: what decides it.
        scheduler: whom it asks; ``is_static`` if it plans at arrivals only.
        actual_seconds: [job][operator][device], what happens.
        recorder: what is kept.
        memory: None where nothing is counted.
        links: the flows.
        device_models, submissions: by device.
        shared_rates: by device or memory space whose rates may change.
        foreseen: by device, the task that was started ahead of its data; -1 for none.
        data_at: by task, when its data is there; -1 until that is known.
        booked: whether the ends of transfers are final when they are asked for.
        woken: whether the scheduler is to be asked although nothing happened.
        last_news: when anything has happened last, seconds.
        followed: jobs that are done, where others follow on them.
        decisions, deciding_seconds: how often the scheduler was asked, and the wall-clock time of that.
        delivered_flows: those that have ended at this instant and are not applied yet.
    """

    setting: Setting
    scheduler: Scheduler
    is_static: bool
    actual_seconds: list[list[Sequence[float]]]
    recorder: Recorder
    memory: Memory | None
    links: FlowModel
    device_models: list[ExecutionModel]
    shared_rates: dict[int, SharedRates]
    submissions: list[Submission | None]
    foreseen: list[int]
    data_at: MutableSequence[float]
    booked: bool
    woken: bool
    last_news: float
    followed: set[int]
    decisions: int
    deciding_seconds: float
    delivered_flows: list[Flow]

    @property
    @abstractmethod
    def parts(self) -> list[Part]:
        """Those that the run asks for."""

    @property
    @abstractmethod
    def expects_jobs(self) -> bool:
        """Whether jobs are to arrive yet that do not follow on others."""

    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether nothing is left to happen, faults aside: they are no reason to go on."""

    @abstractmethod
    def settings(self) -> dict[str, object]:
        """What a trace's description says beside the names of things."""

    @abstractmethod
    def fates(self) -> tuple[list[float], list[str], list[str]]:
        """Of every job the finish, what it ended as, and why if it failed."""

    @abstractmethod
    def cut_off(self) -> list[tuple[int, int, float, str]]:
        """Task, device, end and status of the executions of which the host knew no end at the horizon."""


def check_possible(
    graph: DataflowGraph, cluster: Cluster, believed: GraphCosts, actual: GraphCosts
) -> None:
    """Refuse a belief that a device can run what it cannot."""
    wrong = np.argwhere(np.isinf(actual.seconds) & np.isfinite(believed.seconds))
    if len(wrong):
        operator, device = wrong[0].tolist()
        raise InvalidInput(
            f"Operator '{graph.operators[operator].name}' of '{graph.name}' is believed to take "
            f"{believed.seconds[operator, device]:g} s on '{cluster.devices[device].name}', which "
            "cannot run it according to the actual times"
        )
