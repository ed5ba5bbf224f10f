"""The direct way with its data compiled: what lies where, what links carry, and prices of devices.

A run of a hundred thousand tasks pays for loading numba several times over; one of a traced model does
not. The trace is that of :class:`simulator.direct.DirectSimulation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from simulator import kernels
from simulator.arrays import ArrayedSimulation
from simulator.direct import DirectSimulation, in_turn, rows_of_moves
from simulator.graph import DataflowGraph
from simulator.pricing import PRICINGS
from simulator.trace import Table


class _Arrivals:
    """When every copy is there, read as a dictionary of those that were asked for."""

    def __init__(self, header: Any, arrival: Any) -> None:
        self._header = header
        self._arrival = arrival

    def __len__(self) -> int:
        moves: int = self._header[kernels.MOVES]
        return moves

    def __contains__(self, copy: int) -> bool:
        asked: bool = self._arrival[copy] != 0.0
        return asked

    def __getitem__(self, copy: int) -> float:
        arrival: float = self._arrival[copy]
        return 0.0 if arrival == kernels.AT_ZERO else arrival

    def get(self, copy: int) -> float | None:
        """None if nobody asked for it."""
        arrival = self[copy]
        return arrival if arrival or copy in self else None


class CompiledSimulation(ArrayedSimulation, DirectSimulation):
    """See the module docstring. For routes of one channel, or links without contention."""

    _names: ClassVar[Any] = kernels

    def _prepare(self) -> None:
        super()._prepare()
        self._best_device = self._make_best_device()

    def _parts(self, jobs: int, tasks: int, tensors: int) -> dict[int, int]:
        spaces, devices = len(self.cluster.spaces), len(self.cluster.devices)
        return {
            **super()._parts(jobs, tasks, tensors),
            kernels.CHANNEL: spaces * spaces,
            kernels.ARRIVAL: tensors * spaces,
            kernels.FREE: len(self.cluster.channels),
            kernels.AVAILABLE: devices,
            kernels.START: self._room,
            kernels.PARCELS: spaces,
        }

    def _arrays_of(self, graph: DataflowGraph) -> list[tuple[bool, int, np.ndarray]]:
        believed = self._believed[graph].seconds
        if self._overhead.any():
            believed = self._overhead + believed
        return [*super()._arrays_of(graph), (False, kernels.SECONDS, believed.ravel())]

    def _lay_out(self) -> None:
        super()._lay_out()
        spaces, devices = len(self.cluster.spaces), len(self.cluster.devices)
        self._whole[kernels.DEVICES] = devices
        self._whole[kernels.ROOM] = self._room
        self._whole[kernels.QUEUED] = self.contention == "fifo"
        self._array(kernels.CHANNEL, spaces * spaces)[:] = -1
        self._channels = self._view(kernels.CHANNEL, spaces * spaces)
        self._channel_free = self._view(kernels.FREE, len(self.cluster.channels))
        self._available = self._view(kernels.AVAILABLE, devices)
        copies = sum(len(job.graph.tensors) for job in self._workload) * spaces
        self._arrival = self._view(kernels.ARRIVAL, copies)
        self._flushed: list[list[np.ndarray]] = []  # moves that were taken out to make room

    def _make_arrivals(self) -> Any:
        return _Arrivals(self._header, self._arrival)

    # -- what happens to every task -------------------------------------------------------------

    def _make_complete(self) -> Callable[[Any, Any, int, int, float], int]:
        complete: Callable[[Any, Any, int, int, float], int] = kernels.complete
        return complete

    def _make_fetch(self) -> Callable[[Any, Any, int, int, float], float]:
        fetch: Callable[[Any, Any, int, int, float], float] = kernels.fetch
        return fetch

    def _mend(self, task: int, refusal: float) -> None:
        if refusal == kernels.FULL:
            self._make_room()
        else:
            self._lay_routes(task)

    def _make_best_device(self) -> Callable[[int, str], int]:
        run, whole, real = kernels.best_device, self._whole, self._real
        load, stale, known = self._load, self._stale, self._available
        devices, exact = range(len(load)), self._exact

        def best_device(task: int, pricing: str) -> int:
            if not (exact and self._tracking) or True in stale:
                for d in devices:
                    if not load[d]:
                        if stale[d] or not exact:
                            known[d] = 0.0
                    elif stale[d] or not exact:
                        self.available(d)
            price = _PRICES[pricing]
            device: int = run(whole, real, task, self.now, price)
            while device == kernels.UNKNOWN_ROUTE:
                self._lay_routes(task)
                device = run(whole, real, task, self.now, price)
            return device

        return best_device

    def _lay_routes(self, task: int) -> None:
        """Note the routes on which the inputs of a task may come to any device."""
        job = self._job[task]
        first = self._first_tensor[job]
        for tensor in self._job_index[job].reads[task - self._first_task[job]]:
            home = self._home[first + tensor]
            if home >= 0:
                for space in {*self._space_of}:
                    self._note_route(home, space)

    def _note_route(self, source: int, destination: int) -> None:
        wire = source * self._spaces + destination
        if source == destination or self._channels[wire] >= 0:
            return
        channel, latency, bandwidth, _ = self._lay(source, destination)
        self._channels[wire] = channel
        self._latencies[wire] = latency
        self._bandwidths[wire] = bandwidth

    # -- requests of an instant -----------------------------------------------------------------

    def _book(self, copy: int, home: int, space: int, size: float) -> None:
        self._note_route(home, space)
        if self._header[kernels.MOVES] == self._room:
            self._make_room()
        kernels.book(self._whole, self._real, copy, home, space, size, self.now)

    def _make_room(self) -> None:
        """Take the final moves out of the arrays."""
        final, moves = self._header[kernels.FINAL], self._header[kernels.MOVES]
        parts = [self._array(name, self._room) for name in _MOVE]
        self._flushed.append([part[:final].copy() for part in parts])
        for part in parts:
            part[: moves - final] = part[final:moves].copy()
        self._header[kernels.MOVES] = moves - final
        self._header[kernels.FINAL] = self._final = 0
        if moves - final == self._room:  # every copy that anybody can want has been asked for
            raise RuntimeError("more copies are under way than tasks can want")

    def _asked(self) -> list[int]:
        final, moves = self._header[kernels.FINAL], self._header[kernels.MOVES]
        asked: list[int] = self._array(kernels.COPY, self._room)[final:moves].tolist()
        return asked

    def _book_copies(self, copies: list[int]) -> None:
        before = {copy: self._arrivals_of[copy] for copy in self._asked()}
        kernels.take_back(self._whole, self._real)
        for copy in copies:
            tensor, space = divmod(copy, self._spaces)
            job = self._job_of_tensor(tensor)
            size = self._job_index[job].bytes[tensor - self._first_tensor[job]]
            self._request(tensor, space, size)
        if any(self._arrivals_of.get(copy) != end for copy, end in before.items()):
            self._booked_anew()

    def _make_send(self) -> Callable[[], None]:
        header, delivers, fifo = self._header, self._delivers, self.contention == "fifo"
        moves, final = kernels.MOVES, kernels.FINAL
        disorder, rounds = kernels.DISORDER, kernels.ROUNDS

        def send() -> None:
            count = header[moves]
            if count == header[final]:
                return
            if header[disorder]:
                if fifo and kernels.put_in_order(self._whole, self._real, self.now):
                    self._booked_anew()
                header[disorder] = 0
            if delivers:
                self._note_deliveries(self._asked())
            header[final] = self._final = count
            header[rounds] += 1

        return send

    def _booked_anew(self) -> None:
        super()._booked_anew()
        whole, real, now = self._whole, self._real, self.now
        for task in self._placed_now:
            device = self._device[task]
            if device >= 0:
                space = self._space_of[device]
                arrival = kernels.arrived(whole, real, task, space, now)
                self._data_at[task] = arrival

    # -- the end --------------------------------------------------------------------------------

    def _transfer_table(self) -> Table:
        moves = self._header[kernels.MOVES]
        last = [self._array(name, self._room)[:moves] for name in _MOVE]
        columns = [np.concatenate(parts) for parts in zip(*self._flushed, last, strict=True)]
        copy, turn, requested, start = columns
        tensor, space = np.divmod(copy, self._spaces)
        home = self._array(kernels.HOME, self._tensors)[tensor]
        end = self._real[int(self._whole[kernels.ARRIVAL]) + copy]
        end[end == kernels.AT_ZERO] = 0.0
        order = in_turn(turn, copy)
        found = (tensor, home, space, requested, start, end)
        return rows_of_moves(
            [column[order] for column in found], self._routes, self._job_index, self._first_tensor
        )


_MOVE = (kernels.COPY, kernels.ROUND, kernels.REQUESTED, kernels.START)
_PRICES = {name: number for number, name in enumerate(PRICINGS)}
