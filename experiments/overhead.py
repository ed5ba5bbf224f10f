"""What executing operators needs beside the operators, and a cluster on which it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.cluster import Cluster
from simulator.cooling import CoolingCurve
from simulator.reuse_curve import ReuseCurve

PASSED = 2
"""Times that another worker takes the interpreter for which one waits and is being woken. Saved runs on two processors
are predicted about as well with 1, 2, 4 or any number (docs/validation/findings.md); with any number a worker could
wait for ever, which CPython does not let happen."""


@dataclass(frozen=True)
class Overhead:
    """What the runner itself needs under a scheduler (:mod:`experiments.runner_overhead`).

    Attributes:
        operator: seconds between an operator's end and the next one's start on the same worker.
        copy: seconds that a transfer takes beyond what its link's figures say: waking the thread that copies, its
            waiting for the interpreter, and telling who asked.
    """

    operator: float = 0.0
    copy: float = 0.0


def with_overhead(
    cluster: Cluster,
    overhead: Overhead,
    handover: float | None = None,
    corun: float | None = None,
    caches: Mapping[str, ReuseCurve] | None = None,
    cooling: Sequence[CoolingCurve | None] = (),
) -> Cluster:
    """The cluster with what the runner needs added to every device's launch overhead and every link's latency.

    With ``handover`` one interpreter launches on all of them, see :mod:`simulator.launchers`. ``corun``
    replaces the fraction by which busy devices slow each other, unless the cluster has them share a bandwidth;
    ``caches`` what the cache of a memory space keeps of weights. ``cooling`` says of each device how many times the
    overhead a launch takes behind an operator of so many seconds (:mod:`simulator.cooling`). Runs of releases that
    did not measure it were predicted with an interpreter for which nobody is passed over, and stay so.
    """
    devices = [
        replace(device, launch_overhead=device.launch_overhead + overhead.operator)
        for device in cluster.devices
    ]
    if handover is not None:
        devices = [
            replace(
                device,
                launcher="interpreter",
                launch_handover=handover,
                launch_passed=PASSED if cooling else 0,
            )
            for device in devices
        ]
    if cooling:
        devices = [
            replace(device, launch_cooling=curve)
            for device, curve in zip(devices, cooling, strict=True)
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
