"""Batches on real tensors: inputs of several jobs concatenated, results divided among them.

Along which dimension is read off the shapes of one job's graph and of the batch's: the one in which they
differ. What does not differ, such as a table of positions, is the same for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from simulator.context import EVERYWHERE
from simulator.errors import InvalidInput
from simulator.model.operator import TensorSpec


@dataclass(frozen=True)
class Cut:
    """How a batch's tensor is made of its members'.

    Attributes:
        axis: the dimension along which they stand one after the other; None: it is the same for all.
        lengths: of each member in it.
    """

    axis: int | None
    lengths: tuple[int, ...]

    def shares(self, value: torch.Tensor) -> Sequence[torch.Tensor]:
        """Each member's part of a tensor, as views of it."""
        if self.axis is None:
            return [value] * len(self.lengths)
        return value.split(self.lengths, self.axis)


def cut(name: str, alone: Sequence[TensorSpec | None], together: TensorSpec | None) -> Cut:
    """How a tensor of a batch is made of its members' tensors.

    Args:
        name: of the tensor.
        alone: of each member.
        together: of the batch.

    Raises:
        InvalidInput: the shapes do not say it.
    """
    known = [spec for spec in alone if spec is not None]
    if together is None or len(known) < len(alone):
        raise InvalidInput(f"Tensor '{name}' has no shape, so that no batch can be made of it")
    shapes = [spec.shape for spec in known]
    ranks = {len(shape) for shape in (*shapes, together.shape)}
    if len(ranks) == 1:
        differs = [
            axis
            for axis, length in enumerate(together.shape)
            if any(shape[axis] != length for shape in shapes)
        ]
        if not differs:
            return Cut(None, (0,) * len(shapes))
        lengths = tuple(shape[differs[0]] for shape in shapes)
        if len(differs) == 1 and sum(lengths) == together.shape[differs[0]]:
            return Cut(differs[0], lengths)
    raise InvalidInput(
        f"Tensor '{name}' cannot be made of those of single jobs: these are "
        f"{', '.join(str(list(shape)) for shape in dict.fromkeys(shapes))}, a batch of {len(shapes)} has "
        f"{list(together.shape)}"
    )


class Joint:
    """The inputs of a batch: concatenated when something reads them first, in the memory where they lie.

    Args:
        home: memory space of the inputs; ``EVERYWHERE``: they lie in each.
        inputs: name, the members' tensors (the first is the batch's own), and how they are joined.

    Attributes:
        jobs: how many are served.
        seconds: that concatenating took.
    """

    def __init__(
        self, home: int, jobs: int, inputs: Sequence[tuple[str, Sequence[int], Cut]]
    ) -> None:
        self.jobs = jobs
        self.seconds = 0.0
        self._home = home
        self._inputs = inputs
        self._done: set[int] = set()
        self._lock = threading.Lock()

    def gather(self, values: list[torch.Tensor | None], space: int) -> None:
        """Make sure that the batch's inputs are among the ``values`` (by tensor) of a memory space.

        On a GPU it has happened on return, whatever stream reads them next.

        Raises:
            InvalidInput: an input that is to be the same for all jobs is not.
        """
        if self._home not in (space, EVERYWHERE):
            return  # they come as copies of what was joined at home
        with self._lock:
            if space in self._done:
                return
            began = time.perf_counter()
            for name, tensors, how in self._inputs:
                parts = [values[tensor] for tensor in tensors]
                given = [part for part in parts if part is not None]
                if how.axis is not None:
                    values[tensors[0]] = torch.cat(given, how.axis)
                elif not all(part is given[0] or torch.equal(part, given[0]) for part in given[1:]):
                    raise InvalidInput(
                        f"Input '{name}' has no batch dimension and differs between jobs, which can "
                        "therefore not be served together"
                    )
                for tensor in tensors[1:]:
                    values[tensor] = None
                if given[0].is_cuda:
                    torch.cuda.current_stream(given[0].device).synchronize()
            self.seconds += time.perf_counter() - began
            self._done.add(space)
