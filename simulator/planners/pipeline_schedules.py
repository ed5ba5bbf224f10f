"""Pipeline schedules: in which order a device takes up the micro-batches of its stage.

A *slot* is one pass of one micro-batch through one chunk of a stage: forward (``F``), backward (``B``), or, where the
backward pass is divided, the gradients of weights alone (``W``).

* ``gpipe``: all forward passes, then all backward passes. Y. Huang et al., *GPipe*, NeurIPS 2019.
* ``1f1b``: as many forward passes as the pipeline behind needs to be filled, then one backward and one forward pass
  in turn. D. Narayanan et al., *PipeDream*, SOSP 2019 (with a flush: PipeDream-Flush, DAPPLE).
* ``interleaved``: the same with several chunks of the model on each device. D. Narayanan et al., *Efficient
  large-scale language model training on GPU clusters using Megatron-LM*, SC 2021.
* ``zb_h1``: 1F1B with a divided backward pass; stage ``s`` is ``s`` weight gradients behind. P. Qi et al., *Zero
  bubble pipeline parallelism*, ICLR 2024.
* ``pipedream``: 1F1B without a flush; every micro-batch is followed by an update, and computes backward with the
  weights that it computed forward with.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.errors import InvalidInput

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb_h1", "pipedream")


class Slot(NamedTuple):
    """A pass of a micro-batch through a chunk; ``phase`` is ``F``, ``B`` or ``W``."""

    phase: str
    micro_batch: int
    chunk: int = 0


def noam(replicas: Sequence[int], stage: int) -> int:
    """How many micro-batches of a device are under way in a filled pipeline: devices from this stage on, over its own.

    Of stage 0 it is PipeDream's NOAM.
    """
    return -(-sum(replicas[stage:]) // replicas[stage])


def schedule(name: str, device_of: np.ndarray, chunks: int = 1) -> dict[int, list[Slot]]:
    """The slots of each device, in order.

    Args:
        name: one of :data:`SCHEDULES`.
        device_of: int[stages, micro-batches], the device of each pass; no device serves two stages.
        chunks: of each stage, for ``interleaved``.

    Raises:
        InvalidInput: an unknown name, a device of two stages, or numbers that the schedule does not take.
    """
    if name not in SCHEDULES:
        raise InvalidInput(f"There is no pipeline schedule '{name}'; known: {', '.join(SCHEDULES)}")
    stages, micro_batches = device_of.shape
    own = [set(row) for row in device_of.tolist()]
    if sum(map(len, own)) != len(set().union(*own)):
        raise InvalidInput(
            "A device stands in two stages of a pipeline; give each stage devices of its own"
        )
    if name == "interleaved":
        return _interleaved(device_of, chunks)
    if chunks != 1:
        raise InvalidInput(
            f"Pipeline schedule '{name}' takes one chunk a stage, not {chunks}; take interleaved"
        )
    replicas = [len(devices) for devices in own]
    made: dict[int, list[Slot]] = {}
    last_before = list(
        range(micro_batches)
    )  # the last forward pass that must come before each backward pass
    for stage in range(stages - 1, -1, -1):
        needed = list(last_before)
        for device in sorted(own[stage]):
            mine = np.flatnonzero(device_of[stage] == device).tolist()
            ahead = len(mine) if name == "gpipe" else noam(replicas, stage)
            slots: list[Slot] = []
            done = 0
            for position, micro_batch in enumerate(mine):
                want = max(micro_batch, last_before[micro_batch])
                while done < len(mine) and (mine[done] <= want or done < position + ahead):
                    slots.append(Slot("F", mine[done]))
                    done += 1
                needed[micro_batch] = mine[done - 1]
                slots.append(Slot("B", micro_batch))
            made[device] = slots
        # Nothing behind may wait for a backward pass that waits for it.
        last_before = np.maximum.accumulate(needed).tolist()
    if name == "gpipe":
        made = {device: _reversed_backward(slots) for device, slots in made.items()}
    if name == "zb_h1":
        behind = {d: stage for stage, devices in enumerate(own) for d in devices}
        made = {device: _divided(slots, behind[device]) for device, slots in made.items()}
    return made


def _reversed_backward(slots: Sequence[Slot]) -> list[Slot]:
    forward = [slot for slot in slots if slot.phase == "F"]
    return [*forward, *(Slot("B", slot.micro_batch) for slot in reversed(forward))]


def _divided(slots: Sequence[Slot], behind: int) -> list[Slot]:
    """Weight gradients of their own, so many backward passes later."""
    made: list[Slot] = []
    waiting: list[Slot] = []
    for slot in slots:
        made.append(slot)
        if slot.phase == "B":
            waiting.append(Slot("W", slot.micro_batch))
            if len(waiting) > behind:
                made.append(waiting.pop(0))
    return made + waiting


def _interleaved(device_of: np.ndarray, chunks: int) -> dict[int, list[Slot]]:
    """Megatron-LM's order: groups of as many micro-batches as there are stages go through all chunks in turn."""
    stages, micro_batches = device_of.shape
    if any(len(set(row)) > 1 for row in device_of.tolist()):
        raise InvalidInput("Pipeline schedule 'interleaved' takes one device a stage")
    if micro_batches % stages:
        raise InvalidInput(
            f"Pipeline schedule 'interleaved' takes a multiple of {stages} micro-batches on {stages} stages, not "
            f"{micro_batches}"
        )

    def passes(phase: str) -> list[Slot]:
        order = range(chunks) if phase == "F" else range(chunks - 1, -1, -1)
        return [
            Slot(phase, first + m, chunk)
            for first in range(0, micro_batches, stages)
            for chunk in order
            for m in range(stages)
        ]

    forward, backward = passes("F"), passes("B")
    made = {}
    for stage in range(stages):
        warm = min(2 * (stages - stage - 1) + (chunks - 1) * stages, len(forward))
        steady = itertools.zip_longest(forward[warm:], backward)
        turns = [slot for pair in steady for slot in pair if slot is not None]
        made[int(device_of[stage, 0])] = forward[:warm] + turns
    return made


__all__ = ["SCHEDULES", "Slot", "noam", "schedule"]
