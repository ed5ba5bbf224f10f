"""Gradients of replicas, summed: in buckets that all reduce, or pushed to an owner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.training.assembly import Assembly, Seen
from scenarios.training.collectives import Ranks
from simulator.model.operator import Tensor, TensorSpec
from simulator.model.pass_tags import tagged

AT_THE_END = 1 << 40
"""A turn behind all slots."""


@dataclass(frozen=True)
class Reduction:
    """How the gradients of replicas are summed.

    Attributes:
        algorithm: ``ring``, ``tree`` or ``hierarchical`` (:mod:`scenarios.training.collectives`); ``owner``: pushed
            to the first replica, which alone updates, so that the weights come back from there.
        bucket_bytes: gradients are summed in buckets of at least so many bytes, the last layers' first.
        node_size: consecutive replicas of a node, for ``hierarchical``.
        communicator: a device on which each bucket is one operator, instead.
        beside: for a device another one of the same memory that sums for it; else it sums itself, between its kernels.
    """

    algorithm: str = "ring"
    bucket_bytes: float = 25e6
    node_size: int | None = None
    communicator: int | None = None
    beside: Mapping[int, int] = field(default_factory=dict)


class GradientSums:
    """Appends the operators that sum gradients over replicas.

    Args:
        parts: what is appended to.
        how: they are summed.
        workers: the devices of each worker, one for each shard.
        tensors: of the step that is repeated; gradients are numbers of these.
        total: for each gradient and worker what the worker has; afterwards the sum, as views of a bucket.
    """

    def __init__(
        self,
        parts: Assembly,
        how: Reduction,
        workers: Sequence[Sequence[int]],
        tensors: Sequence[Tensor],
        total: dict[tuple[int, int], Seen],
    ) -> None:
        self.parts, self.how, self.workers = parts, how, workers
        self.tensors, self.total, self.buckets = tensors, total, 0

    def sum(self, gradients: Sequence[int], workers: Sequence[int], shard: int) -> None:
        """Sum some gradients of a shard, in this order, over workers, of which the first owns them."""
        if len(workers) == 1:
            return
        if self.how.algorithm == "owner":
            for gradient in gradients:
                self._push(gradient, workers, shard)
            return
        bucket: list[int] = []
        size = 0.0
        for gradient in gradients:
            bucket.append(gradient)
            size += self.tensors[gradient].bytes
            if size >= self.how.bucket_bytes or gradient == gradients[-1]:
                self._reduce(bucket, workers, shard)
                bucket, size = [], 0.0

    def _push(self, gradient: int, workers: Sequence[int], shard: int) -> None:
        owner = workers[0]
        device = self._device(owner, shard)
        total = self.total[gradient, owner]
        name = self.tensors[gradient].name
        for worker in workers[1:]:
            turn = (AT_THE_END, len(self.parts.operators))
            label = tagged(f"{name}/push{worker}", "C")
            total = Seen(self.parts.added(label, total, self.total[gradient, worker], device, turn))
        self.total[gradient, owner] = total

    def _device(self, worker: int, shard: int) -> int:
        device = self.workers[worker][shard]
        return self.how.beside.get(device, device)

    def _reduce(self, bucket: Sequence[int], workers: Sequence[int], shard: int) -> None:
        """All-reduce some gradients as one flat buffer."""
        turn = (AT_THE_END, len(self.parts.operators))
        devices = [self._device(worker, shard) for worker in workers]
        name = f"bucket{self.buckets}"
        self.buckets += 1
        buffers = []
        for rank, worker in enumerate(workers):
            rows = [self._flat(self.total[gradient, worker]) for gradient in bucket]
            label = tagged(f"{name}/flat{rank}", "C")
            buffers.append(self.parts.joined(label, rows, devices[rank], turn))
        ranks = Ranks(self.parts, devices, name, turn)
        how = self.how
        first = len(self.parts.operators)
        if how.communicator is not None:
            reduced = ranks.at_once(buffers, how.communicator)
        else:
            reduced = ranks.all_reduce(buffers, how.algorithm, how.node_size)
        for operator in range(first, len(self.parts.operators)):
            row = self.parts.operators[operator]
            label = tagged(row.name, "C")
            self.parts.operators[operator] = dataclasses.replace(row, name=label)
        for rank, worker in enumerate(workers):
            begin = 0
            for gradient in bucket:
                spec = self.parts.spec(self.total[gradient, worker])
                seen = Seen(reduced[rank])
                if spec is not None:
                    seen = self._shaped(reduced[rank], begin, spec)
                    begin += spec.elements
                self.total[gradient, worker] = seen

    def _flat(self, seen: Seen) -> Seen:
        spec = self.parts.spec(seen)
        if spec is None:
            return seen
        order = _dense_order(spec)
        views = list(seen.views)
        if order != list(range(len(order))):
            views.append(["aten.permute.default", [{"self": True}, order], {}])
        views.append(["aten.view.default", [{"self": True}, [spec.elements]], {}])
        return Seen(seen.tensor, tuple(views))

    def _shaped(self, tensor: int, begin: int, spec: TensorSpec) -> Seen:
        """A gradient in a flat buffer, as it was: shape and strides."""
        seen = self.parts.cut(Seen(tensor), begin, begin + spec.elements)
        order = _dense_order(spec)
        shape = [spec.shape[d] for d in order]
        views = [*seen.views, ["aten.view.default", [{"self": True}, shape], {}]]
        if order != list(range(len(order))):
            inverse = [order.index(d) for d in range(len(order))]
            views.append(["aten.permute.default", [{"self": True}, inverse], {}])
        return Seen(tensor, tuple(views))


def _dense_order(spec: TensorSpec) -> list[int]:
    """Dimensions from the widest stride to the narrowest."""
    if spec.strides is None:
        return list(range(len(spec.shape)))
    strides = spec.strides
    return sorted(range(len(strides)), key=lambda d: (-strides[d], d))


__all__ = ["AT_THE_END", "GradientSums", "Reduction"]
