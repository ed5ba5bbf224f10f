"""Tensors of a run on hardware: in which memories they are, and how they get from one to another.

What a decision asks for is sent when it has been taken. A packed message is one request to the thread that
copies, and all of it arrives at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from simulator.context.packing import Message, is_weight, message
from simulator.context.scheduler import Scheduler
from simulator.context.scheduling import EVERYWHERE, RequestedTransfer
from simulator.context.serving import BatchingContext
from simulator.errors import ExecutionError, SchedulingError
from simulator.links.registry import link_model
from simulator.model.trace import TraceRecorder

if TYPE_CHECKING:
    from calibration.copies import Copier
    from calibration.runner import Machine


class Request(NamedTuple):
    """A transfer that was asked for at this instant; the first two fields are its key."""

    tensor: int
    space: int
    home: int
    bytes: float


class MovingRun(BatchingContext):
    """The part of a run that brings tensors to other memories. Everything happens under ``_lock``."""

    _machine: Machine
    scheduler: Scheduler
    _lock: threading.Lock
    _recorder: TraceRecorder
    touched: set[int]
    _consumed: list[tuple[int, ...]]
    _origin: float
    _over: bool
    clock: Callable[[], float]
    _stop: Callable[[BaseException | None], None]
    _decide: Callable[[], None]
    _proceed: Callable[[Any], None]

    def __init__(self, machine: Machine, *context: Any) -> None:
        super().__init__(*context)
        self._machine = machine
        self.links = link_model(self.contention)
        self._moves = bool(machine.copiers)
        self._copying = 0  # tensors
        # Copies asked for before the clock started.
        self._early: list[tuple[Copier, Sequence[torch.Tensor], Any]] = []
        self.requested: list[Request] = []  # of this instant
        self._free_before: list[float] = []  # when each channel was free, before them
        self.packed: dict[tuple[int, int], Message] = {}  # by tensor and destination, of these
        self.under_way: set[tuple[int, int]] = set()
        self._present: set[tuple[int, int]] = set()  # (tensor, space) of copies that have arrived
        # By tensor.
        self._values: list[list[torch.Tensor | None]] = [[] for _ in machine.memories]
        self._readers: list[int] = []

    def _data_is_here(self, task: int, device: int) -> bool:
        space = self.space_of[device]
        return all(
            self.tensor_home[tensor] in (space, EVERYWHERE) or (tensor, space) in self._present
            for tensor in self._consumed[task]
        )

    def request(self, tensor: int, space: int, size: float) -> None:
        """Ask for a copy; it is sent when the scheduler has decided."""
        if tensor in self.copies[space]:
            return
        if not self.requested:
            self._free_before = list(self.channel_free)
        request = Request(tensor, space, self.tensor_home[tensor], size)
        self.requested.append(request)
        self._copying += 1
        self._book(request)

    def _book(self, request: Request) -> None:
        """Until a copy has arrived, what the link's figures say is what schedulers believe."""
        key = request[:2]
        if request.tensor in self.copies[request.space]:  # with the rest of its message
            return
        parcel = self.packed.get(key)
        route = self.cluster.route(request.home, request.space)
        size = request.bytes if parcel is None else parcel.bytes
        end = self.links.book(route, size, self.now, self.channel_free)[1]
        for tensor in (request.tensor,) if parcel is None else parcel.tensors:
            self.copies[request.space][tensor] = end

    def requests(self) -> list[RequestedTransfer]:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        return [
            RequestedTransfer(tensor, size, home, space)
            for tensor, space, home, size in sorted(self.requested)
            if (tensor, space) not in self.packed and not is_weight(self, tensor)
        ]

    def pack(self, transfers: Iterable[tuple[int, int]]) -> None:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        parcel = message(self, transfers)
        space = parcel.destination
        asked = {request[:2] for request in self.requested}
        if not self.requested:
            self._free_before = list(self.channel_free)
        for tensor in parcel.tensors:
            self.packed[tensor, space] = parcel
            if (tensor, space) not in asked:
                size = self.tensor_bytes(tensor)
                self.requested.append(Request(tensor, space, self.tensor_home[tensor], size))
                self._copying += 1
        self.channel_free = list(self._free_before)
        for request in self.requested:
            self.copies[request.space].pop(request.tensor, None)
        for request in self.requested:
            self._book(request)
        self.stale = [True] * len(self.stale)

    def _check_packs(self) -> None:
        if "pack" not in self.scheduler.needs:
            raise SchedulingError(
                f"Scheduler '{self.scheduler.name}' packs transfers without having declared it: "
                'needs = {"pack"}'
            )

    def tensor_bytes(self, tensor: int) -> float:
        """Bytes of a tensor of a job."""
        job = self.job_of_tensor(tensor)
        return self.job_index[job].bytes[tensor - self.first_tensor[job]]

    def is_under_way(self, tensor: int, space: int) -> bool:
        """Whether a tensor is being copied to a space."""
        return (tensor, space) in self.under_way

    def readers_of(self, tensor: int) -> list[int]:
        """The tasks that read a tensor."""
        job = self.job_of_tensor(tensor)
        first = self.first_task[job]
        return [first + r for r in self.job_index[job].consumers[tensor - self.first_tensor[job]]]

    def _send(self) -> None:
        """Have what was asked for at this instant copied, a message's tensors together."""
        messages: dict[tuple[int, int], list[Request]] = {}
        for request in self.requested:
            parcel = self.packed.get(request[:2])
            first = request.tensor if parcel is None else parcel.tensors[0]
            messages.setdefault((first, request.space), []).append(request)
        self.requested = []
        self.packed.clear()
        for requests in messages.values():
            self.under_way.update(request[:2] for request in requests)
            self._copy(requests)

    def _copy(self, requests: Sequence[Request]) -> None:
        home, space = requests[0].home, requests[0].space
        requested = self.now

        def arrived(
            copies: Sequence[torch.Tensor] | None, start: float, error: Exception | None
        ) -> None:
            with self._lock:
                if copies is None:
                    assert error is not None
                    names = ", ".join(self._tensor_name(request.tensor) for request in requests)
                    self._stop(
                        ExecutionError(
                            f"Tensor '{names}' could not be copied from "
                            f"'{self.cluster.spaces[home].name}' to "
                            f"'{self.cluster.spaces[space].name}': {reason_of(error)}"
                        )
                    )
                elif not self._over:
                    try:
                        self._arrived(requests, requested, start - self._origin, copies)
                    except Exception as problem:
                        self._stop(problem)

        values = [self._value_at_home(request) for request in requests]
        copier = self._machine.copiers[home, space]
        if self._origin:
            copier.copy(values, arrived)
        else:
            self._early.append((copier, values, arrived))

    def _value_at_home(self, request: Request) -> torch.Tensor:
        tensor = request.tensor
        self._join(self.job_of_tensor(tensor), request.home)
        value = self._values[request.home][tensor]
        assert value is not None
        return value

    def _arrived(
        self,
        requests: Sequence[Request],
        requested: float,
        start: float,
        copies: Sequence[torch.Tensor],
    ) -> None:
        """Copies are there: tasks that waited for them can start. The scheduler is asked if they were
        sent ahead, and only then, as in the simulation.
        """
        self.now = self.clock()
        for request, copy in zip(requests, copies, strict=True):
            tensor, space, home, size = request
            self._copying -= 1
            self.copies[space][tensor] = self.now
            self.under_way.discard((tensor, space))
            self._present.add((tensor, space))
            if self._readers[tensor]:
                self._values[space][tensor] = copy
            job = self.job_of_tensor(tensor)
            for channel in self.cluster.route(home, space).channels:
                self._recorder.transfer(
                    tensor, job, home, space, channel, requested, start, self.now, size
                )
            local = tensor - self.first_tensor[job]
            if self.is_awaited(job, local, space):
                self.done_at[job] = max(self.done_at[job], self.now)
            self._note_delivery(tensor, space)
        self.stale = [True] * len(self.stale)
        space = requests[0].space
        self.touched.update(d for d, place in enumerate(self.space_of) if place == space)
        if self.delivered:
            self._decide()
        self._proceed(None)

    def _join(self, job: int, space: int) -> None:
        """Make sure that the inputs of a batch that a job leads are in a memory space."""

    def _tensor_name(self, tensor: int) -> str:
        job = self.job_of_tensor(tensor)
        return self.jobs[job].graph.tensors[tensor - self.first_tensor[job]].name


def reason_of(error: BaseException) -> str:
    """An error's type and first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
