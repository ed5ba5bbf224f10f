"""What executing operators needs beside the operators, and a cluster on which it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.cluster import Cluster, Device
from simulator.cooling import CoolingCurve
from simulator.reading_curve import ReadingCurve
from simulator.reuse_curve import ReuseCurve

PASSED = 2
"""Times that another worker takes the interpreter for which one waits and is being woken. Saved runs on two processors
are predicted about as well with 1, 2, 4 or any number (docs/validation/findings.md); with any number a worker could
wait for ever, which CPython does not let happen."""

LEAST_COMPLETION = 1e-9
"""Seconds: none at all would be a device that is not submitted to ahead."""


@dataclass(frozen=True)
class Overhead:
    """What the runner itself needs under a scheduler (:mod:`experiments.probes.runner_overhead`).

    Attributes:
        operator: seconds between an operator's end and the next one's start on the same worker.
        copy: seconds that a transfer takes beyond what its link's figures say: waking the thread that copies, its
            waiting for the interpreter, and telling who asked.
        ahead: as ``operator``, on a device that operators are submitted to ahead, where the next one was there.
        completion: seconds from an operator's end on such a device until the host has acted on it; None: what the
            cluster says.
        issue: seconds that it takes the host to launch an operator on a device whose streams go on meanwhile; None:
            what the cluster says.
    """

    operator: float = 0.0
    copy: float = 0.0
    ahead: float = 0.0
    completion: float | None = None
    issue: float | None = None

    def to_json(self) -> dict[str, float]:
        """Seconds by the names that saved runs give them; :meth:`of_json` reads it."""
        found = {"dispatch_s": self.operator, "copying_s": self.copy}
        if self.completion is None:
            return found
        found |= {"ahead_s": self.ahead, "completion_s": self.completion}
        return found if self.issue is None else {**found, "issue_s": self.issue}

    @staticmethod
    def of_json(document: Mapping[str, Any]) -> Overhead:
        """From what holds it; earlier releases looked at dispatching alone."""
        return Overhead(
            document["dispatch_s"],
            document.get("copying_s", 0.0),
            document.get("ahead_s", 0.0),
            document.get("completion_s"),
            document.get("issue_s"),
        )

    def on(self, device: Device) -> Device:
        """The device with what the runner needs on it."""
        if not device.completion_latency:
            return replace(device, launch_overhead=device.launch_overhead + self.operator)
        latency = device.completion_latency if self.completion is None else self.completion
        return replace(
            device,
            launch_overhead=device.launch_overhead + self.ahead,
            completion_latency=max(latency, LEAST_COMPLETION),
            issue_overhead=device.issue_overhead if self.issue is None else self.issue,
        )


def with_overhead(
    cluster: Cluster,
    overhead: Overhead,
    handover: float | None = None,
    corun: float | None = None,
    caches: Mapping[str, ReuseCurve] | None = None,
    cooling: Sequence[CoolingCurve | None] = (),
    reading: Sequence[ReadingCurve | None] = (),
) -> Cluster:
    """The cluster with what the runner needs added to every device's launch overhead and every link's latency, and with
    the completion latency that was found.

    With ``handover`` one interpreter launches on all of them, see :mod:`simulator.launchers`, but for what was
    launched on a stream before it begins. ``corun``
    replaces the fraction by which busy devices slow each other, unless the cluster has them share a bandwidth;
    ``caches`` what the cache of a memory space keeps of weights. ``cooling`` says of each device how many times the
    overhead a launch takes behind an operator of so many seconds (:mod:`simulator.cooling`), ``reading`` what inputs
    cost that are not at hand (:mod:`simulator.far_inputs`). Runs of releases that
    did not measure it were predicted with an interpreter for which nobody is passed over, and stay so.
    """
    devices = [overhead.on(device) for device in cluster.devices]
    if handover is not None:
        devices = [
            replace(
                device,
                launcher="interpreter",
                launch_handover=handover,
                launch_passed=PASSED if cooling else 0,
            )
            if not device.issue_overhead
            else device
            for device in devices
        ]
    if cooling:
        devices = [
            replace(device, launch_cooling=curve)
            for device, curve in zip(devices, cooling, strict=True)
        ]
    if reading:
        devices = [
            replace(device, far_inputs=curve)
            for device, curve in zip(devices, reading, strict=True)
        ]
    links = [replace(link, latency=link.latency + overhead.copy) for link in cluster.links]
    spaces = cluster.spaces
    if corun is not None:
        spaces = [
            replace(space, corun_slowdown=corun) if space.bandwidth is None else space
            for space in spaces
        ]
    if caches:
        spaces = [replace(space, cache=caches.get(space.name, space.cache)) for space in spaces]
    return replace(cluster, devices=devices, spaces=spaces, links=links)
