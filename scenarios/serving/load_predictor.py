"""A load predictor that is trained: one LSTM for all nodes, from the latest loads of a node to the mean of
the next.

Loads are scaled to 0..1 by the least and the largest of the training, the loss is the squared error. PyTorch
trains the network; predicting needs NumPy alone. ``python -m experiments.train_predictor`` trains and
evaluates one.

Source: thesis 001 (edge-node selection: 32 hidden units, one layer, 20 samples); S. Hochreiter and
J. Schmidhuber, *Long short-term memory*, Neural Computation 9(8), 1997, doi:10.1162/neco.1997.9.8.1735, with
the forget gates of PyTorch's ``LSTM``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import InvalidInput
from simulator.support.atomic_io import write_whole
from simulator.support.shipped import find_file

HEADER = "hetsim.load_predictor"
"""The key of a file's metadata under which its description stands, as JSON."""
FORMAT = 1
HIDDEN, EPOCHS, PATIENCE, BATCH = 32, 60, 8, 256
LEARNING_RATE = 3e-3
VALIDATION = 0.2
"""Share of the training time, its end, by which the epoch to keep is chosen."""
MOST_HIDDEN = 4096


@dataclass(frozen=True)
class LoadNetwork:
    """A trained network.

    Attributes:
        window, horizon: samples that it sees, and of which it says the mean.
        low, high: loads that are scaled to 0 and 1.
        into: float32[4 * hidden], weights of the load; gates input, forget, cell, output.
        over: float32[hidden, 4 * hidden], weights of the state before.
        bias: float32[4 * hidden].
        out: float32[hidden + 1], weights of the result; the last is its bias.
        options: of the selection, for which it was trained: name -> value (``sample``, ``average``).
        notes: what else is to be known of it.
    """

    window: int
    horizon: int
    low: float
    high: float
    into: np.ndarray
    over: np.ndarray
    bias: np.ndarray
    out: np.ndarray
    options: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, history: np.ndarray) -> np.ndarray:
        """float64[nodes]: mean load of the next ``horizon`` samples.

        Args:
            history: [nodes, samples], the last column the latest; at least ``window`` samples.

        Raises:
            InvalidInput: there are fewer.
        """
        if history.ndim != 2 or history.shape[1] < self.window:
            raise InvalidInput(
                f"The load predictor sees {self.window} samples; it was given {history.shape[-1]}"
            )
        span = self.high - self.low
        loads = ((history[:, -self.window :] - self.low) / span).astype(np.float32)
        steps = loads[:, :, None] * self.into + self.bias
        hidden = self.over.shape[0]
        state = np.zeros((len(loads), hidden), dtype=np.float32)
        cell = np.zeros_like(state)
        for step in range(self.window):
            gates = steps[:, step] + state @ self.over
            opens = _sigmoid(gates)
            cell = opens[:, hidden : 2 * hidden] * cell + opens[:, :hidden] * np.tanh(
                gates[:, 2 * hidden : 3 * hidden]
            )
            state = opens[:, 3 * hidden :] * np.tanh(cell)
        found: np.ndarray = (state @ self.out[:-1] + self.out[-1]).astype(np.float64)
        return found * span + self.low

    def save(self, path: str | Path) -> Path:
        """Write safetensors with a description in JSON, whole or not at all; returns the path.

        Raises:
            InvalidInput: the file cannot be written.
        """
        from safetensors.numpy import save

        description = {
            "format": FORMAT,
            "window": self.window,
            "horizon": self.horizon,
            "low": self.low,
            "high": self.high,
            "options": dict(self.options),
            "notes": dict(self.notes),
        }
        tensors = {"into": self.into, "over": self.over, "bias": self.bias, "out": self.out}
        return write_whole(path, save(tensors, {HEADER: json.dumps(description, sort_keys=True)}))


def load_network(path: str | Path) -> LoadNetwork:
    """Read what :meth:`LoadNetwork.save` wrote.

    Raises:
        InvalidInput: the file is missing, cut short, or holds something else.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path).expanduser()
    way_out = "make one: python -m experiments.train_predictor"
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            names = set(file.keys())
            if HEADER not in metadata or names != {"into", "over", "bias", "out"}:
                raise InvalidInput(f"{path} holds no load predictor; {way_out}")
            tensors = {name: file.get_tensor(name) for name in names}
    except OSError as error:
        reason = error.strerror or "there is no such file"
        raise InvalidInput(f"Cannot read load predictor {path}: {reason}; {way_out}") from None
    except SafetensorError as error:
        raise InvalidInput(
            f"{path} holds no load predictor, or was cut short ({error}); {way_out}"
        ) from None
    try:
        description = json.loads(metadata[HEADER])
        if description["format"] != FORMAT:
            raise InvalidInput(
                f"Load predictor {path} has format {description['format']}, this is {FORMAT}; {way_out}"
            )
        network = LoadNetwork(
            window=int(description["window"]),
            horizon=int(description["horizon"]),
            low=float(description["low"]),
            high=float(description["high"]),
            options={str(key): float(value) for key, value in description["options"].items()},
            notes=dict(description["notes"]),
            **tensors,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"Load predictor {path} is damaged ({error!r}); {way_out}") from None
    _check(network, path, way_out)
    return network


class LstmPredictor:
    """A :class:`simulator.serving.two_stage.LoadPredictor` of a file.

    Args:
        file: what ``python -m experiments.train_predictor`` wrote; see
            :func:`simulator.support.shipped.find_file`.

    Attributes:
        trained_for: options that the selection must have.

    Raises:
        InvalidInput: see :func:`load_network`.
    """

    def __init__(self, file: str) -> None:
        self.network = load_network(find_file(file))
        self.trained_for: Mapping[str, float] = {
            "window": self.network.window,
            "horizon": self.network.horizon,
            **self.network.options,
        }

    def predict(self, history: np.ndarray) -> np.ndarray:
        """See :class:`simulator.serving.two_stage.LoadPredictor`."""
        return self.network.predict(history)


def windows(
    loads: Sequence[np.ndarray], window: int, horizon: int
) -> tuple[np.ndarray, np.ndarray]:
    """What a predictor sees and what is right.

    Args:
        loads: of each run float[samples, nodes].
        window: samples seen.
        horizon: samples after them, of which the mean is right.

    Returns:
        float64[n, window] and float64[n], by run, sample and node; no window spans two runs.
    """
    seen, right = [np.zeros((0, window))], [np.zeros(0)]
    for run in loads:
        if len(run) < window + horizon:
            continue
        spans = np.lib.stride_tricks.sliding_window_view(run, window + horizon, axis=0)
        seen.append(spans[..., :window].reshape(-1, window))
        right.append(spans[..., window:].mean(axis=-1).reshape(-1))
    return np.concatenate(seen), np.concatenate(right)


def split(loads: Sequence[np.ndarray], share: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Every run cut in time: the beginning, and the last ``share`` of it."""
    ends = [len(run) - round(share * len(run)) for run in loads]
    return (
        [run[:end] for run, end in zip(loads, ends, strict=True)],
        [run[end:] for run, end in zip(loads, ends, strict=True)],
    )


def fit(
    loads: Sequence[np.ndarray],
    *,
    window: int = 20,
    horizon: int = 5,
    hidden: int = HIDDEN,
    epochs: int = EPOCHS,
    seed: int = 0,
    options: Mapping[str, float] | None = None,
    notes: Mapping[str, Any] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> LoadNetwork:
    """Train a network.

    The weights kept are those of the epoch with the smallest error at the end of the training time; the
    training stops :data:`PATIENCE` epochs after it. It starts from the mean, so that where there is
    nothing to be learnt the mean is what remains.

    Args:
        loads: of each run float[samples, nodes], finite.
        window: samples seen.
        horizon: samples after them, of which the mean is predicted.
        hidden: units.
        epochs: at most.
        seed: of weights and batches; the same gives the same network.
        options: see :class:`LoadNetwork`.
        notes: see there.
        progress: called after every epoch with the number of those done and the error then.

    Raises:
        InvalidInput: an argument is out of range, or there are too few samples.
    """
    for what, value in (("window", window), ("horizon", horizon), ("epochs", epochs)):
        if value < 1:
            raise InvalidInput(f"A load predictor cannot have {what} {value}; give at least 1")
    if not 1 <= hidden <= MOST_HIDDEN:
        raise InvalidInput(f"A load predictor of {hidden} units: give 1 to {MOST_HIDDEN}")
    if not all(run.ndim == 2 and np.isfinite(run).all() for run in loads):
        raise InvalidInput("Loads to train on must be finite, a column for each node")
    early, late = split(loads, VALIDATION)
    (seen, right), (seen_late, right_late) = (
        windows(early, window, horizon),
        windows(late, window, horizon),
    )
    if not len(right) or not len(right_late):
        needed = math.ceil((window + horizon) / VALIDATION)
        raise InvalidInput(
            f"To train on {window} samples for the next {horizon} takes runs of at least {needed} "
            f"samples; the longest has {max((len(run) for run in loads), default=0)}"
        )
    low = float(min(run.min() for run in early if len(run)))
    high = float(max(run.max() for run in early if len(run)))
    if high <= low:
        high = low + 1.0  # loads that never changed
    scaled = [(values - low) / (high - low) for values in (seen, right, seen_late, right_late)]
    tensors = _train(scaled, hidden, epochs, seed, progress)
    return LoadNetwork(
        window, horizon, low, high, **tensors, options=options or {}, notes=notes or {}
    )


def _train(
    data: Sequence[np.ndarray],
    hidden: int,
    epochs: int,
    seed: int,
    progress: Callable[[int, float], None] | None,
) -> dict[str, np.ndarray]:
    """Weights after training on (seen, right), chosen by the other two."""
    import torch

    threads = torch.get_num_threads()
    # Sums are rounded in another order with other numbers of threads.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _optimise(data, hidden, epochs, progress)
    finally:
        torch.set_num_threads(threads)


def _optimise(
    data: Sequence[np.ndarray],
    hidden: int,
    epochs: int,
    progress: Callable[[int, float], None] | None,
) -> dict[str, np.ndarray]:
    import torch
    from torch import nn

    seen, right, seen_late, right_late = (torch.from_numpy(a.astype(np.float32)) for a in data)
    lstm, head = nn.LSTM(1, hidden, batch_first=True), nn.Linear(hidden, 1)
    with torch.no_grad():
        head.weight.mul_(0.1)
        head.bias.fill_(float(right.mean()))

    def expect(values: torch.Tensor) -> torch.Tensor:
        states, _ = lstm(values[:, :, None])
        found: torch.Tensor = head(states[:, -1])[:, 0]
        return found

    parameters = [*lstm.parameters(), *head.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    best, kept, kept_at = math.inf, [p.detach().clone() for p in parameters], -1
    for epoch in range(epochs):
        order = torch.randperm(len(right))
        for rows in order.split(BATCH):
            optimiser.zero_grad()
            loss = nn.functional.mse_loss(expect(seen[rows]), right[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
        with torch.no_grad():
            late = torch.cat([expect(part) for part in seen_late.split(8192)])
            error = float(nn.functional.mse_loss(late, right_late))
        if error < best:
            best, kept, kept_at = error, [p.detach().clone() for p in parameters], epoch
        if progress is not None:
            progress(epoch + 1, error)
        if epoch - kept_at >= PATIENCE:
            break
    into, over, bias, more_bias, out, out_bias = (p.numpy() for p in kept)
    return {
        "into": into[:, 0].copy(),
        "over": over.T.copy(),
        "bias": bias + more_bias,
        "out": np.concatenate([out[0], out_bias]),
    }


def _sigmoid(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found


def _check(network: LoadNetwork, path: Path, way_out: str) -> None:
    hidden = len(network.over)
    shapes = {
        "into": (4 * hidden,),
        "over": (hidden, 4 * hidden),
        "bias": (4 * hidden,),
        "out": (hidden + 1,),
    }
    for name, shape in shapes.items():
        values = getattr(network, name)
        if values.shape != shape or values.dtype != np.float32 or not np.isfinite(values).all():
            raise InvalidInput(
                f"Load predictor {path} is damaged: {name} is no finite float32{list(shape)}; {way_out}"
            )
    scale = (network.low, network.high)
    if (
        network.window < 1
        or network.horizon < 1
        or not (all(map(math.isfinite, scale)) and network.high > network.low)
    ):
        raise InvalidInput(
            f"Load predictor {path} is damaged: window {network.window}, horizon {network.horizon}, "
            f"loads from {network.low} to {network.high}; {way_out}"
        )
