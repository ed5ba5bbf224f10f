"""Re-derives every start and finish of a small run from its recorded decisions.

Written from the rules alone (docs/semantics.md), as plainly as possible and with none of the engine's
code: it walks from moment to moment and looks at everything each time. It reads graphs and clusters
through their public descriptions only. Slow on purpose; for graphs of tens of tasks.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from simulator.model.cluster import Cluster
from simulator.model.workload import Workload
from tests.simulator.scripted import Decision

Key = tuple[int, int]  # (job, operator) or (job, tensor)


@dataclass
class Replay:
    """What must have happened.

    Attributes:
        executions: (job, operator) -> (device, ready, placed, start, finish).
        transfers: (job, tensor, destination, channel) -> (source, requested, start, finish, bytes).
        jobs: finish of each job.
        order: tasks in order of finish.
    """

    executions: dict[Key, tuple[int, float, float, float, float]] = field(default_factory=dict)
    transfers: dict[tuple[int, int, int, int], tuple[int, float, float, float, float]] = field(
        default_factory=dict
    )
    jobs: list[float] = field(default_factory=list)
    order: list[Key] = field(default_factory=list)


class _Shop:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        actual: list[np.ndarray],
        decisions: list[Decision],
        movement: str,
        contention: str,
    ) -> None:
        self.cluster = cluster
        self.workload = workload
        self.actual = actual
        self.decisions = list(decisions)
        self.movement = movement
        self.fifo = contention == "fifo"
        self.result = Replay()
        names = [space.name for space in cluster.spaces]
        self.space = [names.index(device.space) for device in cluster.devices]
        self.space_names = names
        self.docs = [job.graph.to_json() for job in workload]
        self.tasks = [
            (j, o) for j, doc in enumerate(self.docs) for o in range(len(doc["operators"]))
        ]
        self.tensors = [
            (j, t) for j, doc in enumerate(self.docs) for t in range(len(doc["tensors"]))
        ]
        self.messages: list[tuple[list[Key], int]] = []  # asked for at this moment: what, where to
        self.tensor_names = [[t["name"] for t in doc["tensors"]] for doc in self.docs]
        self.roles = [[t["role"] for t in doc["tensors"]] for doc in self.docs]
        self.sizes = [[t.bytes for t in job.graph.tensors] for job in workload]
        self.writer: dict[Key, int] = {}
        self.reads: dict[Key, list[int]] = {}
        for j, doc in enumerate(self.docs):
            number = {name: i for i, name in enumerate(self.tensor_names[j])}
            for o, row in enumerate(doc["operators"]):
                self.reads[j, o] = [number[n] for n in row["reads"]]
                for n in row["writes"]:
                    self.writer[j, number[n]] = o
        self.wanted = [
            {
                self.tensor_names[j].index(r["tensor"])
                for r in doc.get("results", [])
                if "tensor" in r
            }
            for j, doc in enumerate(self.docs)
        ]
        # What becomes of weights: (job, tensor) -> the operators that read the weight.
        self.heirs: dict[Key, list[Key]] = {}
        for j, names in enumerate(self.tensor_names):
            for t, name in enumerate(names):
                weight = name.removesuffix(":updated")
                if weight != name and "weight" in (
                    role for n, role in zip(names, self.roles[j], strict=True) if n == weight
                ):
                    number = names.index(weight)
                    self.heirs[j, t] = [
                        task for task, read in self.reads.items() if task[0] == j and number in read
                    ]
        # State.
        self.arrived: dict[int, float] = {}
        self.placed: dict[Key, tuple[int, float, int, float]] = {}  # device, rank, number, time
        self.running: dict[Key, tuple[int, float, float]] = {}  # device, start, finish
        self.submitted: dict[Key, int] = {}  # number in the device's order of submission
        self.ended: dict[Key, float] = {}  # on the device, not known to the host
        self.finished: dict[Key, float] = {}  # known to the host since
        self.crossing: dict[tuple[int, int, int], float] = {}  # (job, tensor, space) -> arrival
        self.channel_free: dict[int, float] = {}
        self.placements = 0
        self.submissions = 0
        self.issued: dict[Key, float] = {}  # since when the device can begin with it
        self.issuer_free: dict[int, float] = {}  # by device
        self.wakes: set[float] = set()
        self.moments: set[float] = {job.arrival for job in workload}

    # -- facts ----------------------------------------------------------------------------------

    def parents(self, task: Key) -> list[Key]:
        j, _ = task
        return [(j, self.writer[j, t]) for t in self.reads[task] if (j, t) in self.writer]

    def ready_time(self, task: Key) -> float:
        """When all predecessors had finished; inf before that."""
        if task[0] not in self.arrived:
            return math.inf
        times = [self.finished.get(parent, math.inf) for parent in self.parents(task)]
        return max(times, default=self.arrived[task[0]])

    def home(self, job: int, tensor: int) -> tuple[int, float] | None:
        """Where a tensor lies and since when; space -1 is everywhere; None: not there yet."""
        if self.roles[job][tensor] == "weight":
            return (-1, -math.inf)
        if self.roles[job][tensor] == "input":
            origin = self.workload.jobs[job].origin
            where = -1 if origin is None else self.space_names.index(origin)
            return (where, self.arrived[job])
        writer = (job, self.writer[job, tensor])
        if writer not in self.finished:
            return None
        device = self.result.executions[writer][0]
        return (self.space[device], self.finished[writer])

    def route(self, a: int, b: int) -> tuple[list[int], float, float]:
        """(channels, bandwidth, latency): fewest links, then the widest, by trying all of them."""
        channel = 0
        hops: dict[tuple[int, int], tuple[int, float, float]] = {}
        for link in self.cluster.links:
            x, y = (self.space_names.index(end) for end in link.ends)
            forth, back = (channel, channel) if link.half_duplex else (channel, channel + 1)
            channel = back + 1
            for pair, number in (((x, y), forth), ((y, x), back)):
                if pair not in hops or hops[pair][1] < link.bandwidth:
                    hops[pair] = (number, link.bandwidth, link.latency)
        inner = [s for s in range(len(self.space_names)) if s not in (a, b)]
        for count in range(len(inner) + 1):
            paths = [
                [hops[pair] for pair in itertools.pairwise((a, *middle, b))]
                for middle in itertools.permutations(inner, count)
                if all(pair in hops for pair in itertools.pairwise((a, *middle, b)))
            ]
            if paths:
                path = max(paths, key=lambda p: min(hop[1] for hop in p))
                bandwidth = min(hop[1] for hop in path)
                return [hop[0] for hop in path], bandwidth, sum(hop[2] for hop in path)
        raise AssertionError("not connected")

    # -- one moment -----------------------------------------------------------------------------

    def finish_tasks(self, now: float) -> bool:
        for task in [task for task, (_, _, finish) in self.running.items() if finish == now]:
            device, start, finish = self.running.pop(task)
            latency = self.cluster.devices[device].completion_latency
            self.ended[task] = finish + latency
            self.moments.add(finish + latency)
            self.result.executions[task] = (device, 0.0, 0.0, start, finish)
        due = sorted(task for task, known in self.ended.items() if known == now)
        for task in due:
            del self.ended[task]
            self.submitted.pop(task, None)
            device, _, _, start, finish = self.result.executions[task]
            _, _, _, placed = self.placed.pop(task)
            self.finished[task] = now
            ready = min(self.ready_time(task), start)
            self.result.executions[task] = (device, ready, placed, start, finish)
            self.result.order.append(task)
        return bool(due)

    def arrive(self, now: float) -> bool:
        new = [
            j for j, job in enumerate(self.workload) if j not in self.arrived and job.arrival == now
        ]
        self.arrived.update(dict.fromkeys(new, now))
        return bool(new)

    def obey(self, decision: Decision) -> None:
        for verb, row in decision.verbs:
            if verb == "wake_at":
                self.wakes.add(float(row[0]))  # type: ignore[arg-type]
                self.moments.add(float(row[0]))  # type: ignore[arg-type]
                continue
            if verb == "pack":
                pairs = [(self.tensors[t], space) for t, space in row[0]]  # type: ignore[attr-defined]
                (space,) = {space for _, space in pairs}
                self.messages.append((sorted(tensor for tensor, _ in pairs), space))
                continue
            task = self.tasks[int(row[0])]  # type: ignore[call-overload]
            if verb == "withdraw":
                assert task not in self.running, f"{task} was withdrawn while it ran"
                assert task not in self.submitted, f"{task} was withdrawn after its submission"
                assert task not in self.finished
                del self.placed[task]
                continue
            rank = row[2] if len(row) > 2 and row[2] is not None else decision.time
            assert task not in self.placed
            self.placements += 1
            self.placed[task] = (int(row[1]), float(rank), self.placements, decision.time)  # type: ignore[call-overload,arg-type]

    def request(self, now: float) -> None:
        """Messages, and every transfer that the rules ask for and nobody has asked for yet, by tensor
        and space.
        """
        asked: set[tuple[int, int, int]] = set()
        for task, (device, _, _, _) in self.placed.items():
            if self.movement == "pull" and self.ready_time(task) == math.inf:
                continue
            asked |= {(task[0], t, self.space[device]) for t in self.reads[task]}
        for j in self.arrived:
            destination = self.workload.jobs[j].destination
            if destination is not None:
                space = self.space_names.index(destination)
                asked |= {(j, t, space) for t in self.wanted[j] if (j, t) in self.writer}
        for (j, t), heirs in self.heirs.items():
            for task in heirs:
                if task in self.placed or task in self.result.executions:
                    device = (self.placed.get(task) or self.result.executions[task])[0]
                    asked.add((j, t, self.space[device]))
        together = {(j, t, space) for message, space in self.messages for j, t in message}
        parcels = [
            *self.messages,
            *(([(j, t)], space) for j, t, space in asked if (j, t, space) not in together),
        ]
        self.messages = []
        for tensors, space in sorted(parcels, key=lambda p: (p[0][0], p[1])):
            wanted = [(*key, space) not in self.crossing for key in tensors]
            homes = [self.home(j, t) for j, t in tensors]
            if len(tensors) == 1 and (not wanted[0] or homes[0] is None):
                continue
            (source,) = {home[0] for home in homes if home is not None}
            if len(tensors) == 1 and source in (-1, space):
                continue
            # Of a message all must be there to be sent, and nowhere near where they go.
            assert all(wanted)
            assert None not in homes
            assert source not in (-1, space)
            channels, bandwidth, latency = self.route(source, space)
            start = now
            if self.fifo:
                start = max([now, *(self.channel_free.get(c, 0.0) for c in channels)])
            end = start + (latency + math.fsum(self.sizes[j][t] for j, t in tensors) / bandwidth)
            for c in channels:
                self.channel_free[c] = end
            for j, t in tensors:
                for c in channels:
                    row = (source, now, start, end, self.sizes[j][t])
                    self.result.transfers[j, t, space, c] = row
                self.crossing[j, t, space] = end
            self.moments.add(end)

    def start_tasks(self, now: float) -> None:
        for device, description in enumerate(self.cluster.devices):
            if description.completion_latency:
                self.submit(device, now)
                queue = sorted(
                    (t for t in self.submitted if self.placed[t][0] == device),
                    key=lambda t: self.submitted[t],
                )
                queue = [t for t in queue if t not in self.running and t not in self.ended]
            else:
                queue = self.queue(device)
            busy = sum(where == device for where, _, _ in self.running.values())
            for task in queue:
                if busy == description.slots or not self.can_start(task, device, now):
                    break
                seconds = float(self.actual[task[0]][task[1], device])
                finish = now + (description.launch_overhead + seconds)
                self.running[task] = (device, now, finish)
                self.moments.add(finish)
                busy += 1

    def queue(self, device: int) -> list[Key]:
        """What is placed on a device and has neither started nor been submitted, in order."""
        rows = sorted(
            (rank, number, task)
            for task, (where, rank, number, _) in self.placed.items()
            if where == device and not {task} & {*self.running, *self.ended, *self.submitted}
        )
        return [task for _, _, task in rows]

    def submit(self, device: int, now: float) -> None:
        """Submit the first of the queue as far as the issue depth and their predecessors allow."""
        description = self.cluster.devices[device]
        for task in self.queue(device):
            mine = [t for t in self.submitted if self.placed[t][0] == device]
            if len(mine) == description.issue_depth * description.slots:
                break
            open_parents = [p for p in self.parents(task) if p not in self.finished]
            if any(p not in mine for p in open_parents) or not self.data_is_there(
                task, device, now
            ):
                break
            self.submissions += 1
            self.submitted[task] = self.submissions
            free = max(now, self.issuer_free.get(device, 0.0)) + description.issue_overhead
            self.issued[task] = self.issuer_free[device] = free
            self.moments.add(free)

    def can_start(self, task: Key, device: int, now: float) -> bool:
        for parent in self.parents(task):
            if parent not in self.finished and not (
                parent in self.ended and self.placed[parent][0] == device and task in self.submitted
            ):
                return False
        return self.issued.get(task, 0.0) <= now and self.data_is_there(task, device, now)

    def data_is_there(self, task: Key, device: int, now: float) -> bool:
        """Whether what finished tasks wrote for a task is in its device's memory."""
        space = self.space[device]
        for tensor in self.reads[task]:
            found = self.home(task[0], tensor)
            arrival = self.crossing.get((task[0], tensor, space), math.inf)
            if found is not None and found[0] not in (-1, space) and arrival > now:
                return False
        return True

    def run(self) -> Replay:
        while self.moments:
            now = min(self.moments)
            self.moments.discard(now)
            again = True
            while again:
                happened = self.finish_tasks(now)
                happened |= self.arrive(now)
                happened |= now in self.wakes
                self.wakes.discard(now)
                if happened:
                    assert self.decisions, f"nobody was asked at {now} s"
                    decision = self.decisions.pop(0)
                    assert decision.time == now
                    self.obey(decision)
                self.request(now)
                self.start_tasks(now)
                again = now in self.moments
                self.moments.discard(now)
        ends = {task: row[4] for task, row in self.result.executions.items()}
        self.result.order.sort(key=lambda task: ends[task])  # as the devices ended them
        assert not self.decisions, f"asked at {self.decisions[0].time} s though nothing happened"
        self.result.jobs = [
            max(
                [self.finished[task] for task in self.tasks if task[0] == j]
                + [
                    self.crossing[j, t, self.space_names.index(job.destination)]
                    for t in self.wanted[j]
                    if job.destination is not None
                    and (j, t, self.space_names.index(job.destination)) in self.crossing
                    and (j, t) in self.writer
                ]
                + [
                    end
                    for (i, t, _), end in self.crossing.items()
                    if i == j and (i, t) in self.heirs
                ]
            )
            for j, job in enumerate(self.workload)
        ]
        return self.result


def replay(
    workload: Workload,
    cluster: Cluster,
    actual: list[np.ndarray],
    decisions: list[Decision],
    movement: str,
    contention: str,
) -> Replay:
    """Everything that follows from these decisions.

    Args:
        workload: the jobs.
        cluster: where they ran.
        actual: for each job the seconds [operators, devices] that happened.
        decisions: every call of ``decide``, in order.
        movement: ``push`` or ``pull``.
        contention: ``none`` or ``fifo``.
    """
    return _Shop(workload, cluster, actual, decisions, movement, contention).run()
