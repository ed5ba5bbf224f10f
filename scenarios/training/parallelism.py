"""A training step over several devices: micro-batches, pipeline stages and replicas of them in one transformation.

Each *pass* of a micro-batch through a stage runs on a *worker* of that stage: one device, or as many as the step has
shards (tensor parallelism). Several workers of a stage are replicas: each has weights and optimiser state of its own
and sums its gradients with the others'. One stage with several workers is data parallelism, several stages with one
worker each are a pipeline, and anything between is a mixture.

* Micro-batches have equal sizes. Each one's backward pass begins with the gradient 1 / their number, so that the sum of
  their gradients is that of the whole batch's mean loss. The graph's results are their losses: the batch's is the mean.
* A worker adds up the gradients of its micro-batches, as autograd accumulates them.
* Names of operators and tensors end in a tag of phase and micro-batch (:mod:`simulator.model.pass_tags`).
* Statistics that the forward pass keeps (batch normalisation) go from micro-batch to micro-batch on each worker by
  itself, as without synchronisation; so such a model's parameters differ from those of the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cost_models.optimizer_steps import STATE, UPDATED
from scenarios.training.assembly import Assembly, Seen
from scenarios.training.gradient_sums import AT_THE_END, GradientSums, Reduction
from scenarios.training.step import BACKWARD, FORWARD, Step
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Part
from simulator.model.pass_tags import tagged
from simulator.planners.pipeline_schedules import Slot


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the parts of a step run and in which order.

    Attributes:
        part: int64[operators], the chunk of each one, numbered along the forward pass; chunk ``c`` is of stage
            ``c % stages``.
        worker_of: int64[stages, micro-batches], the worker of each pass.
        workers: the devices of each worker, one for each shard.
        slots: of each worker, in order.
        shard: int64[operators]; all 0 unless given.
        reduction: how replicas sum gradients.
        recompute: int64[operators], segments of which the forward pass keeps only what crosses into others; the
            backward pass computes the rest again. None: everything is kept.
        asynchronous: every micro-batch is a batch by itself, followed by an update.
    """

    part: np.ndarray
    worker_of: np.ndarray
    workers: Sequence[Sequence[int]]
    slots: Mapping[int, Sequence[Slot]]
    shard: np.ndarray | None = None
    reduction: Reduction = field(default_factory=Reduction)
    recompute: np.ndarray | None = None
    asynchronous: bool = False


@dataclass(frozen=True, eq=False)
class Parallel:
    """A step over several devices.

    Attributes:
        graph: of all micro-batches.
        device: int64[operators].
        order: int64[operators], all of them in the order of their devices' slots.
        origin: int64[operators], the step's operator that each one repeats; -1: it communicates or accumulates.
        communicates: bool[operators], those that sum gradients of replicas.
    """

    graph: DataflowGraph
    device: np.ndarray
    order: np.ndarray
    origin: np.ndarray
    communicates: np.ndarray


def parallelised(step: Step, layout: Layout) -> Parallel:
    """One step (several, if asynchronous) of all micro-batches.

    Args:
        step: of one micro-batch.
        layout: where its parts run.

    Raises:
        InvalidInput: the layout asks for what cannot be; says what.
    """
    return _Transformation(step, layout).done()


class _Transformation:
    def __init__(self, step: Step, layout: Layout) -> None:
        self.step, self.graph, self.layout = step, step.graph, layout
        self.stages, self.micro_batches = layout.worker_of.shape
        self.parts = Assembly()
        self.turns = {
            (worker, slot): position
            for worker, slots in layout.slots.items()
            for position, slot in enumerate(slots)
        }
        self.part: list[int] = layout.part.tolist()
        self.shard = [0] * len(self.graph) if layout.shard is None else layout.shard.tolist()
        self.worker_of: list[list[int]] = layout.worker_of.tolist()
        self.divided = any(slot.phase == "W" for slots in layout.slots.values() for slot in slots)
        self.weights = set(self.graph.weights)
        self.number = {tensor.name: t for t, tensor in enumerate(self.graph.tensors)}
        self.delivered = set(self.graph.outputs)
        self.updater: dict[int, int] = {}  # weight -> the operator that changes it
        for weight, tensor in step.updates.items():
            self.updater[weight] = self.graph.producer[tensor]
        self.is_update = {o for o in self.updater.values() if step.phase[o] != FORWARD}
        self.became = {tensor: weight for weight, tensor in step.updates.items()}
        self.gradients = self._gradients()
        self.versions: dict[
            tuple[int, int], list[int]
        ] = {}  # (weight, worker) -> it after each update
        self.parts_of: dict[tuple[int, int], list[tuple[Any, int, int]]] = {}
        self.total: dict[tuple[int, int], Seen] = {}  # (gradient, worker) -> the sum
        self.results: list[dict[str, Any]] = []
        self.shared: dict[int, int] = {}
        if layout.recompute is not None:
            self._check_recomputable()
        self.updates_before: dict[tuple[int, int, int], int] = {}  # (worker, micro-batch, part)
        if layout.asynchronous:
            self._check_asynchronous()
            self._count_updates()

    def done(self) -> Parallel:
        for micro_batch in range(self.micro_batches):
            self._pass(micro_batch)
        self._accumulate()
        first_communication = len(self.parts.operators)
        if not self.layout.asynchronous:
            self._reduce_and_update()
        batch = self.graph.batch
        graph = self.parts.graph(
            self.graph.name, self.results, None if batch is None else batch * self.micro_batches
        )
        origin = np.array(self.parts.origin, dtype=np.int64)
        communicates = (origin < 0) & (np.arange(len(graph)) >= first_communication)
        device = np.array(self.parts.device, dtype=np.int64)
        return Parallel(graph, device, self.parts.order, origin, communicates)

    # -- a micro-batch --------------------------------------------------------------------------

    def _pass(self, micro_batch: int) -> None:
        """Forward and backward operators of one micro-batch, and what accumulates its gradients."""
        values: dict[int, int] = {}
        again: dict[int, int] = {}  # tensors that were recomputed
        for operator in range(len(self.graph)):
            if operator in self.is_update:
                if self.layout.asynchronous:
                    self._update(operator, self._worker(operator, micro_batch), values, micro_batch)
                continue
            phase = self._phase(operator)
            if phase != "F" and self.layout.recompute is not None:
                self._recompute(operator, values, again, micro_batch)
            self._repeat(operator, phase, values, again, micro_batch)
        for row in self.graph.results:
            tensor = values[self.number[row["tensor"]]]
            self.results.append({**row, "tensor": self.parts.tensors[tensor].name})
        if self.layout.asynchronous:
            return
        for gradient, operator in self.gradients.items():
            turn = self._turn(
                self._worker(operator, micro_batch),
                self._phase(self.graph.producer[gradient]),
                micro_batch,
                self.part[operator],
            )
            key = gradient, self._worker(operator, micro_batch)
            self.parts_of.setdefault(key, []).append((turn, micro_batch, values[gradient]))

    def _accumulate(self) -> None:
        """Add up the gradients of each worker's micro-batches, in the order in which it comes to them."""
        for (gradient, worker), rows in self.parts_of.items():
            total = Seen(-1)
            for turn, micro_batch, tensor in sorted(rows):
                if total.tensor < 0:
                    total = Seen(tensor)
                    continue
                name = tagged(f"{self.graph.tensors[gradient].name}/sum", "B", micro_batch)
                device = self.layout.workers[worker][self.shard[self.gradients[gradient]]]
                behind = (turn[0], len(self.parts.operators))
                total = Seen(self.parts.added(name, total, Seen(tensor), device, behind))
            self.total[gradient, worker] = total

    def _repeat(
        self,
        operator: int,
        phase: str,
        values: dict[int, int],
        again: Mapping[int, int],
        micro_batch: int,
        into: dict[int, int] | None = None,
        turn: Any = None,
    ) -> None:
        """Append an operator for a micro-batch; what it writes is noted in ``into``."""
        worker = self._worker(operator, micro_batch)
        original = self.graph.operators[operator]
        reads = [
            self._read(tensor, operator, phase, values, again, micro_batch)
            for tensor in self.graph.reads[operator]
        ]
        writes = []
        for tensor in self.graph.writes[operator]:
            row = self.graph.tensors[tensor]
            name = tagged(row.name, phase, micro_batch)
            if tensor in self.became:
                name = self._name_of_update(tensor, worker, micro_batch)
            writes.append(dataclasses.replace(row, name=name))
        made = self._named(original, phase, micro_batch)
        if turn is None:
            turn = self._turn(worker, phase, micro_batch, self.part[operator])
        device = self.layout.workers[worker][self.shard[operator]]
        written = self.parts.operator(made, reads, writes, device, turn, operator)
        target = values if into is None else into
        for tensor, new in zip(self.graph.writes[operator], written, strict=True):
            target[tensor] = new
            if tensor in self.became:
                self.versions[self.became[tensor], worker].append(new)

    def _named(self, original: Operator, phase: str, micro_batch: int) -> Operator:
        name = tagged(original.name, phase, micro_batch)
        is_seed = original.target == "aten.ones_like.default" and phase == "B"
        if is_seed and not self.layout.asynchronous and self.micro_batches > 1:
            template = dict(original.template or {})
            template["args"] = [*template["args"], 1.0 / self.micro_batches]
            target = "aten.full_like.default"
            return dataclasses.replace(original, name=name, target=target, template=template)
        return dataclasses.replace(original, name=name)

    def _read(
        self,
        tensor: int,
        operator: int,
        phase: str,
        values: dict[int, int],
        again: Mapping[int, int],
        micro_batch: int,
    ) -> int:
        row = self.graph.tensors[tensor]
        if tensor in self.weights:
            if tensor not in self.updater:  # the same everywhere and always
                if tensor not in self.shared:
                    self.shared[tensor] = self.parts.tensor(row)
                return self.shared[tensor]
            owner = self._worker(self.updater[tensor], micro_batch)
            if self.step.phase[self.updater[tensor]] == FORWARD:
                return self._latest(tensor, owner)
            if self.layout.reduction.algorithm == "owner":  # all read the first replica's
                owner = self._replicas(self.updater[tensor])[0]
            self._latest(tensor, owner)
            # Backward as forward: with the weight as the updates before the forward pass left it.
            updates = self.updates_before.get((owner, micro_batch, self.part[operator]), 0)
            return self.versions[tensor, owner][updates]
        if row.role == "input":
            if tensor not in values:
                name = row.name if self.micro_batches == 1 else f"{row.name}#{micro_batch}"
                values[tensor] = self.parts.tensor(dataclasses.replace(row, name=name))
            return values[tensor]
        if phase != "F" and tensor in again:
            return again[tensor]
        return values[tensor]

    def _latest(self, weight: int, worker: int) -> int:
        """A weight as it is now at the worker that changes it."""
        key = (weight, worker)
        if key not in self.versions:
            row = self.graph.tensors[weight]
            name = self._name_at(row.name, weight, worker)
            if name != row.name:
                part = Part(row.part.of, row.part.views) if row.part else Part(row.name, ())
                row = dataclasses.replace(row, name=name, part=part)
            self.versions[key] = [self.parts.tensor(row)]
        return self.versions[key][-1]

    def _name_at(self, name: str, weight: int, worker: int) -> str:
        """The name of a worker's own weight or state: the first replica has the model's."""
        replicas = self._replicas(self.updater[weight])
        if worker == replicas[0]:
            return name
        path, colon, state = name.partition(STATE)
        return f"{path}@{replicas.index(worker)}{colon}{state}"

    def _name_of_update(self, tensor: int, worker: int, micro_batch: int) -> str:
        """What the last micro-batch of a worker leaves has the name of an update."""
        weight = self.became[tensor]
        name = self._name_at(self.graph.tensors[weight].name, weight, worker) + UPDATED
        stage = self.part[self.updater[weight]] % self.stages
        mine = [m for m in range(self.micro_batches) if self.worker_of[stage][m] == worker]
        in_passes = self.layout.asynchronous or self.step.phase[self.updater[weight]] == FORWARD
        return name if not in_passes or micro_batch == mine[-1] else f"{name}#{micro_batch}"

    def _replicas(self, operator: int) -> list[int]:
        return sorted(set(self.worker_of[self.part[operator] % self.stages]))

    def _worker(self, operator: int, micro_batch: int) -> int:
        return self.worker_of[self.part[operator] % self.stages][micro_batch]

    def _phase(self, operator: int) -> str:
        if self.step.phase[operator] == FORWARD:
            return "F"
        return "W" if self.divided and self.step.weight_only[operator] else "B"

    def _turn(self, worker: int, phase: str, micro_batch: int, part: int) -> tuple[int, int]:
        slot = Slot("B" if phase == "R" else phase, micro_batch, part // self.stages)
        return self.turns[worker, slot], len(self.parts.operators)

    # -- recomputation --------------------------------------------------------------------------

    def _recompute(
        self, operator: int, values: dict[int, int], again: dict[int, int], micro_batch: int
    ) -> None:
        """Compute again what a backward operator reads of a segment's inside, just before it."""
        segment = self.layout.recompute
        assert segment is not None
        needed: list[int] = []
        stack = [t for t in self.graph.reads[operator] if self._is_inside(t) and t not in again]
        seen = set(stack)
        while stack:
            producer = self.graph.producer[stack.pop()]
            needed.append(producer)
            for t in self.graph.reads[producer]:
                inside = self._is_inside(t) and segment[self.graph.producer[t]] == segment[producer]
                if inside and t not in again and t not in seen:
                    seen.add(t)
                    stack.append(t)
        worker, part = self._worker(operator, micro_batch), self.part[operator]
        for producer in sorted(set(needed)):
            turn = self._turn(worker, self._phase(operator), micro_batch, part)
            self._repeat(producer, "R", values, again, micro_batch, again, turn)

    def _is_inside(self, tensor: int) -> bool:
        """Whether the forward pass makes a tensor that no other segment's forward pass reads."""
        segment, producer = self.layout.recompute, self.graph.producer[tensor]
        assert segment is not None
        if producer < 0 or self.step.phase[producer] != FORWARD or tensor in self.delivered:
            return False
        return all(
            segment[reader] == segment[producer]
            for reader in self.graph.consumers[tensor]
            if self.step.phase[reader] == FORWARD
        )

    def _check_recomputable(self) -> None:
        for operator in self.step.forward:
            kind = self.graph.operators[operator].kind
            if "dropout" in kind or "bernoulli" in kind or "rand" in kind:
                raise InvalidInput(
                    f"Operator '{self.graph.operators[operator].name}' draws random numbers, which recomputing would "
                    "draw anew; recompute a model without dropout"
                )
            if self.became.keys() & set(self.graph.writes[operator]):
                raise InvalidInput(
                    f"Operator '{self.graph.operators[operator].name}' keeps statistics, which recomputing would count "
                    "twice; take batch normalisation in evaluation mode"
                )

    # -- gradients and updates ------------------------------------------------------------------

    def _gradients(self) -> dict[int, int]:
        """For each tensor that an update reads of the backward pass the update; the last layers' first."""
        found = {}
        for operator in sorted(self.is_update):
            for tensor in self.graph.reads[operator]:
                producer = self.graph.producer[tensor]
                if producer >= 0 and self.step.phase[producer] == BACKWARD:
                    found[tensor] = operator
        return dict(sorted(found.items(), key=lambda item: self.graph.producer[item[0]]))

    def _reduce_and_update(self) -> None:
        """Sum the gradients of every stage's replicas and step."""
        of_group: dict[tuple[tuple[int, ...], int], list[int]] = {}
        for gradient, operator in self.gradients.items():
            key = tuple(self._replicas(operator)), self.shard[operator]
            of_group.setdefault(key, []).append(gradient)
        how = self.layout.reduction
        sums = GradientSums(self.parts, how, self.layout.workers, self.graph.tensors, self.total)
        for (workers, shard), gradients in of_group.items():
            sums.sum(gradients, workers, shard)
        for operator in sorted(self.is_update):
            steps = self._replicas(operator)
            if how.algorithm == "owner":
                del steps[1:]
            for worker in steps:
                self._update(operator, worker, {}, None)

    def _update(
        self, operator: int, worker: int, values: Mapping[int, int], micro_batch: int | None
    ) -> None:
        """An update of a worker's own weight; its gradient may be a view of a reduced buffer."""
        original = self.graph.operators[operator]
        reads: list[int] = []
        behind: dict[int, tuple[Any, ...]] = {}
        for position, tensor in enumerate(self.graph.reads[operator]):
            if tensor in self.weights:
                reads.append(self._latest(tensor, worker))
            elif micro_batch is not None:
                reads.append(values[tensor])
            else:
                seen = self.total[tensor, worker]
                reads.append(seen.tensor)
                behind[position] = seen.views
        writes = []
        for tensor in self.graph.writes[operator]:
            name = self._name_of_update(tensor, worker, -1 if micro_batch is None else micro_batch)
            writes.append(dataclasses.replace(self.graph.tensors[tensor], name=name))
        device = self.layout.workers[worker][self.shard[operator]]
        if micro_batch is None:
            turn: Any = (AT_THE_END + 1, len(self.parts.operators))
            replica = self._replicas(operator).index(worker)
            label = tagged(original.name, "U", replica=replica)
        else:
            turn = self._turn(worker, "B", micro_batch, self.part[operator])
            label = tagged(original.name, "U", micro_batch)
        distinct = list(dict.fromkeys(reads))
        made = dataclasses.replace(
            original, name=label, template=_with_views(original.template, reads, distinct, behind)
        )
        if any(behind.values()):
            stored = tuple(spec for t in distinct if (spec := self.parts.tensors[t].spec))
            made = dataclasses.replace(made, reads=stored)
        written = self.parts.operator(made, distinct, writes, device, turn, operator)
        for tensor, new in zip(self.graph.writes[operator], written, strict=True):
            self.versions[self.became[tensor], worker].append(new)

    def _count_updates(self) -> None:
        for stage, row in enumerate(self.worker_of):
            done = 0
            for slot in self.layout.slots[row[0]]:
                if slot.phase == "F":
                    self.updates_before[row[0], slot.micro_batch, stage] = done
                done += slot.phase == "B"

    def _check_asynchronous(self) -> None:
        if any(len(set(row)) > 1 for row in self.worker_of):
            raise InvalidInput(
                "An asynchronous pipeline takes one device a stage; give each stage one, or take schedule=1f1b"
            )
        for weight, operator in self.updater.items():
            stages = {self.part[reader] % self.stages for reader in self.graph.consumers[weight]}
            if stages - {self.part[operator] % self.stages}:
                raise InvalidInput(
                    f"Weight '{self.graph.tensors[weight].name}' is read on several stages, of which each would have "
                    "another version of it; take a schedule with a flush, such as 1f1b"
                )


def _with_views(
    template: Mapping[str, Any] | None,
    reads: Sequence[int],
    distinct: Sequence[int],
    behind: Mapping[int, tuple[Any, ...]],
) -> Mapping[str, Any] | None:
    """A template whose leaves see other stored tensors, through views of these first."""
    if template is None:
        return None

    def changed(node: Any) -> Any:
        if isinstance(node, Mapping):
            if "read" not in node:
                return node
            read = node["read"]
            views = [*(list(v) for v in behind.get(read, ())), *node["views"]]
            return {"read": distinct.index(reads[read]), "views": views}
        return [changed(item) for item in node] if isinstance(node, list) else node

    return {
        "args": [changed(node) for node in template["args"]],
        "kwargs": {key: changed(node) for key, node in template.get("kwargs", {}).items()},
    }


__all__ = ["Layout", "Parallel", "Reduction", "parallelised"]
