"""Extra read cost of inputs by their reuse distance (:mod:`simulator.devices.input_reuse_cost`), on each core of this machine.

Operators are measured where what they read was just written on their core. Where jobs take turns it was not. So the
probed model (:mod:`experiments.probes.probed_model`) is executed on a device alone, and as four jobs that take turns
operator by operator, nothing else running: what an operator takes longer there, by how much farther its inputs are, is
the curve. What an input costs that another device wrote is found on one job whose operators take turns between two.
What an operator takes longer for the turns themselves (the worker's code, a core that rested), and less for weights
that the job before has just used, is fitted beside it and not part of it.

On virtual machines the second changes within seconds, by whether the host has the two processors on cores that share a
cache: on an AMD EPYC of family 26 it was 0 to 5 us a megabyte in some runs and 50 to 90 in others. So it is looked for
among the runs that a prediction is held against, each time anew, and the mean is taken of all of them: a model's own
visits say too little of what it will be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.probes.probed_model import PROBED, ProbedModel
from scenarios.model_config import graph_of
from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.devices.input_reuse_cost import InputDistances
from simulator.model.graph import DataflowGraph
from simulator.model.input_reuse_curve import ReadingCurve

if TYPE_CHECKING:
    from calibration.runner import Machine

DISTANCES = tuple(2.0**k for k in range(18, 27))
"""Bytes, the points of the curve: 256 KiB to 64 MiB. What is nearer is at hand."""
JOBS = 4
"""That take turns on a device."""
ALONE, TURNS, ELSEWHERE = 0, slice(1, 1 + JOBS), 1 + JOBS
"""Rows of a run: of a job alone, of each of those that take turns, and of one that two devices take turns with."""


class Turns(Scheduler):
    """Jobs that take turns operator by operator, and devices that do.

    Args:
        devices: the operators of every job in turn.
    """

    name = "turns"

    def __init__(self, devices: Sequence[int]) -> None:
        self._devices = tuple(devices)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for job in context.arrived:
            for task in context.tasks_of(job):
                operator = context.operator_of(task)
                device = self._devices[operator % len(self._devices)]
                context.place(task, device, rank=operator * len(context.jobs) + job)


class InputProbes:
    """Runs of the probed model on a machine, as often as they are asked for.

    Args:
        machine: any; where not all its devices are cores of one memory, nothing is run.
        model: on it.
    """

    def __init__(self, machine: Machine, model: ProbedModel) -> None:
        cluster = machine.cluster
        self._model = model
        self._devices = len(cluster.devices)
        self._wanted = (
            len({device.space for device in cluster.devices}) == 1
            and all(spec.device == "cpu" for spec in machine.specs)
            and all(device.slots == 1 for device in cluster.devices)
        )
        self.clear()

    def clear(self) -> None:
        """Forget the runs so far."""
        self._runs: list[np.ndarray] = []

    def run(self) -> None:
        """Once on each device alone, in turns on each, and in turns between each and the next."""
        if not self._wanted:
            return
        found = np.full((2 + JOBS, self._devices, len(self._model.graph)), np.nan)
        for device in range(self._devices):
            # What ran before has left the core's caches full of something else: the second time counts.
            for _ in range(2):
                found[ALONE, device] = self._seconds(1, [device], device)[0]
            found[TURNS, device] = self._seconds(JOBS, [device], device)
            other = (device + 1) % self._devices
            if other != device:
                first = self._seconds(1, [device, other], device)[0]
                second = self._seconds(1, [other, device], device)[0]
                found[ELSEWHERE, device] = np.where(np.isnan(first), second, first)
        self._runs.append(found)

    def seconds(self) -> np.ndarray:
        """float64[runs, rows, devices, operators] seconds; NaN where there is one device and no other."""
        shape = (0, 2 + JOBS, self._devices, len(self._model.graph))
        return np.array(self._runs).reshape((-1, *shape[1:]))

    def _seconds(self, jobs: int, devices: Sequence[int], device: int) -> np.ndarray:
        """float64[jobs, operators] that executions on a device took; NaN for others."""
        rows = self._model.trace([0.0] * jobs, Turns(devices)).executions
        found = np.full((jobs, len(self._model.graph)), np.nan)
        mine = rows["device"] == device
        took = rows["finish"][mine] - rows["start"][mine]
        found[rows["job"][mine], rows["operator"][mine]] = took
        return found


def reading_curves(seconds: np.ndarray) -> tuple[ReadingCurve, ...]:
    """The curve of each device; nothing without runs.

    Args:
        seconds: of :meth:`InputProbes.seconds`.
    """
    if not len(seconds):
        return ()
    graph = graph_of(PROBED)
    return tuple(fitted(graph, seconds[:, :, device]) for device in range(seconds.shape[2]))


def fitted(graph: DataflowGraph, seconds: np.ndarray) -> ReadingCurve:
    """A device's curve.

    The curve's costs are least squares of the medians over the runs that are not negative and do not descend; what an
    input costs elsewhere is the mean of the runs' least squares. An operator weighs as if its variance were in
    proportion to its seconds.

    Args:
        graph: of all jobs.
        seconds: float64[runs, rows, operators].
    """
    from scipy.optimize import lsq_linear

    usual = np.median(seconds[:, ALONE], axis=0)
    sure = 1.0 / np.sqrt(usual)
    longer = (np.median(seconds[:, TURNS], axis=0) - usual) * sure  # [jobs, operators]
    bytes_at = _far_bytes(graph, [0], JOBS)[0]  # [jobs, operators, points]
    # Of each point the increase over the one before it; at the first inputs are at hand.
    rises = np.tril(np.ones((len(DISTANCES), len(DISTANCES))))[:, 1:]
    weights = set(graph.weights)
    sizes = graph.tensor_bytes
    loaded = np.array([sum(sizes[t] for t in reads if t in weights) for reads in graph.reads])
    beside = np.stack([np.ones(len(graph)), loaded / 1e6], axis=1)
    columns = [bytes_at @ rises / 1e6, np.broadcast_to(beside, (JOBS, *beside.shape))]
    design = np.concatenate(columns, axis=2) * sure[:, np.newaxis]
    low = np.concatenate([np.zeros(rises.shape[1]), np.full(2, -np.inf)])
    # In microseconds: all columns are of one size.
    solution = lsq_linear(
        design.reshape(-1, design.shape[2]), longer.reshape(-1) * 1e6, bounds=(low, np.inf)
    ).x
    costs = np.cumsum([0.0, *np.maximum(solution[: rises.shape[1]], 0.0)]) * 1e-12
    return ReadingCurve(DISTANCES, tuple(costs.tolist()), _elsewhere(graph, seconds, sure))


def _elsewhere(graph: DataflowGraph, seconds: np.ndarray, sure: np.ndarray) -> float:
    """Seconds for each byte that another device wrote, the mean of the runs."""
    longer = seconds[:, ELSEWHERE] - seconds[:, ALONE]
    if np.isnan(longer).all():
        return 0.0
    elsewhere = _far_bytes(graph, [0, 1], 1)[1][0]
    design = np.stack([elsewhere / 1e6, np.ones(len(graph))], axis=1) * sure[:, np.newaxis]
    found = np.linalg.lstsq(design, (longer * sure).T * 1e6, rcond=None)[0][0]
    return max(0.0, float(found.mean())) * 1e-12


def _far_bytes(
    graph: DataflowGraph, devices: Sequence[int], jobs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of jobs that take turns on devices that do: float64[jobs, operators, points] bytes of inputs by the points of the
    curve, less those of a job alone, and float64[jobs, operators] bytes that another device wrote.
    """
    distances = InputDistances([0] * len(devices))
    far = np.zeros((jobs, len(graph), len(DISTANCES)))
    elsewhere = np.zeros((jobs, len(graph)))
    for operator in range(len(graph)):
        for job in range(jobs):
            for one in distances.inputs(graph, job, operator, devices[operator % len(devices)]):
                far[job, operator] += one.size * (_shares(one.distance) - _shares(one.alone))
                elsewhere[job, operator] += one.size * one.elsewhere
    return far, elsewhere


def _shares(distance: float) -> np.ndarray:
    """float64[points]: of each point in the value that the curve has there."""
    at = np.log(np.clip(distance, DISTANCES[0], DISTANCES[-1]))
    return np.array([np.interp(at, _POINTS, row) for row in np.eye(len(DISTANCES))])


_POINTS = np.log(DISTANCES)
