"""From the form of a graph to an instance: devices, their times, and what edges take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import DATA, DEVICES, WORK, Draws
from scenarios.random_graphs.shape import Shape, check_number
from simulator.errors import InvalidInput
from simulator.model.cluster import (
    MOST_PAIRED,
    SHARINGS,
    Cluster,
    Device,
    MemorySpace,
    fully_connected,
)
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_arrays

MOST_SHARING = 256
"""Tasks that share a dedicated device; more wait for a place."""
HETEROGENEITIES = ("unrelated", "related", "both", "dedicated")


@dataclass(frozen=True)
class Times:
    """Devices without a model behind them, each with a memory of its own and a link to every other.

    A task's work is what its shape says times a factor from 1 - ``work_spread`` to
    1 + ``work_spread``; an edge's data likewise. Then a device takes for a task of work w

    - ``related``: w / its speed,
    - ``unrelated``: w times a factor from 1 - ``beta`` / 2 to 1 + ``beta`` / 2, drawn for each task on
      each device (the range-based method of Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002),
    - ``both``: w / its speed times such a factor,
    - ``dedicated``: w on the device of the kind that its shape says, and it can run on no other; the devices
      share one memory.

    All times are scaled to a mean of ``task_s`` over tasks and devices, all edges to a mean of
    ``ccr`` times that, between any two devices. Shape, work, data and each device have draws of
    their own: another ratio or a further device leaves the rest as it is.

    Attributes:
        devices: how many.
        speeds: of the devices in turn; with fewer speeds than devices they start again.
        beta: 0 to 2.
        work_spread, data_spread: 0 to 1; 0: as the shape says, 1: from nothing to twice as much.
        ccr: communication to computation ratio; None: ``data`` are bytes, moved at ``bandwidth``. A
            shape without any data has equal edges where there is a ratio.
        task_s: seconds; None: ``work`` is seconds at speed 1.
        bandwidth: bytes per second, where there is no ``ccr``.
        half_duplex: both directions of a link share one channel.
        sharing: of dedicated devices: ``processor``: the tasks on one share its rate equally, up to :data:`MOST_SHARING`;
            ``slots``: one task at a time.

    Raises:
        InvalidInput: a parameter is out of its range or has no meaning beside another.
    """

    devices: int
    heterogeneity: str
    speeds: Sequence[float] = (1.0,)
    beta: float = 0.0
    work_spread: float = 0.0
    data_spread: float = 0.0
    ccr: float | None = 1.0
    task_s: float | None = 1.0
    bandwidth: float | None = None
    half_duplex: bool = False
    sharing: str = "processor"

    def __post_init__(self) -> None:
        check_number("devices", self.devices, 1, MOST_PAIRED)
        if self.heterogeneity not in HETEROGENEITIES:
            raise InvalidInput(
                f"There is no family.heterogeneity={self.heterogeneity}; known: "
                f"{', '.join(HETEROGENEITIES)}"
            )
        if self.sharing not in SHARINGS:
            raise InvalidInput(
                f"There is no family.sharing={self.sharing}; known: {', '.join(SHARINGS)}"
            )
        if not self.speeds:
            raise InvalidInput("family.speeds is empty; give at least one, e.g. [1,4,10]")
        for speed in self.speeds:
            check_number("speeds", speed, 1e-9, 1e18)
        check_number("beta", self.beta, 0, 2)
        check_number("work_spread", self.work_spread, 0, 1)
        check_number("data_spread", self.data_spread, 0, 1)
        if self.ccr is not None:
            check_number("ccr", self.ccr, 0, 1e6)
        if self.task_s is not None:
            check_number("task_time", self.task_s, 1e-9, 1e6)
        if self.ccr is not None and self.bandwidth is not None:
            raise InvalidInput(
                f"family.ccr={self.ccr:g} scales what edges take, so family.bandwidth has no meaning; "
                "give family.ccr=null to move the file's bytes, or leave bandwidth out"
            )

    def instance(
        self, name: str, shape: Shape, seed: int
    ) -> tuple[DataflowGraph, Cluster, CostTable]:
        """The graph with times: an edge's bytes are its seconds, at one byte per second.

        Raises:
            InvalidInput: a shape of no work at all, or of data with neither ratio nor bandwidth.
        """
        work = _spread(shape.work, self.work_spread, Draws(seed, WORK))
        sizes = shape.data
        if self.ccr is not None and not sizes.any():
            sizes = np.ones(len(sizes))
        data = _spread(sizes, self.data_spread, Draws(seed, DATA))
        dedicated = self.heterogeneity == "dedicated"
        seconds = self._dedicated(name, shape, work) if dedicated else self._seconds(work, seed)
        # fsum rounds once, whatever the order: the same sum everywhere.
        finite = seconds[np.isfinite(seconds)]
        mean = math.fsum(finite.tolist()) / finite.size
        if self.task_s is not None:
            if not mean > 0:
                raise InvalidInput(
                    f"No task of '{name}' takes any time, so there is no mean to scale to "
                    "family.task_time; give family.task_time=null"
                )
            seconds, mean = seconds * (self.task_s / mean), self.task_s
        moved = math.fsum(data.tolist())
        if self.ccr is not None:
            scale = self.ccr * mean / (moved / len(data)) if moved > 0 else 0.0
        elif self.bandwidth is not None or not moved:
            scale = 1.0 / (self.bandwidth or 1.0)
        else:
            raise InvalidInput(
                f"The edges of '{name}' have sizes; say what they take by family.ccr, e.g. 1, or "
                "family.bandwidth, e.g. 1 GB/s"
            )
        graph = from_arrays(
            name, shape.tasks, shape.source, shape.target, data * scale, shape.names
        )
        place = {task: row for row, task in enumerate(shape.names or ())}
        order = [place[label] if shape.names else int(label[1:]) for label in graph.operator_names]
        if dedicated:
            return graph, self._shop(shape), CostTable.of(graph, seconds[order])
        kind = "mixed" if self.heterogeneity == "both" else self.heterogeneity
        cluster = fully_connected(
            f"{self.devices} {kind} devices", self.devices, half_duplex=self.half_duplex
        )
        return graph, cluster, CostTable.of(graph, seconds[order])

    def _dedicated(self, name: str, shape: Shape, work: np.ndarray) -> np.ndarray:
        """float64[tasks, devices]: the work on the device that a task is for, infinite elsewhere."""
        if shape.machines is None:
            raise InvalidInput(
                f"Tasks of '{name}' are for no device of their own; take another family.heterogeneity than "
                "dedicated, or family=staged_jobs"
            )
        if self.devices != len(shape.kinds):
            raise InvalidInput(
                f"Tasks of '{name}' are for {len(shape.kinds)} kinds of devices ({', '.join(shape.kinds)}), one of "
                f"each: family.devices={self.devices} must be {len(shape.kinds)}"
            )
        seconds = np.full((shape.tasks, self.devices), math.inf)
        seconds[np.arange(shape.tasks), shape.machines] = work
        return seconds

    def _shop(self, shape: Shape) -> Cluster:
        slots = MOST_SHARING if self.sharing == "processor" else 1
        return Cluster(
            f"shop ({self.sharing})",
            [MemorySpace("memory")],
            [Device(kind, "memory", slots=slots, sharing=self.sharing) for kind in shape.kinds],
        )

    def _seconds(self, work: np.ndarray, seed: int) -> np.ndarray:
        """float64[tasks, devices], not scaled yet."""
        columns = []
        draws = Draws(seed, DEVICES)
        for device in range(self.devices):
            column = work
            if self.heterogeneity != "unrelated":
                column = column / self.speeds[device % len(self.speeds)]
            if self.heterogeneity != "related":
                factor = draws.between(1.0 - self.beta / 2, 1.0 + self.beta / 2, len(work))
                column = column * factor
            columns.append(column)
        return np.stack(columns, axis=1)


def _spread(values: np.ndarray, spread: float, draws: Draws) -> np.ndarray:
    """Each value times a factor from 1 - spread to 1 + spread."""
    return values * draws.between(1.0 - spread, 1.0 + spread, len(values))
