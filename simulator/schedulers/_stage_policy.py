"""A trained policy for staged jobs: a score for each waiting task from its features; the highest is next.

Deciding needs NumPy alone; ``python -m experiments.shop_policy train`` trains one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import InvalidInput
from simulator.support.atomic_io import write_whole

HEADER = "hetsim.stage_policy"
"""The key of a file's metadata under which its description stands, as JSON."""
FORMAT = 1
FEATURES = (
    *("own_seconds", "next_seconds", "later_seconds", "rank", "tail", "feeds_next"),
    *("own_backlog", "next_backlog", "children", "unlocks", "job_left", "job_age", "age"),
    *("first_phase", "last_phase"),
)
"""What a policy sees of a task, in the order of its columns; :class:`simulator.schedulers.learnt.Learnt` says what
each means. A policy of other features cannot decide."""


@dataclass(frozen=True)
class StagePolicy:
    """A multilayer perceptron, tanh between its layers.

    Attributes:
        weights: float32[inputs, outputs] of each layer, the first of all features, the last of one output.
        biases: float32[outputs] of each layer; the last has none, since a constant would change no choice.
        notes: what else is to be known of it.
    """

    weights: Sequence[np.ndarray]
    biases: Sequence[np.ndarray]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """float32[tasks] of float32[tasks, features]."""
        values = features
        for weights, bias in zip(self.weights, self.biases, strict=False):
            values = np.tanh(values @ weights + bias)
        found: np.ndarray = (values @ self.weights[-1])[:, 0]
        return found

    def save(self, path: str | Path) -> Path:
        """Write safetensors with a description in JSON, whole or not at all; returns the path.

        Raises:
            InvalidInput: the file cannot be written.
        """
        from safetensors.numpy import save

        description = {"format": FORMAT, "features": FEATURES, "notes": dict(self.notes)}
        tensors = {f"weights{i}": w for i, w in enumerate(self.weights)}
        tensors |= {f"bias{i}": b for i, b in enumerate(self.biases)}
        return write_whole(path, save(tensors, {HEADER: json.dumps(description, sort_keys=True)}))


def load_policy(path: str | Path) -> StagePolicy:
    """Read what :meth:`StagePolicy.save` wrote.

    Raises:
        InvalidInput: the file is missing or cut short, holds something else, or is for other features.
    """
    from safetensors import SafetensorError, safe_open

    way_out = "make one: python -m experiments.shop_policy train"
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        reason = error.strerror or "there is no such file"
        raise InvalidInput(f"Cannot read policy {path}: {reason}; {way_out}") from None
    except SafetensorError as error:
        raise InvalidInput(
            f"{path} holds no policy, or was cut short ({error}); {way_out}"
        ) from None
    if HEADER not in metadata:
        raise InvalidInput(f"{path} holds no policy for staged jobs; {way_out}")
    try:
        description = json.loads(metadata[HEADER])
        known, seen = description["format"], list(description["features"])
        notes = dict(description["notes"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"Policy {path} is damaged ({error!r}); {way_out}") from None
    if known != FORMAT:
        raise InvalidInput(f"Policy {path} has format {known}, this is {FORMAT}; {way_out}")
    if seen != list(FEATURES):
        differing = sorted({*map(str, seen)} ^ {*FEATURES}) or ["their order"]
        raise InvalidInput(
            f"Policy {path} decides by other features than this program gives it (differing: "
            f"{', '.join(differing)}); {way_out}"
        )
    layers = len(tensors) // 2 + 1
    names = [f"weights{i}" for i in range(layers)] + [f"bias{i}" for i in range(layers - 1)]
    policy = None
    if sorted(names) == sorted(tensors):
        policy = StagePolicy(
            [tensors[name] for name in names[:layers]],
            [tensors[name] for name in names[layers:]],
            notes,
        )
    if policy is None or not _fits(policy):
        raise InvalidInput(
            f"Policy {path} is damaged: its tensors are no layers of finite float32 from {len(FEATURES)} features to "
            f"one score; {way_out}"
        )
    return policy


def _fits(policy: StagePolicy) -> bool:
    width = len(FEATURES)
    for weights, bias in zip(policy.weights, [*policy.biases, None], strict=True):
        for values in [weights] if bias is None else [weights, bias]:
            if values.dtype != np.float32 or not np.isfinite(values).all():
                return False
        if weights.ndim != 2 or weights.shape[0] != width:
            return False
        width = weights.shape[1]
        if bias is not None and bias.shape != (width,):
            return False
    return width == 1
