"""Choosing among a thousand devices of a few kinds without looking at each.

Devices that run every operator in the same time, and that data reaches in the same time, differ only by
what they have to do: of each class the one that is free first is looked at, and the devices that hold
some of a task's data by themselves. The choice is that of :func:`simulator.schedulers._pricing.best_device` among
all devices, or all idle ones.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.model.graph import DataflowGraph
from simulator.schedulers._pricing import data_in, parcels_of, prices_edges

LEAST_DEVICES = 32
"""With fewer, looking at each is no slower."""


_SAMPLE = 16
"""Operators whose times tell most devices apart; the others of a pair are compared."""


class _Class:
    """Equal devices with the time from which each is free: a tree of minima over their numbers.

    Attributes:
        members: ascending.
        spaces: of the members; one, or one for each.
        where: the same for all classes that data reaches in the same time.
    """

    def __init__(
        self, members: list[int], spaces: Sequence[int], where: int, free: Sequence[float]
    ) -> None:
        self.members = members
        self.spaces = spaces
        self.where = where
        self.base = 1 << (len(members) - 1).bit_length()
        rest = self.base - len(members)
        self.tree = [0.0] * self.base + [free[d] for d in members] + [math.inf] * rest
        for node in range(self.base - 1, 0, -1):
            self.tree[node] = min(self.tree[2 * node], self.tree[2 * node + 1])

    def set(self, position: int, free: float) -> None:
        """The member at ``position`` is free from then on."""
        tree, node = self.tree, self.base + position
        tree[node] = free
        node >>= 1
        while node:
            left, right = tree[2 * node], tree[2 * node + 1]
            least = left if left < right else right
            if tree[node] == least:
                return
            tree[node] = least
            node >>= 1

    def first(self, floor: float, seconds: float, finish: float) -> int:
        """Position of the first member that ends by ``finish`` if it begins when it is free, not
        before ``floor``; there is one.
        """
        tree, base, node = self.tree, self.base, 1
        while node < base:
            node *= 2
            free = tree[node]
            if (free if free > floor else floor) + seconds > finish:
                node += 1
        return node - base


class _Data:
    """When a task's data could be in a memory space, if it were sent now.

    Whatever is sent takes the same time to all twins but to the one where it lies.
    """

    def __init__(self, equal: EqualDevices, task: int, holders: set[int]) -> None:
        self._equal = equal
        self._context = equal._context
        self._holders = holders
        self._parcels, self._shared = parcels_of(self._context, task, equal._pricing)
        self._to_strangers = self._parcels
        if self._shared:
            sizes: dict[int, float] = {}
            for _, size, home, _ in self._shared:
                sizes[home] = sizes.get(home, 0.0) + size
            self._to_strangers = list(sizes.items())
            if prices_edges(equal._pricing):
                self._to_strangers = [(item.space, item.bytes) for item in self._shared]
        self._ends: dict[int, list[tuple[float, int]]] = {}

    def ready(self, space: int) -> float:
        """When it could be in a space that holds some of it."""
        equal = self._equal
        if self._shared:
            return data_in(self._context, self._parcels, self._shared, space, equal._pricing)
        for end, home in self._sent_to(equal._where_of_space[space]):
            if home != space:
                return end
        return self._context.now

    def ready_at_strangers(self, group: _Class) -> float:
        """When it could be in the spaces of a class that hold none of it; ``inf`` if all do."""
        if group.where < 0:
            space = group.spaces[0]
            if space in self._holders:
                return self.ready(space)
        elif all(space in self._holders for space in group.spaces):
            return math.inf
        ends = self._sent_to(group.where)
        return ends[0][0] if ends else self._context.now

    def _sent_to(self, where: int) -> list[tuple[float, int]]:
        """When what lies in each space would be there, the latest first, and the space."""
        ends = self._ends.get(where)
        if ends is None:
            now, way = self._context.now, self._equal._way
            ends = self._ends[where] = []
            for home, size in self._to_strangers:
                latency, bandwidth = way(home, where)
                ends.append((now + (latency + size / bandwidth), home))
            ends.sort(reverse=True)
        return ends


class EqualDevices:
    """The classes of a cluster's devices, kept up to date by the scheduler that uses them.

    It must be the only one that places, tell of every placement, and let it look at every decision.

    Args:
        context: the run.
        pricing: see :mod:`simulator.schedulers._pricing`.
        idle_only: choose among the idle devices.
    """

    def __init__(self, context: SchedulingContext, pricing: str, idle_only: bool = False) -> None:
        self._context = context
        self._pricing = pricing
        self._idle_only = idle_only
        devices = len(context.cluster.devices)
        self._free = [0.0] * devices
        self._changed: set[int] = set()
        self._classes: dict[DataflowGraph, list[_Class]] = {}
        self._partitions: dict[tuple[int, ...], list[_Class]] = {}
        self._places: list[list[tuple[_Class, int]]] = [[] for _ in range(devices)]
        inhabitants: defaultdict[int, list[int]] = defaultdict(list)
        for device, space in enumerate(context.cluster.space_of):
            inhabitants[space].append(device)
        self._alone = {space: found[0] for space, found in inhabitants.items() if len(found) == 1}
        twins = context.cluster.twins
        self._where_of_space = [
            -1 - space if len(inhabitants[space]) > 1 else twins[space]
            for space in range(len(twins))
        ]
        self._where = [self._where_of_space[space] for space in context.cluster.space_of]
        self._spaces_at: defaultdict[int, list[int]] = defaultdict(list)
        for space, where in enumerate(self._where_of_space):
            self._spaces_at[where].append(space)
        self._ways: dict[tuple[int, int], tuple[float, float]] = {}

    @classmethod
    def of(
        cls, context: SchedulingContext, pricing: str, idle_only: bool = False
    ) -> EqualDevices | None:
        """None where looking at every device is right: they are few, or nearly all differ, or the
        context's forecasts may change without a finish.
        """
        devices = context.cluster.devices
        if len(devices) < LEAST_DEVICES or not context.forecasts_hold:
            return None
        kinds = Counter(
            (d.profile, context.cluster.twins[s])
            for d, s in zip(devices, context.cluster.space_of, strict=True)
        )
        if len(kinds) > len(devices) // 2:
            return None
        return cls(context, pricing, idle_only)

    def look(self) -> None:
        """Take in what this instant brought; to be called first in every decision."""
        context = self._context
        for task in context.finished:
            self._changed.add(context.device_of(task))

    def placed(self, device: int) -> None:
        """A task was placed there."""
        self._changed.add(device)

    def best(self, task: int) -> int:
        """The device on which a ready task would finish first (ties: the smaller one); -1 if no
        device that can run it is to be chosen among.
        """
        context = self._context
        classes = self._classes_of(task)
        self._update()
        now, seconds = context.now, context.seconds(task)
        holders = self._holders(task)
        data = _Data(self, task, holders)
        best, chosen = math.inf, -1
        for space in holders:
            device = self._alone.get(space, -1)
            if device < 0 or seconds[device] == math.inf:
                continue
            begin, ready = self._free_from(device), data.ready(space)
            finish = (ready if ready > begin else begin) + seconds[device]
            if finish < best or (finish == best < math.inf and device < chosen):
                best, chosen = finish, device
        while True:
            least, equals = best, []
            for group in classes:
                duration = seconds[group.members[0]]
                begin = group.tree[1]
                if begin < now:
                    begin = now
                if begin + duration > least or begin + duration == math.inf:
                    continue
                ready = data.ready_at_strangers(group)
                finish = (ready if ready > begin else begin) + duration
                if finish < least:
                    least, equals = finish, [(group, ready, duration)]
                elif finish == least:
                    equals.append((group, ready, duration))
            late = False
            first = chosen if best == least else len(self._free)
            for group, ready, duration in equals:
                device = group.members[group.first(ready, duration, least)]
                if device < first:
                    # One that runs longer than believed is free later than it was to be.
                    free = self._free_from(device)
                    if free > now and free > self._free[device]:
                        self._set(device, free)
                        late = True
                    first = device
            if not late:
                return first if least < math.inf else chosen

    def _way(self, home: int, where: int) -> tuple[float, float]:
        """Latency and bandwidth from a space to the others that are ``where``; within one, none."""
        others = self._spaces_at[where]
        if others == [home]:
            return 0.0, math.inf
        cluster = self._context.cluster
        key = (cluster.twins[home], where)
        way = self._ways.get(key)
        if way is None:
            route = cluster.route(home, next(space for space in others if space != home))
            way = self._ways[key] = (route.latency, route.bandwidth)
        return way

    def exhausted(self) -> bool:
        """Whether there is no device to choose among, whatever the task."""
        self._update()
        groups = next(iter(self._partitions.values()), None)
        return groups is not None and all(group.tree[1] == math.inf for group in groups)

    def _update(self) -> None:
        for device in self._changed:
            self._set(device, self._free_from(device))
        self._changed.clear()

    def _free_from(self, device: int) -> float:
        context = self._context
        if self._idle_only and not context.is_idle(device):
            return math.inf
        return context.available(device)

    def _set(self, device: int, free: float) -> None:
        self._free[device] = free
        for group, position in self._places[device]:
            group.set(position, free)

    def _holders(self, task: int) -> set[int]:
        """Memory spaces where some of a task's data lies, or is on its way to."""
        context = self._context
        job = context.task_job[task]
        index = context.job_index[job]
        first_task, first_tensor = context.first_task[job], context.first_tensor[job]
        space_of, device_of = context.cluster.space_of, context.task_device
        found = set()
        for tensor in index.reads[task - first_task]:
            home = context.tensor_home[first_tensor + tensor]
            if home == EVERYWHERE:
                continue
            found.add(home)
            if index.shared[tensor]:
                for reader in index.consumers[tensor]:
                    device = device_of[first_task + reader]
                    if device >= 0:
                        found.add(space_of[device])
                if tensor in index.outputs:
                    found.add(context.destination[job])
        return found

    def _classes_of(self, task: int) -> list[_Class]:
        context = self._context
        job = context.job_of(task)
        graph = context.jobs[job].graph
        found = self._classes.get(graph)
        if found is None:
            kinds = self._kinds(context.cost_matrix(job))
            found = self._partitions.get(kinds)
            if found is None:
                found = self._partitions[kinds] = self._make(kinds)
            self._classes[graph] = found
        return found

    def _kinds(self, seconds: np.ndarray) -> tuple[int, ...]:
        """For each device the smallest one of its class; seconds [operators, devices]."""
        alike: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
        for device, where in enumerate(self._where):
            alike[where, seconds[:_SAMPLE, device].tobytes()].append(device)
        kinds = [-1] * len(self._where)
        for devices in alike.values():
            while devices:
                same = (seconds[:, devices] == seconds[:, devices[:1]]).all(axis=0)
                for device, equal in zip(devices, same.tolist(), strict=True):
                    if equal:
                        kinds[device] = devices[0]
                devices = [device for device in devices if kinds[device] < 0]
        return tuple(kinds)

    def _make(self, kinds: tuple[int, ...]) -> list[_Class]:
        members: defaultdict[int, list[int]] = defaultdict(list)
        for device, kind in enumerate(kinds):
            members[kind].append(device)
        space_of = self._context.cluster.space_of
        found = []
        for first, devices in members.items():
            spaces = list(dict.fromkeys(space_of[device] for device in devices))
            group = _Class(devices, spaces, self._where[first], self._free)
            for position, device in enumerate(devices):
                self._places[device].append((group, position))
            found.append(group)
        return found
