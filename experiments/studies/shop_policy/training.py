"""Policy gradient on the simulator: REINFORCE with the mean return of a sequence's runs as its baseline.

Of each batch every sequence of jobs is run several times by the policy, which draws its choices. What a run
took, against the mean of its sequence, weighs the gradient of the logarithm of its choices' probabilities; an
entropy term, which decays, keeps the policy from settling too early. Adam; float32.

Source: R. J. Williams, *Simple statistical gradient-following algorithms for connectionist reinforcement
learning*, 1992; baselines by arrival sequence and decaying entropy: H. Mao et al., SIGCOMM 2019,
doi:10.1145/3341302.3342080.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.studies.shop_policy import mixes
from simulator import simulate
from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.model.trace import Trace
from simulator.schedulers._stage_policy import FEATURES, StagePolicy
from simulator.schedulers.contention_free import ContentionFree
from simulator.schedulers.learnt import Learnt
from simulator.support.atomic_io import write_whole

OBJECTIVES = ("makespan", "job_time")
CHECKPOINT = "hetsim.policy_training"


@dataclass(frozen=True)
class Training:
    """Settings; the same give the same policy.

    Attributes:
        objective: ``makespan``: of a sequence; ``job_time``: the mean time from a job's arrival to its end.
        iterations: batches.
        sequences, runs: of a batch, and of each sequence.
        hidden: units of each hidden layer.
        learning_rate: of Adam.
        entropy: weight of the entropy at the beginning; it falls linearly to a hundredth.
        validate_every: batches between two validations.
        validations: sequences that a policy is validated on, by its best choices.
    """

    objective: str = "makespan"
    iterations: int = 80
    sequences: int = 8
    runs: int = 8
    hidden: tuple[int, ...] = (16, 8)
    learning_rate: float = 1e-2
    entropy: float = 0.02
    validate_every: int = 10
    validations: int = 40

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InvalidInput(
                f"There is no objective={self.objective}; known: {', '.join(OBJECTIVES)}"
            )
        for name in ("iterations", "sequences", "validate_every", "validations"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name}={getattr(self, name)}; give at least 1")
        if self.runs < 2:
            raise InvalidInput(
                f"runs={self.runs}: a run is held against others of its sequence; give 2"
            )


@dataclass
class Progress:
    """Where a training is.

    Attributes:
        tensors: by name, weights and Adam's moments.
        done: iterations.
        best: validation of the policy kept.
        curve: of each validation the iteration, the objective as a mean share of FIFO's, and the entropy, nats a
            decision.
    """

    tensors: dict[str, np.ndarray]
    done: int = 0
    best: float = float("inf")
    curve: list[tuple[int, float, float]] = field(default_factory=list)


class Drawing(Learnt):
    """The policy with choices drawn by their probabilities; it remembers what it saw and took."""

    def __init__(self, policy: StagePolicy, seed: Sequence[int]) -> None:
        super().__init__(policy=policy)
        self._draws = np.random.default_rng(seed)
        self.seen: list[np.ndarray] = []
        self.taken: list[int] = []

    def choose(self, context: SchedulingContext, waiting: Sequence[int]) -> int:
        """See :class:`Learnt`."""
        features = self.features(context, waiting)
        # The largest of scores with Gumbel noise is a draw from their softmax.
        noise = self._draws.gumbel(size=len(waiting))
        taken = int(np.argmax(self.policy.scores(features) + noise))
        self.seen.append(features)
        self.taken.append(taken)
        return waiting[taken]


def run(sequence: mixes.Sequence, scheduler: Scheduler) -> Trace:
    """One simulation."""
    return simulate(sequence.workload, sequence.cluster, sequence.costs, scheduler)


def outcome(trace: Trace, objective: str) -> float:
    """Seconds: what a policy is to make small."""
    if objective == "makespan":
        return trace.makespan
    return float((trace.jobs["finish"] - trace.jobs["arrival"]).mean())


def train(
    settings: Training,
    seed: int,
    checkpoint: Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> tuple[StagePolicy, Progress]:
    """Train one policy; the one kept did best in a validation.

    Args:
        settings: how.
        seed: of the initial weights, the sequences and the choices.
        checkpoint: a file that each validation writes and from which an interrupted training goes on.
        progress: called after each iteration with those done and the last validation.

    Raises:
        InvalidInput: the checkpoint is none, or cannot be written.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums are rounded in another order with other numbers of threads
    try:
        return _Trainer(settings, seed, checkpoint).train(progress)
    finally:
        torch.set_num_threads(threads)


class _Trainer:
    """Weights as torch tensors, and the loop."""

    def __init__(self, settings: Training, seed: int, checkpoint: Path | None) -> None:
        import torch

        self.settings, self.seed, self.checkpoint = settings, seed, checkpoint
        widths = (len(FEATURES), *settings.hidden, 1)
        draws = np.random.default_rng([seed, 0])
        names, start = [], {}
        for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
            size = draws.normal(size=(inputs, outputs)) / np.sqrt(inputs)
            start[f"weights{i}"] = size.astype(np.float32)
            names.append(f"weights{i}")
            if outputs > 1:
                start[f"bias{i}"] = np.zeros(outputs, dtype=np.float32)
                names.append(f"bias{i}")
        # At first all choices are nearly alike.
        start[f"weights{len(widths) - 2}"] *= np.float32(0.1)
        self.state = _read(checkpoint, settings) if checkpoint else None
        if self.state is None:
            self.state = Progress({f"policy.{n}": v for n, v in start.items()})
        tensors = self.state.tensors
        self.parameters = {
            n: torch.from_numpy(tensors[f"policy.{n}"].copy()).requires_grad_() for n in names
        }
        self.optimiser = torch.optim.Adam(self.parameters.values(), lr=settings.learning_rate)
        for name, parameter in self.parameters.items():
            if f"first.{name}" in tensors:
                self.optimiser.state[parameter] = {
                    "step": torch.tensor(float(self.state.done)),
                    "exp_avg": torch.from_numpy(tensors[f"first.{name}"].copy()),
                    "exp_avg_sq": torch.from_numpy(tensors[f"second.{name}"].copy()),
                }

    def policy(self, tensors: dict[str, np.ndarray] | None = None) -> StagePolicy:
        """The policy of these weights, or as it is now."""
        found = tensors or {n: p.detach().numpy().copy() for n, p in self.parameters.items()}
        weights = [found[f"weights{i}"] for i in range(len(self.settings.hidden) + 1)]
        return StagePolicy(weights, [found[f"bias{i}"] for i in range(len(self.settings.hidden))])

    def train(self, progress: Callable[[int, float], None] | None) -> tuple[StagePolicy, Progress]:
        state, settings = self.state, self.settings
        assert state is not None
        drawn = [
            mixes.training_mix(seed).draw(seed)
            for seed in range(mixes.VALIDATION, mixes.VALIDATION + settings.validations)
        ]
        held = [
            (sequence, outcome(run(sequence, ContentionFree("fifo")), settings.objective))
            for sequence in drawn
        ]
        while state.done < settings.iterations:
            entropy = self._step(state.done)
            state.done += 1
            if state.done % settings.validate_every == 0 or state.done == settings.iterations:
                policy = self.policy()
                shares = [
                    outcome(run(s, Learnt(policy=policy)), settings.objective) / fifo
                    for s, fifo in held
                ]
                state.curve.append((state.done, float(np.mean(shares)), entropy))
                for name, parameter in self.parameters.items():
                    state.tensors[f"policy.{name}"] = parameter.detach().numpy().copy()
                    moments = self.optimiser.state[parameter]
                    state.tensors[f"first.{name}"] = moments["exp_avg"].numpy().copy()
                    state.tensors[f"second.{name}"] = moments["exp_avg_sq"].numpy().copy()
                    if state.curve[-1][1] < state.best:
                        state.tensors[f"best.{name}"] = state.tensors[f"policy.{name}"]
                state.best = min(state.best, state.curve[-1][1])
                if self.checkpoint:
                    _write(self.checkpoint, state, settings)
            if progress:
                progress(state.done, state.curve[-1][1] if state.curve else float("nan"))
        return self.policy({n: state.tensors[f"best.{n}"] for n in self.parameters}), state

    def _step(self, iteration: int) -> float:
        """One batch; returns the mean entropy of its decisions, nats."""
        import torch

        settings, policy = self.settings, self.policy()
        seen: list[np.ndarray] = []
        taken: list[int] = []
        weight: list[float] = []
        first = mixes.TRAINING + self.seed * 10_000_000 + iteration * settings.sequences
        for seed in range(first, first + settings.sequences):
            sequence = mixes.training_mix(seed).draw(seed)
            runs = [Drawing(policy, [seed, number]) for number in range(settings.runs)]
            values = np.array([outcome(run(sequence, r), settings.objective) for r in runs])
            # By which share shorter than the mean of the sequence.
            for drawing, advantage in zip(runs, 1.0 - values / values.mean(), strict=True):
                seen += drawing.seen
                taken += drawing.taken
                weight += [advantage] * len(drawing.taken)
        if not taken:
            raise InvalidInput("No training sequence left a choice; give more sequences")
        lengths = torch.tensor([len(rows) for rows in seen])
        decision = torch.repeat_interleave(torch.arange(len(seen)), lengths)
        values_ = torch.from_numpy(np.concatenate(seen))
        for i in range(len(settings.hidden)):
            values_ = torch.tanh(
                values_ @ self.parameters[f"weights{i}"] + self.parameters[f"bias{i}"]
            )
        scores = (values_ @ self.parameters[f"weights{len(settings.hidden)}"])[:, 0]
        sums = torch.zeros(len(seen)).index_add(0, decision, torch.exp(scores))
        log = scores - torch.log(sums)[decision]
        starts = torch.cumsum(lengths, 0) - lengths
        chosen = log[starts + torch.tensor(taken)]
        entropy = -(log.exp() * log).sum() / len(seen)
        left = 1.0 - 0.99 * iteration / max(1, settings.iterations - 1)
        advantage = torch.tensor(weight, dtype=torch.float32)
        advantage = advantage / (advantage.std() + 1e-8)
        loss = -(advantage * chosen).mean() - settings.entropy * left * entropy
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        self.optimiser.step()
        return float(entropy.detach())


def _write(path: Path, state: Progress, settings: Training) -> None:
    from safetensors.numpy import save

    described: dict[str, Any] = {
        "settings": asdict(settings),
        "done": state.done,
        "best": state.best,
        "curve": state.curve,
    }
    write_whole(path, save(state.tensors, {CHECKPOINT: json.dumps(described)}))


def _read(path: Path, settings: Training) -> Progress | None:
    """What an interrupted training of the same settings left; None where there is nothing."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="numpy") as file:
            found = json.loads(file.metadata()[CHECKPOINT])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise InvalidInput(
            f"{path} is no checkpoint of a training; delete it to begin anew"
        ) from None
    if found["settings"] != json.loads(json.dumps(asdict(settings))):
        raise InvalidInput(
            f"{path} is of a training with other settings; delete it to begin anew, or give another folder"
        )
    curve = [(int(i), float(v), float(e)) for i, v, e in found["curve"]]
    return Progress(tensors, found["done"], found["best"], curve)
