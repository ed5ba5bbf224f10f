"""What executing operators needs beside the operators, and a cluster on which it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.weight_hit_curve import ReuseCurve

PASSED = 2
"""Times that another worker takes the interpreter for which one waits and is being woken. Saved runs on two processors
are predicted about as well with 1, 2, 4 or any number (docs/validation/findings.md); with any number a worker could
wait for ever, which CPython does not let happen."""

Corun = float | Mapping[str, float] | None
"""The fraction by which busy devices slow each other, of all memory spaces or of each by name; None: what the cluster
says."""

INTERPRETER = "interpreter"
"""Name of the launcher that all of the runner's threads have one at a time."""

LEAST_COMPLETION = 1e-9
"""Seconds: none at all would be a device that is not submitted to ahead."""


@dataclass(frozen=True)
class Overhead:
    """What the runner itself needs under a scheduler (:mod:`experiments.probes.runner_overhead`).

    Attributes:
        operator: seconds between an operator's end and the next one's start on the same worker.
        copy: seconds that a transfer takes beyond what its link's figures say, the mean: waking the thread that copies, its
            waiting for the interpreter, and telling who asked.
        copy_launch: seconds of the interpreter of these, that it needs before a transfer goes and again when it has come,
            for which it waits besides; None: that is not known apart.
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
    copy_launch: float | None = None

    def to_json(self) -> dict[str, float]:
        """Seconds by the names that saved runs give them; :meth:`of_json` reads it."""
        found = {"dispatch_s": self.operator, "copying_s": self.copy}
        if self.copy_launch is not None:
            found["copy_launch_s"] = self.copy_launch
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
            document.get("copy_launch_s"),
        )

    def over(self, link: Link, handover: float | None = None) -> Link:
        """The link with what the runner needs on it; with ``handover`` its transfers wait for the interpreter, if it is
        known how long they need it.
        """
        if handover is None or self.copy_launch is None:
            return replace(link, latency=link.latency + self.copy)
        return replace(
            link,
            launcher=INTERPRETER,
            launch_overhead=self.copy_launch,
            launch_handover=handover,
            launch_passed=PASSED,
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
    corun: Corun = None,
    caches: Mapping[str, ReuseCurve] | None = None,
    cooling: Sequence[CoolingCurve | None] = (),
    reading: Sequence[ReadingCurve | None] = (),
) -> Cluster:
    """The cluster with what the runner needs added to every device's launch overhead and every link's, and with the
    completion latency that was found.

    With ``handover`` one interpreter launches on all of them, see :mod:`simulator.devices.host_launch_lock`, but for what was
    launched on a stream before it begins, and copies. ``corun``
    replaces the fraction by which busy devices slow each other, unless the cluster has them share a bandwidth;
    ``caches`` what the cache of a memory space keeps of weights. ``cooling`` says of each device how many times the
    overhead a launch takes behind an operator of so many seconds (:mod:`simulator.model.launch_cold_start`), ``reading`` what inputs
    cost that are not at hand (:mod:`simulator.devices.input_reuse_cost`). Runs of releases that
    did not measure it were predicted with an interpreter for which nobody is passed over, and stay so.
    """
    devices = [overhead.on(device) for device in cluster.devices]
    if handover is not None:
        devices = [
            replace(
                device,
                launcher=INTERPRETER,
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
    links = [overhead.over(link, handover) for link in cluster.links]
    spaces = cluster.spaces
    if corun is not None:
        spaces = [
            replace(space, corun_slowdown=_fraction(corun, space))
            if space.bandwidth is None
            else space
            for space in spaces
        ]
    if caches:
        spaces = [replace(space, cache=caches.get(space.name, space.cache)) for space in spaces]
    return replace(cluster, devices=devices, spaces=spaces, links=links)


def _fraction(corun: float | Mapping[str, float], space: MemorySpace) -> float:
    return corun.get(space.name, space.corun_slowdown) if isinstance(corun, Mapping) else corun


def corun_text(corun: Corun) -> str:
    """As reports have it: ``+3.1%``, of several memory spaces ``+3.1/+0.4%``; nothing where nothing was found."""
    if corun is None:
        return ""
    found = corun.values() if isinstance(corun, Mapping) else [corun]
    return "/".join(f"{fraction * 100:+.1f}" for fraction in found) + "%"
