"""Each device alone with compiled kernels: what a partition of eager operators must be held against."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from cost_models.fusion import fuse
from cost_models.gpu_fusion import fuse_for_gpu
from scenarios.partition.device_profiles import profiles_of
from scenarios.partition.partitioner import Partitioner, Problem, alone
from simulator.model.plan import Plan


class Fused(Partitioner):
    """The best device alone, with the faster of the eager and the fused graph.

    Fused graphs are inductor's on CPUs (:mod:`cost_models.fusion`), and with epilogues on GPUs
    (:mod:`cost_models.gpu_fusion`). They can be priced and simulated, not run on hardware.
    """

    name: ClassVar[str] = "fused"
    makes_graphs: ClassVar[bool] = True

    def plan(self, problem: Problem) -> Plan:
        """See :class:`Partitioner`."""
        profiles = profiles_of(problem.cluster, "Partition 'fused'")
        found = []
        for eager in alone(problem):
            device = int(eager.device[0])
            rules = fuse_for_gpu if profiles[device].is_gpu else fuse
            kernels = {graph: rules(graph) for graph in problem.graphs}
            jobs = [dataclasses.replace(job, graph=kernels[job.graph]) for job in problem.jobs]
            fused = Plan.single(f"{eager.origin}, fused", jobs, problem.cluster, device)
            found += [(problem.makespan(plan), plan) for plan in (eager, fused)]
        makespan, best = min(found, key=lambda row: row[0])
        notes = {"eager_and_fused_s": {plan.origin: seconds for seconds, plan in found}}
        return dataclasses.replace(best, makespan_s=makespan, notes=notes)
